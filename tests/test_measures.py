"""What is measured without pooling is, to 1e-6, what scikit-learn says of the same scores of the same model, pooled.

For every model and every measure. Models that are measured on shares: the two shares of the scores are put together
here, as nobody can in a run. Models that the label holder measures: the scores that it has read.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

import fedsift as fs
from fedsift.errors import OperationRefused, PolicyRefused, SecurityError
from fedsift.models.base import grade
from fedsift.models.metrics import METRICS, one_minus_rae
from fedsift.models.predicted import Predicted, let_read
from fedsift.models.shuffling import Shuffled
from fedsift.models.splitnn.layers import shared_network
from fedsift.models.unseen import Truth
from fedsift.mpc.score_shares import ScoreShare

UNSEEN = {
    "linear": fs.VerticalAdditive(bins=None, max_iter=5),
    "additive": fs.VerticalAdditive(max_iter=5),
    "logistic": fs.VerticalLogisticRegression(max_iter=5),
    "network": fs.SplitNN(epochs=6, width=16),
}
SEEN = {
    "boost": fs.SecureBoostClassifier(n_estimators=4, max_depth=3, protection="coordinator"),
    "boost all": fs.SecureBoostClassifier(n_estimators=2, max_depth=2),
    "boost open": fs.SecureBoostClassifier(n_estimators=4, max_depth=3, protection="open"),
    "boost number": fs.SecureBoostRegressor(n_estimators=2, max_depth=2),
    "hyfdca": fs.HyFDCA(tol=1.0),
}


def federation(kind, parties=3, rows=320, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    X[:, 5] = rng.integers(0, 3, rows)  # ties
    s = X[:, 0] + X[:, 2] + 0.5 * X[:, 4] ** 2 + rng.normal(size=rows)
    y = {"two": np.where(s > 0.8, "yes", "no"), "three": np.digitize(s, [-0.5, 1.2]), "number": 100 + 7 * s}[kind]
    return fs.Federation.split(X, y, parties=["bank", "shop", "clinic"][:parties])


def fresh(model):
    return type(model)(**model.get_params())


def pooled(metric, truth, scores):
    """By scikit-learn, from the scores of all rows: one of the second of two classes, one a class, or a number."""
    if metric in ("r2", "1-rae"):
        return (sk.r2_score if metric == "r2" else one_minus_rae)(truth, scores[:, 0])
    guesses = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    if metric == "auc":
        one_hot = truth[:, None] == (np.array([1]) if scores.shape[1] == 1 else np.arange(scores.shape[1]))
        return np.mean([sk.roc_auc_score(mine, column) for mine, column in zip(one_hot.T, scores.T)])
    average = metric.removeprefix("f1_")
    return sk.accuracy_score(truth, guesses) if metric == "accuracy" else sk.f1_score(truth, guesses, average=average)


def put_together(fed, run, shared):
    """The scores that nobody sees, and the truth in their units."""
    held = [fed.simulated[name].sessions[run._session] for name in (run.active, shared.helper)]
    scores = sum(state[ScoreShare].numbers for state in held).view(np.int64)
    return np.ldexp(scores.astype(np.float64), -shared.fraction), held[0][Truth].values


@pytest.mark.parametrize("kind", ["two", "three", "number"])
@pytest.mark.parametrize("name", UNSEEN)
def test_a_measure_on_shares_is_that_of_the_pooled_scores(name, kind):
    if (name, kind) == ("logistic", "number"):
        pytest.skip("a logistic model is for classes")
    fed = federation(kind)
    train, test = fed.rows(train=0.6)
    model = fresh(UNSEEN[name]).fit(train)
    measures = METRICS["regression" if kind == "number" else "classification"]
    with model._run(test) as run:
        shared = model._share(run)
        scores, truth = put_together(fed, run, shared)
        found = grade(run, shared, measures)
    assert set(found) == set(measures)
    for metric in measures:
        assert found[metric] == pytest.approx(pooled(metric, truth, scores), abs=1e-6), metric


@pytest.mark.parametrize("kind", ["two", "three", "number"])
@pytest.mark.parametrize("name", SEEN)
def test_a_measure_of_the_label_holders_is_that_of_the_pooled_scores(name, kind):
    if (kind == "number") != (name == "boost number") or (name, kind) == ("boost all", "three"):
        pytest.skip("the model is for another kind of label")
    fed = federation(kind, parties=2)
    train, test = fed.rows(train=0.6)
    model = fresh(SEEN[name]).fit(train)
    measures = METRICS["regression" if kind == "number" else "classification"]
    with model._run(test) as run:
        let_read(run)
        model._hold(run)
        site = fed.simulated["bank"]
        read, label = site.sessions[run._session][Predicted], site.table.label[site.views[test._view][0]]
        found = read.measures(label, list(measures))
    truth = label if kind == "number" else read.truth(label)
    for metric in measures:
        scores = read.probabilities() if metric == "auc" and kind == "three" else read.scores
        assert found[metric] == pytest.approx(pooled(metric, truth, scores), abs=1e-6), metric


def test_a_network_is_as_good_as_its_predictions_and_nobody_reads_a_score():
    """Outputs are exact to about 1e-3 from one time to the next, so a few rows may change places."""
    fed = federation("two")
    model = fresh(UNSEEN["network"]).fit(fed)
    site = fed.simulated["bank"]
    truth, chance = np.asarray(site.table.label) == "yes", model.predict_proba(fed)[:, 1]
    mark = len(fed.ledger)
    found = model.figures(fed, ["accuracy", "auc"])
    asked = {entry.operation for entry in fed.ledger.since(mark).entries}
    assert not asked & {"model.open_scores", "sine_network.send_answer", "sine_network.hold"}
    order = site.views[fed._view][0] if fed._view else np.arange(fed.n_rows)
    assert found["auc"] == pytest.approx(sk.roc_auc_score(truth[order], chance), abs=3e-3)
    assert found["accuracy"] == pytest.approx(np.mean((chance > 0.5) == truth[order]), abs=1e-2)
    assert model.score(fed) == pytest.approx(found["accuracy"], abs=1e-2)


def test_a_share_of_a_networks_scores_tells_nothing():
    """Correlation with the scores of a uniform share has deviation 1 / sqrt(1000): six of them are 0.19."""
    fed = federation("two", rows=1000)
    model = fresh(UNSEEN["network"]).fit(fed)
    with model._run(fed) as run:
        shared = model._share(run)
        scores, _ = put_together(fed, run, shared)
        for name in (run.active, shared.helper):
            share = fed.simulated[name].sessions[run._session][ScoreShare].numbers[:, 0]
            assert abs(np.corrcoef(share.astype(np.float64), scores[:, 0])[0, 1]) < 0.19


@pytest.mark.parametrize("liar", ["shop", "clinic", "bank"])
def test_members_agree_that_rows_are_for_a_measure(liar, monkeypatch):
    """A coordinator that tells one member that rows are unseen, and another that they are read, gets nothing."""
    fed = federation("two")
    model = fresh(UNSEEN["network"]).fit(fed)
    with model._run(fed) as run:
        network = model._network(run)
        ask = type(run).ask

        def other(self, operation, *, to, each=None, **told):
            if operation is shared_network.hide_rows:
                each = {name: {**each[name], "unseen": name != liar} for name in each}
            return ask(self, operation, to=to, each=each, **told)

        monkeypatch.setattr(type(run), "ask", other)
        let_read(run)
        with pytest.raises((OperationRefused, SecurityError, PolicyRefused)):
            network.share(run, "classification", None)


def plain_sums():
    """Of six columns the first of two parties decide; columns 0 to 2 are the bank's."""
    X = np.random.default_rng(2).normal(size=(400, 6))
    return fs.Federation.split(X, (X[:, 0] + X[:, 3] > 0).astype(int), parties=["bank", "shop"])


def test_a_shuffled_column_of_a_network_costs_what_it_is_worth():
    """Measures of one network go side by side: each shares its weights anew, for itself."""
    fed = plain_sums()
    model = fs.SplitNN(epochs=10, width=16).fit(fed)
    found = fs.explain(fed, model, repeats=2).frame
    assert set(zip(found["party"][:2], found["column"][:2])) == {("bank", 0), ("shop", 0)}
    assert found["importance"][1] > 0.1 > 0.05 > found["importance"][2:].abs().max()
    with pytest.raises(OperationRefused, match="no such column"):
        model.figures(fed, ["auc"], Shuffled("shop", 9))


@pytest.mark.parametrize("kind", [fs.VerticalAdditive, fs.VerticalLogisticRegression, fs.SplitNN])
def test_columns_that_a_model_has_not_cost_nothing_and_the_others_keep_their_names(kind):
    """The model has some of the columns: places of the federation's are not those of the model's."""
    fed = plain_sums()
    model = kind(**({"epochs": 10} if kind is fs.SplitNN else {})).fit(fed.view(columns={"bank": [0, 2], "shop": [0]}))
    found = fs.explain(fed, model, repeats=1).frame.set_index(["party", "column"])["importance"]
    assert min(found["bank", 0], found["shop", 0]) > 0.1
    assert (found.drop([("bank", 0), ("shop", 0)]).abs() < (0.05 if kind is fs.SplitNN else 0.02)).all()
