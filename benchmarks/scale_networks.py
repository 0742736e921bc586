"""Cost formulas of networks on shares, for ``scale.py``: their default trainings, as the package's own rules make them.

How many steps a training takes and how many rows they go through follows from the number of rows (``usual_epochs``,
``refit_batch``), so formulas ask these rules; what a step, a row and an input of it cost is measured. How many columns
are kept is not known before: at most 20 here. FedSDG and StochasticGate, whose search has rules of its own, are not
here yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scale_formulas import Size, Spec, Terms

from fedsift.models.splitnn.layers.choice import grown_batch, refit_batch, usual_epochs
from fedsift.select.less_vfl.shared_lasso import READINGS

MOST_LEFT = 20


@dataclass(frozen=True)
class Training:
    """One network: so many steps, rows gone through, sines, inputs, and readings of gates or norms."""

    epochs: float
    rows: float
    batch: float
    width: int
    inputs: float
    every: float = math.inf  # steps between two readings

    @property
    def steps(self) -> float:
        return self.epochs * math.ceil(self.rows / self.batch)

    @property
    def passes(self) -> float:
        return self.epochs * self.rows


Trainings = Callable[[Size], list[Training]]


def _last(s: Size, most: int, batch: int | None = None, width: int = 32) -> Training:
    """The network of what is kept."""
    rows, left = int(s.n), int(min(s.d, MOST_LEFT))
    epochs = usual_epochs(None, most, rows, 128)
    return Training(epochs, rows, refit_batch(batch, left, rows, epochs), width, left + 1)


def _less(s: Size) -> list[Training]:
    return [_last(s, 18, 256)]


def _lasso(s: Size) -> list[Training]:
    batch = grown_batch(256, int(s.n))
    epochs = usual_epochs(None, 30, int(s.n), batch)
    steps = epochs * math.ceil(s.n / batch)
    return [Training(epochs, s.n, batch, 16, s.d + 1, max(1, steps // READINGS)), _last(s, 20)]


def _sum(trainings: Trainings, of: Callable[[Training], float]) -> Callable[[Size], float]:
    return lambda s: sum(of(each) for each in trainings(s))


def _spec(parameters: Callable[[Size], dict[str, Any]], trainings: Trainings, rows: int, columns: int) -> Spec:
    steps = _sum(trainings, lambda t: t.steps)
    readings = _sum(trainings, lambda t: t.steps / t.every)
    sines = _sum(trainings, lambda t: t.passes * t.width)
    inputs = _sum(trainings, lambda t: t.steps * t.inputs * t.width)
    products = _sum(trainings, lambda t: t.passes * t.inputs * t.width)
    read = _sum(trainings, lambda t: t.steps / t.every * t.inputs * t.width)
    one: Terms = {"1": lambda s: 1.0}

    def most(s: Size) -> float:
        """Numbers of the largest message: everyone's columns at the label holder, or the corrections of a batch."""
        return max(max(t.rows * t.inputs * (s.p - 1) / s.p, 4 * t.batch * t.width) for t in trainings(s))

    return Spec(
        parameters,
        rounds={**one, "steps": steps, "readings": readings},
        bytes={**one, "p": lambda s: s.p, "nd": lambda s: s.n * s.d, "np": lambda s: s.n * s.p, "sines": sines,
               "sines_p": lambda s: sines(s) * (s.p - 2), "inputs": inputs, "read": read,
               "steps_p": lambda s: steps(s) * s.p},
        cpu={**one, "nd": lambda s: s.n * s.d, "sines": sines, "products": products, "inputs": inputs,
             "steps_p": lambda s: steps(s) * s.p},
        largest={**one, "most": most},
        says="a training's length follows from the rows; steps and readings of it, sines: rows gone through x sines, "
        "inputs: steps x inputs x sines, products: rows gone through x inputs x sines",
        rows=rows,
        columns=columns,
    )  # fmt: skip


NETWORKS: dict[str, Spec] = {
    "less_vfl": _spec(lambda s: {}, _less, 4, 2),
    "group_lasso": _spec(lambda s: {}, _lasso, 4, 2),
    "vflfs": _spec(lambda s: {"n_features": int(s.k)}, _lasso, 4, 2),
}
