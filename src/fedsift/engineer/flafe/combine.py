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

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import PartyName
from fedsift.core.checks import check_size
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.ckks.keys import CkksPublicKey, CkksSecretKey
from fedsift.crypto.ckks.vector import CkksCiphertexts, CkksVector
from fedsift.crypto.dp import gaussian_noise
from fedsift.engineer.flafe.features import (
    BOUND,
    FUNCTIONS,
    Count,
    Pair,
    Powers,
    Product,
    Step,
    check_combined,
    check_places,
    column_blocks,
    other_column,
    own_column,
    plan_products,
    plan_steps,
    read_record,
    shown_of,
)
from fedsift.errors import ParameterError, ReplyError, SecurityError
from fedsift.mpc import pairs

_KEY, _FLOOD_BITS = "key of combinations", 20
_NOISE_REACH = 12.0  # Gaussian noise is beyond 12 deviations with probability 4e-33
_DECIMALS = 6  # of a product without noise: far above the scheme's error, so that equal products stay equal
_BATCH = 96  # ciphertexts in a message, about; at most one for each pair of operands and function:
_MESSAGES = "4 x n_operands or 200 x n_operands or 200 x parties or 50"


@dataclass
class Operands:
    """A party's columns (rows x columns, within BOUND, none missing) for combinations with other parties' columns."""

    columns: np.ndarray


@dataclass
class Combined:
    """The combined columns that a party holds, in the order of the plan; None until they have come."""

    columns: list[np.ndarray | None]

    def matrix(self, rows: int) -> np.ndarray:
        """Side by side."""
        there = [column for column in self.columns if column is not None]
        return np.column_stack(there) if there else np.empty((rows, 0))


@dataclass
class NoisyColumns:
    """Under an epsilon: the noise by function, and how many columns this party may still make with it."""

    scales: dict[str, float]
    planned: int
    left: int

    def take(self, columns: int, party: str) -> None:
        """Count columns off, or refuse."""
        self.left -= columns
        if self.left < 0:
            raise SecurityError(f"party {party!r}: more combined columns were asked for than its noise was planned for")


@dataclass(frozen=True)
class CombinationKey:
    """A party's own key of this run."""

    secret: CkksSecretKey


# --- a party's side --------------------------------------------------------------------------------------------------


@message
@dataclass(frozen=True)
class OfferedKey:
    """A holder's public key, and a note for each peer that vouches for it."""

    key: bytes
    notes: dict[PartyName, bytes]


@operation(
    "flafe.offer_combination_key", when="protection=columns", times=4, discloses="control",
    about="public key for combinations that this party will hold", reply=OfferedKey,
)  # fmt: skip
def offer_combination_key(party: Party, *, precision_bits: int, magnitude_bits: int, columns: Count) -> OfferedKey:
    """``columns`` is how many combined columns will come."""
    key = CkksSecretKey.generate(1, precision_bits, magnitude_bits=magnitude_bits)
    party.keep(CombinationKey(key))
    party.keep(Combined([None] * columns))
    public = key.public.to_bytes()
    return OfferedKey(public, pairs.vouch(party, _KEY, public))


@operation(
    "flafe.encrypt_columns",
    when="protection=columns",
    times=_MESSAGES,
    discloses="ciphertext",
    about="standardised, clipped columns and their squares, encrypted under the party's own key",
    reply=[CkksCiphertexts],
)
def encrypt_columns(party: Party, *, blocks: list[list[int]], powers: Powers) -> list[CkksCiphertexts]:
    """For each block (columns one after the other) a vector for each power."""
    columns, key = party.held(Operands).columns, party.held(CombinationKey).secret
    check_places(party, "encrypt_columns", (place for block in blocks for place in block), columns.shape[1])
    pack = CkksCiphertexts.pack
    return [pack([key.encrypt((columns[:, b] ** k).T.ravel(), bound=BOUND**k) for k in powers]) for b in blocks]


@dataclass
class PeerKeys:
    """The holders' keys of this session that their notes vouch for."""

    of: dict[str, bytes]


def _key_of(party: Party, holder: str, key: bytes, note: bytes) -> CkksPublicKey:
    """The holder's key, if it is the one that it has offered; its note is read once, with the first message."""
    known = party.state.get(PeerKeys) or party.keep(PeerKeys({}))
    if known.of.get(holder) != key:
        pairs.check_vouched(party, note, holder, _KEY, key)
        known.of[holder] = key
    return CkksPublicKey.from_bytes(key)


@operation(
    "flafe.multiply_columns",
    when="protection=columns",
    times=_MESSAGES,
    discloses="ciphertext",
    receives="ciphertext",
    about="products with its standardised, clipped columns (and noise, if any), under the key of their holder",
    learns="nothing: columns of the party that will hold the products, encrypted under that party's key",
    reply=[CkksCiphertexts],
)
def multiply_columns(
    party: Party,
    *,
    holder: PartyName,
    key: bytes,
    note: bytes,
    operands: list[CkksCiphertexts],
    products: list[dict[str, int | list[int]]],
    steps: list[dict[str, int | list[int] | list[str]]],
) -> list[CkksCiphertexts]:
    """For each step (one power of the holder's columns, one or two of this party's) all products, as one message."""
    public, columns = _key_of(party, holder, key, note), party.held(Operands).columns
    wanted = [read_record(Product, product, party.name) for product in products]
    rows, replies = len(columns), []
    vectors = [sent.vectors(public) for sent in operands]
    noise = party.held(NoisyColumns) if NoisyColumns in party.state else None
    for step in [read_record(Step, step, party.name) for step in steps]:
        step.check(party, None if noise is None else noise.scales)
        if noise is not None:
            noise.take(sum(len(product.slots) for product in wanted) * len(step.functions), party.name)
        scales = [noise.scales[name] for name in step.functions] if noise is not None else []
        factors = _pair_up([columns**power for power in step.powers])
        bound = math.hypot(*[BOUND**power for power in step.powers])
        made = []
        for product in wanted:
            check_places(party, "multiply_columns", [product.block], len(vectors))
            check_places(party, "multiply_columns", [step.operand], len(vectors[product.block]))
            check_places(party, "multiply_columns", product.columns, columns.shape[1])
            vector = vectors[product.block][step.operand]
            check_places(party, "multiply_columns", product.slots, len(vector) // rows)
            plain = np.zeros(len(vector), dtype=factors.dtype)
            for slot, column in zip(product.slots, product.columns):
                plain[slot * rows : (slot + 1) * rows] = factors[:, column]
            made.append(_cover(vector.multiply(plain, bound=bound), scales))
        replies.append(CkksCiphertexts.pack(made))
    return replies


def _pair_up(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


def _cover(product: CkksVector, scales: list[float]) -> CkksVector:
    """Add noise under encryption and hide what the ciphertext would tell of what it was made from."""
    if not scales:
        return product.blind()
    noise = _pair_up([gaussian_noise(product.length, scale) for scale in scales])
    noisy = product.add(noise, bound=_NOISE_REACH * math.hypot(*scales))
    return noisy.blind(flood_bits=_FLOOD_BITS)


@operation(
    "flafe.open_combinations", when="protection=columns", times=_MESSAGES, discloses="control", receives="ciphertext",
    about="acknowledgement", learns="combined columns that it will hold, decrypted (with the stated noise, if any)",
)  # fmt: skip
def open_combinations(
    party: Party, *, combined: list[CkksCiphertexts], slots: list[list[int]], places: list[list[list[int]]], noisy: bool
) -> None:
    """Decrypt; ``slots`` says which of a vector's columns count, ``places`` which of the held columns they are, for
    each function that a step gives (the real parts, then the imaginary ones)."""
    key, held = party.held(CombinationKey).secret, party.held(Combined).columns
    rows = len(party.held(Operands).columns)
    for sent, functions in zip(combined, places):
        vectors = sent.vectors(key.public)
        if len(vectors) != len(slots) or any(len(vector) % rows for vector in vectors):
            raise ReplyError(party.name, "open_combinations", "combined vectors of another shape than was announced")
        check_combined(party, slots, [len(vector) // rows for vector in vectors], functions, len(held))
        columns = [key.decrypt(v).reshape(-1, rows)[used] for v, used in zip(vectors, slots)]
        opened = np.vstack(columns)
        for part, wanted in zip((opened.real, opened.imag), functions):
            for place, values in zip(wanted, part):
                held[place] = values if noisy else np.round(values, _DECIMALS)


@operation(
    "flafe.show_columns", when="protection=open", times=4, discloses="plain", reply=Array("f", 2),
    about="standardised, clipped columns in the clear (protection='open')",
)  # fmt: skip
def show_columns(party: Party) -> np.ndarray:
    party.keep(Combined([]))
    return party.held(Operands).columns


@operation(
    "flafe.take_combinations", when="protection=open", times="4 x parties or 50", discloses="control", receives="plain",
    about="acknowledgement", learns="combined columns that it will hold, in the clear (protection='open')",
)  # fmt: skip
def take_combinations(party: Party, *, columns: NDArray[np.float64]) -> None:
    check_size(party.name, "take_combinations", "columns", columns, party.n_rows, None)
    party.held(Combined).columns.extend(np.round(columns.T, _DECIMALS))


# --- the coordinator's side ------------------------------------------------------------------------------------------


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
        multiply_columns, to=other, holder=holder, key=offered.key.to_bytes(), note=offered.notes.get(other, b""),
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
    largest = BOUND**4 + _NOISE_REACH * max(scales.values())
    # Flooding widens the error by about 2^(flood + 10); a tenth of the smallest noise is what it may become.
    precision = math.ceil(math.log2(BOUND**4) + _FLOOD_BITS + 10 + math.log2(10) - math.log2(min(scales.values())))
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


OPERATIONS = (
    offer_combination_key, encrypt_columns, multiply_columns, open_combinations, show_columns, take_combinations,
)  # fmt: skip
