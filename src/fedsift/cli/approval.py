"""``fedsift party pending | approve | refuse | stop | approver``: jobs that wait for people, and what these decide.

All of it works at that organisation alone. Nothing is sent: the coordinator asks again, and the site answers then.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsift.cli import console
from fedsift.cli.party import PartyOption, Verbose
from fedsift.core.identity import SigningKey
from fedsift.desk.office import Office, Person
from fedsift.site.approval import SHORT, WAITING, Standing
from fedsift.site.secrets import write_key

RequestArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The request, by 12 or more of its digits.", show_default=False)
]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides; else this account's user.")]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Your own key, where party.toml has [approvers].")
]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, kept with the decision.")]


def pending(
    party: PartyOption = Path("party.toml"),
    every: Annotated[bool, typer.Option("--all", help="Also those that were decided on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
    verbose: Verbose = False,
) -> None:
    """List the jobs that wait for somebody here to approve or refuse them."""
    office = Office(party)
    shown = [each for each in office.approvals.standings() if every or each.state == WAITING]
    if as_json:
        console.show(json.dumps([_facts(office, each) for each in shown], indent=2, ensure_ascii=False))
        return
    rows = [
        [each.request.id[:SHORT], _jobs(each), ", ".join(each.request.main.parties), each.state, each.missing,
         each.until[:16].replace("T", " ")]
        for each in shown
    ]  # fmt: skip
    heads = ["job", "what", "parties", "state", "persons to come", "until (UTC)"]
    console.table(rows, heads, right=["persons to come"], title=f"{office.name}: {len(rows)} jobs")
    console.show(
        '\nfedsift party approve JOB, fedsift party refuse JOB --why "..."; fedsift party desk shows what each would '
        "give away"
    )


def approve(
    job: RequestArgument, party: PartyOption = Path("party.toml"), by: ByOption = None, key: KeyOption = None,
    why: WhyOption = "", verbose: Verbose = False,
) -> None:  # fmt: skip
    """Let a job that waits here begin. The approval is signed with this site's key and kept with its journal."""
    office = Office(party)
    decision = office.decide(job, "approved", Person.of(by, key), why=why)
    missing = office.approvals.find(job).missing
    more = f"; {missing} more has to approve it" if missing else ""
    console.show(f"{decision.request[:SHORT]}: approved by {decision.by} until {decision.until[:10]}{more}")
    console.show(f"audit: {decision.audit}")


def refuse(
    job: RequestArgument, party: PartyOption = Path("party.toml"), by: ByOption = None, key: KeyOption = None,
    why: WhyOption = "",
    send: Annotated[bool, typer.Option("--send", help="Whoever submitted it is told the reason, too.")] = False,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Refuse a job that waits here, or take an approval back before the job begins."""
    decision = Office(party).decide(job, "refused", Person.of(by, key), why=why, sent=send)
    told = "the reason is sent" if send and why else "the reason stays here"
    console.show(f"{decision.request[:SHORT]}: refused by {decision.by}; {told}")


def stop(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The name of its folder in results/.", show_default=False)],
    party: PartyOption = Path("party.toml"), by: ByOption = None, key: KeyOption = None,
    why: WhyOption = "", verbose: Verbose = False,
) -> None:  # fmt: skip
    """Stop a job that runs here: from now on nothing of it leaves, and its approval is taken back."""
    stopped = Office(party).stop(job, Person.of(by, key), why=why)
    console.show(f"{stopped.id}: {stopped.why}")


def approver(
    name: Annotated[str, typer.Argument(help="The person's name.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the key goes: a place that is this person's own.")],
    verbose: Verbose = False,
) -> None:
    """Make a key for somebody who approves jobs, and show the line for [approvers] in party.toml."""
    made = SigningKey(write_key(out))
    console.show(f"# under [approvers]:\n{json.dumps(name)} = {json.dumps(made.fingerprint.hex)}")


def _jobs(standing: Standing) -> str:
    return ", ".join(job.method for job in standing.request.jobs)


def _facts(office: Office, standing: Standing) -> dict[str, Any]:
    request = standing.request
    return {
        "id": request.id,
        "state": standing.state,
        "until": standing.until,
        "asked": request.asked,
        "missing": standing.missing,
        "audit": office.approvals.audit_of(request),
        "jobs": [{"hash": job.hash.hex(), **asdict(job)} for job in request.jobs],
        "decisions": [asdict(decision) for decision in standing.decisions],
    }
