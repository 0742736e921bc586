"""Which bin each row of a passive party's column lies in, from which rows went left at its cuts.

The label holder reads, for the rows of a node, which go left: on shares while trees grow (level ``coordinator``), and
in the clear when rows walk down for a prediction in the open form. Every cut narrows the bins that a row may lie in.
The attack is given more than the label holder has: which column each cut is of, between which bins, and the bins'
sizes; of the bins that are left it guesses the largest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedsift.audit.attacks.bin_membership import columns_tried, true_bins
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View, bins_told
from fedsift.mpc.dealer import Dealt, open_and

_MOST_COLUMNS = 60


@dataclass(frozen=True)
class CutSeen:
    """Rows of one node that one party cut, and which of them went left."""

    party: str
    rows: np.ndarray
    left: np.ndarray  # of these rows


def cuts_seen(view: View) -> list[CutSeen]:
    """Every cut of another party's column that the label holder has read."""
    return [*_on_shares(view), *_walking_down(view)]


def _on_shares(view: View) -> Iterator[CutSeen]:
    """While trees grow: the answers in sealed boxes, opened with the label holder's own nodes and the dealer's help."""
    n_rows = view.own_table.n_rows
    seeds = {state.session: state.values[Dealt] for state in view.states if Dealt in state.values}
    sealed = {(b.session, b.step): b.content for b in view.boxes if not b.is_opened and b.about == "boost: gradients"}
    steps: dict[str, int] = {}
    for request in view.requests("divide_nodes"):
        step = steps.get(request.session, 0)
        steps[request.session] = step + 1
        hidden, owners = sealed.get((request.session, step)), request.content["owners"]
        dealt = seeds.get(request.session)
        if hidden is None or dealt is None:
            continue
        fresh = Dealt(dealt.owner, dealt.seed)  # what it drew itself, once more
        nodes = hidden["nodes"] ^ fresh.bits("boost: nodes", step, len(hidden["nodes"]), n_rows)
        for box in view.opened("boost: left"):
            if (box.session, box.step) != (request.session, step):
                continue
            cut = np.flatnonzero(owners == view.job.parties.index(box.peer))
            opening = request.content["openings"][box.peer]
            for place, node in enumerate(cut):
                answer = open_and(nodes[node], box.content["hidden"][place], box.content["answers"][place],
                                  opening[place])  # fmt: skip
                rows = np.flatnonzero(np.unpackbits(nodes[node], count=n_rows))
                yield CutSeen(box.peer, rows, np.unpackbits(answer, count=n_rows).astype(bool)[rows])


def _walking_down(view: View) -> Iterator[CutSeen]:
    """The open form: the label holder asks about rows, and is told a bit for each."""
    asked: dict[str, dict[str, np.ndarray]] = {}
    for message in view.messages:
        if message.operation.rpartition(".")[2] != "walk_down":
            continue
        if not message.is_request:
            asked = message.content
            continue
        for name, question in asked.items():
            bits = np.unpackbits(message.content["sides"][name]).astype(bool)
            ends = np.cumsum(question["counts"])
            for end, count in zip(ends, question["counts"]):
                yield CutSeen(name, question["rows"][end - count : end].astype(np.int64), bits[end - count : end])
        asked = {}


def placed_cells(codes: np.ndarray, cuts: list[CutSeen]) -> np.ndarray:
    """The bin that each cell is put into (rows x columns of bin numbers)."""
    guessed = np.zeros_like(codes)
    of_column: dict[int, list[tuple[CutSeen, np.ndarray]]] = {}
    for seen in cuts:
        found = _meant(codes, seen)
        if found is not None:
            of_column.setdefault(found[0], []).append((seen, found[1]))
    for column in range(codes.shape[1]):
        sizes = np.bincount(codes[:, column])
        possible = np.ones((len(codes), len(sizes)), dtype=bool)
        for seen, left_bins in of_column.get(column, []):
            possible[seen.rows] &= np.where(seen.left[:, None], left_bins, ~left_bins)
        guessed[:, column] = np.where(possible, sizes, -1).argmax(axis=1)
    return guessed


def _meant(codes: np.ndarray, seen: CutSeen) -> tuple[int, np.ndarray] | None:
    """The column that was cut and its bins on the left: the first that explains the bits (given to the attacker)."""
    for column in range(codes.shape[1]):
        bins = int(codes[:, column].max()) + 1
        here = codes[seen.rows, column]
        left = np.bincount(here[seen.left], minlength=bins) > 0
        right = np.bincount(here[~seen.left], minlength=bins) > 0
        if (left & right).any() or not left.any() or not right.any():
            continue
        last = int(np.flatnonzero(left).max())
        if not right[: last + 1].any():  # an ordered cut: bins without rows of the node fall to their side
            left = np.arange(bins) <= last
        return column, left
    return None


@attack(
    reads=["take_cuts", "divide_nodes", "walk_down"],
    role="active",
    target="columns",
    knows="which column each cut is of, and the sizes of its bins (more than it has)",
    declared="in words",
)
def bits_give_cells(view: View, truth: Truth) -> Measure:
    """Share of the cells of passive parties' columns that are put into their true bin."""
    bins, cuts = bins_told(view.job, 32), cuts_seen(view)
    placed, mode, found, true = [], [], {}, {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        most = min(_MOST_COLUMNS, max(columns.shape[1] if len(columns) < 5000 else columns_tried(len(columns)), 1))
        filled = np.where(np.isnan(columns), -np.inf, columns)[:, :most]
        codes = np.stack([true_bins(np.nan_to_num(c, neginf=-1e300), True, bins, 1) for c in filled.T], axis=1)
        mode.append(float(np.mean([np.bincount(c).max() / len(c) for c in codes.T])))
        found[party], true[party] = placed_cells(codes, [seen for seen in cuts if seen.party == party]), codes
        placed.append(float((found[party] == codes).mean()))
    guess = float(np.mean(mode))
    note = f"{len(cuts)} cuts" if cuts else "nothing to read: no cut of another party's column"
    share = float(np.mean(placed))
    return Measure("cells in their true bin", share, guess, guess, note=note, columns=found, bins=true)
