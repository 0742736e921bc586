"""What the feature engineering benchmarks share: one split of one data set, its federation, and the final model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedsift as fs
from fedsift.core.expressions import evaluate_columns, parse
from fedsift.engineer.fed_iife.selector import FedIIFE
from fedsift.errors import FedsiftError
from fedsift.evaluate.datasets import load

PARTIES = 8
SPLITS = {"equal": "IID", "unequal": "IID unequal", "target": "non-IID target", "kmeans": "non-IID features"}
PUBLISHED = {"synergy": "interaction", "functions": "paper", "patience": 2, "max_rows": 200, "max_features": 30}
PAPER_SCORES = {  # base, centralised IIFE, Fed-IIFE: Table 3
    "airfoil_self_noise": {"equal": (0.3253, 0.5180, 0.5196), "unequal": (0.3245, 0.5422, 0.5501),
                           "target": (0.3240, 0.5378, 0.4670), "kmeans": (0.3229, 0.5200, 0.5083)},
    "openml_586_fri_c3_1000_25": {"equal": (0.1348, 0.6636, 0.4031), "target": (0.1152, 0.6934, 0.4526)},
    "california_housing": {"equal": (0.4160, 0.4970, 0.5078), "target": (0.4212, 0.5042, 0.4579)},
    "wine_quality_red": {"equal": (0.5938, 0.6016, 0.6003), "target": (0.5884, 0.5947, 0.5956)},
    "jm1": {"equal": (0.8127, 0.8131, 0.8135), "target": (0.8102, 0.8136, 0.8095)},
    "default_credit": {"equal": (0.8094, 0.8152, 0.8173), "target": (0.8107, 0.8147, 0.8111)},
}  # fmt: skip
PAPER_SECONDS = {"airfoil_self_noise": 1257, "openml_586_fri_c3_1000_25": 1799, "california_housing": 2716,
                 "wine_quality_red": 1271, "jm1": 874, "default_credit": 2749}  # fmt: skip


class Trial:
    """One data set, split once by a seed into training and test rows."""

    def __init__(self, name: str, seed: int, folder: str | None):
        X, y = load(name, folder)
        order = np.random.default_rng(seed).permutation(len(y))
        cut = len(y) // 5
        self.seed = seed
        self.test, self.test_y = X.iloc[order[:cut]], y.iloc[order[:cut]].to_numpy()
        self.train, self.train_y = (
            X.iloc[order[cut:]].reset_index(drop=True),
            y.iloc[order[cut:]].reset_index(drop=True),
        )
        self.regression = y.dtype.kind == "f"

    def federation(self, how: str = "equal", parties: int = PARTIES) -> fs.Federation:
        task = "regression" if self.regression else "classification"
        return fs.Federation.split(
            self.train,
            self.train_y,
            parties=parties,
            partition="horizontal",
            how=how,
            random_state=self.seed,
            task=task,
        )

    def engineer(self, how: str = "equal", parties: int = PARTIES, **settings) -> FedIIFE:
        engineer = FedIIFE(random_state=self.seed, protection="sums" if parties > 1 else "open", **settings)
        return engineer.fit(self.federation(how, parties))

    def score(self, formulas: list[str], columns: list[str] | None = None) -> float:
        """1 - relative absolute error, or accuracy (F1-micro), on the test rows."""
        train, test = (self._design(frame, formulas, columns) for frame in (self.train, self.test))
        mean = np.nanmean(train, axis=0)
        train, test = (np.where(np.isnan(each), mean, each) for each in (train, test))
        if self.regression:
            model = make_pipeline(StandardScaler(), RidgeCV(10.0 ** np.arange(-4, 4)))
            predicted = model.fit(train, self.train_y).predict(test)
            gap = np.abs(self.test_y - predicted).sum()
            return 1 - gap / np.abs(self.test_y - self.test_y.mean()).sum()
        scaled = StandardScaler().fit(train)
        logistic = LogisticRegression(max_iter=300)
        if len(train) < 5000:  # the penalty hardly matters for more rows, and the search is slow there
            logistic = LogisticRegressionCV(
                Cs=[0.01, 0.1, 1.0], cv=3, max_iter=300, l1_ratios=(0.0,), scoring="accuracy",
                use_legacy_attributes=False,
            )  # fmt: skip
        return float(logistic.fit(scaled.transform(train), self.train_y).score(scaled.transform(test), self.test_y))

    def _design(self, frame: pd.DataFrame, formulas: list[str], columns: list[str] | None) -> np.ndarray:
        base = frame[list(frame.columns) if columns is None else columns].to_numpy(dtype=float)
        if not formulas:
            return base
        return np.hstack([base, evaluate_columns([parse(text) for text in formulas], frame)])

    def union(self, how: str, budget: int = 5) -> list[str]:
        """Every party engineers on its own rows; the union of what they find (the paper's section 7.1.2)."""
        sites = self.federation(how)._link.transport.sites
        task = "regression" if self.regression else "classification"
        found: list[str] = []
        for site in sites.values():
            frame = site.table.to_pandas()
            label = frame.pop(site.table.label_name)
            alone = fs.Federation.split(frame, label, parties=1, partition="horizontal", task=task)
            engineer = FedIIFE(random_state=self.seed, protection="open", max_features=budget, n_pairs=3)
            try:
                found += engineer.fit(alone).expressions_
            except FedsiftError:
                continue  # too few rows, or one class only: this party has nothing to say
        return list(dict.fromkeys(found))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def cost(engineer: FedIIFE) -> str:
    facts = engineer.details_
    return (
        f"{engineer.seconds_:.0f} s, {facts['rounds']} rounds, {facts['bytes'] / 1e6:.0f} MB, {waiting(engineer):.0%}"
    )


def waiting(engineer: FedIIFE) -> float:
    """Share of the time in which the coordinator waited for parties (the slowest of each round)."""
    frame = engineer.ledger_.frame()
    replies = frame[frame.receiver == "coordinator"]
    share = replies.groupby("round").seconds.max().sum() / engineer.seconds_
    return float(min(share, 1.0))


def cell(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({np.std(values):.3f})" if len(values) > 1 else f"{values[0]:.3f}"
