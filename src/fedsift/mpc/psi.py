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
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.errors import AlignmentError, DataError

_SIZE = 16  # bytes of a pseudonym: two different ids of 10^6 meet with probability below 2^-88


@operation(
    "align.blind_ids",
    discloses="pseudonymous",
    about="ids, blinded by a secret exponent and shuffled",
    reply=bytes,
    needs=("alignment",),
)
def blind_ids(party: Party) -> bytes:
    party.state["key"] = oprf.OprfKey.generate()
    order = np.random.default_rng(secrets.randbits(128)).permutation(party.n_rows)
    party.state["order"] = order
    ids = party.table.ids
    points = oprf.hash_to_group([str(ids[row]).encode() for row in order])
    return oprf.multiply(points, party.state["key"])


@operation(
    "align.blind_again",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="another party's blinded ids, blinded once more",
    reply=bytes,
    needs=("alignment",),
)
def blind_again(party: Party, *, points: bytes, last: bool) -> bytes:
    raised = oprf.multiply(points, party.state["key"])
    return oprf.pseudonyms(raised, b"fedsift alignment", _SIZE) if last else raised


@operation(
    "align.keep_shared", discloses="control", about="acknowledgement", learns="which of its own rows all parties share"
)
def keep_shared(party: Party, *, positions: Any, view: str) -> None:
    party.site.views[view] = (party.state["order"][positions], None)


def align(fed: Federation, *, min_overlap: int = 10) -> Federation:
    """A view of the federation in which row i is the same id at every party."""
    names = fed.parties
    with fed.session() as run:
        run.progress(0, len(names), "pass over the ids")
        lists = run.ask(blind_ids, to=names)
        for step in range(1, len(names)):
            run.progress(step, len(names), "pass over the ids")
            last = step == len(names) - 1
            # After `step` hops the list of names[i] is with names[i + step].
            holder = {names[(i + step) % len(names)]: names[i] for i in range(len(names))}
            raised = run.ask(
                blind_again, to=names, each={who: {"points": lists[owner]} for who, owner in holder.items()}, last=last
            )
            lists = {owner: raised[who] for who, owner in holder.items()}
        if len(names) == 1:
            lists = {names[0]: oprf.pseudonyms(lists[names[0]], b"fedsift alignment", _SIZE)}
        found = {
            name: {data[i : i + _SIZE]: i // _SIZE for i in range(0, len(data), _SIZE)} for name, data in lists.items()
        }
        shared = sorted(set.intersection(*(set(index) for index in found.values())))
        if len(shared) < min_overlap:
            raise AlignmentError(_too_few(found, len(shared), min_overlap))
        each = {
            name: {"positions": np.array([found[name][pseudonym] for pseudonym in shared], dtype=np.int64)}
            for name in names
        }
        run.ask(keep_shared, to=names, each=each, view="aligned")
    return fed.named_view("aligned")


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
        fed._check_same_length()
    return fed


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
    with fed.session() as run:
        for block in blocks:
            _align_block(run, block, min_overlap)
    return fed.named_view("aligned")


def _align_block(run: Federation, block: list[str], min_overlap: int) -> None:
    lists = run.ask(blind_ids, to=block)
    for step in range(1, len(block)):
        holder = {block[(i + step) % len(block)]: block[i] for i in range(len(block))}
        each = {who: {"points": lists[owner]} for who, owner in holder.items()}
        raised = run.ask(blind_again, to=block, each=each, last=step == len(block) - 1)
        lists = {owner: raised[who] for who, owner in holder.items()}
    if len(block) == 1:
        lists = {block[0]: oprf.pseudonyms(lists[block[0]], b"fedsift alignment", _SIZE)}
    found = {
        name: {data[i : i + _SIZE]: i // _SIZE for i in range(0, len(data), _SIZE)} for name, data in lists.items()
    }
    shared = sorted(set.intersection(*(set(index) for index in found.values())))
    if len(shared) < min_overlap:
        raise AlignmentError(
            f"only {len(shared)} ids are shared by {', '.join(block)}, which are told to share rows (fewer than "
            f"min_overlap={min_overlap}): is the grid right, and are ids written the same way?"
        )
    each = {name: {"positions": np.array([index[p] for p in shared], dtype=np.int64)} for name, index in found.items()}
    run.ask(keep_shared, to=block, each=each, view="aligned")
