"""Attacks with numbers: keys without end, and roles that a site does not accept from a data holder."""

from __future__ import annotations

import time

import numpy as np
import pytest
from doubles import Serial

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.message import decode, encode
from fedsift.crypto.additive.keys import MAX_BITS, PublicKey, generate_key
from fedsift.errors import MessageError, ParameterError, SecurityError
from fedsift.methods import METHODS
from fedsift.mpc.psi import align
from hostile.coordinator import Hostile, refused

SEED = b"s" * 32


@pytest.mark.parametrize("bits", [MAX_BITS + 1, 8192, 16384, 2**31])
@pytest.mark.parametrize("scheme", ["ou", "paillier"])
def test_a_public_key_above_4096_bits_is_not_even_read(scheme, bits):
    large = PublicKey(scheme, bits, b"\xff" * 6148)
    start = time.thread_time()  # of this thread alone
    with pytest.raises(MessageError, match="refused key size"):
        decode(encode({"key": large}))
    assert time.thread_time() - start < 0.5
    with pytest.raises(ParameterError, match="at most 4096"):
        generate_key(scheme, bits)


@pytest.mark.parametrize("role", ["coordinator", "dealer", "submitter"])
def test_a_site_takes_no_randomness_where_a_data_holder_runs_deals_or_gets_the_results(role):
    """security.md, principle 4: a data holder's view plus the seed is the other's table."""
    hostile = Hostile()
    selector = METHODS["top_gain"]()
    for runner, allowed in (("neutral", True), ("shop", False), ("bank", False)):
        job = hostile.of(selector, **{role: runner})
        reply = hostile.send("bank", "dealer.take_seed", session=hostile.begin(job), job=job.hash, seed=SEED)
        if allowed:
            assert reply == {"ok": None}
        else:
            refused(reply, "reads the other parties' tables")


def test_a_second_seed_or_one_of_another_length():
    hostile = Hostile()
    job = hostile.of(METHODS["top_gain"]())
    asked = {"session": hostile.begin(job), "job": job.hash}
    for seed in (b"", b"s" * 31, b"s" * 33, b"s" * 10**6):
        refused(hostile.send("bank", "dealer.take_seed", **{**asked, "session": hostile.begin(job)}, seed=seed))
    assert hostile.send("bank", "dealer.take_seed", **asked, seed=SEED) == {"ok": None}
    refused(hostile.send("bank", "dealer.take_seed", **asked, seed=SEED), "as often as it declares")


def test_lists_of_parties_without_end():
    hostile = Hostile()
    job = hostile.of(fs.GiniFilter(n_features=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    for among in (["bank"] * 2000, ["x" * 500, "bank"], "bank", {"bank": 1}, [1, 2], None):
        refused(hostile.send("bank", "pairs.offer_key", **asked, among=among))
    refused(hostile.send("bank", "pairs.offer_key", **asked, among=["bank", "shop"], circle="c" * 100), "too long")


class Spreading(Serial):
    """An honest coordinator but for one argument of one step: it repeats its columns."""

    def __init__(self, sites, operation: str, argument: str, width: int):
        super().__init__(sites)
        self.operation, self.argument, self.width, self.asked = operation, argument, width, 0

    def exchange(self, requests, timeout):
        for name, data in requests.items():
            request = decode(data)
            if request["operation"] == self.operation:
                request["arguments"][self.argument] = np.repeat(request["arguments"][self.argument], self.width, axis=1)
                requests = {**requests, name: encode(request)}
                self.asked += 1
        return super().exchange(requests, timeout)


@pytest.mark.parametrize("width", [0, 2, 5])
@pytest.mark.parametrize(
    ("step", "argument"), [("share_scores", "weights"), ("open_residuals", "weights"), ("open_residuals", "scores")]
)
def test_numbers_of_another_shape_do_not_spread_one_mask_over_several(step, argument, width):
    """Five columns of weights under one mask a row: the differences were X (w1 - w2) in the clear, so whole columns."""
    transport = Spreading(Hostile().sites, f"descent.{step}", argument, width)
    with pytest.raises(SecurityError, match="expected numbers of the shape"):
        fs.FederatedLasso(max_iter=3).fit(align(Federation(transport, ["bank", "shop"], active="bank")))
    assert transport.asked == 1
