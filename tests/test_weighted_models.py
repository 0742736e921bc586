"""Linear models of rows that count differently: those of scikit-learn with ``sample_weight`` on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

import fedsift as fs
from fedsift.audit import record
from fedsift.core.design import Design
from fedsift.errors import DataError, ParameterError
from fedsift.models.vertical_logistic import open_columns
from fedsift.mpc import row_weights
from fedsift.mpc.shared_descent import SharedDescent

ROWS = 400
RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(ROWS, 6))).add_prefix("f")
AMOUNT = X["f1"] - 0.5 * X["f2"] + X["f5"] + RNG.normal(size=ROWS)
CLASSES = (AMOUNT > 0.7).astype(int)
KINDS = {"mild": RNG.uniform(0.2, 3.0, ROWS), "few rows count most": np.where(RNG.random(ROWS) < 0.05, 15.0, 0.3)}
Z = ((X - X.mean()) / X.std(ddof=0)).to_numpy()


def vertical(y, weight, task, **design):
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], aside={"w": weight}, task=task)
    return fed.designed(Design(weight="bank.w", **design))


def coefficients(model):
    """Columns x outputs, of standardised columns."""
    return np.vstack([frame.to_numpy() for frame in model.coef_.values()]) * X.std(ddof=0).to_numpy()[:, None]


def apart(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


# --- HyFDCA ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_hyfdca_of_weighted_amounts_is_the_weighted_ridge(kind):
    weight = KINDS[kind] / KINDS[kind].mean()
    model = fs.HyFDCA(tol=1e-5).fit(vertical(AMOUNT, 7.0 * weight, "regression"))  # in the mean of the weights
    assert model.converged_
    expected = Ridge(alpha=1.0).fit(Z, AMOUNT, sample_weight=weight)
    assert apart(coefficients(model), expected.coef_[:, None]) < 1e-5
    assert apart(coefficients(model), Ridge(alpha=1.0).fit(Z, AMOUNT).coef_[:, None]) > 0.02  # weights do something


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balanced", [False, True])
def test_hyfdca_of_weighted_classes_is_the_weighted_logistic_regression(kind, balanced):
    weight = KINDS[kind]
    fed = vertical(CLASSES, weight, "classification", class_weight="balanced" if balanced else None)
    model = fs.HyFDCA(tol=1e-5).fit(fed)
    if balanced:
        weight = weight / np.bincount(CLASSES)[CLASSES]
    expected = LogisticRegression(tol=1e-10, max_iter=5000).fit(Z, CLASSES, sample_weight=weight / weight.mean())
    assert model.converged_
    assert apart(coefficients(model), expected.coef_.T) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_hyfdca_with_the_hinge_is_the_weighted_support_vector_machine(kind):
    weight = KINDS[kind] / KINDS[kind].mean()
    model = fs.HyFDCA(loss="hinge", tol=1e-3, rounds=2000).fit(vertical(CLASSES, weight, "classification"))
    expected = SVC(kernel="linear", C=1.0, tol=1e-6).fit(Z, CLASSES, sample_weight=weight)
    assert model.converged_
    assert apart(coefficients(model), expected.coef_.T) < 0.03


def test_weights_of_one_leave_hyfdca_as_it_is():
    plain = fs.HyFDCA(tol=1e-5).fit(fs.Federation.split(X, CLASSES, parties=["bank", "shop"]))
    ones = fs.HyFDCA(tol=1e-5).fit(vertical(CLASSES, np.ones(ROWS), "classification"))
    assert apart(coefficients(ones), coefficients(plain)) < 1e-5


def test_a_row_that_would_show_in_every_sum_is_refused():
    heavy = np.ones(ROWS)
    heavy[5] = 30.0
    with pytest.raises(DataError, match="party 'bank': a row weighs more than 20 times the mean"):
        fs.HyFDCA().fit(vertical(CLASSES, heavy, "classification"))


# --- FedLinear: parties that hold rows have their own weights --------------------------------------------------------


def horizontal(y, weight, task="auto"):
    fed = fs.Federation.split(
        X, y, parties=["north", "south", "west"], partition="horizontal", aside={"w": weight}, task=task
    )
    return fed.designed(Design(weight="*.w"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["exact", "fedavg"])
def test_fed_linear_of_weighted_amounts_is_the_weighted_ridge(kind, solver):
    weight = KINDS[kind]
    model = fs.FedLinear(penalty=0.02, solver=solver, tol=1e-9, rounds=5000).fit(horizontal(AMOUNT, weight))
    expected = Ridge(alpha=0.02 * weight.sum()).fit(Z, AMOUNT, sample_weight=weight)
    assert apart(model.coef_[:, 0] * X.std(ddof=0).to_numpy(), expected.coef_) < 1e-5
    assert apart(expected.coef_, Ridge(alpha=0.02 * ROWS).fit(Z, AMOUNT).coef_) > 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_fed_linear_of_weighted_classes_is_the_weighted_logistic_regression(kind):
    weight = KINDS[kind]
    model = fs.FedLinear(penalty=0.01, tol=1e-8, rounds=5000).fit(horizontal(CLASSES, weight))
    half = LogisticRegression(C=1 / (0.005 * weight.sum()), tol=1e-12, max_iter=5000)  # two outputs share the penalty
    expected = half.fit(Z, CLASSES, sample_weight=weight).coef_[0]
    got = (model.coef_[:, 1] - model.coef_[:, 0]) * X.std(ddof=0).to_numpy()
    assert apart(got, expected) < 1e-3


def test_weights_of_one_leave_fed_linear_as_it_is():
    plain = fs.FedLinear(penalty="auto", random_state=1)
    plain.fit(fs.Federation.split(X, CLASSES, parties=["north", "south", "west"], partition="horizontal"))
    ones = fs.FedLinear(penalty="auto", random_state=1).fit(horizontal(CLASSES, np.ones(ROWS)))
    np.testing.assert_allclose(ones.coef_, plain.coef_, atol=1e-6)
    assert ones.penalty_ == plain.penalty_


def test_no_weight_of_a_party_leaves_it():
    """What the coordinator reads are sums over all parties: other weights with the same sums look the same."""
    seen = []
    for weight in (np.ones(ROWS), np.full(ROWS, 2.0)):
        fed = horizontal(AMOUNT, weight)
        fs.FedLinear(penalty=0.02, solver="exact").fit(fed)
        seen.append({(e.operation, e.form) for e in fed.ledger.entries})
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("design", "words"),
    [({"weight": "north.w"}, "each party its own column"), ({"group": "*.w"}, "only a weight is a column of every"),
     ({"weight": "*.w", "group": "north.w"}, "nothing stands beside it"), ({"weight": "*.v"}, "not set aside here")],
)  # fmt: skip
def test_designs_of_parties_with_rows_are_refused_in_words(design, words):
    fed = fs.Federation.split(X, AMOUNT, parties=["north", "south"], partition="horizontal", aside={"w": np.ones(ROWS)})
    with pytest.raises(fs.FedsiftError, match=words):
        fs.FedLinear(penalty=0.1).fit(fed.designed(Design(**design)))


@pytest.mark.parametrize("method", [fs.HyFDCA(), fs.FeatureElection(), fs.FedHalving()])
def test_methods_over_rows_that_do_not_weigh_say_so(method):
    with pytest.raises(ParameterError, match="design"):
        method.fit(horizontal(CLASSES, np.ones(ROWS)))


# --- residuals that nobody reads, times weights that nobody but the label holder knows -------------------------------


def solved(y, weight, penalty=0.01):
    """The weighted quadratic loss of -1 and 1, in closed form: scores of the rows."""
    A, share = np.hstack([Z, np.ones((ROWS, 1))]), weight / weight.sum()
    inner = (A * share[:, None]).T @ A / 4
    inner[np.arange(6), np.arange(6)] += penalty
    return A @ np.linalg.solve(inner, (A * share[:, None]).T @ (2.0 * y - 1) / 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_vertical_logistic_of_weighted_rows_is_the_weighted_solution(kind, balanced, parties):
    names = ["bank", "shop", "west"][:parties]
    fed = fs.Federation.split(X, CLASSES, parties=names, aside={"w": KINDS[kind]})
    fed = fed.designed(Design(weight="bank.w", class_weight="balanced" if balanced else None))
    scores = fs.VerticalLogisticRegression(max_iter=50, reg_lambda=0.01).fit(fed).decision_function(fed).ravel()
    weight = KINDS[kind] / np.bincount(CLASSES)[CLASSES] if balanced else KINDS[kind]
    assert apart(scores, solved(CLASSES, weight)) < 3e-3
    assert apart(solved(CLASSES, np.ones(ROWS)), solved(CLASSES, weight)) > 0.03


def test_weighted_classes_one_against_the_rest_too():
    three = np.digitize(AMOUNT, [-0.5, 0.8])
    fed = fs.Federation.split(X, three, parties=["bank", "shop"], aside={"w": KINDS["mild"]})
    scores = (
        fs.VerticalLogisticRegression(max_iter=50).fit(fed.designed(Design(weight="bank.w"))).decision_function(fed)
    )
    for k in range(3):
        assert apart(scores[:, k], solved(three == k, KINDS["mild"])) < 3e-3


def test_an_evaluation_under_weights_trains_its_linear_model_by_them():
    """Rows of one kind count fifteen times the others: what they say decides."""
    rng = np.random.default_rng(8)
    many, kind = pd.DataFrame(rng.normal(size=(900, 4))).add_prefix("f"), rng.random(900) < 0.1
    y = np.where(kind, many["f0"] > 0, many["f0"] < 0).astype(int)
    fed = fs.Federation.split(many, y, parties=["bank", "shop"], aside={"w": np.where(kind, 18.0, 1.0)})
    auc = {}
    for name, each in (("plain", fed), ("weighted", fed.designed(Design(weight="bank.w")))):
        lines = fs.evaluate(each, {"gini": fs.GiniFilter(n_features=1)}, model="linear", cv=3, nulls=False).lines()
        auc[name] = lines[0].mean["auc"]
    assert auc["plain"] > 0.7
    assert auc["weighted"] < 0.4  # measured on rows that count alike, nine tenths of them of the other kind


def three_steps(fed):
    return fs.VerticalLogisticRegression(max_iter=3).fit(fed.designed(Design(weight="bank.w")))


def test_what_is_sent_of_weights_is_uniform_and_new_in_every_run():
    seen = []
    for _ in range(2):
        told = record(X, CLASSES, three_steps, parties=["bank", "shop"], aside={"w": KINDS["few rows count most"]})
        coordinator, helper = told["coordinator"], told["shop"]
        hidden = coordinator.replies("hide_row_weights")[0].content
        asked = [m.content["share"] for m in helper.messages if m.is_request and m.operation == "descent.weigh_share"]
        answers = [reply.content for reply in coordinator.replies("weigh_share")]
        assert len(asked) == len(answers) == 3
        seen += [hidden, *asked, *answers]
        assert not any("weight" in m.operation for m in helper.messages if not m.is_request and m.party == "bank")
    for table in seen:
        size = np.abs(table.view(np.int64).astype(np.float64)).mean() / 2.0**62
        assert 0.85 < size < 1.15  # uniform in the ring: half of its room in the mean
    assert not any((a == b).any() for i, a in enumerate(seen) for b in seen[:i] if a.shape == b.shape)


def test_a_class_that_weighs_more_than_there_is_room_for_is_refused_in_words():
    rare = (np.arange(ROWS) < 5).astype(int)
    fed = fs.Federation.split(X, rare, parties=["bank", "shop"]).designed(Design(class_weight="balanced"))
    with pytest.raises(DataError, match="party 'bank': with its class's weight a row counts 32 times the mean or more"):
        fs.VerticalLogisticRegression().fit(fed)


@pytest.mark.parametrize("operation", ["hide_row_weights", "weigh_share"])
def test_a_run_whose_rows_count_alike_weighs_nothing(operation):
    fed = fs.Federation.split(X, CLASSES, parties=["bank", "shop"])
    plain = fs.VerticalLogisticRegression()

    def asked(each):
        with each.session(*plain.announcement()) as run:
            names = {"bank": 4, "shop": 3}
            run.ask(open_columns, to=run.parties, task="classification", outputs=1)
            descent = SharedDescent(run, names, 1, reads_scores=False)
            if operation == "hide_row_weights":
                run.ask(row_weights.hide_row_weights, to="bank")
            else:
                share = np.zeros((ROWS, 1), dtype=np.uint64)
                run.ask(row_weights.weigh_share, to="shop", share=share, step=1, label_holder="bank")
            return descent

    with pytest.raises(fs.FedsiftError, match="count alike"):
        asked(fed)
