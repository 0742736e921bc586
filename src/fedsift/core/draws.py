"""Draws that a party can repeat and nobody else can recompute.

Folds, splits, samples, first weights, gates, shadows: whatever depends on something secret is drawn from
HMAC(secret of the site, purpose, row set, label, random_state). The same site, rows and seed give the same draw, in
every run and on every transport; who knows the seed but not the secret learns nothing from it. Masks, keys, pads and
noise never come from here: they are the operating system's, drawn by the party that they protect, and used once.

A deployed site keeps its secret in a file. A simulated one derives it from its own table, so that two Python sessions
on the same data agree; whoever simulates holds the data anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import numpy as np

from fedsift.core.table import Table
from fedsift.errors import ParameterError

SECRET_BYTES = 32


def simulated_secret(name: str, table: Table) -> bytes:
    """A secret that follows from a table's own content, in whatever order its rows stand."""
    order = np.argsort(table.ids, kind="stable")
    digest = hashlib.sha256(f"fedsift simulated site: {name}".encode())
    digest.update(rows_digest(table))
    for column in table.columns:
        digest.update(column.encode())
        values = table.codes(column)[0] if table.kinds[column] == "categorical" else table.values(column)
        digest.update(np.ascontiguousarray(values[order]).tobytes())
    if table.label is not None:
        digest.update("\0".join(map(str, table.label[order].tolist())).encode())
    return digest.digest()


def rows_digest(table: Table) -> bytes:
    """Which rows these are, in whatever order they stand."""
    return hashlib.sha256("\0".join(sorted(table.ids.tolist())).encode()).digest()


def private_generator(secret: bytes, table: Table, purpose: str, random_state: Any) -> np.random.Generator:
    """The generator of one purpose over these rows and this label."""
    if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
        raise ParameterError(
            "random_state must be a whole number (or None) where parties draw: a generator cannot travel"
        )
    told = json.dumps([purpose, table.label_name, random_state], default=int)
    key = hmac.new(secret, told.encode() + b"\0" + rows_digest(table), hashlib.sha256).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "big")))
