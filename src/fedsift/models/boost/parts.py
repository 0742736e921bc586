"""A site's own part of a kept model, and where rows are on their way down its trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.binning import ColumnBins
from fedsift.core.party import Party
from fedsift.errors import DataError


@dataclass
class Routes:
    """At the label holder: the node of every row in every tree, and what the others were asked (open form)."""

    at: np.ndarray  # trees x rows
    asked: dict[str, list[tuple[int, int, np.ndarray]]] = field(default_factory=dict)


def stored_part(party: Party, model: str) -> dict[str, Any]:
    """This site's part of a kept model."""
    part = party.keys.get(f"boost:{model}")
    if part is None:
        raise DataError(f"party {party.name!r} has no part of the model {model!r}: fit it here, or load its file first")
    return part


def goes_left(party: Party, model: str, record: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Which of the rows one split sends left."""
    bins = ColumnBins.read(record["bins"])
    key = ("boost codes", model, bins.column)
    if key not in party._cache:
        party._cache[key] = bins.codes(party.table)
    sides = np.append(np.array(record["left"], dtype=bool), bool(record["unseen_left"]))
    return sides[party._cache[key][rows]]  # -1, what training did not have, is the last entry
