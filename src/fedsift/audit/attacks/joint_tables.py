"""Records from joint tables of pairs of columns (MUSE): what the coordinator can put together again.

It counts how the bins of two columns meet, pair by pair, under shuffled names of bins and a fresh order of rows each
time. Two ways back to records of three columns (one of a party, and two that it was counted against, the label first):

- *order*: if the lists of one column are the same in two pairs but for the names of its bins, rows were not ordered
  afresh: the records lie side by side;
- *tables*: the two tables say how either column hangs on the common one; the third table is made from them as if the
  two were independent given the common one, and rounded to whole rows. Names of bins come from the tables of a public
  sample of other rows: those that make the seen table most like it.

Counted is the share of the records that are right. The guess has the sizes of bins alone, the baseline the records of
the public sample, scaled: on long tables it tells as much; on short ones a table is nearly a record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.select.muse.contingency import number_codes

LABEL = -1
_MOST_RECORDS = 20  # triples of columns


@dataclass(frozen=True)
class Pair:
    """The two lists of one pair of columns, side by side."""

    left: tuple[str, int]  # party and number of the column; LABEL for the label
    right: tuple[str, int]
    left_codes: np.ndarray
    right_codes: np.ndarray

    def table(self) -> np.ndarray:
        """How often each two bins meet."""
        shape = (int(self.left_codes.max()) + 1, int(self.right_codes.max()) + 1)
        return np.bincount(self.left_codes.astype(np.int64) * shape[1] + self.right_codes,
                           minlength=shape[0] * shape[1]).reshape(shape)  # fmt: skip


def pairs_counted(view: View, n_columns: dict[str, int]) -> list[Pair]:
    """Every pair of lists that the coordinator got."""
    asked: dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]] = {}
    requests = view.requests("matched_codes")
    replies = view.replies("matched_codes")
    for request in requests:
        answer = next((r for r in replies if r.party == request.party and r.number > request.number), None)
        for wanted, codes in zip(request.content["requests"], answer.content if answer is not None else []):
            asked[request.party, wanted["peer"], int(wanted["batch"])] = (np.asarray(wanted["columns"]), codes)
    found = []
    for (party, peer, batch), (columns, codes) in asked.items():
        other = asked.get((peer, party, batch))
        if party > peer or other is None:
            continue
        for own, theirs, left, right in zip(columns, other[0], codes, other[1]):
            found.append(Pair(_named(party, own, n_columns), _named(peer, theirs, n_columns), left, right))
    return found


def _named(party: str, column: int, n_columns: dict[str, int]) -> tuple[str, int]:
    return party, LABEL if int(column) in (LABEL, n_columns[party]) else int(column)


def same_order(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two lists of codes are the same but for the names of the codes."""
    names = len(np.unique(first))
    both = len(np.unique(first.astype(np.int64) * 256 + second))
    return names > 1 and both == names == len(np.unique(second))


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whole numbers of records (left x common x right) from common x left and common x right."""
    sizes = np.maximum(first.sum(axis=1), 1)
    expected = np.einsum("cl,cr->lcr", first, second) / sizes[None, :, None]
    whole = np.floor(expected)
    rest = expected - whole
    for place in np.argsort(-rest, axis=None)[: round(float(expected.sum() - whole.sum()))]:
        whole.flat[place] += 1
    return np.asarray(whole)


def named_as(table: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The table with its bins in the order of ``like``: by the cells of each bin, then by their places in turn."""
    out = np.zeros(like.shape)
    table = table[: like.shape[0], : like.shape[1]]
    out[: table.shape[0], : table.shape[1]] = table
    for turn in range(8):
        for axis in (0, 1):
            seen, real = (out, like) if axis == 0 else (out.T, like.T)
            if turn == 0:
                seen, real = np.sort(seen, axis=1), np.sort(real, axis=1)
            order = linear_sum_assignment(np.abs(seen[:, None] - real[None]).sum(axis=2))[1]
            out = out[np.argsort(order)] if axis == 0 else out[:, np.argsort(order)]
    return out


def cube(left: np.ndarray, common: np.ndarray, right: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """How many rows each record has."""
    flat = (left * shape[1] + common) * shape[2] + right
    return np.bincount(flat.astype(np.int64), minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)


@dataclass(frozen=True)
class _Codes:
    """The true bins of all columns, for scoring; and of the public sample."""

    bins: int
    binning: str
    truth: Truth

    def of(self, column: tuple[str, int], fresh: bool = False) -> np.ndarray:
        source = self.truth.fresh if fresh else self.truth
        assert source is not None
        if column[1] == LABEL:
            return np.asarray(source.labels, dtype=np.int64)
        values = source.columns[column[0]][:, column[1]]
        return np.asarray(number_codes(values[None, :], self.bins, self.binning)[0].astype(np.int64))


def _records(codes: _Codes, first: Pair, second: Pair) -> tuple[float, float, float]:
    """Shares of right records: from the two pairs, from sizes of bins alone, from the public sample."""
    common = first.right if first.right in (second.left, second.right) else first.left
    ends = [pair.left if pair.right == common else pair.right for pair in (first, second)]
    columns = (ends[0], common, ends[1])
    true = [codes.of(column) for column in columns]
    shape = (int(true[0].max()) + 1, int(true[1].max()) + 1, int(true[2].max()) + 1)
    real, rows = cube(true[0], true[1], true[2], shape), len(true[0])

    def right(found: np.ndarray) -> float:
        return float(np.minimum(found, real).sum() / rows)

    lists = [pair.right_codes if pair.right == common else pair.left_codes for pair in (first, second)]
    sizes = [np.bincount(t, minlength=n) / rows for t, n in zip(true, shape)]
    alone = right(np.einsum("l,c,r->lcr", *sizes) * rows)
    other = [np.minimum(codes.of(column, fresh=True), n - 1) for column, n in zip(columns, shape)]
    public = cube(other[0], other[1], other[2], shape)
    public *= rows / public.sum()
    if same_order(*lists):
        return 1.0, alone, right(public)
    tables = []
    for pair, likely in ((first, public.sum(axis=2).T), (second, public.sum(axis=0))):
        seen = pair.table() if pair.left == common else pair.table().T
        tables.append(named_as(seen, likely))
    return right(joined(*tables)), alone, right(public)


@attack(
    reads=["matched_codes"], role="coordinator", target="columns", declared="in words",
    knows="a public sample of the same kind of table (here: rows that did not take part)",
)  # fmt: skip
def joint_tables_give_records(view: View, truth: Truth) -> Measure:
    """Share of records of three columns that are put together rightly from tables of two."""
    if truth.fresh is None:
        return Measure("records", 0.0, 0.0, 0.0, note="nothing to read: there is no public sample to name bins by")
    settings = view.job.parameters
    codes = _Codes(int(settings.get("n_bins", 5)), str(settings.get("binning", "quantile")), truth)
    pairs = pairs_counted(view, {name: columns.shape[1] for name, columns in truth.columns.items()})
    of_column: dict[tuple[str, int], list[Pair]] = {}
    for pair in pairs:
        for column in (pair.left, pair.right):
            if column[1] != LABEL:
                of_column.setdefault(column, []).append(pair)
    found = [_records(codes, group[0], group[1]) for group in of_column.values() if len(group) > 1][:_MOST_RECORDS]
    if not found:
        return Measure("records", 0.0, 0.0, 0.0, note="nothing to read: no column was counted twice")
    value, alone, sample = np.mean(found, axis=0)
    return Measure("records", float(value), float(alone), float(sample), note=f"{len(found)} triples of columns")
