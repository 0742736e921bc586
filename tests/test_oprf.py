"""The OPRF against RFC 9497's published vectors, a direct evaluation, and another implementation of PSI."""

from __future__ import annotations

import ctypes
import hashlib
import warnings

import pytest
import rbcl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsift.crypto import kernel, oprf
from fedsift.crypto.oprf import Blind, OprfKey
from fedsift.errors import CiphertextError, ParameterError

# RFC 9497, appendix A.1.1 (ristretto255-SHA512, OPRF mode).
SEED = bytes.fromhex("a3" * 32)
KEY_INFO = b"test key"
SECRET_KEY = bytes.fromhex("5ebcea5ee37023ccb9fc2d2019f9d7737be85591ae8652ffa9ef0f4d37063b0e")
BLIND = bytes.fromhex("64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706")
VECTORS = [
    {
        "input": "00",
        "blinded": "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c",
        "evaluated": "7ec6578ae5120958eb2db1745758ff379e77cb64fe77b0b2d8cc917ea0869c7e",
        "output": "527759c3d9366f277d8c6020418d96bb393ba2afb20ff90df23fb7708264e2f3"
        "ab9135e3bd69955851de4b1f9fe8a0973396719b7912ba9ee8aa7d0b5e24bcf6",
    },
    {
        "input": "5a" * 17,
        "blinded": "da27ef466870f5f15296299850aa088629945a17d1f5b7f5ff043f76b3c06418",
        "evaluated": "b4cbf5a4f1eeda5a63ce7b77c7d23f461db3fcab0dd28e4e17cecb5c90d02c25",
        "output": "f4a74c9c592497375e796aa837e907b1a045d34306a749db9f34221f7e750cb4"
        "f2a6413a6bf6fa5e19ba6348eb673934a722a7ede2e7621306d18951e7cf2c73",
    },
]
IDENTITY = bytes(32)
# Not canonical: the field prime itself, which decodes to zero if it is reduced instead of refused.
NON_CANONICAL = (2**255 - 19).to_bytes(32, "little")


def split(packed: bytes, size: int) -> list[bytes]:
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def make_ids(count: int, start: int = 0) -> list[bytes]:
    return [f"customer-{number}".encode() for number in range(start, start + count)]


# --- RFC 9497 ---------------------------------------------------------------------------------------------------


def test_the_derived_key_is_the_published_one():
    assert OprfKey.derive(SEED, KEY_INFO)._scalar == SECRET_KEY
    assert OprfKey.derive(SEED, b"test kez")._scalar != SECRET_KEY


@pytest.mark.parametrize("vector", VECTORS, ids=["one byte", "seventeen bytes"])
def test_every_step_gives_the_published_vectors(vector):
    ids = [bytes.fromhex(vector["input"])]
    key = OprfKey.derive(SEED, KEY_INFO)
    secret, blinded = oprf._blind_with(ids, Blind(BLIND))
    evaluated = oprf.evaluate(key, blinded)
    assert blinded.hex() == vector["blinded"]
    assert evaluated.hex() == vector["evaluated"]
    assert oprf.finalize(ids, secret, evaluated).hex() == vector["output"]


def test_a_batch_keeps_the_order_of_its_elements():
    ids = [bytes.fromhex(vector["input"]) for vector in VECTORS]
    secret, blinded = oprf._blind_with(ids, Blind(BLIND + BLIND))
    evaluated = oprf.evaluate(OprfKey(SECRET_KEY), blinded)
    assert blinded.hex() == "".join(vector["blinded"] for vector in VECTORS)
    assert oprf.finalize(ids, secret, evaluated).hex() == "".join(vector["output"] for vector in VECTORS)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_random_blinds_leave_the_output_as_it_is(ids):
    key = OprfKey.generate()
    secret, blinded = oprf.blind(ids)
    outputs = oprf.finalize(ids, secret, oprf.evaluate(key, blinded))
    direct = split(oprf.multiply(oprf.hash_to_group(ids), key), 32)
    expected = [
        hashlib.sha512(len(each).to_bytes(2, "big") + each + b"\x00\x20" + point + b"Finalize").digest()
        for each, point in zip(ids, direct)
    ]
    assert split(outputs, 64) == expected


def test_threads_keep_every_element_in_its_place():
    ids, key = make_ids(1001), OprfKey.generate()
    points = oprf.hash_to_group(ids)
    assert points == b"".join(oprf.hash_to_group([each]) for each in ids)
    one_by_one = b"".join(rbcl.crypto_scalarmult_ristretto255(key._scalar, point) for point in split(points, 32))
    assert oprf.multiply(points, key) == one_by_one


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_dividing_by_all_blinds_at_once_equals_one_by_one(count):
    secret, _ = oprf.blind(make_ids(count))
    key = OprfKey.generate()._scalar
    invert, times = rbcl.crypto_core_ristretto255_scalar_invert, rbcl.crypto_core_ristretto255_scalar_mul
    assert split(secret._divide(key), 32) == [times(key, invert(each)) for each in split(secret._scalars, 32)]


#: a valid point with a bit that no encoding has
HIGH_BIT = bytes(a | b for a, b in zip(oprf.hash_to_group([b"a person"]), bytes(31) + b"\x80"))


# --- what a peer can see or send ----------------------------------------------------------------------------------


def test_equal_ids_look_different_on_the_wire():
    ids = [b"same"] * 4
    (_, first), (_, second) = oprf.blind(ids), oprf.blind(ids)
    sent = split(first + second, 32)
    assert len(set(sent)) == 8
    assert oprf.hash_to_group([b"same"]) not in sent


@pytest.mark.parametrize("bad", [IDENTITY, NON_CANONICAL, HIGH_BIT, b"\xff" * 32, b"\x01" + bytes(31)])
@pytest.mark.parametrize(("count", "index"), [(3, 1), (600, 431)])
def test_an_invalid_point_is_never_multiplied_by_the_key(bad, count, index):
    points = split(oprf.hash_to_group(make_ids(count)), 32)
    points[index] = bad
    with pytest.raises(CiphertextError, match=f"element {index} of {count} "):
        oprf.evaluate(OprfKey.generate(), b"".join(points))


@pytest.mark.parametrize("cut", [1, 31])
def test_a_truncated_message_is_refused(cut):
    points = oprf.hash_to_group(make_ids(2))[:-cut]
    for call in (
        lambda: oprf.multiply(points, OprfKey.generate()),
        lambda: oprf.pseudonyms(points, b"run"),
    ):
        with pytest.raises(CiphertextError, match="truncated"):
            call()


def test_a_reply_with_points_missing_or_added_is_refused():
    ids, key = make_ids(3), OprfKey.generate()
    secret, blinded = oprf.blind(ids)
    evaluated = oprf.evaluate(key, blinded)
    for wrong in (evaluated[:64], evaluated + evaluated[:32], b""):
        with pytest.raises(CiphertextError, match="3 blinded elements were sent"):
            oprf.finalize(ids, secret, wrong)
        with pytest.raises(CiphertextError, match="3 blinded elements were sent"):
            oprf.joint_pseudonyms(key, secret, wrong, b"run")
    with pytest.raises(ParameterError, match="2 ids do not belong to a Blind of 3"):
        oprf.finalize(ids[:2], secret, evaluated)


def test_points_of_another_type_are_refused_before_libsodium():
    with pytest.raises(CiphertextError, match="must be bytes, got bytearray"):
        oprf.multiply(bytearray(32), OprfKey.generate())


def test_nothing_to_evaluate_gives_nothing():
    secret, blinded = oprf.blind([])
    assert (len(secret), blinded) == (0, b"")
    assert oprf.joint_pseudonyms(OprfKey.generate(), secret, b"", b"run") == b""


# --- two keys -------------------------------------------------------------------------------------------------------


def two_key_pseudonyms(ids, own: OprfKey, other: OprfKey, context=b"run 1", size=16) -> list[bytes]:
    secret, blinded = oprf.blind(ids)
    evaluated = oprf.evaluate(other, blinded)
    return split(oprf.joint_pseudonyms(own, secret, evaluated, context, size), size)


@settings(max_examples=15, deadline=None)
@given(st.sets(st.binary(max_size=12), max_size=8), st.sets(st.binary(max_size=12), max_size=8))
def test_the_parties_pseudonyms_agree_about_who_is_shared(mine, yours):
    key_1, key_2 = OprfKey.generate(), OprfKey.generate()
    mine, yours = sorted(mine), sorted(yours)
    at_1 = dict(zip(two_key_pseudonyms(mine, key_1, key_2), mine))
    at_2 = dict(zip(two_key_pseudonyms(yours, key_2, key_1), yours))
    assert {at_1[name] for name in at_1.keys() & at_2.keys()} == set(mine) & set(yours)
    assert all(at_1[name] == at_2[name] for name in at_1.keys() & at_2.keys())


def test_no_key_alone_evaluates_the_joint_function():
    ids = make_ids(5)
    key_1, key_2 = OprfKey.generate(), OprfKey.generate()
    joint = set(two_key_pseudonyms(ids, key_1, key_2))
    for points in (
        oprf.hash_to_group(ids),
        oprf.multiply(oprf.hash_to_group(ids), key_1),
        oprf.multiply(oprf.hash_to_group(ids), key_2),
    ):
        assert joint.isdisjoint(split(oprf.pseudonyms(points, b"run 1"), 16))
    both = oprf.multiply(oprf.multiply(oprf.hash_to_group(ids), key_1), key_2)
    assert joint == set(split(oprf.pseudonyms(both, b"run 1"), 16))


def test_pseudonyms_of_two_runs_cannot_be_linked():
    ids, key_1, key_2 = make_ids(4), OprfKey.generate(), OprfKey.generate()
    first = set(two_key_pseudonyms(ids, key_1, key_2, b"run 1"))
    assert first == set(two_key_pseudonyms(ids, key_1, key_2, b"run 1"))
    assert first.isdisjoint(two_key_pseudonyms(ids, key_1, key_2, b"run 2"))


def test_context_and_point_are_kept_apart():
    point = oprf.hash_to_group([b"x"])
    assert oprf.pseudonyms(point, b"") != oprf.pseudonyms(point, bytes(1))
    plain = hashlib.sha512(b"fedsift pseudonym v1" + (3).to_bytes(8, "big") + b"run" + point).digest()
    assert oprf.pseudonyms(point, b"run", 64) == plain
    assert oprf.pseudonyms(point, b"run", 8) == plain[:8]


@pytest.mark.parametrize("size", [0, 7, 65])
def test_pseudonyms_too_short_to_be_unique_are_refused(size):
    with pytest.raises(ParameterError, match="size must be from 8 to 64"):
        oprf.pseudonyms(b"", b"run", size)


# --- secrets and arguments ------------------------------------------------------------------------------------------


def test_a_secret_never_shows_in_text():
    key = OprfKey(SECRET_KEY)
    secret = Blind(BLIND + BLIND)
    assert repr(key) == str(key) == "OprfKey(<secret>)"
    assert repr(secret) == str(secret) == "Blind(<2 secrets>)"


@pytest.mark.parametrize("scalar", [bytes(32), oprf._ORDER.to_bytes(32, "little"), b"\xff" * 32, b"\x01" * 31])
def test_a_degenerate_key_is_refused(scalar):
    with pytest.raises(ParameterError, match="OPRF key"):
        OprfKey(scalar)


def test_generated_keys_never_repeat():
    assert len({OprfKey.generate()._scalar for _ in range(20)}) == 20


def test_an_error_never_repeats_the_id_of_a_person():
    with pytest.raises(ParameterError, match=r"ids\[1\] must be bytes, got str") as caught:
        oprf.blind([b"a", "jane.doe@example.org"])
    assert "jane" not in str(caught.value)
    with pytest.raises(ParameterError, match=r"ids\[2\] has 65536 bytes"):
        oprf.hash_to_group([b"a", b"x" * 65535, b"x" * 65536])


@pytest.mark.parametrize(("seed", "info"), [(b"short", b""), (bytes(32), bytes(65536))])
def test_a_key_from_too_little_or_too_much_is_refused(seed, info):
    with pytest.raises(ParameterError):
        OprfKey.derive(seed, info)


# --- another implementation -----------------------------------------------------------------------------------------


def openmined_intersection(client_ids: list[str], server_ids: list[str]) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own import warnings are not ours to fail on
        psi = pytest.importorskip(
            "private_set_intersection.python", reason="openmined-psi, the other implementation, is not installed"
        )
        client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
        setup = server.CreateSetupMessage(1e-9, len(client_ids), server_ids, psi.DataStructure.RAW)
        response = server.ProcessRequest(client.CreateRequest(client_ids))
        return {client_ids[index] for index in client.GetIntersection(setup, response)}


def test_the_intersection_equals_that_of_openmined_psi():
    mine = [f"id{number * 7 % 1000}" for number in range(300)]
    yours = [f"id{number * 11 % 1000}" for number in range(280)]
    key_1, key_2 = OprfKey.generate(), OprfKey.generate()
    at_1 = two_key_pseudonyms([each.encode() for each in mine], key_1, key_2)
    at_2 = set(two_key_pseudonyms([each.encode() for each in yours], key_2, key_1))
    ours = {each for each, name in zip(mine, at_1) if name in at_2}
    assert ours == openmined_intersection(mine, yours)
    assert ours == set(mine) & set(yours)
    assert 0 < len(ours) < 280


# --- eight points at a time ------------------------------------------------------------------------------------------

ENGINES = [name for name in ("AVX-512", "portable") if kernel.engine(name) is not None]
on_engines = pytest.mark.parametrize("engine", ENGINES)

#: RFC 9496, A.3: not canonical, negative, not on the curve, or no representative
BAD_ENCODINGS = [
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
    "c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78",
    "47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24",
    "f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72",
    "87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309",
]


@on_engines
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 255, 257, 700])
def test_the_kernel_gives_the_points_of_libsodium(monkeypatch, engine, count):
    """Counts around its lanes (16) and its batches (256)."""
    ids = make_ids(count)
    secret, key = oprf.blind(ids)[0], OprfKey.generate()

    def computed():
        points = oprf.hash_to_group(ids)
        return points, oprf._blind_with(ids, secret)[1], oprf.multiply(points, key), oprf.hash_and_multiply(ids, key)

    monkeypatch.setattr(oprf, "library", lambda: kernel.engine(engine))
    fast = computed()
    monkeypatch.setattr(oprf, "library", lambda: None)
    assert computed() == fast


@on_engines
@given(messages=st.lists(st.binary(max_size=300), max_size=5), before=st.binary(max_size=300), size=st.integers(8, 64))
@example(messages=[bytes(n) for n in (0, 110, 111, 112, 119, 120, 127, 128, 129, 239, 240)], before=b"", size=64)
@settings(max_examples=60, deadline=None)
def test_the_kernel_hashes_as_hashlib_does(engine, messages, before, size):
    data, ends = oprf._joined(messages)
    expected = b"".join(hashlib.sha512(before + each + b"end").digest()[:size] for each in messages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oprf, "library", lambda: kernel.engine(engine))
        assert oprf._digests(data, ends, size, before=before, after=b"end") == expected


def test_keyed_digests_depend_on_key_and_message_alone():
    ids = make_ids(30)
    rows = oprf.keyed_digests(ids, b"k" * 32)
    assert rows.shape == (30, 16)
    assert len({row.tobytes() for row in rows}) == 30
    assert rows[3].tobytes() == oprf.keyed_digests([ids[3]], b"k" * 32).tobytes()
    assert rows[3].tobytes() != oprf.keyed_digests([ids[3]], b"l" * 32).tobytes()
    with pytest.raises(ParameterError, match="32 bytes"):
        oprf.keyed_digests(ids, b"short")


@on_engines
@given(uniform=st.binary(min_size=64, max_size=64), scalar=st.integers(1, oprf._ORDER - 1))
@example(uniform=bytes(64), scalar=1)
@example(uniform=b"\xff" * 64, scalar=oprf._ORDER - 1)
@example(uniform=(2**255 - 19).to_bytes(32, "little") + (2**255 - 20).to_bytes(32, "little"), scalar=8)
@settings(max_examples=150, deadline=None)
def test_the_kernel_is_right_on_special_numbers(engine, uniform, scalar):
    """Values at the edges of the field and of the digits; the other tests see what hashing gives."""
    compiled, point, multiple = kernel.engine(engine), ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
    compiled.fedsift_ristretto_map(uniform, 1, point)
    assert point.raw == rbcl.crypto_core_ristretto255_from_hash(uniform)
    raw = scalar.to_bytes(32, "little")
    compiled.fedsift_ristretto_map_scale(uniform, 1, raw, 0, multiple)
    if any(point.raw):
        expected = rbcl.crypto_scalarmult_ristretto255(raw, point.raw)
        assert multiple.raw == expected
        assert compiled.fedsift_ristretto_scale(point.raw, 1, raw, 0, multiple) == -1
        assert multiple.raw == expected
    else:
        assert not any(multiple.raw)


@on_engines
def test_an_identity_in_a_batch_leaves_its_neighbours_alone(engine):
    """Sixteen points and more share an inversion; the identity has nothing to invert."""
    compiled, uniform = kernel.engine(engine), [hashlib.sha512(bytes([i])).digest() for i in range(40)]
    uniform[5] = uniform[21] = bytes(64)  # twice the map of zero: the identity
    raw, out = (7).to_bytes(32, "little"), ctypes.create_string_buffer(40 * 32)
    compiled.fedsift_ristretto_map_scale(b"".join(uniform), 40, raw, 0, out)
    for index, point in enumerate(split(out.raw, 32)):
        if index in (5, 21):
            assert not any(point)
        else:
            mapped = rbcl.crypto_core_ristretto255_from_hash(uniform[index])
            assert point == rbcl.crypto_scalarmult_ristretto255(raw, mapped)


@on_engines
@given(data=st.binary(min_size=32, max_size=32) | st.sampled_from([bytes.fromhex(each) for each in BAD_ENCODINGS]))
@settings(max_examples=300, deadline=None)
def test_the_kernel_refuses_what_libsodium_refuses(engine, data):
    key, compiled, out = OprfKey.generate(), kernel.engine(engine), ctypes.create_string_buffer(32)
    try:
        expected = rbcl.crypto_scalarmult_ristretto255(key._scalar, data)
        if data[31] >> 7:  # not canonical either, which libsodium overlooks
            raise RuntimeError
    except RuntimeError:
        with pytest.raises(CiphertextError, match="element 0 of 1"):
            oprf.multiply(data, key)
        assert data[31] >> 7 or compiled.fedsift_ristretto_scale(data, 1, key._scalar, 0, out) == 0
    else:
        assert compiled.fedsift_ristretto_scale(data, 1, key._scalar, 0, out) == -1
        assert oprf.multiply(data, key) == out.raw == expected


def test_published_bad_encodings_are_refused():
    good = oprf.hash_to_group(make_ids(9))
    for each in BAD_ENCODINGS:
        with pytest.raises(CiphertextError, match="element 5 of 10"):
            oprf.multiply(good[:160] + bytes.fromhex(each) + good[160:], OprfKey.generate())
