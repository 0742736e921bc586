"""What the new features are worth, beside the nulls: a joint ridge on validation rows, fitted from masked sums.

Four models over the same rows: the columns alone, with every party's own features (*local only*), with what was kept
(combined features among them), and with pure noise in the place of the combined ones. If the last two do not differ,
the combined features carry nothing: with the paper's noise that is so. Only numbers take part (no text columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.candidates import LOCAL, POOL, own_target
from fedsift.engineer.flafe.combine import OPERANDS
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.joint_moments import MATRICES, JointProducts, best_ridge, fraction_bits, from_ring, to_ring
from fedsift.errors import DataError
from fedsift.mpc.horizontal_study import TRAIN
from fedsift.mpc.secure_sum import SecureSum, summed

_LIMIT = 16.0
ROWS = ("base", "local only", "with cross-party features", "pure noise in their place")


@summed(
    "flafe.target_moments", about="number of training rows, sum and sum of squares of the target", receives="control"
)
def target_moments(party: Party, *, task: str) -> np.ndarray:
    values = own_target(party, task)[0][party.state[TRAIN]]
    return np.array([len(values), values.sum(), (values**2).sum()])


@operation(
    "flafe.compare_matrix",
    discloses="control",
    receives="aggregate",
    about="how many columns it brings into the comparison",
    learns="in a grid: mean and deviation of the target",
    reply={"base": int, "local": int, "kept_local": int, "cross": int, "target": int},
)
def compare_matrix(
    party: Party, *, kept: list[int], holder: bool, task: str, rows: int, seed: int, units: list[float], scale: Any
) -> dict[str, int]:
    """Columns side by side: base, local, kept local, kept combined, noise as wide as those, then 1 and the target."""
    train, own = party.state[TRAIN], party.state[OPERANDS].shape[1]
    local = party.state[LOCAL]
    base = local["values"][:, : len(local["names"])]
    mine = [position for position in kept if position < own]
    cross = party.state[POOL][:, [position for position in kept if position >= own]] / np.array(units)
    spread = cross[train].std(axis=0) if len(cross) else np.ones(0)
    noise = np.random.default_rng(seed).laplace(size=cross.shape) / np.sqrt(2) * spread
    parts = [base, party.state[OPERANDS], party.state[POOL][:, mine], cross, noise]
    targets = 0
    if holder:
        target = _target(party, task, scale)
        targets = target.shape[1]
        parts += [np.ones((len(train), 1)), target]
    bits = fraction_bits(rows, _LIMIT)
    ring = to_ring(np.clip(np.hstack(parts), -_LIMIT, _LIMIT), bits)
    party.state[MATRICES] = {"train": ring[train], "check": ring[~train]}
    return {
        "base": base.shape[1], "local": own, "kept_local": len(mine), "cross": cross.shape[1], "target": targets,
    }  # fmt: skip


def _target(party: Party, task: str, scale: Any) -> np.ndarray:
    values, classes = own_target(party, task)
    train = party.state[TRAIN]
    if classes:
        values = (values[:, None] == np.unique(values)).astype(float)
        return values - values[train].mean(axis=0)
    if scale is None:
        scale = [values[train].mean(), values[train].std()]
    if not scale[1] > 0:
        raise DataError(f"party {party.name!r}: the target is the same in all training rows")
    return ((values - scale[0]) / scale[1])[:, None]


def compare_features(
    fed: Federation, layout: Layout, kept: dict[str, list[int]], units: dict[str, list[float]],
    holders: list[str], rows: int, *, seed: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """R2 on the validation rows of the four models; empty for classes in a grid, whose names may differ by block."""
    if len(layout.blocks) > 1 and fed.task == "classification":
        return []
    scale = None
    if len(layout.blocks) > 1:
        count, total, square = SecureSum(fed, parties=holders).sum(target_moments, (3,), task=fed.asked_task)
        scale = [total / count, float(np.sqrt(max(square / count - (total / count) ** 2, 0.0)))]
    each = {
        name: {"kept": kept[group], "units": units[group], "holder": name in holders}
        for block in layout.blocks
        for group, name in block.items()
    }
    widths = fed.ask(
        compare_matrix, to=layout.parties, each=each, task=fed.asked_task, rows=rows, seed=seed, scale=scale
    )
    size = {name: w["base"] + w["local"] + w["kept_local"] + 2 * w["cross"] for name, w in widths.items()}
    size = {name: n + (widths[name]["target"] + 1 if widths[name]["target"] else 0) for name, n in size.items()}
    bits = 2 * fraction_bits(rows, _LIMIT)
    grams = []
    for matrix in ("train", "check"):
        total_gram: Any = 0.0
        for block in layout.blocks:
            products = JointProducts(fed, list(block.values()))
            gram = from_ring(products.gram({name: size[name] for name in block.values()}, matrix), bits)
            total_gram = total_gram + gram
        grams.append(np.asarray(total_gram))
    return _rows(layout, widths, grams, rows)


def _rows(
    layout: Layout, widths: dict[str, dict[str, int]], grams: list[np.ndarray], rows: int
) -> list[dict[str, Any]]:
    groups: dict[str, list[int]] = {name: [] for name in ("base", "local", "kept_local", "cross", "noise", "target")}
    position = 0
    for name in layout.blocks[0].values():
        counts = widths[name]
        for part in ("base", "local", "kept_local", "cross", "noise"):
            count = counts["cross"] if part == "noise" else counts[part]
            groups[part] += range(position, position + count)
            position += count
        if counts["target"]:
            groups["base"].append(position)  # the intercept
            groups["target"] += range(position + 1, position + 1 + counts["target"])
            position += 1 + counts["target"]
    sets = {
        ROWS[0]: groups["base"],
        ROWS[1]: groups["base"] + groups["local"],
        ROWS[2]: groups["base"] + groups["kept_local"] + groups["cross"],
        ROWS[3]: groups["base"] + groups["kept_local"] + groups["noise"],
    }
    made = []
    for name, features in sets.items():
        score, penalty, _ = best_ridge(grams[0], grams[1], np.array(features), np.array(groups["target"]), rows)
        made.append({"features": name, "columns": len(features) - 1, "r2": score, "penalty": penalty})
    return made


HYBRID = (target_moments.masked,)
OPERATIONS = (compare_matrix,)
