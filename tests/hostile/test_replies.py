"""Replies that the fuzzer found: of the right type, but not what was asked for. Each ends in an error of fedsift's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fedsift.core.message import decode, encode
from fedsift.core.operation import ANY, ByName, is_own, operations
from fedsift.errors import AlignmentError, FedsiftError, ReplyError
from hostile.cases import CASES, MORE, fit, sites_of
from hostile.mutants import OneByOne, Recorded

pytestmark = pytest.mark.filterwarnings("ignore")  # of runs that are cut short

LARGE = np.array([2**62])


def _one_cell_larger(told: dict[str, Any]) -> dict[str, Any]:
    own = told["own"].copy()
    own[0, 0] += 1
    return {"own": own}


CHANGES: list[tuple[str, str, type[FedsiftError], Callable[[dict[str, Any]], dict[str, Any]]]] = [
    ("boruta", "core.count_table", ReplyError, lambda told: {"columns": 1}),
    ("evaluate", "evaluate.release", ReplyError, lambda told: {"InformationValue": LARGE}),
    ("information_value", "tables.open_counts", ReplyError, _one_cell_larger),
    ("lasso", "descent.open_residuals", ReplyError, lambda told: {"loss": np.zeros((3, 3))}),
    ("muse", "muse.prepare_columns", ReplyError, lambda told: {"small": LARGE}),
    ("network", "sine_network.count_inputs", ReplyError, lambda told: {"inputs": 0}),
    ("network", "sine_network.count_inputs", ReplyError, lambda told: {"outputs": 0}),
    ("less_vfl, open", "less_vfl.select_columns", ReplyError, lambda told: {"norms": np.ones(6)}),
    ("local_lasso", "less_vfl.select_columns", ReplyError, lambda told: {"norms": np.ones(6)}),
    ("less_vfl", "less_vfl.match_components", ReplyError, lambda told: {"kept": np.zeros((1,) * 8)}),
    ("less_vfl", "less_vfl.match_components", ReplyError, lambda told: {"kept": np.ones(9, dtype=bool)}),
    ("sffs", "f_test.open_class_sums", ReplyError, lambda told: {"own": told["own"][:, 0]}),
    ("vertical_flafe, noise", "core.count_table", ReplyError, lambda told: {"rows": 0}),
    ("vertical_flafe", "flafe.alike_features", ReplyError, lambda told: {"pairs": told["pairs"].astype(np.int64)}),
    ("secureboost, coordinator", "core.count_table", AlignmentError, lambda told: {"rows": 1}),
    ("secureboost, open", "boost.level_sums", ReplyError, lambda told: {"filled": told["filled"].astype(np.uint64)}),
    ("secureboost, by id", "model.tell_by_id", ReplyError, lambda told: {"values": told["values"][:, :0]}),
    ("secureboost, explained", "boost.tell_importance", ReplyError, lambda told: {"parties": ["none"]}),
]


#: Of replies that are a list.
LISTS: list[tuple[str, str, type[FedsiftError], Callable[[Any], Any]]] = [
    ("flafe, statistics", "flafe.take_operands", ReplyError, lambda told: ["none", *told[1:]]),
    ("flafe, statistics", "flafe.take_operands", ReplyError, lambda told: told[:1]),
    ("sffs, screened", "f_test.columns_of_groups", ReplyError, lambda told: told[:1]),
    ("vertical_flafe, open", "flafe.show_columns", ReplyError, lambda told: told[:-1]),
    ("vertical_flafe, open", "flafe.show_columns", ReplyError, lambda told: told[:, :0]),
    ("flafe, statistics", "flafe.own_sides", ReplyError, lambda told: ["none"]),
]


class Changed(OneByOne):
    """An honest run's replies, one of them another."""

    name = "changed"

    def __init__(self, record: Recorded, operation: str, change: Callable[[Any], Any]):
        self.replies, self.turn = [dict(told) for told in record.replies], 0
        at = max(turn for turn, asked in enumerate(record.asked) if operation in asked.values())
        liar = next(name for name, asked in record.asked[at].items() if asked == operation)
        told = decode(self.replies[at][liar])
        changed = change(told["ok"])
        told["ok"] = {**told["ok"], **changed} if isinstance(told["ok"], dict) else changed
        self.replies[at][liar] = encode(told)

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        told = self.replies[self.turn] if self.turn < len(self.replies) else {}
        self.turn += 1
        return {name: told.get(name) for name in requests}


@pytest.mark.parametrize(
    ("name", "operation", "error", "change"), CHANGES + LISTS, ids=[change[1] for change in CHANGES + LISTS]
)
def test_a_reply_that_does_not_fit_what_was_asked_is_refused(name, operation, error, change):
    case = {**CASES, **MORE}[name]
    record = Recorded(sites_of(case))
    fit(case, record)
    fit(case, Changed(record, operation, lambda told: told))  # unchanged replies pass
    with pytest.raises(error):
        fit(case, Changed(record, operation, change))


#: Replies with a part of which the declaration says no more than "a dictionary", and who looks at it.
LOOSE = {
    "boost.next_trees": "level_messages.check_told at the coordinator, GradientLayout and notes where they are read",
    "boost.next_sampled_trees": "the same",
    "boost.advance": "level_messages.check_told",
    "boost.own_half_sums": "Half.read, field by field",
    "network_lattice.encrypt_lattice": "lattice_wire.checked at the label holder, with its sender's note",
}


def test_a_reply_says_of_which_kind_each_part_is():
    """An array of any kind and shape, a list or dictionary of anything: who reads it would meet whatever was sent."""
    loose = {marked.id for marked in operations() if is_own(marked.module) and list(_loose(marked.reply))}
    assert loose == set(LOOSE)


def _loose(spec: Any) -> Iterator[Any]:
    if spec is ANY or spec in (np.ndarray, dict, list, object):
        yield spec
    elif isinstance(spec, ByName):
        yield from _loose(spec.spec)
    elif isinstance(spec, (dict, list, tuple)):
        for each in spec.values() if isinstance(spec, dict) else spec:
            yield from _loose(each)
