"""Boosting with protection="all": equal to a twin in the clear; nobody reads a sum, a node, a leaf or a gradient."""

from __future__ import annotations

import gc
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from boost_twin import Twin
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from test_boost_hidden import BARE, blind_table, watched
from test_comparing import run

import fedsift as fs
from fedsift.core.message import decode, walk
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ParameterError, ReplyError, SecurityError
from fedsift.models.boost.compared import choosing, state, taking_part
from fedsift.models.boost.compared.growing import ComparedTrees
from fedsift.models.boost.compared.program import Shape, Sums, best_cuts, leaves
from fedsift.models.boost.compared.scales import HALF_CELL, Limits, Scales
from fedsift.models.boost.compared.state import Shares
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.plan import fold_rules
from fedsift.models.boost.scoring import Protection, cross_validate
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc.ring import uniform
from fedsift.select.top_gain import TopGain

ALL = {"protection": "all", "n_bins": 8}


def small_numbers(rows: int, columns: int, seed: int, number: bool = False):
    """Columns of five values each: a bin a value."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (rows, columns)).astype(float)
    signal = X[:, 0] + X[:, 1] * np.sign(X[:, -1]) + 0.7 * X[:, -2] + rng.normal(0, 0.5, rows)
    return X, signal if number else (signal > 0).astype(int)


def twin_of(fed, X, y, tree: TreeSettings, *, number: bool = False, learnt=None) -> Twin:
    scales, start = Scales.of(not number, len(y), tree), 0
    parties = []
    for count in fed.n_columns.values():
        parties.append(list(range(start, start + count)))
        start += count
    kept = np.ones(len(y), dtype=bool) if learnt is None else learnt
    middle = y[kept].mean()
    if number:
        size = np.abs(y[kept] - middle).max()
        return Twin(X, parties, tree, scales, (y - middle) / size, np.zeros(len(y), np.int64), learnt, size)
    base = np.rint(np.ldexp(np.log(middle / (1 - middle)), scales.score)).astype(np.int64)
    return Twin(X, parties, tree, scales, y.astype(float), np.full(len(y), base), learnt)


@pytest.mark.parametrize(("parties", "number"), [(2, False), (3, False), (3, True)])
def test_scores_splits_and_gains_are_those_of_the_twin(parties, number):
    X, y = small_numbers(203, 6, parties, number)
    fed = fs.Federation.split(X, y, parties=parties, task="regression" if number else "classification")
    options = {"n_estimators": 2, "max_depth": 2, "learning_rate": 0.4, "min_leaf": 12, "reg_lambda": 1.5}
    model = (SecureBoostRegressor if number else SecureBoostClassifier)(**options, **ALL).fit(fed)
    tree = TreeSettings(max_depth=2, learning_rate=0.4, min_rows=12, reg_lambda=1.5)
    twin = twin_of(fed, X, y, tree, number=number)
    every, twin.parties = twin.parties, twin.parties[:1]  # the first tree has the label holder's columns alone
    twin.grow()
    twin.parties = every
    twin.grow()
    scores = np.ldexp(twin.scores.astype(float), -twin.scales.score)
    if number:
        np.testing.assert_allclose(model.predict(fed), y.mean() + twin.size * scores, atol=1e-9)
    else:
        np.testing.assert_allclose(model.predict_proba(fed)[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-9)
    found = model.feature_importances_
    assert found["splits"].tolist() == [twin.splits.get(column, 0) for column in range(6)]
    np.testing.assert_allclose(
        found["gain"], [twin.gains.get(column, 0.0) for column in range(6)], rtol=1e-9, atol=1e-9
    )
    assert found.loc[found["party"] != "party1", "splits"].sum() > 0


def test_a_bar_a_weight_and_a_leaf_that_is_cut_off_are_those_of_the_twin():
    X, y = small_numbers(120, 4, 5)
    fed = fs.Federation.split(X, y, parties=2)
    for limits in ({"min_child_weight": 6.0}, {"gamma": 9.0, "learning_rate": 1.0}):
        model = SecureBoostClassifier(n_estimators=1, max_depth=2, **limits, **BARE, **ALL).fit(fed)
        twin = twin_of(fed, X, y, TreeSettings(max_depth=2, min_rows=1, **limits))
        twin.grow()
        scores = np.ldexp(twin.scores.astype(float), -twin.scales.score)
        np.testing.assert_allclose(model.predict_proba(fed)[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-9)


def test_several_classes_are_told_apart_one_against_the_rest(tmp_path):
    """A model a class, each equal to its twin; chances are shared out among them, also when the model was kept."""
    X, number = small_numbers(150, 4, 2, number=True)
    y = np.digitize(number, np.quantile(number, [0.3, 0.6]))
    fed = fs.Federation.split(X, y, parties=2)
    options = {"n_estimators": 2, "max_depth": 2, "min_leaf": 12, "min_cell": 1, "first_tree_local": False}
    model = SecureBoostClassifier(**options, **ALL).fit(fed)
    tree = TreeSettings(max_depth=2, min_rows=12)
    scores, splits = [], 0
    for k in range(3):
        twin = twin_of(fed, X, (y == k).astype(int), tree)
        twin.grow()
        twin.grow()
        scores.append(twin.scales.values(twin.scores.astype(np.int16).view(np.uint16)))
        splits += sum(twin.splits.values())
    chance = 1 / (1 + np.exp(-np.stack(scores, axis=1)))
    found = model.predict_proba(fed)
    np.testing.assert_allclose(found, chance / chance.sum(axis=1, keepdims=True), atol=1e-9)
    assert model.feature_importances_["splits"].sum() == splits
    assert (model.n_trees_, model.best_iteration_) == (6, 1)
    model.save(tmp_path / "kept")
    np.testing.assert_array_equal(SecureBoostClassifier.load(tmp_path / "kept", fed).predict_proba(fed), found)


def test_folds_of_several_classes_are_scored_at_the_end():
    """Classes are a column of the other party: whatever the folds are, two cuts find them and held-out rows follow."""
    X, _ = small_numbers(120, 4, 3)
    fed = fs.Federation.split(X, np.digitize(X[:, 3], [-0.5, 0.5]), parties=2)
    booster = Booster(TreeSettings(max_depth=2, min_rows=2), {n: np.arange(c) for n, c in fed.n_columns.items()}, 1, 8)
    found = cross_validate(fed, [booster], fold_rules(2, 0), Protection("all", 2, False), "accuracy")
    assert found.tolist() == [[1.0, 1.0]]


def test_held_out_rows_have_no_gradient_and_are_scored_at_the_end():
    X, y = small_numbers(150, 4, 3)
    fed = fs.Federation.split(X, y, parties=2)
    tree = TreeSettings(max_depth=2, min_rows=5)
    booster = Booster(tree, {name: np.arange(count) for name, count in fed.n_columns.items()}, 1, bins=8)
    found = cross_validate(fed, [booster], fold_rules(2, 0), Protection("all", 5, False), "auc")
    exact = cross_validate(fed, [booster], fold_rules(2, 0), Protection("coordinator", 5, False), "auc")
    assert found.shape == (1, 2)
    assert np.abs(found - exact).max() < 0.06  # other chances, the same folds; both far above 0.5
    assert found.min() > 0.7


def test_predictions_are_close_to_those_of_the_level_with_true_chances():
    X, y = blind_table(300)
    fed = fs.Federation.split(X, y, parties=2)
    options = {"n_estimators": 2, "max_depth": 2, "n_bins": 6, **BARE}
    first, second = (
        SecureBoostClassifier(protection=level, **options).fit(fed).predict_proba(fed)[:, 1]
        for level in ("coordinator", "all")
    )
    assert np.corrcoef(first, second)[0, 1] > 0.9


def test_holes_categories_and_a_party_that_is_never_cut():
    rng = np.random.default_rng(0)
    kinds, other = rng.choice(list("abcd"), 200), rng.normal(size=200)
    other[::7] = np.nan
    y = ((kinds == "c") ^ (np.nan_to_num(other) > 0)).astype(int)
    frame = pd.DataFrame({"own": other, "none": 0.0, "kind": kinds, "nothing": 1.0, "still": 2.0, "nought": 3.0})
    fed = fs.Federation.split(frame, y, parties=3)
    model = SecureBoostClassifier(n_estimators=2, max_depth=2, **BARE, **ALL).fit(fed)
    assert (model.predict(fed) == y).mean() > 0.9
    assert (
        model.feature_importances_.set_index("column")["splits"]
        .groupby(model.feature_importances_["party"].to_numpy())
        .sum()["party3"]
        == 0
    )


def test_a_saved_model_predicts_the_same_and_its_leaves_are_shares(tmp_path):
    X, y = small_numbers(100, 4, 1)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, **BARE, **ALL).fit(fed)
    before = model.predict_proba(fed)
    model.save(tmp_path / "kept")
    np.testing.assert_array_equal(SecureBoostClassifier.load(tmp_path / "kept", fed).predict_proba(fed), before)


# --- programs --------------------------------------------------------------------------------------------------------


def limits(logistic: bool) -> tuple[Scales, int, int]:
    """Scales, and what gradient and hessian sums stay below."""
    found = Scales(logistic, 10, 10, 10, 37, 20000, 7, 3, 3 if logistic else 4)
    return (found, 2**28, 2**24) if logistic else (found, 2**33, 2**26)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 2**32), st.sampled_from([0, 40, 2**20]), st.booleans())
def test_the_best_cut_on_shares_is_the_best_fraction_of_whole_numbers(candidates, nodes, seed, small, logistic):
    """Against Python's fractions, with sums up to the limits of their rings."""
    rng = np.random.default_rng(seed)
    scales, most, heaviest = limits(logistic)
    size = small or most
    total_g, total_h = rng.integers(-size, size, nodes), rng.integers(2**10, min(heaviest, size + 2**11), nodes)
    rows, pen = rng.integers(20, 90, nodes), scales.penalty
    left_g = rng.integers(-size, size, (nodes, candidates))
    left_h = rng.integers(0, total_h[:, None] + 1, (nodes, candidates))
    count = rng.integers(0, rows[:, None] + 1, (nodes, candidates))
    shape = Shape.sized(np.full(nodes, candidates))
    values = scales.together(
        np.concatenate([total_g, left_g.ravel()]), np.concatenate([total_h, left_h.ravel()])
    )  # fmt: skip
    whole = np.stack([values, np.concatenate([rows, count.ravel()]).astype(np.uint64)])
    first = uniform(whole.shape)

    def build(source, share):
        counts = share[1].astype(np.uint32)
        totals, cuts = Sums(share[0][:nodes], counts[:nodes]), Sums(share[0][nodes:], counts[nodes:])
        return best_cuts(source, shape, cuts, totals, scales, Limits.of([scales], [nodes]))

    found = run(build, first, whole - first)
    places = (found[0].label + found[1].label)[:, 0].tolist()
    sums = (found[0].sums + found[1].sums)[:, 0]
    for node in range(nodes):
        T = int(total_h[node] + 2 * pen)
        fractions = []
        for g, h, n in zip(left_g[node].tolist(), left_h[node].tolist(), count[node].tolist()):
            a, other = h + pen, int(total_h[node]) - h
            fits = min(n, int(rows[node]) - n) >= 3 and min(h, other) >= 7
            fractions.append(Fraction((g * T - int(total_g[node]) * a) ** 2, a * (T - a)) if fits else Fraction(0))
        best = fractions.index(max(fractions))
        assert places[node] == best
        assert sums[node] == scales.together(left_g[node, best : best + 1], left_h[node, best : best + 1])[0]


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([True, False]), st.integers(20, 10**6))
def test_leaves_on_shares_are_quotients_rounded_towards_zero(seed, logistic, rows):
    rng = np.random.default_rng(seed)
    scales = Scales.of(logistic, rows, TreeSettings(learning_rate=0.3))
    top, heaviest = (28, 2**24) if logistic else (33, 2**26)
    g, h = rng.integers(-(2**top), 2**top, 5) >> rng.integers(0, top, 5), rng.integers(0, heaviest, 5)
    whole = scales.together(g, h)
    first = uniform(whole.shape)
    limits = Limits.of([scales], [5])
    found = run(lambda source, share: leaves(source, share, scales, limits), first, whole - first)
    codes, gains = found[0][0] ^ found[1][0], (found[0][1] + found[1][1]).view(np.int64).tolist()
    top = 2 ** (scales.leaf_width - 1)
    scores = [code % top - code // top * (top - 1) for code in codes.tolist()]
    for G, H, score, gain in zip(g.tolist(), h.tolist(), scores, gains):
        fine = (abs(G) * scales.rate << max(0, -scales.shift)) // ((H + scales.penalty) << max(0, scales.shift))
        fine = min(fine, 2**scales.leaf_bits - 1)
        assert score == (fine >> 4) * (1 if G < 0 else -1)
        assert gain == (abs(G) * fine + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("rows", [200, 36_000, 10**6])
def test_the_steps_are_close_to_the_sigmoid_and_a_hessian_is_never_zero(rows):
    scales = Scales.of(True, rows, TreeSettings())
    scores = np.arange(-(2**15), 2**15)
    g, h = scales.apart(scales.sigmoid.at((scores + HALF_CELL).astype(np.uint64)))
    true = 1 / (1 + np.exp(-np.clip(scores / 1024, -30, 30)))
    inside = np.abs(scores) < 30 * 1024
    assert np.abs(g / 2.0**scales.gradient - true)[inside].max() < 0.016 + 2.0**-scales.gradient
    assert h.min() >= 1
    assert np.abs(h / 2.0**scales.hessian - true * (1 - true))[inside].max() < 0.007 + 2.0**-scales.hessian
    assert rows * g.max() < scales.offset  # no sum leaves its room, whatever the labels are
    assert rows * h.max() + 2 * scales.penalty < 2 ** (scales.low - 1)


# --- what each side sees ---------------------------------------------------------------------------------------------


def test_the_coordinator_gets_boxes_and_at_the_end_masked_halves_of_one_gain_a_column():
    X, y = blind_table(120)
    fed = fs.Federation.split(X, y, parties=2)
    fed._link.transport = Recording(fed._link.transport)
    SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=6, protection="all", **BARE).fit(fed)
    boxes, arrays = 0, []
    for _, receiver, data in fed._link.transport.log:
        if receiver == "coordinator":
            leaves = list(walk(decode(data)))
            boxes += sum(isinstance(leaf, SealedBox) for leaf in leaves)
            arrays += [leaf.size for leaf in leaves if isinstance(leaf, np.ndarray)]
    assert boxes > 200
    # Six columns: cuts a column and which have categories (2 x 3), gains and splits. Never 6 bins x nodes.
    assert max(arrays) <= 6
    assert len(arrays) < 20


def test_messages_have_the_same_sizes_whatever_the_labels_are():
    X, y = blind_table(120)
    sizes = []
    for labels in (y, np.random.default_rng(5).permutation(y)):
        fed = fs.Federation.split(X, labels, parties=2)
        model = SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=6, protection="all", **BARE).fit(fed)
        frame = model.ledger_.frame()
        mine = frame[frame["operation"].str.startswith("boost.")]
        sizes.append(mine[["sender", "receiver", "operation", "bytes"]].to_records(index=False).tolist())
    assert sizes[0] == sizes[1]


def test_every_number_and_bit_that_a_party_opens_is_a_fair_coin(monkeypatch):
    """A mean for each side and width of number, some six of them, of true coins: six deviations are 2e-9 each."""
    X, y = blind_table(400)
    fed = fs.Federation.split(X, y, parties=3)
    heard = watched(monkeypatch, state.Talk, "hear")
    SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=8, protection="all", first_tree_local=False).fit(fed)
    said: dict[tuple[int, str], set[bytes]] = {}  # what two parties heard alike counts once
    for args, _, _ in heard:
        for part in args[2]:
            if part.any():  # the label holder's last message of a choice has none of its own numbers
                said.setdefault((args[0].source.number, str(part.dtype)), set()).add(part.tobytes())
    for parts in said.values():
        coins = np.unpackbits(np.frombuffer(b"".join(parts), np.uint8))
        assert abs(coins.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(coins)) + 64 / len(coins)


def test_what_the_label_holder_hears_of_left_and_right_places_nobody(monkeypatch):
    """Membership and cuts are shares: neither the bits that it hears nor its own shares of nodes follow a column."""
    X, y = blind_table(400)
    fed = fs.Federation.split(X, y, parties=2)
    heard = watched(monkeypatch, taking_part, "heard_cuts")
    hidden = watched(monkeypatch, choosing, "laid_out")
    SecureBoostClassifier(n_estimators=2, max_depth=3, n_bins=8, protection="all", first_tree_local=False).fit(fed)
    bits = np.unpackbits(np.concatenate([reply for _, _, reply in heard]), axis=1, count=len(y)).astype(float)
    shares = np.concatenate([(counts % 2).T for _, _, (_, counts) in hidden if counts.shape[1] > 1]).astype(float)
    for found in (bits, shares):
        mixed = found[found.std(axis=1) > 0]
        related = np.corrcoef(mixed, X.T)[: len(mixed), len(mixed) :]
        # Some hundred correlations of 400 rows each: deviation 0.05, so 0.35 is seven of them (1e-11 each).
        assert np.abs(related).max() < 0.35


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_sample_by_gradients_is_refused_with_the_level_that_has_it():
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    said = r"'all' .the default. cannot have sampling_method.*protection='coordinator' can do it, and shows"
    with pytest.raises(ParameterError, match=said):
        SecureBoostClassifier(n_estimators=1, sampling_method="gradient_based").fit(fed)


def test_one_tree_for_several_classes_is_refused_in_words():
    X = np.random.default_rng(0).normal(size=(90, 4))
    fed = fs.Federation.split(X, np.arange(90) % 3, parties=2)
    options = {"protection": "all", "multi_output": True}
    for method in (SecureBoostClassifier(n_estimators=1, **options), TopGain(n_features=2, **options)):
        with pytest.raises(ParameterError, match=r"multi_output=True.*protection='coordinator' can do it, and shows"):
            method.fit(fed)


def test_a_data_holder_that_runs_the_coordinator_is_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    monkeypatch.setattr(fs.Federation, "neutral", property(lambda self: False), raising=False)
    with pytest.raises(ParameterError, match="runs it, deals or gets the results"):
        SecureBoostClassifier(n_estimators=1, protection="all").fit(fed)


def test_a_part_of_another_form_cannot_be_walked():
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, protection="coordinator").fit(fed)
    model.protection = "all"
    with pytest.raises(DataError, match="another form"):
        model.predict(fed)


def test_corrections_of_another_level_are_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    original = ComparedTrees._deal
    monkeypatch.setattr(ComparedTrees, "_deal", lambda *args: original(*args)[:-1])
    with pytest.raises(SecurityError, match="another shape"):
        SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=4, protection="all", **BARE).fit(fed)


def test_a_message_of_another_shape_is_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    original = Shares.sealed
    monkeypatch.setattr(Shares, "sealed", lambda self, party, parts: original(self, party, parts * 2))
    with pytest.raises(ReplyError, match="another shape"):
        SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=4, protection="all", **BARE).fit(fed)


def test_a_request_for_smaller_leaves_than_the_accepted_job_has_is_refused():
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    columns = {name: np.arange(count) for name, count in fed.n_columns.items()}
    told = {"min_cell": 5, "min_leaf": 20}
    for level in ("coordinator", "all"):
        with fed.session("top_gain", told) as session, pytest.raises(OperationRefused, match="fewer"):
            grow(session, [Booster(TreeSettings(max_depth=2, min_rows=5), columns, 1)], protection=level)


# --- what stands on it -----------------------------------------------------------------------------------------------


def test_top_gain_keeps_the_columns_that_the_other_level_keeps():
    X, y = blind_table(300)
    fed = fs.Federation.split(X, y, parties=2)
    options = {"n_features": 2, "n_estimators": 2, "max_depth": 2, "n_bins": 6}
    first, second = (TopGain(protection=level, **options).fit(fed) for level in ("coordinator", "all"))
    assert second.selected_ == first.selected_


def table(rows: int, seed: int):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    return X, (X[:, 0] + X[:, 1] * np.sign(X[:, 4]) + 0.7 * X[:, 3] + rng.normal(0, 0.3, rows) > 0).astype(int)


def resident() -> int:
    """Bytes of memory that this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_two_hundred_fits_leave_nothing_behind():
    """A fit keeps its part of the model at the sites; shares and masks go with its session."""
    X, y = table(400, 0)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=32, protection="coordinator", **BARE)
    for _ in range(20):
        model.fit(fed)
    before = resident()
    for _ in range(200):
        model.fit(fed)
    masked_cuts = 400 * 93 * 8  # what one fit holds at each of three sides while it runs: 60 MB in all
    assert resident() - before < 200 * masked_cuts / 4


def test_a_program_leaves_nothing_but_its_lines_in_the_ledger():
    X, y = table(200, 0)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=16, protection="all", **BARE)
    model.fit(fed)
    tracemalloc.start()
    try:
        lines, before = len(fed.ledger.entries), tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            model.fit(fed)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 1000 * (len(fed.ledger.entries) - lines) + 100_000
