"""fedsift: find the features that matter when a table's columns or rows may not be pooled."""

from __future__ import annotations

from fedsift.errors import FedsiftError
from fedsift.evaluate import Evaluation, evaluate
from fedsift.federation import Federation
from fedsift.ledger import Ledger
from fedsift.operation import Array, operation, register_plugin
from fedsift.party import Party
from fedsift.progress_bar import progress
from fedsift.protocols.boost import SecureBoostClassifier, SecureBoostRegressor
from fedsift.protocols.hyfdca import HyFDCA
from fedsift.protocols.linear import FedLinear
from fedsift.protocols.splitnn import SplitNN, register_model
from fedsift.protocols.vertical_logistic import VerticalLogisticRegression
from fedsift.report import Comparison, compare
from fedsift.select import (
    SFFS,
    VFLFS,
    AllFeatures,
    FeatureElection,
    FederatedLasso,
    FedHalving,
    FedIIFE,
    FedSDG,
    GiniFilter,
    GroupLasso,
    HybridFLAFE,
    InformationValue,
    LessVFL,
    LocalLasso,
    Muse,
    Outcome,
    PsoEvffs,
    RandomFeatures,
    Selector,
    StochasticGate,
    TopGain,
    VerticalFLAFE,
    register_criterion,
    register_method,
)
from fedsift.selection import Selection
from fedsift.table import Table

__version__ = "0.1.0"

__all__ = [
    "SFFS",
    "VFLFS",
    "AllFeatures",
    "Array",
    "Comparison",
    "Evaluation",
    "FeatureElection",
    "FedHalving",
    "FedIIFE",
    "FedLinear",
    "FedSDG",
    "FederatedLasso",
    "Federation",
    "FedsiftError",
    "GiniFilter",
    "GroupLasso",
    "HyFDCA",
    "HybridFLAFE",
    "InformationValue",
    "Ledger",
    "LessVFL",
    "LocalLasso",
    "Muse",
    "Outcome",
    "Party",
    "PsoEvffs",
    "RandomFeatures",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
    "Selection",
    "Selector",
    "SplitNN",
    "StochasticGate",
    "Table",
    "TopGain",
    "VerticalFLAFE",
    "VerticalLogisticRegression",
    "compare",
    "evaluate",
    "operation",
    "progress",
    "register_criterion",
    "register_method",
    "register_model",
    "register_plugin",
]
