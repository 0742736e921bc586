"""The card of a model: what a reader must know of it. Data, job, how it was made, how good it is, who can read what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsift.core.files import plain
from fedsift.core.ledger import Ledger
from fedsift.core.table import Table
from fedsift.jobs.cost import exposure
from fedsift.jobs.origin import form_of
from fedsift.jobs.runs import Run
from fedsift.models.base import FederatedModel
from fedsift.report.readings import PERSON, Roles, readings
from fedsift.report.summary import versions

FORMAT = "fedsift-trained"
CARD = "card.json"


def model_card(run: Run, model: FederatedModel) -> dict[str, Any]:
    """What a reader must know of a model: data, job, figures, what was sent and what it tells. Plain data."""
    fed, ledger = run.fed, run.ledger()
    scores = run.evaluation.frame().to_dict("records")[0] if run.evaluation is not None else {}
    told = sorted({(e.form, e.about) for e in ledger.entries if e.form not in ("control", "ciphertext", "masked")})
    made: dict[str, Any] = plain(
        {
            "format": FORMAT, "version": 1, "model": model.model_id_, "class": type(model).__name__,
            "parameters": model.get_params(deep=False), "job_hash": model.job_hash_, "task": model.task_,
            "classes": list(getattr(model, "classes_", ())), "label_holder": fed.active,
            "label": run.job.settings.parties[fed.active].label,
            "data": {
                name: {"rows": run.tables[name].n_rows, "id": run.job.settings.parties[name].id,
                       "columns": run.own_selection(name).selected[name],
                       "categorical": list(run.job.settings.parties[name].categorical or ()),
                       "form": form_of(run.tables[name]),
                       "kinds": _kinds(run.tables[name], run.own_selection(name).selected[name])}
                for name in fed.parties
            },
            "rows": fed.n_rows, "method": run.job.method, "selection": run.selector.get_params(deep=False),
            "metrics": {m: scores.get(m) for m in (run.evaluation.metrics if run.evaluation is not None else ())},
            "metrics_of": "one split, 0.7 of the rows for training; nothing pooled",
            "bytes": ledger.bytes(), "messages": len(ledger), "notes": list(ledger.notes),
            "exposure": {
                "selection": run.selector.leaks, "measured": exposure(run.job.method), "read": _read_by(run, ledger),
                "opened": [f"{form}: {about}" for form, about in told],
            },
            "versions": versions(),
        }
    )  # fmt: skip
    return made


def _kinds(table: Table, columns: list[str]) -> dict[str, str]:
    """Nothing where the table is elsewhere: its party knows."""
    if not isinstance(table, Table):
        return {}
    return {column: "categorical" if table.kinds[column] == "categorical" else "numeric" for column in columns}


def _read_by(run: Run, ledger: Ledger) -> list[dict[str, Any]]:
    """Who can finally read what, of whose data: one person's or a total."""
    fed, who = run.fed, run.fed.job("", {})
    roles = Roles(tuple(fed.parties), (fed.active,), fed.partition, who.coordinator, who.submitter)
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for line in readings(ledger, roles):
        found.setdefault((line.reader, line.what, line.grain), {})[line.owner] = None
    return [{"reader": reader, "what": what, "about": grain, "of": list(owners)}
            for (reader, what, grain), owners in sorted(found.items())]  # fmt: skip


def card_text(card: Mapping[str, Any]) -> str:
    """The card for people."""
    figures = ", ".join(f"{name} {value:.3f}" for name, value in card["metrics"].items() if value is not None)
    parties = [
        f"- {name}: {facts['rows']:,} rows, columns {', '.join(facts['columns']) or 'none'}"
        + (" (label holder)" if name == card["label_holder"] else "")
        for name, facts in card["data"].items()
    ]
    made, told = card["versions"], card["exposure"]
    inferred = told.get("measured", "none measured")
    classes = f"the classes of {card['label']}: {', '.join(map(str, card['classes']))}"
    what = classes if card["classes"] else f"the number {card['label']}"
    lines = [
        f"# {card['class']} over {len(card['data'])} parties", "",
        f"It predicts {what}. Job {card['job_hash'][:16]}, model {card['model']}, {card['rows']:,} shared rows.", "",
        "## Data", *parties, "",
        "## How it was made", f"- columns chosen by {_set_to(card['method'], card['selection'])}",
        f"- trained as {_set_to(card['class'], card['parameters'])}",
        f"- fedsift {made['fedsift']}, Python {made['python']}, numpy {made['numpy']}", "",
        "## How good", f"{figures or 'not measured'} ({card['metrics_of']}).", "",
        "## Who can read what in the end", *_readers(told.get("read", [])), "",
        "## What was inferred by attacks", f"Selection by {card['method']}: {inferred} as docs/exposure.md "
        "has it. fedsift audit JOB.toml attacks a rehearsal of this very job and model.", "",
        "## What was sent", f"{card['messages']:,} messages, {card['bytes']:,} bytes. Nothing was pooled.",
        "", "## Notes", *(f"- {note}" for note in card["notes"]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _set_to(name: str, parameters: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in parameters.items() if value is not None)
    return f"{name} ({shown})" if shown else name


def _readers(read: list[dict[str, Any]]) -> list[str]:
    """What is about one person first."""
    ordered = sorted(read, key=lambda line: line["about"] != PERSON)
    return [f"- {line['reader']}, of {', '.join(line['of'])} ({line['about']}): {line['what']}" for line in ordered]
