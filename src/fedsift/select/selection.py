"""The result: which columns, with which scores, found how. Frozen, versioned JSON, applies itself to a table."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedsift.core.encoding import source_of
from fedsift.core.evidence import Evidence
from fedsift.core.expressions import evaluate, parse, parties_of
from fedsift.core.files import plain, write_atomic
from fedsift.core.state import ModelStore
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError
from fedsift.select.keepers import ColumnKeeper, EncodedKeeper, EvidenceMaker, FeatureMaker

FORMAT = "fedsift-selection"
VERSION = 1


@dataclass(frozen=True)
class Selection:
    """What a selector found. ``for_party`` gives the part that one party may keep: choices.

    Examples
    --------
    >>> import fedsift as fs
    >>> found = fs.Selection("by hand", {"bank": ["income"], "shop": ["basket"]})
    >>> found.for_party("shop").selected
    {'shop': ['basket']}
    """

    method: str
    selected: dict[str, list[str]]
    scores: list[dict[str, Any]] = field(default_factory=list)  # party, feature, score, rank, selected
    parameters: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    engineered: list[str] = field(default_factory=list)  # formulas of new features, see core/expressions.py
    groups: dict[str, str] = field(default_factory=dict)  # party -> the name by which formulas call its columns
    evidence: list[dict[str, Any]] = field(default_factory=list)  # of one party: bins and weights, see core/evidence.py
    version: int = VERSION

    def frame(self) -> pd.DataFrame:
        """The scores as a DataFrame, best first."""
        columns = ["party", "feature", "score", "rank", "selected"]
        return pd.DataFrame(self.scores, columns=columns).sort_values("rank", kind="stable", ignore_index=True)

    @property
    def n_selected(self) -> int:
        return sum(len(columns) for columns in self.selected.values())

    def for_party(self, party: str, *, order: bool = False) -> Selection:
        """The part that one party may keep: which of its own columns were kept, by a score of 1 or 0.

        No exact score: from one number a column, or from ranks, labels follow (``docs/threat-model.md``). ``order``
        tells the order of the kept ones beside.
        """
        if party not in self.selected:
            raise ParameterError(f"no party {party!r} in this selection; it has {', '.join(self.selected)}")
        own = [dict(row) for row in self.scores if row["party"] == party]
        ranked = sorted(own, key=lambda row: (not row["selected"], row["rank"] if order and row["selected"] else 0))
        for rank, row in enumerate(ranked, 1):
            row.update(score=float(row["selected"]), rank=rank)
        kept = [row["feature"] for row in ranked if row["selected"]] if order else list(self.selected[party])
        return Selection(
            method=self.method,
            selected={party: kept},
            scores=own,
            parameters=self.parameters,
            security=self.security,
            engineered=self.engineered_for(party),
            groups={party: self.groups[party]} if party in self.groups else {},
            details={"woe": {"part": self.details["woe"]["part"]}} if "woe" in self.details else {},
        )

    def with_evidence(self, models: ModelStore) -> Selection:
        """One party's copy with the weights of evidence that its site has kept of this run, if it has any."""
        part = self.details.get("woe", {}).get("part", "")
        if part not in models:
            return self
        return replace(self, evidence=models.part(part, Evidence).as_dicts())

    def engineered_for(self, party: str) -> list[str]:
        """The formulas that this party can compute alone: over its own columns, or over columns that all have."""
        own = self.groups.get(party, party)
        return [text for text in self.engineered if set(parties_of(parse(text))) <= {own}]

    def apply(self, given: object, party: str | None = None) -> Table:
        """The table with the selected columns, then the engineered features (ids and label are kept)."""
        party = self._whose(party)
        table: Table = given if isinstance(given, Table) else Table.read(given, id=None, name=party)
        table = self._encoded(table, party)
        missing = [column for column in self.selected[party] if column not in table.columns]
        if missing:
            raise DataError(f"table {table.name!r} lacks the selected column {missing[0]!r} of party {party!r}")
        if self.evidence:
            return self._weighed(table, party)
        formulas = self.engineered_for(party)
        if not formulas:
            return table.select(self.selected[party])
        values = evaluate([parse(text) for text in formulas], table, self.groups.get(party, party))
        made = {text: values[:, i] for i, text in enumerate(formulas)}
        return table.select(self.selected[party]).with_columns(made)

    def _encoded(self, table: Table, party: str) -> Table:
        """With the columns that a selected name tells how to make (``month(joined)``), where they are not there."""
        told = [name for name in self.selected[party] if name not in table.columns and source_of(name) is not None]
        if not told:
            return table
        wanted = [*table.columns, *told]
        made = Table.read(table.to_polars(), id=None, columns=wanted, name=table.name)
        return table.with_columns({name: made.column(name) for name in told if name in made.columns})

    def _weighed(self, table: Table, party: str) -> Table:
        """Weights of evidence in the place of the columns that have them, the others as they are."""
        evidence = Evidence.read(self.evidence)
        weighed = {each.bins.column for each in evidence.columns}
        rest = [column for column in self.selected[party] if column not in weighed]
        return table.select(rest).with_columns(evidence.values(table))

    def transform(self, X: object, party: str | None = None) -> Any:
        """A party's own rows with the kept columns and what it can compute of the new ones: a table of the same kind.

        ``X`` is a pandas, polars or Arrow table, or a fedsift one; no other party is asked.
        """
        return self.apply(X, party) if isinstance(X, Table) else self.transformer(party).transform(X)

    def transformer(self, party: str | None = None) -> ColumnKeeper:
        """A plain scikit-learn transformer for one party's own pipeline."""
        party = self._whose(party)
        if self.evidence:
            return EvidenceMaker(columns=list(self.selected[party]), evidence=self.evidence)
        formulas = self.engineered_for(party)
        if not formulas and any(source_of(column) is not None for column in self.selected[party]):
            return EncodedKeeper(columns=list(self.selected[party]))
        if formulas:
            return FeatureMaker(columns=list(self.selected[party]), formulas=formulas)
        return ColumnKeeper(columns=list(self.selected[party]))

    def _whose(self, party: str | None) -> str:
        if party is None:
            if len(self.selected) != 1:
                raise ParameterError(f"this selection is for {', '.join(self.selected)}: say which with party=...")
            return next(iter(self.selected))
        if party not in self.selected:
            raise ParameterError(f"no party {party!r} in this selection; it has {', '.join(self.selected)}")
        return party

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **plain(asdict(self))}, indent=2, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write JSON; the file is complete or not there at all."""
        return write_atomic(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"there is no selection file {str(path)!r}") from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{str(path)!r} is not a selection file: {error}") from None
        return cls.from_dict(data, str(path))

    @classmethod
    def from_dict(cls, data: object, where: str = "the selection") -> Selection:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise DataError(f"{where} is not a fedsift selection")
        if data.get("version") != VERSION:
            told = f"{where} has version {data.get('version')}, this fedsift reads version {VERSION}"
            raise DataError(f"{told}: make it again with fedsift run JOB")
        fields = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        selected = fields.get("selected")
        if not isinstance(fields.get("method"), str) or not isinstance(selected, dict):
            raise DataError(f"{where} lacks 'method' or 'selected'")
        for party, columns in selected.items():
            if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
                raise DataError(f"{where}: the columns of party {party!r} must be a list of names")
        _check_formulas(fields.get("engineered", []), where)
        Evidence.read(fields.get("evidence", []))
        return cls(**fields)

    def __str__(self) -> str:
        lines = [f"{self.method}: {self.n_selected} columns selected"]
        lines += [f"  {party}: {', '.join(columns) or '(none)'}" for party, columns in self.selected.items()]
        lines += [f"  new: {text}" for text in self.engineered]
        if "line" in self.security:
            lines.append(f"  {self.security['line']}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(party)}</td><td>{html.escape(', '.join(columns))}</td></tr>"
            for party, columns in self.selected.items()
        )
        head = f"<b>{html.escape(self.method)}</b>: {self.n_selected} columns selected"
        return f"<p>{head}</p><table><tr><th>party</th><th>columns</th></tr>{rows}</table>"


def _check_formulas(formulas: object, where: str) -> None:
    if not isinstance(formulas, list):
        raise DataError(f"{where}: 'engineered' must be a list of formulas")
    for text in formulas:
        try:
            parse(text)
        except ParameterError as error:
            raise DataError(f"{where}: an engineered feature cannot be read: {error}") from None
