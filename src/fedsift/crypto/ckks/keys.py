"""Vectors of real numbers that stay encrypted while they are added and multiplied: CKKS, on SEAL (through TenSEAL).

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

A slot holds a complex number: a plain factor ``x + 1j * y`` gives two products for the price of one (``decrypt`` then
returns complex numbers). SEAL is used directly and not by way of TenSEAL's vectors, which take 2 to 20 times as long
(they encrypt at the top level only, compress all that is sent, and copy through lists).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsift.crypto import seal_io
from fedsift.crypto.ckks.parameters import CkksParameters, choose_parameters
from fedsift.crypto.ckks.ring import Ring, ring_of
from fedsift.crypto.ckks.vector import (
    DEFAULT_BOUND,
    CkksVector,
    add_digest,
    as_vector,
    check_bound,
    check_digest,
    os_gaussian,
    split,
)
from fedsift.errors import CiphertextError, ParameterError, SecurityError

__all__ = ["CkksParameters", "CkksPublicKey", "CkksSecretKey", "CkksVector", "choose_parameters"]

_GAUSS_REACH = 6.5  # a Gaussian is beyond 6.5 deviations with probability 1e-10
_HEADER = struct.Struct("<4sBBBBB")  # magic, depth, precision bits, magnitude bits, products, rotations
_PART = struct.Struct("<Q")


class CkksPublicKey:
    """Encrypts and computes, cannot decrypt. Safe to send: ``to_bytes``."""

    __slots__ = ("_data", "encryptor", "fingerprint", "parameters", "products", "ring", "rotations")

    def __init__(self, data: bytes):
        body = check_digest(data, b"FSK2", _HEADER.size, "public key")
        _, depth, precision, magnitude, products, rotations = _HEADER.unpack_from(body)
        try:
            self.parameters = choose_parameters(depth, precision, magnitude)
        except ParameterError as problem:
            raise CiphertextError(f"public key with impossible parameters: {problem}") from None
        self.ring = ring_of(self.parameters)
        kinds = ["PublicKey", *["RelinKeys"] * bool(products), *["GaloisKeys"] * bool(rotations)]
        loaded = dict(zip(kinds, _load_keys(self.ring, kinds, body[_HEADER.size :])))
        self.encryptor = self.ring.api.Encryptor(self.ring.context, loaded["PublicKey"])
        self.products, self.rotations = loaded.get("RelinKeys"), loaded.get("GaloisKeys")
        self._data = bytes(data)
        self.fingerprint = hashlib.sha256(self._data).digest()

    def __repr__(self) -> str:
        p = self.parameters
        return f"CkksPublicKey({self.fingerprint.hex()[:16]}, depth={p.depth}, degree={p.poly_modulus_degree})"

    def to_bytes(self) -> bytes:
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes) -> CkksPublicKey:
        """Refuses (CiphertextError) anything damaged or not made by `choose_parameters`; nothing secret fits in."""
        return cls(data)

    def encrypt(self, values: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """Encrypt a vector of any length. ``bound`` is public: choose it from what everybody knows of the values."""
        return self._encrypted(values, bound, self.encryptor.encrypt)

    def _encrypted(self, values: ArrayLike, bound: float, encrypt: Callable[[Any, Any], None]) -> CkksVector:
        array = as_vector(values)
        check_bound(array, bound, self.parameters)
        chunks = []
        for part in split(array, self.parameters.slots):
            chunks.append(self.ring.api.Ciphertext(self.ring.context))
            encrypt(self.ring.encode(part, self.parameters.depth), chunks[-1])
        error = self.parameters.fresh_error(bound)
        return CkksVector(self, chunks, len(array), self.parameters.depth, bound, error, np.iscomplexobj(array))

    def encrypt_zero(self, depth_left: int) -> Any:
        """One ciphertext of zeros at that level."""
        made = self.ring.api.Ciphertext(self.ring.context)
        self.encryptor.encrypt_zero(self.ring.levels[depth_left], made)
        made.scale = self.parameters.scale
        return made


def _load_keys(ring: Ring, kinds: list[str], body: bytes) -> list[Any]:
    keys, position = [], 0
    for kind in kinds:
        if position + _PART.size > len(body):
            raise CiphertextError("public key: an encryption, relinearisation or rotation key is missing")
        end = position + _PART.size + _PART.unpack_from(body, position)[0]
        if end > len(body):
            raise CiphertextError("public key: it ends within a key")
        keys.append(getattr(ring.api, kind)())
        try:
            seal_io.write(keys[-1], ring.context, ring.version, body[position + _PART.size : end])
        except CiphertextError:
            raise CiphertextError(f"public key: its {kind} is none of the parameters that it declares") from None
        position = end
    if position != len(body):
        raise CiphertextError(f"public key: {len(body) - position} bytes too many")
    return keys


class CkksSecretKey:
    """The only object that decrypts. It cannot be pickled, copied or written out, and prints no secret."""

    __slots__ = ("_decryptor", "_encryptor", "public")

    def __init__(self, secret: Any, public: CkksPublicKey):
        self._decryptor = public.ring.api.Decryptor(public.ring.context, secret)
        self._encryptor = public.ring.api.Encryptor(public.ring.context, secret)
        self.public = public

    @classmethod
    def generate(
        cls,
        depth: int = 1,
        precision_bits: int = 20,
        *,
        magnitude_bits: int | None = None,
        products: bool = True,
        rotations: bool = False,
    ) -> CkksSecretKey:
        """A new key pair. ``products`` adds the key by which two encrypted vectors are multiplied (a megabyte);
        ``rotations`` those that `CkksVector.total` needs: tens of megabytes."""
        parameters = choose_parameters(depth, precision_bits, magnitude_bits)
        ring = ring_of(parameters)
        generator = ring.api.KeyGenerator(ring.context)
        products = products and depth > 0
        flags = (products, rotations)
        data = [_HEADER.pack(b"FSK2", depth, precision_bits, parameters.magnitude_bits, *flags)]
        makers = [("PublicKey", generator.create_public_key)]
        makers += [("RelinKeys", generator.create_relin_keys)] * products
        makers += [("GaloisKeys", generator.create_galois_keys)] * rotations
        for kind, make in makers:
            made = getattr(ring.api, kind)()
            make(made)
            body = seal_io.read(made)
            data += [_PART.pack(len(body)), body]
        # The public key is read back from bytes: no reference to what made it is left in it.
        return cls(generator.secret_key(), CkksPublicKey(add_digest(b"".join(data))))

    def __repr__(self) -> str:
        return f"CkksSecretKey(for {self.public!r}, secret hidden)"

    def _refuse(self, *_: Any) -> NoReturn:
        raise SecurityError("a CKKS secret key is never pickled, copied or sent: send its .public")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def encrypt(self, values: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """As the public key does, at a third of the cost: the second half of a ciphertext is random as it is."""
        return self.public._encrypted(values, bound, self._encryptor.encrypt_symmetric)

    def decrypt(self, vector: CkksVector) -> NDArray[Any]:
        """The values with the scheme's error on them: for the key owner alone, not to be shown or sent on."""
        if vector.public.fingerprint != self.public.fingerprint:
            raise CiphertextError("the vector was encrypted under another public key than this secret key's")
        parts = [self.public.ring.decode(self._opened(chunk), vector.paired) for chunk in vector._chunks]
        values = np.concatenate(parts)[: vector.length]
        if not np.all(np.abs(values) <= vector.bound + vector.error):
            raise CiphertextError(
                f"a decrypted value lies outside the declared bound of {vector.bound:g}: "
                "the ciphertext is damaged, or was computed on values beyond their bounds"
            )
        return values

    def _opened(self, chunk: Any) -> Any:
        plain = self.public.ring.api.Plaintext()
        self._decryptor.decrypt(chunk, plain)
        return plain

    def decrypt_for_sharing(
        self, vector: CkksVector, precision_bits: int, flood_bits: int = 20, error: float = 0.0
    ) -> NDArray[np.float64]:
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
        if vector.paired:
            raise ParameterError("a vector of complex numbers cannot be shared: share its two parts one by one")
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
        flooded = values + deviation * os_gaussian(len(values))
        return np.round(flooded / grid) * grid
