"""The best columns and partners for the money, against all subsets tried one by one."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.errors import ParameterError
from fedsift.evaluate.worth import Gain, PartnerLine, Valuation
from fedsift.report.value import value_page
from fedsift.select.base import Outcome, Selector


class Given(Selector):
    """Scores by hand."""

    def __init__(self, seed=0):
        self.seed = seed

    def _select(self, fed):
        generator = np.random.default_rng(self.seed)
        scores = {name: generator.random(count).round(3) for name, count in fed.n_columns.items()}
        return Outcome.best(scores, 2, None)


def fitted(seed=0):
    X = pd.DataFrame(np.zeros((20, 9)), columns=list("abcdefghi"))
    fed = fs.Federation.split(X, np.arange(20) % 2, parties=["bank", "shop", "clinic"])
    return fed, Given(seed).fit(fed)


def prices(seed):
    generator = np.random.default_rng([seed, 1])
    columns = [f"{party}.{c}" for party, names in (("bank", "abc"), ("shop", "def"), ("clinic", "ghi")) for c in names]
    return columns, dict(zip(columns, generator.integers(1, 6, 9).tolist())), {"shop": 3.0, "clinic": 4.0}


@pytest.mark.parametrize("seed", range(8))
def test_the_choice_is_the_best_of_all_subsets(seed):
    _, selector = fitted(seed)
    columns, column_prices, party_prices = prices(seed)
    scores = {f"{row.party}.{row.feature}": row.score for row in selector.scores_.itertuples()}
    always, never, group = (
        [columns[seed]],
        [columns[(seed + 4) % 9]],
        [columns[(seed + 1) % 9], columns[(seed + 7) % 9]],
    )
    budget = 16.0

    def cost(kept):
        return sum(column_prices[c] for c in kept) + sum(
            party_prices.get(p, 0) for p in {c.split(".")[0] for c in kept}
        )

    def allowed(kept):
        return set(always) <= kept and not set(never) & kept and len(set(group) & kept) in (0, 2)

    subsets = map(set, chain.from_iterable(combinations(columns, k) for k in range(10)))
    best = max(sum(scores[c] for c in kept) for kept in subsets if allowed(kept) and cost(kept) <= budget)
    chosen = fs.within_budget(
        selector, budget, party_prices=party_prices, column_prices=column_prices, always=always, never=never,
        groups=[group],
    )  # fmt: skip
    kept = {f"{party}.{column}" for party, names in chosen.selected_.items() for column in names}
    assert allowed(kept)
    assert cost(kept) <= budget
    assert sum(scores[c] for c in kept) == pytest.approx(best)


def test_the_copy_transforms_and_the_selector_stays_as_it_was():
    fed, selector = fitted()
    before = {party: list(columns) for party, columns in selector.selected_.items()}
    chosen = fs.within_budget(selector, 0, party_prices={"shop": 1, "clinic": 1})
    assert chosen.selected_ == {"bank": ["a", "b", "c"], "shop": [], "clinic": []}
    assert chosen.transform(fed).n_columns == {"bank": 3, "shop": 0, "clinic": 0}
    assert chosen.scores_["rank"].tolist().count(1) == 1
    assert selector.selected_ == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"always": ["bank.aa"]}, r"no column 'bank.aa'.*bank.a"),
        ({"always": ["bank.a"], "never": ["bank.a"]}, "always be there"),
        ({"always": ["bank.a"], "never": ["shop.d"], "groups": [["bank.a", "shop.d"]]}, "go together"),
        ({"groups": [["bank.a"], ["bank.a"]]}, "two groups"),
        ({"column_prices": {"bank.a": -1}}, "0 or more"),
        ({"always": ["bank.a"], "column_prices": {"bank.a": 50}}, "more than the budget"),
    ],
)
def test_what_makes_no_sense_is_named(options, message):
    _, selector = fitted()
    with pytest.raises(ParameterError, match=message):
        fs.within_budget(selector, 10, **options)


def valuation():
    gain = Gain(0.1, 0.05, 0.15)
    lines = [PartnerLine(name, gain, gain, None, None) for name in ("shop", "clinic")]
    scores = {"alone": 0.6, "with shop": 0.7, "with clinic": 0.65, "with clinic, shop": 0.71}
    settings = {"rows": 100, "folds": 5}
    return Valuation("bank", "auc", lines, gain, scores, settings)


def test_offers_and_the_best_for_a_budget():
    found = valuation()
    offers = {offer.partners: offer for offer in found.offers({"shop": 10, "clinic": 12})}
    assert {partners for partners, offer in offers.items() if offer.on_front} == {(), ("shop",), ("clinic", "shop")}
    assert offers["shop",].for_one == pytest.approx(0.01)
    assert found.best_within(15, {"shop": 10, "clinic": 12}).partners == ("shop",)
    assert found.best_within(9, {"shop": 10, "clinic": 12}).partners == ()
    assert found.best_within(22, {"shop": 10, "clinic": 12}).partners == ("clinic", "shop")
    with pytest.raises(ParameterError, match="'shopp'"):
        found.offers({"shopp": 1})
    assert "Gain against price" in value_page(found, {"shop": 10, "clinic": 12})
    assert "Gain against price" not in value_page(found)
