"""The coordinator inside NVIDIA FLARE's server: asks the parties, fits the method, leaves the result in a folder.

It is what ``fedsift run`` (or ``value``) does in one process, with the parties behind FLARE. It reads the job that was
submitted and nothing else; a file name in it (a checkpoint) is never used as a path here. Whatever happens,
``outcome.json`` in the job's folder says how it ended, and every party that can be reached is told.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.collab import collab
from nvflare.widgets.info_collector import InfoCollector

from fedsift.core.approval import plan
from fedsift.core.federation import Federation
from fedsift.core.files import plain, write_atomic
from fedsift.core.job import PREDICTIONS
from fedsift.core.ledger import Ledger
from fedsift.core.progress import watching
from fedsift.core.progress_bar import Shown
from fedsift.core.simulate import check_grid
from fedsift.core.transports.base import Aborted
from fedsift.core.transports.flare import Flare
from fedsift.deploy import model_jobs
from fedsift.deploy.delivery import keep_end, keep_failure, keep_result
from fedsift.deploy.flare_job import Content, quiet_calls, read_job, settings_of
from fedsift.deploy.results import OUTCOME, RESULT, STATISTICS, VALUE
from fedsift.deploy.session import STANDING
from fedsift.errors import FedsiftError, ParameterError, disk_words
from fedsift.evaluate.value import value
from fedsift.evaluate.value_holder import ValueJob
from fedsift.jobs import runs
from fedsift.jobs.job_design import design_of
from fedsift.jobs.job_file import Job, _method_parameters
from fedsift.jobs.text import Source
from fedsift.mpc.psi import aligned
from fedsift.select.base import Outcome, Selector
from fedsift.site.submitted import read_submitted
from fedsift.statistics.job import StatisticsJob
from fedsift.statistics.statistics import computed

LEDGER = "ledger.csv"  # of a job without a result
#: What a submitter may set of a valuation. The sites refuse any other value of the rest.
VALUED = ("folds", "null", "bins", "metric", "digits", "random_state")
_LAST_WORDS = 30.0  # seconds for the other parties to hear who is gone, before FLARE ends the job
CHECKPOINT = "FEDSIFT_CHECKPOINTS"  # where this server keeps what an interrupted search goes on from


@dataclass(frozen=True)
class Sizes:
    """What the coordinator knows of a party's table: how many shared rows, whether it holds the label."""

    n_rows: int
    label_name: str | None
    columns: list[str]


class Coordinator(FLComponent):  # type: ignore[misc]
    """The server component of a fedsift job. FLARE tells it which parties have disappeared, and asks how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()
        self.stopped: set[str] = set()
        self.standing: Standing | None = None
        self._said = threading.Event()  # every party that can hear has heard how the job ended
        self._said.set()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.CLIENT_DISCONNECTED:
            self.lost.add(str(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME)))
            self._said.wait(_LAST_WORDS)  # once this returns FLARE ends the job, and nobody hears anything more
        elif event_type == InfoCollector.EVENT_TYPE_GET_STATS and self.standing is not None:
            fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR).add_info(STANDING, self.standing.told())

    @collab.publish  # type: ignore[untyped-decorator]
    def attend(self, stopped: bool) -> dict[str, object]:
        """A site hears how far the job is; one whose people have stopped it says so, and the job ends everywhere."""
        if stopped is True:
            self.stopped.add(str(collab.caller))
        return {**(self.standing.numbers() if self.standing is not None else {}), "over": bool(self.stopped)}

    @collab.main  # type: ignore[untyped-decorator]
    def coordinate(self) -> None:
        quiet_calls()
        folder = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id()))
        context = collab.context
        content = read_job(Path(collab.workspace.get_app_config_dir(collab.fl_ctx.get_job_id())))
        calls = {client.name: _caller(client) for client in collab.clients}
        self.standing = Standing(folder)
        self._said.clear()
        try:
            run_job(content, Flare(calls, context.is_aborted, self.lost, self.stopped), folder, self.standing)
        finally:
            self._said.set()


def _caller(client: Any) -> Callable[[bytes, float], Any]:
    return lambda data, limit: client(timeout=limit).handle(data)


def run_job(content: Content, transport: Flare, folder: Path, standing: Standing | None = None) -> None:
    """The whole job; ``folder`` gets the result and the outcome, ``standing`` is told how it goes."""
    standing = standing or Standing(folder)
    start = standing.began
    _outcome(folder, "running", started=start)
    fed, earlier = None, folder / LEDGER
    try:
        job = _job(content)
        fed = _federation(job, transport)
        fed = fed.for_predictions() if content.get("purpose") == PREDICTIONS else fed
        plan(fed, read_submitted(content)[1])
        checkpoint, resume = _checkpoint(content, folder), content.get("resume") is True
        earlier = checkpoint.with_suffix(".ledger.csv")
        if resume and earlier.exists():
            fed.ledger.take_up(Ledger.read(earlier).entries)
        with watching(standing):
            _carry_out(job, fed, checkpoint, folder, resume=resume, content=content)
        earlier.unlink(missing_ok=True)
        _outcome(folder, "finished", started=start)
    except Aborted as error:
        _leave_ledger(fed, folder / LEDGER, earlier)
        gone = sorted(transport.lost) or error.waiting
        _outcome(folder, "ended", started=start, why=str(error), waiting=gone)
        raise
    except Exception as error:
        with suppress(OSError):
            _leave_ledger(fed, folder / LEDGER, earlier)
        known = isinstance(error, FedsiftError)
        full = disk_words(error)
        what = str(error) if known else f"the coordinator failed with {type(error).__name__}; see the server's log"
        what = f"the coordinator cannot write: {full}" if full else what
        with suppress(OSError):  # where no space is left, this has none either; the parties are told all the same
            _outcome(folder, "failed", started=start, error=type(error).__name__ if known else "FedsiftError",
                     what=what, party=getattr(error, "party", None), operation=getattr(error, "operation", None),
                     detail=getattr(error, "what", None) if known else None)  # fmt: skip
        if fed is not None:
            _tell(fed, what, {getattr(error, "party", None), *transport.lost})
        raise


class Standing(Shown):
    """How far the job is, for whoever submitted it; ``outcome.json`` says it while people at a site are waited for."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder, self.began = folder, time.time()
        self._until: dict[str, str] = {}

    def waiting(self, until: Mapping[str, str]) -> None:
        super().waiting(until)
        self._until = dict(until)
        _outcome(self._folder, "waiting" if until else "running", started=self.began, approval=self._until)

    def told(self) -> dict[str, Any]:
        """No name of a column and no value: loops, the round, bytes, and for whose approval the job waits."""
        return {"waiting": self._until, "words": self.words()}

    def numbers(self) -> dict[str, Any]:
        """For the sites: turns of the outermost loop, seconds left, rounds."""
        outer = self.loops[:1]
        told = {"done": outer[0].done, "of": outer[0].of, "left": outer[0].left()} if outer else {}
        return {**told, "round": self.round}


def _carry_out(job: Job, fed: Federation, checkpoint: Path, folder: Path, *, resume: bool, content: Content) -> None:
    """What the job is for: a value, a model, predictions, why, or a selection."""
    work = content.get("work")
    if job.method == ValueJob.name:
        _value(job, fed, folder / RESULT)
    elif job.method == StatisticsJob.name:
        _statistics(job, fed, folder / RESULT)
    elif work == model_jobs.TRAIN:
        _train(job, fed, folder / RESULT)
    elif work in (model_jobs.PREDICT, model_jobs.EXPLAIN):
        aligned = _aligned(job, fed)
        do = model_jobs.predict if work == model_jobs.PREDICT else model_jobs.explain
        do(content, aligned, folder / RESULT, folder / "model")
        aligned.ask(keep_end, to=fed.parties)
    else:
        run = _select(job, fed, checkpoint, resume=resume)
        _deliver(run)
        runs.write(run, folder / RESULT)


def _leave_ledger(fed: Federation | None, *files: Path) -> None:
    """A job that failed or was cut off has told things too; an attempt that resumes it finds them in the last file."""
    if fed is not None:
        for file in dict.fromkeys(files):
            file.parent.mkdir(parents=True, exist_ok=True)
            fed.ledger.frame().to_csv(file, index=False)


def _job(content: Content) -> Job:
    """The submitted job, checked again: whoever sent it may have written it by hand."""
    settings = settings_of(content)
    source = Source(Path(f"{content.get('name', 'job')}.toml"), "", {})
    if settings.method.name in (ValueJob.name, StatisticsJob.name) or content.get("work") in (
        model_jobs.PREDICT,
        model_jobs.EXPLAIN,
    ):
        return Job(source.path, settings, dict(settings.method.model_extra or {}), source)
    parameters = _method_parameters(source, settings.method)
    if "checkpoint" in parameters:
        raise ParameterError("checkpoint is a file of the server, so a submitted job cannot name it")
    return Job(source.path, settings, parameters, source)


def _federation(job: Job, transport: Flare) -> Federation:
    settings, parties = job.settings.federation, job.settings.parties
    missing = [name for name in parties if name not in transport.calls]
    if missing:
        raise ParameterError(f"party {missing[0]!r} is no client of this FLARE system: {', '.join(transport.calls)}")
    holders = [name for name, party in parties.items() if party.label is not None]
    vertical = settings.partition == "vertical"
    grid = check_grid(job.grid(), parties, dict.fromkeys(holders, "")) if settings.partition == "hybrid" else None
    return Federation(
        transport, list(parties), active=holders[0] if vertical else None, partition=settings.partition,
        task=settings.task, timeout=settings.timeout, names=settings.names, grid=grid, label_parties=holders,
        coordinator=settings.coordinator, dealer=settings.dealer, submitter=settings.submitter,
    )  # fmt: skip


def _aligned(job: Job, fed: Federation) -> Federation:
    settings, by_id = job.settings.federation, any(party.id is not None for party in job.settings.parties.values())
    found = aligned(
        fed, by_id=by_id, min_overlap=settings.min_overlap, as_in=settings.as_in, matching=settings.matching
    )
    return found.designed(design_of(job.settings.design))


def _value(job: Job, fed: Federation, folder: Path) -> None:
    """What each partner adds, for the submitter; a party hears that the job has finished, and nothing of the answer."""
    fed = _aligned(job, fed)
    found = value(fed, **{name: told for name, told in job.parameters.items() if name in VALUED})
    fed.ask(keep_end, to=fed.parties)
    folder.mkdir()
    write_atomic(folder / VALUE, json.dumps(plain(found.to_dict()), allow_nan=False) + "\n")
    fed.ledger.frame().to_csv(folder / LEDGER, index=False)


def _statistics(job: Job, fed: Federation, folder: Path) -> None:
    """A statistic of all columns, for the submitter; a party hears that the job has finished."""
    fed = _aligned(job, fed)
    known = {each.name for each in fields(StatisticsJob)}
    found = computed(fed, StatisticsJob(**{name: told for name, told in job.parameters.items() if name in known}))
    fed.ask(keep_end, to=fed.parties)
    folder.mkdir()
    write_atomic(folder / STATISTICS, found.to_csv(index_label="column"))
    fed.ledger.frame().to_csv(folder / LEDGER, index=False)


def _train(job: Job, fed: Federation, folder: Path) -> None:
    """A joint model on selected columns; every party hears which of its own were kept."""
    began = time.perf_counter()
    fed = _aligned(job, fed)
    run = runs.Run(job, _sizes(job, fed), fed, job.selector())
    run.phases["align"] = (0, len(fed.ledger))
    run.seconds.update(read=0.0, align=time.perf_counter() - began)
    model_jobs.train(run, folder)
    _deliver(run)
    fed.ledger.frame().to_csv(folder / LEDGER, index=False)


def _sizes(job: Job, fed: Federation) -> dict[str, Any]:
    """The coordinator has no tables, only what it was told of them: of all rows, not of those that are shared."""
    names, parties = fed.column_names(), job.settings.parties
    whole = fed.named_view("").sizes()
    return {name: Sizes(size.rows, parties[name].label, names[name]) for name, size in whole.items()}


def _select(job: Job, fed: Federation, checkpoint: Path, *, resume: bool) -> runs.Run:
    began = time.perf_counter()
    fed = _aligned(job, fed)
    selector = job.selector()
    if not resume:
        checkpoint.unlink(missing_ok=True)
    run = runs.Run(job, {}, fed, selector)
    run.phases["align"] = (0, len(fed.ledger))
    run.seconds.update(read=0.0, align=time.perf_counter() - began)
    if "checkpoint" in selector.get_params(deep=False):
        _keep_checkpoint(selector, checkpoint)
    runs.select(run)
    runs.score(run)
    checkpoint.unlink(missing_ok=True)
    run.tables = _sizes(job, fed)
    return run


def _keep_checkpoint(selector: Selector, file: Path) -> None:
    """Let a search use this file while it runs; neither the parties nor the result hear of a path of this server."""
    search = selector._select

    def with_checkpoint(fed: Federation) -> Outcome:
        selector.set_params(checkpoint=str(file))
        try:
            return search(fed)
        finally:
            selector.set_params(checkpoint=None)

    selector._select = with_checkpoint  # type: ignore[method-assign]


def _checkpoint(content: Content, folder: Path) -> Path:
    """Where this server keeps the job's checkpoint: by the job's hash, in a folder that the server chose.

    Many jobs have the same name (job.toml), and another job's search is nothing to go on from.
    """
    given = os.environ.get(CHECKPOINT)
    told = json.dumps({**content, "resume": None}, sort_keys=True)
    name = hashlib.sha256(told.encode()).hexdigest()[:32]
    return (Path(given) if given else folder.parent / "fedsift-checkpoints") / f"{name}.json"


def _deliver(run: runs.Run) -> None:
    """Each party gets its own part. A phase of its own, so that selection costs what it costs in one process."""
    each = {
        name: {
            "selection": run.own_selection(name).to_json(),
            "record": json.dumps(run.record(name), allow_nan=False),
        }
        for name in run.fed.parties
    }
    with run.phase("deliver"):
        run.fed.ask(keep_result, to=run.fed.parties, each=each)


def _tell(fed: Federation, why: str, silent: Collection[str | None]) -> None:
    """One by one, ``silent`` parties last: one that is gone must not keep the others from hearing in time."""
    for name in sorted(fed.parties, key=lambda name: name in silent):
        with suppress(FedsiftError, Aborted):
            fed.ask(keep_failure, to=name, why=why, timeout=10.0)


def _outcome(folder: Path, state: str, *, started: float, **facts: object) -> None:
    content = {"state": state, "started": started, "at": time.time(), **facts}
    write_atomic(folder / OUTCOME, json.dumps(content, indent=2) + "\n")
