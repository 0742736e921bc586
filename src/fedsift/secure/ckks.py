"""Vectors of real numbers that stay encrypted while they are added and multiplied: CKKS, on TenSEAL / SEAL.

Who may do what: whoever has the `CkksPublicKey` encrypts and computes; only the `CkksSecretKey` decrypts.

Why it is secure:
- Parameters come from one function, `choose_parameters`, and never leave the 128-bit column of the
  HomomorphicEncryption.org standard; a peer's public key with any other parameters is refused. Under ring-LWE a
  ciphertext is then indistinguishable from noise (IND-CPA). SEAL seeds its generator from the operating
  system.
- A decrypted value carries the scheme's error, which depends on the secret key: whoever knows the plaintext and sees
  the raw decryption learns about the key (Li and Micciancio 2021, "IND-CPA-D"). `decrypt` is therefore for the key
  owner's eyes; `decrypt_for_sharing` floods the error first.
- A computed ciphertext also tells the key owner about the *operands*, through its error, and a relay that saw the
  input about a plain multiplier: `CkksVector.blind` before it leaves.
- The bounds that travel with a vector are in the clear: they must come from public knowledge, never from the data.
- Against a peer who gets crafted ciphertexts decrypted, CKKS has no defence (it is not IND-CCA).

TenSEAL holds Python's interpreter lock while it works, and its vectors do not use its threads (measured): a second
core is used by another process, not by another thread.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsift.errors import CiphertextError, ParameterError, SecurityError
from fedsift.secure.ckks_parameters import CkksParameters, choose_parameters
from fedsift.secure.ckks_vector import (
    DEFAULT_BOUND,
    CkksVector,
    add_digest,
    as_vector,
    check_bound,
    check_digest,
    split,
)

__all__ = ["CkksParameters", "CkksPublicKey", "CkksSecretKey", "CkksVector", "choose_parameters"]

FloatArray = NDArray[np.float64]

_GAUSS_REACH = 6.5  # a Gaussian is beyond 6.5 deviations with probability 1e-10
_HEADER = struct.Struct("<4sBBBB")  # magic, depth, precision bits, magnitude bits, rotations


class CkksPublicKey:
    """Encrypts and computes, cannot decrypt. Safe to send: ``to_bytes``."""

    __slots__ = ("_context", "_data", "fingerprint", "parameters", "rotations")

    def __init__(self, data: bytes):
        body = check_digest(data, b"FSK1", _HEADER.size, "public key")
        _, depth, precision, magnitude, rotations = _HEADER.unpack_from(body)
        try:
            self.parameters = choose_parameters(depth, precision, magnitude)
        except ParameterError as problem:
            raise CiphertextError(f"public key with impossible parameters: {problem}") from None
        self.rotations = bool(rotations)
        self._context = _load_context(body[_HEADER.size :], self.parameters, self.rotations)
        self._data = bytes(data)
        self.fingerprint = hashlib.sha256(self._data).digest()

    def __repr__(self) -> str:
        p = self.parameters
        return f"CkksPublicKey({self.fingerprint.hex()[:16]}, depth={p.depth}, degree={p.poly_modulus_degree})"

    def to_bytes(self) -> bytes:
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes) -> CkksPublicKey:
        """Refuses (CiphertextError) anything damaged, private, or not made by `choose_parameters`."""
        return cls(data)

    def encrypt(self, values: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """Encrypt a vector of any length. ``bound`` is public: choose it from what everybody knows of the values."""
        array = as_vector(values)
        check_bound(array, bound, self.parameters)
        chunks = [self._encrypt_chunk(part) for part in split(array, self.parameters.slots)]
        return CkksVector(self, chunks, len(array), self.parameters.depth, bound, self.parameters.fresh_error(bound))

    def _encrypt_chunk(self, values: list[float]) -> Any:
        import tenseal

        return tenseal.ckks_vector(self._context, values)


def _load_context(body: bytes, expected: CkksParameters, rotations: bool) -> Any:
    import tenseal

    try:
        context = tenseal.context_from(body, n_threads=os.cpu_count() or 1)
        seal = context.seal_context().data.key_context_data().parms()
        degree, primes = seal.poly_modulus_degree(), [prime.value() for prime in seal.coeff_modulus()]
        private, encrypts, scale = context.has_secret_key(), context.has_public_key(), context.global_scale
        relinearises, rotates = context.has_relin_keys(), context.has_galois_keys()
    except Exception as problem:  # SEAL and protobuf raise many kinds on bytes that are no context
        raise CiphertextError(f"public key: not a usable context ({type(problem).__name__})") from None
    if private:
        raise CiphertextError("public key: it holds a secret key; the sender must throw that key away")
    sizes = tuple(prime.bit_length() for prime in primes)
    if (degree, sizes, scale) != (expected.poly_modulus_degree, expected.coeff_mod_bit_sizes, expected.scale):
        raise CiphertextError("public key: its parameters are not those it declares")
    if not encrypts or relinearises < (expected.depth > 0) or rotates < rotations:
        raise CiphertextError("public key: an encryption, relinearisation or rotation key is missing")
    return context


class CkksSecretKey:
    """The only object that decrypts. It cannot be pickled, copied or written out, and prints no secret."""

    __slots__ = ("_secret", "public")

    def __init__(self, secret: Any, public: CkksPublicKey):
        self._secret = secret
        self.public = public

    @classmethod
    def generate(
        cls, depth: int = 1, precision_bits: int = 20, *, magnitude_bits: int | None = None, rotations: bool = False
    ) -> CkksSecretKey:
        """A new key pair. ``rotations`` adds the keys that `CkksVector.total` needs: tens of megabytes."""
        import tenseal

        parameters = choose_parameters(depth, precision_bits, magnitude_bits)
        context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS,
            poly_modulus_degree=parameters.poly_modulus_degree,
            coeff_mod_bit_sizes=list(parameters.coeff_mod_bit_sizes),
            n_threads=os.cpu_count() or 1,
        )
        context.global_scale = parameters.scale
        if rotations:
            context.generate_galois_keys()
        # The public key is read back from bytes without the secret: no reference to the private context is left in it.
        body = context.serialize(
            save_public_key=True, save_secret_key=False, save_galois_keys=rotations, save_relin_keys=depth > 0
        )
        data = _HEADER.pack(b"FSK1", depth, precision_bits, parameters.magnitude_bits, rotations) + body
        return cls(context.secret_key(), CkksPublicKey(add_digest(data)))

    def __repr__(self) -> str:
        return f"CkksSecretKey(for {self.public!r}, secret hidden)"

    def _refuse(self, *_: Any) -> NoReturn:
        raise SecurityError("a CKKS secret key is never pickled, copied or sent: send its .public")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def decrypt(self, vector: CkksVector) -> FloatArray:
        """The values with the scheme's error on them: for the key owner alone, not to be shown or sent on."""
        if vector.public.fingerprint != self.public.fingerprint:
            raise CiphertextError("the vector was encrypted under another public key than this secret key's")
        parts = [chunk.decrypt(self._secret) for chunk in vector._chunks]
        values = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])[: vector.length]
        if not np.all(np.abs(values) <= vector.bound + vector.error):
            raise CiphertextError(
                f"a decrypted value lies outside the declared bound of {vector.bound:g}: "
                "the ciphertext is damaged, or was computed on values beyond their bounds"
            )
        return values

    def decrypt_for_sharing(
        self, vector: CkksVector, precision_bits: int, flood_bits: int = 20, error: float = 0.0
    ) -> FloatArray:
        """The values, fit to be shown to others: flooded with noise, then rounded to multiples of 2**-precision_bits.

        Guarantee. Let ``t`` be the worst-case error of one value (the vector's own ``error``, or the argument if that
        is larger: state it when the vector comes from a peer whose bookkeeping you do not trust) and ``n`` the length.
        Gaussian noise of deviation ``s = 2**flood_bits * sqrt(n) * t`` is added to each value. Between this and an
        ideal world in which the *exact* result gets the noise, the Kullback-Leibler divergence of what is shown is at
        most ``n t^2 / (2 s^2) = 2**-(2 flood_bits + 1)``, so the statistical distance is at most
        ``2**-(flood_bits + 1)``, and ``sqrt(q)`` times that over q such releases; rounding only post-processes. In the
        ideal world the output depends on the plaintexts alone, so IND-CPA security carries over to IND-CPA-D up to
        that distance (Li, Micciancio, Schultz and Sorrell 2022 read the same divergence as about
        ``2 flood_bits - 4`` bits of statistical security; 20 gives 36). Rounding alone would not do: a value next to a
        rounding border shows one bit of the error.

        Not guaranteed: anything about ciphertexts that were not made by honest operations, or about what the exact
        result itself gives away (that is for differential privacy).

        Cost. A shared value is within ``2**-precision_bits`` of the exact one (probability 1 - 1e-10 a value), which
        needs ``13 s <= 2**-precision_bits``, that is about ``flood_bits + log2(n)/2 + 4`` bits of the vector's
        precision: generate the key with as many more. ParameterError says so if they are not there.
        """
        values = self.decrypt(vector)
        worst = max(vector.error, error)
        deviation = 2.0**flood_bits * math.sqrt(vector.length) * worst
        grid = 2.0**-precision_bits
        if flood_bits < 1 or worst + _GAUSS_REACH * deviation > grid / 2:
            most = math.floor(-math.log2(2 * (worst + _GAUSS_REACH * deviation)))
            raise ParameterError(
                f"precision_bits={precision_bits} cannot be shared with flood_bits={flood_bits} (1 or more): for these "
                f"{vector.length} values at most {most} can; generate the key with more precision_bits, share fewer "
                "values at once, or flood less"
            )
        flooded = values + deviation * _os_gaussian(len(values))
        return np.round(flooded / grid) * grid


def _os_gaussian(count: int) -> FloatArray:
    """Standard Gaussian numbers (Box-Muller) from the operating system's generator."""
    uniform = (np.frombuffer(os.urandom(16 * count), dtype=np.uint64) >> np.uint64(11)) + 0.5
    radius, angle = (uniform * 2.0**-53).reshape(2, count)
    return np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
