"""Records from the coordinator's sums of cuts: exact sums give them, the sums that are sent do not; and the lattice."""

from __future__ import annotations

import numpy as np
import pytest
from boost_attacks import alone, nodes_with_noise, rare
from hypothesis import given, settings
from hypothesis import strategies as st
from leaky.twins import BOTH, made, noisy
from sklearn.metrics import roc_auc_score

import fedsift as fs
from fedsift.audit import load_attacks, record
from fedsift.audit.attacks import cut_sums
from fedsift.audit.lattice import Relations, reduced
from fedsift.models.boost.hidden import blur, growing
from fedsift.models.boost.hidden.shares import pack, unpack
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor

ATTACK = load_attacks()["cut_sums_give_records"]


# --- the lattice ------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(size=st.integers(2, 14), seed=st.integers(0, 2**32 - 1))
def test_a_reduced_basis_is_short_and_of_the_same_lattice(size, seed):
    rng = np.random.default_rng(seed)
    basis = np.tril(rng.integers(-50, 50, (size, size)), -1) + np.diag(rng.integers(1, 50, size))
    found, star = reduced(basis)
    ratio = found.astype(float) @ np.linalg.inv(basis.astype(float))
    assert np.allclose(ratio, np.rint(ratio), atol=1e-6)
    assert abs(abs(np.linalg.det(ratio)) - 1) < 1e-6
    lengths = (star**2).sum(axis=1)
    assert (lengths[1:] > 0.7 * lengths[:-1] * 0.99 - 1e-6).all()  # Lovász: (0.99 - 1/4) of the one before


@settings(max_examples=20, deadline=None)
@given(size=st.integers(4, 24), seed=st.integers(0, 2**32 - 1))
def test_a_subset_sum_of_few_large_numbers_has_one_answer_and_it_is_found(size, seed):
    rng = np.random.default_rng(seed)
    values = np.column_stack([rng.integers(-(2**27), 2**27, size), rng.integers(1, 2**21, size), np.ones(size, int)])
    inside = rng.integers(0, 2, size)
    relations = Relations.between(values)
    found = relations.solve(inside @ values, np.full(size, 0.5))
    assert found is not None
    assert np.array_equal(found, inside)
    other = relations.solve(inside @ values + [1, 0, 0], np.full(size, 0.5))
    assert other is None or set(other.tolist()) - {0, 1}


# --- the attack, on exact sums and on those that are sent ------------------------------------------------------------


def test_exact_sums_give_whole_records_and_the_sums_that_are_sent_none():
    exact = made("exact sums")
    found = ATTACK.run(exact["coordinator"], exact.truth)
    assert found.value > found.guess + 0.2
    sent = record(
        *noisy(160, 40),
        lambda fed: SecureBoostClassifier(n_estimators=8, max_depth=5, protection="coordinator").fit(fed),
        parties=BOTH,
    )
    assert any(node.total[2] <= 30 for node in cut_sums.nodes_opened(sent["coordinator"]) if node.total[2])
    told = ATTACK.run(sent["coordinator"], sent.truth)
    assert not told.note.startswith("nothing to read")
    assert told.value == pytest.approx(told.guess)


def test_records_that_are_put_to_other_rows_are_not_counted():
    exact = made("exact sums")
    shuffled = np.random.default_rng(0).permuted(exact.truth.columns["shop"], axis=0)
    truth = type(exact.truth)(exact.truth.labels, {**exact.truth.columns, "shop": shuffled})
    found = ATTACK.run(exact["coordinator"], truth)
    assert found.value == pytest.approx(found.guess)


# --- the noise --------------------------------------------------------------------------------------------------------


def opened(monkeypatch, X, y, model=SecureBoostClassifier, **settings):
    """What the coordinator opens, in the order of the candidates (which it is not told)."""
    seen = []
    keep = growing.open_halves
    with monkeypatch.context() as watching:
        watching.setattr("fedsift.models.boost.hidden.cuts.Shuffle.apply", lambda self, sums: sums)
        watching.setattr(growing, "open_halves", lambda *given: seen.append(keep(*given)) or seen[-1])
        task = "regression" if model is SecureBoostRegressor else "classification"
        fed = fs.Federation.split(X, y, parties=2, task=task)
        shape = {"n_estimators": 3, "max_depth": 2, "n_bins": 8, "first_tree_local": False}
        shape["protection"] = "coordinator"
        model(**{**shape, **settings}).fit(fed)
    return [sums for level in seen for sums in level]


def test_the_noise_repeats_with_the_sums_and_with_nothing_else(monkeypatch):
    X, y = noisy(150)
    once, again = opened(monkeypatch, X, y), opened(monkeypatch, X, y)
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(once, again))
    exact = opened(monkeypatch, X, y, sum_noise=0)[0][0]
    noise = once[0][0] - exact
    assert (noise[:, 2] == 0).all()  # rows are counted exactly
    other = X.copy()
    other[7, -1] = X[:, -1].max() + 1  # one cell of the other party: another bin
    changed = opened(monkeypatch, other, y)[0][0] - opened(monkeypatch, other, y, sum_noise=0)[0][0]
    assert (np.abs(changed[:, 0] - noise[:, 0]) > 0).mean() > 0.9
    label = y.copy()
    label[7] = 1 - y[7]
    changed = opened(monkeypatch, X, label)[0][0] - opened(monkeypatch, X, label, sum_noise=0)[0][0]
    assert (np.abs(changed[:, 0] - noise[:, 0]) > 0).mean() > 0.9


def test_models_that_ask_for_the_same_sum_get_the_same_noise(monkeypatch):
    """Or a lock-step group of many models, each with columns of its own, would let it be averaged away."""
    X, y = noisy(150)
    every = opened(monkeypatch, X, y)[0][0]
    some = opened(monkeypatch, X, y, colsample_bytree=0.5)[0][0]
    assert len(some) < len(every)
    assert {tuple(cut) for cut in some.tolist()} <= {tuple(cut) for cut in every.tolist()}


def test_copies_of_a_column_and_its_mirror_image_have_the_same_noise(monkeypatch):
    """Or it would be averaged away: over copies, numbers of bins, jobs."""
    X, y = noisy(160, 6)
    X[:, 4], X[:, 5] = X[:, 3], -X[:, 3]
    sums = opened(monkeypatch, X, y)[0][0].reshape(3, 7, 3)
    assert np.array_equal(sums[0], sums[1])
    exact = opened(monkeypatch, X, y, sum_noise=0)[0][0].reshape(3, 7, 3)
    noise = (sums - exact)[:, :, :2]
    assert np.array_equal(noise[2], -noise[0, ::-1])
    assert len(np.unique(noise[0, :, 0])) == 7
    fewer = opened(monkeypatch, X, y, n_bins=4)[0][0]
    assert {tuple(cut) for cut in fewer.tolist()} <= {tuple(cut) for cut in sums.reshape(21, 3).tolist()}


@pytest.mark.parametrize("model", [SecureBoostClassifier, SecureBoostRegressor])
def test_the_noise_is_as_large_as_the_largest_row_and_has_no_side(monkeypatch, model):
    X, y = noisy(150, 30)
    y = (np.arange(150) < 6).astype(int) if model is SecureBoostClassifier else X[:, 0] ** 3
    told = []
    monkeypatch.setattr(growing.OwnSums, "read", watched(growing.OwnSums.read, told))
    noise = opened(monkeypatch, X, y, model)[0] - opened(monkeypatch, X, y, model, sum_noise=0)[0]
    size, unit = told[0].sizes[0], told[0].units[0, 0]
    far = np.abs(y - y.mean())
    largest = far.max() if model is SecureBoostClassifier else min(far.max(), 3 * np.sqrt((far**2).mean()))
    assert 0.999 * largest <= size < 1.2 * largest  # most rows have a far smaller one
    drawn = noise[0, :, 0] * unit / size
    assert 0.75 < drawn.std() < 1.25
    assert abs(drawn.mean()) < 0.35
    twice = opened(monkeypatch, X, y, model, sum_noise=2)[0] - opened(monkeypatch, X, y, model, sum_noise=0)[0]
    assert np.abs(twice[0, :, 0] - 2 * noise[0, :, 0]).max() <= 2  # rounding


def watched(read, told):
    return lambda *given: told.append(read(*given)) or told[-1]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_noise_costs_little_and_no_party_s_columns_win_by_it(seed):
    """Half of the rows are new; of the columns one of the label holder's and one of the other party's tell."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2400, 8))
    y = (X[:, 0] + X[:, 4] + rng.normal(size=2400) > 1.2).astype(int)
    train, test = fs.Federation.split(X, y, parties=2).rows(train=0.5, random_state=0)
    scores, shares = [], []
    for width in (0.0, blur.WIDTH):
        model = SecureBoostClassifier(
            n_estimators=12, max_depth=5, first_tree_local=False, sum_noise=width, protection="coordinator"
        ).fit(train)
        gain = model.feature_importances_.groupby("party")["gain"].sum()
        scores.append(roc_auc_score(y[rows_of(test)], model.predict_proba(test)[:, 1]))
        shares.append(gain.iloc[1] / gain.sum())
    assert scores[1] > scores[0] - 0.015
    assert abs(shares[1] - shares[0]) < 0.08


def rows_of(view):
    site = view.simulated[view.active]
    return site.views[view._view][0]


def test_a_row_of_a_rare_class_that_is_alone_in_a_node_does_not_stand_out():
    """Of the unnamed cuts, whether it is on the left: from exact sums nearly always, from those that are sent as often
    as by the number of rows there alone."""
    X, y = rare()
    right = {}
    for width in (0.0, blur.WIDTH):
        found = [pair for pair in map(alone, nodes_with_noise(X, y, width)) if pair is not None]
        bits, cells = (np.vstack([pair[k] for pair in found]).mean(axis=0) for k in (0, 1))
        assert len(found) > 5
        right[width] = bits[0], bits[1], cells[0], cells[1]
    assert right[0.0][0] > 0.95 > right[0.0][1] + 0.05
    assert right[blur.WIDTH][0] < right[blur.WIDTH][1] + 0.03
    assert right[blur.WIDTH][2] < 0.5 < right[0.0][2]  # told names and order of the cuts, more than it is


def test_nodes_that_are_not_cut_again_are_opened_as_uniform_numbers(monkeypatch):
    X, y = noisy(200)
    sums = opened(monkeypatch, X, y, sum_noise=0, min_cell=25, max_depth=3)
    dead = [node for part in sums for node in part if node[:, 2].max() > 200]  # no number of rows
    assert dead
    assert all((node[:, 2] > 200).mean() > 0.9 for node in dead)


@given(g=st.integers(-(2**33), 2**33), h=st.integers(-(2**24), 2**27 + 2**25))
def test_a_hessian_sum_a_little_below_zero_is_read_as_that(g, h):
    packed = pack(np.array([g]), np.array([h]))
    assert [part[0] for part in unpack(packed)] == [g, h]


def test_a_party_that_hides_its_cuts_without_salts_is_named():
    cuts, words, turned = np.zeros((4, 2), np.uint64), np.zeros(2, np.uint64), np.zeros(2, bool)
    good = {"cuts": cuts, "salts": words, "turned": turned}
    blur.Hidden.read(good, (4, 2), True, "shop")
    short = {"salts": words[:0], "turned": turned[:0]}
    blur.Hidden.read(good | short, (4, 2), False, "shop")
    for told, salted in (
        (cuts, True), ({"cuts": cuts}, True), (good | {"cuts": cuts[:3]}, True), (good | short, True), (good, False),
        (good | {"salts": turned}, True), (good | {"turned": words}, True), (good | {"salts": words[:1]}, True),
    ):  # fmt: skip
        with pytest.raises(fs.errors.ReplyError, match="shop"):
            blur.Hidden.read(told, (4, 2), salted, "shop")
