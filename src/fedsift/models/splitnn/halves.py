"""What a party holds of a network that is not on shares: kept by the run, then in the site's store of models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.models.splitnn.networks import derived_seed
from fedsift.models.splitnn.party_networks import Bottom, Top

T = TypeVar("T")


@dataclass
class Halves:
    """What a party holds of one network: its half, the label holder's, and shares of the weights where they meet."""

    bottom: Bottom | None = None
    top: Top | None = None
    share: NDArray[np.uint64] | None = field(default=None, repr=False)  # of the weights of its own embedding
    shares: dict[str, NDArray[np.uint64]] | None = field(default=None, repr=False)  # the label holder's, by party
    held: list[np.ndarray] = field(default_factory=list, repr=False)  # predictions that wait to be scored

    def apart(self) -> Halves:
        """The same halves for another run: what that one does to shares and predictions stays with it."""
        return replace(self, shares=None if self.shares is None else dict(self.shares), held=[])


@dataclass
class Networks:
    """The networks of a run."""

    of: dict[str, Halves] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """The rows of an epoch, in the order in which all parties take them."""

    key: tuple[str, int, int]  # view, seed, epoch
    rows: NDArray[np.int64]


def halves_of(party: Party, model: str) -> Halves:
    """What this party holds of a network: of the run under way, or a copy of what was kept (runs go side by side)."""
    of = (party.state.get(Networks) or party.keep(Networks())).of
    if model not in of:
        of[model] = party.models.part(model, Halves).apart() if model in party.models else Halves()
    return of[model]


def bottom_of(party: Party, model: str) -> Bottom:
    return _there(party, halves_of(party, model).bottom, f"{model}/bottom")


def top_of(party: Party, model: str) -> Top:
    return _there(party, halves_of(party, model).top, f"{model}/top")


def share_of(party: Party, model: str) -> NDArray[np.uint64]:
    """A party's share of the weights where its embedding meets the top model."""
    return _there(party, halves_of(party, model).share, f"{model}/share")


def shares_of(party: Party, model: str) -> dict[str, NDArray[np.uint64]]:
    """The label holder's shares of them, by party."""
    return _there(party, halves_of(party, model).shares, f"{model}/shares")


def _there(party: Party, half: T | None, name: str) -> T:
    if half is None:
        raise OperationRefused(party.name, "split training", f"there is no part {name!r} of a network at this party")
    return half


def rows_of_batch(party: Party, half: Bottom | Top, epoch: int, start: int) -> np.ndarray:
    """The rows of one batch: the same everywhere, because all draw the epoch's order from the same seed."""
    key = (party._view, half.settings.seed, epoch)
    order: Order | None = party.state.get(Order)
    if order is None or order.key != key:
        drawn = np.random.default_rng(derived_seed(half.settings.seed, "rows", epoch))
        order = party.keep(Order(key, drawn.permutation(party.n_rows)))
    return order.rows[start : start + half.settings.batch_size]
