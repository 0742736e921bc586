"""``write_report``: from a fitted selector to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsift.core.files import write_atomic
from fedsift.core.ledger import Ledger
from fedsift.errors import ParameterError
from fedsift.evaluate.result import Evaluation
from fedsift.report.html import render_html
from fedsift.report.record import FORMAT, VERSION, Json
from fedsift.report.summary import summarize
from fedsift.report.text import render_text
from fedsift.select.base import Selector


def write_report(
    selector: Selector | Mapping[str, Json],
    path: str | Path | None = None,
    *,
    party: str | None = None,
    evaluation: Evaluation | None = None,
    ledger: Ledger | None = None,
) -> str | Path:
    """Write a report: HTML when the path ends in .html or .htm, text for .txt; without a path, return the text.

    Parameters
    ----------
    selector : a fitted selector, or the record that ``summarize`` made of one (as a run folder keeps it).
    party : only what this party may keep: its own columns, scores and messages.
    evaluation : what ``fs.evaluate`` gave, to show how good the choice is beside its nulls.
    ledger : a longer ledger than the selector's own, e.g. with the alignment in it.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> print(fs.write_report(fs.GiniFilter(n_features=1).fit(fed)).splitlines()[0])
    Keep 1 of 4 columns of 2 parties
    """
    if isinstance(selector, Mapping):
        record = checked(selector)
        if party != record["party"] or evaluation is not None or ledger is not None:
            raise ParameterError("a record is rendered as it is: give party, evaluation and ledger to summarize()")
    else:
        if not hasattr(selector, "selection_"):
            raise ParameterError(f"{type(selector).__name__} is not fitted: call fit(fed) before a report")
        record = summarize(selector, party=party, evaluation=evaluation, ledger=ledger)
    if path is None:
        return render_text(record)
    return write_atomic(path, render_html(record) if is_page(path) else render_text(record) + "\n")


def is_page(path: str | Path) -> bool:
    """HTML or text, by the path's ending. Any other is a slip, perhaps the name of a table."""
    ending = Path(path).suffix.lower()
    if ending not in (".html", ".htm", ".txt"):
        raise ParameterError(f"{path} must end in .html (a page) or .txt (text)")
    return ending != ".txt"


def checked(record: Mapping[str, Json]) -> Mapping[str, Json]:
    """A record that this version can render."""
    if record.get("format") != FORMAT:
        raise ParameterError("this is no report record; summarize(selector) makes one")
    if record.get("version") != VERSION:
        raise ParameterError(f"the record has version {record.get('version')}; this fedsift renders version {VERSION}")
    return record
