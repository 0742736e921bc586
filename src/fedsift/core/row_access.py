"""What a federation tells of its rows, columns and label (parties are asked once), and rows by position.

It stands where scikit-learn wants an ``X``: a length, a shape, and rows by position, each a view of the parties.

``cross_val_score(model, fed, cv=KFold(5, shuffle=True, random_state=0))``, ``GridSearchCV`` and ``Pipeline`` need no
more. A splitter deals positions, and shared rows stand in an order that the parties alone know, so it deals without a
look at labels (folds that are alike in their classes would tell most of them). Each ``score`` is a figure that the
parties let out; ``fedsift.evaluate`` lets one rounded summary out and puts the nulls beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedsift.core import party
from fedsift.core.checks import LabelFacts, TableSize, checked_label, checked_sizes
from fedsift.core.design import Design
from fedsift.core.row_draws import LEFT_OUT, TEST, TRAIN, Sides, draw_designed_rows, draw_rows
from fedsift.errors import AlignmentError, DataError, ParameterError, ReplyError

if TYPE_CHECKING:
    from fedsift.core.federation import Federation


@dataclass
class Facts:
    """What the parties have told of one view so far."""

    sizes: dict[str, TableSize] = field(default_factory=dict)
    label: LabelFacts | None = None
    names: dict[str, list[str]] = field(default_factory=dict)


class RowAccess:
    """What is known of a federation, and its rows by position: shared rows, or the parties' one after the other.

    And rows as the parties draw them: for training and for a test, by groups or by time where a design says so.
    """

    _facts: Facts
    _design: Design

    def sizes(self) -> dict[str, TableSize]:
        """Rows and columns of each party (in this view)."""
        fed = cast("Federation", self)
        self._facts.sizes = self._facts.sizes or checked_sizes(fed.ask(party.count_table, to=fed.parties))
        return self._facts.sizes

    @property
    def n_rows(self) -> int:
        """Rows in this view: the shared rows of vertical parties, all rows of horizontal and hybrid ones."""
        fed = cast("Federation", self)
        rows: dict[int, int] = {}  # by row block
        for name, size in self.sizes().items():
            if rows.setdefault(fed.grid[name][0], size.rows) != size.rows and fed._job is not None:
                raise AlignmentError(f"party {name!r} does not hold the rows of the others; align the federation first")
        return sum(rows.values())

    @property
    def n_columns(self) -> dict[str, int]:
        return {name: size.columns for name, size in self.sizes().items()}

    def _label_facts(self) -> LabelFacts:
        fed = cast("Federation", self)
        if self._facts.label is None and fed._job is None and (self.design.label or self.design.event):
            with fed.session("rows", {}) as run:  # outside of a job a party does not know which label is meant
                self._facts.label = run._label_facts()
        if self._facts.label is None:
            holder = fed.label_parties[0]
            self._facts.label = checked_label(fed.ask(party.describe_label, to=holder, task=fed.asked_task), holder)
        return self._facts.label

    @property
    def task(self) -> str:
        return self._label_facts().task

    @property
    def n_classes(self) -> int:
        return self._label_facts().classes

    def column_names(self) -> dict[str, list[str]]:
        """The parties' column names, or numbers where names stay private."""
        if not self._facts.names:
            fed = cast("Federation", self)
            if fed.names == "private":
                named = {name: [f"column {i}" for i in range(count)] for name, count in self.n_columns.items()}
            else:
                named = fed.ask(party.share_names, to=fed.parties)
                for name, columns in named.items():
                    if len(columns) != self.n_columns[name]:
                        raise ReplyError(name, "share_names", "it named another number of columns than it counted")
            self._facts.names = named
        return self._facts.names

    def __len__(self) -> int:
        return cast("Federation", self).n_rows

    def __bool__(self) -> bool:
        return True  # nobody is asked how many rows there are

    __iter__ = None  # rows do not come out one by one

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, as scikit-learn asks for them."""
        fed = cast("Federation", self)
        per_party = fed.n_columns.values()
        return fed.n_rows, sum(per_party) if fed.partition == "vertical" else max(per_party)

    def __getitem__(self, rows: Any) -> Federation:
        """The federation with these rows only: positions, a slice or a mask."""
        fed = cast("Federation", self)
        if isinstance(rows, tuple):
            rest = [part for part in rows[1:] if part is not Ellipsis and part != slice(None)]
            if not rows or rest:
                raise ParameterError("a federation is indexed by rows; columns are chosen by a selector's transform")
            rows = rows[0]
        if fed.partition == "hybrid":
            raise ParameterError("rows by position are for vertical or horizontal parties; these are hybrid")
        chosen: NDArray[np.int64] = np.atleast_1d(np.arange(fed.n_rows)[rows])
        if fed.partition == "vertical":
            return fed.view(rows=chosen)
        sizes = [fed.sizes()[name].rows for name in fed.parties]
        starts = np.cumsum([0, *sizes])
        own = {
            name: chosen[(chosen >= low) & (chosen < high)] - low
            for name, low, high in zip(fed.parties, starts, starts[1:])
        }
        empty = next((name for name, part in own.items() if not len(part)), None)
        if empty is not None:
            raise ParameterError(f"none of these rows is of party {empty!r}; shuffle the folds (shuffle=True)")
        return fed.view(rows=own)

    # -- rows as the parties draw them -----------------------------------------------------------------------------

    @property
    def design(self) -> Design:
        """How rows belong together and what they count."""
        return self._design

    def designed(self, design: Design) -> Federation:
        """The same federation under a design: what is fitted on it, scored or drawn goes by it."""
        fed = cast("Federation", self)
        if not isinstance(design, Design):
            raise ParameterError(f"designed takes a Design, got {type(design).__name__}")
        if design.parts and fed.partition != "vertical" and not (design.of_rows and fed.partition == "horizontal"):
            raise ParameterError(
                f"a design is for vertical parties; these are {fed.partition}. Horizontal ones may have a weight "
                'alone, each party its own column: weight="*.column"'
            )
        design.check(fed.parties, fed._active)
        other = fed.outside()
        other._design, other._facts = design, Facts()
        return other

    def rows(
        self, *, train: float = 0.7, stratify: bool = True, random_state: Any = 0
    ) -> tuple[Federation, Federation]:
        """Views of the training rows and of the test rows. Methods are fitted on the first and never see the second.

        The label holders draw, from their sites' secrets: the same ``random_state`` gives the same rows again, and
        nobody else can tell from it which rows are alike in their class. Under a design with a group or a time the
        party that has it draws: whole groups, or earlier rows for training; there is one such split, whatever the seed.
        """
        fed = cast("Federation", self)
        if self.design.deals is not None:
            drawn_sides = self.dealt_sides(1, train)[0]
            return tuple(fed.view(rows=np.flatnonzero(drawn_sides == side)) for side in (TRAIN, TEST))  # type: ignore[return-value]
        blocks = {fed.grid[name][0]: name for name in reversed(fed.label_parties)}  # each draws for its row block
        drawn = fed.ask(
            draw_rows, to=list(blocks.values())[::-1], train=train,
            stratify=stratify and fed.task == "classification", seed=random_state, task=fed._task,
        )  # fmt: skip
        train_rows, test_rows = ({n: drawn[blocks[r]][p] for n, (r, _) in fed.grid.items()} for p in ("train", "test"))
        return fed.view(rows=train_rows), fed.view(rows=test_rows)

    def dealt_sides(self, folds: int, train: float = 0.7) -> Sides:
        """By the group or the time of the design: folds x rows, 1 for training, 2 for testing, 0 for neither."""
        fed = cast("Federation", self)
        holder = self.design.holder(str(self.design.deals), fed.parties)
        if fed._job is None:  # outside of a job: one of its own says by which column rows are drawn
            with fed.session("rows", {"folds": folds, "train": train}) as run:
                return run.dealt_sides(folds, train)
        found: Sides = fed.ask(draw_designed_rows, to=holder, folds=folds, train=float(train))
        if found.shape != (folds, fed.n_rows) or not np.isin(found, (LEFT_OUT, TRAIN, TEST)).all():
            raise ReplyError(holder, "draw_designed_rows", "it dealt other rows or folds than there are")
        return found


# --- whether rows of another federation have the columns, in the order, that something was fitted on ---
#
# Columns travel by position. Between machines a site stays the same; in one process somebody may bring a table whose
# columns stand in another order, and position 0 would be another column in silence. What is kept of a name is a digest:
# it is written into models, and names may be private.

Digests = dict[str, list[str]]


def columns_here(fed: Federation) -> Digests:
    """A digest of each column's name, by party, of parties that are simulated in this process; none of others."""
    found = {}
    for name, site in fed.simulated.items():
        if name in fed.parties and fed._view in site.views:
            chosen = site.views[fed._view][1]
            found[name] = [_digest(column) for column in (site.table.columns if chosen is None else chosen)]
    return found


def same_columns(
    fitted: Mapping[str, Sequence[str]], fed: Federation, kept: Mapping[str, list[int]]
) -> dict[str, list[int]]:
    """Where the columns ``kept`` (positions, by party) of what was fitted stand in this federation."""
    here, found = columns_here(fed), dict(kept)
    for name, places in kept.items():
        if name in here and name in fitted and here[name] != list(fitted[name]):
            try:
                found[name] = [here[name].index(fitted[name][place]) for place in places]
            except ValueError:
                raise DataError(f"party {name!r}: a column that is needed is not in this table") from None
    return found


def with_columns_of(fitted: Mapping[str, Sequence[str]], fed: Federation) -> Federation:
    """The federation with each party's columns as where something was fitted: the same ones in the same order."""
    here = columns_here(fed)
    if all(columns == list(fitted.get(party, columns)) for party, columns in here.items()):
        return fed
    every = {party: list(range(len(fitted.get(party, columns)))) for party, columns in here.items()}
    return fed.view(columns=same_columns(fitted, fed, every))


def place_of(fed: Federation, narrower: Federation) -> dict[str, list[int | None]]:
    """Where each of a federation's columns stands in a view of it, by party; ``None`` where it is left out."""
    there = columns_here(narrower)
    found: dict[str, list[int | None]] = {name: list(range(count)) for name, count in fed.n_columns.items()}
    for name, columns in columns_here(fed).items():
        known = {digest: place for place, digest in enumerate(there[name])} if name in there else None
        if known is not None:
            found[name] = [known.get(digest) for digest in columns]
    return found


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
