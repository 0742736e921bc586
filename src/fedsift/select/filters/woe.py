"""Weights of evidence for the columns that a filter keeps: what each party puts in the place of their values.

WOE of a bin = ln(P(bin | second class) / P(bin | first class)), from the tables that information value was computed of;
an empty cell counts as 0.5. With ``monotone`` neighbouring bins of a numeric column are joined until the weights only
rise or only fall (pool adjacent violators, in the direction with the higher information value); the coordinator then
knows the order of a column's bins.

A weight is a number about labels in the hands of a party that holds rows: from about one such number a row on, labels
follow. So weights are rounded, only those of kept columns are told, the label holder lets them go, its journal counts
them, and it refuses more bits than a tenth of its rows. Bins (their edges) stay with the party.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.binning import ColumnBins
from fedsift.core.evidence import ColumnEvidence, Evidence
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, operation
from fedsift.core.party import MAX_VIEWS, Party
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.mpc.column_scores.counting import CountedBins
from fedsift.mpc.column_scores.label_tables import ColumnTables

Floats = NDArray[np.float64]
BINS, MONOTONE = KINDS = ("bins", "monotone")
LARGEST = 16.0  # a weight is below: 0.5 of 10^6 rows against all of them is 14
#: Of the label holder's rows: so many bits may be told to parties that hold rows.
ROWS_A_BIT = 10


def bits_of(digits: int) -> float:
    """Of one weight with so many decimals."""
    return math.log2(2 * LARGEST * 10.0**digits)


# --- on arrays --------------------------------------------------------------------------------------------------------


def weights_of(table: Floats, totals: Floats) -> Floats:
    """The weight of evidence of each bin from its counts (bins x two classes) and the sizes of the classes."""
    shares = np.maximum(table, 0.5) / totals
    return np.asarray(np.log(shares[:, 1] / shares[:, 0]))


def joined_bins(table: Floats, totals: Floats) -> NDArray[np.int64]:
    """The group of each of these bins, neighbours joined until the weights only rise, or only fall."""
    found = [_rising(table, totals, sign) for sign in (1.0, -1.0)]
    worth = []
    for groups in found:
        joined = np.maximum(_joined(table, groups), 0.5) / totals
        worth.append(float(((joined[:, 1] - joined[:, 0]) * np.log(joined[:, 1] / joined[:, 0])).sum()))
    return found[int(np.argmax(worth))]


def _rising(table: Floats, totals: Floats, sign: float) -> NDArray[np.int64]:
    """Pool adjacent violators: a stack of groups, the last joined with the one before while it does not rise."""
    stack: list[tuple[Floats, int]] = []
    for row in table:
        stack.append((np.asarray(row, dtype=np.float64), 1))
        while len(stack) > 1 and sign * (_weight(stack[-1][0], totals) - _weight(stack[-2][0], totals)) <= 0:
            last, size = stack.pop()
            before, wide = stack.pop()
            stack.append((before + last, wide + size))
    return np.repeat(np.arange(len(stack)), [size for _, size in stack])


def _weight(row: Floats, totals: Floats) -> float:
    return float(weights_of(row[None], totals)[0])


def _joined(table: Floats, groups: NDArray[np.int64]) -> Floats:
    joined: Floats = np.zeros((int(groups.max()) + 1, table.shape[1]))
    np.add.at(joined, groups, table)
    return joined


def column_weights(table: Floats, totals: Floats, ordered: int, digits: int) -> Floats:
    """A weight a bin, rounded; the first ``ordered`` bins are joined until they are monotone."""
    weights = weights_of(table, totals)
    if ordered > 1:
        groups = joined_bins(table[:ordered], totals)
        weights[:ordered] = weights_of(_joined(table[:ordered], groups), totals)[groups]
    rounded: Floats = np.clip(weights, -LARGEST, LARGEST).round(digits)
    return rounded


# --- what the parties do ----------------------------------------------------------------------------------------------


def _told(party: Party, operation: str) -> Mapping[str, Any]:
    told = party.job.parameters
    if told.get("woe") not in KINDS or told.get("epsilon") is not None:
        raise OperationRefused(party.name, operation, "this job is not about weights of evidence")
    return told


@operation(
    "woe.ordered", when="woe=monotone", discloses="aggregate",
    about="how many bins of each unnamed column stand in order (0: categories)",
    reply=Array("i"), times=1, after=("tables.masked_counts", "tables.open_counts"),
)  # fmt: skip
def ordered(party: Party) -> NDArray[np.int64]:
    if _told(party, "ordered")["woe"] != MONOTONE:
        raise OperationRefused(party.name, "ordered", "this job's bins have no order")
    counted, found = CountedBins.of(party), []
    for place, column in enumerate(party.columns):
        bins, lookup = _lookup(party, counted, place, column)
        inside = lookup[: bins.ordinary]
        rising = bins.ordered and bool((np.diff(inside[inside >= 0]) >= 0).all())
        found.append(int(inside.max()) + 1 if rising else 0)
    return np.array(found, dtype=np.int64)


def _lookup(party: Party, counted: CountedBins, place: int, column: str) -> tuple[ColumnBins, NDArray[np.int64]]:
    """The column's bins, and the counted one that each became (-1: no row has it)."""
    told = party.job.parameters
    bins = ColumnBins.fit(party.table, column, int(told["n_bins"]), int(told["min_cell"]))
    lookup = np.full(bins.count, -1, dtype=np.int64)
    lookup[bins.codes(party.table)] = counted.codes[:, place]
    return bins, lookup


def _let_go(reply: dict[str, float]) -> Release:
    return Release(int(reply["weights"]), float(reply["bits"]))


@operation(
    "woe.let_go", when="woe=bins|monotone", discloses="control",
    about="acknowledgement, with the number and the bits of the weights",
    opened="aggregate: rounded weights of evidence of bins of kept columns, to the parties that have these columns",
    opened_by="passive", concerns="labels", role="active", times=1, after="tables.open_counts", releases=_let_go,
    reply={"weights": int, "bits": float},
)  # fmt: skip
def let_go(party: Party, *, weights: Annotated[int, Between(1, 10**6)]) -> dict[str, float]:
    """The label holder lets the others have weights of evidence, or says why not."""
    bits, most = bits_of(int(_told(party, "let_go")["woe_digits"])), party.n_rows / ROWS_A_BIT
    if weights * bits > most:
        raise OperationRefused(
            party.name, "let_go",
            f"{weights} weights of evidence have {weights * bits:.0f} bits, more than a tenth of {party.n_rows} rows: "
            "parties with their columns could work out labels; ask for fewer columns, bins or woe_digits (with as many "
            f"digits these rows allow {int(most / bits)} weights, one a bin)",
        )  # fmt: skip
    return {"weights": weights, "bits": bits}


@operation(
    "woe.keep_weights", discloses="control", receives="aggregate", about="acknowledgement",
    learns="the rounded weight of evidence of each bin of its kept columns", times=1,
    after=("tables.masked_counts", "tables.open_counts"),
)  # fmt: skip
def keep_weights(
    party: Party, *, columns: Annotated[list[int], AtMost(10**6)], weights: Annotated[list[Floats], AtMost(10**6)],
    part: str,
) -> None:  # fmt: skip
    """The party's own bins with their weights; they stay at the site, for ``transform`` and for its own file."""
    _told(party, "keep_weights")
    counted, found = CountedBins.of(party), []
    if len(columns) != len(weights) or any(given.ndim != 1 for given in weights):
        raise OperationRefused(party.name, "keep_weights", "a list of weights for each column")
    for place, given in zip(columns, weights, strict=True):
        if not 0 <= place < len(party.columns) or not np.isfinite(given).all():
            raise DataError(f"party {party.name!r}: these are no weights of its columns")
        bins, lookup = _lookup(party, counted, place, party.columns[place])
        if lookup.max() >= len(given):
            raise DataError(f"party {party.name!r}: these weights do not fit its bins")
        kept = np.append(given, 0.0)[lookup]
        found.append(ColumnEvidence(bins, tuple(float(weight) for weight in kept)))
    party.models.keep(part, Evidence(tuple(found)))


@operation("woe.add_columns", times=MAX_VIEWS, discloses="control", about="acknowledgement")
def add_columns(party: Party, *, part: str, view: str) -> None:
    """Define a view in which weights of evidence stand in the place of the columns that have them."""
    site, before = party.site, party.site.table.columns
    made = party.models.part(part, Evidence).values(site.table)
    site.table = site.table.with_columns(made)
    for name, (rows, columns) in site.views.items():
        site.views[name] = (rows, list(before) if columns is None else columns)
    site.views[view] = (party._rows, list(made))


OPERATIONS = (ordered, let_go, keep_weights, add_columns)


# --- the coordinator's side -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighed:
    """Weights of evidence of the kept columns, by party and position, and the name of the parts at the sites."""

    part: str
    weights: dict[str, dict[int, Floats]]


def tell_weights(
    fed: Federation, tables: Mapping[str, ColumnTables], totals: Floats, selected: Mapping[str, Floats], kind: str,
    digits: int,
) -> Weighed:  # fmt: skip
    """Compute the weights of the kept columns and tell each party its own, if the label holder lets them go."""
    order = fed.ask(ordered, to=fed.parties) if kind == MONOTONE else {}
    found: dict[str, dict[int, Floats]] = {}
    for name, table in tables.items():
        in_order = order.get(name, np.zeros(len(table.bins), dtype=np.int64))
        if len(in_order) != len(table.bins) or (in_order > table.bins).any():
            raise ReplyError(name, "ordered", "expected a number for each of its columns, at most that of its bins")
        found[name] = {
            place: column_weights(cells, totals, int(in_order[place]), digits)
            for place, cells in enumerate(table.columns())
            if selected[name][place]
        }
    others = sum(len(each) for name in fed.passive for each in found[name].values())
    if others:
        fed.ask(let_go, to=fed.active, weights=others)
    part = f"woe {fed.new_view('woe')}"
    each = {name: {"columns": list(mine), "weights": list(mine.values())} for name, mine in found.items()}
    fed.ask(keep_weights, to=fed.parties, each=each, part=part)
    return Weighed(part, found)


def woe_view(fed: Federation, part: str) -> Federation:
    """The same federation with weights of evidence in the place of the kept columns."""
    view = fed.new_view("woe")
    fed.ask(add_columns, to=fed.parties, part=part, view=view)
    return fed.named_view(view)
