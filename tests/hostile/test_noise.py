"""A coordinator that takes off, by what it asks, the noise that a job has paid for once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import mixed_table

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.crypto.sealed_box import SealedBox
from fedsift.engineer.fed_iife.private import noisy_moments
from fedsift.engineer.flafe.shared_residual import take_shares
from fedsift.engineer.noisy_model import BITS
from fedsift.errors import FedsiftError, OperationRefused
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.baselines.noisy_votes import block_votes, noisy_ballot
from hostile.coordinator import Hostile, refused
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


@pytest.mark.parametrize("delta", ["0.999999", 0.999999, 0.5, 1, None, True, "1e-6"])
def test_an_epsilon_is_judged_beside_a_delta_that_leaves_it_its_meaning(delta):
    """As a text the site added noise by it and charged without it: (0.001, "0.999999") had the noise of an epsilon of
    40 (at delta 1e-6), was charged 5e-7 in rho where it costs 13.8, and passed max_epsilon = 0.001."""
    hostile = Hostile(max_epsilon=0.001)
    name, told = fs.InformationValue(n_features=2, epsilon=0.001).announcement()
    assert hostile.announced(hostile.job(name, told).canonical) == {"ok": None}
    refused(hostile.announced(hostile.job(name, {**told, "delta": delta}).canonical), "delta")


@pytest.mark.parametrize("epsilon", ["1.0", True, 0, -1.0, [1.0]])
@pytest.mark.parametrize("method", [fs.GiniFilter, fs.FedSDG])
def test_an_epsilon_is_a_number_above_zero_or_none(method, epsilon):
    name, told = method().announcement()
    key = "epsilon" if "epsilon" in told else "label_epsilon"
    hostile = Hostile()
    refused(hostile.announced(hostile.job(name, {**told, key: epsilon}).canonical), "no number above 0")


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


THREE = ["bank", "shop", "web"]


def three() -> Federation:
    X, _ = mixed_table(300)
    numbers = X[["signal", "noise", "weak", "counts", "signal", "noise"]].astype(float)
    numbers.columns = list("abcdef")
    return Federation.split(numbers, numbers["a"] + numbers["c"] * numbers["e"], parties=THREE)


def altered(sent: dict[str, Any]) -> dict[str, Any]:
    """What comes for a party, with one bit of it turned."""
    turned = {}
    for sender, parts in sent.items():
        turned[sender] = {pair: SealedBox.from_bytes(_turned(box.to_bytes())) for pair, box in parts.items()}
    return turned


def _turned(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


@pytest.mark.parametrize(
    ("changed", "says"),
    [({}, ""), ({"weight": 1 << 30}, "with weight 1"), ({"sent": altered}, "damaged|sealed"), ("twice", "taken once")],
    ids=["as it should be", "a heavier share", "an altered share", "twice"],
)
def test_shares_of_the_residual_are_taken_as_they_were_split_and_once(monkeypatch, changed, says):
    """Between three parties they pass through the coordinator. Under masks it could add to one row of them what it
    liked, or take them 2^30 times: that row's columns stood out of sums whose noise is made for a residual within 2."""
    ask = Federation.ask

    def asking(self: Federation, function: Any, **asked: Any) -> Any:
        if function is take_shares and isinstance(changed, dict):
            if "sent" in changed:
                asked["each"] = {name: {"sent": altered(each["sent"])} for name, each in asked["each"].items()}
            asked |= {"weight": changed.get("weight", asked["weight"])}
        elif function is take_shares:
            ask(self, function, **{**asked, "pairs": [], "senders": []})
        return ask(self, function, **asked)

    monkeypatch.setattr(Federation, "ask", asking)
    made = fs.VerticalFLAFE(
        protection="statistics", epsilon=5.0, bounds=dict.fromkeys("abcdef", (-5.0, 5.0)), target_bounds=(-5.0, 5.0),
        n_operands=2, max_iter=1, functions=["ab"],
    )  # fmt: skip
    if not says:
        made.fit(three())
        return
    with pytest.raises((OperationRefused, FedsiftError), match=says):
        made.fit(three())
