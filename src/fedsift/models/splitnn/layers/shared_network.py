"""What the members of a network on shares do when asked. The conversation is in ``shared_run.py``.

Who sees what, besides sizes. An owner: masked gradients of the angles and two masked parts of its weights' gradient,
all uniform to it. The two computing members, the label holder and the helper (the first passive party): also everyone's
masked angles and the other's masked errors, each under a mask of its sender's, so uniform too. The label holder: also
columns under masks and corrections of the dealer, uniform; and, when it predicts, the output of each row, which is the
answer. The dealer (the coordinator): sealed boxes, and the mean squared error once an epoch. Every mask is drawn for
one step and one purpose (``Dealt``, ``Pairs`` refuse a number twice). The dealer together with one side reads the other
side's columns or labels: where a data holder runs the coordinator, this form is not for it.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, LabelHolder, PartyName
from fedsift.core.operation import Array, ByName, Whole, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.predicted import ScoresOpened
from fedsift.models.shuffling import ColumnPlace, Repeat
from fedsift.models.splitnn.basis import Basis
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.layers.shared_gradients import after_error, learn, to_owners
from fedsift.models.splitnn.layers.shared_parts import (
    Batch,
    Kept,
    Part,
    Roles,
    Rows,
    check_batch_size,
    check_factor,
    check_seed,
    check_shape,
    exactly,
)
from fedsift.models.splitnn.layers.sine import (
    FIRST_SPREAD,
    OFFSET,
    PARTS,
    ActivationShares,
    Shape,
    angle_mask,
    angles_of,
    brought_in,
    drawn_shares,
    first_phases,
    first_weights,
    outputs,
    shapes_of,
    shortened,
    small_spread,
)
from fedsift.models.splitnn.layers.targets import Targets
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

BATCHES = "10000000 a session"
_MOST_INPUTS = 1_000_000
_MOST_WEIGHTS = 1 << 23  # of one owner that are kept here: 64 MB
Inputs = Annotated[int, Between(0, _MOST_INPUTS)]
Corrections = dict[str, NDArray[np.uint64]] | None  # of the dealer, for the label holder


def part_of(party: Party, model: str) -> Part:
    """This member's part: of the run under way, or a copy of what was kept (runs may go side by side)."""
    held = party.state.get(Part)
    if isinstance(held, Part) and held.model == model:
        return held
    if model not in party.models:
        raise OperationRefused(party.name, "shared network", f"there is no part of the network {model!r} here")
    return party.keep(party.models.part(model, Part).copy())


# --- once a network ----------------------------------------------------------------------------------------------


@operation(
    "sine_network.count_inputs",
    when="protection=shares",
    discloses="control",
    about="number of inputs, and of outputs at the label holder",
    reply={"inputs": Whole(_MOST_INPUTS), "outputs": Whole(10_000)},
    times="1 a session",
)
def count_inputs(party: Party, *, task: str) -> dict[str, int]:
    encoder = InputEncoder.fit(party.table, party.columns)
    if party.table.label is None:
        return {"inputs": len(encoder.owner), "outputs": 0}
    return {"inputs": len(encoder.owner) + 1, "outputs": Targets.of(party, task).outputs}


@operation(
    "sine_network.begin_part",
    when="protection=shares",
    discloses="control",
    about="acknowledgement",
    times="1 a session",
)
def begin_part(
    party: Party, *, model: str, active: LabelHolder, helper: PartyName, owners: dict[PartyName, Inputs],
    width: Annotated[int, Between(1, 4096)], outputs: Annotated[int, Between(1, 10_000)], seed: int, task: str,
    mixed: bool, small: bool,
) -> None:  # fmt: skip
    """First weights from this party's own draws: nobody else can recompute them from the announced seed.

    ``mixed``: the inputs are axes of this party's columns, not the columns (``basis.py``). ``small``: many inputs begin
    with small weights.
    """
    who, shape = Roles(active, helper, owners), Shape(width, outputs, seed)
    check_shape(party, active, shape)
    if max(owners.values(), default=0) * width > _MOST_WEIGHTS:
        raise OperationRefused(party.name, "begin_part", f"an owner has more than {_MOST_WEIGHTS} first weights")
    encoder, generator = InputEncoder.fit(party.table, party.columns), party.generator("first weights", seed)
    spread = small_spread(sum(who.owners.values())) if small else FIRST_SPREAD
    inputs, basis = len(encoder.owner), None
    if mixed and inputs:
        basis = Basis.fit(brought_in(encoder.matrix(party.table)))
        inputs, spread = basis.axes.shape[1], basis.evened(spread)
    told = who.owners.get(party.name, 0) - (party.name == who.active)
    if inputs != max(told, 0):
        raise OperationRefused(party.name, "begin_part", f"this party has {inputs} inputs")
    weights = first_weights(generator, inputs, sum(who.owners.values()), width, spread)
    part = Part(model, who, shape, encoder, weights, basis=basis)
    if party.name == who.active:
        part.weights = np.vstack([weights, first_phases(generator, width, 0.25 if mixed and outputs > 1 else 1.0)])
        part.targets = Targets.of(party, task)
    for owner in who.kept_by(party.name):
        part.kept[owner] = Kept(np.zeros((who.owners[owner], width), dtype=np.uint64))
    party.keep(part)


# --- once for every set of rows ------------------------------------------------------------------------------------


@operation(
    "sine_network.hide_rows",
    when="protection=shares",
    discloses="masked",
    about="its columns and its share of others' weights, each under a mask, sealed to the keeper or the owner",
    opened="nobody",
    reply=ByName(SealedBox),
    times="2 a session",  # to train, and to predict once
)
def hide_rows(
    party: Party, *, model: str, number: int, factor: Annotated[int, Between(0, 1 << 53)],
    epochs: Annotated[int, Between(0, 100_000)], seed: int, batch_size: Annotated[int, Between(1, 1 << 24)],
    unseen: bool = False, shuffled: ColumnPlace = None, repeat: Repeat = 0,
) -> dict[str, SealedBox]:  # fmt: skip
    """X - U to the keeper of this party's weights; T - T' to each owner whose weights are kept here.

    ``unseen`` rows are for a measure: nobody reads their outputs, and one of this party's columns may be shuffled. What
    is sealed for them opens as nothing else, so members agree on what rows are for.
    """
    part, dealt, pairs = part_of(party, model), party.held(Dealt), party.held(Pairs)
    check_batch_size(party, batch_size)
    if factor:  # to train
        check_seed(party, seed)
        check_factor(party, factor, part.shape, batch_size)
    elif part.targets is None and not unseen:  # rows to predict: the label holder reads an output of each
        party.held_here(ScoresOpened)
    if (unseen and factor) or (shuffled is not None and not unseen):
        raise OperationRefused(party.name, "shared network", "columns are shuffled, and outputs kept, for a measure")
    before = party.state.get(Rows)
    target = None
    if part.targets is not None and factor:
        target = part.targets.ring_of(party, part.shape)
    rows = Rows(part, part.inputs(party, shuffled, repeat), target, factor, epochs, seed, batch_size, unseen)
    rows.step = before.step if isinstance(before, Rows) else 0
    party.keep(rows)
    sent: dict[str, dict[str, Ring]] = {}
    if party.name in part.roles.owners:
        keeper = part.roles.keeper_of(party.name)
        sent[keeper] = {"rows": rows.own - dealt.draw("rows", number, rows.own.shape)}
    for owner, kept in part.kept.items():
        fresh = dealt.draw(f"weights of {owner}", number, kept.weights.shape)
        sent.setdefault(owner, {})["weights"] = kept.weights - fresh
        kept.weights = fresh
    return {name: pairs.seal(message, to=name, about=_use(rows), number=number) for name, message in sent.items()}


def _use(rows: Rows) -> str:
    return "unseen rows" if rows.unseen else "rows"


@operation(
    "sine_network.take_rows",
    when="protection=shares",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    times="2 a session",
)
def take_rows(party: Party, *, number: int, boxes: dict[str, SealedBox]) -> None:
    rows, pairs = party.held(Rows), party.held(Pairs)
    part = rows.part
    for sender, box in boxes.items():
        message = pairs.open(box, sender=sender, about=_use(rows), number=number)
        if sender in part.kept:
            shape = (len(rows.own), part.roles.owners[sender])
            part.kept[sender].rows = exactly(message.get("rows"), shape, sender)
        if sender == part.roles.keeper_of(party.name) and party.name in part.roles.owners:
            part.weights = part.weights + exactly(message.get("weights"), part.weights.shape, sender)


# --- once a batch --------------------------------------------------------------------------------------------------


@operation(
    "sine_network.send_angles",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of a batch's angles under a mask, sealed to the label holder and the helper",
    opened="nobody",
    learns="nothing: masked gradients of the last batch",
    reply=ByName(SealedBox),
    times=BATCHES,
)
def send_angles(
    party: Party, *, epoch: int | None, start: int = 0, from_keeper: SealedBox | None = None,
    from_helper: SealedBox | None = None, from_dealer: NDArray[np.uint8] | None = None,
) -> dict[str, SealedBox]:  # fmt: skip
    """Take the last batch's step, if any, and give the angles of the next, if there is one."""
    rows, pairs = party.held(Rows), party.held(Pairs)
    if from_keeper is not None and party.name in rows.part.roles.owners:
        learn(party, rows, rows.now(party), from_keeper, from_helper, from_dealer)
    if epoch is None:
        return {}
    batch = rows.begin(party, epoch, start)
    batch.angles = _masked_angles(party, rows, batch)
    return {
        name: pairs.seal(batch.angles, to=name, about="angles", number=batch.number)
        for name in rows.part.roles.computing
        if name != party.name
    }


def _masked_angles(party: Party, rows: Rows, batch: Batch) -> np.ndarray:
    mask = angle_mask(party.held(Dealt), batch.number, (len(batch.rows), rows.part.shape.width))
    return angles_of(rows.angle_share(batch)) + mask


def joined_outputs(party: Party, rows: Rows, batch: Batch, boxes: dict[str, SealedBox], dealt: Corrections) -> Ring:
    """One computing member's share of a batch's outputs, from everybody's masked angles; the label holder brings what
    its shares of the dealer's randomness lack."""
    pairs, roles, shape = party.held(Pairs), rows.part.roles, rows.part.shape
    if batch.angles is None or batch.hidden is not None or {*boxes, party.name} != {*roles.owners, *roles.computing}:
        raise OperationRefused(party.name, "shared network", "angles are joined once, and are those of every member")
    size, hidden = (len(batch.rows), shape.width), batch.angles
    for sender, box in boxes.items():
        part = pairs.open(box, sender=sender, about="angles", number=batch.number)
        hidden = hidden + exactly(part, size, sender, np.uint16)
    if party.name == roles.active:
        sizes, given = shapes_of(size[0], shape), dealt or {}
        batch.shares = ActivationShares(**{p: exactly(given.get(p), sizes[p], "coordinator") for p in PARTS})
    else:
        batch.shares = drawn_shares(party.held(Dealt), batch.number, size[0], shape)
    batch.hidden = hidden
    return outputs(hidden, batch.shares, shape.signs())


@operation(
    "sine_network.send_output",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of a batch's errors under a mask, sealed to the other computing member",
    opened="nobody",
    learns="nothing: angles under masks, and its shares of the dealer's randomness",
    reply=SealedBox,
    times=BATCHES,
)
def send_output(party: Party, *, boxes: dict[str, SealedBox], dealt: Corrections = None) -> SealedBox:
    """Join the angles; the label holder takes the targets off its share of the outputs."""
    rows, pairs = party.held(Rows), party.held(Pairs)
    batch, other = rows.now(party), rows.part.roles.other(party)
    if not rows.factor:
        raise OperationRefused(party.name, "shared network", "these rows are not for training")
    half = joined_outputs(party, rows, batch, boxes, dealt)
    if rows.target is not None:
        half = half - rows.target[batch.rows]
    batch.half = half + party.held(Dealt).draw("error", batch.number, half.shape)
    return pairs.seal(batch.half, to=other, about="output", number=batch.number)


@operation(
    "sine_network.shorten_error",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of a batch's shortened errors under a mask, sealed to the other computing member",
    opened="nobody",
    learns="nothing: errors under a mask",
    reply=SealedBox,
    times=BATCHES,
)
def shorten_error(party: Party, *, box: SealedBox) -> SealedBox:
    """Both open the masked errors, and mask their shares of the shortened ones anew."""
    rows, pairs, dealt = party.held(Rows), party.held(Pairs), party.held(Dealt)
    batch, other = rows.now(party), rows.part.roles.other(party)
    if batch.half is None:
        raise OperationRefused(party.name, "shared network", "no outputs of this batch were sent")
    size = batch.half.shape
    theirs = exactly(pairs.open(box, sender=other, about="output", number=batch.number), size, other)
    batch.again = dealt.draw("short error", batch.number, size)
    opened = batch.half + theirs + OFFSET
    batch.error = shortened(opened, batch.shares, rows.target is not None) + batch.again
    return pairs.seal(batch.error, to=other, about="short error", number=batch.number)


@operation(
    "sine_network.send_gradients",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="its share of the batch's gradients under masks, sealed to the owners",
    opened="nobody",
    learns="nothing: errors under a mask",
    reply=ByName(SealedBox),
    times=BATCHES,
)
def send_gradients(party: Party, *, box: SealedBox) -> dict[str, SealedBox]:
    """What each owner needs of this side for its step; the weights that are kept here take theirs."""
    rows, pairs = party.held(Rows), party.held(Pairs)
    batch, other = rows.now(party), rows.part.roles.other(party)
    if batch.error is None:
        raise OperationRefused(party.name, "shared network", "no errors of this batch were opened")
    theirs = pairs.open(box, sender=other, about="short error", number=batch.number)
    batch.error = batch.error + exactly(theirs, batch.error.shape, other)
    after_error(rows, batch, first=rows.target is not None)
    return to_owners(party, rows, batch)


@operation(
    "sine_network.loss_half",
    when="protection=shares",
    discloses="masked",
    about="half of the sum of squared errors of an epoch, under a mask; both halves give the sum",
    opened="aggregate: the mean squared error of an epoch",
    concerns="own columns and labels",
    reply=Array("i"),
    times="100000 a session",
)
def loss_half(party: Party, *, epoch: int) -> Ring:
    rows = party.held(Rows)
    roles = rows.part.roles
    peer = roles.helper if party.name == roles.active else roles.active
    half = rows.take_loss(party)
    return half + party.held(Pairs).cancelling(peer, "loss", epoch, (1,))


OPERATIONS = (
    count_inputs, begin_part, hide_rows, take_rows, send_angles, send_output, shorten_error, send_gradients, loss_half,
)  # fmt: skip
