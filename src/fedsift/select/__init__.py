"""Selectors: one file a method. ``METHODS`` names them for job files and the command line."""

from __future__ import annotations

from fedsift.engineer.flafe import HybridFLAFE, VerticalFLAFE
from fedsift.engineer.iife import FedIIFE
from fedsift.select.base import Outcome, Selector
from fedsift.select.criteria import register_criterion
from fedsift.select.feature_election import FeatureElection
from fedsift.select.federated_lasso import FederatedLasso
from fedsift.select.fedsdg import FedSDG
from fedsift.select.gate_baselines import VFLFS, StochasticGate
from fedsift.select.gini import GiniFilter
from fedsift.select.halving import FedHalving
from fedsift.select.information_value import InformationValue
from fedsift.select.lasso_networks import GroupLasso, LocalLasso
from fedsift.select.less_vfl import LessVFL
from fedsift.select.muse import Muse
from fedsift.select.nulls import AllFeatures, RandomFeatures
from fedsift.select.pso_evffs import PsoEvffs
from fedsift.select.sffs import SFFS
from fedsift.select.top_gain import TopGain

METHODS: dict[str, type[Selector]] = {
    "muse": Muse,
    "fedsdg": FedSDG,
    "less_vfl": LessVFL,
    "pso_evffs": PsoEvffs,
    "top_gain": TopGain,
    "information_value": InformationValue,
    "gini": GiniFilter,
    "sffs": SFFS,
    "federated_lasso": FederatedLasso,
    "group_lasso": GroupLasso,
    "local_lasso": LocalLasso,
    "stochastic_gate": StochasticGate,
    "vflfs": VFLFS,
    "fed_iife": FedIIFE,
    "vertical_flafe": VerticalFLAFE,
    "hybrid_flafe": HybridFLAFE,
    "fed_halving": FedHalving,
    "feature_election": FeatureElection,
    "all": AllFeatures,
    "random": RandomFeatures,
}


def register_method(name: str, method: type[Selector]) -> None:
    """Let job files and the command line name a selector of your own."""
    METHODS[name] = method


__all__ = [
    "METHODS",
    "SFFS",
    "VFLFS",
    "AllFeatures",
    "FeatureElection",
    "FedHalving",
    "FedIIFE",
    "FedSDG",
    "FederatedLasso",
    "GiniFilter",
    "GroupLasso",
    "HybridFLAFE",
    "InformationValue",
    "LessVFL",
    "LocalLasso",
    "Muse",
    "Outcome",
    "PsoEvffs",
    "RandomFeatures",
    "Selector",
    "StochasticGate",
    "TopGain",
    "VerticalFLAFE",
    "register_criterion",
    "register_method",
]
