"""What is said about counts that the coordinator opens: who may get them, and under which noise."""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.errors import ParameterError


def check_opener(fed: Federation, epsilon: float | None) -> None:
    """Exact sums go to a coordinator that holds no rows. One that does would read labels or columns from them."""
    if fed.run_by is not None and epsilon is None:
        raise ParameterError(
            f"the coordinator opens counts of rows, and {fed.run_by!r}, which holds rows, runs it: give epsilon, so "
            "that they carry noise, or let somebody run it who holds no rows"
        )


def note_privacy(fed: Federation, epsilon: float | None, delta: float, min_cell: int | None = None) -> None:
    if epsilon is not None:
        fed.ledger.note(
            f"epsilon {epsilon:g} (delta {delta:g}) for the values of one person at one party, in this run: discrete "
            "Gaussian noise by each party, added before anything was opened"
        )
    elif min_cell == 1:
        fed.ledger.note("min_cell=1: bins of a single row may have been counted")
