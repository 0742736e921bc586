"""Changed requests and replies: a typed answer to each, within two seconds and 64 MB; an honest job runs afterwards.

The short form; ``make fuzz`` is the long one (``hostile/fuzz.py``: 500,000 of each).
"""

from __future__ import annotations

import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.mpc.psi import align
from hostile.coordinator import Hostile
from hostile.fuzz import CASES, strike_replies, strike_requests
from hostile.mutants import Mutating

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


def test_an_honest_job_runs_at_sites_that_were_attacked():
    """The answer is that of sites that never saw a refused request."""
    hostile, quiet = Hostile(), Hostile()
    transport = Mutating(hostile.sites, seed=1, each=3, only_refused=True)
    attacked = Federation(transport, list(hostile.sites), active="bank")
    selected = fs.InformationValue(n_features=2).fit(align(attacked)).selected_
    assert selected == fs.InformationValue(n_features=2).fit(quiet.aligned()).selected_
    assert transport.sent > 40
