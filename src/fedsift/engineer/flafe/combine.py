"""Products of two parties' columns, computed under encryption; one of the two parties reads the result.

For a pair of columns a (party P) and b (party Q) one of the two parties is the *holder* of the combination, say P. P
encrypts a, and a^2, under its own CKKS key; the coordinator passes the ciphertexts on to Q, who multiplies them by what
it has in the clear (a*b, a*b^2, a^2*b, a^2*b^2), adds noise while all is encrypted, and sends the result back; P
decrypts it. Many short columns share a ciphertext; long ones take several. A slot holds a complex number: b + i b^2 is
one factor, and a*b and a*b^2 come back as the two parts of one product.

Why it is secure (semi-honest):
- The coordinator has public keys only. Under ring-LWE what passes through its hands is noise to it: P's columns, and
  products that a fresh encryption of zero makes unlinkable to them (`CkksVector.blind`; without it the quotient of two
  ciphertexts would be Q's column). In the paper all parties share one secret key and the server multiplies: there a
  server that works together with any party reads every column. Here it reads what that party reads anyway.
- Q sees ciphertexts under P's key, and nothing decrypted. Every party has a key of its own for each run, and vouches
  for it in sealed notes: a key of the coordinator's own in its place is refused (`mpc/pairs.py`).
- The holder knows its own column and its key. What it decrypts is the product with the noise on it. Without noise that
  tells the other column wherever its own is not 0: this is the method (and the paper's "no DP"), not a fault of the
  encryption. With noise, the scheme's own error would still tell about the operands, so the ciphertext is flooded
  before it leaves; without noise it is only blinded against the coordinator.
- Noise comes from the operating system, is drawn once for a released column by the party whose column it protects, and
  is added before the holder sees anything. Its scale follows from the job that this party has accepted
  (`NoisyColumns`), never from a request, and no more columns are made than it was planned for.
- Bounds that travel are public: BOUND and its powers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fedsift.core.federation import Federation
from fedsift.crypto.ckks.keys import CkksPublicKey
from fedsift.crypto.ckks.vector import CkksCiphertexts
from fedsift.engineer.flafe.features import (
    BOUND,
    FUNCTIONS,
    Pair,
    Product,
    column_blocks,
    other_column,
    own_column,
    plan_products,
    plan_steps,
    shown_of,
)
from fedsift.engineer.flafe.products import (
    FLOOD_BITS,
    NOISE_REACH,
    encrypt_columns,
    multiply_columns,
    multiply_noisy,
    offer_combination_key,
    open_combinations,
    show_columns,
    take_combinations,
)
from fedsift.errors import ParameterError, ReplyError
from fedsift.mpc import pairs

_BATCH = 96  # ciphertexts in a message, about; at most one for each pair of operands and function


@dataclass(frozen=True)
class Offered:
    """A holder's key, and its notes for the others."""

    key: CkksPublicKey
    notes: dict[str, bytes]


def combine_columns(
    fed: Federation, pairs: Sequence[Pair], functions: Sequence[str], scales: dict[str, float], *, rows: int,
    open: bool = False,
) -> dict[str, list[tuple[Pair, str]]]:  # fmt: skip
    """Let every holder get the combinations of its pairs; returns which they are, in the order it has them.

    Parties must have kept their ``Operands``, and ``NoisyColumns`` where ``scales`` are not empty: they say how large
    the ciphertexts must be. ``open`` is for research: the coordinator multiplies in the clear.
    """
    unknown = [name for name in functions if name not in FUNCTIONS]
    if unknown or not functions:
        raise ParameterError(f"functions must be from {', '.join(FUNCTIONS)}; got {list(functions)!r}")
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.holder), []).append(pair)
    held: dict[str, list[tuple[Pair, str]]] = {}
    for (_, _, holder), members in groups.items():
        held.setdefault(holder, []).extend((pair, name) for name in functions for pair in members)
    if open:
        _combine_openly(fed, groups, functions, rows)
        return held
    publics = _exchange_keys(fed, {name for group in groups for name in group}, held, scales)
    place = {holder: {item: number for number, item in enumerate(items)} for holder, items in held.items()}
    for holder in fed.track(held, "holder"):
        mine = {group: members for group, members in groups.items() if group[2] == holder}
        _combine_for(fed, publics[holder], holder, mine, functions, scales, rows, place[holder])
    return held


def _combine_for(
    fed: Federation, offered: Offered, holder: str, groups: dict[tuple[str, str, str], list[Pair]],
    functions: Sequence[str], scales: dict[str, float], rows: int, place: dict[tuple[Pair, str], int],
) -> None:  # fmt: skip
    """All that one party will hold. Its columns are encrypted once and go to each party that it has pairs with."""
    slots = offered.key.parameters.slots
    chunks, together = math.ceil(rows / slots), max(1, slots // rows)
    blocks = column_blocks(sorted({own_column(pair) for members in groups.values() for pair in members}), together)
    plans = {group: plan_products(members, blocks) for group, members in groups.items()}
    powers = sorted({FUNCTIONS[name][group[1] == holder] for name in functions for group in groups})
    size = max(1, _BATCH // (chunks * len(powers)))  # vectors, for all powers, in a message
    used = sorted({block for plan in plans.values() for block, _ in plan})
    for start in range(0, len(used), size):
        here = used[start : start + size]
        sent = fed.ask(encrypt_columns, to=holder, blocks=[blocks[block] for block in here], powers=powers)
        if len(sent) != len(here):
            raise ReplyError(holder, "encrypt_columns", "another number of vectors than was asked for")
        operands = dict(zip(here, sent))
        for group, plan in plans.items():
            mine = [item for item in plan if item[0] in operands]
            for at in range(0, len(mine), size):
                _combine_batch(fed, offered, group, mine[at : at + size], operands, powers, functions, scales, place)


def _combine_batch(
    fed: Federation, offered: Offered, group: tuple[str, str, str], batch: list[tuple[int, dict[int, Pair]]],
    operands: dict[int, CkksCiphertexts], powers: list[int], functions: Sequence[str], scales: dict[str, float],
    place: dict[tuple[Pair, str], int],
) -> None:  # fmt: skip
    first, second, holder = group
    steps = plan_steps(functions, powers, second == holder)
    sent = sorted({block for block, _ in batch})
    products = [
        Product(sent.index(block), list(filled), [other_column(pair) for pair in filled.values()])
        for block, filled in batch
    ]
    other = first if second == holder else second
    combined = fed.ask(
        multiply_noisy if scales else multiply_columns, to=other, holder=holder, key=offered.key.to_bytes(),
        note=offered.notes.get(other, b""),
        operands=[operands[block] for block in sent], products=[asdict(product) for product in products],
        steps=[asdict(step) for step in steps],
    )  # fmt: skip
    places = [[[place[pair, name] for _, filled in batch for pair in filled.values()] for name in step.functions]
              for step in steps]  # fmt: skip
    slots = [list(filled) for _, filled in batch]
    fed.ask(open_combinations, to=holder, combined=combined, slots=slots, places=places, noisy=bool(scales))


def key_size(scales: dict[str, float]) -> tuple[int, int]:
    """Bits of precision and of magnitude: room for the noise, and flooding that stays small beside it."""
    if not scales:
        return 30, 11
    largest = BOUND**4 + NOISE_REACH * max(scales.values())
    # Flooding widens the error by about 2^(flood + 10); a tenth of the smallest noise is what it may become.
    precision = math.ceil(math.log2(BOUND**4) + FLOOD_BITS + 10 + math.log2(10) - math.log2(min(scales.values())))
    return min(41, max(20, precision)), max(12, math.ceil(math.log2(largest)) + 2)


def _exchange_keys(
    fed: Federation, names: set[str], held: dict[str, list[tuple[Pair, str]]], scales: dict[str, float]
) -> dict[str, Offered]:
    members = [name for name in fed.parties if name in names]
    if not members:
        return {}
    pairs.meet_all(fed, members, pairs.CIRCLE)
    precision, magnitude = key_size(scales)
    each = {name: {"columns": len(held.get(name, []))} for name in members}
    sent = fed.ask(offer_combination_key, to=members, each=each, precision_bits=precision, magnitude_bits=magnitude)
    return {name: Offered(CkksPublicKey.from_bytes(told.key), told.notes) for name, told in sent.items()}


def _combine_openly(
    fed: Federation, groups: dict[tuple[str, str, str], list[Pair]], functions: Sequence[str], rows: int
) -> None:  # fmt: skip
    """For research: columns in the clear."""
    fed.ledger.note("protection='open': the coordinator saw the parties' columns in the clear")
    names = {name for group in groups for name in group}
    shown = fed.ask(show_columns, to=[name for name in fed.parties if name in names])
    for (first, second, holder), members in groups.items():
        left = shown_of(first, shown[first], rows, [m.i for m in members])
        right = shown_of(second, shown[second], rows, [m.j for m in members])
        for function in functions:
            p, q = FUNCTIONS[function]
            fed.ask(take_combinations, to=holder, columns=left**p * right**q)
