"""SEAL itself, through TenSEAL's binding: contexts at 128-bit security, and objects in and out of memory.

The binding reads and writes files only, so the bytes go through an anonymous file in memory that has no name on any
disk. Objects are built uncompressed, in SEAL's documented layout: a header (magic, version, compression, length), the
object's fields, and its coefficients as a nested array of 64-bit words. SEAL checks what it loads (parameters, ranges).
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
from typing import Any, TypeAlias

import numpy as np

from fedsift.errors import CiphertextError, MissingExtra

_HEADER = struct.Struct("<HBBBBHQ")  # magic, header length, two version bytes, compression, reserved, total length
_ARRAY = struct.Struct("<Q")
_PLAIN = struct.Struct("<32sQd")  # parameters (zeros: coefficients as they are), how many, scale
_CIPHER = struct.Struct("<32s?QQQdQ")  # parameters, NTT form, polynomials, degree, primes, scale, correction factor
_ZSTD = 2
SEED_BYTES = _HEADER.size + 1 + 64  # SEAL's description of the generator that made the second polynomial

#: An object of SEAL's: the binding has no types.
Seal: TypeAlias = Any

_threads = threading.local()


def api() -> Seal:
    """TenSEAL's plain binding of SEAL, imported when it is first needed."""
    try:
        import tenseal.sealapi as binding
    except ImportError:
        raise MissingExtra("tenseal", "all") from None
    return binding


def context(scheme: str, degree: int, prime_bits: tuple[int, ...], plain_modulus: int | None = None) -> Seal:
    """SEAL is told to enforce 128 bits of security; parameters that it refuses raise."""
    seal = api()
    parameters = seal.EncryptionParameters(getattr(seal.SCHEME_TYPE, scheme))
    parameters.set_poly_modulus_degree(degree)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(degree, list(prime_bits)))
    if plain_modulus is not None:
        parameters.set_plain_modulus(plain_modulus)
    made = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
    if not made.parameters_set():
        raise CiphertextError("SEAL refuses the lattice parameters")
    return made


def _scratch() -> int:
    """An anonymous file of this thread."""
    if not hasattr(_threads, "file"):
        if hasattr(os, "memfd_create"):
            _threads.file = os.memfd_create("fedsift")
        else:
            _threads.keep = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as its thread)
            _threads.file = _threads.keep.fileno()
    return int(_threads.file)


def read(thing: Seal) -> bytes:
    """An object's fields, uncompressed and without the outer header."""
    file = _scratch()
    os.ftruncate(file, 0)
    thing.save(f"/dev/fd/{file}")
    data = os.pread(file, os.fstat(file).st_size, 0)
    compression = _HEADER.unpack_from(data)[4]
    body = data[_HEADER.size :]
    if compression == 0:
        return body
    if compression != _ZSTD:
        raise CiphertextError("this build of SEAL compresses in a way that fedsift does not read")
    import pyarrow

    return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(body), "zstd").read())


def write(thing: Seal, context: Seal, version: bytes, body: bytes) -> None:
    """Fill a SEAL object from its fields; CiphertextError if SEAL does not accept them."""
    file = _scratch()
    os.ftruncate(file, 0)
    os.pwrite(file, _framed(version, body), 0)
    try:
        thing.load(context, f"/dev/fd/{file}")
    except (RuntimeError, ValueError, IndexError):
        raise CiphertextError("the bytes are no object of these lattice parameters: damaged or foreign") from None


def version_of(thing: Seal) -> bytes:
    """The four bytes that begin every object of the SEAL that is installed."""
    file = _scratch()
    os.ftruncate(file, 0)
    thing.save(f"/dev/fd/{file}")
    return os.pread(file, 5, 0)[:5]


def _framed(version: bytes, body: bytes) -> bytes:
    magic, length, major, minor = struct.unpack("<HBBB", version)
    return _HEADER.pack(magic, length, major, minor, 0, 0, _HEADER.size + len(body)) + body


def _words(version: bytes, words: np.ndarray) -> bytes:
    return _framed(version, _ARRAY.pack(words.size) + np.ascontiguousarray(words, dtype="<u8").tobytes())


def plaintext_fields(version: bytes, coefficients: np.ndarray) -> bytes:
    return _PLAIN.pack(bytes(32), coefficients.size, 1.0) + _words(version, coefficients)


def ciphertext_fields(version: bytes, parameters: bytes, words: np.ndarray, seed: bytes = b"") -> bytes:
    """``words``: polynomials x primes x degree; with ``seed`` the first polynomial only."""
    polynomials, primes, degree = words.shape
    size = 2 if seed else polynomials
    return _CIPHER.pack(parameters, False, size, degree, primes, 1.0, 1) + _words(version, words) + seed


def ciphertext_words(body: bytes, primes: int, degree: int) -> tuple[np.ndarray, bytes]:
    """The polynomials (polynomials x primes x degree), and what follows them: the seed, where there is one."""
    start = _CIPHER.size + _HEADER.size + _ARRAY.size
    (count,) = _ARRAY.unpack_from(body, start - _ARRAY.size)
    words = np.frombuffer(body, dtype="<u8", count=count, offset=start).reshape(-1, primes, degree)
    return words, body[start + 8 * count :]


def ciphertext_bytes(words: int) -> int:
    """How long the fields of a ciphertext with so many words are."""
    return _CIPHER.size + _HEADER.size + _ARRAY.size + 8 * words
