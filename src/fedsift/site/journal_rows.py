"""What is told row by row, over all jobs: scores that a label holder reads, and on which side of a cut a row lies.

Neither fits into a budget of bits a row (``max_bits``). Scores are counted: each is a further equation about a row.
Sides of cuts (left or right, while trees grow with ``protection="coordinator"`` or ``"open"`` and when they predict
other rows than they grew on) are counted against what the columns hold: of a column with k candidate cuts log2(1 + k)
bits say in which of its bins a row lies, so as many sides of a row as all its columns hold bits could, well chosen,
place every cell. Trees do not choose them for that: with three times as many (``max_sides``) the audit's attack placed
two fifths and less of the cells that a guess does not (a table made for it, tests/hostile/test_sides.py); a search of
default size with such trees, which tells many times as much, up to five sixths (docs/exposure.md). What is counted is
known to the coordinator already (how many trees took a cut of this party's, how many candidate cuts each column has),
so a refusal tells nothing new.
"""

from __future__ import annotations

import numpy as np

from fedsift.site.journal import Journal, Line, RowSet, a_day_ago
from fedsift.site.policy import Policy

ROW_BY_ROW, SIDES = "row by row", "sides of cuts"  # forms of lines


def check_scores(journal: Journal, policy: Policy, party: str, operation: str, rows: RowSet) -> None:
    """Refuse one more score of each row where some of them were read too often."""
    often = np.zeros(len(journal.rows), dtype=np.int64)
    for line in journal.lines(f"form = '{ROW_BY_ROW}'"):
        often[journal.members(line.row_set)] += 1
    policy.check_row_scores(party, operation, 1 + int(often[journal.inside(rows)].max(initial=0)))


def check_few(journal: Journal, policy: Policy, party: str, operation: str, rows: RowSet) -> None:
    """Refuse predictions of few rows beyond so many rows a day."""
    few = [line.rows for line in journal.lines(f"form = '{ROW_BY_ROW}' AND at >= '{a_day_ago()}'")]
    today = sum(number for number in few if number < policy.min_rows)
    policy.check_few_rows(party, operation, today + len(rows.numbers))


def enter_sides(journal: Journal, policy: Policy, party: str, rows: RowSet, line: Line) -> None:
    """Sides of cuts of these rows, before they leave; refused where their columns would be told by more than they may.

    An answer that was given before, about the same rows, tells nothing new.
    """
    if line.digest and journal.has("form = ? AND row_set = ? AND digest = ?", SIDES, rows.id, line.digest):
        return
    told = sides_told(journal)[journal.inside(rows)].max(initial=0.0)
    policy.check_sides(party, line.operation.partition(".")[2], float(told) + line.bits)
    journal.keep_set(rows, exact=False)
    if line.digest:
        journal.add(line)
    else:
        journal.add_up(line)


def sides_told(journal: Journal) -> np.ndarray:
    """Of each known row: the sides of cuts that were told, for each bit that its columns hold."""
    told = np.zeros(len(journal.rows))
    for line in journal.lines(f"form = '{SIDES}'"):
        told[journal.members(line.row_set)] += line.bits
    return told
