"""A ledger, counted for a report: what it cost by party, step and round, and who learned what in which form."""

from __future__ import annotations

import numpy as np

from fedsift.core.ledger import COORDINATOR, FORMS, Entry, Ledger
from fedsift.report.record import Cost, Disclosure, Disclosures, Encryption, FormCount, PartyCost, RoundCost, StepCost

#: What the receiver of a message can make of it, in words.
READABLE = {
    "control": "nothing about rows",
    "ciphertext": "cannot read it",
    "masked": "cannot read it",
    "pseudonymous": "rows, but not whose",
    "aggregate": "totals only",
    "plain": "everything in it",
}

OPENERS = {"active": "the label holder reads ", "passive": "the others read ", "parties": "all parties read "}


def _other(entry: Entry) -> str:
    return entry.receiver if entry.sender == COORDINATOR else entry.sender


def count_cost(ledger: Ledger, seconds: float) -> Cost:
    by_party: dict[str, PartyCost] = {}
    by_operation: dict[str, StepCost] = {}
    by_round: dict[int, RoundCost] = {}
    for e in ledger.entries:
        side = by_party.setdefault(_other(e), PartyCost(_other(e)))
        side.messages += 1
        if e.sender == COORDINATOR:
            side.received += e.bytes
        else:
            side.sent += e.bytes
        step = by_operation.setdefault(e.operation, StepCost(e.operation))
        step.messages += 1
        step.bytes += e.bytes
        step.seconds += e.seconds
        by_round.setdefault(e.round, RoundCost(e.round, e.operation)).bytes += e.bytes
    return Cost(
        bytes=ledger.bytes(),
        messages=len(ledger),
        rounds=ledger.rounds(),
        seconds=seconds,
        by_party=list(by_party.values()),
        by_operation=sorted(by_operation.values(), key=lambda row: -row.bytes),
        by_round=_few(sorted(by_round.values(), key=lambda row: row.round)),
    )


def _few(rounds: list[RoundCost], most: int = 24) -> list[RoundCost]:
    """Neighbouring rounds together where there are very many."""
    if len(rounds) <= most:
        return rounds
    merged = []
    for group in np.array_split(np.arange(len(rounds)), most):
        part = [rounds[i] for i in group]
        merged.append(RoundCost(part[0].round, "", sum(each.bytes for each in part), to=part[-1].round))
    return merged


def count_forms(ledger: Ledger) -> Disclosures:
    forms = {form: FormCount(form, text) for form, text in FORMS.items()}
    sent: dict[str, dict[str, int]] = {}
    for e in ledger.entries:
        forms[e.form].messages += 1
        forms[e.form].bytes += e.bytes
        if e.sender != COORDINATOR:
            parts = sent.setdefault(e.sender, {})
            parts[e.form] = parts.get(e.form, 0) + e.bytes
    told = sum(e.bytes for e in ledger.entries if e.form != "control")
    hidden = sum(e.bytes for e in ledger.entries if e.form in ("ciphertext", "masked") or e.relayed)
    return Disclosures(
        hidden_share=hidden / told if told else None,
        encryption=Encryption(**ledger.encryption(), line=ledger.encryption_line()),
        notes=list(ledger.notes),
        forms=[row for row in forms.values() if row.messages],
        lines=disclosure_lines(ledger),
        sent_by_form=sent,
    )


def _reader(entry: Entry, learns: bool) -> str:
    """What the receiver, or whom it is passed on to, can make of a message: nobody opens what it has no key for."""
    if learns:
        return "learns exactly this"
    if entry.relayed:
        return "sealed: the coordinator cannot read it"
    form, _, opened = entry.opened.partition(": ")
    if entry.sender == COORDINATOR or form not in FORMS or opened == entry.about:
        return READABLE[entry.form]
    who = OPENERS.get(entry.opened_by, "")
    return f"{who}{READABLE[form]}: {opened}" if form not in ("control", "ciphertext", "masked") else READABLE[form]


def disclosure_lines(ledger: Ledger) -> list[Disclosure]:
    """What went where in which form: one line a kind, parties that did the same together, the most readable first."""
    rows: dict[tuple[object, ...], Disclosure] = {}
    for e in ledger.entries:
        outward = e.sender == COORDINATOR
        request = outward and e.about.startswith("request: ")
        what = f"passed on for the step {e.operation}" if request else e.about
        learns = outward and not request and not e.about.startswith("nothing")
        fresh = Disclosure(what, e.form, learns, e.relayed, e.operation, _reader(e, learns))
        row = rows.setdefault((outward, e.form, what, e.operation, e.relayed), fresh)
        for end, party in ((row.senders, e.sender), (row.receivers, e.receiver)):
            if party not in end:
                end.append(party)
        row.messages += 1
        row.bytes += e.bytes
    order = list(FORMS)
    return sorted(rows.values(), key=lambda row: (row.only_instruction, not row.learns, -order.index(row.form)))
