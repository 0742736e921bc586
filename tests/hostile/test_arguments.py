"""Attacks by arguments: every operation that is installed, with what its annotations do not let in."""

from __future__ import annotations

import numpy as np
import pytest

from fedsift.core.arguments import schema_of, unchecked
from fedsift.core.message import decode, encode
from fedsift.core.operation import is_own, operations
from hostile.coordinator import Hostile, refused


def ids() -> list[str]:
    return sorted(marked.id for marked in operations() if is_own(marked.module))


@pytest.fixture(scope="module")
def hostile():
    return Hostile()


ODD = [2**60, float("nan"), "x" * 20_000, np.full(3, np.nan), [2**60], {"a": [2**60]}, None]


def test_no_operation_runs_with_arguments_that_it_does_not_know(hostile):
    for id in ids():
        refused(hostile.send("bank", id, surely_unknown=1), "unknown or missing arguments")


def test_no_operation_runs_without_its_arguments(hostile):
    for marked in operations():
        if is_own(marked.module) and schema_of(marked.function).required:
            refused(hostile.send("bank", marked.id), "unknown or missing arguments")


def test_an_odd_value_in_any_checked_argument_is_refused_before_anything_else(hostile):
    tried = 0
    for marked in operations():
        if not is_own(marked.module):
            continue
        schema = schema_of(marked.function)
        for name in set(schema.hints) - set(unchecked(marked.function)):
            for value in ODD:
                arguments = {**dict.fromkeys(schema.required), name: value}
                reply = refusal_of(hostile, marked.id, arguments)
                assert reply in ("OperationRefused", "PolicyRefused"), (marked.id, name, reply)
                tried += 1
    assert tried > 500
    assert (hostile.sites["bank"].runs, hostile.sites["bank"].sessions) == ({}, {})


def refusal_of(hostile: Hostile, operation: str, arguments: dict) -> str:
    """The kind of refusal; names of arguments may be those of the request's own fields."""
    request = {"operation": operation, "view": "", "session": "", "job": b"", "round": 1, "arguments": arguments}
    return decode(hostile.sites["bank"].handle(encode(request))).get("error", "ok")
