"""The whole package, loaded when something of it is needed that stands to the right.

``import fedsift`` loads nothing by itself. Whoever looks an operation up, or asks for what a part to the right hands to
one to the left (alignment to federations, reports to selectors), has all of it loaded first.
"""

from __future__ import annotations

import importlib

WHOLE = "fedsift._public"


def load_whole() -> None:
    """Import every method, model and operation of fedsift; quick the second time."""
    importlib.import_module(WHOLE)
