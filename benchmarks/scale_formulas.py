"""The cost formulas of ``scale.py``: for each method what rounds, bytes and CPU time are made of.

A term is a product of n (rows), d (columns over all parties), own (d / p), p (parties), k (features asked for) and e
(effort: epochs, trees, rounds, as each method says), and for packed ciphertexts c (those of one column). The constants
in front of the terms are measured, not written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Size:
    n: float
    d: float
    p: float
    k: float
    e: float

    @property
    def own(self) -> float:
        """Columns of one party."""
        return self.d / self.p


Terms = dict[str, Callable[[Size], float]]


@dataclass(frozen=True)
class Spec:
    """A method's parameters at a size, its formulas, and the effort that its defaults mean."""

    parameters: Callable[[Size], dict[str, Any]]
    rounds: Terms
    bytes: Terms
    cpu: Terms
    effort: float = 1
    says: str = ""  # what e stands for
    cuts: Terms = field(default_factory=dict)  # bytes of candidate cuts of trees, which are fitted apart
    largest: Terms | None = None  # LARGEST by default
    rows: int = 4  # the sizes are so many times as long
    columns: int = 1  # and so many times as wide


#: The largest single message: what one party sends or gets at once.
LARGEST: Terms = {}


def _terms(**terms: Callable[[Size], float]) -> Terms:
    return {"1": lambda s: 1.0, **terms}


def _batches(size: int) -> Callable[[Size], float]:
    return lambda s: s.e * math.ceil(s.n / size)


P: Callable[[Size], float] = lambda s: s.p  # noqa: E731
LARGEST |= _terms(
    own=lambda s: s.own, d=lambda s: s.d, n=lambda s: s.n, n_own=lambda s: s.n * s.own,
    n_others=lambda s: s.n * (s.d - s.own), p1=lambda s: s.p - 1, np1=lambda s: s.n * (s.p - 1),
)  # fmt: skip
FILTER = Spec(
    lambda s: {"n_features": int(s.k)},
    rounds=_terms(),
    bytes=_terms(p=P, n=lambda s: s.n, np=lambda s: s.n * (s.p - 1), d=lambda s: s.d),
    cpu=_terms(n=lambda s: s.n, n_own=lambda s: s.n * s.own, d=lambda s: s.d),
    largest=_terms(n=lambda s: s.n, own=lambda s: s.own, d=lambda s: s.d),
)


def _network(parameters: Callable[[Size], dict[str, Any]], batch: int, effort: float, says: str) -> Spec:
    """Split training: every batch is asked for; each passive party sends an embedding and gets a gradient a row."""
    return Spec(
        parameters,
        rounds=_terms(steps=_batches(batch)),
        bytes=_terms(p=P, enp=lambda s: s.e * s.n * (s.p - 1), d=lambda s: s.d, np=lambda s: s.n * (s.p - 1),
                     steps_p=lambda s: _batches(batch)(s) * s.p),
        cpu=_terms(steps=_batches(batch), en_own=lambda s: s.e * s.n * s.own, n_own=lambda s: s.n * s.own,
                   enp=lambda s: s.e * s.n * s.p),
        effort=effort,
        says=says,
    )  # fmt: skip


def _compared(parameters: Callable[[Size], dict[str, Any]], effort: float, says: str, cuts: Terms) -> Spec:
    """Boosted trees at level "all": candidate cuts once (a word a row and candidate, there and on); then they are
    compared on shares, whose messages are many and whose bytes go with cuts times nodes. ``e`` multiplies what a unit
    run does."""
    return Spec(
        parameters,
        cuts=cuts,
        rounds=_terms(e=lambda s: s.e, e_cuts=lambda s: s.e * math.log2(s.own)),
        bytes=_terms(p=P, e=lambda s: s.e, enp=lambda s: s.e * s.n * s.p, ed=lambda s: s.e * s.d),
        cpu=_terms(e=lambda s: s.e, enp=lambda s: s.e * s.n * s.p, ed=lambda s: s.e * s.d, nd=lambda s: s.n * s.d),
        effort=effort,
        says=says,
        rows=2,
    )  # fmt: skip


def _rows(parameters: Callable[[Size], dict[str, Any]], bytes: Terms, effort: float = 1, says: str = "") -> Spec:
    """Parties that hold rows: sums travel, so nothing grows with the rows but the work at home."""
    return Spec(
        parameters,
        rounds=_terms(e=lambda s: s.e, k=lambda s: s.k),
        bytes=_terms(p=P, pd=lambda s: s.p * s.d, **bytes),
        cpu=_terms(nd=lambda s: s.n / s.p * s.d, end=lambda s: s.e * s.n / s.p * s.d, d=lambda s: s.d,
                   knd=lambda s: s.k * s.n / s.p * s.d, e=lambda s: s.e, k=lambda s: s.k),
        effort=effort,
        says=says,
        rows=20,
        columns=2,
    )  # fmt: skip


def _candidates(s: Size) -> float:
    """MUSE: rows of the tables between each chosen column and the other parties' preselected ones."""
    return s.n * s.k * min(s.d, s.p * s.k) * (s.p - 1) / s.p


def _keys(s: Size) -> float:
    """Matching: the parties that hold keys."""
    return min(s.p, 3)


def _hops(s: Size) -> float:
    """Matching: ids times the parties that they visit."""
    return s.n * (_keys(s) * (_keys(s) - 1) + 4 * (s.p - _keys(s)))


def _steps(s: Size) -> float:
    """Matching: how often a list is raised one after the other; three lists are on their way together."""
    return _keys(s) + 5 * math.ceil((s.p - _keys(s)) / 3)


def _swarm_cuts(s: Size) -> float:
    """Swarm: candidate cuts go out once an iteration for every number of bins that some particle asks for (16 of them,
    184 candidates a column in all), however many particles there are."""
    iterations, particles = (20, 50) if s.e >= 750 else (2 * s.e, 6)
    return iterations * 184 * (1 - (1 - 1 / 16) ** particles) * s.n * s.d


def _packed(s: Size) -> float:
    """Ciphertexts of one column: 4,096 rows share one."""
    return math.ceil(s.n / 4096)


#: Features built over parties: products of a few operands of every two parties.
COMBINED = Spec(
    lambda s: {"n_operands": 3, "n_features": int(s.k), "functions": ["ab"]},
    rounds=_terms(p=P, k=lambda s: s.k),
    bytes=_terms(p=P, cp=lambda s: _packed(s) * s.p, cpp1=lambda s: _packed(s) * s.p * (s.p - 1),
                 np=lambda s: s.n * s.p, npp1=lambda s: s.n * s.p * (s.p - 1),
                 own2=lambda s: s.p * min(s.own, 100) ** 2),
    cpu=_terms(n=lambda s: s.n, n_own2=lambda s: s.n * min(s.own, 100) ** 2,
               cpp1=lambda s: _packed(s) * s.p * (s.p - 1), npp1=lambda s: s.n * s.p * (s.p - 1)),
    largest=_terms(c=_packed, cp=lambda s: _packed(s) * s.p, cpp1=lambda s: _packed(s) * s.p * (s.p - 1),
                   n=lambda s: s.n),
    says="3 operands a party and 1 product; 10 and 4 by default: up to 44 times the products",
    rows=20,
)  # fmt: skip
NULL = Spec(lambda s: {}, rounds=_terms(), bytes=_terms(p=P, d=lambda s: s.d), cpu=_terms(d=lambda s: s.d))
#: For a method that has no formula of its own yet.
GENERAL = Spec(
    lambda s: {},
    rounds=_terms(p=P, k=lambda s: s.k),
    bytes=_terms(p=P, pd=lambda s: s.p * s.d, n=lambda s: s.n, nd=lambda s: s.n * s.d, d2=lambda s: s.d**2),
    cpu=_terms(n=lambda s: s.n, n_own=lambda s: s.n * s.own, d2=lambda s: s.d**2),
)
SPECS: dict[str, Spec] = {
    # Up to three parties hold keys: a list of theirs visits the others of them, any other all of them and its owner.
    "alignment": Spec(
        lambda s: {},
        rounds=_terms(steps=_steps),
        bytes=_terms(p=P, np=lambda s: s.n * s.p, hops=_hops),
        cpu=_terms(n_steps=lambda s: s.n * _steps(s)),
        largest=_terms(n=lambda s: s.n),
        says="steps: 3 for the key holders' lists (2 of two parties), 5 for every three others",
    ),
    "information_value": replace(FILTER, rows=40),
    "gini": replace(FILTER, rows=20),
    "sffs": replace(FILTER, rows=8),
    "muse": Spec(
        lambda s: {"n_features": int(s.k)},
        rounds=_terms(k=lambda s: s.k),
        bytes=_terms(np=lambda s: s.n * s.p, np1=lambda s: s.n * (s.p - 1), nd=lambda s: s.n * (s.d - s.own),
                     d=lambda s: s.d, nkc=_candidates),
        cpu=_terms(np=lambda s: s.n * s.p, nd=lambda s: s.n * (s.d - s.own), d=lambda s: s.d, nkc=_candidates),
        rows=2,
        columns=100,
    ),
    "federated_lasso": Spec(
        lambda s: {"n_features": int(s.k), "max_iter": int(5 * s.e), "tol": 0.0},
        rounds=_terms(e=lambda s: s.e),
        bytes=_terms(p=P, nd=lambda s: s.n * s.d, enp=lambda s: s.e * s.n * s.p, ed=lambda s: s.e * s.d),
        cpu=_terms(nd=lambda s: s.n * s.d, en_own=lambda s: s.e * s.n * s.own, e=lambda s: s.e),
        effort=40, says="5 steps; 200 by default",
    ),
    "local_lasso": _network(lambda s: {"pretrain_epochs": int(s.e), "epochs": int(s.e)}, 256, 10,
                            "an epoch of pre-training and one of training; 5 and 15 by default"),
    "stochastic_gate": _network(lambda s: {"penalty": 0.01, "epochs": int(s.e), "refit_epochs": int(s.e)}, 128, 80,
                                "an epoch of training and one of refitting for one penalty; 100 and 60 by default"),
    "top_gain": _compared(
        lambda s: {"n_features": int(s.k), "n_estimators": int(2 * s.e), "max_depth": 3, "folds": 2},
        24, "2 trees of depth 3; 24 of depth 4 (twice the work) by default, without cross-validation",
        {"cuts": lambda s: s.n * s.d},
    ),
    "pso_evffs": _compared(
        lambda s: {"popsize": 6, "iterations": int(2 * s.e), "models": 1, "folds": 2, "max_trees": 2, "max_depth": 3,
                   "patience": None},
        750, "2 iterations of 6 particles, 2 folds, 2 trees of depth 3; 20 of 50, 3, 6, depth 6 by default: "
        "750 times the work if no two particles are alike (rounds 56 times, models grow side by side), candidate cuts "
        "of all numbers of bins 10 times", {"swarm_cuts": _swarm_cuts},
    ),
    "vertical_flafe": COMBINED,
    "hybrid_flafe": replace(
        COMBINED,
        # Forests over all pairs of own columns are slow, so the runs are short: a column is one ciphertext in all of
        # them. Terms that do not grow with the ciphertexts are left out, or the fit could not tell them apart.
        rows=2,
        bytes=_terms(**{name: term for name, term in COMBINED.bytes.items() if name not in ("1", "p")}),
        says=f"{COMBINED.says}; p column groups in 2 row blocks: 2 p parties",
    ),
    "fed_iife": _rows(lambda s: {"n_pairs": 5, "max_features": int(s.k)},
                      {"pk": lambda s: s.p * s.k, "pd2": lambda s: s.p * min(s.d, 100) ** 2}),
    "fed_halving": _rows(lambda s: {"candidates": 8, "levels": 2, "max_iter": int(2 * s.e), "refinements": 1,
                                    "halvings": 1}, {"epd": lambda s: s.e * s.p * s.d}, 60,
                         "2 rounds, 2 levels, 8 masks; defaults are 60 times that (rounds 30 times)"),
    "feature_election": replace(
        _rows(lambda s: {}, {}),
        rows=100,
        cpu=_terms(nd=lambda s: s.n / s.p * s.d, d=lambda s: s.d),
    ),
    "all": NULL,
    "random": NULL,
}  # fmt: skip
#: Where rounds grow less than the work does, because models grow in lock-step: effort for the rounds alone.
ROUND_EFFORT = {"pso_evffs": 56, "fed_halving": 30, "top_gain": 16}
