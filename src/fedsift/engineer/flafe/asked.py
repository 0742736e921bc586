"""What the steps on ciphertexts check of the places that a request names, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedsift.core.party import Party
from fedsift.errors import OperationRefused


def check_places(party: Party, step: str, places: Iterable[int], count: int) -> None:
    """Places among so many."""
    if not all(0 <= place < count for place in places):
        raise OperationRefused(party.name, step, "it names places that are not there")


def check_combined(
    party: Party, slots: Sequence[Sequence[int]], each: Sequence[int], functions: Sequence[Sequence[int]], held: int
) -> None:  # fmt: skip
    """``each``: how many columns each vector has; ``held``: how many columns this party will hold."""
    for used, count in zip(slots, each):
        check_places(party, "open_combinations", used, count)
    check_places(party, "open_combinations", (place for wanted in functions for place in wanted), held)
