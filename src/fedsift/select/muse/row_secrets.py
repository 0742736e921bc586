"""Row secrets of MUSE: what orders the rows alike at all parties, and what every two parties share.

Every party turns its ids into secrets by an oblivious pseudorandom function (``crypto/oprf.py``): ids go out blinded,
the holders of the key raise them, the party takes its blind off. Lists of many rows are raised in blocks, and no more
lists are on their way together than fit some blocks. A holder raises of each party no more ids than there are rows.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator

import numpy as np

from fedsift.core.arguments import PartyName
from fedsift.core.federation import Federation
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import frame
from fedsift.errors import AlignmentError, OperationRefused, ReplyError
from fedsift.mpc.pairs import circle_of, meet_all
from fedsift.select.muse.state import Blinded, Factor, Matching, Raised

CIRCLE, FACTOR = "muse", "muse factor"
_BLOCK_BYTES = 60_000_000  # of blinded ids in one request; a whole number of them
_HELD_BLOCKS = 8  # of blinded ids, that are on their way together
MAX_BLOCKS = 1000


@operation(
    "muse.matching_keys", when="epsilon=none", discloses="control",
    about="a random number that names the party's secret factor", reply=str, times=1,
)  # fmt: skip
def matching_keys(party: Party) -> str:
    factor: Factor = party.keys.setdefault(FACTOR, Factor(secrets.token_hex(8), oprf.OprfKey.generate()))
    return factor.name


def _known_rows(party: Party, factors: list[str]) -> dict[str, bytes]:
    """Row secrets from earlier runs under the same factors, by id. They never leave the site."""
    known: dict[str, bytes] = party.keys.setdefault("muse rows", {}).setdefault(tuple(factors), {})
    return known


@operation(
    "muse.blind_rows",
    when="epsilon=none",
    discloses="masked",
    about="ids of rows not yet matched, each blinded by a secret exponent",
    opened="nobody",
    reply=bytes,
    after="muse.matching_keys",
    times=1,
)
def blind_rows(party: Party, *, factors: list[str]) -> bytes:
    known = _known_rows(party, factors)
    seen = ("muse rows", *factors) in party._cache
    fresh = [] if seen else [each for each in party.table.ids if each not in known]
    secret, blinded = oprf.blind([each.encode() for each in fresh])
    party.keep(Blinded(fresh, secret))
    return blinded


@operation(
    "muse.raise_rows", when="epsilon=none", discloses="masked", receives="masked",
    about="blinded ids, raised to this party's secret factor", opened="nobody", reply=ByName(bytes),
    after="muse.matching_keys", times=MAX_BLOCKS,
)  # fmt: skip
def raise_rows(party: Party, *, lists: dict[PartyName, bytes]) -> dict[str, bytes]:
    """Blocks of the parties' lists, of each party no more ids than there are rows."""
    raised: Raised = party.run.kept.setdefault(Raised, Raised())
    for name, points in lists.items():
        raised.ids[name] = raised.ids.get(name, 0) + -(-len(points) // oprf.POINT_BYTES)
        if raised.ids[name] > party.site.table.n_rows:
            raise OperationRefused(party.name, "raise_rows", f"more ids of {name!r} than there are rows")
    return {name: oprf.evaluate(party.keys[FACTOR].key, points) for name, points in lists.items()}


@operation(
    "muse.number_rows",
    when="epsilon=none",
    discloses="pseudonymous",
    receives="masked",
    about="a check value of the set of row secrets, equal at all parties that hold the same rows",
    reply=bytes,
    after="muse.blind_rows",
    times=1,
)
def number_rows(party: Party, *, points: bytes, factors: list[str]) -> bytes:
    """Finish the row secrets, order the rows by them, and derive the secrets shared with each other party."""
    met = circle_of(party, CIRCLE)
    order, digest = _row_order(party, points, factors)
    # A handshake gives a pair's secret once: asking again cannot bring back the orders of an earlier batch.
    seeds = {name: met.secret(name, "muse pair", digest) for name in met.peers}
    party.keep(Matching(order, seeds, dict.fromkeys(seeds, 0)))
    return hashlib.sha256(frame(b"fedsift same rows", digest)).digest()[:16]


def _row_order(party: Party, points: bytes, factors: list[str]) -> tuple[np.ndarray, bytes]:
    """Positions of this view's rows in the order of their secrets, and a digest of those secrets."""
    known = _known_rows(party, factors)
    blinded = party.held(Blinded)
    party.state.pop(Blinded)  # one answer to one list
    outputs = oprf.finalize([each.encode() for each in blinded.ids], blinded.secret, points)
    size = oprf.OUTPUT_BYTES
    known.update({each: outputs[i * size : i * size + 32] for i, each in enumerate(blinded.ids)})

    def ordered() -> tuple[np.ndarray, bytes]:
        row_secrets = [known[each] for each in party.table.ids]
        order = np.array(sorted(range(len(row_secrets)), key=row_secrets.__getitem__), dtype=np.int64)
        return order, hashlib.sha256(b"".join(sorted(row_secrets))).digest()

    return party.cached(("muse rows", *factors), ordered)


OPERATIONS = (matching_keys, blind_rows, raise_rows, number_rows)


# --- the coordinator's side -------------------------------------------------------------------------------------------


def agree(fed: Federation, keys: str) -> None:
    """Row secrets, once for rows that were never matched before, and pair secrets for this run."""
    holders = [fed.active, *fed.passive[:1]][: 2 if keys == "two" else 1]
    meet_all(fed, circle=CIRCLE)
    given = fed.ask(matching_keys, to=fed.parties)
    factors = [given[name] for name in holders]
    checks: dict[str, bytes] = {}
    together = max(1, _HELD_BLOCKS * _BLOCK_BYTES // (oprf.POINT_BYTES * max(1, fed.n_rows)))
    for at in range(0, len(fed.parties), together):
        some = fed.parties[at : at + together]
        lists = fed.ask(blind_rows, to=some, factors=factors)
        for holder in holders if any(lists.values()) else []:
            lists = _raised(fed, holder, lists)
        each = {name: {"points": lists[name]} for name in some}
        checks |= fed.ask(number_rows, to=some, each=each, factors=factors)
    odd = [name for name in fed.parties if checks[name] != checks[fed.parties[0]]]
    if odd:
        raise AlignmentError(
            f"parties {fed.parties[0]!r} and {odd[0]!r} do not hold the same rows; align the federation first "
            "(Federation.from_tables with id=...)"
        )


def _raised(fed: Federation, holder: str, lists: dict[str, bytes]) -> dict[str, bytes]:
    """Lists of blinded ids, raised by one holder of the key, in blocks."""
    found: dict[str, list[bytes]] = {name: [] for name in lists}
    for block in _blocks(lists):
        raised = fed.ask(raise_rows, to=holder, lists=block)
        if {name: len(points) for name, points in raised.items()} != {n: len(p) for n, p in block.items()}:
            raise ReplyError(holder, "raise_rows", "it did not raise the list of every party")
        for name, points in raised.items():
            found[name].append(points)
    return {name: b"".join(parts) for name, parts in found.items()}


def _blocks(lists: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    """The lists in messages that are not too large: short ones together, long ones in several."""
    block: dict[str, bytes] = {}
    for name, points in lists.items():
        for at in range(0, max(1, len(points)), _BLOCK_BYTES):
            part = points[at : at + _BLOCK_BYTES]
            if block and sum(map(len, block.values())) + len(part) > _BLOCK_BYTES:
                yield block
                block = {}
            block[name] = part
    yield block
