"""``fedsift party desk`` and ``fedsift desk``: pages in this machine's browser, for who answers and for who asks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.cli.approval import ByOption, KeyOption
from fedsift.cli.deploy import KitOption
from fedsift.cli.party import PartyOption, Verbose
from fedsift.desk.office import Office, Person
from fedsift.desk.serve import check_installed, run
from fedsift.errors import ParameterError

PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="A port of this machine; 0 is a free one.")]


def party_desk(
    party: PartyOption = Path("party.toml"), by: ByOption = None, key: KeyOption = None, port: PortOption = 0,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Show this site's jobs, journal and rules as pages: decide on what waits, stop what runs.

    The pages are for this machine alone (127.0.0.1). The link that is printed is good once, for one browser.
    """
    check_installed()
    from fedsift.desk.site_desk import SiteDesk

    office = Office(party)  # what is wrong with the file is told now
    run(SiteDesk(office.path, Person.of(by, key)).app(), port, _say)


def desk(
    folder: Annotated[Path, typer.Argument(help="The folder with your job files.")] = Path(),
    kit: KitOption = None,
    port: PortOption = 0,
    verbose: Verbose = False,
) -> None:
    """Show your job files, runs and results as pages: start a job, watch it, stop it, read its report.

    The pages are for this machine alone (127.0.0.1). The link that is printed is good once, for one browser.
    """
    check_installed()
    from fedsift.desk.job_desk import JobDesk

    if not folder.is_dir():
        raise ParameterError(f"there is no folder {str(folder)!r}")
    desk = JobDesk(folder.resolve(), kit)
    try:
        run(desk.app(), port, _say)
    finally:
        desk.close()


def _say(link: str) -> None:
    console.show(f"open this link in the browser of this machine (good once; Ctrl-C ends the desk):\n{link}")
