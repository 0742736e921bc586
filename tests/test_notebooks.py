"""The notebooks run from top to bottom, hold what they assert, and their pages show this very code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402

NAMES = sorted(path.stem for path in notebooks.SOURCES.glob("*.py"))


def test_there_are_three():
    assert NAMES == ["comparison", "credit_risk", "hospitals"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_its_answer(name):
    cells = notebooks.cells_of((notebooks.SOURCES / f"{name}.py").read_text())
    notebooks.run(cells, name)
    made = notebooks.page(cells, name)
    assert len(re.findall(r"^assert ", made, re.MULTILINE)) >= 2, "it says what it found, and fails where it does not"
    kept = (notebooks.PAGES / f"{name}.md").read_text()
    assert list(notebooks.code_of(kept)) == list(notebooks.code_of(made)), "make notebooks writes the page again"
    texts = [cell.text for cell in cells if not cell.is_code]
    assert all(text in kept for text in texts)
    content = json.loads(notebooks.as_ipynb(cells))
    assert (content["nbformat"], len(content["cells"])) == (4, len(cells))
    assert {cell["cell_type"] for cell in content["cells"]} == {"code", "markdown"}


def test_a_failing_cell_stops_the_run():
    cells = notebooks.cells_of("# %%\nx = 2\nx\n# %% [markdown]\n# Text\n# %%\nassert x == 3\n")
    with pytest.raises(AssertionError):
        notebooks.run(cells, "made up")
    assert (cells[0].output, cells[1].text, cells[2].output) == ("2", "Text", "")
