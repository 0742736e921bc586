"""Does ``fs.value`` see what is there, and nothing else? Over many seeds, with planted useless and duplicate partners.

    python benchmarks/value.py [--data DIR] [--seeds 40] [--plain | --apart | --boost] [--jobs N] [--rows 10000]
        [--results FILE] [--render]

Each seed draws fresh rows of bank_marketing (client / loans / campaign) and default_credit (client / pay / bills), adds
a partner of six noise columns and one that repeats the client's columns, and deals fresh folds. ``on shares`` rows are
``fs.value`` itself: one job of the client and its two real partners, one of the client with the useless and the
duplicate one; single-threaded cells, ``--jobs`` of them at once. ``side by side`` rows are the same with the folds'
models trained side by side (one message a party and round for all) and areas that are exact; ``fold by fold`` rows
(``--apart``) for comparison one after the other, exact too. ``plain`` rows are the plaintext twin: the ridge solution
of the same designs on one table (``tests/test_value.py`` holds the joint model to it). Older ``secure`` rows are
``fs.value`` when the label holder still read the scores of rows. ``boosted trees`` rows (``--boost``) are the same
question put to ``fs.evaluate``: SecureBoost at its defaults (noise of the size of a row in what is opened), 20 trees,
five folds, of the client's columns and one partner's beside the client's alone.

Seeds: settings were chosen on 0 to 39; ``plain`` and ``secure`` use 100 and up, ``on shares`` 300 and up, ``fold by
fold`` and ``side by side, before`` (older code) 400 and up, the others 500 and up, which no choice has seen. ``on two
cores`` is seed 500 again, bound to two cores (``taskset -c 0,1``).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import commit
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

import fedsift as fs
from fedsift.core import in_step
from fedsift.core.table import Table
from fedsift.evaluate import datasets
from fedsift.evaluate.intervals import corrected_interval
from fedsift.evaluate.value_holder import ValueJob
from fedsift.models.design import BinnedDesign

HERE = Path(__file__).parent / "results"
ROWS, PAGE = HERE / "value.jsonl", HERE / "value.md"
PARTIES = {
    "bank_marketing": {
        "client": ["age", "job", "marital", "education", "default", "balance"],
        "loans": ["housing", "loan"],
        "campaign": ["contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome"],
    },
    "default_credit": {
        "client": ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"],
        "pay": ["PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"],
        "bills": [f"{what}_AMT{i}" for what in ("BILL", "PAY") for i in range(1, 7)],
    },
}
FIRST_PLAIN, FIRST_SEED = 100, 500
PLANTED = ("useless", "duplicate")


def tables(name: str, rows: int, seed: int, folder: Path | None) -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    X, y = datasets.load(name, folder)
    drawn = np.random.default_rng(seed).choice(len(X), rows, replace=False)
    X, y = X.iloc[drawn].reset_index(drop=True), y.iloc[drawn].to_numpy()
    made = {party: X[columns].copy() for party, columns in PARTIES[name].items()}
    noise = np.random.default_rng([seed, 1]).normal(size=(rows, 6))
    made["useless"] = pd.DataFrame(noise, columns=[f"noise_{i}" for i in range(6)])
    made["duplicate"] = made["client"].rename(columns=lambda column: f"{column}_again")
    return made, y


def plain(name: str, rows: int, seed: int, folder: Path | None) -> list[dict[str, Any]]:
    """The twin: every partner by itself, the two real ones beyond each other, and shuffled."""
    made, y = tables(name, rows, seed, folder)
    job, generator = ValueJob(), np.random.default_rng([seed, 2])
    fold = generator.permutation(rows) % job.folds
    real = list(PARTIES[name])[1:]
    tried: dict[str, Sequence[str]] = {"alone": [], "both": real, **{p: [p] for p in made if p != "client"}}
    tables_of = {party: Table.read(frame, id=None, name=party) for party, frame in made.items()}
    scores: dict[str, list[float]] = {name: [] for name in (*tried, *(f"shuffled {p}" for p in real))}
    for k in range(job.folds):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        designs = {p: BinnedDesign.fit(t.take(train), job.bins or 8, job.min_cell) for p, t in tables_of.items()}
        parts = {p: (designs[p].matrix(t.take(train)), designs[p].matrix(t.take(test))) for p, t in tables_of.items()}
        for what, group in tried.items():
            scores[what].append(_auc([parts[p] for p in ("client", *group)], y, train, test, job.reg_lambda))
        for partner in real:
            a, b = (part[generator.permutation(len(part))] for part in parts[partner])
            found = _auc([parts["client"], (a, b)], y, train, test, job.reg_lambda)
            scores[f"shuffled {partner}"].append(found)
    found = {what: np.array(values) for what, values in scores.items()}
    gains = {p: found[p] - found["alone"] for p in (*real, "useless", "duplicate", *(f"shuffled {p}" for p in real))}
    gains |= {f"{p} beyond {q}": found["both"] - found[q] for p, q in (real, real[::-1])}
    return [_row(name, "plain", seed, rows, who, gain, 1 / job.folds, job.digits) for who, gain in gains.items()]


def _auc(parts: list[tuple[np.ndarray, np.ndarray]], y: np.ndarray, train: Any, test: Any, penalty: float) -> float:
    X, Z = (np.hstack([part[side] for part in parts]) for side in (0, 1))
    model = Ridge(alpha=4 * penalty * len(train)).fit(X, np.where(y[train] == 1, 2.0, -2.0))
    return float(roc_auc_score(y[test], model.predict(Z)))


def _row(name: str, how: str, seed: int, rows: int, who: str, gain: Any, share: float, digits: int) -> dict[str, Any]:
    interval = corrected_interval(gain.tolist(), share).rounded(digits)
    return {"data": name, "how": how, "seed": seed, "rows": rows, "who": who, "gain": interval.mean,
            "low": interval.low, "high": interval.high, "seen": interval.low > 0}  # fmt: skip


def on_shares(
    name: str, rows: int, seed: int, folder: Path | None, partners: Sequence[str], apart: bool
) -> list[dict[str, Any]]:
    """``fs.value`` itself on the client and two partners, timed."""
    if apart:
        in_step.ROOM = 0
    made, y = tables(name, rows, seed, folder)
    ids = np.arange(rows).astype(str)
    files = {party: made[party].assign(id=ids) for party in ("client", *partners)}
    files["client"]["target"] = y
    fed = fs.Federation.from_tables(files, id="id", label=("client", "target"))
    start, before = time.process_time(), fed.ledger.rounds()
    found = fs.value(fed, random_state=seed)
    key = {"data": name, "how": "fold by fold" if apart else "side by side", "seed": seed, "rows": rows}
    cost = {"rounds": fed.ledger.rounds() - before,
            "cpu": round(time.process_time() - start, 1), "wall": round(found.seconds, 1),
            "load": round(os.getloadavg()[0], 1), "megabytes": round(found.bytes / 1e6)}  # fmt: skip
    lines = []
    for line in found.lines:
        told = {line.partner: line.adds, f"{line.partner} beyond the other": line.beyond,
                f"shuffled {line.partner}": line.null}  # fmt: skip
        for who, gain in told.items():
            assert gain is not None
            lines.append({**key, "who": who, "gain": gain.mean, "low": gain.low, "high": gain.high, "seen": gain.seen,
                          **cost})  # fmt: skip
    return lines


def boosted(name: str, rows: int, seed: int, folder: Path | None, partner: str) -> list[dict[str, Any]]:
    """A partner's gain in the AUC of boosted trees: all columns beside the client's alone, paired over five folds."""
    made, y = tables(name, rows, seed, folder)
    if partner.startswith("shuffled "):
        mixed = np.random.default_rng([seed, 2]).permutation(rows)
        made[partner] = made[partner.removeprefix("shuffled ")].iloc[mixed].reset_index(drop=True)
    ids = np.arange(rows).astype(str)
    files = {"client": made["client"].assign(id=ids, target=y), "partner": made[partner].assign(id=ids)}
    fed = fs.Federation.from_tables(files, id="id", label=("client", "target"))
    alone = fs.AllFeatures().set_rules(fs.Rules(never=[f"partner.{column}" for column in made[partner]]))
    start = time.process_time()
    model = fs.SecureBoostClassifier(n_estimators=20, max_depth=3, learning_rate=0.3, random_state=seed)
    told = fs.evaluate(fed, {"alone": alone}, model=model, cv=5, metrics="auc", random_state=seed).released
    less = told["alone"]["auc"]
    assert less.low is not None
    assert less.high is not None
    gain = round(told["all features"]["auc"].mean - less.mean, 3)
    return [{"data": name, "how": "boosted trees", "seed": seed, "rows": rows, "who": partner, "gain": gain,
             "low": -less.high, "high": -less.low, "seen": -less.high > 0,
             "cpu": round(time.process_time() - start, 1), "load": round(os.getloadavg()[0], 1)}]  # fmt: skip


def cells(options: argparse.Namespace, there: set[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """What is still to be measured: a function and its arguments."""
    for number in range(options.seeds):
        for name, parties in PARTIES.items():
            key = (name, options.rows)
            if options.plain:
                if ("plain", FIRST_PLAIN + number, *key, "useless") not in there:
                    yield plain, *key, FIRST_PLAIN + number, options.data
                continue
            if options.boost:
                real = tuple(parties)[1:]
                for partner in (*real, *PLANTED, f"shuffled {real[-1]}"):
                    if ("boosted trees", FIRST_SEED + number, *key, partner) not in there:
                        yield boosted, *key, FIRST_SEED + number, options.data, partner
                continue
            for partners in (tuple(parties)[1:], PLANTED):
                how = "fold by fold" if options.apart else "side by side"
                if (how, FIRST_SEED + number, *key, partners[0]) not in there:
                    yield on_shares, *key, FIRST_SEED + number, options.data, partners, options.apart


def render() -> str:
    frame = pd.DataFrame([json.loads(line) for line in ROWS.read_text().splitlines()])
    text = ["# What partners are worth", "",
            "`python benchmarks/value.py --data DIR`: gain in AUC over the client alone (or beyond the other), and",
            "how often the whole interval lay above 0. Fresh rows and folds in each seed.", "",
            "| data | rows | run | partner | mean gain | seeds | gain seen |",
            "|:--|--:|:--|:--|--:|--:|--:|"]  # fmt: skip
    for (data, rows, how, who), part in frame.groupby(["data", "rows", "how", "who"], sort=False):
        text.append(f"| {data} | {rows:,} | {how} | {who} | {part.gain.mean():.3f} | {len(part)} | {part.seen.sum()} |")
    partners = [parties[1] for parties in map(list, PARTIES.values())]
    timed = frame[frame.who.isin(partners) & ~frame.how.isin(["plain", "boosted trees"])]
    text += ["", "## Cost of a whole valuation (three parties, ten folds, with shuffled nulls)", "",
             "| data | rows | run | valuations | wall s, median (most) | CPU s | load | MB sent | round trips |",
             "|:--|--:|:--|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for (data, rows, how), part in timed.groupby(["data", "rows", "how"], sort=False):
        text.append(
            f"| {data} | {rows:,} | {how} | {len(part)} | {part.wall.median():.1f} ({part.wall.max():.1f}) | "
            f"{part.cpu.median():.1f} | {part.load.min()} to {part.load.max()} | {part.megabytes.median():.0f} | "
            f"{'' if part.rounds.isna().all() else f'{part.rounds.median():,.0f}'} |"
        )
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the benchmark tables (default: FEDSIFT_DATA)")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--plain", action="store_true", help="the plaintext twin in place of fs.value")
    parser.add_argument("--boost", action="store_true", help="the same question to boosted trees, by fs.evaluate")
    parser.add_argument("--apart", action="store_true", help="folds one after the other")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side, each on one core")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--results", type=Path, default=ROWS, help="the file that rows are appended to")
    parser.add_argument("--render", action="store_true", help="only write the page from the rows")
    options = parser.parse_args()
    if not options.render:
        made_by, file = commit(), options.results
        old = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
        there = {(row["how"], row["seed"], row["data"], row["rows"], row["who"]) for row in old}  # it goes on
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool, file.open("a") as out:
            for done in as_completed([pool.submit(*cell) for cell in cells(options, there)]):
                out.writelines(json.dumps({**row, "commit": made_by}) + "\n" for row in done.result())
                out.flush()
    if options.results == ROWS:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
