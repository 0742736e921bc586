"""The best columns and partners for the money, against all subsets tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fedsift as fs
from fedsift.deploy.flare_job import public_job, settings_of
from fedsift.errors import JobError, ParameterError
from fedsift.evaluate.worth import Gain, PartnerLine, Valuation
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
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


# --- rules of a selector: before the run, in one place for all --------------------------------------------------------


def kept(selector):
    return {f"{party}.{column}" for party, names in selector.selected_.items() for column in names}


@pytest.mark.parametrize("seed", range(4))
def test_without_a_budget_the_methods_own_columns_stay_and_free_places_go_to_the_next_scores(seed):
    fed, plain = fitted(seed)
    ranked = [f"{row.party}.{row.feature}" for row in plain.scores_.sort_values("rank").itertuples()]
    first, second, third, last = ranked[0], ranked[1], ranked[2], ranked[-1]
    ruled = Given(seed).set_rules(fs.Rules(never=[first])).fit(fed)
    assert kept(ruled) == {second, third}
    assert kept(Given(seed).set_rules(fs.Rules(always=[last])).fit(fed)) == {first, last}, "as many as the method keeps"
    assert kept(Given(seed).set_rules(fs.Rules(always=[last, third, ranked[3]])).fit(fed)) == {last, third, ranked[3]}
    assert kept(Given(seed).set_rules(fs.Rules(groups=[[first, second]])).fit(fed)) == {first, second}
    assert len(kept(Given(seed).set_rules(fs.Rules(groups=[[second, third]])).fit(fed)) & {second, third}) in (0, 2)
    assert ruled.transform(fed).column_names() == ruled.selected_


def test_rules_go_with_a_copy_and_are_told_to_no_party():
    fed, _ = fitted()
    rules = fs.Rules(never=["bank.a", "shop.d"], budget=4, party_prices={"clinic": 5})
    ruled = Given().set_rules(rules)
    assert clone(ruled).rules is rules
    assert Given().rules is None
    assert ruled.announcement() == Given().announcement()
    found = clone(ruled).fit(fed)
    assert not kept(found) & {"bank.a", "shop.d"}
    assert not found.selected_["clinic"], "it costs more than there is"
    assert found.details_["price"] == 0
    with pytest.raises(ParameterError, match="'clinik'"):
        Given().set_rules(fs.Rules(party_prices={"clinik": 5})).fit(fed)


JOB = """
[parties.bank]
file = "bank.csv"
id = "id"
label = "y"
[parties.shop]
file = "shop.csv"
id = "id"
price = 10
prices = {basket = 5, visits = 1}
[method]
name = "gini"
n_features = 2
[evaluate]
model = "linear"
train = 0.6
[rules]
always = ["bank.age"]
budget = 11
"""


@pytest.fixture
def job(tmp_path):
    rng = np.random.default_rng(0)
    ids, X = np.arange(200), rng.normal(size=(200, 4)).round(3)
    y = (X[:, 1] + 2 * X[:, 3] > 0).astype(int)
    pd.DataFrame({"id": ids, "age": X[:, 0], "income": X[:, 1], "y": y}).to_csv(tmp_path / "bank.csv", index=False)
    pd.DataFrame({"id": ids, "visits": X[:, 2], "basket": X[:, 3]}).to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def test_prices_and_rules_of_a_job_file_hold_in_selection_evaluation_and_between_machines(job):
    done = runs.execute(load_job(job))
    assert done.selection.selected == {"bank": ["age", "income"], "shop": []}, "the basket would cost 15"
    folds = done.evaluation.selected["GiniFilter"]
    assert all("bank.age" in columns and "shop.basket" not in columns for columns in folds)
    dear = runs.execute(load_job(job, ["rules.budget=15"]))
    assert dear.selection.selected == {"bank": ["age"], "shop": ["basket"]}
    assert dear.selector.details_["price"] == 15
    loaded = load_job(job)
    again = settings_of(public_job(loaded))
    assert again.rules == loaded.settings.rules
    assert (again.parties["shop"].price, again.parties["shop"].prices) == (10, {"basket": 5, "visits": 1})
    assert loaded.whole_prices == {"shop": 16}
    job.write_text(JOB.replace("budget = 11", ""))
    assert "price" not in public_job(load_job(job))["parties"]["shop"], "no budget asks for prices: nobody hears them"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('rules.never=["shopp.basket"]', "rules.never: 'shopp.basket' is no column of a party"),
        ('rules.never=["shop.baskett"]', "no column 'shop.baskett'"),
        ("parties.shop.prices.basket=-1", "parties.shop.prices"),
        ("rules.budgett=1", "budget"),
    ],
)
def test_what_makes_no_sense_in_a_job_file_is_named_before_the_run(job, change, message):
    with pytest.raises((JobError, ParameterError), match=message):
        runs.prepare(load_job(job, [change]))


def valuation():
    gain = Gain(0.1, 0.05, 0.15)
    lines = [PartnerLine(name, gain, gain, None, None) for name in ("shop", "clinic")]
    scores = {"alone": 0.6, "with shop": 0.7, "with clinic": 0.65, "with clinic, shop": 0.71}
    settings = {"rows": 100, "folds": 5, "parties": {"bank": 4, "shop": 9, "clinic": 2}}
    return Valuation("bank", "auc", lines, gain, scores, settings)


def test_offers_and_the_best_for_a_budget():
    found = valuation()
    offers = {offer.partners: offer for offer in found.offers({"shop": 10, "clinic": 12})}
    assert {partners: offer.columns for partners, offer in offers.items()}["clinic", "shop"] == 11
    assert all(offer.on_front for offer in offers.values()), "the clinic is dear, but lets the least out"
    alike = replace(found, settings={**found.settings, "parties": {}}).offers({"shop": 10, "clinic": 12})
    assert {offer.partners for offer in alike if offer.on_front} == {(), ("shop",), ("clinic", "shop")}
    assert offers["shop",].for_one == pytest.approx(0.01)
    assert found.best_within(15, {"shop": 10, "clinic": 12}).partners == ("shop",)
    assert found.best_within(9, {"shop": 10, "clinic": 12}).partners == ()
    assert found.best_within(22, {"shop": 10, "clinic": 12}).partners == ("clinic", "shop")
    with pytest.raises(ParameterError, match="'shopp'"):
        found.offers({"shopp": 1})
    assert "Gain against price" in value_page(found, {"shop": 10, "clinic": 12})
    assert "Gain against price" not in value_page(found)
