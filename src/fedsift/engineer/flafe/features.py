"""FLAFE's features on paper: which columns are multiplied, how products are packed into ciphertexts, their formulas.

Pure functions and records; nothing is asked here. At the end: what steps check of the places that a request names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal, TypeVar

import numpy as np

from fedsift.core.arguments import AtMost, Between, wrong_record
from fedsift.core.expressions import Call, Column, Expression, call, parse
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError

BOUND = 5.0  # columns come within this
#: Powers of the first and of the second column.
FUNCTIONS: dict[str, tuple[int, int]] = {"ab": (1, 1), "a2b": (2, 1), "ab2": (1, 2), "a2b2": (2, 2)}
HIGHEST = max(power for powers in FUNCTIONS.values() for power in powers)


#: A party's candidates, or what it chooses from in the end.
What = Literal["local", "pool"]
Seed = Annotated[int, Between(0, 2**31)]
Position = Annotated[int, Between(0, 1_000_000)]

R = TypeVar("R")


def read_record(kind: type[R], told: Mapping[str, object], party: str) -> R:
    """A record as it came in a request."""
    wrong = wrong_record(kind, dict(told))
    if wrong:
        raise OperationRefused(party, kind.__name__, f"a record of the request {wrong}")
    return kind(**told)


@dataclass(frozen=True)
class Pair:
    """Column ``i`` of party ``first`` with column ``j`` of ``second``; ``holder`` is one of the two."""

    first: str
    i: int
    second: str
    j: int
    holder: str


@dataclass(frozen=True)
class Product:
    """One multiplication in a request: a block of the holder's columns, and which column of the receiver meets each
    slot that counts."""

    block: int
    slots: list[int]
    columns: list[int]


@dataclass(frozen=True)
class Step:
    """Which power of the holder's columns, and for one or two functions the power of the receiver's."""

    operand: int
    functions: list[str]
    powers: list[int]

    def check(self, party: Party, scales: Mapping[str, float] | None) -> None:
        """One or two known functions, each with a power that there is; ``scales``: of the noise, if there is any."""
        known = FUNCTIONS if scales is None else scales
        fits = 1 <= len(self.powers) == len(self.functions) <= 2 and all(1 <= power <= HIGHEST for power in self.powers)
        if not fits or not set(self.functions) <= set(known):
            raise OperationRefused(party.name, "multiply_columns", "a step is one or two functions, with powers")


def own_column(pair: Pair) -> int:
    """The holder's column."""
    return pair.i if pair.holder == pair.first else pair.j


def other_column(pair: Pair) -> int:
    return pair.j if pair.holder == pair.first else pair.i


def column_blocks(columns: list[int], together: int) -> list[list[int]]:
    """Columns that share a vector: round and round through all, so that no slot stays empty."""
    count = len(columns)
    return [
        [columns[(number * together + slot) % count] for slot in range(together)]
        for number in range(count // math.gcd(count, together))
    ]


def plan_products(members: Sequence[Pair], blocks: list[list[int]]) -> list[tuple[int, dict[int, Pair]]]:
    """Products that cover all pairs, by block: each uses one block and says what stands in its slots."""
    waiting: dict[int, list[Pair]] = {}
    for pair in reversed(members):
        waiting.setdefault(own_column(pair), []).append(pair)
    left = {column: len(pairs) for column, pairs in waiting.items()}
    uses = [Counter(block) for block in blocks]
    plan = []
    while any(left.values()):
        filling = [sum(min(n, left.get(column, 0)) for column, n in use.items()) for use in uses]
        best = int(np.argmax(filling))
        filled = {slot: waiting[c].pop() for slot, c in enumerate(blocks[best]) if waiting.get(c)}
        left = {column: len(pairs) for column, pairs in waiting.items()}
        plan.append((best, filled))
    return sorted(plan, key=lambda item: item[0])


def plan_steps(functions: Sequence[str], powers: list[int], holder_second: bool) -> list[Step]:
    """Two functions with the same power of the holder's column are one step: real part and imaginary part."""
    steps = []
    for number, power in enumerate(powers):
        alike = [name for name in functions if FUNCTIONS[name][holder_second] == power]
        for start in range(0, len(alike), 2):
            two = alike[start : start + 2]
            steps.append(Step(number, two, [FUNCTIONS[name][not holder_second] for name in two]))
    return steps


# --- features --------------------------------------------------------------------------------------------------------


def all_pairs(operands: Mapping[str, Sequence[str]], seed: int) -> list[Pair]:
    """Every two features of different groups, and who will hold what they make (drawn by lot, once)."""
    generator = np.random.default_rng(seed)
    return [
        Pair(a, i, b, j, (a, b)[int(generator.integers(2))])
        for a, b in combinations(operands, 2)
        for i in range(len(operands[a]))
        for j in range(len(operands[b]))
    ]


def column_unit(function: str) -> float:
    """A public size by which a combined column is divided before sums: its usual spread."""
    return float(BOUND ** (sum(FUNCTIONS[function]) / 2))


def is_column(text: str) -> bool:
    formula = parse(text)
    return isinstance(formula, Call) and isinstance(formula.arguments[0], Column)


def count_candidates(columns: int) -> int:
    """How many candidates ``columns`` columns make."""
    return 3 * columns + 4 * columns * (columns - 1)


def top(scores: np.ndarray, count: int) -> list[int]:
    """Positions of the highest ``count`` scores above 0, in the order of the positions."""
    order = np.argsort(-scores, kind="stable")[:count]
    return sorted(int(i) for i in order if scores[i] > 0)


def cross_formula(first: str, second: str, function: str) -> Expression:
    """The formula of a combined feature."""
    parts = [
        call("square", parse(text)) if power == 2 else parse(text)
        for text, power in zip((first, second), FUNCTIONS[function])
    ]
    return call("mul", *parts)


@dataclass(frozen=True)
class Feature:
    """A kept feature: where it stands in its group's pool, how important it is, whose it is."""

    position: int
    importance: float
    party: str
    formula: str


@dataclass(frozen=True)
class CrossFeature(Feature):
    """A kept combination: who holds it, which function of which two operands it is."""

    holder: str
    function: str
    first: str
    second: str
    left: str
    right: str


def feature_at(
    group: str, position: int, operands: dict[str, list[str]], held: list[tuple[Pair, str]], scores: np.ndarray
) -> Feature:
    """The feature at a position of a group's pool: its operands, then the combinations that it holds."""
    own, importance = operands[group], float(scores[position])
    if position < len(own):
        return Feature(int(position), importance, group, own[position])
    pair, function = held[position - len(own)]
    left, right = operands[pair.first][pair.i], operands[pair.second][pair.j]
    formula = str(cross_formula(left, right, function))
    return CrossFeature(
        int(position), importance, group, formula, group, function, pair.first, pair.second, left, right
    )  # fmt: skip


def combined_features(group: str, operands: dict[str, list[str]], held: list[tuple[Pair, str]]) -> list[Feature]:
    """All combinations that a group holds, none more important than another."""
    first = len(operands[group])
    unknown = np.zeros(first + len(held))
    return [feature_at(group, first + number, operands, held, unknown) for number in range(len(held))]


# --- what the steps on ciphertexts check of the places that a request names, before anything is computed ---

Powers = Annotated[list[Annotated[int, Between(1, HIGHEST)]], AtMost(HIGHEST)]  # of a column, in combinations
Count = Annotated[int, Between(0, 100_000)]  # of combined columns that one party holds


def check_places(party: Party, step: str, places: Iterable[int], count: int) -> None:
    """Places among so many."""
    if not all(0 <= place < count for place in places):
        raise OperationRefused(party.name, step, "it names places that are not there")


def shown_of(name: str, columns: np.ndarray, rows: int, places: Sequence[int]) -> np.ndarray:
    """Of the columns that a party has shown in the clear, those that are combined."""
    if len(columns) != rows or max(places, default=-1) >= columns.shape[1]:
        raise ReplyError(name, "show_columns", f"it should show {rows} rows of all its operands")
    return columns[:, places]


def check_combined(
    party: Party, slots: Sequence[Sequence[int]], each: Sequence[int], functions: Sequence[Sequence[int]], held: int
) -> None:  # fmt: skip
    """``each``: how many columns each vector has; ``held``: how many columns this party will hold."""
    for used, count in zip(slots, each):
        check_places(party, "open_combinations", used, count)
    check_places(party, "open_combinations", (place for wanted in functions for place in wanted), held)
