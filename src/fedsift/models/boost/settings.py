"""The parameters that everything on boosting has in common, checked in one place.

Methods keep their own keyword arguments, as scikit-learn's do; those of the names below mean the same everywhere.
"""

from __future__ import annotations

from typing import Protocol

from fedsift.core.checks import check_choice, check_number
from fedsift.core.design import DRAWN, WEIGHTED
from fedsift.core.federation import Federation
from fedsift.errors import ParameterError
from fedsift.models.boost.hidden.growing import check_neutral, check_settings
from fedsift.models.boost.tree import TreeSettings

#: How boosting is protected: on shares with a neutral coordinator, which opens sums or nobody does, or the encrypted
#: form that shows sums and nodes.
PROTECTIONS = ("coordinator", "all", "open")
#: For who asks for what nobody can do who reads nothing: what the other level on shares shows.
SHOWN = (
    "protection='coordinator' can do it, and shows the label holder which rows of a node go left at another party's "
    "cut (over many trees it places many cells) and the coordinator sums of unnamed cuts, with noise."
)
#: For who gives weights to a method whose default has none of them.
WEIGHED_OPENLY = (
    f": at protection='all', the default, gradients are shares that nobody can weigh. Without epsilon {SHOWN}"
)
#: The least and the largest value of a parameter, and whether it is whole.
_RANGES: dict[str, tuple[float, float | None, bool]] = {
    "n_estimators": (1, None, True), "max_trees": (1, None, True), "n_bins": (2, 255, True),
    "learning_rate": (1e-9, 1, False), "gamma": (0, None, False), "reg_lambda": (0, None, False),
    "min_child_weight": (0, None, False), "min_cell": (1, None, True), "min_leaf": (1, None, True),
}  # fmt: skip


class OnBoosting(Protocol):
    """A model or a selector that grows boosted trees."""

    protection: str
    max_depth: int
    learning_rate: float
    min_cell: int
    min_leaf: int


def check_boosting(method: OnBoosting, fed: Federation, *, least_depth: int = 1) -> None:
    """Refuse values out of range, and a level that this federation or these parameters cannot have."""
    for name, (low, high, whole) in _RANGES.items():
        if hasattr(method, name):
            check_number(name, getattr(method, name), low, high, whole=whole)
    check_number("max_depth", method.max_depth, least_depth, 30, whole=True)
    check_choice("protection", method.protection, PROTECTIONS)
    if method.protection == "open" or not fed.passive:
        return
    check_neutral(fed, type(method).__name__)
    check_settings(tree_settings(method))
    several = fed.task == "classification" and fed.n_classes > 2
    check_shared(
        method.protection, by_gradient=getattr(method, "sampling_method", "uniform") == "gradient_based",
        together=several and getattr(method, "multi_output", False),
    )  # fmt: skip


def serves(method: OnBoosting) -> tuple[str, ...]:
    """The parts of a design that boosting goes by: rows that count differently where exact sums are opened."""
    exact = method.protection != "all" and getattr(method, "epsilon", None) is None
    return WEIGHTED if exact else DRAWN


def tree_settings(method: OnBoosting) -> TreeSettings:
    """Of the method's own arguments; what it has none of is as usual."""
    usual = TreeSettings()
    numbers = {name: float(getattr(method, name, getattr(usual, name))) for name in _NUMBERS}
    return TreeSettings(
        max_depth=method.max_depth, max_leaves=getattr(method, "max_leaves", 0),
        leaf_wise=getattr(method, "grow_policy", "depthwise") == "lossguide",
        min_rows=max(method.min_cell, method.min_leaf), **numbers,
    )  # fmt: skip


_NUMBERS = ("gamma", "reg_lambda", "min_child_weight", "learning_rate")


def check_shared(protection: str, *, by_gradient: bool = False, private: bool = False, together: bool = False) -> None:
    """Refuse at level ``all`` what needs somebody to read scores or gradients of rows while trees grow."""
    if protection != "all":
        return
    asked = {
        "multi_output=True (classes are told apart one against the rest, each by trees of its own)": together,
        "sampling_method='gradient_based' (nobody reads which gradients are large)": by_gradient,
        "epsilon (nobody reads a sum, so there is none to add noise to)": private,
    }
    found = [what for what, wanted in asked.items() if wanted]
    if found:
        raise ParameterError(f"protection='all' (the default) cannot have {'; '.join(found)}. {SHOWN}")
