"""LESS-VFL with auto-encoders as self-taught embeddings: how much noise goes, and what is left of the real columns.

    python benchmarks/self_taught.py --data DIR [--names phishing_websites ...] [--units 16]

In the clear. Each party's auto-encoder of its own columns has ``--units`` units; those that differ between the classes
(F test, a false-discovery rate of 5 % over all parties) matter; a group lasso keeps the fewest of the party's columns
that explain 0.9 of what all of them explain of these units. Tables, noise columns and parties as in ``less_vfl.py``.
Beside it the protected form's own selection: single columns and their squares.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import less_vfl
import numpy as np
from scipy.stats import f_oneway

import fedsift as fs
from fedsift.select.less_vfl.matching import _LOWEST, _PENALTIES, _explained, group_lasso
from fedsift.select.less_vfl.screening import benjamini_hochberg

HIDDEN, EPOCHS, FAR = 64, 30, 8.0


def embedded(x: np.ndarray, units: int, seed: int) -> np.ndarray:
    """Units of an auto-encoder of these columns."""
    import torch

    torch.manual_seed(seed)
    sizes = (x.shape[1], HIDDEN, units)

    def half(first: int, middle: int, last: int) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(first, middle), torch.nn.Tanh(), torch.nn.Linear(middle, last))

    encoder, decoder = half(*sizes), half(*sizes[::-1])
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.003)
    table = torch.tensor(x, dtype=torch.float32)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(table)).split(256):
            loss = ((decoder(encoder(table[rows])) - table[rows]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        found = encoder(table).numpy().astype(np.float64)
    return np.asarray((found - found.mean(axis=0)) / found.std(axis=0))


def matched(x: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Which columns a group lasso leaves that explain 0.9 of what all explain of these units."""
    every = np.ones(x.shape[1], dtype=bool)
    if not units.shape[1]:
        return ~every
    train = np.random.default_rng(1).permutation(len(x)) % 5 != 0
    gram, cross = x[train].T @ x[train] / train.sum(), x[train].T @ units[train] / train.sum()
    highest, weights = float(np.sqrt((cross**2).sum(axis=1)).max()), np.zeros_like(cross)
    for penalty in np.geomspace(highest, highest * _LOWEST, _PENALTIES):
        weights = group_lasso(gram, cross, weights, np.arange(x.shape[1]), float(penalty))
        kept = (weights**2).sum(axis=1) > 0
        if _explained(x, units, kept, train) >= 0.9 * _explained(x, units, every, train):
            return np.asarray(kept)
    return every


def by_auto_encoders(
    train: Any, X: Any, y: np.ndarray, rows: np.ndarray, count: int, seed: int
) -> dict[str, list[str]]:
    names, tables, units, p = train.column_names(), {}, {}, []
    for party, columns in names.items():
        x = X[columns].to_numpy()[rows]
        tables[party] = np.clip((x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), -FAR, FAR)
        units[party] = embedded(tables[party], count, seed)
        p += [f_oneway(*(units[party][y[rows] == c, j] for c in np.unique(y))).pvalue for j in range(count)]
    good = np.split(benjamini_hochberg(np.array(p), 0.05), len(names))
    return {
        party: [c for c, stays in zip(names[party], matched(tables[party], units[party][:, matter])) if stays]
        for party, matter in zip(names, good)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the Parquet files")
    parser.add_argument("--names", nargs="+", default=list(less_vfl.PARTIES), choices=list(less_vfl.PARTIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101])
    parser.add_argument("--units", type=int, default=16)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.names:
        for seed in given.seeds:
            X, y, real = less_vfl.with_noise(name, seed, given.data)
            train, _ = less_vfl.federation(X, y, real, less_vfl.PARTIES[name], seed, False)
            rows = np.random.default_rng(seed).permutation(len(y))[: int(0.8 * len(y))]
            ways = {
                "auto-encoders": by_auto_encoders(train, X, y, rows, given.units, seed),
                "single columns": fs.LessVFL(epochs=1, width=2, random_state=seed).fit(train).selected_,
            }
            for way, kept in ways.items():
                found = less_vfl.shares(kept, real, X.shape[1])
                print(f"{name} {seed} {way}: {', '.join(f'{k} {v:.3f}' for k, v in found.items())}", flush=True)


if __name__ == "__main__":
    main()
