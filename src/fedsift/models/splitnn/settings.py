"""The settings of the halves of a network as they travel, with bounds: a request names no other field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between, MayMiss
from fedsift.errors import ReplyError

#: Embeddings or gradients of a batch: a line a row. The half that takes them says whose are not finite.
Rows = Annotated[NDArray[np.float32], MayMiss()]
Layers = Annotated[list[Annotated[int, Between(1, 100_000)]], AtMost(50)]
#: What a registered model is built with; ``hidden`` of the dense ones, anything plain of others.
Options = Annotated[dict[str, bool | int | float | str | Layers | None], AtMost(50)]


class Settings(TypedDict):
    """What both halves have."""

    seed: int
    batch_size: Annotated[int, Between(1, 1 << 24)]
    rate: float
    model: str
    options: Options


class GateSettings(TypedDict):
    """Of stochastic gates; several prices are several networks side by side."""

    sigma: float
    price: float | Annotated[list[float], AtMost(1000)]
    embedding: bool
    init: str | float | None
    rate: float


class _SizedSettings(Settings):
    width: Annotated[int, Between(1, 100_000)]


class BottomSettings(_SizedSettings, total=False):
    """A party's half."""

    decay: float
    gates: GateSettings | None
    shadows: Annotated[int, Between(0, 100_000)]
    equal_norm: float | None
    prox: float | None
    components: Annotated[list[int], AtMost(100_000)] | None


class _LabelledSettings(Settings):
    task: str


class TopSettings(_LabelledSettings, total=False):
    """The label holder's half."""

    decay: float
    protection: str | None
    protection_scale: float
    interactive: float | None


def embeddings_of(replies: Mapping[str, object]) -> dict[str, Rows]:
    """At the coordinator, before they are passed on: whoever sent something else is named."""
    found: dict[str, Rows] = {}
    for name, rows in replies.items():
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float32:
            raise ReplyError(name, "embedding", f"party {name!r} sent no embedding of its rows")
        found[name] = rows
    return found
