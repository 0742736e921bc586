"""A conversation of several jobs, taken apart: a recommendation, an evaluation or halves fit other methods on folds.

Each of these fits is a job that was announced for rows and columns of its own. An attack that reads a whole run needs
them one by one: cuts of three folds in one list are cuts of no table. ``jobs_apart`` gives each announced job as a
recording of its own, with the views on its own rows; of jobs that were announced alike (folds) the first one with the
most rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsift.audit.exposure import Exposure
from fedsift.audit.naming import matches
from fedsift.audit.recording import Recording
from fedsift.audit.views import Fresh, Message, Truth, View
from fedsift.core.job import Job
from fedsift.core.ledger import COORDINATOR
from fedsift.core.operation import operations
from fedsift.mpc.shared_rows import VIEW

Places = NDArray[np.int64]


@dataclass(frozen=True)
class _Part:
    """The rows and columns of a party's table in a view."""

    rows: Places
    columns: Places


@dataclass(frozen=True)
class _Announced:
    """A job as it was put to the parties: for which view, under which session (that around all others)."""

    told: bytes
    job: Job
    view: str
    session: str


def jobs_apart(seen: Recording) -> list[Recording]:
    """The jobs of a recording of several over common rows, one of each announcement; nothing where there is one job."""
    messages = seen[COORDINATOR].messages
    announced = _with_work(messages)
    alike = (
        len({(each.job.method, each.view) for each in announced}) < 2
    )  # one method on the same rows, again and again
    if alike or any(view.role == "member" for view in seen.views.values()):
        return []
    parts = _parts(seen, messages)
    largest: dict[bytes, _Announced] = {}
    for each in announced:
        here = {name: parts.get((name, each.view)) for name in seen.truth.columns}
        if any(part is None or not len(part.rows) for part in here.values()):
            continue
        held = largest.get(each.told)
        if held is None or _rows(parts, each) > _rows(parts, held):
            largest[each.told] = each
    return [_recording(seen, each, parts) for each in largest.values()]


def highest(found: Iterable[Exposure]) -> list[Exposure]:
    """Of an attack that was run on several jobs, the figure that adds most; of equal ones the first with a message."""
    best: dict[tuple[str, str], Exposure] = {}
    for each in found:
        held = best.setdefault((each.attack, each.party), each)
        silent = held.note.startswith("nothing to read")
        if not each.note.startswith("nothing to read") and (silent or each.added > held.added):
            best[each.attack, each.party] = each
    return list(best.values())


def _rows(parts: Mapping[tuple[str, str], _Part], announced: _Announced) -> int:
    return next(len(part.rows) for (_, view), part in parts.items() if view == announced.view)


def _with_work(messages: tuple[Message, ...]) -> list[_Announced]:
    """Jobs under which something was asked that is no mere control."""
    control = {marked.id for marked in operations() if marked.discloses == "control"}
    found: dict[str, _Announced] = {}
    worked: set[str] = set()
    for message in messages:
        root = message.session.partition(".")[0]
        if message.is_request and root and matches("begin_job", message.operation):
            told = message.content["job"]
            found.setdefault(root, _Announced(told, Job.read(told, message.party), message.view, root))
        elif message.operation not in control:
            worked.add(root)
    return [each for root, each in found.items() if root in worked]


def _parts(seen: Recording, messages: tuple[Message, ...]) -> dict[tuple[str, str], _Part]:
    """By party and view; a view that a party drew in secret is in no message, and not here."""
    found: dict[tuple[str, str], _Part] = {}
    for name, columns in seen.truth.columns.items():
        found[name, ""] = found[name, VIEW] = _Part(*(np.arange(size) for size in columns.shape))
    for message in messages:
        if not message.is_request or not matches("define_view", message.operation):
            continue
        above = found.get((message.party, message.view))
        if above is None:
            continue
        rows, columns = (message.content.get(key) for key in ("rows", "columns"))
        found[message.party, message.content["view"]] = _Part(
            above.rows if rows is None else above.rows[np.asarray(rows, dtype=np.int64)],
            above.columns if columns is None else above.columns[np.asarray(columns, dtype=np.int64)],
        )
    return found


def _recording(seen: Recording, announced: _Announced, parts: Mapping[tuple[str, str], _Part]) -> Recording:
    mine = {name: parts[name, announced.view] for name in seen.truth.columns}
    return Recording({name: _view(view, announced, mine) for name, view in seen.views.items()},
                     _truth(seen.truth, mine), None)  # fmt: skip


def _view(view: View, announced: _Announced, mine: Mapping[str, _Part]) -> View:
    def inside(session: str) -> bool:
        return session.partition(".")[0] == announced.session

    def named(name: str) -> str:
        return "" if name == announced.view else name

    part, table = mine.get(view.name), view.table
    if part is not None and table is not None:
        table = table.take(part.rows).select([table.columns[place] for place in part.columns])
    all_there = table is not None and view.table is not None and len(table) == len(view.table)
    return replace(
        view, job=announced.job, table=table,
        kept=view.kept if all_there and table is not None and table.columns == view.own_table.columns else None,
        messages=tuple(replace(m, view=named(m.view)) for m in view.messages if inside(m.session)),
        states=tuple(state for state in view.states if inside(state.session)),
        boxes=tuple(replace(box, view=named(box.view)) for box in view.boxes if inside(box.session)),
    )  # fmt: skip


def _truth(truth: Truth, mine: Mapping[str, _Part]) -> Truth:
    rows = next(iter(mine.values())).rows
    fresh = truth.fresh and Fresh(
        {name: columns[:, mine[name].columns] for name, columns in truth.fresh.columns.items()}, truth.fresh.labels
    )
    return Truth(
        truth.labels[rows],
        {name: columns[np.ix_(mine[name].rows, mine[name].columns)] for name, columns in truth.columns.items()},
        fresh,
        {name: ids[rows] for name, ids in truth.ids.items()},
        {name: [names[place] for place in mine[name].columns] for name, names in truth.names.items()},
        {name: {c: values[rows] for c, values in found.items()} for name, found in truth.aside.items()},
        {n: [i for i, old in enumerate(mine[n].columns) if old in found] for n, found in truth.coded.items()},
    )
