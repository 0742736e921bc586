"""A whole FLARE system on this machine: a server and a client for each party, real processes, mutual TLS.

It is made by ``nvflare provision`` from the same project template that a real system is made from, and started with
the scripts of the start kits. Only the names, the ports and the places of the server's stores are its own.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsift.deploy.flare_job import PARTY_FILE
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.processes import Processes
from fedsift.deploy.session import FlareSession
from fedsift.errors import FedsiftError, ParameterError, PartyGone

TEMPLATE = Path(__file__).with_name("project.yml")
SERVER = "localhost"
_START = 180.0  # seconds until server and clients must be there, on a busy machine


class LocalSystem:
    """Use as a context; ``session()`` logs in as the one who submits jobs."""

    def __init__(
        self, folder: Path, parties: Mapping[str, str], *, env: Mapping[str, str] | None = None, submitter: str = "",
        scratch: Path | None = None,
    ):  # fmt: skip
        """``parties``: the text of each party's party.toml, put into its start kit. ``env`` is for all processes.

        ``scratch`` is a folder that is worth nothing without this process: it goes when this process is killed.
        """
        self.folder = folder
        self.parties = dict(parties)
        self.env = dict(env or {})
        self.processes = Processes(scratch)
        self.kits = folder / "fedsift" / "prod_00"
        self.submitter = submitter or "analyst@bank.org"

    def kit(self, name: str) -> Path:
        return self.kits / name

    def session(self) -> FlareSession:
        return FlareSession(self.kit(self.submitter))

    def __enter__(self) -> LocalSystem:
        try:
            self.provision()
            self.start_all()
        except BaseException:
            self.processes.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop()

    def provision(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        project = self.folder / "project.yml"
        project.write_text(project_text(list(self.parties), *free_ports(2)), encoding="utf-8")
        provision(project, self.folder)
        _own_stores(self.kit(SERVER))
        for name, text in self.parties.items():
            self.party_file(name).write_text(text, encoding="utf-8")
        introduce_parties({name: self.party_file(name) for name in self.parties})

    def party_file(self, name: str) -> Path:
        return self.kit(name) / "local" / PARTY_FILE

    def start_all(self) -> None:
        """Start server and clients, and wait until the server knows all of them."""
        self.start(SERVER)
        for name in self.parties:
            self.start(name)
        self.wait_for(list(self.parties))

    def start(self, name: str) -> None:
        kit = self.kit(name)
        script = str(kit / "startup" / "sub_start.sh")
        self.processes.start(name, ["bash", script, "--once"], kit / "console.log", self.env)

    def wait_for(self, clients: Sequence[str]) -> None:
        began = time.monotonic()
        while True:
            try:
                with self.session() as session:
                    missing = set(clients) - set(session.clients())
            except PartyGone:
                missing = {"server"}
            if not missing:
                return
            ended = [name for name in self.processes.started if self.processes.ended(name)]
            if ended or time.monotonic() - began > _START:
                name = ended[0] if ended else sorted(missing)[0]
                raise PartyGone(name, "start", f"it did not start: {last_lines(self.kit_log(name))}")
            time.sleep(0.5)

    def kit_log(self, name: str) -> Path:
        return self.kit(SERVER if name == "server" else name) / "console.log"


def provision(project: Path, folder: Path) -> None:
    """Certificates and start kits, by FLARE's own command."""
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise FedsiftError(f"nvflare provision failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def project_text(parties: Sequence[str], learn_port: int, admin_port: int) -> str:
    """The project template with these parties and ports."""
    text = TEMPLATE.read_text(encoding="utf-8")
    client = re.compile(r"  - name: (\S+)\n    type: client\n    org: \S+\n")
    found = list(client.finditer(text))
    if not found:
        raise ParameterError(f"{TEMPLATE.name} has no client to put the parties in place of")
    made = "".join(f"  - name: {name}\n    type: client\n    org: {_org(name)}\n" for name in parties)
    text = text[: found[0].start()] + made + text[found[-1].end() :]
    return text.replace("fed_learn_port: 8002", f"fed_learn_port: {learn_port}").replace(
        "admin_port: 8003", f"admin_port: {admin_port}"
    )


def _org(name: str) -> str:
    return re.sub(r"\W", "_", name)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _own_stores(kit: Path) -> None:
    """Jobs and snapshots inside the kit: by default all FLARE servers of a machine share one folder."""
    file = kit / "local" / "resources.json.default"
    content = json.loads(file.read_text(encoding="utf-8"))

    def moved(value: object) -> Any:
        if isinstance(value, dict):
            return {key: moved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [moved(item) for item in value]
        if isinstance(value, str) and value.startswith("/tmp/nvflare/"):
            return str(kit / "stores" / Path(value).name)
        return value

    (kit / "local" / "resources.json").write_text(json.dumps(moved(content), indent=2) + "\n", encoding="utf-8")


def last_lines(log: Path, count: int = 3) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "it wrote no log"
    return " | ".join(line.strip() for line in lines[-count:]) or "its log is empty"
