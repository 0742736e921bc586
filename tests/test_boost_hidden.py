"""Boosting on shares: what each role sees, attacked; the parts against plain arithmetic; what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from boost_attacks import mode_guess, node_attack, placed_cells, solve_ring
from doubles import Faulty, Recording
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsift as fs
from fedsift.core.binning import ColumnBins
from fedsift.core.message import decode, encode, walk
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import ParameterError, ReplyError
from fedsift.models.boost import passive as open_passive
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.hidden import blur, label_holder, passive, predicting
from fedsift.models.boost.hidden import growing as hidden_growing
from fedsift.models.boost.hidden.cuts import Layout, Shuffle, candidate_bits, candidate_count, key_shape, read_cut
from fedsift.models.boost.hidden.shares import Level, pack, unpack
from fedsift.models.boost.model import SecureBoostClassifier
from fedsift.models.boost.plan import fold_rules
from fedsift.models.boost.scoring import Protection, by_party, cross_validate
from fedsift.models.boost.tree import TreeSettings, whole_for_sums
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import uniform
from fedsift.select.top_gain import TopGain

BARE = {"min_cell": 1, "min_leaf": 1, "first_tree_local": False, "sum_noise": 0}
LUCK = 0.18  # six standard deviations of the AUC of a guess over 360 rows; the open form gives more than 0.8


def blind_table(n=400, seed=0):
    """The label follows the label holder's columns; the other party's say nothing about it alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = (X[:, 0] + X[:, 1] * np.sign(X[:, 4]) + rng.normal(0, 0.3, n) > 0).astype(int)
    return X, y


def watched(monkeypatch, module, name):
    """Keep the arguments' party and the result of every call of a function inside an operation's module."""
    seen, original = [], getattr(module, name)

    def spy(*args, **kwargs):
        result = original(*args, **kwargs)
        seen.append((args, kwargs, result))
        return result

    monkeypatch.setattr(module, name, spy)
    return seen


# --- parts -----------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32))
def test_sums_of_packed_numbers_are_the_sums_of_gradients_and_hessians(rows, seed):
    rng = np.random.default_rng(seed)
    g, h = rng.normal(size=(rows, 1)) * 10.0 ** rng.integers(-6, 6), rng.random((rows, 1)) ** 8
    numbers, units = whole_for_sums(g, h)
    inside = rng.random(rows) < 0.5
    total = pack(numbers[:, 0], numbers[:, 1])[inside].sum(dtype=np.uint64)
    got_g, got_h = unpack(np.array([total]))
    assert (got_g[0], got_h[0]) == tuple(numbers[inside].sum(axis=0))
    np.testing.assert_allclose(got_g[0] * units.gradient, g[inside].sum(), atol=np.abs(g).sum() * rows * 2**-33)
    np.testing.assert_allclose(got_h[0] * units.hessian, h[inside].sum(), atol=h.sum() * rows * 2**-25)


@pytest.mark.parametrize("kind", ["numbers", "holes", "categories", "constant"])
def test_a_candidates_bits_are_the_rows_that_its_cut_sends_left(kind):
    rng = np.random.default_rng(0)
    values = {"numbers": rng.integers(0, 9, 60).astype(float), "constant": np.ones(60),
              "holes": np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60)),
              "categories": rng.choice(list("abcd"), 60)}[kind]  # fmt: skip
    table = Table.read(pd.DataFrame({"x": values}), id=None)
    bins = ColumnBins.fit(table, "x", 6)
    codes = bins.codes(table)
    bits = candidate_bits(bins, codes)
    assert bits.shape == (60, candidate_count(bins))
    for place in range(bits.shape[1]):
        np.testing.assert_array_equal(read_cut(bins, 0, np.array([place])).left[codes], bits[:, place])
    seen = {tuple(column) for column in bits.T}
    assert len(seen) == bits.shape[1]  # no candidate twice


def test_a_shuffle_moves_cuts_among_cuts_and_categories_inside_their_block():
    layout = Layout(np.array([3, 2, 4, 3]), np.array([False, True, False, True]))
    tree = layout.tree(np.arange(4))
    assert tree.candidates.tolist() == [0, 1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11]
    assert (tree.cuts, tree.blocks.tolist(), tree.sent) == (7, [2, 3], 13)
    shuffle = Shuffle.draw(uniform(key_shape(50, tree)), tree)
    for order in shuffle.order:
        assert sorted(order[:7]) == list(range(7))
        blocks = [set(order[7:10]), set(order[10:])]
        assert {7, 8, 9} in blocks
        assert {10, 11, 12} in blocks
    assert len({tuple(order) for order in shuffle.order}) > 40  # a fresh order for every node


# --- what the passive party sees -------------------------------------------------------------------------------------


def test_nodes_give_a_passive_party_labels_in_the_open_form_and_nothing_on_shares(monkeypatch):
    X, y = blind_table()
    fed = fs.Federation.split(X, y, parties=2)
    model = {"n_estimators": 8, "max_depth": 3, "n_bins": 8}
    opened = watched(monkeypatch, passive, "level_products")  # what came out of the sealed boxes
    drawn = watched(monkeypatch, passive, "answer_and")
    SecureBoostClassifier(protection="coordinator", **model).fit(fed)
    numbers = np.hstack([args[3] for args, _, _ in opened]).T
    nodes = np.concatenate([args[1] for args, _, _ in drawn if len(args[1])])
    bits = np.unpackbits(nodes, axis=1, count=len(y)).astype(bool)
    high = numbers >= np.uint64(2**63)
    assert abs(node_attack(bits, y) - 0.5) < LUCK
    assert abs(node_attack(high, y) - 0.5) < LUCK
    for coins in (bits, high):  # also which share of the rows a node has
        assert abs(coins.mean() - 0.5) < 6 * 0.5 / np.sqrt(coins.size)

    spoken_of = watched(monkeypatch, open_passive, "_regrouped")
    SecureBoostClassifier(**model, protection="open").fit(fed)
    children = [rows for args, _, _ in spoken_of for rows in args[2:4] if len(rows)]
    told = np.array([np.isin(np.arange(len(y)), rows) for rows in children])
    assert node_attack(told, y) > 0.8  # the leaky twin: the attack itself works


def test_what_a_passive_party_is_sent_has_the_same_size_whatever_the_labels_are():
    X, y = blind_table(120)
    sizes = []
    for labels in (y, np.random.default_rng(5).permutation(y)):
        fed = fs.Federation.split(X, labels, parties=2)
        frame = (
            SecureBoostClassifier(protection="coordinator", n_estimators=3, max_depth=3, n_bins=6, **BARE)
            .fit(fed)
            .ledger_.frame()
        )
        mine = frame[(frame["receiver"] == "party2") & frame["operation"].str.endswith("half_sums")]
        sizes.append(mine["bytes"].tolist())
        assert set(frame.loc[frame["receiver"] == "party2", "form"]) <= {"masked", "control", "aggregate"}
    assert sizes[0] == sizes[1]
    assert len(set(sizes[0])) > 1


def test_folds_are_never_told_and_cross_validation_equals_the_open_form(monkeypatch):
    monkeypatch.setattr(blur, "WIDTH", 0.0)
    X, y = blind_table(100)
    fed = fs.Federation.split(X, y, parties=2)
    boosters = [Booster(TreeSettings(max_depth=2, min_rows=1), by_party(fed, np.arange(6)), 3, bins=6)]
    forms = [Protection(protection, 1, False, bits=30) for protection in ("coordinator", "open")]
    mark = len(fed.ledger)
    found = []
    for form in forms:
        told = TopGain(
            n_bins=6,
            n_estimators=3,
            max_depth=2,
            min_cell=1,
            min_leaf=1,
            metric="auc",
            first_tree_local=False,
            protection=form.protection,
        )
        with fed.session(*told.announcement()) as run:
            found.append(cross_validate(run, boosters, fold_rules(3, 0), form, "auc"))
    shares, plain = found
    np.testing.assert_allclose(shares, plain)
    frame = fed.ledger.since(mark).frame()
    ours = frame[frame["round"] < frame.loc[frame["form"] == "ciphertext", "round"].min()]
    assert "pseudonymous" not in set(ours["form"])


def test_prediction_tells_a_party_nothing_about_which_rows_reach_its_cuts(monkeypatch):
    X, y = blind_table()
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(protection="coordinator", n_estimators=6, max_depth=3, n_bins=8, **BARE).fit(fed)
    seen = watched(monkeypatch, predicting, "answer_and")
    chance = model.predict_proba(fed)[:, 1]
    hidden = np.unpackbits(np.concatenate([args[1] for args, _, _ in seen]), axis=1, count=len(y)).astype(bool)
    assert len(hidden) > 3
    assert abs(hidden.mean() - 0.5) < 6 * 0.5 / np.sqrt(hidden.size)
    assert abs(node_attack(hidden, y) - 0.5) < LUCK
    twin = SecureBoostClassifier(n_estimators=6, max_depth=3, n_bins=8, protection="open", **BARE).fit(fed)
    np.testing.assert_allclose(chance, twin.predict_proba(fed)[:, 1], atol=1e-9)


# --- what the dealer sees --------------------------------------------------------------------------------------------


def dealer_recovers_gradients(monkeypatch, masked: bool) -> bool:
    """The coordinator deals U, V and C: from a bare half U'(Y - V) + C it solves for Y, every row's gradient."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(16, 8))
    y = (X[:, 0] + rng.normal(size=16) > 0).astype(int)
    fed = fs.Federation.split(X, y, parties=2)
    monkeypatch.setattr(Shuffle, "draw", classmethod(lambda cls, keys, tree: cls(  # the order is no protection here
        np.tile(np.arange(tree.sent), (len(keys), 1)), tree.cuts, tree.width)))  # fmt: skip
    if not masked:
        monkeypatch.setattr(Pairs, "cancelling", lambda self, peer, purpose, number, shape: np.zeros(shape, np.uint64))
    halves = watched(monkeypatch, passive, "masked_half")
    dealt = watched(monkeypatch, hidden_growing, "level_products")
    splits = watched(monkeypatch, hidden_growing, "draw_splits")
    truth = watched(monkeypatch, label_holder, "level_products")
    booster = Booster(TreeSettings(max_depth=1, min_rows=1), by_party(fed, np.arange(8)), 1, bins=16)
    with fed.session() as run:
        grow(run, [booster], protection="coordinator", first_tree_local=False)
    level, masks, cuts, *_ = dealt[0][0]
    u = masks[16][0].matrix()[:, cuts[0].candidates]
    half = halves[0][2].values.reshape(1, -1)[0]
    equations = half - splits[0][2][0][:, 0] + dealt[0][2][0][:, 0]  # U'Y, if the half were bare
    found = solve_ring(u.T, equations)
    assert isinstance(level, Level)
    return found is not None and bool((found == truth[0][0][3][:, 0]).all())


def test_a_dealer_reads_every_gradient_from_a_bare_half_and_nothing_from_a_masked_one(monkeypatch):
    with monkeypatch.context() as leaky:
        assert dealer_recovers_gradients(leaky, masked=False)
    assert not dealer_recovers_gradients(monkeypatch, masked=True)


def test_the_coordinator_never_gets_what_it_could_unmask():
    """Hidden cuts, hidden gradients and answers travel in boxes; in the clear there are halves, totals and gains."""
    X, y = blind_table(80)
    fed = fs.Federation.split(X, y, parties=2)
    fed._link.transport = Recording(fed._link.transport)
    SecureBoostClassifier(protection="coordinator", n_estimators=2, max_depth=2, n_bins=6, **BARE).fit(fed)
    boxes, rows_wide = 0, 0
    for _, receiver, data in fed._link.transport.log:
        if receiver == "coordinator":
            leaves = list(walk(decode(data)))
            boxes += sum(isinstance(leaf, SealedBox) for leaf in leaves)
            rows_wide += sum(isinstance(leaf, np.ndarray) and 80 in leaf.shape for leaf in leaves)
    assert boxes > 6
    assert rows_wide == 0  # nothing with an entry a row is in the clear


# --- what the label holder sees --------------------------------------------------------------------------------------


def test_the_label_holder_reads_bits_of_node_rows_and_no_sums(monkeypatch):
    """It places cells by left and right of the rows of cut nodes, and not one cell by what it is sent otherwise."""
    X, y = blind_table(300)
    fed = fs.Federation.split(X, y, parties=2)
    opened = watched(monkeypatch, label_holder, "open_and")
    products = watched(monkeypatch, label_holder, "read_corrections")
    hidden = watched(monkeypatch, label_holder, "Piece")
    SecureBoostClassifier(protection="coordinator", n_estimators=6, max_depth=3, n_bins=8, **BARE).fit(fed)
    for args, _, bits in opened:  # outside the node every bit reads 0
        assert not (bits & ~args[0]).any()
    numbers = np.concatenate([part.ravel() for *_, found in products for part in found])
    cuts = hidden[0][0][2]
    for uniform_ones in (numbers[numbers > 2**32], cuts.ravel()):
        assert len(uniform_ones) > 150
        assert abs((uniform_ones >= np.uint64(2**63)).mean() - 0.5) < 6 * 0.5 / np.sqrt(len(uniform_ones))
    own = fed.simulated["party2"].table
    codes = np.stack([ColumnBins.fit(own, c, 8).codes(own) for c in own.columns], axis=1)
    bits = (cuts >= np.uint64(2**63)).T  # a guess from the hidden cuts themselves
    starts = np.cumsum([0, *[codes[:, c].max() for c in range(3)]])
    lefts = [(c, np.arange(codes[:, c].max() + 1) <= j, np.arange(300), bits[starts[c] + j]) for c in range(3)
             for j in range(codes[:, c].max())]  # fmt: skip
    assert placed_cells(codes, lefts) < mode_guess(codes) + 0.05


# --- what is refused -------------------------------------------------------------------------------------------------


def test_where_a_data_holder_runs_the_coordinator_shares_are_refused_before_anything_is_sent(monkeypatch):
    X, y = blind_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(protection="coordinator", n_estimators=1, max_depth=1, **BARE).fit(fed)
    before = fed.ledger.bytes()
    monkeypatch.setattr(fs.Federation, "neutral", property(lambda self: False), raising=False)
    for refused in (lambda: SecureBoostClassifier().fit(fed), lambda: TopGain().fit(fed)):
        with pytest.raises(ParameterError, match=r"deals or gets the results.*'open' works there.*with epsilon"):
            refused()
    assert fed.ledger.bytes() == before
    with pytest.raises(ParameterError, match="runs it, deals or gets the results"):
        model.predict(fed)
    for epsilon in (None, 3.0):  # what the refusal names works there
        found = SecureBoostClassifier(n_estimators=2, max_depth=2, protection="open", epsilon=epsilon).fit(fed)
        assert found.n_trees_ == 2
        assert found.score(fed) > 0.5


def test_a_party_that_sends_another_number_of_sums_is_named():
    X, y = blind_table(80)
    fed = fs.Federation.split(X, y, parties=2)

    def lie(delivery):
        reply = decode(delivery.data)
        if isinstance(reply.get("ok"), dict) and "values" in reply["ok"]:
            reply["ok"]["values"] = reply["ok"]["values"][:-1]
        return Delivery(encode(reply), delivery.seconds)

    fed._link.transport = Faulty(fed._link.transport, "party2", lie)
    with pytest.raises(ReplyError, match="party 'party2' sent another number of sums"):
        SecureBoostClassifier(protection="coordinator", n_estimators=2, max_depth=2).fit(fed)


# --- TopGain keeps what was asked for --------------------------------------------------------------------------------


def test_top_gain_keeps_as_many_columns_as_were_asked_for():
    X, y = blind_table(150)
    fed = fs.Federation.split(X, y, parties=2)
    found = TopGain(n_features=6, n_estimators=2, max_depth=1).fit(fed)  # two stumps cut at most two columns
    assert found.selection_.n_selected == 6
    scores = found.scores_.sort_values("rank")
    assert scores["feature"].iloc[0] in ("f0", "f1")


def test_top_gain_says_why_it_keeps_fewer():
    X, y = blind_table(100)
    X[:, 2:] = 1.0
    fed = fs.Federation.split(X, y, parties=2)
    found = TopGain(n_features=4, n_estimators=2, max_depth=2).fit(fed)
    assert found.selection_.n_selected == 2
    assert "only 2 of 6 columns have any gain" in found.details_["fewer"]
    assert any("only 2 of 6" in note for note in found.ledger_.notes)
