"""Numbers under masks that a role has seen, row by row: what a mask that is missing, short or used twice would show.

Everything that travels under masks is uniform to its reader, if the masks are. So an attack can take *all* such numbers
of a run, from requests, replies and sealed boxes, bring them to the rows of the table, and look at them, at what is
left between two of them of the same kind (a mask used twice cancels), and at their sums (a mask and what it hides,
both in the same hands). What is not spread over the whole ring is where a mask came off; it is looked at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import View
from fedsift.core.message import walk
from fedsift.models.splitnn.layers.shared_parts import batch_order

_MOST_OF_A_KIND = 12  # tables of one kind that are looked at; a run has thousands
_MOST_PAIRS = 60
_MOST_WIDTH = 64  # columns of one array
_FEWEST = 20  # rows that a number must be told of
_KINDS = "uib"


@dataclass
class Seen:
    """Numbers of one kind for the rows of the table, within [-1, 1] of the ring; NaN for a row without."""

    kind: str
    values: np.ndarray  # rows x width
    bits: int  # of the ring


@dataclass(frozen=True)
class _Array:
    """One array, and the rows of the table that it is about."""

    kind: str
    array: np.ndarray
    rows: np.ndarray


def masked_numbers(view: View, n_rows: int) -> list[Seen]:
    """All arrays of whole numbers of a view that have a row axis, some of each kind; batches of an epoch together."""
    found: dict[str, list[Seen]] = {}
    for each in _arrays(view, n_rows):
        taken = found.setdefault(each.kind, [])
        told = _by_row(each)
        if told is None:
            continue
        table, bits = told
        fits = bool(taken) and taken[-1].values.shape[1] == table.shape[1]
        if not fits or not np.isnan(taken[-1].values[each.rows]).all():
            if len(taken) >= _MOST_OF_A_KIND:
                continue
            taken.append(Seen(each.kind, np.full((n_rows, table.shape[1]), np.nan), bits))
        taken[-1].values[each.rows] = table
    return [seen for kind in found.values() for seen in kind]


def features(seen: list[Seen]) -> np.ndarray:
    """Rows x features: the numbers themselves and what is left between two, the least spread first."""
    tables = [each.values for each in seen]
    pairs = [
        (a, b) for i, a in enumerate(seen) for b in seen[i + 1 :]
        if a.values.shape == b.values.shape and a.bits == b.bits
    ]  # fmt: skip
    for a, b in sorted(pairs, key=lambda pair: pair[0].kind != pair[1].kind)[:_MOST_PAIRS]:
        if a.bits == 1:
            tables.append(a.values * b.values)  # bits of -1 and 1: exclusive or
        else:
            tables += [_wrapped(a.values - b.values), _wrapped(a.values + b.values)]
    if not tables:
        return np.zeros((0, 0))
    wide = np.hstack(tables)
    told = ~np.isnan(wide)
    low, high = np.where(told, wide, np.inf).min(axis=0), np.where(told, wide, -np.inf).max(axis=0)
    wide = wide[:, (told.sum(axis=0) >= min(_FEWEST, len(wide))) & (high > low)]
    return np.asarray(wide[:, np.argsort(sizes(wide), kind="stable")])


def sizes(table: np.ndarray) -> np.ndarray:
    """Mean size of each feature: 0.5 for uniform numbers (1 for bits), near to 0 where a mask came off."""
    return np.asarray(np.nanmean(np.abs(table), axis=0)) if table.size else np.zeros(0)


def _wrapped(values: np.ndarray) -> np.ndarray:
    """Back into [-1, 1), as sums and differences in the ring wrap."""
    return np.asarray((values + 1.0) % 2.0 - 1.0)


def _arrays(view: View, n_rows: int) -> Iterator[_Array]:
    """Arrays of requests, replies and boxes, with the rows that their view of the table has."""
    views = rows_by_view(view, n_rows)
    batches = _batches(view, views)
    for message in view.messages:
        own = view.table is not None and not message.is_request  # what it sent itself it knows
        if not own and message.view in views:
            side = "request" if message.is_request else "reply"
            for place, array in _inside(message.content):
                kind = f"{message.operation} {side} {message.party} {place}"
                yield _Array(kind, array, views[message.view])
    for box in view.boxes:
        rows = batches.get((box.session, box.step), views.get(box.view))
        if box.is_opened and rows is not None:
            for place, array in _inside(box.content):
                yield _Array(f"box {box.about} {box.peer} {place}", array, rows)


def rows_by_view(view: View, n_rows: int) -> dict[str, np.ndarray]:
    """The rows of each view of the table that was defined by listing them."""
    found = {"": np.arange(n_rows), "aligned": np.arange(n_rows)}
    for message in view.requests("define_view"):
        rows, above = message.content.get("rows"), found.get(message.view)
        if above is not None:
            found[message.content["view"]] = above if rows is None else above[np.asarray(rows)]
    for message in view.requests("add_shadows"):  # more columns, the same rows
        if message.view in found:
            found[message.content["view"]] = found[message.view]
    return found


def _inside(content: object) -> Iterator[tuple[int, np.ndarray]]:
    arrays = [value for value in walk(content) if isinstance(value, np.ndarray)]
    yield from ((place, array) for place, array in enumerate(arrays) if array.dtype.kind in _KINDS and array.ndim <= 3)


def _by_row(each: _Array) -> tuple[np.ndarray, int] | None:
    """Rows x width in [-1, 1], and the bits of the ring; None where no axis is that of the rows."""
    array, count = each.array, len(each.rows)
    if array.dtype == np.uint8 and array.ndim == 2 and len(array) and array.shape[1] == (count + 7) // 8:
        return 2.0 * np.unpackbits(array, axis=1, count=count).T[:, :_MOST_WIDTH] - 1.0, 1  # a vector of bits a node
    axes = [axis for axis in range(array.ndim) if array.shape[axis] == count]
    if not axes or count < 2 or not array.size:
        return None
    flat = np.ascontiguousarray(np.moveaxis(array, axes[0], 0).reshape(count, -1)[:, :_MOST_WIDTH])
    bits = 8 * array.dtype.itemsize
    signed = flat.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "u" else flat
    return signed.astype(np.float64) / 2.0 ** (bits - 1), bits


def _batches(view: View, views: dict[str, np.ndarray]) -> dict[tuple[str, int], np.ndarray]:
    """Networks on shares: the rows of each step of a run, which follow from the announced seed."""
    settings: dict[str, Any] = {}
    found: dict[tuple[str, int], np.ndarray] = {}
    steps: dict[str, int] = {}
    for message in view.messages if view.table is not None else ():
        if not message.is_request or message.view not in views:
            continue
        if matches("hide_rows", message.operation):
            settings = message.content
        begins = matches("send_angles", message.operation)
        if begins and "batch_size" in settings and message.content["epoch"] is not None:
            steps[message.session] = step = steps.get(message.session, 0) + 1
            here = views[message.view]
            order = batch_order(int(settings["seed"]), int(message.content["epoch"]), len(here))
            start = int(message.content["start"])
            found[message.session, step] = here[order[start : start + int(settings["batch_size"])]]
    return found
