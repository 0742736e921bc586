"""Many boosters at once: columns ranked by how boosters use them, and subsets of columns scored by cross-validation.

Shared by ``TopGain`` and ``PsoEvffs``. Folds are drawn inside the rows of the federation (the training rows); nothing
else is ever looked at. All folds of all subsets grow in lock-step. Which rows a fold has is drawn by the label holder
in secret; on shares nobody is told (a row outside the fold has zero gradients).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsift.core.federation import Federation
from fedsift.errors import ReplyError
from fedsift.models.boost.growing import OPERATIONS as GROWING
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.hidden.growing import Uses
from fedsift.models.boost.plan import Plain
from fedsift.models.boost.results import all_uses, column_uses, held_out_scores

_MOST_NUMBERS = 20_000_000  # masked numbers of one level (160 MB)
_MOST_CIPHERTEXTS = 150_000  # open form: rows of all models that grow together: bounds the size of a message

OPERATIONS = (*GROWING, column_uses, held_out_scores)


@dataclass(frozen=True)
class Protection:
    """How boosters are grown: what has to do with protection and encryption, not with the model."""

    protection: str
    least: int = 5
    first_tree_local: bool = True
    scheme: str = "auto"  # this and the next: of the open form
    bits: int = 10  # of a gradient: enough to rank columns and subsets, and half the work of a final model

    def grow(self, fed: Federation, boosters: list[Booster], *, scored: bool = False) -> Uses:
        return grow(
            fed, boosters, protection=self.protection, scheme=self.scheme, least=self.least, bits=self.bits,
            first_tree_local=self.first_tree_local, scored=scored,
        )  # fmt: skip

    def chunks(self, fed: Federation, boosters: list[Booster]) -> list[list[Booster]]:
        """Boosters that may grow together without too large a message."""
        outputs = fed.n_classes if fed.task == "classification" and fed.n_classes > 2 else 1
        if self.protection == "open":
            most = [_MOST_CIPHERTEXTS // max(1, fed.n_rows * outputs)] * len(boosters)
        else:  # a level of n rows has n numbers for each of its nodes
            nodes = [1 << max(0, booster.settings.max_depth - 2) for booster in boosters]
            most = [_MOST_NUMBERS // max(1, fed.n_rows * outputs * wide) for wide in nodes]
        size = max(1, min(most, default=1))
        return [boosters[start : start + size] for start in range(0, len(boosters), size)]


def uses(fed: Federation, boosters: list[Booster], protection: Protection, what: str) -> list[dict[str, np.ndarray]]:
    """For each booster and party: the gain (or the number of splits) of each of the party's columns."""
    result = []
    for part in protection.chunks(fed, boosters):
        with fed.session() as run:
            cuts = protection.grow(run, part)
            replies = all_uses(run, len(part), cuts)
        for reply in replies:
            found = {name: np.zeros(count) for name, count in fed.n_columns.items()}
            for name, fields in reply.items():
                found[name][fields["columns"]] = fields[what]
            result.append(found)
    return result


def cross_validate(
    fed: Federation, boosters: list[Booster], rules: list[dict[str, Plain]], protection: Protection, metric: str
) -> np.ndarray:
    """Score of each booster (rows of the result) under each rule of rows (columns)."""
    every = [replace(booster, rows=rule) for booster in boosters for rule in rules]
    return held_out(fed, every, protection, metric).reshape(len(boosters), len(rules))


def held_out(fed: Federation, boosters: list[Booster], protection: Protection, metric: str) -> np.ndarray:
    scores: list[float] = []
    for part in protection.chunks(fed, boosters):
        with fed.session() as run:
            protection.grow(run, part, scored=True)
            found = run.ask(held_out_scores, to=run.active, metric=metric)
        if len(found) != len(part):
            raise ReplyError(fed.active, "held_out_scores", "another number of models than were grown")
        scores += found
    return np.array(scores)


def by_party(fed: Federation, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Flat positions over all parties' columns (in the order of the parties) as positions by party."""
    result, start = {}, 0
    for name, count in fed.n_columns.items():
        inside = flat[(flat >= start) & (flat < start + count)]
        result[name] = np.sort(inside - start).astype(np.int64)
        start += count
    return result


def flat(values: dict[str, np.ndarray], fed: Federation) -> np.ndarray:
    """One array over all columns, in the order of the parties."""
    return np.concatenate([values[name] for name in fed.n_columns])
