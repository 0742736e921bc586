"""All methods, and all models, by the names that job files and the command line give them."""

from __future__ import annotations

from fedsift.engineer.fed_iife.selector import FedIIFE
from fedsift.engineer.flafe.api import HybridFLAFE, VerticalFLAFE
from fedsift.errors import ParameterError
from fedsift.models.base import FederatedModel
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.fed_linear import FedLinear
from fedsift.models.hyfdca.model import HyFDCA
from fedsift.models.splitnn.model import SplitNN
from fedsift.models.vertical_additive import VerticalAdditive
from fedsift.models.vertical_logistic import VerticalLogisticRegression
from fedsift.select.auto import Auto
from fedsift.select.base import Outcome, Selector
from fedsift.select.baselines.feature_election import FeatureElection
from fedsift.select.baselines.federated_lasso import FederatedLasso
from fedsift.select.baselines.nulls import AllFeatures, RandomFeatures
from fedsift.select.boruta import Boruta
from fedsift.select.fedsdg.selector import FedSDG
from fedsift.select.fedsdg.stochastic_gate import StochasticGate
from fedsift.select.filters.gini import GiniFilter
from fedsift.select.filters.information_value import InformationValue
from fedsift.select.filters.sffs import SFFS
from fedsift.select.halving import FedHalving
from fedsift.select.knockoffs import Knockoffs
from fedsift.select.less_vfl.lasso_networks import GroupLasso, LocalLasso
from fedsift.select.less_vfl.selector import LessVFL
from fedsift.select.less_vfl.vflfs import VFLFS
from fedsift.select.muse.criteria import register_criterion
from fedsift.select.muse.selector import Muse
from fedsift.select.pso.selector import PsoEvffs
from fedsift.select.stable import Stable
from fedsift.select.top_gain import TopGain

METHODS: dict[str, type[Selector]] = {
    method.name: method
    for method in (
        Auto,
        Muse,
        FedSDG,
        LessVFL,
        PsoEvffs,
        TopGain,
        InformationValue,
        GiniFilter,
        SFFS,
        FederatedLasso,
        GroupLasso,
        LocalLasso,
        StochasticGate,
        VFLFS,
        FedIIFE,
        VerticalFLAFE,
        HybridFLAFE,
        FedHalving,
        FeatureElection,
        Knockoffs,
        Boruta,
        Stable,
        AllFeatures,
        RandomFeatures,
    )
}


def find_method(name: str) -> type[Selector]:
    """The method that job files call so."""
    if name not in METHODS:
        raise ParameterError(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name]


for around in (Auto, Stable):
    around.find_method = staticmethod(find_method)

#: For whoever looks for a method: what it is that they ask.
GROUPS: dict[str, tuple[str, ...]] = {
    "choose for me": ("auto",),
    "a score for each column": ("information_value", "gini", "sffs"),
    "few false columns": ("knockoffs", "boruta", "stable"),
    "columns that do not repeat each other": ("muse",),
    "columns for boosted trees": ("top_gain", "pso_evffs"),
    "columns for linear models": ("federated_lasso",),
    "columns for networks": (
        "fedsdg", "less_vfl", "group_lasso", "local_lasso", "stochastic_gate", "vflfs",
    ),
    "parties that hold rows": ("feature_election", "fed_halving", "fed_iife"),
    "new features": ("vertical_flafe", "hybrid_flafe"),
    "nothing: to compare with": ("all", "random"),
}  # fmt: skip
OTHERS = "others"


def group_of(name: str) -> str:
    """Under which question a method is listed; one that was registered from outside is among the others."""
    return next((group for group, names in GROUPS.items() if name in names), OTHERS)


#: A model on its own announces itself to the parties by one of these.
MODELS: dict[str, type[FederatedModel]] = {
    model.name: model
    for model in (
        SecureBoostClassifier,
        SecureBoostRegressor,
        VerticalLogisticRegression,
        VerticalAdditive,
        HyFDCA,
        FedLinear,
        SplitNN,
    )
}


def register_method(name: str, method: type[Selector]) -> None:
    """Let job files and the command line name a selector of your own."""
    method.name = name
    METHODS[name] = method


__all__ = [
    "GROUPS",
    "METHODS",
    "MODELS",
    "OTHERS",
    "SFFS",
    "VFLFS",
    "AllFeatures",
    "Auto",
    "Boruta",
    "FeatureElection",
    "FedHalving",
    "FedIIFE",
    "FedSDG",
    "FederatedLasso",
    "GiniFilter",
    "GroupLasso",
    "HybridFLAFE",
    "InformationValue",
    "Knockoffs",
    "LessVFL",
    "LocalLasso",
    "Muse",
    "Outcome",
    "PsoEvffs",
    "RandomFeatures",
    "Selector",
    "Stable",
    "StochasticGate",
    "TopGain",
    "VerticalFLAFE",
    "find_method",
    "group_of",
    "register_criterion",
    "register_method",
]
