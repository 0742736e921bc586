"""Which pairs of columns work together: Fed-II (the paper) and an analysis of variance that is exact from sums (ours).

``interaction``: Overman and Klabjan, federated AutoFE, Algorithm 1. Each party estimates I(a;b|y) - I(a;b) on its own
rows; the average by row counts is the score. The estimator is the nearest-neighbour one for mixtures of discrete and
continuous values (Mesner and Shalizi 2021), the plug-in one where all three have few values. Departure: the scores
travel as secure sums. It looks at one party's rows at a time, so it changes with the split, and it misses pairs with
strong effects of their own.

``anova``: fit an additive ridge (each column's z, z^2, z^3 and hinges at its quartiles) from summed moments, take its
residual r, and score a pair by the F statistic of its 4 x 4 table of (count, sum of r) beyond row and column effects.
Everything is a sum over rows: exact under secure aggregation, and the same however rows are dealt to the parties.

The coordinator learns totals over all parties: counts on a grid of each column, the additive moments, the tables of
pairs. Cells of a table may be small where the whole federation has few rows there; no cell belongs to one party.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import digamma

from fedsift.core.checks import check_positions, check_size
from fedsift.core.expressions import CLIP
from fedsift.core.party import Party
from fedsift.models.fed_linear import FITS as SEARCHED
from fedsift.models.fed_linear import unpack_moments, with_intercept
from fedsift.mpc.horizontal_study import Study, design_of, target_of, training_of
from fedsift.mpc.secure_sum import SecureSum, both, summed

GRID = 200  # cells of the grid from -CLIP to CLIP on which quartiles are looked up
FEW = 10  # a variable with at most so many values is discrete
_CELLS = 4
_TERMS = _CELLS + 2  # of a column: z, z^2, z^3 and its hinges
_BLOCK = 1 << 20  # distances held at once while pairs are scored


# --- anova, a party's side -------------------------------------------------------------------------------------------


@summed(
    "iife.grid_counts",
    when="epsilon=none",
    times=SEARCHED,
    about="counts of each column on a common grid",
    receives="control",
)
def grid_counts(party: Party) -> np.ndarray:
    values = _held(party)
    cells = np.minimum(((values + CLIP) * (GRID / (2 * CLIP))).astype(np.int64), GRID - 1)
    return np.stack([np.bincount(column, minlength=GRID) for column in cells.T])


@summed(
    "iife.additive_moments",
    when="epsilon=none",
    times=SEARCHED,
    about="sums of products of the additive terms and the target",
)
def additive_moments(party: Party, *, edges: np.ndarray) -> np.ndarray:
    values = _held(party)
    check_size(party.name, "additive_moments", "edges", edges, values.shape[1], _CELLS - 1)
    basis = additive_basis(values, edges)
    joint = np.hstack([with_intercept(basis), target_of(party)[training_of(party)]])
    product = joint.T @ joint
    return np.asarray(product[np.triu_indices(len(product))])


@summed(
    "iife.pair_tables",
    when="epsilon=none",
    times=SEARCHED,
    about="counts and residual sums of the 4 x 4 tables of pairs of columns",
    learns="the additive model",
)
def pair_tables(party: Party, *, edges: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """(1 + outputs) x pairs x 16 numbers, then the squared residuals of each output."""
    values, outputs = _held(party), target_of(party).shape[1]
    width = values.shape[1]
    check_size(party.name, "pair_tables", "edges", edges, width, _CELLS - 1)
    check_size(party.name, "pair_tables", "coefficients", coefficients, _TERMS * width + 1, outputs)
    residual = target_of(party)[training_of(party)] - with_intercept(additive_basis(values, edges)) @ coefficients
    cell = (values[:, :, None] >= edges).sum(axis=2)
    one_hot = (cell[:, :, None] == np.arange(_CELLS)).astype(np.float64)
    one_hot = one_hot.reshape(len(values), _CELLS * values.shape[1])
    tables = [_pair_blocks(one_hot.T @ one_hot)]
    tables += [_pair_blocks((one_hot * r[:, None]).T @ one_hot) for r in residual.T]
    return np.concatenate([np.stack(tables).ravel(), (residual**2).sum(axis=0)])


def _held(party: Party) -> np.ndarray:
    return np.asarray(np.clip(design_of(party)[training_of(party)], -CLIP, CLIP))


def _pair_blocks(matrix: np.ndarray) -> np.ndarray:
    width = len(matrix) // _CELLS
    first, second = np.triu_indices(width, 1)
    return matrix.reshape(width, _CELLS, width, _CELLS)[first, :, second, :].reshape(len(first), _CELLS * _CELLS)


# --- anova, mathematics ----------------------------------------------------------------------------------------------


def additive_basis(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """z, z^2, z^3 and a hinge at each edge, for each column."""
    terms = [values, values**2, values**3]
    terms += [np.maximum(values - edges[:, i], 0.0) for i in range(edges.shape[1])]
    return np.hstack(terms)


def quartile_edges(counts: np.ndarray) -> np.ndarray:
    """The grid lines nearest to the quartiles of each column: columns x 3, in ascending order."""
    below = np.cumsum(counts, axis=1)[:, :-1] / counts.sum(axis=1, keepdims=True)
    lines = -CLIP + (np.arange(GRID - 1) + 1) * (2 * CLIP / GRID)
    picks = np.stack([np.abs(below - q).argmin(axis=1) for q in (0.25, 0.5, 0.75)], axis=1)
    return np.sort(lines[picks], axis=1)


def additive_fit(matrix: np.ndarray, terms: int, relative_penalty: float = 1e-3) -> np.ndarray:
    """Ridge on terms of unit size; the intercept is free."""
    inner = matrix[: terms + 1, : terms + 1].copy()
    size = np.sqrt(np.maximum(np.diag(inner), 1e-12))
    inner /= np.outer(size, size)
    inner[np.arange(terms), np.arange(terms)] += relative_penalty
    return np.linalg.solve(inner, matrix[: terms + 1, terms + 1 :] / size[:, None]) / size[:, None]


def interaction_f(counts: np.ndarray, sums: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """F statistics from counts (pairs x 16), sums (outputs x pairs x 16) and squared residuals (outputs)."""
    filled = counts > 0.5
    saturated = np.where(filled, sums**2 / np.where(filled, counts, 1.0), 0.0).sum(axis=2)
    grid = counts.reshape(-1, _CELLS, _CELLS)
    normal = np.zeros((len(counts), 2 * _CELLS, 2 * _CELLS))
    axis = np.arange(_CELLS)
    normal[:, axis, axis], normal[:, _CELLS + axis, _CELLS + axis] = grid.sum(axis=2), grid.sum(axis=1)
    normal[:, :_CELLS, _CELLS:], normal[:, _CELLS:, :_CELLS] = grid, grid.transpose(0, 2, 1)
    cells = sums.reshape(len(sums), -1, _CELLS, _CELLS)
    right = np.concatenate([cells.sum(axis=3), cells.sum(axis=2)], axis=2)
    inverse = np.linalg.pinv(normal, rcond=1e-9, hermitian=True)
    additive = np.einsum("opi,pij,opj->op", right, inverse, right)
    freedom = filled.sum(axis=1) - np.linalg.matrix_rank(normal, tol=1e-6 * n, hermitian=True)
    rest = np.maximum(squares[:, None] - saturated, 1e-12).sum(axis=0) / np.maximum(n - filled.sum(axis=1), 1)
    gained = np.maximum(saturated - additive, 0.0).sum(axis=0)
    return np.where(freedom > 0, gained / np.maximum(freedom, 1) / rest, 0.0)


def anova_scores(total: SecureSum, study: Study, width: int) -> np.ndarray:
    """Scores of all pairs of the design's columns, in the order of ``itertools.combinations``. Three rounds."""
    edges = quartile_edges(total.sum(grid_counts, (width, GRID)))
    terms = _TERMS * width
    matrix = unpack_moments(total.sum(additive_moments, edges=edges), terms + 1 + study.outputs)
    coefficients = additive_fit(matrix, terms)
    pairs = width * (width - 1) // 2
    flat = total.sum(pair_tables, edges=edges, coefficients=coefficients)
    tables = flat[: -study.outputs].reshape(1 + study.outputs, pairs, _CELLS * _CELLS)
    return interaction_f(np.rint(tables[0]), tables[1:], flat[-study.outputs :], study.n_train)


# --- interaction information -----------------------------------------------------------------------------------------


@summed(
    "iife.local_interaction",
    when="epsilon=none",
    times=SEARCHED,
    about="interaction information of pairs of columns, times the number of rows",
    receives="control",
    settings=("neighbours", "max_rows"),
)
def local_interaction(party: Party, *, pairs: np.ndarray, neighbours: int, max_rows: int) -> np.ndarray:
    """One number a pair, then the number of rows. A party with too few rows has no say.

    The same rows in every step, from this party's own secret: rows of a seed that a request brings would be other ones
    in each.
    """
    check_size(party.name, "local_interaction", "pairs", pairs, None, 2)
    check_positions(party.name, "local_interaction", "pairs", pairs.ravel(), design_of(party).shape[1])
    rows = np.flatnonzero(training_of(party))
    if len(rows) > max_rows:
        generator = party.generator("iife: rows of interaction", party.job.random_state)
        rows = np.sort(generator.permutation(rows)[:max_rows])
        party.site.enter_part(party, party.row_numbers[rows], "iife.local_interaction")
    if len(rows) <= 2 * neighbours:
        return np.zeros(len(pairs) + 1)
    design, target = design_of(party)[rows], target_of(party)[rows]
    # Different classes are farther apart than any two values.
    y = target[:, 0] if target.shape[1] == 1 else 1e6 * target.argmax(axis=1)
    return len(rows) * np.append(interaction_information(design, y, pairs, neighbours), 1.0)


def interaction_information(design: np.ndarray, y: np.ndarray, pairs: np.ndarray, neighbours: int = 3) -> np.ndarray:
    """I(a;b|y) - I(a;b) in nats for pairs (a, b) of the design's columns."""
    few = [len(np.unique(column)) <= FEW for column in [*design.T, y]]
    result = np.empty(len(pairs))
    apart_y = _distances(y)
    at_once = max(1, _BLOCK // len(y) ** 2)
    for a in np.unique(pairs[:, 0]):
        apart_a = _distances(design[:, a])
        partners = np.flatnonzero(pairs[:, 0] == a)
        if few[a] and few[-1]:
            for i in [i for i in partners if few[pairs[i, 1]]]:
                result[i] = _plug_in(design[:, a], design[:, pairs[i, 1]], y)
            partners = np.array([i for i in partners if not few[pairs[i, 1]]], dtype=np.int64)
        for start in range(0, len(partners), at_once):
            block = partners[start : start + at_once]
            apart_b = np.stack([_distances(design[:, b]) for b in pairs[block, 1]])
            pair = np.maximum(apart_a, apart_b)
            given = _nearest(apart_a, apart_b, pair, apart_y, neighbours)
            result[block] = given - _nearest(apart_a, apart_b, pair, None, neighbours)
    return result


def _distances(values: np.ndarray) -> np.ndarray:
    apart = np.abs(values[:, None] - values)
    np.fill_diagonal(apart, np.inf)  # a row is no neighbour of itself
    return np.asarray(apart)


def _nearest(a: np.ndarray, b: np.ndarray, pair: np.ndarray, y: np.ndarray | None, k: int) -> np.ndarray:
    """I(a;b|y), or I(a;b) without y, from distances: the mean of psi(k) - psi(n_ay) - psi(n_by) + psi(n_y)."""
    joint = pair if y is None else np.maximum(pair, y)
    radius = np.partition(joint, k - 1, axis=2)[:, :, k - 1 : k]
    within = joint <= radius  # at ties, repeated values for example, more than k
    near_a, near_b = a <= radius, b <= radius
    everywhere: Any = digamma(len(a) - 1)
    if y is not None:
        near_y = y <= radius
        near_a, near_b = near_a & near_y, near_b & near_y
        everywhere = digamma(near_y.sum(axis=2))
    counts = [digamma(each.sum(axis=2)) for each in (within, near_a, near_b)]
    return np.asarray(np.mean(counts[0] - counts[1] - counts[2] + everywhere, axis=1))


def _plug_in(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
    def entropy(*codes: np.ndarray) -> float:
        counts = np.unique(np.stack(codes), axis=1, return_counts=True)[1] / len(a)
        return float(-(counts * np.log(counts)).sum())

    plain = entropy(a) + entropy(b) - entropy(a, b)
    given = entropy(a, y) + entropy(b, y) - entropy(a, b, y) - entropy(y)
    return given - plain


def interaction_scores(total: SecureSum, pairs: np.ndarray, *, neighbours: int, max_rows: int) -> np.ndarray:
    """The average of the parties' scores of these pairs, weighted by rows. One round."""
    if not len(pairs):
        return np.zeros(0)
    sums = total.sum(local_interaction, (len(pairs) + 1,), pairs=pairs, neighbours=neighbours, max_rows=max_rows)
    return np.asarray(sums[:-1] / max(sums[-1], 1.0))


def all_pairs(width: int) -> np.ndarray:
    return np.array(list(combinations(range(width), 2)), dtype=np.int64).reshape(-1, 2)


OPERATIONS = both(grid_counts, additive_moments, local_interaction, pair_tables)
