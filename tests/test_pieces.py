"""Messages in pieces: whole at both ends, small on the wire, and nothing to be gained by sending odd ones."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from doubles import Recording, Serial

import fedsift as fs
from fedsift.core import pieces
from fedsift.core.message import answered, decode, encode
from fedsift.core.pieces import Cut, Desk, Piece, Pieces, carry
from fedsift.core.relayed import Holed, whole
from fedsift.core.transports.base import Delivery, Transport
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import ReplyError

SMALL = 500


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", SMALL)


def federation(n: int = 200) -> fs.Federation:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return fs.Federation.split(rng.normal(size=(n, 4)) + y[:, None], y, parties=2)


def test_a_fit_is_the_same_and_no_message_is_larger_than_a_piece(small_pieces):
    whole = federation()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 1 << 30)
        expected = fs.InformationValue(n_features=2).fit(whole).selection_
    fed = federation()
    fed._link.transport = Recording(InProcess(fed._link.transport.sites))
    found = fs.InformationValue(n_features=2).fit(fed).selection_
    assert found.selected == expected.selected
    sent = [len(data) for *_, data in fed._link.transport.log]
    assert max(sent) <= SMALL + pieces._HEAD.size
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
    (delivery,) = carry(echo, {"a": data}, None, Desk()).values()
    assert len(delivery.data) == size
    assert whole(delivery.data) == data[::-1]
    assert echo.largest <= SMALL + pieces._HEAD.size
    assert echo.calls == len(Cut(data)) + (-(-size // SMALL) if size > SMALL else 0)
    assert size <= SMALL or len(Cut(data)[-1]) < SMALL // 4, "what sets a party to work is small"


def error(reply: bytes) -> str:
    return decode(reply)["what"]


def test_pieces_out_of_order_or_of_another_message_are_refused(small_pieces):
    end, first, other = Pieces(), Cut(bytes(2 * SMALL + 62)), Cut(bytes(2 * SMALL + 62))

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
        end.answer(Cut(bytes(3 * SMALL))[0], lambda whole: whole)
    assert end._coming.came == 1
    assert len(end._coming.data.getvalue()) == SMALL


@pytest.mark.parametrize(
    "bad",
    [
        b"FP",
        b"FP\x02" + bytes(40),
        Piece(0, bytes(16), 3, 3).to_bytes(),
        Piece(0, bytes(16), 0, 2**31).to_bytes(),
        Piece(7, bytes(16), 0, 2).to_bytes(),
        Piece(2, bytes(16), 0, 2).to_bytes(),
        Piece(3, bytes(16), 0, 2).to_bytes(),
        Piece(0, bytes(16), 0, 2, bytes(SMALL + 1)).to_bytes(),
        Piece(1, bytes(16), 0, 2).to_bytes(),
    ],
)
def test_what_is_no_piece_gets_an_error_and_nothing_runs(small_pieces, bad):
    def never(whole: bytes) -> bytes:
        raise AssertionError

    assert decode(Pieces().answer(bad, never))["error"] == "MessageError"


class Answering(Pieces):
    """The same answer to everything."""

    def __init__(self, reply: bytes):
        super().__init__()
        self.reply = reply

    def answer(self, data, handle):
        return super().answer(data, lambda request: self.reply)


class Odd(Echo):
    """A party whose second reply is something else."""

    def exchange(self, requests, timeout):
        result = super().exchange(requests, timeout)
        return result if self.calls != 2 else {name: Delivery(self.second, 0.1) for name in result}


@pytest.mark.parametrize("second", [None, b"", b"FP", encode({"ok": 1}), Piece(0, bytes(16), 1, 2, b"x").to_bytes()])
def test_a_reply_that_changes_half_way_is_no_message(small_pieces, second):
    odd = Odd()
    odd.second = second
    odd.end = Answering(bytes(2 * SMALL))
    (delivery,) = carry(odd, {"a": b"request"}, None, Desk()).values()
    with pytest.raises(ReplyError, match="no valid message"):
        whole(delivery.data)


INDEX = {"size": 2 * SMALL, "skeleton": b"", "holes": np.array([[0, 2 * SMALL]])}


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        1,
        [],
        {},
        {"size": 2},
        {**INDEX, "size": "2"},
        {**INDEX, "size": 2**40},
        {**INDEX, "size": SMALL},
        {**INDEX, "skeleton": 5},
        {**INDEX, "skeleton": b"more"},
        {**INDEX, "holes": b"ab"},
        {**INDEX, "holes": np.array([[0, 2 * SMALL], [-5, 0]])},
        {**INDEX, "holes": np.array([[-4, 2 * SMALL - 4]])},
        {**INDEX, "holes": np.array([[4, 2 * SMALL + 4]])},
        {**INDEX, "holes": np.array([[0, 600], [500, 900]])},
        {**INDEX, "holes": np.array([1, 2, 3])},
    ],
)
def test_an_index_that_does_not_fit_is_no_message(small_pieces, odd):
    """A party says how its reply is to be read; nothing is read by what does not fit together."""

    class Party(Echo):
        def exchange(self, requests, timeout):
            return {name: Delivery(Piece(2, bytes(16), 0, 2, encode(odd)).to_bytes(), 0.1) for name in requests}

    (delivery,) = carry(Party(), {"a": b"request"}, None, Desk()).values()
    assert delivery.data == b""


def test_of_a_reply_that_waits_any_part_is_read_as_of_the_whole(small_pieces, monkeypatch):
    monkeypatch.setattr(pieces, "LARGE", 200)
    rng = np.random.default_rng(1)
    large = [rng.integers(0, 256, size, dtype=np.uint8) for size in (700, 30, 1900, 201)]
    message = encode({"ok": [large[0], "text", large[1], large[2].tobytes(), {"x": large[3], "y": None}]})
    echo = Echo()
    echo.end = Answering(message)
    (delivery,) = carry(echo, {"a": b"request"}, None, Desk()).values()
    found = delivery.data
    assert isinstance(found, Holed)
    assert 0 < len(found.skeleton) < 600
    for start, stop in rng.integers(0, len(message) + 1, (200, 2)):
        assert found[int(start) : int(stop)] == message[start:stop]
    assert str(decode(found)) == str(decode(message))


def test_a_party_that_sends_half_a_reply_is_named(small_pieces):
    fed = federation()
    sites = fed._link.transport.sites

    class Half(Serial):
        def exchange(self, requests, timeout):
            result = super().exchange(requests, timeout)
            asked = {name for name, data in requests.items() if data[:4] == b"FP\x01\x01"}  # a piece of a reply
            return {name: Delivery(b"", 0.0) if name in asked else came for name, came in result.items()}

    fed._link.transport = Half(sites)
    with pytest.raises(ReplyError, match="no valid message"):
        fs.InformationValue(n_features=2).fit(fed)


def test_a_site_keeps_what_fits_of_replies_that_nobody_fetches(small_pieces, monkeypatch):
    monkeypatch.setattr(pieces, "HELD", 5 * SMALL)
    end = Pieces()
    names = [Piece.read(end.answer(b"request", lambda request: bytes(2 * SMALL))).name for _ in range(20)]
    assert list(end.waiting) == names[-2:]
    assert "no such reply" in error(end.answer(Piece(1, names[0], 0, 2).to_bytes(), whole))
    end.answer(Piece(3, names[-1], 0, 2).to_bytes(), whole)
    assert list(end.waiting) == names[-2:-1]


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
