"""What the audit's attacks reach on the shipped methods: benchmarks/results/exposure.jsonl and docs/exposure.md.

    python benchmarks/exposure.py --data DIR [--sets bank,colon] [--methods sffs,gini] [--render]

Each method runs with two parties (``bank`` holds the label and the first half of the columns) on at most ROWS rows of a
set, over a transport that records every byte; then every attack that reads one of its operations runs on the view of
its role. Rows that did not take part, where there are any, are the control. A line of the JSON file is one exposure,
with the commit; a rerun measures what is missing for the present commit, and the page shows the last figure of each and
what changed since the version before. Settings that only take longer and show the same messages are lowered in CASES.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsift import methods as select
from fedsift.audit import attacks_on, record, record_sites
from fedsift.audit.attacks.differencing import two_jobs
from fedsift.audit.attacks.folds import ask_for_draws
from fedsift.audit.verdict import NAMES
from fedsift.core import party
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.errors import FedsiftError

HERE = Path(__file__).parent
FIGURES = HERE / "results" / "exposure.jsonl"
PAGE = HERE.parent / "docs" / "exposure.md"
ROWS = 800
FILES = {
    "bank": "bank_marketing", "default": "default_credit", "phishing": "phishing_websites", "adult": "adult",
    "wdbc": "breast_cancer_wdbc", "madelon": "madelon", "sonar": "sonar", "musk": "musk_v1", "colon": "colon",
    "leukemia": "leukemia", "arcene": "arcene",
}  # fmt: skip
SIX = ("wdbc", "colon", "phishing", "bank", "default", "madelon")  # of docs/exposure.md: every method
TALL = ("bank", "default", "phishing", "wdbc", "madelon")
WIDE = ("colon", "leukemia", "arcene")


#: The first version that was measured whose messages are, by and large, those of today.
TODAY = "d713eee"

#: Attacks that know less than another one, and are run where that one succeeds.
WEAKER = {"rounded_scores_of_result": "scores_of_result", "ranks_of_result": "scores_of_result"}


@dataclass(frozen=True)
class Case:
    """A conversation to record, and the sets on which it says most."""

    make: Callable[[], Any]
    sets: tuple[str, ...]
    every_step: bool = False
    rows: int = ROWS
    few: bool = False  # the label holder has 3 columns only, as in the first review
    partition: str = "vertical"


def three_runs() -> Callable[[Any], list[Any]]:
    return lambda fed: [select.TopGain(n_estimators=2, max_depth=2, random_state=seed).fit(fed) for seed in range(3)]


def logistic() -> Any:
    from fedsift.models.vertical_logistic import VerticalLogisticRegression

    return VerticalLogisticRegression()


def hyfdca() -> Any:
    from fedsift.models.hyfdca.model import HyFDCA

    return HyFDCA(rounds=30, loss="logistic")


def stopped_early() -> Any:
    from fedsift.models.boost.model import SecureBoostClassifier

    return SecureBoostClassifier(n_estimators=3, max_depth=2, early_stopping_rounds=2)


def draws() -> Any:
    return ask_for_draws(party.draw_rows, calls=24)


def flafe() -> Any:
    from fedsift.engineer.flafe.api import VerticalFLAFE

    return VerticalFLAFE()


def flafe_statistics() -> Any:
    from fedsift.engineer.flafe.api import VerticalFLAFE

    return VerticalFLAFE(protection="statistics")


def iife() -> Any:
    return select.METHODS["fed_iife"](max_features=2)


CASES = {
    "sffs": Case(lambda: select.SFFS(), (*SIX, "leukemia", "arcene", "sonar")),
    "sffs, epsilon 1": Case(lambda: select.SFFS(epsilon=1.0), SIX),
    "information_value": Case(lambda: select.InformationValue(), (*SIX, "leukemia", "adult")),
    "information_value, epsilon 1": Case(lambda: select.InformationValue(epsilon=1.0), SIX),
    "gini": Case(lambda: select.GiniFilter(), (*SIX, "leukemia")),
    "gini, epsilon 1": Case(lambda: select.GiniFilter(epsilon=1.0), SIX),
    "muse": Case(lambda: select.Muse(n_features=10), (*SIX, "leukemia", "arcene", "sonar")),
    "federated_lasso": Case(lambda: select.FederatedLasso(max_iter=40), (*SIX, "sonar", "musk")),
    "vertical_logistic": Case(logistic, (*SIX, "sonar", "musk")),
    "hyfdca": Case(hyfdca, (*SIX, "sonar", "musk")),
    "vertical_flafe": Case(flafe, SIX),
    "vertical_flafe, statistics": Case(flafe_statistics, ("wdbc", "colon", "phishing")),
    "fed_iife": Case(iife, ("wdbc", "phishing", "bank", "default"), partition="horizontal"),
    "feature_election": Case(lambda: select.METHODS["feature_election"](), SIX, partition="horizontal"),
    "federated_lasso, 3 columns": Case(lambda: select.FederatedLasso(max_iter=40), ("sonar", "musk"), few=True),
    "vertical_logistic, 3 columns": Case(logistic, ("sonar", "musk"), few=True),
    "hyfdca, 3 columns": Case(hyfdca, ("sonar", "musk"), few=True),
    "top_gain": Case(lambda: select.TopGain(n_estimators=2, max_depth=2), SIX),
    "top_gain, three runs": Case(three_runs, TALL),
    "pso_evffs": Case(lambda: select.PsoEvffs(popsize=2, iterations=1), ("wdbc",)),
    "secureboost, early stopping": Case(stopped_early, TALL),
    "hostile draw_rows": Case(draws, TALL),
    "sffs, two jobs": Case(lambda: two_jobs(select.SFFS, range(0, 125, 5)), ("wdbc",), rows=150),
}


def load(name: str, data: Path, rows: int) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """Rows that take part, their labels, and up to 1,000 others (where at least 50 are left)."""
    frame = pd.read_parquet(data / f"{FILES[name]}.parquet")
    y = frame.pop("target")
    order = np.random.default_rng(0).permutation(len(frame))
    if len(frame) // 4 >= 50:  # a quarter for the control, where that is enough of one
        rows = min(rows, len(frame) - len(frame) // 4)
    used, rest = order[:rows], order[rows : rows + 1000]
    fresh = (frame.iloc[rest], y.iloc[rest]) if len(rest) >= 50 else None
    return frame.iloc[used], y.iloc[used], fresh


def three_columns(X: pd.DataFrame, y: pd.Series) -> dict[str, Site]:
    """The label holder with the first 3 columns, the other party with the rest."""
    bank, shop = X.iloc[:, :3].assign(label=y).reset_index(drop=True), X.iloc[:, 3:].reset_index(drop=True)
    return {
        "bank": Site("bank", Table.read(bank, id=None, label="label", name="bank")),
        "shop": Site("shop", Table.read(shop, id=None, name="shop")),
    }


def version() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def measure(method: str, name: str, data: Path) -> list[dict[str, Any]]:
    case = CASES[method]
    X, y, fresh = load(name, data, case.rows)
    start = time.process_time()
    try:
        if case.few:
            seen = record_sites(three_columns(X, y), "bank", case.make(), every_step=case.every_step)
        else:
            seen = record(
                X, y, case.make(), parties=["bank", "shop"], every_step=case.every_step, fresh=fresh,
                partition=case.partition,
            )  # fmt: skip
    except FedsiftError as error:
        return [{"attack": "", "note": f"refused: {error}"}]
    spent = time.process_time() - start
    found = []
    for view in seen.views.values():
        for attack in attacks_on(view.operations, view.role):
            if attack.name in WEAKER and not any(f["attack"] == WEAKER[attack.name] and _added(f) > 0 for f in found):
                continue  # it knows less, and the stronger one has failed
            try:
                exposure = attack.run(view, seen.truth).as_dict()
            except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                print(f"{method} {name}: {attack.name} broke down: {error!r}", file=sys.stderr)
                continue
            found.append({**exposure, "line": attack.line, "rows": len(y), "columns": X.shape[1], "run_cpu_s": spent})
    return found


def rows_of() -> list[dict[str, Any]]:
    text = FIGURES.read_text(encoding="utf-8") if FIGURES.is_file() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def run(methods: list[str], sets: list[str], data: Path) -> None:
    commit, known = version(), rows_of()
    for method in methods:
        for name in CASES[method].sets:
            if name not in sets:
                continue
            if any((r["commit"], r["method"], r["set"]) == (commit, method, name) for r in known):
                continue
            measured = measure(method, name, data)
            for found in [*measured, *gone(measured, [r for r in known if (r["method"], r["set"]) == (method, name)])]:
                never = not any((r["method"], r["set"], r["attack"]) == (method, name, found["attack"]) for r in known)
                if never and found["note"].startswith("nothing to read"):
                    continue  # the attack does not apply to this method; where it once did, "nothing" is the news
                line = json.dumps({"commit": commit, "method": method, "set": name, **_rounded(found)})
                with FIGURES.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
                print(line, flush=True)


def gone(measured: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attacks that had something to read in an earlier version, and whose message is not sent any more."""
    now = {(row["attack"], row.get("party")) for row in measured}
    now |= {(weak, party) for weak, strong in WEAKER.items() for attack, party in now if attack == strong}
    last = {(row["attack"], row["party"]): row for row in before if row["attack"]}
    lost = [row for place, row in last.items() if place not in now]
    note = "gone: what it read is not sent any more"
    kept = ("attack", "role", "party", "target", "metric", "guess", "baseline", "knows", "declared", "line")
    return [
        {
            **{key: row.get(key) for key in kept},
            "value": row["guess"],
            "control": None,
            "cpu_seconds": 0.0,
            "note": note,
        }
        for row in lost
        if not row["note"].startswith("gone")
    ]


def _rounded(found: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}


HEAD = """\
<!-- Made by `python benchmarks/exposure.py --render` from benchmarks/results/exposure.jsonl: change those. -->
# Exposure: what the messages of a run give away, measured

Every line is an attack that was run on what one role really received: its success, what a guess reaches (the messages
give nothing), the baseline (what the same attacker reaches from its own rows and the answer that it is entitled to,
such as which of its columns were kept) and the control (the same knowledge on rows that did not take part). An attack
has failed when it adds nothing to guess and baseline. Version is the commit that was measured.

A line "gone" is no measurement: the message that the attack read is not sent any more, so its success is put at the
guess. What is sent in its place has attacks of its own, or a written waiver in `audit/waivers.py`, or waits for one.

Attacks are lower bounds: a line that shows nothing is no proof that there is nothing, and a pass of
[`fedsift audit`](audit.md) is none either. Two parties, at most 800 rows of
each set (150 for two jobs), settings lowered where that changes no message that an attack reads. In one process nobody
is sent a result: `keep_result`, the end of a deployed job, is added as `Selection.for_party` makes it.
Scores and first components do not say which of two classes is which: that bit is given to attacks and baselines alike.
"""


Figures = dict[tuple[str, str, str], list[dict[str, Any]]]


def by_case() -> Figures:
    """The figures of each method, set and attack, the oldest first."""
    cases: Figures = {}
    for row in rows_of():
        cases.setdefault((row["method"], row["set"], row["attack"]), []).append(row)
    return cases


def worst_of(method: str) -> dict[str, Any] | None:
    """What adds most to guess and baseline in the last figure of each set and attack of a method; None where none is.

    Of figures since ``TODAY``; of a method that was not measured since, those of the last version that was.

    Which unnamed column is which is no value in it: such figures stand in the table of all, not here.
    """
    every = rows_of()
    today = next((place for place, row in enumerate(every) if row["commit"] == TODAY), len(every))
    rows = [row for row in every[today:] if row["method"] == method and row["attack"]]
    if not rows:
        older = [row for row in every if row["method"] == method and row["attack"]]
        rows = [row for row in older if row["commit"] == older[-1]["commit"]]
    last = {(row["set"], row["attack"], row.get("party")): row for row in rows}
    told = [row for row in last.values() if not row["note"].startswith("gone") and row["metric"] not in NAMES]
    return max(told, key=_added, default=None)


def _added(row: dict[str, Any]) -> float:
    return float(row["value"] - max(row["guess"], row["baseline"]))


def render() -> str:
    cases = by_case()
    used = {attack: rows[-1] for (_, _, attack), rows in cases.items() if attack}
    lines = [HEAD, *_worst_lines(cases), *_change_lines(cases), *_figure_lines(cases)]
    lines += ["", "## What each attacker is after", "", "| attack | target | measure |", "|--|--|--|"]
    lines += [f"| {a} | {r['target']} | {r['metric']} |" for a, r in sorted(used.items())]
    versions = list(dict.fromkeys(row["commit"] for row in rows_of()))
    lines += ["", f"Commits measured: {', '.join(versions)}. `python benchmarks/exposure.py --data DIR`", ""]
    return "\n".join(lines)


def _worst_lines(cases: Figures) -> list[str]:
    lines = ["## The worst of each method", "",
             "What adds most to guess and baseline in the last figure of each set, left out where all is gone. Attacks",
             "that say which unnamed column is which (columns named, cuts followed) stand under every figure only.", "",
             "| method | set | attack | role | success | guess | baseline | version |",
             "|--|--|--|--|--:|--:|--:|--|"]  # fmt: skip
    for method in dict.fromkeys(method for method, _, _ in cases):
        row = worst_of(method)
        if row is not None:
            who = f"{row['set']} | {row['attack']} | {row['role']}"
            lines.append(f"| {method} | {who} | {_three(row)} | {row['commit']} |")
    return lines


def _three(row: dict[str, Any]) -> str:
    return " | ".join(f"{row[key]:.3f}" for key in ("value", "guess", "baseline"))


def _change_lines(cases: Figures) -> list[str]:
    """Success in the last version measured beside the one before it; a set that is refused now has no figure."""
    lines = ["", "## What changed since the version before", ""]
    changed = []
    for (method, name, attack), rows in cases.items():
        earlier = [row for row in rows if row["commit"] != rows[-1]["commit"]]
        if attack and earlier and earlier[-1]["value"] != rows[-1]["value"]:
            cells = [method, name, attack]
            cells += [f"{row['value']:.3f} ({row['commit']})" for row in (earlier[-1], rows[-1])]
            cells += [f"{_added(row):+.3f}" for row in (earlier[-1], rows[-1])]
            changed.append(f"| {' | '.join(cells)} |")
    if not changed:
        return [*lines, "No figure was measured on two versions with different results yet."]
    heads = ["| method | set | attack | before | now | added before | adds now |", "|--|--|--|--:|--:|--:|--:|"]
    return [*lines, *heads, *changed]


def _figure_lines(cases: Figures) -> list[str]:
    heads = [
        "method",
        "set",
        "attack",
        "role",
        "knows",
        "success",
        "guess",
        "baseline",
        "control",
        "AUC",
        "declared",
        "version",
    ]
    lines = [
        "",
        "## Every figure",
        "",
        f"| {' | '.join(heads)} | note |",
        "|--|--|--|--|--|--:|--:|--:|--:|--:|--|--|--|",
    ]
    for (method, name, attack), rows in cases.items():
        now = rows[-1]
        if not attack:
            lines.append(f"| {method} | {name} | | | | | | | | | | {now['commit']} | {now['note']} |")
            continue
        control, ranked = ("" if now.get(key) is None else f"{now[key]:.3f}" for key in ("control", "auc"))
        lines.append(
            f"| {method} | {name} | {attack} | {now['role']} | {now['knows']} | {_three(now)} | {control} "
            f"| {ranked} | {now['declared']} | {now['commit']} | {now['note']} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDSIFT_DATA"))
    parser.add_argument("--sets", default=",".join(FILES))
    parser.add_argument("--methods", default=";".join(CASES), help="separated by semicolons")
    parser.add_argument("--render", action="store_true", help="only write the page")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if not given.render:
        run([m.strip() for m in given.methods.split(";")], given.sets.split(","), Path(given.data))
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
