"""The lines of the first review that issue 20 names, on the data sets that the review read them from.

``LINES`` says of each number which conversation stands for it, on which sets, and whose messages are read for what. All
attacks of those roles count, on any message: what is sent in the place of the old one is read too. Figures are those of
``docs/exposure.md`` (``benchmarks/results/exposure.jsonl``, which a machine with the data writes); where FEDSIFT_DATA
names the folder the quick ones are measured here anew, on the messages of this very code.

On generated tables, beside a twin that still has the old behaviour: ``test_audit_lines.py``. Line 13 is a key's, not a
data set's: ``test_attacks_exponents.py``.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DATA = os.environ.get("FEDSIFT_DATA")


@dataclass(frozen=True)
class Line:
    """Conversations of ``benchmarks/exposure_cases.py`` and where they are measured."""

    cases: tuple[str, ...]
    sets: tuple[str, ...]
    roles: tuple[str, ...]
    target: str = "labels"
    luck: float = 0.05  # of 62 to 800 rows
    quick: tuple[str, ...] = ()  # sets whose figures are measured anew in seconds


TALL = ("wdbc", "phishing", "bank", "default")
WIDE = ("colon", "leukemia", "arcene")
LINES = {
    1: Line(
        ("top_gain, coordinator, few trees", "pso_evffs, coordinator, small swarm"), TALL, ("passive", "coordinator"),
        quick=("wdbc",),
    ),
    2: Line(("hostile draw_rows",), TALL, ("coordinator",), quick=TALL),
    3: Line(("secureboost, coordinator, early stopping", "fedsdg"), TALL, ("passive",), quick=("wdbc",)),
    6: Line(("sffs", "information_value", "gini", "muse"), WIDE, ("passive",), luck=0.1, quick=("colon", "leukemia")),
    7: Line(
        ("federated_lasso", "vertical_logistic", "hyfdca"), ("sonar", "musk", "colon"), ("passive",),
        luck=0.06, quick=("sonar",),
    ),
    11: Line(("gini",), ("colon", "leukemia", "phishing"), ("active",), "columns", quick=("phishing",)),
    12: Line(("vertical_flafe, epsilon 1",), ("phishing", "bank", "default"), ("passive", "active"), "membership"),
    15: Line(("sffs, two jobs",), ("wdbc",), ("passive",), luck=0.2, quick=("wdbc",)),  # of 25 rows
}  # fmt: skip
#: Their reader is sent nothing in the place of what it read, so no attack applies; the page says "gone" of this one.
NOTHING_IS_SENT = {11: "integers_give_tables"}
ELSEWHERE = {13: "test_attacks_exponents.py::test_a_mask_longer_than_any_sum_hides_the_size"}


@pytest.fixture(scope="module")
def pages():
    """The benchmark's modules, which are not part of the package."""
    pytest.importorskip("torch")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import exposure
    import exposure_page

    yield exposure, exposure_page
    sys.path.remove(str(ROOT / "benchmarks"))


def adds_nothing(line: Line, rows: list[dict[str, Any]]) -> int:
    """How many attacks there were, none of which adds anything."""
    read = [row for row in rows if row["attack"] and row["role"] in line.roles and row["target"] == line.target]
    over = [row for row in read if row["value"] >= max(row["guess"], row["baseline"]) + line.luck]
    assert not over, over
    return len(read)


def test_every_number_of_the_issue_has_its_test():
    assert {*LINES, *ELSEWHERE} == {1, 2, 3, 6, 7, 11, 12, 13, 15}
    for place in ELSEWHERE.values():
        file, name = place.split("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("number", LINES)
def test_what_was_measured_adds_nothing_to_guess_and_baseline(pages, number):
    line, cells = LINES[number], pages[1].by_cell()
    measured = [cells[case][name] for case in line.cases for name in line.sets if name in cells.get(case, {})]
    assert {name for case in line.cases for name in cells.get(case, {})} >= set(line.sets)
    found = sum(adds_nothing(line, cell.now) for cell in measured)
    assert (found > 0) == (number not in NOTHING_IS_SENT)
    if number in NOTHING_IS_SENT:
        history = [row for cell in measured for row in (*cell.now, *cell.before.values())]
        assert [row for row in history if row["attack"] == NOTHING_IS_SENT[number] and row["note"].startswith("gone")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few rounds show the same messages
@pytest.mark.skipif(not DATA, reason="FEDSIFT_DATA names no folder")
@pytest.mark.parametrize(
    ("number", "case", "name"),
    [(n, case, name) for n, line in LINES.items() for case in line.cases for name in line.quick],
)
def test_the_messages_of_this_code_add_nothing_to_guess_and_baseline(pages, number, case, name):
    adds_nothing(LINES[number], pages[0].measure(case, name, Path(DATA)))
