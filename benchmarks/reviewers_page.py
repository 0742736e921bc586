"""The tables of ``reviewers.py``: results/reviewers.md from results/reviewers.jsonl.

python benchmarks/reviewers_page.py
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ceilings import CEILINGS
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
    """Sets x methods, in the order of the file, of the first draw: no method has others on all sets."""
    mine = frame[(frame["part"] == "table") & (frame["seed"] == 0) & frame[judge].notna()]
    wide = mine.pivot_table(index="data", columns="method", values=judge)
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
            f"{whole.shape[0]} sets, a draw of each, {whole.shape[1]} ways that ran on all. Friedman: p = {p:.1e}. Two "
            f"mean ranks differ beyond chance (Nemenyi, 5 %) where they are more than {difference:.2f} apart.", "",
            table(["columns by", "kind", "mean rank", "mean score"], rows), "",
        ]  # fmt: skip
    return "\n".join(parts)


def matrices(frame: pd.DataFrame) -> str:
    parts = []
    for judge, words in JUDGES.items():
        wide = scores(frame, judge)
        drawn = frame[(frame["part"] == "table") & (frame["method"] == "random")].groupby("data")["kept"].first()
        rows = [[name, int(drawn[name]), *(number(wide.loc[name, m]) for m in wide)] for name in wide.index]
        parts += [f"### Every set, judged by {words}", "", table(["set", "k", *wide], rows), ""]
    return "\n".join(parts)


def automatic(frame: pd.DataFrame, level: str = "###", where: str = "") -> str:
    """Each form of Auto beside the single methods, judged by the kind of model that it measured with."""
    parts = []
    for auto in [name for name in dict.fromkeys(frame["method"]) if kind_of(str(name)) == "auto"]:
        judge = next((judge for judge in JUDGES if f", {judge}" in str(auto)), None)
        if judge is not None and auto in scores(frame, judge):
            parts += [
                f"{level} `{auto}`, judged by {JUDGES[judge]}{where}",
                "",
                *beside_the_best(frame, str(auto), judge),
                "",
            ]
    return "\n".join(parts)


def on_the_rest(frame: pd.DataFrame) -> pd.DataFrame:
    """The table's cells, judged on all rows outside of training where the set has more than the draw took."""
    key, judges = ["data", "seed", "method"], list(JUDGES)
    more = frame[frame["part"] == "rest"].set_index(key)
    mine = frame[(frame["part"] == "table") & frame["boost"].notna()].copy()
    large = mine["data"].isin(more.index.get_level_values("data"))
    judged = [tuple(row) in more.index for row in mine[key].to_numpy(object)]
    mine = mine[~large | np.array(judged, dtype=bool)].set_index(key)
    mine.update(more[judges])
    return mine.reset_index()


def sharper(frame: pd.DataFrame) -> str:
    """Auto once more, with less luck of the test rows."""
    if not (frame["part"] == "rest").any():
        return ""
    rows = frame[frame["part"] == "rest"].groupby("data", sort=False)["test_rows"].max()
    words = (
        "The choices of the tables above, and models of the same training rows, judged on *all* rows of the set that "
        "were not trained on, where it has more than 2,000 ("
        + ", ".join(f"{name} {int(count):,}" for name, count in rows.items())
        + "); other sets as above. No choice was made anew."
    )
    return "\n".join(["### The same choices, judged on all other rows", "", words, "",
                      automatic(on_the_rest(frame), "####", ", all other rows")])  # fmt: skip


def draws(frame: pd.DataFrame, judge: str) -> pd.DataFrame:
    """Sets and draws x methods: those that have every single method that ran anywhere on the set, and nulls."""
    mine = frame[(frame["part"] == "table") & frame[judge].notna()]
    return mine.pivot_table(index=["data", "seed"], columns="method", values=judge)


def beside_the_best(frame: pd.DataFrame, auto: str, judge: str) -> list[str]:
    """Each set over its draws, then how often every way is near the best single method and below random columns."""
    each = draws(frame, judge)
    each = each[each[auto].notna() & each["random"].notna()]
    single = [name for name in each if kind_of(str(name)) == "single"]
    wide = each.groupby("data", sort=False).agg(lambda scores: scores.mean(skipna=False))  # of the same draws
    best, rows, noise = wide[single].max(axis=1), [], {}
    chose = frame[(frame["method"] == auto) & (frame["part"] == "table")].groupby("data")["chose"]
    kept = frame[(frame["method"] == auto) & (frame["part"] == "table")].groupby("data")["kept"].mean()
    for name in wide.index:
        top = wide.loc[name, single].idxmax()
        gaps = (each.loc[name, top] - each.loc[name, auto]).dropna()
        noise[name] = float(gaps.std() / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")
        took = ", ".join(f"{m} {n}" if n > 1 else str(m) for m, n in chose.get_group(name).value_counts().items())
        mine = wide.loc[name]
        rows.append(
            [
                name,
                len(gaps),
                took,
                number(kept[name], 1),
                number(mine[auto]),
                top,
                number(best[name]),
                number(best[name] - mine[auto]),
                number(noise[name]),
                number(mine["random"]),
                number(mine["all"]),
            ]
        )
    gap = best - wide[auto]
    loose = (gap <= np.maximum(NEAR, np.nan_to_num(pd.Series(noise).reindex(gap.index)))).sum()
    ways = [name for name in wide if kind_of(str(name)) in ("single", "null") and wide[name].notna().all()]
    counts = [
        [f"`{name}`", int((best - wide[name] <= NEAR).sum()), int((wide[name] < wide["random"]).sum()),
         number((best - wide[name]).mean())]
        for name in [*ways, auto]
    ]  # fmt: skip
    counts.sort(key=lambda row: -int(row[1]))
    hindsight = each[single].max(axis=1)
    near = hindsight - each[auto] <= NEAR
    first = near[near.index.get_level_values("seed") == 0]
    told, of = another_draw(each[single])
    floor = f" The method that was best on the test rows of *another* draw of the same set is on {told} of {of}."
    heads = ["set", "draws", "took", "columns", "score", "best single", "its score", "gap", "error of the gap",
             "random", "all"]  # fmt: skip
    return [
        f"Means over draws. The best single method of a set is the one of {len(single)} with the highest mean on the "
        f"test rows: hindsight, which no method has. Of {len(wide)} sets `{auto}` is within {NEAR} of it on "
        f"{int((gap <= NEAR).sum())}, within {NEAR} or one standard error of the gap on {int(loose)}, and below random "
        f"columns on {int((wide[auto] < wide['random']).sum())}.", "",
        f"Draw by draw it is within {NEAR} of that draw's best on {int(near.sum())} of {len(each)}, of first draws on "
        f"{int(first.sum())} of {len(first)}. Second draws are of sets whose first had a gap, and of no others: means "
        f"over draws flatter for that.{floor if of else ''}", "",
        table(heads, rows), "",
        table(["always", f"within {NEAR} of the best single", "below random", "mean gap"], counts),
    ]  # fmt: skip


def another_draw(each: pd.DataFrame) -> tuple[int, int]:
    """How often a method that is best on one draw is near the best of another draw of the same set, and of how many."""
    near = total = 0
    for _, mine in each.groupby("data"):
        for here, there in itertools.permutations(range(len(mine)), 2):
            gap = mine.iloc[here].max() - mine.iloc[here][mine.iloc[there].idxmax()]
            near, total = near + int(gap <= NEAR), total + 1
    return near, total


def not_run(frame: pd.DataFrame) -> str:
    missing = frame[(frame["part"] == "table") & frame["boost"].isna()] if "not_run" in frame else frame[:0]
    missing = missing.drop_duplicates(["method", "data"])
    rows = [[f"`{method}`", reason, ", ".join(group["data"])] for (method, reason), group in
            missing.groupby(["method", "not_run"], sort=False)]  # fmt: skip
    rows += nowhere(frame)
    words = (
        "Over the limit: more than its CPU seconds for selection and judge. Not tried: two sets with no more cells "
        "were over it. No cell: nobody has run it yet. "
        "`vertical_flafe`, `hybrid_flafe` and `fed_iife` make features and drop none: they are in no "
        "row."
    )
    return "\n".join(["### Not run", "", words, "", table(["method", "why", "sets"], rows) if rows else "", ""])


def nowhere(frame: pd.DataFrame) -> list[list[str]]:
    """Methods and sets of the table that have no cell at all."""
    from reviewers import AUTO, FEDERATED, SETS

    mine, found = frame[frame["part"] == "table"], []
    for method in [*CEILINGS, *FEDERATED, *AUTO]:
        there = set(mine[mine["method"] == method]["data"])
        missing = [name for name in SETS if name not in there]
        if missing:
            found.append([f"`{method}`", "no cell", "all" if len(missing) == len(SETS) else ", ".join(missing)])
    return found


def splits(frame: pd.DataFrame) -> str:
    mine = frame[frame["part"] == "splits"].sort_values("data", kind="stable")
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
    body: list[Any] = [ranked(frame), automatic(frame), sharper(frame), matrices(frame), not_run(frame)]
    body += [make(frame) for part, make in PARTS.items() if (frame["part"] == part).any()]
    commits = ", ".join(f"{each}" for each in dict.fromkeys(frame["commit"]))
    stamp = (
        f"`{COMMAND}`: {len(frame)} cells, loads {frame['load'].min():g} to {frame['load'].max():g}; commits {commits}."
    )
    return "\n".join(["# Twenty data sets, as reviewers ask", "", head, "", *body, stamp, ""])


def main() -> None:
    import reviewers

    head = "\n\n".join((reviewers.__doc__ or "").split("\n\n")[2:6]).strip()
    text = render(read(HERE / "reviewers.jsonl"), head)
    (HERE / "reviewers.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
