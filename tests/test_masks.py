"""Masks and secure aggregation: the sum is exact, and a single masked vector says nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fedsift.crypto.sealed_box import SealKey
from fedsift.errors import CiphertextError, DataError, OverflowGuard, ParameterError, SealError, SecurityError
from fedsift.mpc import pairwise_masks as masks

NAMES = ["bank", "clinic", "shop", "Zoo"]  # upper case sorts before lower case: the order must only be the same
KEYS = {name: SealKey.generate() for name in NAMES}
FAR = 1e-9  # a random test fails by chance less than once in a billion runs
RNG = np.random.default_rng(7)


def peers_of(name: str, names=NAMES) -> dict[str, bytes]:
    return {other: KEYS[other].public for other in names if other != name}


def mask_all(vectors: dict, round: int = 1, **options) -> dict:
    names = list(vectors)
    return {
        name: masks.masked(vectors[name], me=name, key=KEYS[name], peers=peers_of(name, names), round=round, **options)
        for name in names
    }


def random_vectors(names=NAMES, shape=(5,)) -> dict:
    return {name: RNG.normal(size=shape) * 100 for name in names}


def looks_uniform(words: np.ndarray) -> bool:
    """Chi-squared over the values of each of the eight bytes of the words."""
    columns = np.frombuffer(words.astype("<u8").tobytes(), np.uint8).reshape(-1, 8)
    pvalues = [stats.chisquare(np.bincount(columns[:, at], minlength=256)).pvalue for at in range(8)]
    return min(pvalues) > FAR


# --- fixed point ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float64, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4), elements=st.floats(-1e9, 1e9)
    ),
    st.integers(0, 32),
)
def test_fixed_point_loses_at_most_half_a_step(values, exponent):
    ring = masks.encode(values, exponent)
    assert ring.dtype == np.uint64
    back = masks.decode(ring, exponent)
    assert back.shape == values.shape
    assert np.all(np.abs(back - values) <= 2.0 ** -(exponent + 1))


@settings(max_examples=80, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 62), st.integers(1, 1000))
def test_no_sum_of_accepted_values_wraps(value, exponent, summands):
    try:
        ring = masks.encode([value], exponent, summands)
    except OverflowGuard:
        assert abs(value) * 2**exponent >= (2**63 - 1) // summands - 1025  # refused only at the edge or beyond it
        return
    step = int(ring.view(np.int64)[0])
    assert abs(step) * summands < 2**63


def test_the_largest_value_is_taken_and_the_next_refused():
    just_below = np.nextafter(2.0**39, 0)
    assert masks.decode(masks.encode([just_below, -just_below], 24), 24).tolist() == [just_below, -just_below]
    for value in (2.0**39, -(2.0**39), 1e300):
        with pytest.raises(OverflowGuard, match="index 1 does not fit"):
            masks.encode([0.0, value], 24)


def test_an_overflow_error_gives_the_position_and_not_the_value():
    with pytest.raises(OverflowGuard, match="index 1, 0 does not fit: with exponent 24 and 4 summands") as caught:
        masks.encode([[1.0], [987654321987654.0]], 24, summands=4)
    assert "98765" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_missing_value_is_refused(bad):
    with pytest.raises(DataError, match="index 2 is not a finite number"):
        masks.encode([0.0, 1.0, bad])


def test_an_error_does_not_repeat_a_private_text():
    with pytest.raises(DataError, match="only numbers") as caught:
        masks.encode(["jane"])
    assert "jane" not in str(caught.value)


@pytest.mark.parametrize("exponent", [-1, 63])
def test_an_exponent_without_room_is_refused(exponent):
    with pytest.raises(ParameterError, match="exponent"):
        masks.encode([1.0], exponent)
    with pytest.raises(ParameterError, match="exponent"):
        masks.decode(np.zeros(1, np.uint64), exponent)


# --- secure aggregation ---------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 4),
    hnp.arrays(np.float64, (4, 3), elements=st.floats(-1e6, 1e6)),
    st.integers(0, 2**64 - 1),
    st.integers(10, 32),
)
def test_the_sum_equals_the_plain_sum(parties, values, round, exponent):
    vectors = dict(zip(NAMES[:parties], values))
    sent = mask_all(vectors, round, exponent=exponent)
    total = masks.unmask_sum(sent, parties, exponent)
    assert np.all(np.abs(total - values[:parties].sum(axis=0)) <= parties * 2.0 ** -(exponent + 1) + 1e-9)
    # to the last bit, the sum of what was encoded
    plain = sum(masks.encode(each, exponent).view(np.int64) for each in values[:parties])
    assert np.array_equal(total, np.ldexp(plain.astype(float), -exponent))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3)])
def test_the_sum_holds_for_unusual_shapes(shape):
    vectors = random_vectors(shape=shape)
    sent = mask_all(vectors)
    total = masks.unmask_sum(list(sent.values()), 4)
    assert total.shape == shape
    np.testing.assert_allclose(total, sum(vectors.values()), atol=1e-6)


def test_a_single_masked_vector_looks_uniform():
    data = np.repeat(np.linspace(-50, 50, 100), 100)
    sent = mask_all({"bank": data, "shop": np.zeros_like(data)})
    for each in sent.values():
        assert looks_uniform(each)
        shown = masks.decode(each)
        assert stats.pearsonr(shown, data).pvalue > FAR
    assert not looks_uniform(masks.encode(data)), "the check itself must notice unmasked data"


def test_two_of_three_vectors_together_look_uniform():
    vectors = random_vectors(["bank", "clinic", "shop"], (10_000,))
    sent = mask_all(vectors)
    for pair in itertools.combinations(sent.values(), 2):
        assert looks_uniform(pair[0] + pair[1])


def test_every_round_purpose_and_shape_has_its_own_mask():
    zeros = {name: np.zeros(6) for name in NAMES}
    seen = [mask_all(zeros, round)["bank"] for round in (1, 2)]
    seen.append(mask_all(zeros, 1, about="counts")["bank"])
    seen.append(mask_all({name: np.zeros(7) for name in NAMES}, 1)["bank"][:6])
    seen.append(mask_all({name: np.zeros((3, 2)) for name in NAMES}, 1)["bank"].ravel())
    for left, right in itertools.combinations(seen, 2):
        assert not np.any(left == right)


def test_a_repeated_request_gives_the_same_bytes():
    vectors = random_vectors()
    assert np.array_equal(mask_all(vectors)["shop"], mask_all(vectors)["shop"])


def test_a_wrong_round_gives_garbage():
    """It cannot be detected in the ring; what this pins down is that it gives garbage and not nearly the right sum."""
    vectors = random_vectors(shape=(200,))
    sent = mask_all(vectors, 1)
    sent["shop"] = mask_all(vectors, 2)["shop"]
    total = masks.unmask_sum(sent, 4, expected=NAMES)
    assert np.median(np.abs(total)) > 1e9


def test_a_sum_that_might_overflow_is_refused():
    largest = 2.0**39 / 4  # fits alone; four of them reach the sign bit
    with pytest.raises(OverflowGuard, match="4 summands"):
        mask_all({name: np.array([largest]) for name in NAMES})
    below = {name: np.array([largest * 0.999]) for name in NAMES}
    np.testing.assert_allclose(masks.unmask_sum(mask_all(below), 4), 4 * largest * 0.999)


# --- dropout --------------------------------------------------------------------------------------------------------


def test_a_missing_party_is_named():
    sent = mask_all(random_vectors())
    del sent["shop"]
    with pytest.raises(SecurityError, match="no masked vector from 'shop'"):
        masks.unmask_sum(sent, 4, expected=NAMES)
    with pytest.raises(SecurityError, match="3 masked vectors arrived but 4 parties masked"):
        masks.unmask_sum(list(sent.values()), 4)
    with pytest.raises(SecurityError, match="0 masked vectors arrived"):
        masks.unmask_sum([], 0)


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(5), np.zeros(4, np.uint64), np.zeros(5, np.int64), [0] * 5],
    ids=["floats", "short", "signed", "list"],
)
def test_a_party_that_sends_something_else_is_refused_by_name(wrong):
    sent = mask_all(random_vectors())
    sent["shop"] = wrong
    with pytest.raises(CiphertextError, match="masked vector of 'shop' must be a uint64 array"):
        masks.unmask_sum(sent, 4, expected=NAMES)


def test_names_that_do_not_fit_the_count_are_refused():
    sent = mask_all(random_vectors())
    with pytest.raises(ParameterError, match="expected names 4 parties, but count is 3"):
        masks.unmask_sum(sent, 3, expected=NAMES)
    with pytest.raises(ParameterError, match=r"came from \['Zoo'\]"):
        masks.unmask_sum(sent, 3, expected=NAMES[:3])


def test_no_vector_leaves_without_a_mask():
    for peers, message in [({}, "no peers"), ({"bank": KEYS["shop"].public}, "itself")]:
        with pytest.raises(ParameterError, match=message):
            masks.masked([1.0], me="bank", key=KEYS["bank"], peers=peers, round=1)
    twice = {"shop": KEYS["shop"].public, "clinic": KEYS["shop"].public}
    with pytest.raises(ParameterError, match="same public key"):
        masks.masked([1.0], me="bank", key=KEYS["bank"], peers=twice, round=1)
    with pytest.raises(ParameterError, match="same public key"):
        masks.masked([1.0], me="bank", key=KEYS["bank"], peers={"shop": KEYS["bank"].public}, round=1)
    with pytest.raises(SealError, match="public key of 'shop'"):
        masks.masked([1.0], me="bank", key=KEYS["bank"], peers={"shop": bytes(32)}, round=1)
