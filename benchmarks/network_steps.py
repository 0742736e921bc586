"""How many rows a step of a network on shares should have: accuracy on held-back training rows, a line a table.

    python benchmarks/network_steps.py --data DIR [--tables spambase ...] [--batches 128 64 32]
    python benchmarks/network_steps.py --data DIR --phishing      on shares and in the clear, LESS-VFL's columns

The network in floating point, first weights, rate and cooling as on shares (a test holds the two together): two splits
of two seeds each. A fifth of the rows is left aside unseen, a quarter of the others is held back. With ``--phishing``
the rows left aside are the test rows of ``less_vfl.py``, seeds 100 to 105.
"""

from __future__ import annotations

import argparse
import math
import warnings

import less_vfl
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

import fedsift as fs
from fedsift.evaluate.datasets import load
from fedsift.models.splitnn.layers.sine import AMPLITUDE, CLIP, FIRST_SPREAD, cooled, usual_rate
from fedsift.models.splitnn.model import SplitNN

TABLES = ("spambase", "default_credit", "breast_cancer_wdbc", "california_housing", "wine_quality_red", "madelon",
          "gaussians", "friedman")  # fmt: skip
SEEDS, MOST_ROWS, EPOCHS, WIDTH, FINE = (100, 101), 8000, 18, 32, 1 << 20


def problem(name: str, data: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, and a label of two classes (a number: above its median)."""
    if name == "gaussians":
        X = np.random.default_rng(5).normal(size=(4000, 10))
        return X, ((X**2).sum(axis=1) > 9.34).astype(int)
    if name == "friedman":
        from sklearn.datasets import make_friedman1

        values, target = make_friedman1(2000, 5, noise=1.0, random_state=3)
        return values, (target > np.median(target)).astype(int)
    table, label = load(name, path=data)
    frame = pd.DataFrame(table).select_dtypes("number").astype(float)
    frame = frame.fillna(frame.mean())
    if name == "madelon":  # its columns that are no noise
        near = np.abs(np.corrcoef(frame.to_numpy().T))
        np.fill_diagonal(near, 0)
        frame = frame.loc[:, near.max(axis=0) > 0.2]
    y, found = np.asarray(label), len(np.unique(label))
    codes = y.astype(float) if found > 10 else np.unique(y, return_inverse=True)[1]
    return frame.to_numpy(), codes if found == 2 else (codes > np.median(codes)).astype(int)


def accuracy(X: np.ndarray, y: np.ndarray, held: np.ndarray, truth: np.ndarray, batch: int, seed: int) -> float:
    """A network of sines after plain steps, in floating point."""
    generator = np.random.default_rng(seed)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale < 1e-12] = 1.0
    X, held = (
        np.hstack([np.rint(np.clip((part - mean) / scale, -CLIP, CLIP) * 64) / 64, np.ones((len(part), 1))])
        for part in (X, held)
    )
    inputs = X.shape[1]
    weights = generator.standard_normal((inputs - 1, WIDTH)) * FIRST_SPREAD / math.sqrt(inputs)
    weights = np.vstack([weights, 2 * math.pi * (generator.random((1, WIDTH)) - 0.5)])
    unit, signs = AMPLITUDE / math.sqrt(WIDTH), np.where(np.arange(WIDTH) % 2, -1.0, 1.0)
    target = 2.0 * y - 1 - (2.0 * y - 1).mean()
    rate = usual_rate(inputs, 1, batch, False)
    for epoch in range(EPOCHS):
        step, order = rate * cooled(FINE, epoch, EPOCHS) / FINE, generator.permutation(len(X))
        for start in range(0, len(X), batch):
            rows = order[start : start + batch]
            angles = X[rows] @ weights
            error = unit * np.sin(angles) @ signs - target[rows]
            weights = weights - step * X[rows].T @ (error[:, None] * unit * signs * np.cos(angles)) / len(rows)
    score = unit * np.sin(held @ weights) @ signs + (2.0 * y - 1).mean()
    return float(np.mean((score > 0) == (truth == 1)))


def in_floating_point(name: str, data: str, batches: list[int]) -> None:
    X, y = problem(name, data)
    found: dict[int, list[float]] = {batch: [] for batch in batches}
    for seed in SEEDS:
        rows = np.random.default_rng(seed).permutation(len(X))[:MOST_ROWS]
        seen, _ = train_test_split(rows, test_size=0.2, random_state=seed)
        train, held = train_test_split(seen, test_size=0.25, random_state=seed + 1)
        for batch in batches:
            for again in range(2):
                found[batch].append(accuracy(X[train], y[train], X[held], y[held], batch, seed * 7 + again))
    shown = ", ".join(f"{batch} rows {np.mean(values):.4f}" for batch, values in found.items())
    print(f"{name}, {len(train)} rows x {X.shape[1]}: {shown}", flush=True)


def on_phishing(data: str, batches: list[int]) -> None:
    """On shares, and an open network of the same columns, over the columns that LESS-VFL keeps."""
    for seed in range(100, 106):
        X, y, real = less_vfl.with_noise("phishing_websites", seed, data)
        train, _ = less_vfl.federation(X, y, real, 3, seed, False)
        part, held = train.rows(train=0.75, random_state=seed + 1)
        masks = fs.LessVFL(epochs=1, width=2, random_state=seed).fit(part).masks_
        columns = {name: np.flatnonzero(mask) for name, mask in masks.items()}
        all_real = {n: [i for i, c in enumerate(names) if c in set(real)] for n, names in part.column_names().items()}
        shown = []
        for what, chosen in (("kept", columns), ("all real", all_real)):
            view, other = part.view(columns=chosen), held.view(columns=chosen)
            shown.append(f"open, {what} {less_vfl.network(view, other, EPOCHS, seed):.4f}")
        for batch in batches:
            network = SplitNN(width=WIDTH, epochs=EPOCHS, batch_size=batch, random_state=seed)
            score = network.fit(part.view(columns=columns)).score(held.view(columns=columns))
            shown.append(f"{batch} rows {score:.4f}")
        print(f"phishing {seed}: {', '.join(shown)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the Parquet files")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 64, 32])
    parser.add_argument("--phishing", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.phishing:
        on_phishing(given.data, given.batches)
        return
    for name in given.tables:
        in_floating_point(name, given.data, given.batches)


if __name__ == "__main__":
    main()
