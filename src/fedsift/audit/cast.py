"""Who plays in a rehearsal: this site's own table, and stand-ins for what it does not have.

Ways to fill the parts of a job, all in this process and on at most ``MOST_ROWS`` rows:

- ``all_parties``: every party's file is here (a simulation). Nothing is made up.
- ``label_holder``: the site has the label. Its own columns are dealt to all parties of the job; it keeps those that
  tell most about the label. Partners that know much by themselves would hide what the messages add (the baseline), so
  they get the weaker ones. And partners may bring many columns, each of which is one more equation for whoever reads
  scores or sums: every partner is given mixtures of its columns under noise until it has ``columns`` of them.
- ``passive``: the site has columns only. A label is planted that its columns explain to a chosen degree (the AUC of the
  combination that makes it), and the label holder and the other parties get made-up columns related to that label.

- ``parties_with_rows``: horizontal or hybrid parties whose files are all here; ``one_of_the_rows``: a horizontal party
  alone, whose own rows are dealt to all parties of the job.

Rows that are not used are the control: attacks that claim to know a public sample of such rows get these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsift.audit.scoring import auc, standardise
from fedsift.audit.views import numbers
from fedsift.core.labels import is_amount
from fedsift.core.splits import train_test_rows
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError

MOST_ROWS = 4000
MOST_FRESH = 1000
_LEAST_ROWS = 20
_LEAST_FRESH = 50
_MADE_UP = 4  # columns of a party of which nothing is known
LEAST_COLUMNS = 20  # of a partner, unless it is said how many it brings
_PLANTED_FROM = 5  # columns that make the planted label
_ID, _LABEL = "row", "label"


@dataclass(frozen=True)
class Cast:
    """The tables of a rehearsal by party, and in words what was made up."""

    tables: Mapping[str, Table]
    active: str | None  # the label holder; none where several parties have rows and labels of their own
    by_id: bool
    stand_ins: str
    fresh: Mapping[str, Table] | None = None

    @property
    def n_rows(self) -> int:
        """Rows of the label holder's table: with ids some of them may have no partner. Else of all holders."""
        return self._rows(self.tables)

    @property
    def n_fresh(self) -> int:
        return 0 if self.fresh is None else self._rows(self.fresh)

    def _rows(self, tables: Mapping[str, Table]) -> int:
        if self.active is not None:
            return tables[self.active].n_rows
        return sum(table.n_rows for table in tables.values() if table.label is not None)


def all_parties(tables: Mapping[str, Table], active: str, *, by_id: bool, rows: int = MOST_ROWS) -> Cast:
    """The parties' own tables, cut to ``rows`` of the rows that all have."""
    places = _common(tables) if by_id else {name: np.arange(table.n_rows) for name, table in tables.items()}
    count = min(len(place) for place in places.values())
    used, rest = _drawn(count, rows, tables[active].take(places[active][:count]).label)
    taken = {name: table.take(places[name][used]) for name, table in tables.items()}
    fresh = {name: table.take(places[name][rest]) for name, table in tables.items()}
    return Cast(taken, active, by_id, "nothing was made up: every party's file is here", _enough(fresh, active))


def parties_with_rows(tables: Mapping[str, Table], *, by_id: bool, partition: str, rows: int = MOST_ROWS) -> Cast:
    """Horizontal parties: some rows of each, the others for the control. Hybrid ones as they are, without control."""
    if partition == "hybrid":
        if max(table.n_rows for table in tables.values()) > MOST_ROWS:
            raise DataError(f"an audit of hybrid parties takes tables of {MOST_ROWS:,} rows at most, for time")
        return Cast(tables, None, by_id, "nothing was made up: every party's file is here")
    used, fresh = {}, {}
    for name, table in tables.items():
        most = max(_LEAST_ROWS, rows // len(tables))
        here, rest = _drawn(table.n_rows, most, table.label, -(-_LEAST_FRESH // len(tables)))
        used[name], fresh[name] = table.take(here), table.take(rest)
    spare = min(table.n_rows for table in fresh.values())
    stand_ins = "nothing was made up: every party's file is here"
    return Cast(used, None, by_id, stand_ins, fresh if spare * len(fresh) >= _LEAST_FRESH else None)


def one_of_the_rows(table: Table, name: str, parties: Sequence[str], *, rows: int = MOST_ROWS) -> Cast:
    """A horizontal party alone: its own rows are dealt to all parties of the job."""
    used, rest = _drawn(table.n_rows, rows, table.label)
    order = [name, *(party for party in parties if party != name)]
    parts = {party: table.take(used[place :: len(order)]) for place, party in enumerate(order)}
    fresh = {party: table.take(rest[place :: len(order)]) for place, party in enumerate(order)}
    stand_ins = f"{name}'s own rows were dealt to {len(order)} parties"
    return Cast({party: parts[party] for party in parties}, None, False, stand_ins,
                fresh if len(rest) >= _LEAST_FRESH else None)  # fmt: skip


def label_holder(
    table: Table, name: str, parties: Sequence[str], *, by_id: bool, rows: int = MOST_ROWS, columns: int | None = None
) -> Cast:
    """The label holder's own columns, dealt to all parties of the job, and mixtures of them for the partners.

    ``columns`` are those that each partner brings; by default as many as this party has, ``LEAST_COLUMNS`` at least.
    """
    if columns is not None and columns < 1:
        raise ParameterError(f"a partner brings 1 column or more (--columns); got {columns}")
    label = table.label
    if label is None:
        raise DataError(f"party {name!r} has no label in its file")
    used, rest = _drawn(table.n_rows, rows, label)
    order = [name, *(party for party in parties if party != name)]
    groups = _dealt(numbers(table), read_numbers(label), len(order))
    wanted = max(table.n_columns, LEAST_COLUMNS) if columns is None else columns
    frames = {}
    for place, party in enumerate(order):
        own = table.select([table.columns[i] for i in groups[place][: None if party == name else wanted]])
        frames[party] = _frame(own)
        if party != name:
            frames[party] = _filled(frames[party], numbers(own), label, wanted, place)
    frames[name][_free(frames[name], str(table.label_name))] = label
    stand_ins = (
        f"{name}'s own columns were dealt to {len(order)} parties; each partner has {wanted:,} columns, those beyond "
        "its share mixtures of the same under noise"
    )
    return _made(frames, name, used, rest, stand_ins, by_id, table)


def passive(
    table: Table,
    name: str,
    parties: Sequence[str],
    active: str,
    *,
    by_id: bool,
    strength: float = 0.8,
    amount: bool = False,
    rows: int = MOST_ROWS,
) -> Cast:
    """A party without the label: its own columns, and a planted label that they explain with an AUC of ``strength``."""
    if not 0.5 <= strength <= 1:
        raise ParameterError(f"the strength of the planted label is an AUC between 0.5 and 1; got {strength}")
    used, rest = _drawn(table.n_rows, rows, None)
    label = planted(numbers(table), strength, amount=amount)
    others = [party for party in parties if party != name]
    frames = dict(zip(others, _related(label, len(others))))
    frames[name] = _frame(table)
    frames = {party: frames[party] for party in parties}
    frames[active][_LABEL] = label if amount else np.where(label > 0, "yes", "no")
    stand_ins = (
        f"{active} got a planted label that {name}'s columns explain with an AUC of {strength:g}; "
        f"{', '.join(others)} got {_MADE_UP} made-up columns each"
    )
    return _made(frames, active, used, rest, stand_ins, by_id, table)


def planted(columns: np.ndarray, strength: float, *, amount: bool = False) -> np.ndarray:
    """A label (0 or 1, or an amount) that a combination of some columns ranks with an AUC of ``strength``."""
    rng = np.random.default_rng(0)
    values = standardise(columns)
    chosen = rng.permutation(values.shape[1])[:_PLANTED_FROM]
    score = standardise((values[:, chosen] @ rng.normal(size=len(chosen)))[:, None])[:, 0]
    noise = rng.normal(size=len(score))
    low, high = 0.0, 1.0
    for _ in range(30):  # the share of the score in the label: the AUC grows with it
        share = (low + high) / 2
        drawn = share * score + (1 - share) * noise
        low, high = (share, high) if auc(score, (drawn > np.median(drawn)) * 1) < strength else (low, share)
    drawn = high * score + (1 - high) * noise
    return drawn if amount else (drawn > np.median(drawn)).astype(np.int64)


def read_numbers(label: np.ndarray) -> np.ndarray:
    """A label as numbers, for made-up columns that are related to it: amounts as they are, classes by their code."""
    if label.dtype.kind in "iuf" and is_amount(label):
        return label.astype(np.float64)
    return np.unique(label.astype(str), return_inverse=True)[1].astype(np.float64)


# --- parts -----------------------------------------------------------------------------------------------------------


def _common(tables: Mapping[str, Table]) -> dict[str, np.ndarray]:
    """Positions of the ids that all tables have, in the same order."""
    shared = set.intersection(*(set(table.ids) for table in tables.values()))
    if len(shared) < _LEAST_ROWS:
        raise DataError(
            f"the parties' files share {len(shared)} ids; an audit needs {_LEAST_ROWS} rows or more (id = ... under "
            "each [parties.NAME] names the columns that are matched)"
        )
    order = sorted(shared)
    places = {}
    for name, table in tables.items():
        row_of = {id: row for row, id in enumerate(table.ids)}
        places[name] = np.array([row_of[id] for id in order])
    return places


def _drawn(
    count: int, most: int, label: np.ndarray | None, fewest: int = _LEAST_FRESH
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that take part and a fifth for the control (``fewest`` or none), classes in proportion to the label's."""
    if count < _LEAST_ROWS:
        raise DataError(f"there are {count} rows; an audit needs {_LEAST_ROWS} or more to say anything")
    if most < _LEAST_ROWS:
        raise ParameterError(f"--rows is {most}; an audit needs {_LEAST_ROWS} rows or more to say anything")
    kept = min(count, most, MOST_ROWS)
    spare = min(count // 5, MOST_FRESH) if count >= 5 * fewest else 0
    kept = min(kept, count - spare)
    if kept == count:
        return np.arange(count), np.arange(0)
    used, rest = train_test_rows(count, kept, stratify_on=label, random_state=0)
    return used, np.random.default_rng(0).permutation(rest)[:MOST_FRESH]


def _enough(fresh: Mapping[str, Table], active: str) -> Mapping[str, Table] | None:
    return fresh if fresh[active].n_rows >= _LEAST_FRESH else None


def _frame(table: Table) -> pd.DataFrame:
    """The columns alone: neither id nor label. Codes that look like numbers become text, so that they stay codes."""
    frame = table.to_pandas().drop(columns=[c for c in (table.id_name, table.label_name) if c is not None])
    for column, kind in table.kinds.items():
        if kind == "categorical":
            frame[column] = frame[column].astype(object).map(lambda value: None if pd.isna(value) else str(value))
    return frame


def _dealt(columns: np.ndarray, label: np.ndarray, parties: int) -> list[list[int]]:
    """The columns that tell most about the label to the first party, the others to the rest in turn."""
    relation = np.abs(standardise(columns).T @ standardise(label[:, None])[:, 0])
    order = [int(place) for place in np.argsort(-relation, kind="stable")]
    kept = -(-len(order) // parties)
    others = [sorted(order[kept:][place :: parties - 1]) for place in range(parties - 1)]
    return [sorted(order[:kept]), *others]


def _filled(frame: pd.DataFrame, source: np.ndarray, label: np.ndarray, columns: int, seed: int) -> pd.DataFrame:
    """More columns: two of the party's at random, mixed, under three times as much noise (the label's without any).

    Weak columns are as good an equation as strong ones, and leave the baseline of their owner where it was.
    """
    rng = np.random.default_rng(seed)
    values = standardise(source if source.shape[1] else read_numbers(label)[:, None])
    mixed = {}
    for number in range(columns - frame.shape[1]):
        pair, noise = values[:, rng.integers(values.shape[1], size=2)], rng.normal(size=len(values))
        mixed[f"mixed {number + 1}"] = pair @ rng.normal(size=2) / 3 + noise
    return pd.concat([frame, pd.DataFrame(mixed, index=frame.index)], axis=1)


def _related(label: np.ndarray, parties: int) -> list[pd.DataFrame]:
    """Made-up columns, related to the label by degrees, for parties of which nothing is known."""
    rng = np.random.default_rng(1)
    target = standardise(np.asarray(label, dtype=np.float64)[:, None])[:, 0]
    return [
        pd.DataFrame({f"made up {i + 1}": i / _MADE_UP * target + rng.normal(size=len(target))
                      for i in range(_MADE_UP)})
        for _ in range(parties)
    ]  # fmt: skip


def _free(frame: pd.DataFrame, name: str) -> str:
    while name in frame.columns:
        name += "_"
    return name


def _made(
    frames: Mapping[str, pd.DataFrame], active: str, used: np.ndarray, rest: np.ndarray, stand_ins: str, by_id: bool,
    source: Table,
) -> Cast:  # fmt: skip
    """Tables from frames; with ids every row has one, so that the alignment is played, too."""

    def table(party: str, rows: np.ndarray) -> Table:
        frame = frames[party].iloc[rows].reset_index(drop=True)
        label = str(frame.columns[-1]) if party == active else None
        id = None
        if by_id:
            id = _free(frame, _ID)
            frame = frame.assign(**{id: [str(row) for row in rows]})
        codes = [c for c in frame.columns if c not in (id, label) and source.kinds.get(c) == "categorical"]
        return Table.read(frame, id=id, label=label, categorical=codes, name=party)

    fresh = {party: table(party, rest) for party in frames} if len(rest) >= _LEAST_FRESH else None
    return Cast({party: table(party, used) for party in frames}, active, by_id, stand_ins, fresh)
