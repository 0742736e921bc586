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
LEAST_EPOCHS = 3  # of such a training, however many the rows
MOST_GROWN = 8  # so many times a batch of nobody's choice grows: steps are whole numbers, which get small
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
    return min(most, max(LEAST_EPOCHS, MOST_STEPS // -(-rows // batch_size)))


def grown_batch(batch: int, rows: int, epochs: int = LEAST_EPOCHS) -> int:
    """Rows of a step where nobody said how many: twice, four or eight times ``batch`` where rows are so many that the
    least number of epochs were more than ``MOST_STEPS``, for round trips follow the steps."""
    size = batch
    while epochs * -(-rows // size) > MOST_STEPS and size < MOST_GROWN * batch:
        size *= 2
    return size


def refit_batch(asked: int | None, columns: int, rows: int, epochs: int) -> int:
    """Rows of a step of a network that only predicts; no more than were asked for.

    Plain steps learn by their number, and a row costs the same bytes in a large step and in a small one: 64 rows, where
    columns are few (axes of many have a rate of their own) and that makes no longer a training than ``MOST_STEPS``;
    else 128, and more where rows are very many. Over 32 rows the usual rate is half of what no longer settles.
    """
    few = columns <= WIDE and epochs * -(-rows // LEAST_BATCH) <= MOST_STEPS
    size = LEAST_BATCH if few else grown_batch(2 * LEAST_BATCH, rows)
    return size if asked is None else min(asked, size)


def own_networks(protection: str) -> type[SplitRun]:
    """The conversation of the forms in which every party has a network of its own."""
    return _OWN_NETWORKS[protection]


def outside(run: Federation) -> Federation:
    """The same federation outside of a run that ends: for later jobs."""
    other = copy.copy(run)
    other._session, other._job = "", None
    return other
