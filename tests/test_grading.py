"""Measures on shares: each equals plain arithmetic on the same numbers, and what travels is uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from test_comparing import run

from fedsift.mpc import ranking, wide
from fedsift.mpc.grading import counted, likeliest, sizes, squares, word_for
from fedsift.mpc.ranking import lowest_bit, reach_of, twice_the_pairs
from fedsift.mpc.ring import uniform

FRACTION = 40


def split(numbers):
    """Two shares modulo 2^64."""
    first = uniform(numbers.shape)
    return first, numbers.astype(np.uint64) - first


def fixed(values):
    return np.round(np.ldexp(values, FRACTION)).astype(np.int64)


def unpacked(pair, rows):
    return np.unpackbits(pair[0] ^ pair[1], axis=1, count=rows).astype(bool)


def pairs_on_shares(scores, label, low=0):
    """Twice the ordered pairs of each block of scores (blocks x rows), with the labels of each."""
    bits, word = np.packbits(label.reshape(-1)), word_for(scores.shape[1])

    def program(source, share):
        mine = bits if source.number == 0 else np.zeros_like(bits)
        return (yield from twice_the_pairs(source, share, mine, label.sum(axis=1).tolist(), low, word))

    first, second = run(program, *split(scores))
    return (first + second).tolist()


def pairs_in_the_open(scores, label):
    inside, others = scores[label][:, None], scores[~label]
    return int(2 * (inside > others).sum() + (inside == others).sum())


@pytest.mark.parametrize("kind", ["different", "ties", "constant", "signs", "extremes"])
@pytest.mark.parametrize("rows", [1, 2, 9, 300])
def test_pairs_are_counted_exactly(rows, kind):
    rng = np.random.default_rng(rows)
    values = {
        "different": rng.normal(size=(2, rows)), "ties": rng.integers(0, 5, (2, rows)).astype(float),
        "constant": np.full((2, rows), -1.25), "signs": rng.choice([-1e-9, 0.0, 1e-9], (2, rows)),
        "extremes": rng.choice([-(2.0**21), 2.0**21, 0.0], (2, rows)),
    }[kind]  # fmt: skip
    scores, label = fixed(values), rng.random((2, rows)) < 0.3
    label[0, :2] = [True, False][:rows]
    label[1] = kind == "ties"  # a block with one class alone
    expected = [pairs_in_the_open(*block) for block in zip(scores, label)]
    assert pairs_on_shares(scores, label) == expected


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 10), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_pairs_are_those_in_the_open_whatever_the_scores(rows, blocks, spread, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-spread, spread + 1, (blocks, rows)) << 33
    label = rng.random((blocks, rows)) < rng.random()
    assert pairs_on_shares(scores, label, 32) == [pairs_in_the_open(*block) for block in zip(scores, label)]


@pytest.mark.parametrize("deviation", [0.003, 0.07, 0.99, 30.0])
def test_the_area_is_that_of_the_scores_to_a_millionth(deviation):
    """Scores are told apart by the bits from 2^-26 of their deviation on; ties of whole groups stay ties."""
    rng = np.random.default_rng(0)
    label = rng.random((1, 700)) < 0.2
    steps = (100 * rng.normal(size=(1, 700))).round() + 100 * label  # many ties
    steps[0, :20] *= 50  # some far away
    values = deviation / 100 * steps
    low = lowest_bit(FRACTION, reach_of(float(values.std())))
    found = pairs_on_shares(fixed(values), label, low)[0] / (2 * label.sum() * (~label).sum())
    assert found == pytest.approx(roc_auc_score(label[0], values[0]), abs=1e-6)


def test_a_class_of_one_row_and_many_rows_in_wider_words():
    scores = fixed(np.random.default_rng(0).normal(size=(1, 120)))
    label = np.zeros((1, 120), dtype=bool)
    label[0, 17] = True
    assert pairs_on_shares(scores, label) == [int(2 * (scores[0] < scores[0, 17]).sum())]
    assert word_for(2**16) is np.uint64


def test_what_is_opened_is_a_uniform_order_and_ties_do_not_show():
    """Equal scores and different ones give places from the same distribution: each row equally likely at each place."""
    rows, seen = 6, {"equal": np.zeros((6, 6)), "different": np.zeros((6, 6))}
    for kind, values in (("equal", np.zeros((1, rows))), ("different", np.arange(rows)[None] * 1.0)):
        opened = []
        put = ranking._put

        def spy(source, bits, places, opened=opened, put=put):
            if source.number == 0:
                opened.append(places)
            return put(source, bits, places)

        ranking._put = spy
        try:
            for _ in range(40):
                pairs_on_shares(fixed(values), np.zeros((1, rows), dtype=bool), 36)
        finally:
            ranking._put = put
        for places in opened:
            seen[kind][np.arange(rows), places] += 1
    for found in seen.values():
        expected = found.sum() / rows**2
        assert found.sum(axis=0) == pytest.approx(np.full(rows, found.sum() / rows))
        assert ((found - expected) ** 2 / expected).sum() < 70, "25 degrees of freedom: six deviations"


def test_bits_are_counted_in_words_of_both_sizes():
    bits = np.packbits(np.random.default_rng(0).random((5, 77)) < 0.4, axis=1)
    for word in (np.uint32, np.uint64):
        mask = np.random.default_rng(1).integers(0, 256, bits.shape, dtype=np.uint8)
        first, second = run(lambda s, b, word=word: counted(s, b, 77, word), bits ^ mask, mask)
        np.testing.assert_array_equal(first + second, np.unpackbits(bits, axis=1, count=77).sum(axis=1))


@pytest.mark.parametrize("outputs", [1, 2, 3, 7])
def test_the_likeliest_class_is_the_first_of_the_best(outputs):
    rng = np.random.default_rng(outputs)
    scores = fixed(rng.integers(-3, 4, size=(50, outputs)).astype(float))  # ties among them
    found = unpacked(run(likeliest, *split(scores)), 50)
    expected = (scores[:, 0] > 0).astype(int) if outputs == 1 else scores.argmax(axis=1)
    np.testing.assert_array_equal(found, expected == np.arange(max(2, outputs))[:, None])


def test_errors_of_a_number_are_exact():
    scores = fixed(np.random.default_rng(0).normal(size=40) * 1000)
    squared = [sum(part) for part in zip(*(wide.to_ints(wide.total(s)[None]) for s in run(squares, *split(scores))))]
    assert squared[0] % 2**192 == sum(int(value) ** 2 for value in scores)
    absolute = [sum(part) for part in zip(*(wide.to_ints(wide.total(s)[None]) for s in run(sizes, *split(scores))))]
    assert absolute[0] % 2**192 == sum(abs(int(value)) for value in scores)


def test_what_travels_is_the_same_for_any_scores_in_shape_and_looks_uniform():
    """Sent bits are one half ones: millions of them for two quite different tables, off by less than 6 deviations of a
    fair coin (2e-9 by chance). Who shuffles has nothing to send: zeros, in each pass."""
    label = np.zeros((1, 400), dtype=bool)
    label[0, :5] = True
    shapes, passes = [], 12
    for scores in (np.zeros((1, 400)), np.linspace(-9, 9, 400)[None]):
        seen = []

        def program(source, share):
            mine = np.packbits(label) if source.number == 0 else np.zeros(50, np.uint8)
            return (yield from twice_the_pairs(source, share, mine, [5], 64 - 4 * passes, np.uint32))

        run(program, *split(fixed(scores)), seen)
        shapes.append([[part.shape for part in one] for pair in seen for one in pair])
        for sender in (0, 1):
            parts = [part.view(np.uint8).ravel() for pair in seen for part in pair[sender]]
            empty = [part for part in parts if not part.any()]
            assert len(empty) == 2 * passes
            bits = np.unpackbits(np.concatenate([part for part in parts if part.any()]))
            assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)
    assert shapes[0] == shapes[1]
