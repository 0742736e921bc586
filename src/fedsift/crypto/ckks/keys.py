"""Vectors of real numbers that stay encrypted while plain numbers are added and multiplied in: CKKS, on SEAL.

Who may do what: whoever has the `CkksPublicKey` encrypts and computes; only the `CkksSecretKey` decrypts.

Why it is secure:
- Parameters come from one function, `choose_parameters`, and never leave the 128-bit column of the
  HomomorphicEncryption.org standard; a peer's public key with any other parameters is refused. Under ring-LWE a
  ciphertext is then indistinguishable from noise (IND-CPA). SEAL seeds its generator from the operating
  system.
- A decrypted value carries the scheme's error, which depends on the secret key: whoever knows the plaintext and sees
  the raw decryption learns about the key (Li and Micciancio 2021, "IND-CPA-D"). `decrypt` is therefore for the key
  owner's eyes.
- A computed ciphertext also tells the key owner about the *operands*, through its error, and a relay that saw the
  input about a plain multiplier: `CkksVector.blind` before it leaves.
- The bounds that travel with a vector are in the clear: they must come from public knowledge, never from the data.
- Against a peer who gets crafted ciphertexts decrypted, CKKS has no defence (it is not IND-CCA).

A slot holds a complex number: a plain factor ``x + 1j * y`` gives two products for the price of one (``decrypt`` then
returns complex numbers). SEAL comes with TenSEAL and is used directly, not by way of TenSEAL's vectors, which take 2 to
20 times as long (they encrypt at the top level only, compress all that is sent, and copy through lists).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from fedsift.crypto import seal_io
from fedsift.crypto.ckks.parameters import CkksParameters, Ring, choose_parameters, ring_of
from fedsift.crypto.ckks.vector import (
    DEFAULT_BOUND,
    CkksVector,
    add_digest,
    as_vector,
    check_bound,
    check_digest,
    split,
)
from fedsift.crypto.seal_io import Seal
from fedsift.errors import CiphertextError, ParameterError, SecurityError

__all__ = ["CkksParameters", "CkksPublicKey", "CkksSecretKey", "CkksVector", "choose_parameters"]

_HEADER = struct.Struct("<4sBBB")  # magic, depth, precision bits, magnitude bits
_MAGIC = b"FSK3"


class CkksPublicKey:
    """Encrypts and computes, cannot decrypt. Safe to send: ``to_bytes``."""

    __slots__ = ("_data", "encryptor", "fingerprint", "parameters", "ring")

    def __init__(self, data: bytes):
        body = check_digest(data, _MAGIC, _HEADER.size, "public key")
        _, depth, precision, magnitude = _HEADER.unpack_from(body)
        try:
            self.parameters = choose_parameters(depth, precision, magnitude)
        except ParameterError as problem:
            raise CiphertextError(f"public key with impossible parameters: {problem}") from None
        self.ring = ring_of(self.parameters)
        self.encryptor = self.ring.api.Encryptor(self.ring.context, _load_key(self.ring, body[_HEADER.size :]))
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

    def _encrypted(self, values: ArrayLike, bound: float, encrypt: Callable[[Seal, Seal], None]) -> CkksVector:
        array = as_vector(values)
        check_bound(array, bound, self.parameters)
        chunks = []
        for part in split(array, self.parameters.slots):
            chunks.append(self.ring.api.Ciphertext(self.ring.context))
            encrypt(self.ring.encode(part, self.parameters.depth), chunks[-1])
        error = self.parameters.fresh_error(bound)
        return CkksVector(self, chunks, len(array), self.parameters.depth, bound, error, np.iscomplexobj(array))

    def encrypt_zero(self, depth_left: int) -> Seal:
        """One ciphertext of zeros at that level."""
        made = self.ring.api.Ciphertext(self.ring.context)
        self.encryptor.encrypt_zero(self.ring.levels[depth_left], made)
        made.scale = self.parameters.scale
        return made


def _load_key(ring: Ring, body: bytes) -> Seal:
    key = ring.api.PublicKey()
    try:
        seal_io.write(key, ring.context, ring.version, body)
    except CiphertextError:
        raise CiphertextError("public key: what it holds is no key of the parameters that it declares") from None
    return key


class CkksSecretKey:
    """The only object that decrypts. It cannot be pickled, copied or written out, and prints no secret."""

    __slots__ = ("_decryptor", "_encryptor", "public")

    def __init__(self, secret: Seal, public: CkksPublicKey):
        self._decryptor = public.ring.api.Decryptor(public.ring.context, secret)
        self._encryptor = public.ring.api.Encryptor(public.ring.context, secret)
        self.public = public

    @classmethod
    def generate(
        cls, depth: int = 1, precision_bits: int = 20, *, magnitude_bits: int | None = None
    ) -> CkksSecretKey:  # fmt: skip
        """A new key pair for ``depth`` multiplications in a row (see `choose_parameters`)."""
        parameters = choose_parameters(depth, precision_bits, magnitude_bits)
        ring = ring_of(parameters)
        generator = ring.api.KeyGenerator(ring.context)
        made = ring.api.PublicKey()
        generator.create_public_key(made)
        data = _HEADER.pack(_MAGIC, depth, precision_bits, parameters.magnitude_bits) + seal_io.read(made)
        # The public key is read back from bytes: no reference to what made it is left in it.
        return cls(generator.secret_key(), CkksPublicKey(add_digest(data)))

    def __repr__(self) -> str:
        return f"CkksSecretKey(for {self.public!r}, secret hidden)"

    def _refuse(self, *_: object) -> NoReturn:
        raise SecurityError("a CKKS secret key is never pickled, copied or sent: send its .public")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def encrypt(self, values: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """As the public key does, at a third of the cost: the second half of a ciphertext is random as it is."""
        return self.public._encrypted(values, bound, self._encryptor.encrypt_symmetric)

    def decrypt(self, vector: CkksVector) -> np.ndarray:
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

    def _opened(self, chunk: Seal) -> Seal:
        plain = self.public.ring.api.Plaintext()
        self._decryptor.decrypt(chunk, plain)
        return plain
