"""An audit as plain data: what ``audit.json`` holds, and what the report, the annex and the evidence are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone

from fedsift.audit.registry import load_attacks
from fedsift.audit.rehearsal import Audit
from fedsift.audit.verdict import ADDS, INCOMPLETE, Judged
from fedsift.core.files import plain
from fedsift.core.ledger import COORDINATOR, FORMS, Ledger
from fedsift.core.table import Table
from fedsift.report.audit_record import FORMAT, VERSION, AuditRecord, Disclosed, Limits, Line, SiteRead
from fedsift.site.verdict import Fingerprint, StoredVerdict, parameters_hash, software_version

LIMITS = (
    "Attacks are lower bounds: what they do not find may still be there, and a pass is no proof.",
    "The rehearsal ran on rows that are here; a partner with more columns, or fewer shared rows, may read more.",
    "Everybody followed the protocol, and nobody worked together. What a coordinator that deviates can ask is a matter "
    "of the site's policy, not of this audit.",
    "One job was rehearsed. What several jobs on the same rows give away together was not measured.",
)
#: Of protocols in which the coordinator holds a share or deals the randomness (docs/threat-model.md has the figures).
SHARES = (
    "This job computes on shares of which the coordinator has one, or deals the randomness. That it computes with what "
    "it was sent cannot be checked: one that does not reads rows or labels one by one. No attack here measures that."
)


def caveats(ledger: Ledger) -> list[str]:
    """What the figures do not say, for a run with these messages."""
    shared = any(entry.operation.startswith(("descent.", "dealer.")) for entry in ledger.entries)
    return [*LIMITS, SHARES] if shared else list(LIMITS)


def audit_record(audit: Audit, table: Table | None, policy: Mapping[str, object]) -> AuditRecord:
    """The record of an audit; ``table`` is the site's own (none where all parties' files are here)."""
    job, site, selector = audit.job, audit.site, audit.job.selector()
    return AuditRecord(
        format=FORMAT,
        version=VERSION,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        software=software_version(),
        job=job.path.name,
        method=job.method,
        parameters=plain(selector.get_params(deep=False)),
        lowered=plain(audit.lowered),
        leaks=selector.leaks,
        partition=job.settings.federation.partition,
        names=job.settings.federation.names,
        site=SiteRead(site.party, site.holds_label, audit.cast.stand_ins),
        table=None if table is None else plain(vars(Fingerprint.of(table))),
        active=audit.cast.active,
        parties={name: each.n_columns for name, each in audit.cast.tables.items()},
        rows=audit.rows,
        fresh_rows=audit.cast.n_fresh,
        seconds=round(audit.seconds, 1),
        limits=Limits(audit.limits.label_auc, audit.limits.column_r2),
        policy=plain(policy),
        exposures=[_line(judged) for judged in audit.judged],
        broken=dict(audit.broken),
        skipped=list(audit.skipped),
        coverage=list(audit.coverage),
        disclosures=[*disclosures(audit.ledger), *_results(audit)],
        forms=dict(FORMS),
        notes=list(audit.ledger.notes),
        verdict=audit.verdict,
        caveats=caveats(audit.ledger),
    )


def _line(judged: Judged) -> Line:
    attack = load_attacks()[judged.exposure.attack]
    how = (attack.function.__doc__ or attack.name).strip().partition("\n")[0]
    how = f"{how} In the {judged.exposure.stage} of the model." if judged.exposure.stage else how
    return Line(
        **asdict(judged.exposure), added=judged.exposure.added, adds=judged.exposure.added > ADDS,
        concerns=judged.concerns, figure=judged.figure, limit=judged.limit, over=judged.over, why=judged.why,
        found_nothing=judged.found_nothing, how=how, reads=list(attack.reads),
    )  # fmt: skip


def disclosures(ledger: Ledger) -> list[Disclosed]:
    """What leaves each party for whom and what a party learns, one record a kind; instructions left out."""
    rows: dict[tuple[str, str, str], Disclosed] = {}
    for entry in ledger.entries:
        learns = entry.sender == COORDINATOR and not entry.about.startswith("request: ")
        if entry.sender == COORDINATOR and not learns:
            continue  # what a request carries from other parties stands where these sent it
        if entry.form == "control" and not learns:
            continue
        row = rows.setdefault(
            (entry.form, entry.about, entry.operation),
            Disclosed(entry.operation, entry.about, entry.form, learns, entry.relayed, [], [], 0, 0),
        )
        for ends, name in ((row.senders, entry.sender), (row.receivers, entry.receiver)):
            if name not in ends:
                ends.append(name)
        row.messages += 1
        row.bytes += entry.bytes
    return list(rows.values())


def _results(audit: Audit) -> list[Disclosed]:
    """The end of a deployed job, which a rehearsal in one process does not send: each party's part of the result."""
    if not audit.delivered:
        return []
    what = "which of its own columns were kept, with what the method's result tells of them"
    ends, told = [COORDINATOR], list(audit.delivered)
    total = sum(audit.delivered.values())
    return [Disclosed("keep_result", what, "aggregate", True, False, ends, told, len(told), total)]


def stored_verdicts(audit: Audit, table: Table) -> list[StoredVerdict]:
    """What the site keeps of an audit of its own: of each job that would be put to it, all with the worst figures."""
    told = [audit.job.selector().announcement(), *audit.beside]
    found = [_stored(audit, table, method, parameters) for method, parameters in told]
    return list({each.file_name: each for each in found}.values())


def _stored(audit: Audit, table: Table, method: str, parameters: Mapping[str, object]) -> StoredVerdict:
    kind = Fingerprint.of(table)
    complete = audit.verdict.outcome != INCOMPLETE and not audit.broken and all(
        line.status != "none yet" for line in audit.coverage
    )  # fmt: skip
    return StoredVerdict(
        str(audit.site.party), audit.site.holds_label, method, parameters_hash(method, parameters), software_version(),
        kind.schema, kind.rows, datetime.now(timezone.utc).isoformat(timespec="seconds"), audit.verdict.outcome,
        complete, audit.verdict.label_auc, audit.verdict.column_r2,
    )  # fmt: skip
