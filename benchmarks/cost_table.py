"""Writes what ``fedsift check`` and ``fedsift methods`` say of cost and exposure, from the files of the benchmarks.

The formulas of ``scale_formulas.py``, with the constants that ``scale.py`` fitted, are evaluated on a grid of rows,
columns and parties at each method's default settings; the worst figure of the audit's attacks comes from
``choosing.py``. The package carries the table (``src/fedsift/jobs/costs.json``) and reads between its points.

    python benchmarks/cost_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from choosing import attacked
from scale import QUANTITIES, RESULT, estimates, fit

from fedsift.methods import METHODS

OUT = Path(__file__).parents[1] / "src" / "fedsift" / "jobs" / "costs.json"
ROWS, COLUMNS, PARTIES = [1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8], [10, 100, 1000, 10_000], [2, 3, 5, 10, 50]


def table(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """By method and quantity, a number for each point of the grid: parties, in each rows, in each columns."""
    found: dict[str, Any] = {}
    for method, measured in sorted(runs.items()):
        fitted = [run for run in measured if not run["held_out"]]
        constants = {quantity: fit(method, quantity, fitted) for quantity in QUANTITIES}
        points = [estimates(method, constants, (p, n, d)) for p in PARTIES for n in ROWS for d in COLUMNS]
        found[method] = {quantity: [float(f"{point[quantity]:.3g}") for point in points] for quantity in QUANTITIES}
    return found


def main() -> None:
    runs = json.loads(RESULT.with_suffix(".json").read_text(encoding="utf-8"))
    made = {
        "grid": {"parties": PARTIES, "rows": ROWS, "columns": COLUMNS},
        "methods": table(runs),
        "exposure": {name: attacked(name) for name in METHODS},
    }
    OUT.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"written to {OUT}")


if __name__ == "__main__":
    main()
