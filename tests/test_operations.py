"""Operations as contracts: what each declares, what may come as an argument, what a method lists."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

import fedsift as fs
from fedsift.core.arguments import AtMost, Between, MayMiss, schema_of, unchecked
from fedsift.core.operation import _registry, is_own, operation, operations
from fedsift.crypto.additive.keys import PublicKey
from fedsift.deploy import delivery
from fedsift.errors import OperationRefused, ParameterError
from fedsift.evaluate.announced import WORK
from fedsift.methods import METHODS
from fedsift.models.boost.model import _SecureBoost
from fedsift.mpc import pairs, psi
from fedsift.site.policy import CORE

MODELS = (_SecureBoost, fs.SplitNN, fs.FedLinear, fs.HyFDCA, fs.VerticalLogisticRegression, fs.VerticalAdditive)
#: Operations with an argument that is ``Any`` somewhere: this number may only go down.
UNCHECKED = 0
#: Operations that do not say how often they may be asked in a job: this number may only go down.
UNCOUNTED = 0


def own_operations():
    assert delivery.keep_result.id in _registry
    return [marked for marked in operations() if is_own(marked.module)]


# --- lists -----------------------------------------------------------------------------------------------------------


def test_every_operation_belongs_to_a_method_or_a_model():
    listed = {marked.id for owner in (*METHODS.values(), *MODELS) for marked in owner.operations}
    listed |= {marked.id for marked in (*psi.OPERATIONS, *pairs.OPERATIONS)}
    listed |= {marked.id for work in WORK.values() for marked in work.operations}
    others = [marked.id for marked in own_operations() if marked.family not in CORE and marked.id not in listed]
    assert [id for id in others if not id.endswith(".open")] == []  # a sum that is never asked for in the clear


@pytest.mark.parametrize("owner", [*METHODS.values(), *MODELS], ids=lambda owner: owner.__name__)
def test_a_list_names_registered_operations_once(owner):
    ids = [marked.id for marked in owner.operations]
    assert all(_registry[marked.id] is marked for marked in owner.operations)
    assert len(set(ids)) == len(ids)
    assert not {marked.family for marked in owner.operations} & set(CORE)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_that_a_policy_judges_are_declared(method):
    """Found by their spelling here, where a forgotten one fails; the policy itself reads the declarations."""
    chosen = METHODS[method]
    names = list(chosen().get_params(deep=False))
    assert list(chosen.cell_parameters) == [name for name in names if name in ("min_cell", "min_leaf")]
    assert sorted(chosen.epsilon_parameters) == sorted(name for name in names if name.endswith("epsilon"))


def test_arguments_that_a_policy_judges_are_declared():
    for marked in own_operations():
        arguments = schema_of(marked.function).hints
        spelled = {name for name in arguments if name in ("min_cell", "least")}
        assert spelled <= {marked.min_cell}, marked.id
        assert {name for name in arguments if name.endswith("epsilon")} <= {marked.epsilon}, marked.id
        assert {setting.partition("=")[0] for setting in marked.settings} <= set(arguments), marked.id


def test_steps_come_after_steps_that_exist():
    for marked in own_operations():
        assert set(marked.after) <= set(_registry), marked.id


def test_what_is_not_checked_or_counted_only_gets_less():
    loose = [marked.id for marked in own_operations() if unchecked(marked.function)]
    assert len(loose) <= UNCHECKED, sorted(loose)
    uncounted = [marked.id for marked in own_operations() if marked.times is None]
    assert len(uncounted) <= UNCOUNTED, sorted(uncounted)


def test_a_contract_that_makes_no_sense_is_no_operation():
    def nothing(party) -> None: ...

    with pytest.raises(ParameterError, match="role is one of"):
        operation("test_operations.x", discloses="control", about="x", role="guest")(nothing)
    with pytest.raises(ParameterError, match="must be one of"):
        operation("test_operations.x", discloses="masked", about="x", opened="everything: x")(nothing)
    assert "test_operations.x" not in _registry


def test_what_a_receiver_opens_is_what_travels_unless_said_otherwise():
    def nothing(party) -> None: ...

    try:
        same = operation("test_operations.same", discloses="aggregate", about="a sum")(nothing)
        assert (same.opened, same.opened_form, same.concerns) == ("aggregate: a sum", "aggregate", "own columns")
    finally:
        _registry.pop("test_operations.same", None)


@pytest.mark.parametrize("form", ["masked", "ciphertext"])
def test_what_travels_hidden_says_what_is_opened_of_it_or_that_nobody_does(form):
    """A site's rules, its journal and the page that a person approves go by that, not by how it travels."""

    def nothing(party) -> None: ...

    with pytest.raises(ParameterError, match="say what is opened of it in the end"):
        operation("test_operations.hidden", discloses=form, about="a share")
    try:
        share = operation("test_operations.hidden", discloses=form, about="a share", opened="nobody")(nothing)
        assert (share.opened_form, share.released(np.ones(3)).bits) == (form, 0)
    finally:
        _registry.pop("test_operations.hidden", None)


#: What travels hidden and is read in the end, row by row: form and reader.
READ_BY_ROW = {
    "boost.take_cuts": ("pseudonymous", "active"), "boost.route_hidden": ("pseudonymous", "active"),
    "boost.show_scores": ("pseudonymous", "active"), "boost.tell_sides": ("plain", "active"),
    "descent.share_scores": ("pseudonymous", "active"), "logistic.part_scores": ("pseudonymous", "active"),
    "hyfdca.step_and_score": ("pseudonymous", "active"), "hyfdca.score_rows": ("pseudonymous", "active"),
    "flafe.multiply_columns": ("plain", "parties"), "flafe.multiply_noisy": ("pseudonymous", "parties"),
    "flafe.prediction_share": ("pseudonymous", "active"), "sine_network.send_answer": ("pseudonymous", "active"),
    "network_lattice.open_lattice": ("pseudonymous", "active"), "network_lattice.learn_lattice": ("plain", "passive"),
}  # fmt: skip


def test_what_is_read_row_by_row_of_hidden_messages_is_declared_with_its_reader():
    hidden = [each for each in own_operations() if each.discloses in ("masked", "ciphertext")]
    found = {each.id: (each.opened_form, each.opened_by) for each in hidden}
    assert {id: told for id, told in found.items() if told[0] in ("plain", "pseudonymous")} == {
        **READ_BY_ROW, "hyfdca.open_part": ("plain", "parties"),
    }  # fmt: skip


# --- arguments -------------------------------------------------------------------------------------------------------


class Needed(TypedDict):
    size: Annotated[int, Between(1, 8)]


class Fields(Needed, total=False):
    rows: NDArray[np.uint64] | None


def step(
    party,
    *,
    count: int = 0,
    few: Annotated[int, Between(1, 8)] = 1,
    share: float = 0.5,
    flag: bool = False,
    word: str = "",
    long: Annotated[str, AtMost(20_000)] = "",
    kind: Literal["a", "b"] = "a",
    names: list[str] = (),
    groups: dict[str, list[int]] = (),
    maybe: int | None = None,
    column: np.ndarray = None,
    holes: Annotated[np.ndarray, MayMiss()] = None,
    words: NDArray[np.uint64] = None,
    key: PublicKey = None,
    fields: Fields = None,
    free: Any = None,
) -> None: ...


FLOATS = np.array([1.0, np.nan])
GOOD = {
    "count": [0, -5, 2**53], "few": [1, 8], "share": [0.1, 3], "flag": [True], "word": ["x" * 10_000],
    "long": ["x" * 20_000], "kind": ["b"], "names": [[], ["a"]], "groups": [{"a": [1, 2]}, {}], "maybe": [None, 3],
    "column": [np.ones(3), np.arange(3)], "holes": [FLOATS], "words": [np.ones(2, dtype=np.uint64)],
    "fields": [{"size": 1}, {"size": 8, "rows": None}, {"size": 2, "rows": np.ones(2, dtype=np.uint64)}],
    "free": [object(), {"a": [None]}],
}  # fmt: skip
BAD = {
    "count": [True, 1.0, "1", None, 2**53 + 1, -(2**60), 10**5000], "few": [0, 9], "share": [np.nan, np.inf, "1", True],
    "flag": [1, None], "word": [3, "x" * 10_001, b"x"], "long": ["x" * 20_001], "kind": ["c", 1, None],
    "names": ["a", [1], {"a": 1}, [None], ["x" * 10_001]], "groups": [[], {"a": 1}, {"a": ["1"]}, {"a": [2**60]}],
    "maybe": ["x", 2**60, 1.5], "column": [[1.0], FLOATS, None, 1.0], "holes": [[1.0]],
    "fields": [{}, [], {"size": 9}, {"size": "1"}, {"rows": None}, {"size": 1, "more": 1}, {"size": 1, "rows": 1}],
    "words": [np.ones(2), np.ones(2, dtype=np.int64)], "key": [b"x", None, 3], "unknown": [1],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_an_argument_within_its_schema_passes(name):
    for value in GOOD[name]:
        schema_of(step).check({name: value}, "bank", "step")


@pytest.mark.parametrize("name", BAD)
def test_an_argument_beyond_its_schema_is_refused_without_its_value(name):
    for value in BAD[name]:
        with pytest.raises(OperationRefused) as caught:
            schema_of(step).check({name: value}, "bank", "step")
        assert len(str(caught.value)) < 200


def test_a_missing_argument_is_refused():
    def needs(party, *, count: int) -> None: ...

    with pytest.raises(OperationRefused, match="unknown or missing"):
        schema_of(needs).check({}, "bank", "needs")


def test_an_alias_is_what_it_stands_for():
    """NumPy from 2.5 on writes ``NDArray`` as a ``type`` statement."""
    kind = TypeVar("kind", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[kind]], type_params=(kind,))

    def sums(party, *, values: Any) -> None: ...

    sums.__annotations__["values"] = alias[np.uint64]
    schema_of(sums).check({"values": np.zeros(3, np.uint64)}, "bank", "sums")
    with pytest.raises(OperationRefused, match="array of uint64"):
        schema_of(sums).check({"values": np.zeros(3)}, "bank", "sums")
    assert unchecked(sums) == []


def test_any_inside_a_typed_dictionary_is_seen():
    class Loose(TypedDict):
        inside: dict[str, Any]

    def loose(party, *, told: Any, fields: Fields) -> None: ...

    loose.__annotations__["told"] = list[Loose]
    assert unchecked(loose) == ["told"]


def test_containers_have_a_limit():
    with pytest.raises(OperationRefused, match="more than 1,000,000 items"):
        schema_of(step).check({"names": ["a"] * 1_000_001}, "bank", "step")


def test_every_schema_can_be_read():
    for marked in own_operations():
        schema_of(marked.function)
