"""The dealer: shares that add up to the product, bits that open where the asker's are set, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsift as fs
from fedsift.errors import OperationRefused, SecurityError
from fedsift.mpc.dealer import (
    Dealer,
    Dealt,
    and_correction,
    answer_and,
    correction,
    left_share,
    open_and,
    right_share,
    take_seed,
)
from fedsift.mpc.ring import new_seed, uniform


def pair(name: str) -> tuple[Dealt, Dealt]:
    seed = new_seed()
    return Dealt(name, seed), Dealt(name, seed)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 5))
def test_shares_add_up_to_the_product_for_many_right_sides(rows, a, b):
    (left, dealer_left), (right, dealer_right) = pair("shop"), pair("bank")
    x = uniform((rows, a))
    hidden_left = x - left.keep("mask", 0, (rows, a))
    dealer_left.keep("mask", 0, (rows, a))
    for number in range(3):
        y = uniform((rows, b))
        hidden = y - right.draw("right", number, (rows, b))
        sent = correction(
            dealer_left.again("mask", 0),
            dealer_right.draw("right", number, (rows, b)),
            dealer_left.draw("split", number, (a, b)),
        )
        mine = left_share(left.again("mask", 0), hidden, left.draw("split", number, (a, b)))
        other = right_share(hidden_left, y, sent)
        np.testing.assert_array_equal(mine + other, x.T @ y)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 4))
def test_bits_open_where_the_askers_bit_is_set_and_read_zero_elsewhere(count, rows):
    (left, dealer_left), (right, dealer_right) = pair("shop"), pair("bank")
    rng = np.random.default_rng(count)
    l_bits, m_bits = (np.packbits(rng.integers(0, 2, (rows, count), dtype=np.uint8), axis=1) for _ in range(2))
    b = right.bits("b", 0, rows, count)
    d, s = answer_and(l_bits, m_bits ^ b, left.bits("a", 0, rows, count), left.bits("r", 0, rows, count))
    w = and_correction(
        dealer_left.bits("a", 0, rows, count),
        dealer_right.bits("b", 0, rows, count),
        dealer_left.bits("r", 0, rows, count),
    )
    np.testing.assert_array_equal(open_and(m_bits, d, s, w), l_bits & m_bits)


def test_what_the_asker_sees_is_the_same_for_any_bits_that_it_did_not_ask_for():
    """Simulation: for another l that agrees where m is 1 there is dealer's randomness with the very same view."""
    rng = np.random.default_rng(0)
    bits = lambda: rng.integers(0, 256, (1, 50), dtype=np.uint8)  # noqa: E731
    l_bits, m, a, r, b = (bits() for _ in range(5))
    other = l_bits ^ (bits() & ~m)
    a2 = a ^ l_bits ^ other  # the mask that explains the other bits
    r2 = r ^ (a & b) ^ (a2 & b)
    for mine, masks in ((l_bits, (a, r)), (other, (a2, r2))):
        view = (*answer_and(mine, m ^ b, *masks), and_correction(masks[0], b, masks[1]))
        if mine is l_bits:
            first = view
    assert (other != l_bits).any()
    for one, two in zip(first, view):
        np.testing.assert_array_equal(one, two)


def test_nothing_is_drawn_twice_and_only_what_was_kept_comes_again():
    mine, _ = pair("shop")
    mine.draw("split", 3, (2, 2))
    with pytest.raises(SecurityError, match="used before"):
        mine.draw("split", 3, (2, 2))
    with pytest.raises(SecurityError, match="not drawn to be kept"):
        mine.again("split", 3)
    mine.bits("a", 0, 2, 9)
    with pytest.raises(SecurityError, match="used before"):
        mine.bits("a", 0, 2, 9)


def test_a_run_has_one_seed_a_party_that_only_it_and_the_dealer_know():
    rng = np.random.default_rng(0)
    fed = fs.Federation.split(rng.normal(size=(20, 4)), rng.integers(0, 2, 20), parties=2)
    with fed.session() as run:
        dealer = Dealer.begin(run)
        one, two = (dealer.of[name].draw("x", 0, (4,)) for name in fed.parties)
        assert not (one == two).any()
        with pytest.raises(OperationRefused, match="already"):  # by the script, before the operation runs
            run.ask(take_seed, to=fed.parties[0], seed=new_seed())
        with pytest.raises(SecurityError, match="32 bytes"), fed.session() as other:
            other.ask(take_seed, to=fed.parties[0], seed=b"short")
