"""Stability selection around any selector: keep what it chooses again and again on complementary halves of the rows.

Meinshausen and Buehlmann 2010, in the form of Shah and Samworth 2013 (complementary pairs). The selector keeps ``q``
columns on each half of many pairs of halves; a column's score is the share of halves that kept it. Noise is seldom
chosen twice: of columns that the selector takes with no more than average chance, those in a share of at least tau of
all halves number at most C(tau, pairs) q^2 / columns in the mean (their Theorem 2, where the shares are unimodal, else
Meinshausen's bound, which asks for nothing). tau is the least share at which that is at most ``fdr`` of what is kept.

Departures: halves are unions of blocks that are dealt once (``halves.py``), so that a site's journal sees atoms of
whole blocks and not of single rows; tau follows from the data and ``fdr``, where the papers choose it beforehand.

Every fit on a half is a job of its own, which each site's policy judges and its journal counts, with all parameters of
the selector; this job names them too. What noise means is what the selector means by it: a filter that looks at columns
one by one calls a copy of a useful column useful.

Who learns what: on each half what the selector gives away, which columns of a half were kept excepted: no party hears
of that, only which of its columns were kept in the end. Everybody learns the blocks, which know nothing of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fedsift.core.federation import Federation
from fedsift.core.files import plain
from fedsift.core.operation import load_whole
from fedsift.errors import ParameterError
from fedsift.select.base import Outcome, Selector, check_number
from fedsift.select.halves import OPERATIONS, check_halves, halved

Floats = NDArray[np.float64]


class Stable(Selector):
    """Keep the columns that another selector chooses on most halves of the rows, so that few of them are noise.

    Parameters
    ----------
    selector : a selector, or the name of one in job files; it needs the partition of the federation.
    settings : parameters of a selector that is given by name.
    q : how many columns it keeps on each half, where it has ``n_features``; else it keeps what it keeps.
    fdr : at most this share of the kept columns shall be noise, by the bound above.
    pairs : pairs of complementary halves; the selector is fitted twice a pair. blocks : of rows, even; each must have
        as many rows as the sites' ``min_rows``, and ``pairs`` is at most half of the ways to take half of them.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 8))
    >>> fed = fs.Federation.split(X, X[:, 0] + X[:, 1] + X[:, 5], parties=["bank", "shop"])
    >>> lasso = fs.FederatedLasso(max_iter=20)
    >>> fs.Stable(lasso, q=3, pairs=5, fdr=0.3).fit(fed).selected_
    {'bank': ['f0', 'f1'], 'shop': ['f5']}
    """

    name = "stable"
    paper = "Meinshausen and Buehlmann 2010; Shah and Samworth 2013 (stability selection by complementary pairs)"
    partitions = ("vertical", "horizontal", "hybrid")
    leaks = "what its selector gives away, on every half of the rows; parties: which of their columns were kept"
    operations = OPERATIONS
    #: Methods by name stand to the right: ``methods.py`` hands them over.
    find_method: ClassVar[Callable[[str], type[Selector]]]

    def __init__(
        self,
        selector: Selector | str = "information_value",
        *,
        settings: Mapping[str, object] | None = None,
        q: int = 5,
        fdr: float = 0.1,
        pairs: int = 10,
        blocks: int = 8,
        random_state: int = 0,
    ):
        self.selector = selector
        self.settings = settings
        self.q = q
        self.fdr = fdr
        self.pairs = pairs
        self.blocks = blocks
        self.random_state = random_state

    def base(self) -> Selector:
        """A fresh selector as it is fitted on each half."""
        if isinstance(self.selector, Selector):
            if self.settings is not None:
                raise ParameterError("settings are for a selector that is given by name; this one has its own")
            made: Selector = clone(self.selector)
        else:
            load_whole()
            known = type(self).find_method(self.selector)
            unknown = sorted(set(self.settings or {}) - set(known._get_param_names()))
            if unknown:
                raise ParameterError(f"settings: {self.selector} has no parameter {unknown[0]!r}")
            made = known(**(self.settings or {}))
        if isinstance(made, Stable):
            raise ParameterError("selector must not be stable itself")
        return made.set_params(n_features=self.q) if "n_features" in made.get_params(deep=False) else made

    def announcement(self) -> tuple[str, dict[str, Any]]:
        """The inner selector's name and all of its parameters stand in the job."""
        name, told = super().announcement()
        told["selector"], told["settings"] = self.base().announcement()
        return name, plain(told)

    def _serves(self) -> tuple[str, ...]:
        return self.base()._serves()

    def jobs_within(self) -> list[tuple[str, dict[str, Any]]]:
        return [self.base().announcement()]

    def _check(self, fed: Federation) -> None:
        check_number("q", self.q, 1, whole=True)
        check_number("fdr", self.fdr, 1e-9, 1)
        check_number("random_state", self.random_state, 0, whole=True)
        check_halves(self.pairs, self.blocks)
        base = self.base()
        if fed.partition not in base.partitions:
            served = " or ".join(base.partitions)
            raise ParameterError(f"selector: {type(base).__name__} is for {served} parties; these are {fed.partition}")
        base._check(fed)

    def _run(self, fed: Federation, checked: bool) -> tuple[dict[str, list[str]], Outcome]:
        """Deal the halves in a job of its own, then fit the selector on each in further jobs."""
        with fed.session(*self.announcement()) as run:
            if not checked:
                self._check(run)
            names, columns, task = run.column_names(), run.n_columns, run.task
            defined = [half._view for pair in halved(run, self.blocks, self.pairs, self.random_state) for half in pair]
        outside = fed.outside()
        outside._task = task  # what the whole label says; the few values of a half might look like another task
        kept = {party: np.zeros((len(defined), count)) for party, count in columns.items()}
        for number, view in fed.track(list(enumerate(defined)), "half"):
            for party, mask in self.base().fit(outside.named_view(view)).masks_.items():
                kept[party][number] = mask
        first = min(block for block, _ in fed.grid.values())
        return names, self._outcome(kept, [name for name, (block, _) in fed.grid.items() if block == first])

    def _outcome(self, kept: dict[str, Floats], counted: list[str]) -> Outcome:
        """Shares of the halves, and what is kept of them. Row blocks have the same columns: one of them is counted."""
        shares = {party: masks.mean(axis=0) for party, masks in kept.items()}
        flat = np.concatenate([shares[party] for party in counted])
        size = float(np.hstack([kept[party] for party in counted]).sum(axis=1).mean())
        tau, bound = choose_share(flat, size, self.pairs, self.fdr)
        details = {"share": tau, "expected_noise": bound, "kept_on_a_half": size, "halves": 2 * self.pairs}
        return Outcome.best(shares, None, tau if tau is not None else np.inf, **details)


def expected_noise(share: float, size: float, columns: int, pairs: int) -> float:
    """How many columns of no more than average chance are in this share of the halves at most, in the mean."""
    chance = size / columns
    found = chance * size / (2 * share - 1)  # Meinshausen and Buehlmann
    low = min(0.5 + chance**2, 0.5 + 1 / (2 * pairs) + 0.75 * chance**2)
    if chance <= 1 / np.sqrt(3) and share > low and share > 0.5 + 1 / (4 * pairs):  # Shah and Samworth, Theorem 2
        if share <= 0.75:
            factor = 1 / (2 * (2 * share - 1 - 1 / (2 * pairs)))
        else:
            factor = 4 * (1 - share + 1 / (2 * pairs)) / (1 + 1 / pairs)
        found = min(found, factor * chance * size)
    return float(found)


def choose_share(shares: Floats, size: float, pairs: int, fdr: float) -> tuple[float | None, float]:
    """The least share above one half at which the noise is at most ``fdr`` of what is kept; ``None`` where none is."""
    for number in range(pairs + 1, 2 * pairs + 1):
        share = number / (2 * pairs)
        kept = int((shares >= share).sum())
        noise = expected_noise(share, size, len(shares), pairs)
        if kept and noise <= fdr * kept:
            return share, noise
    return None, 0.0
