"""Sentences that both renderings use, from the summary record."""

from __future__ import annotations

import re

from fedsift.core.ledger import FORMS
from fedsift.report.markup import plural, short, size
from fedsift.report.plain import PLAIN
from fedsift.report.record import Answer, Disclosures, Method, Report
from fedsift.select.sureness import LEVEL


def title(report: Report) -> str:
    answer = report.answer
    new = f", make {plural(len(answer.engineered), 'new one')}" if answer.engineered else ""
    if report.party:
        return f"{report.party}: keep {answer.kept:,} of {plural(answer.of, 'column')}{new}"
    shared = len(answer.selected) < len(report.parties)
    whose = f"that all {_parties(len(report.parties))} have" if shared else f"of {_parties(len(report.parties))}"
    return f"Keep {answer.kept:,} of {plural(answer.of, 'column')} {whose}{new}"


def _parties(count: int) -> str:
    return "1 party" if count == 1 else f"{count:,} parties"


def recommended(report: Report) -> str:
    """What a method that chooses among others took, and why; nothing of any other method."""
    why = report.details.get("why")
    return why if isinstance(why, str) else ""


def why_these(report: Report) -> list[str]:
    """What there is to say of the choice, in the order in which somebody wants to know it."""
    answer = report.answer
    told = (
        _ONES_OWN if report.party is not None else "",
        too_good(answer), recommended(report), how_clear(answer), how_sure(answer), beyond_chance(report),
        the_same(answer),
    )  # fmt: skip
    return [text for text in told if text]


#: A party is told which of its columns were kept: no score, so that it cannot read labels off them.
_ONES_OWN = "You hear which of your own columns were kept. Scores go to who gets the result."


def how_clear(answer: Answer) -> str:
    """How far the kept columns are from the rest, in scores."""
    if not answer.kept:
        return "No column was kept."
    margin = answer.margin
    if margin is None and answer.kept >= answer.of:
        return "Every column was kept, so there is no border between kept and left out."
    if margin is None:
        return ""
    last, first = margin.last_kept, margin.first_left
    if last is None or first is None:
        return "The scores of this method are not numbers that can be set side by side."
    text = f"The weakest kept column scores {short(last)}, the strongest left out {short(first)}"
    if last < first:
        return text + ": the method did not choose by score alone (a column that repeats another adds nothing)."
    if by_place(answer):
        return "The columns were chosen one after the other; the score of a kept column is its place in that order."
    share = (last - first) / margin.range if margin.range else 0.0
    if share < 0.01:
        return text + ": the border is thin, and other rows might well put another column there."
    return text + f": a gap of {share:.0%} of the whole range of scores."


def how_sure(answer: Answer) -> str:
    """How many of the kept columns are chosen again when rows are left out; nothing where that was not tried."""
    fits = answer.fits
    if not fits or not answer.kept:
        return ""
    steady = sum(row.selected and row.folds == fits for row in answer.scores)
    which = "all" if steady == answer.kept else f"{steady:,} of these {answer.kept:,}"
    times = "both times" if fits == 2 else f"all {fits:,} times"
    whose = f"{which} {plural(answer.kept, 'column')}" if which == "all" else which
    again = f"the choice was repeated {fits:,} times, each time without a part of the rows"
    return f"How sure: {again}; {whose} came out {times}."


#: Methods that say themselves how much of what they keep is noise.
_RATED = {"Knockoffs", "Boruta", "Stable"}
_NULLS = {"AllFeatures", "RandomFeatures"}


def beyond_chance(report: Report) -> str:
    """How many columns are told from noise by a test, and whether all that were kept are; else why nobody can say."""
    answer, method = report.answer, report.method
    tested = [row for row in answer.scores if row.q is not None]
    if report.party is not None or method.name in _NULLS or not answer.kept:
        return ""
    if not tested:
        return _untested(method)
    clear = sum(row.q is not None and row.q <= LEVEL for row in tested)
    unclear = [f"{row.party}: {row.feature}" for row in tested if row.selected and row.q is not None and row.q > LEVEL]
    text = (
        f"By {'an' if answer.test == 'F' else 'a'} {answer.test or 'chi-squared'} test of each column {clear:,} of "
        f"{len(tested):,} are told from noise (false-discovery rate {LEVEL:g})"
    )
    more = f" and {len(unclear) - 5} more" if len(unclear) > 5 else ""
    text += f". Kept, but not told from noise: {', '.join(unclear[:5])}{more}." if unclear else (
        "; all that were kept are among them."
    )  # fmt: skip
    if answer.noise_floor is not None:
        text += f" The best of {answer.of:,} columns of noise scores above {short(answer.noise_floor)} once in 20 runs."
    return text


def _untested(method: Method) -> str:
    if method.name in _RATED:
        rate = method.parameters.get("fdr")
        return f"The method itself holds how much of what it keeps is noise: a share of {rate} at most, in the mean."
    if method.parameters.get("epsilon") is not None:
        return "How far this is from noise cannot be said: with epsilon the noise that was added rules the errors."
    return (
        "How far this is from noise cannot be said from what was opened: the scores of this method have no "
        "known spread under chance. Stable (around any method), Knockoffs and Boruta hold the share of noise among "
        "what they keep."
    )


def the_same(answer: Answer) -> str:
    """Columns that repeat one that was kept."""
    kept = {(row.party, row.feature) for row in answer.scores if row.selected}
    pairs = [
        f"{b} ({of_b}) says the same as {a} ({of_a})"
        for of_a, a, of_b, b in answer.copies
        if (of_a, a) in kept or (of_b, b) in kept
    ]
    if not pairs:
        return ""
    more = f", and {len(pairs) - 5} more" if len(pairs) > 5 else ""
    return f"Copies, by their counts: {'; '.join(pairs[:5])}{more}. A copy adds nothing; Muse leaves copies out."


def too_good(answer: Answer) -> str:
    """Kept columns that tell the label nearly alone."""
    kept = {(row.party, row.feature) for row in answer.scores if row.selected}
    found = [f"{party}: {column}" for party, column in answer.leaks if (party, column) in kept]
    if not found:
        return ""
    it = "tells" if len(found) == 1 else "tell"
    return (
        f"Too good? {', '.join(found[:5])} {it} the label nearly alone: was it known before the outcome? If not, "
        "leave it out (columns = [...] of its party), or a model that uses it will fail on new rows."
    )


def about_share(share: float) -> str:
    """A share in percent that says 100 % and 0 % only where it is exactly that."""
    if 0.99 < share < 1.0:
        return "over 99%"
    return "under 1%" if 0.0 < share < 0.01 else f"{share:.0%}"


def in_plain_words(method: Method) -> str:
    """How a method chooses, for somebody who has not heard of it; its own first sentence where none is written here."""
    return PLAIN.get(method.name) or str(method.what)


def by_place(answer: Answer) -> bool:
    """Is the score only the place in the order of choice (the first has the highest)?"""
    kept = [row.score for row in answer.scores[: answer.kept]]
    return len(kept) > 1 and kept == list(range(len(kept), 0, -1))


def sentence(text: str) -> str:
    """Words from a class attribute as a sentence."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


_ALARM = re.compile(
    r"=False|='open'|=1\b|not set|may have|turned off|in the (clear|open)|not protected|left during|saw each|\bOFF\b"
    r"|pooled(?! nothing)"
)
_CALM = re.compile(
    r"budget|epsilon|differential privacy|under |masks?\b|masked|encrypted|sealed|oblivious|pooled nothing|stayed with",
    re.IGNORECASE,
)


def is_warning(note: str) -> bool:
    """Notes tell of a protection that was turned off, or of one that was there (a budget, masks). In doubt, warn."""
    return bool(_ALARM.search(note)) or not _CALM.search(note)


def about_forms(ledger: Disclosures) -> list[tuple[str, str, str]]:
    """(form, what it means, how much of it) for the forms that occurred, from least to most telling."""
    order = list(FORMS)
    rows = sorted(ledger.forms, key=lambda row: order.index(row.form))
    return [(r.form, r.meaning, f"{plural(r.messages, 'message')}, {size(r.bytes)}") for r in rows]


def repeat(report: Report) -> str:
    """What does it again, in the form in which it was run: commands, or Python."""
    if report.run.commands:
        return "\n".join(report.run.commands)
    call = report.method.call
    own = report.method.module.startswith("fedsift")
    prefix = "fs." if own else ""
    lines = [] if own else [f"from {report.method.module} import {report.method.name}"]
    return "\n".join(
        ["import fedsift as fs", *lines, "", "fed = fs.Federation.from_tables(...)  # the same tables",
         f"selector = {prefix}{call}.fit(fed)", 'selector.report("report.html")']
    )  # fmt: skip
