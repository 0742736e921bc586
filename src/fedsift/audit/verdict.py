"""From exposures to a verdict: which of them concern this site, and which are over its limits.

An exposure is *over* when its figure is above the site's limit and the messages add to what the attacker reaches
without them (guess and baseline; ``ADDS`` is what is taken for noise). So a partner whose own columns already predict
the label does not make every job fail, and a leak below the limit is told and not refused.

Figures of attacks differ in kind; a limit has one. Labels are judged as an AUC: a share of labels that were read
becomes 0.5 + (share - guess) / (1 - guess) / 2, which is 0.5 for a guess and 1 for all labels, or its AUC where that is
known and larger. Columns are judged as an
R2: a correlation is squared, a share (of cells, values or tables) counts above its guess, as 1 for all. Who took part
is judged as labels are, where it is an AUC; an epsilon and ids are over when they add anything to what was promised.
Names of columns, and which unnamed one is which, count only where names are private; sizes of intersections, which an
alignment tells its coordinator, do not.

A verdict is *passed*, *failed* or *incomplete*: a message for which no attack is written yet, an attack that broke
down, or a rehearsal in which no attack on this site had anything to read, is no reason to pass. Of labels, values of
columns and who took part, a verdict says which were not tested because no attack on them had anything to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsift.audit.exposure import Exposure
from fedsift.report.audit_record import EMPTY, Verdict, readable

#: What an attack may seem to add by chance.
ADDS = 0.01
PASSED, FAILED, INCOMPLETE = "passed", "failed", "incomplete"
NOTHING = "nothing to read"
LABELS, COLUMNS = "labels", "columns"
#: Metrics that say which column is which, and nothing about a value in it.
NAMES = ("columns named", "cuts followed")
#: What a site has to lose, and how people call it.
SOUGHT = {"labels": "labels", "columns": "values of columns", "membership": "who took part"}
#: How many rows parties share: the alignment tells its coordinator, as its page says; nobody's row.
SIZES = "sizes of intersections"


@dataclass(frozen=True)
class Limits:
    """What a site's policy allows: the rules ``max_label_auc`` and ``max_column_r2``."""

    label_auc: float
    column_r2: float


@dataclass(frozen=True)
class Site:
    """Whose audit it is. Without a name all parties' files are here, and everything concerns the reader."""

    party: str | None
    holds_label: bool
    names_shared: bool = True


@dataclass(frozen=True)
class Judged:
    """An exposure with the figure that is compared with a limit."""

    exposure: Exposure
    concerns: bool  # is it about this site's rows, or about a stand-in's?
    figure: float
    limit: float
    over: bool
    why: str = ""  # why it is not judged, where it is not

    @property
    def found_nothing(self) -> bool:
        return self.exposure.note.startswith(NOTHING)


def figure_of(exposure: Exposure) -> float:
    """The figure of an exposure in the kind of its limit."""
    above = (exposure.value - exposure.guess) / max(1 - exposure.guess, 1e-9)
    if exposure.target == "labels":
        if exposure.metric == "auc":
            return exposure.value
        share = 0.5 + max(above, 0.0) / 2
        return share if exposure.auc is None else max(share, exposure.auc)
    if exposure.target == "columns":
        if exposure.metric == "r2":
            return exposure.value
        return exposure.value**2 if exposure.metric == "correlation" else max(above, 0.0)
    return exposure.value


def judge(exposure: Exposure, limits: Limits, site: Site) -> Judged:
    """One exposure beside the limit for what it is after."""
    figure, concerns = figure_of(exposure), concerns_site(exposure.role, exposure.party, exposure.target, site)
    limit = {LABELS: limits.label_auc, COLUMNS: limits.column_r2}.get(
        _limited_as(exposure), max(exposure.guess, exposure.baseline)
    )
    why = "" if concerns else "it is about a stand-in, not about this site's data"
    if concerns and exposure.metric in NAMES and site.names_shared:
        concerns, why = False, "the job tells the names of columns anyway"
    if concerns and exposure.metric == SIZES:
        concerns, why = False, "sizes of lists and intersections are told to the coordinator of an alignment"
    over = concerns and figure > limit and exposure.added > ADDS and not exposure.note.startswith(NOTHING)
    return Judged(exposure, concerns, figure, limit, over, why)


def _limited_as(exposure: Exposure) -> str:
    """Whose limit holds: who took part is judged as labels are."""
    return LABELS if (exposure.target, exposure.metric) == ("membership", "auc") else exposure.target


def concerns_site(role: str, attacker: str, target: str, site: Site) -> bool:
    """Whether an attack is after something of this site: labels are their holder's, and nobody attacks itself."""
    if site.party is None:
        return True
    if target == "labels" and not site.holds_label:
        return False  # the label is planted
    return attacker != site.party and not (role == "active" and site.holds_label)


def conclude(
    judged: Sequence[Judged], pending: Sequence[str], broken: Sequence[str], *, holds_label: bool = True
) -> Verdict:
    """``pending`` are messages without an attack, ``broken`` attacks that did not come to an end."""
    over = [line for line in judged if line.over]
    reasons = [
        f"{readable(line.exposure.attack)}: {_who(line.exposure)} reads {line.exposure.target} of this job with "
        f"{line.exposure.metric} {line.exposure.value:.3f} (guess {line.exposure.guess:.3f}, baseline "
        f"{line.exposure.baseline:.3f}); judged as {line.figure:.3f}, the limit is {line.limit:.3f}"
        for line in over
    ]
    reasons += [f"the attack {name} did not come to its end" for name in broken]
    if pending:
        reasons.append(f"no attack is written yet for: {', '.join(pending)}")
    here = [target for target in SOUGHT if holds_label or target != "labels"]
    untested = tuple(SOUGHT[target] for target in here if not any(_tests(line, target) for line in judged))
    if len(untested) == len(here):
        reasons.append(f"{EMPTY}: no attack on labels, columns or rows that are here had anything to read")
    outcome = FAILED if over else INCOMPLETE if reasons else PASSED
    worst = _worst(judged, LABELS, 0.5), _worst(judged, COLUMNS, 0.0)
    return Verdict(outcome, tuple(reasons), *worst, untested)


def _tests(line: Judged, target: str) -> bool:
    """Whether this attack on something of the site had something to read; a column's name is no value in it."""
    names_alone = line.exposure.metric in NAMES
    return line.exposure.target == target and line.concerns and not line.found_nothing and not names_alone


def _who(exposure: Exposure) -> str:
    return "the coordinator" if exposure.role == "coordinator" else f"{exposure.party} ({exposure.role})"


def _worst(judged: Sequence[Judged], limited_as: str, least: float) -> float:
    """Of all that one limit is for."""
    here = [line for line in judged if line.concerns and not line.found_nothing and line.exposure.added > ADDS]
    return max([least, *(line.figure for line in here if _limited_as(line.exposure) == limited_as)])
