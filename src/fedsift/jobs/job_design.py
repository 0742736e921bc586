"""The table ``[design]`` of a job file: whose row it is, when it was, what it counts, whether something happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from fedsift.core.design import Design
from fedsift.errors import ParameterError
from fedsift.jobs.text import Section, Source

_COLUMN = 'a column as "party.column", such as "bank.customer"'


class DesignSection(Section):
    """Columns are named ``"party.column"``; they take part in nothing else."""

    group: str | None = Field(default=None, description=_COLUMN)
    time: str | None = Field(default=None, description=_COLUMN)
    gap: float = Field(default=0.0, ge=0, description="how much time is left out, a number 0 or more, days for a date")
    weight: str | None = Field(default=None, description=_COLUMN)
    class_weight: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        default=None, description='"balanced", or by class what its rows count, such as {no = 1, yes = 5}'
    )
    event: str | None = Field(default=None, description=_COLUMN)
    label: str | None = Field(default=None, description=_COLUMN)
    labels: list[str] = Field(default=[], description='a list of columns as "party.column", such as ["bank.churn"]')

    def check(self, source: Source, parties: Mapping[str, object], partition: str, labels: Sequence[str]) -> None:
        """Name what makes no sense together, and a column whose party is none of the job's."""
        own = partition == "horizontal" and design_of(self).of_rows
        if partition != "vertical" and not own:
            raise source.error(
                ("design",),
                f"a design is for vertical parties; these are {partition}. Horizontal ones may have a weight alone, "
                'each party its own column: weight = "*.column"',
            )
        try:
            design_of(self).check(parties.keys(), None if own else labels[0])
        except ParameterError as error:
            raise source.error(("design",), str(error).removeprefix("design: ")) from None


def design_of(section: DesignSection | None) -> Design:
    """No design where a job has no such table."""
    return Design() if section is None else Design(**section.model_dump())
