"""The language of engineered features: small formulas over named columns, printed, parsed, saved, never run as code.

    formula  =  column | function "(" formula { "," formula | "," number } ")"
    column   =  name | name "." name            (the second form names the party that has the column)
    name     =  letters, digits and "_", not starting with a digit | a JSON text in double quotes

``parse(str(f)) == f`` for every formula. There is no eval: the reader is a recursive descent over a closed table of
functions (``FUNCTIONS``), with a bound on length and depth, so a formula from a stranger can only ever compute one
of these. Every function is total: finite numbers give finite numbers without a warning (results are held within
+-1e150), a missing value (NaN) gives a missing value. Equal features have one form: the arguments of a symmetric
function are ordered, and what is the same by rule (``mul(a, a)`` and ``square(a)``) is written one way.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError

Floats = NDArray[np.float64]

LIMIT = 1e150  # a product of two held values is still a float; anything larger is held here
CLIP = 5.0  # scale() holds its result within so many deviations, so that one outlier does not rule a feature
MAX_LENGTH = 20_000
MAX_DEPTH = 40

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<quoted>"(?:[^"\\\x00-\x1f]|\\.)*")|(?P<sign>[(),.]))"""
)


@dataclass(frozen=True)
class Column:
    """A column by name; ``party`` is empty where every party has the column (row-partitioned tables)."""

    name: str
    party: str = ""

    def __str__(self) -> str:
        return f"{_quoted(self.party)}.{_quoted(self.name)}" if self.party else _quoted(self.name)


@dataclass(frozen=True)
class Call:
    """A function of the table applied to formulas; ``numbers`` are its constants. Make one with :func:`call`."""

    function: str
    arguments: tuple[Expression, ...]
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        parts = [str(each) for each in self.arguments] + [repr(each) for each in self.numbers]
        return f"{self.function}({', '.join(parts)})"


Expression = Union[Column, Call]  # noqa: UP007  a recursive alias that Python 3.10 can evaluate


@dataclass(frozen=True)
class Function:
    compute: Callable[..., Floats]
    arguments: int
    numbers: int = 0
    symmetric: bool = False
    never_negative: bool = False
    even: bool = False  # f(-x) == f(x), so that f(abs(x)) is f(x)


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # no overflow at either end


FUNCTIONS: dict[str, Function] = {
    "add": Function(np.add, 2, symmetric=True),
    "sub": Function(np.subtract, 2),
    "mul": Function(np.multiply, 2, symmetric=True),
    "div1": Function(lambda a, b: a / (np.abs(b) + 1.0), 2),
    "min": Function(np.minimum, 2, symmetric=True),
    "max": Function(np.maximum, 2, symmetric=True),
    "square": Function(np.square, 1, never_negative=True, even=True),
    "cube": Function(lambda a: a * a * a, 1),
    "abs": Function(np.abs, 1, never_negative=True, even=True),
    "sqrtabs": Function(lambda a: np.sqrt(np.abs(a)), 1, never_negative=True, even=True),
    "logabs": Function(lambda a: np.log1p(10.0 * np.abs(a)), 1, never_negative=True, even=True),
    "inverse": Function(lambda a: 1.0 / (np.abs(a) + 0.1), 1, never_negative=True, even=True),
    "exp": Function(np.exp, 1, never_negative=True),
    "sigmoid": Function(_sigmoid, 1, never_negative=True),
    # scale(a, centre, deviation) = (a - centre) / deviation, held within CLIP deviations.
    "scale": Function(lambda a, centre, deviation: np.clip((a - centre) / deviation, -CLIP, CLIP), 1, numbers=2),
}


def call(function: str, *arguments: Expression, numbers: Sequence[float] = ()) -> Expression:
    """A formula in its one canonical form."""
    known = FUNCTIONS.get(function)
    if known is None:
        raise ParameterError(f"there is no function {function!r}; the functions are {', '.join(FUNCTIONS)}")
    constants = tuple(float(number) + 0.0 for number in numbers)  # + 0.0: one zero only
    if len(arguments) != known.arguments or len(constants) != known.numbers:
        raise ParameterError(
            f"{function} takes {known.arguments} formulas and {known.numbers} numbers, "
            f"got {len(arguments)} and {len(constants)}"
        )
    if not all(math.isfinite(number) for number in constants):
        raise ParameterError(f"the numbers of {function} must be finite, got {constants}")
    if function == "scale" and constants[1] <= 0:
        raise ParameterError(f"scale needs a deviation above 0, got {constants[1]!r}")
    return _canonical(function, known, arguments, constants)


def _canonical(
    function: str, known: Function, arguments: tuple[Expression, ...], constants: tuple[float, ...]
) -> Expression:
    first = arguments[0]
    if known.symmetric:
        arguments = tuple(sorted(arguments, key=str))
        if arguments[0] == arguments[1]:
            if function in ("min", "max"):
                return first
            if function == "mul":
                return call("square", first)
    if isinstance(first, Call):
        if function == "abs" and FUNCTIONS[first.function].never_negative:
            return first
        if known.even and first.function == "abs":
            return call(function, first.arguments[0], numbers=constants)
    return Call(function, arguments, constants)


# --- text ------------------------------------------------------------------------------------------------------------


def _quoted(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def parse(text: str) -> Expression:
    """The formula that ``text`` says; ``ParameterError`` tells where it goes wrong."""
    if not isinstance(text, str):
        raise ParameterError(f"a formula is text, got {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise ParameterError(f"a formula of {len(text)} characters is too long; the limit is {MAX_LENGTH}")
    return _parse(text)


@lru_cache(maxsize=1 << 15)  # formulas share parts and come back in every round; an expression never changes
def _parse(text: str) -> Expression:
    reader = _Reader(text)
    result = reader.formula(0)
    reader.end()
    return result


class _Reader:
    """Walks over the tokens of one formula."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, position
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.wrong(position, 'this is no name, number, bracket or comma (quote odd names: "a b")')
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self.next = 0

    def wrong(self, position: int, what: str) -> ParameterError:
        near = self.text[max(0, position - 20) : position + 20]
        return ParameterError(f"formula, character {position + 1} (near {near!r}): {what}")

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("end", "", len(self.text))

    def take(self, sign: str) -> None:
        kind, text, position = self.peek()
        if kind != "sign" or text != sign:
            raise self.wrong(position, f"expected {sign!r}")
        self.next += 1

    def at(self, sign: str) -> bool:
        return self.peek()[:2] == ("sign", sign)

    def end(self) -> None:
        kind, _, position = self.peek()
        if kind != "end":
            raise self.wrong(position, "the formula should end here")

    def name(self) -> str:
        kind, text, position = self.peek()
        if kind not in ("bare", "quoted"):
            raise self.wrong(position, "expected the name of a column or function")
        self.next += 1
        if kind == "bare":
            return text
        try:
            return str(json.loads(text))
        except json.JSONDecodeError:
            raise self.wrong(position, "a quoted name must be a JSON text") from None

    def formula(self, depth: int) -> Expression:
        kind, _, position = self.peek()
        if depth > MAX_DEPTH:
            raise self.wrong(position, f"nested deeper than {MAX_DEPTH} levels")
        name = self.name()
        if kind == "bare" and self.at("("):
            return self.function(name, position, depth)
        if self.at("."):
            self.next += 1
            return Column(self.name(), party=name)
        return Column(name)

    def function(self, name: str, position: int, depth: int) -> Expression:
        self.take("(")
        arguments: list[Expression] = []
        numbers: list[float] = []
        while True:
            kind, text, where = self.peek()
            if kind == "number":
                numbers.append(float(text))
                self.next += 1
            elif numbers:
                raise self.wrong(where, "numbers come after the formulas")
            else:
                arguments.append(self.formula(depth + 1))
            if not self.at(","):
                break
            self.next += 1
        self.take(")")
        try:
            return call(name, *arguments, numbers=numbers)
        except ParameterError as error:
            raise self.wrong(position, str(error)) from None


# --- use -------------------------------------------------------------------------------------------------------------


def columns_of(expression: Expression) -> list[Column]:
    """The columns that a formula needs, each once, in order of appearance."""
    if isinstance(expression, Column):
        return [expression]
    return list(dict.fromkeys(column for each in expression.arguments for column in columns_of(each)))


def parties_of(expression: Expression) -> list[str]:
    """The parties that a formula names; none if its columns are everybody's."""
    return list(dict.fromkeys(column.party for column in columns_of(expression) if column.party))


def compute(
    expression: Expression, values: Callable[[Column], Floats], memo: dict[Expression, Floats] | None = None
) -> Floats:
    """The feature, given the values of each column. ``memo`` keeps parts that several formulas share."""
    memo = {} if memo is None else memo
    known = memo.get(expression)
    if known is None:
        if isinstance(expression, Column):
            raw = np.asarray(values(expression), dtype=np.float64)
        else:
            parts = [compute(each, values, memo) for each in expression.arguments]
            # Overflow is no accident here: the next line holds the result. NaN only comes from NaN.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                raw = FUNCTIONS[expression.function].compute(*parts, *expression.numbers)
        known = memo[expression] = np.clip(raw, -LIMIT, LIMIT)
    return known


def evaluate(expressions: Iterable[Expression], table: Table, party: str = "") -> Floats:
    """The features of a table as rows x formulas. ``party`` is the name under which formulas may call its columns."""
    formulas = list(expressions)
    for formula in formulas:
        for column in columns_of(formula):
            if column.party not in ("", party):
                raise DataError(f"the feature {formula} needs a column of party {column.party!r}, not of {party!r}")
            if column.name not in table.columns:
                raise DataError(f"table {table.name!r} lacks the column {column.name!r} that {formula} needs")
    memo: dict[Any, Floats] = {}
    if not formulas:
        return np.empty((table.n_rows, 0))
    return np.column_stack([compute(each, lambda column: table.values(column.name), memo) for each in formulas])


def evaluate_columns(expressions: Iterable[Expression], columns: Mapping[str, object]) -> Floats:
    """The same for anything that gives a column by name (a DataFrame, a dictionary of arrays)."""
    memo: dict[Any, Floats] = {}

    def values(column: Column) -> Floats:
        if column.name not in columns:
            raise DataError(f"the data lack the column {column.name!r} that an engineered feature needs")
        return np.asarray(columns[column.name], dtype=np.float64)

    return np.column_stack([compute(each, values, memo) for each in expressions])


# --- new columns from one or two: what all engineers build with ---


def scaled(feature: Expression, centre: float, deviation: float) -> Call:
    """Standardised, with constants of 4 digits: they need not be exact, and a formula should be readable."""
    made = call("scale", feature, numbers=(float(f"{centre:.4g}"), max(float(f"{deviation:.4g}"), 1e-300)))
    assert isinstance(made, Call)  # only a column stands for itself
    return made


def bivariate(a: Expression, b: Expression) -> list[Expression]:
    """The paper's five."""
    return [call("mul", a, b), call("min", a, b), call("max", a, b), call("div1", a, b), call("div1", b, a)]


def unary_forms(column: Column, centre: float, deviation: float) -> list[Expression]:
    """The eight forms of a column; roots, logarithms and inverses keep the column's own zero."""
    z = scaled(column, centre, deviation)
    t = scaled(column, 0.0, float(np.hypot(centre, deviation)))
    return [
        z, call("square", z), call("cube", z), call("sqrtabs", t), call("logabs", t), call("inverse", t),
        call("exp", z), call("sigmoid", z),
    ]  # fmt: skip


def nesting(expression: Expression) -> int:
    return 1 + max(map(nesting, expression.arguments)) if isinstance(expression, Call) else 0
