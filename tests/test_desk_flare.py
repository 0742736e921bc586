"""Two sites and an analyst on real FLARE processes, each at a desk of their own, in a real browser, from submit to
history. Minutes: ``make test-flare`` runs it. Screenshots as in ``test_desk_browser.py``."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from browser import Browser, find_chromium
from conftest import mixed_table

pytest.importorskip("nvflare", reason="the extra flare is not installed")
pytest.importorskip("starlette", reason="the extra desk is not installed")
pytest.importorskip("uvicorn", reason="the extra desk is not installed")
from desk_support import Client, served
from test_desk_browser import keep

from fedsift.deploy.local_system import LocalSystem
from fedsift.desk.job_desk import JobDesk
from fedsift.desk.job_runs import JobRuns
from fedsift.desk.office import Office, Person
from fedsift.desk.site_desk import SiteDesk

pytestmark = [
    pytest.mark.flare,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]
PARTY = '[party]\nname = "{name}"\nfile = "{file}"\nid = "id"\n{more}\n'
RULES = '[policy]\napproval = "person"\nmin_rows = 20\nmax_bits = 5.0\n'
JOB = """
[parties.bank]
id = "id"
label = "outcome"
[parties.shop]
id = "id"
[method]
"""
QUICK = JOB + 'name = "information_value"\nn_features = {count}\n'
LONG = JOB + 'name = "pso_evffs"\niterations = 200\npatience = 200\nmin_cell = 10\n'
LIMIT = 240.0


def parties(folder: Path) -> dict[str, str]:
    X, y = mixed_table(120)
    X.insert(0, "id", [f"c{i}" for i in range(120)])
    texts = {}
    for name, own in (("bank", ["id", "signal", "noise"]), ("shop", ["id", "weak", "counts"])):
        table = X[own].assign(**({"outcome": y} if name == "bank" else {}))
        table.to_csv(folder / f"{name}.csv", index=False)
        label = 'label = "outcome"' if name == "bank" else ""
        texts[name] = PARTY.format(name=name, file=folder / f"{name}.csv", more=label) + RULES
    return texts


class Desks:
    """A browser that goes from desk to desk, as the people at them would."""

    def __init__(self, browser: Browser, clients: dict[str, Client], folder: Path):
        self.browser, self.clients, self.folder = browser, clients, folder
        for client in clients.values():
            browser.open(client.guard.link)

    def open(self, who: str, path: str = "/") -> str:
        client = self.clients[who]
        self.browser.open(client.origin + client.guard.base + path, width=1400)
        return str(self.browser.run("document.body.innerText"))

    def until(self, who: str, path: str, *words: str) -> str:
        """Look again and again until the page has one of these words."""
        deadline = time.monotonic() + LIMIT
        while True:
            text = self.open(who, path)
            if any(word in text for word in words):
                return text
            assert time.monotonic() < deadline, f"{who} {path} never says {words}: {text}"
            time.sleep(1.0)

    def click(self, selector: str) -> None:
        before = self.browser.run("performance.timeOrigin")
        self.browser.run(f"document.querySelector({selector!r}).click()")
        deadline = time.monotonic() + 30
        while (
            self.browser.run("performance.timeOrigin") == before
            or self.browser.run("document.readyState") != "complete"
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def submit(self, text: str) -> str:
        """Start the job file at the parties' sites; gives the run's page."""
        (self.folder / "job.toml").write_text(text)
        self.open("analyst")
        self.browser.run("document.querySelector('#on').value = 'flare'")
        self.click("button.yes")
        path = str(self.browser.run("location.pathname"))
        return path.removeprefix(self.clients["analyst"].guard.base)

    def decide(self, who: str, word: str, why: str = "") -> None:
        self.until(who, "/", "persons to come")
        self.click("main a[href*='/request/']")
        self.browser.run(f"document.querySelector('#why').value = {why!r}")
        if why:
            self.browser.run("document.querySelector('input[name=send]').checked = true")
        keep(self.browser, f"flow-{who}-{word}")
        self.click(f"button[value={word}]")
        assert word in str(self.browser.run("document.querySelector('.state').textContent"))


def stop_all(runs: JobRuns) -> None:
    """A run outlives its desk; the test's do not outlive the test."""
    for run in runs.runs():
        if run.state == "running":
            runs.stop(run.id)


@pytest.fixture
def desks(tmp_path):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    with ExitStack() as stack:
        system = stack.enter_context(LocalSystem(tmp_path / "system", parties(tmp_path)))
        analyst = JobDesk(jobs, system.kit(system.submitter))
        stack.callback(analyst.close)
        stack.callback(stop_all, analyst._runs)
        apps = {"analyst": analyst.app()}
        for name, person in (("bank", "Ann"), ("shop", "Bob")):
            apps[name] = SiteDesk(system.party_file(name), Person(person)).app()
        clients = {name: stack.enter_context(served(app)) for name, app in apps.items()}
        browser = Browser(find_chromium())
        stack.callback(browser.close)
        yield Desks(browser, clients, jobs), system


def test_submit_wait_refuse_submit_approve_watch_stop_submit_approve_result_history(desks):
    desk, system = desks
    desk.open("analyst")
    run = desk.submit(QUICK.format(count=1))
    desk.until("analyst", run, "waiting for approval at bank")
    text = desk.until("analyst", "/", "waiting for approval")
    keep(desk.browser, "flow-analyst-waiting")
    assert re.search(r"shop\s+waiting for approval", text), text

    desk.decide("bank", "refused", "not these columns")
    assert "not these columns" in desk.until("analyst", run, "failed")
    desk.decide("shop", "refused")  # where the request still waits

    run = desk.submit(LONG)
    desk.decide("bank", "approved")
    desk.decide("shop", "approved")
    desk.until("bank", "/", "pso", "swarm")
    office = Office(system.party_file("bank"))
    job = next(job for job in office.jobs() if job.running)
    desk.until("bank", f"/job/{job.id}", "boost.")
    desk.until("bank", f"/job/{job.id}", "as who runs it counts")
    keep(desk.browser, "flow-bank-running")
    clicked = time.monotonic()
    desk.click("button.no")
    assert "stopped by Ann" in desk.open("bank", f"/job/{job.id}")
    lines = len(job.ledger.read_text().splitlines())
    while any(each.running for name in ("bank", "shop") for each in Office(system.party_file(name)).jobs()):
        assert time.monotonic() - clicked < 60
        time.sleep(0.2)
    print(f"no site worked on it any more {time.monotonic() - clicked:.1f} s after the click")
    answered = [line for line in job.ledger.read_text().splitlines()[lines:] if line.endswith(",answered")]
    assert answered == [], "nothing left the bank after the click"
    desk.until("analyst", run, "failed")

    run = desk.submit(QUICK.format(count=2))
    desk.decide("bank", "approved")
    desk.decide("shop", "approved")
    desk.until("analyst", run, "finished")
    keep(desk.browser, "flow-analyst-result")
    desk.click("main a[href$='/report']")
    assert desk.browser.run("document.title") == "fedsift: Keep 2 of 4 columns of 2 parties"
    for name, person in (("bank", "Ann"), ("shop", "Bob")):
        text = desk.open(name, "/history")
        keep(desk.browser, f"flow-{name}-history")
        for words in (f"approved by {person}", f"refused by {person}", "finished"):
            assert words in text, (name, words)
