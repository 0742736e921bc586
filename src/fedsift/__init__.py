"""fedsift: find the features that matter when a table's columns or rows may not be pooled."""

from __future__ import annotations

from fedsift.errors import FedsiftError
from fedsift.evaluate import Evaluation, evaluate
from fedsift.federation import Federation
from fedsift.ledger import Ledger
from fedsift.operation import Array, operation, register_plugin
from fedsift.party import Party
from fedsift.report import Comparison, compare
from fedsift.select import (
    SFFS,
    AllFeatures,
    GiniFilter,
    InformationValue,
    Outcome,
    RandomFeatures,
    Selector,
    register_method,
)
from fedsift.selection import Selection
from fedsift.table import Table

__version__ = "0.1.0"

__all__ = [
    "SFFS",
    "AllFeatures",
    "Array",
    "Comparison",
    "Evaluation",
    "Federation",
    "FedsiftError",
    "GiniFilter",
    "InformationValue",
    "Ledger",
    "Outcome",
    "Party",
    "RandomFeatures",
    "Selection",
    "Selector",
    "Table",
    "compare",
    "evaluate",
    "operation",
    "register_method",
    "register_plugin",
]
