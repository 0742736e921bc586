"""The privacy loss from below: near the truth for known noise, never above it, and far above a false claim."""

from __future__ import annotations

import numpy as np
import pytest

from fedsift.audit.attacks.privacy_loss import epsilon_from_below, laplace_ratio, movement


def laplace(scale, seed):
    generator = np.random.default_rng(seed)
    return lambda table: table + generator.laplace(0, scale, len(table))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_bound_is_below_the_truth_and_near_it(epsilon):
    loss = epsilon_from_below(laplace(1 / epsilon, 0), np.zeros(1), np.ones(1), 4_000)
    assert 0.6 * epsilon < loss.epsilon <= epsilon


def test_a_bound_at_its_confidence_is_seldom_wrong():
    bounds = [epsilon_from_below(laplace(1.0, seed), np.zeros(1), np.ones(1), 1_000).epsilon for seed in range(40)]
    assert np.mean([bound > 1.0 for bound in bounds]) <= 0.1


def test_a_release_that_does_not_depend_on_the_row_loses_nothing():
    assert epsilon_from_below(laplace(1.0, 0), np.zeros(3), np.zeros(3), 2_000).epsilon < 0.2


def flafe(clip=5.0):
    """The old release without its noise: standardised by the table's own mean and deviation, clipped, multiplied."""

    def exact(pair):
        own, other = pair
        return np.clip((own - own.mean()) / own.std(), -clip, clip) * other

    return exact


def neighbours(rows):
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(2, rows))
    far = own.copy()
    far[0] = 1e6
    return (own, other), (far, other)


@pytest.mark.parametrize(("rows", "factor"), [(1_000, 12.5), (30_000, 317)])
def test_one_row_moves_a_standardised_column_as_far_as_was_found(rows, factor):
    """security.md, line 12; there on real columns, so within a third."""
    moved = movement(flafe(), *neighbours(rows)) / 50.0  # 50 is what the noise was made for: 2 * 5 * 5
    assert moved == pytest.approx(factor, rel=1 / 3)


def measured(exact, rows, draws=2_000):
    """The loss of one released column whose noise was made for epsilon = 1 and a sensitivity of 50."""
    tables, generator = [exact(pair) for pair in neighbours(rows)], np.random.default_rng(0)
    return epsilon_from_below(
        lambda table: table + generator.laplace(0, 50.0, rows), *tables, draws, statistic=laplace_ratio(*tables, 50.0)
    ).epsilon  # fmt: skip


def test_the_old_release_loses_more_than_it_claims():
    assert measured(flafe(), 10_000) > 1.5  # it claims 1


def test_bounds_that_are_public_keep_the_claim():
    assert measured(lambda pair: np.clip(pair[0], -5, 5) * np.clip(pair[1], -5, 5), 10_000) <= 1.0
