"""Correlation, variance inflation, p-values and stability over parties: equal to one pooled table."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, OperationRefused, ParameterError, PolicyRefused
from fedsift.mpc.moments import own_products
from fedsift.mpc.shared_descent import SharedDescent
from fedsift.mpc.weighted_moments import WeightedMoments
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from fedsift.statistics.job import (
    StatisticsJob,
    compare_sample,
    keep_sample,
    open_columns,
    sample_rows,
    stability,
)
from fedsift.statistics.logistic import open_logistic
from fedsift.statistics.statistics import inflation


def table(rows=250, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 6)) @ rng.normal(size=(6, 6)), columns=list("abcdef"))
    X["c"] = np.exp(X["c"] / 3) * 1e6
    X["d"] = rng.poisson(2, rows)
    return X, X["a"] - X["e"] + 3 * rng.normal(size=rows)


def pooled_ols(X, y):
    """Least squares with a constant, as a textbook has it: t and p of each column."""
    design = np.column_stack([np.ones(len(X)), X])
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ design.T @ y
    freedom = len(X) - design.shape[1]
    error = np.sqrt(((y - design @ weights) ** 2).sum() / freedom * np.diag(inverse))
    t = (weights / error)[1:]
    return t, 2 * stats.t.sf(np.abs(t), freedom)


def short(names):
    return [name.split(".")[1] for name in names]


# --- equal to one pooled table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("parties", [1, 3])
def test_correlations_are_the_pooled_ones(kind, parties):
    X, y = table()
    found = fs.correlation(fs.Federation.split(X, y, parties=parties), kind=kind)
    assert short(found.columns) == list(X.columns)
    np.testing.assert_allclose(found, X.corr(method=kind), atol=1e-7)


def test_variance_inflation_is_the_pooled_one():
    X, y = table()
    expected = [1 / (1 - _r2(X.drop(columns=name), X[name])) for name in X.columns]
    np.testing.assert_allclose(fs.vif(fs.Federation.split(X, y, parties=3)), expected, rtol=1e-6)


def _r2(X, y):
    design = np.column_stack([np.ones(len(X)), X])
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return 1 - (left**2).sum() / ((y - y.mean()) ** 2).sum()


@pytest.mark.parametrize("classes", [False, True])
def test_t_and_p_are_those_of_pooled_least_squares(classes):
    X, y = table()
    y = (y > 0).astype(int) if classes else y
    found = fs.significance(fs.Federation.split(X, y, parties=3))
    t, p = pooled_ols(X.to_numpy(), np.asarray(y, dtype=float))
    np.testing.assert_allclose(found["t"], t, rtol=1e-6)
    np.testing.assert_allclose(found["p"], p, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_z_and_p_are_those_of_a_pooled_logistic_model(parties):
    """Against Newton's method on one table; statsmodels says the same (where it is installed)."""
    X, y = table(600)
    y = (y > y.median()).astype(int)
    found = logit(fs.Federation.split(X.assign(same=1.0), y, parties=parties))
    assert short(found.index) == list(X.columns)
    z, p = pooled_logit(X.to_numpy(), y.to_numpy())
    np.testing.assert_allclose(found["z"], z, rtol=1e-6, atol=5e-6)
    np.testing.assert_allclose(found["p"], p, rtol=0, atol=1e-6)


def pooled_logit(X, y):
    """Maximum likelihood with a constant: z and p of each column."""
    design = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-design @ weights))
        curvature = design.T @ (design * (chance * (1 - chance))[:, None])
        weights = weights - np.linalg.solve(curvature, design.T @ (chance - y))
    z = (weights / np.sqrt(np.diag(np.linalg.inv(curvature))))[:-1]
    return z, 2 * stats.norm.sf(np.abs(z))


def test_the_pooled_models_are_those_of_statsmodels():
    models = pytest.importorskip("statsmodels.api")
    X, y = table(600)
    design = models.add_constant((X - X.mean()) / X.std())
    fitted = models.Logit((y > y.median()).astype(int), design).fit(disp=0, tol=1e-13)
    np.testing.assert_allclose(
        pooled_logit(X.to_numpy(), (y > y.median()).to_numpy())[0], fitted.tvalues[1:], rtol=1e-8
    )
    np.testing.assert_allclose(
        pooled_ols(X.to_numpy(), y.to_numpy())[0], models.OLS(y, design).fit().tvalues[1:], rtol=1e-8
    )


def test_separated_classes_have_no_logistic_model():
    X, _ = table()
    with pytest.raises((DataError, OperationRefused), match="separate"):
        logit(fs.Federation.split(X, (X["a"] > 0).astype(int), parties=2))
    with pytest.raises(DataError, match="two classes"):
        logit(fs.Federation.split(*table(), parties=2))


def test_a_party_with_fewer_columns_than_steps_is_not_read_unless_it_agrees():
    """The label holder's scores of so many steps span the columns of such a party."""
    X, y = table(400)
    y = (y > 0).astype(int)
    with pytest.raises(OperationRefused, match="open_scores"):
        fs.significance(fs.Federation.split(X, y, parties=2), model="logistic")
    wide = X.assign(**{f"x{i}": np.random.default_rng(i).normal(size=400) for i in range(16)})
    assert len(fs.significance(fs.Federation.split(wide, y, parties=2), model="logistic")) == 22


def test_weights_that_lie_on_few_rows_open_nothing():
    """A coordinator that chooses coefficients for which one row alone is undecided would open that row."""
    X, y = table(300)
    X["a"] = np.where(np.arange(300) == 7, 0.0, 100.0 + 1e-7 * np.arange(300))
    fed = fs.Federation.split(X, (y > 0).astype(int), parties=2)
    with fed.session(*StatisticsJob(what="significance", model="logistic", open_scores=True).announcement()) as run:
        positions = run.ask(open_logistic, to=run.parties, task="auto")
        widths = {name: len(found) + (name == run.active) for name, found in positions.items()}
        descent, moments = SharedDescent(run, widths, 1, reads_scores=True), WeightedMoments(run, widths)
        weights = {name: np.zeros((width, 1)) for name, width in widths.items()}
        values = (X["a"] - X["a"].mean()) / X["a"].std(ddof=0)
        weights[run.active][0], weights[run.active][-1] = 30.0, -30.0 * values[7]
        descent.at(weights)
        with pytest.raises(OperationRefused, match="too few rows"):
            moments.open()


def test_what_a_logistic_job_does_is_refused_in_another():
    fed = fs.Federation.split(*table(), parties=2)
    with (
        fed.session(*StatisticsJob(what="significance").announcement()) as run,
        pytest.raises(OperationRefused, match="not about a logistic model"),
    ):
        run.ask(open_logistic, to="party2", task="auto")


def test_columns_that_are_constant_repeat_or_are_no_numbers():
    X, y = table()
    X = X.assign(same=5.0, again=X["a"] * 2, colour=np.where(X["b"] > 0, "red", "blue"))
    fed = fs.Federation.split(X, y, parties=2)
    found = fs.correlation(fed)
    assert "colour" not in short(found.columns)
    assert found.filter(like="same").isna().all().all()
    inflated = fs.vif(fed)
    inflated.index = short(inflated.index)
    assert np.isinf(inflated[["a", "again"]]).all()
    assert np.isnan(inflated["same"])
    assert np.isfinite(inflated["d"])
    with pytest.raises(DataError, match="see vif"):
        fs.significance(fed)


def two_valued(rows=400, rare=40):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(rows, 4)), columns=list("abcd"))
    X["own"] = (np.arange(rows) % 3 == 0).astype(float)
    X.insert(0, "rare", (np.arange(rows) < rare).astype(int))
    return X, X["a"] + rng.normal(size=rows)


STATISTICS = ["correlation", "vif", "significance", "logistic"]


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("values", [2, 4])
def test_columns_whose_products_are_tables_of_counts_are_refused_unless_the_job_agrees(statistic, values):
    X, y = two_valued()
    y = (y > 0).astype(int) if statistic == "logistic" else y
    X["own"] = np.arange(len(X)) % values
    statistic = {"logistic": logit}.get(statistic) or getattr(fs, statistic)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with pytest.raises(OperationRefused, match="open_tables=True"):
        statistic(fed)
    found = statistic(fed, open_tables=True)
    assert "shop.own" in found.index
    X["own"] = np.arange(len(X)) % 5
    statistic(fs.Federation.split(X.drop(columns="rare"), y, parties=["bank", "shop"]))


def test_exact_tables_are_refused_where_a_value_is_that_of_few_rows():
    for rare, least in ((9, 10), (10, 11)):
        X, y = two_valued(rare=rare)
        fed = fs.Federation.split(X, y, parties=["bank", "shop"])
        with pytest.raises(OperationRefused, match=r"'rare'.*min_cell"):
            fs.correlation(fed, open_tables=True, min_cell=least)
    assert fs.correlation(fed, open_tables=True)["bank.rare"].notna().all()


def test_a_site_with_its_own_least_cell_holds_a_job_to_it():
    X, y = two_valued()
    ids = [f"p{i}" for i in range(len(X))]
    bank = Table.read(X[["a", "rare"]].assign(id=ids, label=y), id="id", label="label", name="bank")
    shop = Table.read(X[["own", "b"]].assign(id=ids), id="id", name="shop")
    sites = {each.name: PolicySite(each.name, each, Policy()) for each in (bank, shop)}
    fed = fs.Federation(InProcess(sites), list(sites), active="bank")
    with pytest.raises(PolicyRefused, match="min_cell"):
        fs.correlation(fed, open_tables=True, min_cell=1)


def test_a_single_column_inflates_nothing():
    np.testing.assert_array_equal(inflation(np.array([[1.0]])), [1.0])


def test_a_label_of_three_classes_has_no_p_values():
    X, y = table()
    with pytest.raises(DataError, match="two classes"):
        fs.significance(fs.Federation.split(X, np.digitize(y, [-2, 2]), parties=2))


# --- stability -------------------------------------------------------------------------------------------------------


def test_stability_is_the_index_of_the_bins_counts():
    first, second = np.array([50.0, 30.0, 20.0]), np.array([20.0, 30.0, 50.0])
    assert stability(first, second) == pytest.approx(2 * 0.3 * np.log(2.5))
    assert stability(first, 3 * first) == pytest.approx(0.0)
    assert np.isfinite(stability(first, np.array([100.0, 0.0, 0.0])))


def test_columns_that_moved_are_told_from_those_that_did_not():
    X, y = table(rows=800)
    X.loc[400:, "b"] += 2 * X["b"].std()
    X["colour"] = np.where(np.arange(800) < 400, "red", "blue")  # a category that the first sample does not have
    fed = fs.Federation.split(X, y, parties=3)
    found = fs.psi(fed, np.arange(400), np.arange(400, 800))
    found.index = short(found.index)
    assert found["b"] > 1
    assert found["colour"] > 1
    assert found[["a", "c", "d", "e", "f"]].max() < 0.25
    assert (found == found.round(2)).all()


@pytest.mark.parametrize("at", [2021, "2021"])
def test_rows_are_parted_by_a_column_of_one_party(at):
    X, y = table(rows=800)
    years = np.repeat([2019, 2020, 2021, 2022], 200)
    X.loc[400:, "b"] += 2 * X["b"].std()
    X["year"] = years if at == 2021 else years.astype(str)
    fed = fs.Federation.split(X, y, parties=3)
    whose = next(name for name, columns in fed.column_names().items() if "year" in columns)
    found = fs.psi(fed, by=f"{whose}.year", at=at)
    listed = fs.psi(fed, np.arange(400), np.arange(400, 800))
    pd.testing.assert_series_equal(found, listed)
    assert found.filter(like=".b").iloc[0] > 1


@pytest.mark.parametrize("at", ["2021-01-01", datetime.date(2021, 1, 1), pd.Timestamp("2021-01-01")])
def test_rows_are_parted_at_a_date(at):
    X, y = table(rows=800)
    X["seen"] = pd.date_range("2019-01-01", "2022-12-31", periods=800)
    fed = fs.Federation.split(X, y, parties=3)
    whose = next(name for name, columns in fed.column_names().items() if "seen" in columns)
    before = int((X["seen"] < pd.Timestamp("2021-01-01")).sum())
    listed = fs.psi(fed, np.arange(before), np.arange(before, 800))
    pd.testing.assert_series_equal(fs.psi(fed, by=f"{whose}.seen", at=at), listed)
    with pytest.raises(ParameterError, match="no row lies from the value on"):
        fs.psi(fed, by=f"{whose}.seen", at="2031-01-01")
    for wrong in ("June", 2021):  # not the 2,021st day of 1970
        with pytest.raises(DataError, match="holds dates; part its rows at a date"):
            fs.psi(fed, by=f"{whose}.seen", at=wrong)


def test_a_site_parts_rows_only_as_the_job_says():
    fed = fs.Federation.split(*table(), parties=2)
    with (
        fed.session(*StatisticsJob(what="psi").announcement()) as run,
        pytest.raises(OperationRefused, match="does not part rows"),
    ):
        run.ask(sample_rows, to="party1")
    for given in (
        {"by": "party1.a"},
        {"by": "party2.a", "at": 1.0},
        {"before": [1], "after": [2], "by": "party1.a", "at": 1},
    ):
        with pytest.raises(ParameterError, match="by"):
            fs.psi(fed, **given)


def test_samples_that_share_rows_or_have_none_are_refused():
    fed = fs.Federation.split(*table(), parties=2)
    for before, after in ((range(10), range(5, 20)), ([], range(5))):
        with pytest.raises(ParameterError, match="two samples"):
            fs.psi(fed, before, after)


# --- who may ask what ------------------------------------------------------------------------------------------------


def logit(fed, **said):
    return fs.significance(fed, model="logistic", open_scores=True, **said)


@pytest.mark.parametrize("statistic", [fs.correlation, fs.vif, fs.significance, logit])
def test_a_party_that_runs_the_coordinator_is_refused(statistic):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], coordinator="bank")
    with pytest.raises(ParameterError, match="holds no rows"):
        statistic(fed)


@pytest.mark.parametrize("statistic", [fs.correlation, fs.vif, fs.significance, lambda fed: fs.psi(fed, [0], [1])])
def test_horizontal_parties_are_refused_in_words(statistic):
    X, y = table()
    with pytest.raises(ParameterError, match="vertical parties"):
        statistic(fs.Federation.split(X, y, parties=2, partition="horizontal"))


def test_the_label_takes_part_in_p_values_alone():
    """A job for correlations cannot be turned into one about the label: what is asked stands in the accepted job."""
    fed = fs.Federation.split(*table(), parties=2)
    for what, targets in (("correlation", 0), ("significance", 1)):
        with fed.session(*StatisticsJob(what=what).announcement()) as run:
            assert run.ask(open_columns, to="party1", task="auto")["targets"] == targets


def test_samples_are_compared_after_one_was_kept_and_once():
    fed = fs.Federation.split(*table(), parties=2)
    with fed.session(*StatisticsJob(what="psi").announcement()) as run:
        with pytest.raises(OperationRefused, match="comes after"):
            run.ask(compare_sample, to="party1")
        run.ask(keep_sample, to="party1")
        run.ask(compare_sample, to="party1")
        with pytest.raises(OperationRefused, match="1 times already"):
            run.ask(compare_sample, to="party1")


def policy_fed(rows=400, policy=None):
    X, y = table(rows)
    ids = [f"p{i}" for i in range(rows)]
    bank = Table.read(X[["a", "b"]].assign(id=ids, label=y), id="id", label="label", name="bank")
    shop = Table.read(X[["d", "e", "f"]].assign(id=ids), id="id", name="shop")
    sites = {each.name: PolicySite(each.name, each, policy or Policy()) for each in (bank, shop)}
    return fs.Federation(InProcess(sites), list(sites), active="bank")


def test_a_site_with_the_default_policy_allows_it_and_writes_it_down():
    fed = policy_fed()
    fs.correlation(fed)
    fs.vif(fed)
    lines = fed.simulated["shop"].journal.journal.lines()
    opened = [line for line in lines if line.operation == "moments.masked_sides"]
    assert [(line.readers, line.statistics, line.counted) for line in opened] == [("coordinator", 6, 0.0)] * 2


def test_a_site_refuses_a_statistic_that_its_policy_does_not_allow():
    with pytest.raises(PolicyRefused, match="'statistics' is not allowed"):
        fs.correlation(policy_fed(policy=Policy(methods=["gini"])))


def test_samples_that_differ_by_few_rows_are_refused_by_the_journal():
    with pytest.raises(PolicyRefused, match="min_rows"):
        fs.psi(policy_fed(), np.arange(380), np.arange(380, 400))
    fed = policy_fed()
    fs.psi(fed, np.arange(200), np.arange(200, 400))
    with pytest.raises(PolicyRefused, match="min_rows"):  # its rows and those of before differ by ten
        fs.psi(fed, np.arange(210), np.arange(210, 400))


def test_cells_below_the_sites_own_are_refused():
    fed = policy_fed()
    with pytest.raises(PolicyRefused, match="min_cell"):
        fs.psi(fed, np.arange(200), np.arange(200, 400), min_cell=2)


def test_a_coordinator_that_never_announced_anything_opens_nothing():
    fed = fs.Federation.split(*table(), parties=2)
    with fed.session() as run, pytest.raises(OperationRefused):
        run.ask(own_products, to="party1")


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path):
    X, y = table()
    ids = [f"p{i}" for i in range(len(X))]
    X[["a", "b", "c"]].assign(id=ids, label=(y > 0).astype(int)).to_csv(tmp_path / "classes.csv", index=False)
    X[["a", "b", "c"]].assign(id=ids, label=y).to_csv(tmp_path / "bank.csv", index=False)
    X[["d", "e", "f"]].assign(id=ids).to_csv(tmp_path / "shop.csv", index=False)
    text = (
        '[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "label"\n[parties.shop]\nfile = "shop.csv"\nid = "id"\n'
    )
    (tmp_path / "job.toml").write_text(text + '[method]\nname = "knockoffs"\n')
    return tmp_path / "job.toml"


def asked(*arguments):
    done = CliRunner().invoke(app, ["statistics", *map(str, arguments), "-q"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_shows_the_closest_pairs_and_writes_all(job):
    out = job.parent / "all.csv"
    shown = asked(job, "--kind", "spearman", "--out", out)
    assert "Closest pairs" in shown
    X, _ = table()
    written = pd.read_csv(out, index_col="column")
    np.testing.assert_allclose(written, X.corr(method="spearman"), atol=1e-7)


def test_the_command_gives_figures_to_scripts(job):
    X, y = table()
    found = json.loads(asked(job, "--what", "significance", "--format", "json"))
    np.testing.assert_allclose(
        [row["t"] for row in found.values()], pooled_ols(X.to_numpy(), y.to_numpy())[0], rtol=1e-6
    )
    assert "vif" in asked(job, "--what", "vif")
    changed = ("--set", "parties.bank.file=classes.csv")
    assert "z" in asked(job, "--what", "significance", "--model", "logistic", "--open-scores", *changed)


def test_the_command_compares_two_samples(job):
    shown = json.loads(asked(job, "--what", "psi", "--by", "bank.a", "--at", "0", "--format", "json"))
    assert shown["bank.a"]["psi"] == max(row["psi"] for row in shown.values())
    done = CliRunner().invoke(app, ["statistics", str(job), "--what", "psi", "-q"])
    assert done.exit_code != 0
    assert "--by" in done.output


def test_the_command_refuses_a_file_that_is_no_table(job):
    done = CliRunner().invoke(app, ["statistics", str(job), "--out", "x.html"])
    assert done.exit_code != 0
    assert ".csv" in done.stderr
