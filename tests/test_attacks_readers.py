"""The readers of the new attacks take the shipped messages as they are: what they say is what was sent."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit import attacks_on, record
from fedsift.audit.attacks.bin_membership import true_bins
from fedsift.audit.attacks.cut_bits import _meant, cuts_seen
from fedsift.audit.attacks.horizontal import released_means
from fedsift.audit.attacks.joint_tables import pairs_counted
from fedsift.audit.attacks.many_scores import scores_read
from fedsift.audit.inversion import _DENSE, BinScore, leading
from fedsift.audit.numbers_seen import features, masked_numbers, sizes
from fedsift.audit.opened_at_coordinator import opened_sums, root_counts
from fedsift.methods import METHODS
from fedsift.models.boost.model import SecureBoostClassifier

BOTH = ["bank", "shop"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    return X, (X[:, 0] + X[:, 5] * np.sign(X[:, 1]) + rng.normal(0, 0.5, 200) > 0).astype(int)


@pytest.fixture(scope="module")
def boosted(table):
    model = SecureBoostClassifier(n_estimators=4, max_depth=3, protection="coordinator")

    def fit_and_predict(fed):
        model.fit(fed)
        model.predict(fed)  # its own session, keys and dealer's seeds
        return model

    return record(*table, fit_and_predict, parties=BOTH)


def test_cuts_read_on_shares_are_cuts_of_the_other_partys_columns(boosted):
    columns = boosted.truth.columns["shop"]
    codes = np.stack([true_bins(column, True, 32, 1) for column in columns.T], axis=1)
    cuts = cuts_seen(boosted["bank"])
    assert len(cuts) > 3
    assert all(_meant(codes, cut) is not None for cut in cuts)


def test_root_counts_are_those_of_the_candidate_cuts(boosted):
    seen = root_counts(boosted["coordinator"])["shop"]
    columns = boosted.truth.columns["shop"]
    codes = [true_bins(column, True, 32, 1) for column in columns.T]
    expected = sorted(int((c <= b).sum()) for c in codes for b in range(c.max()))
    assert len(seen) == 3  # the first tree is the label holder's own
    assert all(sorted(counts.tolist()) == expected for counts in seen)


@pytest.mark.parametrize("method", ["sffs", "information_value"])
def test_opened_sums_are_the_sums(table, method):
    seen = record(*table, METHODS[method](), parties=BOTH)
    [opened] = opened_sums(seen["coordinator"])
    assert opened.party == "shop"
    labels, columns = seen.truth.labels, seen.truth.columns["shop"]
    if opened.bins is None:
        scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)
        plain = scaled[labels == 0].sum(axis=0)
        np.testing.assert_allclose(
            opened.sums[:, 0] / np.linalg.norm(opened.sums), plain / np.linalg.norm(plain), atol=1e-4
        )
    else:
        assert opened.sizes.sum() == columns.size
        assert opened.sums.sum() == (labels == 0).sum() * columns.shape[1]


def test_scores_of_every_step_are_sums_over_both_parties_columns(table):
    seen = record(*table, fs.FederatedLasso(max_iter=5), parties=BOTH)
    scores = scores_read(seen["bank"])
    assert len(scores) == 5
    assert not scores[0].any()  # all weights are zero at first
    both = np.hstack([np.ones((200, 1)), *seen.truth.columns.values()])
    left = scores[-1] - both @ np.linalg.lstsq(both, scores[-1], rcond=None)[0]
    assert np.abs(left).max() < 1e-4 * np.abs(scores[-1]).max()


def test_numbers_of_batches_are_brought_to_their_rows_and_are_uniform(table):
    pytest.importorskip("torch")
    from fedsift.models.splitnn.model import SplitNN

    seen = record(*table, SplitNN(epochs=2, batch_size=50), parties=BOTH)
    for name in BOTH:
        found = masked_numbers(seen[name], 200)
        whole = [each for each in found if not np.isnan(each.values).any()]
        assert len(whole) > 4  # the four batches of an epoch make one table
        assert sizes(features(found)).min() > 0.35


def test_lists_of_bins_are_in_a_fresh_order_for_every_pair(table):
    from fedsift.audit.attacks.joint_tables import same_order

    seen = record(*table, fs.Muse(n_features=3), parties=BOTH)
    pairs = pairs_counted(seen["coordinator"], dict.fromkeys(BOTH, 4))
    assert len(pairs) >= 4
    assert all(pair.table().sum() == 200 for pair in pairs)
    lists = [pair.right_codes for pair in pairs if pair.right == pairs[0].right]
    assert not any(same_order(lists[0], other) for other in lists[1:])


def test_means_of_all_parties_are_read_from_masked_sums(table):
    seen = record(*table, METHODS["feature_election"](), parties=BOTH, partition="horizontal")
    means = released_means(seen["coordinator"], 8)
    assert set(means) == {"all"}
    assert np.abs(means["all"] - np.vstack(list(seen.truth.columns.values())).mean(axis=0)).max() < 0.1


def odd_table(rows: int, seed: int):
    """Categories, missing values and three classes."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 6)), columns=list("abcdef"))
    score = X["a"] + X["d"] + rng.normal(size=rows)
    X.insert(3, "city", rng.choice(["x", "y", "z"], rows))
    X["hole"] = np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows))
    return X, pd.cut(score, 3, labels=False)


@pytest.mark.parametrize("method", ["sffs", "information_value", "muse", "top_gain", "federated_lasso"])
def test_no_attack_breaks_down_on_an_odd_table(method):
    few = {"n_estimators": 2, "max_depth": 2, "protection": "coordinator"}
    settings = {"top_gain": few, "federated_lasso": {"max_iter": 3}}
    selector = METHODS[method](**settings.get(method, {}))
    seen = record(*odd_table(120, 0), selector, parties=BOTH, fresh=odd_table(100, 1))
    found = [each.run(view, seen.truth) for view in seen.views.values()
             for each in attacks_on(view.operations, view.role)]  # fmt: skip
    assert found
    assert all(np.isfinite([each.value, each.guess, each.baseline]).all() for each in found)


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_scores_that_are_all_the_same_on_many_rows_are_no_error(weight):
    """Of kept flags alone all may be equal: the search for a first direction ended the whole audit."""
    rows = _DENSE + 100
    codes = np.random.default_rng(0).integers(0, 3, (rows, 4))
    score = BinScore(codes, (rows // 2, rows - rows // 2), "iv")
    assert all(each.shape == (rows,) for each in leading(score, np.full(4, weight)))
