"""Labels from what a party hears of its columns while a network trains on shares (no line; as 6, of coarser scores).

FedSDG tells a party which of its columns take part in each block of batches, group lasso how many sixteenths of each
are left. Summed over the training both are a score of each column, good for an order: a gate's probability to about
0.05. The attack takes that order for the order of F statistics and searches labels that fit (``inversion.py``); the
baseline is what the kept flags alone tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.audit.attacks.scores import measured, only_ranks
from fedsift.audit.exposure import Measure
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View


def heard_of_columns(view: View) -> np.ndarray | None:
    """How much of each of the party's columns took part, over the first session in which it heard of all of them."""
    columns = len(view.own_table.columns)
    places, total, session = np.arange(columns), np.zeros(columns), ""
    for message in view.messages:
        if not message.is_request or (session and message.session != session):
            continue
        heard = _own(message.operation, message.content, view.name)
        if heard is None or (not session and len(heard) != columns):
            continue
        session = message.session
        if len(heard) != len(places):
            return None  # categories: several inputs a column
        if matches("drop_inputs", message.operation):
            places = places[heard.astype(bool)]
        else:
            total[places] += heard
    return total if session else None


def _own(operation: str, content: dict[str, Any], name: str) -> np.ndarray | None:
    """The numbers about a party's own columns in a request."""
    for step, argument in (("set_gates", "gates"), ("drop_inputs", "stay")):
        if matches(step, operation):
            found = content[argument].get(name)
            return None if found is None else np.asarray(found, dtype=np.float64)
    if matches("sine_lasso.send_wraps", operation):
        return np.asarray(content["sixteenths"], dtype=np.float64)
    return None


@attack(
    reads=["sine_gates.set_gates", "sine_lasso.send_wraps"], role="passive", target="labels", declared="no", line=6,
    knows="which of its columns took part in which batches, or what was left of them; the class sizes and names",
)  # fmt: skip
def bits_of_gates(view: View, truth: Truth) -> Measure:
    """Labels from the bits of a party's gates, or from the sixteenths of its lasso, over a whole training."""
    heard = heard_of_columns(view)
    return measured(view, truth, None if heard is None else ("sffs", heard), only_ranks)
