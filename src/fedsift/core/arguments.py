"""What a request may carry: the annotations of an operation are its schema, checked before the function runs.

A site runs nothing with an argument of another kind, with one that is missing or unknown, or with a number, text or
array beyond its bounds: small requests with huge numbers are how a coordinator that deviates makes a site work for
hours or fill its memory. What is not annotated otherwise has the default bounds below; ``Between(1, 64)`` in an
``Annotated[int, ...]`` narrows them, ``AtMost(...)`` sets a size, ``MayMiss()`` lets values that are not finite pass,
``PartyName`` is a party of the accepted job.
A ``TypedDict`` is a dictionary of exactly its fields; so is a ``@message``, which the function then gets as the object
(``built``), and replies are read the same way. ``Any`` is not looked into (``unchecked`` lists where; a test lets the
list only shrink).
"""

from __future__ import annotations

import copy
import inspect
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from fedsift.core.message import is_message
from fedsift.errors import OperationRefused

MAX_INT = 2**53
MAX_TEXT = 10_000
MAX_BYTES = 1 << 30
MAX_ITEMS = 1_000_000
MAX_CELLS = 1 << 28


@dataclass(frozen=True)
class Between:
    """A number from ``low`` to ``high``, both included."""

    low: float
    high: float


@dataclass(frozen=True)
class AtMost:
    """At most so many characters, bytes, items or cells."""

    size: int


@dataclass(frozen=True)
class MayMiss:
    """Floats that may be NaN or infinite."""


@dataclass(frozen=True)
class OfJob:
    """The name of a party of the accepted job; with ``labels``, of one that holds labels."""

    labels: bool = False


#: Columns of scores that a model gives.
Outputs = Annotated[int, Between(1, 1000)]
#: Whom a request speaks of. Keys of peers are pinned (``mpc/pairs.py``); nobody else can be meant in the first place.
PartyName = Annotated[str, AtMost(200), OfJob()]
LabelHolder = Annotated[str, AtMost(200), OfJob(labels=True)]


@dataclass(frozen=True)
class _Limits:
    between: Between | None = None
    size: int | None = None
    finite: bool = True

    @classmethod
    def of(cls, marks: Sequence[object]) -> _Limits:
        between = next((mark for mark in marks if isinstance(mark, Between)), None)
        size = next((mark.size for mark in marks if isinstance(mark, AtMost)), None)
        return cls(between, size, not any(isinstance(mark, MayMiss) for mark in marks))


Items = TypeVar("Items", bound="dict[str, object] | list[object]")


class _Wrong(Exception):
    """What is wrong with an argument, without its value."""


@dataclass(frozen=True)
class Schema:
    """The arguments of one operation."""

    hints: Mapping[str, object]
    required: frozenset[str]
    open: bool  # takes any further arguments (**arguments)
    speaking: Mapping[str, object]  # those of the hints that speak of parties

    def check(self, arguments: Mapping[str, object], party: str, operation: str) -> None:
        """Raise ``OperationRefused`` unless the function may run with these arguments."""
        if self.required - set(arguments) or (not self.open and set(arguments) - set(self.hints)):
            raise OperationRefused(party, operation, "unknown or missing arguments")
        for name, value in arguments.items():
            try:
                _check(self.hints.get(name, object), value, _Limits())
            except _Wrong as wrong:
                raise OperationRefused(party, operation, f"its argument {name!r} {wrong}") from None

    def named(self, arguments: Mapping[str, object]) -> list[tuple[str, OfJob]]:
        """The parties that checked arguments speak of, each with what it must be."""
        told = [(hint, arguments[name]) for name, hint in self.speaking.items() if name in arguments]
        return [found for hint, value in told for found in _named(hint, value)]

    def built(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Checked arguments as the function takes them: messages where its annotations say so."""
        return {name: built(self.hints.get(name, object), value) for name, value in arguments.items()}


def built(hint: object, value: object) -> Any:
    """Checked plain data as what ``hint`` says: a message from its fields, also inside lists, dictionaries, unions."""
    hint = _plain(hint)
    if not _has_message(hint) or value is None:
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_message(hint):
        fields = _fields(hint)
        return hint(**{name: built(fields[name], item) for name, item in _items(value)})
    if origin is Annotated:
        return built(inner[0], value)
    if origin in (Union, types.UnionType):
        return built(next(choice for choice in inner if _has_message(choice)), value)
    if isinstance(value, dict):
        found = copy.copy(value)  # a dictionary of the same kind
        found.update((name, built(inner[1], item)) for name, item in value.items())
        return found
    return [built(inner[0], item) for item in value] if isinstance(value, list) else value


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def wrong_fields(kind: type, value: object) -> str:
    """What keeps ``value`` from being read as the message ``kind``; empty where nothing does."""
    try:
        _check(kind, value, _Limits())
    except _Wrong as wrong:
        return str(wrong)
    return ""


def wrong_record(kind: type, value: Mapping[str, object]) -> str:
    """The same for a plain dataclass: what keeps ``value`` from being its fields."""
    try:
        _check_fields(kind, value)
    except _Wrong as wrong:
        return str(wrong)
    return ""


@cache
def _has_message(hint: object) -> bool:
    return is_message(_plain(hint)) or any(map(_has_message, _inner(hint)))


@cache
def schema_of(function: Callable[..., object]) -> Schema:
    """Read from the signature; a function that stands for another (``functools.wraps``) has that one's."""
    function = inspect.unwrap(function)
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]  # the party comes first
    named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    typed = {p.name: hints.get(p.name, object) for p in named}
    return Schema(
        typed,
        frozenset(p.name for p in named if p.default is inspect.Parameter.empty),
        open=len(named) < len(parameters),
        speaking={name: hint for name, hint in typed.items() if _speaks(hint)},
    )


def unchecked(function: Callable[..., object]) -> list[str]:
    """The arguments that the schema says nothing about, or not down to the last item."""
    schema = schema_of(function)
    return [name for name, hint in schema.hints.items() if _has_any(hint)] + ["**"] * schema.open


def _speaks(hint: object) -> bool:
    return any(isinstance(mark, OfJob) for mark in getattr(hint, "__metadata__", ())) or any(map(_speaks, _inner(hint)))


def _named(hint: object, value: object) -> Iterator[tuple[str, OfJob]]:
    hint = _plain(hint)
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, OfJob) and isinstance(value, str):
            yield value, mark
    parts = _inner(hint)
    if isinstance(value, dict) and (is_typeddict(hint) or is_message(hint)):
        for name, item in value.items():
            yield from _named(_fields(hint)[name], item)
    elif isinstance(value, dict) and len(parts) == 2:
        for name, item in value.items():
            yield from (*_named(parts[0], name), *_named(parts[1], item))
    else:
        for part in parts:
            for item in value if isinstance(value, list) and get_origin(part) is not list else [value]:
                yield from _named(part, item)


def _has_any(hint: object) -> bool:
    return hint is Any or hint is object or hint in (dict, list) or any(map(_has_any, _inner(hint)))


def _plain(hint: object) -> object:
    """What a ``type`` alias stands for: newer versions of NumPy write ``NDArray`` as one."""
    alias = getattr(get_origin(hint), "__value__", None)
    return getattr(hint, "__value__", hint) if alias is None else alias[get_args(hint)]


def _inner(hint: object) -> tuple[object, ...]:
    hint = _plain(hint)
    origin = get_origin(hint)
    if is_typeddict(hint) or is_message(hint):
        return tuple(_fields(hint).values())
    if origin in (Literal, np.ndarray) or (isinstance(origin, type) and issubclass(origin, np.ndarray)):
        return ()
    return get_args(hint)[:1] if origin is Annotated else get_args(hint)


def _check(hint: object, value: object, limits: _Limits) -> None:
    hint = _plain(hint)
    if hint is Any or hint is object:
        return
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin is Annotated:
        _check(inner[0], value, _Limits.of(inner[1:]))
    elif origin in (Union, types.UnionType):
        _check_union(inner, value, limits)
    elif origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in inner):
            raise _Wrong(f"must be one of {', '.join(map(repr, inner))}")
    elif is_typeddict(hint) or is_message(hint):
        _check_fields(hint, value)
    elif kind is np.ndarray:
        _check_array(hint, value, limits)
    elif isinstance(kind, type) and issubclass(kind, (dict, Mapping)):
        items = _checked_items(value, dict, limits)
        for item in items.values() if origin else ():
            _check(inner[1], item, _Limits())
    elif hint not in (str, bytes) and isinstance(kind, type) and issubclass(kind, Sequence):
        listed = _checked_items(value, list, limits)
        for item in listed if origin else ():
            _check(inner[0], item, _Limits())
    else:
        _check_scalar(hint, value, limits)


def _check_union(choices: tuple[object, ...], value: object, limits: _Limits) -> None:
    wrong = _Wrong("has the wrong type")
    for choice in choices:
        try:
            _check(choice, value, limits)
        except _Wrong as found:
            wrong = wrong if choice is type(None) else found
        else:
            return
    raise wrong


@cache
def _fields(hint: Any) -> Mapping[str, object]:
    return get_type_hints(hint, include_extras=True)


def _check_fields(hint: object, value: object) -> None:
    given, fields = _checked_items(value, dict, _Limits()), _fields(hint)
    required = getattr(hint, "__required_keys__", set(fields))  # of a TypedDict some may be left out
    if not required <= set(given) <= set(fields):
        raise _Wrong(f"must have the fields {', '.join(sorted(fields))}")
    for name, item in given.items():
        _check(fields[name], item, _Limits())


def _checked_items(value: object, kind: type[Items], limits: _Limits) -> Items:
    if not isinstance(value, kind):
        raise _Wrong(f"must be a {kind.__name__}, got {type(value).__name__}")
    if len(value) > (limits.size or MAX_ITEMS):
        raise _Wrong(f"has more than {limits.size or MAX_ITEMS:,} items")
    return value


def _check_array(hint: object, value: object, limits: _Limits) -> None:
    if not isinstance(value, np.ndarray):
        raise _Wrong(f"must be an array, got {type(value).__name__}")
    if value.ndim == 0:
        raise _Wrong("must be an array of one dimension or more")
    if value.size > (limits.size or MAX_CELLS):
        raise _Wrong(f"has more than {limits.size or MAX_CELLS:,} cells")
    wanted = next((get_args(part)[0] for part in get_args(hint) if get_origin(part) is np.dtype), None)
    wanted = get_origin(wanted) or wanted  # np.integer[Any]
    if isinstance(wanted, type) and not issubclass(value.dtype.type, wanted):
        raise _Wrong(f"must be an array of {wanted.__name__}, got {value.dtype}")
    if value.dtype.kind == "f" and limits.finite and not np.isfinite(value).all():
        raise _Wrong("holds values that are not finite")
    if limits.between and value.size and not (limits.between.low <= value.min() <= value.max() <= limits.between.high):
        raise _Wrong(f"must lie between {limits.between.low:g} and {limits.between.high:g}")


def _check_scalar(hint: object, value: object, limits: _Limits) -> None:
    if hint is None or hint is type(None):
        if value is not None:
            raise _Wrong("must be empty")
        return
    number = hint in (int, float)
    kinds = (int, float) if hint is float else hint if isinstance(hint, type) else ()
    if not isinstance(value, kinds) or (isinstance(value, bool) and number):
        raise _Wrong(f"must be of type {getattr(hint, '__name__', hint)}, got {type(value).__name__}")
    if number and isinstance(value, (int, float)):
        _check_number(value, limits)
    elif isinstance(value, (str, bytes)) and len(value) > (limits.size or (MAX_TEXT if hint is str else MAX_BYTES)):
        raise _Wrong("is too long")


def _check_number(value: float, limits: _Limits) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        if limits.finite:
            raise _Wrong("is not finite")
        return
    bounds = limits.between or Between(-MAX_INT, MAX_INT)
    if (limits.between or isinstance(value, int)) and not bounds.low <= value <= bounds.high:
        raise _Wrong(f"must lie between {bounds.low:g} and {bounds.high:g}")
