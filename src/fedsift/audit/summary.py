"""An audit as plain data: what ``audit.json`` holds, and what the report, the annex and the evidence are made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from fedsift.audit.registry import load_attacks
from fedsift.audit.rehearsal import Audit
from fedsift.audit.verdict import INCOMPLETE, Judged
from fedsift.core.files import plain
from fedsift.core.ledger import COORDINATOR, FORMS, Ledger
from fedsift.core.table import Table
from fedsift.report.exposures import FORMAT, VERSION
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


def audit_record(audit: Audit, table: Table | None, policy: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an audit; ``table`` is the site's own (none where all parties' files are here)."""
    settings, site = audit.job.settings.federation, audit.site
    return dict(
        plain(
            {
                "format": FORMAT,
                "version": VERSION,
                "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "software": software_version(),
                "job": audit.job.path.name,
                "method": audit.job.method,
                "parameters": audit.job.selector().get_params(deep=False),
                "lowered": audit.lowered,
                "leaks": audit.job.selector().leaks,
                "partition": settings.partition,
                "names": settings.names,
                "site": {"party": site.party, "holds_label": site.holds_label, "stand_ins": audit.cast.stand_ins},
                "table": None if table is None else vars(Fingerprint.of(table)),
                "active": audit.cast.active,
                "parties": {name: each.n_columns for name, each in audit.cast.tables.items()},
                "rows": audit.rows,
                "fresh_rows": audit.cast.n_fresh,
                "seconds": round(audit.seconds, 1),
                "limits": {"max_label_auc": audit.limits.label_auc, "max_column_r2": audit.limits.column_r2},
                "policy": policy,
                "exposures": [_line(judged) for judged in audit.judged],
                "broken": audit.broken,
                "skipped": list(audit.skipped),
                "coverage": [line.as_dict() for line in audit.coverage],
                "disclosures": [*disclosures(audit.ledger), *_results(audit)],
                "forms": FORMS,
                "notes": list(audit.ledger.notes),
                "verdict": audit.verdict.as_dict(),
                "caveats": caveats(audit.ledger),
            }
        )
    )


def _line(judged: Judged) -> dict[str, Any]:
    attack = load_attacks()[judged.exposure.attack]
    how = (attack.function.__doc__ or attack.name).strip().partition("\n")[0]
    how = f"{how} In the {judged.exposure.stage} of the model." if judged.exposure.stage else how
    return {**judged.as_dict(), "how": how, "reads": list(attack.reads)}


def disclosures(ledger: Ledger) -> list[dict[str, Any]]:
    """What leaves each party for whom and what a party learns, one record a kind; instructions left out."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for entry in ledger.entries:
        learns = entry.sender == COORDINATOR and not entry.about.startswith("request: ")
        if entry.sender == COORDINATOR and not learns:
            continue  # what a request carries from other parties stands where these sent it
        if entry.form == "control" and not learns:
            continue
        key = (entry.form, entry.about, entry.operation)
        row = rows.setdefault(
            key, {"operation": entry.operation, "what": entry.about, "form": entry.form, "learned": learns,
                  "relayed": entry.relayed, "from": [], "to": [], "messages": 0, "bytes": 0},
        )  # fmt: skip
        for end, name in (("from", entry.sender), ("to", entry.receiver)):
            if name not in row[end]:
                row[end].append(name)
        row["messages"] += 1
        row["bytes"] += entry.bytes
    return list(rows.values())


def _results(audit: Audit) -> list[dict[str, Any]]:
    """The end of a deployed job, which a rehearsal in one process does not send: each party's part of the result."""
    if not audit.delivered:
        return []
    what = "which of its own columns were kept, with what the method's result tells of them"
    return [{"operation": "keep_result", "what": what, "form": "aggregate", "learned": True, "relayed": False,
             "from": [COORDINATOR], "to": list(audit.delivered), "messages": len(audit.delivered),
             "bytes": sum(audit.delivered.values())}]  # fmt: skip


def stored_verdicts(audit: Audit, table: Table) -> list[StoredVerdict]:
    """What the site keeps of an audit of its own: of each job that would be put to it, all with the worst figures."""
    told = [audit.job.selector().announcement(), *audit.beside]
    found = [_stored(audit, table, method, parameters) for method, parameters in told]
    return list({each.file_name: each for each in found}.values())


def _stored(audit: Audit, table: Table, method: str, parameters: dict[str, Any]) -> StoredVerdict:
    kind = Fingerprint.of(table)
    complete = audit.verdict.outcome != INCOMPLETE and not audit.broken and all(
        line.status != "none yet" for line in audit.coverage
    )  # fmt: skip
    return StoredVerdict(
        str(audit.site.party), audit.site.holds_label, method, parameters_hash(method, parameters), software_version(),
        kind.schema, kind.rows, datetime.now(timezone.utc).isoformat(timespec="seconds"), audit.verdict.outcome,
        complete, audit.verdict.label_auc, audit.verdict.column_r2,
    )  # fmt: skip
