"""Complementary halves of the rows, many pairs of them, of which no two together tell a few rows apart.

Stability selection and mirror statistics look at random halves of the rows. Halves that are drawn freely cut the rows,
after ten draws, into cells of single rows, and differences of exact answers are then about one person (``security.md``,
line 15). So the label holder deals the rows once into equal blocks, without a look at the label; a half is half of the
blocks, its complement the others. However many pairs of halves are used, two rows of a block are never told apart: what
can be computed from all answers together is about whole blocks (``site/journal_atoms.py``).

Each half alone is still a uniformly drawn half of the rows, and the two halves of a pair have no row in common: that is
all that the bounds of both methods ask for, because means over pairs need no independence between the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from fedsift.core.checks import check_number
from fedsift.core.design import column_of, design_of
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.core.row_draws import TEST, group_parts, group_sides
from fedsift.errors import OperationRefused, ParameterError, ReplyError

MAX_BLOCKS = 14


@operation(
    "halves.deal_blocks",
    discloses="pseudonymous",
    about="which rows are in which block, dealt without a look at the label",
    reply=Array("i"),
    role="active",
    concerns="nothing",
    times=1,
)
def deal_blocks(party: Party) -> NDArray[np.int64]:
    """The block of each row. Drawn from the site's secret in the order of its ids: alignment orders rows anew."""
    asked = party.job.parameters
    blocks = int(asked["blocks"])
    if not 2 <= blocks <= min(MAX_BLOCKS, party.n_rows):
        raise OperationRefused(party.name, "deal_blocks", "it has too few rows for so many blocks")
    if design_of(party).group is not None:
        return _group_blocks(party, blocks)
    order = party.table.by_id
    block = np.empty(party.n_rows, dtype=np.int64)
    drawn = party.generator("halves: blocks", asked["random_state"]).permutation(party.n_rows)
    block[order[drawn]] = np.arange(party.n_rows) % blocks
    return block


def _group_blocks(party: Party, blocks: int) -> NDArray[np.int64]:
    """Whole groups, of the parts that the site has dealt them to once (``core/row_draws.py``)."""
    if column_of(party, "group") is None:
        raise OperationRefused(party.name, "deal_blocks", "the design's group column is another party's")
    dealt = group_sides(group_parts(party), blocks, 0.5, party.name)
    return np.asarray(np.argmax(dealt == TEST, axis=0), dtype=np.int64)


OPERATIONS = (deal_blocks,)


def pairs_of(blocks: int) -> int:
    """How many different pairs of complementary halves there are."""
    return comb(blocks, blocks // 2) // 2


def check_halves(pairs: object, blocks: object) -> None:
    check_number("blocks", blocks, 2, MAX_BLOCKS, whole=True)
    if int(str(blocks)) % 2:
        raise ParameterError(f"blocks must be even: a half is half of them; got {blocks!r}")
    check_number("pairs", pairs, 1, pairs_of(int(str(blocks))), whole=True)


def halvings(blocks: int, pairs: int, random_state: int) -> NDArray[np.bool_]:
    """So many different ways to take half of the blocks (pairs x blocks); the complement is the other half."""
    every = list(combinations(range(1, blocks), blocks // 2 - 1))  # with block 0: no halving and its complement too
    chosen = np.random.default_rng(random_state).choice(len(every), pairs, replace=False)
    halves = np.zeros((pairs, blocks), dtype=bool)
    halves[:, 0] = True
    for row, number in zip(halves, chosen):
        row[list(every[number])] = True
    return halves


def halved(run: Federation, blocks: int, pairs: int, random_state: int) -> Iterator[tuple[Federation, Federation]]:
    """Views of the two halves of each pair, inside a session; every row block's label holder deals its rows."""
    holders = {run.grid[name][0]: name for name in reversed(run.label_parties)}
    dealt: dict[str, NDArray[np.int64]] = run.ask(deal_blocks, to=list(holders.values())[::-1])
    for name, block in dealt.items():
        if len(block) != run.sizes()[name].rows or not 0 <= block.min() <= block.max() < blocks:
            raise ReplyError(name, "deal_blocks", "it dealt other rows or blocks than there are")
    block_of = {name: dealt[holders[run.grid[name][0]]] for name in run.parties}
    for half in halvings(blocks, pairs, random_state):
        first, second = (
            run.view(rows={name: np.flatnonzero(half[block] == side) for name, block in block_of.items()})
            for side in (True, False)
        )
        yield first, second
