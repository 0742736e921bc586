"""Processes that are started together and end together, whatever they started themselves.

FLARE starts a process for each job, in a session of its own, so ending the parent is not enough. Every process here
gets a mark in its environment, which its children inherit: whoever carries the mark belongs to us and is ended.

A command that is killed outright cannot end anything. So a guard is started with the first process: this file, as a
program. It holds the other end of a pipe and does nothing but wait; when the pipe breaks without a word, it ends the
marked processes and removes the folder that they worked in.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_MARK = "FEDSIFT_PROCESSES"
_PATIENCE = 5.0  # seconds between asking to end and ending
_ENDED = b"ended"


class Processes:
    """Started with ``start``, all ended with ``stop`` (and at the end of a ``with`` block).

    ``folder`` is removed by the guard if this process is killed, and never otherwise.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.mark = secrets.token_hex(8)
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Run a command in its own session (an interruption of ours is not one of its), its output into a file."""
        if self._guard is None:
            watch = [sys.executable, __file__, self.mark, str(self._folder.absolute()) if self._folder else ""]
            self._guard = subprocess.Popen(
                watch, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        here = str(Path(sys.executable).parent)
        settings = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}", **(env or {})}
        with log.open("ab") as file:
            self.started[name] = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent,
                env={**settings, _MARK: self.mark}, start_new_session=True,
            )  # fmt: skip

    def ended(self, name: str) -> bool:
        return self.started[name].poll() is not None

    def marked(self) -> list[psutil.Process]:
        """All living processes that carry the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self, name: str) -> None:
        """End one of them and what it started, at once and without a word. Tests of faults do this."""
        parent = psutil.Process(self.started[name].pid)
        for process in [*parent.children(recursive=True), parent]:
            with _may_be_gone():
                process.kill()
        self.started[name].wait(_PATIENCE)

    def stop(self) -> None:
        """End all of them. A second interruption does not stop this: nothing may be left over."""
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
        try:
            self.end_all()
            if self._guard is not None:
                self._guard.communicate(_ENDED)
                self._guard = None
        finally:
            if main:
                signal.signal(signal.SIGINT, before)

    def end_all(self) -> None:
        """End whoever carries the mark."""
        for end in ("terminate", "kill", "kill"):
            there = self.marked()
            for process in there:
                with _may_be_gone():
                    getattr(process, end)()
            psutil.wait_procs(there, timeout=_PATIENCE)
            for child in self.started.values():
                child.poll()
            if not there:
                break

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _may_be_gone:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, psutil.Error)


def _watch(mark: str, folder: str) -> None:
    """Until the pipe from the process that is watched ends; if it did not say so itself, clear up after it."""
    if sys.stdin.buffer.read() == _ENDED:
        return
    left = Processes()
    left.mark = mark
    left.end_all()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(*sys.argv[1:])
