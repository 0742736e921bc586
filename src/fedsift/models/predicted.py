"""What a label holder has just predicted for its rows, and what that says beside its labels.

The label holder reads the score of each row: each partner lets it, once a session, and writes it into its journal. A
score is one number a row; with one partner, of that partner's columns. That is what a model is trained for, so a
prediction goes to the label holder by purpose. But every further model of the same rows is a further equation about the
partner's columns: a site counts how often scores of a row were read, over all jobs, and refuses beyond
``max_row_scores`` of its policy. Every model's step at a partner that lets scores be read demands it
(``ScoresOpened``): linear and additive models, boosted trees in all forms, networks on shares, HyFDCA. A measure needs
no score of a row: see ``unseen.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.ledger import row_by_row
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.models.metrics import auc, measure, probabilities

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Predicted:
    """What a label holder has just computed for its rows: raw scores, and the names of the classes (none: a number)."""

    scores: Floats
    classes: tuple[str, ...] = ()
    link: Literal["softmax", "one against the rest", "given"] = "softmax"  # from scores to probabilities

    def chosen(self) -> NDArray[np.int64]:
        return chosen(self.scores)

    def probabilities(self) -> Floats:
        return probabilities(self.scores, self.link)

    def truth(self, label: np.ndarray) -> NDArray[np.int64]:
        """The class of each label, -1 for one that training did not have.

        Labels are compared by name, whether a file has a class as 1, 1.0 or "1".
        """
        return class_codes(label, self.classes)

    def measures(self, label: np.ndarray, metrics: list[str]) -> dict[str, float]:
        """Each measure of these predictions against the labels."""
        if not self.classes:
            values = label.astype(np.float64)
            return {name: measure(name, values, self.scores[:, 0]) for name in metrics}
        truth, guessed = self.truth(label), self.chosen()
        places = np.arange(len(self.classes))
        return {
            name: auc(truth, self.probabilities(), places) if name == "auc" else measure(name, truth, guessed)
            for name in metrics
        }


def class_codes(label: np.ndarray, classes: Sequence[str]) -> NDArray[np.int64]:
    """The class of each label, -1 for one that is not among them; 1, 1.0 and "1" are one class."""
    code = {_spelled(name): number for number, name in enumerate(classes)}
    return np.array([code.get(_spelled(str(value)), -1) for value in label], dtype=np.int64)


def chosen(scores: Floats) -> NDArray[np.int64]:
    """The position of the likeliest class: one score of the second class, or one a class."""
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def _spelled(name: str) -> str:
    return name.removesuffix(".0")


@dataclass(frozen=True)
class ScoresOpened:
    """That this party has let the label holder read scores of these rows, in this session."""


@operation(
    "model.open_scores",
    discloses="control",
    about="acknowledgement",
    opened="pseudonymous: the score of each row (with one partner: of that partner's columns)",
    opened_by="active",
    concerns="own columns",
    times="1 a session",
    releases=row_by_row,
)
def open_scores(party: Party) -> None:
    party.keep(ScoresOpened())


OPERATIONS = (open_scores,)


def let_read(run: Federation) -> None:
    """Ask the partners, before the label holder reads scores; horizontal parties score their own rows."""
    if run.partition != "horizontal" and run.passive:
        run.ask(open_scores, to=run.passive)
