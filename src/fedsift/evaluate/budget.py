"""The best columns for the money out of a selector that was fitted already: other prices need no other run."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.errors import ParameterError
from fedsift.select.base import Selector
from fedsift.select.rules import Name, Rules


def within_budget(
    selector: Selector,
    budget: float,
    *,
    party_prices: Mapping[str, float] | None = None,
    column_prices: Mapping[str, float] | None = None,
    always: Collection[str] = (),
    never: Collection[str] = (),
    groups: Sequence[Collection[str]] = (),
    at_most: int | None = None,
) -> Selector:
    """A copy of a fitted selector whose selection has the highest total score within the budget.

    Parameters
    ----------
    budget : what the selection may cost.
    party_prices : what a party costs as soon as one of its columns is used; 0 where it is not named.
    column_prices : what a column costs, by ``"party.column"``; 0 where it is not named.
    always, never : columns that must be there, and that must not. groups : columns that go together or not at all.
    at_most : so many columns; no limit by default.

    Examples
    --------
    >>> import fedsift as fs, numpy as np, pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> fed = fs.Federation.split(X, (X["income"] + X["basket"] > 0).astype(int), parties=["bank", "shop"])
    >>> gini = fs.GiniFilter(n_features=2).fit(fed)
    >>> fs.within_budget(gini, 5, party_prices={"shop": 9}, always=["bank.age"]).selected_
    {'bank': ['age', 'income'], 'shop': []}
    """
    check_is_fitted(selector, "selection_")
    if selector.selection_.engineered:
        raise ParameterError("a budget is for columns; this selection has engineered features")
    told = [tuple(group) for group in groups]
    rules = Rules(tuple(always), tuple(never), told, budget, party_prices or {}, column_prices or {})
    scores = {(row["party"], row["feature"]): float(row["score"]) for row in selector.selection_.scores}
    return _with_selection(selector, rules.chosen(scores, set(), at_most))


def _with_selection(selector: Selector, chosen: set[Name]) -> Selector:
    other = copy.copy(selector)
    old = selector.selection_
    rows = [{**row, "selected": (row["party"], row["feature"]) in chosen} for row in old.scores]
    for rank, row in enumerate(sorted(rows, key=lambda row: (not row["selected"], -row["score"])), 1):
        row["rank"] = rank
    kept = {party: [r["feature"] for r in rows if r["party"] == party and r["selected"]] for party in old.selected}
    other.selection_ = replace(old, scores=rows, selected=kept)
    other.selected_, other.scores_ = other.selection_.selected, other.selection_.frame()
    other.masks_ = {
        party: np.array([row["selected"] for row in rows if row["party"] == party], dtype=bool) for party in kept
    }
    return other
