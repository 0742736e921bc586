"""Fixed-point numbers in the ring of the secure layer, and vectors of them packed into additive ciphertexts.

All numbers of the interactive layer are integers modulo 2^58 with public exponents, chosen so that the weight update is
exact (no truncation under a mask): an embedding has 12 fractional bits, a gradient of an activation 20, a weight
12 + 20 + 4 for the step 2^-4. A masked ring element is uniform, so it hides its value perfectly.

``linear_sums`` is the one computation under encryption: sums of ciphertexts times plain non-negative integers. Several
numbers lie side by side in a plaintext; whoever sends a sum on adds a mask 40 bits wider than the sum can be, to each
number, so that the key holder sees nothing but the number modulo 2^58 that the protocol means it to see.
"""

from __future__ import annotations

import secrets

import numpy as np

from fedsift.crypto.additive.keys import Ciphertexts, PublicKey, SecretKey
from fedsift.errors import OverflowGuard
from fedsift.mpc.encrypted_histogram import HIDING_BITS

RING_BITS = 58
RING = (1 << RING_BITS) - 1
STEP_BITS = 4  # the interactive layer's learning rate is 2^-4
EMBEDDING_EXPONENT, EMBEDDING_BITS = 12, 18  # |g| < 32
DELTA_EXPONENT, DELTA_BITS = 20, 22  # |dL/dz| < 2
_DIGIT_BITS = 5
WEIGHT_EXPONENT = EMBEDDING_EXPONENT + DELTA_EXPONENT + STEP_BITS
ACTIVATION_EXPONENT = EMBEDDING_EXPONENT + WEIGHT_EXPONENT
GRADIENT_EXPONENT = DELTA_EXPONENT + WEIGHT_EXPONENT


def to_ring(values: np.ndarray, exponent: int) -> np.ndarray:
    """round(x * 2^exponent) modulo 2^58."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if scaled.size and np.abs(scaled).max() >= 2.0 ** (RING_BITS - 1):
        raise OverflowGuard("a number of the secure layer does not fit its ring; use a smaller learning rate")
    return scaled.astype(np.int64).view(np.uint64) & np.uint64(RING)


def from_ring(ring: np.ndarray, exponent: int) -> np.ndarray:
    """The numbers back, those above half of the ring as negative ones."""
    signed = (np.asarray(ring, dtype=np.uint64) << np.uint64(64 - RING_BITS)).view(np.int64) >> (64 - RING_BITS)
    return np.ldexp(signed.astype(np.float64), -exponent)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product in the ring (NumPy wraps at 2^64, a multiple of 2^58)."""
    return (a.astype(np.uint64) @ b.astype(np.uint64)) & np.uint64(RING)


def shifted(values: np.ndarray, exponent: int, bits: int, what: str) -> np.ndarray:
    """Fixed-point numbers made non-negative: x * 2^exponent + 2^(bits - 1), refused when they do not fit ``bits``."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if not np.isfinite(scaled).all() or (scaled.size and np.abs(scaled).max() >= 2.0 ** (bits - 1)):
        limit = 2.0 ** (bits - 1 - exponent)
        raise OverflowGuard(f"{what} must stay below {limit:g} in size in the secure layer; scale it down")
    return scaled.astype(np.int64) + (1 << (bits - 1))


def random_ring(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform ring elements from the operating system."""
    count = int(np.prod(shape))
    return (np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64) & np.uint64(RING)).reshape(shape)


class Packing:
    """``per`` numbers a plaintext, ``pitch`` bits apart; ``value_bits`` is the bound of what a slot holds unmasked."""

    def __init__(self, key: PublicKey, value_bits: int, most: int):
        self.value_bits = value_bits
        self.mask_bits = value_bits + HIDING_BITS
        self.pitch = self.mask_bits + 1
        self.per = min(most, key.plaintext_bits // self.pitch)
        if self.per < 1:
            raise OverflowGuard(f"a sum of {self.pitch} bits does not fit this key's plaintexts")

    def groups(self, count: int) -> int:
        return -(-count // self.per)

    def pack(self, numbers: np.ndarray) -> list[int]:
        """Lines of numbers (lines x count) as plaintexts, line after line, ``groups(count)`` a line."""
        packed = []
        for line in numbers.tolist():
            for start in range(0, len(line), self.per):
                packed.append(sum(int(v) << (i * self.pitch) for i, v in enumerate(line[start : start + self.per])))
        return packed

    def unpack(self, packed: list[int], count: int) -> np.ndarray:
        """Back to lines of ring elements."""
        low = (1 << self.pitch) - 1
        size = self.groups(count)
        lines = []
        for start in range(0, len(packed), size):
            line = [(number >> (i * self.pitch)) & low & RING for number in packed[start : start + size]
                    for i in range(self.per)]  # fmt: skip
            lines.append(line[:count])
        return np.array(lines, dtype=np.uint64).reshape(-1, count)

    def masks(self, lines: int, count: int, step: int = 1) -> np.ndarray:
        """Random numbers of ``mask_bits`` bits, multiples of ``step``, as Python integers (lines x count)."""
        bits = self.mask_bits - (step.bit_length() - 1)
        flat = [secrets.randbits(bits) * step for _ in range(lines * count)]
        return np.array(flat, dtype=object).reshape(lines, count)

    def open(self, key: SecretKey, ciphertexts: Ciphertexts, count: int) -> np.ndarray:
        return self.unpack(key.decrypt(ciphertexts, bits=self.per * self.pitch), count)


def linear_sums(key: PublicKey, ciphertexts: Ciphertexts, weights: np.ndarray) -> Ciphertexts:
    """For each line of ``weights`` and each group: the sum over terms of weight x ciphertext.

    ``ciphertexts`` holds terms x groups, term after term; ``weights`` is lines x terms of non-negative integers; the
    result is lines x groups, line after line. The multiples 1 to 31 of every ciphertext are made once and serve all
    lines, so a product costs one addition for each 5 bits of the weight instead of an exponentiation.
    """
    lines, terms = weights.shape
    count = len(ciphertexts)
    groups = count // terms
    multiples = [ciphertexts]
    for _ in range((1 << _DIGIT_BITS) - 2):
        multiples.append(key.add(multiples[-1], ciphertexts))
    table = Ciphertexts.concat([*multiples, key.encrypt([0])])
    zero = count * len(multiples)
    place = np.arange(count).reshape(terms, groups).T  # groups x terms
    bits = max(1, int(weights.max()).bit_length()) if weights.size else 1
    total: Ciphertexts | None = None
    for shift in range((bits - 1) // _DIGIT_BITS * _DIGIT_BITS, -1, -_DIGIT_BITS):
        digits = (weights.astype(np.uint64) >> np.uint64(shift)).astype(np.int64) & ((1 << _DIGIT_BITS) - 1)
        where = np.where(digits[:, None, :] > 0, (digits[:, None, :] - 1) * count + place[None], zero)
        part = key.sums(table, where.ravel(), np.arange(lines * groups + 1) * terms)
        total = part if total is None else key.add(key.scale(total, 1 << _DIGIT_BITS), part)
    if total is None:
        raise OverflowGuard("a weight needs at least one bit")
    return total


def masked_sums(key: PublicKey, sums: Ciphertexts, packing: Packing, masks: np.ndarray) -> Ciphertexts:
    """Masks added slot by slot, and a fresh encryption of zero: ready to go to the key holder."""
    return key.blind(key.add_plain(sums, packing.pack(masks)))
