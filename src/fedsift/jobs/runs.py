"""A job, run from files to a result folder.

The folder appears whole or not at all: everything is written into a hidden folder beside it, which is renamed at the
end. A folder that fedsift did not write, or that holds other files too, is never replaced.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import clone

from fedsift.core import files
from fedsift.core.federation import Federation
from fedsift.core.files import plain, write_atomic
from fedsift.core.ledger import Ledger
from fedsift.core.table import Table
from fedsift.errors import DataError, FedsiftError, ParameterError
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.result import Evaluation
from fedsift.jobs.job_evaluate import EvaluateSection
from fedsift.jobs.job_file import Job
from fedsift.jobs.origin import damaged, form_of, origin, run_facts
from fedsift.jobs.rehearse import rehearse
from fedsift.jobs.text import nearest
from fedsift.methods import METHODS
from fedsift.report import Comparison, compare, summarize, write_report
from fedsift.report.audit_record import read_audit
from fedsift.report.summary import versions
from fedsift.select.base import Selector
from fedsift.select.selection import Selection

FORMAT, VERSION = "fedsift-run", 1
SUMMARY = "summary.json"  # the record that the report is made of; summary-PARTY.json is one party's own
#: Parameters that mean the same in every method that has them. Others (penalty, epochs, threshold) share only a name.
_SHARED = ("n_features", "n_bins", "min_cell", "scheme", "protection", "random_state")
_FOLDS = 5  # of a comparison, unless the job or the command line says otherwise


@dataclass
class Run:
    """What happened: the fitted selector, the whole ledger by phase, and how long it took."""

    job: Job
    tables: dict[str, Table]
    fed: Federation
    selector: Selector
    evaluation: Evaluation | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    phases: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> first and last message in the ledger

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        mark, start = len(self.fed.ledger), time.perf_counter()
        yield
        self.phases[name] = (mark, len(self.fed.ledger))
        self.seconds[name] = time.perf_counter() - start

    def ledger(self, *names: str) -> Ledger:
        """The messages of these phases, all messages by default."""
        entries = self.fed.ledger.entries
        spans = [self.phases[name] for name in names] or [(0, len(entries))]
        return Ledger((e for first, last in spans for e in entries[first:last]), self.fed.ledger.notes)

    def frame(self) -> pd.DataFrame:
        """One row a message, with the phase it belongs to."""
        frame = self.fed.ledger.frame()
        frame.insert(0, "phase", "other")
        for name, (first, last) in self.phases.items():
            frame.loc[first : last - 1, "phase"] = name
        return frame

    @property
    def selection(self) -> Selection:
        return self.selector.selection_

    def own_selection(self, party: str) -> Selection:
        """A party's copy: its own columns only, by their own names even where names stay private."""
        own, simulated = self._named_for(party).for_party(party), self.fed.simulated
        return own.with_evidence(simulated[party].models) if party in simulated else own

    def record(self, party: str | None = None) -> dict[str, Any]:
        """What the report shows, as plain data; with ``party`` only what that party may keep, by its own names."""
        selector = self.selector
        if party is not None:
            selector = copy.copy(selector)
            selector.selection_ = self._named_for(party)
        made = summarize(selector, party=party, evaluation=self.evaluation, ledger=self.ledger("align", "select"),
                         run=run_facts(self.job, self.tables))  # fmt: skip
        audit = None if party else read_audit(self.job.path, self.job.method, self.selector.get_params(deep=False))
        return {**made, "audit": audit.write()} if audit is not None else made

    def _named_for(self, party: str) -> Selection:
        """The selection with this party's columns by their names, which only the party knows where they are private."""
        if self.fed.names == "shared":
            return self.selection
        own = dict(zip(self.fed.column_names()[party], self.tables[party].columns))
        scores = [
            {**row, "feature": own[row["feature"]]} if row["party"] == party else row for row in self.selection.scores
        ]
        kept = [own[column] for column in self.selection.selected[party]]
        return replace(self.selection, selected={**self.selection.selected, party: kept}, scores=scores)


def open_parties(job: Job, say: Callable[[str], None] = lambda text: None) -> Run:
    """Read the files and align the parties: what comes before the method is put to them."""
    start = time.perf_counter()
    say(f"reading {len(job.settings.parties)} files")
    tables = job.tables()
    read = time.perf_counter() - start
    partition = job.settings.federation.partition
    aligned = {"vertical": "the parties", "hybrid": "the parties of each row block"}.get(partition)
    say(f"aligning {aligned} by private set intersection" if aligned else "no alignment: the parties hold rows")
    start = time.perf_counter()
    fed = job.federation(tables)
    run = Run(job, tables, fed, job.selector())
    run.seconds.update(read=read, align=time.perf_counter() - start)
    run.phases["align"] = (0, len(fed.ledger))
    return run


def prepare(job: Job, say: Callable[[str], None] = lambda text: None) -> Run:
    """All but the run itself: the parties opened, and the method's parameters checked."""
    run = open_parties(job, say)
    start = time.perf_counter()
    _check(run, run.fed, say)
    run.seconds["align"] += time.perf_counter() - start
    run.phases["align"] = (0, len(run.fed.ledger))
    return run


def _check(run: Run, fed: Federation, say: Callable[[str], None]) -> None:
    """Ask for rows and label, so that a label of one class is found before the work; let the method check itself."""
    rows, _ = fed.n_rows, fed.task
    run.job.check_parameters(run.selector, fed)
    rehearse(run.job, run.selector, fed)
    say(f"{rows:,} {'shared ' if fed.partition == 'vertical' else ''}rows")


def execute(job: Job, say: Callable[[str], None] = lambda text: None, out: Path | None = None) -> Run:
    """Run a job; ``say`` is told of each stage. One that fails leaves its ledger beside ``out``."""
    run = open_parties(job, say)
    try:
        select(run, say)
    except BaseException:
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            run.frame().to_csv(out.with_name(f"{out.name}-failed-ledger.csv"), index=False)
        raise
    score(run, say)
    return run


def select(run: Run, say: Callable[[str], None] = lambda text: None) -> None:
    """Put the job's method to the parties and fit it, wherever they are. A site says what its label is only then."""
    with run.phase("select"), run.fed.session(*run.selector.announcement()) as accepted:
        _check(run, accepted, say)
        say(f"selecting by {run.job.method}")
        run.selector.fit(accepted)


def score(run: Run, say: Callable[[str], None] = lambda text: None) -> None:
    """The evaluation, if the job asks for one."""
    section = run.job.settings.evaluate
    if section is not None:
        say("evaluating")
        with run.phase("evaluate"):
            run.evaluation = evaluation(run, section)


def evaluation(run: Run, section: EvaluateSection) -> Evaluation:
    """Score the method on rows that it did not see, beside nulls; pooled only if the job says so (a note tells)."""
    return evaluate(
        run.fed, clone(run.selector), model=section.model, cv=section.cv,
        random_state=section.seed, nulls=section.nulls, pooled=section.pooled, next_column=section.next_column,
    )  # fmt: skip


# --- several methods -------------------------------------------------------------------------------------------------


def methods_named(job: Job, names: str) -> dict[str, Selector]:
    """Selectors for 'muse,gini': the job's own method gets its parameters, others those that mean the same there."""
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise ParameterError(f"--methods is empty: give names with commas between; there are: {', '.join(METHODS)}")
    partition = job.settings.federation.partition
    selectors = {}
    for name in chosen:
        if name not in METHODS:
            raise ParameterError(f"--methods: there is no method {name!r}{nearest(name, list(METHODS))}")
        if partition not in METHODS[name].partitions:
            served = " or ".join(METHODS[name].partitions)
            raise ParameterError(f"--methods: {name} is for {served} parties; those of {job.path} are {partition}")
        given = job.parameters
        if name != job.method:
            known = METHODS[name]._get_param_names()
            given = {key: value for key, value in given.items() if key in known and key in _SHARED}
            if job.parameters.get("threshold") is not None:
                given.pop("n_features", None)  # it only made room for the threshold
        selectors[name] = METHODS[name](**given).set_rules(job.selector().rules)
    return selectors


def compare_methods(job: Job, names: str, folds: int | None, say: Callable[[str], None]) -> Comparison:
    """Fit several methods on the same folds of a job's rows and score them; pooled if the job says so."""
    selectors = methods_named(job, names)
    section = job.settings.evaluate or EvaluateSection()
    split = section.train if "train" in section.model_fields_set else _FOLDS
    cv = folds or section.folds or split
    fed = prepare(job, say).fed
    fewest = min(size.rows for size in fed.sizes().values())
    if cv > fewest:
        raise ParameterError(f"there are {fewest:,} rows: give {fewest:,} folds at most (--folds), not {cv:,}")
    for name, selector in selectors.items():
        try:
            selector._check(fed)
        except ParameterError as error:
            raise ParameterError(f"{name}: {error}") from None
    say(f"comparing {', '.join(selectors)}: {f'{cv} folds' if cv >= 2 else 'one split'}, the same for all")
    options = {"model": section.model, "random_state": section.seed, "nulls": section.nulls, "pooled": section.pooled}
    return compare(fed, selectors, cv=cv, **options)


# --- the summary -----------------------------------------------------------------------------------------------------


def summary(run: Run) -> dict[str, Any]:
    """What a reader, a script or an auditor wants to know of a run, as plain data."""
    ledger, selection, columns = run.ledger(), run.selection, run.fed.n_columns
    told: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "version": VERSION,
            "job": run.job.path.name,
            "hash": run.fed.job(*run.selector.announcement()).hash.hex(),  # by which sites remember the job
            "method": run.job.method,
            "parameters": run.selector.get_params(deep=False),
            "partition": run.fed.partition,
            "task": run.fed.task,
            "rows": run.fed.n_rows,
            "parties": {
                name: {
                    "rows": table.n_rows,
                    "columns": columns[name],
                    "selected": len(selection.selected[name]),
                    "label": table.label_name is not None,
                }
                for name, table in run.tables.items()
            },
            "selected": selection.selected,
            "engineered": selection.engineered,
            "seconds": {name: round(value, 3) for name, value in run.seconds.items()},
            "rounds": ledger.rounds(),
            "messages": len(ledger),
            "bytes": ledger.bytes(),
            "bytes_by_phase": {name: run.ledger(name).bytes() for name in run.phases},
            "encryption": {**ledger.encryption(), "line": ledger.encryption_line()},
            "notes": list(ledger.notes),
            "leaks": run.selector.leaks,
            "evaluation": None if run.evaluation is None else run.evaluation.frame().to_dict("records"),
            "versions": versions(),
        }
    )
    return told


# --- the folder ------------------------------------------------------------------------------------------------------


def check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier run. Called before a run, so that no work is lost."""
    files.check_folder(out, "the result", "not a fedsift run", _files)


def _files(out: Path) -> set[str]:
    """What a run has written there; nothing if the folder is no run's."""
    try:
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        return set(run["files"]) if run["format"] == FORMAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def write(run: Run, out: Path) -> dict[str, Any]:
    """Write the result folder; returns the summary that is in its ``run.json``."""
    check_folder(out)
    with files.written_whole(out) as staging:
        return _fill(run, staging)


def _fill(run: Run, folder: Path) -> dict[str, Any]:
    run.selection.save(folder / "selection.json")
    for party in run.fed.parties:
        told = {"id": run.job.settings.parties[party].id, "form": form_of(run.tables[party])}  # for fedsift apply
        own = replace(run.own_selection(party), details=told)
        own.save(folder / f"selection-{party}.json")
    run.selector.scores_.to_csv(folder / "scores.csv", index=False)
    run.frame().to_csv(folder / "ledger.csv", index=False)
    run.fed.ledger.traffic().to_csv(folder / "traffic.csv", index=False)
    if run.evaluation is not None:
        run.evaluation.frame().to_csv(folder / "evaluation.csv", index=False)
    records = {_summary_name(whose): run.record(whose) for whose in (None, *run.fed.parties)}
    for name, record in records.items():
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    write_report(records[SUMMARY], folder / "report.html")
    facts = {**summary(run), "origin": origin(run.job, folder)}
    facts["files"] = sorted([path.name for path in folder.iterdir()] + ["run.json"])
    (folder / "run.json").write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return facts


# --- the report of an earlier run ------------------------------------------------------------------------------------


def _summary_name(party: str | None) -> str:
    return SUMMARY if party is None else f"summary-{party}.json"


def read_record(path: Path, party: str | None = None) -> dict[str, object]:
    """The record of a run folder, one party's record in it, or a record file by itself (what a party was given)."""
    if path.is_dir():
        path = _record_file(path, party)
    elif not path.exists():
        raise DataError(f"there is no folder {path}; give the folder that fedsift run wrote")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # also a UnicodeDecodeError
        raise DataError(
            f"{path} is no JSON and so no record of a run; give the folder that fedsift run wrote"
        ) from None
    if not isinstance(record, dict) or record.get("format") != "fedsift-report":
        raise DataError(f"{path} is no record of a run: give the run's folder, or its {SUMMARY}")
    if party is not None and record.get("party") != party:
        whose = f"of party {record['party']!r}" if record.get("party") else "of all parties; give the run's folder"
        raise ParameterError(f"{path} is the record {whose}, so there is no report of {party!r} in it")
    return record


def _record_file(folder: Path, party: str | None) -> Path:
    wanted = folder / _summary_name(party)
    if wanted.is_file():
        return wanted
    there = sorted(path.name for path in folder.glob("summary-*.json"))
    owners = [name[len("summary-") : -len(".json")] for name in there]
    if party is not None and owners:
        raise ParameterError(f"{folder} has no party {party!r}{nearest(party, owners)}")
    if owners:
        raise DataError(f"{folder} lacks {SUMMARY}, but holds a party's own: say whose with --party {owners[0]}")
    if (folder / "run.json").is_file():
        raise DataError(
            f"{folder} lacks {wanted.name}: an older fedsift wrote it, or it was deleted; run the job again"
        )
    raise DataError(f"{folder} is no result of fedsift run: it has no run.json and no {SUMMARY}")


def check_page(out: Path) -> None:
    """Refuse a place where no page can be written. Called before the work; protects tables from a slip, too."""
    if out.suffix.lower() not in (".html", ".htm", ".txt"):
        raise ParameterError(f"{out} must end in .html (a page) or .txt (text); give another --out FILE")
    if out.is_dir():
        raise ParameterError(f"{out} is a folder; give a file such as {out / 'report.html'} (--out FILE)")
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ParameterError(f"cannot write into {parent}; give another file (--out FILE)")


def render(record: dict[str, Any], out: Path | None) -> str:
    """The report of a record: written to a file, or as text. Returns the text or the file's name."""
    try:
        shown = write_report(record, out, party=record["party"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FedsiftError):
            raise
        raise DataError(damaged(record)) from None
    if out is not None:
        adopt(out)
    return str(shown)


def adopt(page: Path) -> None:
    """A page that lies in a run's folder belongs to it: the next run may replace the folder."""
    file = page.absolute().parent / "run.json"
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["format"] == FORMAT and page.name not in facts["files"]:
            facts["files"] = sorted([*facts["files"], page.name])
            write_atomic(file, json.dumps(facts, indent=2, allow_nan=False) + "\n")
    except (OSError, ValueError, KeyError, TypeError):
        return  # no run's folder
