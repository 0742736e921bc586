"""Attacks that take several jobs, on sites that are started anew between them: the journal remembers."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift import InformationValue
from fedsift.core.federation import Federation
from fedsift.core.job import Job
from fedsift.core.message import decode, encode
from fedsift.core.operation import Operation, operations
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, OperationRefused, PolicyRefused
from fedsift.mpc.psi import align
from fedsift.site.journal import Journal, Line, Place
from fedsift.site.journal_noise import is_noisy
from fedsift.site.journal_rules import Asked
from fedsift.site.site import PolicySite
from hostile.coordinator import Hostile, policy, refused, tables

ROWS = 120  # twelve bits, by default
KEY = bytes(32)
IV = InformationValue(n_features=2)
CLASSES = {"scheme": "auto", "task": "auto"}


class Stopping(Hostile):
    """Sites with their journals on disk; ``restart`` is another day, perhaps with another table."""

    def __init__(self, folder: Path, rows: int = ROWS, **rules: Any):
        super().__init__(rows, **rules)
        self.folder, self.rules = folder, rules
        self.given = tables(rows)
        self.persons: dict[str, np.ndarray] = {}
        self.restart()

    def place(self, name: str) -> Place:
        return Place.of(self.folder, self.folder, name)

    def restart(self, given: dict[str, Table] | None = None, **rules: Any) -> None:
        self.given, self.rules = given or self.given, {**self.rules, **rules}
        self.sites = {
            name: PolicySite(
                name, table, policy(**self.rules), journal=Journal.open(self.place(name), KEY),
                persons=self.persons.get(name),
            )
            for name, table in self.given.items()
        }  # fmt: skip

    def answer(self, rows: np.ndarray, method: fs.Selector = IV, **fields: Any) -> dict[str, Any]:
        """What the bank says to a question about these rows, in a job of its own."""
        job = self.of(method, **fields)
        asked = {"session": self.begin(job), "job": job.hash}
        view = f"view of {asked['session']}"
        made = self.send("bank", "core.define_view", **asked, view=view, rows=rows)
        return made if "error" in made else self.send("bank", "labels.encrypt_classes", **asked, on=view, **CLASSES)

    def lines(self) -> list[Any]:
        return self.sites["bank"].journal.journal.lines()


@pytest.fixture
def hostile(tmp_path):
    return Stopping(tmp_path)


def named(id: str) -> Operation:
    return next(each for each in operations() if each.id == id)


def grown(rows: int) -> dict[str, Table]:
    """The same table, with more rows (or fewer)."""
    many = tables(400)
    return {name: table.take(np.arange(rows)) for name, table in many.items()}


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_and_rows_minus_one_on_another_day(hostile):
    assert "ok" in hostile.answer(np.arange(ROWS))
    hostile.restart()
    refused(hostile.answer(np.arange(ROWS - 1)), "min_rows")
    hostile.restart()
    refused(hostile.answer(np.arange(1, ROWS)), "min_rows")
    assert "ok" in hostile.answer(np.arange(ROWS))


def test_alternating_sums_over_four_days(tmp_path):
    hostile = Stopping(tmp_path, rows=220)
    parts = np.split(np.arange(220), [55, 110, 165])
    for i, j in ((0, 1), (1, 2), (2, 3)):
        assert "ok" in hostile.answer(np.concatenate([parts[i], parts[j]]))
        hostile.restart()
    refused(hostile.answer(np.concatenate([parts[0], parts[3][1:]])), "min_rows")


def test_folds_pass_on_another_day_too(tmp_path):
    hostile = Stopping(tmp_path, rows=260)
    for fold in np.array_split(np.random.default_rng(0).permutation(260), 5):
        assert "ok" in hostile.answer(np.setdiff1d(np.arange(260), fold))
        hostile.restart()


def test_a_table_that_has_lost_or_gained_a_row_since(tmp_path):
    hostile = Stopping(tmp_path)
    hostile.restart(grown(200))
    assert "ok" in hostile.answer(np.arange(200))
    hostile.restart(grown(199))
    refused(hostile.answer(np.arange(199)), "min_rows")
    hostile.restart(grown(203))
    refused(hostile.answer(np.arange(203)), 'rows = "as in JOB"')
    hostile.restart(grown(260))
    assert "ok" in hostile.answer(np.arange(260))


def test_a_row_is_known_by_its_id_wherever_it_stands(hostile):
    assert "ok" in hostile.answer(np.arange(ROWS))
    turned = {name: table.take(np.arange(ROWS)[::-1]) for name, table in hostile.given.items()}
    hostile.restart(turned)
    refused(hostile.answer(np.arange(ROWS - 1)), "min_rows")
    assert "ok" in hostile.answer(np.arange(ROWS))


def test_another_coordinator_another_method_another_partner_the_same_rows(hostile):
    assert "ok" in hostile.answer(np.arange(ROWS))
    hostile.restart()
    refused(hostile.answer(np.arange(ROWS - 1), fs.GiniFilter(n_features=2), coordinator="shop"), "min_rows")


def test_a_refusal_is_worded_alike_whatever_it_is_for(hostile):
    assert "ok" in hostile.answer(np.arange(ROWS))
    few = hostile.answer(np.arange(3))
    one_less = hostile.answer(np.arange(ROWS - 1))
    ten_less = hostile.answer(np.arange(10, ROWS))
    assert few["what"] == one_less["what"] == ten_less["what"]


# --- the rows of an earlier job --------------------------------------------------------------------------------------


def fitted(hostile: Stopping, method: fs.Selector, as_in: str | None = None) -> tuple[fs.Selector, str]:
    fed = Federation(InProcess(hostile.sites), list(hostile.sites), active="bank")
    shared = align(fed, as_in=as_in)
    return method.fit(shared), shared.job(*method.announcement()).hash.hex()


def test_a_table_that_grew_by_a_few_rows_is_used_with_the_rows_of_the_earlier_job(tmp_path):
    hostile = Stopping(tmp_path)
    hostile.restart(grown(200))
    first, job = fitted(hostile, InformationValue(n_features=2))
    hostile.restart(grown(204))
    with pytest.raises(PolicyRefused, match="min_rows"):
        fitted(hostile, fs.GiniFilter(n_features=2))
    again, _ = fitted(hostile, InformationValue(n_features=2), as_in=job[:12])
    assert again.selected_ == first.selected_
    assert hostile.sites["bank"].distinct_rows("aligned") == 200


@pytest.mark.parametrize("job", ["ab", "zz" * 8, "00" * 8, "' OR 1=1 --  "])
def test_the_rows_of_a_job_that_never_was(hostile, job):
    with pytest.raises(OperationRefused, match=r"as in JOB|no such job"):
        fitted(hostile, InformationValue(n_features=2), as_in=job)


def test_the_rows_of_a_job_with_somebody_else(hostile):
    """A hash can be guessed: method, parameters, names. The shop would learn which of its customers the clinic has."""
    job = hostile.of(IV, parties=("bank", "clinic"))
    asked = {"session": hostile.begin(job, to=("bank",)), "job": job.hash}
    hostile.send("bank", "core.define_view", **asked, view="patients", rows=np.arange(60))
    assert "ok" in hostile.send("bank", "labels.encrypt_classes", **asked, on="patients", **CLASSES)
    assert hostile.sites["bank"].journal.rows_of_job(job.hash.hex(), job.parties).tolist() == list(range(60))
    shop = Hostile.federation(hostile)
    with pytest.raises(OperationRefused, match="no such job"):
        align(shop, as_in=job.hash.hex())


# --- bits ------------------------------------------------------------------------------------------------------------


def test_answers_of_many_jobs_about_the_same_rows_exceed_the_budget(hostile):
    """Each says which of the partner's columns were kept: at last the rows have told a tenth of a bit each."""
    replies = [hostile.answer(np.arange(ROWS), InformationValue(n_features=2, n_bins=4 + n)) for n in range(12)]
    allowed = sum("ok" in reply for reply in replies)
    assert 1 <= allowed <= 6
    for reply in replies[allowed:]:
        refused(reply, "max_bits")
    hostile.restart()
    refused(hostile.answer(np.arange(ROWS), InformationValue(n_features=2, n_bins=20)), "max_bits")


def test_the_same_job_again_tells_nothing_new(hostile):
    for _ in range(12):
        assert "ok" in hostile.answer(np.arange(ROWS))
    hostile.restart()
    assert "ok" in hostile.answer(np.arange(ROWS))
    assert sum(line.counted for line in hostile.lines()) < 4


def test_a_short_wide_table_exceeds_the_budget_with_the_answer_alone(tmp_path):
    hostile = Stopping(tmp_path, partner_columns=2000)
    reply = hostile.answer(np.arange(ROWS), InformationValue(n_features=20))
    refused(reply, "On a short, wide table the answer alone")
    job = hostile.of(InformationValue(n_features=20)).hash.hex()
    assert f'accept_bits = ["{job[:32]}"]' in reply["what"]
    hostile.restart(accept_bits=[job[:31]])
    refused(hostile.answer(np.arange(ROWS), InformationValue(n_features=20)), "max_bits")
    hostile.restart(accept_bits=[job[:32]])
    assert "ok" in hostile.answer(np.arange(ROWS), InformationValue(n_features=20))
    refused(hostile.answer(np.arange(ROWS), InformationValue(n_features=21)), "max_bits")


def test_accepting_takes_more_than_a_few_digits(tmp_path):
    hostile = Stopping(tmp_path, partner_columns=2000, accept_bits=["", *"0123456789abcdef"])
    refused(hostile.answer(np.arange(ROWS), InformationValue(n_features=20)), "max_bits")


def test_calling_vertical_parties_horizontal_does_not_make_answers_free(hostile):
    """Horizontal parties hold other people; with whom ids were matched, that is not so."""
    refused(hostile.announced(hostile.of(IV, partition="horizontal").canonical), "is for vertical parties")
    hostile.aligned()
    rules = hostile.sites["bank"].journal
    assert rules._holders(hostile.of(fs.FedHalving(), partition="horizontal")) == ("shop",)
    assert rules._holders(hostile.of(fs.FedHalving(), partition="horizontal", parties=("bank", "other"))) == ()


def test_probing_by_refusals_uses_the_budget_up(hostile):
    """Rows and rows minus one row after another: each refusal tells a bit, and at last nothing is told any more."""
    assert "ok" in hostile.answer(np.arange(ROWS))
    said = []
    for left_out in range(14):
        said.append(hostile.answer(np.delete(np.arange(ROWS), left_out))["what"])
        if left_out == 7:
            hostile.restart()
    assert "'min_rows'" in said[0]
    assert "'max_bits'" in said[-1]
    refused(hostile.answer(np.arange(ROWS)), "max_bits")


def test_numbers_that_a_party_opens_as_coordinator_count_and_a_neutral_ones_do_not(tmp_path):
    def told(coordinator: str) -> float:
        folder = tmp_path / coordinator
        folder.mkdir()
        hostile = Stopping(folder, rows=300, max_bits="any")
        fed = Federation(InProcess(hostile.sites), list(hostile.sites), active="bank", coordinator=coordinator)
        _own_information(hostile, fed)
        return sum(line.counted for line in hostile.lines() if line.operation == "muse.own_information")

    assert told("neutral") == 0
    assert told("shop") >= 53


def _own_information(hostile: Stopping, fed: Federation) -> None:
    """One exact number about the bank's columns, written down as MUSE's would be."""
    marked = named("muse.own_information")
    job = fed.job(*fs.Muse(n_features=2, min_cell=10).announcement())
    rules = hostile.sites["bank"].journal
    asked = Asked(marked, job, "run", np.arange(300), ("signal",))
    rules.enter(asked)
    rules.write(asked, np.array([0.25]))


# --- noise -----------------------------------------------------------------------------------------------------------


def test_noise_adds_up_over_jobs_and_days(hostile):
    hostile.restart(total_epsilon=2.5)
    noisy = InformationValue(n_features=2, epsilon=1.0)
    said = []
    for _ in range(8):
        said.append(hostile.answer(np.arange(ROWS), noisy))
        hostile.restart()
    allowed = sum("ok" in reply for reply in said)
    assert 2 <= allowed <= 6, "in rho: more than by adding epsilons, and not for ever"
    refused(said[-1], "total_epsilon")


def test_noise_is_counted_once_a_run_and_again_in_the_next(hostile):
    noisy = InformationValue(n_features=2, epsilon=1.0)
    hostile.answer(np.arange(ROWS), noisy)
    hostile.answer(np.arange(ROWS), noisy)
    assert [line.epsilon for line in hostile.lines() if line.rho > 0] == [1.0, 1.0]


def test_the_name_of_a_session_used_again_pays_for_its_noise_again(hostile):
    """The coordinator names sessions: were noise counted by these names, one name would average it away."""
    job = hostile.of(InformationValue(n_features=2, epsilon=1.0))
    for _ in range(3):
        assert hostile.announced(job.canonical, session="mine") == {"ok": None}
        assert "ok" in hostile.send("bank", "labels.encrypt_classes", session="mine", job=job.hash, **CLASSES)
        _end(hostile, "mine")
    hostile.restart()
    assert hostile.announced(job.canonical, session="mine") == {"ok": None}
    assert "ok" in hostile.send("bank", "labels.encrypt_classes", session="mine", job=job.hash, **CLASSES)
    assert sum(line.rho > 0 for line in hostile.lines()) == 4


def _end(hostile: Stopping, session: str) -> None:
    request = {"operation": "core.end_session", "view": "", "session": "", "job": b"", "round": next(hostile.rounds),
               "arguments": {"session": session}}  # fmt: skip
    assert decode(hostile.sites["bank"].handle(encode(request))) == {"ok": None}


def test_a_job_whose_noise_does_not_cover_all_that_is_read_is_exact():
    flafe = fs.VerticalFLAFE(epsilon=1.0).announcement()
    assert not is_noisy(Job(*flafe, parties=("bank", "shop"), active="bank"))
    assert is_noisy(Job(*InformationValue(epsilon=1.0).announcement(), parties=("bank", "shop"), active="bank"))
    assert not is_noisy(Job(*InformationValue().announcement(), parties=("bank", "shop"), active="bank"))


def test_with_noise_a_row_more_or_less_is_no_matter_of_atoms(hostile):
    noisy = InformationValue(n_features=2, epsilon=0.5)
    assert "ok" in hostile.answer(np.arange(ROWS), noisy)
    assert "ok" in hostile.answer(np.arange(ROWS - 1), noisy)


@pytest.mark.parametrize("reader", ["neutral", "shop"])
def test_exact_numbers_void_later_noise_about_the_same_rows_towards_whoever_got_them(hostile, reader):
    """The coordinator opened them, and the shop knows which of its columns were kept."""
    hostile.restart(max_epsilon=1.0, max_bits="any")
    rules, noisy = hostile.sites["bank"].journal, InformationValue(n_features=2, epsilon=1.0)
    asked = Asked(named("tables.open_counts"), hostile.of(IV), "earlier", np.arange(60), ("signal",))
    rules.enter(asked)
    rules.write(asked, {"own": np.arange(8)})
    hostile.restart()
    refused(hostile.answer(np.arange(ROWS), noisy, coordinator=reader), "promise nothing")
    assert "ok" in hostile.answer(np.arange(60, ROWS), noisy, coordinator=reader)


def test_without_a_limit_the_journal_says_that_the_noise_is_void(hostile):
    asked = Asked(named("tables.open_counts"), hostile.of(IV), "earlier", np.arange(ROWS), ("signal",))
    hostile.sites["bank"].journal.enter(asked)
    hostile.sites["bank"].journal.write(asked, {"own": np.arange(8)})
    assert "ok" in hostile.answer(np.arange(ROWS), InformationValue(n_features=2, epsilon=1.0))
    assert ["void" in line.note for line in hostile.lines() if line.rho > 0] == [True]


# --- persons ---------------------------------------------------------------------------------------------------------


def test_two_hundred_rows_of_one_person_are_one_person(tmp_path):
    hostile = Stopping(tmp_path, rows=220)
    hostile.persons["bank"] = np.array([f"p{max(0, i - 160)}" for i in range(220)])  # 161 rows are p0's
    hostile.restart()
    refused(hostile.answer(np.arange(161), fs.SFFS(n_features=2)), "min_rows")


def test_a_person_less_is_found_out_by_atoms_of_persons(tmp_path):
    """Sixty rows less pass as rows; they are one person's."""
    hostile = Stopping(tmp_path, rows=220)
    sffs = fs.SFFS(n_features=2)  # counts no cells
    assert "ok" in hostile.answer(np.arange(220), sffs)
    assert "ok" in hostile.answer(np.arange(60, 220), sffs)
    (tmp_path / "persons").mkdir()
    other = Stopping(tmp_path / "persons", rows=220)
    other.persons["bank"] = np.array([f"p{max(0, i - 59)}" for i in range(220)])
    other.restart()
    assert "ok" in other.answer(np.arange(220), sffs)
    refused(other.answer(np.arange(60, 220), sffs), "min_rows")


def test_cells_count_persons_and_the_refusal_does_not_say_how_many_rows_one_has(tmp_path):
    hostile = Stopping(tmp_path, rows=220)
    hostile.persons["bank"] = np.array([f"p{i // 3}" for i in range(220)])
    hostile.restart()
    reply = hostile.announced(hostile.of(InformationValue(min_cell=29)).canonical)
    refused(reply, "min_cell counts persons here (10)")
    assert "30" not in reply["what"]
    assert hostile.announced(hostile.of(InformationValue(min_cell=30)).canonical) == {"ok": None}


def test_probing_whose_rows_are_whose_uses_the_budget_up(tmp_path):
    hostile = Stopping(tmp_path, rows=220)
    hostile.persons["bank"] = np.array([f"p{i // 2}" for i in range(220)])
    hostile.restart()
    job = hostile.of(fs.SFFS(n_features=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    said = [
        hostile.send("bank", "core.define_view", **asked, view=f"v{i}", rows=np.arange(i, i + 51)).get("what", "")
        for i in range(30)
    ]
    assert "'min_rows'" in said[0]
    assert "'max_bits'" in said[-1]
    refused(hostile.send("bank", "core.define_view", **asked, view="all", rows=np.arange(220)), "max_bits")


def test_announcing_alignments_without_running_them_uses_no_list_up(hostile):
    hostile.restart(max_id_lists=1)
    job = hostile.job("alignment", {"blocks": [["bank", "shop"]], "rows": {"bank": ROWS, "shop": ROWS}})
    for _ in range(5):
        assert hostile.announced(job.canonical) == {"ok": None}
    assert hostile.aligned().n_rows == ROWS


# --- partners, id lists, sums ----------------------------------------------------------------------------------------


def test_a_partner_that_is_not_on_the_list(hostile):
    hostile.restart(partners=["insurer"])
    refused(hostile.announced(hostile.of(IV).canonical), "'partners'")
    hostile.restart(partners=["shop"])
    assert hostile.announced(hostile.of(IV).canonical) == {"ok": None}


def test_ids_are_matched_with_so_many_lists_only(hostile):
    hostile.restart(max_id_lists=3)
    for _ in range(3):
        hostile.aligned()
        hostile.restart()
    with pytest.raises(PolicyRefused, match="max_id_lists"):
        hostile.aligned()


def test_a_sum_that_two_rows_make_up_is_refused(hostile):
    """Per-class sums of a column in which one row has nearly everything."""
    rich = np.ones(ROWS)
    rich[3] = 1e6
    given = {**hostile.given, "bank": hostile.given["bank"].with_columns({"fortune": rich})}
    hostile.restart(given)
    assert "'max_share'" in _class_sums(hostile)["what"]


def _class_sums(hostile: Stopping) -> dict[str, Any]:
    job = hostile.of(fs.SFFS(n_features=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    assert "ok" in hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES)
    told = {"told": {"sums": {}, "notes": {}, "shapes": {}}, "clip": 3.0}
    return hostile.send("bank", "f_test.open_class_sums", **asked, **told)


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_journal_that_somebody_deleted_stops_the_site(hostile):
    assert "ok" in hostile.answer(np.arange(ROWS))
    hostile.sites["bank"].journal.journal.close()
    for file in hostile.folder.glob("journal-bank.sqlite*"):
        file.unlink()
    with pytest.raises(DataError, match="--restart"):
        hostile.restart()
    Journal.restart(hostile.place("bank"), KEY).close()
    hostile.restart()
    assert "ok" in hostile.answer(np.arange(ROWS - 1))


def test_a_full_disk_lets_nothing_out(hostile):
    job = hostile.of(IV)
    asked = {"session": hostile.begin(job), "job": job.hash}
    journal = hostile.sites["bank"].journal.journal
    journal._db.execute(f"PRAGMA max_page_count = {journal._db.execute('PRAGMA page_count').fetchone()[0]}")
    for note in ("x" * 1000, ""):
        with pytest.raises(DataError, match="full"):
            _fill(journal, note)
    reply = hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES)
    refused(reply, "cannot write its journal")
    assert "sqlite" not in reply["what"]
    assert "disk" not in reply["what"]


def _fill(journal: Journal, note: str) -> None:
    while True:
        with journal.writing():
            journal.add(Line("", "", "", "", "", "", b"", 0, "", "", note=note))


def test_a_journal_that_another_process_holds_lets_nothing_out(hostile):
    job = hostile.of(IV)
    asked = {"session": hostile.begin(job), "job": job.hash}
    hostile.sites["bank"].journal.journal._db.execute("PRAGMA busy_timeout = 50")
    with sqlite3.connect(hostile.place("bank").file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES), "cannot write its journal")
        other.execute("ROLLBACK")
    assert "ok" in hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES)


def test_two_sites_of_one_journal_cannot_share_out_an_attack(hostile):
    """Two processes at once, one asked about all rows, the other about all but one."""
    other = Stopping(hostile.folder)
    assert "ok" in hostile.answer(np.arange(ROWS))
    refused(other.answer(np.arange(ROWS - 1)), "min_rows")


def test_the_line_is_there_before_the_reply_leaves(hostile, monkeypatch):
    """A crash right after the line: a line without a release, never the other way round."""
    site = hostile.sites["bank"]
    monkeypatch.setattr(site, "_answered", lambda *told: (_ for _ in ()).throw(KeyboardInterrupt))
    job = hostile.of(IV)
    asked = {"session": "s9", "job": job.hash}
    with pytest.raises(KeyboardInterrupt):
        hostile.announced(job.canonical, session="s9")
    with pytest.raises(KeyboardInterrupt):
        hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES)
    hostile.restart()
    assert any(line.operation == "labels.encrypt_classes" for line in hostile.lines())


def test_a_retransmission_writes_no_second_line(hostile):
    job = hostile.of(IV)
    asked = {"session": hostile.begin(job), "job": job.hash}
    first = hostile.send("bank", "labels.encrypt_classes", **asked, **CLASSES)
    lines = len(hostile.lines())
    again = decode(hostile.sites["bank"].handle(hostile.last))
    assert encode(again) == encode(first)
    assert len(hostile.lines()) == lines
