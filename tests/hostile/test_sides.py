"""Left or right of cuts: a site counts what its label holder hears of its rows while trees grow, over all jobs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit.attacks.cut_bits import bits_give_cells
from fedsift.audit.recording import Recording, record_sites
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import PolicyRefused
from fedsift.models.boost.bins import held_bits
from fedsift.site.journal_rows import SIDES
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from hostile.coordinator import policy

ROWS, COLUMNS = 600, 8
#: Of the shop's cells that nobody could guess, the share that the label holder may place before a site has refused.
MOST = 0.5


def sites(rules: Policy) -> dict[str, PolicySite]:
    """A shop whose columns all bear on the label, so that trees cut all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS + 2))
    y = (X.sum(axis=1) + X[:, 0] * X[:, 1] + rng.normal(size=ROWS) > 0).astype(int)
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
