"""Who took part in a horizontal job, from sums over rows (Homer et al. 2008).

Means over the rows of one party, or of all, are pulled a little towards everybody who is in them. An attacker who has a
person's record and a public sample of other people adds up, over the columns, how far the means lie from the sample's
in the direction of that record; over many columns and few rows that separates members from others.

- the coordinator reads totals over all parties (or each party's own sums, where they travel open);
- a member is told means over all parties and takes its own rows off: of two parties that leaves the other's sums.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View
from fedsift.mpc.ring import from_words

_KNOWS = "whole records of people, some of whom took part, and a public sample"
_SILENT = "nothing to read: no means of columns, or no public sample"

_GRID = "nothing to read: parties of a grid have different columns, whose means are not taken apart here"


def _is_grid(truth: Truth) -> bool:
    return len({tuple(names) for names in truth.names.values()}) > 1


def released_means(view: View, columns: int) -> dict[str, np.ndarray]:
    """Means of the columns that the coordinator has read: by party where sums were open, else of ``all``."""
    replies = view.replies("feature_sums")
    vectors = {m.party: m.content for m in replies if m.operation.endswith(".open")}
    if vectors:
        numbers = {name: from_words(vector) for name, vector in vectors.items()}
    elif replies:
        last = {m.party: m.content for m in replies}
        total = np.asarray(np.sum(list(last.values()), axis=0, dtype=np.uint64))
        numbers = {"all": from_words(total)}
    else:
        return {}
    return {
        name: vector[columns : 2 * columns] / np.maximum(vector[:columns], 1)
        for name, vector in numbers.items()
        if len(vector) == 3 * columns
    }


def means_of_moments(view: View, columns: int) -> dict[str, np.ndarray]:
    """Means of each party's columns from its own moments (features, 1, target), in the units that all were told."""
    told, found = view.requests("scale_features"), {}
    for message in view.replies("linear.moments.open") if told else []:
        flat = from_words(message.content)
        size = int((np.sqrt(8 * len(flat) + 1) - 1) / 2)
        moments = np.zeros((size, size))
        moments[np.triu_indices(size)] = flat
        centre, deviation = (np.asarray(told[-1].content[key]) for key in ("centre", "deviation"))
        if len(centre) == columns < size:
            found[message.party] = centre + deviation * moments[:columns, columns] / max(moments[columns, columns], 1.0)
    return found


def members_auc(means: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> float:
    """AUC of the pull towards each record; half of ``outside`` is the public sample, the rest are not members."""
    half = len(outside) // 2
    centre, spread = np.nanmean(outside[:half], axis=0), np.maximum(np.nanstd(outside[:half], axis=0), 1e-12)

    def scaled(rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(np.nan_to_num((rows - centre) / spread), -5, 5))

    pull = (means - centre) / spread
    people = np.vstack([scaled(inside), scaled(outside[half:])])
    return auc(people @ pull, np.repeat([1, 0], [len(inside), len(outside) - half]))


@attack(
    reads=["feature_sums", "linear.moments.open"], role="coordinator", target="membership", knows=_KNOWS, declared="no"
)
def column_means_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from means of the columns."""
    if truth.fresh is None or _is_grid(truth):
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT if truth.fresh is None else _GRID)
    outside = np.vstack(list(truth.fresh.columns.values()))
    values = []
    released = released_means(view, outside.shape[1])
    for name, means in {**released, **means_of_moments(view, outside.shape[1])}.items():
        inside = np.vstack(list(truth.columns.values())) if name == "all" else truth.columns[name]
        values.append(members_auc(means, inside, outside))
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    whose = "all parties together" if len(values) == 1 else f"{len(values)} parties, each by itself"
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{outside.shape[1]} columns of {whose}")


@attack(reads=["scale_features"], role="member", target="membership", knows=_KNOWS, declared="no")
def means_less_own_rows(view: View, truth: Truth) -> Measure:
    """AUC of whether a person is among the other parties' rows, from common means less the member's own rows."""
    told = view.requests("scale_features")
    own = view.columns
    if truth.fresh is None or _is_grid(truth) or not told or len(told[-1].content["centre"]) != own.shape[1]:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    inside = np.vstack([columns for name, columns in truth.columns.items() if name != view.name])
    rows = len(inside) + len(own)  # how many rows take part is told
    means = (np.asarray(told[-1].content["centre"]) * rows - np.nanmean(own, axis=0) * len(own)) / len(inside)
    value = members_auc(means, inside, np.vstack(list(truth.fresh.columns.values())))
    return Measure("auc", value, 0.5, 0.5, note=f"{own.shape[1]} columns, {len(inside)} rows of others")
