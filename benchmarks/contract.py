"""What the contract costs an honest run: CPU seconds of this code over those of an earlier commit, in pairs.

    git worktree add ../before COMMIT
    python benchmarks/contract.py --before ../before [--pairs 10]

Each run is a process of its own, so that both start alike: two parties, 5,000 generated rows, matched by their ids;
one filter (information value, encrypted labels) and one boosting (on shares, 5 trees). Counted is the CPU time of all
threads of alignment and fit together, without imports. The ratio of a pair is now / before, and who goes first
alternates; the median is printed, with the smallest and the largest beside it, and the median difference in
milliseconds. Other work on the machine adds noise to single pairs (caches), hardly to the median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROWS, COLUMNS, TREES = 5_000, 12, 5
HERE = Path(__file__).parents[1]


def once() -> dict[str, float]:
    """CPU seconds of one run of each kind, by the fedsift that this process imports."""
    import numpy as np
    import pandas as pd

    import fedsift as fs

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(ROWS, COLUMNS)), columns=[f"x{i}" for i in range(COLUMNS)])
    y = (X["x0"] + X["x7"] + rng.normal(size=ROWS) > 0).astype(int)
    X.insert(0, "id", [f"person{i}" for i in range(ROWS)])
    half = COLUMNS // 2 + 1
    bank, shop = X.iloc[:, :half].assign(y=y), X[["id", *X.columns[half:]]]
    kinds = {
        "filter": lambda: fs.InformationValue(n_features=4),
        "boosting": lambda: fs.SecureBoostClassifier(n_estimators=TREES, max_depth=4),
    }
    found = {}
    for name, make in kinds.items():
        start = time.process_time()
        fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "y"))
        make().fit(fed)
        found[name] = time.process_time() - start
        fed.close()
    return found


def measured(source: Path) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), "--once"], env=env, capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a worktree of the earlier commit")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--once", action="store_true", help="one run in this process, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once()))
        return
    if options.before is None:
        parser.error("--before names a worktree of the commit to compare with")
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.pairs):
        sides = [options.before.resolve(), HERE]
        runs = {side: measured(side) for side in (sides if number % 2 else sides[::-1])}  # who goes first, in turn
        for kind, seconds in runs[HERE].items():
            pairs.setdefault(kind, []).append((runs[sides[0]][kind], seconds))
    for kind, found in pairs.items():
        ratios = sorted(now / before for before, now in found)
        more = statistics.median(1000 * (now - before) for before, now in found)
        print(
            f"{kind}: {statistics.median(ratios):.3f} of the CPU time of before (median of {len(found)} pairs, "
            f"{ratios[0]:.3f} to {ratios[-1]:.3f}); {more:+.0f} ms of "
            f"{1000 * statistics.median(before for before, _ in found):.0f} ms"
        )


if __name__ == "__main__":
    main()
