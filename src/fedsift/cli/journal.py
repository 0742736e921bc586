"""``fedsift party journal``: what this site has let out, over all jobs, and what is left of its budgets.

Works at that organisation alone and sends nothing. An output checker reads it here, or as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.cli.party import PartyOption, Verbose
from fedsift.site.journal import Journal, Place
from fedsift.site.journal_facts import JournalFacts, what_of
from fedsift.site.journal_rules import DELTA, SHORT
from fedsift.site.secrets import Secrets
from fedsift.site.settings import load_party

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
    facts = JournalFacts.of(kept, settings.party.name, settings.policy)
    kept.close()
    if as_json:
        console.show(json.dumps(facts.plain(), indent=2, ensure_ascii=False))
    else:
        _show(facts, place.file)


def _show(facts: JournalFacts, file: Path) -> None:
    lines = facts.lines
    shown = [
        [
            line.at[:16].replace("T", " "), line.job[:SHORT], what_of(line), line.readers,
            f"{line.rows:,}", f"{line.statistics:,}", f"{line.counted:.1f}", f"{line.epsilon:g}",
        ]
        for line in lines[-_SHOWN:]
    ]  # fmt: skip
    heads = ["at (UTC)", "job", "what", "who can read it", "rows", "numbers", "bits that count", "epsilon"]
    console.table(shown, heads, right=heads[4:], title=f"{file.name}: {len(lines):,} lines")
    if len(lines) > _SHOWN:
        console.show(f"... and {len(lines) - _SHOWN:,} earlier ones (--json shows all)")
    smallest = facts.smallest_atom
    least = "nothing exact was let out yet" if smallest is None else f"the smallest has {smallest:,} persons"
    console.show(f"\natoms: {least}; min_rows = {facts.min_rows}")
    console.show(f"bits a row: at most {facts.most_bits_a_row:.4f} so far; max_bits = {facts.max_bits}")
    console.show(
        f"noise: epsilon {facts.epsilon:.2f} so far at delta {DELTA:g}; total_epsilon = {facts.total_epsilon:g}"
    )
    if facts.most_sides:
        console.show(
            f"sides of cuts: {facts.most_sides:.2f} for each bit of a row so far; max_sides = {facts.max_sides}"
        )
    if facts.predicted_alone:
        console.show(
            f"rows predicted alone or among few within a day: {facts.predicted_alone}; "
            f"few_rows_a_day = {facts.few_rows_a_day}"
        )
