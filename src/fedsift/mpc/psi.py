"""Which rows do all parties share? Private set intersection on the ids, for two and more parties.

Up to three parties hold a secret exponent each: the key holders, the first of those that share rows. In the end an
id x has become the same pseudonym H(x)^(k1 k2 k3) at everybody, and the coordinator compares pseudonyms. A list goes
out under a blinding of its owner's (ristretto255) and visits each key holder once: a star, whose bytes grow with the
parties and not with their square. A key holder's blinding is its exponent, all others take theirs off at the end::

    a key holder's list:   owner -> key holder -> key holder -> pseudonyms to the coordinator
    anybody else's list:   owner -> key holder -> key holder -> key holder -> owner -> pseudonyms to the coordinator

Two and three parties all hold keys. A list travels in sealed boxes (``pairs.py``), each for its hop: the coordinator
can put no list of its own guesses in the place of a party's, and no list goes another way round. (Lists in the open
could be exchanged: of three parties, two lists less and one of guesses told which of these a party has.) Lists are
compared from the smallest on, three at a time: the coordinator holds no more of them, and stops where too few are left.

The shared rows are then ordered by a PRF of the id under a key that the parties share and the coordinator does not
know: every party adds a part, HMAC(its site's secret, parties, random_state), sealed for the others. The same parties
and the same ``random_state`` give the same order in every run; to the coordinator it is a random one.

Who learns what: a party learns which of its own ids are shared by all, and nothing about any other id; what it raises
for others are uniform points to it. The coordinator learns the size of each list (or what a party rounds it up to, by
``pad_rows``) and of every intersection, pairwise ones included, under pseudonyms that are made for this alignment
alone; nothing tells it the order of ids, or which row of one alignment is which of another under another
``random_state``. Who together could do more: a party and the coordinator learn which ids *of that party's list* each
other party has. All key holders and the coordinator can test guesses of anybody's ids; without one of them nobody can.

Rows of an earlier job (``as_in``) are in every site's journal already. The parties then compare one digest of their
ids, under the common key: where all agree nothing is matched again.
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

from fedsift.core.arguments import AtMost, PartyName
from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import AlignmentError, DataError, OperationRefused, ParameterError, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.matched_lists import PSEUDONYM_BYTES as _SIZE
from fedsift.mpc.matched_lists import Matched
from fedsift.mpc.pairs import Pairs, meet_all

JOB = "alignment"  # what this is called when it is put to the parties
_ORDER, _IDS, _VIEW = "row order", "blinded ids", "aligned"
KEY_HOLDERS = 3


@dataclass
class Blinding:
    """A party's secrets of one alignment: its exponent, and the order in which its ids went out."""

    order: np.ndarray = field(repr=False)  # from the table's rows on: ids that nobody has, to fill the list
    raised: set[str] = field(default_factory=set)  # whose lists
    key: oprf.OprfKey = field(default_factory=oprf.OprfKey.generate, repr=False)


def _way(block: list[str], owner: str) -> list[str]:
    """Through whose hands a list goes, in this order, after it has left its owner."""
    holders, place = block[:KEY_HOLDERS], block.index(owner)
    if owner in holders:
        return holders[place + 1 :] + holders[:place]
    first = place % len(holders)
    return [*holders[first:], *holders[:first], owner]


@operation(
    "align.blind_ids",
    discloses="pseudonymous",
    about="ids, blinded by a secret exponent and shuffled, sealed for a key holder",
    reply=(SealedBox, bytes),
    needs=("alignment",),
    times=1,
)
def blind_ids(party: Party) -> SealedBox | bytes:
    """For the first on the list's way; to the coordinator where there is no other party."""
    block, sizes = _agreed(party)
    rows, ids, own = _own_rows(party), party.table.ids, party.n_rows
    filled = 0 if _frozen(party) else max(0, sizes[party.name] - len(rows))
    order = np.random.default_rng(secrets.randbits(128)).permutation(np.concatenate([rows, own + np.arange(filled)]))
    blinding = party.keep(Blinding(order))
    words = [ids[row].encode() if row < own else secrets.token_bytes(32) for row in order.tolist()]
    return _passed_on(party, block, party.name, oprf.hash_and_multiply(words, blinding.key))


@operation(
    "align.blind_again",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="another party's blinded ids, raised to a secret exponent: sealed for the next, pseudonyms after the last",
    reply=(SealedBox, bytes),
    needs=("alignment",),
    after="align.blind_ids",
    times="parties",
)
def blind_again(party: Party, *, owner: Annotated[str, AtMost(200)], box: SealedBox) -> SealedBox | bytes:
    """Raise a list on its way: once an owner, as many ids as the job says it has."""
    blinding = party.held(Blinding)
    block, sizes = _agreed(party)
    if owner == party.name or owner not in block or party.name not in _way(block, owner):
        raise OperationRefused(party.name, "blind_again", "no such list comes this way")
    if owner in blinding.raised:
        raise OperationRefused(party.name, "blind_again", f"the list of {owner!r} was raised already")
    points = _taken(party, block, owner, sizes[owner], box)
    blinding.raised.add(owner)
    return _passed_on(party, block, owner, oprf.multiply(points, blinding.key))


@operation(
    "align.unblind",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="pseudonyms of the own ids, after all key holders had them",
    reply=bytes,
    needs=("alignment",),
    after="align.blind_ids",
    times=1,
)
def unblind(party: Party, *, box: SealedBox) -> bytes:
    """Take the own blinding off the list that comes back from the last key holder."""
    blinding = party.held(Blinding)
    block, _ = _agreed(party)
    if party.name not in _way(block, party.name):
        raise OperationRefused(party.name, "unblind", "a key holder's own list does not come back to it")
    points = _taken(party, block, party.name, len(blinding.order), box)
    return oprf.pseudonyms(oprf.multiply(points, blinding.key.inverse()), b"fedsift alignment", _SIZE)


def _taken(party: Party, block: list[str], owner: str, told: int, box: SealedBox) -> bytes:
    """The points of a list that comes from the one before on its way, in the size that its owner told."""
    way = _way(block, owner)
    hop = way.index(party.name)
    points = party.held(Pairs).open(box, sender=[owner, *way][hop], about=f"{_IDS} of {owner}", number=hop)
    most = oprf.POINT_BYTES * told
    fits = isinstance(points, bytes) and len(points) <= most and not len(points) % oprf.POINT_BYTES
    if not fits or (len(points) < most and not _frozen(party)):
        raise OperationRefused(party.name, "blind_again", f"this is not the list of {owner!r} in the size that it told")
    return bytes(points)


def _passed_on(party: Party, block: list[str], owner: str, points: bytes) -> SealedBox | bytes:
    """Sealed for the next on the list's way; after the last the list is for the coordinator, as pseudonyms."""
    way = _way(block, owner)
    hop = 0 if owner == party.name else way.index(party.name) + 1
    if hop == len(way):
        return oprf.pseudonyms(points, b"fedsift alignment", _SIZE)
    return party.held(Pairs).seal(points, to=way[hop], about=f"{_IDS} of {owner}", number=hop)


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


@dataclass(frozen=True)
class CommonKey:
    """The key of the row order, which all parties have and the coordinator has not."""

    key: bytes = field(repr=False)


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
    "align.keep_known",
    discloses="control",
    about="a digest of the ids of an earlier job's rows, under a key that only the parties know",
    learns="the other parties' parts of the key of the row order",
    reply=bytes,
    after="align.seal_order",
    times=1,
)
def keep_known(party: Party, *, boxes: dict[PartyName, SealedBox]) -> bytes:
    """Keep the rows of the earlier job that the alignment names, and tell whether they are the others' too."""
    if not _frozen(party):
        raise OperationRefused(party.name, "keep_known", "this alignment names no earlier job")
    rows, places = _ordered(party, _own_rows(party), boxes)
    party.site.views[_VIEW] = (rows, None)
    return hashlib.sha512(b"fedsift known rows" + places.tobytes()).digest()[:_SIZE]


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
    if (rows[positions] >= party.n_rows).any():
        raise OperationRefused(party.name, "keep_shared", "one of these rows fills the list and is nobody's")
    party.site.views[view] = (_ordered(party, rows[positions], boxes)[0], None)


def _ordered(party: Party, rows: np.ndarray, boxes: dict[str, SealedBox]) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their PRF, and its values in that order. A box opens once; the key is then kept."""
    if CommonKey not in party.state:
        met = party.held(Pairs)
        if set(boxes) != set(met.peers):
            raise SecurityError(f"party {party.name!r}: every other party adds to the key of the row order, once")
        parts = {name: met.open(box, sender=name, about=_ORDER, number=0) for name, box in boxes.items()}
        parts[party.name] = party.held(OrderPart).part
        told = frame(b"fedsift row order", *(parts[name] for name in sorted(parts)))
        party.keep(CommonKey(hashlib.sha256(told).digest()))
    ids = party.table.ids
    places = oprf.keyed_digests([each.encode() for each in ids[rows]], party.held(CommonKey).key, _SIZE)
    high, low = places.view(">u8").T
    order = np.lexsort((low, high))
    return rows[order], places[order]


OPERATIONS = (*pairs.OPERATIONS, blind_ids, blind_again, unblind, seal_order, keep_known, keep_shared)


def align(fed: Federation, *, min_overlap: int = 10, random_state: Any = 0, as_in: str | None = None) -> Federation:
    """A view of the federation in which row i is the same id at every party.

    ``as_in`` is an earlier job, by 12 digits or more of its hash: each party enters the rows that it used there.
    """
    with _session(fed, [fed.parties], random_state, as_in) as run:
        _align_block(run, fed.parties, min_overlap, as_in is not None)
    return fed.named_view(_VIEW)


def _align_block(run: Federation, names: list[str], min_overlap: int, known: bool) -> None:
    """The conversation of one alignment, among parties that share rows."""
    meet_all(run, names)
    boxes: dict[str, dict[str, SealedBox]] = {}
    if known:
        boxes = _exchanged(run, names)
        digests = run.ask(keep_known, to=names, each={name: {"boxes": boxes[name]} for name in names})
        if len(set(digests.values())) == 1:
            return
    found, done = Matched(), 0
    passes, sizes = _passes(run, names), run.sizes()
    steps = [1 + len(_way(names, owners[-1])) for owners in passes]
    for owners, here in zip(passes, steps):
        for owner, listed in _pseudonyms(run, names, owners, done, sum(steps)).items():
            found.meet(owner, listed)
        done += here
        if found.n_shared < min_overlap:
            told = {owner: sizes[owner]["rows"] for owner in found.parties}
            raise AlignmentError(found.too_few(told, min_overlap, names))
    boxes = boxes or _exchanged(run, names)
    each = {name: {"positions": found.positions(name), "boxes": boxes[name]} for name in names}
    run.ask(keep_shared, to=names, each=each, view=_VIEW)


def _session(
    fed: Federation, blocks: list[list[str]], random_state: Any, as_in: str | None
) -> AbstractContextManager[Federation]:
    """Alignment is a job like any other: who takes part and how long each list is, is agreed before it starts.

    How many columns each has is told too: a site reckons from it how much a later answer can tell.
    """
    rows, columns = ({name: size[what] for name, size in fed.sizes().items()} for what in ("rows", "columns"))
    told = {"blocks": blocks, "rows": rows, "columns": columns, "random_state": random_state}
    return fed.session(JOB, told if as_in is None else {**told, "as_in": as_in})


def _passes(run: Federation, names: list[str]) -> list[list[str]]:
    """Whose lists are on their way together: the key holders' first, then three at a time, the smallest first."""
    sizes = run.sizes()
    others = sorted(names[KEY_HOLDERS:], key=lambda name: sizes[name]["rows"])
    return [names[:KEY_HOLDERS], *(others[at : at + KEY_HOLDERS] for at in range(0, len(others), KEY_HOLDERS))]


def _pseudonyms(run: Federation, names: list[str], owners: list[str], done: int, of: int) -> dict[str, bytes]:
    """The pseudonyms of some parties' ids, after their lists have gone all the way."""
    run.progress(done, of, "pass over the ids")
    lists = run.ask(blind_ids, to=owners)
    ways = {owner: _way(names, owner) for owner in owners}
    for hop in range(max(len(way) for way in ways.values())):
        run.progress(done + hop + 1, of, "pass over the ids")
        raising = {owner: way[hop] for owner, way in ways.items() if hop < len(way) and way[hop] != owner}
        while raising:  # one list a key holder at a time
            now = {holder: owner for owner, holder in reversed(raising.items())}
            each = {holder: {"owner": owner, "box": lists[owner]} for holder, owner in now.items()}
            for holder, answer in run.ask(blind_again, to=list(now), each=each).items():
                lists[now[holder]] = answer
                del raising[now[holder]]
    back = [owner for owner in owners if ways[owner] and ways[owner][-1] == owner]
    if back:
        lists |= run.ask(unblind, to=back, each={owner: {"box": lists[owner]} for owner in back})
    for owner, data in lists.items():
        if not isinstance(data, bytes) or len(data) % _SIZE:
            raise ReplyError([owner, *ways[owner]][-1], "blind_again", "it passed a list on that has been everywhere")
    return lists


def _exchanged(run: Federation, names: list[str]) -> dict[str, dict[str, SealedBox]]:
    """Each party's boxes with the others' parts of the key of the row order."""
    sealed = run.ask(seal_order, to=names)
    return {name: {other: sealed[other].get(name) for other in names if other != name} for name in names}


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
            _align_block(run, block, min_overlap, as_in is not None)
    return fed.named_view(_VIEW)
