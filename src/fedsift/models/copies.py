"""What a copy and a pickle of a trained model are.

The coordinator's object has what the coordinator knows; the parts stay at the sites. So a copy in the same process
stands for the same parts over the same federation, and a pickle holds neither a connection nor a table nor a key: after
it is read again, methods take the federation that they need.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any, TypeVar, cast

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

    def __getstate__(self) -> dict[str, Any]:
        state = cast("dict[str, Any]", super().__getstate__())  # scikit-learn's, with its version
        return {key: value for key, value in state.items() if key not in _HERE}

    def __copy__(self: Self) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for key, value in vars(self).items():
            setattr(made, key, value if key in _HERE else copy.deepcopy(value, memo))
        return made
