"""Cost before it is paid: the table is the benchmark's formulas, and `check` and `methods` say what it says."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedsift.cli.main import app
from fedsift.jobs import cost
from fedsift.methods import METHODS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("cost_table")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_the_table_of_the_package_is_what_the_measured_runs_give(benchmark):
    runs = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text())
    told, made = json.loads(benchmark.OUT.read_text())["methods"], benchmark.table(runs)
    assert told.keys() == made.keys(), "run python benchmarks/cost_table.py"
    for method, quantities in made.items():
        for quantity, values in quantities.items():
            assert told[method][quantity] == pytest.approx(values, rel=0.02, abs=1e-9), (
                f"{method} {quantity}: run python benchmarks/cost_table.py"
            )


@pytest.mark.parametrize(
    ("method", "place", "shape"),
    [("information_value", 0, (2, 10**4, 10)), ("alignment", 1, (2, 10**6, 100)), ("muse", 2, (10, 10**6, 1000))],
)
def test_estimates_are_those_of_the_page(method, place, shape):
    page = (ROOT / "docs" / "scale.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith(f"| {method} |") and line.count("B |") >= 6)
    number, unit = re.search(r", ([\d.]+) (kB|MB|GB|TB)", line.split("|")[2 + place]).groups()
    parties, rows, columns = shape
    found = cost.expected(method, rows=rows, columns=columns, parties=parties)
    assert found.bytes == pytest.approx(float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit], rel=0.02)


def test_between_points_an_estimate_lies_between_them_and_beyond_the_grid_it_stays():
    def sent(rows, columns=100, parties=2):
        return cost.expected("gini", rows=rows, columns=columns, parties=parties).bytes

    assert sent(10_000) < sent(30_000) < sent(100_000)
    assert sent(10_000, 100) < sent(10_000, 350) < sent(10_000, 1000)
    assert sent(10_000, parties=3) < sent(10_000, parties=4) < sent(10_000, parties=5)
    assert sent(10**12) == sent(10**8)
    assert cost.expected("no_such", rows=10, columns=2, parties=2) is None


def test_check_says_what_the_job_would_cost(tmp_path):
    for name in ("bank", "shop"):
        rows = "".join(f"c{i},{i % 7}{f',{i % 2}' if name == 'bank' else ''}\n" for i in range(60))
        (tmp_path / f"{name}.csv").write_text(f"id,{name}_x{',y' if name == 'bank' else ''}\n{rows}")
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "y"\n[parties.shop]\nfile = "shop.csv"\nid = "id"\n'
        '[method]\nname = "gini"\nn_features = 1\n'
    )
    told = json.loads(CliRunner().invoke(app, ["check", str(tmp_path / "job.toml"), "--format", "json"]).stdout)
    alone = cost.expected("gini", rows=60, columns=2, parties=2)
    assert told["cost"]["bytes"] > alone.bytes, "matching the ids is in it"
    shown = CliRunner().invoke(app, ["check", str(tmp_path / "job.toml")]).stdout
    assert "it would cost about" in shown
    assert "memory" in shown


def test_methods_say_in_a_line_what_they_do_what_they_cost_and_what_attacks_read():
    told = {each["name"]: each for each in json.loads(CliRunner().invoke(app, ["methods", "--format", "json"]).stdout)}
    assert told.keys() == METHODS.keys()
    for name, facts in told.items():
        assert facts["does"], name
        assert facts["cost"] == "not measured" or re.fullmatch(r"[\d.]+ k?M?G?B, \d.*", facts["cost"]), name
        assert facts["exposure"], name
    shown = CliRunner().invoke(app, ["methods"]).stdout
    assert "what it does" in shown
