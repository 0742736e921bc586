"""The tables of ``reviewers.py``: results/reviewers.md from results/reviewers.jsonl.

python benchmarks/reviewers_page.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

HERE = Path(__file__).parent / "results"
COMMAND = "python benchmarks/reviewers.py --data DIR"
JUDGES = {"boost": "boosted trees", "linear": "a linear model"}
NULLS = ("all", "random")
ROWS = ("feature_election", "fed_halving")
NEAR = 0.01


def read(path: Path) -> pd.DataFrame:
    lines = path.read_text(encoding="utf-8").splitlines()
    frame = pd.DataFrame([json.loads(line) for line in lines if line.strip()])
    return frame.drop_duplicates(["part", "data", "seed", "method", *({"split"} & set(frame))], keep="last")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    ruler = "|---|" + "--:|" * (len(heads) - 1)
    return "\n".join([f"| {' | '.join(heads)} |", ruler, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def number(value: object, digits: int = 3) -> str:
    return "" if value is None or value != value else f"{value:.{digits}f}"


def kind_of(method: str) -> str:
    if method in NULLS:
        return "null"
    if method.startswith("pooled"):
        return "ceiling"
    if method.startswith("auto"):
        return "auto"
    return "rows" if method in ROWS else "single"


def scores(frame: pd.DataFrame, judge: str) -> pd.DataFrame:
    """Sets x methods, in the order of the file; the mean over seeds."""
    mine = frame[(frame["part"] == "table") & frame[judge].notna()]
    wide = mine.pivot_table(index="data", columns="method", values=judge, aggfunc="mean")
    return wide.reindex(index=list(dict.fromkeys(mine["data"])), columns=list(dict.fromkeys(mine["method"])))


def complete(wide: pd.DataFrame) -> pd.DataFrame:
    return wide.loc[:, wide.notna().all()]


def ranks(wide: pd.DataFrame) -> tuple[pd.Series, float, float]:
    """Mean rank of each method (1 is best), the p value of Friedman's test, and Nemenyi's critical difference."""
    placed = wide.rank(axis=1, ascending=False)
    sets, methods = wide.shape
    p = stats.friedmanchisquare(*wide.to_numpy().T).pvalue
    factor = stats.studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    return placed.mean().sort_values(), float(p), float(factor * np.sqrt(methods * (methods + 1) / (6 * sets)))


# --- the parts -------------------------------------------------------------------------------------------------------


def ranked(frame: pd.DataFrame) -> str:
    parts = []
    for judge, words in JUDGES.items():
        whole = complete(scores(frame, judge))
        mean, p, difference = ranks(whole)
        rows = [[f"`{name}`" if kind_of(name) != "ceiling" else name, kind_of(name), number(place, 2),
                 number(whole[name].mean())] for name, place in mean.items()]  # fmt: skip
        parts += [
            f"### Mean ranks, judged by {words}", "",
            f"{whole.shape[0]} sets, {whole.shape[1]} ways that ran on all of them. Friedman: p = {p:.1e}. Two mean "
            f"ranks differ beyond chance (Nemenyi, 5 %) where they are more than {difference:.2f} apart.", "",
            table(["columns by", "kind", "mean rank", "mean score"], rows), "",
        ]  # fmt: skip
    return "\n".join(parts)


def matrices(frame: pd.DataFrame) -> str:
    parts = []
    for judge, words in JUDGES.items():
        wide = scores(frame, judge)
        drawn = frame[(frame["part"] == "table") & (frame["method"] == "random")].set_index("data")["kept"]
        rows = [[name, int(drawn[name]), *(number(wide.loc[name, m]) for m in wide)] for name in wide.index]
        parts += [f"### Every set, judged by {words}", "", table(["set", "k", *wide], rows), ""]
    return "\n".join(parts)


def automatic(frame: pd.DataFrame) -> str:
    parts = []
    for auto in [name for name in dict.fromkeys(frame["method"]) if kind_of(str(name)) == "auto"]:
        for judge, words in JUDGES.items():
            wide = scores(frame, judge)
            if auto in wide:
                chose = frame[(frame["method"] == auto) & (frame["part"] == "table")].set_index("data")["chose"]
                parts += [f"### `{auto}`, judged by {words}", "", *beside_the_best(wide, auto, chose), ""]
    return "\n".join(parts)


def beside_the_best(wide: pd.DataFrame, auto: str, chose: pd.Series) -> list[str]:
    """Each set, then how often every way is near the best single method and below random columns on these sets."""
    wide = wide[wide[auto].notna()]
    single = [name for name in wide if kind_of(name) == "single"]
    best, whole = wide[single].max(axis=1), complete(wide)
    rows = [
        [name, chose[name], number(wide.loc[name, auto]), wide.loc[name, single].idxmax(), number(best[name]),
         number(best[name] - wide.loc[name, auto]), number(wide.loc[name, "random"]), number(wide.loc[name, "all"])]
        for name in wide.index
    ]  # fmt: skip
    counts = [
        [f"`{name}`", int((best - whole[name] <= NEAR).sum()), int((whole[name] < whole["random"]).sum()),
         number((best - whole[name]).mean())]
        for name in whole if kind_of(name) in ("single", "auto", "null")
    ]  # fmt: skip
    counts.sort(key=lambda row: -int(row[1]))
    return [
        f"The best single method is that of {len(single)} with the highest score on these test rows: hindsight, "
        f"which no method has. Counts are of these {len(wide)} sets, for ways that ran on all of them.", "",
        table(["set", "took", "score", "best single", "its score", "gap", "random", "all"], rows), "",
        table(["always", f"within {NEAR} of the best single", "below random", "mean gap"], counts),
    ]  # fmt: skip


def not_run(frame: pd.DataFrame) -> str:
    missing = frame[(frame["part"] == "table") & frame["boost"].isna()] if "not_run" in frame else frame[:0]
    rows = [[f"`{method}`", reason, ", ".join(group["data"])] for (method, reason), group in
            missing.groupby(["method", "not_run"], sort=False)]  # fmt: skip
    words = (
        "Over the limit: more than its CPU seconds for selection and judge. Not tried: two sets with no more cells "
        "were over it. `vertical_flafe`, `hybrid_flafe` and `fed_iife` make features and drop none: they are in no row."
    )
    return "\n".join(["### Not run", "", words, "", table(["method", "why", "sets"], rows) if rows else "", ""])


def splits(frame: pd.DataFrame) -> str:
    mine = frame[frame["part"] == "splits"]
    rows = []
    for (name, method), group in mine.groupby(["data", "method"], sort=False):
        by = group.set_index("split")
        first = set(by.loc["random", "columns"] or []) if "columns" in by and by.loc["random", "boost"] == by.loc[
            "random", "boost"] else set()  # fmt: skip
        cells = []
        for how in ("random", "importance", "within", "across"):
            if how not in by.index or by.loc[how, "boost"] != by.loc[how, "boost"]:
                cells.append("not run")
                continue
            kept = set(by.loc[how, "columns"])
            shared = len(first & kept) / max(1, len(first | kept))
            cells.append(f"{by.loc[how, 'boost']:.3f} ({shared:.2f})")
        rows.append([name, f"`{method}`", *cells])
    words = (
        "Score by boosted trees, and in brackets how much of the choice is that of the random split (Jaccard; 1.00: "
        "the same columns). `importance`: one party holds nearly all importance; `within`: columns that go together "
        "are at one party; `across`: they are spread."
    )
    return "\n".join(["### Splits of columns", "", words, "",
                      table(["set", "method", "random", "importance", "within", "across"], rows), ""])  # fmt: skip


def extra(frame: pd.DataFrame) -> str:
    mine = frame[(frame["part"] == "extra")]
    rows = []
    for method, group in mine.groupby("method", sort=False):
        row: list[object] = [f"`{method}`" if kind_of(str(method)) != "ceiling" else method]
        for how in ("random", "corrupted", "second-order"):
            found = group[(group["split"] == how) & group["boost"].notna()]
            real = found["real"].dropna() if "real" in found else []
            tail = f", {np.mean(real):.2f} real" if len(real) else ""
            ran = "" if len(found) == 4 else f" ({len(found)} of 4 sets)"
            row.append(f"{found['boost'].mean():.3f}{tail}{ran}" if len(found) else "not run")
        rows.append(row)
    words = (
        "Four sets (california_housing, breast_cancer_wdbc, phishing_websites, spambase) with as many extra columns as "
        "they have; `k` is the number of real ones, at most 20. Mean score by boosted trees, and the share of real "
        "columns among the kept ones. Second-order columns are made of real ones: keeping them is no mistake."
    )
    return "\n".join(["### Extra columns", "", words, "",
                      table(["columns by", "random", "corrupted", "second-order"], rows), ""])  # fmt: skip


def flare(frame: pd.DataFrame) -> str:
    mine = frame[frame["part"] == "flare"]
    rows = []
    for method, group in mine.groupby("method", sort=False):
        ran = group[group["boost"].notna()]
        why = "; ".join(dict.fromkeys(group["not_run"].dropna())) if "not_run" in group else ""
        means = ran[["kept", "true", "boost", "linear", "fit_cpu_s"]].mean()
        rows.append([method, f"{len(ran)} of {len(group)}", number(means["kept"], 1), number(means["true"], 1),
                     number(means["boost"]), number(means["linear"]), number(means["fit_cpu_s"], 1), why])  # fmt: skip
    words = (
        "Rows at three parties, `freedom_degree` 0.5, otherwise defaults; three seeds, `true` of Madelon's 20. "
        "NVIDIA's is `nvflare.app_opt.feature_election` of nvflare 2.9, its own simulation in one process, in "
        "which the server sees each party's votes and scores; ours adds them up under masks."
    )
    heads = ["who: method", "seeds", "kept", "true", "boosted trees", "linear", "CPU s", "not run"]
    return "\n".join(["### Feature Election of NVIDIA FLARE on Madelon", "", words, "", table(heads, rows), ""])


PARTS: dict[str, Callable[[pd.DataFrame], str]] = {"splits": splits, "extra": extra, "flare": flare}


def render(frame: pd.DataFrame, head: str) -> str:
    body: list[Any] = [ranked(frame), automatic(frame), matrices(frame), not_run(frame)]
    body += [make(frame) for part, make in PARTS.items() if (frame["part"] == part).any()]
    commits = ", ".join(f"{each}" for each in dict.fromkeys(frame["commit"]))
    stamp = (
        f"`{COMMAND}`: {len(frame)} cells, loads {frame['load'].min():g} to {frame['load'].max():g}; commits {commits}."
    )
    return "\n".join(["# Twenty data sets, as reviewers ask", "", head, "", *body, stamp, ""])


def main() -> None:
    import reviewers

    head = "\n\n".join((reviewers.__doc__ or "").split("\n\n")[2:4]).strip()
    text = render(read(HERE / "reviewers.jsonl"), head)
    (HERE / "reviewers.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
