"""MUSE: relevant columns without repetition across parties, by federated mutual information.

Ji et al. 2024 (IEEE TCSS), Algorithm 1: mutual information of every column with the label; as many columns as are
wanted in the end are preselected at each party; then the coordinator chooses greedily over all candidates by mRMR, MIFS
or DD.

Departures: the coordinator preselects too, with the mutual information inside a party that the party tells it: told the
relevance of its columns, as in the paper, a party reads the labels off it (``docs/muse.md``). Tables are asked for as
the search needs them (the newly chosen column against what is left) and not all up front, which gives the same result
with far fewer tables; scores that tie are broken by party and column order; mutual information is corrected for the few
rows it is counted from; the coordinator's tables come from ``mutual_information.py``, whose pseudonyms differ for every
pair of columns.

The coordinator learns unnamed joint tables of the pairs of columns that it asks for, and mutual information inside a
party. A party learns which of its columns were preselected and kept, in which order. Rounds: about 2 ``n_features``
+ 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import ReplyError
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_opener, note_privacy, subset_bits
from fedsift.select.muse import mutual_information, noisy_tables
from fedsift.select.muse.contingency import BINNINGS, MAX_BINS
from fedsift.select.muse.criteria import Search, Searching, find_criterion, in_step, steps
from fedsift.select.muse.mutual_information import LABEL, BinMatching, Pairs, own_information
from fedsift.select.muse.noisy_tables import NoisyTables
from fedsift.select.muse.pool import ExactTables, Pool, among
from fedsift.select.muse.rank_correlation import correlate_ranks, redundancy, spearman_matrix


class Muse(Selector):
    """Greedy selection by mutual information over all parties' columns.

    After ``fit``: ``order_`` (a DataFrame: step, party, feature, score, relevance, redundancy), ``information_`` (the
    matrix of mutual information that the coordinator saw; NaN where it asked for none), ``details_``.

    Parameters
    ----------
    n_features : how many to keep; also how many each party preselects.
    criterion : ``mrmr``, ``mifs``, ``dd`` or a name given to ``register_criterion``.
    n_bins, binning : bins of a numeric column (and of a regression target), equally full or equally wide.
    preselect : preselect ``n_features`` columns at each party first (the paper).
    bias_correction : take off what mutual information has too much when counted from few rows.
    beta, lam : weight of redundancy in MIFS; weight of distance against relevance in DD.
    min_cell : refuse a table with a non-empty cell of fewer rows.
    keys : ``two`` parties or ``one`` hold the key of the row secrets.
    epsilon, delta : differential privacy of each party's rows (``noisy_tables.py``); None: exact tables. With noise
        there are at most ``n_bins`` bins, fewer in tables of two columns, no preselection and no rank correlations.
    scheme : additive encryption of tables with noise: ``auto``, ``ou`` or ``paillier``.
    random_state : taken for the common interface; the method makes no random choice.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.Muse(n_features=2).fit(fed).selected_
    {'bank': [], 'shop': ['petal length (cm)', 'petal width (cm)']}
    """

    name = "muse"
    paper = "Ji et al. 2024, MUSE (IEEE Transactions on Computational Social Systems)"
    leaks = (
        "coordinator: joint tables of pairs of columns under shuffled labels, mutual information inside a party, rank "
        "correlations of the selected columns; parties: which of their columns were preselected and kept, in order"
    )
    operations = together(mutual_information.OPERATIONS, (correlate_ranks,), noisy_tables.OPERATIONS)
    cell_parameters = ("min_cell",)
    epsilon_parameters = ("epsilon",)

    @classmethod
    def told_beside(cls, parameters: Mapping[str, Any], columns: int) -> float:
        """Which columns were preselected, as many as are kept, and in which order columns were kept."""
        kept = parameters.get("n_features")
        if parameters.get("preselect") is not True or not isinstance(kept, int):
            return 0.0
        return subset_bits(columns, kept) + math.lgamma(kept + 1) / math.log(2)

    def __init__(
        self,
        *,
        n_features: int = 50,
        criterion: str = "mrmr",
        n_bins: int = 15,
        binning: str = "quantile",
        preselect: bool = True,
        bias_correction: bool = True,
        beta: float = 0.8,
        lam: float = 0.5,
        min_cell: int | None = None,
        keys: str = "two",
        epsilon: float | None = None,
        delta: float = 1e-6,
        scheme: str = "auto",
        random_state: Any = None,
    ):
        self.n_features = n_features
        self.criterion = criterion
        self.n_bins = n_bins
        self.binning = binning
        self.preselect = preselect
        self.bias_correction = bias_correction
        self.beta = beta
        self.lam = lam
        self.min_cell = min_cell
        self.keys = keys
        self.epsilon = epsilon
        self.delta = delta
        self.scheme = scheme
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_number("n_features", self.n_features, 1, whole=True)
        check_number("n_bins", self.n_bins, 2, (MAX_BINS - 1) // 2, whole=True)
        check_choice("binning", self.binning, BINNINGS)
        check_choice("preselect", self.preselect, (True, False))
        check_choice("bias_correction", self.bias_correction, (True, False))
        check_number("beta", self.beta, 0)
        check_number("lam", self.lam, 0, 1)
        check_number("min_cell", self.min_cell, 1, whole=True, none=True)
        check_choice("keys", self.keys, ("two", "one"))
        find_criterion(self.criterion)
        check_choice("scheme", self.scheme, SCHEMES)
        check_privacy(self.epsilon, self.delta)
        check_opener(fed, self.epsilon)

    def _select(self, fed: Federation) -> Outcome:
        return self._exact(fed) if self.epsilon is None else self._noisy(fed)

    def _exact(self, fed: Federation) -> Outcome:
        matching = BinMatching(fed, keys=self.keys, min_cell=self.min_cell, correct=self.bias_correction)
        entropies = matching.prepare(n_bins=self.n_bins, binning=self.binning)
        label_entropy = float(entropies[fed.active][-1])
        entropies[fed.active] = entropies[fed.active][:-1]
        relevance = self._relevance(fed, matching)
        candidates, inside = self._candidates(fed, relevance, entropies, label_entropy)
        pool = Pool(fed, ExactTables(matching, candidates, inside), candidates)
        found = self._chosen(pool, relevance, entropies, label_entropy)
        fed.ledger.note(
            "rows were matched under an oblivious PRF (ristretto255) and random orders (X25519, ChaCha20), fresh for "
            "every pair of columns, not by ciphertexts"
        )
        if self.min_cell in (None, 1):
            fed.ledger.note("min_cell is not set: cells of a single row may have been counted")
        return self._outcome(fed, pool, found, relevance, self.preselect)

    def _noisy(self, fed: Federation) -> Outcome:
        """The same search over tables with noise, without preselection."""
        tables = NoisyTables(fed, parameters=self.get_params(deep=False))
        counted = tables.with_label()
        relevance = {name: np.array([each.information() for each in counted[name]]) for name in fed.parties}
        both = {name: np.array([each.entropies() for each in counted[name]]).reshape(-1, 2) for name in fed.parties}
        label_entropy = float(np.concatenate([each[:, 1] for each in both.values()]).mean())
        pool = Pool(fed, tables, {name: np.arange(count) for name, count in fed.n_columns.items()})
        entropies = {name: each[:, 0] for name, each in both.items()}
        found = self._chosen(pool, relevance, entropies, label_entropy)
        note_privacy(fed, self.epsilon, self.delta)
        return self._outcome(fed, pool, found, relevance, False)

    def _chosen(
        self, pool: Pool, relevance: dict[str, np.ndarray], entropies: dict[str, np.ndarray], label_entropy: float
    ) -> Search:
        """The greedy search over the candidates of all parties."""
        pool.wanted = min(self.n_features, len(pool.column))
        search = self._search(pool.gather(relevance), pool.gather(entropies), label_entropy)
        return in_step({"": search}, lambda wanted: {"": pool.information_with(*wanted[""])})[""]

    def _relevance(self, fed: Federation, matching: BinMatching) -> dict[str, np.ndarray]:
        """I(column; label): by matching for the other parties' columns, locally for the label holder's own."""
        active = fed.active
        columns = {name: np.arange(count) for name, count in fed.n_columns.items()}
        wanted = [Pairs(name, columns[name], active, np.full(len(columns[name]), LABEL)) for name in fed.passive]
        found = dict(zip(fed.passive, matching.information(wanted)))
        own = columns[active]
        found[active] = fed.ask(
            own_information, to=active, left=np.full(len(own), LABEL), right=own, correct=self.bias_correction
        )
        if len(found[active]) != len(own):
            raise ReplyError(active, "own_information", f"expected {len(own)} values")
        return {name: found[name] for name in fed.parties}

    def _search(self, relevance: np.ndarray, entropy: np.ndarray, label_entropy: float) -> Searching:
        return steps(self.n_features, self.criterion, relevance, entropy, label_entropy, beta=self.beta, lam=self.lam)

    def _candidates(
        self, fed: Federation, relevance: dict[str, Any], entropies: dict[str, Any], label_entropy: float
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray] | None]:
        """The columns that go into the global search, and the mutual information inside each party if it is known."""
        if not self.preselect:
            return {name: np.arange(count) for name, count in fed.n_columns.items()}, None
        searches = {name: self._search(relevance[name], entropies[name], label_entropy) for name in fed.parties}
        done = iter(range(1, self.n_features + 1))

        def answer(wanted: dict[str, tuple[int, np.ndarray]]) -> dict[str, np.ndarray]:
            fed.progress(next(done), self.n_features, "column of each party", at_most=True)
            each = {name: {"left": np.full(len(rest), best), "right": rest} for name, (best, rest) in wanted.items()}
            replies = fed.ask(own_information, to=list(wanted), each=each, correct=self.bias_correction)
            for name, (_, rest) in wanted.items():
                if len(replies[name]) != len(rest):
                    raise ReplyError(name, "own_information", f"expected {len(rest)} values")
            return {name: replies[name] for name in wanted}

        found = in_step(searches, answer)
        candidates = {name: np.array(sorted(found[name].order), dtype=np.int64) for name in fed.parties}
        return candidates, {name: among(found[name], candidates[name]) for name in fed.parties}

    def _outcome(
        self, fed: Federation, pool: Pool, found: Search, relevance: dict[str, np.ndarray], preselected: bool
    ) -> Outcome:
        places = [pool.where(i) for i in found.order]
        names = fed.column_names()
        steps = [
            {
                "step": step + 1,
                "party": party,
                "feature": names[party][column],
                "score": found.scores[step],
                "relevance": float(relevance[party][column]),
                "redundancy": found.redundancy[step],
            }
            for step, (party, column) in enumerate(places)
        ]
        selected = {name: np.zeros(count, dtype=bool) for name, count in fed.n_columns.items()}
        # Chosen columns score by their place in the order, above all others; those follow by their relevance.
        scores = {name: relevance[name] - 1.0 - max(1.0, relevance[name].max(initial=0.0)) for name in fed.parties}
        for step, (party, column) in enumerate(places):
            selected[party][column] = True
            scores[party][column] = float(len(places) - step)
        details = {
            "order": steps,
            "federated_computations": pool.computations(preselected),
            "_information": pool.frame(found, relevance, names),
        }
        if self.epsilon is None:
            matrix = spearman_matrix(fed, places)
            details["redundancy"] = redundancy(matrix)
            details["redundancy_of_first_10"] = redundancy(matrix[:10, :10])
        return Outcome(scores, selected, details)

    @property
    def order_(self) -> pd.DataFrame:
        return pd.DataFrame(self.details_["order"])

    @property
    def information_(self) -> pd.DataFrame:
        return self.details_["_information"]
