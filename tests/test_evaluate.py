"""Evaluation must not flatter: no test row steers selection, noise scores as noise, and measures are what they say."""

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk
from sklearn.linear_model import LogisticRegression

import fedsift as fs
from fedsift.core.operation import Array
from fedsift.core.party import Party
from fedsift.core.transports.base import Transport
from fedsift.errors import ParameterError
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.pooled import NOTE, folds_of
from fedsift.evaluate.result import ALL
from fedsift.evaluate.scoring import Columns, Preparation, jaccard, kuncheva
from fedsift.models.metrics import auc, measure, one_minus_rae
from fedsift.select.base import Outcome, Selector

fs.register_plugin(__name__)


@fs.operation("test_evaluate.first_column", discloses="plain", about="first column, for the test", reply=Array("f"))
def first_column(party):
    return party.table.values(party.columns[0])


@fs.operation(
    "test_evaluate.correlations", discloses="plain", about="correlation with the label, for the test", reply=Array("f")
)
def correlations(party, *, labels):
    values = party.table.matrix(party.columns)
    return np.abs(np.nan_to_num(np.corrcoef(values.T, labels)[-1, :-1]))


@fs.operation("test_evaluate.open_labels", discloses="plain", about="the label, for the test", reply=Array("f"))
def open_labels(party, *, task):
    return party.labels(task=task).values


class Correlation(Selector):
    """Plain filter: quick, and very ready to overfit when it sees the test rows."""

    leaks = "everything: for tests"

    def __init__(self, n_features=3, random_state=0):
        self.n_features = n_features
        self.random_state = random_state

    def _select(self, fed):
        labels = fed.ask(open_labels, to=fed.active, task=fed._task)
        scores = fed.ask(correlations, to=fed.parties, labels=labels)
        return Outcome.best(scores, self.n_features, None)


class Spy(Selector):
    """Keeps everything and remembers what it was shown."""

    seen: list = []

    def __init__(self):
        pass

    def _select(self, fed):
        shown = fed.ask(first_column, to=fed.parties)
        Spy.seen.append({"rows": fed.n_rows, "ids": shown})
        keep = {name: np.ones(n, dtype=bool) for name, n in fed.n_columns.items()}
        return Outcome({name: np.ones(n) for name, n in fed.n_columns.items()}, keep)


class Nothing(Selector):
    def __init__(self):
        pass

    def _select(self, fed):
        columns = fed.n_columns
        return Outcome({p: np.zeros(n) for p, n in columns.items()}, {p: np.zeros(n, bool) for p, n in columns.items()})


def federation(rows=90, columns=8, seed=0, **options):
    generator = np.random.default_rng(seed)
    X = pd.DataFrame(generator.normal(size=(rows, columns)), columns=[f"c{i}" for i in range(columns)])
    y = (X["c0"] + X["c5"] + 0.3 * generator.normal(size=rows) > 0).astype(int)
    return fs.Federation.split(X, y, parties=2, random_state=seed, **options)


# -- leakage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, 0.7])
def test_selector_sees_training_rows_only(cv):
    rows = 60
    X = pd.DataFrame({"id1": np.arange(rows, dtype=float), "id2": np.arange(rows) + 0.5})
    fed = fs.Federation.split(X, np.arange(rows) % 2, parties=2, random_state=0)
    Spy.seen = []
    evaluate(fed, Spy(), cv=cv, model="knn", pooled=True, nulls=False)
    folds = 3 if cv == 3 else 1
    assert len(Spy.seen) == folds
    unseen = [set(range(rows)) - set(np.floor(next(iter(look["ids"].values()))).astype(int)) for look in Spy.seen]
    if cv == 3:
        assert set.union(*unseen) == set(range(rows)), "the folds cover every row once"
        assert sum(map(len, unseen)) == rows
    for look, rest in zip(Spy.seen, unseen):
        one, two = look["ids"].values()
        np.testing.assert_array_equal(np.floor(one), np.floor(two))  # the same rows at both parties
        assert look["rows"] == rows - len(rest)
        assert sum(1 for i in rest if i % 2) == len(rest) / 2  # drawn within each class


def test_pure_noise_scores_as_noise_where_selection_outside_the_folds_would_shine():
    generator = np.random.default_rng(1)
    X, y = generator.normal(size=(80, 400)), np.tile([0, 1], 40)
    fed = fs.Federation.split(X, y, parties=2, random_state=0)
    honest = evaluate(fed, Correlation(10), model="linear", cv=5, pooled=True, nulls=False, metrics="accuracy").frame()
    outside = Correlation(10).fit(fed).transform(fed)
    inflated = evaluate(
        outside, fs.AllFeatures(), model="linear", cv=5, pooled=True, nulls=False, metrics="accuracy"
    ).frame()
    assert abs(honest["accuracy"][0] - 0.5) < 0.12
    assert inflated["accuracy"][0] > 0.75


def test_preparation_learns_nothing_from_test_rows():
    def columns(numbers, texts):
        return Columns(np.array(numbers)[:, None], ("n",), np.array(texts, dtype=object)[:, None], ("t",))

    train = columns([0.0, 2.0, 4.0, np.nan], ["a", "b", None, "a"])
    prepared = Preparation().fit(train)
    other = prepared.transform(columns([np.nan, 2.0, 1e9], ["a", "never seen", None]))
    assert other[0, 0] == pytest.approx(0.0), "missing takes the training median, then the training mean goes off"
    assert other[2, 0] > 1e8, "a wild test value is not scaled away"
    assert other.shape == (3, 4)
    np.testing.assert_array_equal(other[1, 1:], 0)
    np.testing.assert_array_equal(other[2, 1:], [1, 0, 0])  # "(missing)" sorts first


# -- what stands beside it -------------------------------------------------------------------------------------------


def test_nulls_stand_beside_each_method_with_the_same_number_of_columns():
    fed = federation()
    methods = {"two": Correlation(2), "deux": Correlation(2), "five": Correlation(5)}
    result = evaluate(fed, methods, model="linear", cv=3, pooled=True)
    frame = result.frame().set_index("method")
    assert list(frame.index) == ["two", "deux", "five", ALL, "2 random columns", "5 random columns"]
    assert frame["n_features"].tolist() == [2, 2, 5, 8, 2, 5]
    assert frame["null"].tolist() == [False] * 3 + [True] * 3
    assert result.null_of("deux") == "2 random columns"
    assert frame.loc["two", "accuracy"] > 0.85 > frame.loc["2 random columns", "accuracy"]
    assert frame.loc["two", "bytes"] > 0 == frame.loc[ALL, "bytes"]
    assert frame.loc["two", "kuncheva"] == frame.loc["two", "jaccard"] == 1.0
    assert NOTE in fed.ledger.notes
    assert "two" in str(result)
    assert "two" in result._repr_html_()


def test_same_seed_same_scores_and_repeats_draw_new_folds():
    first, again = (
        evaluate(federation(), Correlation(2), cv=3, repeats=2, model="knn", pooled=True).frame() for _ in range(2)
    )
    timeless = [column for column in first.columns if column != "seconds"]
    pd.testing.assert_frame_equal(first[timeless], again[timeless])
    rows = evaluate(federation(), Correlation(2), cv=3, repeats=2, model="knn", pooled=True, nulls=False).rows
    assert [(row["repeat"], row["fold"]) for row in rows] == [(r, f) for r in range(2) for f in range(3)]
    assert [r["auc"] for r in rows[:3]] != [r["auc"] for r in rows[3:]]


def test_a_selector_that_keeps_nothing_scores_like_a_guess():
    frame = evaluate(federation(), Nothing(), cv=3, model="svm", pooled=True).frame().set_index("method")
    assert frame.loc["Nothing", "n_features"] == 0
    assert frame.loc["Nothing", "auc"] == 0.5
    assert np.isnan(frame.loc["Nothing", "kuncheva"])


def test_categories_gaps_and_several_classes_are_scored():
    generator = np.random.default_rng(3)
    word = generator.choice(["red", "green", "blue"], size=90)
    X = pd.DataFrame({"word": word, "gap": np.where(generator.random(90) < 0.3, np.nan, 1.0), "joy": word == "red"})
    X.loc[::10, "word"] = None
    fed = fs.Federation.split(X, word, parties=2, random_state=0)
    frame = evaluate(fed, fs.AllFeatures(), cv=3, model="linear", pooled=True, nulls=False).frame()
    assert frame["accuracy"][0] > 0.85
    assert frame["auc"][0] > 0.9


def test_regression_and_horizontal_parties_are_scored():
    generator = np.random.default_rng(4)
    X = pd.DataFrame(generator.normal(size=(120, 4)), columns=list("abcd"))
    X["t"] = generator.choice(["u", "v"], size=120)
    y = 3 * X["a"] + generator.normal(size=120) * 0.1
    fed = fs.Federation.split(X, y, parties=3, partition="horizontal", random_state=0)
    result = evaluate(fed, fs.AllFeatures(), cv=4, model="linear", pooled=True)
    assert result.metrics == ("r2", "1-rae")
    assert result.n_features == 5
    assert result.frame()["r2"].min() > 0.98
    assert sum(size.rows for size in fed.sizes().values()) == result.settings["rows"] == 120


def test_private_names_stay_out_of_the_records():
    sites = federation()._link.transport.sites
    fed = fs.Federation(
        fs.Federation.split.__globals__["InProcess"](sites), list(sites), active="party1", names="private"
    )
    row = evaluate(fed, Correlation(2), cv=2, model="knn", pooled=True, nulls=False).rows[0]
    assert all(".column " in name for name in row["features"])


# -- measures against oracles ----------------------------------------------------------------------------------------


def test_measures_equal_hand_computed_values():
    y, p = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    assert measure("accuracy", y, p) == pytest.approx(4 / 6)
    assert measure("f1_micro", y, p) == pytest.approx(4 / 6)
    # class 0: P 1/2 R 1/2; class 1: P 2/3 R 1; class 2: P 1 R 1/2
    assert measure("f1_macro", y, p) == pytest.approx((0.5 + 0.8 + 2 / 3) / 3)
    t, q = np.array([1.0, 2.0, 3.0, 6.0]), np.array([1.0, 2.0, 4.0, 4.0])
    assert one_minus_rae(t, q) == pytest.approx(1 - 3 / 6)  # mean 3: |-2| + |-1| + 0 + 3 = 6
    assert measure("r2", t, q) == pytest.approx(1 - 5 / 14)
    assert np.isnan(one_minus_rae(np.ones(3), np.zeros(3)))


def test_auc_of_two_and_of_more_classes():
    y = np.array([0, 0, 1, 1])
    assert auc(y, np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 1])) == pytest.approx(0.75)
    assert np.isnan(auc(np.zeros(3), np.ones(3), np.array([0, 1])))
    generator = np.random.default_rng(0)
    labels, scores = generator.integers(0, 3, 60), generator.dirichlet(np.ones(3), 60)
    expected = sk.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert auc(labels, scores, np.arange(3)) == pytest.approx(expected)
    unknown = np.where(labels == 2, 9, labels)  # class 9 was not in the training rows
    first = [sk.roc_auc_score(unknown == k, scores[:, k]) for k in (0, 1)]
    assert auc(unknown, scores, np.arange(3)) == pytest.approx(np.mean([*first, 0.5]))


def test_cross_validation_equals_scikit_learn_by_hand():
    fed = federation()
    result = evaluate(fed, fs.AllFeatures(), cv=3, model=LogisticRegression(C=0.1), pooled=True, nulls=False)
    site = fed._link.transport.sites
    X = np.hstack([site[name].table.matrix() for name in fed.parties])
    y = np.asarray(site["party1"].table.label)
    fold = folds_of(Party(site["party1"], ""), 3, True, 0, "classification")
    for k, row in enumerate(result.rows):
        train, test = fold != k, fold == k
        mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
        model = LogisticRegression(C=0.1).fit((X[train] - mean) / spread, y[train])
        assert row["accuracy"] == pytest.approx(model.score((X[test] - mean) / spread, y[test]))


def test_kuncheva_and_jaccard_by_hand():
    a, b, c = frozenset("abc"), frozenset("abd"), frozenset("def")
    assert jaccard([a, b]) == pytest.approx(2 / 4)
    assert jaccard([a, b, c]) == pytest.approx((2 / 4 + 0 + 1 / 5) / 3)
    assert kuncheva([a, b], 10) == pytest.approx((2 * 10 - 9) / (3 * 7))
    assert kuncheva([a, c], 6) == pytest.approx((0 - 9) / (3 * 3))
    assert kuncheva([a, a], 10) == 1.0
    # sizes 2 and 4 of 10, both of the two shared: the most that can be shared
    assert kuncheva([frozenset("ab"), frozenset("abcd")], 10) == 1.0
    assert kuncheva([frozenset("ax"), frozenset("abcd")], 10) == pytest.approx((1 - 0.8) / (2 - 0.8))
    assert np.isnan(kuncheva([a], 10))
    assert np.isnan(kuncheva([a, a], 3))
    assert jaccard([frozenset(), frozenset()]) == 1.0


# -- refusals --------------------------------------------------------------------------------------------------------


def test_columns_are_never_pooled_over_another_transport():
    class Far(Transport):
        name = "far"

        def exchange(self, requests, timeout):
            raise AssertionError("nothing may be sent")

    fed = fs.Federation(Far(), ["a", "b"], active="a")
    with pytest.raises(ParameterError, match=r"only in one process.*'far'"):
        evaluate(fed, fs.AllFeatures(), cv=0.7, pooled=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 1}, "cv must be"),
        ({"cv": 1.5}, "cv must be"),
        ({"cv": 1000}, "cv must be a whole number between 2 and 90"),
        ({"model": "tree"}, "'tree'"),
        ({"metrics": ["r2"]}, "'r2'"),
        ({"metrics": []}, "empty"),
        ({"repeats": 0}, "repeats"),
        ({"selectors": []}, "empty"),
        ({"selectors": ["x"]}, "must be a selector|selectors"),
        ({"selectors": {ALL: fs.AllFeatures()}}, "kept for a null"),
    ],
)
def test_bad_arguments_name_what_is_wrong(options, message):
    with pytest.raises(ParameterError, match=message):
        evaluate(federation(), **{"selectors": fs.AllFeatures(), **options})
