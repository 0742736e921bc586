"""Feature Election: the vote is counted right, and nobody sees a ballot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy import loss_from_below

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores import noise
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.baselines import noisy_fit, noisy_votes
from fedsift.select.baselines.feature_election import FeatureElection, elect
from fedsift.select.baselines.local_scores import L1_RATIO, local_scores
from fedsift.select.baselines.noisy_fit import NoisyFit
from fedsift.select.baselines.noisy_votes import VotingSettings, elected, exact_votes


def table(n=180, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 8))).add_prefix("x")
    return X, 2 * X["x0"] - X["x3"] + rng.normal(0, 0.3, n)


def split(X, y, **kw):
    return fs.Federation.split(X, y, parties=3, partition="horizontal", **kw)


def test_votes_are_counted_right():
    votes, scores = np.array([3, 2, 1, 0, 3, 1]), np.array([0.5, 0.1, 0.9, 0.0, 0.2, 0.3])
    assert elect(votes, scores, 3, 0.0).tolist() == [True, False, False, False, True, False]
    assert elect(votes, scores, 3, 1.0).tolist() == [True, True, True, False, True, True]
    assert elect(votes, scores, 3, 0.5).tolist() == [True, False, True, False, True, True]
    assert not elect(np.zeros(3), np.zeros(3), 0, 1.0).any()


@pytest.mark.parametrize("method", ["lasso", "elastic_net", "forest", "mutual_information"])
def test_votes_are_the_parties_own(method):
    X, y = table()
    fed = split(X, y)
    sites = fed._link.transport.sites
    alpha = 0.1
    election = FeatureElection(method=method, n_local=2, penalty=alpha, freedom_degree=0.0).fit(fed)
    assert "x0" in election.selected_["party1"]
    if method in ("lasso", "elastic_net"):
        mean, deviation = X.mean(), X.std(ddof=0)
        expected = np.zeros(8, dtype=int)
        for site in sites.values():
            design = (site.table.matrix() - mean.to_numpy()) / deviation.to_numpy()
            target = (site.table.label - y.mean()) / y.std(ddof=0)
            expected += local_scores(design, target, method, alpha, "regression", 0) > 0
        assert list(election.details_["votes"].values()) == expected.tolist()


def test_no_ballot_travels_in_the_clear():
    X, y = table()
    fed = split(X, y)
    log = fed._link.transport = Recording(fed._link.transport)
    FeatureElection(method="mutual_information", n_local=2).fit(fed)
    vectors = [decode(data).get("ok") for _, receiver, data in log.log if receiver == "coordinator"]
    masked = [v for v in vectors if isinstance(v, np.ndarray) and v.size == 2 * 18]
    assert len(masked) == 3
    assert all((np.abs(v.view(np.int64)[:8].astype(float)) > 1e6).all() for v in masked)


def test_a_party_with_one_class_votes():
    X, y = table()
    words = np.where(y > 0, "yes", "no")
    frames = {
        "p": X[:100].assign(word="w", y=words[:100]),
        "q": X[100:160].assign(word="v", y=words[100:160]),
        "r": X[words == "yes"].assign(word="u", y="yes"),
    }
    fed = fs.Federation.from_tables(frames, id=None, label="y", partition="horizontal")
    election = FeatureElection(penalty=0.05).fit(fed)
    assert election.details_["voters"] == 2
    assert "x0" in election.selected_["r"]
    assert "word" not in election.selected_["r"]


def test_settings_that_make_no_sense_are_refused():
    X, y = table(60)
    for bad in ({"method": "coin"}, {"freedom_degree": 2}, {"n_local": 0}, {"penalty": 0}):
        with pytest.raises(ParameterError):
            FeatureElection(**bad).fit(split(X, y))


# --- with epsilon -----------------------------------------------------------------------------------------------------


def voting(columns=6, **changed) -> VotingSettings:
    told = {**FeatureElection(epsilon=1.0, n_local=2, n_blocks=8, penalty=0.05).get_params(), **changed}
    return VotingSettings.of(told, columns)


def party_of(X: pd.DataFrame, y: np.ndarray) -> Party:
    frame = X.assign(id=[f"p{i}" for i in range(len(X))], outcome=y)
    return Party(Site("shop", Table.read(frame, id="id", label="outcome", name="shop")), "")


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_replaced_row_changes_one_ballot_whatever_it_holds(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    X, y = pd.DataFrame(rng.normal(size=(160, 6))).add_prefix("x"), rng.integers(0, 2, 160)
    method = data.draw(st.sampled_from(["lasso", "mutual_information"]))
    row = data.draw(st.integers(0, 159))
    other, label = X.copy(), y.copy()
    other.loc[row] = data.draw(st.sampled_from([0.0, 1e6, -1e6, np.nan])) * np.arange(1, 7)
    label[row] = 1 - label[row]
    told = voting(method=method)
    before, after = (exact_votes(party_of(*each), list(X), each[1], False, told) for each in ((X, y), (other, label)))
    assert ((before - after) ** 2).sum() <= 2 * told.n_local
    assert told.n_local / told.scale**2 == pytest.approx(told.rho)
    assert before.max() <= told.blocks(160) == 8


@pytest.mark.parametrize("times", [1, 400])
def test_the_loss_of_votes_measured_from_below(times):
    """Two ballots that have nothing in common: the farthest that one row can move the counts."""
    told = voting()
    before, after = np.array([1, 1, 0, 0, 3, 4]), np.array([0, 0, 1, 1, 3, 4])
    assert ((before - after) ** 2).sum() == 2 * told.n_local
    scale = told.scale / np.sqrt(times)
    first, second = (each + noise.drawn((1_500, 6), scale) for each in (before, after))
    assert (loss_from_below(first, second) <= 1.0) == (times == 1)


def test_each_party_adds_full_noise_for_itself_and_repeats_it(monkeypatch):
    scales = []
    drawn = noisy_votes.drawn
    monkeypatch.setattr(noisy_votes, "drawn", lambda shape, scale: scales.append(scale) or drawn(shape, scale))
    X, y = table(600)
    fed = split(X, y)
    selector = FeatureElection(method="forest", epsilon=1.0, n_local=2, n_blocks=2, protection="open")
    with fed.session(*selector.announcement()) as run:
        total = SecureSum(run, secure=False)
        asked = {"columns": list(X), "regression": True}
        first, second = (total.sum(noisy_votes.block_votes, (9,), **asked) for _ in range(2))
    assert scales == pytest.approx([voting(8, n_blocks=2).scale] * 3)
    assert first.tolist() == second.tolist()  # asked again, the mean of the answers would be the exact count


@pytest.mark.parametrize(
    ("method", "told", "voters"),
    [("lasso", {}, 3), ("elastic_net", {}, 3), ("mutual_information", {"epsilon": 20.0, "n_blocks": 10}, 30)],
)
def test_what_matters_is_elected_and_no_sum_of_values_is_asked(method, told, voters):
    X, y = table(6_000)
    fed = split(X, y)
    log = fed._link.transport = Recording(fed._link.transport)
    election = FeatureElection(**{"method": method, "epsilon": 2.0, "n_local": 2, "penalty": 0.1, **told}).fit(fed)
    assert election.selected_["party1"] == ["x0", "x3"]
    assert election.details_["voters"] == voters
    asked = {decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"}
    assert not {name for name in asked if name.startswith("study.")} - {"study.describe_rows"}


def test_the_share_of_votes_decides_as_far_as_noise_lets_one_tell():
    votes = np.array([100.0, 60, 40, 3, -5])
    assert elected(votes, 100, 1.0, 0.5).tolist() == [True, True, False, False, False]
    assert elected(votes, 100, 1.0, 0.0).tolist() == [True, False, False, False, False]
    assert elected(votes, 100, 1.0, 1.0).tolist() == [True, True, True, True, False]
    assert elected(votes, 100, 50.0, 1.0).tolist() == [True, True, False, False, False]  # half, where all is noise


# --- a linear model of noisy sums -------------------------------------------------------------------------------------


def placed(data, rows=40, columns=4):
    """Places, and the same with one row replaced; classes likewise."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, classes = rng.normal(size=(rows, columns)), rng.integers(0, 3, rows)
    other, told = x.copy(), classes.copy()
    other[0] = data.draw(st.sampled_from([0.0, 1.0, -1e6, 1e6])) * rng.normal(size=columns)
    if data.draw(st.booleans()):
        other[0], x[0] = -9.0, 9.0  # opposite, and cut: the farthest
    told[0] = data.draw(st.integers(0, 2))
    return x, other, classes, told


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_replaced_row_moves_the_sums_no_farther_than_their_noise_is_made_for(data):
    x, other, classes, told = placed(data)
    fit = NoisyFit(0.01, 1.0, 2, 1.0)
    amounts = data.draw(st.booleans())
    targets = [
        np.where(each > 0, 1.0, -1.0)[:, None] if amounts else np.eye(3)[each] for each in (classes, told)
    ]  # fmt: skip
    moved = noisy_fit.target_sums(other, targets[1]) - noisy_fit.target_sums(x, targets[0])
    share = 1 - noisy_fit.BOUNDS_SHARE - noisy_fit.PRODUCTS_SHARE
    assert (np.ldexp(moved, -2 * noisy_fit.BITS) ** 2).sum() <= 2 * share * fit.target_scale(4) ** 2 * (1 + 1e-9)
    moved = np.ldexp(noisy_fit.product_sums(other) - noisy_fit.product_sums(x), -2 * noisy_fit.BITS)
    weight = np.full((4, 4), 2.0) - np.eye(4)  # beside the diagonal the noise has half of the variance
    spent = (np.triu(weight * moved**2)).sum() / (2 * fit.product_scale(4) ** 2)
    assert spent <= noisy_fit.PRODUCTS_SHARE * (1 + 1e-9)


@pytest.mark.parametrize("times", [1, 400])
def test_the_loss_of_a_noisy_ballot_measured_from_below(monkeypatch, times):
    """Two rows at opposite places, the farthest that one can go; what is released first and what follows from it."""
    rows, columns, draws = 30, 2, 1_500
    x = np.zeros((rows, columns))
    x[0] = 9.0
    monkeypatch.setattr(noisy_fit, "standardised", lambda values, bins, rho: values)
    noise_of = noisy_fit.whole_gaussian_noise
    monkeypatch.setattr(noisy_fit, "whole_gaussian_noise", lambda shape, scale: noise_of(shape, scale / times**0.5))
    fit = NoisyFit(0.01, 1.0, 1, noise.rho_of(1.0, 1e-6))
    target = np.eye(2)[np.arange(rows) % 2]

    def released(values):
        first = fit._with_target(values, target)
        return np.concatenate([first.ravel(), fit._products(values)[0].ravel()])

    before, after = (np.array([released(each) for _ in range(draws)]) for each in (x, -x))
    assert (loss_from_below(before, after) <= 1.0) == (times == 1)


def test_a_ballot_is_drawn_once_and_asked_again_it_is_the_same():
    X, y = table(600)
    fed = split(X, y)
    with fed.session(*FeatureElection(epsilon=1.0, n_local=2, protection="open").announcement()) as run:
        total = SecureSum(run, secure=False)
        asked = {"columns": list(X), "regression": True}
        first, second = (total.sum(noisy_votes.noisy_ballot, (18,), **asked) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first[-2:].tolist() == [600.0, 3.0]


@pytest.mark.parametrize("method", ["lasso", "elastic_net"])
def test_with_little_noise_the_ballot_is_that_of_the_columns_as_they_are(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 6)) @ np.linalg.cholesky(np.eye(6) * 0.6 + 0.4).T
    y = (X[:, 0] + 0.5 * X[:, 1] - 0.7 * X[:, 4] + rng.normal(size=5_000) > 0).astype(np.int64)
    found = NoisyFit(0.01, L1_RATIO[method], 3, 1e7).scores(X, y, 2)
    exact = local_scores((X - X.mean(axis=0)) / X.std(axis=0), y, method, 0.01, "classification", 0)
    assert np.allclose(found, exact, atol=0.05 * exact.max())  # bins, and rows that are cut, say a little less


def test_with_little_noise_a_column_that_counts_only_beside_others_is_found():
    """Columns were let go once that have little in common with the class by themselves, whatever epsilon was."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(20_000, 1))
    X = np.hstack([rng.normal(size=(20_000, 12)) + common, common + 0.3 * rng.normal(size=(20_000, 1))])
    y = (X[:, :12].mean(axis=1) - 0.92 * X[:, 12] + 0.1 * rng.normal(size=20_000) > 0).astype(np.int64)
    assert abs(np.corrcoef(X[:, 12], y)[0, 1]) < min(abs(np.corrcoef(X[:, j], y)[0, 1]) for j in range(12))
    exact = local_scores((X - X.mean(axis=0)) / X.std(axis=0), y, "lasso", 0.01, "classification", 0)
    assert exact.argmax() == 12
    assert NoisyFit(0.01, 1.0, 3, 1e7).scores(X, y, 2).argmax() == 12


def test_how_many_columns_are_multiplied_follows_from_public_figures():
    few, many = NoisyFit(0.01, 1.0, 5, noise.rho_of(1.0, 1e-6)), NoisyFit(0.01, 1.0, 5, noise.rho_of(3.0, 1e-6))
    assert [few.going(rows, 100) for rows in (100, 10_000, 10**7)] == [10, 14, 100]
    assert few.going(10_000, 12) == 12
    assert many.going(10_000, 100) == 28


def test_a_run_whose_noise_hides_everything_says_so():
    X, y = table(120)
    few, many = split(X, y), split(*table(6_000))
    for fed, said in ((few, True), (many, False)):
        election = FeatureElection(epsilon=1.0).fit(fed)
        assert any("votes are mostly chance" in note for note in election.ledger_.notes) == said
