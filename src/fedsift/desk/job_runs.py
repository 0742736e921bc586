"""Runs that were started from the desk of whoever runs jobs: each is a ``fedsift`` command of its own, with its files.

A run has a folder under ``.fedsift-desk`` beside the job files: the job file as it was, what the command wrote to
stderr (one JSON object a line), its exit code, its result. So a desk that is started again finds everything, and a run
goes on when the desk ends.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from fedsift.core.files import write_atomic
from fedsift.errors import FedsiftError, ParameterError
from fedsift.jobs.job_file import load_job
from fedsift.methods import METHODS

FOLDER = ".fedsift-desk"
WORK = ("run", "check", "value", "compare")
PLACES = ("local", "simulator", "poc", "flare")
MAX_RUNNING = 4
_FACTS, _LOG, _OUT, _EXIT = "desk.json", "log.jsonl", "out.txt", "exit"
_COMMAND = [sys.executable, "-c", "from fedsift.cli.main import main; main()"]
_PATIENCE = 3.0  # seconds between asking a command to end and ending it
_TAIL = 1 << 18


@dataclass(frozen=True)
class JobFile:
    """A job file of the folder, and what is wrong with it."""

    name: str
    method: str
    parties: tuple[str, ...]
    problem: str


@dataclass(frozen=True)
class DeskRun:
    """One run. ``state`` is running, finished, failed, stopped, or lost (it ended without a result and no desk saw)."""

    id: str
    folder: Path
    job: str
    work: str
    on: str
    started: str
    state: str
    methods: str = ""  # that are compared

    @property
    def result(self) -> Path:
        return self.folder / "result"

    @property
    def report(self) -> Path:
        return self.result / "report.html" if self.work == "run" else self.folder / f"{self.work}.html"

    def events(self) -> list[dict[str, object]]:
        """What the command has told so far, the last of it."""
        found = []
        for line in _tail(self.folder / _LOG).splitlines():
            with suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    found.append(told)
        return found

    def output(self) -> str:
        return _tail(self.folder / _OUT)

    def facts(self) -> dict[str, Any]:
        """The result's ``run.json``; empty where there is none."""
        with suppress(OSError, ValueError):
            told = json.loads((self.result / "run.json").read_text(encoding="utf-8"))
            return told if isinstance(told, dict) else {}
        return {}


class JobRuns:
    """The runs of one folder of job files."""

    def __init__(self, folder: Path, kit: Path | None):
        self.folder, self.kit = folder, kit
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def jobs(self) -> list[JobFile]:
        found = []
        for file in sorted(self.folder.glob("*.toml")):
            try:
                job = load_job(file, (), files=False)
                found.append(JobFile(file.name, job.method, tuple(job.settings.parties), ""))
            except FedsiftError as error:
                found.append(JobFile(file.name, "", (), str(error)))
        return found

    def start(self, name: str, work: str, on: str, methods: str = "") -> DeskRun:
        """Run a job file of the folder, by a command of its own; ``methods`` are those to compare, if that is it."""
        known = {job.name: job for job in self.jobs()}
        if name not in known or work not in WORK or on not in PLACES:
            raise ParameterError("there is no such job file, or no such way to run it")
        if known[name].problem:
            raise ParameterError(known[name].problem)
        if on == "flare" and self.kit is None:
            raise ParameterError("start the desk with --kit DIR to run jobs at the parties' own sites")
        methods = _compared(methods, on) if work == "compare" else ""
        if sum(run.state == "running" for run in self.runs()) >= MAX_RUNNING:
            raise ParameterError(f"{MAX_RUNNING} runs are under way: stop one of them first")
        id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        folder = self.folder / FOLDER / id
        folder.mkdir(parents=True)
        shutil.copy(self.folder / name, folder / "job.toml")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        facts = {"job": name, "work": work, "on": on, "started": at, "methods": methods}
        write_atomic(folder / _FACTS, json.dumps(facts) + "\n")
        self._launch(self.find(id))
        return self.find(id)

    def _launch(self, run: DeskRun) -> None:
        id, folder = run.id, run.folder
        command = [*_COMMAND, run.work, str(self.folder / run.job)]
        if run.work != "check":
            command += ["--log-json", "--out", str(run.result if run.work == "run" else run.report)]
            command += ["--methods", run.methods] if run.work == "compare" else ["--on", run.on]
            command += ["--kit", str(self.kit)] if run.on == "flare" else []
        with (folder / _LOG).open("wb") as log, (folder / _OUT).open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._processes[id] = process
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        write_atomic(folder / _FACTS, json.dumps({**facts, "process": process.pid, "born": _born(process.pid)}) + "\n")
        threading.Thread(target=self._attend, args=(folder, process), name=f"fedsift {id}", daemon=True).start()

    def _attend(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if not (folder / _EXIT).exists():  # whoever stopped it, from this desk or another, has said so before
            write_atomic(folder / _EXIT, f"{code}\n")

    def stop(self, id: str) -> DeskRun:
        """Interrupt a run as Ctrl-C would: on FLARE the job is aborted at all sites."""
        run = self.find(id)
        process = _alive(run.folder) if run.state == "running" else None
        if process is None:
            raise ParameterError("this run is not under way here")
        write_atomic(run.folder / _EXIT, "stopped\n")
        with suppress(psutil.Error):
            process.send_signal(signal.SIGINT)
        threading.Thread(target=self._insist, args=(run.folder,), name="fedsift stop", daemon=True).start()
        return self.find(id)

    @staticmethod
    def _insist(folder: Path) -> None:
        """Looks, and does not wait for the process: its exit code belongs to who started it."""
        for end in (signal.SIGTERM, signal.SIGKILL):
            patience = time.monotonic() + _PATIENCE
            while (process := _alive(folder)) is not None and time.monotonic() < patience:
                time.sleep(0.1)
            if process is None:
                return
            with suppress(psutil.Error):
                process.send_signal(end)

    def runs(self) -> list[DeskRun]:
        folder = self.folder / FOLDER
        found = [self._read(each) for each in folder.iterdir()] if folder.is_dir() else []
        return sorted((run for run in found if run is not None), key=lambda run: run.id, reverse=True)

    def find(self, id: str) -> DeskRun:
        found = next((run for run in self.runs() if run.id == id), None)
        if found is None:
            raise ParameterError("there is no such run")
        return found

    def _read(self, folder: Path) -> DeskRun | None:
        try:
            told = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            job, work, on, started = (str(told[name]) for name in ("job", "work", "on", "started"))
            methods = str(told.get("methods", ""))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        known = work in WORK and on in PLACES
        if not known:
            return None
        run = DeskRun(folder.name, folder, job, work, on, started, "", methods)
        return replace(run, state=self._state(run))

    def _state(self, run: DeskRun) -> str:
        """A run whose desk ended goes on; what it left tells how it ended."""
        with suppress(OSError):
            word = (run.folder / _EXIT).read_text(encoding="utf-8").strip()
            return {"0": "finished", "stopped": "stopped"}.get(word, "failed")
        if run.id in self._processes or _alive(run.folder) is not None:
            return "running"
        return "finished" if run.report.is_file() else "lost"


def _born(process: int) -> float:
    """When a process began: another one may have its number later."""
    with suppress(psutil.Error):
        return float(psutil.Process(process).create_time())
    return 0.0


def _alive(folder: Path) -> psutil.Process | None:
    """The command of a run, while it is under way, whichever desk started it."""
    with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        told = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        process = psutil.Process(int(told["process"]))
        if process.create_time() == told["born"] and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _compared(methods: str, on: str) -> str:
    """Names of methods, with commas between: nothing else reaches the command."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    unknown = next((name for name in names if name not in METHODS), None)
    if not names or unknown is not None:
        raise ParameterError(f"give the methods to compare, with commas between: {', '.join(METHODS)}")
    if on != "local":
        raise ParameterError("methods are compared in this process: each is fitted on the same folds of the same files")
    return ",".join(names)


def _tail(file: Path) -> str:
    """The end of a file, from a whole line on."""
    try:
        with file.open("rb") as data:
            size = data.seek(0, os.SEEK_END)
            data.seek(max(0, size - _TAIL))
            text = data.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= _TAIL else text.partition("\n")[2]
