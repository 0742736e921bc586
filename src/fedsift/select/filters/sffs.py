"""SFFS: secure federated filter by the F statistic (Pan et al.), the filter that two of the papers compare with.

The conversation is in ``mpc/column_scores/f_statistic.py``, which LESS-VFL's screen has, too; with ``epsilon`` in
``noisy_f.py``, over bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedsift.core.design import DRAWN, WEIGHTED
from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import ParameterError, ReplyError
from fedsift.mpc.column_scores.coarse_f import COARSE, screened_by_bits
from fedsift.mpc.column_scores.coarse_f import OPERATIONS as BITS
from fedsift.mpc.column_scores.f_statistic import OPERATIONS, best_f, component_f
from fedsift.mpc.column_scores.grouped_f import OPERATIONS as SCREENING
from fedsift.mpc.column_scores.grouped_f import screened
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.mpc.column_scores.noisy_f import OPERATIONS as NOISY
from fedsift.mpc.column_scores.noisy_f import noisy_f
from fedsift.mpc.column_scores.weighted_f import OPERATIONS as WEIGHING
from fedsift.mpc.column_scores.weighted_f import weighted_f
from fedsift.select.base import (
    Outcome,
    Selector,
    check_choice,
    check_number,
    check_opener,
    check_size,
    note_privacy,
    subset_bits,
)
from fedsift.select.sureness import f_p_values, f_reaches, warn_below


class SFFS(Selector):
    """Keep the columns with the highest F statistic between the classes.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least F to keep; one of the two.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact sums. With
        noise values stand where their bins do, and far ones are clipped.
    screen : for very wide tables. ``"coarse"``: every column is first scored by one bit a row, and only the best
        exactly (``mpc/column_scores/coarse_f.py``). A number: groups of so many columns that a party finds alike are
        scored first, and only columns of the best groups one by one (``mpc/column_scores/grouped_f.py``). None: every
        column.
    screen_share : the share of the columns, or of the groups, that goes on.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.SFFS(n_features=2).fit(fed).selected_
    {'bank': [], 'shop': ['petal length (cm)', 'petal width (cm)']}
    """

    name = "sffs"
    paper = "Pan et al. (secure federated feature selection); baseline of FedSDG-FS and MUSE"
    leaks = (
        "coordinator: per-class sums of unnamed, standardised columns (with weights of their squares, too), with "
        "epsilon label counts of their bins with noise; parties: which of their columns were kept, with screen which "
        "groups or columns go on"
    )
    operations = together(OPERATIONS, NOISY, SCREENING, BITS, WEIGHING)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        scheme: str = "auto",
        epsilon: float | None = None,
        delta: float = 1e-6,
        screen: int | str | None = None,
        screen_share: float = 0.05,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.scheme = scheme
        self.epsilon = epsilon
        self.delta = delta
        self.screen = screen
        self.screen_share = screen_share

    def _serves(self) -> tuple[str, ...]:
        return WEIGHTED if self.epsilon is None is self.screen else DRAWN

    @classmethod
    def told_beside(cls, parameters: Mapping[str, object], columns: int) -> float:
        """With ``screen`` parties hear which groups of their columns, or which of these, go on."""
        screen, share = parameters.get("screen"), parameters.get("screen_share")
        if screen is None or not isinstance(share, (int, float)):
            return 0.0
        parts = math.ceil(columns / screen) if isinstance(screen, int) else columns
        return subset_bits(parts, math.ceil(share * parts))

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_privacy(self.epsilon, self.delta)
        check_opener(fed, self.epsilon)
        if self.screen != COARSE:
            check_number("screen", self.screen, 2, 1000, whole=True, none=True)
        check_number("screen_share", self.screen_share, 1e-4, 1)
        if self.screen is not None and self.epsilon is not None:
            raise ParameterError("screen is for exact sums: give screen or epsilon, one of the two")

    def _select(self, fed: Federation) -> Outcome:
        note_privacy(fed, self.epsilon, self.delta)
        if self.epsilon is not None:
            noisy = noisy_f(fed, scheme=self.scheme, epsilon=self.epsilon, delta=self.delta)
            return Outcome.best(noisy, self.n_features, self.threshold)
        if self.screen is not None:
            return self._screened(fed)
        weighted = fed.design.weight is not None or fed.design.class_weight is not None
        found = weighted_f(fed, scheme=self.scheme) if weighted else component_f(fed, scheme=self.scheme)
        outcome = Outcome.best(best_f(fed, found), self.n_features, self.threshold)
        outcome.details |= self._how_sure(fed, found)
        return outcome

    def _screened(self, fed: Federation) -> Outcome:
        """The exact scores of columns that went on, by themselves or with their groups; the others score 0."""
        first = screened_by_bits if self.screen == COARSE else screened
        places = first(fed, scheme=self.scheme, share=self.screen_share)
        part = fed.view(columns=places)
        found = best_f(part, component_f(part, scheme=self.scheme))
        scores = {name: np.zeros(count) for name, count in fed.n_columns.items()}
        for name, values in found.items():
            if len(values) != len(places[name]):
                raise ReplyError(name, "columns_of_groups", "another number of columns goes on than it named")
            scores[name][places[name]] = values
        outcome = Outcome.best(scores, self.n_features, self.threshold)
        outcome.details |= {"screened": {name: len(mine) for name, mine in places.items()}}
        return outcome

    def _how_sure(self, fed: Federation, found: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, object]:
        """The F test of each column, and how high the best of as many columns of noise reaches."""
        size = fed.n_classes, fed.n_rows
        floor = f_reaches(sum(len(values) for values, _ in found.values()), *size)
        warn_below(fed, self.threshold, floor, sum(fed.n_columns.values()))
        p = {name: f_p_values(values, owner, fed.n_columns[name], *size) for name, (values, owner) in found.items()}
        return {"p_values": p, "sure": {"test": "F", "noise_floor": floor, "copies": []}}
