"""Processes that end with whoever started them, also when that one is killed outright."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from fedsift.deploy import processes as module
from fedsift.deploy.processes import Processes

SLEEPS = [sys.executable, "-c", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"]
STARTS = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(module.__file__).parent)!r})  # without the rest of fedsift: quick
from processes import Processes
processes = Processes(Path(sys.argv[1]))
processes.start("one", {SLEEPS!r}, Path(sys.argv[1]) / "log.txt")
print(processes.mark, flush=True)
time.sleep(600)
"""


def wait_until(true) -> None:
    end = time.monotonic() + 600
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)


def marked(mark: str) -> list[psutil.Process]:
    processes = Processes()
    processes.mark = mark
    return processes.marked()


def test_a_process_ends_with_what_it_started_and_its_folder_stays(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("one", SLEEPS, tmp_path / "log.txt")
        wait_until(lambda: len(processes.marked()) == 2)
        guard = processes._guard
    assert processes.marked() == []
    assert guard.returncode == 0
    assert tmp_path.is_dir()


def test_a_command_that_is_killed_leaves_no_process_and_no_folder(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", STARTS, str(folder)], stdout=subprocess.PIPE, text=True) as command:
        mark = command.stdout.readline().strip()
        wait_until(lambda: len(marked(mark)) == 2)
        command.kill()
    wait_until(lambda: not marked(mark))
    wait_until(lambda: not folder.exists())
