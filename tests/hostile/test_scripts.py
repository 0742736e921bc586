"""Attacks on order and count: steps that are not the job's, too early, twice, at the wrong party, in an old round."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.job import MAX_SESSIONS
from fedsift.core.message import decode
from fedsift.methods import METHODS
from hostile.coordinator import Hostile, refused

GINI = fs.GiniFilter(n_features=2)
DRAW = {"train": 0.5, "stratify": True, "seed": 0, "task": "auto"}
CLASSES = {"scheme": "auto", "task": "auto"}
AMONG = {"among": ["bank", "shop"]}


@pytest.fixture
def hostile():
    return Hostile()


@pytest.fixture
def gini(hostile):
    """A session of an accepted job, and what each request of it names."""
    job = hostile.of(GINI)
    return {"session": hostile.begin(job), "job": job.hash}


FREE_OF_A_JOB = {
    "core.describe_label": {"task": "auto"},
    "core.draw_rows": DRAW,
    "core.define_view": {"view": "mine", "rows": np.arange(60)},
    "labels.encrypt_classes": CLASSES,
    "align.blind_ids": {},
    "pairs.offer_key": AMONG,
}


@pytest.mark.parametrize("operation", FREE_OF_A_JOB)
def test_rows_labels_and_ids_without_a_job(hostile, operation):
    for session in ("", "s1", "s1.inner"):
        refused(hostile.send("bank", operation, session=session, **FREE_OF_A_JOB[operation]), "methods")
    assert hostile.sites["bank"].runs == {}


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].operations])
def test_no_operation_of_another_method_runs_in_an_accepted_job(hostile, method):
    """Arguments need not fit: whatever is asked first, the answer is a refusal."""
    job = hostile.of(fs.RandomFeatures())
    session = hostile.begin(job)
    for marked in (each for each in METHODS[method].operations if each.family != "core"):
        refused(hostile.send("bank", marked.id, session=session, job=job.hash))


@pytest.mark.parametrize("operation", ["core.draw_rows", "labels.encrypt_classes"])
def test_a_step_that_is_asked_twice(hostile, gini, operation):
    arguments = {"core.draw_rows": DRAW, "labels.encrypt_classes": CLASSES}[operation]
    assert "ok" in hostile.send("bank", operation, **gini, **arguments)
    refused(hostile.send("bank", operation, **gini, **arguments), "as often as it declares")


def test_splits_with_seeds_of_the_coordinators_choice_in_sessions_inside_the_job(hostile, gini):
    """security.md, read 2: forty draws gave every label."""
    got = []
    for seed in range(40):
        inner = {**gini, "session": f"{gini['session']}.{seed}"}
        got.append("ok" in hostile.send("bank", "core.draw_rows", **inner, **{**DRAW, "seed": seed}))
    assert sum(got) == 1


def test_steps_that_come_before_the_one_they_need(hostile, gini):
    refused(
        hostile.send("bank", "tables.open_counts", **gini, told={"sums": {}, "notes": {}, "shapes": {}}), "comes after"
    )
    refused(hostile.send("bank", "pairs.meet", **gini, offers={}), "comes after")


def test_steps_of_the_other_role(hostile, gini):
    refused(hostile.send("shop", "labels.encrypt_classes", **gini, **CLASSES), "for active parties")
    refused(hostile.send("shop", "core.draw_rows", **gini, **DRAW), "for active parties")
    refused(hostile.send("shop", "core.describe_label", **gini, task="auto"), "for active parties")


def test_a_job_that_calls_somebody_else_the_label_holder_gets_no_label(hostile):
    job = hostile.of(GINI, active="shop", label_parties=("shop",))
    session = hostile.begin(job)
    refused(hostile.send("bank", "labels.encrypt_classes", session=session, job=job.hash, **CLASSES), "for active")
    refused(hostile.send("shop", "labels.encrypt_classes", session=session, job=job.hash, **CLASSES), "no label")


def test_a_retransmission_gets_the_stored_reply_and_nothing_is_computed_again(hostile, gini):
    first = hostile.send("bank", "pairs.offer_key", **gini, **AMONG)
    again = decode(hostile.sites["bank"].handle(hostile.last))
    assert again == first  # a key made anew would be another one
    assert hostile.sites["bank"].runs[gini["session"]].asked["pairs.offer_key"] == 1


def test_a_round_is_not_used_twice(hostile, gini):
    """A mask belongs to a round: the same round for another question would be a two-time pad."""
    assert "ok" in hostile.send("bank", "core.draw_rows", **gini, round=1000, **DRAW)
    for round in (1000, 999, 0, -5):
        refused(hostile.send("bank", "pairs.offer_key", **gini, **AMONG, round=round), "its round is over")


def test_sessions_without_end_inside_a_run(hostile, gini):
    for number in range(MAX_SESSIONS):
        reply = hostile.send("bank", "core.count_table", **{**gini, "session": f"{gini['session']}.{number}"})
        if "ok" not in reply:
            break
    refused(reply, "sessions in one run")


def test_an_operation_that_does_not_exist(hostile, gini):
    for name in ("os.system", "core.begin_job ", "", "x" * 10_000, "fedsift.core.party.Site"):
        refused(hostile.send("bank", name, **gini), "no operation of that name")
