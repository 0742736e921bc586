"""Stability selection: halves that tell nobody apart, the bounds, a plaintext twin, and what sites allow."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import f_classif

import fedsift as fs
from fedsift.core.job import Run
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import JobError, ParameterError, PolicyRefused
from fedsift.select.halves import deal_blocks, halvings, pairs_of
from fedsift.select.stable import choose_share, expected_noise
from fedsift.site.journal_atoms import Atoms
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from fedsift.site.submitted import read_submitted


def planted(rows=480, columns=8, seed=0):
    """Columns a and e make the label; the others are noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, columns)), columns=list("abcdefghij")[:columns])
    return X, (X["a"] + X["e"] + 0.5 * rng.normal(size=rows) > 0).astype(int)


def dealt(fed, stable, party="party1"):
    """What the label holder deals, read at its own site."""
    site = fed.simulated[party]
    return deal_blocks(Party(site, "", {}, run=Run(job=fed.job(*stable.announcement()))))


# --- halves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_every_pair_of_halves_is_another_and_has_no_block_twice(blocks):
    every = halvings(blocks, pairs_of(blocks), 0)
    assert (every.sum(axis=1) == blocks // 2).all()
    both = {tuple(half) for half in every} | {tuple(~half) for half in every}
    assert len(both) == 2 * pairs_of(blocks) == len(list(combinations(range(blocks), blocks // 2)))


def test_all_halves_together_tell_whole_blocks_apart_and_no_more():
    """What the journal of a site sees: its atoms are the blocks, whatever number of pairs is asked for."""
    block, atoms = np.random.default_rng(1).permutation(480) % 8, Atoms.none().grown(480)
    for half in halvings(8, pairs_of(8), 0):
        for side in (half[block], ~half[block]):
            atoms, new = atoms.cut(side)
            smallest = atoms.smallest(new, np.arange(480))
            assert smallest is None or smallest >= 60
    assert len(np.unique(atoms.codes)) == 8


def test_the_same_rows_with_the_label_turned_round_have_the_same_blocks():
    X, y = planted()
    stable, found = fs.Stable("sffs"), []
    for label in (y, 1 - y):
        frame = X.assign(id=[f"p{i}" for i in range(len(X))], label=label)
        site = Site("party1", Table.read(frame, id="id", label="label", name="party1"), secret=b"s" * 32)
        fed = fs.Federation(InProcess({"party1": site}), ["party1"], active="party1")
        found.append(dealt(fed, stable))
    np.testing.assert_array_equal(*found)
    assert set(np.bincount(found[0])) == {60}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"blocks": 7}, "even"), ({"pairs": 36}, "pairs"), ({"q": 0}, "q"), ({"fdr": 0.0}, "fdr"),
     ({"selector": "nothing"}, "no method 'nothing'"), ({"selector": "stable"}, "stable itself"),
     ({"selector": "feature_election"}, "horizontal parties"), ({"settings": {"bins": 3}}, "no parameter 'bins'"),
     ({"selector": fs.SFFS(), "settings": {}}, "given by name")],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused_in_words(small_fed, wrong, said):
    with pytest.raises(ParameterError, match=said):
        fs.Stable(**{"selector": "sffs", **wrong}).fit(small_fed)


# --- the bound -------------------------------------------------------------------------------------------------------


def test_the_bound_is_that_of_the_papers():
    assert expected_noise(1.0, 5, 100, 50) == pytest.approx(4 * 0.01 / 1.02 * 0.25)
    assert expected_noise(0.7, 5, 100, 50) == pytest.approx(0.25 / (2 * (0.4 - 0.01)))
    assert expected_noise(0.9, 8, 10, 50) == pytest.approx(0.8 * 8 / 0.8)  # too large a chance: Meinshausen's


@pytest.mark.parametrize("q", [2, 5])
def test_noise_that_is_chosen_at_random_stays_below_the_bound(q):
    """A selector that knows nothing: its columns are in many halves less often than the bound says. 400 seeded runs."""
    rng, columns, pairs = np.random.default_rng(q), 20, 10
    shares = np.zeros((400, columns))
    for run in shares:
        for _ in range(2 * pairs):
            run[rng.choice(columns, q, replace=False)] += 1 / (2 * pairs)
    for share in (0.6, 0.75, 0.9):
        assert (shares >= share).sum(axis=1).mean() <= expected_noise(share, q, columns, pairs)


def test_the_least_share_that_keeps_noise_below_the_rate_is_taken():
    shares = np.array([1.0, 1.0, 0.9, 0.8, 0.2, 0.1])
    share, noise = choose_share(shares, 2.0, 10, 0.5)
    assert noise <= 0.5 * (shares >= share).sum()
    before = share - 1 / 20
    assert expected_noise(before, 2.0, 6, 10) > 0.5 * (shares >= before).sum()
    assert choose_share(np.full(6, 0.3), 2.0, 10, 0.1) == (None, 0.0)


# --- the answer ------------------------------------------------------------------------------------------------------


def test_shares_are_those_of_a_plaintext_twin_on_the_same_halves():
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=3)
    stable = fs.Stable("sffs", q=2, pairs=3, blocks=4, fdr=0.5)
    fitted = stable.fit(fed)
    block, times = dealt(fed, stable), np.zeros(8)
    for half in halvings(stable.blocks, stable.pairs, 0):
        for side in (half[block], ~half[block]):
            times[np.argsort(-f_classif(X[side], y[side])[0])[:2]] += 1
    expected = pd.Series(times / (2 * stable.pairs), index=X.columns)
    found = fitted.scores_.set_index("feature")["score"]
    pd.testing.assert_series_equal(found[expected.index], expected, check_names=False)
    assert [column for columns in fitted.selected_.values() for column in columns] == ["a", "e"]
    assert fitted.details_["halves"] == 2 * stable.pairs


def test_horizontal_parties_deal_their_own_rows():
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=2, partition="horizontal")
    fitted = fs.Stable("feature_election", pairs=3, blocks=4, fdr=1.0).fit(fed)
    assert fitted.selected_["party1"] == fitted.selected_["party2"]
    shares = fitted.scores_.set_index(["party", "feature"])["score"]
    assert (shares.loc["party1"] == shares.loc["party2"]).all()
    assert shares.loc["party1", ["a", "e"]].tolist() == [1.0, 1.0]


def test_no_party_hears_what_a_half_kept():
    """A view of columns is how a party learns a choice; fitting on halves defines none."""
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=3)
    fs.Stable("sffs", q=2, pairs=2, blocks=4).fit(fed)
    assert all(columns is None for site in fed.simulated.values() for _, columns in site.views.values())


# --- what sites allow ------------------------------------------------------------------------------------------------


def policy_fed(X, y, policy, accepted=None):
    frame, ids = X.assign(label=y), [f"p{i}" for i in range(len(X))]
    bank = Table.read(frame[["a", "b", "c", "label"]].assign(id=ids), id="id", label="label", name="bank")
    shop = Table.read(frame[["d", "e", "f"]].assign(id=ids), id="id", name="shop")
    sites = {table.name: PolicySite(table.name, table, policy, accepted=accepted) for table in (bank, shop)}
    return fs.Federation(InProcess(sites), list(sites), active="bank")


def test_sites_judge_and_count_every_fit_and_no_half_is_about_too_few_rows():
    X, y = planted(rows=4000, columns=6)
    policy = Policy(min_rows=900)
    fitted = fs.Stable("sffs", q=2, pairs=3, blocks=4, fdr=0.5).fit(policy_fed(X, y, policy))
    assert fitted.selected_ == {"bank": ["a"], "shop": ["e"]}
    with pytest.raises(PolicyRefused, match="min_rows"):
        fs.Stable("sffs", q=2, pairs=3, blocks=6).fit(policy_fed(X, y, policy))  # blocks of 667 rows


def test_a_site_opened_for_it_takes_its_selector_and_no_other():
    X, y = planted(rows=4000, columns=6)
    submitted = {"parties": ["bank", "shop"], "method": {"name": "stable", "selector": "sffs", "q": 2, "pairs": 1,
                                                         "blocks": 2}}  # fmt: skip
    _, accepted = read_submitted(submitted)
    assert [name for name, _ in accepted] == ["stable", "sffs"]
    assert accepted[1][1]["n_features"] == 2
    fs.Stable("sffs", q=2, pairs=1, blocks=2).fit(policy_fed(X, y, Policy(), accepted))
    with pytest.raises(PolicyRefused, match="as submitted"):
        fs.Stable("sffs", q=3, pairs=1, blocks=2).fit(policy_fed(X, y, Policy(), accepted))
    with pytest.raises(PolicyRefused, match="as submitted"):
        fs.GiniFilter(n_features=2).fit(policy_fed(X, y, Policy(), accepted))
    with pytest.raises(JobError, match="none of 'stable'"):
        read_submitted({"parties": ["bank"], "method": {"name": "stable", "folds": 3}})
