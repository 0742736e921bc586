"""The best columns for the money: prices of parties and columns, a budget, fixed and forbidden columns, groups.

The scores are those of a fitted selector and are taken to add up; the choice is the best one under that measure, found
outright (a mixed-integer programme, HiGHS). What a combination of whole partners truly gains is measured, not added up,
by ``fs.value`` (``Valuation.offers``). Nothing is sent: the coordinator knows the scores already.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.utils.validation import check_is_fitted

from fedsift.core.wanted import suggest
from fedsift.errors import ParameterError
from fedsift.select.base import Selector

Name = tuple[str, str]  # party and column


@dataclass(frozen=True)
class _Item:
    """Columns that go together."""

    columns: tuple[Name, ...]
    score: float
    price: float
    fixed: bool


def within_budget(
    selector: Selector,
    budget: float,
    *,
    party_prices: Mapping[str, float] | None = None,
    column_prices: Mapping[str, float] | None = None,
    always: Collection[str] = (),
    never: Collection[str] = (),
    groups: Sequence[Collection[str]] = (),
) -> Selector:
    """A copy of a fitted selector whose selection has the highest total score within the budget.

    Parameters
    ----------
    budget : what the selection may cost.
    party_prices : what a party costs as soon as one of its columns is used; 0 where it is not named.
    column_prices : what a column costs, by ``"party.column"``; 0 where it is not named.
    always, never : columns that must be there, and that must not. groups : columns that go together or not at all.

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
    scores = {(row["party"], row["feature"]): float(row["score"]) for row in selector.selection_.scores}
    names = {f"{party}.{column}": (party, column) for party, column in scores}
    for told in (column_prices or {}, always, never, *groups):
        unknown = next((name for name in told if name not in names), None)
        if unknown is not None:
            raise ParameterError(f"there is no column {unknown!r}. {suggest(unknown, list(names))}")
    prices = {names[name]: _price(name, price) for name, price in (column_prices or {}).items()}
    fixed, out = {names[name] for name in always}, {names[name] for name in never}
    items = _items(scores, prices, fixed, out, [[names[name] for name in group] for group in groups])
    parties = {party: _price(party, (party_prices or {}).get(party, 0.0)) for party, _ in scores}
    chosen = _solved(items, parties, _price("budget", budget))
    return _with_selection(selector, {column for item in chosen for column in item.columns})


def _price(what: str, price: float) -> float:
    if not isinstance(price, (int, float)) or isinstance(price, bool) or not 0 <= price < float("inf"):
        raise ParameterError(f"the price of {what!r} must be a number, 0 or more; got {price!r}")
    return float(price)


def _items(
    scores: Mapping[Name, float], prices: Mapping[Name, float], fixed: set[Name], out: set[Name],
    groups: Sequence[Sequence[Name]],
) -> list[_Item]:  # fmt: skip
    grouped = [column for group in groups for column in group]
    twice = next((column for column in grouped if grouped.count(column) > 1), None)
    if twice is not None:
        raise ParameterError(f"the column {'.'.join(twice)!r} is in two groups")
    items = []
    for columns in [*map(tuple, groups), *((column,) for column in scores if column not in set(grouped))]:
        must, mustnt = fixed & set(columns), out & set(columns)
        if must and mustnt:
            a, b = ".".join(min(must)), ".".join(min(mustnt))
            raise ParameterError(f"{a!r} must always be there and {b!r} never, but they are one or go together")
        if not mustnt:
            gain = sum(max(scores[column], 0.0) for column in columns if np.isfinite(scores[column]))
            items.append(_Item(columns, gain, sum(prices.get(column, 0.0) for column in columns), bool(must)))
    return items


def _solved(items: list[_Item], parties: Mapping[str, float], budget: float) -> list[_Item]:
    """Maximise the total score: one yes or no an item, one a party, which every item of the party needs."""
    order = list(parties)
    count, total = len(items), len(items) + len(order)
    if not count:
        return []
    goal = np.zeros(total)
    goal[:count] = [-item.score for item in items]
    cost = np.array([*(item.price for item in items), *parties.values()])
    needs = []
    for place, item in enumerate(items):
        for party in {party for party, _ in item.columns}:
            line = np.zeros(total)
            line[place], line[count + order.index(party)] = 1.0, -1.0
            needs.append(line)
    low = np.zeros(total)
    low[:count] = [item.fixed for item in items]
    rules = [LinearConstraint(cost[None, :], ub=budget), LinearConstraint(np.array(needs), ub=0.0)]
    found = milp(goal, integrality=np.ones(total), bounds=Bounds(low, np.ones(total)), constraints=rules)
    if found.x is None:
        raise ParameterError(f"what must always be there costs more than the budget of {budget:g}")
    # An item without a score is not bought, even where it costs nothing.
    return [item for item, x in zip(items, found.x[:count]) if x > 0.5 and (item.score > 0 or item.fixed)]


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
