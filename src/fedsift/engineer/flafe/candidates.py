"""What a party of Vertical- or Hybrid-FLAFE does alone: candidates from its own columns.

Candidates are formulas over the party's own numbers (`expressions.py`): the columns, their squares and cubes, and for
each two columns the paper's five functions and the three that the encrypted step knows. Each is standardised; missing
values stand at the mean. Text columns and columns that never vary take no part. `importance.py` ranks them, `choice.py`
chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from fedsift.core.expressions import Call, Column, Expression, bivariate, call, compute, parse, scaled
from fedsift.core.operation import ROWS, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.features import BOUND, Seed
from fedsift.engineer.flafe.grid import held_out_rows
from fedsift.engineer.flafe.products import Combined, Operands
from fedsift.errors import OperationRefused
from fedsift.mpc.horizontal_study import RawColumns, TrainingRows

_SHOWN_ROWS = 2000  # are enough to see which columns stand for others
_POWER_STEPS = 10


@dataclass
class OwnFeatures:
    """What a party has made of its own columns so far in this run."""

    names: list[str]  # the columns that candidates are grown from
    train: np.ndarray  # rows that may be fitted on
    raw: np.ndarray  # the columns as they are; empty once candidates are scaled
    formulas: list[str] = field(default_factory=list)  # of the candidates: the columns themselves come first
    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    chosen: list[str] = field(default_factory=list)  # formulas of the operands

    @property
    def base(self) -> np.ndarray:
        """The columns themselves, standardised."""
        return self.values[:, : len(self.names)]


@dataclass(frozen=True)
class ToldLabels:
    """The labels, at a party that does not have them and was told."""

    values: np.ndarray
    classes: bool


@dataclass(frozen=True)
class Pool:
    """What a party chooses from in the end: its operands, then the combined columns that it holds."""

    values: np.ndarray


def formed(party: Party) -> OwnFeatures:
    """What a party has made of its columns, once it has formed candidates."""
    own = party.held(OwnFeatures)
    if len(own.values) != len(own.train):
        raise OperationRefused(party.name, "own features", "an earlier step must come first: no candidates were formed")
    return own


# --- candidates ------------------------------------------------------------------------------------------------------


def local_candidates(base: Sequence[Expression]) -> list[Expression]:
    """The columns themselves, then what one or two of them make."""
    made: list[Expression] = list(base)
    for column in base:
        made += [call("square", column), call("cube", column)]
    for a, b in combinations(base, 2):
        squares = call("square", a), call("square", b)
        made += bivariate(a, b)
        made += [call("mul", squares[0], b), call("mul", a, squares[1]), call("mul", *squares)]
    return list(dict.fromkeys(made))


@operation(
    "flafe.numeric_columns",
    when="epsilon=none",
    times=1,
    discloses="plain",
    about="names of the columns that are numbers, and of those among them that never vary",
    reply={"numeric": [str], "flat": [str], "rows": ROWS},
    needs=("column names",),
)
def numeric_columns(party: Party) -> dict[str, Any]:
    names = party.table.numeric_columns
    flat = [name for name in names if len(np.unique((v := party.table.values(name))[~np.isnan(v)])) < 2]
    return {"numeric": names, "flat": flat, "rows": party.n_rows}


@operation(
    "flafe.load_numbers",
    when="epsilon=none",
    times=2,
    discloses="plain",
    about="names of the columns that candidates are grown from",
    reply=[str],
    needs=("column names",),
)
def load_numbers(party: Party, *, columns: list[str], seed: Seed) -> list[str]:
    """Take named columns; of a wide table those that stand for the others best, without a look at any label.

    Which columns go best with the label would tell the party labels: twelve of a thousand gave 0.91 of those of Colon.
    Nothing is fitted on validation rows: the job's share of them, drawn from the seed.
    """
    settings = party.job.parameters
    told = settings.get("random_state")
    if isinstance(told, int) and seed != first_draw(told):
        raise OperationRefused(party.name, "load_numbers", "its seed is another than that of the accepted job")
    train = np.ones(party.n_rows, dtype=bool)
    train[held_out_rows(party.n_rows, settings["validation"], seed)] = False
    if train.any() and not train.all():
        party.site.enter_part(party, party.row_numbers[train], "flafe.load_numbers")
    names, raw = list(columns), party.table.matrix(columns)
    if settings.get("importance") == "bins" and len(names) > settings["max_columns"]:
        chosen = representatives(raw[train], settings["max_columns"])
        names, raw = [names[i] for i in chosen], raw[:, chosen]
    party.keep(OwnFeatures(names, train, raw))
    party.keep(RawColumns(raw))  # where a grid's common statistics are taken from
    party.keep(TrainingRows(train))
    return names


def first_draw(random_state: int) -> int:
    """The seed of a run, from the job's."""
    return int(np.random.default_rng(random_state).integers(2**31))


def representatives(values: np.ndarray, count: int) -> list[int]:
    """Columns (rows x columns, in their order) from which the others follow best.

    One after the other: the column nearest to the first principal component of what is left, which is then taken off.
    """
    values = values[:: max(1, len(values) // _SHOWN_ROWS)]
    centre, deviation = _statistics(values)
    left = np.nan_to_num((values - centre) / deviation, nan=0.0)
    chosen: list[int] = []
    for _ in range(min(count, left.shape[1])):
        component = left.sum(axis=1)
        for _ in range(_POWER_STEPS):
            component = left @ (left.T @ (component / max(float(np.linalg.norm(component)), 1e-300)))
        near = np.abs(left.T @ component) / np.maximum(np.sqrt((left**2).sum(axis=0)), 1e-9)
        near[chosen] = -1.0
        chosen.append(int(np.argmax(near)))
        taken = left[:, chosen[-1]] / max(float(np.linalg.norm(left[:, chosen[-1]])), 1e-300)
        left = left - np.outer(taken, taken @ left)
    return sorted(chosen)


@operation("flafe.form_candidates", when="epsilon=none", times=2, discloses="control", about="acknowledgement")
def form_candidates(party: Party, *, owner: str, grow: bool) -> None:
    """Standardise the columns by own statistics and make the candidates.

    Without ``grow`` the columns themselves are the candidates: to find out which are worth growing from.
    """
    own = _loaded(party)
    _form(party, owner, grow, *_statistics(own.raw[own.train]))


@operation(
    "flafe.form_candidates_by",
    when=("protection=columns|open", "epsilon=none"),
    times=2,
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="means and deviations of its columns over all row blocks",
)
def form_candidates_by(party: Party, *, owner: str, grow: bool, centre: np.ndarray, deviation: np.ndarray) -> None:
    """The same in a grid, by the statistics of the whole column group."""
    _form(party, owner, grow, centre, deviation)


def _loaded(party: Party) -> OwnFeatures:
    """With the columns as they are, which go when candidates are scaled."""
    own = party.held(OwnFeatures)
    if len(own.raw) != len(own.train):
        raise OperationRefused(party.name, "candidates", "its candidates are scaled already; load the columns again")
    return own


def _formed(party: Party) -> OwnFeatures:
    own = _loaded(party)
    if len(own.values) != len(own.train):
        raise OperationRefused(party.name, "scale_candidates", "it has formed no candidates from its columns")
    return own


def _form(party: Party, owner: str, grow: bool, centre: np.ndarray, deviation: np.ndarray) -> None:
    own = _loaded(party)
    if not centre.shape == deviation.shape == (len(own.names),):
        raise OperationRefused(party.name, "form_candidates", f"it has {len(own.names)} columns to standardise")
    base = [scaled(Column(name, owner), c, d) for name, c, d in zip(own.names, centre, deviation)]
    place = {name: i for i, name in enumerate(own.names)}
    own.formulas = [str(each) for each in (local_candidates(base) if grow else base)]
    own.values = _evaluate(own.formulas, lambda column: own.raw[:, place[column.name]], len(own.raw))
    party.keep(RawColumns(own.values))


@operation(
    "flafe.scale_candidates",
    when="epsilon=none",
    times=2,
    discloses="control",
    about="number of candidate features",
    reply=int,
)
def scale_candidates(party: Party) -> int:
    """Standardise the candidates and hold them within the job's ``clip`` deviations; in formulas it is always BOUND."""
    own = _formed(party)
    return _rescale(party, *_statistics(own.values[own.train]))


@operation(
    "flafe.scale_candidates_by",
    when=("protection=columns|open", "epsilon=none"),
    times=2,
    discloses="control",
    receives="aggregate",
    about="number of candidate features",
    learns="means and deviations of its candidates over all row blocks",
    reply=int,
)
def scale_candidates_by(party: Party, *, centre: np.ndarray, deviation: np.ndarray) -> int:
    """The same in a grid, by the statistics of the whole column group."""
    return _rescale(party, centre, deviation)


def _rescale(party: Party, centre: np.ndarray, deviation: np.ndarray) -> int:
    own = _formed(party)
    if not centre.shape == deviation.shape == (len(own.formulas),):
        raise OperationRefused(party.name, "scale_candidates", f"it has {len(own.formulas)} candidates to standardise")
    unit, made, values = float(party.job.parameters["clip"]) / BOUND, [], []
    for i, (text, c, d) in enumerate(zip(own.formulas, centre, deviation)):
        formula, source = parse(text), own.values[:, i]
        if i < len(own.names) and isinstance(formula, Call):  # a column: one scale() instead of two
            (own_centre, own_deviation), formula = formula.numbers, formula.arguments[0]
            c, d, source = own_centre + own_deviation * c, own_deviation * d, own.raw[:, i]
        made.append(scaled(formula, c, d * unit))
        values.append(_scale(source, made[-1]))
    own.formulas = [str(formula) for formula in made]
    own.values = np.column_stack(values) if values else np.empty((party.n_rows, 0))
    own.raw = np.empty((0, 0))
    party.state.pop(RawColumns, None)
    return len(made)


def _scale(values: np.ndarray, formula: Call) -> np.ndarray:
    centre, deviation = formula.numbers
    return np.nan_to_num(np.clip((values - centre) / deviation, -BOUND, BOUND), nan=0.0)


def _evaluate(formulas: list[str], values: Callable[[Column], np.ndarray], rows: int) -> np.ndarray:
    memo: dict[Expression, np.ndarray] = {}
    if not formulas:
        return np.empty((rows, 0))
    return np.column_stack([compute(parse(text), values, memo) for text in formulas])


def _statistics(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each column; constant (and empty) ones get deviation 1."""
    if not values.size:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    present = ~np.isnan(values)
    count = np.maximum(present.sum(axis=0), 1)
    centre = np.where(present, values, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(present, values - centre, 0.0) ** 2).sum(axis=0) / count)
    return centre, np.where(spread > 1e-9 * np.maximum(np.abs(centre), 1e-12), spread, 1.0)


def evaluate_at(party: Party, formulas: list[str]) -> np.ndarray:
    """Chosen features on the rows of the current view, missing values at the mean."""
    memo: dict[Expression, np.ndarray] = {}
    values = [compute(parse(text), lambda column: party.table.values(column.name), memo) for text in formulas]
    return np.nan_to_num(np.column_stack(values), nan=0.0) if values else np.empty((party.n_rows, 0))


def own_target(party: Party, task: str) -> tuple[np.ndarray, bool]:
    """The labels that this party has or was told: values, and whether they are classes."""
    if ToldLabels in party.state:
        told = party.held(ToldLabels)
        return told.values, told.classes
    labels = party.labels(task=task)
    classes = labels.task == "classification"
    return (labels.codes.astype(np.float64) if classes else labels.values), classes


@operation(
    "flafe.pool_features",
    when="protection=columns|open",
    times=1,
    discloses="control",
    about="number of features that the party chooses from in the end",
    reply=int,
)
def pool_features(party: Party) -> int:
    """Own chosen features first, then the combinations that this party holds."""
    own = party.held(Operands).columns
    pool = party.keep(Pool(np.hstack([own, party.held(Combined).matrix(len(own))])))
    return int(pool.values.shape[1])


VERTICAL = (form_candidates, scale_candidates)
HYBRID = (form_candidates_by, scale_candidates_by)
OPERATIONS = (numeric_columns, load_numbers, pool_features)
