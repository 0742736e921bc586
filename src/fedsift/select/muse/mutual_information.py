"""Anonymous bin matching: mutual information of columns of two parties, counted by a coordinator that sees no id.

MUSE (Ji et al. 2024), Algorithm 2, with the costs and the leak repaired.

1. *Row secrets.* Every party turns its ids into secrets by an oblivious pseudorandom function (``secure/oprf.py``): ids
   go out blinded, the holders of the key raise them, the party takes its blind off. With two keys (default) two parties
   hold one factor each, so no single party can compute the secret of an id that it does not have; with one key (the
   paper) the label holder can. This depends on the ids alone: it is done once, and only for rows not yet known.
2. *Pair secrets.* Every two parties share a secret of their own, from a fresh and signed handshake (``mpc/pairs.py``),
   bound to the row secrets.
3. *Matching.* For every pair of columns the two parties draw a fresh random key for each row from their pair secret
   (ChaCha20), sort the rows by it, and send the bins of their column in that order, under freshly shuffled bin
   labels. The coordinator puts the two lists side by side and counts. Sending bins in the order of fresh pseudonyms
   says the same as sending sets of pseudonyms, at a byte a row.

What the coordinator sees of a pair of columns is the joint table without names of bins, and nothing more: two lists in
a uniformly random common order carry no information beyond their table, and orders of different pairs are independent,
so a row cannot be followed from one table to another. Parties receive nothing about each other's columns. A party that
gives its pair secret to the coordinator uncovers the other's bins of that pair (by position, and so by id): this is the
known leak of the method, here limited to the two parties of a pair. Batches are numbered; a party refuses to use a
number twice, so that even a coordinator that asks again cannot get two lists in one order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party, Task
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.mpc.pairs import OPERATIONS as HANDSHAKE
from fedsift.select.muse import row_secrets
from fedsift.select.muse.contingency import MAX_BINS, Entropies, column_codes, label_codes, pair_information
from fedsift.select.muse.fresh_orders import in_fresh_orders
from fedsift.select.muse.row_secrets import agree
from fedsift.select.muse.state import Binned, Matching

Columns = Annotated[NDArray[np.int64], Between(-1, 10**7)]


@message
@dataclass(frozen=True)
class PairRequest:
    """Columns that are counted with those of a peer, under the orders of one batch."""

    peer: str
    batch: int
    columns: Columns


@message
@dataclass(frozen=True)
class Prepared:
    """Entropies of a party's columns, which of them have a bin below ``min_cell``, and the most bins of any."""

    entropies: NDArray[np.float64]
    small: NDArray[np.int64]
    bins: int


LABEL = -1  # stands for the label among the label holder's columns
_MESSAGE_BYTES = 1 << 24  # bin codes in one reply
_THREADED_FROM = 100_000  # bin codes; below this a thread costs more than it brings


# --- codes ------------------------------------------------------------------------------------------------------------


@operation(
    "muse.prepare_columns",
    when="epsilon=none",
    discloses="aggregate",
    about="entropy of each binned column (the label's last, if it is here), largest number of bins, and which columns "
    "have a bin below min_cell",
    reply=Prepared,
    min_cell="min_cell",
    settings=("n_bins", "binning"),
    times=1,
)
def prepare_columns(
    party: Party, *, n_bins: Annotated[int, Between(2, MAX_BINS)], binning: Literal["quantile", "width"], min_cell: int,
    task: Task, label: bool,
) -> Prepared:  # fmt: skip
    codes = column_codes(party, n_bins, binning)
    if label:
        codes = np.vstack([codes, label_codes(party.labels(task=task), n_bins, binning, party.name)[None, :]])
    matching: Matching | None = party.state.get(Matching)
    codes = np.ascontiguousarray(codes if matching is None else codes[:, matching.order])
    entropies = Entropies(party.n_rows)
    counts = [np.bincount(column) for column in codes]
    party.keep(Binned(codes, entropies))
    values = np.array([float(entropies.entropy(count)) for count in counts])
    small = [j for j, count in enumerate(counts) if count[count > 0].min(initial=party.n_rows) < min_cell]
    bins = int(codes.max(initial=0)) + 1
    return Prepared(values, np.array(small, dtype=np.int64), bins)


@operation(
    "muse.matched_codes",
    when="epsilon=none",
    discloses="pseudonymous",
    about="bins of columns, under shuffled labels, rows in an order drawn afresh for every pair of columns",
    reply=[Array("i", 2)],
    after="muse.prepare_columns",
    times="n_features x 10000",  # long lists of bins go in several messages
)
def matched_codes(party: Party, *, requests: list[PairRequest], code_bits: int) -> list[np.ndarray]:
    """For each request (peer, batch number, columns): the codes of the columns, each in an order of its own."""
    codes, matching = party.held(Binned).codes, party.held(Matching)
    if int(codes.max(initial=0)).bit_length() > code_bits or code_bits > 8:
        raise OperationRefused(party.name, "matched_codes", f"its bins do not fit {code_bits} bits")
    last = dict(matching.last)
    for request in requests:
        peer, batch = request.peer, request.batch
        if peer not in last or batch <= last[peer]:
            raise OperationRefused(party.name, "matched_codes", f"batch {batch} with {peer!r} is unknown or used up")
        _check_columns(party, codes, request.columns, "matched_codes")
        last[peer] = batch
    matching.last.update(last)
    return [in_fresh_orders(codes, r.columns, matching.seeds[r.peer], r.batch, code_bits) for r in requests]


def _check_columns(party: Party, codes: np.ndarray, columns: np.ndarray, operation: str) -> None:
    """Positions of columns; -1 is the last one, the label where it is here."""
    if columns.ndim != 1 or columns.max(initial=-1) >= len(codes):
        raise OperationRefused(party.name, operation, "there is no such column")


@operation(
    "muse.own_information",
    when="epsilon=none",
    discloses="aggregate",
    about="mutual information of pairs of the party's own columns (or with the label, if it is here)",
    reply=Array("f"),
    after="muse.prepare_columns",
    times="3 x n_features",  # with the label once, in the preselection, and in the search
)
def own_information(party: Party, *, left: Columns, right: Columns, correct: bool) -> np.ndarray:
    binned = party.held(Binned)
    codes = binned.codes
    _check_columns(party, codes, left, "own_information")
    _check_columns(party, codes, right, "own_information")
    if len(left) != len(right):
        raise OperationRefused(party.name, "own_information", "pairs have a left and a right column each")
    one = left[:1] if len(set(left.tolist())) == 1 else left
    return pair_information(codes[one], codes[right], binned.entropies, correct=correct)[0]


# --- the coordinator's side -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Columns of two different parties to be counted pairwise: ``left_columns[i]`` with ``right_columns[i]``."""

    left: str
    left_columns: np.ndarray
    right: str
    right_columns: np.ndarray

    def part(self, start: int, stop: int) -> Pairs:
        return Pairs(self.left, self.left_columns[start:stop], self.right, self.right_columns[start:stop])

    def __len__(self) -> int:
        return len(self.left_columns)


OPERATIONS = (
    *HANDSHAKE, *row_secrets.OPERATIONS, prepare_columns, matched_codes, own_information,
)  # fmt: skip


class BinMatching:
    """The conversation of one run: secrets first, then as many tables as are asked for."""

    def __init__(self, fed: Federation, *, keys: str, min_cell: int | None, correct: bool = False):
        self.fed = fed
        self.correct = correct
        self.min_cell = min_cell or 1
        self.rows = fed.n_rows
        self.computations = 0
        self._entropies = Entropies(self.rows)
        self._batch = 0
        self._code_bits = 8
        if len(fed.parties) > 1:
            agree(fed, keys)

    def prepare(self, *, n_bins: int, binning: str) -> dict[str, np.ndarray]:
        """Bin the columns; the entropies of each party's columns (and, at the label holder, of the label last)."""
        fed = self.fed
        each = {name: {"label": name == fed.active} for name in fed.parties}
        replies: dict[str, Prepared] = fed.ask(
            prepare_columns, to=fed.parties, each=each, n_bins=n_bins, binning=binning, min_cell=self.min_cell,
            task=fed.asked_task,
        )  # fmt: skip
        for name, reply in replies.items():
            own = fed.n_columns[name] + (name == fed.active)
            if reply.entropies.shape != (own,) or reply.small.ndim != 1 or not np.isin(reply.small, range(own)).all():
                raise ReplyError(name, "prepare_columns", f"expected {own} entropies, and small bins of these alone")
            if len(reply.small):
                raise self._too_small(f"a bin of {self._describe(name, int(reply.small[0]))}")
        most = max(reply.bins for reply in replies.values())
        self._code_bits = max(1, min(8, (most - 1).bit_length()))
        return {name: reply.entropies for name, reply in replies.items()}

    def information(self, wanted: Sequence[Pairs]) -> list[np.ndarray]:
        """Mutual information of every pair, in the order asked. One round, or more if the lists are very long."""
        results = [np.empty(len(pairs)) for pairs in wanted]
        per_message = max(1, _MESSAGE_BYTES // max(1, self.rows))
        pending = [(i, at) for i, pairs in enumerate(wanted) for at in range(0, len(pairs), per_message)]
        while pending:
            now: list[tuple[int, int, int]] = []
            load = dict.fromkeys(self.fed.parties, 0)
            later = []
            for i, at in pending:
                pairs = wanted[i]
                size = min(per_message, len(pairs) - at)
                if max(load[pairs.left], load[pairs.right]) + size > per_message:
                    later.append((i, at))
                    continue
                load[pairs.left] += size
                load[pairs.right] += size
                now.append((i, at, at + size))
            for (i, start, stop), values in zip(now, self._count([wanted[i].part(a, b) for i, a, b in now])):
                results[i][start:stop] = values
            pending = later
        return results

    def _count(self, parts: list[Pairs]) -> list[np.ndarray]:
        requests: dict[str, list[PairRequest]] = {}
        for pairs in parts:
            self._batch += 1
            sides = ((pairs.left, pairs.right, pairs.left_columns), (pairs.right, pairs.left, pairs.right_columns))
            for me, peer, columns in sides:
                request = PairRequest(peer, self._batch, np.asarray(columns, dtype=np.int64))
                requests.setdefault(me, []).append(request)
        each = {name: {"requests": mine} for name, mine in requests.items()}
        self.computations += sum(map(len, parts))
        replies = self.fed.ask(matched_codes, to=list(requests), each=each, code_bits=self._code_bits)
        queues = {name: iter(self._checked(name, replies[name], requests[name])) for name in requests}
        lists = [(pairs, next(queues[pairs.left]), next(queues[pairs.right])) for pairs in parts]
        if len(lists) == 1 or sum(left.size for _, left, _ in lists) < _THREADED_FROM:
            return [self._information_of(*part) for part in lists]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the parties wait meanwhile: all cores count
            return list(pool.map(lambda part: self._information_of(*part), lists))

    def _information_of(self, pairs: Pairs, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        found, smallest = pair_information(
            left, right, self._entropies, smallest=self.min_cell > 1, correct=self.correct
        )
        self._refuse_small(pairs, smallest)
        return found

    def _checked(self, name: str, lists: list[np.ndarray], requests: list[PairRequest]) -> list[np.ndarray]:
        shapes = [(len(request.columns), self.rows) for request in requests]
        if [codes.shape for codes in lists] != shapes or any(codes.dtype != np.uint8 for codes in lists):
            raise ReplyError(name, "matched_codes", "its lists of bins have the wrong number of columns or rows")
        return lists

    def _refuse_small(self, pairs: Pairs, smallest: np.ndarray) -> None:
        below = np.flatnonzero(smallest < self.min_cell)
        if len(below):
            left = self._describe(pairs.left, int(pairs.left_columns[below[0]]))
            right = self._describe(pairs.right, int(pairs.right_columns[below[0]]))
            raise self._too_small(f"a cell of the table of {left} with {right}")

    def _too_small(self, what: str) -> DataError:
        return DataError(
            f"{what} has fewer than min_cell={self.min_cell} rows: use fewer bins (n_bins), leave the column out, or "
            "allow smaller cells"
        )

    def _describe(self, name: str, column: int) -> str:
        if column in (LABEL, self.fed.n_columns[name]):
            return f"the label of party {name!r}"
        return f"column {self.fed.column_names()[name][column]!r} of party {name!r}"
