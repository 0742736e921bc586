"""What an evaluation compares: selectors by name, what is told of each, and the nulls beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from fedsift.errors import ParameterError
from fedsift.evaluate.result import ALL, Evaluation, next_to
from fedsift.select.base import Selector


def named_selectors(selectors: Any) -> dict[str, Selector]:
    if isinstance(selectors, Mapping):
        named = {str(name): selector for name, selector in selectors.items()}
    else:
        listed = [selectors] if isinstance(selectors, Selector) else list(selectors)
        named = {}
        for selector in listed:
            base, name, number = type(selector).__name__, type(selector).__name__, 2
            while name in named:
                name, number = f"{base} {number}", number + 1
            named[name] = selector
    if not named:
        raise ParameterError("selectors is empty: give a selector, a list or a dictionary of them")
    for name, selector in named.items():
        if not isinstance(selector, Selector):
            raise ParameterError(f"selectors[{name!r}] must be a selector, got {type(selector).__name__}")
        if name == ALL or name.startswith("random, as many as ") or name.endswith((" random columns", next_to(""))):
            raise ParameterError(f"the name {name!r} is kept for a null; call the selector something else")
    return named


def facts_of(selector: Selector) -> dict[str, object]:
    return {
        "class": type(selector).__name__,
        "parameters": selector.get_params(deep=False),
        "leaks": selector.leaks,
        "paper": selector.paper,
    }


def seeded(selector: Selector, repeat: int) -> Selector:
    fresh: Selector = clone(selector)
    seed = fresh.get_params(deep=False).get("random_state")
    if repeat and isinstance(seed, (int, np.integer)):
        fresh.set_params(random_state=int(seed) + repeat)
    return fresh


def gather(result: Evaluation, nulls: bool) -> None:
    """Sets of kept columns for the stability, and one line for nulls that are the same for several methods."""
    for name in result.methods:
        result.selected[name] = [frozenset(row["features"]) for row in result.rows if row["method"] == name]
    if not nulls:
        return
    by_sizes: dict[tuple[int, ...], list[str]] = {}
    for name in result.methods:
        sizes = tuple(row["n_features"] for row in result.rows if row["method"] == name)
        by_sizes.setdefault(sizes, []).append(name)
    for sizes, names in by_sizes.items():
        same = len(set(sizes)) == 1 and sizes[0] <= result.n_features
        shared = f"{sizes[0]} random columns" if same else f"random, as many as {', '.join(names)}"
        twins = {f"random, as many as {name}" for name in names[1:]}
        result.rows = [row for row in result.rows if row["method"] not in twins]
        for row in result.rows:
            if row["method"] == f"random, as many as {names[0]}":
                row["method"] = shared
        for twin in twins:
            result.released.pop(twin, None)
        if f"random, as many as {names[0]}" in result.released:
            result.released[shared] = result.released.pop(f"random, as many as {names[0]}")
        for name in names:
            result.methods[name]["null"] = shared
