"""Predictions of a network on shares, and what members keep of it. Outputs are opened here, to the label holder alone.

An output is one number a row (one a class where there are more than two): the answer that was asked for. Each is also
an equation about the row's columns, so outputs of one network over many rows, or of many networks over the same rows,
tell about columns (``docs/splitnn.md`` has the figures); training opens none.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ParameterError
from fedsift.models.predicted import Predicted
from fedsift.models.splitnn.layers.shared_network import BATCHES, KEY, helper_outputs, part_of
from fedsift.models.splitnn.layers.shared_parts import Rows, exactly
from fedsift.models.splitnn.layers.sine import OUTPUT_BITS, Floats, outputs, signed
from fedsift.mpc.pairs import Pairs


@operation(
    "sine_network.send_answer",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of the outputs of these rows, sealed to the label holder",
    learns="nothing: angles under a mask",
    reply=SealedBox,
    times=BATCHES,
)
def send_answer(party: Party, *, box: SealedBox) -> SealedBox:
    rows = party.held(Rows)
    if rows.factor:
        raise OperationRefused(party.name, "shared network", "outputs of training rows are not opened in training")
    batch = rows.now(party)
    half = helper_outputs(party, rows, batch, box)
    return party.held(Pairs).seal(half, to=rows.part.roles.active, about="answer", number=batch.number)


def _answer(party: Party, box: SealedBox) -> Floats:
    rows = party.held(Rows)
    batch, shape, helper = rows.now(party), rows.part.shape, rows.part.roles.helper
    if batch.hidden is None or rows.part.targets is None:
        raise OperationRefused(party.name, "shared network", "no angles of these rows were opened")
    half = party.held(Pairs).open(box, sender=helper, about="answer", number=batch.number)
    total = outputs(batch.hidden, batch.shares, shape.signs())
    total = total + exactly(half, (len(batch.rows), shape.outputs), helper)
    return rows.part.targets.presented(np.ldexp(signed(total), -OUTPUT_BITS) * shape.unit)


@operation(
    "sine_network.predict",
    when="protection=shares",
    discloses="plain",
    receives="masked",
    about="the prediction for each row",
    learns="the network's output for each row",
    reply=Array("f", 2),
    times=BATCHES,
)
def predict_rows(party: Party, *, box: SealedBox) -> Floats:
    return _answer(party, box)


@operation(
    "sine_network.hold",
    when="protection=shares",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the network's output for each row",
    times=BATCHES,
)
def hold_rows(party: Party, *, box: SealedBox) -> None:
    """Predict, and keep the predictions here, to score them."""
    party.held(Rows).held.append(_answer(party, box))


@operation(
    "sine_network.score",
    when="protection=shares",
    discloses="aggregate",
    about="one score of the model over many rows",
    reply=float,
    times="1 a session",
)
def score_rows(party: Party) -> float:
    rows = party.held(Rows)
    label, held, targets = party.judged_label, rows.held, rows.part.targets
    if label is None or targets is None or sum(map(len, held)) != len(label):
        raise ParameterError(f"party {party.name!r} has no predictions or no labels of all rows to score")
    rows.held = []
    return targets.score(np.concatenate(held), label)


@operation(
    "sine_network.hold_all",
    when="protection=shares",
    discloses="control",
    about="acknowledgement",
    learns="the network's output for each row",
    role="active",
    times="1 a session",
)
def hold_all(party: Party) -> None:
    """What was held of all rows are this party's predictions: probabilities, or values."""
    rows = party.held(Rows)
    if rows.part.targets is None or not rows.held:
        raise OperationRefused(party.name, "shared network", "no outputs of these rows were opened")
    party.keep(Predicted(np.concatenate(rows.held), tuple(rows.part.targets.classes), "given"))
    rows.held = []


@operation(
    "sine_network.keep", when="protection=shares", discloses="control", about="acknowledgement", times="1 a session"
)
def keep_part(party: Party, *, model: str) -> None:
    """Keep this run's part at the site, without rows, for predictions."""
    part = part_of(party, model)
    for kept in part.kept.values():
        kept.rows = None
    party.keys[KEY.format(model)] = part


@operation(
    "sine_network.forget", when="protection=shares", discloses="control", about="acknowledgement", times="100 a session"
)
def forget_part(party: Party, *, model: str) -> None:
    party.keys.pop(KEY.format(model), None)


OPERATIONS = (send_answer, predict_rows, hold_rows, hold_all, score_rows, keep_part, forget_part)
