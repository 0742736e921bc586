"""What travels for one level of open trees: which nodes to sum, and their sums. Checked before anything is indexed."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import wrong_record
from fedsift.crypto.additive.keys import Ciphertexts
from fedsift.errors import OperationRefused, ReplyError

Whole = NDArray[np.integer]
Bits = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class TreeJobs(TypedDict):
    """Of each tree: which set of gradients it is grown from, and for which model."""

    set: Whole
    model: Whole


class LevelNodes(TypedDict):
    """A line for each node that is asked for: its tree, the node above (-1 for a root), itself and its sibling."""

    job: Whole
    parent: Whole
    small: Whole
    big: Whole
    bits: Bits


class Sides(TypedDict):
    """A party's answer where its columns cut: left or right of each row, and the number of each record."""

    bits: Bits
    records: Whole


class LevelSums(TypedDict):
    """A party's answer: sums of groups of bins, column after column, node after node."""

    sums: Ciphertexts
    columns: Whole  # of each node
    groups: Whole  # of each column, and so the next three
    left_out: Whole
    ordered: Flags
    missing: Flags
    filled: Bits
    joined: Flags  # of each node
    into: Whole


def check_nodes(party: str, nodes: LevelNodes, jobs: int) -> None:
    """As many parents and children as trees, of trees that there are."""
    count = len(nodes["job"])
    lines = [nodes["job"], nodes["parent"], nodes["small"], nodes["big"], nodes["bits"]]
    fits = all(each.ndim == 1 for each in lines) and all(len(each) == count for each in lines[:4])
    if not fits or (count and not 0 <= nodes["job"].min() <= nodes["job"].max() < jobs):
        raise OperationRefused(party, "level_sums", "these are no nodes of its trees")


def check_sums(name: str, reply: LevelSums, nodes: int) -> None:
    """As many groups, columns and nodes as it says itself."""
    groups, columns = reply["groups"], reply["columns"]
    lines = [value for key, value in reply.items() if key != "sums"]
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in lines):
        raise ReplyError(name, "level_sums", "what it sent has the wrong shape")
    left_out, flags = reply["left_out"], [reply["ordered"], reply["missing"]]
    fits = len(columns) == len(reply["joined"]) == nodes and not (columns < 0).any()
    fits = fits and columns.sum() == len(groups) == len(left_out) and all(len(each) == len(groups) for each in flags)
    fits = fits and not (groups < 1).any() and not ((left_out < 0) | (left_out >= groups)).any()
    if not fits or 8 * len(reply["filled"]) < groups.sum():
        raise ReplyError(name, "level_sums", f"party {name!r} answered for another number of nodes, columns or groups")


def check_told(name: str, nodes: object) -> None:
    """At the coordinator, before they are passed on: the label holder's message has all fields."""
    wrong = wrong_record(LevelNodes, nodes) if isinstance(nodes, dict) else "is no message"
    if wrong:
        raise ReplyError(name, "advance", f"what it says of the nodes {wrong}")
