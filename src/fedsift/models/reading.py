"""The label holder reads the score of each row: each partner lets it, once a session, and writes it into its journal.

A score is one number a row; with one partner, of that partner's columns. That is what a model is trained for, so a
prediction goes to the label holder by purpose. But every further model of the same rows is a further equation about the
partner's columns: a site counts how often scores of a row were read, over all jobs, and refuses beyond
``max_row_scores`` of its policy. Every model's step at a partner that lets scores be read demands it
(``ScoresOpened``): linear and additive models, boosted trees in all forms, networks on shares, HyFDCA. A measure needs
no score of a row: see ``unseen.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsift.core.federation import Federation
from fedsift.core.ledger import row_by_row
from fedsift.core.operation import operation
from fedsift.core.party import Party


@dataclass(frozen=True)
class ScoresOpened:
    """That this party has let the label holder read scores of these rows, in this session."""


@operation(
    "model.open_scores",
    discloses="control",
    about="acknowledgement",
    opened="pseudonymous: the score of each row (with one partner: of that partner's columns)",
    opened_by="active",
    concerns="own columns",
    times="1 a session",
    releases=row_by_row,
)
def open_scores(party: Party) -> None:
    party.keep(ScoresOpened())


OPERATIONS = (open_scores,)


def let_read(run: Federation) -> None:
    """Ask the partners, before the label holder reads scores; horizontal parties score their own rows."""
    if run.partition != "horizontal" and run.passive:
        run.ask(open_scores, to=run.passive)
