"""How many bits the answer of a job has: which columns were kept."""

from __future__ import annotations

from fedsift.core.job import Job
from fedsift.methods import METHODS
from fedsift.select.base import subset_bits


def answer_bits(job: Job, columns: int) -> float:
    """log2 of how many answers there are: at most ``n_features`` of so many columns, or any of them; and what a party
    learns of its columns beside (``Selector.told_beside``). A model, an evaluation or a value answers with no choice of
    columns: their figures have lines of their own."""
    if job.method not in METHODS:
        return 0.0
    beside = METHODS[job.method].told_beside(job.parameters, columns)
    kept = job.parameters.get("n_features")
    if not isinstance(kept, int) or not 0 <= kept < columns:
        return columns + beside
    return subset_bits(columns, kept) + beside
