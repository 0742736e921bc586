"""Which messages of a run were attacked, which need no attack and why, and for which none is written yet.

The page of an audit shows this beside the figures: what was not attacked is part of the answer.
"""

from __future__ import annotations

from fedsift.audit.naming import matches
from fedsift.audit.registry import attacks_on
from fedsift.audit.views import View
from fedsift.audit.waivers import PENDING, WAIVERS
from fedsift.core.operation import operations
from fedsift.report.audit_record import Covered

ATTACKED, WAIVED, MISSING = "attacked", "needs none", "none yet"


def coverage(views: dict[str, View]) -> list[Covered]:
    """The operations of a run that are not mere control (or whose requests are attacked), in the order of their ids."""
    known = {marked.id: marked for marked in operations()}
    lines = []
    for name in sorted({name for view in views.values() for name in view.operations}):
        marked, (status, why) = known.get(name), _status(name)
        if marked is not None and marked.discloses != "control":
            lines.append(Covered(name, marked.discloses, marked.about, status, why))
        elif status == ATTACKED:  # what its request tells the party
            learns = marked.learns if marked is not None else "its own part of the result"
            lines.append(Covered(name, "control", f"the party learns {learns or 'what the request says'}", status, why))
    return lines


def _status(operation: str) -> tuple[str, str]:
    attacks = [attack.name for attack in attacks_on([operation])]
    if attacks:
        return ATTACKED, ", ".join(attacks)
    for spec, why in WAIVERS.items():
        if matches(spec, operation):
            return WAIVED, why
    pending = [line for spec, line in PENDING.items() if matches(spec, operation)]
    if pending and pending[0].startswith("no line: "):
        return MISSING, pending[0].removeprefix("no line: ")
    return MISSING, "its attack is still to come"
