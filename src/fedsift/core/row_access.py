"""A federation where scikit-learn wants an ``X``: a length, a shape, and rows by position, each a view of the parties.

``cross_val_score(model, fed, cv=KFold(5, shuffle=True, random_state=0))``, ``GridSearchCV`` and ``Pipeline`` need no
more. A splitter deals positions, and shared rows stand in an order that the parties alone know, so it deals without a
look at labels (folds that are alike in their classes would tell most of them). Each ``score`` is a figure that the
parties let out; ``fedsift.evaluate`` lets one rounded summary out and puts the nulls beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedsift.errors import ParameterError

if TYPE_CHECKING:
    from fedsift.core.federation import Federation


class RowAccess:
    """Rows of a federation by position: of the shared rows, or of the parties' rows one after the other."""

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
        chosen = np.atleast_1d(np.arange(fed.n_rows)[rows])
        if fed.partition == "vertical":
            return fed.view(rows=chosen)
        sizes = [fed.sizes()[name]["rows"] for name in fed.parties]
        starts = np.cumsum([0, *sizes])
        own = {
            name: chosen[(chosen >= low) & (chosen < high)] - low
            for name, low, high in zip(fed.parties, starts, starts[1:])
        }
        empty = next((name for name, part in own.items() if not len(part)), None)
        if empty is not None:
            raise ParameterError(f"none of these rows is of party {empty!r}; shuffle the folds (shuffle=True)")
        return fed.view(rows=own)
