"""``audit_job``: play a job on this site's own rows, attack what every role received, and say what it comes to.

Nothing is sent anywhere: all parties are played in this process, over the transport that records (``recording.py``).
The method runs with the job's own parameters; only a number of columns to keep that the rehearsal does not have is
lowered, which is told. Attacks that break down are told, too, and keep a verdict from being "passed".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fedsift.audit.apart import highest, jobs_apart
from fedsift.audit.cast import Cast
from fedsift.audit.coverage import MISSING, coverage
from fedsift.audit.exposure import Exposure
from fedsift.audit.recording import DELIVERY, Recording, record_sites
from fedsift.audit.registry import attacks_on
from fedsift.audit.stages import ALIGNMENT, SCORING, jobs_put, stages
from fedsift.audit.verdict import Judged, Limits, Site, concerns_site, conclude, judge
from fedsift.core import party
from fedsift.core.ledger import COORDINATOR, Ledger
from fedsift.core.progress import Work
from fedsift.jobs.job_file import Job
from fedsift.methods import Selector
from fedsift.report.audit_record import Covered, Verdict


@dataclass(frozen=True)
class Audit:
    """A job, attacked: the figures, what they come to, and what the run would disclose."""

    job: Job
    cast: Cast
    site: Site
    limits: Limits
    judged: tuple[Judged, ...]
    coverage: tuple[Covered, ...]
    verdict: Verdict
    ledger: Ledger
    rows: int  # that took part, after the alignment
    lowered: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # attack -> why it did not come to its end
    seconds: float = 0.0
    delivered: dict[str, int] = field(default_factory=dict)  # party -> bytes of its part of the result
    skipped: tuple[str, ...] = ()  # attacks that are after a stand-in's data, not after this site's
    beside: tuple[tuple[str, dict[str, Any]], ...] = ()  # jobs put to the parties beside the selection


def audit_job(
    job: Job, cast: Cast, site: Site, limits: Limits, say: Callable[[str], None] = lambda text: None
) -> Audit:
    """Rehearse the job with this cast, run every attack that reads one of its messages, judge the figures."""
    start = time.perf_counter()
    columns = sum(table.n_columns for table in cast.tables.values())
    say(f"rehearsing {job.method} on {cast.n_rows:,} rows and {columns:,} columns, in this process")
    selector, lowered = _fitting(job.selector(), columns)
    seen = _rehearsed(job, cast, selector)
    say("attacking what each role received")
    exposures, broken, skipped = attack_all(seen, site)
    entries, known, beside = list(seen.ledger.entries), _operations(seen), []
    covered = {line.operation: line for line in coverage(seen.views)}
    for stage in stages(job, cast, seen.result):
        say(f"rehearsing and attacking the {stage.name} of the model")
        part = _rehearsed(job, stage.cast, stage.conversation)
        more = attack_all(part, site, beside=known if stage.name == SCORING else ALIGNMENT)
        exposures += [replace(exposure, stage=stage.name) for exposure in more[0]]
        broken, skipped = {**broken, **more[1]}, tuple(sorted({*skipped, *more[2]}))
        entries, known = [*entries, *part.ledger.entries], known | _operations(part)
        covered |= {line.operation: line for line in coverage(part.views)}
        beside += [each for each in jobs_put(part, site.party) if each[0] != job.method]
    judged = tuple(judge(exposure, limits, site) for exposure in exposures)
    pending = [line.operation for line in covered.values() if line.status == MISSING]
    verdict = conclude(judged, pending, sorted(broken), holds_label=site.holds_label)
    spent = time.perf_counter() - start
    results = {message.party: message.bytes for message in seen[COORDINATOR].requests(DELIVERY)}
    return Audit(
        job, cast, site, limits, judged, tuple(covered.values()), verdict, Ledger(entries, seen.ledger.notes),
        len(seen.truth.labels), lowered, broken, spent, results, skipped, tuple(beside),
    )  # fmt: skip


def _fitting(selector: Selector, columns: int) -> tuple[Selector, dict[str, Any]]:
    """The method as the job has it; a number of columns that the rehearsal does not have is lowered."""
    wanted = selector.get_params(deep=False).get("n_features")
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted > columns:
        return selector.set_params(n_features=columns), {"n_features": columns}
    return selector, {}


def _operations(seen: Recording) -> frozenset[str]:
    return frozenset(name for view in seen.views.values() for name in view.operations)


def _rehearsed(job: Job, cast: Cast, conversation: object) -> Recording:
    settings = job.settings.federation
    fresh = None if cast.fresh is None else {name: party.Site(name, table) for name, table in cast.fresh.items()}
    return record_sites(
        {name: party.Site(name, table) for name, table in cast.tables.items()}, cast.active, conversation,
        task=settings.task, by_id=cast.by_id, fresh=fresh, names=settings.names, partition=settings.partition,
        grid=job.grid(), coordinator=settings.coordinator,
    )  # fmt: skip


def attack_all(
    seen: Recording, site: Site, beside: frozenset[str] = frozenset()
) -> tuple[list[Exposure], dict[str, str], tuple[str, ...]]:
    """Every attack that is after something of this site, on every view of its role; not those that read only the
    operations of ``beside``, which were attacked elsewhere. Of a run of several jobs on each of them, too.

    With the exposures come the attacks that broke down (and why), and those that are after a stand-in's data only.
    """
    everything = [
        (part.truth, view, each)
        for part in (seen, *jobs_apart(seen))
        for view in part.views.values()
        for each in attacks_on(view.operations - beside, view.role)
    ]
    triples = [each for each in everything if concerns_site(each[1].role, each[1].name, each[2].target, site)]
    run = {each.name for _, _, each in triples}
    skipped = tuple(sorted({each.name for _, _, each in everything} - run))
    found, broken = [], {}
    for truth, view, each in Work().track(triples, "attack"):
        try:
            found.append(each.run(view, truth))
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RuntimeError,
            MemoryError,
        ) as error:
            broken[each.name] = f"{type(error).__name__}: {error}"
    ran = {each.attack for each in found}  # on a job of several, though not on all of them in one
    return highest(found), {name: why for name, why in broken.items() if name not in ran}, skipped
