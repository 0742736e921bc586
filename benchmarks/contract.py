"""What the contract costs an honest run: CPU seconds with every check of a site over those without any, in pairs.

    python benchmarks/contract.py [--pairs 10]

The version before the contract speaks other protocols (its boosting was open), so both sides are today's code: *with*
are sites with the default policy, a journal and pinned peers, which judge each request (schema, job, script, form,
rows, atoms, bits); *without* are sites that run what they are asked, schema and script taken out. The protocols and
their keys are the same on both sides. Each run is a process of its own: two parties, 5,000 generated rows, matched by
their ids; one filter (information value, encrypted labels) and one boosting (on shares, 5 trees). Counted is the CPU
time of all threads of alignment and fit, without imports. Who goes first alternates; the median of the ratios is
printed, with the smallest and the largest, the median difference, and what making a site's keys costs once.
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
from typing import Any

ROWS, COLUMNS, TREES = 5_000, 12, 5
HERE = Path(__file__).parents[1]


def generated() -> dict[str, Any]:
    """The tables of both parties."""
    import numpy as np
    import pandas as pd

    import fedsift as fs

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(ROWS, COLUMNS)), columns=[f"x{i}" for i in range(COLUMNS)])
    y = (X["x0"] + X["x7"] + rng.normal(size=ROWS) > 0).astype(int)
    X.insert(0, "id", [f"person{i}" for i in range(ROWS)])
    half = COLUMNS // 2 + 1
    bank, shop = X.iloc[:, :half].assign(y=y), X[["id", *X.columns[half:]]]
    return {
        "bank": fs.Table.read(bank, id="id", label="y", name="bank"),
        "shop": fs.Table.read(shop, id="id", name="shop"),
    }


def take_checks_out() -> None:
    from fedsift.core.job import Run
    from fedsift.core.operation import Operation

    Operation.check_arguments = lambda *_: None  # type: ignore[method-assign]
    Run.check_job = Run.check_step = lambda *_: None  # type: ignore[method-assign]


def once(checked: bool) -> dict[str, float]:
    """CPU seconds of one run of each kind, and of making two sites' keys."""
    import fedsift as fs
    from fedsift.core.federation import Federation
    from fedsift.core.identity import introduce
    from fedsift.core.party import Site
    from fedsift.core.transports.inprocess import InProcess
    from fedsift.mpc.psi import align
    from fedsift.site.policy import ALIGNMENT, DEFAULT_EXCEPTIONS, Policy
    from fedsift.site.site import PolicySite

    if not checked:
        take_checks_out()
    policy = Policy(exceptions=[*DEFAULT_EXCEPTIONS, ALIGNMENT])
    kinds = {
        "filter": lambda: fs.InformationValue(n_features=4),
        "boosting": lambda: fs.SecureBoostClassifier(n_estimators=TREES, max_depth=4, protection="coordinator"),
    }
    found: dict[str, float] = {}
    for name, make in kinds.items():
        tables = generated()
        start = time.process_time()
        sites = {n: PolicySite(n, t, policy) if checked else Site(n, t) for n, t in tables.items()}
        introduce(sites)
        found["keys"] = time.process_time() - start
        make().fit(align(Federation(InProcess(sites), list(sites), active="bank")))
        found[name] = time.process_time() - start
    return found


def measured(side: str) -> dict[str, float]:
    path = os.pathsep.join(filter(None, [str(HERE / "src"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    told = [sys.executable, "-W", "ignore", str(Path(__file__)), "--once", side]
    done = subprocess.run(told, env=env, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--once", choices=["with", "without"], help="one run in this process, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once == "with")))
        return
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.pairs):
        sides = ["without", "with"]
        runs = {side: measured(side) for side in (sides if number % 2 else sides[::-1])}  # who goes first, in turn
        print(json.dumps({"pair": number, **runs}), flush=True)
        for kind, seconds in runs["with"].items():
            pairs.setdefault(kind, []).append((runs["without"][kind], seconds))
    keys = statistics.median(seconds for _, seconds in pairs.pop("keys"))
    for kind, found in pairs.items():
        ratios = sorted(checked / bare for bare, checked in found)
        more = statistics.median(1000 * (checked - bare) for bare, checked in found)
        print(
            f"{kind}: {statistics.median(ratios):.3f} of the CPU time without checks (median of {len(found)} pairs, "
            f"{ratios[0]:.3f} to {ratios[-1]:.3f}); {more:+.0f} ms of "
            f"{1000 * statistics.median(bare for bare, _ in found):.0f} ms"
        )
    print(f"keys of both sites, once: {1000 * keys:.1f} ms")


if __name__ == "__main__":
    main()
