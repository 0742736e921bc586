"""Operations: the only functions that a party runs when asked, and what each one gives away.

``@operation("gini.masked_sums", discloses=..., about=..., reply=...)`` marks a function of a party. It declares a
stable id (what travels, and what a site's rules name: no module path), the form of its reply (for the ledger and for a
site's policy), what the reply is about in words, and the shape of a valid reply, which the coordinator checks before
the value is used. An id that comes over the wire is only ever looked up in the table of marked functions; nothing is
imported because a message says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.ledger import check_form
from fedsift.errors import OperationRefused, ParameterError, ReplyError


@dataclass(frozen=True)
class Operation:
    """A marked function with its declarations. Calling it calls the function (tests do)."""

    id: str
    function: Callable[..., Any]
    discloses: str
    about: str
    reply: Any
    receives: str
    learns: str
    needs: tuple[str, ...]

    @property
    def short_name(self) -> str:
        """Without its family, for people."""
        return self.id.split(".")[1]

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    @property
    def module(self) -> str:
        return self.function.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


_registry: dict[str, Operation] = {}
_plugins: set[str] = set()


def operation(
    id: str,
    *,
    discloses: str,
    about: str,
    reply: Any = None,
    receives: str = "control",
    learns: str = "",
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Operation]:
    """Mark a function ``f(party, **arguments)`` as something that a party does when asked.

    Parameters
    ----------
    id : ``"family.name"``, the same in every version: requests, rules and ledgers use it.
    discloses : the form of the reply, one of ``fedsift.core.ledger.FORMS``.
    about : what the reply tells, in words a privacy officer understands.
    reply : the shape of a valid reply (see ``check_reply``); ``None`` means that nothing comes back.
    receives : the form of what the request carries from other parties.
    learns : what the party itself gets to know by running it (by decrypting, say), in words.
    needs : which of a site's exceptions (``site/policy.py``) let it pass although its form is not accepted.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", id):
        raise ParameterError(f'the id of an operation is "family.name" in small letters, got {id!r}')
    check_form(discloses)
    check_form(receives)

    def mark(function: Callable[..., Any]) -> Operation:
        marked = Operation(id, function, discloses, about, reply, receives, learns, needs)
        known = _registry.get(id)
        if known is not None and (known.module, known.function.__qualname__) != (marked.module, function.__qualname__):
            raise ParameterError(f"the operation {id!r} is marked twice, in {known.module} and in {marked.module}")
        _registry[id] = marked
        return marked

    return mark


def register_plugin(module: str) -> None:
    """Allow the operations of a module outside fedsift (``register_plugin("my_methods")``) at this party."""
    _plugins.add(module)


def operations() -> list[Operation]:
    """All operations that this process has loaded."""
    return list(_registry.values())


def is_own(module: str) -> bool:
    """Whether a module is part of fedsift."""
    return module.partition(".")[0] == "fedsift"


def find_operation(id: str, party: str) -> Operation:
    """The marked function of that id; refused if there is none, or if its module is no registered plug-in."""
    if id not in _registry:
        raise OperationRefused(party, id[:60], "no operation of that name is registered at this party")
    marked = _registry[id]
    if not is_own(marked.module) and marked.module not in _plugins:
        raise OperationRefused(
            party, id, "its module is not part of fedsift; register_plugin(...) at this party allows it"
        )
    return marked


@dataclass(frozen=True)
class Array:
    """A NumPy array of the given kind (``f`` float, ``i`` integer, ``b`` boolean) and number of dimensions."""

    kind: str = "f"
    ndim: int = 1
    finite: bool = True


ANY = object()


def check_reply(spec: Any, value: Any, party: str, operation: str) -> None:
    """Raise ``ReplyError`` unless ``value`` has the declared shape.

    A spec is ``None``, a type, ``Array(...)``, a dictionary of specs (exactly these keys), a list with one spec
    (any number of such items), a tuple of types (one of them) or ``ANY``.
    """

    def wrong(what: str) -> ReplyError:
        return ReplyError(party, operation, f"its reply is not valid: {what}")

    def walk(spec: Any, value: Any, where: str) -> None:
        if spec is ANY:
            return
        if spec is None:
            if value is not None:
                raise wrong(f"{where} should be empty")
        elif isinstance(spec, Array):
            _check_array(spec, value, where, wrong)
        elif isinstance(spec, dict):
            if not isinstance(value, dict) or set(value) != set(spec):
                raise wrong(f"{where} should have exactly the entries {sorted(spec)}")
            for key in spec:
                walk(spec[key], value[key], f"{where}.{key}")
        elif isinstance(spec, list):
            if not isinstance(value, list):
                raise wrong(f"{where} should be a list, got {type(value).__name__}")
            for number, item in enumerate(value):
                walk(spec[0], item, f"{where}[{number}]")
        elif not isinstance(value, spec) or (isinstance(value, bool) and spec is int):
            raise wrong(f"{where} has the wrong type {type(value).__name__}")

    walk(spec, value, "reply")


def _check_array(spec: Array, value: Any, where: str, wrong: Callable[[str], ReplyError]) -> None:
    kinds = {"f": "f", "i": "iu", "b": "b"}.get(spec.kind)
    if kinds is None:
        raise ParameterError(f"an Array spec has kind 'f', 'i' or 'b', got {spec.kind!r}")
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.ndim != spec.ndim:
        got = (
            f"{value.dtype} array with {value.ndim} dimensions"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise wrong(f"{where} should be a {spec.kind!r} array with {spec.ndim} dimensions, got {got}")
    if spec.kind == "f" and spec.finite and not np.isfinite(value).all():
        raise wrong(f"{where} holds values that are not finite")
