"""Ways to cut one table into the parts of several organisations, to simulate a federation.

Only simulations use this: whoever calls it holds the whole table already, so nothing is protected here and nothing
needs to be. Each function is pure: sizes and a ``random_state`` in, positions out.

Column splits follow the MUSE paper (log-normal column counts, then duplicated columns), row splits the federated
AutoFE paper (IID, halving sizes, by target, by k-means cluster). Departures are stated with each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fedsift.core.labels import is_amount
from fedsift.errors import ParameterError

RandomState = int | np.random.Generator | np.random.RandomState | None
ColumnSplit = Literal["equal", "random", "lognormal"]
RowSplit = Literal["equal", "unequal", "target", "kmeans"]


def column_groups(
    n_columns: int,
    parties: int,
    how: ColumnSplit = "equal",
    random_state: RandomState = None,
    *,
    mu: float = 4.0,
    sigma: float = 2.0,
) -> list[np.ndarray]:
    """Which columns each party holds; each column is held once.

    ``equal``: blocks of neighbouring columns. ``random``: columns dealt at random, equally many. ``lognormal``: dealt
    at random, one to each party and the others in proportion to log-normal draws (MUSE). Only ``sigma`` matters to the
    proportions; ``mu``, which scales all draws alike, is taken to state the paper's setting in full.
    """
    _check_counts(n_columns, parties, "columns")
    if how == "equal":
        return np.array_split(np.arange(n_columns), parties)
    rng = _generator(random_state)
    order = rng.permutation(n_columns)
    if how == "random":
        parts = np.array_split(order, parties)
    elif how == "lognormal":
        if sigma < 0:
            raise ParameterError(f"sigma={sigma!r}: must not be negative")
        weights = rng.lognormal(mu, sigma, parties)
        counts = 1 + _apportion(weights / weights.sum() * (n_columns - parties), n_columns - parties)
        parts = np.split(order, np.cumsum(counts)[:-1])
    else:
        raise ParameterError(f"how={how!r}: choose 'equal', 'random' or 'lognormal'")
    return [np.sort(part) for part in parts]


def duplicate_columns(
    groups: Sequence[np.ndarray],
    share_parties: float = 0.5,
    share_columns: float = 0.5,
    random_state: RandomState = None,
) -> list[np.ndarray]:
    """Give some parties copies of others' columns: the party's own come first, the copies after them.

    A random ``share_parties`` of the parties each receive copies worth ``share_columns`` of their own column count (at
    least one), drawn without repetition from the columns of all other parties. MUSE says "the ratio of the number of
    overlapping features to the total number of features at the clients"; the total is taken as before the copies.
    """
    for argument, share in (("share_parties", share_parties), ("share_columns", share_columns)):
        if not 0 <= share <= 1:
            raise ParameterError(f"{argument}={share!r}: must be a share between 0 and 1")
    n_chosen = _round_half_up(share_parties * len(groups))
    if not n_chosen or not share_columns:
        return [np.array(own) for own in groups]
    if len(groups) < 2:
        raise ParameterError(f"duplicated columns need another party to come from; there are {len(groups)} parties")
    rng = _generator(random_state)
    chosen = set(rng.choice(len(groups), size=n_chosen, replace=False).tolist())
    everything = np.unique(np.concatenate(groups))
    result = []
    for party, own in enumerate(groups):
        copies = np.empty(0, dtype=np.int64)
        if party in chosen:
            others = np.setdiff1d(everything, own)
            wanted = max(1, _round_half_up(share_columns * len(own)))
            copies = np.sort(rng.choice(others, size=min(wanted, len(others)), replace=False))
        result.append(np.concatenate([np.asarray(own), copies]))
    return result


def row_groups(
    n_rows: int,
    parties: int,
    how: RowSplit = "equal",
    y: object = None,
    X: object = None,
    random_state: RandomState = None,
    *,
    mix: float = 0.1,
) -> list[np.ndarray]:
    """Which rows each party holds; each row is held once.

    ``equal``: at random, equally many. ``unequal``: at random, half of the rows, half of the rest, and so on; the last
    party takes what remains. ``target``: by the value of ``y``; see below. ``kmeans``: one cluster of the rows of
    ``X`` each (columns standardised, missing values at the mean: the paper is silent on both).

    By target, an amount: the range of ``y`` is cut into equally long intervals, one a party (the paper). Classes: rows
    sorted by class in equally large blocks, after a share ``mix`` of each class, at least a row a party where there
    are so many, was dealt to all parties (the paper: "a few samples of the other classes", without a number).
    """
    _check_counts(n_rows, parties, "rows")
    rng = _generator(random_state)
    if how == "equal":
        parts = np.array_split(rng.permutation(n_rows), parties)
    elif how == "unequal":
        parts = _halving_parts(n_rows, parties, rng)
    elif how == "target":
        values = _given(y, n_rows, "y", how)
        parts = _interval_parts(values, parties) if is_amount(values) else _class_parts(values, parties, mix, rng)
    elif how == "kmeans":
        parts = _cluster_parts(_given(X, n_rows, "X", how), parties, rng)
    else:
        raise ParameterError(f"how={how!r}: choose 'equal', 'unequal', 'target' or 'kmeans'")
    return [np.sort(part) for part in parts]


def train_test_rows(
    n: int, train: float | int, stratify_on: object = None, random_state: RandomState = None
) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, each sorted. ``train`` is a share below 1 or a number of rows.

    ``stratify_on`` holds one value a row: each class keeps its share on both sides, and every class of two rows or
    more is on both sides if there is room. Amounts are stratified by tenths of their order.
    """
    size = _training_size(n, train)
    rng = _generator(random_state)
    if stratify_on is None:
        order = rng.permutation(n)
        return np.sort(order[:size]), np.sort(order[size:])
    values = _given(stratify_on, n, "stratify_on", "stratify")
    if is_amount(values):
        values = np.argsort(np.argsort(values, kind="stable"), kind="stable") * 10 // n
    _, strata, counts = np.unique(values, return_inverse=True, return_counts=True)
    both_sides = counts >= 2
    taken = _apportion(counts * size / n, size, low=1 * both_sides, high=counts - both_sides, limit=counts)
    chosen = [rng.permutation(np.flatnonzero(strata == k))[: taken[k]] for k in range(len(counts))]
    training = np.sort(np.concatenate(chosen))
    return training, np.setdiff1d(np.arange(n), training)


#: Of the one assignment of a set of rows: more parts of a stratified one would tell more about the labels.
ROW_PARTS = 10


def dealt_parts(strata: np.ndarray, parts: int, generator: np.random.Generator) -> np.ndarray:
    """The part of each row: the rows of a stratum in random order, dealt in turn, so that parts are alike in strata.

    Fewer parts where a stratum has fewer rows, but two at least.
    """
    counts = np.bincount(strata)
    parts = max(2, min(parts, int(counts[counts > 1].min(initial=parts))))
    order = generator.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    part = np.empty(len(strata), dtype=np.int64)
    part[order] = np.arange(len(strata)) % parts
    return part


def rows_of_parts(
    part: np.ndarray, train: float | int, inside: np.random.Generator, which: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, each sorted: whole parts in the order that ``which`` draws, and what is left of the
    training rows from the next part, by lot (``inside``: the same rows of a part whatever ``which`` is)."""
    size = _training_size(len(part), train)
    turn = which.permutation(int(part.max()) + 1)
    order = np.lexsort([inside.permutation(len(part)), turn[part]])
    return np.sort(order[:size]), np.sort(order[size:])


# --- the row splits --------------------------------------------------------------------------------------------------


def _halving_sizes(n_rows: int, parties: int) -> list[int]:
    sizes = []
    for _ in range(parties - 1):
        sizes.append(n_rows // 2)
        n_rows -= n_rows // 2
    return [*sizes, n_rows]


def _halving_parts(n_rows: int, parties: int, rng: np.random.Generator) -> list[np.ndarray]:
    sizes = _halving_sizes(n_rows, parties)
    if min(sizes) == 0:
        possible = max(q for q in range(1, parties) if min(_halving_sizes(n_rows, q)) > 0)
        raise ParameterError(
            f"how='unequal' halves {n_rows} rows until none are left for {parties} parties; "
            f"use at most {possible} parties or more rows"
        )
    return np.split(rng.permutation(n_rows), np.cumsum(sizes)[:-1])


def _intervals(values: np.ndarray, parties: int) -> np.ndarray:
    """The number of the interval that each value falls into."""
    low, high = values.min(), values.max()
    return np.asarray(np.minimum((parties * (values - low) / (high - low)).astype(np.int64), parties - 1))


def _interval_parts(values: np.ndarray, parties: int) -> list[np.ndarray]:
    amounts = values.astype(np.float64)
    interval = _intervals(amounts, parties)
    if len(np.unique(interval)) < parties:
        possible = max(q for q in range(1, parties) if len(np.unique(_intervals(amounts, q))) == q)
        raise ParameterError(
            f"how='target' cuts the range of y into {parties} equally long intervals, and some of them have no rows; "
            f"{possible} parties are possible, or how='unequal'"
        )
    return [np.flatnonzero(interval == party) for party in range(parties)]


def _class_parts(values: np.ndarray, parties: int, mix: float, rng: np.random.Generator) -> list[np.ndarray]:
    if not 0 <= mix <= 1:
        raise ParameterError(f"mix={mix!r}: must be a share between 0 and 1")
    dealt: list[list[int]] = [[] for _ in range(parties)]
    blocked = []
    turn = 0
    for value in np.unique(values):
        rows = rng.permutation(np.flatnonzero(values == value))
        n_dealt = min(len(rows), max(parties, round(mix * len(rows)))) if mix else 0
        for row in rows[:n_dealt]:
            dealt[turn % parties].append(int(row))
            turn += 1
        blocked.append(rows[n_dealt:])
    blocks = np.array_split(np.concatenate(blocked), parties)
    return [np.concatenate([block, np.array(extra, dtype=np.int64)]) for block, extra in zip(blocks, dealt)]


def _cluster_parts(X: object, parties: int, rng: np.random.Generator) -> list[np.ndarray]:
    from sklearn.cluster import KMeans  # slow to import, needed by this split only

    try:
        matrix = np.array(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("how='kmeans': X must hold numbers only; give a table's matrix()") from None
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise ParameterError(f"how='kmeans': X must have rows and columns; it has the shape {matrix.shape}")
    missing = np.isnan(matrix)
    present = np.maximum((~missing).sum(axis=0), 1)
    matrix = np.where(missing, np.where(missing, 0.0, matrix).sum(axis=0) / present, matrix)
    spread = matrix.std(axis=0)
    matrix = (matrix - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    possible = len(np.unique(matrix, axis=0))
    if possible < parties:
        raise ParameterError(f"how='kmeans' needs {parties} different rows, one a party; X has {possible}")
    seed = int(rng.integers(2**31))
    cluster = KMeans(n_clusters=parties, n_init=4, random_state=seed).fit_predict(matrix)
    return [np.flatnonzero(cluster == party) for party in range(parties)]


# --- small helpers ---------------------------------------------------------------------------------------------------


def _generator(random_state: RandomState) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ParameterError(f"random_state={random_state!r}: give a whole number from 0 on, or None") from None


def _check_counts(n: int, parties: int, what: str) -> None:
    if not isinstance(parties, (int, np.integer)) or isinstance(parties, bool) or parties < 1:
        raise ParameterError(f"parties={parties!r}: must be a whole number from 1 on")
    if n < parties:
        raise ParameterError(f"{n} {what} cannot be split over {parties} parties; at most {n} parties are possible")


def _given(values: object, n: int, argument: str, how: str) -> np.ndarray:
    if values is None:
        raise ParameterError(f"how={how!r} needs {argument}, one entry a row")
    array = np.asarray(values)
    if len(array) != n:
        raise ParameterError(f"{argument} has {len(array)} entries for {n} rows")
    if argument != "X" and pd.isna(array).any():
        raise ParameterError(f"{argument} has missing values; remove those rows first")
    return array


def _training_size(n: int, train: float | int) -> int:
    is_number = isinstance(train, (int, float, np.integer, np.floating)) and not isinstance(train, bool)
    if not is_number or not train > 0 or (train >= 1 and train != int(train)):
        raise ParameterError(f"train={train!r}: give a share between 0 and 1, or a number of rows")
    size = _round_half_up(train * n) if train < 1 else int(train)
    if not 0 < size < n:
        raise ParameterError(
            f"train={train!r} of {n} rows leaves {size} to train and {n - size} to test; both need some"
        )
    return size


def _round_half_up(value: float) -> int:
    return int(np.floor(value + 0.5))


def _apportion(
    quotas: np.ndarray, total: int, low: np.ndarray | int = 0, high: np.ndarray | float = np.inf, limit: object = np.inf
) -> np.ndarray:
    """Whole numbers near the quotas that add up to ``total``: within low and high, or within 0 and limit if need be."""
    counts = np.clip(np.floor(quotas), low, high).astype(np.int64)
    while counts.sum() < total:
        room = counts < high if (counts < high).any() else counts < limit
        counts[np.argmax(np.where(room, quotas - counts, -np.inf))] += 1
    while counts.sum() > total:
        spare = counts > low if (counts > low).any() else counts > 0
        counts[np.argmax(np.where(spare, counts - quotas, -np.inf))] -= 1
    return np.asarray(counts)
