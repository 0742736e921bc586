"""Who told whom what, in which form: every message of a run, counted in bytes as they were on the wire.

The ledger is written by the federation at the one place where bytes are handed to the transport, so nothing can be
sent past it. A privacy officer reads ``Ledger.disclosures()``: one line for each kind of thing that left a party.

A *release* is how many numbers a reply holds and how exact they are: what a site's journal adds up
(``site/journal.py``). It is counted in bits: the number of statistics times the precision of each. Numbers are taken as
they stand in the reply: 53 bits for a float, as many as the largest one has for whole numbers, one for a truth value.
Texts (names) are none. An operation whose receiver reads something else than the reply says so itself (``releases=``).
"""

from __future__ import annotations

import csv
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsift.errors import ParameterError

COORDINATOR = "coordinator"

#: What a message gives away, from least to most, each explained in a sentence.
FORMS = {
    "control": "Instructions, sizes and acknowledgements: nothing computed from a row's values.",
    "ciphertext": "Encrypted: readable to the holder of the key alone.",
    "masked": "Hidden by a random mask that the receiver does not know.",
    "pseudonymous": "Row by row, under pseudonyms or positions that the receiver cannot trace to an id.",
    "aggregate": "Numbers summed or averaged over many rows.",
    "plain": "Readable as it is.",
}


@dataclass(frozen=True)
class Entry:
    """One message: what travels, and what its receiver can make of it."""

    round: int
    sender: str
    receiver: str
    operation: str
    bytes: int
    form: str
    about: str
    relayed: bool = False
    ciphertexts: int = 0
    scheme: str = ""
    seconds: float = 0.0
    opened: str = ""  # what its receiver (or who it is passed on to) can open or compute of it, the form first
    opened_by: str = ""  # who that is: the coordinator, or which parties it is passed on to


def check_form(form: str) -> str:
    if form not in FORMS:
        raise ParameterError(f"a disclosure must be one of {', '.join(FORMS)}; got {form!r}")
    return form


class Ledger:
    """An append-only list of entries: who sent how many bytes of what to whom. Safe to write from several threads.

    Parameters
    ----------
    entries, notes : what is in it from the start.

    Examples
    --------
    >>> import fedsift as fs
    >>> from fedsift.core.ledger import Entry
    >>> ledger = fs.Ledger()
    >>> ledger.add(Entry(1, "coordinator", "bank", "count_table", 90, "control", "request: count_table"))
    >>> ledger.add(Entry(1, "bank", "coordinator", "count_table", 40, "control", "number of rows and columns"))
    >>> ledger.bytes(), ledger.rounds(), ledger.encryption_line()
    (130, 1, 'encryption: OFF (no ciphertext was sent)')
    """

    def __init__(self, entries: Iterable[Entry] = (), notes: Iterable[str] = ()):
        self._entries = list(entries)
        self._notes = [(0, text) for text in notes]  # where in the list of entries a note was made, and its text
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"entries": list(self._entries), "notes": list(self._notes)}  # a lock is neither copied nor stored

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._entries, self._notes, self._lock = state["entries"], state["notes"], threading.Lock()

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._entries.append(entry)

    def take_up(self, earlier: Iterable[Entry]) -> None:
        """Put the messages of an earlier attempt at the same job first; their rounds are counted back from 0."""
        found = list(earlier)
        if not found:
            return
        last = max(entry.round for entry in found)
        with self._lock:
            self._entries[:0] = [replace(entry, round=entry.round - last) for entry in found]
            self._notes = [(at + len(found), text) for at, text in self._notes]
        self.note(f"{len(found):,} messages are of an earlier attempt at this job (rounds up to 0)")

    @classmethod
    def read(cls, path: str | Path) -> Ledger:
        """A ledger from a file that was written by ``frame().to_csv``."""
        kinds: dict[str, Callable[[str], Any]] = {
            "int": int, "float": float, "str": str, "bool": lambda text: text == "True",
        }  # fmt: skip
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return cls(Entry(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Entry)}) for row in rows)

    def note(self, text: str) -> None:
        """A sentence for the reader: a protection that was turned off, a budget spent."""
        with self._lock:
            self._notes.append((len(self._entries), text))

    @property
    def entries(self) -> tuple[Entry, ...]:
        with self._lock:
            return tuple(self._entries)

    @property
    def notes(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(dict.fromkeys(text for _, text in self._notes))

    def __len__(self) -> int:
        return len(self._entries)

    def since(self, mark: int) -> Ledger:
        """The part written after ``len(ledger)`` was ``mark``."""
        with self._lock:
            return Ledger(self._entries[mark:], [text for at, text in self._notes if at >= mark])

    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def rounds(self) -> int:
        return len({entry.round for entry in self.entries})

    def frame(self) -> pd.DataFrame:
        """One row a message."""
        columns = list(Entry.__dataclass_fields__)
        return pd.DataFrame([asdict(entry) for entry in self.entries], columns=columns)

    def traffic(self) -> pd.DataFrame:
        """Bytes and messages by round, party, direction and operation."""
        rows = [
            {
                "round": e.round,
                "party": e.receiver if e.sender == COORDINATOR else e.sender,
                "direction": "to party" if e.sender == COORDINATOR else "from party",
                "operation": e.operation,
                "messages": 1,
                "bytes": e.bytes,
                "seconds": e.seconds,
            }
            for e in self.entries
        ]
        keys = ["round", "party", "direction", "operation"]
        if not rows:
            return pd.DataFrame(columns=[*keys, "messages", "bytes", "seconds"])
        return pd.DataFrame(rows).groupby(keys, as_index=False, sort=False).sum()

    def disclosures(self) -> pd.DataFrame:
        """What left each party, to whom and in which form: one row a kind."""
        columns = ["sender", "receiver", "form", "about", "operation", "relayed", "messages", "bytes"]
        frame = self.frame()
        if frame.empty:
            return pd.DataFrame(columns=columns)
        frame["messages"] = 1
        keys = ["sender", "receiver", "form", "about", "operation", "relayed"]
        table = frame.groupby(keys, as_index=False, sort=False)[["messages", "bytes"]].sum()
        return table[columns]

    def encryption(self) -> dict[str, Any]:
        """Was encryption on, by which scheme, over how many ciphertexts? Counted from what was really sent."""
        schemes = sorted({e.scheme for e in self.entries if e.scheme})
        ciphertexts = sum(e.ciphertexts for e in self.entries)
        masked = sum(e.bytes for e in self.entries if e.form == "masked")
        return {"on": ciphertexts > 0, "schemes": schemes, "ciphertexts": ciphertexts, "masked_bytes": masked}

    def encryption_line(self) -> str:
        facts = self.encryption()
        if not facts["on"]:
            if facts["masked_bytes"]:
                return f"encryption: by masks, {facts['masked_bytes']:,} bytes sent under random masks, no ciphertexts"
            return "encryption: OFF (no ciphertext was sent)"
        return f"encryption: on, {', '.join(facts['schemes'])}, {facts['ciphertexts']:,} ciphertexts sent"

    def __str__(self) -> str:
        table = self.disclosures()
        table = table[table["form"] != "control"]
        lines = [f"{len(self):,} messages, {self.bytes():,} bytes, {self.rounds()} rounds; {self.encryption_line()}"]
        for row in table.itertuples():
            relayed = ", relayed unread" if row.relayed else ""
            lines.append(f"  {row.sender} -> {row.receiver}: {row.about} [{row.form}{relayed}], {row.bytes:,} bytes")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__


#: Forms that say nothing of what is opened in the end; and that nobody opens it.
HIDDEN, NOBODY = ("ciphertext", "masked"), "nobody"
#: Who can read what an operation lets out (``opened_by=``).
#: ``result``: a figure of the answer itself, which is passed on; it counts whoever opened it.
READERS = ("coordinator", "active", "passive", "parties", "result")


@dataclass(frozen=True)
class Release:
    """So many numbers of so many bits each."""

    statistics: int
    precision: float
    by_row: bool = False  # a number of each row: how often is what counts

    @property
    def bits(self) -> float:
        return self.statistics * self.precision


def numbers_in(value: object) -> Release:
    """The numbers of a reply, and the mean precision of one."""
    sizes = list(_numbers(value))
    count = sum(size for size, _ in sizes)
    bits = sum(size * precision for size, precision in sizes)
    return Release(count, bits / count if count else 0.0)


def rounded_numbers(value: object) -> Release:
    """Figures that were rounded before they left: of each as many digits as the longest of them has."""
    told = [number for number in _plain_numbers(value) if math.isfinite(number)]
    decimals = max((_decimals(number) for number in told), default=0)
    largest = max((abs(number) for number in told), default=0.0)
    return Release(len(told), math.log2(10**decimals * max(1.0, largest) + 1.0))


def later(value: object) -> Release:
    """Nothing yet: what is computed about these rows here leaves with a later step, so the rows are entered now."""
    return Release(0, 0.0)


def other_persons(value: object) -> Release:
    """Sums that parties with the same columns read, whose rows are of other persons: written down, not counted."""
    return Release(0, 0.0)


def seen_by_row(value: object) -> Release:
    """Something of each row that no budget of bits could hold: the form is judged, and an exception is a person's."""
    return Release(0, 0.0)


def row_by_row(value: object) -> Release:
    """A number of each row, which somebody reads: limited by how often, not in bits (any budget would be exceeded)."""
    return Release(1, 24.0, by_row=True)


def scores_read(value: object) -> Release:
    """This party's part of scores that the label holder reads in total; where nothing leaves it, none."""
    return Release(0, 0.0) if value is None else row_by_row(value)


def _plain_numbers(value: object) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from (float(number) for number in value.ravel())
    elif isinstance(value, (int, float, np.generic)) and not isinstance(value, (bool, np.bool_)):
        yield float(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _plain_numbers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _plain_numbers(item)


def _decimals(number: float) -> int:
    return next((places for places in range(16) if round(number, places) == number), 16)


def _numbers(value: object) -> Iterator[tuple[int, float]]:
    if isinstance(value, np.ndarray):
        if value.size and value.dtype.kind in "fiub":
            yield value.size, _precision(value)
    elif isinstance(value, (bool, int, float, np.generic)):
        yield from _numbers(np.asarray(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)


def _precision(values: np.ndarray) -> float:
    if values.dtype.kind == "b":
        return 1.0
    if values.dtype.kind == "f":
        return float(np.finfo(values.dtype).nmant + 1)
    return float(max(1, int(values.max()).bit_length(), int(values.min()).bit_length()))
