"""What a party's own file holds, column by column, and what in it should make a person look again.

Counts and names only: no value of a column is told. A leak is looked for within one file, so only the label holder's
own columns can be named as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedsift.core.table import Table

_ENOUGH = 20  # rows below which chance explains everything
_LEAK = 0.95  # the share of the label's uncertainty that one column takes away
_ID_NAME = re.compile(r"(^|[_\W])(id|uid|uuid|key|nr|no|number|code)($|[_\W])|[a-z]Id$|[a-z]ID$", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnSeen:
    """One column as ``fedsift check`` shows it."""

    column: str
    kind: str
    missing: int
    distinct: int
    written: str = ""


@dataclass(frozen=True)
class FileSeen:
    """A party's file: how it is written, its columns, and warnings as sentences."""

    written: str
    columns: list[ColumnSeen]
    warnings: list[str]


def look_at(table: Table) -> FileSeen:
    columns = [
        ColumnSeen(r["column"], r["kind"], r["missing"], r["distinct"], table.written.columns.get(r["column"], ""))
        for r in table.describe()
    ]
    warnings = [*_odd_columns(table, columns), *_copies(table), *_leaks(table, columns), *_rare_classes(table)]
    return FileSeen(table.written.file, columns, warnings)


def _odd_columns(table: Table, columns: list[ColumnSeen]) -> Iterator[str]:
    for seen in columns:
        filled, name = table.n_rows - seen.missing, seen.column
        if seen.distinct <= 1 and (not filled or not seen.missing):
            yield f"{name}: constant, so of no use"
        elif seen.kind == "categorical":
            yield from _odd_text(table, seen, filled)
        elif seen.kind == "numeric" and seen.distinct == filled >= _ENOUGH and not (table.values(name) % 1).any():
            values = table.values(name)
            if _ID_NAME.search(name) or float(values.max() - values.min()) == filled - 1:
                yield f"{name}: a different whole number in each row (an id? leave it out with columns = [...])"
        if seen.kind == "numeric":
            yield from _stand_ins(name, table.values(name))


def _stand_ins(name: str, values: np.ndarray) -> Iterator[str]:
    """-1, 99, 999 and the like, far from everything else and again and again: a missing value, most likely."""
    known, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(known) < 4:
        return
    for place, rest in ((0, known[1:]), (-1, known[:-1])):
        end, often = known[place], counts[place]
        far = abs(end - rest[place]) > (rest.max() - rest.min()) / 2
        if often > 1 and far and re.fullmatch(r"-?(1|9+)", f"{end:.0f}"):
            yield f"{name}: one value stands far from all others, {often:,} times: a missing value in disguise?"


def _odd_text(table: Table, seen: ColumnSeen, filled: int) -> Iterator[str]:
    name, categories = seen.column, table.codes(seen.column)[1]
    if seen.distinct == filled > 1:
        yield f"{name}: a different text in each row (an id? leave it out with columns = [...])"
    elif filled >= _ENOUGH and seen.distinct > filled / 2:
        yield f"{name}: {seen.distinct:,} different texts in {filled:,} rows: an id or free text?"
    numbers = sum(bool(re.fullmatch(r"[+-]?\d+([.,]\d+)?", category)) for category in categories)
    if 0 < numbers < len(categories):
        yield f"{name}: kinds mix: {numbers:,} of its {len(categories):,} different texts are numbers"
    if len({" ".join(category.lower().split()) for category in categories}) < len(categories):
        yield f"{name}: some of its texts differ only by capitals or blanks"


def _copies(table: Table) -> Iterator[str]:
    """Columns that say the same in each row: equal, in another unit, or under other words."""
    first: dict[bytes, str] = {}
    for name, kind in table.kinds.items():
        if kind == "categorical":
            codes = table.codes(name)[0]
            if len(set(codes.tolist())) == len(codes):
                continue  # two lists of ids are no copies
            firsts = {code: place for place, code in reversed(list(enumerate(codes.tolist())))}
            key = b"text" + np.array([firsts[code] for code in codes.tolist()]).tobytes()
        else:
            values = table.values(name)
            spread = np.nanstd(values) if np.isfinite(values).any() else 0.0
            if spread == 0:
                continue
            scaled = np.round((values - np.nanmean(values)) / spread, 6) + 0.0
            sign = np.sign(scaled[np.flatnonzero(np.nan_to_num(scaled))[0]])
            key = b"number" + (scaled * sign + 0.0).tobytes()
        other = first.setdefault(key, name)
        if other != name:
            yield f"{name}: says the same as {other} in each row: a copy"


def _leaks(table: Table, columns: list[ColumnSeen]) -> Iterator[str]:
    label = table.label
    if label is None or table.n_rows < _ENOUGH:
        return
    classes, target = np.unique(label.astype(str), return_inverse=True)
    if len(classes) > max(20, table.n_rows // 20):  # a number to predict
        target = np.searchsorted(np.sort(label.astype(float)), label.astype(float)) * 10 // table.n_rows
    for seen in columns:
        if (seen.distinct > 1 or 0 < seen.missing < table.n_rows) and _told(table, seen, target) > _LEAK:
            yield f"{seen.column}: tells the label {table.label_name!r} nearly alone: was it known before the outcome?"


def _told(table: Table, seen: ColumnSeen, target: np.ndarray) -> float:
    """How much of the errors of the commonest class go away when each group of the column has its own commonest."""
    if seen.kind == "categorical":
        groups = table.codes(seen.column)[0] + 1
    else:
        values = np.nan_to_num(table.values(seen.column), nan=-np.inf)
        edges = np.unique(values) if seen.distinct <= 20 else np.unique(np.sort(values)[:: max(1, len(values) // 20)])
        groups = np.searchsorted(edges, values, side="right")
    if len(np.unique(groups)) > table.n_rows / 5:
        return 0.0
    counts = np.zeros((int(groups.max()) + 1, int(target.max()) + 1))
    np.add.at(counts, (groups, target), 1)
    wrong = table.n_rows - counts.sum(axis=0).max()
    return 0.0 if wrong == 0 else float(1 - (table.n_rows - counts.max(axis=1).sum()) / wrong)


def _rare_classes(table: Table) -> Iterator[str]:
    if table.label is None:
        return
    _, counts = np.unique(table.label.astype(str), return_counts=True)
    alone = int((counts == 1).sum())
    if alone and len(counts) <= max(20, table.n_rows // 20):
        yield f"{table.label_name}: {alone} of its {len(counts)} classes have one row only"
