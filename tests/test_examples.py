"""The examples run, print what they promise, and stay short enough for a newcomer."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a script as ``python examples/NAME.py ARGUMENTS`` does; what it printed."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_first_selection_finds_the_columns_and_says_who_learned_what(run, tmp_path):
    shown = run("first_selection.py", tmp_path / "report.html")
    assert "240 customers are in both files" in shown
    assert "shop: late_payments, returns_share" in shown
    assert "class of each row, encrypted [ciphertext]" in shown
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_compare_methods_has_every_method_and_the_nulls(run, tmp_path):
    shown = run("compare_methods.py", tmp_path / "compare.html")
    for words in ("information value", "gini", "sffs", "all features", "3 random columns", "has the highest accuracy"):
        assert words in shown
    assert "<h1>3 methods" in (tmp_path / "compare.html").read_text()


def test_engineered_features_finds_the_planted_pair_and_it_helps_on_new_rows(run):
    shown = run("engineered_features.py")
    assert "works together most: dose and weight" in shown
    before, after = map(float, re.search(r"R2 on new patients: (\S+) with.*, (\S+) with", shown).groups())
    assert before < 0.4
    assert after > 0.9
    assert "masked: sums of products" in shown


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_examples_are_short_and_tell_their_reason(script):
    lines = script.read_text().splitlines()
    assert len(lines) < 60
    assert sum(line.strip().startswith("#") for line in lines) >= 4
    assert f"python examples/{script.name}" in script.read_text()
