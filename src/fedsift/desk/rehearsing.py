"""What a request's jobs really ask of this site: each is rehearsed on made-up rows, in a process that can be ended.

A method has more operations than one job asks for (forms, levels of protection). The pages show those that the
rehearsal met; until it has, and where it could not be played, all that the method lists. The process reads the table
for the kinds of its columns and prints names of operations, no more.

    python -m fedsift.desk.rehearsing party.toml REQUEST
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsift.core.job import Job as Contract
from fedsift.deploy.flare_job import PartyFacts, settings_of
from fedsift.desk.office import Office
from fedsift.errors import FedsiftError
from fedsift.jobs.job_file import Job
from fedsift.jobs.text import Source
from fedsift.methods import METHODS
from fedsift.site.rehearsal import rehearse
from fedsift.site.settings import load_party, read_party

LIMIT = 180.0  # seconds


@dataclass(frozen=True)
class Played:
    """Of each method's job, by its hash: how often each operation was asked; or why it is not known."""

    asked: dict[str, dict[str, int]]
    refused: list[str]
    problem: str = ""


class Rehearsals:
    """One at a time, in the background, each request once."""

    def __init__(self, party: Path):
        self._party = party
        self._found: dict[str, Played | None] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def of(self, request: str) -> Played | None:
        """What is known of a request; ``None`` while it is being played."""
        with self._lock:
            if request not in self._found:
                self._found[request] = None
                threading.Thread(target=self._play, args=(request,), name="fedsift rehearsal", daemon=True).start()
            return self._found[request]

    def _play(self, request: str) -> None:
        command = [sys.executable, "-m", "fedsift.desk.rehearsing", str(self._party), request]
        with self._turn:
            try:
                done = subprocess.run(command, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
                played = Played(**json.loads(done.stdout))
            except (subprocess.TimeoutExpired, OSError, ValueError, TypeError):
                played = Played({}, [], "it could not be rehearsed here")
        with self._lock:
            self._found[request] = played


def play(party: Path, request: str) -> dict[str, Any]:
    """Rehearse the methods among a request's jobs."""
    office = Office(party)
    settings, source = load_party(party)
    table, _ = read_party(source, settings.party)
    asked: dict[str, dict[str, int]] = {}
    refused: list[str] = []
    problem = ""
    for contract in office.approvals.find(request).request.jobs:
        if contract.method in METHODS:
            found = rehearse(job_of(contract), office.name, table, settings.policy)
            asked[contract.hash.hex()] = {line.id: line.times for line in found.seen}
            refused += [refusal.what for refusal in found.refusals]
            problem = problem or found.stopped
    return {"asked": asked, "refused": refused, "problem": problem}


def job_of(contract: Contract) -> Job:
    """The contract as a job file would say it; where data lie is each site's own business."""
    holders = {contract.active, *contract.label_parties}
    parties: dict[str, PartyFacts] = {name: {"id": True, "label": name in holders} for name in contract.parties}
    named = ("partition", "task", "coordinator", "dealer", "submitter")
    federation = {name: getattr(contract, name) for name in named}
    method = {"name": contract.method, **contract.parameters}
    settings = settings_of({"parties": parties, "method": method, "federation": federation})
    return Job(Path("job.toml"), settings, dict(contract.parameters), Source(Path("job.toml"), "", {}))


def main() -> None:
    try:
        told = play(Path(sys.argv[1]), sys.argv[2])
    except FedsiftError as error:
        told = {"asked": {}, "refused": [], "problem": str(error)}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
