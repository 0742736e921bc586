"""The desk as a person sees it, in headless Chromium: quiet, readable on a phone, usable by keyboard, and it decides.

Screenshots are kept where FEDSIFT_SCREENSHOTS names a folder, for people to look at.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from browser import Browser, find_chromium

import fedsift as fs

pytest.importorskip("starlette", reason="the extra desk is not installed")
pytest.importorskip("uvicorn", reason="the extra desk is not installed")
from desk_support import begin, served, submit, write_site
from test_job_desk import JOB

from fedsift.core.job import Job
from fedsift.desk.job_desk import JobDesk
from fedsift.desk.office import Office, Person
from fedsift.desk.rehearsing import Played, Rehearsals
from fedsift.desk.site_desk import SiteDesk
from fedsift.site.verdict import Fingerprint

NASTY = "<script>document.title='owned'</script>"

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="no Chromium here (Debian: apt-get install chromium), so nobody looked at the desk",
)


@pytest.fixture(scope="module")
def browser():
    opened = Browser(find_chromium())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A desk with a job that waits, one with names that nobody should choose, and one that runs."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("site")
    patch.setattr(Rehearsals, "of", lambda self, request: Played({}, [], "not played in this test"))
    party = write_site(folder)
    submit(folder, fs.InformationValue(n_features=2), patch)
    approvals = Office(party).approvals
    approvals.table = Fingerprint("0" * 32, 120)
    approvals._file((Job("gini", {"n_features": 3, "note": NASTY}, ("bank", NASTY), "bank", ("bank",)),))
    begin(folder)
    with served(SiteDesk(party, Person("Ann")).app()) as client:
        yield client, party
    patch.undo()


@pytest.fixture(scope="module")
def inside(browser, site):
    client, party = site
    browser.open(client.guard.link)
    assert browser.run("location.pathname") == f"{client.guard.base}/"
    return client.origin + client.guard.base, party


def requests(party: Path) -> dict[str, str]:
    return {each.request.main.method: each.request.id for each in Office(party).approvals.standings()}


def keep(browser: Browser, name: str) -> None:
    if os.environ.get("FEDSIFT_SCREENSHOTS"):
        browser.screenshot(Path(os.environ["FEDSIFT_SCREENSHOTS"]) / f"{name}.png")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (400, True)])
def test_pages_are_quiet_and_no_wider_than_the_screen(browser, inside, width, dark):
    origin, party = inside
    pages = {"now": "/", "history": "/history", "journal": "/journal", "rules": "/policy", "job": "/job/running-job"}
    pages |= {f"request-{method}": f"/request/{id}" for method, id in requests(party).items()}
    for name, path in pages.items():
        browser.open(origin + path, width=width, dark=dark)
        assert browser.errors == [], path
        files = {f"{origin.rpartition('/')[0]}/{name}" for name in ("style.css", "desk.js")}
        assert set(browser.requests) <= {origin + path, "data:,", *files}, path
        assert browser.run("document.documentElement.scrollWidth") <= width, path
        assert browser.run("document.title").endswith("The desk of bank"), path
        assert browser.run("document.querySelectorAll('h1').length") == 1
        light_text = sum(map(int, browser.run("getComputedStyle(document.body).color")[4:-1].split(","))) > 380
        assert light_text == dark
        keep(browser, f"desk-{name}-{width}-{'dark' if dark else 'light'}")


def test_every_field_has_a_label_and_every_control_is_reached_by_keyboard(browser, inside):
    origin, party = inside
    for path in ("/", f"/request/{requests(party)['information_value']}", "/policy", "/job/running-job"):
        browser.open(origin + path)
        unnamed = browser.run(
            "[...document.querySelectorAll('input:not([type=hidden]),textarea,select')]"
            ".filter(e => !e.labels.length && !e.getAttribute('aria-label')).length"
        )
        assert unnamed == 0, path
        lost = browser.run(
            "[...document.querySelectorAll('a,button,input,textarea')].filter(e => e.tabIndex < 0).length"
        )
        assert lost == 0, path
        assert browser.run("document.querySelector('a').getAttribute('href')") == "#main", (
            "the first stop skips the menu"
        )


def test_a_person_refuses_with_a_reason_and_thinks_again_by_clicks_alone(browser, inside):
    origin, party = inside
    id = requests(party)["information_value"]
    for word, state in (("refused", "refused"), ("approved", "approved")):
        browser.open(f"{origin}/request/{id}")
        browser.run("document.querySelector('#why').value = 'because <b>'")
        browser.run(f"document.querySelector('button[value={word}]').click()")
        deadline = time.monotonic() + 30
        while Office(party).approvals.find(id).state != state and time.monotonic() < deadline:
            time.sleep(0.05)
        decision = Office(party).approvals.find(id).decisions[-1]
        assert (decision.word, decision.by, decision.why) == (word, "Ann", "because <b>")
    assert browser.errors == []


def test_a_page_that_is_looked_at_brings_itself_up_to_date(browser, inside, tmp_path):
    origin, party = inside
    browser.open(f"{origin}/job/running-job")
    ledger = party.parent / "results" / "running-job" / "ledger.csv"
    with ledger.open("a") as file:
        file.write(f"2026-01-01T00:00:00Z,s,1,gini.sums,aggregate,{NASTY},o,10,4321,answered\n")
    deadline = time.monotonic() + 30
    while "gini.sums" not in browser.run("document.body.textContent") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert NASTY in browser.run("document.body.textContent")
    assert "owned" not in browser.run("document.title")


def test_the_desk_of_who_runs_jobs(browser, tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "broken.toml").write_text("[parties")
    desk = JobDesk(tmp_path)
    with served(desk.app()) as client:
        browser.open(client.guard.link)
        for width in (1400, 400):
            for path in ("/", "/compare"):
                browser.open(client.origin + client.guard.base + path, width=width)
                assert browser.errors == []
                assert browser.run("document.documentElement.scrollWidth") <= width
                keep(browser, f"jobs{path.replace('/', '-')}-{width}")
    desk.close()


@pytest.mark.skipif("FEDSIFT_AXE" not in os.environ, reason="FEDSIFT_AXE names no copy of axe.min.js")
def test_axe_finds_no_serious_fault(browser, inside):
    origin, party = inside
    script = Path(os.environ["FEDSIFT_AXE"]).read_text()
    pages = [
        "/",
        "/history",
        "/journal",
        "/policy",
        "/job/running-job",
        *(f"/request/{id}" for id in requests(party).values()),
    ]
    for path in pages:
        for width, dark in ((1400, False), (400, True)):
            browser.open(origin + path, width=width, dark=dark)
            browser.send("Runtime.evaluate", expression=script)
            found = browser.send(
                "Runtime.evaluate", awaitPromise=True, returnByValue=True,
                expression="axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.impact])))",
            )  # fmt: skip
            serious = [each for each in json.loads(found["result"]["value"]) if each[1] in ("serious", "critical")]
            assert serious == [], path
