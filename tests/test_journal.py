"""The journal of a site: atoms against a slow oracle, the file through crashes, two processes, loss and damage."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sqlite3
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.core.ledger import numbers_in
from fedsift.crypto.dp import epsilon_to_rho, rho_to_epsilon
from fedsift.errors import DataError
from fedsift.site.journal import Journal, Line, Place, now
from fedsift.site.journal_atoms import Atoms

KEY = bytes(range(32))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secrets").mkdir(mode=0o700)
    return Place.of(tmp_path, tmp_path / "secrets", "bank")


def line(**said) -> Line:
    told = {"at": now(), "job": "ab" * 32, "run": "r", "method": "gini", "operation": "x.y", "readers": "shop",
            "row_set": b"", "rows": 0, "columns": "", "form": "aggregate", **said}  # fmt: skip
    return Line(**told)


def enter(journal: Journal, ids: list[str]) -> None:
    """An exact release about these rows."""
    with journal.writing():
        hashes = journal.hashed(ids)
        new = journal.numbers(hashes) < 0
        if new.any():
            journal.add_rows(hashes[new], hashes[new])
        rows = journal.row_set(journal.numbers(hashes))
        atoms, _ = journal.atoms.cut(journal.inside(rows))
        journal.keep_atoms(atoms)
        journal.keep_set(rows, exact=True)
        journal.add(line(row_set=rows.id, rows=len(ids)))


# --- atoms -----------------------------------------------------------------------------------------------------------

SETS = st.lists(st.sets(st.integers(0, 11), min_size=1), min_size=1, max_size=6)


@given(SETS)
@settings(max_examples=80, deadline=None)
def test_two_rows_are_in_one_atom_when_no_release_tells_them_apart(sets):
    atoms = Atoms.none().grown(12)
    for rows in sets:
        atoms, _ = atoms.cut(np.isin(np.arange(12), list(rows)))
    for a, b in itertools.combinations(range(12), 2):
        alike = all((a in rows) == (b in rows) for rows in sets)
        assert (atoms.codes[a] == atoms.codes[b]) == alike
    assert [bool(code) for code in atoms.codes] == [any(row in rows for rows in sets) for row in range(12)]


@given(SETS, st.lists(st.integers(1, 3), min_size=12, max_size=12))
@settings(max_examples=80, deadline=None)
def test_the_smallest_new_atom_is_counted_in_persons(sets, persons):
    atoms, owners = Atoms.none().grown(12), np.array(persons)
    for number, rows in enumerate(sets):
        atoms, new = atoms.cut(np.isin(np.arange(12), list(rows)))
        before = [tuple(row in each for each in sets[:number]) for row in range(12)]
        after = [tuple(row in each for each in sets[: number + 1]) for row in range(12)]
        changed: dict[tuple[bool, ...], set[int]] = {}
        for row in range(12):
            together = {after[other] for other in range(12) if before[other] == before[row]}
            if any(after[row]) and (len(together) > 1 or not any(before[row])):
                changed.setdefault(after[row], set()).add(persons[row])
        assert atoms.smallest(new, owners) == min(map(len, changed.values()), default=None)


@given(st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1), st.floats(0.1, 5)), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_no_set_of_rows_is_told_more_bits_about_than_its_rows_are_charged(releases):
    """For every subset T: releases inside T have at most persons(T) x (most bits a row) bits together."""
    atoms = Atoms.none().grown(8)
    for rows, bits in releases:
        inside = np.isin(np.arange(8), list(rows))
        atoms, _ = atoms.cut(inside)
        atoms = atoms.charged(inside, bits, len(rows))
    most = atoms.most_bits(np.ones(8, dtype=bool))
    for size in range(1, 9):
        for chosen in map(set, itertools.combinations(range(8), size)):
            assert sum(bits for rows, bits in releases if rows <= chosen) <= most * size + 1e-9


def test_numbers_of_a_reply_and_their_precision():
    assert numbers_in({"counts": np.array([3, 200]), "name": "age", "flags": np.array([True, False])}).bits == 2 * 8 + 2
    assert numbers_in([1.5, np.zeros((2, 3))]).bits == 7 * 53
    assert numbers_in({"sealed": b"xyz", "none": None}).statistics == 0
    assert numbers_in(np.array([1, 2], dtype=np.float32)).precision == 24


# --- the file --------------------------------------------------------------------------------------------------------


def test_what_was_let_out_is_known_after_a_restart(place):
    first = Journal.open(place, KEY)
    enter(first, ["a", "b", "c"])
    enter(first, ["b", "c"])
    codes = first.atoms.codes.tolist()
    first.close()
    again = Journal.open(place, KEY)
    assert again.atoms.codes.tolist() == codes
    assert len(again.lines()) == 2
    assert again.numbers(again.hashed(["c", "z"])).tolist() == [2, -1]


def test_the_file_is_private_and_names_nobody(place):
    journal = Journal.open(place, KEY)
    enter(journal, [f"patient-{i}" for i in range(50)])
    journal.close()
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
    assert b"patient" not in place.file.read_bytes()


def test_a_million_rows_take_little_room(place):
    journal = Journal.open(place, KEY)
    hashes = np.frombuffer(np.random.default_rng(0).bytes(16 * 200_000), dtype="S16")
    with journal.writing():
        journal.add_rows(hashes, hashes)
        rows = journal.row_set(np.arange(200_000))
        journal.keep_set(rows, exact=True)
        journal.keep_atoms(journal.atoms.cut(journal.inside(rows))[0])
    journal.close()
    assert place.file.stat().st_size < 40 * 200_000


def test_a_journal_that_is_gone_is_not_made_anew_in_silence(place):
    Journal.open(place, KEY).close()
    place.file.unlink()
    with pytest.raises(DataError, match=r"is gone.*--restart"):
        Journal.open(place, KEY)
    Journal.restart(place, KEY).close()
    assert Journal.open(place, KEY).lines() == []


def test_the_journal_of_another_site_or_day_is_not_taken_for_this_one(place, tmp_path):
    Journal.open(place, KEY).close()
    other = Place(tmp_path / "other.sqlite", tmp_path / "other.begun")
    Journal.open(other, KEY).close()
    os.replace(other.file, place.file)
    with pytest.raises(DataError, match="not the journal that was begun here"):
        Journal.open(place, KEY)


def test_a_journal_under_another_key_is_refused(place):
    Journal.open(place, KEY).close()
    with pytest.raises(DataError, match="another journal key"):
        Journal.open(place, bytes(32))


@pytest.mark.parametrize("damage", ["text", "cut", "zeros", "empty"])
def test_a_damaged_journal_is_refused(place, damage):
    journal = Journal.open(place, KEY)
    enter(journal, [f"c{i}" for i in range(500)])
    journal.close()
    data = place.file.read_bytes()
    place.file.write_bytes(
        {"text": b"no database at all", "cut": data[: len(data) // 3], "zeros": bytes(len(data)), "empty": b""}[damage]
    )
    with pytest.raises(DataError, match=r"cannot be read.*--restart"):
        Journal.open(place, KEY)


def test_a_journal_that_others_can_read_is_refused(place):
    Journal.open(place, KEY).close()
    place.file.chmod(0o644)
    with pytest.raises(DataError, match="chmod 600"):
        Journal.open(place, KEY)


def test_a_restart_keeps_the_old_file(place):
    journal = Journal.open(place, KEY)
    enter(journal, ["a"])
    journal.close()
    Journal.restart(place, KEY).close()
    (old,) = place.file.parent.glob("journal-bank.sqlite.*.old")
    assert sqlite3.connect(old).execute("SELECT COUNT(*) FROM lines").fetchone() == (1,)


def test_a_transaction_that_fails_leaves_nothing(place):
    journal = Journal.open(place, KEY)
    enter(journal, ["a", "b"])
    with pytest.raises(RuntimeError):
        _write_half(journal)
    assert (len(journal.lines()), len(journal.rows), len(journal.atoms.codes)) == (1, 2, 2)


def _write_half(journal: Journal) -> None:
    with journal.writing():
        journal.add_rows(journal.hashed(["c"]), journal.hashed(["c"]))
        journal.add(line())
        raise RuntimeError("the machine stops here")


def test_a_full_disk_is_an_error_and_leaves_nothing(place):
    journal = Journal.open(place, KEY)
    enter(journal, ["a", "b"])
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataError, match=r"cannot be written.*full"):
        enter(journal, [f"c{i}" for i in range(20_000)])
    assert len(journal.rows) == 2


def test_a_locked_journal_is_an_error(place, monkeypatch):
    monkeypatch.setattr("fedsift.site.journal._WAIT", 0.1)
    holder, waiter = Journal.open(place, KEY), Journal.open(place, KEY)
    with holder.writing(), pytest.raises(DataError, match=r"cannot be written.*locked"):
        enter(waiter, ["a"])
    enter(waiter, ["a"])


def test_one_process_sees_what_another_wrote_before_it_decides(place):
    one, two = Journal.open(place, KEY), Journal.open(place, KEY)
    enter(one, ["a", "b", "c", "d"])
    enter(two, ["a", "b"])
    with one.writing():
        assert len(set(one.atoms.codes.tolist())) == 2


def _write_many(place: Place, name: str) -> None:
    journal = Journal.open(place, KEY)
    for number in range(20):
        enter(journal, [f"{name}{number}", "shared"])


def test_several_processes_lose_no_line(place):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_many, args=(place, name)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    journal = Journal.open(place, KEY)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(journal.lines()) == 40
    assert len(journal.rows) == 41
    assert len(set(journal.atoms.codes.tolist())) == 41


def test_persons_that_are_told_later_count_from_then_on():
    journal = Journal.in_memory()
    enter(journal, ["a", "b", "c"])
    with journal.writing():
        journal.keep_persons(np.array([0, 1]), journal.hashed(["p", "p"]))
    assert len(set(journal.persons.tolist())) == 2


def test_noise_adds_up_in_rho():
    rho = epsilon_to_rho(1.0, 1e-6)
    assert rho_to_epsilon(4 * rho, 1e-6) < 2.5
