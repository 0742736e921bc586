"""What the label holder is told about a model that is to grow: its settings, rows and samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.models.boost.tree import TreeSettings

Plain = bool | int | float | str | None
#: A plan as it travels.
PlanFields = dict[str, Plain | dict[str, Plain]]


@dataclass(frozen=True)
class Plan:
    """One model. ``rows`` is a rule by which the label holder draws the rows itself (``rows.py``)."""

    settings: TreeSettings
    n_estimators: int
    bins: int = 32
    rows: dict[str, Plain] = field(default_factory=lambda: {"kind": "all"})
    base_score: float | None = None
    subsample: float = 1.0
    top_rate: float = 1.0  # below 1: gradient-based sampling
    other_rate: float = 0.0
    multi_output: bool = False
    early_stopping_rounds: int = 0
    seed: int = 0

    @property
    def by_gradient(self) -> bool:
        return self.top_rate < 1

    def as_dict(self) -> PlanFields:
        return asdict(self)

    @classmethod
    def read(cls, fields: PlanFields, party: Party) -> Plan:
        """At the label holder: exactly these fields, and cuts that leave as many rows as the accepted job says."""
        if set(fields) != set(cls.__dataclass_fields__) or not isinstance(fields["settings"], dict):
            raise OperationRefused(party.name, "begin_boosting", "a plan has other fields than these")
        rest = {name: value for name, value in fields.items() if name != "settings"}
        plan = cls(settings=TreeSettings.read(fields["settings"]), **rest)  # type: ignore[arg-type]
        job = party.run.job
        if job is not None and plan.settings.min_rows < job.smallest_cell:
            raise OperationRefused(party.name, "begin_boosting", "cuts leave fewer rows than the accepted job allows")
        return plan
