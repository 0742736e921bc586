"""How our docstrings read for the site: under "Parameters" a colon is followed by words, not by a type.

The numpy style that mkdocstrings knows has ``name : type`` and the words below it. Types stand in our signatures, so
``name : words`` is what a reader of the source sees; here each such line becomes a name with the words below it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^(\s*)(\w+(?:, \w+)*) : (.*)$")


class Words(griffe.Extension):
    """Rewrites docstrings when a package is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each class, function and module."""
        if obj.docstring is not None:
            obj.docstring.value = worded(obj.docstring.value)


def worded(text: str) -> str:
    """The docstring with the words of each parameter below its name."""
    head, rule, rest = text.partition("Parameters\n----------\n")
    if not rule:
        return text
    lines = []
    for line in rest.split("\n"):
        entry = _ENTRY.match(line)
        lines += [f"{entry[1]}{entry[2]}", f"{entry[1]}    {entry[3]}"] if entry else [line]
    return head + rule + "\n".join(lines)
