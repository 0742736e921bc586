"""What a journal comes to: what was let out so far, and what is left of the budgets. For the site's own people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fedsift.crypto.dp import rho_to_epsilon
from fedsift.site.journal import Journal, Line, a_day_ago
from fedsift.site.journal_rows import ROW_BY_ROW, sides_told
from fedsift.site.journal_rules import ANSWER, DELTA, REFUSAL, VOID
from fedsift.site.policy import Policy

DECISION = "decision"  # the form of a line that says what people decided: nothing was let out by it


@dataclass(frozen=True)
class JournalFacts:
    """``most_bits_a_row`` beside ``max_bits``, ``epsilon`` beside ``total_epsilon``, ``most_sides`` beside
    ``max_sides``, ``predicted_alone`` beside ``few_rows_a_day``: the second is the limit."""

    party: str
    known_rows: int
    rows_told_about: int
    smallest_atom: int | None
    min_rows: int
    most_bits_a_row: float
    max_bits: float | Literal["any"]
    rho: float
    epsilon: float
    total_epsilon: float
    most_sides: float  # told of a row, for each bit that its columns hold
    max_sides: float | Literal["any"]
    predicted_alone: int  # rows within a day, or with fewer others than min_rows
    few_rows_a_day: int
    lines: list[Line]

    @classmethod
    def of(cls, kept: Journal, party: str, policy: Policy) -> JournalFacts:
        lines, rho = kept.lines(), kept.total_rho()
        refusals = sum(line.form == REFUSAL for line in lines) / max(1, len(kept.rows))
        return cls(
            party=party,
            known_rows=len(kept.rows),
            rows_told_about=int((kept.atoms.codes > 0).sum()),
            smallest_atom=kept.atoms.smallest(np.arange(len(kept.atoms.bits)) > 0, kept.persons),
            min_rows=policy.min_rows,
            most_bits_a_row=float(kept.atoms.bits.max()) + refusals,
            max_bits=policy.max_bits,
            rho=rho,
            epsilon=rho_to_epsilon(rho, DELTA) if rho > 0 else 0.0,
            total_epsilon=policy.total_epsilon,
            most_sides=float(sides_told(kept).max(initial=0.0)),
            max_sides=policy.max_sides,
            predicted_alone=sum(
                line.rows
                for line in lines
                if line.form == ROW_BY_ROW and line.rows < policy.min_rows and line.at >= a_day_ago()
            ),
            few_rows_a_day=policy.few_rows_a_day,
            lines=lines,
        )

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        told = [{**asdict(line), "row_set": line.row_set.hex(), "digest": line.digest.hex()} for line in self.lines]
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "lines": told}


def what_of(line: Line) -> str:
    """What a line is about, for people."""
    if line.form == DECISION:
        return f"{line.method}: {line.operation} {line.note}"
    if line.operation == ANSWER:
        return f"{ANSWER} of {line.method}"
    if line.note.endswith(VOID):
        return f"{line.operation} (noise, void)"
    return f"refused: {line.operation}" if line.form == REFUSAL else line.operation
