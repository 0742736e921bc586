"""The desk of whoever runs jobs: starts commands, shows how far they are, stops them, shows what they left."""

from __future__ import annotations

import json
import os
import re
import sys
import time

import pytest

pytest.importorskip("starlette", reason="the extra desk is not installed")
pytest.importorskip("uvicorn", reason="the extra desk is not installed")
from desk_support import served

from fedsift.desk import job_runs
from fedsift.desk.job_desk import JobDesk
from fedsift.desk.job_pages import JobPages, progress_words
from fedsift.desk.job_runs import FOLDER, JobRuns
from fedsift.errors import ParameterError

JOB = """
[parties.bank]
file = "bank.csv"
id = "id"
label = "outcome"
[parties.shop]
file = "shop.csv"
id = "id"
[method]
name = "random"
n_features = 2
"""
#: Stands in for the command: it tells what the real one tells on stderr, and waits to be ended.
COMMAND = """
import json, sys, time
words = sys.argv[1:]
for event in json.loads({events!r}):
    print(json.dumps(event), file=sys.stderr, flush=True)
print(" ".join(words[:1]), "<b>done</b>", flush=True)
if {wait}:
    time.sleep(60)
sys.exit({code})
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "broken.toml").write_text("[parties")
    return tmp_path


@pytest.fixture
def command(monkeypatch):
    """What the next run does: its events, whether it waits, its exit code."""

    def does(*events: dict, wait: bool = False, code: int = 0) -> None:
        text = COMMAND.format(events=json.dumps(events), wait=wait, code=code)
        monkeypatch.setattr(job_runs, "_COMMAND", [sys.executable, "-S", "-c", text])

    does()
    return does


@pytest.fixture
def desk(folder, command):
    desk = JobDesk(folder)
    with served(desk.app()) as client:
        client.enter()
        yield client
    desk.close()


def start(desk, **fields: str) -> str:
    answer = desk.post("/start", {"job": "job.toml", "work": "run", "on": "local", **fields}, "/")
    assert answer.status == 303, answer.text
    return answer.headers["location"]


def until(desk, path: str, word: str) -> str:
    """The page, once it says so; a minute is far more than a process that ends at once takes."""
    deadline = time.monotonic() + 60
    while True:
        page = desk.get(path).text
        if f'class="state {word}"' in page or time.monotonic() > deadline:
            return page
        time.sleep(0.05)


def test_a_run_is_started_from_a_job_file_and_its_progress_shown(desk, command):
    progress = {"event": "progress", "stage": "selecting", "what": "column", "done": 3, "of": 9, "eta": 65.0}
    ask = {"event": "ask", "operation": "gini.sums", "bytes": 2048, "seconds": 0.5}
    command({"event": "step", "text": "reading 2 files"}, ask, progress)
    page = until(desk, start(desk), "finished")
    assert "selecting: column 3 of 9" in page
    assert "gini.sums" in page
    assert "run &lt;b&gt;done&lt;/b&gt;" in page
    listed = desk.get("/").text
    assert "broken.toml" in listed
    assert "job.toml (random: bank, shop)" in listed


def test_a_run_that_waits_for_approval_says_where(desk, command):
    text = "waiting for approval at bank until 2026-11-23 10:00 UTC"
    command({"event": "step", "text": text}, wait=True)
    path = start(desk)
    deadline = time.monotonic() + 60
    while text not in (page := desk.get("/").text) and time.monotonic() < deadline:
        time.sleep(0.05)
    states = dict(re.findall(r'<bdi>(bank|shop)</bdi></td><td[^>]*><span class="state[^"]*">([^<]+)', page))
    assert states == {"bank": "waiting for approval", "shop": "running"}
    desk.post(f"{path}/stop", {}, path)


def test_a_run_is_stopped(desk, command):
    command(wait=True)
    path = start(desk)
    assert desk.post(f"{path}/stop", {}, path).status == 303
    assert 'class="state stopped"' in until(desk, path, "stopped")
    assert desk.post(f"{path}/stop", {}, "/").status == 404


def test_a_run_that_fails_says_why(desk, command):
    command({"event": "error", "text": "party 'bank' <script>"}, code=5)
    page = until(desk, start(desk), "failed")
    assert "party &#x27;bank&#x27; &lt;script&gt;" in page


def test_results_stand_side_by_side_and_a_report_is_a_stranger(desk, folder, command):
    path = start(desk)
    until(desk, path, "finished")
    result = folder / FOLDER / path.rpartition("/")[2] / "result"
    result.mkdir()
    facts = {
        "method": "random", "rows": 120, "rounds": 7, "bytes": 4000, "seconds": {"select": 1.5}, "hash": "ab" * 32,
        "parties": {"bank": {"columns": 2, "selected": 1}}, "selected": {"bank": ["<i>x</i>"]},
        "evaluation": [{"method": "random", "auc": 0.75}],
    }  # fmt: skip
    (result / "run.json").write_text(json.dumps(facts))
    (result / "report.html").write_text("<title>the report</title>")
    assert "auc 0.750" in desk.get("/compare").text
    assert "&lt;i&gt;x&lt;/i&gt;" in desk.get(path).text
    answer = desk.get(f"{path}/report")
    assert "the report" in answer.text
    assert "sandbox allow-scripts" in answer.headers["content-security-policy"]


def test_methods_are_compared_by_a_command_of_their_own(desk, folder, command):
    path = start(desk, work="compare", methods="gini, random")
    page = until(desk, path, "finished")
    assert "Compare methods: gini, random" in page
    assert "compare &lt;b&gt;done&lt;/b&gt;" in page
    run = folder / FOLDER / path.rpartition("/")[2]
    (run / "compare.html").write_text("<title>side by side</title>")
    assert "side by side" in desk.get(f"{path}/report").text


@pytest.mark.parametrize(
    "fields",
    [
        {"work": "compare", "methods": ""}, {"work": "compare", "methods": "gini,--help"},
        {"work": "compare", "methods": "no_such"}, {"work": "compare", "methods": "gini", "on": "poc"},
        {"job": "../job.toml"}, {"job": "/etc/passwd"}, {"job": "broken.toml"}, {"job": "job.toml;id"}, {"job": ""},
        {"work": "demo"}, {"work": "--help"}, {"on": "elsewhere"}, {"on": "flare"}, {"job": "job.toml\x00"},
    ],
)  # fmt: skip
def test_nothing_is_started_but_a_job_file_of_the_folder(desk, folder, fields):
    answer = desk.post("/start", {"job": "job.toml", "work": "run", "on": "local", **fields}, "/")
    assert answer.status == 404
    assert not (folder / FOLDER).exists()


def test_so_many_runs_and_no_more(folder, command, monkeypatch):
    monkeypatch.setattr(job_runs, "MAX_RUNNING", 1)
    command(wait=True)
    runs = JobRuns(folder, None)
    first = runs.start("job.toml", "run", "local")
    with pytest.raises(ParameterError, match="under way"):
        runs.start("job.toml", "run", "local")
    runs.stop(first.id)


def test_a_desk_that_is_started_again_finds_the_runs(folder, command):
    runs = JobRuns(folder, None)
    run = runs.start("job.toml", "check", "local")
    runs._processes[run.id].wait(60)
    deadline = time.monotonic() + 60
    while runs.find(run.id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    again = JobRuns(folder, None)
    assert [(each.id, each.state) for each in again.runs()] == [(run.id, "finished")]
    (folder / FOLDER / run.id / "exit").unlink()
    assert again.find(run.id).state == "lost"
    (folder / FOLDER / run.id / "check.html").write_text("a result that no desk saw")
    assert again.find(run.id).state == "finished"
    (folder / FOLDER / "junk").mkdir()
    (folder / FOLDER / run.id / "desk.json").write_text("[]")
    assert again.runs() == []


def test_a_run_goes_on_without_its_desk_and_is_stopped_by_the_next(folder, command):
    command(wait=True)
    runs = JobRuns(folder, None)
    run = runs.start("job.toml", "run", "local")
    again = JobRuns(folder, None)
    assert again.find(run.id).state == "running"
    assert again.stop(run.id).state == "stopped"
    assert runs._processes[run.id].wait(60) != 0
    with pytest.raises(ParameterError, match="not under way"):
        again.stop(run.id)


def test_a_process_that_took_the_number_of_a_run_is_none(folder, command):
    runs = JobRuns(folder, None)
    run = runs.start("job.toml", "run", "local")
    runs._processes.pop(run.id).wait(60)
    facts = {**json.loads((run.folder / "desk.json").read_text()), "process": os.getpid()}
    (run.folder / "desk.json").write_text(json.dumps(facts))
    deadline = time.monotonic() + 60
    while not (run.folder / "exit").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    (run.folder / "exit").unlink()
    assert runs.find(run.id).state == "lost"


def test_parties_are_connected_or_not(folder, command):
    runs = JobRuns(folder, None)
    pages = JobPages(runs, ["bank"], "")
    assert {p.name: p.state for p in pages.partners(runs.jobs(), [])} == {"bank": "connected", "shop": "not connected"}


def test_a_long_log_is_read_from_its_end(folder, command, monkeypatch):
    runs = JobRuns(folder, None)
    run = runs.start("job.toml", "run", "local")
    runs._processes[run.id].wait(60)
    lines = "".join(json.dumps({"event": "step", "text": f"step {i}"}) + "\n" for i in range(20_000))
    (run.folder / "log.jsonl").write_text("no JSON\n" + lines)
    assert progress_words(run) == "step 19999"
    assert len(run.events()) < 20_000
    assert os.path.getsize(run.folder / "log.jsonl") > job_runs._TAIL
