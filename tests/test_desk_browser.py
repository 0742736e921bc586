"""The desk as a person sees it, in headless Chromium: quiet, readable on a phone, usable by keyboard, and it decides.

Screenshots are kept where FEDSIFT_SCREENSHOTS names a folder, for people to look at.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest
from browser import Browser, a_browser, find_chromium  # noqa: F401  a fixture is among them

import fedsift as fs

pytest.importorskip("starlette", reason="the extra desk is not installed")
pytest.importorskip("uvicorn", reason="the extra desk is not installed")
from desk_support import begin, served, submit, write_site
from test_job_desk import JOB

from fedsift.core.job import Job
from fedsift.desk.job_desk import JobDesk
from fedsift.desk.job_runs import FOLDER
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


@pytest.fixture(scope="module")
def analyst(browser, tmp_path_factory):
    """The desk of who runs jobs: job files, one of them broken, a run that has finished and one that waits."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "job.toml").write_text(JOB)
    (folder / "broken.toml").write_text("[parties")
    done = write_run(folder, "20260101-100000-aaaaaa", exit="0")
    (done / "result").mkdir()
    facts = {
        "method": "gini", "rows": 120, "rounds": 7, "bytes": 4000, "seconds": {"select": 1.5}, "hash": "ab" * 32,
        "parties": {"bank": {"columns": 2, "selected": 1}}, "selected": {"bank": [NASTY], "shop": ["weak"]},
        "evaluation": [{"method": "gini", "auc": 0.75}],
    }  # fmt: skip
    (done / "result" / "run.json").write_text(json.dumps(facts))
    waits = write_run(folder, "20260101-110000-bbbbbb", exit=None)
    step = {"event": "step", "text": f"waiting for approval at bank until 2026-11-23 {NASTY}"}
    ask = {"event": "ask", "operation": "gini.sums", "bytes": 2048, "seconds": 0.5}
    (waits / "log.jsonl").write_text(f"{json.dumps(ask)}\n{json.dumps(step)}\n")
    desk = JobDesk(folder)
    facts = {**json.loads((waits / "desk.json").read_text()), "process": os.getpid()}
    (waits / "desk.json").write_text(json.dumps({**facts, "born": psutil.Process().create_time()}))
    with served(desk.app()) as client:
        browser.open(client.guard.link)
        base = client.origin + client.guard.base
        yield {"jobs": base + "/", "compare": base + "/compare", **{
            name: f"{base}/run/{run.name}" for name, run in (("finished", done), ("waiting", waits))}}  # fmt: skip
    desk.close()


def write_run(folder: Path, id: str, exit: str | None) -> Path:
    run = folder / FOLDER / id
    run.mkdir(parents=True)
    facts = {"job": "job.toml", "work": "run", "on": "local", "started": "2026-01-01T10:00:00Z"}
    (run / "desk.json").write_text(json.dumps(facts))
    if exit is not None:
        (run / "exit").write_text(exit)
    return run


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (400, True)])
def test_the_desk_of_who_runs_jobs(browser, analyst, width, dark):
    for name, path in analyst.items():
        browser.open(path, width=width, dark=dark)
        assert browser.errors == []
        assert browser.run("document.documentElement.scrollWidth") <= width, name
        assert browser.run("document.title").endswith("fedsift desk"), name
        keep(browser, f"jobs-{name}-{width}-{'dark' if dark else 'light'}")


needs_axe = pytest.mark.skipif("FEDSIFT_AXE" not in os.environ, reason="FEDSIFT_AXE names no copy of axe.min.js")


def serious_faults(browser: Browser, page: str) -> list[list[str]]:
    """What axe-core finds on a page, wide and light, narrow and dark."""
    script, found = Path(os.environ["FEDSIFT_AXE"]).read_text(), []
    for width, dark in ((1400, False), (400, True)):
        browser.open(page, width=width, dark=dark)
        browser.send("Runtime.evaluate", expression=script)
        told = browser.send(
            "Runtime.evaluate", awaitPromise=True, returnByValue=True,
            expression="axe.run().then(r => JSON.stringify(r.violations.map(v => "
                       "[v.id, v.impact, v.nodes.map(n => n.html).join().slice(0, 300)])))",
        )  # fmt: skip
        found += [each for each in json.loads(told["result"]["value"]) if each[1] in ("serious", "critical")]
    return found


@needs_axe
def test_axe_finds_no_serious_fault_at_a_site(browser, inside):
    origin, party = inside
    paths = ["/", "/history", "/journal", "/policy", "/job/running-job"]
    for path in [*paths, *(f"/request/{id}" for id in requests(party).values())]:
        assert serious_faults(browser, origin + path) == [], path


@needs_axe
def test_axe_finds_no_serious_fault_where_jobs_are_run(browser, analyst):
    for name, page in analyst.items():
        assert serious_faults(browser, page) == [], name
