"""Which form a split network takes: the word ``protection`` -> the conversation.

``"shares"`` (the default): everything stays on shares (``shared_run``); the coordinator deals the randomness, so it
must be neutral. ``"lattice"``: networks of the parties' own, the layer between them under lattice ciphertexts, between
the two parties alone; gradients of embeddings are seen by their party. ``"open"``: in the clear, for research.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fedsift.errors import ParameterError
from fedsift.models.splitnn.layers.lattice import LatticeRun
from fedsift.models.splitnn.training import SplitRun
from fedsift.mpc import dealer

PROTECTIONS = ("shares", "lattice", "open")
_OWN_NETWORKS: dict[str, type[SplitRun]] = {"lattice": LatticeRun, "open": SplitRun}


def check_protection(protection: Any) -> str:
    if protection not in PROTECTIONS:
        raise ParameterError(f"protection must be one of {', '.join(map(repr, PROTECTIONS))}; got {protection!r}")
    return str(protection)


check_neutral = partial(
    dealer.check_neutral,
    instead="protection='lattice' works there, and shows each party the gradients of its embedding, which tell about "
    "labels",
)


def own_networks(protection: str) -> type[SplitRun]:
    """The conversation of the forms in which every party has a network of its own."""
    return _OWN_NETWORKS[protection]
