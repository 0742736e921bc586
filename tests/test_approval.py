"""Jobs that wait for the people of a site: nothing begins without them, and nobody can speak in their place."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import mixed_table
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core import approval as waiting
from fedsift.core.federation import Federation
from fedsift.core.identity import SigningKey, introduce
from fedsift.core.message import decode, encode
from fedsift.core.operation import _registry
from fedsift.core.party import count_table
from fedsift.core.transports.inprocess import InProcess
from fedsift.desk.office import Office, Person
from fedsift.errors import JobError, ParameterError, PolicyRefused
from fedsift.mpc.psi import align
from fedsift.site import approval, gate
from fedsift.site.approval import APPROVED, LAPSED, REFUSED, WAITING
from fedsift.site.decisions import Signed
from fedsift.site.journal_facts import what_of
from fedsift.site.secrets import write_key
from fedsift.site.site import PolicySite, open_site

PARTY = '[party]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\n{more}\n[policy]\n{rules}\n'
PERSON = 'approval = "person"'
METHOD = fs.RandomFeatures(n_features=2)


@pytest.fixture
def folder(tmp_path):
    """Two organisations; the bank's people want to see every job."""
    X, y = mixed_table(120)
    X.insert(0, "id", [f"c{i}" for i in range(120)])
    for name, columns in (("bank", ["id", "signal", "noise"]), ("shop", ["id", "weak", "counts"])):
        (tmp_path / name).mkdir()
        own = X[columns].assign(**({"outcome": y} if name == "bank" else {}))
        own.to_csv(tmp_path / name / f"{name}.csv", index=False)
    write(tmp_path, "bank", PERSON)
    write(tmp_path, "shop")
    return tmp_path


def write(folder: Path, name: str, rules: str = "", more: str = "") -> Path:
    label = 'label = "outcome"' if name == "bank" else ""
    path = folder / name / "party.toml"
    path.write_text(PARTY.format(name=name, more=label, rules=rules) + more, encoding="utf-8")
    return path


def sites(folder: Path) -> dict[str, PolicySite]:
    return {name: open_site(folder / name / "party.toml") for name in ("bank", "shop")}


def office(folder: Path, name: str = "bank") -> Office:
    return Office(folder / name / "party.toml")


class Away(Exception):
    """The coordinator was ended while it waited."""


@pytest.fixture
def while_waiting(monkeypatch):
    """What happens at the sites while the coordinator waits, one step for each time that it asks again."""
    steps: list = []

    def pause(self, seconds):
        assert 0 < seconds <= waiting.LONGEST_PAUSE
        if not steps:
            raise Away
        steps.pop(0)()

    monkeypatch.setattr(InProcess, "pause", pause)
    return steps


def federation(folder: Path, *, planned: bool = True, method: fs.Selector = METHOD) -> Federation:
    opened = sites(folder)
    fed = Federation(InProcess(opened), list(opened), active="bank")
    if planned:
        waiting.plan(fed, [method.announcement()])
    return fed


def run(folder: Path, method: fs.Selector = METHOD, **options) -> fs.Selector:
    return method.fit(align(federation(folder, method=method, **options)))


def only(folder: Path, name: str = "bank") -> approval.Standing:
    (standing,) = office(folder, name).approvals.standings()
    return standing


def decide(folder: Path, word: str, by: str = "Ann", name: str = "bank", **more) -> None:
    there = office(folder, name)
    for standing in there.approvals.standings():
        if standing.state == WAITING:
            there.decide(standing.request.id, word, Person(by), **more)


def command(folder: Path, *words: str, name: str = "bank"):
    return CliRunner().invoke(app, ["party", *words, "--party", str(folder / name / "party.toml")])


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_job_waits_for_a_person_and_then_runs_as_it_would_have(folder, while_waiting):
    steps = []
    while_waiting += [lambda: steps.append(only(folder).state), lambda: decide(folder, "approved")]
    method = fs.InformationValue(n_features=2)
    found = run(folder, method).selection_
    assert steps == [WAITING]
    write(folder, "bank", 'approval = "policy"\nmax_bits = "any"')
    assert found.selected == run(folder, method).selection_.selected


def test_alignment_and_method_are_one_decision_where_they_are_planned(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    assert [job.method for job in only(folder).request.jobs] == ["alignment", "random"]
    assert only(folder).request.main.method == "random"


def test_what_was_not_planned_is_a_decision_of_its_own(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")] * 2
    run(folder, planned=False)
    found = office(folder).approvals.standings()
    assert sorted(job.method for each in found for job in each.request.jobs) == ["alignment", "random"]


def test_nothing_but_sizes_leaves_before_the_approval(folder, while_waiting):
    fed = federation(folder)
    with pytest.raises(Away):
        align(fed)
    told = {entry.operation for entry in fed.ledger.entries if entry.sender == "bank"}
    assert told == {"core.count_table", "core.begin_job", "core.propose_jobs", "core.end_session"}
    assert office(folder).journal().lines == []


def test_who_watches_hears_for_whom_and_until_when(folder, while_waiting):
    class Watcher(fs.core.progress.Watcher):
        def __init__(self):
            self.told = []

        def waiting(self, until):
            self.told.append(dict(until))

    while_waiting += [lambda: None, lambda: decide(folder, "approved")]
    watcher = Watcher()
    with fs.core.progress.watching(watcher):
        run(folder)
    until = only(folder).request.until
    assert watcher.told == [{"bank": until}, {"bank": until}, {}]


def test_the_other_party_waits_for_its_own_people(folder, while_waiting):
    write(folder, "shop", PERSON)
    while_waiting += [lambda: decide(folder, "approved"), lambda: decide(folder, "approved", name="shop")]
    run(folder)
    assert (only(folder).state, only(folder, "shop").state) == (APPROVED, APPROVED)


def test_pauses_grow_up_to_half_a_minute(folder, monkeypatch):
    seconds = []

    def pause(self, length):
        seconds.append(length)
        if len(seconds) == 15:
            decide(folder, "approved")

    monkeypatch.setattr(InProcess, "pause", pause)
    run(folder)
    assert seconds[0] == waiting.FIRST_PAUSE
    assert seconds == sorted(seconds)
    assert seconds[-1] == waiting.LONGEST_PAUSE


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_coordinator_that_was_ended_finds_the_request_where_it_left_it(folder, while_waiting):
    with pytest.raises(Away):
        run(folder)
    before = only(folder).request
    with pytest.raises(Away):  # other processes of everybody: new sites, a new coordinator
        run(folder)
    assert only(folder).request == before


def test_an_approval_outlives_every_process(folder, while_waiting):
    with pytest.raises(Away):
        run(folder)
    decide(folder, "approved")
    assert run(folder).selection_ is not None  # nobody waits any more
    assert run(folder).selection_ is not None


def test_a_changed_job_needs_a_new_approval(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    with pytest.raises(Away):
        run(folder, fs.RandomFeatures(n_features=1))
    states = [each.state for each in office(folder).approvals.standings()]
    assert sorted(states) == [APPROVED, WAITING]


def test_another_table_needs_a_new_approval(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    method = fs.RandomFeatures(n_features=1)
    fed = Federation(InProcess(sites(folder)), ["bank", "shop"], active="bank")
    method.fit(fed)  # without alignment the job says nothing of the tables
    file = folder / "bank" / "bank.csv"
    file.write_text(file.read_text().replace("signal", "renamed", 1))
    with pytest.raises(Away):
        method.fit(Federation(InProcess(sites(folder)), ["bank", "shop"], active="bank"))
    assert only(folder).state == WAITING
    past = office(folder).approvals.standings(past=True)
    assert sorted(each.state for each in past) == [approval.VOID, WAITING], "what was approved before is kept"


def test_an_approval_ends(folder, while_waiting, monkeypatch):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    later = approval.now() + timedelta(days=8)
    monkeypatch.setattr(approval, "now", lambda: later)
    with pytest.raises(Away):
        run(folder)
    assert only(folder).state == WAITING


def test_another_version_needs_a_new_approval(folder, while_waiting, monkeypatch):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    monkeypatch.setattr(approval, "VERSION", "0.0")
    assert only(folder).state == approval.VOID


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal(folder: Path) -> PolicyRefused:
    with pytest.raises(PolicyRefused) as caught:
        run(folder)
    assert caught.value.rule == "approval"
    return caught.value


def test_a_refusal_ends_the_run_and_keeps_its_reason_here(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "refused", why="not on my watch")]
    assert "not on my watch" not in str(refusal(folder))
    assert only(folder).state == REFUSED
    assert only(folder).decisions[0].why == "not on my watch"
    refusal(folder)  # the same job again is refused at once


def test_a_reason_is_sent_where_the_person_says_so(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "refused", why="too few rows", sent=True)]
    assert "too few rows" in str(refusal(folder))


def test_a_refusal_and_a_time_that_is_over_read_alike(folder, while_waiting, monkeypatch):
    while_waiting += [lambda: decide(folder, "refused", why="secret")]
    refused = str(refusal(folder))
    other = folder / "bank" / "approvals-bank"
    other.rename(folder / "old")
    with pytest.raises(Away):
        run(folder)
    real = approval.now
    monkeypatch.setattr(approval, "now", lambda: real() + timedelta(days=8))
    assert only(folder).state == LAPSED
    assert str(refusal(folder)) == refused
    with pytest.raises(Away):  # and whoever submits it once more files it anew
        run(folder)


def test_who_has_refused_may_think_again(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "refused")]
    refusal(folder)
    office(folder).decide(only(folder).request.id, "approved", Person("Ann"))
    assert run(folder).selection_ is not None


def test_one_refusal_that_stands_is_enough(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "refused", by="Bob")]
    refusal(folder)
    office(folder).decide(only(folder).request.id, "approved", Person("Ann"))
    refusal(folder)


def test_a_job_that_the_policy_refuses_never_reaches_people(folder, while_waiting):
    write(folder, "bank", PERSON + '\nmethods = ["gini"]')
    with pytest.raises(PolicyRefused) as caught:
        run(folder)
    assert caught.value.rule == "methods"
    assert office(folder).approvals.standings() == []


def test_a_rehearsal_waits_for_nobody(folder):
    job = folder / "job.toml"
    parties = '[parties.bank]\nid = "id"\nlabel = "outcome"\n[parties.shop]\nid = "id"\n'
    job.write_text(parties + '[method]\nname = "random"\nn_features = 2\n')
    told = command(folder, "check", str(job))
    assert told.exit_code == 0, told.output
    assert "your policy allows this job" in told.output
    assert office(folder).approvals.standings() == []


# --- two persons -----------------------------------------------------------------------------------------------------


def test_two_persons_are_two(folder, while_waiting):
    write(folder, "bank", 'approval = "two persons"')
    seen = []
    while_waiting += [
        lambda: decide(folder, "approved", by="Ann"),
        lambda: decide(folder, "approved", by=" ann "),
        lambda: seen.append(only(folder).missing),
        lambda: decide(folder, "approved", by="Bob"),
    ]
    run(folder)
    assert seen == [1]


@pytest.fixture
def approvers(folder, tmp_path):
    keys = {name: SigningKey(write_key(tmp_path / f"{name}.key")) for name in ("ann", "bob")}
    lines = "".join(f'{name} = "{key.fingerprint.hex}"\n' for name, key in keys.items())
    write(folder, "bank", 'approval = "two persons"', f"\n[approvers]\n{lines}")
    return keys


def test_persons_with_keys_of_their_own_sign_too(folder, while_waiting, approvers):
    def both():
        there = office(folder)
        for name, key in approvers.items():
            there.decide(only(folder).request.id, "approved", Person(name, key))

    while_waiting += [both]
    run(folder)
    assert only(folder).state == APPROVED


def test_nobody_decides_with_another_persons_key_or_none(folder, while_waiting, approvers):
    with pytest.raises(Away):
        run(folder)
    id, there = only(folder).request.id, office(folder)
    for person in (Person("ann", approvers["bob"]), Person("ann"), Person("eve", SigningKey.generate())):
        with pytest.raises(ParameterError):
            there.decide(id, "approved", person)
    assert only(folder).missing == 2


def test_two_persons_may_not_share_a_key(folder):
    same = SigningKey.generate().fingerprint.hex
    write(folder, "bank", PERSON, f'\n[approvers]\nann = "{same}"\nbob = "{same}"\n')
    with pytest.raises(JobError, match="the same key"):
        open_site(folder / "bank" / "party.toml")


# --- an attacker -----------------------------------------------------------------------------------------------------


def forged(folder: Path, change) -> None:
    """Write a decision as somebody would who can drop a file there, but does not have the site's key."""
    there = office(folder)
    request = only(folder).request
    decision = there.decide(request.id, "approved", Person("Ann"))
    file = there.approvals.folder / request.id / "decision-0001.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(change(told, decision)))


@pytest.mark.parametrize(
    "change",
    [
        lambda told, d: {**told, "decision": {**told["decision"], "by": "Bob"}},
        lambda told, d: {**told, "decision": {**told["decision"], "until": "2999-01-01T00:00:00Z"}},
        lambda told, d: {**told, "decision": {**told["decision"], "rows": 10**6}},
        lambda told, d: {**told, "signature": "00" * 64},
        lambda told, d: {**told, "signature": SigningKey.generate().sign(d.statement).hex()},
        lambda told, d: {
            **told, **dataclasses.asdict(Signed.by(dataclasses.replace(d, by="Eve"), SigningKey.generate()))
        },
        lambda told, d: {"format": told["format"]},
        lambda told, d: {**told, "signature": None},
        lambda told, d: {**told, "decision": None},
        lambda told, d: [],
    ],
)  # fmt: skip
def test_a_decision_that_the_site_did_not_sign_does_not_count(folder, while_waiting, change):
    with pytest.raises(Away):
        run(folder)
    forged(folder, change)
    assert only(folder).state == WAITING


def test_an_approval_cannot_be_carried_to_another_job(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    with pytest.raises(Away):
        run(folder, fs.RandomFeatures(n_features=1))
    place = office(folder).approvals.folder
    (approved,) = place.glob("*/decision-0001.json")
    (other,) = (each for each in place.iterdir() if not list(each.glob("decision-*")))
    (other / "decision-0001.json").write_text(approved.read_text())
    assert sorted(each.state for each in office(folder).approvals.standings()) == [APPROVED, WAITING]


def test_a_new_signing_key_ends_all_approvals(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    assert command(folder, "secrets", "rotate", "signing").exit_code == 0
    assert only(folder).state == WAITING


def request_bytes(operation: str, session: str = "s", **arguments) -> bytes:
    told = {"operation": operation, "view": "", "session": session, "job": b"", "round": 1, "arguments": arguments}
    return encode(told)


def test_a_coordinator_that_goes_round_the_wait_gets_nothing(folder):
    opened = sites(folder)
    fed = Federation(InProcess(opened), list(opened), active="bank")
    job, bank = fed.job(*METHOD.announcement()), opened["bank"]
    assert decode(bank.handle(request_bytes("core.begin_job", job=job.canonical)))["error"] == "ApprovalPending"
    assert office(folder).approvals.standings() == []  # announcing alone files nothing
    for operation in ("pairs.offer_key", "align.blind_ids", "labels.encrypt_classes", "core.describe_label"):
        assert "error" in decode(bank.handle(request_bytes(operation)))
    assert bank.runs == {}


def test_a_proposal_is_checked_as_every_announcement(folder):
    bank = sites(folder)["bank"]
    for jobs in ([], [b"{}"], [b"x" * 10], [b"{}"] * 51):
        assert "error" in decode(bank.handle(request_bytes("core.propose_jobs", "", jobs=jobs)))
    assert office(folder).approvals.standings() == []


def test_a_flood_of_jobs_fills_no_disk(folder, monkeypatch):
    monkeypatch.setattr(approval, "MAX_WAITING", 3)
    opened = sites(folder)
    fed = Federation(InProcess(opened), list(opened), active="bank")
    answers = []
    for seed in range(6):
        job = fed.job(*fs.RandomFeatures(n_features=1, random_state=seed).announcement())
        answers.append(decode(opened["bank"].handle(request_bytes("core.propose_jobs", "", jobs=[job.canonical]))))
    assert [("ok" in answer) for answer in answers] == [True] * 3 + [False] * 3
    assert len(office(folder).approvals.standings()) == 3


def test_a_site_without_a_place_for_approvals_accepts_nothing(folder):
    bank = sites(folder)["bank"]
    bank.approvals = None
    fed = Federation(InProcess({"bank": bank, "shop": sites(folder)["shop"]}), ["bank", "shop"], active="bank")
    with pytest.raises(PolicyRefused, match="no place"):
        METHOD.fit(fed)


def test_files_that_cannot_be_read_keep_every_job_from_beginning_and_tell_no_path(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    (office(folder).approvals.folder / only(folder).request.id / approval.REQUEST).write_text("{")
    with pytest.raises(PolicyRefused) as caught:
        run(folder)
    assert str(folder) not in str(caught.value)


def test_waiting_comes_after_what_ends_the_job(folder):
    write(folder, "shop", 'methods = ["gini"]')
    fed = federation(folder)
    with pytest.raises(PolicyRefused, match="'methods'"), fed.session(*METHOD.announcement()):
        pass


def test_the_files_are_private(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved")]
    run(folder)
    place = office(folder).approvals.folder
    assert place.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in place.glob("*/*.json")} == {0o600}


# --- records and commands --------------------------------------------------------------------------------------------


def test_the_decision_names_job_version_table_and_audit_and_stands_in_the_journal(folder, while_waiting):
    while_waiting += [lambda: decide(folder, "approved", why="as agreed in May")]
    run(folder)
    (decision,) = only(folder).decisions
    assert decision.jobs == tuple(job.hash.hex() for job in only(folder).request.jobs)
    assert (decision.software, decision.rows, decision.audit) == (fs.__version__, 120, "none")
    line = next(line for line in office(folder).journal().lines if line.form == "decision")
    assert (line.operation, line.method, line.counted) == ("approved", "random", 0.0)
    assert line.note.startswith("by Ann: as agreed in May")
    assert what_of(line).startswith("random: approved by Ann")
    assert command(folder, "journal").exit_code == 0


def test_commands_list_approve_and_refuse(folder, while_waiting):
    with pytest.raises(Away):
        run(folder)
    listed = json.loads(command(folder, "pending", "--json").output)
    assert [job["method"] for job in listed[0]["jobs"]] == ["alignment", "random"]
    short = listed[0]["id"][:12]
    assert short in command(folder, "pending").output
    assert "refused by Bob" in command(folder, "refuse", short, "--by", "Bob", "--why", "no").output
    assert "approved by Bob" in command(folder, "approve", short, "--by", "Bob").output
    assert run(folder).selection_ is not None
    assert short not in command(folder, "pending").output
    assert short in command(folder, "pending", "--all").output
    assert command(folder, "approve", "0123").exit_code == ParameterError.exit_code


def test_a_person_makes_a_key_and_decides_with_it(folder, tmp_path, while_waiting):
    made = CliRunner().invoke(app, ["party", "approver", "ann", "--out", str(tmp_path / "ann.key")])
    write(folder, "bank", PERSON, f"\n[approvers]\n{made.output}")
    with pytest.raises(Away):
        run(folder)
    id = only(folder).request.id
    assert command(folder, "approve", id, "--by", "ann").exit_code == ParameterError.exit_code
    assert command(folder, "approve", id, "--by", "ann", "--key", str(tmp_path / "ann.key")).exit_code == 0
    assert run(folder).selection_ is not None


# --- stopping --------------------------------------------------------------------------------------------------------


def test_a_stopped_job_gets_no_answer_more(folder, tmp_path):
    write(folder, "bank")
    opened = sites(folder)
    opened["bank"].job_folder = tmp_path / "job"
    opened["bank"].job_folder.mkdir()
    fed = align(Federation(InProcess(opened), list(opened), active="bank"))
    gate.stop(opened["bank"].job_folder, "Ann", "enough")
    with pytest.raises(PolicyRefused) as caught:
        METHOD.fit(fed)
    assert caught.value.rule == "stop"
    assert "Ann" not in str(caught.value)
    assert "enough" not in str(caught.value)


def test_a_reply_that_was_being_computed_does_not_leave(folder, tmp_path, monkeypatch):
    write(folder, "bank")
    opened = sites(folder)
    opened["bank"].job_folder = tmp_path
    fed = Federation(InProcess(opened), list(opened), active="bank")

    def stopped_meanwhile(party):
        gate.stop(tmp_path, "Ann", "")
        return {"rows": 120, "columns": 2}

    stopped_meanwhile.__module__ = count_table.module
    monkeypatch.setitem(_registry, count_table.id, dataclasses.replace(count_table, function=stopped_meanwhile))
    with pytest.raises(PolicyRefused, match="stopped"):
        fed.ask(count_table, to="bank")


# --- on FLARE --------------------------------------------------------------------------------------------------------


def test_on_flare_everything_that_a_job_asks_for_is_one_decision(folder, tmp_path, monkeypatch):
    """The coordinator of a FLARE job and sites that were opened for it: method and evaluation are planned together."""
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from fedsift.core.transports.flare import Flare
    from fedsift.deploy.coordinator import run_job
    from fedsift.deploy.results import OUTCOME

    parties = {"bank": {"id": True, "label": True, "grid": None}, "shop": {"id": True, "label": False, "grid": None}}
    content = {
        "format": "fedsift-job", "version": 1, "name": "job", "method": {"name": "random", "n_features": 2},
        "evaluate": {"model": "linear", "nulls": False}, "parties": parties, "federation": {},
    }  # fmt: skip
    write(folder, "bank", PERSON + "\nmin_rows = 20\nmax_bits = 1.0")
    write(folder, "shop", "min_rows = 20\nmax_bits = 1.0")
    opened = {name: open_site(folder / name / "party.toml", content) for name in parties}
    introduce(opened)
    for name, site in opened.items():
        site.job_folder = tmp_path / f"job-{name}"
        site.job_folder.mkdir()
    states, out = [], tmp_path / "server"
    out.mkdir()

    def pause(self, seconds):
        states.append(json.loads((out / OUTCOME).read_text()))
        decide(folder, "approved")

    monkeypatch.setattr(Flare, "pause", pause)
    calls = {name: (lambda data, limit, site=site: site.handle(data)) for name, site in opened.items()}
    run_job(content, Flare(calls), out)
    (state,) = states
    assert (state["state"], state["approval"]) == ("waiting", {"bank": only(folder).request.until})
    assert json.loads((out / OUTCOME).read_text())["state"] == "finished"
    assert {"alignment", "random", "evaluate", "vertical_additive"} == {job.method for job in only(folder).request.jobs}


def test_a_job_that_was_ended_does_not_wait_on():
    from fedsift.core.transports.flare import Aborted, Flare

    with pytest.raises(Aborted):
        Flare({}, aborted=lambda: True).pause(60.0)
