"""Changed requests and replies: a typed answer to each, within two seconds and 64 MB; an honest job runs afterwards.

The short form; ``make fuzz`` is the long one (``hostile/fuzz.py``: 500,000 of each; ``hostile/sweep.py``: each value of
each message of every case).
"""

from __future__ import annotations

import random

import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.message import decode, encode, pack, unpack
from fedsift.core.party import UNFORESEEN
from fedsift.core.pieces import Piece
from fedsift.mpc.psi import align
from hostile.coordinator import Hostile
from hostile.fuzz import CASES, strike_replies, strike_requests
from hostile.mutants import Mutating, flipped, is_typed, limited
from hostile.strikes import memory, strike
from hostile.sweep import sweep_replies, sweep_requests

pytestmark = pytest.mark.filterwarnings("ignore")  # of runs that are cut short

SLOW = {"network, open"}  # torch is imported, and three times as long in every step


@pytest.mark.parametrize("case", [case for case in CASES if case not in SLOW])
def test_every_changed_request_gets_a_typed_answer_and_a_refused_one_changes_nothing(case):
    tally = strike_requests(case, seed=0, wanted=60, each=30)
    assert tally.errors == []
    assert tally.refused > tally.sent / 2


@pytest.mark.parametrize("case", [case for case in CASES if case not in SLOW])
def test_every_lie_of_a_party_ends_in_a_typed_error_or_none(case):
    """A coordinator that gets changed replies, from the alignment on: what it raises is an error of fedsift's own."""
    tally = strike_replies(case, seed=0, wanted=8)
    assert tally.errors == []
    assert tally.refused > 0


QUICK = ("random", "lasso", "hyfdca", "fed_iife")


@pytest.mark.parametrize("case", QUICK)
def test_every_value_of_every_request_changed_in_every_way_gets_a_typed_answer(case):
    tally = sweep_requests(case)
    assert tally.errors == []
    assert tally.refused > 1000
    assert tally.accepted > 0


@pytest.mark.parametrize("case", QUICK)
def test_every_value_of_every_reply_changed_in_every_way_ends_in_a_typed_error_or_none(case):
    tally = sweep_replies(case)
    assert tally.errors == []
    assert tally.refused > 500


def test_a_changed_request_meets_the_site_as_the_honest_run_left_it():
    """Whatever the ones before have done: else a step that may be asked once would be reached once."""
    hostile = Hostile()
    hostile.aligned()
    job = hostile.of(fs.RandomFeatures(n_features=2))
    session = hostile.begin(job)
    hostile.send("bank", "core.share_names", session=session, job=job.hash)
    before, request = memory(hostile.sites["bank"]), decode(hostile.last)
    request["round"] += 1
    tally = strike(hostile.sites["bank"], hostile.last, [encode(request)] * 3)
    assert (tally.sent, tally.accepted) == (3, 3)
    assert memory(hostile.sites["bank"]) == before


def test_an_error_that_nobody_foresaw_is_a_fault_though_the_site_refuses():
    assert is_typed({"error": "OperationRefused", "what": "no such view of the rows at this party"})
    assert not is_typed({"error": "OperationRefused", "what": f"{UNFORESEEN} (KeyError; see its log)"})
    assert not is_typed({"error": "OperationFailed", "what": "it raised MemoryError; see its log"})


def test_an_honest_job_runs_at_sites_that_were_attacked():
    """The answer is that of sites that never saw a refused request."""
    hostile, quiet = Hostile(), Hostile()
    transport = Mutating(hostile.sites, seed=1, each=3, only_refused=True)
    attacked = Federation(transport, list(hostile.sites), active="bank")
    selected = fs.InformationValue(n_features=2).fit(align(attacked)).selected_
    assert selected == fs.InformationValue(n_features=2).fit(quiet.aligned()).selected_
    assert transport.sent > 40


def test_changed_bytes_at_the_door_of_a_site_get_a_typed_answer():
    """Several requests in one message, and pieces of one: what a transport hands over, before anything is decoded."""
    site, rng = Hostile().sites["bank"], random.Random(0)
    request = encode(
        {"operation": "core.count_table", "view": "", "session": "", "job": b"", "round": 1, "arguments": {}}
    )
    halves = [Piece(0, b"n" * 16, number, 2, part) for number, part in enumerate((request[:20], request[20:]))]
    honest = [pack([request] * 3), *(half.to_bytes() for half in halves), Piece(1, b"n" * 16, 0, 2).to_bytes()]
    assert [decode(each)["ok"]["rows"] for each in unpack(site.receive(honest[0]))] == [240] * 3
    for _ in range(3000):
        with limited("receive"):
            answer = site.receive(flipped(rng.choice(honest), rng))
        if Piece.read(answer) is None:
            told = [decode(each) for each in unpack(answer)]
            assert all("ok" in each or is_typed(each) for each in told)
