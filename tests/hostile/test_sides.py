"""Left or right of cuts: a site counts what its label holder hears of its rows while trees grow, over all jobs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit.attacks.cut_bits import bits_give_cells, predictions_give_cells
from fedsift.audit.recording import Recording, record_sites
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import PolicyRefused
from fedsift.methods import METHODS
from fedsift.models.boost.bins import held_bits
from fedsift.site.journal_rows import SIDES
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from hostile.coordinator import ALIGNMENT, DEFAULT_EXCEPTIONS, policy

ROWS, COLUMNS = 600, 8
#: Of the shop's cells that nobody could guess, the share that the label holder may place before a site has refused.
MOST = 0.5


def sites(rules: Policy, rows: int = ROWS) -> dict[str, PolicySite]:
    """A shop whose columns all bear on the label, so that trees cut all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS + 2))
    y = (X.sum(axis=1) + X[:, 0] * X[:, 1] + rng.normal(size=rows) > 0).astype(int)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(COLUMNS + 2)])
    bank, shop = frame.iloc[:, :2].assign(outcome=y), frame.iloc[:, 2:]
    return introduced(
        PolicySite("bank", fs.Table.read(bank, id=None, label="outcome", name="bank"), rules),
        PolicySite("shop", fs.Table.read(shop, id=None, name="shop"), rules),
    )


def introduced(*made: PolicySite) -> dict[str, PolicySite]:
    told = {site.name: site for site in made}
    introduce(told)
    return told


def federation(parties: dict[str, PolicySite]) -> Federation:
    return Federation(InProcess(parties), list(parties), active="bank")


def placed(seen: Recording) -> float:
    """Of the shop's cells that a guess does not place, the share that the audit's attack does."""
    told = bits_give_cells.run(seen["bank"], seen.truth)
    return (told.value - told.guess) / (1.0 - told.guess)


def until_refused(method: object, rules: Policy) -> tuple[Recording, PolicyRefused | None, dict[str, PolicySite]]:
    parties, refused = sites(rules), []

    def conversation(fed: Federation) -> object:
        try:
            method.fit(fed)
        except PolicyRefused as error:
            refused.append(error)
        return method

    seen = record_sites(parties, "bank", conversation)
    return seen, (refused or [None])[0], parties


@pytest.mark.parametrize("method", [fs.TopGain, fs.SecureBoostClassifier], ids=lambda method: method.name)
def test_a_default_policy_refuses_trees_long_before_they_place_most_cells(method):
    """All these trees would (the next test): the site stops them, and says what to do instead."""
    seen, refused, parties = until_refused(method(protection="coordinator"), policy())
    assert refused is not None, "nothing was refused"
    assert (refused.party, refused.rule) == ("shop", "max_sides")
    for way in ('protection = "all"', "n_estimators", "max_depth", "max_sides"):
        assert way in str(refused)
    assert placed(seen) < MOST
    rules = parties["shop"].journal
    (line,) = rules.journal.lines(f"form = '{SIDES}'")
    assert line.readers == "bank"
    assert 0 < line.bits <= rules.policy.max_sides
    assert line.counted == 0
    assert not parties["bank"].journal.journal.lines(f"form = '{SIDES}'"), "its own cuts are told to nobody"


def test_without_the_rule_the_same_trees_place_most_cells():
    """So the limit is what keeps them: this is what it is measured against."""
    method = fs.SecureBoostClassifier(protection="coordinator")
    seen, refused, _ = until_refused(method, policy(max_sides="any"))
    assert refused is None
    assert placed(seen) > MOST


def test_a_model_of_moderate_size_passes_and_a_second_and_third_add_up():
    parties = sites(policy())
    fed = federation(parties)
    made = fs.SecureBoostClassifier(n_estimators=10, max_depth=4, protection="coordinator")
    for _ in range(3):
        made.fit(fed)
    with pytest.raises(PolicyRefused, match="max_sides"):
        made.fit(fed)
    lines = parties["shop"].journal.journal.lines(f"form = '{SIDES}'")
    assert len(lines) == 4
    assert sum(line.bits for line in lines) <= 3.0
    assert max(line.statistics for line in lines) <= 40, "a side a level of each tree at most"


def test_trees_that_tell_nobody_which_rows_go_left_are_not_counted():
    parties = sites(policy(max_sides=0.01))
    fs.SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=4, protection="all").fit(federation(parties))
    assert not parties["shop"].journal.journal.lines(f"form = '{SIDES}'")


def test_the_open_form_counts_too():
    parties = sites(policy(max_sides=0.5, max_bits="any"))
    model = fs.SecureBoostClassifier(n_estimators=20, max_depth=2, protection="open")
    with pytest.raises(PolicyRefused, match="max_sides"):
        model.fit(federation(parties))


def test_what_a_column_holds_is_the_logarithm_of_its_bins():
    assert held_bits(np.array([31, 1, 0])) == pytest.approx(6.0)


# --- predictions: of rows that a model did not learn from the label holder hears sides for the first time -------------

SMALL = {"n_estimators": 10, "max_depth": 4, "protection": "coordinator"}
LEARNT, OTHERS = np.arange(ROWS // 2), np.arange(ROWS // 2, ROWS)
MANY = 2700


def lets_predict(**rules: object) -> Policy:
    """The label holder lets predictions go to the coordinator; a default one keeps them to itself."""
    return policy(exceptions=[*DEFAULT_EXCEPTIONS, ALIGNMENT, "boost.predicted", "boost.route_rows"], **rules)


def these(fed: Federation, rows: np.ndarray) -> Federation:
    """Some of the rows, under a job that needs nothing else."""
    with fed.session(*METHODS["all"]().announcement()) as run:
        view = run.view(rows=rows)
    return fed.named_view(view._view)


def sides_of(parties: dict[str, PolicySite]) -> list[tuple[str, float]]:
    return [(line.operation, line.bits) for line in parties["shop"].journal.journal.lines(f"form = '{SIDES}'")]


@pytest.mark.parametrize("protection", ["coordinator", "open"])
def test_a_prediction_of_the_rows_that_it_grew_on_tells_nothing_new(protection, tmp_path):
    parties = sites(lets_predict(max_bits="any"))
    fed = federation(parties)
    model = fs.SecureBoostClassifier(**{**SMALL, "protection": protection}).fit(fed)
    grown = sides_of(parties)
    assert len(grown) == 1
    model.predict(fed)
    model.save(tmp_path, fed)
    fs.SecureBoostClassifier.load(tmp_path, fed).predict(fed)
    assert sides_of(parties) == grown
    model.predict(these(fed, LEARNT))  # whose sides are told is looked at for all rows of a prediction together
    assert len(sides_of(parties)) > 1


def test_a_prediction_of_other_rows_counts_as_much_as_trees_that_grow_on_them_and_once():
    parties = sites(lets_predict())
    fed = federation(parties)
    model = fs.SecureBoostClassifier(**SMALL).fit(these(fed, LEARNT))
    ((_, grown),) = sides_of(parties)
    model.predict(these(fed, OTHERS))
    told = [bits for operation, bits in sides_of(parties) if operation == "boost.route_hidden"]
    assert sum(told) == pytest.approx(grown), "a side a level of each tree that cuts this party's columns"
    model.predict(these(fed, OTHERS))
    assert [bits for operation, bits in sides_of(parties) if operation == "boost.route_hidden"] == told


def many_models(models: int, refused: list[PolicyRefused]) -> object:
    """Each grown on other rows than are predicted: no row is told of by growing trees more than a site lets out."""

    def conversation(fed: Federation) -> object:
        first, rest = np.arange(MANY - 300), np.arange(MANY - 300, MANY)
        for number in range(models):
            dealt = np.random.default_rng(number // 5).permutation(first)
            try:
                model = fs.SecureBoostClassifier(**SMALL).fit(these(fed, np.sort(dealt[number % 5 :: 5])))
                model.predict(these(fed, rest))
            except PolicyRefused as error:
                refused.append(error)
                break
        return fed

    return conversation


def predicted(seen: Recording) -> float:
    told = predictions_give_cells.run(seen["bank"], seen.truth)
    return (told.value - told.guess) / (1.0 - told.guess)


def test_many_models_tell_of_the_rows_that_they_predict_until_the_site_refuses():
    refused: list[PolicyRefused] = []
    loose = record_sites(sites(lets_predict(max_sides="any", min_rows=5), MANY), "bank", many_models(15, refused))
    assert not refused, "so many predictions of a row are allowed"
    strict = record_sites(sites(lets_predict(min_rows=5), MANY), "bank", many_models(15, refused))
    assert [(error.rule, error.operation) for error in refused] == [("max_sides", "route_hidden")]
    assert predicted(strict) < 0.4 < predicted(loose), "two fifths, as of trees that grow (docs/party.md)"
