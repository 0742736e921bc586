"""Messages in pieces: whole at both ends, small on the wire, and nothing to be gained by sending odd ones."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from doubles import Recording, Serial

import fedsift as fs
from fedsift.core import exchange
from fedsift.core.exchange import Piece, Pieces, cut
from fedsift.core.message import answered, decode, encode
from fedsift.core.transports.base import Delivery, Transport
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import ReplyError

SMALL = 500


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(exchange, "PIECE", SMALL)


def federation(n: int = 200) -> fs.Federation:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return fs.Federation.split(rng.normal(size=(n, 4)) + y[:, None], y, parties=2)


def test_a_fit_is_the_same_and_no_message_is_larger_than_a_piece(small_pieces):
    whole = federation()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "PIECE", 1 << 30)
        expected = fs.InformationValue(n_features=2).fit(whole).selection_
    fed = federation()
    fed._link.transport = Recording(InProcess(fed._link.transport.sites))
    found = fs.InformationValue(n_features=2).fit(fed).selection_
    assert found.selected == expected.selected
    sent = [len(data) for *_, data in fed._link.transport.log]
    assert max(sent) <= SMALL + exchange._HEAD.size
    assert max(entry.bytes for entry in fed.ledger.entries) > 4 * SMALL, "the ledger tells whole messages"
    assert fed.ledger.rounds() == whole.ledger.rounds()
    assert sum(sent) >= fed.ledger.bytes()


class Echo(Transport):
    """A party that answers with what it got, backwards."""

    name = "echo"

    def __init__(self):
        self.end, self.largest, self.calls = Pieces(), 0, 0

    def exchange(self, requests, timeout):
        self.calls += 1
        result = {}
        for name, data in requests.items():
            reply = self.end.answer(data, lambda whole: whole[::-1])
            self.largest = max(self.largest, len(data), len(reply))
            result[name] = Delivery(reply, 0.5)
        return result


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL, 10 * SMALL + 7])
def test_any_size_arrives_whole(small_pieces, size):
    data, echo = bytes(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)), Echo()
    (delivery,) = exchange.carry(echo, {"a": data}, None).values()
    assert delivery.data == data[::-1]
    assert echo.largest <= SMALL + exchange._HEAD.size
    count = -(-size // SMALL) if size > SMALL else 1
    assert echo.calls == 2 * count - 1
    assert delivery.seconds == pytest.approx(0.5 * count)


def error(reply: bytes) -> str:
    return decode(reply)["what"]


def test_pieces_out_of_order_or_of_another_message_are_refused(small_pieces):
    end, first, other = Pieces(), cut(bytes(3 * SMALL)), cut(bytes(3 * SMALL))

    def answer(data: bytes) -> bytes:
        return end.answer(data, lambda whole: b"done" + whole)

    assert "beginning did not come" in error(answer(first[1]))
    assert Piece.read(answer(first[0])) is not None
    assert Piece.read(answer(first[0])) is not None, "the last one may come again"
    assert "in place of piece 1" in error(answer(first[2]))
    assert "another message" in error(answer(other[1]))
    assert Piece.read(answer(first[1])) is not None
    assert answer(first[2])[:2] == b"FP", "the reply is larger than a piece, too"
    assert "beginning did not come" in error(answer(first[2]))


def test_a_site_holds_one_request_in_pieces_at_a_time(small_pieces):
    """Whoever begins a thousand messages and ends none takes the memory of one."""
    end = Pieces()
    for _ in range(50):
        end.answer(cut(bytes(3 * SMALL))[0], lambda whole: whole)
    assert len(end._coming.parts) == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"FP",
        b"FP\x02" + bytes(40),
        Piece(0, bytes(16), 3, 3).to_bytes(),
        Piece(0, bytes(16), 0, 2**31).to_bytes(),
        Piece(7, bytes(16), 0, 2).to_bytes(),
        Piece(0, bytes(16), 0, 2, bytes(SMALL + 1)).to_bytes(),
        Piece(1, bytes(16), 0, 2).to_bytes(),
    ],
)
def test_what_is_no_piece_gets_an_error_and_nothing_runs(small_pieces, bad):
    def never(whole: bytes) -> bytes:
        raise AssertionError

    assert decode(Pieces().answer(bad, never))["error"] == "MessageError"


class Odd(Echo):
    """A party whose second reply is something else."""

    def exchange(self, requests, timeout):
        result = super().exchange(requests, timeout)
        return result if self.calls != 2 else {name: Delivery(self.second, 0.1) for name in result}


@pytest.mark.parametrize("second", [b"", b"FP", encode({"ok": 1}), Piece(0, bytes(16), 1, 2, b"x").to_bytes()])
def test_a_reply_that_changes_half_way_is_no_message(small_pieces, second):
    odd = Odd()
    odd.second = second
    odd.end.answer = lambda data, handle: cut(bytes(2 * SMALL))[0]
    (delivery,) = exchange.carry(odd, {"a": b"request"}, None).values()
    assert delivery.data == b""


def test_a_party_that_sends_half_a_reply_is_named(small_pieces):
    fed = federation()
    sites = fed._link.transport.sites

    class Half(Serial):
        def exchange(self, requests, timeout):
            result = super().exchange(requests, timeout)
            asked = {name for name, data in requests.items() if data[:4] == b"FP\x01\x01"}
            return {name: Delivery(b"", 0.0) if name in asked else came for name, came in result.items()}

    fed._link.transport = Half(sites)
    with pytest.raises(ReplyError, match="no valid message"):
        fs.InformationValue(n_features=2).fit(fed)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons hold what a function is called with")
def test_a_request_is_gone_from_memory_once_it_was_read():
    gone = []

    class Told(bytes):
        def __del__(self):
            gone.append(True)

    def handle(data):
        del data
        return encode(list(gone))

    assert decode(answered([Told(encode("a request"))], handle)) == [True]
