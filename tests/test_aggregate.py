"""Secure sums: exact totals, nothing of a single party in any message, and one crowd for all sums of a run."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from doubles import Faulty, Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.operation import operation, register_plugin
from fedsift.core.party import Party
from fedsift.core.transports.base import Delivery
from fedsift.errors import DataError, OverflowGuard, ParameterError, PartyGone, ReplyError, SecurityError
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.secure_sum import SecureSum, summed, told_alike


@summed("test_aggregate.column_sums", about="test: column sums", receives="control")
def column_sums(party: Party, *, factor: float = 1.0) -> np.ndarray:
    return factor * party.table.matrix().sum(axis=0)


@summed("test_aggregate.broken_sums", about="test: something that is no sum", receives="control")
def broken_sums(party: Party) -> np.ndarray:
    return np.array([np.nan])


@summed("test_aggregate.ragged_sums", about="test: as many numbers as rows", receives="control")
def ragged_sums(party: Party) -> np.ndarray:
    return np.ones(party.n_rows)


@operation("test_aggregate.scale", discloses="control", about="acknowledgement")
def scale(party: Party, *, factor: float) -> None:
    party.state["factor"] = factor
    told_alike(party, "scale", factor=factor)


@summed("test_aggregate.scaled_sums", about="test: column sums, scaled", receives="control")
def scaled_sums(party: Party) -> np.ndarray:
    return party.state["factor"] * party.table.matrix().sum(axis=0)


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
    assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(bits))


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


@pytest.mark.parametrize("parties", [2, 4])
@pytest.mark.parametrize("answers", [2, 3])
def test_a_party_that_leaves_ends_the_run_with_its_name(answers, parties):
    """After keys were exchanged, or between two sums: a total without it would be one of another crowd."""
    _, fed = federation(parties)
    fed._link.transport = Faulty(fed._link.transport, "party2", leave_after(answers))
    with fed.session() as run:
        total = SecureSum(run)
        if answers == 3:
            total.sum(column_sums, (3,))
        with pytest.raises(PartyGone, match="party2"):
            total.sum(column_sums, (3,), factor=2.0)


def test_a_party_that_is_missing_before_the_first_sum_may_be_left_out():
    """Nobody has given anything yet: the others meet again without it."""
    _, fed = federation()
    sites = fed._link.transport.sites
    fed._link.transport = Faulty(fed._link.transport, "party2", leave_after(2))
    expected = sum(site.table.matrix().sum(axis=0) for name, site in sites.items() if name != "party2")
    with fed.session() as run:
        SecureSum(run)
        total = SecureSum(run, parties=["party1", "party3", "party4"])
        np.testing.assert_allclose(total.sum(column_sums, (3,)), expected)


ATTACKS = {
    "the same sum": {},
    "one near enough": {"factor": 1.0 + 1e-9},
}


@pytest.mark.parametrize("again", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("same_session", [True, False])
def test_no_total_without_a_party_that_was_in_one(again, same_session):
    """A coordinator that only says that party4 has gone would read its vector as the difference of two totals."""
    _, fed = federation()
    with fed.session() as run:
        SecureSum(run).sum(column_sums, (3,))
        with contextlib.nullcontext(run) if same_session else run.session() as later:
            fewer = SecureSum(later, parties=["party1", "party2", "party3"])
            with pytest.raises(SecurityError, match="among other parties"):
                fewer.sum(column_sums, (3,), **again)


def test_a_party_that_has_met_nobody_but_itself_gives_nothing():
    """Its peers' masks are all that hides a vector: a handshake among one would leave it in the clear."""
    _, fed = federation()
    with fed.session() as run:
        meet_all(run, ["party1"], "sum")
        with pytest.raises(SecurityError, match="is alone"):
            run.ask(column_sums.masked, to="party1")


def test_a_party_that_was_told_something_else_before_is_not_held_back():
    """Features scaled to nothing at one party would leave it out of every later total."""
    _, fed = federation()
    with fed.session() as run:
        total = SecureSum(run)
        for name in run.parties:
            run.ask(scale, to=name, factor=0.0 if name == "party4" else 1.0)
        assert (np.abs(total.sum(scaled_sums, (3,))) > 1e9).all()
        later = total.sum(column_sums, (3,))
    assert (np.abs(later) > 1e9).all()


def test_what_all_were_told_alike_adds_up():
    X, fed = federation()
    with fed.session() as run:
        total = SecureSum(run)
        total.ask_all(scale, factor=3.0)
        np.testing.assert_allclose(total.sum(scaled_sums, (3,)), 3 * X.sum(axis=0), rtol=1e-12)


def test_nor_with_a_party_that_was_in_none():
    _, fed = federation()
    with fed.session() as run:
        SecureSum(run, parties=["party1", "party2", "party3"]).sum(column_sums, (3,))
        everybody = SecureSum(run)
        for name in ("party1", "party2", "party3"):
            with pytest.raises(SecurityError, match="among other parties"):
                run.ask(column_sums.masked, to=name)
        run.ask(column_sums.masked, to="party4")  # alone it adds up with nothing
        assert everybody.parties == run.parties


def test_a_party_that_is_asked_something_else_is_not_held_back():
    """Factor 0 for one of them would leave it out of the total: its masks then cancel with nobody's."""
    _, fed = federation()
    with fed.session() as run:
        SecureSum(run)
        each = {name: {"factor": 0.0 if name == "party4" else 1.0} for name in run.parties}
        vectors = run.ask(column_sums.masked, to=run.parties, each=each)
    mixed = np.sum(list(vectors.values()), axis=0, dtype=np.uint64).view(np.int64)[:3].astype(float)
    assert (np.abs(mixed) > 1e9).all()


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
