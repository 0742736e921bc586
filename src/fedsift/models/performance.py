"""How a model does on groups of rows: calibration, ROC, lift, thresholds; fairness by a column of the label holder's.

The label holder tells of groups of ten rows and more, two digits a figure. All curves are made of at most twenty such
groups: an exact curve has a step a row, and who knows the scores (a partner with its own, in a model of one column)
would read each row's label from the direction of its step.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.ledger import rounded_numbers
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.models.predicted import Predicted

Floats = NDArray[np.float64]
LEAST_GROUP = 10  # rows of a group of which anything is told, or as many as a site says; rows of a class whose hits are
_RANGES = 4  # groups of a column of numbers


@operation(
    "model.performance",
    discloses="aggregate",
    about="of groups of rows by predicted probability (or by a column of the label holder's, whose categories "
    "or ranges it names): share of the rows, mean probability, share of the second class, and which shares of each "
    "class the model would pick, rounded",
    reply={
        "names": [str], "share": Array("f"), "chance": Array("f"), "rate": Array("f"), "picked": Array("f"),
        "hits": Array("f", finite=False), "alarms": Array("f", finite=False),
    },
    role="active",
    concerns="own columns and labels",
    times="1 a session",
    opened_by="result",
    releases=rounded_numbers,
)  # fmt: skip
def performance_rows(
    party: Party, *, groups: Annotated[int, Between(2, 20)], by: Annotated[str, AtMost(1000)] | None
) -> dict[str, Any]:
    """Of the predictions that were just made, for two classes; groups of fewer than ten rows are left out.

    Picked are as many rows as the class has, those of the highest probability.
    """
    predicted, label = party.held_here(Predicted), party.judged_label
    if label is None or len(predicted.classes) != 2:
        raise DataError(f"party {party.name!r}: performance is of two classes, on rows with labels")
    chance, right = predicted.probabilities()[:, 1], predicted.truth(label) == 1
    places, least = np.argsort(np.argsort(chance, kind="stable"), kind="stable"), max(LEAST_GROUP, party.site.min_cell)
    picked = places >= len(label) - int(right.sum())
    if by is None:
        count = max(2, min(groups, len(label) // least))
        codes, names = places * count // len(label), [str(number + 1) for number in range(count)]
    else:
        codes, names = _groups_by(party, by)
    each = 1 if by is not None else 0  # groups by probability are picked or not: nothing more is told of them
    inside = {names[k]: codes == k for k in range(len(names)) if (codes == k).sum() >= least}
    members = list(inside.values())
    return {
        "names": list(inside),
        "share": _means(np.ones(len(label)), members, over=len(label)),
        "chance": _means(chance, members),
        "rate": _means(right, members),
        "picked": _means(picked, members * each),
        "hits": _means(picked, [rows & right for rows in members * each], least=least),
        "alarms": _means(picked, [rows & ~right for rows in members * each], least=least),
    }


def _means(
    values: np.ndarray, groups: list[NDArray[np.bool_]], over: int = 0, least: int = LEAST_GROUP
) -> Floats:  # fmt: skip
    """Rounded to two digits; of few rows nothing."""
    few = [rows.sum() < least for rows in groups]
    found = [np.nan if n else float(values[rows].sum() / (over or rows.sum())) for rows, n in zip(groups, few)]
    return np.array([round(value, 2) for value in found], dtype=np.float64)


def _groups_by(party: Party, by: str) -> tuple[NDArray[Any], list[str]]:
    """The group of each row by a column of this site, which the model need not use; numbers in four ranges."""
    table = party.site.table
    if by not in table.columns:
        raise DataError(f"party {party.name!r} has no column {by!r}")
    if table.kinds[by] == "categorical":
        codes, names = table.codes(by)
        return codes[party.row_numbers], names
    values = table.values(by)[party.row_numbers].astype(np.float64)
    quarters = np.nanquantile(values, np.arange(1, _RANGES) / _RANGES)
    cuts = np.unique([float(f"{cut:.2g}") for cut in quarters])  # two digits: a cut is nobody's value
    codes = np.where(np.isnan(values), -1, np.searchsorted(cuts, values, side="right"))
    ends = [f"{cut:g}" for cut in cuts]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    return codes, [f"below {ends[0]}", *between, f"{ends[-1]} and more"]


def table_of(told: dict[str, Any], by: str | None) -> pd.DataFrame:
    """What the label holder told as a table: a line a group, with what follows of it."""
    found = pd.DataFrame({name: values for name, values in told.items() if len(values)}, columns=_columns(by))
    share, rate = found["share"], found["rate"]
    overall = float((share * rate).sum() / max(share.sum(), 1e-12))
    found["lift"] = rate / max(overall, 1e-12)
    if by is not None:
        return found.rename(columns={"names": by})
    hits, misses, rows = (_above(part) for part in (share * rate, share * (1 - rate), share))
    found["reached"], found["precision"] = hits / max(float(hits.max()), 1e-12), hits / rows
    found["false_alarms"] = misses / max(float(misses.max()), 1e-12)
    return found.rename(columns={"names": "group"})


def _columns(by: str | None) -> list[str]:
    return ["names", "share", "chance", "rate", *(() if by is None else ("picked", "hits", "alarms"))]


def _above(values: pd.Series) -> pd.Series:
    """The sum over this group and those above."""
    return values[::-1].cumsum()[::-1]
