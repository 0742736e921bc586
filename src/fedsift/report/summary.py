"""A fitted selector as one plain record: all that a report shows, and nothing else.

Rendering (``html.py``, ``text.py``) reads only this record, so a test can check what a report says, a run folder can
keep it as JSON, and a party's own report cannot show more than its own record holds.
"""

from __future__ import annotations

import inspect
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from fedsift.core.files import plain
from fedsift.core.ledger import COORDINATOR, FORMS, Entry, Ledger
from fedsift.crypto import kernel
from fedsift.errors import ParameterError
from fedsift.evaluate.evaluation import ALL, Evaluation
from fedsift.select.selection import Selection

FORMAT = "fedsift-report"
VERSION = 1

#: What the receiver of a message can make of it, in words.
READABLE = {
    "control": "nothing about rows",
    "ciphertext": "cannot read it",
    "masked": "cannot read it",
    "pseudonymous": "rows, but not whose",
    "aggregate": "totals only",
    "plain": "everything in it",
}

_PACKAGES = ("fedsift", "numpy", "scikit-learn", "polars", "cryptography", "gmpy2", "tenseal", "torch")
#: Stands for the party where all have the same columns.
EVERY = "every party"
_HIDDEN = "(not shown in one party's report)"


def summarize(
    selector: Any, *, party: str | None = None, evaluation: Evaluation | None = None, ledger: Ledger | None = None
) -> dict[str, Any]:
    """The record of a fitted selector.

    ``party`` leaves in only what that party may keep: its own columns and scores, its own messages. ``ledger`` takes
    the place of the selector's own (a whole run's, with the alignment). ``evaluation`` adds how good it is.
    """
    selection: Selection = selector.selection_
    whole = selector.ledger_ if ledger is None else ledger
    parties = list(selection.selected)
    hide = _Hider(selection, party)
    if party is not None:
        selection = selection.for_party(party)
        whole = Ledger((e for e in whole.entries if party in (e.sender, e.receiver)), map(hide.text, whole.notes))
    if selector.get_params(deep=False).get("secure") is False and not any("secure" in n for n in whole.notes):
        whole = Ledger(whole.entries, [*whole.notes, "secure=False: this run was not protected; for research only"])
    record = {
        "format": FORMAT,
        "version": VERSION,
        "party": party,
        "parties": parties,
        "method": _method(selector, hide),
        "federation": dict(getattr(selector, "federation_", {}) or {}),
        "answer": _counted(_answer(selection, told=party is None), evaluation, type(selector).__name__),
        "quality": None if evaluation is None else _quality(evaluation, type(selector).__name__),
        "details": hide.details(selector.details_),
        "cost": _cost(whole, selector.seconds_),
        "ledger": _ledger(whole),
        "versions": versions(),
    }
    made: dict[str, Any] = plain(record)
    return made


def versions() -> dict[str, str]:
    """What a repetition needs to be the same."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "arithmetic kernel": kernel.state()}


def _method(selector: Any, hide: _Hider) -> dict[str, Any]:
    own = inspect.cleandoc(type(selector).__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    parameters = selector.get_params(deep=False)
    return {
        "name": type(selector).__name__,
        "module": type(selector).__module__,
        "what": own,
        "paper": selector.paper,
        "leaks": selector.leaks,
        "parameters": {key: hide.value(value) for key, value in parameters.items()},
        "seed": parameters.get("random_state"),
        "call": _call(type(selector), parameters, hide),
    }


def _call(kind: type, parameters: Mapping[str, Any], hide: _Hider) -> str:
    """The constructor call with what differs from the defaults."""
    defaults = {key: p.default for key, p in inspect.signature(kind).parameters.items()}
    given = [
        f"{key}={hide.text(repr(value))}"
        for key, value in parameters.items() if repr(value) != repr(defaults.get(key))
    ]  # fmt: skip
    return f"{kind.__name__}({', '.join(given)})"


def _shared(selection: Selection) -> Selection:
    """Parties that hold rows have the same columns with the same scores: they are told once, for every party."""
    told: dict[str, list[Any]] = {party: [] for party in selection.selected}
    for row in selection.scores:
        told[row["party"]].append((row["feature"], row["score"], row["selected"]))
    first = next(iter(told.values()), [])
    if len(told) < 2 or not first or any(rows != first for rows in told.values()):
        return selection
    party = next(iter(told))
    rows = [dict(row, party=EVERY) for row in selection.scores if row["party"] == party]
    for rank, row in enumerate(sorted(rows, key=lambda row: row["rank"]), 1):
        row["rank"] = rank
    return replace(selection, selected={EVERY: selection.selected[party]}, scores=rows)


def _answer(selection: Selection, told: bool = True) -> dict[str, Any]:
    """``told``: the scores are scores, not a party's flags."""
    selection = _shared(selection)
    placed = [{**row, "place": place} for place, row in enumerate(selection.scores)]
    rows = sorted(placed, key=lambda row: row["rank"])
    kept = [row["score"] for row in rows if row["selected"]]
    left = [row["score"] for row in rows if not row["selected"]]
    margin = None
    if told and kept and left:
        margin = {"last_kept": min(kept), "first_left": max(left), "range": max(kept + left) - min(kept + left)}
    return {
        "kept": selection.n_selected,
        "of": len(rows),
        "selected": selection.selected,
        "engineered": selection.engineered,
        "columns": {party: sum(row["party"] == party for row in rows) for party in selection.selected},
        "scores": rows,
        "margin": margin,
    }


def _counted(answer: dict[str, Any], evaluation: Evaluation | None, name: str) -> dict[str, Any]:
    """With the number of folds in which each column was chosen, where the method was evaluated in several."""
    mine = None if evaluation is None else _own_name(evaluation, name)
    sets = [] if evaluation is None or mine is None else evaluation.selected.get(mine, [])
    if len(sets) < 2:
        return answer
    for row in answer["scores"]:
        shown = row["feature"] if row["party"] == EVERY else f"{row['party']}.{row['feature']}"
        row["folds"] = sum(shown in chosen for chosen in sets)
    known = any(row["folds"] for row in answer["scores"]) or not answer["kept"]
    return {**answer, "fits": len(sets)} if known else answer  # private names are numbers there: nothing to count


def _own_name(evaluation: Evaluation, name: str) -> str | None:
    """What this method is called in an evaluation."""
    if name in evaluation.methods:
        return name
    return next(iter(evaluation.methods)) if len(evaluation.methods) == 1 else None


# -- how good --------------------------------------------------------------------------------------------------------


def _quality(evaluation: Evaluation, name: str) -> dict[str, Any]:
    """The evaluation's lines, and this method's line with its nulls in words."""
    lines = evaluation.frame().to_dict("records")
    mine = _own_name(evaluation, name)
    metric = evaluation.metrics[0]
    return {
        "settings": evaluation.settings,
        "metrics": list(evaluation.metrics),
        "lines": lines,
        "method": mine,
        "verdict": verdict(evaluation, mine, metric) if mine else "",
    }


def verdict(evaluation: Evaluation, method: str, metric: str) -> str:
    """One sentence that sets a method beside its nulls, with the spread over the folds."""
    by_name = {line["method"]: line for line in evaluation.frame().to_dict("records")}
    line = by_name[method]
    text = f"{metric} {line[metric]:.3f}"
    if not math.isnan(line[f"{metric}_std"]):
        text += f" ± {line[f'{metric}_std']:.3f}"
    text += f" with {line['n_features']:.4g} columns"
    random = by_name.get(evaluation.null_of(method) or "")
    if ALL in by_name:
        text += f"; all {by_name[ALL]['n_features']:.0f} columns give {by_name[ALL][metric]:.3f}"
    if random is not None:
        gain = line[metric] - random[metric]
        spread = max(line[f"{metric}_std"], random[f"{metric}_std"])
        text += f", as many random columns {random[metric]:.3f}"
        if gain <= 0:
            text += ". That is not better than chance"
        elif not math.isnan(spread) and gain < spread:
            text += ". The gain over random columns is smaller than the spread between folds"
    loss = by_name[ALL][metric] - line[metric] if ALL in by_name else 0.0
    if loss > 0 and loss > max(line[f"{metric}_std"], by_name[ALL][f"{metric}_std"]):  # one split has no spread
        text += ". All columns are better, by more than the spread between folds"
    return text + "."


# -- what it cost, who learned what ----------------------------------------------------------------------------------


def _other(entry: Entry) -> str:
    return entry.receiver if entry.sender == COORDINATOR else entry.sender


def _cost(ledger: Ledger, seconds: float) -> dict[str, Any]:
    by_party: dict[str, dict[str, Any]] = {}
    by_operation: dict[str, dict[str, Any]] = {}
    by_round: dict[int, dict[str, Any]] = {}
    for e in ledger.entries:
        side = by_party.setdefault(_other(e), {"party": _other(e), "received": 0, "sent": 0, "messages": 0})
        side["received" if e.sender == COORDINATOR else "sent"] += e.bytes
        work = by_operation.setdefault(
            e.operation, {"operation": e.operation, "messages": 0, "bytes": 0, "seconds": 0.0}
        )
        turn = by_round.setdefault(e.round, {"round": e.round, "operation": e.operation, "bytes": 0})
        for group in (side, work):
            group["messages"] += 1
        for group in (work, turn):
            group["bytes"] += e.bytes
        work["seconds"] += e.seconds
    return {
        "bytes": ledger.bytes(),
        "messages": len(ledger),
        "rounds": ledger.rounds(),
        "seconds": seconds,
        "by_party": list(by_party.values()),
        "by_operation": sorted(by_operation.values(), key=lambda row: -row["bytes"]),
        "by_round": _few(sorted(by_round.values(), key=lambda row: row["round"])),
    }


def _few(rounds: list[dict[str, Any]], most: int = 24) -> list[dict[str, Any]]:
    """Neighbouring rounds together where there are very many."""
    if len(rounds) <= most:
        return rounds
    groups = np.array_split(np.arange(len(rounds)), most)
    merged = []
    for group in groups:
        first, last = rounds[group[0]], rounds[group[-1]]
        merged.append(
            {"round": first["round"], "to": last["round"], "operation": "",
             "bytes": sum(rounds[i]["bytes"] for i in group)}
        )  # fmt: skip
    return merged


def _ledger(ledger: Ledger) -> dict[str, Any]:
    forms: dict[str, dict[str, Any]] = {
        form: {"form": form, "meaning": text, "messages": 0, "bytes": 0} for form, text in FORMS.items()
    }
    sent: dict[str, dict[str, int]] = {}
    for e in ledger.entries:
        forms[e.form]["messages"] += 1
        forms[e.form]["bytes"] += e.bytes
        if e.sender != COORDINATOR:
            parts = sent.setdefault(e.sender, {})
            parts[e.form] = parts.get(e.form, 0) + e.bytes
    told = sum(e.bytes for e in ledger.entries if e.form != "control")
    hidden = sum(e.bytes for e in ledger.entries if e.form in ("ciphertext", "masked") or e.relayed)
    return {
        "hidden_share": hidden / told if told else None,
        "encryption": {**ledger.encryption(), "line": ledger.encryption_line()},
        "notes": list(ledger.notes),
        "forms": [row for row in forms.values() if row["messages"]],
        "lines": disclosure_lines(ledger),
        "sent_by_form": sent,
    }


def disclosure_lines(ledger: Ledger) -> list[dict[str, Any]]:
    """What went where in which form: one line a kind, parties that did the same together, the most readable first."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for e in ledger.entries:
        outward = e.sender == COORDINATOR
        request = outward and e.about.startswith("request: ")
        what = f"passed on for the step {e.operation}" if request else e.about
        learns = outward and not request
        key = (outward, e.form, what, e.operation, e.relayed)
        row = rows.setdefault(
            key,
            {"from": [], "to": [], "what": what, "form": e.form, "learns": learns, "sealed": e.relayed,
             "operation": e.operation, "messages": 0, "bytes": 0,
             "reader": "learns exactly this" if learns else
                       ("sealed: the coordinator cannot read it" if e.relayed else READABLE[e.form])},
        )  # fmt: skip
        for end, party in (("from", e.sender), ("to", e.receiver)):
            if party not in row[end]:
                row[end].append(party)
        row["messages"] += 1
        row["bytes"] += e.bytes
    order = list(FORMS)
    return sorted(rows.values(), key=lambda row: (row["form"] == "control" and not row["learns"],
                                                  not row["learns"], -order.index(row["form"])))  # fmt: skip


# -- one party's own record ------------------------------------------------------------------------------------------


class _Hider:
    """Takes out of words and numbers what belongs to another party, when the record is for one party."""

    def __init__(self, selection: Selection, party: str | None):
        if party is not None and party not in selection.selected:
            raise ParameterError(f"no party {party!r} in this result; it has {', '.join(selection.selected)}")
        self.party = party
        mine = {row["feature"] for row in selection.scores if row["party"] == party}
        others = {row["feature"] for row in selection.scores if row["party"] != party} - mine
        words = "|".join(re.escape(word) for word in sorted(others, key=len, reverse=True))
        self._foreign = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if party is not None and words else None

    def text(self, text: str) -> str:
        return _HIDDEN if self._foreign is not None and self._foreign.search(text) else text

    def value(self, value: Any) -> Any:
        return _HIDDEN if self._foreign is not None and self._foreign.search(repr(value)) else value

    def details(self, details: Mapping[str, Any]) -> dict[str, Any]:
        """A method's details may name or hold anybody's columns, so one party's report shows only single numbers."""
        shown = {key: _bounded(value) for key, value in details.items() if not key.startswith("_")}
        if self.party is None:
            frames = {k.lstrip("_"): v for k, v in details.items() if isinstance(v, pd.DataFrame)}
            return {**shown, **{key: _framed(frame) for key, frame in frames.items()}}
        return {k: v for k, v in shown.items() if isinstance(v, (bool, int, float, np.integer, np.floating))}


def _framed(frame: pd.DataFrame, most: int = 48) -> Any:
    """Numbers under named rows and columns as labels and a matrix; any other frame as records."""
    named = not isinstance(frame.index, pd.RangeIndex)
    if named and frame.size and all(kind.kind in "fiu" for kind in frame.dtypes):
        part = frame.iloc[:most, :most]
        return {
            "labels": [_label(label) for label in part.index],
            "columns": [_label(label) for label in part.columns],
            "matrix": part.to_numpy(dtype=float),
            "of": len(frame),
        }
    return frame.head(1000).to_dict("records")


def _label(label: Any) -> str:
    """A row's name; (party, column) pairs as party.column, and the label as such."""
    parts = list(label) if isinstance(label, tuple) else [label]
    return ".".join(str(part) for part in dict.fromkeys(parts))


def _bounded(value: Any, most: int = 60_000) -> Any:
    """Very large arrays are named, not kept: a report is for reading."""
    if isinstance(value, np.ndarray) and value.size > most:
        return f"{' x '.join(map(str, value.shape))} numbers (not kept in the report)"
    if isinstance(value, Mapping):
        return {str(key): _bounded(item, most) for key, item in value.items()}
    return value
