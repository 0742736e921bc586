"""``fedsift party journal``: what this site has let out, over all jobs, and what is left of its budgets.

Works at that organisation alone and sends nothing. An output checker reads it here, or as JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedsift.cli import console
from fedsift.cli.party import PartyOption, Verbose
from fedsift.crypto.dp import rho_to_epsilon
from fedsift.site.journal import Journal, Line, Place
from fedsift.site.journal_rules import ANSWER, DELTA, REFUSAL, SHORT, VOID
from fedsift.site.policy import Policy
from fedsift.site.secrets import Secrets
from fedsift.site.site import load_party

_SHOWN = 40  # lines, the newest


def journal(
    party: PartyOption = Path("party.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="Every line as JSON, for an output checker.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin a new journal; the old file is kept, its budgets are forgotten.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what this site has let out, about how many rows, to whom, and what is left."""
    settings, source = load_party(party)
    secrets = Secrets.open(source.path.parent / settings.party.secrets)
    place = Place.of(source.path.parent, secrets.folder, settings.party.name)
    if restart:
        Journal.restart(place, secrets.journal_key).close()
        console.show(f"{place.file}: a new journal has begun. What was let out before is not counted any more.")
        return
    kept = Journal.open(place, secrets.journal_key)
    facts = _facts(kept, settings.party.name, settings.policy)
    kept.close()
    if as_json:
        console.show(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        _show(facts, place.file)


def _facts(kept: Journal, party: str, policy: Policy) -> dict[str, Any]:
    lines = kept.lines()
    rho = kept.total_rho()
    return {
        "party": party,
        "known_rows": len(kept.rows),
        "rows_told_about": int((kept.atoms.codes > 0).sum()),
        "smallest_atom": kept.atoms.smallest(np.arange(len(kept.atoms.bits)) > 0, kept.persons),
        "min_rows": policy.min_rows,
        "most_bits_a_row": float(kept.atoms.bits.max()) + _refusals(kept, lines),
        "max_bits": policy.max_bits,
        "rho": rho,
        "epsilon": rho_to_epsilon(rho, DELTA) if rho > 0 else 0.0,
        "total_epsilon": policy.total_epsilon,
        "lines": [_line(line) for line in lines],
    }


def _refusals(kept: Journal, lines: list[Line]) -> float:
    return sum(line.form == REFUSAL for line in lines) / max(1, len(kept.rows))


def _line(line: Line) -> dict[str, Any]:
    told = asdict(line)
    return {**told, "row_set": line.row_set.hex(), "digest": line.digest.hex()}


def _show(facts: dict[str, Any], file: Path) -> None:
    lines = facts["lines"]
    shown = [
        [
            line["at"][:16].replace("T", " "), line["job"][:SHORT], _what(line), line["readers"],
            f"{line['rows']:,}", f"{line['statistics']:,}", f"{line['counted']:.1f}", f"{line['epsilon']:g}",
        ]
        for line in lines[-_SHOWN:]
    ]  # fmt: skip
    heads = ["at (UTC)", "job", "what", "who can read it", "rows", "numbers", "bits that count", "epsilon"]
    console.table(shown, heads, right=heads[4:], title=f"{file.name}: {len(lines):,} lines")
    if len(lines) > _SHOWN:
        console.show(f"... and {len(lines) - _SHOWN:,} earlier ones (--json shows all)")
    smallest = facts["smallest_atom"]
    least = "nothing exact was let out yet" if smallest is None else f"the smallest has {smallest:,} persons"
    console.show(f"\natoms: {least}; min_rows = {facts['min_rows']}")
    console.show(f"bits a row: at most {facts['most_bits_a_row']:.4f} so far; max_bits = {facts['max_bits']}")
    console.show(
        f"noise: epsilon {facts['epsilon']:.2f} so far at delta {DELTA:g}; total_epsilon = {facts['total_epsilon']:g}"
    )


def _what(line: dict[str, Any]) -> str:
    if line["operation"] == ANSWER:
        return f"{ANSWER} of {line['method']}"
    if line["note"].endswith(VOID):
        return f"{line['operation']} (noise, void)"
    return f"refused: {line['operation']}" if line["form"] == REFUSAL else str(line["operation"])
