"""What the audit's attacks reach on the shipped methods and models: benchmarks/results/exposure.jsonl.

    python benchmarks/exposure.py --data DIR [--sets bank,colon] [--methods "sffs;gini"] [--jobs 4] [--out FILE]
    python benchmarks/exposure.py --missing     # cells without a figure of this version
    python benchmarks/exposure.py --missing --keep 43913e4,0ba4977     # nor of these
    python benchmarks/exposure.py --never --out FILE    # cells that no version has measured, into a file of their own
    python benchmarks/exposure.py --render      # docs/exposure.md

``--limit`` is the CPU seconds that a cell may take; one that takes more stands on the page as too long, with them.

Each case of ``exposure_cases.py`` runs with two parties (``bank`` holds the label and the first half of the columns;
four of a grid) on some rows of a set, over a transport that records every byte; then every attack that reads one of its
operations runs on the view of its role. Rows that did not take part, where there are any, are the control. A line of
the JSON file is one exposure, with the commit; a rerun measures what is missing for the present commit. Cells are
processes of their own, ``--jobs`` of them at a time, and are written down as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from exposure_cases import FILES, Case
from exposure_defaults import told as parameters
from exposure_models import every_case, missing
from exposure_page import FIGURES, PAGE, render, rows_of
from provenance import commit

from fedsift.audit import Exposure, Recording, attacks_on, record, record_sites
from fedsift.audit.apart import highest, jobs_apart
from fedsift.audit.registry import ATTACKS
from fedsift.core.design import Design
from fedsift.core.federation import Federation
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.errors import FedsiftError
from fedsift.models.base import FederatedModel

Row = dict[str, Any]

#: Attacks that know less than another one, and are run where that one succeeds.
WEAKER = {"rounded_scores_of_result": "scores_of_result", "ranks_of_result": "scores_of_result"}
#: Cells that take longest are begun first.
SLOW = ("auto", "boruta", "top_gain", "arcene", "secureboost", "flafe", "madelon", "leukemia", "pso_evffs", "colon")


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


def used(made: Any) -> Any:
    """A model is fitted and asked for predictions once; a selector is fitted; a conversation is had."""
    if not isinstance(made, FederatedModel):
        return made

    def conversation(fed: Any) -> Any:
        made.fit(fed)
        made.predict(fed)
        return made

    return conversation


def recorded(case: Case, X: pd.DataFrame, y: pd.Series, fresh: tuple[Any, Any] | None) -> Recording:
    made = case.make()
    if case.bounded and fresh is not None:
        ranges = fresh[0].select_dtypes("number").agg(["min", "max"]).T
        made.set_params(bounds={str(c): (float(a), float(b)) for c, a, b in ranges.itertuples() if a < b})
    if case.few:
        return record_sites(three_columns(X, y), "bank", used(made), every_step=case.every_step)
    parties: Any = 4 if case.partition == "hybrid" else ["bank", "shop"]
    weights = np.random.default_rng(0).lognormal(0.0, 0.5, len(y)) if case.weighted else None
    run = used(made) if weights is None else weighted(made)
    return record(
        X, y, run, parties=parties, every_step=case.every_step, fresh=fresh, partition=case.partition,
        aside=None if weights is None else {"weight": weights},
    )  # fmt: skip


def weighted(made: Any) -> Callable[[Federation], Any]:
    return lambda fed: made.fit(fed.designed(Design(weight="bank.weight")))


def measure(method: str, name: str, data: Path) -> list[Row]:
    case = every_case()[method]
    X, y, fresh = load(name, data, case.rows)
    start = time.process_time()
    try:
        seen = recorded(case, X, y, fresh)
    except FedsiftError as error:
        return [{"attack": "", "note": f"refused: {error}"}]
    spent = time.process_time() - start
    about = {"rows": len(y), "columns": X.shape[1], "run_cpu_s": spent}
    return [
        {**each.as_dict(), "line": ATTACKS[each.attack].line, **about} for each in attacked(seen, f"{method} {name}")
    ]


def attacked(seen: Recording, cell: str) -> list[Exposure]:
    """Every attack on the run, and where it is of several jobs on each of them: the figure that adds most."""
    found: list[Exposure] = []
    broken: dict[str, str] = {}
    for part in (seen, *jobs_apart(seen)):
        here: list[Exposure] = []
        for view in part.views.values():
            for attack in attacks_on(view.operations, view.role):
                if attack.name in WEAKER and not any(f.attack == WEAKER[attack.name] and f.added > 0 for f in here):
                    continue  # it knows less, and the stronger one has failed
                try:
                    here.append(attack.run(view, part.truth))
                except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                    broken[attack.name] = repr(error)
        found += here
    for attack_name in broken.keys() - {each.attack for each in found}:
        print(f"{cell}: {attack_name} broke down: {broken[attack_name]}", file=sys.stderr)
    return highest(found)


class TooLong(BaseException):
    """A cell ran past its limit; nothing on the way may take it for an error of its own."""


def bounded(limit: int, measured: Callable[[], list[Row]]) -> list[Row]:
    """What was measured, or a row that says after how many CPU seconds (of all threads) this was given up."""

    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        return measured()
    except TooLong:
        return [{"attack": "", "note": f"too long: not ended after {limit:,} CPU-s"}]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def lines(method: str, name: str, data: Path, made: str, limit: int) -> list[str]:
    """One cell, as lines of the JSON file: what was measured, and what is not sent any more."""
    warnings.simplefilter("ignore")
    known = [row for row in rows_of() if (row["method"], row["set"]) == (method, name)]
    measured = bounded(limit, lambda: measure(method, name, data))
    if known and any(row["note"].startswith("too long") for row in measured):
        return []  # what is there stays: it says more
    ever = {row["attack"] for row in known}
    # an attack that never had anything to read does not apply; where it once had, "nothing" is the news
    told = [f for f in measured if f["attack"] in ever or not f["note"].startswith("nothing to read")]
    told += gone(measured, known)
    told = told or [{"attack": "", "note": "no attack had anything to read"}]
    told[0] = {**told[0], "parameters": parameters(every_case()[method].make())}
    return [json.dumps({"commit": made, "method": method, "set": name, **_rounded(found)}) for found in told]


def gone(measured: list[Row], before: list[Row]) -> list[Row]:
    """Attacks that had something to read in an earlier version, and whose message is not sent any more."""
    now = {(row["attack"], row.get("party")) for row in measured}
    now |= {(weak, party) for weak, strong in WEAKER.items() for attack, party in now if attack == strong}
    last = {(row["attack"], row["party"]): row for row in before if row["attack"]}
    lost = [row for place, row in last.items() if place not in now]
    kept = ("attack", "role", "party", "target", "metric", "guess", "baseline", "knows", "declared", "line")
    rest = {"control": None, "cpu_seconds": 0.0, "note": "gone: what it read is not sent any more"}
    return [
        {**{key: row.get(key) for key in kept}, "value": row["guess"], **rest}
        for row in lost
        if not row["note"].startswith("gone")
    ]


def _rounded(found: Row) -> Row:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}


def run(cells: list[tuple[str, str]], data: Path, jobs: int, made: str, out: Path, limit: int) -> None:
    """All cells, each in a process of its own; a cell that breaks down is named and the others go on."""
    slow = [next((place for place, word in enumerate(SLOW) if word in f"{m} {s}"), len(SLOW)) for m, s in cells]
    ordered = [cell for _, cell in sorted(zip(slow, cells), key=lambda pair: pair[0])]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        asked = {pool.submit(lines, method, name, data, made, limit): (method, name) for method, name in ordered}
        for done in as_completed(asked):
            try:
                text = done.result()
            except Exception as error:  # one broken cell must not lose the others
                print(f"{asked[done]} broke down: {error!r}", file=sys.stderr, flush=True)
                continue
            with out.open("a", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in text)
            print(*asked[done], len(text), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDSIFT_DATA"))
    parser.add_argument("--sets", default=",".join(FILES))
    parser.add_argument("--methods", default=";".join(every_case()), help="separated by semicolons")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--limit", type=int, default=3600, help="CPU seconds of a cell")
    parser.add_argument("--commit", default=None, help="what is measured, where git cannot say it")
    parser.add_argument("--keep", default="", help="versions whose figures are not measured again")
    parser.add_argument("--out", type=Path, default=FIGURES)
    parser.add_argument("--missing", action="store_true", help="only list the cells without a figure of this version")
    parser.add_argument("--never", action="store_true", help="only cells that no version has measured")
    parser.add_argument("--again", action="store_true", help="only cells that some version has measured")
    parser.add_argument("--render", action="store_true", help="only write the page")
    given = parser.parse_args()
    made = given.commit or commit()
    wanted = {m.strip() for m in given.methods.split(";")}
    cells = [
        (m, s)
        for m, s in missing(rows_of(), [made, *given.keep.split(",")])
        if m in wanted and s in given.sets.split(",")
    ]
    ever = {(row["method"], row["set"]) for row in rows_of()}
    if given.never or given.again:
        cells = [cell for cell in cells if (cell in ever) == given.again]
    if given.missing:
        print("\n".join(f"{method}; {name}" for method, name in cells))
        return
    if not given.render:
        run(cells, Path(given.data), given.jobs, made, given.out, given.limit)
    if given.out == FIGURES:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
