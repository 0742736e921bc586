"""What the search over prices needs beside the conversation: candidates of a second look, and how runs compare."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.models.splitnn.layers.sine import Floats
from fedsift.models.splitnn.training import SplitRun
from fedsift.select.fedsdg.shared_training import GatePath

SECOND_LOOK = 48  # columns, at least
FEW_HELD = 100  # validation rows; an accuracy over fewer has a standard error of 0.04 and more


@dataclass
class GateRun:
    """The gates of one price at the end of a training, and what led there."""

    price: float
    scores: dict[str, Floats]
    trace: list[dict[str, Any]]
    story: dict[str, object]
    components_open: dict[str, int] = field(default_factory=dict)
    copies_open: int = 0
    validation: float = -np.inf  # of a network refitted on its columns

    @property
    def kept(self) -> dict[str, NDArray[np.bool_]]:
        return {name: values > 0 for name, values in self.scores.items()}

    @property
    def columns(self) -> tuple[int, ...]:
        """Which are kept, counted over all parties."""
        return tuple(np.flatnonzero(np.concatenate(list(self.kept.values()))).tolist())

    @property
    def count(self) -> int:
        return len(self.columns)

    def as_step(self) -> dict[str, float | int | None]:
        """One step of the search, for ``details_``."""
        score = self.validation if np.isfinite(self.validation) else None
        return {"lambda": self.price, "columns": self.count, "validation": score}


def candidates(found: list[GateRun], start: dict[str, Floats]) -> dict[str, NDArray[np.bool_]] | None:
    """The columns that any run kept and the best beginnings among the others, twice as many in all; ``None``: all."""
    names = list(start)
    kept = np.concatenate([np.any([run.kept[name] for run in found], axis=0) for name in names])
    begin = np.concatenate([start[name] for name in names])
    many = max(SECOND_LOOK, 2 * int(kept.sum()))
    if many >= len(kept):
        return None
    best = np.zeros(len(kept), dtype=bool)
    best[np.argsort(-(begin + 10.0 * kept), kind="stable")[:many]] = True
    return dict(zip(names, np.split(best, np.cumsum([len(start[name]) for name in names])[:-1])))


def found_on_path(path: GatePath, closed: dict[str, Floats], places: dict[str, NDArray[np.bool_]]) -> GateRun:
    """The gates of one price of a path; ``closed`` are those without a part in it."""

    def whole(gates: dict[str, Floats]) -> dict[str, Floats]:
        full = {name: values.copy() for name, values in closed.items()}
        for name, values in gates.items():
            full[name][places[name]] = values
        return full

    trace = [{"epoch": epoch, "gates": whole(gates)} for epoch, gates in path.trace]
    return GateRun(path.price, whole(path.means), trace, path.story)


def found_beside(
    fed: Federation, run: SplitRun, trace: list[tuple[int, dict[str, Any]]], place: int, price: float
) -> GateRun:
    """The gates of one of the networks that trained side by side at the end of their run."""
    last = {name: {kind: values[place] for kind, values in read.items()} for name, read in trace[-1][1].items()}
    empty = {name: np.zeros(count) for name, count in fed.n_columns.items()}
    return GateRun(
        price, {n: last[n]["columns"].astype(np.float64) if n in last else empty[n] for n in fed.parties},
        [{"epoch": epoch, "gates": {name: r["columns"][place] for name, r in read.items()}} for epoch, read in trace],
        run.story(),
        {name: int((r["components"] > 0).sum()) for name, r in last.items()},
        int(sum((r["copies"] > 0).sum() for r in last.values())),
    )  # fmt: skip


def note_few_rows(fed: Federation, held: Federation) -> None:
    """Say so where a search can hardly tell one set of columns from another."""
    columns = sum(fed.n_columns.values())
    if held.n_rows < FEW_HELD and columns > fed.n_rows:
        fed.ledger.note(
            f"few rows: {held.n_rows} validation rows judge which of {columns} columns are kept, over {fed.n_rows} "
            "training rows. A filter (SFFS) that keeps as many columns may well do better: compare them"
        )


def warn_of_nothing(fed: Federation, method: str, answers: bool) -> None:
    """An empty answer says why, and what to do about it."""
    text = (
        f"{method} keeps no column: every gate closed, over {fed.n_rows} rows. "
        f"{'network_ answers with the mean. ' if answers else ''}What helps: a lower penalty (a tenth, say), more "
        "epochs, or a filter (SFFS) where rows are few."
    )
    fed.ledger.note(text)
    warnings.warn(text, UserWarning, stacklevel=5)


def standard_error(score: float, held: Federation) -> float:
    """Of an accuracy, or (roughly: squared residuals of a Gaussian) of an R2, over the held rows."""
    if not np.isfinite(score):
        return 0.0
    if held.task == "classification":
        return float(np.sqrt(max(score * (1 - score), 0.01) / held.n_rows))
    return float((1 - score) * np.sqrt(2 / held.n_rows))
