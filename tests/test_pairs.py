"""The handshake between parties: masks that only two know, boxes that only one opens, nothing used twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from doubles import Recording

import fedsift as fs
from fedsift.core.identity import Identity
from fedsift.core.message import decode, encode
from fedsift.core.operation import operation
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import MessageError, OperationRefused, SealError, SecurityError
from fedsift.mpc.pairs import Meeting, Offer, Pairs, meet_all
from fedsift.mpc.ring import from_ring, product, to_ring, uniform

NAMES = ("bank", "shop", "lab")


def strangers(names: tuple[str, ...] = NAMES, **changed) -> dict[str, Pairs]:
    """Sites that know each other and have not met yet."""
    identities = {name: Identity() for name in names}
    pins = {name: identity.key.fingerprint for name, identity in identities.items()}
    meeting = replace(Meeting(b"job", "session", 3, "", names), **changed)
    return {name: Pairs(name, meeting, replace(identity, peers=pins)) for name, identity in identities.items()}


def offers_of(sides: dict[str, Pairs]) -> dict[str, Offer]:
    return {name: side.offer() for name, side in sides.items()}


def three() -> dict[str, Pairs]:
    sides = strangers()
    for side in sides.values():
        side.meet(offers_of(sides))
    return sides


def test_both_sides_draw_the_same_mask_and_a_third_another():
    sides = three()
    first = sides["bank"].mask("shop", "sums", 1, (4, 2))
    np.testing.assert_array_equal(first, sides["shop"].mask("bank", "sums", 1, (4, 2)))
    assert not (first == sides["lab"].mask("shop", "sums", 1, (4, 2))).any()
    assert not (first == sides["bank"].mask("shop", "other", 1, (4, 2))).any()


def test_cancelling_masks_leave_the_sum():
    sides = three()
    halves = [sides["bank"].cancelling("lab", "half", 3, (5,)), sides["lab"].cancelling("bank", "half", 3, (5,))]
    np.testing.assert_array_equal(halves[0] + halves[1], np.zeros(5, np.uint64))
    assert halves[0].any()


@pytest.mark.parametrize("number", [5, 4, -1, True, 2**62, "6"])
def test_a_number_is_used_once_and_in_ascending_order(number):
    side = three()["bank"]
    side.mask("shop", "sums", 5, (2,))
    with pytest.raises(SecurityError, match="used before"):
        side.mask("shop", "sums", number, (2,))


def test_a_box_opens_for_its_receiver_once():
    sides = three()
    box = sides["bank"].seal({"x": np.arange(3)}, to="shop", about="gradients", number=7)
    with pytest.raises(SealError):
        sides["lab"].open(box, sender="bank", about="gradients", number=7)
    with pytest.raises(SealError):
        sides["shop"].open(box, sender="bank", about="gradients", number=6)
    opened = sides["shop"].open(box, sender="bank", about="gradients", number=7)
    assert opened["x"].tolist() == [0, 1, 2]
    with pytest.raises(SecurityError, match="used before"):
        sides["shop"].open(box, sender="bank", about="gradients", number=7)


def test_peers_neither_change_nor_come_later():
    sides = strangers()
    bank, offers = sides["bank"], offers_of(sides)
    for told in ({}, {"bank": offers["bank"]}, {**offers, "ghost": offers["shop"]}):
        with pytest.raises(SecurityError, match="not the offers of those"):
            bank.meet(told)
    with pytest.raises(SecurityError, match="own key"):
        bank.meet({**offers, "bank": offers["shop"], "shop": offers["bank"]})
    with pytest.raises(SecurityError, match="twice"):
        bank.meet({**offers, "lab": offers["shop"]})
    bank.meet(offers)
    with pytest.raises(SecurityError, match="already"):
        bank.meet(offers_of(strangers()))
    with pytest.raises(SecurityError, match="no secret with 'ghost'"):
        bank.mask("ghost", "sums", 1, (2,))


def test_a_key_of_the_coordinator_under_a_peers_name_is_refused():
    """Its own signature, the peer's old signature with another key, no signature at all."""
    sides = strangers()
    offers, own = offers_of(sides), Pairs("shop", sides["bank"].meeting, Identity())
    true = offers["shop"]
    cases = {
        "its own key and signature": (own.offer(), "pinned"),
        "its own key under the peer's signature": (replace(true, key=own.key.public), "not signed for this"),
        "its own signature under the peer's name": (replace(own.offer(), signer=true.signer), "not signed for this"),
        "no signature": (replace(true, signature=bytes(64)), "not signed for this"),
        "a signature cut short": (replace(true, signature=true.signature[:32]), "not signed for this"),
        "a low-order point, truly signed": (_signed(sides["shop"], bytes(32)), "not a usable"),
    }
    for name, (offer, says) in cases.items():
        with pytest.raises(SecurityError, match=says):
            sides["bank"].meet({**offers, "shop": offer})
        assert sides["bank"].peers == [], name
    sides["bank"].meet(offers)


def _signed(side: Pairs, key: bytes) -> Offer:
    signer = side.identity.key
    return Offer(key, signer.public, signer.sign(side.meeting.statement(side.me, key)))


CHANGED = [
    {"job": b"another"}, {"session": "another"}, {"round": 4}, {"circle": "sum"}, {"among": ("bank", "shop")},
    {"among": (*NAMES, "ghost")},
]  # fmt: skip


@pytest.mark.parametrize("changed", CHANGED, ids=lambda changed: next(iter(changed)))
def test_an_offer_of_another_job_session_round_circle_or_list_is_refused(changed):
    sides = strangers()
    offers = offers_of(sides)
    shop = sides["shop"]
    replayed = Pairs("shop", replace(shop.meeting, **changed), shop.identity, shop.key).offer()
    with pytest.raises(SecurityError, match="not signed for this job, session and round"):
        sides["bank"].meet({**offers, "shop": replayed})


def test_two_peers_in_each_others_place_are_refused():
    sides = strangers()
    offers = offers_of(sides)
    with pytest.raises(SecurityError, match="pinned"):
        sides["bank"].meet({**offers, "shop": offers["lab"], "lab": offers["shop"]})


def test_a_site_that_was_told_nobody_or_somebody_else_meets_nobody():
    sides = strangers()
    offers = offers_of(sides)
    sides["bank"].identity.peers = None
    with pytest.raises(SecurityError, match=r"knows no peers.*party fingerprint"):
        sides["bank"].meet(offers)
    sides["lab"].identity.peers = {"shop": sides["shop"].identity.key.fingerprint}
    with pytest.raises(SecurityError, match=r"'bank' is not among the \[peers\]"):
        sides["lab"].meet(offers)


def test_the_same_keys_in_another_meeting_share_no_mask_and_open_no_box():
    """Whatever a coordinator relabels, seeds and boxes are bound to job, session and all offers."""
    sides = three()
    again = {}
    for name, side in sides.items():
        again[name] = Pairs(name, replace(side.meeting, job=b"other"), side.identity, side.key)
    for side in again.values():
        side.meet(offers_of(again))
    here, there = (each["bank"].mask("shop", "sums", 1, (4,)) for each in (sides, again))
    assert not (here == there).any()
    box = sides["bank"].seal("told", to="shop", about="note", number=1)
    with pytest.raises(SealError):
        again["shop"].open(box, sender="bank", about="note", number=1)


def test_a_pair_secret_is_given_once_a_purpose():
    sides = three()
    assert sides["bank"].secret("shop", "orders", b"rows") == sides["shop"].secret("bank", "orders", b"rows")
    assert sides["bank"].secret("lab", "orders", b"rows") != sides["lab"].secret("bank", "orders", b"other")
    with pytest.raises(SecurityError, match="used before"):
        sides["bank"].secret("shop", "orders", b"other rows")


@pytest.mark.parametrize("length", [0, 127, 129])
def test_an_offer_of_another_length_is_no_message(length):
    offer = strangers()["bank"].offer()
    whole = encode(offer)
    assert decode(whole) == offer
    header = whole[: -len(offer.to_bytes()) - 6]
    with pytest.raises(MessageError, match="cut short"):
        decode(header + length.to_bytes(6, "little") + bytes(length))


def test_one_handshake_serves_the_whole_code():
    """Nothing else agrees on keys: who imports the primitives of a key agreement is known."""
    source = Path(fs.__file__).parent
    users = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\b(SealKey|pair_key|X25519P\w+)\b", path.read_text())
    }
    assert users == {"crypto/sealed_box.py", "mpc/pairs.py"}


def test_secrets_are_in_no_repr():
    side = three()["bank"]
    assert not any(seed.hex() in repr(side) or repr(seed) in repr(side) for seed in side._seeds.values())


@operation("test_pairs.send", discloses="ciphertext", about="a sealed number", opened="nobody", reply=SealedBox)
def send(party, *, to):
    return party.held(Pairs).seal(np.full(8, 271828.1828), to=to, about="number", number=1)


@operation("test_pairs.take", discloses="control", about="its sum", reply=float)
def take(party, *, box, sender):
    return float(party.held(Pairs).open(box, sender=sender, about="number", number=1).sum())


def test_the_handshake_over_a_federation_hides_the_payload_from_the_coordinator(small_fed, monkeypatch):
    monkeypatch.setattr("fedsift.core.operation._plugins", {__name__})
    small_fed._link.transport = Recording(small_fed._link.transport)
    with pytest.raises(OperationRefused, match="earlier step"):
        small_fed.ask(send, to="bank", each={"bank": {"to": "shop"}})
    with small_fed.session() as run:
        meet_all(run)
        box = run.ask(send, to=["bank"], each={"bank": {"to": "shop"}})["bank"]
        assert run.ask(take, to="shop", box=box, sender="bank") == pytest.approx(8 * 271828.1828)
    sent = b"".join(body for _, _, body in small_fed._link.transport.log)
    assert np.float64(271828.1828).tobytes() not in sent
    assert any(isinstance(decode(body), dict) for _, _, body in small_fed._link.transport.log)


def test_fixed_point_products_in_the_ring():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 40)), rng.normal(size=(40, 3))
    wrapped = product(to_ring(x, 20, 64.0), to_ring(y, 20, 64.0))
    np.testing.assert_allclose(from_ring(wrapped, 40), x @ y, atol=1e-4)
    mask = uniform((5, 3))
    np.testing.assert_array_equal((wrapped + mask) - mask, wrapped)
    with pytest.raises(fs.FedsiftError, match="room"):
        to_ring(np.array([64.0]), 20, 64.0)
    with pytest.raises(fs.FedsiftError, match="room"):
        to_ring(np.array([np.nan]), 20, 64.0)
