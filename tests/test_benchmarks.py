"""Benchmarks follow the package: what they import is there, and cells made by several processes come together."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("script", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_in_the_package(script):
    missing = []
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedsift":
            module = importlib.import_module(node.module)
            for name in (each.name for each in node.names):
                if not hasattr(module, name):
                    try:
                        importlib.import_module(f"{node.module}.{name}")
                    except ModuleNotFoundError:
                        missing.append(f"{node.module}.{name}")
    assert missing == []


def test_processes_share_cells_and_old_ones_are_made_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    cells = importlib.import_module("cells")
    kept = [{"part": "a", "seed": 0, "value": 1}, {"part": "a", "seed": 1, "value": 1, "bins": "old"}]
    files = [tmp_path / f"{name}.jsonl" for name in ("all", "first", "second")]
    for file in files:
        file.write_text("".join(json.dumps(row) + "\n" for row in kept))
    claims = tmp_path / "claims"
    claims.mkdir()
    monkeypatch.setenv("FEDSIFT_CLAIMS", str(claims))
    for file in files[1:]:
        for seed in range(3):
            cells.Cells(file).run(lambda: {"value": 2}, part="a", seed=seed)
    assert cells.merge(files[0], files[1:]) == "all.jsonl: 2 rows new, 1 replaced"
    rows = {row["seed"]: row["value"] for row in map(json.loads, files[0].read_text().splitlines())}
    assert rows == {0: 1, 1: 2, 2: 2}
    sys.modules.pop("cells")


def test_the_measured_share_of_noise_is_at_most_what_was_asked():
    """Fifty planted tables of each design: the rate less two standard errors, of the three methods with ``fdr=0.1``."""
    rows = map(json.loads, (BENCHMARKS / "results" / "discoveries.jsonl").read_text(encoding="utf-8").splitlines())
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["parties"] == 1 and "table" not in row:  # small tables are for other parties
            found.setdefault((row["method"], row["design"]), []).append(row["false"])
    for method in ("Knockoffs", "Boruta", "Stable(FederatedLasso), q=12"):
        for design in ("independent", "apart", "correlated", "logistic", "bent", "bent, correlated"):
            rates = np.array(found[method, design])
            assert len(rates) == 50
            assert rates.mean() - 2 * rates.std(ddof=1) / np.sqrt(len(rates)) <= 0.1, (method, design)
