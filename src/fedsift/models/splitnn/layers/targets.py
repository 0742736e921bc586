"""The label as a network on shares sees it, and what its outputs say of rows: probabilities, values, scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsift.core.labels import LabelCopy
from fedsift.core.party import Labels, Party
from fedsift.models.predicted import class_codes
from fedsift.models.splitnn.layers.sine import Floats, Shape, targets_to_ring
from fedsift.mpc.ring import Ring


@dataclass
class Targets:
    """The label as the network sees it: columns of numbers less their means."""

    task: str
    classes: tuple[str, ...]
    means: Floats
    spread: float
    truth: float = 1.0  # how often a label is the true one: less than always under an epsilon

    @classmethod
    def of(cls, party: Party, task: str) -> Targets:
        """From the labels that the job may see."""
        found, copy = cls.fit(party.labels(task=task)), party.run.kept.get(LabelCopy)
        return replace(found, truth=copy.truth) if isinstance(copy, LabelCopy) else found

    @classmethod
    def fit(cls, labels: Labels) -> Targets:
        if labels.task == "regression":
            return cls(labels.task, (), labels.values.mean(keepdims=True), float(labels.values.std()) or 1.0)
        raw = _indicators(labels.codes, labels.n_classes)
        return cls(labels.task, labels.classes, raw.mean(axis=0), 1.0)

    @property
    def outputs(self) -> int:
        return len(self.means)

    def ring_of(self, party: Party, shape: Shape) -> Ring:
        """This view's labels, as the job may see them."""
        return self.ring(party.labels(task=self.task), shape)

    def ring(self, labels: Labels, shape: Shape) -> Ring:
        raw = labels.values[:, None] if self.task == "regression" else _indicators(labels.codes, len(self.classes))
        return targets_to_ring((raw - self.means) / self.spread, shape)

    def presented(self, out: Floats) -> Floats:
        """Class probabilities (rows x classes), or values in the target's own scale (rows x 1)."""
        values = out * self.spread + self.means
        if self.task == "regression":
            return values
        other = (1.0 - self.truth) / (len(self.classes) - 1)
        if len(self.classes) == 2:
            second = _inside((values / (self.truth - other) + 1) / 2)
            return np.hstack([1 - second, second])
        shares = np.clip((values - other) / (self.truth - other), 1e-9, None)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def centre(self, shape: Shape) -> Ring:
        """What outputs lack to scores: above 0 for the second of two classes, highest for the likeliest of more."""
        return targets_to_ring(self.means if self.classes else np.zeros(1), shape)

    def truth_of(self, label: np.ndarray, shape: Shape) -> np.ndarray:
        """Codes of the classes (-1: one that training did not have), or the number in units of scores."""
        if self.classes:
            return class_codes(label, self.classes)
        return np.asarray((label.astype(np.float64) - self.means) / (self.spread * shape.unit))

    def score(self, out: Floats, label: np.ndarray) -> float:
        """Accuracy, or R2."""
        if self.task == "classification":
            names = np.asarray(self.classes)
            return float(np.mean(names[out.argmax(axis=1)] == np.array([str(v) for v in label])))
        residual = label.astype(np.float64) - out[:, 0]
        return float(1 - (residual**2).sum() / max(((label - label.mean()) ** 2).sum(), 1e-300))


def _indicators(codes: np.ndarray, classes: int) -> Floats:
    """-1 and 1 for two classes (one column), else an indicator of each class."""
    if classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.asarray((codes[:, None] == np.arange(classes)).astype(np.float64))


def _inside(estimates: Floats) -> Floats:
    """Estimates of a probability, which may lie beyond 0 and 1, in between; they stay in their order.

    So rows that a network is very sure of do not become ties. Nothing changes but in the last millionth.
    """
    near_end = 1e-6
    low = near_end**2 / np.maximum(2 * near_end - estimates, near_end)
    high = near_end**2 / np.maximum(2 * near_end - 1 + estimates, near_end)
    return np.where(estimates < near_end, low, np.where(estimates > 1 - near_end, 1 - high, estimates))
