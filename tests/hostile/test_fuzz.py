"""Changed requests and replies: a typed answer to each, within two seconds and 64 MB; an honest job runs afterwards.

The short form; ``FEDSIFT_MUTANTS=500000`` is the long one (``make fuzz``).
"""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.errors import FedsiftError
from fedsift.mpc.psi import align
from hostile.coordinator import Hostile
from hostile.mutants import Lying, Mutating, Recorded, Untyped, limited

MUTANTS = int(os.environ.get("FEDSIFT_MUTANTS", "1500"))
JOBS = {
    "information_value": fs.InformationValue(n_features=2),
    "gini with noise": fs.GiniFilter(n_features=2, epsilon=1.0),
    "sffs": fs.SFFS(n_features=2),
    "random": fs.RandomFeatures(n_features=2),
    "muse": fs.Muse(n_features=2, min_cell=10, n_bins=2),
    "lasso": fs.FederatedLasso(max_iter=5),
    "top_gain": fs.TopGain(n_features=2, n_estimators=2),
    "secureboost": fs.SecureBoostClassifier(n_estimators=2, max_depth=2),
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


@pytest.mark.parametrize("job", JOBS)
def test_every_lie_of_a_party_ends_in_a_typed_error_or_none(job):
    """A coordinator that gets changed replies, from the alignment on: what it raises is an error of fedsift's own."""
    record = Recorded(Hostile().sites)
    JOBS[job].fit(align(Federation(record, ["bank", "shop"], active="bank")))
    told = raised = 0
    for seed in range(int(MUTANTS / len(JOBS))):
        fed = Federation(Lying(record.replies, random.Random(seed)), ["bank", "shop"], active="bank")
        try:
            with limited(job):
                JOBS[job].fit(align(fed))
        except Untyped:
            raise
        except FedsiftError:
            raised += 1
        except Exception as error:
            raise Untyped(f"mutant {seed} of {job}: {type(error).__name__}: {error}") from error
        told += 1
    assert raised > told / 2
