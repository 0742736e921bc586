"""Which features a party brings in and which it keeps: the coordinator chooses, the party hears its choices.

Importances stay with the coordinator, which holds no rows. A party that was told one for each of its candidates could
work out every label (`audit/attacks/operand_scores.py`: hundreds of exact scores of columns that it knows), and from
the order of the chosen ones some more than from which they are: it hears them in the order of its own. What the
coordinator lacks is whether a candidate only repeats a better one: each party says which of its features are alike.
That tells about its own columns, never about labels, and it is sent whole before anything is chosen, so that what is
asked does not tell the party more than the choice does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.candidates import Pool, formed
from fedsift.engineer.flafe.features import Position, What
from fedsift.engineer.flafe.products import Combined, Operands
from fedsift.errors import OperationRefused, ReplyError

_ALIKE = 0.98  # a feature that follows a chosen one so closely adds nothing
_BLOCK = 1024  # features that are compared with all others at once

Flags = NDArray[np.bool_]


class AlikeTold(TypedDict):
    """`Alike` as it travels: eight pairs in a byte."""

    pairs: NDArray[np.uint8]
    column: Flags
    flat: Flags


@dataclass(frozen=True)
class Alike:
    """Which features of a party follow each other, which follow one of its columns, and which never vary."""

    pairs: Flags  # features x features
    column: Flags
    flat: Flags

    @classmethod
    def among(cls, values: np.ndarray, columns: np.ndarray) -> Alike:
        """Of the features ``values`` beside the ``columns`` themselves (rows x features, rows x columns)."""
        unit, size = _unit(values)
        column = np.asarray(_follow(unit, _unit(columns)[0]).any(axis=1))
        return cls(_follow(unit, unit), column, _is_flat(size, len(values)))

    @classmethod
    def none(cls, values: np.ndarray) -> Alike:
        """Where features may repeat each other: only what never varies is out."""
        none, size = np.zeros(values.shape[1], dtype=bool), _unit(values)[1]
        return cls(np.zeros((len(none), len(none)), dtype=bool), none, _is_flat(size, len(values)))

    @classmethod
    def read(cls, told: AlikeTold, party: str, count: int) -> Alike:
        """From a reply about ``count`` features."""
        shapes = [told["pairs"].shape, told["column"].shape, told["flat"].shape]
        if shapes != [(count, -(-count // 8)), (count,), (count,)]:
            raise ReplyError(party, "alike_features", f"expected {count} features")
        return cls(np.unpackbits(told["pairs"], axis=1, count=count).astype(bool), told["column"], told["flat"])

    def told(self) -> AlikeTold:
        return {"pairs": np.packbits(self.pairs, axis=1), "column": self.column, "flat": self.flat}


def _unit(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred columns of length 1, and the lengths that they had."""
    centred = values - values.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    return centred / np.where(size > 0, size, 1.0), size


def _is_flat(size: np.ndarray, rows: int) -> Flags:
    return np.asarray(size <= 1e-9 * rows**0.5)


def _follow(first: np.ndarray, second: np.ndarray) -> Flags:
    blocks = range(0, max(1, first.shape[1]), _BLOCK)
    return np.vstack([np.abs(first[:, at : at + _BLOCK].T @ second) > _ALIKE for at in blocks])


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(
    "flafe.alike_features",
    when="epsilon=none",
    times=2,
    discloses="aggregate",
    about="which of its unnamed features follow each other or one of its columns closely, or never vary: bits",
    reply={"pairs": Array("u", 2), "column": Array("b"), "flat": Array("b")},
)
def alike_features(party: Party, *, what: What) -> AlikeTold:
    """About the training rows. Forests take features that follow each other (the paper): then nothing is said."""
    own = formed(party)
    values = (own.values if what == "local" else party.held(Pool).values)[own.train]
    if party.job.parameters["importance"] != "bins":
        return Alike.none(values).told()
    return Alike.among(values, own.base[own.train]).told()


@operation(
    "flafe.take_operands",
    when="epsilon=none",
    times=1,
    discloses="plain",
    receives="aggregate",
    about="formulas of its chosen features, with the means and deviations of the columns in them",
    learns="which of its candidates were chosen, in no order",
    reply=[str],
)
def take_operands(party: Party, *, chosen: list[Position]) -> list[str]:
    """The features that will be combined with other parties' columns; in a grid the same for a whole column group."""
    own = formed(party)
    most = party.job.parameters["n_operands"]
    if sorted(set(chosen)) != chosen or len(chosen) > most or max(chosen, default=-1) >= len(own.formulas):
        raise OperationRefused(party.name, "take_operands", "these are not so many of its candidates as the job says")
    own.chosen = [own.formulas[i] for i in chosen]
    party.keep(Operands(own.values[:, chosen]))
    party.keep(Combined([]))
    return own.chosen


# --- the coordinator's side ------------------------------------------------------------------------------------------


def choose(scores: np.ndarray, alike: Alike, count: int, known: Sequence[int] = ()) -> list[int]:
    """Positions of the best ``count`` features, none that only follows a better one or one of ``known``."""
    out = alike.flat | alike.pairs[:, list(known)].any(axis=1)
    chosen: list[int] = []
    for position in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == count or scores[position] <= 0:
            break
        if not out[position]:
            chosen.append(position)
            out |= alike.pairs[position]
    return chosen


def choose_operands(fed: Federation, scores: dict[str, np.ndarray], count: int) -> dict[str, list[int]]:
    """The best candidates of each party."""
    alike = _ask_alike(fed, "local", scores)
    return {name: sorted(choose(values, alike[name], count)) for name, values in scores.items()}


def told_formulas(told: Mapping[str, list[str]], name: str, count: int) -> list[str]:
    """What a party told of its features that were chosen."""
    if len(told[name]) != count:
        raise ReplyError(name, "take_operands", "another number of formulas than were chosen")
    return list(told[name])


def choose_final(
    fed: Federation, scores: dict[str, np.ndarray], operands: dict[str, int], count: int
) -> dict[str, list[int]]:
    """The best of what each party may keep: nothing that follows a column, nor an operand where those are given."""
    found = {}
    for name, alike in _ask_alike(fed, "pool", scores).items():
        values = np.where(alike.column, 0.0, scores[name])
        given = [] if scores[name][: operands[name]].any() else range(operands[name])
        found[name] = sorted(choose(values, alike, count, known=given))
    return found


def _ask_alike(fed: Federation, what: What, scores: dict[str, np.ndarray]) -> dict[str, Alike]:
    told: dict[str, AlikeTold] = fed.ask(alike_features, to=list(scores), what=what)
    return {name: Alike.read(told[name], name, len(values)) for name, values in scores.items()}


VERTICAL = (alike_features,)
OPERATIONS = (take_operands,)
