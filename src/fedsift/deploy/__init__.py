"""Parties on their own machines, over NVIDIA FLARE: ``run_on`` is ``fedsift run --on``, ``value_on`` is ``value``."""

from __future__ import annotations

from fedsift.deploy.run import PLACES, run_on, value_on

__all__ = ["PLACES", "run_on", "value_on"]
