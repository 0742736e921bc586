"""Cross-party features on more rows: what a site remembers of a fit, and how the columns are made for a view.

A holder keeps the released values of its training rows at its own site, by row id. Asked for the same rows again it
uses those: a second draw of the noise would halve it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.candidates import Pool, evaluate_at
from fedsift.engineer.flafe.combine import combine_columns
from fedsift.engineer.flafe.features import CrossFeature, Pair, check_places, read_record
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.products import Combined, NoisyColumns, Operands
from fedsift.errors import SecurityError
from fedsift.select.engineered import add_engineered, own_features
from fedsift.select.selection import Selection


@dataclass(frozen=True)
class OwnPart:
    """What a party must remember of a kept feature: its operand, and where in its pool the column is (-1: not here)."""

    formula: str
    operand: str
    position: int


@dataclass(frozen=True)
class CombinedStore:
    """At a site, after a fit: its operands of kept features, and the released values of those it holds, by row id."""

    operands: list[str]
    values: dict[str, dict[Hashable, float]]
    noise: NoisyColumns | None = None  # under an epsilon: what was planned for a row
    released: set[Hashable] = field(default_factory=set)  # ids of rows whose noise is spent


def parts_of(cross: Sequence[CrossFeature], group: str) -> list[OwnPart]:
    """What the parties of a group must remember of the features that were kept."""
    return [
        OwnPart(
            feature.formula,
            feature.left if group == feature.first else feature.right,
            feature.position if group == feature.holder else -1,
        )
        for feature in cross
        if group in (feature.first, feature.second)
    ]


def _store(party: Party, model: str) -> CombinedStore:
    return party.models.part(model, CombinedStore)


@operation("flafe.keep_parts", when="protection=columns|open", times=1, discloses="control", about="acknowledgement")
def keep_parts(party: Party, *, model: str, records: list[dict[str, str | int]]) -> None:
    """Remember, at this site, the operands of kept features and the released values of those it holds."""
    ids, pool = party.table.ids.tolist(), party.held(Pool).values
    parts = [read_record(OwnPart, record, party.name) for record in records]
    check_places(party, "keep_parts", (part.position for part in parts if part.position >= 0), pool.shape[1])
    values = {part.formula: dict(zip(ids, pool[:, part.position].tolist())) for part in parts if part.position >= 0}
    noise = party.held(NoisyColumns) if NoisyColumns in party.state else None
    operands = [part.operand for part in parts]
    party.models.keep(model, CombinedStore(operands, values, noise, set(ids)))


@operation(
    "flafe.missing_rows",
    times=1,
    discloses="pseudonymous",
    about="positions of rows whose combined features it does not have yet",
    reply=Array("i"),
)
def missing_rows(party: Party, *, model: str) -> np.ndarray:
    store = _store(party, model).values
    missing = {i for known in store.values() for i, each in enumerate(party.table.ids.tolist()) if each not in known}
    return np.array(sorted(missing), dtype=np.int64)


@operation("flafe.load_operands", times=1, discloses="control", about="acknowledgement")
def load_operands(party: Party, *, model: str, rows: NDArray[np.int64]) -> None:
    """Own operands of some rows; under an epsilon only of rows that were never released."""
    store = _store(party, model)
    if store.noise is not None:
        ids = set(party.table.ids[rows].tolist())
        if ids & store.released:
            raise SecurityError(f"party {party.name!r}: a row with noise is released once")
        store.released.update(ids)
        party.keep(replace(store.noise, left=store.noise.planned))
    party.keep(Operands(evaluate_at(party, store.operands)[rows]))
    party.keep(Combined([]))


@operation("flafe.keep_rows_of", times=4, discloses="control", about="acknowledgement")
def keep_rows_of(party: Party, *, model: str, rows: np.ndarray, formulas: list[str]) -> None:
    """Put newly released values beside those known already."""
    store = _store(party, model).values
    ids = party.table.ids[rows].tolist()
    for text, values in zip(formulas, party.held(Combined).matrix(len(rows)).T):
        for each, value in zip(ids, values.tolist()):
            store[text].setdefault(each, value)


@operation("flafe.add_combined", times=1, discloses="control", about="acknowledgement")
def add_combined(party: Party, *, model: str, formulas: list[str], view: str) -> None:
    """Show the combined features that this party holds as columns of the view; other rows have no value there."""
    store, site = _store(party, model).values, party.site
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
    fed: Federation, layout: Layout, selection: Selection, cross: list[CrossFeature], scales: dict[str, float],
    model: str, open: bool,
) -> Federation:  # fmt: skip
    """The view of ``fed`` with all engineered features. Rows not released before are combined first."""
    holders = [name for name in layout.parties if any(feature.holder == layout.group_of(name) for feature in cross)]
    with fed.session() as run:
        missing = run.ask(missing_rows, to=holders, model=model) if holders else {}
        for block in layout.blocks:
            rows = np.array(
                sorted({int(i) for n in block.values() if n in missing for i in missing[n]}), dtype=np.int64
            )
            if len(rows):
                _combine_new(run, block, cross, rows, scales, model, open)
        view = fed.new_view("combined")
        run.ask(add_engineered, to=fed.parties, each=own_features(fed, selection), view=view)
        held = {
            name: {"formulas": [each.formula for each in cross if each.holder == layout.group_of(name)]}
            for name in fed.parties
        }
        run.ask(add_combined, to=fed.parties, each=held, model=model, view=view)
    return fed.named_view(view)


def _combine_new(
    run: Federation, block: dict[str, str], cross: list[CrossFeature], rows: np.ndarray, scales: dict[str, float],
    model: str, open: bool,
) -> None:  # fmt: skip
    run.ask(load_operands, to=list(block.values()), model=model, rows=rows)
    position = dict.fromkeys(block, 0)
    by_function: dict[str, list[tuple[Pair, str]]] = {}
    for feature in cross:
        places = []
        for group in (feature.first, feature.second):
            places.append(position[group])
            position[group] += 1
        pair = Pair(block[feature.first], places[0], block[feature.second], places[1], block[feature.holder])
        by_function.setdefault(feature.function, []).append((pair, feature.formula))
    for function, members in by_function.items():
        found = combine_columns(run, [pair for pair, _ in members], [function], scales, rows=len(rows), open=open)
        text = dict(members)
        for holder, items in found.items():
            each = {holder: {"formulas": [text[pair] for pair, _ in items]}}
            run.ask(keep_rows_of, to=[holder], each=each, model=model, rows=rows)


OPERATIONS = (keep_parts, missing_rows, load_operands, keep_rows_of, add_combined)
