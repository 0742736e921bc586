"""What a job will cost, before it is paid: rounds, bytes, time and memory, from the formulas of docs/scale.md.

The formulas were fitted to small runs and evaluated on a grid (``benchmarks/cost_table.py``); here the grid is read
between its points, in logarithms, at a method's default settings. Bytes and rounds can be trusted, seconds are an order
of magnitude, and memory is what the table and the largest message take at one party.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedsift.core.terminal import rough, size

ALIGNMENT = "alignment"
LATENCY = 0.03  # seconds between two parties, one way
BANDWIDTH = 1e8  # bytes a second at the coordinator's link
ENGINE = 0.015  # seconds that a request takes between processes
_COPIES = 3  # of the largest message: as it came, decoded, and what is computed of it


@dataclass(frozen=True)
class Cost:
    """An estimate. ``memory`` is of one party, ``seconds`` between machines that are 30 ms apart."""

    rounds: float
    bytes: float
    computing: float
    memory: float

    @property
    def seconds(self) -> float:
        return self.computing + self.bytes / BANDWIDTH + self.rounds * (2 * LATENCY + ENGINE)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rounds + other.rounds, self.bytes + other.bytes, self.computing + other.computing,
            max(self.memory, other.memory),
        )  # fmt: skip

    def sentence(self) -> str:
        rounds = f"{self.rounds:,.0f} rounds, {size(round(self.bytes))} over all links"
        return f"{rounds}, {rough(self.seconds)} at 30 ms, {size(round(self.memory))} of memory at a party"


@cache
def _known() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(__file__).with_name("costs.json").read_text(encoding="utf-8"))
    return told


def expected(method: str, *, rows: int, columns: int, parties: int) -> Cost | None:
    """What one run of a method costs at its default settings; ``None`` where nobody has measured it."""
    found = _known()["methods"].get(method)
    if found is None:
        return None
    at = {key: _read(values, parties, rows, columns) for key, values in found.items()}
    own = 8.0 * rows * columns / max(1, parties)
    return Cost(at["rounds"], at["bytes"], at["cpu"], own + _COPIES * at["largest"])


def job_cost(method: str, *, rows: int, columns: int, parties: int, matched: bool) -> dict[str, Any] | None:
    """The same for a whole job, with matching the ids where that comes first; as plain data."""
    cost = expected(method, rows=rows, columns=columns, parties=parties)
    if cost is None:
        return None
    before = expected(ALIGNMENT, rows=rows, columns=columns, parties=parties) if matched else None
    whole = cost + before if before is not None else cost
    return {"rounds": round(whole.rounds), "bytes": round(whole.bytes), "seconds": round(whole.seconds, 1),
            "memory": round(whole.memory), "words": whole.sentence()}  # fmt: skip


def at_a_glance(method: str) -> str:
    """For a list of methods: two parties, 10,000 rows, 100 columns."""
    cost = expected(method, rows=10_000, columns=100, parties=2)
    return "not measured" if cost is None else f"{size(round(cost.bytes))}, {rough(cost.seconds)}"


def exposure(method: str) -> str:
    """The worst that the audit's attacks have read of runs of a method, on the data sets of docs/exposure.md."""
    return str(_known()["exposure"].get(method, "none measured"))


def _read(values: Sequence[float], parties: float, rows: float, columns: float) -> float:
    """Between the points of the grid, linear in logarithms; beyond its edges as at the edge."""
    grid = _known()["grid"]
    axes = [(grid["parties"], parties), (grid["rows"], rows), (grid["columns"], columns)]
    total = 0.0
    corners: list[tuple[int, float]] = [(0, 1.0)]
    for points, wanted in axes:
        below, share = _between(points, wanted)
        corners = [
            (at * len(points) + below + step, weight * (share if step else 1 - share))
            for at, weight in corners for step in ((0, 1) if share else (0,))
        ]  # fmt: skip
    for at, weight in corners:
        total += weight * math.log(max(values[at], 1e-9))
    return math.exp(total)


def _between(points: Sequence[float], wanted: float) -> tuple[int, float]:
    """Which point lies below, and how far it is to the next one, in logarithms."""
    at = min(max(wanted, points[0]), points[-1])
    below = max(i for i, point in enumerate(points) if point <= at)
    if below == len(points) - 1:
        return below, 0.0
    return below, math.log(at / points[below]) / math.log(points[below + 1] / points[below])
