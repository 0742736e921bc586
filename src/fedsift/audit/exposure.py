"""What an attack reached: one figure beside what a guess and what the attacker's own knowledge reach.

A privacy claim is a figure: attack, role, what it knows, success, guess, baseline, cost. ``guess`` is what no message
gives. ``baseline`` is what the same attacker reaches from its own rows and the answer that it is entitled to (which of
its columns were kept, which of its cuts were taken, its own predictions). ``control`` is the same attack on rows that
did not take part, where that makes sense. An attack has failed when it adds nothing to guess and baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measure:
    """What an attack function returns: its success in one metric, and what it is compared with."""

    metric: str  # "accuracy", "auc", "r2", "cells", ...
    value: float
    guess: float
    baseline: float
    control: float | None = None
    note: str = ""  # what the reader should know: nothing to read, how many rows are certain
    auc: float | None = None  # of labels, beside a share of them that is right: a rare class counts as much
    # what was found, row by row, for the control (``controls.py``): of labels a score, of other parties' columns values
    # (or bins of cells, and beside them the true bins)
    rows: np.ndarray | None = field(default=None, repr=False)
    columns: Mapping[str, np.ndarray] | None = field(default=None, repr=False)
    bins: Mapping[str, np.ndarray] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Exposure:
    """One line of the audit: an attack, run on the view of one role."""

    attack: str
    role: str  # "passive", "active" or "coordinator"
    party: str  # whose view it was
    target: str  # "labels", "columns", "membership" or "ids"
    metric: str
    value: float
    guess: float
    baseline: float
    control: float | None
    cpu_seconds: float
    knows: str  # in words, beside the view
    declared: str  # whether the shipped documents say so: "no", "in words", "partly", "yes", "denied"
    note: str = ""
    auc: float | None = None
    stage: str = ""  # of a job that does more than select columns: which part of it was attacked

    @property
    def added(self) -> float:
        """What the messages add to the better of guess and baseline; at most zero when the attack has failed."""
        return self.value - max(self.guess, self.baseline)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
