"""What a party does when columns are combined under encryption: keys, ciphertexts, products, and opening its own.

``combine.py`` has the conversation, and the argument why this is secure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import PartyName
from fedsift.core.checks import check_size
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.ckks.keys import CkksPublicKey, CkksSecretKey
from fedsift.crypto.ckks.vector import CkksCiphertexts, CkksVector
from fedsift.crypto.dp import gaussian_noise
from fedsift.engineer.flafe.features import (
    BOUND,
    Count,
    Powers,
    Product,
    Step,
    check_combined,
    check_places,
    read_record,
)
from fedsift.errors import ReplyError, SecurityError
from fedsift.mpc.pairs import check_vouched, vouch

_KEY = "key of combinations"
FLOOD_BITS = 20
NOISE_REACH = 12.0  # Gaussian noise is beyond 12 deviations with probability 4e-33
_DECIMALS = 6  # of a product without noise: far above the scheme's error, so that equal products stay equal
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
    return OfferedKey(public, vouch(party, _KEY, public))


@operation(
    "flafe.encrypt_columns",
    when="protection=columns",
    times=_MESSAGES,
    discloses="ciphertext",
    about="standardised, clipped columns and their squares, encrypted under the party's own key",
    opened="nobody",
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
        check_vouched(party, note, holder, _KEY, key)
        known.of[holder] = key
    return CkksPublicKey.from_bytes(key)


Products = list[dict[str, int | list[int]]]
Steps = list[dict[str, int | list[int] | list[str]]]


@operation(
    "flafe.multiply_columns",
    when=("protection=columns", "epsilon=none"),
    times=_MESSAGES,
    discloses="ciphertext",
    receives="ciphertext",
    about="products with its standardised, clipped columns, under the key of their holder",
    opened="plain: its columns, which the holder of a product computes by dividing by its own",
    opened_by="parties",
    learns="nothing: columns of the party that will hold the products, encrypted under that party's key",
    reply=[CkksCiphertexts],
)
def multiply_columns(
    party: Party, *, holder: PartyName, key: bytes, note: bytes, operands: list[CkksCiphertexts], products: Products,
    steps: Steps,
) -> list[CkksCiphertexts]:  # fmt: skip
    """For each step (one power of the holder's columns, one or two of this party's) all products, as one message."""
    return _multiplied(party, _key_of(party, holder, key, note), operands, products, steps, None)


@operation(
    "flafe.multiply_noisy",
    when=("protection=columns", "epsilon=set"),
    times=_MESSAGES,
    discloses="ciphertext",
    receives="ciphertext",
    about="products with its standardised, clipped columns and noise, under the key of their holder",
    opened="pseudonymous: products of a column of each party, with the noise of the epsilon on every row",
    opened_by="parties",
    learns="nothing: columns of the party that will hold the products, encrypted under that party's key",
    reply=[CkksCiphertexts],
)
def multiply_noisy(
    party: Party, *, holder: PartyName, key: bytes, note: bytes, operands: list[CkksCiphertexts], products: Products,
    steps: Steps,
) -> list[CkksCiphertexts]:  # fmt: skip
    """The same in a job with an epsilon: without the noise that was planned for it there is no product."""
    noise = party.held(NoisyColumns)
    return _multiplied(party, _key_of(party, holder, key, note), operands, products, steps, noise)


def _multiplied(
    party: Party, public: CkksPublicKey, operands: list[CkksCiphertexts], products: Products, steps: Steps,
    noise: NoisyColumns | None,
) -> list[CkksCiphertexts]:  # fmt: skip
    columns, replies = party.held(Operands).columns, []
    wanted = [read_record(Product, product, party.name) for product in products]
    vectors = [sent.vectors(public) for sent in operands]
    for step in [read_record(Step, step, party.name) for step in steps]:
        step.check(party, None if noise is None else noise.scales)
        if noise is not None:
            noise.take(sum(len(product.slots) for product in wanted) * len(step.functions), party.name)
        scales = [noise.scales[name] for name in step.functions] if noise is not None else []
        factors = _pair_up([columns**power for power in step.powers])
        bound = math.hypot(*[BOUND**power for power in step.powers])
        replies.append(
            CkksCiphertexts.pack(
                [_cover(_product(party, product, step.operand, vectors, factors, bound), scales) for product in wanted]
            )
        )
    return replies


def _product(
    party: Party, product: Product, operand: int, vectors: list[list[CkksVector]], factors: np.ndarray, bound: float
) -> CkksVector:
    """One vector of the holder's columns times this party's column in each of its slots."""
    rows = len(factors)
    check_places(party, "multiply_columns", [product.block], len(vectors))
    check_places(party, "multiply_columns", [operand], len(vectors[product.block]))
    check_places(party, "multiply_columns", product.columns, factors.shape[1])
    vector = vectors[product.block][operand]
    check_places(party, "multiply_columns", product.slots, len(vector) // rows)
    plain = np.zeros(len(vector), dtype=factors.dtype)
    for slot, column in zip(product.slots, product.columns):
        plain[slot * rows : (slot + 1) * rows] = factors[:, column]
    return vector.multiply(plain, bound=bound)


def _pair_up(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


def _cover(product: CkksVector, scales: list[float]) -> CkksVector:
    """Add noise under encryption and hide what the ciphertext would tell of what it was made from."""
    if not scales:
        return product.blind()
    noise = _pair_up([gaussian_noise(product.length, scale) for scale in scales])
    noisy = product.add(noise, bound=NOISE_REACH * math.hypot(*scales))
    return noisy.blind(flood_bits=FLOOD_BITS)


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


OPERATIONS = (
    offer_combination_key, encrypt_columns, multiply_columns, multiply_noisy, open_combinations, show_columns,
    take_combinations,
)  # fmt: skip
