"""A coordinator that takes off, by what it asks, the noise that a job has paid for once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.engineer.fed_iife.private import noisy_moments
from fedsift.engineer.noisy_model import BITS
from fedsift.errors import OperationRefused
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.baselines.noisy_votes import block_votes, noisy_ballot
from hostile.test_settings import hospitals

VOTES = {"columns": ["a", "b", "c"], "regression": False}


@pytest.mark.parametrize(
    ("method", "step", "size"), [("lasso", noisy_ballot, 8), ("mutual_information", block_votes, 4)]
)
def test_the_votes_of_a_run_are_the_same_in_each_of_its_sessions(method, step, size):
    """Drawn anew in each session inside the run they had another noise, and the run paid for one: the mean of as many
    sessions as the job names parties (with names that nobody bears, thousands) had hardly any."""
    fed, _ = hospitals()
    with fed.session(*fs.FeatureElection(epsilon=0.3, method=method, n_local=1).announcement()) as run:
        told = []
        for _ in range(2):
            with run.session() as inner:
                told.append(SecureSum(inner).sum(step, (size,), **VOTES))
        assert np.allclose(*told, atol=1e-9)


@pytest.mark.parametrize("changed", ["columns", "rows"])
def test_there_is_no_second_vote_on_other_rows_or_columns(changed):
    fed, _ = hospitals()
    with fed.session(*fs.FeatureElection(epsilon=0.3, method="mutual_information").announcement()) as run:
        total = SecureSum(run)
        total.sum(block_votes, (4,), **VOTES)
        if changed == "rows":
            total.fed = run.view(rows={name: np.arange(300) for name in run.parties})
        with pytest.raises(OperationRefused, match="it has voted in this run"):
            total.sum(block_votes, columns=["a", "b"] if changed == "columns" else ["a", "b", "c"], regression=False)


def deviation(ghosts: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of the noise in the sums of FedIIFE that two parties give in a job that names so many more."""
    job = Federation.job

    def naming(self: Federation, *told: Any, **more: Any) -> Any:
        made = job(self, *told, **more)
        return replace(made, parties=(*made.parties, *(f"ghost{i}" for i in range(ghosts))))

    monkeypatch.setattr(Federation, "job", naming)
    made = fs.FedIIFE(epsilon=1.0, bounds=dict.fromkeys("abc", (-3.0, 3.0)))
    asked = {"formulas": ["a", "b", "c"], "classes": ["no", "yes"], "low": -1.0, "high": 1.0}
    told = []
    for _ in range(3):
        fed, _ = hospitals()
        with fed.session(*made.announcement()) as run:
            told.append(np.ldexp(SecureSum(run).sum(noisy_moments, (15,), **asked), -2 * BITS))
    monkeypatch.undo()
    return float(np.std(told, axis=0, ddof=1).mean())


def test_parties_that_a_job_names_and_that_take_no_part_share_no_noise(monkeypatch):
    """Each of K parties adds a (K - 1)th: with 998 names more, two parties added 1/36 of the deviation together."""
    honest = deviation(0, monkeypatch)
    assert deviation(998, monkeypatch) == pytest.approx(honest, rel=0.5)
