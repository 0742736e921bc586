"""Criteria of redundancy-aware selection, and the greedy search that all of them share.

A criterion scores every candidate from what pairwise tables can tell: mutual information with the label, entropies, and
mutual information with the columns chosen so far. Scores within 1e-10 of the best count as equal; among equals the
earlier candidate (party order, then column order) wins, so that a result does not hang on rounding. A column with one
value only has score 0, which beats every redundant column's negative one, and tells nothing: it comes last of all.

JMI and CMIM are not here: they need tables of three columns, which the protocol does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.errors import ParameterError

TIE = 1e-10


@dataclass(frozen=True)
class Information:
    """What a criterion may look at. Arrays run over the candidates; ``shared`` has a row for each chosen column."""

    relevance: np.ndarray  # I(candidate; label)
    entropy: np.ndarray  # H(candidate)
    label_entropy: float
    chosen: tuple[int, ...]
    shared: np.ndarray  # I(chosen; candidate), chosen x candidates
    beta: float
    lam: float


Criterion = Callable[[Information], np.ndarray]
_criteria: dict[str, Criterion] = {}


def register_criterion(name: str, criterion: Criterion) -> None:
    """Make ``criterion`` usable as ``Muse(criterion=name)``.

    It takes an ``Information`` and returns one score a candidate, the higher the better. The coordinator runs it.

    Examples
    --------
    >>> import fedsift as fs
    >>> fs.register_criterion("relevance alone", lambda known: known.relevance)
    >>> fs.Muse(criterion="relevance alone").criterion
    'relevance alone'
    """
    if not isinstance(name, str) or not name or not callable(criterion):
        raise ParameterError(f"a criterion needs a name and a function, got {name!r} and {criterion!r}")
    _criteria[name] = criterion


def find_criterion(name: str) -> Criterion:
    if name not in _criteria:
        raise ParameterError(
            f"criterion must be one of {', '.join(map(repr, _criteria))} or registered with register_criterion; "
            f"got {name!r}"
        )
    return _criteria[name]


def mrmr(known: Information) -> np.ndarray:
    """Relevance less the mean redundancy with what is chosen (Peng et al. 2005)."""
    return known.relevance - known.shared.mean(axis=0) if known.chosen else known.relevance


def mifs(known: Information) -> np.ndarray:
    """Relevance less beta times the total redundancy (Battiti 1994)."""
    return np.asarray(known.relevance - known.beta * known.shared.sum(axis=0))


def dd(known: Information) -> np.ndarray:
    """Diversity: distance to what is chosen plus relevance, both normalised (Zadeh et al. 2017).

    With nothing chosen yet the most relevant candidate (normalised) is the best.
    """
    scale = np.sqrt(known.entropy * known.label_entropy)
    relevance: np.ndarray = np.divide(known.relevance, scale, out=np.zeros_like(scale), where=scale > 0)
    if not known.chosen:
        return relevance
    joint = known.entropy[list(known.chosen)][:, None] + known.entropy - known.shared
    # Two constant columns say the same (nothing): distance 0.
    alike = np.divide(known.shared, joint, out=np.ones_like(joint), where=joint > 0)
    pairs = known.lam * (1 - alike) + (1 - known.lam) * (relevance + relevance[list(known.chosen)][:, None]) / 2
    return np.asarray(pairs.sum(axis=0))


for _name, _criterion in (("mrmr", mrmr), ("mifs", mifs), ("dd", dd)):
    register_criterion(_name, _criterion)


@dataclass
class Search:
    """The outcome of a greedy search: candidates in the order of choice, with the numbers of each step."""

    order: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    redundancy: list[float] = field(default_factory=list)  # mean I with what was chosen before; 0 for the first
    shared: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))


def steps(
    n_features: int,
    criterion: str,
    relevance: np.ndarray,
    entropy: np.ndarray,
    label_entropy: float,
    *,
    beta: float,
    lam: float,
) -> Generator[tuple[int, np.ndarray], np.ndarray, Search]:
    """Choose up to ``n_features`` candidates one by one; the search is what the generator returns.

    After each choice but the last it yields the chosen candidate and those that are still in the race, and wants to be
    sent their mutual information. So several searches can go on side by side.
    """
    score = find_criterion(criterion)
    wanted = min(n_features, len(relevance))
    shared = np.zeros((wanted, len(relevance)))
    found = Search(shared=shared)
    left = np.ones(len(relevance), dtype=bool)
    for step in range(wanted):
        known = Information(relevance, entropy, label_entropy, tuple(found.order), shared[:step], beta, lam)
        scores = np.asarray(score(known), dtype=np.float64)
        if scores.shape != relevance.shape or not np.isfinite(scores[left]).all():
            raise ParameterError(f"the criterion {criterion!r} must give one finite score for each candidate")
        running = left & (entropy > 0) if (left & (entropy > 0)).any() else left
        best = int(np.flatnonzero(running & (scores >= scores[running].max() - TIE))[0])
        found.order.append(best)
        found.scores.append(float(scores[best]))
        found.redundancy.append(float(shared[:step, best].mean()) if step else 0.0)
        left[best] = False
        if step + 1 < wanted:
            others = np.flatnonzero(left)
            shared[step, others] = yield best, others
    return found


Searching = Generator[tuple[int, np.ndarray], np.ndarray, Search]


def in_step(
    searches: Mapping[str, Searching], answer: Callable[[dict[str, tuple[int, np.ndarray]]], Mapping[str, np.ndarray]]
) -> dict[str, Search]:
    """Drive several searches side by side: ``answer`` gets what all of them want to know, a step at a time."""
    found: dict[str, Search] = {}
    given: Mapping[str, Any] = dict.fromkeys(searches)
    while len(found) < len(searches):
        wanted = {}
        for name, search in searches.items():
            if name in found:
                continue
            try:
                wanted[name] = search.send(given[name])
            except StopIteration as end:
                found[name] = end.value
        given = answer(wanted) if wanted else {}
    return found
