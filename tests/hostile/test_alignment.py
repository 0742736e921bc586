"""Attacks on the matching of ids: guessing, lists without end, rows of the coordinator's choice."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from fedsift.crypto import oprf
from fedsift.mpc.psi import JOB
from hostile.coordinator import ROWS, Hostile, refused

AGREED = {"blocks": [["bank", "shop"]], "rows": {"bank": ROWS, "shop": ROWS}, "random_state": 0}


@pytest.fixture
def hostile():
    return Hostile()


def start(hostile: Hostile, **changed) -> dict:
    job = hostile.job(JOB, {**AGREED, **changed})
    return {"session": hostile.begin(job), "job": job.hash}


def guesses(count: int) -> bytes:
    """Ids that the coordinator would like to know about, hashed to the group as a party does it."""
    return oprf.hash_to_group([f"c{i}".encode() for i in range(count)])


def test_nothing_is_raised_before_the_own_list_went_out(hostile):
    refused(hostile.send("bank", "align.blind_again", **start(hostile), points=guesses(ROWS)), "comes after")


def test_a_list_goes_out_once(hostile):
    asked = start(hostile)
    assert "ok" in hostile.send("bank", "align.blind_ids", **asked)
    refused(hostile.send("bank", "align.blind_ids", **asked), "as often as it declares")


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS + 1, 5 * ROWS])
def test_lists_of_another_size_than_told(hostile, count):
    """security.md, deviating 6: a site would raise any number of guesses to its secret exponent."""
    asked = start(hostile)
    hostile.send("bank", "align.blind_ids", **asked)
    refused(hostile.send("bank", "align.blind_again", **asked, points=guesses(count)), "in the size that it told")


def test_more_lists_than_peers(hostile):
    asked = start(hostile)
    hostile.send("bank", "align.blind_ids", **asked)
    assert "ok" in hostile.send("bank", "align.blind_again", **asked, points=guesses(ROWS))
    refused(hostile.send("bank", "align.blind_again", **asked, points=guesses(ROWS)), "raised already")
    inner = {**asked, "session": f"{asked['session']}.more"}
    refused(hostile.send("bank", "align.blind_again", **inner, points=guesses(ROWS)))


NONSENSE = {
    "no blocks": {"blocks": None},
    "blocks without this party": {"blocks": [["shop"]]},
    "the own name twice": {"blocks": [["bank", "bank"]]},
    "a peer that is not of the job": {"blocks": [["bank", "ghost"]], "rows": {"bank": ROWS, "ghost": 10**6}},
    "no sizes": {"rows": None},
    "sizes that are no numbers": {"rows": {"bank": "x", "shop": "y"}},
    "a size for the own list alone": {"rows": {"bank": ROWS}},
}


@pytest.mark.parametrize("attack", NONSENSE)
def test_an_alignment_that_does_not_say_who_shares_which_rows(hostile, attack):
    asked = start(hostile, **NONSENSE[attack])
    hostile.send("bank", "align.blind_ids", **asked)
    refused(hostile.send("bank", "align.blind_again", **asked, points=guesses(ROWS)), "does not say with whom")


@pytest.mark.parametrize("points", [b"\xff" * 32 * ROWS, bytes(32 * ROWS), b"\x01" * 32 * ROWS])
def test_points_that_are_none(hostile, points):
    asked = start(hostile)
    hostile.send("bank", "align.blind_ids", **asked)
    refused(hostile.send("bank", "align.blind_again", **asked, points=points))


ROWS_CHOSEN = {
    "one row many times": np.zeros(ROWS, dtype=np.int64),
    "rows that are not there": np.arange(ROWS) + 1,
    "rows from behind": np.arange(ROWS) - 1,
    "a square": np.zeros((10, 12), dtype=np.int64),
}


def met(hostile: Hostile) -> tuple[dict, dict]:
    """The state before the last step: both lists out, both parties met."""
    asked = start(hostile)
    for name in ("bank", "shop"):
        hostile.send(name, "align.blind_ids", **asked)
    hostile.meet(asked)
    sealed = {name: hostile.send(name, "align.seal_order", **asked)["ok"] for name in ("bank", "shop")}
    return asked, {"shop": sealed["shop"]["bank"]}


@pytest.mark.parametrize("attack", ROWS_CHOSEN)
def test_shared_rows_that_are_none(hostile, attack):
    asked, boxes = met(hostile)
    reply = hostile.send(
        "bank", "align.keep_shared", **asked, positions=ROWS_CHOSEN[attack], boxes=boxes, view="aligned"
    )
    refused(reply)
    assert "aligned" not in hostile.sites["bank"].views


def test_few_shared_rows_of_the_coordinators_choice(hostile):
    asked, boxes = met(hostile)
    reply = hostile.send("bank", "align.keep_shared", **asked, positions=np.arange(5), boxes=boxes, view="aligned")
    refused(reply, "min_rows")
    assert "aligned" not in hostile.sites["bank"].views


def test_the_row_order_is_not_the_coordinators(hostile):
    """A box that it made itself, or none, gives no order that it knows."""
    asked, _ = met(hostile)
    reply = hostile.send("bank", "align.keep_shared", **asked, positions=np.arange(ROWS), boxes={}, view="aligned")
    refused(reply, "every other party")


def test_alignment_is_no_way_to_the_labels(hostile):
    asked = start(hostile)
    refused(
        hostile.send("bank", "core.draw_rows", **asked, train=0.5, stratify=True, seed=0, task="auto"), "no part of"
    )
    refused(hostile.send("bank", "core.describe_label", **asked, task="auto"), "no part of")
    refused(hostile.send("bank", "core.define_view", **asked, view="v", rows=np.arange(60)), "no part of")
    refused(hostile.send("bank", "labels.encrypt_classes", **asked, scheme="auto", task="auto"), "no part of")


def test_a_site_that_accepts_no_pseudonyms_is_not_aligned():
    hostile = Hostile(exceptions=[], forms=["ciphertext", "masked", "aggregate"])
    refused(hostile.send("bank", "align.blind_ids", **start(hostile)), "forms")


def test_an_honest_job_still_runs_after_all_that(hostile):
    for name in ("bank", "shop"):
        refused(hostile.send(name, "align.blind_ids"), "methods")
    fed = hostile.aligned()
    assert fs.GiniFilter(n_features=2).fit(fed).selection_.n_selected == 2
    assert all(site.runs == {} and site.sessions == {} for site in hostile.sites.values())
