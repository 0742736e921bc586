"""Attacks on boosting, on arrays: labels from nodes and cells from left/right bits as the audit has them
(``audit/attacks``), equations in the ring, and a row of a rare class that is alone in a node of opened sums."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.metrics import roc_auc_score

import fedsift as fs
from fedsift.audit.attacks.cut_bits import largest_left
from fedsift.audit.attacks.node_labels import spread_over
from fedsift.models.boost.hidden import label_holder, passive
from fedsift.models.boost.hidden.shares import unpack
from fedsift.models.boost.model import SecureBoostClassifier


def node_attack(nodes: np.ndarray, y: np.ndarray, known: int = 40, draws: int = 10) -> float:
    """Mean AUC over the rows whose labels are not known."""
    inside, found = csr_matrix(nodes[nodes.any(axis=1)].T.astype(float)), []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        chosen = np.concatenate([rng.choice(np.flatnonzero(y == k), known // 2, replace=False) for k in (0, 1)])
        rest = np.setdiff1d(np.arange(len(y)), chosen)
        found.append(roc_auc_score(y[rest], spread_over(inside, chosen, y[chosen])[rest]))
    return float(np.mean(found))


def solve_ring(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """x with matrix x = right in Z_2^64, for at least as many equations as unknowns; ``None`` where there is none."""
    a, b = matrix.astype(np.uint64).copy(), right.astype(np.uint64)[:, None].copy()  # arrays wrap, scalars warn
    for column in range(a.shape[1]):
        odd = np.flatnonzero(a[column:, column] & np.uint64(1))
        if not len(odd):
            return None
        pivot = column + int(odd[0])
        a[[column, pivot]], b[[column, pivot]] = a[[pivot, column]], b[[pivot, column]]
        inverse = np.uint64(pow(int(a[column, column]), -1, 2**64))
        a[column], b[column] = a[column] * inverse, b[column] * inverse
        for row in range(len(a)):
            if row != column:
                factor = a[row, column : column + 1].copy()
                a[row], b[row] = a[row] - factor * a[column], b[row] - factor * b[column]
    return b[: a.shape[1], 0] if not b[a.shape[1] :].any() else None


def placed_cells(codes: np.ndarray, bits: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """Share of cells whose bin is guessed from left/right bits: (column, which of its bins go left, rows, went left).

    The attacker is given more than it has: which column every cut is of, and the sizes of all bins. Of the bins that a
    row may still lie in it guesses the largest.
    """
    return float((largest_left(codes, bits) == codes).mean())


def mode_guess(codes: np.ndarray) -> float:
    return float(np.mean([np.bincount(column).max() / len(column) for column in codes.T]))


def rare() -> tuple[pd.DataFrame, np.ndarray]:
    """Two in a hundred rows, by the sum of two of eight columns."""
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.normal(size=(4000, 8)), columns=[f"x{i}" for i in range(8)])
    return X, (X["x1"] + X["x6"] + generator.normal(size=4000) > 3.6).astype(int).to_numpy()


def nodes_with_noise(X, y, width: float):
    """Of every node of ten trees: gradients of its rows, noise of the other party's cuts, their bits and bins."""
    seen, cuts = [], {}
    blurred, table = label_holder.blurred, passive.OwnCuts.of.__func__

    def watch(boosting, job, nodes, noises, tree, salts, share):
        out = blurred(boosting, job, nodes, noises, tree, salts, share)
        for place, node in enumerate(nodes):
            if node is not None and share.shape[1]:
                noise = unpack(out[place, :, 0] - share[place, :, 0])[0]
                size = 0.0 if noises[place] is None else noises[place].gradient * job.units.gradient
                seen.append((node.train, job.numbers[node.train, 0] * job.units.gradient,
                             noise * job.units.gradient, size))  # fmt: skip
        return out

    def fitted(cls, party, bins):
        cuts["own"] = table(cls, party, bins)
        return cuts["own"]

    with mock.patch.object(label_holder, "blurred", watch), \
            mock.patch.object(passive.OwnCuts, "of", classmethod(fitted)):  # fmt: skip
        fed = fs.Federation.split(X, y, parties=2)
        SecureBoostClassifier(n_estimators=10, max_depth=5, sum_noise=width, protection="coordinator").fit(fed)
    own = cuts["own"]
    bits = own.bits(0, int(own.layout.starts[-1]))
    return [(g, noise, size, bits[rows], own.codes[rows], own.layout) for rows, g, noise, size in seen]


def alone(node):
    """Right bits and cells of the one row of the rarer class, and guesses; nothing where it is not one."""
    g, noise, size, bits, codes, layout = node
    left, rows, lone = bits.sum(axis=0), len(g), np.flatnonzero(g < 0)
    told = (left > 0) & (left < rows)
    if len(lone) != 1 or not told.any():
        return None
    true, chances = bits[lone[0]], g.sum() + 1
    missing = left / rows * chances - (g @ bits + noise)  # 1 where the row is on the left, 0 where it is not
    spread = max(size, 0.05)  # of exact sums the scores of the others are what is not known
    prior = np.log((left + 1) / (rows - left + 1))
    seen = prior + (missing - 0.5) / spread**2 > 0
    found = np.column_stack([seen == true, (prior > 0) == true])[told]
    cells = []
    for column, count in enumerate(layout.counts.tolist()):
        here = missing[layout.starts[column] : layout.starts[column] + count]
        if not count or layout.categories[column] or codes[:, column].max() > count:
            continue
        sizes = np.bincount(codes[:, column], minlength=count + 1)
        fits = [-(((here - (np.arange(count) >= place)) ** 2).sum() / (2 * spread**2)) for place in range(count + 1)]
        guess = np.array(fits) + np.log(sizes + 1e-9)
        cells.append((guess.argmax() == codes[lone[0], column], sizes.argmax() == codes[lone[0], column]))
    return found, np.array(cells).reshape(-1, 2)
