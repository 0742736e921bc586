"""Which columns must be there, must not, or go together, and what they cost: one place for all selectors.

``Selector.fit`` puts what the method found under these rules (``selector.set_rules(...)``, the table ``[rules]`` of a
job file). A column is named ``"party.column"``. The choice is found outright (a mixed-integer programme, HiGHS):

- without a budget the method's own columns are kept as far as the rules allow, and free places go to the next scores;
- with a budget the total score is the highest that it pays for, in at most as many columns as the method kept.

Scores are taken to add up; what a combination of whole partners truly gains is measured by ``fs.value``. Nothing is
sent: the coordinator knows the scores, and prices and rules are told to no party by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from fedsift.core.wanted import suggest
from fedsift.errors import ParameterError

Name = tuple[str, str]  # party and column


@dataclass(frozen=True)
class _Item:
    """Columns that go together."""

    columns: tuple[Name, ...]
    score: float
    own: int  # how many of them the method kept
    price: float
    fixed: bool


@dataclass(frozen=True)
class Rules:
    """What a selection must obey.

    Parameters
    ----------
    always, never : columns that must be there, and that must not. groups : columns that go together or not at all.
    budget : what the selection may cost; ``None`` for no limit.
    party_prices : what a party costs as soon as one of its columns is used; 0 where it is not named.
    column_prices : what a column costs; 0 where it is not named.

    Examples
    --------
    >>> import fedsift as fs, numpy as np, pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> fed = fs.Federation.split(X, (X["income"] + X["basket"] > 0).astype(int), parties=["bank", "shop"])
    >>> fs.GiniFilter(n_features=2).set_rules(fs.Rules(never=["shop.basket"])).fit(fed).selected_
    {'bank': ['age', 'income'], 'shop': []}
    """

    always: Sequence[str] = ()
    never: Sequence[str] = ()
    groups: Sequence[Sequence[str]] = ()
    budget: float | None = None
    party_prices: Mapping[str, float] = field(default_factory=dict)
    column_prices: Mapping[str, float] = field(default_factory=dict)

    def chosen(self, scores: Mapping[Name, float], own: set[Name], at_most: int | None) -> set[Name]:
        """The columns to keep; ``own`` are the method's, ``at_most`` how many (more only where ``always`` wants it)."""
        self.check(list(scores))
        items = self._items(scores, own, {".".join(name): name for name in scores})
        parties = {party: _price(party, self.party_prices.get(party, 0.0)) for party, _ in scores}
        budget = np.inf if self.budget is None else _price("budget", self.budget)
        return {column for item in _solved(items, parties, budget, at_most) for column in item.columns}

    def price(self, columns: set[Name]) -> float:
        """What these columns cost, and the parties that they come from."""
        parties = sum(self.party_prices.get(party, 0.0) for party in {party for party, _ in columns})
        return float(parties + sum(self.column_prices.get(".".join(name), 0.0) for name in columns))

    def words(self) -> list[str]:
        """The rules, for a report."""
        told = [f"always: {', '.join(self.always)}"] if self.always else []
        told += [f"never: {', '.join(self.never)}"] if self.never else []
        told += [f"together: {', '.join(group)}" for group in self.groups]
        return told + ([f"budget: {self.budget:g}"] if self.budget is not None else [])

    def check(self, columns: Sequence[Name]) -> None:
        """Name what is not there; ``columns`` are all that take part."""
        names, parties = [".".join(name) for name in columns], {party for party, _ in columns}
        for told in (self.column_prices, self.always, self.never, *self.groups):
            unknown = next((name for name in told if name not in names), None)
            if unknown is not None:
                raise ParameterError(f"there is no column {unknown!r}. {suggest(unknown, names)}")
        stranger = next((name for name in self.party_prices if name not in parties), None)
        if stranger is not None:
            raise ParameterError(f"there is no party {stranger!r}. {suggest(stranger, sorted(parties))}")
        both = next((name for name in self.always if name in self.never), None)
        if both is not None:
            raise ParameterError(f"the column {both!r} must always be there and never")
        grouped = [name for group in self.groups for name in group]
        twice = next((name for name in grouped if grouped.count(name) > 1), None)
        if twice is not None:
            raise ParameterError(f"the column {twice!r} is in two groups")

    def _items(self, scores: Mapping[Name, float], own: set[Name], names: Mapping[str, Name]) -> list[_Item]:
        prices = {names[name]: _price(name, price) for name, price in self.column_prices.items()}
        fixed, out = {names[name] for name in self.always}, {names[name] for name in self.never}
        groups = [tuple(names[name] for name in group) for group in self.groups]
        grouped = {column for group in groups for column in group}
        items = []
        for columns in [*groups, *((column,) for column in scores if column not in grouped)]:
            must, mustnt = fixed & set(columns), out & set(columns)
            if must and mustnt:
                a, b = ".".join(min(must)), ".".join(min(mustnt))
                raise ParameterError(f"{a!r} must always be there and {b!r} never, but they are one or go together")
            if not mustnt:
                gain = sum(max(scores[column], 0.0) for column in columns if np.isfinite(scores[column]))
                mine = len(own & set(columns)) if self.budget is None else 0
                items.append(_Item(columns, gain, mine, sum(prices.get(c, 0.0) for c in columns), bool(must)))
        return items


def _price(what: str, price: float) -> float:
    if not isinstance(price, (int, float)) or isinstance(price, bool) or not 0 <= price < float("inf"):
        raise ParameterError(f"the price of {what!r} must be a number, 0 or more; got {price!r}")
    return float(price)


def _solved(items: list[_Item], parties: Mapping[str, float], budget: float, at_most: int | None) -> list[_Item]:
    """Maximise own columns, then the total score: one yes or no an item, one a party, which all its items need."""
    order = list(parties)
    count, total = len(items), len(items) + len(order)
    if not count:
        return []
    best = max((item.score for item in items), default=0.0) or 1.0
    goal = np.zeros(total)
    goal[:count] = [-item.score / best - (count + 1) * item.own for item in items]
    cost = np.array([*(item.price for item in items), *parties.values()])
    rules = []
    for place, item in enumerate(items):
        for party in {party for party, _ in item.columns}:
            line = np.zeros(total)
            line[place], line[count + order.index(party)] = 1.0, -1.0
            rules.append(LinearConstraint(line[None, :], ub=0.0))
    if np.isfinite(budget):
        rules.append(LinearConstraint(cost[None, :], ub=budget))
    if at_most is not None:
        sizes = np.array([*(len(item.columns) for item in items), *(0 for _ in order)], dtype=np.float64)
        must = sum(len(item.columns) for item in items if item.fixed)
        rules.append(LinearConstraint(sizes[None, :], ub=max(at_most, must)))
    low = np.zeros(total)
    low[:count] = [item.fixed for item in items]
    found = milp(
        goal, integrality=np.ones(total), bounds=Bounds(low, np.ones(total)), constraints=rules,
        options={"mip_rel_gap": 0.0},
    )  # fmt: skip
    if found.x is None:
        raise ParameterError(f"what must always be there costs more than the budget of {budget:g}")
    # An item without a score is not bought, even where it costs nothing.
    return [item for item, x in zip(items, found.x[:count]) if x > 0.5 and (item.score > 0 or item.fixed or item.own)]
