"""Who took part, from the scores of a selection that were released (Homer et al. 2008, on scores).

A report with exact scores of many columns is a release about everybody in the table. An attacker with a person's
record (and label) and a public sample computes how adding that person to the sample would move each score, and adds up
whether the released scores lie on that side of the sample's. It needs columns that tell about the label: of others a
score does not say in which direction. A selection tells a party kept flags only, but whoever
reads a report reads what is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View


@dataclass(frozen=True)
class ClassSums:
    """Sums of columns and squares over a sample, by class: what an F statistic is made of."""

    sizes: np.ndarray
    sums: np.ndarray  # classes x columns
    squares: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray, labels: np.ndarray) -> ClassSums:
        parts = [columns[labels == k] for k in (0, 1)]
        return cls(
            np.array([len(part) for part in parts], dtype=np.float64),
            np.stack([part.sum(axis=0) for part in parts]),
            (columns**2).sum(axis=0),
        )

    def with_row(self, row: np.ndarray, label: int) -> ClassSums:
        sizes, sums = self.sizes.copy(), self.sums.copy()
        sizes[label] += 1
        sums[label] += row
        return ClassSums(sizes, sums, self.squares + row**2)

    def sizes_of_correlation(self) -> np.ndarray:
        """How strongly each column goes with the class, whichever way: what an F statistic says."""
        rows, total = self.sizes.sum(), self.sums.sum(axis=0)
        share = self.sizes[1] / rows
        together = self.sums[1] / rows - share * total / rows
        variance = self.squares / rows - (total / rows) ** 2
        return np.asarray(np.abs(together) / np.sqrt(np.maximum(variance * share * (1 - share), 1e-12)))


def released(view: View) -> dict[str, np.ndarray]:
    """Scores by party, of results that tell more than which columns were kept."""
    found = {}
    for message in view.requests("keep_result"):
        rows = json.loads(message.content["selection"]).get("scores", [])
        scores = np.array([np.nan if row.get("score") is None else float(row["score"]) for row in rows])
        if len(np.unique(scores[~np.isnan(scores)])) > 2:
            found[message.party] = scores
    return found


@attack(
    reads=["keep_result"], role="coordinator", target="membership", declared="no",
    knows="whole records and labels of people, some of whom took part, and a public sample",
)  # fmt: skip
def released_scores_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from the exact F statistics of many columns."""
    silent = Measure("auc", 0.5, 0.5, 0.5, note="nothing to read: no exact scores, no public sample, or no two classes")
    told = released(view)
    if not told or truth.fresh is None or truth.n_classes != 2 or view.job.method != "sffs":
        return silent
    values, half = [], len(truth.fresh.labels) // 2
    for party, scores in told.items():
        inside, outside = truth.columns[party], truth.fresh.columns[party]
        if inside.shape[1] != len(scores):
            continue
        centre, spread = np.nanmean(outside[:half], axis=0), np.maximum(np.nanstd(outside[:half], axis=0), 1e-12)
        people = np.nan_to_num((np.vstack([inside, outside]) - centre) / spread)
        labels = np.concatenate([truth.labels, truth.fresh.labels])
        sample = slice(len(inside), len(inside) + half)
        public = ClassSums.of(people[sample], labels[sample])
        here = public.sizes_of_correlation()
        gap = np.sqrt(scores / (scores + len(inside) - 2)) - here
        gap -= gap.mean()  # fewer rows make all of them larger
        asked = np.r_[0 : len(inside), len(inside) + half : len(people)]
        moved = [(public.with_row(people[i], int(labels[i])).sizes_of_correlation() - here) @ gap for i in asked]
        values.append(auc(np.array(moved), np.repeat([1, 0], [len(inside), len(asked) - len(inside)])))
    if not values:
        return silent
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{len(values)} parties")
