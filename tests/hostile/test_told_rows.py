"""A column read row by row: by parting the rows at one value after the other, or by dealing them by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.job import Job
from fedsift.core.table import Table
from fedsift.errors import PolicyRefused
from fedsift.models.boost.label_holder import next_sampled_trees
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from fedsift.statistics.job import StatisticsJob
from hostile.coordinator import Hostile, policy, refused
from hostile.test_readings import FILTERS, NOISY, ROWS, rare_labels


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


# --- labels by draws of rows, and by the number of classes, where nothing counted them --------------------------------


def drawn_rows(hostile: Hostile, job: Job, rows: np.ndarray) -> dict[str, Any]:
    """A stratified draw of these rows, in a run of its own."""
    asked = {"session": hostile.begin(job, to=("bank",)), "job": job.hash}
    hostile.send("bank", "core.define_view", **asked, view="some", rows=rows)
    told = {"train": 0.5, "stratify": True, "seed": 0, "task": "auto"}
    reply = hostile.send("bank", "core.draw_rows", **asked, on="some", **told)
    hostile._control("bank", "core.end_session", "", {"session": asked["session"]})
    return reply


@pytest.mark.parametrize("form", ["under noise", "alone", "of other persons"])
def test_no_number_of_draws_tells_the_labels(form):
    """Each stratified draw of other rows is an equation about labels. 400 of them in jobs with an epsilon of 0.001,
    whose bits were kept by atoms that such a job does not cut, gave every label (AUC 1.000); so did 1,000 of sets of
    fifties of rows in a job of the label holder alone, in which nobody else holds rows of the same people."""
    hostile = Hostile(rows=ROWS)
    alone = {"parties": ("bank",)} if form == "alone" else {}
    job = hostile.of(NOISY if form == "under noise" else FILTERS["exact"], **alone)
    if form == "of other persons":
        job = hostile.of(fs.RandomFeatures(n_features=1), partition="horizontal", active=None,
                         label_parties=("bank", "shop"))  # fmt: skip
    rng, told = np.random.default_rng(0), 0
    for _ in range(40):
        parts = rng.choice(ROWS // 50, 5, replace=False)
        reply = drawn_rows(hostile, job, np.flatnonzero(np.isin(np.arange(ROWS) // 50, parts)))
        told += "ok" in reply
    assert 0 < told < 6, "each row has room for one or two, and the same draw again is the same"
    refused(reply, "max_bits")


def test_the_size_of_an_encrypted_reply_counts_like_the_number_of_classes():
    """Of three classes one is rare: whether it is among some rows is how many numbers each ciphertext has room for."""
    hostile = rare_labels()
    frame = hostile.sites["bank"].table.to_polars().to_pandas()
    frame.loc[(np.arange(ROWS) % 20 > 0) & (np.arange(ROWS) % 2 == 0), "outcome"] = "perhaps"
    hostile.sites["bank"] = PolicySite("bank", Table.read(frame, id="id", label="outcome", name="bank"), policy())
    base, told = np.flatnonzero(np.arange(ROWS) % 20)[:60], 0
    for row in range(80, 140):
        job = hostile.of(NOISY)
        asked = {"session": hostile.begin(job), "job": job.hash}
        hostile.send("bank", "core.define_view", **asked, view="some", rows=np.union1d(base, [row]))
        encrypt = {"scheme": "auto", "task": "auto", "answers": 1, "weight_bits": 10}
        reply = hostile.send("bank", "tables.encrypt_every_class", **asked, on="some", **encrypt)
        told += "ok" in reply
        hostile.end(asked["session"])
    assert told <= ROWS // 10 + 1
    refused(reply, "max_bits")


@pytest.mark.parametrize("let", [False, True], ids=["default rules", "plain accepted"])
def test_which_rows_have_large_gradients_is_no_pseudonym(monkeypatch, let):
    """The first tree of a model in its open form, sampled by gradients: rows of the rarer class have the larger ones.
    A default policy let the sample through, to the coordinator and to every party."""
    hostile, table = Hostile(rows=ROWS), rare_labels().sites["bank"].table
    rules = policy(forms=[*Policy().forms, "plain"]) if let else policy()
    hostile.sites["bank"] = PolicySite("bank", table, rules, identity=hostile.sites["bank"].identity)
    ask, sets = Federation.ask, []

    def listening(self: Federation, function: Any, **asked: Any) -> Any:
        reply = ask(self, function, **asked)
        sets.extend(reply["sets"] if function is next_sampled_trees else [])
        return reply

    monkeypatch.setattr(Federation, "ask", listening)
    made = fs.SecureBoostClassifier(
        protection="open", n_estimators=1, max_depth=1, first_tree_local=False, sampling_method="gradient_based",
        top_rate=0.05, other_rate=1e-9,
    )  # fmt: skip
    with pytest.raises(PolicyRefused, match="max_bits|max_share" if let else "next_sampled_trees.*'forms'"):
        made.fit(hostile.federation())
    if let:
        sampled = np.unpackbits(sets[0], count=ROWS).astype(bool)
        assert (table.label[sampled] == "yes").mean() > 0.9, "which is why"
