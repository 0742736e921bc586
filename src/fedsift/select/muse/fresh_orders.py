"""Codes in an order drawn afresh for every pair of columns, under labels shuffled afresh: pure arithmetic."""

from __future__ import annotations

import secrets

import numpy as np

from fedsift.mpc.ring import key_stream

_CHUNK = 1 << 18  # row keys drawn and sorted together
_LONG = 512  # rows from which renaming bins column by column is faster than all at once


def in_fresh_orders(codes: np.ndarray, columns: np.ndarray, seed: bytes, batch: int, code_bits: int) -> np.ndarray:
    """Row r of the result: column ``columns[r]`` with shuffled labels, sorted by the keys of pair r of this batch.

    Keys of 32 bits where two equal ones are rare, of 64 elsewhere. If two keys of a pair are equal, which both parties
    see alike, both draw its keys again, so that every order stays equally likely.
    """
    rows = codes.shape[1]
    narrow = rows * rows < 1 << (32 - code_bits)
    result = np.empty((len(columns), rows), dtype=np.uint8)
    step = max(1, _CHUNK // max(1, rows))
    for number, start in enumerate(range(0, len(columns), step)):
        part = _shuffle_labels(codes, columns[start : start + step])
        stop = start + len(part)
        keys = key_stream(seed, f"row keys {number}", batch, part.shape, "<u4" if narrow else "<u8")
        result[start:stop], tied = sort_by_keys(keys, part, code_bits)
        again, attempt = np.flatnonzero(tied), 1
        while len(again):
            kind = "<u4" if narrow and attempt < 4 else "<u8"
            keys = key_stream(seed, f"row keys {number}, attempt {attempt}", batch, (len(again), rows), kind)
            result[start + again], tied = sort_by_keys(keys, part[again], code_bits)
            again, attempt = again[tied], attempt + 1
    return result


def _shuffle_labels(codes: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The columns with bin labels renamed at random, afresh for each, by the operating system's generator."""
    rows = codes.shape[1]
    picked = codes[columns]
    bins = int(picked.max(initial=0)) + 1
    random = np.frombuffer(secrets.token_bytes(4 * len(columns) * bins), np.uint32).reshape(len(columns), bins)
    names = random.argsort(axis=1).astype(np.uint8)
    if rows < _LONG:
        return np.asarray(names.ravel().take(np.arange(len(columns), dtype=np.intp)[:, None] * bins + picked))
    rest = bytes(256 - bins)
    renamed = [column.tobytes().translate(name.tobytes() + rest) for column, name in zip(picked, names)]
    return np.frombuffer(b"".join(renamed), np.uint8).reshape(len(columns), rows)


def sort_by_keys(keys: np.ndarray, codes: np.ndarray, code_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Each row's codes in the order of its keys, and which rows have two equal keys (their result is not valid).

    The code rides in the low bits of its key (``keys`` is used up), so that one sort in place does it all.
    """
    low = keys.dtype.type((1 << code_bits) - 1)
    np.bitwise_and(keys, ~low, out=keys)
    np.bitwise_or(keys, codes, out=keys)
    keys.sort(axis=1)
    result = keys.astype(np.uint8)
    result &= np.uint8(low)
    np.right_shift(keys, keys.dtype.type(code_bits), out=keys)
    return result, (keys[:, 1:] == keys[:, :-1]).any(axis=1)
