"""What a copy and a pickle of a trained model are, and how its values stand in a file.

The coordinator's object has what the coordinator knows; the parts stay at the sites. So a copy in the same process
stands for the same parts over the same federation, and a pickle holds neither a connection nor a table nor a key: after
it is read again, methods take the federation that they need.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.models.parts import free_all

Self = TypeVar("Self", bound="Copied")
_HERE = ("_fed", "_lease")  # what stays in this process


class Lease:
    """Simulated sites free a model's parts when neither it nor a copy of it is there any more."""

    def __init__(self, fed: Federation, model: str):
        weakref.finalize(self, free_all, [weakref.ref(site) for site in fed.simulated.values()], model)


class Copied:
    """Copies of a model share its parts at the sites; its pickle is what the coordinator knows."""

    def __getstate__(self) -> dict[str, object]:
        state = cast("dict[str, object]", super().__getstate__())  # scikit-learn's, with its version
        return {key: value for key, value in state.items() if key not in _HERE}

    def __copy__(self: Self) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self: Self, memo: dict[int, object]) -> Self:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for key, value in vars(self).items():
            setattr(made, key, value if key in _HERE else copy.deepcopy(value, memo))
        return made


def as_json(value: object) -> Any:
    """Arrays and frames so that they come back as they were; functions and the like are not written."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str if value.dtype != object else "O"}
    if isinstance(value, pd.DataFrame):
        return {"frame": value.to_dict(orient="list")}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"mapping": {str(key): as_json(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else None


def from_json(value: object) -> Any:
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=object if value["dtype"] == "O" else np.dtype(value["dtype"]))
    if "frame" in value:
        return pd.DataFrame(value["frame"])
    return {key: from_json(item) for key, item in value["mapping"].items()}
