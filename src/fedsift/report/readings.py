"""What everybody can read in the end, from the ledger of a run: by party, in the words of a privacy officer.

The ledger says of each message in which form it travels and what its receiver can open or compute of it. Here the same
is asked from the other end: of this party's data, who can finally read what, is it about one person or a total, and can
the reader tell who the person is? Row by row under pseudonyms is about one person; a party that holds rows of the same
persons in the same order knows whose row it is, somebody without rows does not, but sees that rows belong together.

Matching ids is one of the lines: whoever takes part learns which of its own clients the others have too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.core.operation import Operation, operations

PERSON, TOTAL, NAMES = "one person", "a total", "no person: names"
#: What an audit attacks: the same words as ``audit/exposure.py``.
LABELS, COLUMNS, MEMBERSHIP, NOTHING = "labels", "columns", "membership", ""
THE_COORDINATOR, RESULT = "the coordinator", "who gets the result"
NEUTRAL = "neutral"
_MATCHED = "align.keep_shared"
_HIDDEN = ("control", "ciphertext", "masked")
_ROWS = re.compile(r"\brows?\b|\bby its id\b|in the clear\b")
_LABELS = re.compile(r"\blabel|\bloss\b|gradient")
_NAMES = re.compile(r"\bnames?\b")
_EMPTY = re.compile(r"^nothing\b|public keys|randomness from the dealer|\buniform\b|^request: ")


@dataclass(frozen=True)
class Reading:
    """Of ``owner``'s data ``reader`` can finally read ``what``; ``target`` is what an audit would call it."""

    owner: str
    reader: str
    what: str
    form: str
    grain: str
    linkable: str
    target: str


@dataclass(frozen=True)
class Learned:
    """What a party gets to know itself."""

    party: str
    what: str


@dataclass(frozen=True)
class Roles:
    """Who takes part as what; ``coordinator`` and ``submitter`` are parties, or neutral."""

    parties: tuple[str, ...]
    holders: tuple[str, ...] = ()
    partition: str = "vertical"
    coordinator: str = NEUTRAL
    submitter: str = NEUTRAL

    @property
    def runner(self) -> str:
        return THE_COORDINATOR if self.coordinator == NEUTRAL else self.coordinator

    @property
    def gets_result(self) -> str:
        return RESULT if self.submitter == NEUTRAL else self.submitter


def readings(ledger: Ledger, roles: Roles) -> list[Reading]:
    """All that is finally readable, each kind once, by owner and then from the most to the least telling."""
    marked = {each.id: each for each in operations()}
    found: dict[Reading, None] = {}
    for entry in ledger.entries:
        operation = marked.get(entry.operation)
        if operation is None or operation.family == "align":
            continue
        told = _heard(entry, roles) if entry.sender == COORDINATOR else _of(entry, operation, roles)
        found.update(dict.fromkeys(told))
    if any(entry.operation == _MATCHED for entry in ledger.entries):
        found.update(dict.fromkeys(_matching(roles)))
    found.update(dict.fromkeys(_answer(roles)))
    grains = [PERSON, TOTAL, NAMES]
    return sorted(found, key=lambda each: (roles.parties.index(each.owner), grains.index(each.grain), each.reader))


def learned(ledger: Ledger, roles: Roles) -> list[Learned]:
    """What each party itself gets to know: by decrypting, by being told."""
    found = {Learned(name, "which of its own columns were kept"): None for name in roles.parties}
    for entry in ledger.entries:
        if entry.sender == COORDINATOR and entry.receiver in roles.parties and not _EMPTY.search(entry.about):
            found[Learned(entry.receiver, entry.about)] = None
    return list(found)


def _of(entry: Entry, operation: Operation, roles: Roles) -> Iterable[Reading]:
    form, _, what = entry.opened.partition(": ")
    if form in _HIDDEN or not what:
        return
    grain = _grain(form, what)
    for owner, target in _owners(entry.sender, operation, grain, roles):
        for reader in _readers(entry, operation, owner, roles):
            yield Reading(owner, reader, what, form, grain, _traceable(reader, grain, roles), target)


def _heard(entry: Entry, roles: Roles) -> Iterable[Reading]:
    """What a party gets to know row by row, by decrypting or by being told, is about somebody's rows: the labels of
    their holders, or columns of the others."""
    if entry.receiver not in roles.parties or _EMPTY.search(entry.about) or not _ROWS.search(entry.about):
        return
    of_labels = bool(_LABELS.search(entry.about)) and entry.receiver not in roles.holders
    others = [name for name in roles.parties if name != entry.receiver]
    for owner in [name for name in others if name in roles.holders] if of_labels else others:
        yield Reading(
            owner, entry.receiver, entry.about, "pseudonymous", PERSON, _traceable(entry.receiver, PERSON, roles),
            LABELS if of_labels else COLUMNS,
        )  # fmt: skip


def _grain(form: str, what: str) -> str:
    if what.startswith("a check value"):
        return TOTAL
    if form == "pseudonymous" or (form == "plain" and _ROWS.search(what)):
        return PERSON
    return NAMES if form == "plain" and _NAMES.search(what) else TOTAL


def _owners(sender: str, operation: Operation, grain: str, roles: Roles) -> list[tuple[str, str]]:
    """Whose data it is about, and what of them: labels are those of the label holders, whoever sends it."""
    if operation.concerns == "nothing":
        return [(sender, NOTHING)]
    found = [(sender, NOTHING if grain == NAMES else COLUMNS)] if "columns" in operation.concerns else []
    if "labels" in operation.concerns:
        holders = [sender] if sender in roles.holders or not roles.holders else list(roles.holders)
        found += [(holder, LABELS) for holder in holders]
    return found or [(sender, NOTHING)]


def _readers(entry: Entry, operation: Operation, owner: str, roles: Roles) -> list[str]:
    others = [name for name in roles.parties if name != owner]
    by = {
        "active": [name for name in others if name in roles.holders],
        "passive": [name for name in others if name not in roles.holders],
        "parties": others,
        "result": [roles.gets_result],
    }
    if operation.opened_by in by:
        found = by[operation.opened_by]
    elif entry.relayed:  # sealed: the coordinator passes it on and cannot read it
        found = [name for name in others if name != entry.sender]
    else:
        found = [roles.runner]
    return [name for name in found if name != owner]


def _traceable(reader: str, grain: str, roles: Roles) -> str:
    if grain != PERSON:
        return "no"
    if reader not in roles.parties:
        return "not by itself: it holds no ids"
    if roles.partition == "horizontal":
        return "not by itself: it has other persons"
    return "yes: it has the same persons' rows"


def _matching(roles: Roles) -> Iterable[Reading]:
    """A party that hears which of its own rows all share knows of each of them that the others have this person."""
    for owner in roles.parties:
        for reader in roles.parties:
            if reader != owner:
                yield Reading(
                    owner, reader, "which of the reader's own clients are in this party's table too (matching ids)",
                    "plain", PERSON, "yes: by its own ids", MEMBERSHIP,
                )  # fmt: skip
        yield Reading(owner, THE_COORDINATOR, "how many rows the parties share", "aggregate", TOTAL, "no", MEMBERSHIP)


def _answer(roles: Roles) -> Iterable[Reading]:
    for owner in roles.parties:
        if roles.gets_result != owner:
            yield Reading(
                owner, roles.gets_result, "which of its columns were kept, and their scores", "aggregate", TOTAL, "no",
                COLUMNS,
            )  # fmt: skip


def strongest(found: Sequence[Reading]) -> dict[tuple[str, str], str]:
    """For the picture: of each owner and reader the form of what tells most."""
    order = ["aggregate", "pseudonymous", "plain"]
    arrows: dict[tuple[str, str], str] = {}
    for each in found:
        pair = (each.owner, each.reader)
        if each.grain != NAMES and order.index(each.form) >= order.index(arrows.get(pair, "aggregate")):
            arrows[pair] = each.form
    return arrows
