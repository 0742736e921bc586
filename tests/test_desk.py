"""The desk: what it shows and does, and that nobody else gets in, whatever they send."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app

pytest.importorskip("starlette", reason="the extra desk is not installed")
pytest.importorskip("uvicorn", reason="the extra desk is not installed")
from desk_support import approve_all, begin, served, submit, write_site

from fedsift.core.job import Job
from fedsift.deploy.status import RUNNING, read_status, write_status
from fedsift.desk import guard, policy_editor
from fedsift.desk.leaving import leaving
from fedsift.desk.office import Office, Person
from fedsift.desk.rehearsing import Played, Rehearsals, job_of, play
from fedsift.desk.serve import listen
from fedsift.desk.site_desk import SiteDesk
from fedsift.desk.site_pages import _expected
from fedsift.errors import ParameterError, PolicyRefused
from fedsift.site import gate
from fedsift.site.verdict import Fingerprint

METHOD = fs.RandomFeatures(n_features=2)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    """Pages show what a method lists; the one test that plays a rehearsal does so itself."""
    monkeypatch.setattr(Rehearsals, "of", lambda self, request: Played({}, [], "not played in this test"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A site with one job that waits, made once."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("template")
    write_site(folder)
    submit(folder, METHOD, patch)
    patch.undo()
    return folder


@pytest.fixture
def party(template, tmp_path):
    for name in ("bank", "shop"):
        shutil.copytree(template / name, tmp_path / name)
    return tmp_path / "bank" / "party.toml"


@pytest.fixture
def desk(party):
    with served(SiteDesk(party, Person("Ann")).app()) as client:
        yield client


@pytest.fixture
def inside(desk):
    assert desk.enter().status == 303
    return desk


def waiting_id(party: Path) -> str:
    (standing,) = (each for each in Office(party).approvals.standings() if each.state == "waiting")
    return standing.request.id


# --- what people do --------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_shown_with_what_leaves_and_approved(inside, party, tmp_path, monkeypatch):
    id = waiting_id(party)
    assert f"{inside.guard.base}/request/{id}" in inside.get("/").text
    page = inside.get(f"/request/{id}").text
    for words in ("What leaves this site", "What attacks could read", "epsilon so far", "bits a row so far", "by whom"):
        assert words in page
    answer = inside.post(f"/request/{id}/decide", {"word": "approved", "why": "as agreed"}, f"/request/{id}")
    assert (answer.status, answer.headers["location"]) == (303, f"/request/{id}")
    (standing,) = Office(party).approvals.standings()
    assert (standing.state, standing.decisions[0].by, standing.decisions[0].why) == ("approved", "Ann", "as agreed")
    assert submit(tmp_path, METHOD, monkeypatch) is not None
    for path, words in (
        ("/history", "approved by Ann"),
        ("/journal", "random: approved"),
        ("/job/job-random", "finished"),
    ):
        assert words in inside.get(path).text, path


def test_a_waiting_job_is_refused_with_a_reason(inside, party):
    id = waiting_id(party)
    inside.post(f"/request/{id}/decide", {"word": "refused", "why": "no", "send": "yes"}, f"/request/{id}")
    (standing,) = Office(party).approvals.standings()
    assert (standing.state, standing.decisions[0].sent) == ("refused", True)
    assert "no" in inside.get("/history").text


def test_a_running_job_is_stopped(inside, party, tmp_path):
    job = begin(tmp_path)
    assert "/job/running-job" in inside.get("/").text
    assert inside.post("/job/running-job/stop", {"why": "enough"}, "/job/running-job").status == 303
    assert gate.is_stopped(job)
    assert read_status(job)["state"] == "ended"
    assert "stopped by Ann: enough" in inside.get("/job/running-job").text
    assert any(line.operation == "stopped" for line in Office(party).journal().lines)


def test_a_stopped_job_does_not_begin_again_unasked(inside, party, tmp_path, monkeypatch):
    approve_all(party)
    assert submit(tmp_path, METHOD, monkeypatch) is not None
    write_status(tmp_path / "bank" / "results" / "job-random", RUNNING)
    assert inside.post("/job/job-random/stop", {"why": "enough"}, "/job/job-random").status == 303
    (tmp_path / "bank" / "results" / "job-random" / gate.STOP).unlink()  # the folder of another run of the same job
    with pytest.raises(PolicyRefused, match="did not approve"):
        submit(tmp_path, METHOD, monkeypatch)


def test_pages_show_what_the_site_decided_elsewhere_meanwhile(inside, party):
    approve_all(party, "Bob")
    assert "approved by Bob" in inside.get("/history").text


def test_rules_are_checked_against_the_past_and_saved(inside, party):
    text = party.read_text()
    stricter = text.replace("[policy]", '[policy]\nmethods = ["gini"]')
    page = inside.post("/policy", {"do": "check", "text": stricter}, "/policy").text
    assert "Nothing is wrong with it" in page
    assert "the method &#x27;random&#x27; is not allowed here" in page
    assert party.read_text() == text, "looking changes nothing"
    assert "Saved" in inside.post("/policy", {"do": "save", "text": stricter}, "/policy").text
    assert party.read_text() == stricter
    assert party.with_name("party.toml.before").read_text() == text


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A site where information values were computed, exact and then with noise: forms, rows, bits, epsilon."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("past")
    path = write_site(folder, 'approval = "policy"\nmin_rows = 20\nmax_bits = 5.0')
    for epsilon in (None, 2.0):
        assert submit(folder, fs.InformationValue(n_features=2, min_cell=10, epsilon=epsilon), patch) is not None
    patch.undo()
    return Office(path)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"forms": ["control", "masked"]}, "in the form"),
        ({"min_rows": 119}, ""),
        ({"min_rows": 121}, "fewer than 121"),
        ({"max_bits": 1e-6}, "bits a row"),
        ({"max_id_lists": 1}, ""),
        ({"min_cell": 11}, "min_cell"),
        ({"partners": ["insurer"]}, "none of the parties"),
        ({}, ""),
    ],
)  # fmt: skip
def test_past_jobs_are_judged_by_what_they_sent_and_about_how_many_rows(past, rules, why):
    policy = past.settings.policy.model_copy(update=rules)
    found = [each.why for each in past.refused_by(policy) if each.job.parameters.get("epsilon", 0) is None]
    assert (why in found[0]) if why else found == []


def test_noise_and_id_lists_of_the_past_are_added_up(past):
    strict = past.settings.policy.model_copy(update={"total_epsilon": 1.0})
    assert [refusal.job.parameters["epsilon"] for refusal in past.refused_by(strict)] == [2.0]
    strict = past.settings.policy.model_copy(update={"max_id_lists": 1})
    assert {refusal.job.method for refusal in past.refused_by(strict)} == {"alignment"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('file = "bank.csv"', 'file = "/etc/passwd"', "edit [party] in the file"),
        ("[policy]", '[policy]\nplugins = ["antigravity"]', "does not change plugins"),
        ("[policy]", '[peers]\nshop = "00"\n[policy]', "edit [peers]"),
        ("[policy]", "[policy]\nmin_rows = 0", "min_rows"),
        ("[policy]", "[policy]\nmin_row = 5", "min_row"),
        ("[policy]", '[policy]\nmethods = ["no_such"]', "no_such"),
        ("[policy]", "[policy", "TOML"),
    ],
)
def test_a_text_that_is_wrong_or_changes_more_than_rules_is_not_saved(inside, party, old, new, problem):
    before = party.read_text()
    page = inside.post("/policy", {"do": "save", "text": before.replace(old, new)}, "/policy").text
    assert problem in page
    assert party.read_text() == before


def test_a_rehearsal_shows_what_this_job_asks_for_and_no_more(party, tmp_path, monkeypatch):
    submit(tmp_path, fs.TopGain(n_features=2), monkeypatch)
    office = Office(party)
    id = next(s.request.id for s in office.approvals.standings() if s.request.main.method == "top_gain")
    job = office.approvals.find(id).request.main
    listed = {line.operation for line in leaving(job, "bank")}
    asked = set(play(party, id)["asked"][job.hash.hex()])
    assert "boost.level_sums" in listed or "boost.next_trees" in listed
    assert listed - asked, "a method lists more than one job asks for"
    assert asked & listed


def test_a_contract_becomes_the_job_that_it_was(party):
    (standing,) = Office(party).approvals.standings()
    main = standing.request.main
    again = job_of(main)
    assert again.selector().announcement() == (main.method, dict(main.parameters))


def test_readers_of_what_leaves_are_named():
    name, parameters = fs.InformationValue().announcement()
    job = Job(
        name, parameters, ("bank", "shop"), "bank", ("bank",), coordinator="shop", dealer="shop", submitter="shop"
    )
    assert {line.readers for line in leaving(job, "shop")} == {"the coordinator (shop)"}


def test_no_value_of_the_table_is_on_any_page(inside, party, tmp_path):
    begin(tmp_path)
    values = {line.split(",")[1] for line in (tmp_path / "bank" / "bank.csv").read_text().splitlines()[1:]}
    ids = {f"c{i}," for i in range(120)}  # random names on the pages (tokens, hashes) have no comma and no point
    for path in ("/", f"/request/{waiting_id(party)}", "/history", "/journal", "/policy", "/job/running-job"):
        text = inside.get(path).text
        assert not any(value in text for value in values | ids), path


# --- who gets in -----------------------------------------------------------------------------------------------------


def test_the_link_is_good_once(desk):
    link = desk.guard.link.partition(str(desk.port))[2]
    assert desk.get(link).status == 303
    assert desk.get(link).status == 403


def test_the_cookie_is_for_this_site_alone_and_pages_load_nothing_from_elsewhere(desk):
    answer = desk.enter()
    assert all(word in answer.headers["set-cookie"] for word in ("HttpOnly", "SameSite=Strict"))
    assert answer.headers["set-cookie"].endswith(f"Path={desk.guard.base}"), "no other server of this machine gets it"
    page = desk.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (page.headers["cache-control"], page.headers["referrer-policy"]) == ("no-store", "same-origin")
    assert "server" not in page.headers
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)


def test_pages_are_nowhere_but_at_the_desks_own_path(inside, monkeypatch):
    monkeypatch.setattr(type(inside), "at", lambda self, path: path)
    assert [inside.get(path).status for path in ("/", "/journal", "/x/journal", f"{inside.guard.base}x/")] == [404] * 4


def test_guessing_links_is_stopped_soon_even_for_the_right_one(desk):
    assert [desk.get(f"/enter?token=guess{i}").status for i in range(8)] == [403] * 5 + [429] * 3
    assert desk.enter().status == 429


def test_guesses_are_forgotten_after_a_minute():
    clock = [0.0]
    kept = guard.Guard(None, 1, clock=lambda: clock[0])
    kept._wrong.extend([0.0] * guard.MAX_WRONG)
    with pytest.raises(guard.Refused):
        kept._check_rate(kept._wrong, guard.MAX_WRONG, guard.WRONG_WINDOW)
    clock[0] = guard.WRONG_WINDOW + 1
    kept._check_rate(kept._wrong, guard.MAX_WRONG, guard.WRONG_WINDOW)


def test_a_session_that_nobody_uses_ends(inside):
    inside.guard._session.used -= guard.IDLE + 1
    assert inside.get("/").status == 403


def test_a_flood_is_turned_away(inside, monkeypatch):
    monkeypatch.setattr(guard, "MAX_REQUESTS", 20)
    states = [inside.get("/style.css").status for _ in range(30)]
    assert states.count(429) >= 10
    inside.guard._seen.clear()
    assert inside.get("/").status == 200


#: Requests by somebody who is not the person at the desk: other pages in the same browser, other users of the machine.
OUTSIDE = {
    "no cookie": ("GET", "/", "", {"Cookie": "x=1"}),
    "a guessed cookie": ("GET", "/", "", {"Cookie": "fedsift-desk={port}"}),
    "another host, pointed at this machine": ("GET", "/", "", {"Host": "evil.example"}),
    "the right host, another port": ("GET", "/", "", {"Host": "127.0.0.1:1"}),
    "no port": ("GET", "/", "", {"Host": "127.0.0.1"}),
    "a host with a user": ("GET", "/", "", {"Host": "evil@127.0.0.1:{port}"}),
    "a host in capitals of another": ("GET", "/", "", {"Host": "LOCALHOST.evil:{port}"}),
    "another site's picture": ("GET", "/journal", "", {"Sec-Fetch-Site": "cross-site"}),
    "another site of the same name": ("GET", "/journal", "", {"Sec-Fetch-Site": "same-site"}),
    "another site's form": ("POST", "{decide}", "{fields}", {"Origin": "http://evil.example"}),
    "another port's form": ("POST", "{decide}", "{fields}", {"Origin": "http://127.0.0.1:1"}),
    "a page without an origin": ("POST", "{decide}", "{fields}", {"Origin": "null"}),
    "no origin": ("POST", "{decide}", "{fields}", {"Origin": ""}),
    "https": ("POST", "{decide}", "{fields}", {"Origin": "https://127.0.0.1:{port}"}),
    "a form without its secret": ("POST", "{decide}", "word=approved", {}),
    "a form with a wrong secret": ("POST", "{decide}", "form=x&word=approved", {}),
    "a secret that is there twice": ("POST", "{decide}", "{fields}&form=x", {}),
    "a secret with letters of no alphabet": ("POST", "{decide}", "form=%ff%fe&word=approved", {}),
    "JSON": ("POST", "{decide}", "{}", {"Content-Type": "application/json"}),
    "text": ("POST", "{decide}", "{fields}", {"Content-Type": "text/plain"}),
    "many fields": ("POST", "{decide}", "&".join(f"a{i}=1" for i in range(200)), {}),
    "a large form": ("POST", "{decide}", "{fields}&why=" + "x" * 70_000, {}),
    "a decision that is a link": ("GET", "{decide}?word=approved", "", {}),
    "a stop that is a link": ("GET", "/job/running-job/stop", "", {}),
    "PUT": ("PUT", "/policy", "text=x", {}),
    "DELETE": ("DELETE", "/request/x", "", {}),
    "OPTIONS": ("OPTIONS", "/", "", {"Origin": "http://evil.example"}),
    "TRACE": ("TRACE", "/", "", {}),
    "a path upwards": ("GET", "/job/../../../etc/passwd", "", {}),
    "a path upwards, hidden": ("GET", "/job/%2e%2e%2f%2e%2e%2fparty.toml", "", {}),
    "a path upwards, hidden twice": ("GET", "/job/%252e%252e/report", "", {}),
    "a path of another system": ("GET", "/job/..\\..\\party.toml/report", "", {}),
    "a job that is a hidden file": ("GET", "/job/.hidden/report", "", {}),
    "a nothing in a path": ("GET", "/job/running-job%00.html", "", {}),
    "a line in a path": ("GET", "/job/a%0d%0aSet-Cookie:x=1", "", {}),
    "an absolute path": ("GET", "//etc/passwd", "", {}),
    "secrets": ("GET", "/secrets/signing.key", "", {}),
    "the journal's file": ("GET", "/journal-bank.sqlite", "", {}),
    "a long path": ("GET", "/" + "a" * 600, "", {}),
    "a long question": ("GET", "/?" + "a" * 3000, "", {}),
    "a request of another kind of number": ("GET", "/request/" + "f" * 64, "", {}),
    "a request by a short name": ("GET", "/request/ab", "", {}),
    "a request that is a pattern": ("GET", "/request/*", "", {}),
    "a decision on nothing": ("POST", "/request/" + "0" * 64 + "/decide", "{fields}", {}),
    "a word that is none": ("POST", "{decide}", "{secret}&word=maybe", {}),
    "a stop of nothing": ("POST", "/job/no-such/stop", "{fields}", {}),
    "a stop of a folder above": ("POST", "/job/%2e%2e/stop", "{fields}", {}),
}  # fmt: skip


def state_of(folder: Path) -> dict[str, bytes]:
    """All files of the site but the journal's memory of who has it open."""
    return {
        str(file): file.read_bytes()
        for file in sorted((folder / "bank").rglob("*"))
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }


@pytest.fixture(scope="module")
def besieged(template, tmp_path_factory):
    """One site and its desk for all hostile requests: none may change anything."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("site")
    patch.setattr(Rehearsals, "of", lambda self, request: Played({}, [], "not played in this test"))
    shutil.copytree(template, folder, dirs_exist_ok=True)
    path = folder / "bank" / "party.toml"
    begin(folder)
    with served(SiteDesk(path, Person("Ann")).app()) as client:
        client.enter()
        yield client, path, folder
    patch.undo()


@pytest.mark.parametrize("which", OUTSIDE)
def test_hostile_requests_change_nothing_and_show_nothing(besieged, which):
    client, path, folder = besieged
    id = waiting_id(path)
    secret = re.search(r'name="form" value="([^"]+)"', client.get(f"/request/{id}").text)[1]
    before = state_of(folder)
    words = {"{port}": str(client.port), "{decide}": f"/request/{id}/decide", "{secret}": f"form={secret}",
             "{fields}": f"form={secret}&word=approved"}  # fmt: skip

    def filled(text: str) -> str:
        for key, value in words.items():
            text = text.replace(key, value)
        return text

    method, target, body, headers = OUTSIDE[which]
    usual = {"Content-Type": "application/x-www-form-urlencoded", "Origin": client.origin} if method == "POST" else {}
    answer = client.send(method, filled(target), filled(body), {**usual, **{k: filled(v) for k, v in headers.items()}})
    assert 400 <= answer.status < 500
    assert "set-cookie" not in answer.headers
    assert str(folder) not in answer.text
    assert "root:" not in answer.text
    assert "[policy]" not in answer.text
    assert state_of(folder) == before


def test_a_connection_that_says_nothing_or_nonsense_is_dropped(inside):
    for data in (b"", b"\x16\x03\x01" * 50, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000, b"\x00" * 100_000):
        with socket.create_connection(("127.0.0.1", inside.port), timeout=10) as there:
            if data:
                there.sendall(data)
    assert inside.get("/").status == 200


# --- hostile names ---------------------------------------------------------------------------------------------------

NAMES = [
    "<script>document.title='owned'</script>", "\"><img src=x onerror=alert(1)>", "'-alert(1)-'", "</title><h1>x",
    "{{7*7}}", "{% raw %}", "javascript:alert(1)", "a\x1b[31mred", "\u202eevil", "x" * 5000, "=cmd|' /C calc'!A0",
    "<!--", "]]>", "&lt;b&gt;", "\u2028alert(1)", "<svg/onload=alert(1)>", "../../party.toml", "%3Cscript%3E",
    "<a href=//evil.example>", "\ud7ff\ufffe",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names_are_text(besieged, name, tmp_path, monkeypatch):
    """A job whose parameters, parties and reasons carry markup; and a ledger line with it."""
    client, path, folder = besieged
    office = Office(path)
    contract = Job(
        "muse", {"n_features": 3, "note": name}, ("bank", name), "bank", ("bank",), "vertical", "auto", name, name, name
    )
    approvals = office.approvals
    approvals.table = Fingerprint("0" * 32, 120)
    approvals._file((contract,))
    id = approvals.find(contract.hash.hex()).request.id
    office.decide(id, "refused", Person("Ann"), why=name[:1000])
    job = folder / "bank" / "results" / "running-job" / "ledger.csv"
    with job.open("a", encoding="utf-8", errors="replace") as file:
        file.write(
            json.dumps(["x"])[1:-1]
            + f',s,1,"{name.replace(chr(34), chr(34) * 2)}",plain,"{name.replace(chr(34), "")}",o,1,2,answered\n'
        )
    for page in (f"/request/{id}", "/history", "/journal", "/", "/job/running-job"):
        answer = client.get(page)
        assert answer.status == 200
        tags = set(re.findall(r"<([a-zA-Z!/]+)", answer.text))
        assert not {"img", "svg", "iframe", "object"} & tags
        assert answer.text.count("<script") == 1, "the desk's own file"
        assert "onerror=" not in re.sub(r"&[#\w]+;", "", " ".join(re.findall(r"<[^>]*>", answer.text)))
        assert "\x1b" not in answer.text
        assert "<h1>x" not in answer.text


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_commands_serve_what_they_say_and_print_the_link(party, tmp_path, monkeypatch):
    apps = []

    def kept(app, port, say):
        apps.append((app, port))
        say("http://127.0.0.1:1/enter?token=x")

    monkeypatch.setattr("fedsift.cli.desk.run", kept)
    for words in (["party", "desk", "--party", str(party), "--by", "Ann"], ["desk", str(tmp_path)]):
        told = CliRunner().invoke(app, [*words, "--port", "7"])
        assert told.exit_code == 0, told.output
        assert "http://127.0.0.1:1/enter?token=x" in told.output
    assert [port for _, port in apps] == [7, 7]
    assert CliRunner().invoke(app, ["desk", str(tmp_path / "none")]).exit_code == ParameterError.exit_code


def test_a_port_of_this_machine_alone():
    with listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        listening.listen()
        with pytest.raises(ParameterError, match="cannot listen"):
            listen(listening.getsockname()[1])


def test_an_editor_judges_without_importing_anything(party):
    before = set(sys.modules)
    text = party.read_text().replace("[policy]", '[policy]\nplugins = ["antigravity"]')
    assert policy_editor.propose(party, text, lambda policy: []).problem
    assert "antigravity" not in set(sys.modules) - before


def test_what_a_waiting_job_costs_is_said_by_the_columns_that_matching_announces():
    who = {"parties": ("bank", "shop"), "active": "bank"}
    matching = Job("alignment", {"columns": {"bank": 10, "shop": 13}, "rows": {"bank": 30000, "shop": 30000}}, **who)
    main = Job("information_value", {}, **who)
    told = _expected([matching, main], main, 30000)
    assert re.search(r"rounds, .* over all links, .* at 30 ms, .* of memory", told), told
    assert "unknown" in _expected([main], main, 30000)
    assert "unknown" in _expected([Job("alignment", {"columns": "<b>"}, **who), main], main, 30000)
