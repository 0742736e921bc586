"""HyFDCA: distance to the pooled solution by rounds, bytes and seconds; absent parties; the paper's rule beside it.

    python benchmarks/hyfdca.py [--quick] [--data DIR] [--out FILE]

Three data sets x three partitions (3 parties by columns, 4 by rows, a 2 x 3 grid with labels at one column block). The
pooled solution is scikit-learn's Ridge(alpha=1) or LogisticRegression(C=1) on standardised columns, solved to 1e-10.
Distance is |w - w_pooled| / |w_pooled|. No test rows: this measures an optimiser, not a model.

The paper's rule is simulated on plain arrays, in one process: every party with a row runs one pass of coordinate ascent
on its own columns from the common scores, the changes of a row's dual are averaged, the weights are rebuilt. It has no
intercept, so it is held against the pooled solution without one.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from provenance import commit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

import fedsift as fs
from fedsift.core.transports.base import Delivery, Transport
from fedsift.evaluate.datasets import load
from fedsift.models.hyfdca import vertical
from fedsift.models.hyfdca.model import HyFDCA
from fedsift.models.hyfdca.state import Part, RoundState

SETS = ("airfoil_self_noise", "breast_cancer_wdbc", "wine_quality_red")
SPLITS: dict[str, dict[str, Any]] = {
    "vertical, 3": {"parties": 3},
    "horizontal, 4": {"parties": 4, "partition": "horizontal"},
    "hybrid, 2 x 3": {"partition": "hybrid", "grid": (2, 3), "label_party": "columns1"},
}
LEVELS = (1e-1, 1e-2, 1e-3)


class Trial:
    """One data set: columns, target, the pooled solution."""

    def __init__(self, name: str, folder: str | None, rows: int | None, alpha: float = 1.0):
        X, y = load(name, folder)
        X = X.select_dtypes("number")
        if rows is not None and len(X) > rows:
            chosen = np.sort(np.random.default_rng(0).permutation(len(X))[:rows])
            X, y = X.iloc[chosen].reset_index(drop=True), y.iloc[chosen].reset_index(drop=True)
        X = X.loc[:, X.std() > 0]
        self.name, self.X, self.y, self.alpha = name, X, y, alpha
        self.regression = y.dtype.kind == "f" or name == "wine_quality_red"
        values = X.to_numpy(dtype=float)
        values = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
        self.Z = (values - values.mean(axis=0)) / values.std(axis=0)
        self.pooled = self.free = np.zeros(0)  # the second without an intercept: what the paper's rule aims at
        if self.regression:
            self.target = (y.to_numpy(dtype=float) - y.mean()) / y.std(ddof=0)
            self.pooled = self.free = Ridge(alpha=alpha).fit(self.Z, self.target).coef_
        else:
            self.target = np.where(y.to_numpy() == np.unique(y)[-1], 1.0, -1.0)
            fitted = LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=20000)
            self.pooled = fitted.fit(self.Z, self.target).coef_[0]
            self.free = fitted.set_params(fit_intercept=False).fit(self.Z, self.target).coef_[0]

    def federation(self, split: dict[str, Any]) -> fs.Federation:
        task = "regression" if self.regression else "classification"
        return fs.Federation.split(self.X, self.y, task=task, **split)

    def distance(self, weights: np.ndarray, reference: np.ndarray | None = None) -> float:
        reference = self.pooled if reference is None else reference
        return float(np.linalg.norm(weights - reference) / np.linalg.norm(reference))


class Told(vertical.OneBlock):
    """Vertical parties: writes down the weights that the coordinator is at."""

    last: dict[str, np.ndarray]

    def weights(self, u: np.ndarray) -> dict[str, np.ndarray]:
        Told.last = super().weights(u)
        return Told.last


vertical.OneBlock = Told  # type: ignore[misc]


class Watch:
    """After each round: the distance, the bytes and the CPU seconds so far (by looking into the simulated sites)."""

    def __init__(self, trial: Trial, fed: fs.Federation):
        self.trial, self.fed = trial, fed
        self.rows: list[tuple[int, float, int, float]] = []
        self.start = time.process_time()
        self.looking = 0.0

    def __call__(self, run: fs.Federation, turn: int) -> None:
        begin = time.process_time()
        found: dict[str, float] = {}
        for site in self.fed._link.transport.sites.values():
            session = site.sessions[run._session]
            if vertical.Components in session:
                part = session[vertical.Components]
                weights = (part.back @ Told.last[site.name][: part.back.shape[1]])[:, 0]
            else:
                part, state = session[Part], session[RoundState]
                weights = (part.metric @ state.columns.track.u)[:, 0]
            found |= dict(zip([name for name, _ in part.design.columns], weights))
        distance = self.trial.distance(np.array([found[name] for name in self.trial.X.columns]))
        self.rows.append((turn, distance, self.fed.ledger.bytes(), begin - self.start - self.looking))
        self.looking += time.process_time() - begin

    def first_below(self, level: float) -> tuple[int, float, int, float] | None:
        """The first round from which on the distance stays below the level."""
        last_above = max([i for i, row in enumerate(self.rows) if row[1] >= level], default=-1)
        return self.rows[last_above + 1] if last_above + 1 < len(self.rows) else None


class Absent(Transport):
    """A share of all answers is lost (after the party has done the work), from the first round on."""

    name = "absent"

    def __init__(self, inner: Transport, share: float, seed: int):
        self.inner, self.share, self.generator, self.training = inner, share, np.random.default_rng(seed), False
        self.lost = 0

    @property
    def sites(self) -> Any:
        return self.inner.sites  # type: ignore[attr-defined]

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        replies = self.inner.exchange(requests, timeout)
        self.training = self.training or any(
            word in data for data in requests.values() for word in (b"hyfdca.step_and_score", b"descent.share_scores")
        )
        for name in replies if self.training else ():
            if self.generator.random() < self.share:
                replies[name] = Delivery(None, 0.0, "gone")
                self.lost += 1
        return replies


def converge(trial: Trial, split: dict[str, Any], **settings: Any) -> tuple[HyFDCA, Watch, fs.Federation]:
    share = settings.pop("absent", 0.0)
    fed = trial.federation(split)
    if share:
        fed._link.transport = Absent(fed._link.transport, share, seed=0)
    watch = Watch(trial, fed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HyFDCA(penalty=trial.alpha, callback=watch, allow_sums=True, **settings).fit(fed)
    return model, watch, fed


def paper_rule(trial: Trial, blocks: int, rounds: int, share: float, seed: int = 0) -> list[float]:
    """Distances after each round of averaged local coordinate ascent, in plain numbers."""
    Z, y, alpha = trial.Z, trial.target, trial.alpha
    groups = np.array_split(np.arange(Z.shape[1]), blocks)
    dual, generator, distances = np.zeros(len(y)), np.random.default_rng(seed), []
    for _ in range(rounds):
        weights = Z.T @ dual / alpha
        scores, changes = Z @ weights, np.zeros(len(y))
        for group in groups:
            columns = Z[:, group]
            size, moved, own = (columns**2).sum(axis=1) / alpha, np.zeros(len(group)), np.zeros(len(y))
            for i in generator.permutation(len(y))[: max(1, round(share * len(y)))]:
                score = scores[i] + columns[i] @ moved
                own[i] = _coordinate(trial.regression, dual[i], score, y[i], size[i]) - dual[i]
                moved += own[i] / alpha * columns[i]
            changes += own / blocks
        dual = dual + changes
        distances.append(trial.distance(Z.T @ dual / alpha, trial.free))
        if not np.isfinite(distances[-1]) or distances[-1] > 1e6:
            break
    return distances


def _coordinate(regression: bool, dual: float, score: float, y: float, size: float) -> float:
    """The best dual of one row, all others fixed: closed form, or Newton's method for the logistic loss."""
    if regression:
        return dual + (y - score - dual) / (1 + size)
    start = min(max(y * dual, 1e-9), 1 - 1e-9)
    a = start
    for _ in range(20):
        slope = -y * score - size * (a - start) - np.log(a / (1 - a))
        step = slope / (size + 1 / (a * (1 - a)))
        a = min(max(a + step, a / 10), 1 - (1 - a) / 10)
        if abs(step) < 1e-10:
            break
    return y * a


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "--:|" * (len(head) - 2)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def at(row: tuple[int, float, int, float] | None) -> str:
    return "not reached" if row is None else f"{row[0]} / {row[2] / 1e6:.2f} MB / {row[3]:.2f} s"


def convergence(trials: list[Trial]) -> list[str]:
    body = []
    for trial in trials:
        for name, split in SPLITS.items():
            model, watch, fed = converge(trial, split)
            body.append([
                f"{trial.name} {trial.X.shape[0]} x {trial.X.shape[1]}", name,
                *[at(watch.first_below(level)) for level in LEVELS],
                str(model.n_rounds_), f"{watch.rows[-1][1]:.1e}", f"{model.history_['bound'].iloc[-1]:.1e}",
                f"{fed.ledger.bytes() / 1e6:.2f}", f"{watch.rows[-1][3]:.2f}",
            ])  # fmt: skip
            print(body[-1], flush=True)
    head = [
        "data",
        "split",
        "to 0.1",
        "to 0.01",
        "to 0.001",
        "rounds to stop",
        "distance then",
        "bound then",
        "MB",
        "s",
    ]
    return ["## Rounds, bytes and CPU seconds to a distance", "", *table(head, body)]


def absence(trials: list[Trial]) -> list[str]:
    cases: dict[str, dict[str, Any]] = {
        "all": {}, "1 % of answers lost": {"absent": 0.01}, "5 % lost": {"absent": 0.05},
        "half asked": {"participation": 0.5},
    }  # fmt: skip
    body = []
    for trial in trials:
        for name, split in SPLITS.items():
            for what, settings in cases.items():
                if "participation" in settings and name.startswith("vertical"):
                    continue  # all vertical parties take part
                model, watch, fed = converge(trial, split, rounds=2000, **settings)
                lost = getattr(fed._link.transport, "lost", 0)
                body.append([
                    trial.name, name, what, str(lost), str(model.n_rounds_), str(len(model.history_)),
                    f"{watch.rows[-1][1]:.1e}", "yes" if model.converged_ else "no", f"{fed.ledger.bytes() / 1e6:.2f}",
                ])  # fmt: skip
                print(body[-1], flush=True)
    head = ["data", "split", "who", "answers lost", "rounds", "of them full", "distance", "tol reached", "MB"]
    title = ["## Absent parties and partial participation", "", "Rounds until it stopped by itself (limit 2,000).", ""]
    return [*title, *table(head, body)]


def beside_the_paper(folder: str | None, rounds: int) -> list[str]:
    body = []
    for alpha in (1.0, 30.0, 1000.0):
        for name in SETS:
            trial = Trial(name, folder, 300, alpha)
            _, watch, _ = converge(trial, SPLITS["vertical, 3"])
            ours = watch.first_below(1e-3)
            for share in (1.0, 0.1):
                distances = paper_rule(trial, 3, rounds, share)
                shown = [f"{distances[min(k, len(distances)) - 1]:.1e}" for k in (10, 30, 100)]
                passed = "all rows" if share == 1 else "a tenth of the rows"
                body.append([name, f"{alpha:g}", passed, *shown, "-" if ours is None else str(ours[0])])
                print(body[-1], flush=True)
    head = ["data", "alpha", "local pass over", "after 10", "after 30", "after 100 (or last)", "ours: rounds to 0.001"]
    title = "## The paper's rule on plain numbers: distance after rounds (3 column blocks, 300 rows)"
    return [title, "", *table(head, body)]


PARTS = ("convergence", "absence", "paper")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="at most 300 rows, one data set for absence")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="other parts of the file stay")
    parser.add_argument("--data")
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "hyfdca.md"))
    given = parser.parse_args()
    trials = [Trial(name, given.data, 300 if given.quick else None) for name in SETS]
    out = Path(given.out)
    old = out.read_text().split("\n## ")[1:] if out.exists() else []
    sections = {text.split("\n")[0]: "## " + text.rstrip() for text in old}
    for part in PARTS:
        if part not in given.parts:
            continue
        load, begin = os.getloadavg()[0], time.process_time()
        if part == "convergence":
            lines = convergence(trials)
        elif part == "absence":
            lines = absence(trials[1:2] if given.quick else trials)
        else:
            lines = beside_the_paper(given.data, 30 if given.quick else 100)
        quick = "; --quick" if given.quick else ""
        lines += [
            "",
            f"Load {load:.1f} at the start; {time.process_time() - begin:.0f} CPU seconds{quick}; commit {commit()}.",
        ]
        sections[lines[0].removeprefix("## ")] = "\n".join(lines)
    about = "alpha = 1, tol = 1e-3, one seed; seconds are CPU seconds of all parties"
    head = f"# HyFDCA\n\n`python benchmarks/hyfdca.py`: {about}"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n\n".join([head, *sections.values()]) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    main()
