"""Parties that all run on one machine, as real sites: each gets its secrets and the others' fingerprints.

Between machines people do this (``fedsift party fingerprint``, ``[peers]`` in party.toml). Whoever plays all parties
holds all data anyway, so the draws of these sites follow from their tables, as in one process
(``core/identity.py``): the same job then gives the same answer here and there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fedsift.core.identity import SECRET_BYTES, simulated_secret
from fedsift.errors import FedsiftError
from fedsift.jobs.job_file import read_table
from fedsift.site.secrets import FOLDER, NAMES, Secrets, make
from fedsift.site.settings import load_party


def introduce_parties(files: Mapping[str, Path]) -> None:
    """Make the secrets beside each party.toml, and write everybody's fingerprint into those that name no peers."""
    fingerprints = {}
    for name, file in files.items():
        folder = file.parent / FOLDER
        values = {} if folder.exists() else {each: secrets.token_bytes(SECRET_BYTES) for each in NAMES}
        with suppress(FedsiftError):  # a file that cannot be read: the site itself says so, when the job comes
            settings, source = load_party(file)
            values["draws"] = simulated_secret(name, read_table(source, ("party",), settings.party, name))
        make(folder, values, replace=True)
        fingerprints[name] = Secrets.open(folder).signing_key.fingerprint
    for file in files.values():
        text = file.read_text(encoding="utf-8")
        if "[peers]" not in text:
            peers = [f"{json.dumps(peer)} = {json.dumps(told.hex)}" for peer, told in fingerprints.items()]
            file.write_text("\n".join([text, "[peers]", *peers]) + "\n", encoding="utf-8")
