"""What the parties do when partners are valued: the label holder deals folds, a partner shuffles its rows.

The model of each coalition is measured on every fold on shares (``models/unseen.py``), and the coordinator opens the
figures; gains are made of them there (``gains.py``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.design import design_of
from fedsift.core.operation import Operation, operation, together
from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.evaluate.holder import deal_folds
from fedsift.models import vertical_additive

#: Rows of a fold at least, where a partner shuffles inside folds.
LEAST_FOLD = 10


@operation(
    "value.shuffle_rows",
    discloses="control",
    about="acknowledgement",
    role="passive",
    times=1,
)
def shuffle_rows(party: Party, *, view: Annotated[str, AtMost(100)], fold: NDArray[np.int64]) -> None:
    """A view of this party's rows in an order that it draws itself and tells nobody: its columns belong to nobody.

    Shuffled within each fold: a fold has the same rows of this party as before, so that no other set of rows is asked
    about. Folds are the job's, of equal size: were two rows a fold and every other row one of its own, the sums before
    and after would differ by just these two.
    """
    rows = np.arange(party.site.table.n_rows) if party._rows is None else party._rows
    if view == "" or view in party.site.views or fold.shape != rows.shape:
        raise OperationRefused(party.name, "shuffle_rows", "the view has a name already, or it has other rows")
    numbers, sizes = np.unique(fold, return_counts=True)
    deals = design_of(party).deals
    # Whole groups make uneven folds; by time the first rows are never tested: a further fold.
    even = deals is not None or sizes.max() - sizes.min() <= 1
    wanted = party.job.parameters["folds"] + (deals == "time")
    if len(numbers) > wanted or (deals is None and len(numbers) != wanted) or not even or sizes.min() < LEAST_FOLD:
        raise OperationRefused(
            party.name, "shuffle_rows", f"its folds are not equal parts of {LEAST_FOLD} rows or more"
        )
    generator = party.generator("value: shuffle", party.job.parameters["random_state"])
    order = party.table.by_id  # alignment orders rows anew each time; the draw must not
    shuffled = np.empty_like(order)
    for number in np.unique(fold):
        members = order[fold[order] == number]
        shuffled[members] = generator.permutation(members)
    party.site.views[view] = (rows[shuffled], None if party._columns is None else list(party._columns))


@dataclass(frozen=True)
class ValueJob:
    """What the parties are told: how partners are valued.

    Parameters
    ----------
    metric : what is gained, ``auc`` or ``r2``. folds : of the cross-validation. null : partners with shuffled rows too.
    bins, max_iter, tol, reg_lambda, memory, min_cell : of the model (``VerticalAdditive``). digits : of what is
        released. random_state : for folds and shuffles, drawn from the sites' secrets.
    """

    name: ClassVar[str] = "value"
    operations: ClassVar[tuple[Operation, ...]] = together(vertical_additive.OPERATIONS, [deal_folds, shuffle_rows])
    partitions: ClassVar[tuple[str, ...]] = ("vertical",)
    cell_parameters: ClassVar[tuple[str, ...]] = ("min_cell",)
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {}

    metric: str = "auto"
    folds: int = 10
    repeats: int = 1
    null: bool = True
    bins: int | None = 8
    max_iter: int = 10
    tol: float = 1e-4
    reg_lambda: float = 0.01
    memory: int = 8
    min_cell: int = 10
    digits: int = 3
    random_state: int = 0

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        return asdict(self)

    def announcement(self) -> tuple[str, dict[str, object]]:
        return self.name, self.get_params()
