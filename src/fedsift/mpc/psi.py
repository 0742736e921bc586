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

Who learns what: a party learns which of its own ids are shared by all, and nothing about any other id; what it raises
for others are uniform points to it. The coordinator learns the size of each list (or what a party rounds it up to, by
``pad_rows``) and of every intersection, pairwise ones included, under pseudonyms that are made for this alignment
alone; nothing tells it the order of ids, or which row of one alignment is which of another under another
``random_state``. Who together could do more: a party and the coordinator learn which ids *of that party's list* each
other party has. All key holders and the coordinator can test guesses of anybody's ids; without one of them nobody can.

Where a job says ``matching="keyed"``, pseudonyms are made under a key that all parties have: a
thousandth of the work, and a party together with the coordinator can test guesses of everybody's ids. In both ways the
rows end in an order that the coordinator does not know (``shared_rows.py``).

Rows of an earlier job (``as_in``) are in every site's journal already. The parties then compare one digest of their
ids, under the common key: where all agree nothing is matched again.

*Under a common key*, which the coordinator has not, each party sends digests of its ids (SHA-512 under a key of 32
bytes, cut to 16: ``oprf.keyed_digests``) in an order of its own, and the coordinator compares the lists: a hash and 16
bytes an id, where the other way takes an exponentiation at each key holder (server-aided set intersection; Kamara,
Mohassel, Raykova, Sadeghian 2014). The key is made for this alignment alone, of a fresh part from each party, sealed
for the others (``shared_rows.py``): pseudonyms of two alignments have nothing in common.

Who learns what: exactly as in the other way, as long as the coordinator works with no party. To the coordinator alone
the pseudonyms are random; it learns the sizes of lists and intersections. A party sees nobody else's pseudonyms. **But
the coordinator together with one party can test guesses of every party's ids** (a telephone number is guessed in
minutes), where the other way takes all key holders and the coordinator. So a site has to allow this way
(``keyed_matching = true`` in its rules), and it is refused where a party runs the coordinator, deals or gets the
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated

from fedsift.core.arguments import AtMost, PartyName
from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import AlignmentError, DataError, OperationRefused, ParameterError, ReplyError
from fedsift.mpc import pairs, shared_rows
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.shared_rows import (
    PSEUDONYM_BYTES,
    VIEW,
    CommonKeys,
    Matched,
    Sent,
    agreed,
    exchanged,
    frozen,
    keep_known,
    keep_shared,
)
from fedsift.mpc.shared_rows import PSEUDONYM_BYTES as _SIZE

JOB = "alignment"  # what matching ids is called when it is put to the parties
CURVE, KEYED = "curve", "keyed"
MATCHING = (CURVE, KEYED)
_NOT_NEUTRAL = (
    'matching = "keyed" needs a coordinator that holds no rows: a party that has the key and sees the pseudonyms can '
    'test guesses of all ids. Write matching = "curve", or let an organisation without rows run it'
)


def check_keyed(fed: Federation, matching: str) -> None:
    """Refuse an unknown way, and this one where a party would see the pseudonyms. Sites refuse it there, too."""
    if matching not in MATCHING:
        raise ParameterError(f"matching must be one of {', '.join(map(repr, MATCHING))}; got {matching!r}")
    if matching == KEYED and not fed.neutral:
        raise ParameterError(f"{_NOT_NEUTRAL}; here {fed.run_by!r} runs it, deals or gets the results")


@operation(
    "align.keyed_ids",
    discloses="pseudonymous",
    about="pseudonyms of the own ids, under a key that the parties share and made for this alignment alone",
    learns="the other parties' parts of the common keys",
    reply=bytes,
    needs=("alignment",),
    after="align.seal_order",
    times=1,
    when=f"matching={KEYED}",
)
def keyed_ids(party: Party, *, boxes: dict[PartyName, SealedBox]) -> bytes:
    """The list of ids, in a random order, filled to the size that the job says."""
    if not party.job.neutral:
        raise OperationRefused(party.name, "keyed_ids", _NOT_NEUTRAL)
    key = CommonKeys.of(party, boxes).fresh
    _, words = Sent.drawn(party)
    return oprf.keyed_digests(words, key, PSEUDONYM_BYTES).tobytes()


_IDS = "blinded ids"
KEY_HOLDERS = 3
_CURVE = "matching=curve|unsaid"


@dataclass
class Blinding:
    """A party's secret exponent of one alignment, and for whom it was used."""

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
    when=_CURVE,
)
def blind_ids(party: Party) -> SealedBox | bytes:
    """For the first on the list's way; to the coordinator where there is no other party."""
    block, _ = agreed(party)
    _, words = Sent.drawn(party)
    blinding = party.keep(Blinding())
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
    when=_CURVE,
)
def blind_again(party: Party, *, owner: Annotated[str, AtMost(200)], box: SealedBox) -> SealedBox | bytes:
    """Raise a list on its way: once an owner, as many ids as the job says it has."""
    blinding = party.held(Blinding)
    block, sizes = agreed(party)
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
    when=_CURVE,
)
def unblind(party: Party, *, box: SealedBox) -> bytes:
    """Take the own blinding off the list that comes back from the last key holder."""
    blinding = party.held(Blinding)
    block, _ = agreed(party)
    if party.name not in _way(block, party.name):
        raise OperationRefused(party.name, "unblind", "a key holder's own list does not come back to it")
    points = _taken(party, block, party.name, len(party.held(Sent).order), box)
    return oprf.pseudonyms(oprf.multiply(points, blinding.key.inverse()), b"fedsift alignment", _SIZE)


def _taken(party: Party, block: list[str], owner: str, told: int, box: SealedBox) -> bytes:
    """The points of a list that comes from the one before on its way, in the size that its owner told."""
    way = _way(block, owner)
    hop = way.index(party.name)
    points = party.held(Pairs).open(box, sender=[owner, *way][hop], about=f"{_IDS} of {owner}", number=hop)
    most = oprf.POINT_BYTES * told
    fits = isinstance(points, bytes) and len(points) <= most and not len(points) % oprf.POINT_BYTES
    if not fits or (len(points) < most and not frozen(party)):
        raise OperationRefused(party.name, "blind_again", f"this is not the list of {owner!r} in the size that it told")
    return bytes(points)


def _passed_on(party: Party, block: list[str], owner: str, points: bytes) -> SealedBox | bytes:
    """Sealed for the next on the list's way; after the last the list is for the coordinator, as pseudonyms."""
    way = _way(block, owner)
    hop = 0 if owner == party.name else way.index(party.name) + 1
    if hop == len(way):
        return oprf.pseudonyms(points, b"fedsift alignment", _SIZE)
    return party.held(Pairs).seal(points, to=way[hop], about=f"{_IDS} of {owner}", number=hop)


OPERATIONS = (*pairs.OPERATIONS, *shared_rows.OPERATIONS, blind_ids, blind_again, unblind, keyed_ids)
#: With which of them a party's list goes out: one alignment more, to a site's journal.
LISTS = (blind_ids, keyed_ids)


def align(
    fed: Federation, *, min_overlap: int = 10, random_state: object = 0, as_in: str | None = None, matching: str = CURVE
) -> Federation:
    """A view of the federation in which row i is the same id at every party.

    ``as_in`` is an earlier job, by 12 digits or more of its hash: each party enters the rows that it used there.
    ``matching`` is ``"curve"``, or ``"keyed"``.
    """
    with _session(fed, [fed.parties], random_state, as_in, matching) as run:
        _align_block(run, fed.parties, min_overlap, as_in is not None, matching)
    return fed.named_view(VIEW)


def _align_block(run: Federation, names: list[str], min_overlap: int, known: bool, matching: str) -> None:
    """The conversation of one alignment, among parties that share rows."""
    meet_all(run, names)
    boxes = exchanged(run, names)
    if known:
        digests = run.ask(keep_known, to=names, each={name: {"boxes": boxes[name]} for name in names})
        if len(set(digests.values())) == 1:
            return
    lists = _keyed(run, names, boxes) if matching == KEYED else _raised(run, names)
    found = _matched(run, names, lists, min_overlap)
    each = {name: {"positions": found.positions(name), "boxes": boxes[name]} for name in names}
    run.ask(keep_shared, to=names, each=each)


def _matched(run: Federation, names: list[str], lists: Iterator[dict[str, bytes]], min_overlap: int) -> Matched:
    """What all lists share; where too few ids are left, no further list is asked for."""
    found, sizes = Matched(), run.sizes()
    for some in lists:
        for owner, listed in some.items():
            found.meet(owner, listed)
        if found.n_shared < min_overlap:
            told = {owner: sizes[owner].rows for owner in found.parties}
            raise AlignmentError(found.too_few(told, min_overlap, names))
    return found


def _keyed(run: Federation, names: list[str], boxes: dict[str, dict[str, SealedBox]]) -> Iterator[dict[str, bytes]]:
    """Lists under the common key, some at a time."""
    passes = _passes(run, names)
    for done, owners in enumerate(passes):
        run.progress(done, len(passes), "lists of ids")
        yield run.ask(keyed_ids, to=owners, each={name: {"boxes": boxes[name]} for name in owners})


def _raised(run: Federation, names: list[str]) -> Iterator[dict[str, bytes]]:
    """Lists that have been to all key holders, some at a time."""
    done, passes = 0, _passes(run, names)
    steps = [1 + len(_way(names, owners[-1])) for owners in passes]
    for owners, here in zip(passes, steps):
        yield _pseudonyms(run, names, owners, done, sum(steps))
        done += here


def _session(
    fed: Federation, blocks: list[list[str]], random_state: object, as_in: str | None, matching: str
) -> AbstractContextManager[Federation]:
    """Alignment is a job like any other: who takes part and how long each list is, is agreed before it starts.

    How many columns each has is told too: a site reckons from it how much a later answer can tell.
    """
    check_keyed(fed, matching)
    rows = {name: size.rows for name, size in fed.sizes().items()}
    told = {"blocks": blocks, "rows": rows, "columns": fed.n_columns, "random_state": random_state,
            "matching": matching, **({} if as_in is None else {"as_in": as_in})}  # fmt: skip
    return fed.session(JOB, told)


def _passes(run: Federation, names: list[str]) -> list[list[str]]:
    """Whose lists are on their way together: the key holders' first, then three at a time, the smallest first."""
    sizes = run.sizes()
    others = sorted(names[KEY_HOLDERS:], key=lambda name: sizes[name].rows)
    return [names[:KEY_HOLDERS], *(others[at : at + KEY_HOLDERS] for at in range(0, len(others), KEY_HOLDERS))]


def _pseudonyms(run: Federation, names: list[str], owners: list[str], done: int, of: int) -> dict[str, bytes]:
    """The pseudonyms of some parties' ids, after their lists have gone all the way."""
    run.progress(done, of, "pass over the ids")
    lists: dict[str, SealedBox | bytes] = {**run.ask(blind_ids, to=owners)}
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
    found = {}
    for owner, data in lists.items():
        if not isinstance(data, bytes) or len(data) % _SIZE:
            raise ReplyError([owner, *ways[owner]][-1], "blind_again", "it passed a list on that has been everywhere")
        found[owner] = data
    return found


def aligned(
    fed: Federation, *, by_id: bool, min_overlap: int, random_state: object = 0, as_in: str | None = None,
    matching: str = CURVE,
) -> Federation:  # fmt: skip
    """The federation with its rows in the same order wherever parties share rows, whatever its partition."""
    if as_in is not None and (fed.partition == "horizontal" or not by_id):
        raise ParameterError("the rows of an earlier job are found by ids, where parties share rows")
    if fed.partition == "horizontal":
        return fed
    blocks = Grid.of(fed).rows if fed.partition == "hybrid" else [fed.parties]
    if not by_id:
        for block in blocks:
            _check_same_length(fed, block)
        return fed
    with _session(fed, blocks, random_state, as_in, matching) as run:
        for block in blocks:
            _align_block(run, block, min_overlap, as_in is not None, matching)
    return fed.named_view(VIEW)


def _check_same_length(fed: Federation, names: list[str]) -> None:
    sizes = fed.sizes()
    rows = {name: sizes[name].rows for name in names}
    if len(set(rows.values())) > 1:
        raise DataError(
            "without an id column the tables of parties that share rows must have the same number of rows in the same "
            f"order; got {rows}"
        )
