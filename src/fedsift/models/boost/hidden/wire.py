"""What travels while trees grow on shares, as each side reads it: fields, types and sizes, before any computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.hidden.cuts import Numbers, TreeCuts
from fedsift.models.boost.hidden.shares import MAX_DEPTH, Counts, Level, Tree, split_sizes
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring

#: Numbers of bins that a run cuts columns into.
Bins = Annotated[list[Annotated[int, Between(2, 1024)]], AtMost(1024)]
Places = Annotated[NDArray[np.int32], Between(0, 2**31 - 1)]


class LayoutFields(TypedDict):
    """Of each column of a party: how many candidates, and whether they are categories."""

    counts: Annotated[NDArray[np.int64], Between(0, 1024)]
    categories: NDArray[np.bool_]


class Corrections(TypedDict):
    """The dealer's, for one party: U'V - C of the gradients, and of the counts."""

    values: Ring
    counts: Counts


class CutFields(TypedDict):
    """The cuts of a level that fall to a party: nodes, options of each, places of each option, one after the other."""

    nodes: Places
    options: Places
    sizes: Places
    places: Places


def read_trees(fields: list[list[int]], party: Party) -> list[Tree]:
    """The trees of a round, from a request."""
    if any(len(each) != 4 or not 1 <= each[2] <= MAX_DEPTH or not 1 <= each[3] <= 10_000 for each in fields):
        raise OperationRefused(party.name, "boosting", "a tree has a model, bins, a depth and outputs, within bounds")
    return [Tree(*each) for each in fields]


def check_columns(chosen: np.ndarray, columns: int, party: Party) -> None:
    """Positions of columns of a party that has so many."""
    whole = chosen.ndim == 1 and chosen.dtype.kind in "iu"
    if not whole or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < columns):
        raise OperationRefused(party.name, "boosting", "a column number is out of range")


def check_corrections(
    told: Mapping[str, Corrections], level: Level, cuts: Mapping[str, Sequence[TreeCuts]], party: Party
) -> None:
    """One of the right size for every party."""
    for name, trees in cuts.items():
        counts = sum(len(part.candidates) * level.summed for part in trees)
        wanted = (sum(split_sizes(level, trees)) - counts,), (counts,)
        if name not in told or (told[name]["values"].shape, told[name]["counts"].shape) != wanted:
            raise OperationRefused(party.name, "own_half_sums", "corrections of another size than the level has")


def read_options(cuts: CutFields, party: Party) -> list[tuple[int, list[Numbers]]]:
    """Node and options of each cut, at its owner."""
    fits = len(cuts["nodes"]) == len(cuts["options"]) and cuts["options"].sum() == len(cuts["sizes"])
    if not fits or cuts["sizes"].sum() != len(cuts["places"]) or not (cuts["sizes"] > 0).all():
        raise OperationRefused(party.name, "take_cuts", "its lists of nodes, options and places do not fit each other")
    ends = np.cumsum(cuts["sizes"])
    pieces = iter(np.split(cuts["places"].astype(np.int64), ends[:-1]) if len(ends) else [])
    return [
        (int(node), [next(pieces) for _ in range(int(count))]) for node, count in zip(cuts["nodes"], cuts["options"])
    ]  # fmt: skip


def check_openings(owners: np.ndarray, parties: int, openings: Mapping[str, Bits], names: set[str], me: Party) -> None:
    """Whose cut each node is, and the dealer's openings for every party."""
    whole = owners.ndim == 1 and owners.dtype.kind == "i"
    if not whole or (len(owners) and not -1 <= owners.min() <= owners.max() < parties):
        raise OperationRefused(me.name, "divide_nodes", "a node is cut by a party that is not there")
    shape = (me.n_rows + 7) // 8
    if set(openings) != names or any(each.ndim != 2 or each.shape[1] != shape for each in openings.values()):
        raise OperationRefused(me.name, "divide_nodes", "openings are of other parties or rows")


def boxes_for(boxes: dict[str, Any], parties: Sequence[str], holder: str) -> dict[str, dict[str, SealedBox]]:
    """At the coordinator: what each party is sent of a reply in which the label holder has sealed something for all."""
    if set(boxes) != set(parties) or not all(isinstance(box, SealedBox) for box in boxes.values()):
        raise ReplyError(holder, "boosting", "it did not seal its part for every other party")
    return {name: {"box": boxes[name]} for name in parties}
