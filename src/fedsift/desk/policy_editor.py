"""Change a site's rules: only ``[policy]``, only what can be read again, with a look at what it would have refused.

Where the data lie, who the peers and approvers are and which modules are loaded is not changed here: whoever got hold
of the desk's session must not be able to name another file or to have code imported. Those are edited in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsift.core.files import write_atomic
from fedsift.desk.past import Refusal
from fedsift.errors import FedsiftError, JobError
from fedsift.jobs.text import Source, validated
from fedsift.site.policy import Policy
from fedsift.site.settings import PartyFile, checked_party

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_TEXT = 60_000


@dataclass(frozen=True)
class Proposal:
    """A new text of party.toml: what is wrong with it, else which earlier jobs its rules would have refused."""

    text: str
    problem: str
    refused: tuple[Refusal, ...]
    changed: tuple[tuple[str, str, str], ...]  # rule, as it is, as it would be


#: Which past jobs rules would have refused (``Office.refused_by``).
Judge = Callable[[Policy], list[Refusal]]


def propose(path: Path, text: str, judge: Judge) -> Proposal:
    """Judge a text; nothing is written and nothing is imported."""
    text = text.replace("\r\n", "\n")
    try:
        before, after = _read(path, path.read_text(encoding="utf-8-sig")), _read(path, text)
        _check_rest(before, after)
        checked_party(Source(path, text, tomllib.loads(text)))
    except (FedsiftError, OSError) as error:
        return Proposal(text, str(error), (), ())
    names = [name for name in Policy.model_fields if getattr(before.policy, name) != getattr(after.policy, name)]
    changed = [(name, repr(getattr(before.policy, name)), repr(getattr(after.policy, name))) for name in names]
    return Proposal(text, "", tuple(judge(after.policy)), tuple(changed))


def save(path: Path, text: str, judge: Judge) -> Proposal:
    """The same, and write it where nothing is wrong; the file as it was stays beside it."""
    judged = propose(path, text, judge)
    if not judged.problem:
        write_atomic(path.with_name(f"{path.name}.before"), path.read_bytes())
        write_atomic(path, judged.text)
    return judged


def _read(path: Path, text: str) -> PartyFile:
    if len(text) > MAX_TEXT:
        raise JobError("the text is too long")
    try:
        return validated(Source(path, text, tomllib.loads(text)), PartyFile)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"this is no TOML: {error}") from None


def _check_rest(before: PartyFile, after: PartyFile) -> None:
    for table in ("party", "peers", "approvers"):
        if getattr(before, table) != getattr(after, table):
            raise JobError(f"the desk changes [policy] alone; edit [{table}] in the file")
    if before.policy.plugins != after.policy.plugins:
        raise JobError("the desk does not change plugins; edit the file")
