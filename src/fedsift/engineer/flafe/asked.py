"""What the steps on ciphertexts check of the places that a request names, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import numpy as np

from fedsift.core.arguments import AtMost, Between
from fedsift.core.party import Party
from fedsift.engineer.flafe.features import FUNCTIONS, Step
from fedsift.errors import OperationRefused, ReplyError

HIGHEST = max(power for powers in FUNCTIONS.values() for power in powers)
Powers = Annotated[list[Annotated[int, Between(1, HIGHEST)]], AtMost(HIGHEST)]  # of a column, in combinations
Count = Annotated[int, Between(0, 100_000)]  # of combined columns that one party holds


def check_places(party: Party, step: str, places: Iterable[int], count: int) -> None:
    """Places among so many."""
    if not all(0 <= place < count for place in places):
        raise OperationRefused(party.name, step, "it names places that are not there")


def check_step(party: Party, step: Step, scales: Mapping[str, float] | None) -> None:
    """One or two known functions, each with a power that functions have; ``scales``: of the noise, if there is any."""
    known = FUNCTIONS if scales is None else scales
    fits = 1 <= len(step.powers) == len(step.functions) <= 2 and all(1 <= power <= HIGHEST for power in step.powers)
    if not fits or not set(step.functions) <= set(known):
        raise OperationRefused(party.name, "multiply_columns", "a step is one or two functions, with powers")


def shown_of(name: str, columns: np.ndarray, rows: int, places: Sequence[int]) -> np.ndarray:
    """Of the columns that a party has shown in the clear, those that are combined."""
    if len(columns) != rows or max(places, default=-1) >= columns.shape[1]:
        raise ReplyError(name, "show_columns", f"it should show {rows} rows of all its operands")
    return columns[:, places]


def check_combined(
    party: Party, slots: Sequence[Sequence[int]], each: Sequence[int], functions: Sequence[Sequence[int]], held: int
) -> None:  # fmt: skip
    """``each``: how many columns each vector has; ``held``: how many columns this party will hold."""
    for used, count in zip(slots, each):
        check_places(party, "open_combinations", used, count)
    check_places(party, "open_combinations", (place for wanted in functions for place in wanted), held)
