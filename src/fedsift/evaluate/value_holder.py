"""What the parties do when partners are valued: a partner shuffles its rows, the label holder releases what was gained.

The model of each coalition is measured on every fold by the label holder (``model.measure``), and stays there. What
leaves it: for each partner the gain with its interval, alone, beyond the others, shared out (Shapley), and shuffled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from math import factorial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.operation import Operation, operation, together
from fedsift.core.party import Party
from fedsift.core.release import rounded_numbers
from fedsift.errors import DataError, OperationRefused
from fedsift.evaluate.holder import MAX_DIGITS, deal_folds
from fedsift.evaluate.intervals import Interval, corrected_interval
from fedsift.models import vertical_additive
from fedsift.models.parts import Measured

#: With more partners than this, only single ones, all, and all but one are tried: no Shapley shares.
MAX_SHARED = 4

#: Rows of a fold at least, where a partner shuffles inside folds.
LEAST_FOLD = 10

Folds = NDArray[np.float64]


def coalition_name(partners: tuple[str, ...]) -> str:
    """Under which name the models of the label holder with these partners are measured."""
    return "with " + ", ".join(sorted(partners)) if partners else "alone"


def shuffled_name(partner: str) -> str:
    return f"shuffled {partner}"


def coalitions(partners: list[str]) -> list[tuple[str, ...]]:
    """Which partners join the label holder: all subsets, or of many partners none, each, all but each, and all."""
    if len(partners) <= MAX_SHARED:
        return [group for size in range(len(partners) + 1) for group in combinations(partners, size)]
    whole = tuple(partners)
    others = [tuple(name for name in whole if name != out) for out in whole]
    return [(), *((name,) for name in whole), *others, whole]


def shapley(worth: dict[frozenset[str], Folds], partner: str, partners: list[str]) -> Folds:
    """The partner's share of the joint gain, in each fold: its mean gain over all orders of joining."""
    others = [name for name in partners if name != partner]
    total = np.zeros_like(worth[frozenset()])
    for size in range(len(others) + 1):
        weight = factorial(size) * factorial(len(others) - size) / factorial(len(partners))
        for group in combinations(others, size):
            total = total + weight * (worth[frozenset((*group, partner))] - worth[frozenset(group)])
    return total


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
    sizes = np.unique(fold, return_counts=True)[1]
    if len(sizes) != party.job.parameters["folds"] or sizes.max() - sizes.min() > 1 or sizes.min() < LEAST_FOLD:
        raise OperationRefused(
            party.name, "shuffle_rows", f"its folds are not equal parts of {LEAST_FOLD} rows or more"
        )
    generator = party.generator("value: shuffle", party.job.parameters["random_state"])
    order = np.argsort(party.table.ids, kind="stable")  # alignment orders rows anew each time; the draw must not
    shuffled = np.empty_like(order)
    for number in np.unique(fold):
        members = order[fold[order] == number]
        shuffled[members] = generator.permutation(members)
    party.site.views[view] = (rows[shuffled], None if party._columns is None else list(party._columns))


@operation(
    "value.release",
    discloses="aggregate",
    about="for each partner: what it adds to the label holder's model, with intervals, and what its shuffled rows add; "
    "rounded",
    reply=dict,
    role="active",
    concerns="own columns and labels",
    times=1,
    opened_by="result",
    releases=rounded_numbers,
)
def release_values(party: Party, *, record: Annotated[str, AtMost(64)]) -> dict[str, Any]:
    """Gains over the folds that were measured under ``record``, which is then forgotten."""
    asked = party.job.parameters
    measured = party.models.part(record, Measured)
    party.models.forget(record)
    measured.check_rows(party, evenly=True)
    folds = int(asked["folds"])
    metric, share = measured.metrics[0], 1.0 / folds
    partners = [name for name in party.job.parties if name != party.name]
    digits = min(MAX_DIGITS, int(asked["digits"]))

    def values(name: str) -> Folds:
        found = measured.values.get(name, [])
        if len(found) != folds:
            raise DataError(f"party {party.name!r}: not every fold of the models {name!r} was measured")
        return np.array([fold[metric] for fold in found])

    def told(gains: Folds) -> list[float | None]:
        return _plain(corrected_interval(gains.tolist(), share), digits)

    worth = {frozenset(group): values(coalition_name(group)) for group in coalitions(partners)}
    alone, everybody = worth[frozenset()], worth[frozenset(partners)]
    lines = {
        name: {
            "adds": told(worth[frozenset([name])] - alone),
            "beyond": told(everybody - worth[frozenset(partners) - {name}]),
            "share": told(shapley(worth, name, partners)) if len(partners) <= MAX_SHARED else None,
            "null": told(values(shuffled_name(name)) - alone) if asked["null"] else None,
        }
        for name in partners
    }
    return {
        "metric": metric,
        "scores": {coalition_name(tuple(group)): round(float(found.mean()), digits) for group, found in worth.items()},
        "all": told(everybody - alone),
        "partners": lines,
    }


def _plain(interval: Interval, digits: int) -> list[float | None]:
    found = interval.rounded(digits)
    return [value if np.isfinite(value) else None for value in (found.mean, found.low, found.high)]


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
    operations: ClassVar[tuple[Operation, ...]] = together(
        vertical_additive.OPERATIONS, [deal_folds, shuffle_rows, release_values]
    )
    partitions: ClassVar[tuple[str, ...]] = ("vertical",)
    cell_parameters: ClassVar[tuple[str, ...]] = ("min_cell",)
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()

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

    def announcement(self) -> tuple[str, dict[str, Any]]:
        return self.name, self.get_params()
