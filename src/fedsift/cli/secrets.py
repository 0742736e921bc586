"""``fedsift party fingerprint`` and ``fedsift party secrets``: what the other sites know this one by, and its care.

Both work at that organisation alone and send nothing. No secret is ever printed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.cli.party import PartyOption, Verbose
from fedsift.errors import ParameterError
from fedsift.site import secrets as kept
from fedsift.site.secrets import NAMES, Secrets
from fedsift.site.settings import load_party

PASSPHRASE = "FEDSIFT_PASSPHRASE"
_MEANS = {
    "signing": "the other sites know this one by it; they pin the new fingerprint before the next job",
    "draws": "folds and first weights come from it; earlier runs here cannot be repeated any more",
    "journal": "ids in the journal are hashed under it; what was released before cannot be compared any more",
}


def fingerprint(party: PartyOption = Path("party.toml"), verbose: Verbose = False) -> None:
    """Show the line that the other parties write into [peers] of their party.toml.

    Send it as you like, then read the words to each other over the telephone: nobody in between can have the same.
    """
    settings, _ = load_party(party)
    shown = Secrets.open(_folder(party)).signing_key.fingerprint
    console.show(f"# in words: {shown.words}\n{json.dumps(settings.party.name)} = {json.dumps(shown.hex)}")


def secrets(
    action: Annotated[Literal["show", "backup", "rotate", "recover"], typer.Argument(help="What to do.")],
    what: Annotated[
        str | None, typer.Argument(help="backup, recover: a file. rotate: signing, draws or journal.")
    ] = None,
    party: PartyOption = Path("party.toml"),
    force: Annotated[bool, typer.Option("--force", help="recover: replace secrets that are there.")] = False,
    verbose: Verbose = False,
) -> None:
    """Look after this site's secrets: what there is, a copy for the safe, a new one, the copy back.

    A backup is encrypted under a passphrase, which is asked for (or read from FEDSIFT_PASSPHRASE).
    """
    folder = _folder(party)
    if action == "show":
        _show(folder)
        return
    if what is None:
        wanted = "which secret: signing, draws or journal" if action == "rotate" else "a file"
        raise ParameterError(f"fedsift party secrets {action} needs {wanted}")
    if action == "rotate":
        kept.rotate(folder, what)
        console.show(f"{what} is new; the old one is kept beside it. {_MEANS[what]}")
    elif action == "backup":
        kept.backup(folder, Path(what), _passphrase(confirm=True))
        console.show(f"written to {what}: keep it away from this machine, and the passphrase away from it")
    else:
        kept.recover(folder, Path(what), _passphrase(confirm=False), replace=force)
        _show(folder)


def _folder(party: Path) -> Path:
    settings, source = load_party(party)
    return source.path.parent / settings.party.secrets


def _show(folder: Path) -> None:
    found = Secrets.open(folder)
    console.table(
        [[name, _MEANS[name]] for name in NAMES], ["secret", "if it changes"], title=f"{folder}: private, whole"
    )
    console.show(f"\nfingerprint: {found.signing_key.fingerprint.hex}")


def _passphrase(confirm: bool) -> str:
    given = os.environ.get(PASSPHRASE)
    return given if given is not None else str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=confirm))
