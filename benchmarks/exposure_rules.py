"""Whether sites with default rules let a run of docs/exposure.md happen: benchmarks/results/exposure_rules.jsonl.

    python benchmarks/exposure_rules.py --data DIR [--methods "sffs;muse"] [--sets bank,colon]

The page's figures are of sites without a policy. Here every cell whose figure adds more than a dot is run once more on
the same rows, by sites that have the rules which ``fedsift party init`` writes, one job in an empty journal; the first
refusal is written down. Models are fitted only: a default label holder lets no predictions go to the coordinator.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from exposure import load, three_columns
from exposure_cases import Case
from exposure_models import every_case
from exposure_page import RULES, above, by_cell
from provenance import commit

from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.party import Site
from fedsift.core.simulate import hybrid_grid, simulated_sites
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import FedsiftError, PolicyRefused
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite

#: Asked last.
SLOW = ("value", "explain, additive", "stable", "auto")


def with_rules(case: Case, X: Any, y: Any) -> tuple[Federation, dict[str, Site]]:
    parties: Any = 4 if case.partition == "hybrid" else ["bank", "shop"]
    plain, active = (three_columns(X, y), "bank") if case.few else simulated_sites(
        X, y, parties=parties, partition=case.partition, how="equal", duplicates=False, random_state=0,
        label_party=None, grid=None, aside=None,
    )  # fmt: skip
    width = {name: len(site.table.columns) for name, site in plain.items()}
    rules = {name: Policy(partner_columns=sum(width.values()) - width[name]) for name in plain}  # as a matching tells
    sites: dict[str, Site] = {name: PolicySite(name, site.table, rules[name]) for name, site in plain.items()}
    introduce(sites)
    holders = [active] if active else [name for name, site in sites.items() if site.table.label is not None]
    grid = hybrid_grid(sites) if case.partition == "hybrid" else None
    fed = Federation(
        InProcess(sites), list(sites), active=active, partition=case.partition, grid=grid, label_parties=holders
    )
    return fed, sites


def judged(method: str, name: str, data: Path) -> dict[str, Any]:
    case = every_case()[method]
    X, y, _ = load(name, data, case.rows)
    fed, _ = with_rules(case, X, y)
    made = case.make()
    try:
        made.fit(fed) if hasattr(made, "fit") else made(fed)
    except PolicyRefused as refusal:
        return {"rule": refusal.rule, "operation": refusal.operation, "by": refusal.party}
    except FedsiftError as error:
        return {"rule": "", "note": f"{type(error).__name__}: {error}"}
    return {"rule": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDSIFT_DATA"))
    parser.add_argument("--methods", default="", help="separated by semicolons; else all")
    parser.add_argument("--sets", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = dict.fromkeys((method, name) for method, name, _, _ in above(by_cell()))
    methods, sets = (
        {w.strip() for w in text.split(sep) if w} for text, sep in ((given.methods, ";"), (given.sets, ","))
    )
    for method, name in sorted(cells, key=lambda cell: SLOW.index(cell[0]) if cell[0] in SLOW else -1):
        case = every_case()[method]
        if case.weighted or case.bounded or (methods and method not in methods) or (sets and name not in sets):
            continue
        start = time.process_time()
        found = judged(method, name, Path(given.data))
        row = {"commit": commit(), "method": method, "set": name, **found}
        with RULES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, f"{time.process_time() - start:.1f} CPU-s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
