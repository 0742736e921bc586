"""SFFS: secure federated filter by the F statistic (Pan et al.), the filter that two of the papers compare with.

The conversation is in ``mpc/column_scores/f_statistic.py``; LESS-VFL's screen has it, too.
"""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores import f_statistic
from fedsift.mpc.column_scores.f_statistic import encrypted_f
from fedsift.select.base import Outcome, Selector, check_choice, check_size


class SFFS(Selector):
    """Keep the columns with the highest F statistic between the classes.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least F to keep; one of the two.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    """

    name = "sffs"
    paper = "Pan et al. (secure federated feature selection); baseline of FedSDG-FS and MUSE"
    leaks = "label holder: per-class sums of unnamed, standardised columns; others: which of their columns were kept"
    operations = f_statistic.OPERATIONS

    def __init__(self, *, n_features: int | None = 10, threshold: float | None = None, scheme: str = "auto"):
        self.n_features = n_features
        self.threshold = threshold
        self.scheme = scheme

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)

    def _select(self, fed: Federation) -> Outcome:
        return Outcome.best(encrypted_f(fed, scheme=self.scheme), self.n_features, self.threshold)
