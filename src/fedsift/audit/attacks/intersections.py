"""What an alignment tells beside the common rows: sizes of intersections, and ids that a party has only guessed.

- *padded lists*: a party learns which of its own ids all parties share. One that puts guesses into its own list, rows
  without a record, learns which of them are the others' customers. No cryptography prevents that: the size of a list
  stands in the job, and a list that is too long for a party's business is for people to refuse.
- *sizes*: the coordinator compares pseudonyms. Of three and more parties it learns how many rows each two share, which
  the answer (the rows that all share) does not say.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.verdict import SIZES
from fedsift.audit.views import Truth, View

_PSEUDONYM = 16
_GUESSED = "ids that it guessed, put into its own list as rows without a record"


def _padded(view: View) -> Measure:
    columns = view.columns
    if not view.requests("keep_shared") or not columns.shape[1]:
        return Measure("ids", 0.0, 0.0, 0.0, note="nothing to read: no alignment, or no columns of its own")
    empty = np.isnan(columns).all(axis=1)
    note = f"{int(empty.sum())} of {len(empty)} shared rows are guesses"
    return Measure("ids", float(empty.mean()), 0.0, 0.0, note=note)


@attack(reads=["keep_shared"], role="passive", target="ids", knows=_GUESSED, declared="in words")
def padded_list_of_party(view: View, truth: Truth) -> Measure:
    """Share of the shared rows whose ids the party had no record of: it has learnt that all others know them."""
    return _padded(view)


@attack(reads=["keep_shared"], role="active", target="ids", knows=_GUESSED, declared="in words")
def padded_list_of_holder(view: View, truth: Truth) -> Measure:
    """Share of the shared rows whose ids the label holder had no record of: all others know them."""
    return _padded(view)


@attack(reads=["blind_again", "keyed_ids"], role="coordinator", target="ids", knows="nothing more", declared="yes")
def pairwise_sizes(view: View, truth: Truth) -> Measure:
    """Share of the pairs of parties of which it reads how many rows they share; of two parties the answer says it."""
    lists = [{part[i : i + _PSEUDONYM] for i in range(0, len(part), _PSEUDONYM)} for part in _whole_lists(view)]
    pairs = list(combinations(lists, 2))
    if not pairs:
        return Measure(SIZES, 0.0, 0.0, 0.0, note="nothing to read: no lists of pseudonyms")
    common = len(set.intersection(*lists))
    more = sum(len(a & b) > common for a, b in pairs)
    sizes = ", ".join(str(len(a & b)) for a, b in pairs)
    # where a pair shares exactly the common rows, the answer has told it
    return Measure(SIZES, 1.0, 0.0, 1.0 - more / len(pairs), note=f"{sizes} rows by pairs, {common} by all")


def _whole_lists(view: View) -> list[bytes]:
    """The lists of pseudonyms, equal for equal ids: as parties send them, or after every key holder has raised them."""
    told = [*view.replies("blind_again"), *view.replies("keyed_ids")]
    lists = [message.content for message in told if isinstance(message.content, bytes)]
    return lists[-len(view.job.parties) :]
