"""Early stopping on shares: as in the clear to the last tree, and nobody reads a loss or a held-out row's score."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from test_boost_compared import small_numbers, twin_of
from test_comparing import run

import fedsift as fs
from fedsift.core.message import decode, walk
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.compared import ending, stopping
from fedsift.models.boost.compared.growing import ComparedTrees
from fedsift.models.boost.compared.predicting import RowDealer
from fedsift.models.boost.compared.scales import HALF_CELL, Scales
from fedsift.models.boost.compared.stopping import HeldOut, begin_loss, compared, tell_stopped
from fedsift.models.boost.compared.taking_part import WORST
from fedsift.models.boost.growing_tree import Boosting
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc.ring import uniform
from fedsift.mpc.talking import Talk

EARLY = {"max_depth": 1, "learning_rate": 0.6, "min_leaf": 5, "min_cell": 1, "n_bins": 8, "validation_fraction": 0.3}


def held_out(monkeypatch):
    """Rows that the label holder holds out, once a fit has begun."""
    seen, original = [], stopping._held_out

    def watch(party, state, scales, place):
        seen.append(~party.held(Boosting).models[0].train)
        return original(party, state, scales, place)

    monkeypatch.setattr(stopping, "_held_out", watch)
    return seen


def fitted(monkeypatch, X, y, trees, patience, *, number=False, parties=2):
    seen = held_out(monkeypatch)
    fed = fs.Federation.split(X, y, parties=parties, task="regression" if number else "classification")
    made = SecureBoostRegressor if number else SecureBoostClassifier
    model = made(n_estimators=trees, early_stopping_rounds=patience, first_tree_local=False, **EARLY).fit(fed)
    return fed, model, seen[0]


TREE = TreeSettings(max_depth=1, learning_rate=0.6, min_rows=5)


@pytest.mark.parametrize(
    ("number", "seed", "patience", "trees", "parties"), [(False, 2, 1, 8, 2), (False, 5, 2, 4, 3), (True, 3, 1, 8, 2)]
)
def test_a_model_stops_where_its_twin_does_and_is_the_same(monkeypatch, number, seed, patience, trees, parties):
    X, y = small_numbers(90, 4, seed, number)
    if not number:
        y = np.where(np.random.default_rng(seed).random(90) < 0.3, 1 - y, y)
    fed, model, held = fitted(monkeypatch, X, y, trees, patience, number=number, parties=parties)
    twin = twin_of(fed, X, y, TREE, number=number, learnt=~held)
    grown, kept = twin.grow_until(held, trees, patience)
    assert (model.n_trees_, model.best_iteration_, model.validation_curve_) == (kept, kept - 1, [])
    told = model.ledger_.frame()
    assert (told["operation"] == "boost.finish_tree").sum() == 2 * parties * grown
    scores = np.ldexp(twin.scores.astype(float), -twin.scales.score)
    if number:
        np.testing.assert_allclose(model.predict(fed), y[~held].mean() + twin.size * scores, atol=1e-9)
    else:
        np.testing.assert_allclose(model.predict_proba(fed)[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-9)
    assert model.feature_importances_["splits"].sum() <= kept


def test_classes_stop_one_by_one(monkeypatch, tmp_path):
    X, number = small_numbers(90, 4, 4, number=True)
    y = np.digitize(number + np.random.default_rng(1).normal(0, 2, 90), np.quantile(number, [0.3, 0.6]))
    fed, model, held = fitted(monkeypatch, X, y, 6, 1)
    scores, kept = [], []
    for k in range(3):
        twin = twin_of(fed, X, (y == k).astype(int), TREE, learnt=~held)
        kept.append(twin.grow_until(held, 6, 1)[1])
        scores.append(twin.scales.values(twin.scores.astype(np.int16).view(np.uint16)))
    assert model.n_trees_ == sum(kept)
    assert model.best_iteration_ == max(kept) - 1
    assert len(set(kept)) > 1
    chance = 1 / (1 + np.exp(-np.stack(scores, axis=1)))
    found = model.predict_proba(fed)
    np.testing.assert_allclose(found, chance / chance.sum(axis=1, keepdims=True), atol=1e-9)
    model.save(tmp_path / "kept")
    np.testing.assert_array_equal(SecureBoostClassifier.load(tmp_path / "kept", fed).predict_proba(fed), found)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_what_is_opened_follows_from_the_losses_in_the_clear(models, rows, patience, seed, logistic):
    rng = np.random.default_rng(seed)
    scales, kind = Scales.of(logistic, rows, TreeSettings()), np.uint16 if logistic else np.uint64
    held = rng.random((models, rows)) < 0.5
    values = rng.integers(0, 2, (models, rows)).astype(float) if logistic else rng.normal(0, 2, (models, rows))
    best, seen = [WORST] * models, []
    shares = [np.full(models, WORST, np.uint64), np.zeros(models, np.uint64)]
    history = []
    for tree in range(4):
        scores = rng.integers(-3000, 3000, (models, rows))
        words = scores.astype(np.int64).astype(kind)
        mask = uniform((models, rows)).astype(kind)
        hidden = HeldOut.of(scales, held, values)
        grown = np.full(models, tree == 3)
        parts = [
            (words - mask, hidden, shares[0], [bits[0] for bits in seen]),
            (mask, HeldOut.nothing(words), shares[1], [bits[1] for bits in seen]),
        ]

        def told(source, share, grown=grown):
            hidden, held, best, bits = share
            return compared(source, scales, hidden, held, best, bits[: patience - 1], patience, grown)

        one, two = run(told, *parts)
        if logistic:
            turned = np.where(values > 0.5, -scores, scores)
            loss = [int(scales.losses.at((t[h] + HALF_CELL).astype(np.uint64)).sum()) for t, h in zip(turned, held)]
        else:
            target = np.rint(np.ldexp(np.clip(values, -8, 8), scales.score)).astype(np.int64)
            loss = [sum(int(v) ** 2 for v in (s - t)[h]) for s, t, h in zip(scores, target, held)]
        better = [a < b for a, b in zip(loss, best)]
        best = [min(a, b) for a, b in zip(loss, best)]
        history.append(better)
        assert (one.best + two.best).tolist() == best
        assert np.unpackbits((one.better ^ two.better)[0], count=models).astype(bool).tolist() == better
        np.testing.assert_array_equal(one.back, two.back)
        for model, back in enumerate(one.back.tolist()):
            was = [each[model] for each in history[::-1]]
            since = was.index(True)
            ends = since >= patience
            assert back == (patience if ends else since if tree == 3 else -1)
        shares, seen = [one.best, two.best], [(one.better, two.better), *seen]
        if (one.back >= 0).any():
            break


# --- who learns what -------------------------------------------------------------------------------------------------


def test_the_coordinator_hears_how_many_trees_a_model_has_and_nothing_of_a_loss(monkeypatch):
    X, y = small_numbers(90, 4, 2)
    fed = fs.Federation.split(X, y, parties=2)
    fed._link.transport = Recording(fed._link.transport)
    model = SecureBoostClassifier(n_estimators=3, early_stopping_rounds=2, first_tree_local=False, **EARLY).fit(fed)
    told = [decode(data) for sender, receiver, data in fed._link.transport.log if receiver == "coordinator"]
    kept = [reply["ok"] for reply in told if isinstance(reply.get("ok"), dict) and "kept" in reply["ok"]]
    assert len(kept) == 2 * (model.n_trees_ + 2 if model.n_trees_ < 2 else 3)  # both parties, after every tree
    assert [each["kept"].tolist() for each in kept if len(each["kept"])] == [[model.n_trees_]] * 2
    for reply in told:
        assert not any(isinstance(leaf, np.ndarray) and 90 in leaf.shape for leaf in walk(reply))
    frame = model.ledger_.frame()
    assert "boost.show_scores" not in set(frame["operation"])
    assert "boost.hear_scores" not in set(frame["operation"])


def test_what_the_parties_hear_while_losses_are_compared_is_uniform(monkeypatch):
    """All rows, all held-out ones with the same label and score: every number and bit of it is a coin all the same."""
    heard = []
    original = RowDealer.run

    def watch(self, fed, begin, program, answers=None, **arguments):
        if begin is begin_loss:
            boxes = []
            with monkeypatch.context() as inside:
                hear = Talk.hear
                inside.setattr(
                    Talk, "hear", lambda talk, peer, theirs: boxes.append(theirs) or hear(talk, peer, theirs)
                )
                result = original(self, fed, begin, program, answers, **arguments)
            heard.append(boxes)
            return result
        return original(self, fed, begin, program, answers, **arguments)

    monkeypatch.setattr(RowDealer, "run", watch)
    X = np.random.default_rng(0).normal(size=(1500, 2))
    y = (np.arange(1500) % 5 == 0).astype(int)
    options = {**EARLY, "n_estimators": 1, "early_stopping_rounds": 2, "min_leaf": 700}
    SecureBoostClassifier(**options).fit(fs.Federation.split(X, y, parties=2))
    wide = [part for parts in heard[0] for part in parts if part.size >= 180]
    assert len(wide) > 10
    for part in wide:
        bits = np.unpackbits(np.ascontiguousarray(part).view(np.uint8))
        spread = 6 * 0.5 / np.sqrt(bits.size)
        assert abs(bits.mean() - 0.5) < spread, part.dtype


def test_scores_of_rows_that_a_model_stops_by_are_shown_to_nobody(monkeypatch):
    """The coordinator asks for the step by which held-out rows of a cross-validation are scored."""
    original = stopping.compare_losses

    def asking(fed, rows, *more):
        told = original(fed, rows, *more)
        with pytest.raises(OperationRefused, match="nobody reads their scores"):
            fed.ask(ending.begin_scores, to=fed.parties, dealt=[])
        return told

    monkeypatch.setattr(stopping, "compare_losses", asking)
    X, y = small_numbers(60, 4, 2)
    model = SecureBoostClassifier(n_estimators=1, early_stopping_rounds=1, **EARLY)
    assert model.fit(fs.Federation.split(X, y, parties=2)).n_trees_ == 1


@pytest.mark.parametrize("again", [begin_loss, tell_stopped])
def test_a_tree_s_loss_is_compared_once(monkeypatch, again):
    original = stopping.compare_losses

    def asking(fed, rows, *more):
        told = original(fed, rows, *more)
        given = {"dealt": []} if again is begin_loss else {}
        with pytest.raises(OperationRefused, match=r"no new tree|not been compared"):
            fed.ask(again, to=fed.active, **given)
        return told

    monkeypatch.setattr(stopping, "compare_losses", asking)
    X, y = small_numbers(60, 4, 2)
    SecureBoostClassifier(n_estimators=1, early_stopping_rounds=1, **EARLY).fit(fs.Federation.split(X, y, parties=2))


def test_parties_that_do_not_agree_are_named(monkeypatch):
    X, y = small_numbers(60, 4, 2)
    fed = fs.Federation.split(X, y, parties=2)
    ask = fs.Federation.ask

    def lying(self, function, **given):
        reply = ask(self, function, **given)
        if function is tell_stopped:
            reply["party2"]["kept"] = reply["party2"]["kept"] + 1
        return reply

    monkeypatch.setattr(fs.Federation, "ask", lying)
    with pytest.raises(ReplyError, match=r"party2.*do not agree"):
        SecureBoostClassifier(n_estimators=1, early_stopping_rounds=1, **EARLY).fit(fed)


def test_models_of_a_group_are_not_stopped_at_different_ages(monkeypatch):
    """The coordinator lets one class wait for a round: the others have a loss more to look back at."""
    original = {name: getattr(ComparedTrees, name) for name in ("grow", "stop")}
    trees_of_round = []

    def fewer(self, trees, columns, sampled):
        trees_of_round.append(len(trees) - (len(trees_of_round) == 1))
        here = {name: chosen[: trees_of_round[-1]] for name, chosen in columns.items()}
        original["grow"](self, trees[: trees_of_round[-1]], here, sampled)

    monkeypatch.setattr(ComparedTrees, "grow", fewer)
    monkeypatch.setattr(ComparedTrees, "stop", lambda self, trees, *more: original["stop"](
        self, trees[: trees_of_round[-1]], *more
    ))  # fmt: skip
    X, number = small_numbers(90, 4, 4, number=True)
    y = np.digitize(number, np.quantile(number, [0.3, 0.6]))
    with pytest.raises(OperationRefused, match="as many trees each"):
        SecureBoostClassifier(n_estimators=4, early_stopping_rounds=4, **EARLY).fit(
            fs.Federation.split(X, y, parties=2)
        )
    assert trees_of_round == [3, 2, 3]
