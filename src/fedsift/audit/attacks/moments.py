"""What mean products of columns tell the coordinator that opens them: tables of counts, and who took part.

Statistics and knockoffs open correlations of all parties' columns, exact to about nine digits, at a coordinator without
rows. Two things can still be read:

- *tables*: of two columns of two values the correlation is (n n11 - n1 n2) / sqrt(n1 (n - n1) n2 (n - n2)), so that
  n n11 is a whole number for the true n1 and n2 and hardly for others. A public sample says about how large they are;
  the pair whose table is nearest to whole numbers is taken. Cells of one person are then known as such.
- *members*: everybody who took part pulls each correlation a little to itself. Over all pairs of columns, which are
  many more than columns, that separates members from others (Homer et al. 2008, on products).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Message, Truth, View
from fedsift.mpc.moments import fraction_bits
from fedsift.mpc.ring import from_ring, product

READS = ("own_products", "moments.masked_sides")
LABEL = -1
_SILENT = "nothing to read: no products were opened, or there is no public sample"
_MOST_PAIRS = 60
_DEVIATIONS = 4  # of a count, that a public sample may be off


@dataclass(frozen=True)
class Place:
    """A column (or the label) by its party, and which of the opened components stands for it."""

    party: str
    column: int
    component: int


@dataclass(frozen=True)
class OpenedProducts:
    """Mean products of components over the rows, and the columns that they stand for."""

    joint: np.ndarray
    places: list[Place]


def opened_products(view: View, rows: int) -> list[OpenedProducts]:
    """One for each run in which products were opened."""
    found = []
    sessions = dict.fromkeys(message.session for message in view.replies("own_products"))
    for session in sessions:
        own = {message.party: message.content for message in view.replies("own_products", session)}
        sides = {message.party: message.content["sides"] for message in view.replies("masked_sides", session)}
        columns = {m.party: m for m in view.replies("open_columns", session)}
        if columns and set(own) <= set(columns):
            found.append(OpenedProducts(_joint(own, sides, rows), list(_places(own, columns))))
    return found


def _joint(own: dict[str, np.ndarray], sides: dict[str, dict[str, list[np.ndarray]]], rows: int) -> np.ndarray:
    """What ``open_moments`` computes, from the same replies."""
    names = list(own)
    ends = np.cumsum([0, *(len(own[name]) for name in names)]).tolist()
    place = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(names)}
    total = np.zeros((ends[-1], ends[-1]), dtype=np.uint64)
    for name in names:
        total[place[name], place[name]] = own[name]
    for left, right in combinations(names if sides else [], 2):
        (one, first), (two, second) = sides[left][right], sides[right][left]
        opened = product(one.T, two) - first - second
        total[place[left], place[right]], total[place[right], place[left]] = opened, opened.T
    return np.asarray(from_ring(total, 2 * fraction_bits(rows)) / rows)


def _places(own: dict[str, np.ndarray], columns: dict[str, Message]) -> Iterator[Place]:
    """The first component of each column; the label's come after a party's columns, of which one is enough."""
    start = 0
    for name, products in own.items():
        reply = columns[name].content
        owners = reply["owner"] if "owner" in reply else reply["columns"]
        for column in dict.fromkeys(np.asarray(owners).tolist()):
            yield Place(name, int(column), start + int(np.flatnonzero(np.asarray(owners) == column)[0]))
        if int(reply["targets"]) == 1:
            yield Place(name, LABEL, start + len(owners))
        start += len(products)


def table_from(correlation: float, rows: int, first: np.ndarray, second: np.ndarray) -> tuple[int, int, int]:
    """n11, n1 and n2 of the table nearest to whole numbers, for counts among ``first`` and ``second``."""
    one, two = first[:, None].astype(np.float64), second[None, :].astype(np.float64)
    both = (correlation * np.sqrt(one * (rows - one) * two * (rows - two)) + one * two) / rows
    off = np.abs(both - np.rint(both))
    off[(both < -0.5) | (both > np.minimum(one, two) + 0.5) | (one + two - both > rows + 0.5)] = np.inf
    place = np.unravel_index(int(np.argmin(off)), off.shape)
    return int(np.rint(both[place])), int(first[place[0]]), int(second[place[1]])


def cells(both: int, first: int, second: int, rows: int) -> list[int]:
    """The four counts, whichever value of a column is called the first."""
    return sorted([both, first - both, second - both, rows - first - second + both])


def _values(truth: Truth, place: Place, *, fresh: bool) -> np.ndarray:
    known = truth.fresh if fresh else truth
    assert known is not None
    return np.asarray(known.labels if place.column == LABEL else known.columns[place.party][:, place.column])


def _counts(share: float, rows: int) -> np.ndarray:
    """Counts that a share of a public sample may mean, of either value."""
    off = _DEVIATIONS * np.sqrt(max(share * (1 - share), 1 / rows) * rows) + 1
    near = np.arange(max(1, int(share * rows - off)), min(rows, int(share * rows + off) + 1))
    return np.unique(np.concatenate([near, rows - near]))


@attack(
    reads=READS, role="coordinator", target="columns", declared="in words",
    knows="which columns have two values, and a public sample (here: rows that did not take part)",
)  # fmt: skip
def moments_give_tables(view: View, truth: Truth) -> Measure:
    """Share of the pairs of columns of two values (the label is one) whose whole table of counts is found."""
    rows = len(truth.labels)
    right = total = by_sample = 0
    for opened in opened_products(view, rows) if truth.fresh is not None else []:
        binary = [place for place in opened.places if _has_two_values(truth, place)]
        for a, b in list(combinations(binary, 2))[:_MOST_PAIRS]:
            ones, publics = [], []
            for place in (a, b):
                true, public = (_values(truth, place, fresh=fresh) for fresh in (False, True))
                ones.append(true == true.max())
                publics.append(public == true.max())
            shares = [float(each.mean()) for each in publics]
            correlation = float(opened.joint[a.component, b.component])
            found = table_from(correlation, rows, *(_counts(share, rows) for share in shares))
            truly = cells(int((ones[0] & ones[1]).sum()), int(ones[0].sum()), int(ones[1].sum()), rows)
            scale = rows / len(publics[0])
            guessed = [round(float(each.sum()) * scale) for each in (publics[0] & publics[1], *publics)]
            right += cells(*found, rows) == truly
            by_sample += cells(guessed[0], guessed[1], guessed[2], rows) == truly
            total += 1
    if not total:
        return Measure("tables found", 0.0, 0.0, 0.0, note=f"{_SILENT}, or no two columns have two values")
    return Measure("tables found", right / total, 0.0, by_sample / total, note=f"{right} of {total} pairs of columns")


def _has_two_values(truth: Truth, place: Place) -> bool:
    values = _values(truth, place, fresh=False)
    return not np.isnan(values).any() and len(np.unique(values)) == 2


@attack(
    reads=READS, role="coordinator", target="membership", declared="no",
    knows="whole records of people, some of whom took part, and a public sample",
)  # fmt: skip
def moments_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from how far the correlations lie from a sample's towards that person."""
    if truth.fresh is None:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    rows, half, values = len(truth.labels), len(truth.fresh.labels) // 2, []
    for opened in opened_products(view, rows):
        inside = np.column_stack([_values(truth, place, fresh=False) for place in opened.places]).astype(np.float64)
        outside = np.column_stack([_values(truth, place, fresh=True) for place in opened.places]).astype(np.float64)
        public = outside[:half]
        centre, spread = np.nanmean(public, axis=0), np.maximum(np.nanstd(public, axis=0), 1e-9)
        people = np.clip(np.nan_to_num((np.vstack([inside, outside]) - centre) / spread), -5, 5)
        told = np.array([place.component for place in opened.places])
        known = people[rows : rows + half]
        pull = opened.joint[np.ix_(told, told)] - known.T @ known / half
        asked = np.vstack([people[:rows], people[rows + half :]])
        score = np.einsum("ij,jk,ik->i", asked, pull, asked, optimize=True)
        values.append(auc(score, np.repeat([1, 0], [rows, len(asked) - rows])))
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    return Measure("auc", max(values), 0.5, 0.5, note=f"{len(opened_products(view, rows)[0].places)} columns")
