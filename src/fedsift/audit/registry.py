"""The table of attacks, bound to the operations whose messages they read.

    @attack(reads=["draw_rows"], role="coordinator", target="labels", knows="the seeds that it chose", declared="no")
    def chosen_seeds(view: View, truth: Truth) -> Measure: ...

Because attacks bind to operations and not to methods, a new method that uses an operation inherits its attacks. Every
operation that is not mere control has an attack, or a sentence in ``WAIVERS`` that says why none is needed; a test
asks for it. ``PENDING`` lists those whose attack is still to come, by the line of the first table in security.md.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedsift.audit.controls import control_of
from fedsift.audit.exposure import Exposure, Measure
from fedsift.audit.naming import matches
from fedsift.audit.views import Truth, View
from fedsift.audit.waivers import PENDING, WAIVERS
from fedsift.errors import ParameterError

ROLES = ("passive", "active", "coordinator", "member")
TARGETS = ("labels", "columns", "membership", "ids")

AttackFunction = Callable[[View, Truth], Measure]


@dataclass(frozen=True)
class Attack:
    """A function of a view and the truth (for scoring only), and what it declares. ``run`` gives an ``Exposure``."""

    function: AttackFunction
    reads: tuple[str, ...]  # operations, as ``naming.matches`` reads them: any of them is enough to run it
    role: str
    target: str
    knows: str
    declared: str
    line: int | None  # of the first table in security.md

    @property
    def name(self) -> str:
        return self.function.__name__

    def reads_from(self, operations: Iterable[str]) -> bool:
        """Whether one of the operations (names as they travel) is read by this attack."""
        return any(matches(spec, name) for name in operations for spec in self.reads)

    def run(self, view: View, truth: Truth) -> Exposure:
        if view.role != self.role:
            raise ParameterError(f"{self.name} is an attack by the {self.role} role; this is the view of {view.name!r}")
        start = time.process_time()
        found = self.function(view, truth)
        control = control_of(self.function, self.target, view, truth, found)
        seconds = time.process_time() - start
        return Exposure(
            self.name, self.role, view.name, self.target, found.metric, float(found.value), float(found.guess),
            float(found.baseline), control, seconds, self.knows, self.declared, found.note, found.auc,
        )  # fmt: skip


#: All attacks that were loaded, by name. ``load_attacks`` fills it.
ATTACKS: dict[str, Attack] = {}


def attack(
    *,
    reads: Sequence[str],
    role: str,
    target: str,
    knows: str,
    declared: str = "no",
    line: int | None = None,
) -> Callable[[AttackFunction], Attack]:
    """Enter a function ``run(view, truth) -> Measure`` into ``ATTACKS``.

    Parameters
    ----------
    reads : the operations whose messages it reads, e.g. ``["class_sums"]``; see ``naming.matches``.
    role : whose view it works on: ``passive``, ``active`` (the label holder), ``coordinator``, or ``member``: a party
        of a horizontal or hybrid job, where every party has rows of its own.
    target : what it is after: ``labels``, ``columns``, ``membership`` or ``ids``.
    knows : what the attacker knows beside the view, in words.
    declared : what the documents of the shipped method say about it, in a word.
    line : the line of the first table in security.md that it measures.
    """
    if role not in ROLES or target not in TARGETS or not reads:
        raise ParameterError(f"an attack reads operations, in a role of {ROLES}, for one of {TARGETS}")

    def enter(function: AttackFunction) -> Attack:
        entered = Attack(function, tuple(reads), role, target, knows, declared, line)
        if entered.name in ATTACKS:
            raise ParameterError(f"there is an attack {entered.name!r} already")
        ATTACKS[entered.name] = entered
        return entered

    return enter


def load_attacks() -> dict[str, Attack]:
    """Import every module of ``audit/attacks`` (none needs torch to be imported) and give the table."""
    from fedsift.audit import attacks

    for module in pkgutil.iter_modules(attacks.__path__, f"{attacks.__name__}."):
        importlib.import_module(module.name)
    return ATTACKS


def attacks_on(operations: Iterable[str], role: str | None = None) -> list[Attack]:
    """The attacks that read any of these operations (names as they travel), of one role or of all."""
    names = list(operations)
    return [each for each in load_attacks().values() if (role is None or each.role == role) and each.reads_from(names)]


def uncovered(operations: Iterable[str]) -> list[str]:
    """Those of the operations (names as they travel) without attack, waiver or a place among the pending ones."""
    table = load_attacks().values()
    return [
        name
        for name in operations
        if not any(each.reads_from([name]) for each in table)
        and not any(matches(spec, name) for spec in (*WAIVERS, *PENDING))
    ]
