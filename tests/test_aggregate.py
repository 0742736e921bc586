"""Secure sums: exact totals, nothing of a single party in any message, and a run that outlives a party."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Faulty, Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.operation import register_plugin
from fedsift.core.party import Party
from fedsift.core.transports.base import Delivery
from fedsift.errors import DataError, OverflowGuard, ParameterError, PartyGone, ReplyError, SecurityError
from fedsift.mpc.secure_sum import SecureSum, go_on_without, summed


@summed("test_aggregate.column_sums", about="test: column sums", receives="control")
def column_sums(party: Party, *, factor: float = 1.0) -> np.ndarray:
    return factor * party.table.matrix().sum(axis=0)


@summed("test_aggregate.broken_sums", about="test: something that is no sum", receives="control")
def broken_sums(party: Party) -> np.ndarray:
    return np.array([np.nan])


@summed("test_aggregate.ragged_sums", about="test: as many numbers as rows", receives="control")
def ragged_sums(party: Party) -> np.ndarray:
    return np.ones(party.n_rows)


register_plugin(__name__)  # the operations of this file


def federation(parties=4, rows=40):
    X = np.random.default_rng(1).normal(0, 100, (rows, 3))
    return X, fs.Federation.split(X, X[:, 0], parties=parties, partition="horizontal", how="unequal")


def test_a_total_is_the_sum():
    X, fed = federation()
    with fed.session() as run:
        total = SecureSum(run)
        np.testing.assert_allclose(total.sum(column_sums, (3,)), X.sum(axis=0), rtol=1e-14, atol=1e-13)
        large = total.sum(column_sums, (3,), factor=1e12)
        np.testing.assert_allclose(large, 1e12 * X.sum(axis=0), rtol=1e-14)
        tiny = total.sum(column_sums, (3,), factor=1e-9)
        np.testing.assert_allclose(tiny, 1e-9 * X.sum(axis=0), atol=1e-15)


def test_no_message_shows_one_partys_numbers():
    """Each masked vector is different from what the party computed, changes from round to round, and looks uniform."""
    _, fed = federation(rows=80)
    log = fed._link.transport = Recording(fed._link.transport)
    with fed.session() as run:
        total = SecureSum(run)
        for _ in range(2):
            total.sum(column_sums, (3,))
    seen = []
    for sender, receiver, data in log.log:
        if receiver == "coordinator":
            value = decode(data).get("ok")
            if isinstance(value, np.ndarray) and value.dtype == np.uint64:
                seen.append((sender, value))
    assert len(seen) == 8
    own = {name: site.table.matrix().sum(axis=0) for name, site in log.sites.items()}
    for sender, value in seen:
        signed = value.view(np.int64).astype(float)
        assert (np.abs(signed[:3] - own[sender]) > 1e9).all()
    by_party = {sender: [v for s, v in seen if s == sender] for sender, _ in seen}
    assert all((a != b).all() for a, b in by_party.values())
    bits = np.unpackbits(np.concatenate([v for _, v in seen]).view(np.uint8))
    assert 0.44 < bits.mean() < 0.56


def test_masked_vectors_of_a_part_of_the_parties_do_not_add_up():
    _, fed = federation()
    log = fed._link.transport = Recording(fed._link.transport)
    with fed.session() as run:
        SecureSum(run).sum(column_sums, (3,))
    vectors = [decode(d)["ok"] for s, r, d in log.log if r == "coordinator" and decode(d)["ok"] is not None]
    vectors = [v for v in vectors if isinstance(v, np.ndarray)]
    part = np.sum(vectors[:3], axis=0, dtype=np.uint64).view(np.int64)[:3].astype(float)
    assert (np.abs(part) > 1e9).all()


def test_the_ledger_calls_masked_what_is_masked_and_nothing_else():
    _, fed = federation()
    with fed.session() as run:
        SecureSum(run).sum(column_sums, (3,))
        SecureSum(run, secure=False).sum(column_sums, (3,))
    replies = [e for e in fed.ledger.entries if e.receiver == "coordinator"]
    forms = [e.form for e in replies if e.operation.startswith("test_aggregate.column_sums")]
    assert forms == ["masked"] * 4 + ["aggregate"] * 4
    assert any("secure=False" in note for note in fed.ledger.notes)


def leave_after(count: int):
    """A party that answers ``count`` times and is gone then."""
    answered = [0]

    def replace(reply: Delivery) -> Delivery:
        answered[0] += 1
        return reply if answered[0] <= count else Delivery(None, 0.0, "gone")

    return replace


@pytest.mark.parametrize("answers", [2, 3])
def test_a_party_that_leaves_does_not_end_the_run(answers):
    """After keys were exchanged, or in the middle of a sum: the survivors' total comes out, and later ones too."""
    _, fed = federation()
    sites = fed._link.transport.sites
    fed._link.transport = Faulty(fed._link.transport, "party2", leave_after(answers))
    expected = sum(site.table.matrix().sum(axis=0) for name, site in sites.items() if name != "party2")
    with fed.session() as run:
        total = SecureSum(run)
        first = total.sum(column_sums, (3,))
        second = total.sum(column_sums, (3,), factor=2.0)
    if answers == 2:
        np.testing.assert_allclose(first, expected)
    np.testing.assert_allclose(second, 2 * expected)
    assert list(total.left) == ["party2"]
    assert any("party2" in note for note in fed.ledger.notes)


def test_the_last_party_does_not_go_on_alone():
    _, fed = federation(parties=2)
    fed._link.transport = Faulty(fed._link.transport, "party2", leave_after(2))
    with fed.session() as run:
        total = SecureSum(run)
        with pytest.raises(PartyGone):
            total.sum(column_sums, (3,))


def test_one_party_alone_is_refused_under_protection():
    _, fed = federation(parties=1)
    with fed.session() as run:
        with pytest.raises(ParameterError, match="at least two"):
            SecureSum(run)
        np.testing.assert_allclose(SecureSum(run, secure=False).sum(column_sums).shape, (3,))


def test_a_party_that_has_met_nobody_refuses_to_mask():
    _, fed = federation()
    with fed.session() as run, pytest.raises(SecurityError, match="met no peers"):
        run.ask(column_sums.masked, to="party1")


def test_a_coordinator_can_neither_slip_in_a_peer_nor_leave_all_out():
    _, fed = federation()
    with fed.session() as run:
        SecureSum(run)
        with pytest.raises(SecurityError, match="neither join"):
            run.ask(go_on_without, to="party1", left=["ghost"])
        with pytest.raises(SecurityError, match="leave it alone"):
            run.ask(go_on_without, to="party1", left=["party2", "party3", "party4"])
        run.ask(go_on_without, to="party1", left=["party2"])
        with pytest.raises(SecurityError, match="neither join"):
            run.ask(go_on_without, to="party1", left=["party2"])


def test_numbers_that_cannot_be_summed_are_refused():
    _, fed = federation()
    with fed.session() as run:
        total = SecureSum(run)
        with pytest.raises(DataError, match="not finite"):
            total.sum(broken_sums)
        with pytest.raises(OverflowGuard):
            total.sum(column_sums, factor=1e18)
        with pytest.raises(ReplyError, match="shape"):
            total.sum(ragged_sums)
        with pytest.raises(ReplyError, match="shape"):
            total.sum(column_sums, (4,))
