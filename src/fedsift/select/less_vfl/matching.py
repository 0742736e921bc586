"""Stage 3 of LESS-VFL in its protected form: a party drops columns by group lasso, matching the components that matter.

The components are the party's own columns that the label screen lets pass, standardised; which ones is all that the
party hears of the label. A group lasso rebuilds them from as few of these columns as it can: along a path of penalties
from high to low, the first at which the columns left explain ``share`` of the components' variance on held-out rows.
Local work, no message; where there are more than ``_TARGETS`` components, random sums of them stand for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.core.scaling import clipped
from fedsift.errors import OperationRefused
from fedsift.models.splitnn.layers.sine import Floats

_TARGETS = 32
_PENALTIES, _LOWEST, _STEPS = 14, 0.01, 150
_HELD, _CLIP = 5, 8.0  # every fifth row is held out; far values are brought in


@dataclass(frozen=True)
class Match:
    """What a group lasso leaves: which groups, and how much of the targets they explain on held-out rows."""

    kept: NDArray[np.bool_]
    explained: float


@operation(
    "less_vfl.match_components",
    when="protection=shares",
    discloses="aggregate",
    receives="aggregate",
    about="which of its columns are left, and how much of the others they explain",
    learns="which of its columns the label screen lets pass",
    reply={"kept": Array("b"), "explained": float},
    settings=("share=match",),
    times=1,
)
def match_components(
    party: Party, *, passed: NDArray[np.bool_], share: Annotated[float, Between(0.0, 1.0)], seed: int
) -> dict[str, NDArray[np.bool_] | float]:
    """Of the columns that pass, those that explain ``share`` of all of them."""
    if passed.shape != (len(party.columns),):
        raise OperationRefused(party.name, "match_components", "one bit for each column")
    values, owner = clipped(party, _CLIP)
    inputs = passed[owner]
    kept = passed.copy()
    if passed.sum() < 2:
        return {"kept": kept, "explained": 1.0}
    groups = np.unique(owner[inputs], return_inverse=True)[1]
    found = cheapest_match(values[:, inputs], groups, share, party.generator("held rows", seed))
    kept[np.flatnonzero(passed)] = found.kept
    return {"kept": kept, "explained": found.explained}


def cheapest_match(x: Floats, groups: NDArray[np.intp], share: float, generator: np.random.Generator) -> Match:
    """The fewest groups on the path that explain ``share`` of ``x`` on held-out rows; all, where none does."""
    targets = x
    if x.shape[1] > _TARGETS:
        targets = x @ generator.choice([-1.0, 1.0], size=(x.shape[1], _TARGETS)) / np.sqrt(x.shape[1])
    held = generator.permutation(len(x)) % _HELD == 0
    train, count = ~held, int(groups.max()) + 1
    gram, cross = x[train].T @ x[train] / train.sum(), x[train].T @ targets[train] / train.sum()
    highest = float(np.sqrt(np.bincount(groups, (cross**2).sum(axis=1))).max())
    weights = np.zeros_like(cross)
    for penalty in np.geomspace(highest, highest * _LOWEST, _PENALTIES):
        weights = group_lasso(gram, cross, weights, groups, float(penalty))
        kept = np.bincount(groups, (weights**2).sum(axis=1), minlength=count) > 0
        explained = _explained(x, targets, kept[groups], train)
        if explained >= share:
            return Match(kept, explained)
    return Match(np.ones(count, dtype=bool), 1.0)


def group_lasso(gram: Floats, cross: Floats, start: Floats, groups: NDArray[np.intp], penalty: float) -> Floats:
    """Minimise tr(B'GB) / 2 - tr(B'C) + penalty x sum of the groups' norms, by accelerated proximal steps."""
    largest = max(float(np.linalg.eigvalsh(gram)[-1]), 1e-12)
    weights, ahead, t = start, start, 1.0
    for _ in range(_STEPS):
        moved = ahead - (gram @ ahead - cross) / largest
        norms = np.sqrt(np.bincount(groups, (moved**2).sum(axis=1)))
        new = moved * np.maximum(0.0, 1.0 - penalty / largest / np.maximum(norms, 1e-12))[groups][:, None]
        later = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = new + (t - 1) / later * (new - weights)
        change = float(np.abs(new - weights).max())
        weights, t = new, later
        if change < 1e-4:
            break
    return weights


def _explained(x: Floats, targets: Floats, kept: NDArray[np.bool_], train: NDArray[np.bool_]) -> float:
    """Share of the targets' variance on the other rows that the kept inputs explain, without the lasso's shrinkage."""
    if not kept.any():
        return 0.0
    weights = np.linalg.lstsq(x[train][:, kept], targets[train], rcond=None)[0]
    rest = targets[~train] - x[~train][:, kept] @ weights
    total = float(((targets[~train] - targets[train].mean(axis=0)) ** 2).sum())
    return 1.0 - float((rest**2).sum()) / max(total, 1e-12)


OPERATIONS = (match_components,)
