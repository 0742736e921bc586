"""A federation as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from fedsift.core.checks import TableSize


def federation_html(
    parties: Sequence[str], active: str | None, sizes: Mapping[str, TableSize], messages: int, partition: str
) -> str:
    """A table of the parties, from what is known already."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{sizes[name].rows if name in sizes else ''}</td>"
        f"<td>{sizes[name].columns if name in sizes else ''}</td><td>{'label' if name == active else ''}</td></tr>"
        for name in parties
    )
    head = f"<p><b>Federation</b> of {len(parties)} {partition} parties; {messages:,} messages so far</p>"
    return f"{head}<table><tr><th>party</th><th>rows</th><th>columns</th><th></th></tr>{rows}</table>"
