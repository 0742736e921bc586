"""Products of two parties' columns, computed by a coordinator that can read neither column nor product.

For a pair of columns a (party P) and b (party Q) one of the two parties is the *holder* of the combination. Both
encrypt their column, and its square, under the holder's CKKS key; the coordinator multiplies the ciphertexts (a*b,
a^2*b, a*b^2, a^2*b^2: always one multiplication deep), adds noise while all is encrypted, and sends the result to the
holder, who decrypts it. Many short columns share a ciphertext; long ones take several.

Why it is secure (semi-honest; coordinator and holder do not work together):
- The coordinator has public keys only. Under ring-LWE what it sees is noise to it. Together with the holder it could
  read both columns: the price of a star, as in the paper, where all parties even share one secret key. Here every party
  has a key of its own for each run, so no party can read what was encrypted for another.
- The holder knows its own column and its key. What it decrypts is the product with the noise on it. Without noise that
  tells the other column wherever its own is not 0: this is the method (and the paper's "no DP"), not a fault of the
  encryption. With noise, the scheme's own error would still tell about the operands, so the ciphertext is flooded
  (`CkksVector.blind`) before it leaves; without noise it is only blinded against a relay.
- Noise comes from the operating system, is drawn once for a released column and added before the holder sees anything.
  The coordinator knows the noise but not the values.
- Bounds that travel are public: BOUND, its powers, and the noise scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.errors import ParameterError, ReplyError
from fedsift.federation import Federation
from fedsift.operation import Array, operation
from fedsift.party import Party
from fedsift.secure.ckks import CkksPublicKey, CkksSecretKey
from fedsift.secure.ckks_wire import CkksCiphertexts, key_from_wire, key_to_wire
from fedsift.secure.privacy import laplace_noise

BOUND = 5.0  # columns come within this
#: Powers of the first and of the second column.
FUNCTIONS: dict[str, tuple[int, int]] = {"ab": (1, 1), "a2b": (2, 1), "ab2": (1, 2), "a2b2": (2, 2)}

OPERANDS, CROSSED = "combination operands", "combination results"  # where a party keeps its columns during a run
_KEY, _PEERS = "combination key", "combination peers"
_FLOOD_BITS = 20
_NOISE_REACH = 50.0  # Laplace noise is beyond 50 scales with probability 2e-22
_DECIMALS = 6  # of a product without noise: far above the scheme's error, so that equal products stay equal
_BATCH = 96  # ciphertext products at a time


@dataclass(frozen=True)
class Pair:
    """Column ``i`` of party ``first`` with column ``j`` of ``second``; ``holder`` is one of the two."""

    first: str
    i: int
    second: str
    j: int
    holder: str


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(discloses="control", about="public key for combinations that this party will hold", reply=bytes)
def offer_combination_key(party: Party, *, precision_bits: int, magnitude_bits: int) -> bytes:
    key = CkksSecretKey.generate(1, precision_bits, magnitude_bits=magnitude_bits)
    party.state[_KEY] = key
    return key_to_wire(key.public)


@operation(discloses="control", about="acknowledgement")
def meet_combination_keys(party: Party, *, keys: dict[str, bytes]) -> None:
    party.state[_PEERS] = {name: key_from_wire(data) for name, data in keys.items()}
    party.state[CROSSED] = []


@operation(
    discloses="ciphertext",
    about="standardised, clipped columns and their squares, encrypted for the party that will hold the combination",
    reply=[CkksCiphertexts],
)
def encrypt_columns(party: Party, *, holder: str, blocks: list[list[int]], powers: list[int]) -> list[Any]:
    """One vector a block (columns one after the other), for each power."""
    columns, public = party.state[OPERANDS], party.state[_PEERS][holder]
    replies = []
    for power in powers:
        raised = columns**power
        vectors = [public.encrypt(raised[:, block].T.ravel(), bound=BOUND**power) for block in blocks]
        replies.append(CkksCiphertexts.pack(vectors))
    return replies


@operation(
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
    learns="combined columns that it will hold, decrypted (with the stated noise, if any)",
)
def open_combinations(party: Party, *, combined: list[Any], widths: list[int], noisy: bool) -> None:
    """Decrypt; ``widths`` says how many columns each vector carries."""
    key: CkksSecretKey = party.state[_KEY]
    rows = party.state[OPERANDS].shape[0]
    for sent in combined:
        vectors = sent.vectors(key.public)
        if [len(vector) for vector in vectors] != [width * rows for width in widths]:
            raise ReplyError(party.name, "open_combinations", "a combined vector has another length than was announced")
        for vector, width in zip(vectors, widths):
            values = key.decrypt(vector).reshape(width, rows)
            party.state[CROSSED].extend(values if noisy else np.round(values, _DECIMALS))


@operation(discloses="plain", about="standardised, clipped columns in the clear (secure=False)", reply=Array("f", 2))
def show_columns(party: Party) -> np.ndarray:
    party.state[CROSSED] = []
    return party.state[OPERANDS]


@operation(
    discloses="control",
    receives="plain",
    about="acknowledgement",
    learns="combined columns that it will hold, in the clear (secure=False)",
)
def take_combinations(party: Party, *, columns: np.ndarray) -> None:
    party.state[CROSSED].extend(np.round(columns.T, _DECIMALS))


# --- the coordinator's side ------------------------------------------------------------------------------------------


def combine_columns(
    fed: Federation, pairs: Sequence[Pair], functions: Sequence[str], scales: dict[str, float], *, rows: int,
    secure: bool = True,
) -> dict[str, list[tuple[Pair, str]]]:  # fmt: skip
    """Let every holder get the combinations of its pairs; returns which they are, in the order it has them.

    Parties must have put their columns (rows x columns, within BOUND, no missing value) under ``OPERANDS``.
    """
    unknown = [name for name in functions if name not in FUNCTIONS]
    if unknown or not functions:
        raise ParameterError(f"functions must be from {', '.join(FUNCTIONS)}; got {list(functions)!r}")
    held: dict[str, list[tuple[Pair, str]]] = {}
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.holder), []).append(pair)
    if not secure:
        _combine_openly(fed, groups, functions, scales, held)
        return held
    publics = _exchange_keys(fed, {name for group in groups for name in group}, scales)
    for (first, second, holder), members in fed.track(groups.items(), "pair of parties"):
        public = publics[holder]
        blocks = _blocks(members, rows, public.parameters.slots)
        size = max(1, _BATCH // max(1, math.ceil(rows / public.parameters.slots)))
        for start in range(0, len(blocks), size):
            batch = blocks[start : start + size]
            _combine_batch(fed, public, (first, second, holder), batch, functions, scales)
            held.setdefault(holder, []).extend((pair, name) for name in functions for block in batch for pair in block)
    return held


def key_size(scales: dict[str, float]) -> tuple[int, int]:
    """Bits of precision and of magnitude: room for the noise, and flooding that stays small beside it."""
    if not scales:
        return 30, 12
    largest = BOUND**4 + _NOISE_REACH * max(scales.values())
    # Flooding widens the error by about 2^(flood + 12); a tenth of the smallest noise is what it may become.
    precision = math.ceil(math.log2(BOUND**4) + _FLOOD_BITS + 12 + math.log2(10) - math.log2(min(scales.values())))
    return min(41, max(20, precision)), max(12, math.ceil(math.log2(largest)) + 2)


def _exchange_keys(fed: Federation, names: set[str], scales: dict[str, float]) -> dict[str, CkksPublicKey]:
    members = [name for name in fed.parties if name in names]
    if not members:
        return {}
    precision, magnitude = key_size(scales)
    sent = fed.ask(offer_combination_key, to=members, precision_bits=precision, magnitude_bits=magnitude)
    fed.ask(meet_combination_keys, to=members, keys=sent)
    return {name: key_from_wire(data) for name, data in sent.items()}


def _blocks(members: Sequence[Pair], rows: int, slots: int) -> list[list[Pair]]:
    """Pairs that share a ciphertext: as many as there is room for."""
    together = max(1, slots // max(1, rows))
    return [list(members[start : start + together]) for start in range(0, len(members), together)]


def _combine_batch(
    fed: Federation, public: CkksPublicKey, group: tuple[str, str, str], batch: Sequence[Sequence[Pair]],
    functions: Sequence[str], scales: dict[str, float],
) -> None:  # fmt: skip
    first, second, holder = group
    sides, each, places = [], {}, []
    for side, name in enumerate((first, second)):
        wanted = [tuple(pair.j if side else pair.i for pair in block) for block in batch]
        unique = list(dict.fromkeys(wanted))  # long columns are encrypted once and used in many products
        places.append([unique.index(block) for block in wanted])
        powers = sorted({FUNCTIONS[function][side] for function in functions})
        each[name] = {"blocks": [list(block) for block in unique], "powers": powers}
        sides.append(powers)
    sent = fed.ask(encrypt_columns, to=[first, second], each=each, holder=holder)
    operands = []
    for name, powers in zip((first, second), sides):
        if len(sent[name]) != len(powers):
            raise ReplyError(name, "encrypt_columns", "another number of powers than was asked for")
        operands.append({power: part.vectors(public) for power, part in zip(powers, sent[name])})
    combined = []
    for function in functions:
        p, q = FUNCTIONS[function]
        vectors = []
        for left, right in zip(*places):
            product = operands[0][p][left].multiply(operands[1][q][right])
            vectors.append(_cover(public, product, scales.get(function)))
        combined.append(CkksCiphertexts.pack(vectors))
    widths = [len(block) for block in batch]
    fed.ask(open_combinations, to=holder, combined=combined, widths=widths, noisy=bool(scales))


def _cover(public: CkksPublicKey, product: Any, scale: float | None) -> Any:
    """Add noise under encryption and hide what the ciphertext's own error would tell."""
    if not scale:
        return product.blind()
    noise = laplace_noise(product.length, scale)
    noisy = product.add(public.encrypt(noise, bound=_NOISE_REACH * scale))
    return noisy.blind(flood_bits=_FLOOD_BITS)


def _combine_openly(
    fed: Federation, groups: dict[tuple[str, str, str], list[Pair]], functions: Sequence[str],
    scales: dict[str, float], held: dict[str, list[tuple[Pair, str]]],
) -> None:  # fmt: skip
    """For research: columns in the clear, and noise by a sampler that is fast rather than safe in its last bits."""
    fed.ledger.note("secure=False: the coordinator saw the parties' columns in the clear")
    generator = np.random.default_rng()
    names = {name for group in groups for name in group}
    shown = fed.ask(show_columns, to=[name for name in fed.parties if name in names])
    for (first, second, holder), members in groups.items():
        for function in functions:
            p, q = FUNCTIONS[function]
            left, right = [m.i for m in members], [m.j for m in members]
            columns = shown[first][:, left] ** p * shown[second][:, right] ** q
            if scales.get(function):
                columns = columns + generator.laplace(0.0, scales[function], columns.shape)
            fed.ask(take_combinations, to=holder, columns=columns)
            held.setdefault(holder, []).extend((pair, function) for pair in members)
