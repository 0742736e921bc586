"""All of fedsift at once: every public name, every operation, and what one part hands to another.

``import fedsift`` is quick: it loads this module when a name of it is first asked for.
"""

from fedsift.core.federation import Federation
from fedsift.core.ledger import Ledger
from fedsift.core.operation import Array, operation, register_plugin
from fedsift.core.party import Party
from fedsift.core.progress_bar import progress
from fedsift.core.table import Table
from fedsift.core.wanted import FileForm
from fedsift.errors import FedsiftError
from fedsift.evaluate.budget import within_budget
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.explaining import Explanation, explain
from fedsift.evaluate.joint import jobs_within
from fedsift.evaluate.result import Evaluation
from fedsift.evaluate.value import value
from fedsift.evaluate.worth import Valuation
from fedsift.jobs.cost import expected
from fedsift.methods import (
    SFFS,
    VFLFS,
    AllFeatures,
    Auto,
    Boruta,
    FeatureElection,
    FederatedLasso,
    FedHalving,
    FedIIFE,
    FedSDG,
    GiniFilter,
    GroupLasso,
    HybridFLAFE,
    InformationValue,
    Knockoffs,
    LessVFL,
    LocalLasso,
    Muse,
    Outcome,
    PsoEvffs,
    RandomFeatures,
    Selector,
    Stable,
    StochasticGate,
    TopGain,
    VerticalFLAFE,
    register_criterion,
    register_method,
)
from fedsift.models.base import FederatedModel
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.fed_linear import FedLinear
from fedsift.models.hyfdca.model import HyFDCA
from fedsift.models.splitnn.model import SplitNN, register_model
from fedsift.models.vertical_additive import VerticalAdditive
from fedsift.models.vertical_logistic import VerticalLogisticRegression
from fedsift.mpc.psi import aligned
from fedsift.report import Comparison, compare, notebook_html, write_report
from fedsift.select.auto import Bench
from fedsift.select.rules import Rules
from fedsift.select.selection import Selection
from fedsift.statistics.statistics import correlation, psi, significance, vif

# What stands to the right, handed to what stands to the left and offers it to users.
Federation._alignment = staticmethod(aligned)
Selector._write_report = staticmethod(write_report)
Selector._notebook_html = staticmethod(notebook_html)
Auto.bench = Bench(evaluate, jobs_within, expected)

__all__ = [
    "SFFS",
    "VFLFS",
    "AllFeatures",
    "Array",
    "Auto",
    "Boruta",
    "Comparison",
    "Evaluation",
    "Explanation",
    "FeatureElection",
    "FedHalving",
    "FedIIFE",
    "FedLinear",
    "FedSDG",
    "FederatedLasso",
    "FederatedModel",
    "Federation",
    "FedsiftError",
    "FileForm",
    "GiniFilter",
    "GroupLasso",
    "HyFDCA",
    "HybridFLAFE",
    "InformationValue",
    "Knockoffs",
    "Ledger",
    "LessVFL",
    "LocalLasso",
    "Muse",
    "Outcome",
    "Party",
    "PsoEvffs",
    "RandomFeatures",
    "Rules",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
    "Selection",
    "Selector",
    "SplitNN",
    "Stable",
    "StochasticGate",
    "Table",
    "TopGain",
    "Valuation",
    "VerticalAdditive",
    "VerticalFLAFE",
    "VerticalLogisticRegression",
    "compare",
    "correlation",
    "evaluate",
    "explain",
    "operation",
    "progress",
    "psi",
    "register_criterion",
    "register_method",
    "register_model",
    "register_plugin",
    "significance",
    "value",
    "vif",
    "within_budget",
    "write_report",
]
