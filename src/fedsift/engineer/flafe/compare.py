"""What the new features are worth, beside the nulls: a joint ridge on validation rows, fitted from masked sums.

Four models over the same rows: the columns alone, with every party's own features (*local only*), with what was kept
(combined features among them), and with pure noise in the place of the combined ones. If the last two do not differ,
the combined features carry nothing: with the paper's noise that is so. Only numbers take part (no text columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedsift.core.arguments import MAX_INT, Between
from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.engineer.flafe.candidates import OwnFeatures, Pool, formed, own_target
from fedsift.engineer.flafe.features import CrossFeature, Feature, check_places, column_unit
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.joint_moments import JointMatrices, JointProducts, best_ridge, fraction_bits
from fedsift.engineer.flafe.products import Operands
from fedsift.errors import DataError, OperationRefused
from fedsift.mpc.ring import from_ring, to_ring
from fedsift.mpc.secure_sum import SecureSum, summed

_LIMIT = 16.0
ROWS = ("base", "local only", "with cross-party features", "pure noise in their place")


@dataclass(frozen=True)
class Widths:
    """How many columns of each kind a party brings into the comparison."""

    base: int
    local: int
    kept_local: int
    cross: int
    target: int

    @property
    def intercept(self) -> int:
        """The label holder brings a one as well."""
        return int(self.target > 0)

    @property
    def total(self) -> int:
        """Noise is as wide as the combined columns."""
        return self.base + self.local + self.kept_local + 2 * self.cross + self.intercept + self.target


@dataclass(frozen=True)
class Compared:
    """One model of the comparison: what it had, and its R2 on the validation rows."""

    features: str
    columns: int
    r2: float
    penalty: float


@summed(
    "flafe.target_moments",
    when="epsilon=none",
    times=1,
    about="number of training rows, sum and sum of squares of the target",
    receives="control",
    of_holders=True,
)
def target_moments(party: Party, *, task: Task) -> np.ndarray:
    values = own_target(party, task)[0][party.held(OwnFeatures).train]
    return np.array([len(values), values.sum(), (values**2).sum()])


@operation(
    "flafe.compare_matrix",
    when=("protection=columns|open", "epsilon=none"),
    times=1,
    discloses="control",
    receives="aggregate",
    about="how many columns it brings into the comparison",
    learns="in a grid: mean and deviation of the target",
    reply={"base": int, "local": int, "kept_local": int, "cross": int, "target": int},
)
def compare_matrix(
    party: Party,
    *,
    kept: list[int],
    holder: bool,
    task: Task,
    rows: int,
    seed: Annotated[int, Between(0, MAX_INT)],
    units: list[float],
    scale: list[float] | None,
) -> dict[str, int]:
    """Columns side by side: base, local, kept local, kept combined, noise as wide as those, then 1 and the target."""
    own, operands, pool = formed(party), party.held(Operands).columns, party.held(Pool).values
    train, count = own.train, operands.shape[1]
    check_places(party, "compare_matrix", kept, pool.shape[1])
    mine = [position for position in kept if position < count]
    if len(units) != len(kept) - len(mine):
        raise OperationRefused(party.name, "compare_matrix", "a unit for each combined column that was kept")
    cross = pool[:, [position for position in kept if position >= count]] / np.array(units)
    spread = cross[train].std(axis=0) if len(cross) else np.ones(0)
    noise = np.random.default_rng(seed).laplace(size=cross.shape) / np.sqrt(2) * spread
    parts = [own.base, operands, pool[:, mine], cross, noise]
    targets = 0
    if holder:
        target = _target(party, task, scale)
        targets = target.shape[1]
        parts += [np.ones((len(train), 1)), target]
    bits = fraction_bits(rows, _LIMIT)
    ring = to_ring(np.clip(np.hstack(parts), -_LIMIT, _LIMIT), bits, 2 * _LIMIT)
    party.keep(JointMatrices({"train": ring[train], "check": ring[~train]}))
    return vars(Widths(own.base.shape[1], count, len(mine), cross.shape[1], targets))


def _target(party: Party, task: Task, scale: list[float] | None) -> np.ndarray:
    values, classes = own_target(party, task)
    train = party.held(OwnFeatures).train
    if classes:
        indicators = (values[:, None] == np.unique(values)).astype(float)
        return np.asarray(indicators - indicators[train].mean(axis=0))
    if scale is None:
        scale = [values[train].mean(), values[train].std()]
    if not scale[1] > 0:
        raise DataError(f"party {party.name!r}: the target is the same in all training rows")
    return np.asarray((values - scale[0]) / scale[1])[:, None]


def compare_features(
    fed: Federation, layout: Layout, products: list[JointProducts], kept: dict[str, list[Feature]], holders: list[str],
    rows: int, *, seed: int,
) -> list[Compared]:  # fmt: skip
    """R2 on the validation rows of the four models; empty for classes in a grid, whose names may differ by block."""
    if len(layout.blocks) > 1 and fed.task == "classification":
        return []
    scale = None
    if len(layout.blocks) > 1:
        count, total, square = SecureSum(fed, parties=holders).sum(target_moments, (3,), task=fed.asked_task)
        scale = [total / count, float(np.sqrt(max(square / count - (total / count) ** 2, 0.0)))]
    each = {
        name: {
            "kept": [feature.position for feature in kept[group]],
            "units": [column_unit(each.function) for each in kept[group] if isinstance(each, CrossFeature)],
            "holder": name in holders,
        }
        for block in layout.blocks
        for group, name in block.items()
    }
    told = fed.ask(compare_matrix, to=layout.parties, each=each, task=fed.asked_task, rows=rows, seed=seed, scale=scale)
    widths = {name: Widths(**width) for name, width in told.items()}
    bits = 2 * fraction_bits(rows, _LIMIT)
    grams = [
        sum(
            from_ring(each.gram({name: widths[name].total for name in each.parties}, matrix), bits) for each in products
        )
        for matrix in ("train", "check")
    ]
    return _rows(layout, widths, np.asarray(grams[0]), np.asarray(grams[1]), rows)


def _rows(layout: Layout, widths: dict[str, Widths], train: np.ndarray, check: np.ndarray, rows: int) -> list[Compared]:
    base: list[int] = []
    local: list[int] = []
    kept_local: list[int] = []
    cross: list[int] = []
    noise: list[int] = []
    target: list[int] = []
    position = 0
    for name in layout.blocks[0].values():
        width = widths[name]
        for part, count in (
            (base, width.base), (local, width.local), (kept_local, width.kept_local), (cross, width.cross),
            (noise, width.cross), (base, width.intercept), (target, width.target),
        ):  # fmt: skip
            part += range(position, position + count)
            position += count
    sets = (base, base + local, base + kept_local + cross, base + kept_local + noise)
    made = []
    for row, features in zip(ROWS, sets):
        score, penalty, _ = best_ridge(train, check, np.array(features), np.array(target), rows)
        made.append(Compared(row, len(features) - 1, score, penalty))
    return made


HYBRID = (target_moments.masked,)
OPERATIONS = (compare_matrix,)
