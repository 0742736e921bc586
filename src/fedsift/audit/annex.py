"""A data-protection annex (DPIA) from the ledger and the audit of a job, as Markdown and as a page.

It follows what an assessment under Article 35 GDPR asks for: what is processed and why, what leaves and to whom, what
could be inferred from it, which measures hold, what remains. Whoever answers for the data adds purpose, legal basis
and decision: those are marked, because no software knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsift.methods import METHODS
from fedsift.report.audit_record import AuditRecord, Disclosed, readable
from fedsift.report.markup import Html, h, table
from fedsift.report.page import page, section

#: Why a message is needed, by the family of its operation. The rest is the method's own, or its model's.
_NEEDED = {
    "align": "to find the rows that all parties share, without showing anybody the others' ids",
    "core": "to name and count what takes part, so that the result can be told by name",
    "delivery": "to give each party its own part of the result",
    "keep_result": "to give each party its own part of the result",
    "pairs": "so that the parties can keep from the coordinator what is between them",
    "sum": "so that the coordinator reads totals over all parties and no party's own numbers",
    "dealer": "random numbers for computing on numbers that nobody sees",
    "evaluate": "to measure how good the choice is on rows that were kept out of it",
    "scores": "to measure how good the choice is, without anybody seeing a row's score",
}
_FORMS = {
    "ciphertext": "What travels as ciphertext can be read by the holder of the key alone; no secret key travels.",
    "masked": "What travels masked is hidden by random numbers that its receiver does not know.",
    "aggregate": "What travels as aggregate is a sum or an average over many rows.",
}
_IDS = "Ids travel only as group elements under a secret exponent that each party draws anew for each alignment."

#: What an attack is after, as an assessment calls it.
_SOUGHT = {"membership": "who took part", "columns": "values of columns", "ids": "identities"}


@dataclass(frozen=True)
class Grid:
    """A table of text."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chapter:
    """A heading and what stands under it: a text is a paragraph, a tuple of texts a list."""

    key: str
    title: str
    blocks: tuple[str | tuple[str, ...] | Grid, ...]


def chapters(record: AuditRecord) -> list[Chapter]:
    """The annex as plain data, from the record of an audit."""
    return [_processing(record), _leaving(record), _inferred(record), _measures(record), _remaining(record)]


def _processing(record: AuditRecord) -> Chapter:
    site = record.site
    role = "holds the label" if site.holds_label else "holds columns and no label"
    who = f"This annex is for {site.party}, which {role}." if site.party else "This annex is for all parties."
    holds = f"a label that {record.active} holds" if record.active else "a label that they hold for their own rows"
    about = (
        f"Columns of {len(record.parties)} organisations ({', '.join(record.parties)}) are compared by "
        f"{record.method} to find those that matter for {holds}. No table is pooled: each organisation computes on "
        "its own rows, and a coordinator relays and counts messages."
    )
    return Chapter("processing", "1. The processing", (
        about, who,
        "Purpose and legal basis: [to be completed by the controller]",
        "Categories of people and of data: [to be completed by the controller]",
        Grid(("setting", "value"), tuple((key, _shown(value)) for key, value in record.parameters.items())),
    ))  # fmt: skip


def _leaving(record: AuditRecord) -> Chapter:
    sizes: dict[tuple[str, ...], int] = {}  # several steps that tell the same are one line
    for line in record.disclosures:
        what = f"it learns {line.what}" if line.learned else line.what
        relayed = " (relayed unread)" if line.relayed else ""
        told = (", ".join(line.senders), ", ".join(line.receivers), what, _needed(line, record.method),
                line.form + relayed)  # fmt: skip
        sizes[told] = sizes.get(told, 0) + line.bytes
    rows = [(*told, f"{size:,}") for told, size in sizes.items()]
    forms = tuple(f"{form}: {meaning}" for form, meaning in record.forms.items()
                  if any(line.form == form for line in record.disclosures))  # fmt: skip
    heads = ("from", "to", "what", "why it is needed", "form", "bytes")
    return Chapter("leaves", "2. What leaves, to whom, and why", (
        "Taken from the ledger of the rehearsal, in which every message is counted as it would travel.",
        Grid(heads, tuple(rows)), forms,
    ))  # fmt: skip


def _needed(line: Disclosed, method: str) -> str:
    """Why this message is sent."""
    known = _NEEDED.get(line.operation.partition(".")[0])
    own = {marked.id for marked in METHODS[method].operations} if method in METHODS else {line.operation}
    model = "to train the model that the job names, and to use it"
    return known or (f"{method} computes its choice from it" if line.operation in own else model)


def _inferred(record: AuditRecord) -> Chapter:
    rows = tuple(
        (line.whom, _SOUGHT.get(line.target, line.target),
         f"{readable(line.attack)}: {line.how} Knowing {line.knows}.",
         f"{line.metric} {line.value:.3f}", f"{line.guess:.3f}", f"{line.baseline:.3f}",
         "" if line.control is None else f"{line.control:.3f}", line.judged)
        for line in record.lines if not line.found_nothing
    )  # fmt: skip
    heads = ("who", "what", "how", "success", "guess", "baseline", "control", "judged")
    about = (
        f"Measured by attacks from the literature on what each role received in a rehearsal with {record.rows:,} "
        f"rows ({record.site.stand_ins}). Guess: what needs no message. Baseline: what the same "
        "attacker reaches from its own rows and the answer that it is entitled to. Control: the same attack on rows "
        "that did not take part."
    )
    none = "No attack found anything to read."
    return Chapter("inferred", "3. What could be inferred", (about, Grid(heads, rows) if rows else none))


def _measures(record: AuditRecord) -> Chapter:
    used = {line.form for line in record.disclosures}
    held = ["No table is pooled, and no operation reads a file or takes a path from a message."]
    held += [text for form, text in _FORMS.items() if form in used]
    held += [_IDS] if any(line.operation.endswith("blind_ids") for line in record.disclosures) else []
    if record.names == "private":
        held.append("Names of columns stay with their party.")
    rules = tuple((key, _shown(value)) for key, value in record.policy.items())
    about = "The site's own rules (party.toml), judged before every request:"
    if not record.site.party:
        about = "Each site's own rules are judged before every request; here all parties are played, with the defaults:"
    return Chapter("measures", "4. Which measures hold", (tuple(held), about, Grid(("rule", "value"), rules)))


def _shown(value: object) -> str:
    """A setting as people write it."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def _remaining(record: AuditRecord) -> Chapter:
    untested = record.verdict.untested
    reasons = tuple(record.verdict.reasons) or ("no attack was over a limit",)
    reasons += tuple(f"not tested, because no attack on it had anything to read: {kind}" for kind in untested)
    waived = tuple(f"{line.operation}: {line.why}" for line in record.coverage
                   if line.status == "needs none")  # fmt: skip
    return Chapter("remains", "5. What remains", (
        f"The audit {'is' if record.outcome == 'incomplete' else 'has'} {record.outcome}:", reasons,
        "Limits of this assessment:", tuple(record.caveats),
        "Messages that were not attacked, by argument and not by measurement:", waived or ("none",),
        "Decision of the controller, name and date: [to be completed]",
    ))  # fmt: skip


# --- renderings ------------------------------------------------------------------------------------------------------


def _title(record: AuditRecord) -> str:
    return f"Data-protection annex: {record.method}, job {record.job}"


def _foot(record: AuditRecord) -> str:
    return f"Made by fedsift {record.software} on {record.made[:10]} from the ledger and the audit of the job."


def render_markdown(record: AuditRecord) -> str:
    """The annex as Markdown."""
    lines = [f"# {_title(record)}", ""]
    for chapter in chapters(record):
        lines += [f"## {chapter.title}", ""]
        for block in chapter.blocks:
            if isinstance(block, Grid):
                lines += [_row(block.heads), _row(["--"] * len(block.heads)), *map(_row, block.rows), ""]
            elif isinstance(block, tuple):
                lines += [*(f"- {text}" for text in block), ""]
            else:
                lines += [block, ""]
    return "\n".join([*lines, _foot(record), ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def render_page(record: AuditRecord) -> str:
    """The annex as one HTML file that loads nothing."""
    parts = [(c.key, c.title, section(c.key, c.title, [_block(block) for block in c.blocks])) for c in chapters(record)]
    return page(_title(record), h("h1", _title(record)), parts, _foot(record))


def _block(block: str | tuple[str, ...] | Grid) -> Html:
    if isinstance(block, Grid):
        rows = [[h("span", cell, class_="told") if head == "how" else cell for head, cell in zip(block.heads, row)]
                for row in block.rows]  # fmt: skip
        return table(list(block.heads), rows, stack=len(block.heads) > 2)
    if isinstance(block, tuple):
        return h("ul", [h("li", text) for text in block])
    return h("p", block)
