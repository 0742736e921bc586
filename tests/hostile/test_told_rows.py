"""A column read row by row: by parting the rows at one value after the other, or by dealing them by it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.identity import introduce
from fedsift.site.site import PolicySite
from fedsift.statistics.job import StatisticsJob
from hostile.coordinator import Hostile, policy, refused


def read(hostile: Hostile, cuts: np.ndarray) -> np.ndarray:
    """How many of the values each row lies above, by a stability index a value."""
    above = []
    for cut in cuts.tolist():
        job = hostile.job(*StatisticsJob(what="psi", by="shop.weak", at=cut).announcement())
        session = hostile.begin(job)
        above.append(hostile.send("shop", "statistics.sample_rows", session=session, job=job.hash)["ok"] == 0)
        hostile.end(session)
    return np.sum(above, axis=0)


def test_rows_are_not_parted_by_a_column_that_its_party_did_not_list():
    hostile = Hostile()
    job = hostile.job(*StatisticsJob(what="psi", by="shop.weak", at=0.0).announcement())
    refused(hostile.announced(job.canonical, to="shop"), "rows_by")
    assert hostile.announced(job.canonical, to="bank") == {"ok": None}  # it is no column of the bank's


def test_one_that_is_listed_is_read_row_by_row():
    """The reason for the rule, under rules that are otherwise the default ones."""
    hostile = Hostile(rows_by=["weak"])
    values = hostile.sites["shop"].table.values("weak")
    assert np.corrcoef(read(hostile, np.linspace(-4, 4, 33)), values)[0, 1] > 0.99


def clinic(**rules: object) -> Hostile:
    """The label holder has set an event and a second label aside: a job may learn from them."""
    hostile = Hostile()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(240, 2)), columns=["age", "dose"]).assign(
        id=[f"c{i}" for i in range(240)], days=rng.integers(1, 99, 240), died=rng.integers(0, 2, 240),
        relapse=rng.choice(["no", "yes"], 240),
    )  # fmt: skip
    table = fs.Table.read(frame, id="id", label="days", name="bank", aside=["died", "relapse"])
    hostile.sites["bank"] = PolicySite("bank", table, policy(**rules))
    introduce(hostile.sites)
    return hostile


@pytest.mark.parametrize("design", [{"group": "bank.died"}, {"group": "bank.relapse"}, {"time": "bank.died"}])
def test_rows_are_not_dealt_by_an_event_or_a_label(design):
    """Of two groups, or two times, one is the training rows and the other the test rows."""
    job = clinic().job(*fs.GiniFilter().announcement(), design=design)
    refused(clinic().announced(job.canonical), "rows_by")
    hostile = clinic(rows_by=[design.get("group", design.get("time")).removeprefix("bank.")])
    session = hostile.begin(job, to=("bank",))
    told = hostile.send("bank", "core.draw_designed_rows", session=session, job=job.hash, folds=1, train=0.5)["ok"][0]
    column = hostile.sites["bank"].table.aside[next(iter(design.values())).removeprefix("bank.")].to_numpy()
    same = np.mean((told == told[0]) == (column == column[0]))
    assert same == 1.0, "which is what the rule is for"


def test_a_design_that_learns_from_them_is_not_touched():
    hostile = clinic()
    for design in ({"event": "bank.died"}, {"label": "bank.relapse"}):
        job = hostile.job(*fs.GiniFilter().announcement(), design=design)
        assert hostile.announced(job.canonical) == {"ok": None}
