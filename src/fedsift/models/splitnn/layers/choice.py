"""Which form a split network takes: the word ``protection`` -> the conversation.

``"shares"`` (the default): everything stays on shares (``shared_run``); the coordinator deals the randomness, so it
must be neutral. ``"lattice"``: networks of the parties' own, the layer between them under lattice ciphertexts, between
the two parties alone; gradients of embeddings are seen by their party. ``"open"``: in the clear, for research.
"""

from __future__ import annotations

import copy
from functools import partial

from fedsift.core.federation import Federation
from fedsift.errors import ParameterError
from fedsift.models.splitnn.basis import WIDE
from fedsift.models.splitnn.layers.lattice import LatticeRun
from fedsift.models.splitnn.layers.shared_parts import LEAST_BATCH
from fedsift.models.splitnn.training import SplitRun
from fedsift.mpc import dealer

PROTECTIONS = ("shares", "lattice", "open")
MOST_STEPS = 4000  # of a training whose length is not said
_OWN_NETWORKS: dict[str, type[SplitRun]] = {"lattice": LatticeRun, "open": SplitRun}


def check_protection(protection: object) -> str:
    if protection not in PROTECTIONS:
        raise ParameterError(f"protection must be one of {', '.join(map(repr, PROTECTIONS))}; got {protection!r}")
    return str(protection)


check_neutral = partial(
    dealer.check_neutral,
    instead="protection='lattice' works there, and shows each party the gradients of its embedding, which tell about "
    "labels",
)


def usual_epochs(asked: int | None, most: int, rows: int, batch_size: int) -> int:
    """What was asked for; else ``most``, or as many as make some thousand steps: many rows need fewer passes over them
    (10^5 rows would train for hours, of which round trips are the most)."""
    if asked is not None:
        return asked
    return min(most, max(3, MOST_STEPS // -(-rows // batch_size)))


def refit_batch(most: int, columns: int, rows: int, epochs: int) -> int:
    """Rows of a step of a network that only predicts, at most so many.

    Plain steps learn by their number, and a row costs the same bytes in a large step and in a small one: 64 rows, where
    columns are few (axes of many have a rate of their own) and that makes no longer a training than ``MOST_STEPS``;
    else 128. Over 32 rows the usual rate is half of what no longer settles.
    """
    few = columns <= WIDE and epochs * -(-rows // LEAST_BATCH) <= MOST_STEPS
    return min(most, LEAST_BATCH if few else 2 * LEAST_BATCH)


def own_networks(protection: str) -> type[SplitRun]:
    """The conversation of the forms in which every party has a network of its own."""
    return _OWN_NETWORKS[protection]


def outside(run: Federation) -> Federation:
    """The same federation outside of a run that ends: for later jobs."""
    other = copy.copy(run)
    other._session, other._job = "", None
    return other
