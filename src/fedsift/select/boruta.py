"""Boruta: columns that boosted trees use more than the best of shuffled copies of all columns, time after time.

Kursa and Rudnicki 2010, on the protected boosting. Each party adds, for every round, a shadow of each of its columns:
the same values in an order that it draws itself and tells nobody (``shadows.py``): ``shuffled``, as in the paper, or so
that the shadow goes with the party's other columns as the column itself does (``alike``). A booster over
columns and shadows is grown for every round, all in lock-step. A column has a hit in a round if its gain is above that
of every shadow; by chance alone it has one in half of the rounds at most, so that hits are tested as tosses of a coin,
and of the columns that pass at most ``fdr`` are to be such by chance (Benjamini and Hochberg 1995).

Departures: boosting takes the place of a random forest, all rounds are made (the paper drops columns on the way), and
``fdr`` that of a fixed level with Bonferroni's correction.

What it calls noise: with ``shuffled`` shadows a column that trees find nothing in, so that one that only goes along
with a useful column is kept (the paper's "all relevant"). Shadows that are ``alike`` go along as well: such a column is
noise then, where the useful one is at the same party. ``Knockoffs`` looks over all parties.

Who learns what: as with SecureBoost (docs/secureboost.md), about shadows too; the coordinator the gain of each column
and shadow. A party learns which of its columns were kept, and in growing which of its cuts were taken.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedsift.core.arguments import AtMost
from fedsift.core.federation import Federation
from fedsift.core.operation import operation, together
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.growing import Booster
from fedsift.models.boost.scoring import OPERATIONS, Protection, uses
from fedsift.models.boost.settings import WEIGHED_OPENLY, check_boosting, serves, tree_settings
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.shadows import ALIKE, SHADOWS, shadow_orders

Floats = NDArray[np.float64]
MAX_ROUNDS = 50
View = Annotated[str, AtMost(100)]


@operation("boruta.add_shadows", discloses="control", about="acknowledgement", times=1)
def add_shadows(party: Party, *, view: View) -> None:
    """A view of this one's columns and, after them, of their shadows, round by round."""
    site, asked, rounds = party.site, party.job.parameters, int(party.job.parameters["rounds"])
    if view == "" or view in site.views or not 1 <= rounds <= MAX_ROUNDS:
        raise OperationRefused(party.name, "add_shadows", "the view has a name already, or there are too many rounds")
    names, before = party.columns, site.table.columns
    generator = party.generator("boruta: shadows", asked["random_state"])
    drawn = shadow_orders(party, generator, rounds, alike=asked["shadows"] == ALIKE)
    made = {_shadow(name, round): _values(party, name)[drawn[name][round]] for round in range(rounds) for name in names}
    site.table = site.table.with_columns(made)
    for known, (kept, columns) in site.views.items():
        # A view of all columns meant all columns that there were: shadows belong to the new view only.
        site.views[known] = (kept, list(before) if columns is None else columns)
    site.views[view] = (party._rows, [*names, *made])


@operation("boruta.remove_shadows", discloses="control", about="acknowledgement", times=1, after="boruta.add_shadows")
def remove_shadows(party: Party, *, view: View) -> None:
    """The table as it was before; the view of shadows is gone."""
    site, rounds = party.site, int(party.job.parameters["rounds"])
    columns = site.views.pop(view, (None, None))[1]
    if columns is None:
        raise OperationRefused(party.name, "remove_shadows", "there is no such view of shadows")
    made = set(columns[len(columns) // (rounds + 1) :])
    site.table = site.table.select([name for name in site.table.columns if name not in made])


def _shadow(name: str, round: int) -> str:
    return f"shadow {round} of {name}"


def _values(party: Party, name: str) -> NDArray[np.object_] | Floats:
    """All rows of a column, as a new column takes them."""
    table = party.site.table
    if table.kinds[name] != "categorical":
        return table.values(name)
    codes, categories = table.codes(name)
    return np.asarray(np.array([*categories, None], dtype=object)[codes])


class Boruta(Selector):
    """Keep the columns that boosted trees use more than shuffled copies of all columns.

    Parameters
    ----------
    fdr : at most this share of the kept columns shall be such by chance.
    shadows : ``alike`` or ``shuffled`` (above). rounds : shadows of each column; with 10 a
        column needs a hit in nearly all of them.
    n_estimators, max_depth, learning_rate, n_bins, reg_lambda, min_child_weight : as in SecureBoostClassifier.
    protection, min_cell, min_leaf, scheme : likewise, but the default is ``"all"``: over many boosters the label holder
        would place cells from left and right of node rows, which nobody is told there.
    random_state : of the shadows, which each party draws from its own secret.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 6))
    >>> fed = fs.Federation.split(X, X[:, 0] + X[:, 4] ** 2, parties=["bank", "shop"])
    >>> fs.Boruta().fit(fed).selected_
    {'bank': ['f0'], 'shop': ['f4']}
    """

    name = "boruta"
    paper = "Kursa and Rudnicki 2010 (Boruta), on protected boosting"
    leaks = "coordinator: one gain a column and shadow; label holder: who cuts a node; nobody: rows, sums"
    operations = together(OPERATIONS, (add_shadows, remove_shadows))
    cell_parameters = ("min_cell", "min_leaf")
    otherwise = WEIGHED_OPENLY

    def __init__(
        self,
        *,
        fdr: float = 0.1,
        shadows: str = ALIKE,
        rounds: int = 10,
        n_estimators: int = 10,
        max_depth: int = 3,
        learning_rate: float = 0.3,
        n_bins: int = 16,
        reg_lambda: float = 1.0,
        min_child_weight: float = 1.0,
        protection: str = "all",
        min_cell: int = 10,
        min_leaf: int = 5,
        scheme: str = "auto",
        random_state: int = 0,
    ):
        self.fdr = fdr
        self.shadows = shadows
        self.rounds = rounds
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.n_bins = n_bins
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.protection = protection
        self.min_cell = min_cell
        self.min_leaf = min_leaf
        self.scheme = scheme
        self.random_state = random_state

    def _serves(self) -> tuple[str, ...]:
        return serves(self)

    def _check(self, fed: Federation) -> None:
        check_number("fdr", self.fdr, 1e-9, 1)
        check_choice("shadows", self.shadows, SHADOWS)
        check_number("rounds", self.rounds, 1, MAX_ROUNDS, whole=True)
        check_boosting(self, fed)
        check_number("random_state", self.random_state, 0, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        view = fed.new_view("shadows")
        fed.ask(add_shadows, to=fed.parties, view=view)
        try:
            gains = self._gains(fed.named_view(view), fed.n_columns)
        finally:
            fed.ask(remove_shadows, to=fed.parties, view=view)
        own = np.concatenate([each[:, 0] for each in gains.values()], axis=1)
        best = np.concatenate([each[:, 1] for each in gains.values()], axis=1).max(axis=1)
        hits = (own > best[:, None]).sum(axis=0)
        kept = passing(hits, self.rounds, self.fdr)
        ends = np.cumsum([0, *fed.n_columns.values()])
        part = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(fed.n_columns)}
        # Of equal numbers of hits, the larger mean gain; below 1 / rounds, so that it changes no order of hits.
        order = own.mean(axis=0) / (2 * self.rounds * max(float(own.mean(axis=0).max()), 1e-300))
        scores = {name: hits[each] / self.rounds + order[each] for name, each in part.items()}
        details = {"rounds": self.rounds, "hits": {name: hits[each].tolist() for name, each in part.items()}}
        return Outcome(scores, {name: kept[each] for name, each in part.items()}, details)

    def _gains(self, shadowed: Federation, columns: dict[str, int]) -> dict[str, Floats]:
        """By party: rounds x (column, shadow) x columns."""
        for name, count in columns.items():
            if shadowed.n_columns[name] != (self.rounds + 1) * count:
                raise ReplyError(name, "count_table", "it has another number of columns than its own and their shadows")
        settings, boosters = tree_settings(self), []
        for round in range(self.rounds):
            places = {n: np.r_[0:count, (round + 1) * count : (round + 2) * count] for n, count in columns.items()}
            boosters.append(Booster(settings, places, self.n_estimators, bins=self.n_bins, seed=int(self.random_state)))
        protection = Protection(
            self.protection, max(self.min_cell, self.min_leaf), first_tree_local=False, scheme=self.scheme
        )
        found = uses(shadowed, boosters, protection, "gain")
        return {
            name: np.array([gain[name][each.columns[name]].reshape(2, count) for gain, each in zip(found, boosters)])
            for name, count in columns.items()
        }


def passing(hits: NDArray[np.int64], rounds: int, fdr: float) -> NDArray[np.bool_]:
    """Columns whose hits are too many for a coin, at most ``fdr`` of them by chance."""
    chances = binom.sf(hits - 1, rounds, 0.5)
    order = np.argsort(chances, kind="stable")
    below = np.flatnonzero(chances[order] <= fdr * np.arange(1, len(hits) + 1) / len(hits))
    kept = np.zeros(len(hits), dtype=bool)
    kept[order[: below.max(initial=-1) + 1]] = True
    return kept
