"""Attacks on the contract itself: another job for each site, a weaker one, none at all."""

from __future__ import annotations

import dataclasses
import json

import pytest

import fedsift as fs
from fedsift.core.job import VERSION
from hostile.coordinator import Hostile, fields, refused

GINI = fs.GiniFilter(n_features=2)


@pytest.fixture
def hostile():
    return Hostile()


WEAK = {
    "a method that nobody knows": ({"method": "steal"}, "not known here"),
    "a parameter that the method has not": ({"parameters": {**GINI.announcement()[1], "reveal": True}}, "no parameter"),
    "parameters left out": ({"parameters": {}}, "leaves out"),
    "another version": ({"version": "9.9.9"}, f"pip install fedsift=={VERSION}"),
    "a version that is no text": ({"version": 1}, "install the same"),
    "without this party": (
        {"parties": ["shop", "lab"], "active": None, "label_parties": []},
        "none of the job's parties",
    ),
    "the same party twice": ({"parties": ["bank", "bank"]}, "wrong type"),
    "a coordinator that is nobody": ({"coordinator": "ghost"}, "coordinator must be"),
    "a dealer that is nobody": ({"dealer": "ghost"}, "dealer must be"),
    "a label holder that is nobody": ({"active": "ghost"}, "wrong type"),
    "parties as text": ({"parties": "bank"}, "wrong type"),
    "parameters as a list": ({"parameters": []}, "wrong type"),
    "a cell of one row": ({"parameters": {**GINI.announcement()[1], "min_cell": 1}}, "min_cell"),
    "a cell that is no number": ({"parameters": {**GINI.announcement()[1], "min_cell": "none"}}, "min_cell"),
    "bins without end": ({"parameters": {**GINI.announcement()[1], "n_bins": 2**40}}, "out of all bounds"),
    "a text without end": ({"parameters": {**GINI.announcement()[1], "scheme": "x" * 10_001}}, "out of all bounds"),
    "lists in lists": ({"parameters": {**GINI.announcement()[1], "n_bins": [[[[1]]]]}}, "out of all bounds"),
    "a further field": ({"secret": 1}, "a job has"),
}


@pytest.mark.parametrize("attack", WEAK, ids=lambda name: name.replace(" ", "-"))
def test_a_job_that_is_weaker_or_broken_is_not_accepted(hostile, attack):
    changed, says = WEAK[attack]
    refused(hostile.announced(fields(hostile.of(GINI), **changed)), says)
    assert hostile.sites["bank"].runs == {}
    assert hostile.sites["bank"].sessions == {}


def test_a_field_that_is_left_out(hostile):
    content = json.loads(hostile.of(GINI).canonical)
    del content["dealer"]
    refused(hostile.announced(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()), "a job has")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"a":' * 100_000, b"1" * 5000])
def test_bytes_that_are_no_job(hostile, data):
    refused(hostile.announced(data), "no job")


def test_a_job_of_a_megabyte_is_not_even_read(hostile):
    refused(hostile.announced(fields(hostile.of(GINI), method="x" * (1 << 20))), "no job")


def test_two_writings_of_one_job_have_not_two_hashes(hostile):
    data = json.dumps(json.loads(hostile.of(GINI).canonical), sort_keys=True).encode()
    refused(hostile.announced(data), "canonical")


def test_a_job_outside_a_session(hostile):
    refused(hostile.announced(hostile.of(GINI).canonical, session=""), "inside a session")


def test_a_second_job_in_the_same_session(hostile):
    session = hostile.begin(hostile.of(GINI))
    reply = hostile.announced(hostile.of(fs.RandomFeatures()).canonical, session=session)
    refused(reply, "another job")
    assert hostile.sites["bank"].runs[session].job == hostile.of(GINI)


def test_a_request_that_names_another_job(hostile):
    session = hostile.begin(hostile.of(GINI))
    other = dataclasses.replace(hostile.of(GINI), coordinator="shop").hash
    for job in (other, b"", b"x" * 32, b"x" * 100_000):
        refused(hostile.send("bank", "core.describe_label", session=session, job=job, task="auto"), "another job")


def test_a_request_that_names_a_job_nobody_announced(hostile):
    refused(hostile.send("bank", "core.count_table", session="s99", job=hostile.of(GINI).hash), "not announced")
    refused(hostile.send("bank", "core.count_table", job=hostile.of(GINI).hash), "not announced")


def test_sites_that_were_told_different_jobs_stop_at_the_first_request(hostile):
    mine, yours = hostile.of(GINI), hostile.of(fs.GiniFilter(n_features=3))
    session = hostile.begin(mine, to=("bank",))
    assert hostile.announced(yours.canonical, to="shop", session=session) == {"ok": None}
    for name in ("bank", "shop"):
        wrong = yours if name == "bank" else mine
        reply = hostile.send(name, "pairs.offer_key", session=session, job=wrong.hash, among=["bank", "shop"])
        refused(reply, "all parties must be told the same")


def test_jobs_without_end(hostile):
    for _ in range(100):
        hostile.begin(hostile.of(fs.RandomFeatures()), to=("bank",))
    refused(hostile.announced(hostile.of(fs.RandomFeatures()).canonical), "under way")


def test_a_site_opened_for_a_job_takes_no_weaker_form_of_it(hostile):
    site = hostile.sites["bank"]
    site.accepted = [fs.GiniFilter(n_features=2, min_cell=20).announcement()]
    refused(hostile.announced(hostile.of(fs.GiniFilter(n_features=2, min_cell=10)).canonical), "'min_cell' is another")
    refused(hostile.announced(hostile.of(fs.InformationValue()).canonical), "as submitted")
    assert hostile.announced(hostile.of(fs.GiniFilter(n_features=2, min_cell=20)).canonical) == {"ok": None}
