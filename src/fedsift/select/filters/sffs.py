"""SFFS: secure federated filter by the F statistic (Pan et al.), the filter that two of the papers compare with.

The conversation is in ``mpc/column_scores/f_statistic.py``, which LESS-VFL's screen has, too; with ``epsilon`` in
``noisy_f.py``, over bins.
"""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores.f_statistic import OPERATIONS, encrypted_f
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.mpc.column_scores.noisy_f import OPERATIONS as NOISY
from fedsift.mpc.column_scores.noisy_f import noisy_f
from fedsift.select.base import Outcome, Selector, check_choice, check_size
from fedsift.select.opened import check_opener, note_privacy


class SFFS(Selector):
    """Keep the columns with the highest F statistic between the classes.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least F to keep; one of the two.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact sums. With
        noise values stand where their bins do, and far ones are clipped.
    """

    name = "sffs"
    paper = "Pan et al. (secure federated feature selection); baseline of FedSDG-FS and MUSE"
    leaks = (
        "coordinator: per-class sums of unnamed, standardised columns, with epsilon label counts of their bins with "
        "noise; parties: which of their columns were kept"
    )
    operations = together(OPERATIONS, NOISY)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        scheme: str = "auto",
        epsilon: float | None = None,
        delta: float = 1e-6,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.scheme = scheme
        self.epsilon = epsilon
        self.delta = delta

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_privacy(self.epsilon, self.delta)
        check_opener(fed, self.epsilon)

    def _select(self, fed: Federation) -> Outcome:
        if self.epsilon is None:
            scores = encrypted_f(fed, scheme=self.scheme)
        else:
            scores = noisy_f(fed, scheme=self.scheme, epsilon=self.epsilon, delta=self.delta)
        note_privacy(fed, self.epsilon, self.delta)
        return Outcome.best(scores, self.n_features, self.threshold)
