"""What a party's own file holds, column by column, and what in it should make a person look again.

Counts and names only: no value of a column is told. A leak is looked for within one file, so only the label holder's
own columns can be named as one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np

from fedsift.core.table import Table


def _day(text: str) -> float:
    return float((date.fromisoformat(text) - date(1970, 1, 1)).days)


_ENOUGH = 20  # rows below which chance explains everything
_USUAL = 0.9  # a way of writing ids that nearly all have
_LAST_DIGIT = 0.8  # of numbers with three digits nine in ten do not end in 0
_ODD_DAYS = {_day(each) for each in ("1899-12-30", "1900-01-01", "1970-01-01", "2099-12-31", "9999-12-31")}
_LEAK = 0.95  # the share of the label's uncertainty that one column takes away
_CUT_ID = re.compile(r"\d(?:[.,]\d+)?[eE]\+\d+$")
_BEGINS_AS_NUMBER = re.compile(r"[<>~+-]?\s*\d")
_CODE_NAME = re.compile(r"(^|[_\W])(plz|zip|zipcode|postcode|postal|postleitzahl|kennziffer)($|[_\W])", re.IGNORECASE)
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
    warnings = [
        *_odd_file(table), *_odd_columns(table, columns), *_copies(table), *_leaks(table, columns), *_odd_label(table)
    ]  # fmt: skip
    return FileSeen(table.written.file, columns, warnings)


def _odd_file(table: Table) -> Iterator[str]:
    if table.written.guessed:
        encoding = table.written.file.partition(",")[0]
        yield f"the file is not UTF-8 and was read as {encoding}, a guess: if letters look wrong, say encoding = ..."
    if table.id_name is None:
        return
    ids = [str(each) for each in table.ids]
    if sum(bool(_CUT_ID.match(each)) for each in ids) > len(ids) / 2:
        yield f"{table.id_name}: ids such as 1.2E+11: a spreadsheet has cut them off; export them as text"
    if len({_folded(each) for each in ids}) < len(ids):
        yield f"{table.id_name}: some ids differ only by capitals or blanks: are they different rows?"
    shapes = Counter(_shape(each) for each in ids)
    most = shapes.most_common(1)[0][1]
    if len(ids) > most > _USUAL * len(ids):
        yield f"{table.id_name}: {len(ids) - most:,} ids are written otherwise than the rest: will they match?"


def _shape(text: str) -> str:
    """How an id is written: capitals, small letters and digits as one sign each for a run of them."""
    for kind, sign in (("[0-9]+", "9"), ("[^\\W\\d_A-Z]+", "a"), ("[A-Z]+", "A")):
        text = re.sub(kind, sign, text)
    return text


def _odd_columns(table: Table, columns: list[ColumnSeen]) -> Iterator[str]:
    for seen in columns:
        filled, name = table.n_rows - seen.missing, seen.column
        if seen.distinct <= 1 and (not filled or not seen.missing):
            yield f"{name}: {'constant' if filled else 'no value at all'}, so of no use"
        elif seen.kind == "categorical":
            yield from _odd_text(table, seen, filled)
        elif seen.kind == "numeric" and seen.distinct == filled >= _ENOUGH and not (table.values(name) % 1).any():
            values = table.values(name)
            if _ID_NAME.search(name) or float(values.max() - values.min()) == filled - 1:
                yield f"{name}: a different whole number in each row (an id? leave it out with columns = [...])"
        if seen.kind in ("numeric", "date"):
            yield from _stand_ins(name, table.values(name), dates=seen.kind == "date")
        if seen.kind == "numeric":
            yield from _odd_numbers(table, name)


def _odd_numbers(table: Table, name: str) -> Iterator[str]:
    """Numbers that are exact as text only, and codes that look like numbers."""
    values = table.values(name)
    if np.nanmax(np.abs(values), initial=0) >= 2**53 and not (values[np.isfinite(values)] % 1).any():
        yield f"{name}: whole numbers of 16 digits and more, which lose their last (ids? say categorical = [{name!r}])"
    elif _CODE_NAME.search(name):
        yield f"{name}: codes that look like numbers? say categorical = [{name!r}]"
    if table.written.file and _three_digits(values[np.isfinite(values)]):
        yield f'{name}: three digits behind each point: thousands? then say forms = {{{name} = "decimal comma"}}'


def _three_digits(values: np.ndarray) -> bool:
    """Whether 1.234 and 56.789 are what there is: between 1 and 1,000, and hardly ever fewer digits."""
    size, last = np.abs(values), np.round(np.abs(values) * 1000)
    if not len(size) or size.min() < 1 or size.max() >= 1000 or np.abs(size * 1000 - last).max() > 1e-6:
        return False
    return bool((last % 10 != 0).mean() > _LAST_DIGIT)


def _stand_ins(name: str, values: np.ndarray, *, dates: bool = False) -> Iterator[str]:
    """-1, 99, 999 and the like, far from everything else and again and again: a missing value, most likely."""
    known, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(known) < 4:
        return
    for place, rest in ((0, known[1:]), (-1, known[:-1])):
        end, often = known[place], counts[place]
        far = abs(end - rest[place]) > (rest.max() - rest.min()) / 2
        odd = end in _ODD_DAYS if dates else re.fullmatch(r"-?(1|9+)", f"{end:.0f}")
        again = often >= 10 and often > 5 * np.delete(counts, place).max()
        if odd and often > 1 and (far or again):
            where = "stands far from all others" if far else "is the first or last of all"
            yield f"{name}: one value {where}, {often:,} times: a missing value in disguise?"


def _odd_text(table: Table, seen: ColumnSeen, filled: int) -> Iterator[str]:
    name, categories = seen.column, table.codes(seen.column)[1]
    if seen.distinct == filled > 1:
        yield f"{name}: a different text in each row (an id? leave it out with columns = [...])"
    elif filled >= _ENOUGH and seen.distinct > filled / 2:
        yield f"{name}: {seen.distinct:,} different texts in {filled:,} rows: an id or free text?"
    numbers = sum(bool(re.fullmatch(r"[+-]?[0-9]+([.,][0-9]+)?", category)) for category in categories)
    if 0 < numbers < len(categories):
        yield f"{name}: kinds mix: {numbers:,} of its {len(categories):,} different texts are numbers"
    if len({_folded(category) for category in categories}) < len(categories):
        yield f"{name}: some of its texts differ only by capitals or blanks"
    if not seen.written and not numbers:
        begins = sum(bool(_BEGINS_AS_NUMBER.match(category)) for category in categories)
        if begins > len(categories) / 2:
            what = "dates, times, ranges, numbers with a unit?"
            yield f"{name}: its texts begin with numbers ({what}): as text each is a category, without an order"


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


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
        elif kind != "categorical" and len(np.unique(values)) > _ENOUGH:
            other = first.setdefault(b"order" + np.argsort(values, kind="stable").tobytes(), name)
            if other != name:
                yield f"{name}: puts the rows in the same order as {other}: the same in another unit?"


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
        values = table.values(seen.column)
        known = np.sort(values[np.isfinite(values)])
        edges = np.unique(known if seen.distinct <= 20 else known[:: max(1, len(known) // 20)])
        groups = np.where(np.isnan(values), 0, np.searchsorted(edges, values, side="right"))
    if len(np.unique(groups)) > table.n_rows / 5:
        return 0.0
    counts = np.zeros((int(groups.max()) + 1, int(target.max()) + 1))
    np.add.at(counts, (groups, target), 1)
    wrong = table.n_rows - counts.sum(axis=0).max()
    return 0.0 if wrong == 0 else float(1 - (table.n_rows - counts.max(axis=1).sum()) / wrong)


def _odd_label(table: Table) -> Iterator[str]:
    if table.label is None:
        return
    if table.label.dtype == object:
        texts = {str(each) for each in table.label}
        if len({_folded(each) for each in texts}) < len(texts):
            yield f"{table.label_name}: some of its classes differ only by capitals or blanks: they count as different"
    _, counts = np.unique(table.label.astype(str), return_counts=True)
    alone = int((counts == 1).sum())
    if alone and len(counts) <= max(20, table.n_rows // 20):
        yield f"{table.label_name}: {alone} of its {len(counts)} classes have one row only"
