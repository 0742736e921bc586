"""A federation as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence


def federation_html(
    parties: Sequence[str], active: str | None, sizes: Mapping[str, Mapping[str, int]], messages: int, partition: str
) -> str:
    """A table of the parties, from what is known already."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{sizes.get(name, {}).get('rows', '')}</td>"
        f"<td>{sizes.get(name, {}).get('columns', '')}</td><td>{'label' if name == active else ''}</td></tr>"
        for name in parties
    )
    head = f"<p><b>Federation</b> of {len(parties)} {partition} parties; {messages:,} messages so far</p>"
    return f"{head}<table><tr><th>party</th><th>rows</th><th>columns</th><th></th></tr>{rows}</table>"
