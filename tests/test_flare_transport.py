"""The FLARE transport, the job folder and the site's files, without starting FLARE."""

from __future__ import annotations

import calendar
import errno
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import mixed_table
from doubles import Recording

import fedsift as fs
from fedsift.core.message import decode, encode
from fedsift.core.operation import operation
from fedsift.core.party import count_table
from fedsift.core.transports.base import Aborted
from fedsift.core.transports.flare import Flare
from fedsift.crypto.sealed_box import SealedBox
from fedsift.deploy.flare_job import CLASSES, PARTY_FILE, public_job, read_job, settings_of, write_job
from fedsift.deploy.results import check_outcome, place
from fedsift.deploy.status import ENDED, RUNNING, close_abandoned, read_status, remove_old, write_status
from fedsift.errors import (
    AlignmentError,
    DataError,
    FedsiftError,
    JobError,
    OperationFailed,
    OperationRefused,
    ParameterError,
    PartyGone,
    PartyTimeout,
    ReplyError,
    SealError,
)
from fedsift.jobs.job_file import load_job
from fedsift.mpc.group_sum import Groups


class TimedOut(Exception):
    """As FLARE's CollabCallError carries it."""

    cause = TimeoutError("function handle timed out")
    cause_type = "TimeoutError"


class RunAborted(Exception):
    """What FLARE raises in a call of a job that it has ended; known by its name."""


def over_flare(fed: fs.Federation, **replaced) -> fs.Federation:
    """The same federation with the parties behind the FLARE transport; ``replaced`` are calls of single parties."""
    sites = fed._link.transport.sites
    calls = {name: (lambda data, limit, site=site: site.handle(data)) for name, site in sites.items()}
    fed._link.transport = Flare({**calls, **replaced})
    return fed


def test_same_bytes_and_same_answer_as_in_one_process(small_fed):
    X, y = mixed_table()
    other = over_flare(fs.Federation.split(X, y, parties=["bank", "shop", "lab"]))
    here, there = (fs.Muse(n_features=3, n_bins=4).fit(fed) for fed in (small_fed, other))
    assert there.selected_ == here.selected_
    keys = ["party", "direction", "operation"]
    totals = [t.traffic_.groupby(keys)[["messages", "bytes"]].sum() for t in (here, there)]
    assert totals[0].equals(totals[1])


def test_every_byte_is_in_the_ledger(small_fed):
    fed = over_flare(small_fed)
    log = fed._link.transport = Recording(fed._link.transport)
    fs.InformationValue(n_features=3).fit(fed)
    assert sum(len(data) for *_, data in log.log) == fed.ledger.bytes()


def test_calls_of_one_round_go_out_together():
    meeting = threading.Barrier(3, timeout=60)

    def answer(data, limit):
        meeting.wait()  # nobody passes before all three were called
        return data[::-1]

    transport = Flare(dict.fromkeys("abc", answer))
    found = transport.exchange({name: f"for {name}".encode() for name in "abc"}, 60.0)
    assert {name: delivery.data for name, delivery in found.items()} == {n: f"for {n}".encode()[::-1] for n in "abc"}


def test_slow_party_is_a_timeout_that_names_it(small_fed):
    def slow(data, limit):
        assert limit == 0.5
        raise TimedOut

    with pytest.raises(PartyTimeout, match="shop"):
        over_flare(small_fed, shop=slow).ask(count_table, to=["bank", "shop", "lab"], timeout=0.5)


def test_party_that_disappears_is_gone_and_named(small_fed):
    def gone(data, limit):
        raise ConnectionError("target unreachable")

    with pytest.raises(PartyGone, match="shop"):
        over_flare(small_fed, shop=gone).ask(count_table, to=["bank", "shop"])
    del small_fed._link.transport.calls["lab"]
    with pytest.raises(PartyGone, match="lab"):
        small_fed.ask(count_table, to="lab")


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"FS\x01\xff", None, 3, {"ok": 1}, encode({"ok": {"rows": "x"}})])
def test_garbage_is_refused_with_the_name_of_its_sender(small_fed, garbage):
    with pytest.raises(ReplyError, match="shop"):
        over_flare(small_fed, shop=lambda data, limit: garbage).ask(count_table, to=["bank", "shop"])


def test_late_or_second_answer_is_not_taken_for_a_later_one(small_fed):
    """The first answer comes after it was given up, while the second request waits for its own."""
    site = small_fed._link.transport.sites["shop"]
    begun, released, asked = threading.Event(), threading.Event(), []

    def late(data, limit):
        asked.append(data)
        if len(asked) == 1:
            begun.set()
            released.wait(60)
            return encode({"ok": {"rows": 10**6, "columns": 10**6}})
        released.set()
        time.sleep(0.1)  # the late answer is there before this one
        return site.handle(data)

    fed = over_flare(small_fed, shop=late)
    thread = threading.Thread(target=lambda: fed._link.transport.exchange({"shop": b"first"}, 60.0))
    thread.start()
    assert begun.wait(60)
    assert fed.ask(count_table, to="shop").rows == 60
    thread.join()


def test_ended_job_ends_the_conversation():
    release = threading.Event()
    calls = {"a": lambda data, limit: release.wait(60), "b": lambda data, limit: b"there"}
    with pytest.raises(Aborted) as ended:
        Flare(calls, aborted=lambda: True).exchange({"a": b"", "b": b""}, None)
    assert ended.value.waiting == ["a"]
    release.set()


@pytest.mark.parametrize("first", ["ended", "gone"])
def test_end_of_a_run_does_not_hide_who_ended_it(small_fed, first):
    """FLARE ends the job because a party died; that nobody hears the end of the session then is no news."""
    ended = threading.Event()

    def dies(data, limit):
        ended.set()
        raise RunAborted if first == "ended" else ConnectionError

    fed = over_flare(small_fed, shop=dies)
    sites = {name: fed._link.transport.calls[name] for name in ("bank", "lab")}

    def answers(name):
        def call(data, limit):
            if decode(data)["operation"] == "core.end_session":
                raise RunAborted
            return sites[name](data, limit)

        return call

    fed._link.transport.calls |= {name: answers(name) for name in sites}
    fed._link.transport.aborted = lambda: first == "ended" and ended.is_set()
    with pytest.raises(Aborted if first == "ended" else PartyGone) as told, fed.session() as run:
        run.ask(count_table, to="shop")
    assert told.value.waiting == ["shop"] if first == "ended" else told.value.party == "shop"


def test_party_that_flare_gave_up_is_not_waited_for():
    release, lost = threading.Event(), set()
    threading.Timer(0.2, lost.add, ["a"]).start()
    found = Flare({"a": lambda data, limit: release.wait(30)}, lost=lost).exchange({"a": b""}, None)
    assert found["a"].failure == "gone"
    release.set()


def test_tampered_sealed_payload_is_detected_and_named(small_fed):
    """The coordinator's machine flips one bit of a box on its way from one party to another."""
    site = small_fed._link.transport.sites["lab"]

    def tamper(data, limit):
        request = decode(data)
        boxes = request["arguments"].get("boxes", {})
        for group, box in boxes.items():
            boxes[group] = SealedBox(box.data[:-1] + bytes([box.data[-1] ^ 1]))
        return site.handle(encode(request))

    fed = over_flare(small_fed, lab=tamper)
    with pytest.raises(SealError, match=r"'lab'.*from 'bank'.*altered on the way"), fed.session() as run:
        Groups(run, {"all": ["bank", "shop", "lab"]})


@operation("test_flare_transport.foreign", discloses="plain", about="what nobody registered here")
def foreign(party):
    """An operation of this test module, which is no plug-in of the parties."""


def test_operation_that_is_not_registered_gets_nothing(small_fed):
    with pytest.raises(OperationRefused, match="not part of fedsift"):
        over_flare(small_fed).ask(foreign, to="shop")


# --- the job folder --------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path):
    X, y = mixed_table(40)
    X.assign(person=range(40), outcome=y)[["person", "outcome", "signal", "noise"]].to_csv(tmp_path / "secret-a.csv")
    X.assign(person=range(40))[["person", "weak", "counts"]].to_csv(tmp_path / "secret-b.csv")
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "secret-a.csv"\nid = "person"\nlabel = "outcome"\n'
        '[parties.shop]\nfile = "secret-b.csv"\nid = "person"\n'
        '[method]\nname = "pso_evffs"\npopsize = 4\ncheckpoint = "swarm.json"\n'
    )
    return load_job(tmp_path / "job.toml")


def test_flare_job_carries_no_code_no_data_and_no_path(job, tmp_path):
    folder = write_job(public_job(job), tmp_path / "flare-job")
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    for word in ("secret", "person", "outcome", "swarm.json", str(tmp_path), ".csv", "def ", "import "):
        assert word not in text, word
    assert not [path for path in folder.rglob("*") if path.suffix not in ("", ".json") or path.name == "custom"]
    content = read_job(folder / "app" / "config")
    assert content["method"] == {"name": "pso_evffs", "popsize": 4}
    assert settings_of(content).federation.partition == "vertical"
    named = set(_values(json.loads((folder / "app/config/config_fed_client.json").read_text())))
    assert {value for value in named if "." in str(value)} <= set(CLASSES)


def _values(content):
    if isinstance(content, dict):
        return [x for value in content.values() for x in _values(value)]
    return [x for value in content for x in _values(value)] if isinstance(content, list) else [content]


def test_submitted_job_cannot_name_a_file_of_the_server(job):
    pytest.importorskip("nvflare")
    from fedsift.deploy.coordinator import _job

    content = public_job(job)
    content["method"]["checkpoint"] = "/etc/passwd"
    with pytest.raises(ParameterError, match="checkpoint"):
        _job(content)
    content["method"] = {"name": "no_such"}
    with pytest.raises(JobError, match="no_such"):
        _job(content)


def test_a_checkpoint_is_of_one_job_and_not_of_all_jobs_of_that_name(job, tmp_path):
    pytest.importorskip("nvflare")
    from fedsift.deploy.coordinator import _checkpoint

    content = public_job(job)
    kept = _checkpoint({**content, "resume": False}, tmp_path)
    assert _checkpoint({**content, "resume": True}, tmp_path) == kept
    other = _checkpoint({**content, "method": {**content["method"], "popsize": 5}}, tmp_path)
    assert other != kept
    assert _checkpoint({**content, "name": "../../x"}, tmp_path).parent == other.parent == kept.parent


@pytest.mark.parametrize("name", ["a b", "server"])
def test_name_that_no_certificate_can_carry_is_refused(tmp_path, name):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "job.toml").write_text(f'[parties."{name}"]\nfile = "a.csv"\nlabel = "y"\n[method]\nname = "random"\n')
    with pytest.raises(JobError, match="certificate"):
        public_job(load_job(tmp_path / "job.toml"))


def test_job_for_sites_needs_no_files_and_local_job_does(tmp_path):
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nlabel = "y"\n[parties.shop]\n[method]\nname = "random"\nn_features = 2\n'
    )
    assert list(public_job(load_job(tmp_path / "job.toml", files=False))["parties"]) == ["bank", "shop"]
    with pytest.raises(JobError, match="file is missing"):
        load_job(tmp_path / "job.toml")


def test_coordinator_leaves_a_whole_result_although_it_has_no_file(tmp_path):
    """The whole job as FLARE's server runs it, the parties' sites behind calls in this process."""
    pytest.importorskip("nvflare")
    from fedsift.deploy.coordinator import run_job
    from fedsift.deploy.introductions import introduce_parties
    from fedsift.deploy.run import party_text
    from fedsift.site.site import open_site

    X, y = mixed_table(60)
    X.assign(outcome=y)[["outcome", "signal", "noise"]].to_csv(tmp_path / "a.csv", index_label="person")
    X[["weak", "counts"]].head(55).to_csv(tmp_path / "b.csv", index_label="person")
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "a.csv"\nid = "person"\nlabel = "outcome"\n[parties.shop]\nfile = "b.csv"\n'
        'id = "person"\n[method]\nname = "information_value"\nn_features = 2\n'
    )
    job = load_job(tmp_path / "job.toml")
    content, files = public_job(job), {}
    for name in content["parties"]:
        files[name] = tmp_path / "sites" / name / PARTY_FILE
        files[name].parent.mkdir(parents=True)
        files[name].write_text(party_text(job, name))
    introduce_parties(files)
    sites = {name: open_site(file, content) for name, file in files.items()}
    for name, site in sites.items():
        site.job_folder = files[name].parent
    calls = {name: (lambda data, limit, site=site: site.handle(data)) for name, site in sites.items()}
    run_job(content, Flare(calls), tmp_path)
    check_outcome(tmp_path, "FINISHED:COMPLETED")
    facts = json.loads((tmp_path / "fedsift" / "run.json").read_text())
    assert sum(map(len, facts["selected"].values())) > 0
    assert facts["origin"] is None
    assert (facts["rows"], {name: party["rows"] for name, party in facts["parties"].items()}) == (
        55,
        {"bank": 60, "shop": 55},
    ), "of a party all rows, as in one process; in all those that are shared"
    assert all((file.parent / "selection.json").exists() for file in files.values())


# --- at a site -------------------------------------------------------------------------------------------------------


def test_site_finds_its_own_file_and_nobody_elses(tmp_path, monkeypatch):
    pytest.importorskip("nvflare")
    from fedsift.deploy.party_app import party_file

    local, folder = tmp_path / "local", tmp_path / "parties"
    for home in (local, folder / "bank", folder / "shop"):
        home.mkdir(parents=True)
        (home / PARTY_FILE).write_text("")
    monkeypatch.delenv("FEDSIFT_PARTY", raising=False)
    assert party_file(local, "bank") == local / PARTY_FILE
    monkeypatch.setenv("FEDSIFT_PARTY", str(folder))
    assert party_file(local, "bank") == folder / "bank" / PARTY_FILE
    monkeypatch.setenv("FEDSIFT_PARTY", str(folder / "shop" / PARTY_FILE))
    assert party_file(local, "bank") == folder / "shop" / PARTY_FILE
    monkeypatch.setenv("FEDSIFT_PARTY", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="party init"):
        party_file(local, "bank")  # a wrong setting is not made up for by another file


def test_status_of_a_killed_process_is_closed_by_the_next_job(tmp_path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    for name, process in (("old", done.pid), ("now", None)):
        (tmp_path / name).mkdir()
        write_status(tmp_path / name, RUNNING, method="muse")
        if process is not None:
            status = {**read_status(tmp_path / name), "process": process}
            (tmp_path / name / "status.json").write_text(json.dumps(status))
    close_abandoned(tmp_path)
    assert read_status(tmp_path / "old")["state"] == ENDED
    assert read_status(tmp_path / "old")["method"] == "muse"
    assert read_status(tmp_path / "now")["state"] == RUNNING


# --- the result ------------------------------------------------------------------------------------------------------


def outcome(folder: Path, **content) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "outcome.json").write_text(json.dumps(content))
    return folder


def test_folders_of_jobs_that_ended_long_ago_are_removed_and_nothing_else(tmp_path):
    day, moment = 86_400, calendar.timegm((2030, 6, 1, 0, 0, 0))
    for name, state, age in (("old", "finished", 400), ("failed", "failed", 367), ("new", "finished", 365),
                             ("busy", "running", 400)):  # fmt: skip
        write_status(tmp_path / name, state)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment - age * day))
        (tmp_path / name / "status.json").write_text(json.dumps({"state": state, "at": at}))
    (tmp_path / "notes").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "status.json").write_text('{"state": "finished", "at": "long ago"}')
    assert sorted(remove_old(tmp_path, 366, moment)) == ["failed", "old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "busy", "new", "notes"]
    assert remove_old(tmp_path / "nothing", 366) == []


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/secret/place")


def test_a_full_disk_of_a_party_is_named_and_no_path_is_told(tmp_path, small_fed, monkeypatch):
    monkeypatch.setattr("fedsift.core.party.find_operation", full)
    with pytest.raises(OperationFailed, match="no space is left on its disk") as caught:
        over_flare(small_fed).sizes()
    assert "secret" not in str(caught.value)


def test_a_full_disk_of_the_coordinator_is_said_to_all(tmp_path, job, monkeypatch):
    pytest.importorskip("nvflare")
    from fedsift.deploy.coordinator import run_job

    content, told = public_job(job), []
    monkeypatch.setattr("fedsift.deploy.coordinator._carry_out", full)
    monkeypatch.setattr("fedsift.deploy.coordinator._tell", lambda fed, why, silent: told.append(why))
    with pytest.raises(OSError, match="space"):
        run_job(content, Flare(dict.fromkeys(content["parties"], full)), tmp_path)
    with pytest.raises(FedsiftError, match="the coordinator cannot write: no space is left on its disk"):
        check_outcome(tmp_path, "FINISHED:EXECUTION_EXCEPTION")
    assert told == ["the coordinator cannot write: no space is left on its disk"]


def coordinator_of(tmp_path, job, monkeypatch, calls):
    """FLARE's server component with a job whose parties are ``calls``, as FLARE builds it."""
    from fedsift.deploy import coordinator as module

    write_job(public_job(job), tmp_path / "flare")
    config = tmp_path / "flare" / "app" / "config"
    clients = [SimpleNamespace(name=name) for name in calls]
    workspace = SimpleNamespace(get_run_dir=lambda job: tmp_path, get_app_config_dir=lambda job: config)
    monkeypatch.setattr(module, "collab", SimpleNamespace(
        fl_ctx=SimpleNamespace(get_job_id=lambda: "1"), workspace=workspace, clients=clients,
        context=SimpleNamespace(is_aborted=lambda: False)))  # fmt: skip
    monkeypatch.setattr(module, "_caller", lambda client: calls[client.name])
    return module.Coordinator()


def test_who_is_left_hears_who_is_gone_before_flare_ends_the_job(tmp_path, job, monkeypatch):
    """FLARE ends a job as soon as the event that a client is gone has been heard: the handler waits so long."""
    pytest.importorskip("nvflare")
    from nvflare.apis.event_type import EventType

    asked, heard, dead = threading.Event(), [], threading.Event()

    def alive(data, limit):
        heard.append(decode(data)["operation"])
        return encode({"error": "OperationFailed", "what": "it only listens"})

    def gone(data, limit):
        asked.set()
        dead.wait(60)

    first, second = public_job(job)["parties"]
    coordinator = coordinator_of(tmp_path, job, monkeypatch, {first: gone, second: alive})
    ask = "fedsift.deploy.coordinator._carry_out"
    monkeypatch.setattr(ask, lambda job, fed, *_, **__: fed.ask(count_table, to=first))

    def coordinate():
        with suppress(PartyGone):
            coordinator.coordinate()

    work = threading.Thread(target=coordinate)
    work.start()
    assert asked.wait(60)
    coordinator.handle_event(EventType.CLIENT_DISCONNECTED, SimpleNamespace(get_prop=lambda key: first))
    assert any(name.endswith("keep_failure") for name in heard), "the handler came back before the other had heard"
    dead.set()
    work.join(60)
    with pytest.raises(PartyGone, match=repr(first)):
        check_outcome(tmp_path, "FINISHED:EXECUTION_EXCEPTION")


def test_a_client_that_is_not_there_is_named_before_anything_is_sent():
    from fedsift.deploy.run import _all_there

    with pytest.raises(PartyGone, match=r"'shop'.*not connected .*bank is.*whether it was disabled"):
        _all_there({"parties": {"bank": {}, "shop": {}}}, ["bank"])


def test_who_left_is_named_although_flare_ended_the_job_before_there_was_an_outcome(tmp_path):
    from fedsift.deploy.run import check_end

    class Session:
        def __init__(self, there):
            self.clients = lambda: there

    content = {"parties": {"bank": {}, "shop": {}}}
    with pytest.raises(PartyGone, match=r"'shop'.*its client has left"):
        check_end(Session(["bank"]), content, tmp_path, "FINISHED:EXECUTION_EXCEPTION")
    with pytest.raises(FedsiftError, match="without a result; FLARE says FINISHED"):
        check_end(Session(["bank", "shop"]), content, tmp_path, "FINISHED:EXECUTION_EXCEPTION")


def test_failure_at_the_coordinator_is_the_same_error_here(tmp_path):
    failed = {"state": "failed", "what": "x", "party": "shop", "operation": "blind_ids", "detail": "no reply"}
    with pytest.raises(PartyTimeout, match=r"'shop'.*no reply"):
        check_outcome(outcome(tmp_path / "a", error="PartyTimeout", **failed), "FINISHED")
    with pytest.raises(AlignmentError, match="too few"):
        check_outcome(outcome(tmp_path / "b", state="failed", error="AlignmentError", what="too few"), "FINISHED")
    with pytest.raises(FedsiftError, match="odd"):  # no name from a file is ever called
        check_outcome(outcome(tmp_path / "c", state="failed", error="annotations", what="odd"), "FINISHED")
    with pytest.raises(PartyGone, match="'shop'"):
        check_outcome(outcome(tmp_path / "e", state="ended", waiting=["shop"]), "FINISHED:ABORTED")
    for left in (tmp_path / "nothing", outcome(tmp_path / "d", state="running")):
        with pytest.raises(FedsiftError, match="FINISHED:ABORTED"):
            check_outcome(left, "FINISHED:ABORTED")


def test_result_is_placed_whole_or_not_at_all(tmp_path):
    result, out = tmp_path / "result", tmp_path / "out"
    result.mkdir()
    (result / "selection.json").write_text("{}")
    with pytest.raises(FileNotFoundError):
        place(result, out, {})  # no run.json: not a result
    assert not out.exists()
    (result / "run.json").write_text(json.dumps({"format": "fedsift-run", "files": ["run.json", "selection.json"]}))
    place(result, out, {})
    assert sorted(path.name for path in out.iterdir()) == ["run.json", "selection.json"]
    (out / "mine.txt").write_text("keep")
    with pytest.raises(ParameterError, match=r"mine\.txt"):
        place(result, out, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "result"]


def test_resume_in_one_process_says_what_to_do_instead(tmp_path, job):
    done = subprocess.run(
        [sys.executable, "-c", "from fedsift.cli.main import main; main()", "run", str(job.path), "--resume"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "checkpoint" in done.stderr
