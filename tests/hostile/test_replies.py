"""Replies that the fuzzer found: of the right type, but not what was asked for. Each ends in an error of fedsift's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsift.core.message import decode, encode
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
    ("evaluate", "evaluate.release", ReplyError, lambda told: {"InformationValue": LARGE}),
    ("information_value", "tables.open_counts", ReplyError, _one_cell_larger),
    ("lasso", "descent.open_residuals", ReplyError, lambda told: {"loss": np.zeros((3, 3))}),
    ("muse", "muse.prepare_columns", ReplyError, lambda told: {"small": LARGE}),
    ("network", "sine_network.count_inputs", ReplyError, lambda told: {"inputs": 0}),
    ("secureboost", "core.count_table", AlignmentError, lambda told: {"rows": 1}),
    ("secureboost, open", "boost.level_sums", ReplyError, lambda told: {"filled": told["filled"].astype(np.uint64)}),
    ("secureboost, explained", "boost.tell_importance", ReplyError, lambda told: {"parties": ["none"]}),
]


class Changed(OneByOne):
    """An honest run's replies, one of them another."""

    name = "changed"

    def __init__(self, record: Recorded, operation: str, change: Callable[[dict[str, Any]], dict[str, Any]]):
        self.replies, self.turn = [dict(told) for told in record.replies], 0
        at = max(turn for turn, asked in enumerate(record.asked) if operation in asked.values())
        liar = next(name for name, asked in record.asked[at].items() if asked == operation)
        told = decode(self.replies[at][liar])
        self.replies[at][liar] = encode({**told, "ok": {**told["ok"], **change(told["ok"])}})

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        told = self.replies[self.turn] if self.turn < len(self.replies) else {}
        self.turn += 1
        return {name: told.get(name) for name in requests}


@pytest.mark.parametrize(("name", "operation", "error", "change"), CHANGES, ids=[change[1] for change in CHANGES])
def test_a_reply_that_does_not_fit_what_was_asked_is_refused(name, operation, error, change):
    case = {**CASES, **MORE}[name]
    record = Recorded(sites_of(case))
    fit(case, record)
    fit(case, Changed(record, operation, lambda told: {}))  # unchanged replies pass
    with pytest.raises(error):
        fit(case, Changed(record, operation, change))
