"""Feature Election: the vote is counted right, and nobody sees a ballot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.errors import ParameterError
from fedsift.select.baselines.feature_election import FeatureElection, elect, local_scores


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
