"""A particle swarm over hyper-parameters and columns: pure search, no parties.

Particles are five integers (trees, depth, bins, gamma, lambda) and a value in [0, 1] for each column (PSO-EVFFS,
section 4.3). Open in the paper and decided here: velocities are clamped to a share of the range; decoding a column by
``x > random`` is random, so the decoded mask is kept with its fitness, and it is the mask, not the position, that wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.errors import DataError
from fedsift.models.boost.bins import SEARCHED_BINS, SEARCHED_PENALTY

HYPER = ("trees", "depth", "bins", "gamma", "lambda")


@dataclass(frozen=True)
class Bounds:
    """Lowest and highest value of each hyper-parameter."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, max_trees: int, max_depth: int) -> Bounds:
        fewest, most = SEARCHED_BINS
        high = np.array([max_trees, max_depth, most, SEARCHED_PENALTY, SEARCHED_PENALTY], dtype=float)
        return cls(np.array([1, 1, fewest, 1, 1], dtype=float), high)

    def draw(self, generator: np.random.Generator, high_half: bool) -> np.ndarray:
        """Trees and depth from the upper half of their range, so that columns get a chance to be split on."""
        low = self.low.copy()
        if high_half:
            low[:2] = np.maximum(low[:2], self.high[:2] / 2)
        return generator.uniform(low, self.high)


@dataclass
class Swarm:
    """Positions, velocities and what each particle has found so far."""

    x: np.ndarray
    v: np.ndarray
    best_x: np.ndarray
    best_fitness: np.ndarray
    best_masks: np.ndarray
    generator: np.random.Generator
    iteration: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    known: dict[str, float] = field(default_factory=dict)  # decoded particle -> fitness
    asked: int = 0

    @property
    def leader(self) -> int:
        return int(self.best_fitness.argmax())

    # -- a checkpoint holds what the coordinator knows: no data ---

    def as_dict(self) -> dict[str, Any]:
        return {
            "x": self.x.tolist(), "v": self.v.tolist(), "best_x": self.best_x.tolist(),
            "best_fitness": [None if not np.isfinite(f) else float(f) for f in self.best_fitness],
            "best_masks": self.best_masks.astype(int).tolist(), "generator": self.generator.bit_generator.state,
            "iteration": self.iteration, "curve": self.curve, "known": self.known, "asked": self.asked,
        }  # fmt: skip

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Swarm:
        try:
            generator = np.random.default_rng(0)
            generator.bit_generator.state = fields["generator"]
            fitness = np.array([-np.inf if f is None else f for f in fields["best_fitness"]])
            return cls(
                np.array(fields["x"]), np.array(fields["v"]), np.array(fields["best_x"]), fitness,
                np.array(fields["best_masks"], dtype=bool), generator, int(fields["iteration"]), list(fields["curve"]),
                dict(fields["known"]), int(fields["asked"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            raise DataError("the checkpoint is damaged: remove the file to start again") from None


def first_swarm(
    size: int, bounds: Bounds, importance: np.ndarray, init: str, alpha: float, generator: np.random.Generator
) -> Swarm:
    """FIIS (guided by importance at both ends of the ranking), RIS (random) or PIS (importance as probability)."""
    columns = len(importance)
    hyper = np.stack([bounds.draw(generator, init == "fiis") for _ in range(size)])
    if init == "pis":
        places = (importance / max(importance.max(), 1e-12) > generator.random((size, columns))).astype(float)
    else:
        low, high = np.zeros(columns), np.ones(columns)
        if init == "fiis":
            edge = 1 / (1 + np.exp(-10 * (0.5 - alpha))) - 0.5
            rank = np.empty(columns)
            rank[np.argsort(-importance, kind="stable")] = np.arange(1, columns + 1)
            low[rank <= (0.5 - alpha) * columns] = edge
            high[rank >= (0.5 + alpha) * columns] = 1 - edge
        places = generator.uniform(low, high, (size, columns))
    x = np.hstack([hyper, places])
    nothing = np.full(size, -np.inf)
    return Swarm(x, np.zeros_like(x), x.copy(), nothing, np.zeros((size, columns), bool), generator)


def decode(swarm: Swarm, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    """Hyper-parameters (integers) and column masks of all particles; a mask is never empty."""
    hyper = np.clip(np.rint(swarm.x[:, :5]), bounds.low, bounds.high).astype(int)
    places = swarm.x[:, 5:]
    masks = places > swarm.generator.random(places.shape)
    empty = ~masks.any(axis=1)
    masks[empty, places[empty].argmax(axis=1)] = True
    return hyper, masks


def particle_key(hyper: np.ndarray, mask: np.ndarray) -> str:
    """Equal particles have equal keys: they are scored once."""
    return ",".join(map(str, hyper.tolist())) + ":" + np.packbits(mask).tobytes().hex()


def read_key(key: str, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Hyper-parameters and mask again."""
    numbers, _, bits = key.partition(":")
    mask = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8), count=columns).astype(bool)
    return np.array([int(n) for n in numbers.split(",")]), mask


def learn(swarm: Swarm, masks: np.ndarray, fitness: np.ndarray) -> None:
    """Each particle remembers its best position and mask."""
    better = fitness > swarm.best_fitness
    swarm.best_x[better], swarm.best_fitness[better] = swarm.x[better], fitness[better]
    swarm.best_masks[better] = masks[better]
    swarm.curve.append({"best": float(swarm.best_fitness.max()), "mean": float(fitness.mean())})
    swarm.iteration += 1


def move(swarm: Swarm, bounds: Bounds, inertia: float, c1: float, c2: float, clamp: float) -> None:
    """Equations 6 and 7, with velocities within a share of the range and positions within it."""
    low = np.concatenate([bounds.low, np.zeros(swarm.x.shape[1] - 5)])
    high = np.concatenate([bounds.high, np.ones(swarm.x.shape[1] - 5)])
    r1, r2 = swarm.generator.random((2, *swarm.x.shape))
    pull = c1 * r1 * (swarm.best_x - swarm.x) + c2 * r2 * (swarm.best_x[swarm.leader] - swarm.x)
    limit = clamp * (high - low)
    swarm.v = np.clip(inertia * swarm.v + pull, -limit, limit)
    swarm.x = np.clip(swarm.x + swarm.v, low, high)


def vote(swarm: Swarm, importance: np.ndarray, share: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which share of the good particles kept each column, and the mask of the at most ``size`` columns voted in.

    Good: the best ``share`` of all particles ever scored. Equal votes: the more important column. A column without a
    vote is never in.
    """
    columns = len(importance)
    ranked = sorted(swarm.known.items(), key=lambda item: (-item[1], item[0]))
    good = ranked[: max(1, int(np.ceil(share * len(ranked))))]
    votes = np.array([read_key(key, columns)[1] for key, _ in good]).mean(axis=0)
    order = np.lexsort((np.arange(columns), -importance, -votes))
    mask = np.zeros(columns, dtype=bool)
    mask[[c for c in order[:size] if votes[c] > 0]] = True
    return votes, mask
