"""What a party of MUSE keeps: its factor of the row secrets, the order of its rows, its bins."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedsift.crypto import oprf
from fedsift.select.muse.contingency import Entropies


@dataclass(frozen=True)
class Factor:
    """A party's secret factor of the row secrets, and the random number that names it."""

    name: str
    key: oprf.OprfKey = field(repr=False)


@dataclass(frozen=True)
class Raised:
    """Of how many ids of each party this one has raised the blinded form, in the whole job."""

    ids: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Blinded:
    """Ids on their way to secrets, and what takes the blind off."""

    ids: list[str]
    secret: oprf.Blind = field(repr=False)


@dataclass(frozen=True)
class Matching:
    """The order of the rows by their secrets, and what is shared with each peer."""

    order: np.ndarray
    seeds: dict[str, bytes] = field(repr=False)
    last: dict[str, int]  # batch with each peer; changed as batches go out


@dataclass(frozen=True)
class Binned:
    """Bins of the columns in the order of the row secrets, the label's last where it is here."""

    codes: np.ndarray
    entropies: Entropies
