"""Sums of encrypted gradients: packing, joint counting, masks; and trees from rows sampled by their gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import cached_key
from test_boost import BARE, plain_tree, whole_table

import fedsift as fs
from fedsift.core.identity import private_generator
from fedsift.errors import OverflowGuard, ParameterError
from fedsift.models.boost import joint_powers as boost_joint
from fedsift.models.boost.joint_powers import GroupTable, _blocks, _teams, joint_sums
from fedsift.models.boost.model import SecureBoostClassifier
from fedsift.models.boost.sums import (
    Ask,
    GradientLayout,
    encrypt_sets,
    encrypted_sums,
    read_sums,
    rows_per_ciphertext,
)
from fedsift.models.boost.tree import whole_numbers


def a_table(rng, rows, columns=3, groups=4):
    """Rows in random groups; of each column the largest group is left out."""
    codes = rng.integers(0, groups, (len(rows), columns))
    sizes = np.array([np.bincount(codes[:, c], minlength=groups) for c in range(columns)])
    left_out = sizes.argmax(axis=1)
    sizes[np.arange(columns), left_out] = 0
    return GroupTable(rows, codes, np.full(columns, groups), left_out, sizes.ravel())


def asked_rows(table):
    """The rows of each group that is asked for."""
    sizes = table.sizes.reshape(table.codes.shape[1], -1)
    return [table.rows[table.codes[:, c] == g] for c, g in zip(*np.nonzero(sizes))]


@pytest.mark.parametrize(("per", "outputs"), [(1, 1), (2, 1), (3, 1), (1, 5), (1, 12)])
def test_encrypted_sums_could_overflow_or_mix_rows(per, outputs):
    key = cached_key()
    rng = np.random.default_rng(1)
    sets = []
    for rows in (23, 10):
        g, h = rng.normal(size=(rows, outputs)), rng.random((rows, outputs)) + 0.1
        sets.append(whole_numbers(g, h, 20)[0])
    layout = GradientLayout.fit(40, outputs, 20, per, key.public.plaintext_bits)
    assert layout.per == per
    store = encrypt_sets(key.public, sets, layout)
    starts = [0, -(-23 // per) * layout.layers]
    asks = [Ask(starts[0], 23, a_table(rng, np.array([0, 1, 5, 6, 7, 8, 21, 22]))),
            Ask(starts[1], 10, a_table(rng, np.array([1, 2, 3, 9])))]  # fmt: skip
    expected = [sets[n][rows].sum(axis=0) for n, ask in enumerate(asks) for rows in asked_rows(ask.table)]
    opened = read_sums(key, encrypted_sums(key.public, store, layout, asks), layout, len(expected), "shop")
    np.testing.assert_array_equal(opened, expected)


@pytest.mark.parametrize("per", [1, 2])
@pytest.mark.parametrize("rows", [31, 32])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_possible_sum_could_run_into_its_neighbour(per, rows, sign):
    """Every row of the table in one group, every gradient and hessian at the end of its range."""
    key, bits = cached_key(), 20
    layout = GradientLayout.fit(rows, 1, bits, per, key.public.plaintext_bits)
    values = np.tile([sign << bits, 1 << bits], (rows, 1))
    everyone = np.ones((rows, 2), dtype=np.int64)
    table = GroupTable(np.arange(rows), everyone, np.full(2, 2), np.zeros(2, np.int64), np.array([0, rows, 0, rows]))
    sums = encrypted_sums(key.public, encrypt_sets(key.public, [values], layout), layout, [Ask(0, rows, table)])
    opened = read_sums(key, sums, layout, 2, "shop")
    np.testing.assert_array_equal(opened, [[sign * rows << bits, rows << bits]] * 2)


def test_slots_that_nobody_asked_for_could_be_readable():
    """Two answers a ciphertext, two rows a ciphertext: beside the answers the label holder sees random numbers only."""
    key = cached_key()
    layout = GradientLayout.fit(40_000, 1, 20, 2, key.public.plaintext_bits)
    assert layout.answers(key.public.plaintext_bits) == 2
    store = encrypt_sets(key.public, [np.full((12, 2), 5)], layout)
    table = a_table(np.random.default_rng(0), np.arange(12), columns=2)
    opened = [key.decrypt(encrypted_sums(key.public, store, layout, [Ask(0, 12, table)]), bits=layout.reply_bits(2))
              for _ in range(2)]  # fmt: skip
    pitch = layout.row_layout.pitch
    for first, second in zip(*opened):
        slots = [[(number >> (slot * pitch)) & ((1 << pitch) - 1) for slot in range(5)] for number in (first, second)]
        assert all(a != b and a.bit_length() > 80 for a, b in zip(slots[0][::2], slots[1][::2]))
        assert slots[0][1::2] == slots[1][1::2]


@pytest.mark.parametrize("alike", [False, True])
def test_joint_counting_could_give_other_sums(alike, monkeypatch):
    """Columns that are counted together (also twice over) and apart: the same sums as one by one, fewer additions."""
    monkeypatch.setattr(boost_joint, "_LEAST_ROWS", 200)  # tables of a test are small
    key, rng = cached_key(), np.random.default_rng(3)
    codes = rng.integers(0, [3, 5, 4, 6, 30], (700, 5))
    if alike:
        codes[:, 1] = codes[:, 0]
        codes[:, 3] = codes[:, 0] + codes[:, 2] % 2
    groups = codes.max(axis=0) + 2  # the last group is empty
    counts = [np.bincount(codes[:, c], minlength=groups[c]) for c in range(5)]
    left_out = np.array([c.argmax() for c in counts])
    sizes = [np.where(np.arange(len(c)) == out, 0, c) for c, out in zip(counts, left_out)]
    table = GroupTable(np.arange(700) + 20, codes, groups, left_out, np.concatenate(sizes))
    assert any(team.parts for _, team in _teams(_blocks(0, table)))
    values = rng.integers(0, 1000, 720)
    vector = key.public.encrypt(values.tolist())
    empty = replace(table, rows=np.zeros(0, np.int64), codes=np.zeros((0, 5), np.int64))  # asked for, and without rows
    opened = key.decrypt(joint_sums(key.public, vector, [table, empty]), bits=30)
    expected = [int(values[20:][codes[:, c] == g].sum()) for c in range(5) for g in range(groups[c]) if sizes[c][g]]
    assert opened == expected + [0] * len(expected)


def test_a_layout_that_overflows_could_be_accepted():
    key = cached_key().public
    layout = GradientLayout.fit(100, 1, 20, 1, key.plaintext_bits).as_dict()
    for change in ({"rows": 99}, {"lanes": 7}, {"per": 50}):
        with pytest.raises(ParameterError, match="layout"):
            GradientLayout.read({**layout, **change}, 100, key.plaintext_bits)
    with pytest.raises(OverflowGuard):
        encrypt_sets(key, [np.array([[1 << 30, 1]])], GradientLayout.fit(10, 1, 20, 1, key.plaintext_bits))


def test_rows_share_ciphertexts_where_few_sums_are_asked_for():
    """Many rows and few sums: pack rows. Few rows and many sums: do not. The trees are the same either way."""
    key = cached_key().public
    assert rows_per_ciphertext(30_000, 500, 30_000, 1, 20, key) == 3
    assert rows_per_ciphertext(3_000, 5_000, 30_000, 1, 20, key) == 1


# --- rows sampled by gradient ----------------------------------------------------------------------------------------


def leaf_path(tree, x):
    path = ()
    while isinstance(tree, tuple):
        column, cut, missing_left, left, right = tree
        goes_left = missing_left if np.isnan(x[column]) else x[column] <= cut
        tree, path = (left, (*path, 0)) if goes_left else (right, (*path, 1))
    return path


def plain_sampled_boost(X, y, trees, depth, top_rate, other_rate, generator, eta=0.3, lam=1.0):
    """One-side sampling without encryption: splits from weighted sampled rows, leaf values from all rows."""
    margins, sent = np.zeros(len(y)), []
    for _ in range(trees):
        p = 1 / (1 + np.exp(-margins))
        g, h = p - y, p * (1 - p)
        tie = generator.random(len(y))
        order = [row for *_, row in sorted(zip(-np.abs(g), tie, range(len(y))))]
        top = int(np.ceil(top_rate * len(y)))
        drawn = generator.choice(order[top:], size=int(np.ceil(other_rate * len(y))), replace=False)
        weight = np.ones(len(y))
        weight[drawn] = (len(y) - top) / len(drawn)
        rows = np.sort(np.concatenate([order[:top], drawn]))
        tree = plain_tree(X, g * weight, h * weight, rows, depth, lam, 0.0, 1.0)
        paths = [leaf_path(tree, x) for x in X]
        for path in set(paths):
            members = np.array([p == path for p in paths])
            margins[members] -= eta * g[members].sum() / (h[members].sum() + lam)
        sent.append(len(rows))
    return margins, sent


@pytest.mark.parametrize("protection", ["coordinator", "open"])
def test_sampling_by_gradient_equals_its_plain_twin(protection):
    X, signal = whole_table(150, holes=0.1, seed=4)
    y = (signal > np.median(signal)).astype(int)
    fed = fs.Federation.split(X, y, parties=2)
    site = fed.simulated[fed.active]
    drawn = private_generator(site.secret, site.table, "boost: rows of a tree", 7)
    margins, sent = plain_sampled_boost(X, y, 3, 3, 0.3, 0.2, drawn)
    model = SecureBoostClassifier(
        n_estimators=3, max_depth=3, sampling_method="gradient_based", top_rate=0.3, other_rate=0.2, base_score=0.5,
        random_state=7, rows_per_ciphertext=1, protection=protection, **BARE,
    ).fit(fed)  # fmt: skip
    np.testing.assert_allclose(model.decision_function(fed), margins, atol=1e-6)
    if protection == "coordinator":  # nobody is told which rows
        assert set(model.ledger_.frame()["form"]) <= {"masked", "control", "aggregate", "plain"}
        return
    frame = model.ledger_.frame()
    mine = frame[(frame["operation"].str.endswith("next_sampled_trees")) & (frame["sender"] == "party1")]
    assert mine["ciphertexts"].tolist() == sent
    assert set(mine["form"]) == {"plain"}
    assert any("gradient_based" in note for note in model.ledger_.notes)


def test_sampling_is_off_by_default_and_leaves_the_local_tree_alone():
    X, signal = whole_table(100)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    plain = SecureBoostClassifier(n_estimators=1, max_depth=3, protection="coordinator").fit(fed)
    sampled = {"sampling_method": "gradient_based", "protection": "coordinator"}
    local = SecureBoostClassifier(n_estimators=1, max_depth=3, **sampled).fit(fed)
    np.testing.assert_array_equal(plain.decision_function(fed), local.decision_function(fed))
    assert not any("gradient_based" in note for note in plain.ledger_.notes)


@pytest.mark.parametrize("at_once", [1, 3_000, 1 << 27])
def test_sums_are_the_same_in_blocks_of_columns_and_by_bins_of_chosen_rows(at_once, monkeypatch):
    """Decided on few of the rows, some columns at a time, from a whole table's bins and the node's groups of them."""
    monkeypatch.setattr(boost_joint, "_LEAST_ROWS", 200)
    monkeypatch.setattr(boost_joint, "_LOOKED_AT", 64)
    monkeypatch.setattr(boost_joint, "_COLUMNS_TOGETHER", 3)
    monkeypatch.setattr(boost_joint, "_CELLS_AT_ONCE", at_once)
    key, rng = cached_key(), np.random.default_rng(5)
    bins = np.asfortranarray(rng.integers(0, [3, 5, 4, 6, 30, 2, 2], (2_000, 7)).astype(np.uint8))
    bins[:, 3] = bins[:, 0] * 2 + bins[:, 5]
    group_of = np.tile(np.arange(30) // 2, (7, 1))
    lines = np.flatnonzero(rng.random(2_000) < 0.6)
    codes = group_of[np.arange(7), bins[lines]]
    groups = codes.max(axis=0) + 1
    counts = [np.bincount(codes[:, c], minlength=groups[c]) for c in range(7)]
    left_out = np.array([c.argmax() for c in counts])
    sizes = [np.where(np.arange(len(c)) == out, 0, c) for c, out in zip(counts, left_out)]
    values = rng.integers(0, 1000, 2_000)
    vector = key.public.encrypt(values.tolist())
    table = GroupTable(lines, bins, groups, left_out, np.concatenate(sizes), lines, group_of)
    halves = [table.part(lines % 2 == place, lines[lines % 2 == place]) for place in (0, 1)]
    opened = key.decrypt(joint_sums(key.public, vector, [table, *halves]), bits=30)
    expected = [
        int(values[lines][here & (codes[:, c] == g)].sum())
        for here in (lines >= 0, lines % 2 == 0, lines % 2 == 1)
        for c in range(7) for g in range(groups[c]) if sizes[c][g]
    ]  # fmt: skip
    assert opened == expected
