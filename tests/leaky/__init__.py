"""The landed behaviour that was broken, kept as small operations: the attacks of the audit must find it for ever.

Each module holds operations with the old behaviour under the old names, and a conversation that asks for them over the
real transport. They stand outside fedsift, so a party runs them only as a registered plug-in. Nothing here protects
anything; the shipped code changes, these do not.
"""

from __future__ import annotations

from fedsift.core.operation import register_plugin

for _module in (
    "draws",
    "scores",
    "sums",
    "gini",
    "sizes",
    "jobs",
    "boosting",
    "networks",
    "masks",
    "parties",
    "coordinator",
    "combinations",
    "measures",
    "samples",
):
    register_plugin(f"leaky.{_module}")
