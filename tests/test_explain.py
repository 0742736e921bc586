"""What a model goes by: Shapley values against their definition, permutation importance without a row's score."""

from __future__ import annotations

import json
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
from doubles import Recording
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from test_training import job_file
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core import in_step
from fedsift.core.identity import introduce
from fedsift.core.message import decode
from fedsift.core.party import Party
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, ParameterError, PolicyRefused
from fedsift.evaluate import explaining
from fedsift.jobs import training
from fedsift.jobs.job_file import load_job
from fedsift.models.boost.bins import ColumnBins
from fedsift.models.boost.stored import StoredPart, goes_left, stored_part
from fedsift.models.performance import table_of
from fedsift.models.shuffling import Shuffled
from fedsift.models.tree_shap import Cut, Leaf, covers, shapley_of_tree
from fedsift.report.explain import Explained
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite


def grown(rng, rows, depth, features, outputs):
    """A random tree: cuts of random features at random places; some leaves early, a feature may come again."""
    nodes = []

    def grow(level):
        number = len(nodes)
        nodes.append(None)
        if level == depth or (level and rng.random() < 0.2):
            nodes[number] = Leaf(rng.normal(size=outputs))
            return number
        column = int(rng.integers(features.shape[1]))
        left = features[:, column] < rng.normal(scale=0.7)
        first, second = grow(level + 1), grow(level + 1)
        nodes[number] = Cut(("shop", column), left, first, second)
        return number

    grow(0)
    return nodes


def expected(nodes, cover, row, known, number=0):
    """The prediction where only some features are known: the others go both ways, by the shares of rows."""
    node = nodes[number]
    if isinstance(node, Leaf):
        return node.value
    if node.feature in known:
        return expected(nodes, cover, row, known, node.first if node.left[row] else node.second)
    if not cover[number]:
        weights = 0.5, 0.5
    else:
        weights = cover[node.first] / cover[number], cover[node.second] / cover[number]
    return sum(w * expected(nodes, cover, row, known, n) for w, n in zip(weights, (node.first, node.second)))


def by_definition(nodes, cover, row, features, wanted):
    others, total = [f for f in features if f != wanted], 0.0
    for size in range(len(others) + 1):
        weight = factorial(size) * factorial(len(others) - size) / factorial(len(features))
        for known in combinations(others, size):
            with_it = expected(nodes, cover, row, {*known, wanted})
            total = total + weight * (with_it - expected(nodes, cover, row, set(known)))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_shapley_values_of_a_tree_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(30, 5))
    nodes = grown(rng, 30, 4, features, outputs=1 + seed % 2)
    cover = covers(nodes, 30)
    found = shapley_of_tree(nodes, cover, 30)
    used = sorted({node.feature for node in nodes if isinstance(node, Cut)})
    assert sorted(found) == used
    for row in range(0, 30, 7):
        for feature in used:
            np.testing.assert_allclose(found[feature][row], by_definition(nodes, cover, row, used, feature), atol=1e-12)


def table(rows=240):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 6))
    return X, (X[:, 0] + 2 * X[:, 3] + 0.3 * rng.normal(size=rows) > 0).astype(int)


@pytest.mark.parametrize("protection", ["coordinator", "open"])
def test_values_over_parties_are_those_of_the_same_trees_pooled(protection):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "clinic"])
    model = fs.SecureBoostClassifier(n_estimators=4, max_depth=3, protection=protection).fit(fed)
    found = fs.explain(fed, model, rows=True)
    part = fed.simulated["bank"].models.part(model.model_id_, StoredPart)
    means = sum(_mean_of(tree.nodes, fed, model.model_id_) for tree in part.trees)
    chances = model.predict_by_id(fed)
    scores = np.array([np.log(chances[name] / (1 - chances[name])) for name in found.rows.index])
    np.testing.assert_allclose(found.rows.to_numpy().sum(axis=1) + means + part.labelled.base[0], scores, atol=1e-6)
    assert found.frame["feature"][0] == fed.column_names()["shop"][1], "column 3 of the table weighs most"
    np.testing.assert_allclose(
        fs.explain(fed, model).frame["importance"], found.frame["importance"], atol=5.1e-5
    )  # four digits are released


@pytest.mark.parametrize("kind", ["two classes", "three classes", "a number"])
def test_values_are_those_of_the_shap_package_on_the_same_trees_pooled(kind):
    """Where it is installed (pip install shap); without it the definition above is the oracle."""
    shap = pytest.importorskip("shap")
    X, y = table()
    strength = X[:, 0] + 2 * X[:, 3] - X[:, 5] ** 2
    y = {"two classes": y, "three classes": np.digitize(strength, [-2, 1]), "a number": strength}[kind]
    task = "regression" if kind == "a number" else "classification"
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "clinic"], task=task)
    boosted = fs.SecureBoostRegressor if task == "regression" else fs.SecureBoostClassifier
    model = boosted(n_estimators=5, max_depth=3).fit(fed)
    found = fs.explain(fed, model, rows=True).rows
    names = [f"{party}.{column}" for party, columns in fed.column_names().items() for column in columns]
    pooled = pd.DataFrame(
        np.hstack([fed.simulated[party].table.matrix() for party in fed.parties]),
        index=fed.simulated["bank"].table.ids.astype(str), columns=names,
    )  # fmt: skip
    stored = stored_part(Party(fed.simulated["bank"], fed._view), model.model_id_)
    outputs = 3 if kind == "three classes" else 1
    for output in range(outputs):
        mine = found if outputs == 1 else found.xs(output, axis=1, level=1)
        trees = [
            _for_shap(tree.nodes, fed, model.model_id_, pooled, np.arange(outputs)[tree.outputs].tolist().index(output))
            for tree in stored.trees
            if output in np.arange(outputs)[tree.outputs]
        ]
        explainer = shap.TreeExplainer({"trees": trees}, feature_perturbation="tree_path_dependent")
        told = np.asarray(explainer.shap_values(pooled.to_numpy())).reshape(len(pooled), len(names))
        theirs = pd.DataFrame(told, index=pooled.index, columns=names)
        np.testing.assert_allclose(mine.to_numpy(), theirs.loc[mine.index, mine.columns].to_numpy(), atol=1e-6)
        unused = [name for name in names if name not in mine.columns]
        np.testing.assert_allclose(theirs[unused].to_numpy(), 0, atol=1e-6)


def _for_shap(nodes, fed, model, pooled, place):
    """A tree over the parties as that package writes trees: columns of the pooled table, thresholds, rows at a node."""
    rows = fed.n_rows
    here, tree = {0: np.ones(rows, dtype=bool)}, {key: [] for key in ("left", "right", "feature", "threshold", "value")}
    for number, node in enumerate(nodes):
        if node.is_leaf:
            told = (-1, -1, -2, -2.0, node.value[place])
        else:
            party = Party(fed.simulated[node.party], fed._view)
            record = stored_part(party, model).records[node.split]
            left = goes_left(party, model, record, np.arange(rows))
            here[node.left], here[node.right] = here[number] & left, here[number] & ~left
            column = f"{node.party}.{ColumnBins.read(record['bins']).column}"
            values = party.table.values(column.split(".")[1])
            threshold = (values[left].max() + values[~left].min()) / 2
            told = (node.left, node.right, list(pooled.columns).index(column), threshold, 0.0)
        for key, value in zip(tree, told):
            tree[key].append(value)
    return {
        "children_left": np.array(tree["left"]), "children_right": np.array(tree["right"]),
        "children_default": np.array(tree["left"]), "features": np.array(tree["feature"]),
        "thresholds": np.array(tree["threshold"]), "values": np.array(tree["value"])[:, None],
        "node_sample_weight": np.array([here[number].sum() for number in range(len(nodes))], dtype=float),
    }  # fmt: skip


def _mean_of(nodes, fed, model):
    """The mean prediction of a tree over the rows: each leaf by its share of them."""
    sites, rows = fed.simulated, fed.n_rows
    here = {0: np.ones(rows, dtype=bool)}
    total = 0.0
    for number, node in enumerate(nodes):
        if node.is_leaf:
            total += here[number].mean() * node.value[0]
            continue
        party = Party(sites[node.party], fed._view)
        left = goes_left(party, model, stored_part(party, model).records[node.split], np.arange(rows))
        here[node.left], here[node.right] = here[number] & left, here[number] & ~left
    return total


def test_a_default_policy_keeps_its_sides_and_an_exception_gives_them():
    X, y = table()
    for exceptions, allowed in (([], False), (["boost.tell_sides"], True)):
        policy = Policy(min_rows=10, exceptions=["column names", "class names", *exceptions], max_bits="any")
        split = fs.Federation.split(X, y, parties=["bank", "shop"]).simulated
        sites = {name: PolicySite(name, site.table, policy) for name, site in split.items()}
        introduce(sites)
        fed = fs.Federation(InProcess(sites), list(sites), active="bank")
        model = fs.SecureBoostClassifier(n_estimators=2, max_depth=2, min_cell=10, protection="coordinator").fit(fed)
        if allowed:
            assert fs.explain(fed, model).frame["party"][0] == "shop"
            with pytest.raises(PolicyRefused, match="plain"):
                fs.explain(fed, model, rows=True)
        else:
            with pytest.raises(PolicyRefused, match=r"boost\.tell_sides"):
                fs.explain(fed, model)


@pytest.mark.parametrize("kind", [fs.VerticalAdditive, fs.VerticalLogisticRegression])
def test_a_shuffled_column_costs_what_it_is_worth_and_no_score_is_read(kind):
    X, y = table(400)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    model = kind().fit(fed)
    log = fed._link.transport = Recording(fed._link.transport)
    found = fs.explain(fed, model, repeats=2)
    assert found.frame["feature"][:2].tolist() == [fed.column_names()["shop"][0], fed.column_names()["bank"][0]]
    assert found.frame["importance"][0] > 0.2, "column 3 decides most labels"
    assert found.frame["importance"][2:].abs().max() < 0.03, "the others none"
    asked = {decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"}
    assert not asked & {"model.open_scores", "descent.open_residuals", "logistic.hold_scores"}


def test_a_shuffle_is_the_partys_own_and_repeats_for_itself():
    X, y = table(300)
    made = [fs.Federation.split(X, y, parties=["bank", "shop"]) for _ in range(2)]
    model = fs.VerticalAdditive().fit(made[0])
    once, again, other = (
        model.figures(fed, ["auc"], Shuffled("shop", 0, repeat))["auc"]
        for fed, repeat in ((made[0], 0), (made[1], 0), (made[0], 1))
    )
    assert once == again
    assert once != other


def test_only_the_columns_that_are_named_are_shuffled():
    X, y = table(200)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    names = fed.column_names()
    model = fs.VerticalAdditive().fit(fed)
    log = fed._link.transport = Recording(fed._link.transport)
    found = fs.explain(fed, model, repeats=1, columns={"shop": names["shop"][:1]})
    assert found.frame[["party", "feature"]].values.tolist() == [["shop", names["shop"][0]]]
    told = [decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"]
    assert told.count("additive.open_unseen_rows") == 4, "at both parties, as it is and shuffled"
    for wrong, said in (({"shop": ["none"]}, "shop.none"), ({"nobody": []}, "nobody")):
        with pytest.raises(ParameterError, match=f"there is no {said}"):
            fs.explain(fed, model, columns=wrong)
    with pytest.raises(ParameterError, match="all columns at once"):
        fs.explain(
            fed, fs.SecureBoostClassifier(n_estimators=1, max_depth=1, protection="coordinator").fit(fed), columns=names
        )


def test_measures_side_by_side_are_bounded_by_the_numbers_of_the_model(monkeypatch):
    """A column in eight bins is eight numbers a row, and every measure has all of them at every party: by its columns
    alone so many went side by side that 500 columns of 800 rows took 5 GB."""
    X, y = table(200)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    model = fs.VerticalAdditive().fit(fed)
    numbers, columns = model.numbers_a_row, sum(fed.n_columns.values())
    assert numbers > 4 * columns
    monkeypatch.setattr(in_step, "ROOM", 2 * fed.n_rows * numbers)
    told = []
    monkeypatch.setattr(explaining, "in_step", lambda *asked: told.append(asked[-1]) or in_step.in_step(*asked))
    fs.explain(fed, model, repeats=1)
    assert told == [2]


def test_what_cannot_be_explained_says_so():
    X, y = table(120)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    linear = fs.VerticalAdditive(max_iter=2).fit(fed)
    with pytest.raises(DataError, match="labels of these 20 rows are all the same"):
        fs.explain(fed.view(rows=np.flatnonzero(y == 1)[:20]), linear)
    with pytest.raises(ParameterError, match="single rows"):
        fs.explain(fed, fs.VerticalAdditive(max_iter=2).fit(fed), rows=True)
    with pytest.raises(ParameterError, match="cannot be explained"):
        fs.explain(fed, fs.FedLinear())
    with pytest.raises(NotFittedError):
        fs.explain(fed, fs.SecureBoostClassifier())


def test_trees_whose_leaves_nobody_has_are_explained_by_their_gain():
    X, y = table(120)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    model = fs.SecureBoostClassifier(n_estimators=2, max_depth=2).fit(fed)
    told = fs.explain(fed, model)
    gain = model.feature_importances_.set_index(["party", "column"])["gain"]
    shares = told.frame.set_index(["party", "column"])["importance"]
    np.testing.assert_allclose(shares.sort_index(), (gain / gain.sum()).sort_index(), atol=5.1e-5)
    assert told.frame["importance"].is_monotonic_decreasing
    names = fed.column_names()
    assert all(names[line.party][line.column] == line.feature for line in told.frame.itertuples())
    assert "gain" in told.by
    with pytest.raises(ParameterError, match="keeps leaves from everybody"):
        fs.explain(fed, model, rows=True)


def test_predictions_are_there_although_nothing_can_be_explained(tmp_path):
    """Rows without labels: a linear model predicts them, and says what an explanation needs."""
    folder = training.write_model(training.train(load_job(job_file(tmp_path, "linear"))), tmp_path / "model")
    pd.read_csv(tmp_path / "bank.csv").drop(columns="default").to_csv(tmp_path / "new.csv", index=False)
    given = [f"bank={tmp_path / 'new.csv'}", f"shop={tmp_path / 'shop.csv'}"]
    asked = [
        "predict",
        str(folder),
        *given,
        "-q",
        "--out",
        str(tmp_path / "out.csv"),
        "--explain",
        str(tmp_path / "w.html"),
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code != 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 301
    assert not (tmp_path / "w.html").exists()
    with pytest.raises(DataError, match="which has left"):
        training.explained(folder, {"bank": tmp_path / "bank.csv"}, 1)


def test_the_command_explains_a_kept_model(tmp_path):
    folder = training.write_model(training.train(load_job(job_file(tmp_path, "linear"))), tmp_path / "model")
    given = [f"{name}={tmp_path / name}.csv" for name in ("bank", "shop")]
    done = CliRunner().invoke(app, ["explain", str(folder), *given, "--repeats", "1", "-q", "--format", "json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {line["feature"] for line in told["columns"][:2]} == {"a", "c"}
    assert "shuffled" in told["by"]


def test_the_page_has_calibration_roc_lift_thresholds_and_fairness_and_no_row(tmp_path):
    folder = training.write_model(training.train(load_job(job_file(tmp_path, "linear"))), tmp_path / "model")
    bank = pd.read_csv(tmp_path / "bank.csv")
    bank["sex"], bank["age"] = np.where(np.arange(len(bank)) % 3, "f", "m"), np.arange(len(bank)) % 70 + 20
    bank.to_csv(tmp_path / "bank.csv", index=False)
    given = [f"{name}={tmp_path / name}.csv" for name in ("bank", "shop")]
    asked = ["explain", str(folder), *given, "--repeats", "1", "-q", "--by", "sex", "--by", "age"]
    done = CliRunner().invoke(app, [*asked, "--format", "json", "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page, told = (tmp_path / "page.html").read_text(), json.loads(done.stdout)
    for title in ("Calibration", "ROC curve", "Lift", "Threshold table", "Fairness by sex", "Fairness by age"):
        assert f"<h2>{title}" in page, title
    assert not any(name in page for name in bank["id"]), "no row"
    assert {line["sex"] for line in told["groups_by"]["sex"]} == {"f", "m"}
    shares = [line["share"] for line in told["groups_by"]["age"]]
    assert len(shares) == 4
    assert sum(shares) == pytest.approx(1, abs=0.03)
    for frame in (told["groups"], *told["groups_by"].values()):
        figures = [line[key] for line in frame for key in ("share", "chance", "rate")]
        assert all(round(figure, 2) == figure for figure in figures), "two digits"
    with pytest.raises(DataError, match="'postcode'"):
        training.explained(folder, {name: tmp_path / f"{name}.csv" for name in ("bank", "shop")}, 1, by=["postcode"])


def test_the_curve_of_groups_has_nearly_the_area_of_single_rows():
    rng = np.random.default_rng(1)
    scores, right = np.sort(rng.normal(size=2000)), np.zeros(2000, dtype=bool)
    right[:] = rng.random(2000) < 1 / (1 + np.exp(-2 * scores))
    codes = np.arange(2000) * 20 // 2000
    rate = np.array([right[codes == k].mean() for k in range(20)])
    told = {"names": [str(k) for k in range(20)], "share": np.full(20, 0.05), "chance": rate, "rate": rate}
    groups = table_of(told, None)
    area = Explained("model", 2000, fs.Explanation("", pd.DataFrame()), groups).area
    assert area == pytest.approx(roc_auc_score(right, scores), abs=0.005)
    assert groups["precision"].iloc[0] == pytest.approx(right.mean())
