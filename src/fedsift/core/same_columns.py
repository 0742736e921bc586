"""Whether rows of another federation have the columns, in the order, that something was fitted on.

Columns travel by position. Between machines a site stays the same; in one process somebody may bring a table whose
columns stand in another order, and position 0 would be another column in silence. What is kept of a name is a digest:
it is written into models, and names may be private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from fedsift.core.federation import Federation
from fedsift.errors import DataError

Digests = dict[str, list[str]]


def columns_here(fed: Federation) -> Digests:
    """A digest of each column's name, by party, of parties that are simulated in this process; none of others."""
    found = {}
    for name, site in fed.simulated.items():
        if name in fed.parties and fed._view in site.views:
            chosen = site.views[fed._view][1]
            found[name] = [_digest(column) for column in (site.table.columns if chosen is None else chosen)]
    return found


def same_columns(
    fitted: Mapping[str, Sequence[str]], fed: Federation, kept: Mapping[str, list[int]]
) -> dict[str, list[int]]:
    """Where the columns ``kept`` (positions, by party) of what was fitted stand in this federation."""
    here, found = columns_here(fed), dict(kept)
    for party, places in kept.items():
        if party in here and party in fitted and here[party] != list(fitted[party]):
            try:
                found[party] = [here[party].index(fitted[party][place]) for place in places]
            except ValueError:
                raise DataError(f"party {party!r}: a column that is needed is not in this table") from None
    return found


def with_columns_of(fitted: Mapping[str, Sequence[str]], fed: Federation) -> Federation:
    """The federation with each party's columns as where something was fitted: the same ones in the same order."""
    here = columns_here(fed)
    if all(columns == list(fitted.get(party, columns)) for party, columns in here.items()):
        return fed
    every = {party: list(range(len(fitted.get(party, columns)))) for party, columns in here.items()}
    return fed.view(columns=same_columns(fitted, fed, every))


def place_of(fed: Federation, narrower: Federation) -> dict[str, list[int | None]]:
    """Where each of a federation's columns stands in a view of it, by party; ``None`` where it is left out."""
    there = columns_here(narrower)
    found: dict[str, list[int | None]] = {name: list(range(count)) for name, count in fed.n_columns.items()}
    for party, columns in columns_here(fed).items():
        known = {digest: place for place, digest in enumerate(there[party])} if party in there else None
        if known is not None:
            found[party] = [known.get(digest) for digest in columns]
    return found


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
