"""Which models grow together: as many as have the same units and leave memory; from public sizes, so all sites agree.

A step about rows has a number for each row and summed node of a level, in some ten arrays; one about cuts some hundred
numbers of 64 bits a candidate and node. A single model grows whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsift.models.boost.compared.scales import Scales

MOST_MODELS = 4096
_MOST_NUMBERS = 2_000_000  # rows x summed nodes of the last level, of all models
_MOST_CANDIDATES = 150_000  # candidates x nodes of the last level, of all models


@dataclass(frozen=True)
class Sized:
    """A model to grow, as everybody knows it."""

    number: int
    trees: int
    scales: Scales
    depth: int
    candidates: int  # of all parties


def fits(rows: int, depths: Sequence[int]) -> bool:
    """Whether models of these depths may grow together."""
    return len(depths) == 1 or rows * sum(1 << max(0, depth - 2) for depth in depths) <= _MOST_NUMBERS


def few_enough(trees: Sequence[tuple[int, int]]) -> bool:
    """Whether trees of so many candidates, and of this depth, may grow together."""
    return len(trees) == 1 or sum(count << (depth - 1) for count, depth in trees) <= _MOST_CANDIDATES


def groups(rows: int, models: Sequence[Sized]) -> list[list[Sized]]:
    """The deepest first; those of other units in other groups."""
    found: list[list[Sized]] = []
    for model in sorted(models, key=lambda each: (each.scales.units, -each.depth)):
        last = [*found[-1], model] if found and found[-1][0].scales.units == model.scales.units else []
        together = fits(rows, [each.depth for each in last])
        if last and len(last) <= MOST_MODELS and together and few_enough([(m.candidates, m.depth) for m in last]):
            found[-1] = last
        else:
            found.append([model])
    return found
