"""Predictions of a network on shares, and what members keep of it. Outputs are opened here, to the label holder alone.

For a measure they are not opened at all: the label holder and the helper keep their shares of them (``unseen.py``).

An output is one number a row (one a class where there are more than two): the answer that was asked for. Each is also
an equation about the row's columns, so outputs of one network over many rows, or of many networks over the same rows,
tell about columns (``docs/splitnn.md`` has the figures); training opens none.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ParameterError
from fedsift.models.predicted import Predicted
from fedsift.models.splitnn.layers.shared_network import BATCHES, Corrections, joined_outputs, part_of
from fedsift.models.splitnn.layers.shared_parts import Rows, exactly
from fedsift.models.splitnn.layers.sine import OUTPUT_BITS, Floats, signed
from fedsift.models.unseen import Truth
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring
from fedsift.mpc.score_shares import ScoreShare


@operation(
    "sine_network.send_answer",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of the outputs of these rows, sealed to the label holder",
    opened="pseudonymous: the outputs for each of these rows",
    opened_by="active",
    learns="nothing: angles under a mask",
    reply=SealedBox,
    times=BATCHES,
)
def send_answer(party: Party, *, boxes: dict[str, SealedBox]) -> SealedBox:
    rows = party.held(Rows)
    if rows.factor or rows.unseen:
        raise OperationRefused(party.name, "shared network", "outputs of these rows are not opened")
    batch = rows.now(party)
    if party.name != rows.part.roles.helper:
        raise OperationRefused(party.name, "shared network", "the helper alone gives its share of outputs")
    half = joined_outputs(party, rows, batch, boxes, None)
    return party.held(Pairs).seal(half, to=rows.part.roles.active, about="answer", number=batch.number)


def _answer(party: Party, box: SealedBox, boxes: dict[str, SealedBox], dealt: Corrections) -> Floats:
    rows = party.held(Rows)
    batch, shape, helper = rows.now(party), rows.part.shape, rows.part.roles.helper
    if rows.factor or rows.unseen or rows.part.targets is None:
        raise OperationRefused(party.name, "shared network", "outputs of these rows are not opened")
    half = party.held(Pairs).open(box, sender=helper, about="answer", number=batch.number)
    total = joined_outputs(party, rows, batch, boxes, dealt)
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
def predict_rows(party: Party, *, box: SealedBox, boxes: dict[str, SealedBox], dealt: Corrections = None) -> Floats:
    return _answer(party, box, boxes, dealt)


@operation(
    "sine_network.hold",
    when="protection=shares",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the network's output for each row",
    times=BATCHES,
)
def hold_rows(party: Party, *, box: SealedBox, boxes: dict[str, SealedBox], dealt: Corrections = None) -> None:
    """Predict, and keep the predictions here, to score them."""
    party.held(Rows).held.append(_answer(party, box, boxes, dealt))


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
    "sine_network.keep_half",
    when="protection=shares",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="nothing: angles under a mask, and its share of the outputs, which is uniform to it",
    times=BATCHES,
)
def keep_half(party: Party, *, boxes: dict[str, SealedBox], dealt: Corrections = None) -> None:
    """This computing member's share of a batch's outputs: both stay shares."""
    rows = party.held(Rows)
    batch = rows.now(party)
    if not rows.unseen:
        raise OperationRefused(party.name, "shared network", "these rows are not for a measure")
    rows.halves.append(joined_outputs(party, rows, batch, boxes, dealt))


@operation(
    "sine_network.leave_scores", when="protection=shares", discloses="control", about="acknowledgement",
    times="1 a session",
)  # fmt: skip
def leave_scores(party: Party) -> None:
    """What was kept of all rows is this member's share of their scores: above 0 for the second of two classes."""
    rows = party.held(Rows)
    share, targets, label = np.concatenate([*rows.halves, _nothing(rows)]), rows.part.targets, party.judged_label
    if len(share) != party.n_rows:
        raise OperationRefused(party.name, "leave_scores", "not all of these rows went through the network")
    if targets is not None:
        if label is None:
            raise DataError(f"party {party.name!r} has no labels of these rows to measure with")
        share = share + targets.centre(rows.part.shape)
        party.keep(Truth(targets.truth_of(label, rows.part.shape)))
    party.keep(ScoreShare(share, OUTPUT_BITS))
    rows.halves = []


def _nothing(rows: Rows) -> Ring:
    return np.zeros((0, rows.part.shape.outputs), dtype=np.uint64)


@operation(
    "sine_network.keep", when="protection=shares", discloses="control", about="acknowledgement", times="1 a session"
)
def keep_part(party: Party, *, model: str) -> None:
    """Keep this run's part at the site, without rows, for predictions."""
    part = part_of(party, model)
    for kept in part.kept.values():
        kept.rows = None
    party.models.keep(model, part)


@operation(
    "sine_network.forget", when="protection=shares", discloses="control", about="acknowledgement", times="100 a session"
)
def forget_part(party: Party, *, model: str) -> None:
    party.models.forget(model)


OPERATIONS = (
    send_answer, predict_rows, hold_rows, hold_all, score_rows, keep_half, leave_scores, keep_part, forget_part,
)  # fmt: skip
