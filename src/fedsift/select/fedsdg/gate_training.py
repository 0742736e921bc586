"""Operations of gated split training that are the party's own: begin the gates, read them, estimate false finds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import ReplyError
from fedsift.models.splitnn.gates import Importance, importance_to_mu
from fedsift.models.splitnn.halves import bottom_of
from fedsift.models.splitnn.training import SplitRun


@operation(
    "fedsdg.take_importance",
    when="protection=open|lattice",
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="one Gini impurity for each of its own columns",
    times=1,
)
def take_importance(
    party: Party, *, impurity: NDArray[np.float64], low: float, high: float, best: float, worst: float
) -> None:
    """Begin the gates of this run's columns by their impurity (Algorithm 1, lines 13 to 15)."""
    party.keep(Importance(importance_to_mu(impurity, low, high, best, worst)))


@operation(
    "fedsdg.read_gates",
    when="protection=open|lattice",
    discloses="aggregate",
    about="the gate of each column and of each embedding component",
    reply=dict.fromkeys(("columns", "copies", "components"), Array("f", (1, 2), finite=False)),
    times="100000 a session",
)
def read_gates(party: Party, *, model: str) -> dict[str, np.ndarray]:
    """Where several prices are trained side by side, each array has a line a price."""
    bottom = bottom_of(party, model)
    columns = bottom.gates["input"].values()
    components = bottom.gates["embedding"].values() if "embedding" in bottom.gates else columns[..., :0]
    n = bottom.n_columns
    return {"columns": columns[..., :n], "copies": columns[..., n:], "components": components}


OPERATIONS = (take_importance, read_gates)


# --- the coordinator's side -------------------------------------------------------------------------------------------


def told_gates(fed: Federation, run: SplitRun, networks: int) -> dict[str, dict[str, np.ndarray]]:
    """The gates of each party's columns, copies and components: a line a network."""
    told = fed.ask(read_gates, to=list(run.widths), model=run.model)
    found = {name: {kind: np.atleast_2d(values) for kind, values in read.items()} for name, read in told.items()}
    for name, read in found.items():
        columns = (networks, fed.n_columns[name])
        if read["columns"].shape != columns or any(len(lines) != networks for lines in read.values()):
            raise ReplyError(name, "read_gates", "expected a gate for each of its columns")
    return found
