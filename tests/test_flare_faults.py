"""Strangers and faults on a running FLARE system: nobody gets in, and every job ends with a clear state everywhere."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")
import flare_doubles as doubles
import flare_support as support
from flare_support import parties, ports, running_system, wait_until  # noqa: F401  a fixture is among them
from nvflare.fuel.flare_api.flare_api import new_secure_session

from fedsift.deploy.flare_job import CLASSES, PARTY_FILE, public_job, write_job
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.local_system import SERVER, provision
from fedsift.deploy.processes import Processes
from fedsift.deploy.run import check_end, run_on
from fedsift.deploy.session import LOST
from fedsift.deploy.status import read_status
from fedsift.errors import PartyError, PartyGone, PartyTimeout, PolicyRefused, ReplyError
from fedsift.jobs.job_file import load_job
from fedsift.version import VERSION

pytestmark = pytest.mark.flare

# --- strangers -------------------------------------------------------------------------------------------------------


def test_certificate_of_another_project_gets_nothing(system, tmp_path):
    """A client of another project, with this project's root certificate and address in its kit, stays outside."""
    project = tmp_path / "project.yml"
    project.write_text((system.folder / "project.yml").read_text())
    provision(project, tmp_path / "other")
    kit = tmp_path / "other" / "fedsift" / "prod_00" / "a"
    ca = system.kit("a") / "startup" / "rootCA.pem"
    for port in ports(system):
        support.assert_gets_nothing(port, ca, kit)
    (kit / "startup" / "rootCA.pem").write_text(ca.read_text())
    client = json.loads((kit / "startup" / "fed_client.json").read_text())
    client["client"]["fqsn"] = "stranger"
    (kit / "startup" / "fed_client.json").write_text(json.dumps(client))
    joined = (system.kit(SERVER) / "log.txt").read_text().count("New client")
    with Processes() as processes:
        processes.start("stranger", ["bash", str(kit / "startup" / "sub_start.sh"), "--once"], kit / "console.log")
        time.sleep(20)
    assert (system.kit(SERVER) / "log.txt").read_text().count("New client") == joined
    with system.session() as session:
        assert sorted(session.clients()) == doubles.NAMES


@pytest.mark.parametrize("how", ["custom code", "another class"])
def test_job_that_brings_code_is_not_run(system, tmp_path, how):
    witness = tmp_path / "it-ran"
    folder = write_job(doubles.many_job("vertical", {}), tmp_path / "evil", doubles.MANY)
    config = folder / "app" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    if how == "custom code":
        (folder / "app" / "custom").mkdir()
        (folder / "app" / "custom" / "evil.py").write_text(f"open({str(witness)!r}, 'w')\nclass Evil: pass\n")
        content["components"].append({"id": "evil", "path": "evil.Evil", "args": {}})
    else:
        content["components"].append({"id": "evil", "path": "pathlib.Path", "args": {}})
    config.write_text(json.dumps(content))
    with system.session() as session:
        try:
            status = session.wait(session.submit(folder))
        except PartyError as error:
            status = str(error)
    assert status != "FINISHED:COMPLETED"
    assert not witness.exists()


# --- faults ----------------------------------------------------------------------------------------------------------


def faulty_job(folder: Path, method: str = "information_value", timeout: float | None = 8.0, **parameters) -> Path:
    content = doubles.many_job("vertical", {})
    content["method"] = {"name": method, **(parameters or {"n_features": 3})}
    content["federation"] = {"partition": "vertical", "timeout": timeout}
    return write_job(content, folder, doubles.FAULTY)


def ended_as(system, job: Path, folder: Path, meanwhile=lambda session, job_id: None) -> str:
    """Submit, wait, and raise what ended the job; gives the job's id when nothing did."""
    with system.session() as session:
        job_id = session.submit(job)
        meanwhile(session, job_id)
        status = session.wait(job_id)
        left = session.fetch(job_id, folder)
        system.last = job_id
        check_end(session, {"parties": dict.fromkeys(doubles.NAMES)}, left, status)
    return job_id


def states(system) -> dict[str, str]:
    folders = {name: system.kit(name) / "local" / "results" / system.last for name in doubles.NAMES}
    return {name: read_status(folder).get("state", "") for name, folder in folders.items()}


@pytest.fixture
def vertical(system, tmp_path):
    for name, text in parties(tmp_path, "vertical").items():
        system.party_file(name).write_text(text)
    introduce_parties({name: system.party_file(name) for name in doubles.NAMES})
    yield system
    for name in doubles.NAMES:
        for file in ("fault.json", doubles.ASKED):
            (system.kit(name) / "local" / file).unlink(missing_ok=True)


def reason(system, name: str) -> str:
    return read_status(system.kit(name) / "local" / "results" / system.last).get("why", "")


@pytest.mark.parametrize(
    ("what", "error"), [("sleep", PartyTimeout), ("garbage", ReplyError), ("nothing", ReplyError), ("die", PartyGone)]
)
def test_fault_of_a_party_ends_the_job_with_its_name_and_a_state_at_every_site(vertical, tmp_path, what, error):
    fault = {"operation": "count_table", "do": what}
    (vertical.kit("b") / "local" / "fault.json").write_text(json.dumps(fault))
    limit = None if what == "die" else 8.0  # FLARE notices a dead process, with no limit of the job's own
    with pytest.raises(error, match="'b'"):
        ended_as(vertical, faulty_job(tmp_path / "job", timeout=limit), tmp_path / "fetched")
    found = states(vertical)
    if what != "die":
        assert found["a"] == found["c"] == "failed"
        assert all("'b'" in reason(vertical, name) for name in "ac"), "who is left reads who is gone"
        assert found["b"] in ("failed", "ended")
        return
    assert found == {"a": "ended", "b": "running", "c": "ended"}  # a killed process cannot say that it is gone
    assert "whoever submitted it hears" in reason(vertical, "a")  # FLARE ends the others before they could be told
    (vertical.kit("b") / "local" / "fault.json").unlink()
    ended_as(vertical, faulty_job(tmp_path / "job2", timeout=120.0), tmp_path / "fetched2")
    assert set(states(vertical).values()) == {"finished"}
    closed = [read_status(f)["state"] for f in (vertical.kit("b") / "local" / "results").iterdir()]
    assert "running" not in closed  # what the dead process left open was closed by the next job


@pytest.mark.parametrize(
    ("what", "operation", "words"),
    [
        ("full disk", "count_table", "no space is left on its disk"),
        ("other version", "begin_job", rf"{VERSION}.*0\.0\.9.*install the same"),
    ],
)
def test_what_is_wrong_with_a_site_is_said_and_the_others_hear_it(vertical, tmp_path, what, operation, words):
    fault = {"operation": operation, "do": what}
    (vertical.kit("b") / "local" / "fault.json").write_text(json.dumps(fault))
    with pytest.raises(PartyError, match=f"'b'.*{words}"):
        ended_as(vertical, faulty_job(tmp_path / "job", timeout=120.0), tmp_path / "fetched")
    found = states(vertical)
    assert found["a"] == found["c"] == "failed"
    assert all("'b'" in reason(vertical, name) for name in "ac")


def test_a_client_that_was_disabled_is_named_before_anything_is_sent(vertical, tmp_path):
    (tmp_path / "job.toml").write_text(
        '[parties.a]\nlabel = "outcome"\n[parties.b]\n[parties.c]\n[method]\nname = "random"\nn_features = 3\n'
    )
    job, kit = load_job(tmp_path / "job.toml", files=False), vertical.kit(vertical.submitter)
    admin = new_secure_session("admin@coordinator.org", str(vertical.kit("admin@coordinator.org")), timeout=20.0)
    try:
        admin.disable_client("c")
        with vertical.session() as session:
            wait_until(lambda: "c" not in session.clients())
        told = []
        with pytest.raises(PartyGone, match=r"'c'.*whether it was disabled"):
            run_on(job, "flare", tmp_path / "out", kit=kit, say=told.append)
        assert not any("submitted" in line for line in told)
    finally:
        admin.enable_client("c")
        admin.close()
    vertical.processes.kill("c")
    vertical.start("c")
    vertical.wait_for(doubles.NAMES)
    assert run_on(job, "flare", tmp_path / "out", kit=kit, say=told.append)["selected"]


def test_policy_of_a_site_refuses_and_the_submitter_hears_which_rule(vertical, tmp_path):
    text = (vertical.kit("c") / "local" / PARTY_FILE).read_text()
    strict = text.replace("[policy]\n", '[policy]\nmethods = ["muse"]\n')
    (vertical.kit("c") / "local" / PARTY_FILE).write_text(strict)
    job = write_job(json.loads((faulty_job(tmp_path / "x") / "app/config/fedsift_job.json").read_text()),
                    tmp_path / "job", CLASSES)  # fmt: skip
    with pytest.raises(PolicyRefused, match=r"'c'.*methods"):
        ended_as(vertical, job, tmp_path / "fetched")
    assert states(vertical)["a"] == "failed"


@pytest.mark.parametrize("when", ["asked", "starting"])
def test_client_that_disappears_for_good_ends_the_job_and_may_come_back(vertical, tmp_path, when):
    """Once the conversation has begun the others hear who is gone; before that FLARE ends the job, without a word."""
    local = vertical.kit("b") / "local"
    (local / "fault.json").write_text(json.dumps({"operation": "count_table", "do": "sleep"}))

    def kill(session, job_id):
        seen = local / doubles.ASKED if when == "asked" else local / "results" / job_id / "status.json"
        wait_until(seen.exists)
        vertical.processes.kill("b")

    with pytest.raises(PartyError, match="'b'"):
        ended_as(vertical, faulty_job(tmp_path / "job"), tmp_path / "fetched", kill)
    if when == "asked":
        assert [states(vertical)[name] for name in "ac"] == ["failed", "failed"]
        assert all("'b'" in reason(vertical, name) for name in "ac")
    else:
        assert {states(vertical)[name] for name in "ac"} <= {"failed", "ended"}
    (local / "fault.json").unlink()
    vertical.start("b")
    vertical.wait_for(doubles.NAMES)
    ended_as(vertical, faulty_job(tmp_path / "job2", timeout=120.0), tmp_path / "fetched2")
    assert set(states(vertical).values()) == {"finished"}


def test_server_that_restarts_gives_up_its_jobs_and_takes_new_ones(vertical, tmp_path):
    """Killed in the middle of a job: the clients come back to the new one, and the lost job has an end everywhere."""
    (vertical.kit("b") / "local" / "fault.json").write_text(json.dumps({"operation": "count_table", "do": "sleep"}))
    with vertical.session() as session:
        lost = session.submit(faulty_job(tmp_path / "job", timeout=None))
        for name in doubles.NAMES:
            wait_until((vertical.kit(name) / "local" / "results" / lost / "status.json").exists)
    vertical.processes.kill(SERVER)
    (vertical.kit("b") / "local" / "fault.json").unlink()
    vertical.start(SERVER)
    vertical.wait_for(doubles.NAMES)
    with vertical.session() as session:
        assert session.wait(lost) == LOST
    ended_as(vertical, faulty_job(tmp_path / "job2", timeout=120.0), tmp_path / "fetched2")
    assert set(states(vertical).values()) == {"finished"}
    for name in doubles.NAMES:
        wait_until(lambda name=name: read_status(vertical.kit(name) / "local" / "results" / lost)["state"] == "ended")


def test_result_of_an_earlier_submission_is_fetched_and_a_missing_party_is_named(vertical, tmp_path):
    """The command was killed after it had submitted; --resume finds the job and fetches what it left."""
    (tmp_path / "job.toml").write_text(
        '[parties.a]\nlabel = "outcome"\n[parties.b]\n[parties.c]\n[method]\nname = "random"\nn_features = 3\n'
    )
    job, kit, out, told = (
        load_job(tmp_path / "job.toml", files=False),
        vertical.kit(vertical.submitter),
        tmp_path / "out",
        [],
    )
    content = {**public_job(job), "resume": False}
    with vertical.session() as session:
        job_id = session.submit(write_job(content, tmp_path / "submitted"))
    (tmp_path / ".out.job.json").write_text(json.dumps({"job_id": job_id, "job": content}))
    facts = run_on(job, "flare", out, kit=kit, resume=True, say=told.append)
    assert any(job_id in line for line in told)
    assert not any("submitted" in line for line in told)
    assert sum(map(len, facts["selected"].values())) == 3
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out"]
    (tmp_path / "job.toml").write_text((tmp_path / "job.toml").read_text().replace("[parties.c]", "[parties.ghost]"))
    with pytest.raises(PartyGone, match=r"'ghost'.*start its client"):
        run_on(load_job(tmp_path / "job.toml", files=False), "flare", out, kit=kit, say=told.append)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_command_aborts_its_job_at_every_site(vertical, tmp_path, sent, code):
    """Whoever stops waiting takes the work back: parties must not go on computing for nobody."""
    (tmp_path / "job.toml").write_text(
        '[parties.a]\nlabel = "outcome"\n[parties.b]\n[parties.c]\n[method]\nname = "pso_evffs"\npopsize = 3\n'
        'iterations = 2000\npatience = "none"\nmodels = 1\nfolds = 2\nmax_trees = 2\nmax_depth = 2\n'
    )
    command = [sys.executable, "-c", "from fedsift.cli.main import main; main()", "run", str(tmp_path / "job.toml"),
               "--on", "flare", "--kit", str(vertical.kit(vertical.submitter)),
               "--out", str(tmp_path / "out")]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        told = next(line for line in running.stderr if "submitted as" in line)
        vertical.last = told.split()[-1]
        for name in doubles.NAMES:
            wait_until((vertical.kit(name) / "local" / "results" / vertical.last / "status.json").exists)
        running.send_signal(sent)
        assert running.wait(120) == code
        assert "aborting" in running.stderr.read()
    assert not (tmp_path / "out").exists()
    with vertical.session() as session:
        wait_until(lambda: session.status(vertical.last).startswith("FINISHED"))
        assert session.status(vertical.last) != "FINISHED:COMPLETED"
    wait_until(lambda: not {"running", ""} & set(states(vertical).values()))
    ended_as(vertical, faulty_job(tmp_path / "next", timeout=120.0), tmp_path / "fetched")
    assert set(states(vertical).values()) == {"finished"}  # the system takes the next job
