"""Boosting with protection="all": the same trees as where the coordinator reads sums, and nobody reads one."""

from __future__ import annotations

import gc
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from boost_attacks import node_attack
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from test_boost_hidden import BARE, LUCK, blind_table, watched
from test_comparing import run

import fedsift as fs
from fedsift.core.message import decode, walk
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ParameterError, ReplyError, SecurityError
from fedsift.models.boost.compared import passive, talks
from fedsift.models.boost.compared.growing import ComparedTrees
from fedsift.models.boost.compared.program import NodeFacts, Shape, best_cuts
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.hidden.shares import pack
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc import wide
from fedsift.mpc.ring import uniform
from fedsift.select.top_gain import TopGain


def table(rows: int, kind: str, seed: int):
    """Numbers (with holes), few values (ties), three classes, or a number to predict."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6)) if kind != "ties" else rng.integers(-1, 2, (rows, 6)).astype(float)
    signal = X[:, 0] + X[:, 1] * np.sign(X[:, 4]) + 0.7 * X[:, 3] + rng.normal(0, 0.3, rows)
    if kind == "holes":
        X[rng.random(X.shape) < 0.2] = np.nan
    if kind == "number":
        return X, signal
    return X, np.digitize(signal, [-0.8, 0.8] if kind == "classes" else [0.0])


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("kind", ["numbers", "holes", "ties", "classes", "number"])
def test_the_trees_are_those_of_the_level_at_which_the_coordinator_reads_sums(kind, parties):
    X, y = table(150, kind, 1)
    fed = fs.Federation.split(X, y, parties=parties, task="regression" if kind == "number" else "classification")
    cls = SecureBoostRegressor if kind == "number" else SecureBoostClassifier
    options = {"n_estimators": 2, "max_depth": 3, "n_bins": 6, **BARE}
    both = [cls(protection=level, **options).fit(fed) for level in ("coordinator", "all")]
    first, second = (m.predict(fed) if kind == "number" else m.predict_proba(fed) for m in both)
    np.testing.assert_allclose(second, first, atol=1e-12)
    a, b = (model.feature_importances_ for model in both)
    assert b["splits"].tolist() == a["splits"].tolist()
    assert b.loc[b["party"] != "party1", "splits"].sum() > 0  # cuts at other parties were found
    np.testing.assert_allclose(b["gain"], a["gain"], rtol=1e-4, atol=1e-4)


def test_limits_of_a_cut_hold_as_at_the_other_level():
    X, y = table(200, "numbers", 3)
    fed = fs.Federation.split(X, y, parties=2)
    for limits in ({"min_leaf": 30}, {"min_child_weight": 8.0}, {"gamma": 4.0}, {"reg_lambda": 0.0}):
        options = {"n_estimators": 2, "max_depth": 3, "n_bins": 8, "first_tree_local": False, **limits}
        first, second = (
            SecureBoostClassifier(protection=level, **options).fit(fed).predict_proba(fed)
            for level in ("coordinator", "all")
        )
        np.testing.assert_allclose(second, first, atol=1e-12)


def test_a_category_is_cut_from_all_others():
    """As if every category were a column of its own."""
    rng = np.random.default_rng(0)
    kinds, other = rng.choice(list("abcd"), 300), rng.normal(size=300)
    y = ((kinds == "c") ^ (other > 0)).astype(int)
    own, nothing = {"own": other, **{f"own{k}": 0.0 for k in "abc"}}, {f"other{k}": 0.0 for k in "abc"}
    frames = {
        "categories": pd.DataFrame({**own, "kind": kinds, **nothing}),
        "columns": pd.DataFrame({**own, **{k: (kinds != k).astype(float) for k in "abcd"}}),
    }
    found = {}
    for name, frame in frames.items():
        fed = fs.Federation.split(frame, y, parties=2)
        model = SecureBoostClassifier(n_estimators=3, max_depth=3, n_bins=8, protection="all", **BARE).fit(fed)
        found[name] = model.predict_proba(fed)
    np.testing.assert_allclose(found["categories"], found["columns"], atol=1e-12)
    assert (found["categories"].argmax(axis=1) == y).mean() > 0.9


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 2**32), st.sampled_from([0, 40, 2**20]))
def test_the_best_cut_on_shares_is_the_best_fraction_of_whole_numbers(candidates, nodes, seed, small):
    """Against Python's fractions, with sums up to the limits of their rings."""
    rng = np.random.default_rng(seed)
    size = small or 2**33
    total_g, total_h = rng.integers(-size, size, nodes), rng.integers(2**10, min(2**26, size + 2**11), nodes)
    rows, penalty, least_weight, least_rows = rng.integers(20, 90, nodes), rng.integers(1, 2**10, nodes), 7, 3
    left_g = rng.integers(-size, size, (nodes, candidates))
    left_h = rng.integers(0, total_h[:, None] + 1, (nodes, candidates))
    count = rng.integers(0, rows[:, None] + 1, (nodes, candidates))
    shape = Shape(nodes, candidates, np.repeat(np.arange(nodes), candidates), np.tile(np.arange(candidates), nodes))
    whole = np.stack([pack(left_g.ravel(), left_h.ravel()), count.ravel().astype(np.uint64)])
    first = uniform(whole.shape)
    facts = NodeFacts(total_g, total_h, rows, penalty, np.full(nodes, least_weight), np.full(nodes, least_rows))

    def build(source, share):
        known = facts if source.number == 0 else NodeFacts.unknown(nodes)
        return best_cuts(source, shape, share[0], share[1].astype(np.uint32), known)

    found = run(build, first, whole - first)
    places = wide.to_ints(wide.add(found[0].label, found[1].label))
    for node in range(nodes):
        T = int(total_h[node] + 2 * penalty[node])
        values = []
        for g, h, n in zip(left_g[node].tolist(), left_h[node].tolist(), count[node].tolist()):
            a, other = h + int(penalty[node]), int(total_h[node]) - h
            fits = min(n, int(rows[node]) - n) >= least_rows and min(h, other) >= least_weight
            values.append(Fraction((g * T - int(total_g[node]) * a) ** 2, a * (T - a)) if fits else Fraction(0))
        assert places[node] == values.index(max(values))


# --- what each side sees ---------------------------------------------------------------------------------------------


def test_the_coordinator_gets_boxes_and_at_the_end_masked_halves_of_one_gain_a_column():
    X, y = blind_table(120)
    fed = fs.Federation.split(X, y, parties=2)
    fed._link.transport = Recording(fed._link.transport)
    SecureBoostClassifier(n_estimators=2, max_depth=3, n_bins=6, protection="all", **BARE).fit(fed)
    boxes, arrays = 0, []
    for _, receiver, data in fed._link.transport.log:
        if receiver == "coordinator":
            leaves = list(walk(decode(data)))
            boxes += sum(isinstance(leaf, SealedBox) for leaf in leaves)
            arrays += [leaf.size for leaf in leaves if isinstance(leaf, np.ndarray)]
    assert boxes > 300
    # Six columns: cuts a column and which have categories (2 x 3), live models, gains and splits. Never 6 bins x nodes.
    assert max(arrays) <= 6
    assert len(arrays) < 20


def test_messages_have_the_same_sizes_whatever_the_labels_are():
    X, y = blind_table(120)
    sizes = []
    for labels in (y, np.random.default_rng(5).permutation(y)):
        fed = fs.Federation.split(X, labels, parties=2)
        model = SecureBoostClassifier(n_estimators=2, max_depth=2, n_bins=6, protection="all", **BARE).fit(fed)
        frame = model.ledger_.frame()
        mine = frame[frame["operation"].str.contains("compare|winners|finals")]
        sizes.append(mine[["sender", "receiver", "operation", "bytes"]].to_records(index=False).tolist())
    assert sizes[0] == sizes[1]


def test_what_a_passive_party_opens_says_nothing_about_labels(monkeypatch):
    X, y = blind_table()
    fed = fs.Federation.split(X, y, parties=2)
    drawn = watched(monkeypatch, passive, "answer_and")
    heard = watched(monkeypatch, talks.Talk, "hear")
    SecureBoostClassifier(n_estimators=4, max_depth=3, n_bins=8, protection="all").fit(fed)
    bits = np.unpackbits(np.concatenate([args[1] for args, _, _ in drawn]), axis=1, count=len(y)).astype(bool)
    assert abs(node_attack(bits, y) - 0.5) < LUCK
    for number in (0, 1):
        opened = [np.unpackbits(np.ascontiguousarray(part).view(np.uint8).ravel())
                  for args, _, _ in heard if args[0].source.number == number for part in args[2]]  # fmt: skip
        coins = np.concatenate(opened)
        zeros = 8 * 24 * 2**3  # the label holder's last message of a level has none of its own numbers
        assert abs(coins.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(coins)) + (zeros * 12 / len(coins) if number else 0)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_one_tree_for_all_classes_cannot_be_compared():
    X, y = table(90, "classes", 0)
    fed = fs.Federation.split(X, y, parties=2)
    with pytest.raises(ParameterError, match="multi_output"):
        SecureBoostClassifier(n_estimators=1, multi_output=True, protection="all").fit(fed)


def test_a_data_holder_that_runs_the_coordinator_is_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    monkeypatch.setattr(fs.Federation, "neutral", property(lambda self: False), raising=False)
    with pytest.raises(ParameterError, match="runs it, deals or gets the results"):
        SecureBoostClassifier(n_estimators=1, protection="all").fit(fed)


def test_corrections_of_another_level_are_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    original = ComparedTrees._dealt
    monkeypatch.setattr(ComparedTrees, "_dealt", lambda *args: original(*args)[:-1])
    with pytest.raises(SecurityError, match="another shape"):
        SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=4, protection="all", **BARE).fit(fed)


def test_a_message_of_another_shape_is_refused(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    original = talks.Talks.sealed
    monkeypatch.setattr(talks.Talks, "sealed", lambda self, pairs, peer, parts: original(self, pairs, peer, parts * 2))
    with pytest.raises(ReplyError, match="another shape"):
        SecureBoostClassifier(n_estimators=1, max_depth=2, n_bins=4, protection="all", **BARE).fit(fed)


def test_a_request_for_smaller_leaves_than_the_accepted_job_has_is_refused():
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    columns = {name: np.arange(count) for name, count in fed.n_columns.items()}
    told = {"min_cell": 5, "min_leaf": 20}
    with fed.session("top_gain", told) as run, pytest.raises(OperationRefused, match="fewer"):
        grow(run, [Booster(TreeSettings(max_depth=2, min_rows=5), columns, 1)])
    with fed.session("top_gain", told) as run:
        grow(run, [Booster(TreeSettings(max_depth=2, min_rows=20), columns, 1)])


# --- what stands on it -----------------------------------------------------------------------------------------------


def test_top_gain_ranks_columns_by_gains_that_nobody_saw_cut_by_cut():
    X, y = blind_table(300)
    fed = fs.Federation.split(X, y, parties=2)
    options = {"n_features": 3, "n_estimators": 3, "max_depth": 2, "n_bins": 6}
    first, second = (TopGain(protection=level, **options).fit(fed) for level in ("coordinator", "all"))
    for name in ("feature", "rank"):
        assert second.scores_[name].tolist() == first.scores_[name].tolist()


def resident() -> int:
    """Bytes of memory that this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_two_hundred_fits_leave_nothing_behind():
    """A fit keeps its part of the model at the sites; shares and masks go with its session."""
    X, y = table(400, "numbers", 0)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=32, **BARE)
    for _ in range(20):
        model.fit(fed)
    before = resident()
    for _ in range(200):
        model.fit(fed)
    masked_cuts = 400 * 93 * 8  # what one fit holds at each of three sides while it runs: 60 MB in all
    assert resident() - before < 200 * masked_cuts / 4


def test_a_program_leaves_nothing_but_its_lines_in_the_ledger():
    X, y = table(200, "numbers", 0)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=16, protection="all", **BARE)
    model.fit(fed)
    tracemalloc.start()
    try:
        lines, before = len(fed.ledger.entries), tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            model.fit(fed)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 1000 * (len(fed.ledger.entries) - lines) + 100_000
