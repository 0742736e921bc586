"""Selectors: one file a method. ``METHODS`` names them for job files and the command line."""

from __future__ import annotations

from fedsift.select.base import Outcome, Selector
from fedsift.select.gini import GiniFilter
from fedsift.select.information_value import InformationValue
from fedsift.select.nulls import AllFeatures, RandomFeatures
from fedsift.select.sffs import SFFS

METHODS: dict[str, type[Selector]] = {
    "information_value": InformationValue,
    "gini": GiniFilter,
    "sffs": SFFS,
    "all": AllFeatures,
    "random": RandomFeatures,
}


def register_method(name: str, method: type[Selector]) -> None:
    """Let job files and the command line name a selector of your own."""
    METHODS[name] = method


__all__ = [
    "METHODS",
    "SFFS",
    "AllFeatures",
    "GiniFilter",
    "InformationValue",
    "Outcome",
    "RandomFeatures",
    "Selector",
    "register_method",
]
