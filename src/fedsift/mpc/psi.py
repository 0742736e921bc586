"""Which rows do all parties share? Private set intersection on the ids, for two and more parties.

Every party hashes its ids to a group (ristretto255) and raises them to a secret exponent of its own; each list then
goes round all other parties, each of which raises it to its own exponent. In the end an id x has become the same
pseudonym H(x)^(k1 k2 ... kn) at everybody, and the coordinator compares pseudonyms. Since every exponent is in it, no
group of parties that leaves one out can compute the pseudonym of an id by itself. What a party could do together with
the coordinator is compare: it would learn which ids *of its own list* each other party has.

A list travels from party to party in sealed boxes (``pairs.py``), each for its hop: the coordinator can put no list of
its own guesses in the place of a party's, and no list goes another way round. (Lists in the open could be exchanged: of
three parties, two lists less and one of guesses told which of these a party has.)

The shared rows are then ordered by a PRF of the id under a key that the parties share and the coordinator does not
know: every party adds a part, HMAC(its site's secret, parties, random_state), sealed for the others. The same parties
and the same ``random_state`` give the same order in every run; to the coordinator it is a random one.

Who learns what: a party learns which of its own ids are shared by all, and nothing about any other id. The coordinator
learns the size of each list and of every intersection, pairwise ones included, under pseudonyms that are made for this
alignment alone; nothing tells it the order of ids, or which row of one alignment is which of another under another
``random_state``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import AlignmentError, DataError, OperationRefused, ParameterError, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Pairs, meet_all

JOB = "alignment"  # what this is called when it is put to the parties
_SIZE = 16  # bytes of a pseudonym: two different ids of 10^6 meet with probability below 2^-88
_ORDER, _IDS = "row order", "blinded ids"


@dataclass
class Blinding:
    """A party's secrets of one alignment: its exponent, and the order in which its ids went out."""

    order: np.ndarray = field(repr=False)
    raised: int = 0  # lists of the others
    key: oprf.OprfKey = field(default_factory=oprf.OprfKey.generate, repr=False)


@operation(
    "align.blind_ids",
    discloses="pseudonymous",
    about="ids, blinded by a secret exponent and shuffled, sealed for the next party",
    reply=(SealedBox, bytes),
    needs=("alignment",),
    times=1,
)
def blind_ids(party: Party) -> SealedBox | bytes:
    """For the next party of the round; to the coordinator where there is no other."""
    block, _ = _agreed(party)
    order = np.random.default_rng(secrets.randbits(128)).permutation(_own_rows(party))
    blinding = party.keep(Blinding(order))
    ids = party.table.ids
    points = oprf.hash_to_group([str(ids[row]).encode() for row in order])
    return _passed_on(party, block, oprf.multiply(points, blinding.key), 1)


@operation(
    "align.blind_again",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="another party's blinded ids, blinded once more: sealed for the next party, pseudonyms after the last",
    reply=(SealedBox, bytes),
    needs=("alignment",),
    after="align.blind_ids",
    times="parties",
)
def blind_again(party: Party, *, box: SealedBox) -> SealedBox | bytes:
    """Raise the list that the party before this one has passed on: once a peer, as many ids as the job says it has."""
    blinding = party.held(Blinding)
    block, sizes = _agreed(party)
    if blinding.raised + 1 >= len(block):
        raise OperationRefused(party.name, "blind_again", "every other party's list was raised already")
    hop, place = blinding.raised + 1, block.index(party.name)
    points = party.held(Pairs).open(box, sender=block[place - 1], about=_IDS, number=hop)
    owner = block[(place - hop) % len(block)]
    told = oprf.POINT_BYTES * sizes[owner]
    fits = isinstance(points, bytes) and len(points) <= told and not len(points) % oprf.POINT_BYTES
    if not fits or (len(points) < told and not _frozen(party)):
        raise OperationRefused(party.name, "blind_again", f"this is not the list of {owner!r} in the size that it told")
    blinding.raised = hop
    return _passed_on(party, block, oprf.multiply(points, blinding.key), hop + 1)


def _passed_on(party: Party, block: list[str], points: bytes, hop: int) -> SealedBox | bytes:
    """Sealed for the next party of the round; after the last the list is for the coordinator, as pseudonyms."""
    if hop == len(block):
        return oprf.pseudonyms(points, b"fedsift alignment", _SIZE)
    following = block[(block.index(party.name) + 1) % len(block)]
    return party.held(Pairs).seal(points, to=following, about=_IDS, number=hop)


def _frozen(party: Party) -> str:
    """The earlier job whose rows are to be used again, if any."""
    told = party.job.parameters.get("as_in")
    return told if isinstance(told, str) else ""


def _own_rows(party: Party) -> np.ndarray:
    """The rows that take part: all, or those of an earlier job, which this site knows by its journal."""
    job = _frozen(party)
    if not job:
        return np.arange(party.n_rows)
    if party.site.rows_of_job is None:
        raise OperationRefused(party.name, "blind_ids", "it keeps no journal of earlier jobs")
    return party.site.rows_of_job(job, party.job.parties)


def _agreed(party: Party) -> tuple[list[str], dict[str, int]]:
    """The parties that share rows with this one and how many rows each has, as the job says."""
    blocks, rows = party.job.parameters.get("blocks"), party.job.parameters.get("rows")
    if isinstance(blocks, list) and isinstance(rows, dict):
        block = next((block for block in blocks if isinstance(block, list) and party.name in block), [])
        known = all(isinstance(rows.get(name), int) and name in party.job.parties for name in block)
        if block and known and len(set(block)) == len(block):
            return block, rows
    raise OperationRefused(party.name, "blind_ids", "the job does not say with whom this party shares which rows")


@dataclass(frozen=True)
class OrderPart:
    """What this party adds to the key of the row order."""

    part: bytes = field(repr=False)


@operation(
    "align.seal_order",
    discloses="control",
    about="this party's part of the key that orders the shared rows, sealed for each other party",
    reply=dict,
    after="pairs.meet",
    times=1,
)
def seal_order(party: Party) -> dict[str, SealedBox]:
    met = party.held(Pairs)
    told = json.dumps([_ORDER, sorted([*met.peers, party.name]), party.job.random_state])
    part = hmac.new(party.site.secret, told.encode(), hashlib.sha256).digest()
    party.keep(OrderPart(part))
    return {name: met.seal(part, to=name, about=_ORDER, number=0) for name in met.peers}


@operation(
    "align.keep_shared",
    discloses="control",
    about="acknowledgement",
    learns="which of its own rows all parties share",
    after="align.seal_order",
    times=1,
)
def keep_shared(
    party: Party, *, positions: NDArray[np.int64], boxes: dict[str, SealedBox], view: Annotated[str, AtMost(100)]
) -> None:
    """Keep the shared rows, in the order of a PRF of their ids under the parties' common key."""
    rows = party.held(Blinding).order
    if positions.ndim != 1 or len(np.unique(positions)) != len(positions):
        raise OperationRefused(party.name, "keep_shared", "a row is named twice")
    if len(positions) and not 0 <= positions.min() <= positions.max() < len(rows):
        raise OperationRefused(party.name, "keep_shared", "row positions out of range")
    met = party.held(Pairs)
    if set(boxes) != set(met.peers):
        raise SecurityError(f"party {party.name!r}: every other party adds to the key of the row order, once")
    parts = {name: met.open(box, sender=name, about=_ORDER, number=0) for name, box in boxes.items()}
    parts[party.name] = party.held(OrderPart).part
    key = hashlib.sha256(frame(b"fedsift row order", *(parts[name] for name in sorted(parts)))).digest()
    rows = rows[positions]
    places = [
        hashlib.blake2b(str(each).encode(), key=key, digest_size=_SIZE).digest() for each in party.table.ids[rows]
    ]
    party.site.views[view] = (rows[sorted(range(len(rows)), key=places.__getitem__)], None)


OPERATIONS = (*pairs.OPERATIONS, blind_ids, blind_again, seal_order, keep_shared)


def align(fed: Federation, *, min_overlap: int = 10, random_state: Any = 0, as_in: str | None = None) -> Federation:
    """A view of the federation in which row i is the same id at every party.

    ``as_in`` is an earlier job, by 12 digits or more of its hash: each party enters the rows that it used there.
    """
    with _session(fed, [fed.parties], random_state, as_in) as run:
        found = _pseudonyms(run, fed.parties)
        shared = sorted(set.intersection(*(set(index) for index in found.values())))
        if len(shared) < min_overlap:
            raise AlignmentError(_too_few(found, len(shared), min_overlap))
        _order_shared(run, found, shared)
    return fed.named_view("aligned")


def _session(
    fed: Federation, blocks: list[list[str]], random_state: Any, as_in: str | None
) -> AbstractContextManager[Federation]:
    """Alignment is a job like any other: who takes part and how long each list is, is agreed before it starts.

    How many columns each has is told too: a site reckons from it how much a later answer can tell.
    """
    rows, columns = ({name: size[what] for name, size in fed.sizes().items()} for what in ("rows", "columns"))
    told = {"blocks": blocks, "rows": rows, "columns": columns, "random_state": random_state}
    return fed.session(JOB, told if as_in is None else {**told, "as_in": as_in})


def _pseudonyms(run: Federation, names: list[str]) -> dict[str, dict[bytes, int]]:
    """The pseudonyms of each party's ids, with their place in the list that it sent."""
    run.progress(0, len(names), "pass over the ids")
    meet_all(run, names)
    lists = run.ask(blind_ids, to=names)
    for step in range(1, len(names)):
        run.progress(step, len(names), "pass over the ids")
        # After `step` hops the list of names[i] is with names[i + step].
        holder = {names[(i + step) % len(names)]: names[i] for i in range(len(names))}
        each = {who: {"box": lists[owner]} for who, owner in holder.items()}
        raised = run.ask(blind_again, to=names, each=each)
        lists = {owner: raised[who] for who, owner in holder.items()}
    odd = next((name for name in names if not isinstance(lists[name], bytes)), None)
    if odd is not None:
        raise ReplyError(names[names.index(odd) - 1], "blind_again", "it passed a list on that has been everywhere")
    return {name: {data[i : i + _SIZE]: i // _SIZE for i in range(0, len(data), _SIZE)} for name, data in lists.items()}


def _order_shared(run: Federation, found: dict[str, dict[bytes, int]], shared: list[bytes]) -> None:
    """Tell each party which of its rows are shared; the order they agree on among themselves."""
    names = list(found)
    sealed = run.ask(seal_order, to=names)
    each = {
        name: {
            "positions": np.array(sorted(found[name][pseudonym] for pseudonym in shared), dtype=np.int64),
            "boxes": {other: sealed[other].get(name) for other in names if other != name},
        }
        for name in names
    }
    run.ask(keep_shared, to=names, each=each, view="aligned")


def _too_few(found: dict[str, dict[bytes, int]], shared: int, wanted: int) -> str:
    names = list(found)
    sizes = ", ".join(f"{name} {len(index):,}" for name, index in found.items())
    crossings = ", ".join(
        f"{a} and {b} {len(found[a].keys() & found[b].keys()):,}" for i, a in enumerate(names) for b in names[i + 1 :]
    )
    return (
        f"only {shared} ids are shared by all parties, fewer than min_overlap={wanted} (rows: {sizes}; shared by two: "
        f"{crossings}): are the ids written the same way everywhere (spaces, leading zeros, case)?"
    )


def aligned(
    fed: Federation, *, by_id: bool, min_overlap: int, random_state: Any = 0, as_in: str | None = None
) -> Federation:
    """The federation with its rows in the same order wherever parties share rows, whatever its partition."""
    if as_in is not None and (fed.partition == "horizontal" or not by_id):
        raise ParameterError("the rows of an earlier job are found by ids, where parties share rows")
    if fed.partition == "hybrid":
        return align_blocks(fed, by_id=by_id, min_overlap=min_overlap, random_state=random_state, as_in=as_in)
    if fed.partition == "vertical":
        if by_id:
            return align(fed, min_overlap=min_overlap, random_state=random_state, as_in=as_in)
        _check_same_length(fed)
    return fed


def _check_same_length(fed: Federation) -> None:
    rows = {name: size["rows"] for name, size in fed.sizes().items()}
    if len(set(rows.values())) > 1:
        raise DataError(
            f"without an id column all tables must have the same number of rows in the same order; got {rows}"
        )


def align_blocks(
    fed: Federation, *, by_id: bool, min_overlap: int, random_state: Any = 0, as_in: str | None = None
) -> Federation:
    """A view in which row i is the same id at all parties of a row block. What is learned: as in ``align``."""
    blocks = Grid.of(fed).rows
    if not by_id:
        sizes = fed.sizes()
        for block in blocks:
            counts = {name: sizes[name]["rows"] for name in block}
            if len(set(counts.values())) > 1:
                raise DataError(f"without an id the tables of a row block must have the same rows; got {counts}")
        return fed
    with _session(fed, blocks, random_state, as_in) as run:
        for block in blocks:
            found = _pseudonyms(run, block)
            shared = sorted(set.intersection(*(set(index) for index in found.values())))
            if len(shared) < min_overlap:
                raise AlignmentError(
                    f"only {len(shared)} ids are shared by {', '.join(block)}, which are told to share rows (fewer "
                    f"than min_overlap={min_overlap}): is the grid right, and are ids written the same way?"
                )
            _order_shared(run, found, shared)
    return fed.named_view("aligned")
