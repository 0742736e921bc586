"""The rows of an alignment: with whom a party shares which, what it sends, and which it keeps in which order.

The same for both ways of matching ids (``psi.py``). Shared rows are ordered by a PRF of the id under
a key that the parties share and the coordinator does not know: every party adds a part, HMAC(its site's secret,
parties, random_state), sealed for the others. The same parties and ``random_state`` give the same order in every run;
to the coordinator it is a random one. A second part, for pseudonyms, is fresh in each alignment.

``Matched`` is the coordinator's side: lists of pseudonyms come one after the other, what all have is left. No list is
kept: of each only the places of what is still shared.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsift.core.arguments import MAX_INT, PartyName
from fedsift.core.federation import Federation
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.mpc.pairs import Pairs

PSEUDONYM_BYTES = 16  # two different ids of 10^6 meet with probability below 2^-88


class Matched:
    """The pseudonyms that all lists so far share, and where they stand in each."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}  # how many are shared after each party's list
        self._frame = pl.DataFrame()

    @property
    def parties(self) -> list[str]:
        return list(self.left)

    @property
    def n_shared(self) -> int:
        return self._frame.height

    def meet(self, owner: str, listed: bytes) -> None:
        """Leave what this list has, too; the first list begins. A pseudonym stands in a list once: one that two lists
        had n times each would be n^2 pairs."""
        if len(listed) % PSEUDONYM_BYTES:
            raise ReplyError(owner, "match", "its list of ids was cut short")
        halves = np.frombuffer(listed, "<u8").reshape(-1, 2)
        new = pl.DataFrame({"high": halves[:, 0], "low": halves[:, 1], f"at {owner}": np.arange(len(halves))})
        if new.select("high", "low").n_unique() != len(new):
            raise ReplyError(owner, "match", "its list has an id twice")
        self._frame = self._frame.join(new, on=["high", "low"], how="inner") if self.left else new
        self.left[owner] = self._frame.height

    def positions(self, owner: str) -> NDArray[np.int64]:
        """Where the shared ids stand in a party's list, in the order of the list: any other would tell something."""
        return np.sort(self._frame[f"at {owner}"].to_numpy().astype(np.int64))

    def too_few(self, rows: dict[str, int], wanted: int, among: list[str]) -> str:
        """What is wrong, for the person who started the job."""
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        left = ", ".join(f"{name} {count:,}" for name, count in self.left.items())
        whom = (
            ", ".join(among) if len(self.left) == len(among) else f"the first {len(self.left)} of {len(among)} parties"
        )
        return (
            f"only {self.n_shared} ids are shared by {whom}, fewer than min_overlap={wanted} (rows: {told}; left after "
            f"each: {left}): are the ids written the same way everywhere (spaces, leading zeros, case), and do these "
            "parties share rows?"
        )


VIEW = "aligned"
_KEYS, _PART = "row order", 32


@dataclass(frozen=True)
class Sent:
    """The order in which a party's ids went out, by their rows; from the table's last row on nobody has them."""

    order: np.ndarray = field(repr=False)

    @classmethod
    def drawn(cls, party: Party) -> tuple[Sent, list[bytes]]:
        """A random order of the rows that take part, and their ids in it; random words fill up to the size told."""
        _, sizes = agreed(party)  # this party's own is the size that it told
        rows, ids, own = own_rows(party), party.table.ids, party.n_rows
        filled = 0 if frozen(party) else max(0, sizes[party.name] - len(rows))
        everything = np.concatenate([rows, own + np.arange(filled)])
        order = np.random.default_rng(secrets.randbits(128)).permutation(everything)
        words, real = np.empty(len(order), dtype=object), order < own
        words[real] = list(map(str.encode, ids[order[real]].tolist()))
        words[~real] = [secrets.token_bytes(32) for _ in range(filled)]
        return party.keep(cls(order)), words.tolist()


def frozen(party: Party) -> str:
    """The earlier job whose rows are to be used again, if any."""
    told = party.job.parameters.get("as_in")
    return told if isinstance(told, str) else ""


def own_rows(party: Party) -> np.ndarray:
    """The rows that take part: all, or those of an earlier job, which this site knows by its journal."""
    job = frozen(party)
    if not job:
        return np.arange(party.n_rows)
    if party.site.rows_of_job is None:
        raise OperationRefused(party.name, "blind_ids", "it keeps no journal of earlier jobs")
    return party.site.rows_of_job(job, party.job.parties)


def agreed(party: Party) -> tuple[list[str], dict[str, int]]:
    """The parties that share rows with this one and how many rows each has, as the job says."""
    blocks, rows = party.job.parameters.get("blocks"), party.job.parameters.get("rows")
    if isinstance(blocks, list) and isinstance(rows, dict):
        block = next((block for block in blocks if isinstance(block, list) and party.name in block), [])
        known = all(isinstance(name, str) and name in party.job.parties for name in block)
        told = known and all(type(rows.get(name)) is int and 0 <= rows[name] <= MAX_INT for name in block)
        if block and told and len(set(block)) == len(block):
            if rows[party.name] != party.site.told_rows:
                raise OperationRefused(party.name, "blind_ids", "the job says another number of its rows than it told")
            return block, rows
    raise OperationRefused(party.name, "blind_ids", "the job does not say with whom this party shares which rows")


def met_block(party: Party) -> Pairs:
    """The peers that this party has met: those with whom it shares rows, all of them and nobody else.

    Whoever has the common keys can, together with the coordinator, say which row is whose."""
    met, (block, _) = party.held(Pairs), agreed(party)
    if {party.name, *met.peers} != set(block):
        raise SecurityError(f"party {party.name!r} shares rows with others than those that it has met")
    return met


@dataclass(frozen=True)
class KeyParts:
    """What this party adds to the keys of the row order and of this alignment's pseudonyms."""

    parts: bytes = field(repr=False)


@dataclass(frozen=True)
class CommonKeys:
    """What all parties have and the coordinator has not: the key of the row order, and one for this alignment alone."""

    order: bytes = field(repr=False)
    fresh: bytes = field(repr=False)

    @classmethod
    def of(cls, party: Party, boxes: dict[PartyName, SealedBox]) -> CommonKeys:
        """Out of all parties' parts. A box opens once; the keys are then kept."""
        if cls in party.state:
            return party.held(cls)
        met = met_block(party)
        if set(boxes) != set(met.peers):
            raise SecurityError(f"party {party.name!r}: every other party adds to the common keys, once")
        parts = {name: met.open(box, sender=name, about=_KEYS, number=0) for name, box in boxes.items()}
        wrong = next(
            (name for name, each in parts.items() if not isinstance(each, bytes) or len(each) != 2 * _PART), ""
        )
        if wrong:
            raise SecurityError(f"party {party.name!r}: {wrong!r} sent no part of the common keys")
        parts[party.name] = party.held(KeyParts).parts
        ordered = [parts[name] for name in sorted(parts)]
        told = (
            frame(b"fedsift row order", *(each[:_PART] for each in ordered)),
            frame(b"fedsift keyed ids", *(each[_PART:] for each in ordered)),
        )
        return party.keep(cls(*(hashlib.sha256(each).digest() for each in told)))


@operation(
    "align.seal_order",
    discloses="control",
    about="this party's parts of the keys of row order and pseudonyms, sealed for each other party",
    reply=ByName(SealedBox),
    after="pairs.meet",
    times=1,
)
def seal_order(party: Party) -> dict[str, SealedBox]:
    met = met_block(party)
    told = json.dumps(["row order", sorted([*met.peers, party.name]), party.job.random_state])
    parts = hmac.new(party.site.secret, told.encode(), hashlib.sha256).digest() + secrets.token_bytes(_PART)
    party.keep(KeyParts(parts))
    return {name: met.seal(parts, to=name, about=_KEYS, number=0) for name in met.peers}


@operation(
    "align.keep_known",
    discloses="control",
    about="a digest of the ids of an earlier job's rows, under a key that only the parties know",
    learns="the other parties' parts of the common keys",
    reply=bytes,
    after="align.seal_order",
    times=1,
)
def keep_known(party: Party, *, boxes: dict[PartyName, SealedBox]) -> bytes:
    """Keep the rows of the earlier job that the alignment names, and tell whether they are the others' too."""
    if not frozen(party):
        raise OperationRefused(party.name, "keep_known", "this alignment names no earlier job")
    rows, places = _ordered(party, own_rows(party), boxes)
    party.site.views[VIEW] = (rows, None)
    return hashlib.sha512(b"fedsift known rows" + places.tobytes()).digest()[:PSEUDONYM_BYTES]


@operation(
    "align.keep_shared",
    discloses="control",
    about="acknowledgement",
    learns="which of its own rows all parties share",
    after="align.seal_order",
    times=1,
)
def keep_shared(party: Party, *, positions: NDArray[np.int64], boxes: dict[PartyName, SealedBox]) -> None:
    """Keep the shared rows, in the order of a PRF of their ids under the parties' common key."""
    rows = party.held(Sent).order
    if positions.ndim != 1 or len(np.unique(positions)) != len(positions):
        raise OperationRefused(party.name, "keep_shared", "a row is named twice")
    if len(positions) and not 0 <= positions.min() <= positions.max() < len(rows):
        raise OperationRefused(party.name, "keep_shared", "row positions out of range")
    if (rows[positions] >= party.n_rows).any():
        raise OperationRefused(party.name, "keep_shared", "one of these rows fills the list and is nobody's")
    party.site.views[VIEW] = (_ordered(party, rows[positions], boxes)[0], None)


def _ordered(party: Party, rows: np.ndarray, boxes: dict[PartyName, SealedBox]) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their PRF, and its values in that order."""
    key = CommonKeys.of(party, boxes).order
    ids = party.table.ids
    places = oprf.keyed_digests(list(map(str.encode, ids[rows].tolist())), key, PSEUDONYM_BYTES)
    high, low = places.view(">u8").T
    order = np.lexsort((low, high))
    return rows[order], places[order]


OPERATIONS = (seal_order, keep_known, keep_shared)


def exchanged(run: Federation, names: list[str]) -> dict[str, dict[str, SealedBox]]:
    """Each party's boxes with the others' parts of the key of the row order."""
    sealed = run.ask(seal_order, to=names)
    others = {name: [other for other in names if other != name] for name in names}
    return {name: {other: sealed[other][name] for other in others[name] if name in sealed[other]} for name in names}
