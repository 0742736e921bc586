"""What the label holder does in an evaluation: deal the folds, and in the end release a summary of all of them.

Folds are dealt without a look at the label, so that who is told the rows of a fold learns nothing about labels (folds
that are alike in their classes gave 0.84 to 0.95 of the labels away). Measures of single folds stay here; one rounded
mean, deviation and interval a method and measure leaves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.files import plain
from fedsift.core.ledger import rounded_numbers
from fedsift.core.operation import Array, ByName, Operation, operation
from fedsift.core.party import Party
from fedsift.core.splits import train_test_rows
from fedsift.errors import OperationRefused
from fedsift.evaluate.intervals import summaries
from fedsift.evaluate.result import ALL, next_to, random_as
from fedsift.models.parts import Measured

MAX_DIGITS = 4


@operation(
    "evaluate.deal_folds",
    discloses="pseudonymous",
    about="which rows are in which fold, dealt without a look at the label",
    reply=Array("i"),
    role="active",
    concerns="nothing",
    times="repeats",
)
def deal_folds(party: Party, *, repeat: Annotated[int, Between(0, 1000)]) -> NDArray[np.int64]:
    """The fold of each row; with one split (``folds`` 1), 0 for test rows and 1 for training rows."""
    asked = party.job.parameters
    folds, generator = int(asked["folds"]), party.generator(f"evaluate: folds {repeat}", asked["random_state"])
    order = party.table.by_id  # alignment orders rows anew each time; the draw must not
    fold = np.ones(party.n_rows, dtype=np.int64)
    if folds == 1:
        fold[order[train_test_rows(party.n_rows, float(asked["train"]), random_state=generator)[1]]] = 0
    else:
        fold[order[generator.permutation(party.n_rows)]] = np.arange(party.n_rows) % folds
    return fold


@operation(
    "evaluate.release",
    discloses="aggregate",
    about="for each method and measure: mean and deviation over the folds, and the interval of its difference to all "
    "columns, rounded",
    reply=ByName(ByName(dict.fromkeys(("mean", "deviation", "low", "high"), (float, type(None))))),
    role="active",
    concerns="own columns and labels",
    times=1,
    opened_by="result",
    releases=rounded_numbers,
)
def release(party: Party, *, record: Annotated[str, AtMost(64)]) -> dict[str, dict[str, dict[str, float | None]]]:
    """The summary of what was measured under ``record``, which is then forgotten."""
    asked = party.job.parameters
    measured = party.models.part(record, Measured)
    party.models.forget(record)
    measured.check_rows(party, evenly=asked["folds"] != 1)
    named = {*asked["methods"], *(random_as(name) for name in asked["methods"]), ALL}
    named |= {next_to(name) for name in asked["methods"] if asked["next_column"]}
    if not named.issuperset(measured.values):
        raise OperationRefused(party.name, "release", "something was measured that the job does not name")
    fits = int(asked["folds"]) * int(asked["repeats"])
    if any(len(found) > fits for found in measured.values.values()):
        raise OperationRefused(party.name, "release", "more folds were measured than the job has")
    digits = min(MAX_DIGITS, int(asked["digits"]))
    share = 1.0 - float(asked["train"]) if asked["folds"] == 1 else 1.0 / int(asked["folds"])
    return summaries(measured.paired(), measured.metrics, beside=asked["beside"], share=share, digits=digits)


@dataclass(frozen=True)
class EvaluationJob:
    """What the parties are told of an evaluation. Its selectors and models are jobs of their own, told one by one.

    Parameters
    ----------
    methods : names of what is scored. model : how the downstream model is called. metrics : the measures.
    folds, train : folds, or 1 and the share of training rows. repeats : how often folds are dealt.
    beside : the method that the others are compared with, ``None`` for none. digits : of what is released.
    next_column : whether what is kept is scored with one column more, too.
    """

    name: ClassVar[str] = "evaluate"
    operations: ClassVar[tuple[Operation, ...]] = (deal_folds, release)
    partitions: ClassVar[tuple[str, ...]] = ("vertical",)
    cell_parameters: ClassVar[tuple[str, ...]] = ()
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {}

    methods: tuple[str, ...] = ()
    model: str = "boost"
    metrics: tuple[str, ...] | None = None
    folds: int = 5
    train: float | None = None
    repeats: int = 1
    beside: str | None = None
    digits: int = 3
    next_column: bool = False
    random_state: int = 0

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """As plain values, the way a policy reads the parameters of a method."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    def announcement(self) -> tuple[str, dict[str, object]]:
        return self.name, self.get_params()
