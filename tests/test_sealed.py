"""Sealed boxes: only the receiver opens them, and only at the step for which they were sealed."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto import sealed_box as sealed
from fedsift.crypto.sealed_box import SealedBox, SealKey, pair_key, seal, unseal
from fedsift.errors import ParameterError, SealError

BANK, SHOP, CLINIC = SealKey.generate(), SealKey.generate(), SealKey.generate()
STEP = {"sender": "bank", "receiver": "shop", "round": 3, "about": "gradients"}
SECRET = b"salary=83214"
# Public keys of small order: with them the shared secret would not depend on the other key.
LOW_ORDER = [bytes(32), b"\x01" + bytes(31), (2**255 - 20).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little")]


def box_of(payload: bytes = SECRET) -> SealedBox:
    return seal(payload, key=BANK, peer=SHOP.public, **STEP)


def refused(box: SealedBox, *, key: SealKey = SHOP, peer: bytes = BANK.public, **changed) -> str:
    with pytest.raises(SealError) as caught:
        unseal(box, key=key, peer=peer, **{**STEP, **changed})
    return str(caught.value)


@settings(max_examples=40, deadline=None)
@given(
    payload=st.binary(max_size=300),
    sender=st.text(max_size=8),
    receiver=st.text(max_size=8),
    round=st.integers(0, 2**64 - 1),
    about=st.text(max_size=8),
)
def test_a_payload_comes_out_as_it_went_in(payload, **step):
    box = SealedBox.from_bytes(seal(payload, key=BANK, peer=SHOP.public, **step).to_bytes())
    assert unseal(box, key=SHOP, peer=BANK.public, **step) == payload
    assert len(box.data) == len(payload) + sealed.OVERHEAD_BYTES


def test_the_coordinator_cannot_read_the_payload():
    assert SECRET not in box_of().to_bytes()
    assert "83214" not in repr(box_of())


def test_equal_payloads_look_different():
    first, second = box_of().data, box_of().data
    assert first[:32] != second[:32]
    assert first[32:] != second[32:]


def test_a_changed_bit_is_noticed():
    good = box_of().data
    for position in range(len(good)):
        for bit in range(8):
            changed = bytearray(good)
            changed[position] ^= 1 << bit
            refused(SealedBox(bytes(changed)))
    assert unseal(SealedBox(good), key=SHOP, peer=BANK.public, **STEP) == SECRET


def test_a_cut_or_lengthened_box_does_not_open():
    good = box_of().data
    refused(SealedBox(good[:-1]))
    refused(SealedBox(good + b"\0"))
    for short in (b"", good[:47]):
        with pytest.raises(SealError, match="at least 48 bytes"):
            SealedBox.from_bytes(short)
    with pytest.raises(SealError):
        SealedBox("text")


@pytest.mark.parametrize(
    "changed",
    [
        {"sender": "clinic"},
        {"receiver": "clinic"},
        {"sender": "shop", "receiver": "bank"},
        {"round": 4},
        {"round": 2},
        {"about": "labels"},
        {"sender": "banks", "receiver": "hop"},  # the same letters, divided elsewhere
    ],
    ids=str,
)
def test_a_box_opens_at_its_own_step_only(changed):
    refused(box_of(), **changed)


def test_a_box_opens_for_its_receiver_only():
    box = box_of()
    refused(box, key=CLINIC)
    refused(box, key=CLINIC, receiver="clinic")
    refused(box, key=BANK, peer=SHOP.public)  # the sender itself cannot open it either


def test_a_box_sent_back_to_its_sender_does_not_open():
    refused(box_of(), key=BANK, peer=SHOP.public, sender="shop", receiver="bank")


def test_no_other_party_passes_for_the_sender():
    forged = seal(SECRET, key=CLINIC, peer=SHOP.public, **STEP)
    refused(forged)
    assert unseal(forged, key=SHOP, peer=CLINIC.public, **STEP) == SECRET


def test_the_senders_public_key_is_not_enough_to_forge():
    impostor = SealKey.generate()
    impostor.public = BANK.public
    refused(seal(SECRET, key=impostor, peer=SHOP.public, **STEP))


def test_a_stolen_sender_key_opens_no_old_box():
    box = box_of()
    ephemeral, ciphertext = box.data[:32], box.data[32:]
    # every secret that the thief can compute, alone and in pairs; the one of ephemeral and receiver is not among them
    known = [sealed._agree(BANK, SHOP.public, "shop"), sealed._agree(BANK, ephemeral, "box")]
    for secrets in [*known, *(left + right for left in known for right in known)]:
        box_key = sealed._derive(secrets, "sealed box", ephemeral, BANK.public, SHOP.public)
        with pytest.raises(InvalidTag):
            ChaCha20Poly1305(box_key).decrypt(bytes(12), ciphertext, sealed._bindings(**STEP, context=b""))


def test_the_error_tells_a_forger_nothing():
    flipped = bytearray(box_of().data)
    flipped[-1] ^= 1
    low_order = SealedBox(bytes(32) + box_of().data[32:])
    messages = {refused(SealedBox(bytes(flipped))), refused(low_order), refused(box_of(), key=CLINIC)}
    messages.add(refused(box_of(), round=9))
    assert len(messages) == 1
    message = messages.pop()
    assert "'bank'" in message
    assert "'gradients'" in message


@pytest.mark.parametrize("public", [*LOW_ORDER, b"", bytes(31), bytes(33)])
def test_a_bad_public_key_is_refused(public):
    with pytest.raises(SealError, match="public key of 'shop'"):
        seal(SECRET, key=BANK, peer=public, **STEP)
    with pytest.raises(SealError, match="public key of 'shop'"):
        pair_key(BANK, public, name="shop", purpose="test")


@pytest.mark.parametrize("round", [-1, 2**64])
def test_a_round_that_does_not_fit_is_refused(round):
    with pytest.raises(ParameterError, match="round must be"):
        seal(SECRET, key=BANK, peer=SHOP.public, **{**STEP, "round": round})


def test_a_payload_over_the_limit_is_refused_with_words(monkeypatch):
    monkeypatch.setattr(sealed, "MAX_PAYLOAD_BYTES", 4)
    with pytest.raises(ParameterError, match="'gradients' for 'shop' has 5 bytes"):
        box_of(b"12345")


def test_a_private_key_never_shows_in_text():
    private = X25519PrivateKey.generate()
    key = SealKey(private)
    assert private.private_bytes_raw().hex() not in repr(key)
    assert repr(key) == f"SealKey(public={key.public.hex()})"
    assert len(key.public) == 32


def test_pair_keys_are_equal_on_both_sides_and_other_for_each_use():
    same = pair_key(BANK, SHOP.public, name="shop", purpose="a", context=b"1")
    assert same == pair_key(SHOP, BANK.public, name="bank", purpose="a", context=b"1")
    others = [
        pair_key(BANK, SHOP.public, name="shop", purpose="b", context=b"1"),
        pair_key(BANK, SHOP.public, name="shop", purpose="a", context=b"2"),
        pair_key(BANK, CLINIC.public, name="clinic", purpose="a", context=b"1"),
        pair_key(SHOP, CLINIC.public, name="clinic", purpose="a", context=b"1"),
    ]
    assert len({same, *others}) == 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_different_lists_of_parts_frame_to_different_bytes(left, right):
    assert (sealed.frame(*left) == sealed.frame(*right)) == (left == right)
