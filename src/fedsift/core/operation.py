"""Operations: the only functions that a party runs when asked, and what each one gives away.

``@operation("gini.masked_sums", discloses=..., about=..., reply=...)`` marks a function of a party. It is a contract:
a stable id (what travels, and what a site's rules name: no module path), the form of its reply and what its receiver
can open of it (for the ledger and for a site's policy), whose data it is about, which role runs it, after which step
and how often, which arguments carry settings of the job, and the shape of a valid reply, which the coordinator checks
before the value is used. The arguments' schema is the function's annotations (``arguments.py``). An id that comes over
the wire is only ever looked up in the table of marked functions; nothing is imported because a message says so.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fedsift.core.arguments import MAX_CELLS, OfJob, built, schema_of, wrong_fields
from fedsift.core.ledger import HIDDEN, NOBODY, READERS, Release, check_form, numbers_in
from fedsift.core.message import is_message
from fedsift.errors import OperationRefused, ParameterError, ReplyError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

ROLES = ("any", "passive", "active")
CONCERNS = ("nothing", "own columns", "labels", "own columns and labels")


@dataclass(frozen=True, eq=False)
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
    role: str = "any"
    opened: str = ""
    concerns: str = ""
    min_cell: str = ""
    epsilon: str = ""
    settings: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    times: int | str | None = None
    opened_by: str = "coordinator"
    releases: Callable[[Any], Release] | None = None
    sums: bool = False
    when: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A declaration that says nothing that is known is a mistake of its author."""
        if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", self.id):
            raise ParameterError(f'the id of an operation is "family.name" in small letters, got {self.id!r}')
        for form in (self.discloses, self.receives, self.opened_form):
            check_form(form)
        for name, known in (("role", ROLES), ("concerns", CONCERNS), ("opened_by", READERS)):
            if getattr(self, name) not in known:
                raise ParameterError(f"{self.id}: {name} is one of {known}; got {getattr(self, name)!r}")
        if not all(re.fullmatch(r"[a-z_]+=[a-z_]+(\|[a-z_]+)*", form) for form in self.when):
            raise ParameterError(f'{self.id}: when is "parameter=value|value"; got {self.when!r}')

    def released(self, value: object) -> Release:
        """How many numbers somebody reads of this reply (as it travels), and how exact they are."""
        if self.releases is not None:
            return self.releases(built(self.reply, value) if is_message(self.reply) else value)
        return numbers_in(value) if self.opened_form in ("aggregate", "plain") else Release(0, 0.0)

    @property
    def opened_form(self) -> str:
        """The form of what the receiver can open or compute of the reply."""
        return self.opened.partition(":")[0]

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

    def check_arguments(self, arguments: Mapping[str, object], party: str) -> None:
        """Raise ``OperationRefused`` for arguments that the function's annotations do not let in."""
        schema_of(self.function).check(arguments, party, self.short_name)

    def named(self, arguments: Mapping[str, object]) -> list[tuple[str, OfJob]]:
        """The parties that checked arguments speak of."""
        return schema_of(self.function).named(arguments)

    def built(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Checked arguments as the function takes them."""
        return schema_of(self.function).built(arguments)


class Answering(Operation, Generic[R_co]):
    """The same, and what kind of thing comes back: who asks for it (``Federation.ask``) gets that kind."""

    def __call__(self, *args: Any, **kwargs: Any) -> R_co:
        value: R_co = self.function(*args, **kwargs)
        return value


_registry: dict[str, Operation] = {}
_plugins: set[str] = set()


def operation(
    id: str,
    *,
    discloses: str,
    about: str,
    reply: object = None,
    receives: str = "control",
    learns: str = "",
    needs: tuple[str, ...] = (),
    role: str = "any",
    opened: str = "",
    concerns: str = "",
    min_cell: str = "",
    epsilon: str = "",
    settings: tuple[str, ...] = (),
    after: str | tuple[str, ...] = (),
    times: int | str | None = None,
    opened_by: str = "coordinator",
    releases: Callable[[Any], Release] | None = None,
    sums: bool = False,
    when: str | tuple[str, ...] = (),
) -> Callable[[Callable[..., R]], Answering[R]]:
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
    role : who runs it: ``"active"`` (a label holder), ``"passive"`` (a party without the label) or ``"any"``.
    opened : what is opened of it in the end, form first (``"aggregate: label sums of unnamed bins"``), or ``"nobody"``;
        left out, what travels, but what travels hidden must say it.
    concerns : whose data the reply is about: ``"own columns"``, ``"labels"``, both, or ``"nothing"``.
    min_cell, epsilon : the argument with the smallest cell, or with the privacy loss, for a site's policy to judge.
    settings : arguments that a parameter of the job carries, under the same name or as ``"argument=parameter"``: a
        site refuses another value.
    after : ids of steps of which at least one must have been run in this job before.
    times : how often it may be run in one job: a number, or a product such as ``"2 x parties x n_estimators"`` of
        numbers, ``parties`` and parameters of the job; with `` a session`` at its end it is counted in each session
        of the job apart. ``None``: not declared yet.
    opened_by : who opens it: ``"coordinator"``, ``"active"`` (the label holders), ``"passive"``, ``"parties"``, or
        ``"result"``: whoever gets the job's results.
    releases : of a reply, how many numbers that is and how exact; left out, those in it, where they are readable.
    sums : whether values of its own columns are summed: a site then looks whether few rows make up a whole sum.
    when : of which form of a method it is a step, by the accepted job's parameters: ``"protection=open|unsaid"``,
        ``"epsilon=none"`` (``Job.says``). In a job of another form it is refused: what a job promises is what is run.

    Examples
    --------
    >>> import fedsift as fs
    >>> @fs.operation("example.largest", discloses="aggregate", about="the largest value of a column", reply=float)
    ... def largest(party: fs.Party, *, column: int) -> float:
    ...     return float(party.table.matrix()[:, column].max())
    >>> fed = fs.Federation.split([[1.0, 8.0], [2.0, 7.0], [4.0, 6.0]], [0, 1, 0], parties=["bank", "shop"])
    >>> fs.register_plugin(largest.module)
    >>> fed.ask(largest, to="shop", column=0)
    8.0
    """
    if discloses in HIDDEN and not opened:
        raise ParameterError(f"{id} travels as {discloses!r}: say what is opened of it in the end, or opened='nobody'")
    opened = f"{discloses}: {about}" if opened in ("", NOBODY) else opened
    concerns = concerns or ("nothing" if discloses == "control" else "own columns")
    before, forms = ((each,) if isinstance(each, str) else each for each in (after, when))

    def mark(function: Callable[..., R]) -> Answering[R]:
        marked: Answering[R] = Answering(
            id, function, discloses, about, reply, receives, learns, needs, role, opened, concerns, min_cell, epsilon,
            settings, before, times, opened_by, releases, sums, forms,
        )  # fmt: skip
        known = _registry.get(id)
        if known is not None and (known.module, known.function.__qualname__) != (marked.module, function.__qualname__):
            raise ParameterError(f"the operation {id!r} is marked twice, in {known.module} and in {marked.module}")
        _registry[id] = marked
        return marked

    return mark


def together(*lists: Iterable[Operation]) -> tuple[Operation, ...]:
    """The operations of several conversations, each once."""
    return tuple(dict.fromkeys(marked for each in lists for marked in each))


def register_plugin(module: str) -> None:
    """Allow the operations of a module outside fedsift (``register_plugin("my_methods")``) at this party.

    Examples
    --------
    >>> import fedsift as fs
    >>> fs.register_plugin("my_methods")
    """
    _plugins.add(module)


def load_whole() -> None:
    """Import every method, model and operation of fedsift; quick the second time.

    ``import fedsift`` loads nothing by itself. Whoever looks an operation up, or asks for what a part to the right
    hands to one to the left (alignment to federations, reports to selectors), has all of it loaded first.
    """
    importlib.import_module("fedsift._public")


def operations() -> list[Operation]:
    """All operations of fedsift and of the plug-ins that this process has loaded."""
    load_whole()
    return list(_registry.values())


def is_own(module: str) -> bool:
    """Whether a module is part of fedsift."""
    return module.partition(".")[0] == "fedsift"


def find_operation(id: str, party: str) -> Operation:
    """The marked function of that id; refused if there is none, or if its module is no registered plug-in."""
    if id not in _registry:
        load_whole()
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
    """A NumPy array of a kind (``f`` float, ``i`` integer, ``b`` boolean, ``u`` bytes) and number (or numbers) of axes.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsift as fs
    >>> @fs.operation("example.sums", discloses="aggregate", about="sums of its columns", reply=fs.Array("f", 1))
    ... def sums(party: fs.Party) -> np.ndarray:
    ...     return np.nansum(party.table.matrix(), axis=0)
    >>> fed = fs.Federation.split([[1.0, 8.0], [2.0, 7.0], [4.0, 6.0]], [0, 1, 0], parties=["bank", "shop"])
    >>> fs.register_plugin(sums.module)
    >>> fed.ask(sums, to="bank")
    array([7.])
    """

    kind: str = "f"
    ndim: int | tuple[int, ...] = 1
    finite: bool = True


#: A whole number in a reply, where nothing else is declared: how many of something there are.
MOST = 1_000_000


@dataclass(frozen=True)
class Whole:
    """A whole number of things: what something is made or repeated by."""

    most: int
    least: int = 0


#: Rows of a party.
ROWS = Whole(MAX_CELLS)


@dataclass(frozen=True)
class ByName:
    """A dictionary with any keys (names of parties, mostly) of one kind of value. Who looks for a name that the party
    left out gets a ``ReplyError``."""

    spec: Any


class _Told(dict[str, Any]):
    """What a party told by name."""

    def __init__(self, told: Mapping[str, Any], party: str, operation: str):
        super().__init__(told)
        self.party, self.operation = party, operation

    def __missing__(self, name: str) -> Any:
        raise ReplyError(self.party, self.operation, f"its reply has nothing for {name!r}")


ANY = object()


def check_reply(spec: object, value: object, party: str, operation: str) -> None:
    """Raise ``ReplyError`` unless ``value`` has the declared shape.

    A spec is ``None``, a type, ``Array(...)``, ``Whole(...)``, a dictionary of specs (exactly these keys),
    ``ByName(...)``, a list with one spec (any number), ``(spec, type(None))``, types, a ``@message`` or ``ANY``.
    """

    def wrong(what: str) -> ReplyError:
        return ReplyError(party, operation, f"its reply is not valid: {what}")

    _walk(spec, value, "reply", wrong)


def _walk(spec: Any, value: Any, where: str, wrong: Callable[[str], ReplyError]) -> None:
    if spec is ANY:
        return
    if isinstance(spec, (dict, list, ByName)):
        _walk_inside(spec, value, where, wrong)
    elif isinstance(spec, tuple) and type(None) in spec:
        _walk(None if value is None else spec[0], value, where, wrong)
    elif spec is None:
        if value is not None:
            raise wrong(f"{where} should be empty")
    elif isinstance(spec, Array):
        _check_array(spec, value, where, wrong)
    elif isinstance(spec, Whole):
        if isinstance(value, bool) or not isinstance(value, int) or not spec.least <= value <= spec.most:
            raise wrong(f"{where} should be a whole number from {spec.least} to {spec.most}")
    elif is_message(spec):
        reason = wrong_fields(spec, value)
        if reason:
            raise wrong(f"{where} {reason}")
    elif not isinstance(value, spec) or (isinstance(value, bool) and spec is int):
        raise wrong(f"{where} has the wrong type {type(value).__name__}")
    elif spec is int and abs(value) > MOST:
        raise wrong(f"{where} is out of all bounds")


def _walk_inside(spec: Any, value: Any, where: str, wrong: Callable[[str], ReplyError]) -> None:
    """Each entry of a dictionary, each item of a list."""
    kind = list if isinstance(spec, list) else dict
    if not isinstance(value, kind):
        raise wrong(f"{where} should be a {kind.__name__}, got {type(value).__name__}")
    if isinstance(spec, dict) and set(value) != set(spec):
        raise wrong(f"{where} should have exactly the entries {sorted(spec)}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            _walk(spec[0], item, f"{where}[{number}]", wrong)
        return
    for key, item in value.items():
        _walk(spec.spec if isinstance(spec, ByName) else spec[key], item, f"{where}.{key[:60]}", wrong)


def read_reply(spec: Any, value: Any, party: str, operation: str) -> Any:
    """A valid reply, as the message that the operation declares or as it came; ``ReplyError`` for any other."""
    check_reply(spec, value, party, operation)
    return _told(spec, value, party, operation)


def _told(spec: Any, value: Any, party: str, operation: str) -> Any:
    """A checked reply with its messages, and what came by name as such."""
    if is_message(spec):
        return built(spec, _by_name(value, party, operation))
    if isinstance(spec, ByName):
        return _Told({key: _told(spec.spec, item, party, operation) for key, item in value.items()}, party, operation)
    if isinstance(spec, dict):
        return {key: _told(spec[key], item, party, operation) for key, item in value.items()}
    if isinstance(spec, list):
        return [_told(spec[0], item, party, operation) for item in value]
    return value


def _by_name(value: Any, party: str, operation: str) -> Any:
    if isinstance(value, dict):
        return _Told({name: _by_name(item, party, operation) for name, item in value.items()}, party, operation)
    return [_by_name(item, party, operation) for item in value] if isinstance(value, list) else value


def _check_array(spec: Array, value: object, where: str, wrong: Callable[[str], ReplyError]) -> None:
    if spec.kind not in "fibu":
        raise ParameterError(f"an Array spec has kind f, i, b or u, got {spec.kind!r}")
    kinds = "iu" if spec.kind == "i" else spec.kind
    allowed = spec.ndim if isinstance(spec.ndim, tuple) else (spec.ndim,)
    told = f"should be a {spec.kind!r} array with {' or '.join(map(str, allowed))} dimensions"
    if not isinstance(value, np.ndarray):
        raise wrong(f"{where} {told}, got {type(value).__name__}")
    if value.dtype.kind not in kinds or (kinds == "u" and value.dtype != np.uint8) or value.ndim not in allowed:
        raise wrong(f"{where} {told}, got {value.dtype} array with {value.ndim} dimensions")
    if spec.kind == "f" and spec.finite and not np.isfinite(value).all():
        raise wrong(f"{where} holds values that are not finite")
