"""fedsift: find the features that matter when a table's columns or rows may not be pooled.

The names are loaded when the first of them is asked for (``_public.py``): ``fedsift --help`` needs none.
"""

import typing as _typing

from fedsift.version import VERSION as _VERSION

if _typing.TYPE_CHECKING:
    from fedsift._public import (
        SFFS,
        VFLFS,
        AllFeatures,
        Array,
        Auto,
        Boruta,
        Comparison,
        Evaluation,
        Explanation,
        FeatureElection,
        FederatedLasso,
        FederatedModel,
        Federation,
        FedHalving,
        FedIIFE,
        FedLinear,
        FedSDG,
        FedsiftError,
        FileForm,
        GiniFilter,
        GroupLasso,
        HybridFLAFE,
        HyFDCA,
        InformationValue,
        Knockoffs,
        Ledger,
        LessVFL,
        LocalLasso,
        Muse,
        Outcome,
        Party,
        PsoEvffs,
        RandomFeatures,
        Rules,
        SecureBoostClassifier,
        SecureBoostRegressor,
        Selection,
        Selector,
        SplitNN,
        Stable,
        StochasticGate,
        Table,
        TopGain,
        Valuation,
        VerticalAdditive,
        VerticalFLAFE,
        VerticalLogisticRegression,
        compare,
        correlation,
        evaluate,
        explain,
        operation,
        progress,
        psi,
        register_criterion,
        register_method,
        register_model,
        register_plugin,
        significance,
        value,
        vif,
        within_budget,
        write_report,
    )

__version__ = _VERSION

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


if not _typing.TYPE_CHECKING:  # a checker knows the names above, and no others

    def __getattr__(name: str) -> _typing.Any:
        if name not in __all__:
            raise AttributeError(f"module 'fedsift' has no attribute {name!r}")
        from fedsift import _public

        globals().update({each: getattr(_public, each) for each in __all__})
        return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__version__"]
