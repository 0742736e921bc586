"""Sums on a cluster of the party's own (Dask, processes of this machine): the same bytes as here."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import cached_key

import fedsift as fs
from fedsift.core import workers
from fedsift.core.workers import limited
from fedsift.crypto.additive import grouped
from fedsift.crypto.additive.grouped import group_sums
from fedsift.errors import DataError
from fedsift.models.boost import joint_powers
from fedsift.models.boost.joint_powers import GroupTable, joint_sums

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def engine():
    """Two processes, as on two machines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tcp://"
        )
    yield cluster.scheduler_address
    workers._client(cluster.scheduler_address).close()
    workers._client.cache_clear()
    cluster.close()


@pytest.fixture(autouse=True)
def everything_is_worth_sending(monkeypatch):
    monkeypatch.setattr(grouped, "_WORTH_SENDING", 1)
    monkeypatch.setattr(grouped, "_COLUMNS_SENT", 2)
    monkeypatch.setattr(joint_powers, "_WORTH_SENDING", 1)
    monkeypatch.setattr(joint_powers, "_COLUMNS_TOGETHER", 2)


def test_group_sums_of_a_cluster_are_the_same_bytes(engine):
    key, rng = cached_key(), np.random.default_rng(0)
    rows = key.public.encrypt(rng.integers(0, 9, 300).tolist())
    codes = rng.integers(0, 4, (300, 5)).astype(np.uint8)
    here = group_sums(key.public, rows, codes, [4] * 5)
    with limited(None, engine):
        there = group_sums(key.public, rows, codes, [4] * 5)
    assert there.to_bytes() == here.to_bytes()


def test_joint_sums_of_a_cluster_are_the_same_numbers(engine):
    key, rng = cached_key(), np.random.default_rng(0)
    bins = np.asfortranarray(rng.integers(0, 5, (400, 5)).astype(np.uint8))
    lines = np.flatnonzero(rng.random(400) < 0.5)
    counts = np.array([np.bincount(bins[lines, c], minlength=5) for c in range(5)])
    left_out = counts.argmax(axis=1)
    counts[np.arange(5), left_out] = 0
    table = GroupTable(lines, bins, np.full(5, 5), left_out, counts.ravel(), lines)
    vector = key.public.encrypt(rng.integers(0, 99, 400).tolist())
    here = joint_sums(key.public, vector, [table, table])
    with limited(None, engine):
        there = joint_sums(key.public, vector, [table, table])
    assert there.to_bytes() == here.to_bytes()


def test_a_party_with_an_engine_has_the_same_results(engine, monkeypatch):
    """Filters and trees: what the cluster was asked for is counted, so that the test is about it."""
    asked = []
    monkeypatch.setattr(workers, "_PATIENCE_S", 20)
    real = workers.elsewhere

    def counted(work, common, items):
        found = real(work, common, items)
        asked.append(found is not None)
        return found

    monkeypatch.setattr(grouped, "elsewhere", counted)
    monkeypatch.setattr(joint_powers, "elsewhere", counted)
    rng = np.random.default_rng(1)
    y = np.arange(200) % 2
    X = pd.DataFrame(rng.normal(size=(200, 6)) + 0.4 * y[:, None], columns=list("abcdef"))
    scores = []
    for address in (None, engine):
        fed = fs.Federation.split(X, y, parties=2)
        for site in fed._link.transport.sites.values():
            site.engine = address
        model = fs.SecureBoostClassifier(
            n_estimators=1, max_depth=3, first_tree_local=False, protection="open", sum_noise=0
        )
        scores.append((fs.InformationValue(n_features=2).fit(fed).scores_, model.fit(fed).predict_proba(fed)))
        assert any(asked) == (address is not None)
    pd.testing.assert_frame_equal(scores[0][0], scores[1][0])
    np.testing.assert_array_equal(scores[0][1], scores[1][1])


def test_an_engine_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE_S", 0.2)
    with limited(None, "tcp://127.0.0.1:9"), pytest.raises(DataError, match=r"tcp://127.0.0.1:9.*does not answer"):
        workers.elsewhere(len, (), [[]])
