"""Which rows do all parties share? Private set intersection on the ids, for two and more parties.

Every party hashes its ids to a group (ristretto255) and raises them to a secret exponent of its own; each list then
goes round all other parties, each of which raises it to its own exponent. In the end an id x has become the same
pseudonym H(x)^(k1 k2 ... kn) at everybody, and the coordinator compares pseudonyms. Since every exponent is in it, no
group of parties that leaves one out can compute the pseudonym of an id by itself. What a party could do together with
the coordinator is compare: it would learn which ids *of its own list* each other party has.

Who learns what: a party learns which of its own ids are shared by all, and nothing about any other id. The coordinator
learns the size of each list and of every intersection, pairwise ones included, under pseudonyms that are made for this
alignment alone. Rows are then ordered by pseudonym: an order that says nothing.
"""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.errors import AlignmentError, DataError, OperationRefused

JOB = "alignment"  # what this is called when it is put to the parties
_SIZE = 16  # bytes of a pseudonym: two different ids of 10^6 meet with probability below 2^-88


@dataclass
class Blinding:
    """A party's secrets of one alignment, and how many lists of the others it has raised."""

    key: oprf.OprfKey = field(repr=False)
    order: np.ndarray = field(repr=False)
    raised: int = 0


@operation(
    "align.blind_ids",
    discloses="pseudonymous",
    about="ids, blinded by a secret exponent and shuffled",
    reply=bytes,
    needs=("alignment",),
    times=1,
)
def blind_ids(party: Party) -> bytes:
    order = np.random.default_rng(secrets.randbits(128)).permutation(party.n_rows)
    made = party.keep(Blinding(oprf.OprfKey.generate(), order))
    ids = party.table.ids
    points = oprf.hash_to_group([str(ids[row]).encode() for row in order])
    return oprf.multiply(points, made.key)


@operation(
    "align.blind_again",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="another party's blinded ids, blinded once more",
    reply=bytes,
    needs=("alignment",),
    after="align.blind_ids",
    times="parties",
)
def blind_again(party: Party, *, points: bytes) -> bytes:
    """Raise the list of the party whose turn it is: once a peer, and as many ids as the job says it has."""
    made = party.held(Blinding)
    block, sizes = _agreed(party)
    if made.raised + 1 >= len(block):
        raise OperationRefused(party.name, "blind_again", "every other party's list was raised already")
    made.raised += 1
    owner = block[(block.index(party.name) - made.raised) % len(block)]
    if len(points) != oprf.POINT_BYTES * sizes[owner]:
        raise OperationRefused(party.name, "blind_again", f"this is not the list of {owner!r} in the size that it told")
    raised = oprf.multiply(points, made.key)
    last = made.raised == len(block) - 1
    return oprf.pseudonyms(raised, b"fedsift alignment", _SIZE) if last else raised


def _agreed(party: Party) -> tuple[list[str], dict[str, int]]:
    """The parties that share rows with this one and how many rows each has, as the job says."""
    blocks, rows = party.job.parameters.get("blocks"), party.job.parameters.get("rows")
    if isinstance(blocks, list) and isinstance(rows, dict):
        block = next((block for block in blocks if isinstance(block, list) and party.name in block), [])
        known = all(isinstance(rows.get(name), int) and name in party.job.parties for name in block)
        if block and known and len(set(block)) == len(block):
            return block, rows
    raise OperationRefused(party.name, "blind_again", "the job does not say with whom this party shares which rows")


@operation(
    "align.keep_shared",
    discloses="control",
    about="acknowledgement",
    learns="which of its own rows all parties share",
    after="align.blind_ids",
    times=1,
)
def keep_shared(party: Party, *, positions: NDArray[np.int64], view: Annotated[str, AtMost(100)]) -> None:
    order = party.held(Blinding).order
    if len(positions) and (positions.ndim != 1 or positions.min() < 0 or positions.max() >= len(order)):
        raise OperationRefused(party.name, "keep_shared", "row positions out of range")
    if len(np.unique(positions)) != len(positions):
        raise OperationRefused(party.name, "keep_shared", "a row is named twice")
    party.site.views[view] = (order[positions], None)


OPERATIONS = (blind_ids, blind_again, keep_shared)


def align(fed: Federation, *, min_overlap: int = 10) -> Federation:
    """A view of the federation in which row i is the same id at every party."""
    with _session(fed, [fed.parties]) as run:
        _align_block(run, fed.parties, min_overlap)
    return fed.named_view("aligned")


def _session(fed: Federation, blocks: list[list[str]]) -> AbstractContextManager[Federation]:
    """Alignment is a job like any other: who takes part and how long each list is, is agreed before it starts."""
    rows = {name: size["rows"] for name, size in fed.sizes().items()}
    return fed.session(JOB, {"blocks": blocks, "rows": rows})


def _too_few(found: dict[str, dict[bytes, int]], shared: int, wanted: int) -> str:
    names = list(found)
    sizes = ", ".join(f"{name} {len(index):,}" for name, index in found.items())
    pairs = ", ".join(
        f"{a} and {b} {len(found[a].keys() & found[b].keys()):,}" for i, a in enumerate(names) for b in names[i + 1 :]
    )
    return (
        f"only {shared} ids are shared by all parties, fewer than min_overlap={wanted} (rows: {sizes}; shared by two: "
        f"{pairs}): are the ids written the same way everywhere (spaces, leading zeros, case)?"
    )


def aligned(fed: Federation, *, by_id: bool, min_overlap: int) -> Federation:
    """The federation with its rows in the same order wherever parties share rows, whatever its partition."""
    if fed.partition == "hybrid":
        return align_blocks(fed, by_id=by_id, min_overlap=min_overlap)
    if fed.partition == "vertical":
        if by_id:
            return align(fed, min_overlap=min_overlap)
        _check_same_length(fed)
    return fed


def _check_same_length(fed: Federation) -> None:
    rows = {name: size["rows"] for name, size in fed.sizes().items()}
    if len(set(rows.values())) > 1:
        raise DataError(
            f"without an id column all tables must have the same number of rows in the same order; got {rows}"
        )


def align_blocks(fed: Federation, *, by_id: bool, min_overlap: int) -> Federation:
    """A view in which row i is the same id at all parties of a row block. What is learned: as in ``align``."""
    blocks = Grid.of(fed).rows
    if not by_id:
        sizes = fed.sizes()
        for block in blocks:
            counts = {name: sizes[name]["rows"] for name in block}
            if len(set(counts.values())) > 1:
                raise DataError(f"without an id the tables of a row block must have the same rows; got {counts}")
        return fed
    with _session(fed, blocks) as run:
        for block in blocks:
            _align_block(run, block, min_overlap)
    return fed.named_view("aligned")


def _align_block(run: Federation, block: list[str], min_overlap: int) -> None:
    run.progress(0, len(block), "pass over the ids")
    lists = run.ask(blind_ids, to=block)
    for step in range(1, len(block)):
        run.progress(step, len(block), "pass over the ids")
        # After `step` hops the list of block[i] is with block[i + step].
        holder = {block[(i + step) % len(block)]: block[i] for i in range(len(block))}
        raised = run.ask(blind_again, to=block, each={who: {"points": lists[owner]} for who, owner in holder.items()})
        lists = {owner: raised[who] for who, owner in holder.items()}
    if len(block) == 1:
        lists = {block[0]: oprf.pseudonyms(lists[block[0]], b"fedsift alignment", _SIZE)}
    found = {
        name: {data[i : i + _SIZE]: i // _SIZE for i in range(0, len(data), _SIZE)} for name, data in lists.items()
    }
    shared = sorted(set.intersection(*(set(index) for index in found.values())))
    if len(shared) < min_overlap:
        raise AlignmentError(_too_few(found, len(shared), min_overlap))
    each = {name: {"positions": np.array([index[p] for p in shared], dtype=np.int64)} for name, index in found.items()}
    run.ask(keep_shared, to=block, each=each, view="aligned")
