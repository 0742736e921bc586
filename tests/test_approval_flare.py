"""Jobs that wait for people, and people who stop jobs, on real FLARE processes: what restarts of server and site do to
a job that waits, and how a stop reaches a site that is in the middle of a computation. Minutes: ``make test-flare``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")
import flare_doubles as doubles
from flare_support import parties, running_system, wait_until  # noqa: F401  a fixture is among them

from fedsift.deploy.attending import read_progress
from fedsift.deploy.flare_job import public_job, write_job
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.local_system import SERVER
from fedsift.deploy.results import check_outcome
from fedsift.deploy.run import run_on
from fedsift.deploy.status import read_status
from fedsift.desk.office import Office, Person
from fedsift.errors import FedsiftError, PartyError, PolicyRefused
from fedsift.jobs.job_file import load_job

pytestmark = pytest.mark.flare
JOB = '[parties.a]\nlabel = "outcome"\n[parties.b]\n[parties.c]\n[method]\nname = "random"\nn_features = {count}\n'


@pytest.fixture
def careful(system, tmp_path):
    """A running system; at ``a`` a person has to approve."""
    for name, text in parties(tmp_path, "vertical").items():
        rules = '\napproval = "person"\n' if name == "a" else "\n"
        system.party_file(name).write_text(text.rstrip() + rules)
    introduce_parties({name: system.party_file(name) for name in doubles.NAMES})
    yield system
    for name in doubles.NAMES:
        (system.kit(name) / "local" / "fault.json").unlink(missing_ok=True)


class Command:
    """``fedsift run --on flare`` in a thread: what it says, what it gives."""

    def __init__(self, system, folder: Path, count: int, *, resume: bool = False):
        folder.mkdir(exist_ok=True)
        (folder / "job.toml").write_text(JOB.format(count=count))
        self.said: list[str] = []
        self.facts: dict = {}
        self.error: FedsiftError | None = None
        self._job, self._kit = load_job(folder / "job.toml", files=False), system.kit(system.submitter)
        self._out, self._resume = folder / "out", resume
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.facts = run_on(self._job, "flare", self._out, kit=self._kit, resume=self._resume, say=self.said.append)
        except FedsiftError as error:
            self.error = error

    def until_it_waits(self) -> None:
        wait_until(lambda: self.error is not None or any("waiting for approval at a" in line for line in self.said))
        assert self.error is None

    def end(self) -> None:
        self._thread.join(300)
        assert not self._thread.is_alive(), self.said


def only_request(system):
    return next(each for each in Office(system.party_file("a")).approvals.standings() if each.state == "waiting")


def approve(system, id: str) -> None:
    Office(system.party_file("a")).decide(id, "approved", Person("Ann"))


def test_a_job_that_waits_when_the_server_is_restarted_is_submitted_again_and_finds_its_approval(careful, tmp_path):
    command = Command(careful, tmp_path / "x", 2)
    command.until_it_waits()
    id = only_request(careful).request.id
    careful.processes.kill(SERVER)
    approve(careful, id)  # the site goes on: people decide while there is no server
    careful.start(SERVER)
    command.end()
    assert command.error is None, (command.error, command.said)
    assert any("submitted again" in line for line in command.said), command.said
    assert sum(map(len, command.facts["selected"].values())) == 2
    assert [each.request.id for each in Office(careful.party_file("a")).approvals.standings()].count(id) == 1


def test_a_site_that_is_restarted_keeps_the_request_and_the_same_job_submitted_again_finds_it(careful, tmp_path):
    command = Command(careful, tmp_path / "x", 3)
    command.until_it_waits()
    id = only_request(careful).request.id
    careful.processes.kill("a")
    command.end()
    assert isinstance(command.error, PartyError)
    assert "'a'" in str(command.error)
    careful.start("a")
    careful.wait_for(doubles.NAMES)
    assert only_request(careful).request.id == id
    again = Command(careful, tmp_path / "x", 3, resume=True)
    again.until_it_waits()
    assert only_request(careful).request.id == id
    approve(careful, id)
    again.end()
    assert sum(map(len, again.facts["selected"].values())) == 3


def stopped_after(system, job_id: str, stop: Callable[[], object]) -> float:
    """Seconds from the stop until no site has a process of the job and each has written how it ended."""
    folders = {name: system.kit(name) / "local" / "results" / job_id for name in doubles.NAMES}
    running = {read_status(folder)["process"] for folder in folders.values()}
    began = time.monotonic()
    stop()
    while running & {process.pid for process in system.processes.marked()}:
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    assert {name: read_status(folder)["state"] for name, folder in folders.items()}.keys() == set(doubles.NAMES)
    assert "running" not in {read_status(folder)["state"] for folder in folders.values()}
    return time.monotonic() - began


def test_a_stop_at_one_site_ends_the_job_at_all_in_the_middle_of_a_computation(careful, tmp_path):
    """``b`` computes for half a minute and ``c`` is idle when the people of ``a`` stop the job."""
    (tmp_path / "job.toml").write_text(JOB.format(count=1))
    text = careful.party_file("a").read_text().replace('approval = "person"\n', "")
    careful.party_file("a").write_text(text)
    fault = {"operation": "count_table", "do": "sleep"}
    (careful.kit("b") / "local" / "fault.json").write_text(json.dumps(fault))
    content = {**public_job(load_job(tmp_path / "job.toml", files=False)), "resume": False}
    with careful.session() as session:
        job_id = session.submit(write_job(content, tmp_path / "job", doubles.FAULTY))
        folders = {name: careful.kit(name) / "local" / "results" / job_id for name in doubles.NAMES}
        ledger = folders["b"] / "ledger.csv"
        wait_until(lambda: ledger.exists() and "count_table" in ledger.read_text())
        wait_until(lambda: all(read_progress(folder) is not None for folder in folders.values()))
        office = Office(careful.party_file("a"))
        seconds = stopped_after(careful, job_id, lambda: office.stop(job_id, Person("Ann"), why="enough"))
        print(f"no site has a process of the job {seconds:.1f} s after the stop")
        status = session.wait(job_id)
        with pytest.raises(PolicyRefused, match=r"'a'.*stop"):
            check_outcome(session.fetch(job_id, tmp_path / "fetched"), status)
    assert seconds < 20  # five on a machine that has nothing else to do: the page states what was measured
