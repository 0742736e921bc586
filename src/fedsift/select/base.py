"""What every selector shares: scikit-learn's conventions on the outside, one ``_select`` on the inside."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_choice, check_number, could_check
from fedsift.core.design import GoesBy, check_served
from fedsift.core.federation import Federation
from fedsift.core.files import announced
from fedsift.core.ledger import Ledger
from fedsift.core.operation import Operation, load_whole
from fedsift.core.row_access import columns_here, same_columns
from fedsift.errors import ParameterError, ReplyError
from fedsift.select.rules import Rules
from fedsift.select.selection import Selection


@dataclass
class Outcome:
    """What a method found: a score for each column of each party (higher is better) and which are kept.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> fs.Outcome.best({"bank": np.array([0.9, 0.1]), "shop": np.array([0.5])}, 2, None).selected
    {'bank': array([ True, False]), 'shop': array([ True])}
    """

    scores: dict[str, np.ndarray]
    selected: dict[str, np.ndarray]
    details: dict[str, Any] = field(default_factory=dict)
    engineered: list[str] = field(default_factory=list)  # formulas of new features
    groups: dict[str, str] = field(default_factory=dict)  # party -> the name by which formulas call its columns

    @classmethod
    def best(
        cls, scores: dict[str, np.ndarray], n_features: int | None, threshold: float | None, **details: object
    ) -> Outcome:
        """Keep the ``n_features`` highest scores over all parties, or those of at least ``threshold``."""
        flat = [
            (-score, order, party, i) for order, (party, s) in enumerate(scores.items()) for i, score in enumerate(s)
        ]
        flat.sort()  # equal scores: the earlier party, then the earlier column
        chosen = {party: np.zeros(len(s), dtype=bool) for party, s in scores.items()}
        for position, (negative, _, party, i) in enumerate(flat):
            by_number = n_features is not None and position < n_features
            by_threshold = threshold is not None and -negative >= threshold
            if by_number or (n_features is None and by_threshold):
                chosen[party][i] = True
        return cls(scores, chosen, details)

    def under(self, rules: Rules, names: dict[str, list[str]]) -> Outcome:
        """The same scores, and the columns that the rules keep of them."""
        if self.engineered:
            raise ParameterError("rules are for columns; this method makes new features")
        places = {(party, names[party][i]): (party, i) for party, s in self.scores.items() for i in range(len(s))}
        scores = {name: float(self.scores[party][i]) for name, (party, i) in places.items()}
        own = {name for name, (party, i) in places.items() if self.selected[party][i]}
        chosen = rules.chosen(scores, own, len(own))
        masks = {party: np.zeros(len(s), dtype=bool) for party, s in self.scores.items()}
        for party, i in (places[name] for name in chosen):
            masks[party][i] = True
        told = {"rules": rules.words(), "price": rules.price(chosen)}
        return Outcome(self.scores, masks, {**self.details, **told})


def subset_bits(columns: int, most: int) -> float:
    """log2 of how many sets of at most so many of the columns there are."""
    whole = math.lgamma(columns + 1)
    ways = [whole - math.lgamma(k + 1) - math.lgamma(columns - k + 1) for k in range(min(most, columns) + 1)]
    top = max(ways)
    return (top + math.log(sum(math.exp(way - top) for way in ways))) / math.log(2)


class Selector(GoesBy, BaseEstimator):  # type: ignore[misc]
    """Base of all methods. A subclass checks its parameters in ``_check`` and has the conversation in ``_select``.

    After ``fit``: ``selected_``, ``scores_``, ``selection_``, ``traffic_``, ``ledger_``, ``details_``, ``seconds_``.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.GiniFilter(n_features=2).fit(fed).selected_
    {'bank': ['income'], 'shop': ['basket']}
    """

    #: What job files call it.
    name = ""
    #: For ``fedsift methods``: where it comes from, which partitions it serves, what it gives away.
    paper = ""
    partitions: tuple[str, ...] = ("vertical",)
    leaks = ""
    #: Everything that ``fit`` and ``transform`` ask of a party, with any setting; a site runs nothing else for it.
    operations: ClassVar[tuple[Operation, ...]] = ()
    #: Parameters that carry the smallest cell (the largest of them counts), and those that carry an epsilon.
    cell_parameters: ClassVar[tuple[str, ...]] = ()
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()
    #: Parameters of noise in what is opened: the least of each, and the operation whose exception allows less.
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {}
    #: How many bits a party learns for each of its columns, beside whether it was kept: a weight, say.
    told_bits: ClassVar[float] = 0.0
    #: How far scores of the same seed may differ: numbers read from shares carry the rounding of fresh masks.
    repeats_within: ClassVar[float] = 1e-9

    #: What an object needs while it fits, and drops then: it holds the federation.
    working: ClassVar[tuple[str, ...]] = ()

    #: Reports stand to the right of methods: the package hands these two over (``_public.py``).
    _write_report: ClassVar[Callable[..., Any]]
    _notebook_html: ClassVar[Callable[..., str]]

    #: Which columns must be there or must not, and what they cost. The coordinator's own: no party is told.
    rules: Rules | None = None

    @classmethod
    def told_beside(cls, parameters: Mapping[str, object], columns: int) -> float:
        """How many bits parties with so many columns learn of them in such a job, beside which ones were kept."""
        return columns * cls.told_bits

    def set_rules(self, rules: Rules | None) -> Selector:
        """Put what the method finds under rules; a copy (``clone``) has them too."""
        self.rules = rules
        return self

    def __sklearn_clone__(self) -> Selector:
        made: Selector = super().__sklearn_clone__()
        return made.set_rules(self.rules)

    def fit(self, fed: Federation, y: object = None) -> Selector:
        """Run the method over the federation. ``y`` is ignored: labels stay with their party."""
        if not isinstance(fed, Federation):
            raise ParameterError(f"fit takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
        if fed.partition not in self.partitions:
            raise ParameterError(
                f"{type(self).__name__} is for {' or '.join(self.partitions)} parties; these are {fed.partition}"
            )
        check_served(fed.design, type(self).__name__, self._serves(), self.otherwise)
        mark, start = len(fed.ledger), time.perf_counter()
        names, outcome = self._each_label(fed) if fed.design.labels else self._run(fed, could_check(self._check, fed))
        for used in self.working:
            self.__dict__.pop(used, None)
        if self.rules is not None:
            outcome = outcome.under(self.rules, names)
        self.seconds_ = time.perf_counter() - start
        self.fitted_at_ = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        job = fed.job(*self.announcement())
        self.federation_ = {
            "partition": fed.partition, "rows": fed.n_rows, "columns": fed.n_columns,
            "holders": list(fed.label_parties), "job": job.hash.hex(), "coordinator": job.coordinator,
            "submitter": job.submitter,
        }  # fmt: skip
        self.ledger_: Ledger = fed.ledger.since(mark)
        self.matching_ = Ledger(entry for entry in fed.ledger.entries[:mark] if entry.operation.startswith("align."))
        self.traffic_: pd.DataFrame = self.ledger_.traffic()
        self.details_ = outcome.details
        self.selection_ = self._selection(outcome, names, fed)
        self.selected_ = self.selection_.selected
        self.scores_ = self.selection_.frame()
        self.masks_ = outcome.selected
        self.column_digests_ = columns_here(fed)
        return self

    def _each_label(self, fed: Federation) -> tuple[dict[str, list[str]], Outcome]:
        """Several labels, each in a job of its own: what is kept for one of them, scored by how many keep it."""
        found = {name: clone(self).fit(fed.designed(design)) for name, design in fed.design.each().items()}
        names, masks = fed.column_names(), [each.masks_ for each in found.values()]
        kept = {party: np.sum([mask[party] for mask in masks], axis=0).astype(np.float64) for party in names}
        if any(each.selection_.engineered for each in found.values()):
            raise ParameterError("several labels are for methods that keep columns; this one makes new ones")
        details = {"labels": {name: each.selected_ for name, each in found.items()}}
        return names, Outcome(kept, {party: counts > 0 for party, counts in kept.items()}, details)

    def _run(self, fed: Federation, checked: bool) -> tuple[dict[str, list[str]], Outcome]:
        """Put the job to the parties and have the conversation; the names of their columns, and what was found."""
        with fed.session(*self.announcement()) as run:
            if not checked:
                self._check(run)
            return run.column_names(), self._select(run)

    def announcement(self) -> tuple[str, dict[str, object]]:
        """What a party hears first: the method's name in job files, and its parameters as plain values."""
        name = str(vars(type(self)).get("name", type(self).__name__))  # not that of a class above it
        return name, {key: announced(value) for key, value in self.get_params(deep=False).items()}

    def jobs_within(self) -> list[tuple[str, dict[str, Any]]]:
        """The jobs beside its own that ``fit`` puts to the parties: those of a selector that it fits, say."""
        return []

    def _check(self, fed: Federation) -> None:
        """Raise ``ParameterError`` for values that make no sense, before anything is sent."""

    def _select(self, fed: Federation) -> Outcome:
        raise ParameterError(f"{type(self).__name__} defines no _select")

    def transform(self, fed: Federation) -> Federation:
        """The same federation with the selected columns only."""
        check_is_fitted(self, "selection_")
        if not isinstance(fed, Federation):
            raise ParameterError(
                f"transform takes a Federation, got {type(fed).__name__}; for one party's own table: "
                "selection_.transform(table, party=...)"
            )
        kept = {party: np.flatnonzero(mask).tolist() for party, mask in self.masks_.items()}
        return fed.view(columns=same_columns(self.column_digests_, fed, kept))

    def fit_transform(self, fed: Federation, y: object = None) -> Federation:
        return self.fit(fed).transform(fed)

    def get_support(self, indices: bool = False, *, party: str | None = None) -> np.ndarray:
        """Which columns are kept, as a mask or as positions: of one party, or in the order of all parties' columns.

        Parties that hold rows have the same columns, which are counted once.
        """
        mask = np.concatenate([self.masks_[name] for name in self._whose(party)])
        return np.flatnonzero(mask) if indices else mask

    def get_feature_names_out(self, input_features: object = None, *, party: str | None = None) -> np.ndarray:
        """The kept columns, then new features as formulas: ``party.column``, or by their own names for one party."""
        whose = self._whose(party)
        plain = party is not None or self.federation_["partition"] == "horizontal"
        kept = [column if plain else f"{name}.{column}" for name in whose for column in self.selected_[name]]
        made = self.selection_.engineered if party is None else self.selection_.engineered_for(party)
        return np.asarray([*kept, *made], dtype=object)

    def _whose(self, party: str | None) -> list[str]:
        """The parties whose columns are meant."""
        check_is_fitted(self, "selection_")
        if party is not None and party not in self.selected_:
            raise ParameterError(f"no party {party!r} in this selection; it has {', '.join(self.selected_)}")
        names = list(self.selected_) if party is None else [party]
        return names[:1] if self.federation_["partition"] == "horizontal" else names

    @property
    def n_features_in_(self) -> int:
        """How many columns took part."""
        return len(self.get_support())

    def report(self, path: object = None, party: str | None = None) -> Any:
        """Write the report (HTML by the file's ending, text otherwise), or return its text without a path."""
        check_is_fitted(self, "selection_")
        load_whole()
        return self._write_report(self, path, party=party)

    def _repr_html_(self) -> str:
        """For notebooks: the parameters, and after ``fit`` the answer, its cost and what it disclosed."""
        load_whole()
        return self._notebook_html(self)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _selection(self, outcome: Outcome, names: dict[str, list[str]], fed: Federation) -> Selection:
        rows: list[dict[str, Any]] = []
        for party, scores in outcome.scores.items():
            if not len(names[party]) == len(scores) == len(outcome.selected[party]):
                raise ReplyError(party, "scores", "it told of another number of columns than it has")
            for i, score in enumerate(scores):
                rows.append(
                    {"party": party, "feature": names[party][i], "score": float(score), "rank": 0,
                     "selected": bool(outcome.selected[party][i])}
                )  # fmt: skip
        order = sorted(range(len(rows)), key=lambda i: (not rows[i]["selected"], -rows[i]["score"], i))
        for rank, i in enumerate(order, 1):
            rows[i]["rank"] = rank
        selected = {p: [names[p][i] for i in np.flatnonzero(mask)] for p, mask in outcome.selected.items()}
        security = {
            **self.ledger_.encryption(),
            "line": self.ledger_.encryption_line(),
            "notes": list(self.ledger_.notes),
        }
        return Selection(
            method=type(self).__name__,
            selected=selected,
            scores=rows,
            parameters=self.get_params(deep=False),
            security=security,
            details={k: v for k, v in outcome.details.items() if not k.startswith("_")},
            engineered=list(outcome.engineered),
            groups=dict(outcome.groups),
        )


def check_size(n_features: object, threshold: object) -> None:
    """A filter takes a number of features or a threshold, one of the two."""
    check_number("n_features", n_features, 1, whole=True, none=True)
    check_number("threshold", threshold, -np.inf, none=True)
    if (n_features is None) == (threshold is None):
        raise ParameterError(f"give n_features or threshold, one of the two; got {n_features!r} and {threshold!r}")


def check_opener(fed: Federation, epsilon: float | None) -> None:
    """Exact sums go to a coordinator that holds no rows. One that does would read labels or columns from them."""
    if fed.run_by is not None and epsilon is None:
        raise ParameterError(
            f"the coordinator opens counts of rows, and {fed.run_by!r}, which holds rows, runs it: give epsilon, so "
            "that they carry noise, or let somebody run it who holds no rows"
        )


def note_privacy(fed: Federation, epsilon: float | None, delta: float, min_cell: int | None = None) -> None:
    if epsilon is not None:
        fed.ledger.note(
            f"epsilon {epsilon:g} (delta {delta:g}) for the values of one person at one party, in this run: discrete "
            "Gaussian noise by each party, added before anything was opened"
        )
    elif min_cell == 1:
        fed.ledger.note("min_cell=1: bins of a single row may have been counted")


__all__ = [
    "Outcome", "Selector", "check_choice", "check_number", "check_opener", "check_size", "note_privacy",
]  # fmt: skip
