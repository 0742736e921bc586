"""The table ``[rules]`` of a job file: columns that must be there or must not, columns that go together, a budget."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from fedsift.jobs.text import Section, Source, nearest
from fedsift.select.rules import Rules

_COLUMNS = 'a list of columns as "party.column", such as ["bank.age"]'


class RulesSection(Section):
    """Columns are named ``"party.column"``."""

    always: list[str] = Field(default=[], description=_COLUMNS)
    never: list[str] = Field(default=[], description=_COLUMNS)
    groups: list[list[str]] = Field(default=[], description='a list of lists, such as [["shop.lat", "shop.lon"]]')
    budget: float | None = Field(default=None, ge=0, description="what the selection may cost, a number 0 or more")

    def check(self, source: Source, parties: Mapping[str, object]) -> None:
        """Name a column whose party is none of the job's; which columns a party has turns out later."""
        told = {"always": self.always, "never": self.never, "groups": [name for group in self.groups for name in group]}
        for key, columns in told.items():
            for column in columns:
                party = next((party for party in parties if column.startswith(f"{party}.")), None)
                if party is None:
                    raise source.error(
                        ("rules", key),
                        f"{column!r} is no column of a party{nearest(column, [f'{p}.' for p in parties])}",
                    )


def rules_of(
    section: RulesSection | None, party_prices: Mapping[str, float], column_prices: Mapping[str, float]
) -> Rules | None:
    """Nothing where a job has no rules; prices alone change no selection."""
    if section is None:
        return None
    return Rules(section.always, section.never, section.groups, section.budget, dict(party_prices), dict(column_prices))
