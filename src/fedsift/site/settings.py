"""What ``party.toml`` says: the data of one organisation, its rules, its peers, who approves jobs.

A mistake is named with its line, its key and what was expected. Nothing that comes from outside changes what stands in
this file; ``site.py`` makes of it the end that a transport asks.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from fedsift.core.identity import Fingerprint
from fedsift.core.operation import register_plugin
from fedsift.core.table import Table
from fedsift.errors import ParameterError
from fedsift.evaluate import announced
from fedsift.jobs.job_file import PartySection, check_file, check_name, read_table
from fedsift.jobs.text import Section, Source, nearest, validated
from fedsift.site import verdict
from fedsift.site.approval import Approvals
from fedsift.site.policy import EXCEPTIONS, Policy
from fedsift.site.secrets import FOLDER


class PartyTable(PartySection):
    """The table ``[party]``: who this is, and the data as in a job file."""

    name: str = Field(min_length=1, description='this party\'s name in job files, such as "bank"')
    file: str = Field(min_length=1, description='a file name in quotes, such as "bank.csv"')
    person: str | None = Field(
        default=None, min_length=1, description='the column that says whose row it is, such as "patient_id"'
    )
    workers: int | None = Field(default=None, ge=1, description="how many threads it computes on at most, 1 or more")
    engine: str | None = Field(
        default=None,
        pattern="^(tcp|tls)://[^/ ]+$",
        description='the scheduler of a Dask cluster of its own, such as "tls://10.0.0.5:8786"',
    )
    pad_rows: int = Field(
        default=1, ge=1, description="how many rows there are is told as a multiple of this, a whole number, 1 or more"
    )
    keep_results: int = Field(
        default=366, ge=1, description="days after which the folder of a job that has ended is removed, 1 or more"
    )
    secrets: str = Field(default=FOLDER, min_length=1, description='a folder name in quotes, such as "secrets"')


class PartyFile(Section):
    """The whole of ``party.toml``."""

    party: PartyTable = Field(description='a table [party] with name = "..." and file = "..."')
    policy: Policy = Field(default_factory=Policy, description="a table [policy]")
    peers: dict[str, str] = Field(
        default={}, description='a table [peers] with each other party\'s fingerprint, such as shop = "3f2a ..."'
    )

    approvers: dict[str, str] = Field(
        default={},
        description='a table [approvers] with the fingerprint of each person\'s key, such as ann = "3f2a ..."',
    )

    def approvals(self, folder: Path, public: bytes, table: verdict.Fingerprint | None = None) -> Approvals:
        """What waits for the people of this site; ``folder`` is that of party.toml, ``public`` the site's own key."""
        name, known = self.party.name, {who: Fingerprint.read(told) for who, told in self.approvers.items()}
        place, audits = Approvals.place(folder, name), folder / verdict.FOLDER
        return Approvals(place, name, self.policy, public, known, table, audits)

    def pins(self) -> dict[str, Fingerprint] | None:
        """Whom this site knows; ``None`` where the file says nothing."""
        return {name: Fingerprint.read(told) for name, told in self.peers.items()} or None


def load_party(path: str | Path) -> tuple[PartyFile, Source]:
    """Read and check a party file; a mistake is named with its line, its key and what was expected."""
    source = Source.read(Path(path), "party")
    return checked_party(source), source


def checked_party(source: Source) -> PartyFile:
    settings = validated(source, PartyFile)
    check_name(source, ("party", "name"), settings.party.name)
    check_file(source, ("party", "file"), settings.party.file)
    _check_fingerprints(source, settings)
    _load_plugins(source, settings.policy)
    methods = [] if settings.policy.methods == "any" else settings.policy.methods
    unknown = next((name for name in methods if announced.find_job(name) is None), None)
    if unknown is not None:
        near = nearest(unknown, announced.job_names())
        raise source.error(("policy", "methods"), f"there is no method {unknown!r}{near}")
    for name in settings.policy.exceptions:
        if name not in EXCEPTIONS and "." not in name:
            raise source.error(
                ("policy", "exceptions"), f"there is no exception {name!r}{nearest(name, list(EXCEPTIONS))}"
            )
    return settings


def _check_fingerprints(source: Source, settings: PartyFile) -> None:
    for table, known in (("peers", settings.peers), ("approvers", settings.approvers)):
        for name, told in known.items():
            check_name(source, (table, name), name)
            try:
                Fingerprint.read(told)
            except ParameterError as error:
                raise source.error((table, name), str(error)) from None
    keys = [Fingerprint.read(told) for told in settings.approvers.values()]
    if len(set(keys)) < len(keys):
        raise source.error(("approvers",), "two persons have the same key: each needs one of their own")


def _load_plugins(source: Source, policy: Policy) -> None:
    """Import the modules that this site's own file names; their methods and operations are known from then on."""
    for name in policy.plugins:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise source.error(("policy", "plugins"), f"the module {name!r} cannot be imported: {error}") from None
        register_plugin(name)


def read_party(source: Source, section: PartyTable) -> tuple[Table, np.ndarray | None]:
    """The table that takes part, and whose row each one is, if the file says so; that column takes no part itself."""
    key, person = ("party",), section.person
    table = read_table(source, key, section, section.name)
    if person is None:
        return table, None
    if person in (section.id, section.label, *(section.columns or ())):
        raise source.error(("party", "person"), "this column says whose row it is: it can be nothing else")
    owners = read_table(source, key, section.model_copy(update={"columns": [person]}), section.name)
    values = owners.to_polars()[person].cast(pl.String)
    if values.null_count():
        raise source.error(("party", "person"), f"the column {person!r} has rows without a value")
    return table.select([column for column in table.columns if column != person]), values.to_numpy()
