"""Who took part in a linear descent on shares, and the labels of people whose records are known: from opened gradients.

In the first step of a descent all weights are 0, so that what the coordinator opens of every column, or of every bin of
it, is its sum over the rows times the label (``VerticalAdditive``), or times a half less the label (a logistic loss).
Everybody who took part pulls these sums towards the own record times the own label (Homer et al. 2008, on gradients):

- *members*: with record and label of a person, whether the sums lie on that side of a public sample's;
- *labels*: with the record alone, on which side of a public sample's sums it lies. Whoever has a record and a model can
  predict, too, so the baseline is what the public sample's sums predict; the control is the same attack on people who
  did not take part.

Both get more than a coordinator has: which number belongs to which column and bin. Bins make many numbers, and folds
have fewer rows than the table, so an evaluation of an additive model tells the most. Read are the sums of the parties
without labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsift.audit.exposure import Measure
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Message, Truth, View
from fedsift.core.table import Table
from fedsift.models.design import BinnedDesign, Design
from fedsift.mpc.ring import Precision, from_ring, product

Floats = NDArray[np.float64]
_READS = ["residual_shares", "descent.gradient_shares", "descent.open_residuals", "descent.share_scores"]
_SILENT = "nothing to read: no such sums, or there is no public sample"
_MOST = 12  # descents that are read
_HALF = 4.0  # residuals of a half, where others are of two


@dataclass(frozen=True)
class FirstSums:
    """What is opened of one party's numbers in the first step of a descent: sums over these rows of number x label."""

    party: str
    rows: NDArray[np.int64]
    sums: Floats
    bins: int | None
    cell: int


def first_sums(view: View, n_rows: int) -> Iterator[FirstSums]:
    """Of each descent with one output, for each party without labels."""
    rows = _rows_of_views(view, n_rows)
    for reply in _first_of_each([*view.replies("residual_shares"), *view.replies("open_residuals")]):
        here = rows.get(reply.view)
        read = matches("open_residuals", reply.operation)  # where residuals need the scores themselves
        sent, own, times = ("share_scores", "products", _HALF) if read else ("gradient_shares", "own", 1.0)
        hidden = {m.party: m.content for m in view.replies("hide_columns", reply.session)}
        shares = {m.party: m.content[own] for m in reversed(view.replies(sent, reply.session))}
        told = view.job_of(reply.session).parameters
        for party, left in shares.items():
            sides = reply.content["sides"].get(party)
            if sides is None or left is None or here is None or len(here) != len(hidden.get(party, ())):
                continue
            bits = Precision.of(len(here), read)
            total = product(hidden[party].T, sides[0]) - left - sides[1]
            opened = from_ring(total, bits.columns + (bits.residuals if read else bits.columns + bits.weights))
            if opened.shape[1] == 1:
                sums = -times * opened[:, 0]
                yield FirstSums(party, here, sums, told.get("bins"), int(told.get("min_cell") or 1))


def _first_of_each(replies: list[Message]) -> list[Message]:
    first: dict[str, Message] = {}
    for reply in replies:
        first.setdefault(reply.session, reply)
    return list(first.values())


def _rows_of_views(view: View, n_rows: int) -> dict[str, NDArray[np.int64]]:
    """The coordinator has named the rows of folds itself."""
    found = {"": np.arange(n_rows)}
    for message in view.requests("define_view"):
        above, rows = found.get(message.view), message.content.get("rows")
        if above is not None:
            found[message.content["view"]] = above if rows is None else above[np.asarray(rows, dtype=np.int64)]
    return found


def people(opened: FirstSums, truth: Truth) -> tuple[Floats, Floats] | None:
    """Records of those who took part and of the others, as the party's numbers; ``None`` where columns are others."""
    assert truth.fresh is not None
    inside = _table(truth.columns[opened.party][opened.rows])
    design = Design.fit(inside) if opened.bins is None else BinnedDesign.fit(inside, opened.bins, opened.cell)
    found = design.matrix(inside), design.matrix(_table(truth.fresh.columns[opened.party]))
    return found if found[0].shape[1] == len(opened.sums) else None


def _table(columns: Floats) -> Table:
    return Table.read(pd.DataFrame(columns).add_prefix("c"), id=None, label=None, name="truth")


def _signs(labels: NDArray[np.int64]) -> Floats:
    return np.where(labels == labels.max(), 1.0, -1.0)


@attack(
    reads=_READS, role="coordinator", target="membership", declared="in words",
    knows="whole records and labels of people, some of whom took part, a sample, which number is of which column",
)  # fmt: skip
def gradients_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from the sums of the first step; the highest of all descents."""
    values = []
    for opened, inside, outside, half in _read(view, truth):
        assert truth.fresh is not None
        signs, others = _signs(truth.labels[opened.rows]), _signs(truth.fresh.labels)
        pull = opened.sums / (2 * len(opened.rows)) - outside[:half].T @ others[:half] / half
        score = np.concatenate([(inside @ pull) * signs, (outside[half:] @ pull) * others[half:]])
        values.append((auc(score, np.repeat([1, 0], [len(inside), len(outside) - half])), len(pull), len(inside)))
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    best = max(values)
    return Measure("auc", best[0], 0.5, 0.5, note=f"{best[1]} numbers of {best[2]} rows, {len(values)} descents")


@attack(
    reads=_READS, role="coordinator", target="labels", declared="in words",
    knows="whole records of people who took part, a public sample with labels, and which number is of which column",
)  # fmt: skip
def gradients_tell_labels(view: View, truth: Truth) -> Measure:
    """AUC of the labels of people whose records are known, from the sums of the first step; the highest of all."""
    values = []
    for opened, inside, outside, half in _read(view, truth):
        assert truth.fresh is not None
        labels, others = truth.labels[opened.rows] == truth.labels.max(), truth.fresh.labels == truth.labels.max()
        sample = outside[:half].T @ _signs(truth.fresh.labels)[:half] / half
        pull = opened.sums / (2 * len(opened.rows))
        control = auc(outside[half:] @ pull, others[half:].astype(np.int64))
        values.append((auc(inside @ pull, labels.astype(np.int64)),
                       auc(inside @ sample, labels.astype(np.int64)), control, len(pull), len(inside)))  # fmt: skip
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    best = max(values, key=lambda found: found[0] - max(found[1], found[2]))
    note = f"{best[3]} numbers of {best[4]} rows, {len(values)} descents"
    return Measure("auc", best[0], 0.5, max(best[1], best[2]), best[2], note)


def _read(view: View, truth: Truth) -> Iterator[tuple[FirstSums, Floats, Floats, int]]:
    """Sums with the records of those who took part and of the others; half of these are the public sample."""
    if truth.fresh is None or truth.n_classes != 2:
        return
    for number, opened in enumerate(first_sums(view, len(truth.labels))):
        found = people(opened, truth) if number < _MOST else None
        if found is not None:
            yield opened, *found, len(truth.fresh.labels) // 2
