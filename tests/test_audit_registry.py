"""Attacks bind to operations; every operation that is not mere control has an attack, a waiver, or a place in line."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import fedsift
from fedsift.audit import PENDING, WAIVERS, Exposure, Measure, Truth, attacks_on, load_attacks, record, uncovered
from fedsift.audit.naming import matches
from fedsift.audit.registry import ATTACKS, Attack, attack
from fedsift.core.operation import is_own, operations
from fedsift.errors import ParameterError
from fedsift.methods import METHODS, MODELS

#: The line may only get shorter: an attack or a waiver takes an operation off it, and this number with it.
MOST_PENDING = 0
SKIPPED = {"fedsift.__main__", "fedsift.crypto._kernel", "fedsift.deploy.__main__"}


def what_parties_learn() -> dict[str, str]:
    """Ids of all operations of fedsift whose request tells the party something, and what."""
    shipped_operations()
    told = {marked.id: marked.learns for marked in operations() if is_own(marked.module) and marked.learns}
    return {id: learns for id, learns in told.items() if not learns.startswith("nothing")}


def shipped_operations() -> dict[str, str]:
    """Ids of all operations of fedsift, and what each discloses."""
    for module in pkgutil.walk_packages(fedsift.__path__, "fedsift."):
        if module.name not in SKIPPED:
            importlib.import_module(module.name)
    return {marked.id: marked.discloses for marked in operations() if is_own(marked.module)}


def test_every_operation_that_is_not_control_is_covered():
    names = [name for name, form in shipped_operations().items() if form != "control"]
    assert len(names) > 100
    assert uncovered(names) == [], "write an attack in audit/attacks, or say in audit/waivers.py why none is needed"


def test_every_request_that_tells_a_party_something_is_covered():
    """FLAFE's importances, told to a party by a mere instruction, gave it every label (importance_of_operands)."""
    told = list(what_parties_learn())
    assert len(told) > 40
    assert uncovered(told) == [], "write an attack in audit/attacks, or say in audit/waivers.py why none is needed"


def test_a_new_operation_is_not_covered_by_accident():
    assert uncovered(["new.column_averages"]) == ["new.column_averages"]


def test_waivers_and_pending_name_operations_that_exist():
    names = list(shipped_operations())
    assert [spec for spec in (*WAIVERS, *PENDING) if not any(matches(spec, name) for name in names)] == []


def test_no_operation_is_waived_or_pending_that_has_an_attack():
    load_attacks()
    names = shipped_operations()
    attacked = {name for name in names for each in ATTACKS.values() if each.reads_from([name])}
    waived = {name for name in names if any(matches(spec, name) for spec in (*WAIVERS, *PENDING))}
    assert attacked & waived == set(), "an attack that is named like another family's message reads it, too"


#: Two families whose messages of that name have the same content.
ALIKE = {"read_scores"}


def test_an_attack_that_names_no_family_reads_messages_of_one():
    """Else an operation that happens to be called like another one would pass for attacked."""
    names = shipped_operations()
    for each in load_attacks().values():
        for spec in each.reads:
            families = {name.split(".")[0] for name in names if matches(spec, name)}
            assert len(families) <= 1 or spec in ALIKE, (each.name, spec, families)


def test_what_is_pending_does_not_grow():
    assert len(PENDING) <= MOST_PENDING


def test_waivers_are_sentences():
    for why in WAIVERS.values():
        assert len(why.split()) >= 5
        assert why.endswith(".")


def test_loading_the_attacks_does_not_need_torch():
    code = "import sys, fedsift.audit as a; a.load_attacks(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("each", load_attacks().values(), ids=lambda a: a.name)
def test_an_attack_says_what_it_does(each: Attack):
    assert each.function.__doc__
    assert each.knows
    assert each.declared
    assert each.line is None or 1 <= each.line <= 15


def test_operations_are_named_by_id_or_in_any_family():
    assert matches("draw_rows", "core.draw_rows")
    assert matches("draw_rows", "leaky_draws.draw_rows")
    assert matches("moments", "linear.moments.open")
    assert matches("linear.moments", "linear.moments")
    assert not matches("linear.moments", "linear.moments.open")
    assert not matches("rows", "core.draw_rows")


@pytest.fixture
def own_attack():
    @attack(reads=["masked_class_sums"], role="passive", target="labels", knows="nothing", declared="no")
    def says_zero(view, truth):
        """Guess class 0 for everybody."""
        return Measure("accuracy", float((truth.labels == 0).mean()), truth.guess, truth.guess)

    yield says_zero
    del ATTACKS["says_zero"]


def test_a_method_inherits_the_attacks_of_its_operations(own_attack):
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    seen = record(X, y, fedsift.SFFS(n_features=2), parties=["bank", "shop"])
    assert own_attack in attacks_on(seen["shop"].operations, "passive")
    assert own_attack not in attacks_on(seen["shop"].operations, "active")
    found = own_attack.run(seen["shop"], seen.truth)
    assert isinstance(found, Exposure)
    assert (found.attack, found.role, found.party, found.target) == ("says_zero", "passive", "shop", "labels")
    assert found.value == found.guess == 0.5
    assert found.added == 0.0
    assert found.cpu_seconds >= 0
    with pytest.raises(ParameterError, match="passive role"):
        own_attack.run(seen["bank"], seen.truth)


def test_a_name_is_given_once(own_attack):
    with pytest.raises(ParameterError, match="already"):
        attack(reads=["x"], role="passive", target="labels", knows="nothing")(own_attack.function)


def test_roles_and_targets_are_checked():
    with pytest.raises(ParameterError, match="role"):
        attack(reads=["x"], role="outsider", target="labels", knows="nothing")


def test_guess_is_the_share_of_the_largest_class():
    assert Truth(np.array([0, 1, 1, 1]), {}).guess == 0.75


#: Where the loss of a release that claims an epsilon is measured from below, by the method or model that claims it.
_TABLES = "test_filter_privacy.test_the_loss_measured_from_below_is_below_epsilon"
_COPY = "test_private_labels.test_the_loss_of_the_copy_measured_from_below_is_its_epsilon"
_BOOSTING = "test_boost_privacy.test_the_loss_measured_from_below_is_within_epsilon"
_FLAFE = "test_engineer_privacy.test_flafes_releases_keep_the_claimed_loss"
LOSSES = {
    **dict.fromkeys(["information_value", "gini", "sffs"], _TABLES),
    **dict.fromkeys(["fedsdg", "less_vfl", "group_lasso", "local_lasso", "stochastic_gate", "vflfs"], _COPY),
    "split_network": _COPY,
    **dict.fromkeys(["boost_classifier", "boost_regressor"], _BOOSTING),
    **dict.fromkeys(["vertical_flafe", "hybrid_flafe"], _FLAFE),
    "fed_iife": "test_engineer_privacy.test_fed_iifes_releases_keep_the_claimed_loss",
    "muse": "test_muse_privacy.test_the_loss_of_a_joint_table_measured_from_below",
    "feature_election": "test_feature_election.test_the_loss_of_a_noisy_ballot_measured_from_below",
}


def test_the_loss_of_everything_that_claims_an_epsilon_is_measured_from_below():
    pytest.importorskip("torch")
    claims = {
        name
        for name, kind in {**METHODS, **MODELS}.items()
        if any("epsilon" in parameter for parameter in kind().get_params(deep=False))
    }
    assert claims == set(LOSSES), "write a test of the loss from below, and name it here"
    for place in set(LOSSES.values()):
        module, name = place.split(".")
        assert callable(getattr(importlib.import_module(module), name))
