"""Measures on shares: each equals plain arithmetic on the same numbers, and what travels is uniform."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from test_comparing import run

from fedsift.mpc import wide
from fedsift.mpc.grading import Grid, above_cuts, concordant, counted, likeliest, sizes, squares, word_for
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


@pytest.mark.parametrize("rows", [1, 8, 100, 20_000])
def test_cells_are_those_of_the_score_below_inside_and_above_the_grid(rows):
    rng = np.random.default_rng(rows)
    grid = Grid.of(rows, FRACTION, 2)
    scores = fixed(rng.normal(size=rows) * 3)
    cuts = (np.arange(grid.cells + 1) - grid.cells // 2) << grid.low
    edges = [0, 1, -1, int(cuts[1]), int(cuts[1]) + 1, int(cuts[-1]), int(cuts[-1]) + 1, 2**60, -(2**60)]
    scores[: len(edges)] = edges[:rows]
    found = unpacked(run(lambda source, share: above_cuts(source, share, grid), *split(scores)), rows)
    assert found.shape == (grid.cells - 1, rows)
    np.testing.assert_array_equal(found.sum(axis=0), grid.cell(scores))
    np.testing.assert_array_equal(found, scores > cuts[1:-1, None])


def pairs_on_shares(scores, label, grid):
    rows, word = len(scores), word_for(len(scores))
    bits = np.packbits(label)

    def program(source, share):
        above = yield from above_cuts(source, share, grid)
        mine = bits if source.number == 0 else np.zeros_like(bits)
        return (yield from concordant(source, above, mine, rows, int(label.sum()), word))

    first, second = run(program, *split(scores))
    return int((first + second)[0])


@pytest.mark.parametrize("rows", [2, 9, 300])
def test_the_area_is_that_of_the_cells(rows):
    rng = np.random.default_rng(rows)
    label = rng.random(rows) < 0.3
    label[:2] = True, False
    scores = fixed(rng.normal(size=rows) + label)
    grid = Grid.of(rows, FRACTION, 2)
    found = pairs_on_shares(scores, label, grid) / (2 * label.sum() * (~label).sum())
    assert found == pytest.approx(roc_auc_score(label, grid.cell(scores)), abs=1e-12)


@pytest.mark.parametrize("deviation", [0.07, 0.51, 0.99])
def test_the_grid_moves_the_area_by_little(deviation):
    """Of a fixed draw of 3,000 rows."""
    rng = np.random.default_rng(0)
    label = rng.random(3000) < 0.2
    values = deviation * (rng.normal(size=3000) + label)
    cells = Grid.of(3000, FRACTION, Grid.reaching(float(values.std()))).cell(fixed(values))
    assert roc_auc_score(label, cells) == pytest.approx(roc_auc_score(label, values), abs=3e-4)


def test_many_rows_have_fewer_cells_and_wider_counts():
    assert Grid.of(10**5, FRACTION, 2).cells == 64
    assert Grid.of(10**4, FRACTION, 2).cells == 256
    assert word_for(2**16) is np.uint64


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
    """Sent bits are one half ones: 2.5 million of them for two quite different tables, off by less than 6 deviations of
    a fair coin (2e-9 by chance)."""
    grid, label = Grid.of(800, FRACTION, 2), np.zeros(800, dtype=bool)
    label[:5] = True
    shapes = []
    for scores in (np.zeros(800), np.linspace(-9, 9, 800)):
        seen = []

        def program(source, share):
            above = yield from above_cuts(source, share, grid)
            mine = np.packbits(label) if source.number == 0 else np.zeros(100, np.uint8)
            return (yield from concordant(source, above, mine, 800, 5, np.uint32))

        run(program, *split(fixed(scores)), seen)
        shapes.append([[part.shape for part in one] for pair in seen for one in pair])
        for sender in (0, 1):
            sent = np.concatenate([part.view(np.uint8).ravel() for pair in seen for part in pair[sender]])
            bits = np.unpackbits(sent)
            assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)
    assert shapes[0] == shapes[1]
