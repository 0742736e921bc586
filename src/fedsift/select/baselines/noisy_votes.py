"""Votes under differential privacy: noise is added before anything is summed.

One ballot a party cannot be hidden by noise on the ballot: a replaced row may change all of it. A lasso or an elastic
net is fitted from sums that carry noise already (``noisy_fit.py``), so that the ballot needs none. Forests and mutual
information by neighbours have no such sums, so a party deals its rows into blocks (Thakurta and Smith 2013, sample and
aggregate): each block selects by itself, from its own rows alone, and the party sends how many of its blocks voted for
each column, with noise, under the masks of a secure sum.

*Guarantee*: neighbours are tables in which one person's row (values and label) is replaced, ids and numbers of rows
public; names and kinds of columns and the names of classes too. Which rows make a block follows from the ids and the
seed, so a replaced row changes one ballot; a ballot has at most ``n_local`` votes, so the counts move by at most
sqrt(2 n_local) (L2). Discrete Gaussian noise of variance n_local / rho, drawn by each party in full for itself, is
rho-zCDP (``mpc/column_scores/noise.py``). Blocks standardise by their own rows; no mean, deviation or score leaves.
Each sum is given once a run, whatever the session: a party that leaves ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused
from fedsift.mpc.column_scores.noise import drawn, rho_of
from fedsift.mpc.secure_sum import summed
from fedsift.select.baselines.local_scores import L1_RATIO, ballot, local_scores
from fedsift.select.baselines.noisy_fit import NoisyFit

#: A block has at least so many rows: from fewer nothing can be selected.
MIN_BLOCK = 20
#: Deviations of the noise: a column with fewer votes may have none, one with as many short of all may have all.
_DEVIATIONS = 3.0


@dataclass(frozen=True)
class VotingSettings:
    """What a job says about an election with noise over so many columns."""

    method: str
    alpha: float
    n_local: int
    n_blocks: int
    rho: float
    seed: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any], columns: int) -> VotingSettings:
        """``n_local`` is at most half of the columns: a vote for nearly all would say little and cost much."""
        n_local = min(int(parameters["n_local"] or 5), max(1, columns // 2))
        rho = rho_of(float(parameters["epsilon"]), float(parameters["delta"]))
        seed = parameters["random_state"]
        return cls(
            str(parameters["method"]), float(parameters["penalty"]), n_local, int(parameters["n_blocks"]), rho,
            seed if isinstance(seed, int) else 0,
        )  # fmt: skip

    @property
    def scale(self) -> float:
        """Standard deviation of a party's noise."""
        return math.sqrt(self.n_local / self.rho)

    @property
    def fit(self) -> NoisyFit:
        """Of a party that votes by a linear model."""
        return NoisyFit(self.alpha, L1_RATIO[self.method], self.n_local, self.rho)

    def blocks(self, rows: int) -> int:
        """How many a party has: from public figures."""
        return max(1, min(self.n_blocks, rows // MIN_BLOCK))


@dataclass(frozen=True)
class NoisyVotes:
    """What a party has sent: asked again, in whatever session of the run, it is the same, and of other rows or columns
    there is none. The run pays for one."""

    rows: np.ndarray
    columns: list[str]
    counts: np.ndarray


def _once(party: Party, columns: list[str], drawn: Callable[[], np.ndarray]) -> np.ndarray:
    kept = party.run.kept.get(NoisyVotes)
    if not isinstance(kept, NoisyVotes):
        kept = party.run.kept[NoisyVotes] = NoisyVotes(party.row_numbers, list(columns), drawn())
    if kept.columns != columns or not np.array_equal(kept.rows, party.row_numbers):
        raise OperationRefused(party.name, "vote", "it has voted in this run, on other rows or columns")
    return kept.counts


@summed(
    "election.noisy_ballot",
    when=("epsilon=set", "method=lasso|elastic_net"),
    about="votes for columns and their scores, of linear models fitted to sums with noise",
    receives="control",
    epsilon="epsilon",
    times="parties",
)
def noisy_ballot(party: Party, *, columns: list[str], regression: bool) -> np.ndarray:
    """Votes (0 or 1), scores times rows, then the rows and the one voter that this party is."""
    label = _label(party, columns, regression)
    settings = VotingSettings.of(party.job.parameters, len(columns))
    return _once(party, columns, lambda: _fitted_ballot(party.table.matrix(columns), label, regression, settings))


def _fitted_ballot(values: np.ndarray, label: np.ndarray, regression: bool, settings: VotingSettings) -> np.ndarray:
    """Too few rows, or one class, are no ballot: numbers of rows and names of classes are public."""
    rows, width = values.shape
    names, codes = np.unique(label, return_inverse=True)
    if rows < MIN_BLOCK or (not regression and len(names) < 2):
        return np.zeros(2 * width + 2)
    scores = settings.fit.scores(values, label if regression else codes, 0 if regression else len(names))
    top = scores.max(initial=0.0)
    shares = scores / top if top > 0 else scores
    return np.concatenate([ballot(scores, settings.n_local), rows * shares, [rows, 1.0]])


@summed(
    "election.block_votes",
    when=("epsilon=set", "method=forest|mutual_information"),
    about="how many blocks of rows voted for each column, with noise, and the number of blocks",
    receives="control",
    epsilon="epsilon",
    times="parties",
)
def block_votes(party: Party, *, columns: list[str], regression: bool) -> np.ndarray:
    label = _label(party, columns, regression)
    settings = VotingSettings.of(party.job.parameters, len(columns))
    blocks = settings.blocks(party.n_rows)

    def noisy() -> np.ndarray:
        exact = exact_votes(party, columns, label, regression, settings)
        return np.asarray(exact + drawn((1, len(columns)), settings.scale)[0])

    return np.append(_once(party, columns, noisy), blocks).astype(np.float64)


def _label(party: Party, columns: list[str], regression: bool) -> np.ndarray:
    """Of the rows, where there is something to vote on."""
    label = party.table.label
    if not columns:
        raise OperationRefused(party.name, "vote", "there is no column to vote on")
    if label is None:
        raise DataError(f"party {party.name!r} has no label column; horizontal parties each hold their rows' labels")
    if regression and label.dtype.kind not in "iufb":
        raise OperationRefused(party.name, "vote", "its labels are not numbers, as a regression needs")
    return label


def exact_votes(
    party: Party, columns: list[str], label: np.ndarray, regression: bool, settings: VotingSettings
) -> np.ndarray:
    """The ballots of all blocks, added up."""
    values = party.table.matrix(columns)
    target = label.astype(np.float64) if regression else np.unique(label, return_inverse=True)[1]
    order = party.table.by_id[np.random.default_rng(settings.seed).permutation(party.n_rows)]
    votes = np.zeros(len(columns), dtype=np.int64)
    for rows in np.array_split(order, settings.blocks(party.n_rows)):
        votes += block_ballot(values[rows], target[rows], regression, settings)
    return votes


def block_ballot(values: np.ndarray, y: np.ndarray, regression: bool, settings: VotingSettings) -> np.ndarray:
    """The vote of one block, from its own rows alone: at most ``n_local`` columns; none where the label is constant."""
    if len(np.unique(y)) < 2 or len(y) < 5:
        return np.zeros(values.shape[1], dtype=np.int64)
    missing = np.isnan(values)
    count = np.maximum((~missing).sum(axis=0), 1)
    centre = np.where(missing, 0.0, values).sum(axis=0) / count
    centred = np.where(missing, 0.0, values - centre)
    deviation = np.sqrt((centred**2).mean(axis=0))
    design = centred / np.where(deviation > 0, deviation, 1.0)
    task = "regression" if regression else "classification"
    target = (y - y.mean()) / y.std() if regression else y
    scores = local_scores(design, target, settings.method, settings.alpha, task, settings.seed)
    return ballot(scores, settings.n_local).astype(np.int64)


def elected(votes: np.ndarray, blocks: int, scale: float, freedom_degree: float) -> np.ndarray:
    """Columns that more than a share of ``1 - freedom_degree`` of the blocks voted for.

    0 is all of them and 1 any, as far as the noise (``scale`` in the totals) lets one tell.
    """
    slack = min(0.5, _DEVIATIONS * scale / max(1, blocks))
    threshold = float(np.clip(1 - freedom_degree, slack, 1 - slack))
    return np.asarray(votes / max(1, blocks) >= threshold)
