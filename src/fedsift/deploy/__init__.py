"""Parties on their own machines: the same job over NVIDIA FLARE. ``run_on`` is what ``fedsift run --on`` calls."""

from __future__ import annotations

from fedsift.deploy.run import PLACES, run_on

__all__ = ["PLACES", "run_on"]
