"""Changed requests: a typed answer to each, within two seconds, and an honest job runs afterwards.

The short form; ``FEDSIFT_MUTANTS=500000`` is the long one.
"""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.errors import FedsiftError
from fedsift.mpc.psi import align
from hostile.coordinator import Hostile
from hostile.mutants import Mutating

MUTANTS = int(os.environ.get("FEDSIFT_MUTANTS", "1500"))
JOBS = {
    "information_value": fs.InformationValue(n_features=2),
    "gini with noise": fs.GiniFilter(n_features=2, epsilon=1.0),
    "sffs": fs.SFFS(n_features=2),
    "random": fs.RandomFeatures(n_features=2),
}


@pytest.mark.parametrize("job", JOBS)
def test_every_mutant_gets_a_typed_answer(job):
    sent = accepted = runs = 0
    while sent < MUTANTS / len(JOBS):
        hostile = Hostile()
        transport = Mutating(hostile.sites, seed=runs, each=3)
        fed = Federation(transport, list(hostile.sites), active="bank")
        with suppress(FedsiftError):  # a mutant that was accepted took the place of an honest step
            JOBS[job].fit(align(fed))
        sent, accepted, runs = sent + transport.sent, accepted + transport.accepted, runs + 1
    assert accepted < sent / 2


def test_an_honest_job_runs_at_sites_that_were_attacked():
    """A request that is refused changes nothing: the answer is that of sites that never saw one."""
    hostile, quiet = Hostile(), Hostile()
    transport = Mutating(hostile.sites, seed=1, each=3, only_refused=True)
    attacked = Federation(transport, list(hostile.sites), active="bank")
    selected = fs.InformationValue(n_features=2).fit(align(attacked)).selected_
    assert selected == fs.InformationValue(n_features=2).fit(quiet.aligned()).selected_
    assert transport.sent > 40
