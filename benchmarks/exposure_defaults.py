"""Which rows of the exposure page are of what a user runs who names a method and nothing else.

docs/choosing.md and ``fedsift check`` print one figure a method. It must be of a run in the form that the method has by
default (its protection, its noise, what it opens), and of one as large as by default wherever such a run was measured:
two trees show less than thirty. So what counts is what was *run*, not what a case is called: rows say with which
parameters (``exposure.py`` writes them down), and the registry says which are the defaults today. A row of another form
is none of the method's default any more, whatever it was when it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from exposure_cases import Case
from exposure_models import every_case
from exposure_page import Cell, Row, added, by_cell

from fedsift.methods import METHODS

#: Parameters that say how much is done. Where a case lowers them, a default run shows as much, and more of it.
SIZES = {
    "candidates", "copies", "epochs", "folds", "halvings", "iterations", "max_depth", "max_features", "max_iter",
    "max_trees", "models", "n_bins", "n_estimators", "n_features", "n_operands", "pairs", "penalty", "popsize",
    "pretrain_epochs", "refinements", "refit_epochs", "rounds", "squares", "stage_epochs",
}  # fmt: skip
#: Rows that say nothing of their parameters are of a time when these were the defaults.
BEFORE: dict[str, Any] = {
    "protection": dict.fromkeys(("top_gain", "boruta", "pso_evffs"), "coordinator"), "n_estimators": {"top_gain": 30},
}  # fmt: skip


def told(made: Any) -> dict[str, str]:
    """Parameters as they stand in a row: those of a selector or model, nothing of a conversation."""
    return {name: repr(value) for name, value in made.get_params(deep=False).items()} if _is_fitted(made) else {}


def _is_fitted(made: Any) -> bool:
    return hasattr(made, "get_params")


def method_of(case: Case) -> str:
    """The registered method that a case fits as a user would; empty for a model, weights, or a conversation."""
    made = case.make()
    name = getattr(made, "name", "") if _is_fitted(made) else ""
    usual = name in METHODS and type(made) is METHODS[name] and case.partition == METHODS[name].partitions[0]
    return name if usual and not (case.few or case.weighted or case.bounded) else ""


def measured(case: Case, cell: Cell) -> Mapping[str, str]:
    """With which parameters the rows of a cell were measured."""
    written = next((row["parameters"] for row in cell.now if row.get("parameters")), None)
    if written is not None:
        return dict(written)
    made = case.make()
    chosen = case.make.keywords if isinstance(case.make, partial) else {}
    was = {p: repr(of[made.name]) for p, of in BEFORE.items() if made.name in of and p not in chosen}
    return {**told(made), **was}


def is_smaller(method: str, parameters: Mapping[str, str]) -> bool | None:
    """Whether less was done than by default; ``None`` where it is no default run, but another form of the method."""
    default = told(METHODS[method]())
    differ = {name for name in default if parameters.get(name, default[name]) != default[name]}
    more = {name for name in differ & {"n_estimators"} if int(parameters[name]) > int(default[name])}
    return bool(differ - more) if differ <= SIZES else None


def worst_by_default(method: str) -> tuple[Row, bool] | None:
    """What adds most to guess and baseline of the default runs of a method over all sets, and whether the run that
    showed it was a smaller one; ``None`` where nothing was measured."""
    found: list[tuple[Row, bool]] = []
    for name, cells in by_cell().items():
        case = every_case()[name]
        if method_of(case) != method:
            continue
        for cell in cells.values():
            smaller = is_smaller(method, measured(case, cell))
            found += [(row, smaller) for row in cell.told if smaller is not None]
    return max(found, key=lambda each: added(each[0]), default=None)
