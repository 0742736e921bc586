"""``fedsift run``, ``value``, ``train`` ... with ``--on simulator | poc | flare``: the same, the parties elsewhere.

``simulator`` and ``poc`` play all parties on this machine, from the files of the job: in FLARE's simulator, or as a
whole FLARE system of real processes that is made for this job and removed after it. ``flare`` submits to a running
system; there each party uses the data and the policy at its own site, and files named in the job are not looked at.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from fedsift.core.files import write_atomic
from fedsift.deploy import model_jobs
from fedsift.deploy.flare_job import CLASSES, PARTY_FILE, Content, public_job, unscored, write_job
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.results import OUTCOME, RESULT, check_outcome, place, read_statistics, read_value
from fedsift.deploy.session import LOST, FlareSession
from fedsift.deploy.status import read_status
from fedsift.errors import DataError, FedsiftError, MissingExtra, OperationFailed, ParameterError, PartyGone
from fedsift.evaluate.value_holder import ValueJob
from fedsift.evaluate.worth import Valuation
from fedsift.jobs import runs, training
from fedsift.jobs.card import ModelCard, read_card
from fedsift.jobs.job_file import Job, JobFile
from fedsift.jobs.text import Source, toml_value
from fedsift.report.explain import Explained
from fedsift.statistics.job import StatisticsJob

Say = Callable[[str], None]
T = TypeVar("T")
PLACES = ("simulator", "poc", "flare")
CHECKPOINTS = "FEDSIFT_CHECKPOINTS"
_PLAYED = "all parties are played here from the job's files, so no site's rules and nobody's approval are asked for"
_BACK = 120.0  # seconds for clients to come back to a server that was restarted


def run_on(job: Job, on: str, out: Path, *, kit: Path | None = None, resume: bool = False, say: Say) -> dict[str, Any]:
    """Run a job and write its result folder; returns what is in its ``run.json``."""
    runs.check_folder(out)
    content: Content = {**public_job(job), "resume": resume}
    if unscored(job):
        say(f"no evaluation: {unscored(job)}, and these parties are apart")
    keep = checkpoints(out)
    if on != "flare" and not resume:
        _forget(keep)
    ticket = out.absolute().with_name(f".{out.name}.job.json")
    errand = Errand(job, content, lambda result, sites: place(result, out, sites), say, keep, ticket)
    facts = _run(errand, on, kit)
    if on != "flare":
        _forget(keep)
    return facts


def value_on(job: Job, on: str, work: ValueJob, *, kit: Path | None = None, say: Say) -> Valuation:
    """What each partner adds, with the parties elsewhere."""
    content: Content = {**public_job(job, work), "resume": False}
    return _run(Errand(job, content, lambda result, _: read_value(result), say), on, kit)


def statistics_on(job: Job, on: str, work: StatisticsJob, *, kit: Path | None = None, say: Say) -> pd.DataFrame:
    """A statistic of all parties' columns, with the parties elsewhere."""
    content: Content = {**public_job(job, work), "resume": False}
    return _run(Errand(job, content, lambda result, _: read_statistics(result), say), on, kit)


def train_on(job: Job, on: str, out: Path, *, kit: Path | None = None, say: Say) -> ModelCard:
    """Train with the parties elsewhere: each keeps its part; ``out`` gets the model folder. Returns the card."""
    training.check_model_folder(out)
    take = partial(_take_model, job=job, out=out)
    return _run(Errand(job, model_jobs.train_content(job), take, say), on, kit)


def _take_model(result: Path, sites: dict[str, Path], *, job: Job, out: Path) -> ModelCard:
    return model_jobs.take_model(job, result, out, sites)


def predict_on(
    folder: Path, on: str, files: Mapping[str, Path], *, kit: Path | None = None, say: Say
) -> tuple[int, str | None]:
    """Predict with the parties elsewhere: how many rows, and the predictions where the label holder is played here."""
    card = read_card(folder)
    content, holder = model_jobs.predict_content(folder), card.label_holder
    training.check_parties(card, files, here=on != "flare")
    job = prediction_job(folder, files)
    take = partial(_take_predictions, holder=holder)
    return _run(Errand(job, content, take, say, parts=folder), on, kit)


def explain_on(
    folder: Path, on: str, files: Mapping[str, Path], repeats: int, by: Sequence[str] = (), *,
    kit: Path | None = None, say: Say,
) -> Explained:  # fmt: skip
    """Which columns a model goes by and how it does, with the parties elsewhere."""
    card = read_card(folder)
    training.check_parties(card, files, here=on != "flare")
    if on != "flare":
        training.check_label(card, files, by)
    content = model_jobs.explain_content(folder, repeats, by)
    job = prediction_job(folder, files, labelled=True)
    return _run(Errand(job, content, lambda result, _: model_jobs.take_explanation(result), say, parts=folder), on, kit)


def prediction_job(folder: Path, files: Mapping[str, Path], *, labelled: bool = False) -> Job:
    """The job of new rows: where parties are played here, their files; elsewhere each site has its own.

    ``labelled``: with the label, where the label holder's file has it.
    """
    card = read_card(folder)
    data, holder = card.data, card.label_holder
    told = {
        name: {"file": str(files[name].absolute()) if name in files else None, "id": facts.id,
               "categorical": facts.codes,
               **(facts.form_of(files[name]).told() if name in files else {})}
        for name, facts in data.items()
    }  # fmt: skip
    if labelled and training.has_label(card, files):
        told[holder]["label"] = card.label
    source = Source(folder / "predict.toml", "", {})
    return Job(source.path, JobFile.model_validate({"parties": told, "method": {"name": "all"}}), {}, source)


def _take_predictions(result: Path, sites: dict[str, Path], *, holder: str) -> tuple[int, str | None]:
    return model_jobs.take_predictions(result, holder, sites)


@dataclass(frozen=True)
class Errand(Generic[T]):
    """A job on its way: what is submitted, and what is done with the result (and the parties' own, if at hand)."""

    job: Job
    content: Content
    take: Callable[[Path, dict[str, Path]], T]
    say: Say
    checkpoints: Path | None = None  # what a run on this machine goes on from
    ticket: Path | None = None  # which job it is, for a command that is killed while it waits
    parts: Path | None = None  # of a model, for parties that are played here

    @property
    def env(self) -> dict[str, str]:
        return {CHECKPOINTS: str(self.checkpoints)} if self.checkpoints is not None else {}


def _run(errand: Errand[T], on: str, kit: Path | None) -> T:
    if importlib.util.find_spec("nvflare") is None:
        raise MissingExtra("nvflare", "flare")
    with tempfile.TemporaryDirectory(prefix="fedsift-") as folder:
        if on != "flare":
            return (_on_simulator if on == "simulator" else _on_poc)(errand, Path(folder))
        if kit is None:
            raise ParameterError("--on flare needs the start kit of somebody who may submit jobs: give --kit DIR")
        return _on_flare(errand, Path(folder), kit)


def checkpoints(out: Path) -> Path:
    """Where a run on this machine keeps what ``--resume`` goes on from."""
    return out.absolute().with_name(f".{out.name}.checkpoints")


def _forget(folder: Path) -> None:
    for file in folder.glob("*.json"):
        file.unlink()
    if folder.is_dir():
        folder.rmdir()


# --- all parties on this machine -------------------------------------------------------------------------------------


def party_text(job: Job, name: str) -> str:
    """A party.toml for a party that this job's file plays itself: whoever wrote the job may see all of it."""
    party = job.settings.parties[name]
    told = {"name": name, "file": str(job.file(name).absolute()), "id": party.id, "label": party.label,
            "columns": party.columns, "categorical": party.categorical, **party.form.told()}  # fmt: skip
    lines = ["[party]", *(f"{key} = {toml_value(value)}" for key, value in told.items() if value)]
    forms = ["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"]
    exceptions = ["column names", "class names", "error messages", "alignment"]
    lines += ["", "[policy]", "min_rows = 1", "min_cell = 0", 'max_bits = "any"', "max_share = 1.0",
              "max_row_scores = 1000000", 'max_sides = "any"', 'rows_by = "any"', "keyed_matching = true",
              f"forms = {json.dumps(forms)}", f"exceptions = {json.dumps(exceptions)}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _on_simulator(errand: Errand[T], folder: Path) -> T:
    from fedsift.deploy.local_system import last_lines
    from fedsift.deploy.processes import Processes

    job, content = errand.job, errand.content
    errand.say(f"starting FLARE's simulator: {_PLAYED}")
    parties, workspace, log = folder / "parties", folder / "workspace", folder / "simulator.log"
    for name in content["parties"]:
        (parties / name).mkdir(parents=True)
        (parties / name / PARTY_FILE).write_text(party_text(job, name), encoding="utf-8")
        if errand.parts is not None:
            model_jobs.give_parts(errand.parts, name, parties / name / model_jobs.PARTS)
    introduce_parties({name: parties / name / PARTY_FILE for name in content["parties"]})
    (workspace / "local").mkdir(parents=True)
    rules = {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": list(CLASSES)}
    (workspace / "local" / "resources.json").write_text(json.dumps(rules), encoding="utf-8")
    names = ",".join(content["parties"])
    command = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator",
               str(write_job(content, folder / "job")), "-w", str(workspace), "-c", names,
               "-t", str(len(content["parties"]))]  # fmt: skip
    with Processes(folder) as processes:
        processes.start("simulator", command, log, {"FEDSIFT_PARTY": str(parties), **errand.env})
        while not processes.ended("simulator"):
            time.sleep(0.2)
    left = workspace / "server" / "simulate_job"
    if not left.is_dir():
        raise FedsiftError(f"FLARE's simulator did not start the job: {last_lines(log)}")
    sites = {name: parties / name / "results" / "simulate_job" for name in content["parties"]}
    with _reasons_of(sites):
        check_outcome(left, "the simulator ended")
    return errand.take(left / RESULT, sites)


def _on_poc(errand: Errand[T], folder: Path) -> T:
    from fedsift.deploy.local_system import LocalSystem

    job, content, say = errand.job, errand.content, errand.say
    say(f"starting a FLARE system, a server and {len(content['parties'])} parties: {_PLAYED}")
    texts = {name: party_text(job, name) for name in content["parties"]}
    with LocalSystem(folder / "system", texts, env=errand.env, scratch=folder) as system:
        for name in texts if errand.parts is not None else ():
            model_jobs.give_parts(errand.parts or folder, name, system.party_file(name).parent / model_jobs.PARTS)
        with system.session() as session:
            job_id = session.submit(write_job(content, folder / content["name"]))
            say(f"submitted as {job_id}")
            status = session.wait(job_id, lambda word: say(f"FLARE: {word}"))
            left = session.fetch(job_id, folder / "fetched")
        sites = {name: system.kit(name) / "local" / "results" / job_id for name in content["parties"]}
        with _reasons_of(sites):
            check_outcome(left, status)
        return errand.take(left / RESULT, sites)


@contextmanager
def _reasons_of(sites: dict[str, Path]) -> Iterator[None]:
    """A party tells the coordinator only that it could not open its data. Here the parties are ours: say why."""
    try:
        yield
    except OperationFailed as error:
        why = read_status(sites[error.party]).get("refused") if error.party in sites else None
        if why is None:
            raise
        raise DataError(f"party {error.party!r}: {why}") from None


# --- a running system ------------------------------------------------------------------------------------------------


def _on_flare(errand: Errand[T], folder: Path, kit: Path) -> T:
    """Submit, wait and fetch. Which job it is stays in a small file beside the result until the result is there.

    A job that waited for people when the server was restarted has not begun: it is submitted again, and finds its
    request or its approval at the sites.
    """
    content, ticket, say = errand.content, errand.ticket, errand.say
    with FlareSession(kit) as session:
        job_id = _earlier(ticket, content, session, say) if ticket is not None and content["resume"] else None
        if job_id is None:
            _all_there(content, session.clients())
            job_id = _submit(errand, session, folder)
        while (status := _await(session, job_id, say)) == LOST:
            if not session.waited:
                raise PartyGone("server", "wait", f"it was restarted while {job_id} ran: submit it again with --resume")
            say(f"the server was restarted while {job_id} waited for approval: it is submitted again")
            _await_parties(content, session)
            job_id = _submit(errand, session, folder)
        left = session.fetch(job_id, folder / "fetched")
        check_end(session, content, left, status)
        found = errand.take(left / RESULT, {})
    if ticket is not None:
        ticket.unlink(missing_ok=True)
    return found


def check_end(session: FlareSession, content: Content, left: Path, status: str) -> None:
    """Raise what ended the job. Where FLARE ended it before the coordinator could say why, who is gone is named."""
    try:
        check_outcome(left, status)
    except FedsiftError:
        clients = () if (left / OUTCOME).exists() else session.clients()
        gone = [name for name in content["parties"] if name not in clients] if clients else []
        if gone:
            what = f"its client has left the FLARE server, which ended the job ({status}); start it and --resume"
            raise PartyGone(gone[0], "connect", what) from None
        raise


def _submit(errand: Errand[T], session: FlareSession, folder: Path) -> str:
    place = Path(tempfile.mkdtemp(dir=folder)) / errand.content["name"]
    job_id = session.submit(write_job(errand.content, place))
    if errand.ticket is not None:
        write_atomic(errand.ticket, json.dumps({"job_id": job_id, "job": errand.content}) + "\n")
    errand.say(f"submitted as {job_id}")
    return job_id


def _await(session: FlareSession, job_id: str, say: Say) -> str:
    """FLARE's word for how the job ended; whoever is interrupted aborts it."""
    try:
        return session.wait(job_id, lambda word: say(f"FLARE: {word}"))
    except BaseException as error:
        if not isinstance(error, Exception):  # interrupted: the parties must not go on working for nobody
            say(f"aborting {job_id}")
            with suppress(PartyGone):
                session.abort(job_id)
        raise


def _await_parties(content: Content, session: FlareSession) -> None:
    """After a restart of the server the parties' clients come back by themselves, one after the other."""
    deadline = time.monotonic() + _BACK
    while time.monotonic() < deadline and not set(content["parties"]) <= set(session.clients()):
        time.sleep(1.0)
    _all_there(content, session.clients())


def _all_there(content: Content, clients: list[str]) -> None:
    """FLARE would wait long for a client that is not connected; better to say at once who is missing."""
    for name in content["parties"]:
        if name not in clients:
            there = ", ".join(sorted(clients)) or "nobody"
            what = f"it is not connected to the FLARE server ({there} is); start its client, or ask the administrator"
            raise PartyGone(name, "connect", f"{what} whether it was disabled")


def _earlier(ticket: Path, content: Content, session: Any, say: Say) -> str | None:
    """The job that was submitted before for this result, if it still runs or has finished."""
    try:
        earlier = json.loads(ticket.read_text(encoding="utf-8"))
        job_id = str(earlier["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        say("nothing to resume: the job is submitted anew")
        return None
    if {**earlier.get("job", {}), "resume": True} != content:
        raise ParameterError(f"{ticket} is of another job (its settings differ): run without --resume")
    status = session.status(job_id)
    if status.startswith("FINISHED") and status != "FINISHED:COMPLETED":
        say(f"{job_id} ended as {status}: the job is submitted again, and goes on from its checkpoint if it has one")
        return None
    say(f"going on with {job_id}: {status}")
    return job_id
