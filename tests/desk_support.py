"""A site with jobs that wait, ran and run, and a desk that really listens: for tests of the desk's pages."""

from __future__ import annotations

import http.client
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from conftest import mixed_table

import fedsift as fs
from fedsift.core import approval as waiting
from fedsift.core.federation import Federation
from fedsift.core.transports.inprocess import InProcess
from fedsift.deploy.status import FINISHED, RUNNING, write_status
from fedsift.desk.guard import Guard
from fedsift.desk.office import RESULTS, Office, Person
from fedsift.desk.serve import listen, server
from fedsift.mpc.psi import align
from fedsift.site.record import NAME, SiteLedger
from fedsift.site.site import open_site

PARTY = '[party]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\n{more}\n[policy]\n{rules}\n'


class Away(Exception):
    """The coordinator was ended while it waited."""


def write_site(folder: Path, rules: str = 'approval = "person"', columns: dict[str, str] | None = None) -> Path:
    """A bank whose people approve, and a shop whose rules decide; ``columns`` renames the bank's."""
    X, y = mixed_table(120)
    X.insert(0, "id", [f"c{i}" for i in range(120)])
    for name, own in (("bank", ["id", "signal", "noise"]), ("shop", ["id", "weak", "counts"])):
        (folder / name).mkdir(parents=True, exist_ok=True)
        table = X[own].assign(**({"outcome": y} if name == "bank" else {}))
        table.rename(columns=columns or {}).to_csv(folder / name / f"{name}.csv", index=False)
        label = 'label = "outcome"' if name == "bank" else ""
        text = PARTY.format(name=name, more=label, rules=rules if name == "bank" else "")
        (folder / name / "party.toml").write_text(text, encoding="utf-8")
    return folder / "bank" / "party.toml"


def submit(folder: Path, method: fs.Selector, monkeypatch) -> fs.Selector | None:
    """Announce a job as a coordinator would; it is ended where it has to wait."""

    def ended(self, seconds):
        raise Away

    monkeypatch.setattr(InProcess, "pause", ended)
    opened = {name: open_site(folder / name / "party.toml") for name in ("bank", "shop")}
    job = folder / "bank" / RESULTS / f"job-{method.announcement()[0]}"
    job.mkdir(parents=True, exist_ok=True)
    opened["bank"].job_folder, opened["bank"].ledger = job, SiteLedger(job / NAME)
    fed = Federation(InProcess(opened), list(opened), active="bank")
    waiting.plan(fed, [method.announcement()])
    try:
        method.fit(align(fed))
    except Away:
        return None
    write_status(job, RUNNING, method=method.announcement()[0])
    write_status(job, FINISHED)
    return method


def begin(folder: Path, id: str = "running-job", method: str = "gini") -> Path:
    """A job that runs, as far as the site's files tell."""
    job = folder / "bank" / RESULTS / id
    job.mkdir(parents=True)
    write_status(job, RUNNING, method=method)
    SiteLedger(job / NAME)
    return job


def approve_all(party: Path, by: str = "Ann") -> None:
    office = Office(party)
    for standing in office.approvals.standings():
        office.decide(standing.request.id, "approved", Person(by))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Client:
    """A browser as far as requests go: it keeps the cookie, and sends what it is told to."""

    guard: Guard
    port: int
    cookie: str = ""

    def at(self, path: str) -> str:
        """Where the desk has this page; what lies outside is asked for by its own path."""
        return path if path.startswith(("/enter", "/style.css")) else self.guard.base + path

    def send(self, method: str, path: str, body: str | bytes = "", headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        told = {"Cookie": self.cookie, **(headers or {})}
        try:
            connection.putrequest(method, self.at(path), skip_host="Host" in told)
            body = body.encode() if isinstance(body, str) else body
            for name, value in {**told, "Content-Length": str(len(body))}.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            heads = {name.lower(): value for name, value in reply.getheaders()}
            if "location" in heads:
                heads["location"] = heads["location"].removeprefix(self.guard.base)
            return Answer(reply.status, heads, reply.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def enter(self) -> Answer:
        answer = self.get(self.guard.link.partition(str(self.port))[2])
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, fields: dict[str, str], page: str | None = None, **headers: str) -> Answer:
        """Send a form; its secret is read from ``page``, as a browser has it there."""
        if page is not None:
            found = re.search(r'name="form" value="([^"]+)"', self.get(page).text)
            assert found is not None, page
            fields = {"form": found[1], **fields}
        told = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin, **headers}
        return self.send("POST", path, urlencode(fields), told)


@contextmanager
def served(app):
    """A desk that listens, and a client of it that has not entered yet."""
    listening = listen(0)
    port = listening.getsockname()[1]
    guard = Guard(app, port)
    running = server(guard)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield Client(guard, port)
    finally:
        running.should_exit = True
        thread.join(30)
        listening.close()
