"""The handshake between parties: masks that only two know, boxes that only one opens, nothing used twice."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.operation import operation
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, SealError, SecurityError
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ring import from_ring, product, to_ring, uniform


def three() -> dict[str, Pairs]:
    sides = {name: Pairs(name) for name in ("bank", "shop", "lab")}
    for side in sides.values():
        side.meet({name: other.key.public for name, other in sides.items()})
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


def test_invented_and_changed_peers_are_refused():
    side, other = Pairs("bank"), Pairs("shop")
    with pytest.raises(SecurityError, match="own key"):
        side.meet({"bank": other.key.public, "shop": side.key.public})
    with pytest.raises(SecurityError, match="twice"):
        side.meet({"bank": side.key.public, "shop": side.key.public})
    side.meet({"bank": side.key.public, "shop": other.key.public})
    with pytest.raises(SecurityError, match="already"):
        side.meet({"bank": side.key.public, "shop": Pairs("shop").key.public})
    with pytest.raises(SecurityError, match="no secret with 'ghost'"):
        side.mask("ghost", "sums", 1, (2,))


def test_secrets_are_in_no_repr():
    side = three()["bank"]
    assert not any(seed.hex() in repr(side) or repr(seed) in repr(side) for seed in side._seeds.values())


@operation("test_pairs.send", discloses="ciphertext", about="a sealed number", reply=SealedBox)
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
