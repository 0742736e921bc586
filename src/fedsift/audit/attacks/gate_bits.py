"""Labels from what a party hears of its own columns while a network trains on shares.

FedSDG draws by lot which columns take part in a block of batches, and tells a party when one of its columns leaves for
good. A column that stays longer helps more: over the training that is a score of each column, in the rough. The labels
under which these columns would score highest are found as from kept flags (``inversion.py``); the kept flags
themselves, the answer, are the baseline. (Drawn around the gates, the lots themselves told their order. Group lasso
told how many sixteenths of each column were left: 0.742 of Colon's labels. Now no party hears of them.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import Score, VarianceScore, cut, from_kept, invert_ranks, leading
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.scoring import (
    accuracy,
    auc,
    control_accuracy,
    nothing_to_read,
    own_rows_accuracy,
    standardise,
    up_to_names,
)
from fedsift.audit.views import Truth, View

_MOST_ROWS = 1000  # for the search by ranks


def heard_of_columns(view: View) -> np.ndarray | None:
    """For how many blocks each of the party's columns was in, over the first session in which it heard of all; where
    all were in to the end, how often each took part (which tells something where the lots are not fair)."""
    columns = len(view.own_table.columns)
    owner = _column_of_inputs(view, columns)  # inputs of a category are in, and leave, together
    places, stayed, took_part, session = np.arange(len(owner)), np.zeros(len(owner)), np.zeros(len(owner)), ""
    for message in view.messages:
        if not message.is_request or (session and message.session != session):
            continue
        heard = _own(message.operation, message.content, view.name)
        if heard is None or (not session and len(heard) != len(owner)):
            continue
        session = message.session
        if len(heard) != len(places):
            return None
        if matches("drop_inputs", message.operation):
            places = places[heard.astype(bool)]
        else:
            stayed[places] += 1.0
            took_part[places] += heard
    first = np.searchsorted(owner, np.arange(columns))
    if not session or not np.array_equal(owner[np.minimum(first, len(owner) - 1)], np.arange(columns)):
        return None
    stayed, took_part = stayed[first], took_part[first]
    return stayed if np.ptp(stayed) else took_part


def _column_of_inputs(view: View, columns: int) -> np.ndarray:
    """As the party told the coordinator for all of its columns; one input a column where it did not."""
    told = [np.asarray(reply.content) for reply in view.replies("input_columns")]
    whole = [each for each in told if len(each) and each.max() == columns - 1]
    return whole[0] if whole else np.arange(columns)


def _own(operation: str, content: dict[str, Any], name: str) -> np.ndarray | None:
    """The numbers about a party's own columns in a request."""
    for step, argument in (("set_gates", "gates"), ("drop_inputs", "stay")):
        if matches(step, operation):
            found = content[argument].get(name)
            return None if found is None else np.asarray(found, dtype=np.float64)
    return None


def labels_from_gates(score: Score, gates: np.ndarray, ones: int) -> np.ndarray:
    """Step 1 of the inversion with the gates as weights; by their order too, where that is quick."""
    if len(score.features) <= _MOST_ROWS:
        ranks = np.argsort(np.argsort(gates, kind="stable"), kind="stable")
        return invert_ranks(score, ranks, ones, turns=3)
    return cut(leading(score, gates - gates.mean())[0], ones)


@attack(
    reads=["set_gates", "drop_inputs"], role="passive", target="labels", declared="in words",
    knows="how gates come about, the class sizes and names",
)  # fmt: skip
def gates_give_labels(view: View, truth: Truth) -> Measure:
    """Labels from how long each of the party's columns stayed in the conversation."""
    gates = heard_of_columns(view)
    if gates is None or truth.n_classes != 2 or np.ptp(gates) == 0:
        return nothing_to_read(truth, "no gates that differ, or more than two classes")
    ones = truth.class_sizes[1]
    score = VarianceScore(standardise(view.columns), truth.class_sizes)
    found = labels_from_gates(score, gates, ones)
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    baseline = own_rows_accuracy(view, truth)
    if view.kept is not None and len(view.kept) == len(gates):
        hinted = from_kept(score, view.kept, ones)
        baseline = baseline if hinted is None else max(baseline, up_to_names(hinted, truth.labels))
    note = f"{len(view.requests('set_gates'))} messages, {len(gates)} columns"
    control = control_accuracy(view, truth, named)
    return Measure("accuracy", accuracy(named, truth.labels), truth.guess, baseline, control, note,
                   auc(named, truth.labels))  # fmt: skip
