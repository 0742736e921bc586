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
from fedsift.select.baselines import noisy_votes
from fedsift.select.baselines.feature_election import FeatureElection, elect
from fedsift.select.baselines.local_scores import local_scores
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
    election = FeatureElection(method=method, n_local=2, alpha=alpha, freedom_degree=0.0).fit(fed)
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
    election = FeatureElection(alpha=0.05).fit(fed)
    assert election.details_["voters"] == 2
    assert "x0" in election.selected_["r"]
    assert "word" not in election.selected_["r"]


def test_settings_that_make_no_sense_are_refused():
    X, y = table(60)
    for bad in ({"method": "coin"}, {"freedom_degree": 2}, {"n_local": 0}, {"alpha": 0}):
        with pytest.raises(ParameterError):
            FeatureElection(**bad).fit(split(X, y))


# --- with epsilon -----------------------------------------------------------------------------------------------------


def voting(columns=6, **changed) -> VotingSettings:
    told = {**FeatureElection(epsilon=1.0, n_local=2, n_blocks=8, alpha=0.05).get_params(), **changed}
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
    before, after = (exact_votes(party_of(*each), list(X), False, told) for each in ((X, y), (other, label)))
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
    selector = FeatureElection(epsilon=1.0, n_local=2, protection="open")
    with fed.session(*selector.announcement()) as run:
        total = SecureSum(run, secure=False)
        asked = {"columns": list(X), "regression": True}
        first, second = (total.sum(noisy_votes.block_votes, (9,), **asked) for _ in range(2))
    assert scales == pytest.approx([voting(8).scale] * 3)
    assert first.tolist() == second.tolist()  # asked again, the mean of the answers would be the exact count


def test_blocks_elect_what_matters_and_no_sum_of_values_is_asked():
    X, y = table(6_000)
    fed = split(X, y)
    log = fed._link.transport = Recording(fed._link.transport)
    election = FeatureElection(epsilon=2.0, n_local=2, alpha=0.1).fit(fed)
    assert election.selected_["party1"] == ["x0", "x3"]
    assert election.details_["voters"] == 300
    asked = {decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"}
    assert not {name for name in asked if name.startswith("study.")} - {"study.describe_rows"}


def test_the_share_of_votes_decides_as_far_as_noise_lets_one_tell():
    votes = np.array([100.0, 60, 40, 3, -5])
    assert elected(votes, 100, 1.0, 0.5).tolist() == [True, True, False, False, False]
    assert elected(votes, 100, 1.0, 0.0).tolist() == [True, False, False, False, False]
    assert elected(votes, 100, 1.0, 1.0).tolist() == [True, True, True, True, False]
    assert elected(votes, 100, 50.0, 1.0).tolist() == [True, True, False, False, False]  # half, where all is noise
