"""How rows belong together and what they count: groups, times, weights, events, other labels.

A design names columns that are no features but say what the rows are: whose row it is, when it was, how much it counts,
whether something happened. They are read beside the features (``Table.aside``), never summed as features, and stay at
the party that has them. The accepted job carries the design (``Job.design``): a site reads from there which of its
columns say what, and refuses one that it does not hold.

*Who has what*: groups and times are at any one party, which then deals the folds; weights, events and other labels are
at the label holder. *Who learns what* of folds: ``row_draws.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsift.core.columns import checked_label
from fedsift.core.labels import Holder, Labels
from fedsift.core.survival import residuals
from fedsift.core.table import Table
from fedsift.core.wanted import Loaded
from fedsift.errors import DataError, OperationRefused, ParameterError

#: The parts of a design that name a column; the last three are the label holder's.
COLUMNS = ("group", "time", "weight", "event", "label")
_HOLDER = ("weight", "event", "label")
BALANCED = "balanced"
EVERYBODY = "*."  # a column of this name at every party


@dataclass(frozen=True)
class Design:
    """How rows belong together and what they count. Columns are named ``"party.column"``; they are no features.

    Parameters
    ----------
    group : whose row it is: the rows of one person stay in one fold.
    time : when it was, a number or a date: a model learns from earlier rows and is tested on later ones.
    gap : how much time lies between the two at least, in the unit of ``time``, days for a date.
    weight : how much a row counts, a number above 0. Where parties hold rows, ``"*.column"``: each party's own column.
    class_weight : ``"balanced"`` (classes count alike), or what a row of each class counts, by its name.
    event : whether it happened (1) or had not yet when the row was last seen (0); the label is how long that took.
    label : another column of the label holder in the place of its label.
    labels : several such columns, its own label among them or not: a selector is fitted for each in a job of its own,
        and keeps what one of them keeps.

    Examples
    --------
    >>> import fedsift as fs, numpy as np, pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> whose = np.arange(120) // 3
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"], aside={"customer": whose})
    >>> train, test = fed.designed(fs.Design(group="bank.customer")).rows(train=0.7)
    >>> train.n_rows + test.n_rows
    120
    """

    group: str | None = None
    time: str | None = None
    gap: float = 0.0
    weight: str | None = None
    class_weight: str | Mapping[str, float] | None = None
    event: str | None = None
    label: str | None = None
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in COLUMNS:
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or "." not in given):
                raise ParameterError(f'design: {name} is a column as "party.column"; got {given!r}')
            if given is not None and given.startswith(EVERYBODY) and (name != "weight" or len(self.parts) > 1):
                raise ParameterError(
                    f"design: {name}={given!r}: only a weight is a column of every party, and nothing stands beside it"
                )
        if isinstance(self.labels, str) or not all(isinstance(name, str) and "." in name for name in self.labels):
            raise ParameterError(f'design: labels is a list of columns as "party.column"; got {self.labels!r}')
        if self.labels and self.label is not None:
            raise ParameterError("design: give label or labels, one of the two")
        if self.group is not None and self.time is not None:
            raise ParameterError(
                "design: give group or time, one of the two: with both, which earlier rows are left out would tell "
                "whose rows come back later"
            )
        if not _is_number(self.gap) or self.gap < 0 or (self.gap > 0 and self.time is None):
            raise ParameterError(f"design: gap is a number, 0 or more, beside time; got {self.gap!r}")
        _check_class_weight(self.class_weight)
        if self.event is not None and self.class_weight is not None:
            raise ParameterError("design: class_weight is for classes, and with event the label is a time")

    def told(self) -> dict[str, Any]:
        """As plain values: what is set, and nothing else, so that a job without a design says nothing."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        weight = values["class_weight"]
        values["class_weight"] = dict(weight) if isinstance(weight, Mapping) else weight
        values["labels"] = list(self.labels)
        return {name: value for name, value in values.items() if value not in (None, 0.0, [])}

    def each(self) -> dict[str, Design]:
        """A design for each of several labels, by the label's name."""
        return {name: replace(self, label=name, labels=()) for name in self.labels}

    @classmethod
    def read(cls, told: object) -> Design:
        """From a job; ``ParameterError`` for anything that is no design."""
        known = {each.name for each in fields(cls)}
        if not isinstance(told, Mapping) or not set(told) <= known:
            raise ParameterError(f"a design has {', '.join(sorted(known))}")
        return cls(**told)

    @property
    def parts(self) -> tuple[str, ...]:
        """Which parts are set."""
        return tuple(self.told())

    @property
    def deals(self) -> str | None:
        """The part that decides which rows are trained on, if any."""
        return "group" if self.group is not None else "time" if self.time is not None else None

    @property
    def of_rows(self) -> bool:
        """Whether it is one that parties with rows may have: a weight, in a column of the same name at each of them."""
        return self.weight is not None and self.weight.startswith(EVERYBODY) and self.parts == ("weight",)

    def holder(self, part: str, parties: Collection[str]) -> str:
        """The party whose column it is."""
        named = getattr(self, part)
        found = next((name for name in parties if named.startswith(f"{name}.")), None)
        if found is None:
            raise ParameterError(f"design: {part}={named!r} is no column of a party; they are {', '.join(parties)}")
        return found

    def columns_of(self, party: str) -> list[str]:
        """The columns of this party that the design names."""
        named = [*(getattr(self, part) for part in COLUMNS if getattr(self, part) is not None), *self.labels]
        own = [name.split(".", 1)[1] for name in named if name.startswith((f"{party}.", EVERYBODY))]
        return list(dict.fromkeys(own))

    def check(self, parties: Collection[str], active: str | None) -> None:
        """Every column is of a party, and of the label holder where it must be."""
        if self.of_rows and active is None:
            return
        for design in self.each().values():
            design.check(parties, active)
        for part in COLUMNS:
            if getattr(self, part) is None:
                continue
            holder = self.holder(part, parties)
            if part in _HOLDER and active is not None and holder != active:
                raise ParameterError(
                    f"design: {part}={getattr(self, part)!r}: it must be a column of the label holder {active!r}"
                )


#: What a method goes by without knowing: whose rows are drawn together, and which label it learns from.
DRAWN = ("group", "time", "gap", "label", "labels", "event")
WEIGHTED = (*DRAWN, "weight", "class_weight")


def check_served(design: Design, method: str, serves: Collection[str], otherwise: str = "") -> None:
    """Refuse a part of a design that a method would not go by: it must not be left out in silence. ``otherwise``: with
    which parameters it would."""
    part = next((part for part in design.parts if part not in serves), None)
    if part is not None:
        can = ", ".join(each for each in serves if each != "gap") or "none"
        raise ParameterError(f"{method} does not go by the design's {part} (it goes by: {can}){otherwise}")


class GoesBy:
    """A method or a model, which says what parts of a design it goes by."""

    #: Whatever its parameters are.
    designs: ClassVar[tuple[str, ...]] = DRAWN
    #: Which other parameters go by more, for who is refused.
    otherwise: ClassVar[str] = ""

    def _serves(self) -> tuple[str, ...]:
        """With these parameters."""
        return self.designs


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def _check_class_weight(given: object) -> None:
    if given is None or given == BALANCED:
        return
    fine = isinstance(given, Mapping) and given and all(_is_number(v) and v > 0 for v in given.values())
    if not fine or not all(isinstance(name, str) for name in given):  # type: ignore[attr-defined]
        raise ParameterError(
            'design: class_weight is "balanced", or a number above 0 for each class by its name, such as '
            f'{{"0": 1.0, "1": 5.0}}; got {given!r}'
        )


# --- at a party ------------------------------------------------------------------------------------------------------


def design_of(party: Holder) -> Design:
    """The design that this party has accepted with its job."""
    job = party.run.job
    if job is None or not job.design:
        return Design()
    try:
        return Design.read(job.design)
    except ParameterError as error:
        raise OperationRefused(party.name, "design", str(error)) from None


def column_of(party: Holder, part: str) -> NDArray[np.generic] | None:
    """The column that a part of the design names, one entry a row; ``None`` where none does or it is another's."""
    named = getattr(design_of(party), part)
    if named is None or not named.startswith((f"{party.name}.", EVERYBODY)):
        return None
    return _aside(party.name, party.table, named.split(".", 1)[1], part)


def _aside(party: str, table: Table, column: str, part: str) -> NDArray[np.generic]:
    """A column that is no feature, without missing values; of labels the table's own, too."""
    if part == "label" and column == table.label_name and table.label is not None:
        return table.label
    if column not in table.aside:
        raise OperationRefused(
            party, "design",
            f"the design's {part} column {column!r} is not set aside here; name it in aside = [\"{column}\"] of its "
            "party.toml, or in aside of Federation.from_tables",
        )  # fmt: skip
    series = table.aside[column]
    if series.null_count():
        raise DataError(f"party {party!r}: column {column!r} ({part}) has rows without a value; fill them in")
    values = series.to_list() if series.dtype == pl.String else series.to_numpy()
    return np.array(values, dtype=object if series.dtype == pl.String else None)


def labelled(party: Holder, table: Table) -> Table:
    """The table with the label that the job's design says: another column's, or residuals of times (``survival.py``).

    Residuals are of the rows of this view: those of training rows know nothing of the test.
    """
    design = design_of(party)
    if table.label_name is None or design.label is None is design.event:
        return table
    column = table.label_name if design.label is None else design.label.removeprefix(f"{party.name}.")
    if column != table.label_name:
        _aside(party.name, table, column, "label")
        series = checked_label(
            table.aside[column], Loaded(table.aside[column].to_frame(), f"party {party.name!r}", str)
        )
        table = replace(table, _label=series, label_name=column)
    if design.event is None:
        return table
    column = design.event.removeprefix(f"{party.name}.")
    events = _events(party.name, _aside(party.name, table, column, "event"))
    weights = None
    if design.weight is not None:
        found = _aside(party.name, table, design.weight.removeprefix(f"{party.name}."), "weight")
        weights = _weights(party.name, found)
    return replace(table, _label=pl.Series(residuals(durations(party.name, table), events, weights)))


def durations(party: str, table: Table) -> NDArray[np.float64]:
    """The label as times."""
    if table.label is None:
        raise DataError(f"party {party!r} has no label column: with an event it is how long it took")
    found = _numbers(party, table.label, "label")
    if (found < 0).any():
        raise DataError(f"party {party!r}: with an event the label is a time, 0 or more")
    return found


def survival_of(party: Holder) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """How long each row was seen, and whether it happened; ``None`` where the design has no event."""
    events = event_of(party)
    if events is None:
        return None
    return durations(party.name, party.site.table)[party.row_numbers], events


def check_here(party: Holder) -> None:
    """What the design names of this party is there and can be what it says; asked before any work is done."""
    design = design_of(party)
    for part in COLUMNS:
        column_of(party, part)
    for name in design.labels:
        if name.startswith(f"{party.name}."):
            _aside(party.name, party.table, name.removeprefix(f"{party.name}."), "label")
    if design.time is not None:
        times_of(party)
    if party.job.role_of(party.name) == "active" or design.of_rows:
        weights_of(party)
    if party.job.role_of(party.name) == "active":
        event_of(party)
        class_weights_of(party)


def times_of(party: Holder) -> NDArray[np.float64] | None:
    """When each row was."""
    found = column_of(party, "time")
    if found is None:
        return None
    if found.dtype.kind == "M":
        found = found.astype("datetime64[us]").astype(np.int64) / 86_400e6
    return _numbers(party.name, found, "time")


def weights_of(party: Holder) -> NDArray[np.float64] | None:
    """What each row counts by its own weight."""
    found = column_of(party, "weight")
    return None if found is None else _weights(party.name, found)


def event_of(party: Holder) -> NDArray[np.bool_] | None:
    """Whether it happened."""
    found = column_of(party, "event")
    return None if found is None else _events(party.name, found)


def class_weights_of(party: Holder) -> object:
    """What a row of each class counts: ``"balanced"``, by class, or ``None``."""
    told = design_of(party).class_weight
    if told is None:
        return None
    labels = party.labels(task=party.job.task)
    if labels.task == "regression":
        raise OperationRefused(party.name, "design", "class_weight is for classes, and the label is a number")
    if not isinstance(told, Mapping):
        return told
    if set(told) != set(labels.classes):
        raise OperationRefused(
            party.name, "design", "class_weight must say what each class of the label counts, by its name, and no other"
        )
    return dict(told)


def by_class(labels: Labels, told: object, train: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What a row of its class counts; balanced over the training rows."""
    if told is None:
        return np.ones(len(train))
    if isinstance(told, dict):
        return np.asarray(np.array([float(told[name]) for name in labels.classes])[labels.codes])
    counts = np.maximum(np.bincount(labels.codes[train], minlength=labels.n_classes), 1)
    return np.asarray((train.sum() / (labels.n_classes * counts))[labels.codes], dtype=np.float64)


def counted_rows(party: Holder, labels: Labels) -> NDArray[np.float64] | None:
    """What each row of this view counts, by its weight and its class; ``None`` where all count alike."""
    own, told = weights_of(party), class_weights_of(party)
    if own is None and told is None:
        return None
    every = np.ones(party.n_rows, dtype=bool)
    counted = np.ones(party.n_rows) if own is None else own
    return np.asarray(counted * by_class(labels, told, every))


def _weights(party: str, found: NDArray[Any]) -> NDArray[np.float64]:
    numbers = _numbers(party, found, "weight")
    if (numbers <= 0).any():
        raise DataError(f"party {party!r}: weights must be above 0; leave rows that count nothing out")
    return numbers


def _events(party: str, found: NDArray[np.generic]) -> NDArray[np.bool_]:
    numbers = _numbers(party, found, "event")
    if not np.isin(numbers, (0.0, 1.0)).all():
        raise DataError(f"party {party!r}: an event is 1 (it happened) or 0 (it had not yet)")
    return np.asarray(numbers == 1.0)


def _numbers(party: str, values: NDArray[Any], part: str) -> NDArray[np.float64]:
    if values.dtype.kind not in "iufb" or not np.isfinite(values.astype(np.float64)).all():
        raise DataError(f"party {party!r}: the design's {part} column must hold numbers")
    return values.astype(np.float64)
