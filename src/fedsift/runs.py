"""A job, run from files to a result folder.

The folder appears whole or not at all: everything is written into a hidden folder beside it, which is renamed at the
end. A folder that fedsift did not write, or that holds other files too, is never replaced.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import clone

from fedsift.errors import ParameterError
from fedsift.evaluate import Evaluation, evaluate
from fedsift.federation import Federation
from fedsift.job import EvaluateSection, Job
from fedsift.ledger import COORDINATOR, Ledger
from fedsift.report import write_report
from fedsift.report.summary import versions
from fedsift.select import Selector
from fedsift.selection import Selection, _plain
from fedsift.table import Table

FORMAT = "fedsift-run"
VERSION = 1


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
        mine = self.selection.for_party(party)
        if self.fed.names == "shared":
            return mine
        own = dict(zip(self.fed.column_names()[party], self.tables[party].columns))
        scores = [{**row, "feature": own[row["feature"]]} for row in mine.scores]
        return replace(mine, selected={party: [own[c] for c in mine.selected[party]]}, scores=scores)


def prepare(job: Job, say: Callable[[str], None] = lambda text: None) -> Run:
    """Read the files, align the parties, and let the method check its parameters: all but the run itself."""
    start = time.perf_counter()
    say(f"reading {len(job.settings.parties)} files")
    tables = job.tables()
    read = time.perf_counter() - start
    vertical = job.settings.federation.partition == "vertical"
    say("aligning the parties by private set intersection" if vertical else "no alignment: the parties hold rows")
    start = time.perf_counter()
    fed = job.federation(tables)
    selector = job.selector()
    run = Run(job, tables, fed, selector)
    rows, _ = fed.n_rows, fed.task  # asked for here, so that a label of one class is found before the work
    job.check_parameters(selector, fed)
    run.seconds.update(read=read, align=time.perf_counter() - start)
    run.phases["align"] = (0, len(fed.ledger))
    say(f"{rows:,} {'shared ' if vertical else ''}rows")
    return run


def execute(job: Job, observer: Any = None, say: Callable[[str], None] = lambda text: None) -> Run:
    """Run a job. ``observer(operation, round, ledger)`` is called after each step of the conversation."""
    run = prepare(job, say)
    if observer is not None:
        run.fed._link.observers.append(observer)
    say(f"selecting by {job.method}")
    with run.phase("select"):
        run.selector.fit(run.fed)
    if job.settings.evaluate is not None:
        say("evaluating")
        with run.phase("evaluate"):
            run.evaluation = evaluation(run, job.settings.evaluate)
    return run


def evaluation(run: Run, section: EvaluateSection) -> Evaluation:
    """Score the method on rows that selection did not see, beside all and random columns.

    Scoring pools the columns in this process; the ledger gets a note that says so.
    """
    return evaluate(
        run.fed, clone(run.selector), model=section.model, cv=section.folds or section.train,
        random_state=section.seed, nulls=section.nulls,
    )  # fmt: skip


# --- the summary -----------------------------------------------------------------------------------------------------


def summary(run: Run) -> dict[str, Any]:
    """What a reader, a script or an auditor wants to know of a run, as plain data."""
    ledger, selection = run.ledger(), run.selection
    columns = run.fed.n_columns
    return _plain(
        {
            "format": FORMAT,
            "version": VERSION,
            "job": run.job.path.name,
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
                    "label": name == run.fed.active or run.fed.active is None,
                }
                for name, table in run.tables.items()
            },
            "selected": selection.selected,
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


def disclosures(ledger: Ledger) -> list[dict[str, Any]]:
    """What went where in which form, one record a kind, parties that did the same together; control messages left out.

    What the coordinator hands to a party it has from other parties: such a line says what the party learned from it.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for e in ledger.entries:
        learns = e.sender == COORDINATOR and not e.about.startswith("request: ")
        if e.form == "control" and not learns:
            continue
        about, form = e.about, e.form
        if learns:
            about = f"it learns {about}"
            form = "ciphertext, opened" if form == "ciphertext" else form
        elif e.sender == COORDINATOR:
            about = f"what {e.operation} needs from other parties"
        form += ", relayed unread" if e.relayed else ""
        row = rows.setdefault(
            (e.sender == COORDINATOR, form, about), {"from": [], "to": [], "what": about, "form": form, "bytes": 0}
        )
        for end, name in (("from", e.sender), ("to", e.receiver)):
            if name not in row[end]:
                row[end].append(name)
        row["bytes"] += e.bytes
    return list(rows.values())


# --- the folder ------------------------------------------------------------------------------------------------------


def check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier run. Called before a run, so that no work is lost."""
    if not out.exists():
        parent = next(folder for folder in out.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ParameterError(f"cannot write into {parent}; give another folder for the result (--out DIR)")
        return
    if not out.is_dir():
        raise ParameterError(f"{out} is a file; give a folder for the result (--out DIR)")
    there = {path.name for path in out.iterdir()}
    if not there:
        return
    try:
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        written = set(run["files"]) if run["format"] == FORMAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        written = set()
    if not written:
        raise ParameterError(f"the folder {out} is not empty and not a fedsift run; give another one (--out DIR)")
    strange = sorted(there - written)
    if strange:
        raise ParameterError(
            f"the folder {out} holds {strange[0]!r}, which fedsift did not write; move it or give another --out DIR"
        )


def write(run: Run, out: Path) -> dict[str, Any]:
    """Write the result folder; returns the summary that is in its ``run.json``."""
    check_folder(out)
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    staging, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("partial", "old"))
    staging.mkdir()
    try:
        facts = _fill(run, staging)
        if out.exists():
            os.rename(out, old)
            try:
                os.rename(staging, out)
            except BaseException:
                os.rename(old, out)
                raise
        else:
            os.rename(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return facts


def _fill(run: Run, folder: Path) -> dict[str, Any]:
    run.selection.save(folder / "selection.json")
    for party in run.fed.parties:
        run.own_selection(party).save(folder / f"selection-{party}.json")
    run.selector.scores_.to_csv(folder / "scores.csv", index=False)
    run.frame().to_csv(folder / "ledger.csv", index=False)
    run.fed.ledger.traffic().to_csv(folder / "traffic.csv", index=False)
    if run.evaluation is not None:
        run.evaluation.frame().to_csv(folder / "evaluation.csv", index=False)
    write_report(run.selector, folder / "report.html", evaluation=run.evaluation, ledger=run.ledger("align", "select"))
    facts = summary(run)
    facts["files"] = sorted([path.name for path in folder.iterdir()] + ["run.json"])
    (folder / "run.json").write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return facts
