"""Labels from what a party without labels learns of a linear model: the linear programme, before and now.

    python benchmarks/linear_labels.py --data DIR [--out FILE]

The label holder has half of the columns of each table, or three; the attacker has the rest, and knows its rows, the
class sizes and the parameters. "sums" is what it read until now, X'y over its own columns: labels in [-1, 1] with these
sums. "final weights" is what it learns now: at the optimum X'(2y - other scores) follows from its weights; it takes the
others' scores for a constant and looks for the labels that come nearest. The baseline is the sign of its own scores,
which its weights give it anyway; the guess is the larger class.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

import fedsift as fs
from fedsift.audit.attacks.final_weights import nearest_labels
from fedsift.evaluate.datasets import load
from fedsift.models.design import LinearPart

TABLES = ("sonar", "musk_v1", "colon")


def attack(name: str, folder: str, own_columns: int | None) -> list[str]:
    X, y = load(name, folder)
    codes = np.unique(y, return_inverse=True)[1]
    signs = np.where(codes == 1, 1.0, -1.0)
    cut = own_columns or X.shape[1] // 2
    tables = {"party1": X.iloc[:, :cut].assign(label=codes), "party2": X.iloc[:, cut:]}
    fed = fs.Federation.from_tables(tables, id=None, label=("party1", "label"))
    lines = []
    for model in (
        fs.VerticalLogisticRegression(),
        fs.VerticalLogisticRegression(max_iter=60),
        fs.HyFDCA(loss="logistic"),
    ):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(fed)
        site = fed.simulated["party2"]
        part = site.models.part(model.model_id_, LinearPart)
        own = part.design.matrix(site.table)
        scores = own @ part.weights[:, 0]
        if isinstance(model, fs.HyFDCA):  # sum of duals = alpha w; a dual is about a half less a quarter of the score
            told = 2 * (model.alpha * part.weights[:, 0] + own.T @ scores / 4)
            label = "HyFDCA, logistic"
        else:
            told = (own.T @ scores + 4 * len(own) * model.reg_lambda * part.weights[:, 0]) / 2
            label = f"vertical logistic, {model.n_iter_} steps"
        right = [
            np.mean(np.sign(found) == signs)
            for found in (
                nearest_labels(own, own.T @ signs, signs.sum()),
                nearest_labels(own, told, signs.sum()),
                scores - np.quantile(scores, np.mean(signs < 0)),
            )
        ]
        guess = max(np.mean(signs > 0), np.mean(signs < 0))
        lines.append(
            f"| {name} | {len(own)} x {own.shape[1]} | {label} | {right[0]:.3f} | {right[1]:.3f} | {right[2]:.3f} "
            f"| {guess:.3f} | {time.process_time() - start:.1f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out")
    options = parser.parse_args()
    head = [
        "# Labels from a linear model, for a party without labels", "",
        "`python benchmarks/linear_labels.py --data DIR`: share of training rows whose label is found.", "",
        "| table | attacker's rows x columns | model | from sums (until now) | from final weights (now) "
        "| sign of own scores (baseline) | guess | CPU s |", "|:--|--:|:--|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    rows = [line for cut in (None, 3) for name in TABLES for line in attack(name, options.data, cut)]
    if options.out:
        Path(options.out).write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
