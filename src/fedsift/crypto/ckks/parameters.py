"""CKKS parameters at 128-bit security, how large the error of each operation can get, and SEAL's tools for them.

One function, `choose_parameters`, makes every parameter set of the package, so that none outside the table of the
HomomorphicEncryption.org standard can occur.

Errors are worst cases: they add up linearly, as if they all pointed the same way, because estimates that let errors
average out have been attacked where decryptions are shared. Only the tail of a single fresh noise or rounding
polynomial is probabilistic (exceeded in some slot with probability below 2**-50).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fedsift.crypto import seal_io
from fedsift.crypto.seal_io import Seal
from fedsift.errors import ParameterError

MAX_COEFF_BITS = {4096: 109, 8192: 218, 16384: 438}
"""Largest ciphertext modulus, in bits, by ring degree: 128-bit security, ternary secret (standard of 2018, table 1)."""
MAX_DEPTH = 3

_MAX_PRIME_BITS = 60  # SEAL's limit
_NOISE = 3.25  # standard deviation of SEAL's error coefficients (centred binomial of 2 x 21 bits: 3.24)
# A random polynomial with coefficient deviation d is, in a slot, about a complex Gaussian of deviation d*sqrt(N).
_TAIL = 7.0  # ... and beyond 7 deviations with probability exp(-49) = 2**-70;
_PRODUCT_TAIL = 25.0  # the product of two such is beyond 25 with probability about 2**-69
_FLOAT = 2.0**-47  # relative error of encoding or decoding in double precision (measured: 2**-50)


@dataclass(frozen=True)
class CkksParameters:
    """One safe set of parameters, and the error that each operation adds under it (absolute, per value)."""

    poly_modulus_degree: int
    coeff_mod_bit_sizes: tuple[int, ...]
    scale: float
    depth: int
    precision_bits: int
    magnitude_bits: int
    drift: float
    """Rescaling divides by a prime near ``scale``; this is the largest relative difference."""

    @property
    def slots(self) -> int:
        return self.poly_modulus_degree // 2

    @property
    def max_bound(self) -> float:
        """A little under 2**magnitude_bits, as the primes are a little under their powers of two."""
        return 2.0**self.magnitude_bits * (1 - 2.0**-10)

    @property
    def rounding_error(self) -> float:
        """Rounding both halves of a ciphertext to integers: uniform errors (1/12) times the ternary secret (2/3)."""
        return _PRODUCT_TAIL * math.sqrt(1 / 18) * self.poly_modulus_degree / self.scale + self.encoding_error(0.0)

    def primes_at(self, depth_left: int) -> int:
        """How many primes a ciphertext with that much depth left is taken modulo."""
        return len(self.coeff_mod_bit_sizes) - 1 - (self.depth - depth_left)

    def encoding_error(self, bound: float) -> float:
        return _TAIL * math.sqrt(self.poly_modulus_degree / 12) / self.scale + _FLOAT * bound

    def fresh_error(self, bound: float) -> float:
        """SEAL encrypts one prime higher, at any level, and divides by it: little is left but the rounding."""
        noise = _NOISE * self.poly_modulus_degree * (2 * _PRODUCT_TAIL * math.sqrt(2 / 3) + _TAIL)
        shrunk = noise / 2.0 ** (min(self.coeff_mod_bit_sizes) - 1)
        return self.rounding_error + shrunk / self.scale + self.encoding_error(bound)

    def product_error(self, bound_a: float, error_a: float, bound_b: float, error_b: float) -> float:
        """After multiplying by a plain operand and rescaling."""
        cross = error_a * bound_b + error_b * bound_a + error_a * error_b
        largest = bound_a * bound_b + cross
        return cross + self.rounding_error + self.drift * largest


@functools.lru_cache(maxsize=256)
def choose_parameters(depth: int, precision_bits: int, magnitude_bits: int | None = None) -> CkksParameters:
    """The smallest parameters that allow ``depth`` multiplications in a row, at 128-bit security.

    They promise: the worst-case error of any product of that depth is at most ``2**-precision_bits`` times the
    largest magnitude that the product can have (its ``bound``, or 1 if that is more), and values below
    ``2**magnitude_bits`` do not wrap around (by default: a product of that depth of values within 32, eight times).
    """
    for name, value, top in (("depth", depth, MAX_DEPTH), ("precision_bits", precision_bits, 64)):
        if not isinstance(value, int) or not 0 <= value <= top:
            raise ParameterError(f"{name} must be a whole number from 0 to {top}, not {value!r}")
    if magnitude_bits is None:
        magnitude_bits = max(18, 5 * (depth + 1) + 3)
    if not isinstance(magnitude_bits, int) or not 1 <= magnitude_bits <= 64:
        raise ParameterError(f"magnitude_bits must be a whole number from 1 to 64, not {magnitude_bits!r}")
    for degree in MAX_COEFF_BITS:
        for scale_bits in range(20, _MAX_PRIME_BITS + 1):
            parameters = _assemble(degree, scale_bits, depth, precision_bits, magnitude_bits)
            if parameters is not None and _worst_error(parameters) <= 2.0**-precision_bits:
                return parameters
    raise ParameterError(
        f"no parameters with 128-bit security reach depth={depth} with precision_bits={precision_bits} and "
        f"magnitude_bits={magnitude_bits}: ask for less precision, less depth or smaller values"
    )


def _assemble(degree: int, scale_bits: int, depth: int, precision: int, magnitude: int) -> CkksParameters | None:
    """Primes: those that stay to the end and hold the magnitude, one a multiplication, one of SEAL's own."""
    stay_bits = scale_bits + magnitude + 1  # one for the sign
    count = math.ceil(stay_bits / _MAX_PRIME_BITS)
    stay = [math.ceil(stay_bits / count)] * count
    drop = [scale_bits] * depth
    bits = (*stay, *drop, max(stay + drop))
    if sum(bits) > MAX_COEFF_BITS[degree]:
        return None
    try:
        primes = [prime.value() for prime in seal_io.api().CoeffModulus.Create(degree, list(bits))][count:-1]
    except (RuntimeError, ValueError, IndexError):  # too few primes of that size
        return None
    # The mean of the primes, not a power of two: rescaling by a prime then changes the values least.
    scale = math.fsum(primes) / depth if depth else 2.0**scale_bits
    drift = max((abs(scale / prime - 1) for prime in primes), default=0.0)
    return CkksParameters(degree, bits, scale, depth, precision, magnitude, drift)


def _worst_error(parameters: CkksParameters) -> float:
    """Error of multiplying ``depth`` times by a number of magnitude 1; relative to the bound no product does worse."""
    error = parameters.fresh_error(1.0)
    for _ in range(parameters.depth):
        error = parameters.product_error(1.0, error, 1.0, parameters.encoding_error(1.0))
    return error


class Ring:
    """SEAL's tools for one parameter set: the context, its levels, encoding and decoding. It holds no key."""

    def __init__(self, parameters: CkksParameters):
        self.api, self.parameters = seal_io.api(), parameters
        self.context = seal_io.context("CKKS", parameters.poly_modulus_degree, parameters.coeff_mod_bit_sizes)
        self.evaluator = self.api.Evaluator(self.context)
        self.version = seal_io.version_of(self.api.Plaintext("1"))
        self._encoder = self.api.CKKSEncoder(self.context)
        #: SEAL's name of the level of a ciphertext with that much depth left.
        self.levels: dict[int, Seal] = {}
        data = self.context.first_context_data()
        for depth in range(parameters.depth, -1, -1):
            self.levels[depth] = data.parms_id()
            data = data.next_context_data()

    def encode(self, values: list[complex], depth_left: int) -> Seal:
        plain = self.api.Plaintext()
        self._encoder.encode(values, self.levels[depth_left], self.parameters.scale, plain)
        return plain

    def decode(self, plain: Seal, paired: bool) -> np.ndarray:
        if paired:
            return np.array(self._encoder.decode_complex(plain), dtype=np.complex128)
        return np.array(self._encoder.decode_double(plain), dtype=np.float64)

    def chunk_bytes(self, depth_left: int) -> int:
        """What a ciphertext of that level takes on the wire."""
        words = 2 * self.parameters.primes_at(depth_left) * self.parameters.poly_modulus_degree
        return seal_io.ciphertext_bytes(words)


@functools.lru_cache(maxsize=16)
def ring_of(parameters: CkksParameters) -> Ring:
    return Ring(parameters)
