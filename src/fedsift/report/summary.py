"""A fitted selector as one plain record: all that a report shows, and nothing else.

Rendering (``html.py``, ``text.py``) reads only this record, so a test can check what a report says, a run folder can
keep it as JSON, and a party's own report cannot show more than its own record holds.
"""

from __future__ import annotations

import inspect
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from fedsift.core.ledger import Ledger
from fedsift.crypto import kernel
from fedsift.crypto.additive import cuda
from fedsift.errors import ParameterError
from fedsift.evaluate.result import ALL, Evaluation, next_to
from fedsift.report.counting import count_cost, count_forms
from fedsift.report.readings import NEUTRAL, Roles, learned, readings
from fedsift.report.record import (
    Answer,
    Json,
    Margin,
    Method,
    Quality,
    Report,
    RunFacts,
    ScoredColumn,
)
from fedsift.select.base import Selector
from fedsift.select.selection import Selection
from fedsift.select.sureness import false_discovery

_PACKAGES = ("fedsift", "numpy", "scikit-learn", "polars", "cryptography", "gmpy2", "tenseal", "torch")
#: Stands for the party where all have the same columns.
EVERY = "every party"
_HIDDEN = "(not shown in one party's report)"


def summarize(
    selector: Selector, *, party: str | None = None, evaluation: Evaluation | None = None,
    ledger: Ledger | None = None, run: RunFacts | None = None,
) -> dict[str, Json]:  # fmt: skip
    """The record of a fitted selector.

    ``party`` leaves in only what that party may keep: its own columns and scores, its own messages. ``ledger`` takes
    the place of the selector's own (a whole run's, with the alignment). ``evaluation`` adds how good it is, ``run``
    what a run of a job file knows beside: names, files, commands.
    """
    selection: Selection = selector.selection_
    whole = _with_matching(selector) if ledger is None else ledger
    parties = list(selection.selected)
    facts = _facts(selector, run)
    roles = Roles(tuple(parties), tuple(facts.holders), str(selector.federation_["partition"]),
                  facts.coordinator or NEUTRAL, facts.submitter or NEUTRAL)  # fmt: skip
    read, heard = readings(whole, roles), learned(whole, roles)
    hide = _Hider(selection, party)
    if party is not None:
        selection = selection.for_party(party)
        whole = Ledger((e for e in whole.entries if party in (e.sender, e.receiver)), map(hide.text, whole.notes))
    open_by = _turned_off(selector.get_params(deep=False))
    if open_by and not any(_OPEN.search(note) for note in whole.notes):
        whole = Ledger(whole.entries, [*whole.notes, f"{open_by}: this run was not protected; for research only"])
    return Report(
        party=party,
        parties=parties,
        method=_method(selector, hide),
        federation=dict(getattr(selector, "federation_", {}) or {}),
        answer=_tested(
            _counted(_answer(selection, told=party is None), evaluation, type(selector).__name__),
            {} if party is not None else selector.details_,
        ),
        quality=None if evaluation is None else _quality(evaluation, type(selector).__name__),
        details=hide.details(selector.details_),
        cost=count_cost(whole, selector.seconds_),
        ledger=count_forms(whole),
        versions=versions(),
        run=_own_facts(facts, party),
        readings=[each for each in read if party in (None, each.owner)],
        learned=[each for each in heard if party in (None, each.party)],
    ).write()


def _with_matching(selector: Selector) -> Ledger:
    """The selector's own messages, and before them those that matched the ids of its federation."""
    before: Ledger = getattr(selector, "matching_", Ledger())
    return Ledger([*before.entries, *selector.ledger_.entries], selector.ledger_.notes)


def _facts(selector: Selector, run: RunFacts | None) -> RunFacts:
    known = dict(getattr(selector, "federation_", {}) or {})
    facts = run or RunFacts(made=getattr(selector, "fitted_at_", ""))
    return replace(
        facts, holders=facts.holders or list(known.get("holders", [])), job=facts.job or str(known.get("job", "")),
        shared=known.get("rows"), coordinator=str(known.get("coordinator", "")),
        submitter=str(known.get("submitter", "")),
    )  # fmt: skip


def _own_facts(facts: RunFacts, party: str | None) -> RunFacts:
    """In one party's report no file and no size of another's, and the label's name for its holders."""
    if party is None:
        return facts
    label = facts.label if party in facts.holders else ""
    rows = {party: facts.rows[party]} if party in facts.rows else {}
    inputs = {party: facts.inputs[party]} if party in facts.inputs else {}
    return replace(facts, label=label, rows=rows, inputs=inputs, commands=[])


_OPEN = re.compile(r"protection='open'|secure=False")


def _turned_off(parameters: Mapping[str, Json]) -> str:
    """The parameter by which a run was told to protect nothing."""
    if parameters.get("protection") == "open":
        return "protection='open'"
    return "secure=False" if parameters.get("secure") is False else ""


def versions() -> dict[str, str]:
    """What a repetition needs to be the same."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "arithmetic kernel": kernel.state(), "graphics processor": cuda.state()}


def _method(selector: Selector, hide: _Hider) -> Method:
    own = inspect.cleandoc(type(selector).__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    parameters = selector.get_params(deep=False)
    return Method(
        name=type(selector).__name__,
        module=type(selector).__module__,
        what=own,
        paper=selector.paper,
        leaks=selector.leaks,
        parameters={key: hide.value(value) for key, value in parameters.items()},
        seed=parameters.get("random_state"),
        call=_call(type(selector), parameters, hide),
    )


def _call(kind: type, parameters: Mapping[str, Json], hide: _Hider) -> str:
    """The constructor call with what differs from the defaults."""
    defaults = {key: p.default for key, p in inspect.signature(kind).parameters.items()}
    given = [
        f"{key}={hide.text(repr(value))}"
        for key, value in parameters.items() if repr(value) != repr(defaults.get(key))
    ]  # fmt: skip
    return f"{kind.__name__}({', '.join(given)})"


def _columns(selection: Selection) -> list[ScoredColumn]:
    return [ScoredColumn(**row, place=place) for place, row in enumerate(selection.scores)]


def _shared(columns: list[ScoredColumn], parties: Sequence[str]) -> list[ScoredColumn] | None:
    """Parties that hold rows have the same columns with the same scores: they are told once, for every party."""
    told: dict[str, list[tuple[object, ...]]] = {party: [] for party in parties}
    for column in columns:
        told[column.party].append((column.feature, column.score, column.selected))
    first = next(iter(told.values()), [])
    if len(told) < 2 or not first or any(rows != first for rows in told.values()):
        return None
    own = [column for column in columns if column.party == next(iter(told))]
    ranked = sorted(own, key=lambda column: column.rank)
    ranks = {id(column): rank for rank, column in enumerate(ranked, 1)}
    return [
        replace(column, party=EVERY, rank=ranks[id(column)], place=place) for place, column in enumerate(own)
    ]  # fmt: skip


def _answer(selection: Selection, told: bool = True) -> Answer:
    """``told``: the scores are scores, not a party's flags."""
    columns, selected = _columns(selection), selection.selected
    shared = _shared(columns, list(selected))
    if shared is not None:
        columns, selected = shared, {EVERY: next(iter(selected.values()))}
    rows = sorted(columns, key=lambda column: column.rank)
    kept = [row.score for row in rows if row.selected and row.score is not None]
    left = [row.score for row in rows if not row.selected and row.score is not None]
    margin = None
    if told and kept and left:
        margin = Margin(min(kept), max(left), max(kept + left) - min(kept + left))
    return Answer(
        kept=sum(map(len, selected.values())),
        of=len(rows),
        selected=selected,
        engineered=selection.engineered,
        columns={party: sum(row.party == party for row in rows) for party in selected},
        scores=rows,
        margin=margin,
    )


def _counted(answer: Answer, evaluation: Evaluation | None, name: str) -> Answer:
    """With the number of folds in which each column was chosen, where the method was evaluated in several."""
    mine = None if evaluation is None else _own_name(evaluation, name)
    sets = [] if evaluation is None or mine is None else evaluation.selected.get(mine, [])
    if len(sets) < 2:
        return answer
    for row in answer.scores:
        shown = row.feature if row.party == EVERY else f"{row.party}.{row.feature}"
        row.folds = sum(shown in chosen for chosen in sets)
    if any(row.folds for row in answer.scores) or not answer.kept:  # private names are numbers there: none to count
        answer.fits = len(sets)
    return answer


def _tested(answer: Answer, details: Mapping[str, Any]) -> Answer:
    """With the p-value and the false-discovery rate of each column, where its method could tell them."""
    sure = details.get("sure", {})
    answer.test, answer.noise_floor = sure.get("test", ""), sure.get("noise_floor")
    answer.copies, answer.leaks = sure.get("copies", []), sure.get("leaks", [])
    flat = np.array([p for values in details.get("p_values", {}).values() for p in values], dtype=float)
    if len(flat) != len(answer.scores) or not len(flat):
        return answer
    rates = false_discovery(flat)
    for row in answer.scores:
        row.p, row.q = float(flat[row.place]), float(rates[row.place])
    return answer


def _own_name(evaluation: Evaluation, name: str) -> str | None:
    """What this method is called in an evaluation."""
    if name in evaluation.methods:
        return name
    return next(iter(evaluation.methods)) if len(evaluation.methods) == 1 else None


# -- how good --------------------------------------------------------------------------------------------------------


def _quality(evaluation: Evaluation, name: str) -> Quality:
    """The evaluation's lines, and this method's line with its nulls in words."""
    mine = _own_name(evaluation, name)
    return Quality(
        settings=evaluation.settings,
        metrics=list(evaluation.metrics),
        lines=evaluation.frame().to_dict("records"),
        method=mine,
        verdict=verdict(evaluation, mine, evaluation.metrics[0]) if mine else "",
    )


def verdict(evaluation: Evaluation, method: str, metric: str) -> str:
    """One sentence that sets a method beside its nulls, with the spread over the folds."""
    by_name = {line.method: line for line in evaluation.lines()}
    line, everything = by_name[method], by_name.get(ALL)
    mean, spread = line.mean[metric], line.spread[metric]
    text = f"{metric} {mean:.3f}"
    if not math.isnan(spread):
        text += f" ± {spread:.3f}"
    text += f" with {line.n_features:.4g} columns"
    random = by_name.get(evaluation.null_of(method) or "")
    if everything is not None:
        text += f"; all {everything.n_features:.0f} columns give {everything.mean[metric]:.3f}"
    if random is not None:
        gain, wider = mean - random.mean[metric], max(spread, random.spread[metric])
        text += f", as many random columns {random.mean[metric]:.3f}"
        if gain <= 0:
            text += ". That is not better than chance"
        elif not math.isnan(wider) and gain < wider:
            text += ". The gain over random columns is smaller than the spread between folds"
    if (further := by_name.get(next_to(method))) is not None:
        gain, wider = further.mean[metric] - mean, max(spread, further.spread[metric])
        text += f". With the next column by rank beside them {further.mean[metric]:.3f} ({gain:+.3f}"
        text += ", less than the spread between folds)" if not math.isnan(wider) and abs(gain) < wider else ")"
    if everything is not None:
        loss = everything.mean[metric] - mean
        if loss > 0 and loss > max(spread, everything.spread[metric]):  # one split has no spread
            text += ". All columns are better, by more than the spread between folds"
    return text + "."


# -- one party's own record ------------------------------------------------------------------------------------------


class _Hider:
    """Takes out of words and numbers what belongs to another party, when the record is for one party."""

    def __init__(self, selection: Selection, party: str | None):
        if party is not None and party not in selection.selected:
            raise ParameterError(f"no party {party!r} in this result; it has {', '.join(selection.selected)}")
        self.party = party
        mine = {column.feature for column in _columns(selection) if column.party == party}
        others = {column.feature for column in _columns(selection) if column.party != party} - mine
        words = "|".join(re.escape(word) for word in sorted(others, key=len, reverse=True))
        self._foreign = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if party is not None and words else None

    def text(self, text: str) -> str:
        return _HIDDEN if self._foreign is not None and self._foreign.search(text) else text

    def value(self, value: object) -> object:
        return _HIDDEN if self._foreign is not None and self._foreign.search(repr(value)) else value

    def details(self, details: Mapping[str, Json]) -> dict[str, Json]:
        """A method's details may name or hold anybody's columns, so one party's report shows only single numbers."""
        shown = {key: _bounded(value) for key, value in details.items() if not key.startswith("_")}
        if self.party is None:
            frames = {k.lstrip("_"): v for k, v in details.items() if isinstance(v, pd.DataFrame)}
            return {**shown, **{key: _framed(frame) for key, frame in frames.items()}}
        return {k: v for k, v in shown.items() if isinstance(v, (bool, int, float, np.integer, np.floating))}


def _framed(frame: pd.DataFrame, most: int = 48) -> Json:
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


def _label(label: object) -> str:
    """A row's name; (party, column) pairs as party.column, and the label as such."""
    parts = list(label) if isinstance(label, tuple) else [label]
    return ".".join(str(part) for part in dict.fromkeys(parts))


def _bounded(value: object, most: int = 60_000) -> object:
    """Very large arrays are named, not kept: a report is for reading."""
    if isinstance(value, np.ndarray) and value.size > most:
        return f"{' x '.join(map(str, value.shape))} numbers (not kept in the report)"
    if isinstance(value, Mapping):
        return {str(key): _bounded(item, most) for key, item in value.items()}
    return value
