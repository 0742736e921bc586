"""A small table with everything that real ones have, the same with canary values in it, and federations of both."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.core.party import Site
from fedsift.core.transports.base import Transport
from fedsift.core.transports.inprocess import InProcess
from fedsift.testing.doubles import Recording

COLUMN_CANARY = 918273645.4378125  # exact in float64; its float32 and integer forms are looked for too
LABEL_CANARIES = ("CANARY-LABEL-YES", "CANARY-LABEL-NO")
Maker = Callable[[dict[str, Site]], Transport]


def mixed_table(n: int = 60, seed: int = 0, classes: int = 2) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, categories, booleans, missing values, a constant and a duplicate; the label depends on some of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    y[:classes] = np.arange(classes)
    frame = pd.DataFrame(
        {
            "signal": y + rng.normal(0, 0.5, n),
            "weak": y * 0.5 + rng.normal(0, 1, n),
            "noise": rng.normal(0, 1, n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "holes": np.where(rng.random(n) < 0.3, np.nan, rng.normal(0, 1, n) + y),
            "flag": rng.random(n) < 0.4 + 0.2 * (y == 0),
            "constant": 3.0,
            "counts": rng.poisson(2 + y, n),
        }
    )
    frame["copy"] = frame["signal"]
    return frame, pd.Series(y, name="outcome")


def federation(partition: str, rows: int = 48, transport: Maker = InProcess, *, canaries: bool = False) -> Federation:
    """The mixed table dealt to three parties (hybrid: a grid of four)."""
    X, y = mixed_table(rows)
    if canaries:
        X = X.assign(signal=np.where(np.arange(len(X)) % 5 == 0, COLUMN_CANARY, X["signal"]))
        X["noise"] = np.where(np.arange(len(X)) % 7 == 0, COLUMN_CANARY, X["noise"])
        X["colour"] = np.where(np.arange(len(X)) % 3 == 0, "CANARY-COLOUR", X["colour"])
        y = pd.Series(np.where(y == 1, *LABEL_CANARIES), name="outcome")
    if partition == "horizontal":
        X = X.select_dtypes("number").fillna(0.0)
    grid = (2, 2) if partition == "hybrid" else None
    fed = Federation.split(X, y, parties=3, partition=partition, grid=grid)
    fed._link.transport = transport(fed.simulated)
    return fed


def record(fed: Federation) -> Recording:
    """From now on every byte to and from the parties is written down."""
    recording = Recording(fed._link.transport)
    fed._link.transport = recording
    return recording


def carries(data: bytes, needle: bytes) -> bool:
    """Whether a message holds a canary. Four bytes stand somewhere in some MB of ciphertexts by chance; a column that
    leaks holds them in every fifth row, so three times at least (by chance below 1e-7 in 30 MB)."""
    return data.count(needle) >= 3 if len(needle) < 8 else needle in data


def needles() -> list[bytes]:
    """The canaries in every plain encoding."""
    number, whole = COLUMN_CANARY, int(COLUMN_CANARY)
    return [
        struct.pack("<d", number), struct.pack(">d", number), struct.pack("<f", number), struct.pack(">f", number),
        struct.pack("<q", whole), struct.pack("<i", whole), struct.pack(">q", whole)[3:], str(whole).encode(),
        b"CANARY-COLOUR", *(label.encode() for label in LABEL_CANARIES),
    ]  # fmt: skip


def forms_of(fed: Federation, log: Recording) -> list[str]:
    """The ledger's form of each recorded message, matched by sender and receiver (both logs are complete)."""
    forms: dict[tuple[str, str], list[str]] = {}
    for row in fed.ledger.frame().itertuples():
        forms.setdefault((row.sender, row.receiver), []).append(row.form)
    return [forms[sender, receiver].pop(0) for sender, receiver, _ in log.log]
