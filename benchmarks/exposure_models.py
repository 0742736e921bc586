"""What the audit's attacks reach on the shipped models: boosted trees, split networks, FLAFE's noise.

    python benchmarks/exposure_models.py --data DIR [--sets bank,sonar] [--methods "secureboost;splitnn"]

Two parties (``bank`` holds the label and the first half of the columns), at most 2,000 rows, few trees and epochs: what
an attack reads is there from the first ones. Models predict once after they are trained. Figures are appended to
benchmarks/results/exposure.jsonl with the commit; ``exposure.py --render`` makes the page from them. Line 13 is a
demonstration in the tests: nothing of it can be run on an honest key.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exposure import FIGURES, FILES, SIX, gone, load, rows_of, version

from fedsift import methods as select
from fedsift.audit import attacks_on, record
from fedsift.errors import FedsiftError

NETWORK = ("bank", "default", "phishing")


@dataclass(frozen=True)
class Case:
    """A model to record, and the sets on which it says most."""

    make: Callable[[], Any]
    sets: tuple[str, ...]
    rows: int = 2000


def boost(trees: int, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from fedsift.models.boost.model import SecureBoostClassifier

        return SecureBoostClassifier(n_estimators=trees, **settings)

    return make


def network(**settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from fedsift.models.splitnn.model import SplitNN

        return SplitNN(epochs=3, **settings)

    return make


def flafe() -> Any:
    from fedsift.engineer.flafe.api import VerticalFLAFE

    return VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"], epsilon=1.0)


CASES = {
    "secureboost": Case(boost(20), (*SIX, "adult", "sonar")),
    "secureboost, 60 trees": Case(boost(60), ("wdbc", "phishing", "bank")),
    "secureboost, all": Case(
        boost(20, protection="all", max_depth=4), ("bank", "default", "phishing", "adult"), rows=1000
    ),
    "secureboost, open": Case(boost(20, protection="open"), ("wdbc", "phishing")),
    "splitnn": Case(network(), SIX),
    "splitnn, open": Case(network(protection="open"), NETWORK),
    "splitnn, open, embedding of 4": Case(network(protection="open", embedding=4), NETWORK),
    "splitnn, lattice": Case(network(protection="lattice", embedding=8), ("wdbc",), rows=300),
    "fedsdg": Case(lambda: select.FedSDG(epochs=20, refit_epochs=3), SIX, rows=800),
    "fedsdg, one lambda": Case(lambda: select.FedSDG(lambda_=0.005, epochs=3, refit_epochs=3), ("bank", "phishing")),
    "stochastic_gate": Case(lambda: select.StochasticGate(lambda_=0.005, epochs=20, refit_epochs=3), SIX, rows=800),
    "vflfs": Case(lambda: select.VFLFS(epochs=3, pretrain_epochs=1), SIX, rows=800),
    "less_vfl": Case(lambda: select.LessVFL(epochs=3, stage_epochs=5), SIX, rows=800),
    "group_lasso": Case(lambda: select.GroupLasso(epochs=3), SIX, rows=800),
    "local_lasso": Case(lambda: select.LocalLasso(epochs=3, pretrain_epochs=3, stage_epochs=5), SIX, rows=800),
    "vertical_flafe, epsilon 1": Case(flafe, ("default",), rows=4000),
}


def used(model: Any) -> Any:
    """A model is fitted and asked for predictions once; a selector is fitted."""
    if not hasattr(model, "predict"):
        return model

    def conversation(fed: Any) -> Any:
        model.fit(fed)
        model.predict(fed)
        return model

    return conversation


def measure(case: Case, name: str, data: Path) -> list[dict[str, Any]]:
    X, y, fresh = load(name, data, case.rows)
    start = time.process_time()
    try:
        seen = record(X, y, used(case.make()), parties=["bank", "shop"], fresh=fresh)
    except FedsiftError as error:
        return [{"attack": "", "note": f"refused: {error}"}]
    spent = time.process_time() - start
    found = []
    for view in seen.views.values():
        for attack in attacks_on(view.operations, view.role):
            exposure = attack.run(view, seen.truth).as_dict()
            if exposure["note"].startswith("nothing to read"):
                continue
            sizes = {"rows": len(y), "columns": X.shape[1], "run_cpu_s": spent}
            found.append({**exposure, "line": attack.line, **sizes})
    return found


def run(methods: list[str], sets: list[str], data: Path) -> None:
    commit, known = version(), rows_of()
    for method in methods:
        for name in CASES[method].sets:
            done = any((r["commit"], r["method"], r["set"]) == (commit, method, name) for r in known)
            if name not in sets or done:
                continue
            measured = measure(CASES[method], name, data)
            before = [r for r in known if (r["method"], r["set"]) == (method, name)]
            for found in [*measured, *gone(measured, before)]:
                rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
                line = json.dumps({"commit": commit, "method": method, "set": name, **rounded})
                with FIGURES.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
                print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDSIFT_DATA"), required=True)
    parser.add_argument("--sets", default=",".join(FILES))
    parser.add_argument("--methods", default=";".join(CASES), help="separated by semicolons")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    run([m.strip() for m in given.methods.split(";")], given.sets.split(","), given.data)


if __name__ == "__main__":
    main()
