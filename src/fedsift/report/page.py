"""The frame of a page: one file, nothing loaded from anywhere.

A content security policy in the page forbids every request, and allows the one inline script by its hash: even if a
piece of the page were not escaped, no other script would run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from fedsift.report.markup import Html, h, join
from fedsift.report.style import CSS, SCRIPT

_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'; img-src data:; form-action 'none'; base-uri 'none'"  # noqa: E501


def section(key: str, title: str, *children: object) -> Html:
    return h("section", h("h2", title), *children, id=key)


def page(title: str, head: object, sections: Sequence[tuple[str, str, Html]], foot: object = None) -> str:
    """A whole page from (key, name in the menu, section) triples."""
    menu = h("nav", [h("a", name, href=f"#{key}") for key, name, _ in sections], aria_label="Sections")
    top = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="referrer", content="no-referrer"),
        h("title", title),
        h("style", Html(CSS)),
    )
    body = h(
        "body", h("header", head), menu, h("main", [part for _, _, part in sections]),
        h("footer", foot), h("script", Html(SCRIPT)),
    )  # fmt: skip
    return join(Html("<!doctype html>\n"), h("html", top, body, lang="en"), "\n")
