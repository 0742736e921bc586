"""Every command of docs/deploy.md, run in order on one machine: two organisations from nothing to a result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import mixed_table

pytest.importorskip("nvflare", reason="the extra flare is not installed")
from fedsift.deploy.local_system import _own_stores, free_ports
from fedsift.deploy.processes import _MARK, Processes
from fedsift.deploy.session import FlareSession
from fedsift.errors import PartyGone

PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"


def blocks() -> list[tuple[str, str]]:
    """The fenced blocks of the page: kind and text."""
    return re.findall(r"^```(\S+(?: \S+)?)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def commands() -> list[str]:
    return [line for kind, text in blocks() if kind == "sh" for line in text.splitlines() if line.strip()]


def test_page_installs_an_extra_that_exists():
    text = "".join(text for kind, text in blocks() if kind == "sh install")
    extras = (PAGE.parents[1] / "pyproject.toml").read_text()
    assert re.search(r"fedsift\[(\w+)\]", text).group(1) + " = [" in extras


def test_page_goes_the_whole_way():
    told = " ".join(commands())
    for word in ("provision", "party init", "start.sh", "party check", "run job.toml --on flare", "apply", "disable"):
        assert word in told, word


class Bystander:
    """Runs the page's commands as people would, and does between them what the page asks people to do by hand."""

    def __init__(self, folder: Path, processes: Processes):
        self.folder, self.processes = folder, processes
        here = Path(sys.executable).parent
        self.env = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", _MARK: processes.mark}
        self.kits = folder / "kits" / "fedsift" / "prod_00"

    def run(self, command: str) -> str:
        if command.startswith("nvflare system status"):
            self.wait_for_clients()
        log = self.folder / "command.log"
        with log.open("w") as file:  # a file, because a started server keeps what it was given open
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, timeout=600,
            )  # fmt: skip
        text = log.read_text()
        assert done.returncode == 0, f"{command}\n{text}"
        if "fedsift.deploy > project.yml" in command:
            self.choose_ports()
        if command.startswith("nvflare provision"):
            _own_stores(self.kits / "localhost")
        return text

    def choose_ports(self) -> None:
        project = self.folder / "project.yml"
        learn, admin = free_ports(2)
        project.write_text(project.read_text().replace("8002", str(learn)).replace("8003", str(admin)))

    def clients(self) -> set[str]:
        with FlareSession(self.kits / "analyst@bank.org") as session:
            return set(session.clients())

    def wait_for_clients(self) -> None:
        for _ in range(240):
            try:
                if self.clients() == {"bank", "shop"}:
                    return
            except PartyGone:
                pass
            time.sleep(1)
        pytest.fail("bank and shop did not connect")


@pytest.mark.flare
def test_every_command_of_the_page(tmp_path):
    X, y = mixed_table(200)
    X = X.assign(customer=[f"c{i:04}" for i in range(200)], default=y)
    X[["customer", "default", "signal", "noise", "colour"]].to_csv(tmp_path / "bank.csv", index=False)
    X[["customer", "weak", "counts", "holes"]].sample(frac=1, random_state=0).to_csv(tmp_path / "shop.csv", index=False)
    (job,) = (text for kind, text in blocks() if kind == "toml")
    (tmp_path / "job.toml").write_text(job)
    with Processes() as processes:
        person = Bystander(tmp_path, processes)
        told = {command: person.run(command) for command in commands()}
        for _ in range(60):  # the system was asked to shut down
            if not processes.marked():
                break
            time.sleep(1)
        left_over = [" ".join(process.cmdline()) for process in processes.marked()]
    assert left_over == []
    run = json.loads((tmp_path / "result" / "run.json").read_text())
    assert sum(map(len, run["selected"].values())) == 4
    assert "signal" in run["selected"]["bank"]
    assert {"selection.json", "ledger.csv", "report.html"} <= set(run["files"])
    assert '"finished"' in next(text for command, text in told.items() if "status.json" in command)
    for name in ("bank", "shop"):
        (folder,) = (person.kits / name / "local" / "results").iterdir()
        own = json.loads((folder / "selection.json").read_text())
        assert own["selected"] == {name: run["selected"][name]}
    assert (tmp_path / "shop-selected.csv").exists()
