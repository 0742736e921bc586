"""Cross-party features on more rows: what a site remembers of a fit, and how the columns are made for a view.

A holder keeps the released values of its training rows at its own site, by row id. Asked for the same rows again it
uses those: a second draw of the noise would halve it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.candidates import POOL, evaluate_at
from fedsift.engineer.flafe.combine import CROSSED, OPERANDS, Pair, combine_columns
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.privacy import Noise
from fedsift.errors import DataError
from fedsift.select.engineered import add_engineered, own_features
from fedsift.select.selection import Selection


def _store(party: Party, model: str) -> dict[str, Any]:
    kept = party.keys.get(f"flafe:{model}")
    if kept is None:
        raise DataError(f"party {party.name!r} has no part of this engineer: fit it in this federation first")
    return kept


@operation("flafe.keep_parts", discloses="control", about="acknowledgement")
def keep_parts(party: Party, *, model: str, records: list[Any]) -> None:
    """Remember, at this site, the operands of kept features and the released values of those it holds."""
    ids = party.table.ids.tolist()
    values = {
        record["formula"]: dict(zip(ids, party.state[POOL][:, record["position"]].tolist()))
        for record in records
        if record["position"] >= 0
    }
    party.keys[f"flafe:{model}"] = {"operands": [record["operand"] for record in records], "values": values}


@operation(
    "flafe.missing_rows",
    discloses="pseudonymous",
    about="positions of rows whose combined features it does not have yet",
    reply=Array("i"),
)
def missing_rows(party: Party, *, model: str) -> np.ndarray:
    store = _store(party, model)["values"]
    missing = {i for known in store.values() for i, each in enumerate(party.table.ids.tolist()) if each not in known}
    return np.array(sorted(missing), dtype=np.int64)


@operation("flafe.load_operands", discloses="control", about="acknowledgement")
def load_operands(party: Party, *, model: str, rows: np.ndarray) -> None:
    party.state[OPERANDS] = evaluate_at(party, _store(party, model)["operands"])[rows]
    party.state[CROSSED] = []


@operation("flafe.keep_rows_of", discloses="control", about="acknowledgement")
def keep_rows_of(party: Party, *, model: str, rows: np.ndarray, formulas: list[str]) -> None:
    """Put newly released values beside those known already."""
    store = _store(party, model)["values"]
    ids = party.table.ids[rows].tolist()
    for text, values in zip(formulas, party.state[CROSSED]):
        for each, value in zip(ids, values.tolist()):
            store[text].setdefault(each, value)


@operation("flafe.add_combined", discloses="control", about="acknowledgement")
def add_combined(party: Party, *, model: str, formulas: list[str], view: str) -> None:
    """Show the combined features that this party holds as columns of the view; other rows have no value there."""
    store, site = _store(party, model)["values"], party.site
    all_ids = site.table.ids.tolist()
    made = {text: np.array([store[text].get(each, np.nan) for each in all_ids]) for text in formulas}
    if not made:
        return
    before = site.table.columns
    site.table = site.table.with_columns(made)
    for name, (rows, columns) in site.views.items():
        site.views[name] = (rows, list(before) if columns is None else columns)
    rows, columns = site.views[view]
    site.views[view] = (rows, [*[c for c in columns or before if c not in made], *made])
    site._caches.clear()


def widen(
    fed: Federation, layout: Layout, selection: Selection, cross: list[dict[str, Any]], noise: Noise, model: str,
    secure: bool,
) -> Federation:  # fmt: skip
    """The view of ``fed`` with all engineered features. Rows not released before are combined first."""
    holders = [name for name in layout.parties if any(r["holder"] == layout.group_of(name) for r in cross)]
    with fed.session() as run:
        missing = run.ask(missing_rows, to=holders, model=model) if holders else {}
        for block in layout.blocks:
            rows = np.array(
                sorted({int(i) for n in block.values() if n in missing for i in missing[n]}), dtype=np.int64
            )
            if len(rows):
                _combine_new(run, block, cross, rows, noise, model, secure)
        view = fed.new_view("combined")
        run.ask(add_engineered, to=fed.parties, each=own_features(fed, selection), view=view)
        held = {
            name: {"formulas": [r["formula"] for r in cross if r["holder"] == layout.group_of(name)]}
            for name in fed.parties
        }
        run.ask(add_combined, to=fed.parties, each=held, model=model, view=view)
    return fed.named_view(view)


def _combine_new(
    run: Federation, block: dict[str, str], cross: list[dict[str, Any]], rows: np.ndarray, noise: Noise, model: str,
    secure: bool,
) -> None:  # fmt: skip
    run.ask(load_operands, to=list(block.values()), model=model, rows=rows)
    position = dict.fromkeys(block, 0)
    by_function: dict[str, list[tuple[Pair, str]]] = {}
    for record in cross:
        places = []
        for group in (record["first"], record["second"]):
            places.append(position[group])
            position[group] += 1
        pair = Pair(
            block[record["first"]], places[0], block[record["second"]], places[1], block[record["holder"]]
        )  # fmt: skip
        by_function.setdefault(record["function"], []).append((pair, record["formula"]))
    for function, members in by_function.items():
        found = combine_columns(
            run, [pair for pair, _ in members], [function], noise.scales, rows=len(rows), secure=secure
        )
        text = dict(members)
        for holder, items in found.items():
            each = {holder: {"formulas": [text[pair] for pair, _ in items]}}
            run.ask(keep_rows_of, to=[holder], each=each, model=model, rows=rows)


OPERATIONS = (keep_parts, missing_rows, load_operands, keep_rows_of, add_combined)
