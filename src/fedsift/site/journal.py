"""A site's journal: one line for each thing that it let out, over all jobs, in one small SQLite file.

Rules that look at one job cannot see that two of them differ in one row. So the site remembers: which job, when, who
could read it, about which rows and columns, how many numbers of how many bits, which noise. A line is on disk before
the reply leaves; a crash leaves a line without a release, never a release without its line. Several processes may
write at once: everything that a line depends on is read again inside its transaction.

Rows stand there as keyed hashes of their ids (BLAKE2b, 16 bytes, under the site's journal key), each once; a row set is
a bitmap over them. A million rows take 16 MB once and some kilobytes a set. The file tells nobody who is in the table,
and it is the site's own: 0600, never sent.

A file among the site's secrets names the journal that belongs here. One that is gone, unreadable or another than that
is not made anew behind anybody's back, because that would forget what was let out: nothing leaves until a person
restores it or says ``fedsift party journal --restart``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsift.core.files import write_atomic
from fedsift.errors import DataError
from fedsift.site.journal_atoms import Atoms, Whole, count_persons

HASH_BYTES = 16
FORMAT = 1
_WAIT = 10.0  # seconds for another process to finish its line
_RESTART = (
    "Restore it from a backup, or begin a new one, which forgets what was let out: fedsift party journal --restart"
)
_SCHEMA = """
CREATE TABLE journal (id BLOB, proof BLOB, format INTEGER, begun TEXT, version INTEGER);
CREATE TABLE members (first INTEGER PRIMARY KEY, rows BLOB NOT NULL, persons BLOB NOT NULL);
CREATE TABLE row_sets (id BLOB PRIMARY KEY, size INTEGER NOT NULL, exact INTEGER NOT NULL, members BLOB NOT NULL);
CREATE TABLE atoms (codes BLOB NOT NULL, bits BLOB NOT NULL);
CREATE TABLE lines (
  number INTEGER PRIMARY KEY, at TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, method TEXT NOT NULL,
  operation TEXT NOT NULL, readers TEXT NOT NULL, row_set BLOB NOT NULL, rows INTEGER NOT NULL, columns TEXT NOT NULL,
  form TEXT NOT NULL, statistics INTEGER NOT NULL, bits REAL NOT NULL, counted REAL NOT NULL, epsilon REAL NOT NULL,
  rho REAL NOT NULL, digest BLOB NOT NULL, note TEXT NOT NULL
);
CREATE INDEX lines_by_job ON lines (job);
CREATE INDEX lines_by_run ON lines (run);
"""


@dataclass(frozen=True)
class Place:
    """Where a party's journal lies, and the file among its secrets that says so."""

    file: Path
    begun: Path

    @classmethod
    def of(cls, folder: Path, secrets: Path, party: str) -> Place:
        return cls(folder / f"journal-{party}.sqlite", secrets / f"journal-{party}.begun")


@dataclass(frozen=True)
class Line:
    """One release. ``bits`` is its precision, ``counted`` the part of it that reaches somebody who holds rows."""

    at: str
    job: str
    run: str
    method: str
    operation: str
    readers: str
    row_set: bytes
    rows: int
    columns: str
    form: str
    statistics: int = 0
    bits: float = 0.0
    counted: float = 0.0
    epsilon: float = 0.0
    rho: float = 0.0
    digest: bytes = b""
    note: str = ""


@dataclass(frozen=True)
class RowSet:
    """Which of the known rows, by number."""

    id: bytes
    numbers: Whole
    persons: int


_COLUMNS = ", ".join(field.name for field in fields(Line))
_PLACES = ", ".join("?" * len(fields(Line)))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def a_day_ago() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 24 * 3600))


class Journal:
    """The file, opened. ``writing()`` is the one way to change it."""

    def __init__(self, connection: sqlite3.Connection, key: bytes):
        self._db = connection
        self._key = key
        self._version = -1
        self.rows = np.zeros(0, dtype=f"S{HASH_BYTES}")  # hashes of the known rows, by number
        self.persons = np.zeros(0, dtype=np.int64)  # of each known row, a number that its person's rows share
        self._hashes = np.zeros(0, dtype=f"S{HASH_BYTES}")  # of the persons, by row
        self.atoms = Atoms.none()
        self._db.execute("BEGIN")  # one look at all tables: another process may write between two
        self._refresh()
        self._db.execute("COMMIT")

    # -- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def in_memory(cls, key: bytes | None = None) -> Journal:
        """For a simulated site: as long as the process."""
        key = key or secrets.token_bytes(32)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _begin(connection, key)
        return cls(connection, key)

    @classmethod
    def open(cls, place: Place, key: bytes) -> Journal:
        """The journal of a site; made where there never was one. What is wrong with it is told to its own people."""
        if not place.file.exists():
            if place.begun.exists():
                raise DataError(f"{place.file} is gone, and this site has let things out before. {_RESTART}")
            _create(place.file, key)
        _check_private(place.file)
        try:
            connection = sqlite3.connect(place.file, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            identity = _identity(connection, key, place.file)
            (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise sqlite3.DatabaseError(sound)
            journal = cls(connection, key)
        except (sqlite3.Error, ValueError, TypeError, zlib.error) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{place.file} cannot be read ({error}). {_RESTART}") from None
        if not place.begun.exists():
            write_atomic(place.begun, identity + "\n")
        elif place.begun.read_text(encoding="ascii").strip() != identity:
            raise DataError(f"{place.file} is not the journal that was begun here. {_RESTART}")
        return journal

    @classmethod
    def restart(cls, place: Place, key: bytes) -> Journal:
        """A new journal in place of the old one, whose files stay beside it under another name."""
        old = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}.old"
        for tail in ("", "-wal", "-shm"):
            file = place.file.with_name(place.file.name + tail)
            if file.exists():
                os.replace(file, place.file.with_name(f"{place.file.name}.{old}{tail}"))
        place.begun.unlink(missing_ok=True)
        return cls.open(place, key)

    def close(self) -> None:
        self._db.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def lines(self, condition: str = "1") -> list[Line]:
        """All lines, or those for which this holds (a text of this package)."""
        found = self._db.execute(f"SELECT {_COLUMNS} FROM lines WHERE {condition} ORDER BY number")
        return [Line(*row) for row in found]

    def total_rho(self) -> float:
        return float(self._db.execute("SELECT COALESCE(SUM(rho), 0) FROM lines").fetchone()[0])

    def has(self, condition: str, *values: str | bytes | int) -> bool:
        """Whether there is a line for which this holds (the condition is this package's own text)."""
        return self._db.execute(f"SELECT 1 FROM lines WHERE {condition} LIMIT 1", values).fetchone() is not None

    def count(self, condition: str, *values: str | bytes) -> int:
        return int(self._db.execute(f"SELECT COUNT(*) FROM lines WHERE {condition}", values).fetchone()[0])

    def rows_of_job(self, job: str) -> Whole:
        """The numbers of all rows that releases of this job (the beginning of its hash) were about."""
        found = self._db.execute(
            "SELECT DISTINCT row_set FROM lines WHERE substr(job, 1, ?) = ? AND length(row_set) > 0", (len(job), job)
        ).fetchall()
        inside = np.zeros(len(self.rows), dtype=bool)
        for (identity,) in found:
            inside[self.members(identity)] = True
        return np.flatnonzero(inside)

    def members(self, identity: bytes) -> Whole:
        """The numbers of the rows of a set."""
        row = self._db.execute("SELECT members FROM row_sets WHERE id = ?", (identity,)).fetchone()
        bits = np.unpackbits(np.frombuffer(zlib.decompress(row[0]), dtype=np.uint8))
        return np.flatnonzero(bits)

    def known(self, row_set: RowSet) -> bool:
        """Whether an exact release was about just these rows before."""
        return self._db.execute("SELECT 1 FROM row_sets WHERE id = ? AND exact", (row_set.id,)).fetchone() is not None

    # -- rows ------------------------------------------------------------------------------------------------------

    def hashed(self, ids: Iterable[object]) -> NDArray[np.bytes_]:
        """Keyed hashes: the same id has the same one for ever, and nobody without the key can try ids."""
        key, blake = self._key, hashlib.blake2b
        parts = [blake(str(each).encode(), key=key, digest_size=HASH_BYTES).digest() for each in ids]
        return np.frombuffer(b"".join(parts), dtype=f"S{HASH_BYTES}")

    def numbers(self, hashes: NDArray[np.bytes_]) -> Whole:
        """The numbers of rows, -1 for one that is not known yet."""
        if not len(self.rows):
            return np.full(len(hashes), -1, dtype=np.int64)
        if len(self.rows) >= len(hashes) and (self.rows[: len(hashes)] == hashes).all():
            return np.arange(len(hashes))  # the table as it was
        known = _first_words(self.rows)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known, _first_words(hashes), sorter=order), len(order) - 1)
        found = order[places]
        return np.where(self.rows[found] == hashes, found, -1)

    def row_set(self, numbers: Whole) -> RowSet:
        inside = np.zeros(len(self.rows), dtype=bool)
        inside[numbers] = True
        numbers = np.flatnonzero(inside)
        digest = hashlib.blake2b(numbers.astype("<i8").tobytes(), key=self._key, digest_size=HASH_BYTES).digest()
        return RowSet(digest, numbers, count_persons(self.persons, inside))

    def inside(self, row_set: RowSet) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.rows), dtype=bool)
        mask[row_set.numbers] = True
        return mask

    # -- writing ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[Journal]:
        """One transaction, alone: what another process has written is read first, and all of it is kept or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._refresh()
                yield self
                self._db.execute("UPDATE journal SET version = version + 1")
                self._db.execute("COMMIT")
                self._version += 1
            except BaseException:
                self._undo()
                raise
        except sqlite3.Error as error:
            raise DataError(f"the journal cannot be written ({error})") from None

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")
        self._version = -1
        with contextlib.suppress(sqlite3.Error):
            self._refresh()

    def add_rows(self, rows: NDArray[np.bytes_], persons: NDArray[np.bytes_]) -> Whole:
        """Rows that no release was about before; gives their numbers."""
        first = len(self.rows)
        self._add_members(first, rows, persons)
        self._take_members(np.concatenate([self.rows, rows]), np.concatenate([self._hashes, persons]))
        self.atoms = self.atoms.grown(len(self.rows))
        return np.arange(first, len(self.rows))

    def keep_persons(self, numbers: Whole, persons: NDArray[np.bytes_]) -> None:
        """Whose rows these are, where the site says so otherwise than before."""
        if (self._hashes[numbers] == persons).all():
            return
        hashes = self._hashes.copy()
        hashes[numbers] = persons
        self._db.execute("DELETE FROM members")
        self._add_members(0, self.rows, hashes)
        self._take_members(self.rows, hashes)

    def _add_members(self, first: int, rows: NDArray[np.bytes_], persons: NDArray[np.bytes_]) -> None:
        """Nothing stands for persons where each row is one."""
        told = b"" if (rows == persons).all() else persons.tobytes()
        self._db.execute("INSERT INTO members VALUES (?, ?, ?)", (first, rows.tobytes(), told))

    def keep_set(self, row_set: RowSet, *, exact: bool) -> None:
        packed = zlib.compress(np.packbits(self.inside(row_set)).tobytes())
        self._db.execute(
            "INSERT INTO row_sets VALUES (?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET exact = max(exact, excluded.exact)",
            (row_set.id, len(row_set.numbers), int(exact), packed),
        )

    def keep_atoms(self, atoms: Atoms) -> None:
        self.atoms = atoms
        codes, bits = zlib.compress(atoms.codes.astype("<i4").tobytes(), 1), atoms.bits.astype("<f8").tobytes()
        self._db.execute("UPDATE atoms SET codes = ?, bits = ?", (codes, bits))

    def add(self, line: Line) -> None:
        self._db.execute(f"INSERT INTO lines ({_COLUMNS}) VALUES ({_PLACES})", astuple(line))

    def add_up(self, line: Line) -> None:
        """Into the line that this run has of the same step and rows, where there is one."""
        same = self._db.execute(
            "UPDATE lines SET at = ?, statistics = statistics + ?, bits = bits + ? "
            "WHERE run = ? AND operation = ? AND row_set = ? AND form = ?",
            (line.at, line.statistics, line.bits, line.run, line.operation, line.row_set, line.form),
        )
        if not same.rowcount:
            self.add(line)

    # -- state -----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read rows and atoms again if another process has written."""
        (version,) = self._db.execute("SELECT version FROM journal").fetchone()
        if version == self._version:
            return
        parts = self._db.execute("SELECT rows, persons FROM members ORDER BY first").fetchall()
        rows = b"".join(part for part, _ in parts)
        persons = b"".join(told or part for part, told in parts)
        kind = f"S{HASH_BYTES}"
        self._take_members(np.frombuffer(rows, dtype=kind), np.frombuffer(persons, dtype=kind))
        codes, bits = self._db.execute("SELECT codes, bits FROM atoms").fetchone()
        read = np.frombuffer(zlib.decompress(codes), dtype="<i4").astype(np.int64)
        self.atoms = Atoms(read, np.frombuffer(bits, dtype="<f8").copy()).grown(len(self.rows))
        self._version = version

    def _take_members(self, rows: NDArray[np.bytes_], persons: NDArray[np.bytes_]) -> None:
        self.rows, self._hashes = rows, persons
        self.persons = np.unique(_first_words(persons), return_inverse=True)[1].astype(np.int64)


def _first_words(hashes: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Half of each hash, to sort by. Two of a million rows share it with probability below 2^-24; then one of them is
    taken for a new row, which refuses more and never less."""
    return np.ascontiguousarray(hashes).view("<u8").reshape(-1, 2)[:, 0]


# --- the file --------------------------------------------------------------------------------------------------------


def _proof(identity: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(b"fedsift journal" + identity, key=key, digest_size=HASH_BYTES).digest()


def _begin(connection: sqlite3.Connection, key: bytes) -> None:
    identity, none = secrets.token_bytes(HASH_BYTES), Atoms.none()
    connection.executescript(_SCHEMA)
    connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, 0)", (identity, _proof(identity, key), FORMAT, now()))
    connection.execute("INSERT INTO atoms VALUES (?, ?)", (zlib.compress(b""), none.bits.astype("<f8").tobytes()))


def _create(path: Path, key: bytes) -> None:
    """Made beside its place and put there whole; of two processes that do so at once one wins."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(partial, isolation_level=None)
        _begin(connection, key)
        connection.close()
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"{path} cannot be made ({error}); nothing leaves this site without a journal") from None
    finally:
        partial.unlink(missing_ok=True)


def _check_private(path: Path) -> None:
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(f"{path} can be read or written by others than its owner: chmod 600 {path}")


def _identity(connection: sqlite3.Connection, key: bytes, path: Path) -> str:
    identity, proof, format = connection.execute("SELECT id, proof, format FROM journal").fetchone()
    if format != FORMAT:
        raise DataError(f"{path} is of another version of fedsift (format {format}, here {FORMAT})")
    if not secrets.compare_digest(bytes(proof), _proof(bytes(identity), key)):
        raise DataError(f"{path} was written under another journal key than this site's. {_RESTART}")
    return bytes(identity).hex()
