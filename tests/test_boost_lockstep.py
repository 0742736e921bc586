"""Models that grow together at level "all" are to the last bit what they are one by one, and nothing is drawn twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hostile.coordinator import Hostile
from test_boost_hidden import watched

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.errors import OperationRefused
from fedsift.models.boost.compared import growing, taking_part, together
from fedsift.models.boost.compared.scales import Scales
from fedsift.models.boost.compared.state import Shares
from fedsift.models.boost.compared.together import Sized, few_enough, fits, groups
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.plan import fold_rules
from fedsift.models.boost.results import held_out_scores
from fedsift.models.boost.scoring import Protection, held_out, uses
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc import dealer


def table(rows: int = 90, task: str = "classes") -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, holes and a category; a column of every party matters."""
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.normal(size=(rows, 5)).round(1), columns=list("abcde"))
    X.loc[::9, "b"] = np.nan
    X.insert(3, "kind", rng.choice(list("uvw"), rows))
    signal = X["a"] + X["c"] + (X["kind"] == "v") - X["e"] + rng.normal(0, 0.4, rows)
    return X, signal.to_numpy() if task == "number" else np.digitize(signal, [0] if task == "classes" else [-1, 1])


def unlike(fed: Federation) -> list[Booster]:
    """Boosters that differ in all that may differ: depth, bins, columns, rows, trees, penalties."""
    every = {name: np.arange(count) for name, count in fed.n_columns.items()}
    some = {name: positions[: 1 if name == fed.active else 0] for name, positions in every.items()}
    folds = fold_rules(2, 0)
    deep, flat = TreeSettings(max_depth=3, min_rows=3), TreeSettings(max_depth=1, min_rows=6, reg_lambda=9.0)
    middle = TreeSettings(max_depth=2, learning_rate=0.7, gamma=0.5, min_rows=2, min_child_weight=2.0)
    return [
        Booster(flat, every, 3, 4, rows=folds[0]),
        Booster(deep, every, 2, 6, rows=folds[0]),
        Booster(middle, some, 1, 4, rows=folds[1]),
        Booster(middle, every, 2, 6, rows=folds[1], subsample=0.7, colsample_bytree=0.6, seed=3),
        Booster(deep, every, 2, 6, rows=folds[0]),
    ]


def one_by_one(monkeypatch) -> None:
    monkeypatch.setattr(growing, "groups", lambda rows, models: [[m] for m in sorted(models, key=lambda m: m.number)])


def opened(states: list[Shares]) -> dict[int, object]:
    """Of every model the cuts of all parties, the leaves and the gains: both shares together."""
    holder, *others = states
    found: dict[int, object] = {}
    for number, model in holder.models.items():
        other = others[0].models[number]
        leaves = [(np.array(a) ^ np.array(b)).tolist() for a, b in zip(model.leaves, other.leaves)]
        gains = [(a + b).tolist() for a, b in zip(model.gains, other.gains)]
        found[number] = [state.models[number].columns for state in states], leaves, gains
    return found


def grown(monkeypatch, fed: Federation, boosters: list[Booster], scored: bool = False) -> object:
    """What all models are, opened; or the scores of their held-out rows."""
    seen = watched(monkeypatch, Shares, "begin_rows")
    with fed.session() as run:
        cuts = grow(run, boosters, protection="all", first_tree_local=False, scored=scored)
        if scored:
            return run.ask(held_out_scores, to=run.active, metric="auto")
    states = {args[1].name: args[0] for args, _, _ in seen}
    return opened([states[name] for name in fed.parties]), sorted(cuts)


@pytest.mark.parametrize(("parties", "task"), [(2, "classes"), (3, "number"), (3, "several")])
def test_models_grow_together_as_they_do_one_after_the_other(monkeypatch, parties, task):
    X, y = table(task=task)
    fed = fs.Federation.split(X, y, parties=parties, task="regression" if task == "number" else "classification")
    boosters = unlike(fed)[:4]
    if task == "several":
        boosters = [replace(booster, n_estimators=1) for booster in boosters[2:]]
    formed = watched(monkeypatch, growing, "groups")
    found = [grown(monkeypatch, fed, boosters, scored) for scored in ((False, True) if task == "classes" else (False,))]
    assert [len(group) for group in formed[0][2]] == [len(boosters) * (3 if task == "several" else 1)]
    one_by_one(monkeypatch)
    assert grown(monkeypatch, fed, boosters) == found[0]
    if task == "classes":
        assert grown(monkeypatch, fed, boosters, True) == found[1]
    columns = [column for of, _, _ in found[0][0].values() for own in of[1:] for column in own]
    assert any(column >= 0 for column in columns)  # the other parties' columns are cut too


def test_equal_models_of_a_group_are_equal_and_draw_nothing_in_common(monkeypatch):
    """No word of a mask is drawn twice by anybody, between models neither: of 10^5 words of 64 bits none repeats."""
    X, y = table(40)
    fed = fs.Federation.split(X, y, parties=3)
    booster = unlike(fed)[1]
    drawn: dict[int, list[np.ndarray]] = {}
    for name in ("draw", "keep", "bits"):
        original = getattr(dealer.Dealt, name)

        def spy(self, *args, original=original):
            made = original(self, *args)
            whole = made.reshape(-1).view(np.uint8)
            words = whole[: len(whole) // 8 * 8].view(np.uint64)
            drawn.setdefault(id(self), []).append(words)
            spy.alive.append(self)
            return made

        spy.alive = []
        monkeypatch.setattr(dealer.Dealt, name, spy)
    with fed.session() as run:
        grow(run, [booster, booster, booster], protection="all", scored=True)
        scores = run.ask(held_out_scores, to=run.active, metric="auto")
    assert len(set(scores)) == 1
    assert len(drawn) == 2 * (3 + 1) + 1  # the parties, what those without labels have in common at each; the dealer
    sizes = []
    for parts in drawn.values():
        words = np.concatenate(parts)
        sizes.append(len(words))
        assert len(np.unique(words)) == len(words)
    assert max(sizes) > 50_000


def test_shares_of_equal_models_are_different_numbers(monkeypatch):
    """What the label holder hears of two models of the same rows and columns is unrelated: their shares differ."""
    X, y = table(60)
    fed = fs.Federation.split(X, y, parties=2)
    booster = unlike(fed)[1]
    seen = watched(monkeypatch, Shares, "begin_rows")
    with fed.session() as run:
        grow(run, [booster, booster], protection="all")
    for state in {id(args[0]): args[0] for args, _, _ in seen}.values():
        first, second = state.models.values()
        assert first.columns == second.columns
        assert (np.array(first.leaves) != np.array(second.leaves)).mean() > 0.9
        assert (state.scores[0] != state.scores[1]).mean() > 0.9


def test_messages_of_a_group_are_as_many_as_of_its_deepest_model():
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    deep, counts = replace(unlike(fed)[1], n_estimators=1), []
    assert fed.task == "classification"  # asked once
    for boosters in ([deep], [deep] * 4):
        before = len(fed.ledger.entries)
        with fed.session() as run:
            grow(run, boosters, protection="all", scored=True)
        counts.append(len(fed.ledger.entries) - before)
    assert counts[0] == counts[1]


def test_a_large_group_is_parted_by_public_sizes_alone(monkeypatch):
    scales = Scales.of(True, 1000, TreeSettings())
    models = [Sized(number, 3, scales, 3 + number % 2, 40) for number in range(9)]
    assert [[m.number for m in group] for group in groups(1000, models)] == [[1, 3, 5, 7, 0, 2, 4, 6, 8]]
    other = Scales.of(True, 1000, TreeSettings(reg_lambda=5000.0))
    assert {len(group) for group in groups(1000, [*models, Sized(9, 3, other, 3, 40)])} == {9, 1}
    monkeypatch.setattr(together, "_MOST_NUMBERS", 9000)
    assert [len(group) for group in groups(1000, models)] == [2, 2, 4, 1]  # 4000 numbers each, and 2000
    assert fits(10**9, [12])  # one model grows whatever its size
    monkeypatch.setattr(together, "_MOST_CANDIDATES", 500)
    assert [len(group) for group in groups(1000, models)] == [1, 1, 1, 2, 3, 1]  # 320 candidates each, and 160
    assert few_enough([(10**9, 12)])
    assert not few_enough([(251, 1), (250, 1)])


def test_groups_in_parts_give_the_same(monkeypatch):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    boosters = [replace(booster, n_estimators=1) for booster in unlike(fed)[:3]]
    protection = Protection("all", 2, False)
    whole = held_out(fed, boosters, protection, "auto"), uses(fed, boosters, protection, "gain")
    monkeypatch.setattr(together, "_MOST_NUMBERS", 300)
    parts = held_out(fed, boosters, protection, "auto"), uses(fed, boosters, protection, "gain")
    np.testing.assert_array_equal(whole[0], parts[0])
    for first, second in zip(whole[1], parts[1]):
        for name, gains in first.items():
            np.testing.assert_array_equal(gains, second[name])


def test_scored_models_have_no_gain_that_anybody_reads():
    """Cross-validation opens scores to the label holder, and nothing to the coordinator."""
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    with fed.session() as run:
        assert grow(run, unlike(fed), protection="all", scored=True) == []
    asked = set(fed.ledger.frame()["operation"])
    assert "boost.show_scores" in asked
    assert not asked & {"boost.begin_gains", "boost.gain_halves"}


# --- what a site refuses ---------------------------------------------------------------------------------------------


class Changed:
    """Requests of one operation with something else in them."""

    def __init__(self, monkeypatch, operation, **changes):
        original = Federation.ask

        def ask(fed, asked, /, **given):
            if asked is operation:
                told = {name: change(given[name]) for name, change in changes.items()}
                given |= told
            return original(fed, asked, **given)

        monkeypatch.setattr(Federation, "ask", ask)


def twice(values):
    return [*values, values[0]]


@pytest.mark.parametrize(
    ("operation", "changes", "says"),
    [
        ("expect_models", {"models": twice, "plans": twice}, "each model once"),
        ("expect_models", {"models": twice}, "each model once"),
        ("expect_models", {"plans": lambda plans: plans[::-1]}, "does not grow here|other trees"),
        ("expect_models", {"models": lambda models: [models[0] + 10, *models[1:]]}, "does not grow here"),
        ("expect_models", {"models": lambda models: models * 900, "plans": lambda p: p * 900}, "4,096"),
        ("expect_models", {"models": lambda models: [], "plans": lambda plans: []}, "same units"),
        ("expect_round", {"trees": lambda trees: trees[::-1], "columns": lambda c: flipped(c)}, "deepest first"),
        ("expect_round", {"trees": lambda trees: [], "columns": lambda c: {key: [] for key in c}}, "deepest first"),
        ("expect_round", {"trees": lambda trees: [trees[0], [*trees[0]]]}, "deepest first|missing"),
        ("expect_round", {"trees": lambda trees: [[9, *trees[0][1:]], *trees[1:]]}, "other trees"),
        ("expect_round", {"trees": lambda trees: [[*trees[0][:3], 2], *trees[1:]]}, "other trees"),
        ("expect_round", {"trees": lambda trees: [[0, 6, 9, 1], *trees[1:]]}, "other trees"),
        ("expect_round", {"columns": lambda c: {name: parts[:-1] for name, parts in c.items()}}, "missing"),
        ("expect_round", {"columns": lambda c: {name: [p + 50 for p in parts] for name, parts in c.items()}}, "range"),
        ("expect_round", {"columns": lambda c: {}}, "missing"),
    ],
)
def test_a_group_or_a_round_that_is_none_is_refused(monkeypatch, operation, changes, says):
    X, y = table(40)
    fed = fs.Federation.split(X, y, parties=2)
    Changed(monkeypatch, getattr(taking_part, operation), **changes)
    with fed.session() as run, pytest.raises(OperationRefused, match=says):
        grow(run, unlike(fed), protection="all", first_tree_local=False)


def flipped(columns):
    return {name: parts[::-1] for name, parts in columns.items()}


def test_a_group_beyond_what_memory_is_for_is_refused(monkeypatch):
    X, y = table(40)
    fed = fs.Federation.split(X, y, parties=2)
    every = watched(monkeypatch, growing, "groups")
    for bound, operation in (("_MOST_NUMBERS", "expect_models"), ("_MOST_CANDIDATES", "expect_round")):
        with monkeypatch.context() as patch, fed.session() as run:
            patch.setattr(growing, "groups", lambda rows, models: [list(models)[1:2] * 1 + list(models)[4:5]])
            patch.setattr(together, bound, 10)
            with pytest.raises(OperationRefused, match=f"{operation}.*more .* than may grow together"):
                grow(run, unlike(fed), protection="all", first_tree_local=False)
    assert not every


def test_a_second_round_before_the_first_has_ended_and_a_second_group_are_refused(monkeypatch):
    X, y = table(40)
    fed = fs.Federation.split(X, y, parties=2)
    boosters = unlike(fed)[1:2]

    def again(operation):
        original = Federation.ask

        def ask(fed, asked, /, **given):
            if asked is operation:
                original(fed, asked, **given)
            return original(fed, asked, **given)

        return ask

    for operation, says in (
        (taking_part.expect_round, "deepest first"),
        (taking_part.expect_models, "each model once"),
    ):
        with monkeypatch.context() as patch, fed.session() as run:
            patch.setattr(Federation, "ask", again(operation))
            with pytest.raises(OperationRefused, match=says):
                grow(run, boosters, protection="all")


def test_gains_are_opened_once_and_when_all_trees_are_grown(monkeypatch):
    """After every tree they would be the gains of single cuts; a model that was scored has none to open."""
    X, y = table(40)
    fed = fs.Federation.split(X, y, parties=2)
    booster, original = replace(unlike(fed)[1], n_estimators=2), growing.ComparedTrees.grow

    def early(trees, *given):
        original(trees, *given)
        trees.uses(trees.group[0], 1)

    with monkeypatch.context() as patch, fed.session() as run:
        patch.setattr(growing.ComparedTrees, "grow", early)
        with pytest.raises(OperationRefused, match="when all trees are grown"):
            grow(run, [booster], protection="all")
    straight = growing.ComparedTrees.uses
    for again in ("uses", "show_scores"):
        first = getattr(growing.ComparedTrees, again)

        def twice_asked(trees, *given, first=first):
            first(trees, *given)
            return straight(trees, trees.group[0], 1)

        with monkeypatch.context() as patch, fed.session() as run:
            patch.setattr(growing.ComparedTrees, again, twice_asked)
            with pytest.raises(OperationRefused, match="summed once"):
                grow(run, [replace(booster, n_estimators=1)], protection="all", scored=again == "show_scores")


def test_more_models_than_the_job_has_are_refused():
    """A site with rules of its own: what an accepted job of TopGain grows, it grows; other plans not."""
    method = fs.TopGain(n_features=2, n_estimators=2, max_depth=2, protection="all")
    hostile = Hostile()
    with hostile.aligned().session(*method.announcement()) as run:
        columns = {name: np.arange(count) for name, count in run.n_columns.items()}
        booster = Booster(TreeSettings(max_depth=2, min_rows=10), columns, 2, bins=16)
        deeper = replace(booster, settings=replace(booster.settings, max_depth=3))
        with pytest.raises(OperationRefused, match="accepted job"):
            grow(run, [booster, deeper], protection="all")
