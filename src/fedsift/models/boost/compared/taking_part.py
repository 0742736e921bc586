"""What every party does about rows while trees grow on shares: join, expect a tree, multiply, divide.

The label holder's part differs by its targets and by the rows that a tree learns from, both in its share alone.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedsift.core.arguments import Between, LabelHolder, PartyName
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.models.boost.compared.program import divided, scored, started
from fedsift.models.boost.compared.scales import Scales
from fedsift.models.boost.compared.state import Growing, Grown, Shares, Talk, Talks, purpose
from fedsift.models.boost.growing_tree import Boosting, Model
from fedsift.models.boost.hidden.label_holder import HiddenGradients
from fedsift.models.boost.hidden.passive import HiddenCuts
from fedsift.models.boost.hidden.shares import Tree, check_columns, read_trees
from fedsift.models.boost.plan import Plan, PlanFields
from fedsift.models.boost.tree import probabilities
from fedsift.mpc.comparing import Source
from fedsift.mpc.dealer import Bits, Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import SEED_BYTES, Ring

ROWS = "boost: shared rows"


@operation(
    "boost.join_shares", when="protection=all",
    discloses="control", about="acknowledgement", learns="randomness from the dealer",
    times="1 a session",
)  # fmt: skip
def join_shares(party: Party, *, holder: LabelHolder, first: PartyName, seed: bytes) -> None:
    """Who takes part, and the other parties' common randomness (the label holder gets none)."""
    peers = party.held(Pairs).peers
    alone = party.name == holder
    known, job = {party.name, *peers}, party.run.job
    if holder not in known or first not in known or first == holder or (job is not None and job.active != holder):
        raise OperationRefused(party.name, "join_shares", "these are not the roles of this run's parties")
    if Dealt not in party.state or len(seed) != (0 if alone else SEED_BYTES):
        raise SecurityError(f"party {party.name!r}: the dealer's randomness is not there, or of another size")
    common = None if alone else Dealt("the other parties", seed)
    mine = party.held(Dealt) if common is None else common
    source = Source(mine, ROWS, 0 if alone else 1)
    talks = peers if alone else [holder]
    of = {name: Source(party.held(Dealt), purpose(name if alone else party.name), source.number) for name in talks}
    party.keep(Talks({name: Talk(each) for name, each in of.items()}))
    party.keep(Shares(source.number, holder, first, Talk(source), common))


@operation(
    "boost.expect_model", when="protection=all", discloses="control", about="acknowledgement", times="20000 a session"
)
def expect_model(
    party: Party, *, plan: PlanFields, logistic: bool, model: int, outputs: Annotated[int, Between(1, 1000)]
) -> None:
    """Begin a model: its scores are the start score, as the label holder's share. With more than two classes a booster
    is a model a class (``outputs``), each of one class against the rest."""
    state, read = party.held(Shares), Plan.read(plan, party)
    if state.models and state.outputs != outputs:
        raise OperationRefused(party.name, "expect_model", "all boosters of a run have as many outputs")
    state.outputs = outputs
    state.scales = Scales.of(logistic, party.n_rows, read.settings)
    state.scores = np.zeros(party.n_rows, dtype=state.scales.words)
    if state.number == 0:
        state.scores = state.scales.scores(np.full(party.n_rows, _started_at(party, model, read, outputs)))
    state.due, state.plan = read.n_estimators, read
    if model != len(state.models):
        raise OperationRefused(party.name, "expect_model", "models grow one after the other")
    state.models.append(Grown())


def _started_at(party: Party, model: int, plan: Plan, outputs: int) -> float:
    boosting = party.held(Boosting)
    booster, output = divmod(model, outputs)
    if outputs != boosting.outputs or not 0 <= booster < len(boosting.models) or boosting.models[booster].plan != plan:
        raise OperationRefused(party.name, "expect_model", "a model that does not grow here")
    return start_score(boosting, boosting.models[booster], output)


def start_score(boosting: Boosting, model: Model, output: int) -> float:
    """Before the first tree: of a number (kept apart) none, of a class against the rest the log of its odds."""
    if boosting.labels.task == "regression":
        return 0.0
    if boosting.outputs == 1:
        return float(model.base[0])
    chance = float(np.clip(probabilities(model.base[None])[0, output], 1e-6, 1 - 1e-6))
    return float(np.log(chance / (1 - chance)))


@operation(
    "boost.expect_tree", when="protection=all", discloses="control", about="acknowledgement", times="20000 a session"
)
def expect_tree(party: Party, *, tree: list[int], columns: dict[str, np.ndarray]) -> None:
    """One more tree of the model, and which columns it may use."""
    state, own = party.held(Shares), party.held(HiddenCuts)
    (read,) = read_trees([tree], party)
    planned = state.plan is not None and (read.bins, read.depth) == (state.plan.bins, state.plan.settings.max_depth)
    if not planned or state.due < 1 or read.bins not in own.cuts or party.name not in columns or read.outputs != 1:
        raise OperationRefused(party.name, "expect_tree", "columns or bins that are not there, or several outputs")
    layouts = {party.name: own.cuts[read.bins].layout}
    if HiddenGradients in party.state:
        layouts |= {name: peer.layouts[read.bins] for name, peer in party.held(HiddenGradients).peers.items()}
    for name, layout in layouts.items():
        if name not in columns:
            raise OperationRefused(party.name, "expect_tree", "columns of a party are missing")
        check_columns(columns[name], len(layout.counts), party)
    cuts = {name: layout.tree(columns[name].astype(np.int64)) for name, layout in layouts.items()}
    state.now = Growing(Tree(0, read.bins, read.depth, 1), cuts)


@operation(
    "boost.begin_tree",
    when="protection=all",
    discloses="masked",
    about="scores of the rows under a fresh mask, sealed for the other side",
    opened="nobody",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000 a session",
    after="boost.expect_tree",
)
def begin_tree(party: Party, *, sampled: bool, dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """The gradients of the tree, from shared scores. ``dealt``: the dealer's corrections, for the label holder."""
    state = party.held(Shares)
    _, scales = state.growing(party)
    targets, learnt = np.zeros(party.n_rows, np.uint64), None
    if sampled:
        learnt = np.zeros((1, (party.n_rows + 7) // 8), np.uint8)
    if state.number == 0:
        targets, rows = _learnt(party, state, scales)
        if learnt is None and not rows.all():
            raise OperationRefused(party.name, "begin_tree", "the tree does not learn from all rows")
        learnt = None if learnt is None else np.packbits(rows)[None]
    program = started(state.rows.source, scales, state.scores, targets, learnt)
    return state.begin_rows(party, program, dealt)


def _learnt(party: Party, state: Shares, scales: Scales) -> tuple[Ring, np.ndarray]:
    """The label holder's targets, and the rows that the tree learns from."""
    boosting = party.held(Boosting)
    (model, output), labels = state.learner(boosting), boosting.labels
    values = labels.values if state.outputs == 1 else (labels.values == output).astype(float)
    if labels.task == "regression":
        middle, size = spread(model, values)
        values = (values - middle) / size
    rows = model.train
    if model.plan.subsample < 1:
        rows = rows & (model.generator.random(party.n_rows) < model.plan.subsample)
    return scales.targets(np.where(rows, np.clip(values, -1, 1), 0.0)), rows


def spread(model: Model, values: np.ndarray) -> tuple[float, float]:
    """Of a number to predict: where its scores start, and its largest distance from there among the training rows."""
    middle = float(model.base[0])
    return middle, float(np.abs(values[model.train] - middle).max(initial=0.0)) or 1.0


@operation(
    "boost.row_step",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="numbers and bits of the rows, each under a fresh mask, sealed for the other side",
    opened="nobody",
    learns="nothing: numbers under masks that it does not have",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="2000000 a session",
)
def row_step(party: Party, *, boxes: dict[str, SealedBox]) -> dict[str, SealedBox]:
    """One step of the program about rows that is under way; nothing comes back at its end."""
    return party.held(Shares).hear_rows(party, boxes)


@operation(
    "boost.divide_rows",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="who is in the nodes and who goes left, under fresh masks, sealed for the other side",
    opened="nobody",
    learns="nothing: bits under masks that it does not have",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="240000 a session",
)
def divide_rows(party: Party, *, boxes: dict[str, SealedBox], dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """The next level of the tree, or the new scores. ``boxes``: to the label holder, who goes left at the others' cuts,
    under masks."""
    state = party.held(Shares)
    now, scales = state.growing(party)
    if now.going is None or now.rows is None or (now.last and not state.models[-1].leaves):
        raise OperationRefused(party.name, "divide_rows", "nobody has cut the nodes of this level")
    if state.number == 0:
        for name in party.held(Pairs).peers:
            now.going = now.going ^ heard_cuts(party, name, boxes, state.step, now.going.shape)
    if now.last:
        leaves = np.array([state.models[-1].leaves[-1]], dtype=np.uint64)
        program = scored(state.rows.source, state.scores, now.rows.bits, now.going, leaves, scales.leaf_width)
        return state.begin_rows(party, program, dealt)
    return state.begin_rows(party, divided(state.rows.source, now.rows, now.going), dealt)


def heard_cuts(party: Party, name: str, boxes: dict[str, SealedBox], step: int, shape: tuple[int, ...]) -> Bits:
    """At the label holder: who goes left at another party's cuts, under a mask."""
    if name not in boxes:
        raise OperationRefused(party.name, "divide_rows", "not every party has said who goes left")
    heard = party.held(Pairs).open(boxes[name], sender=name, about="boost: left", number=step)
    if not isinstance(heard, np.ndarray) or heard.dtype != np.uint8 or heard.shape != shape:
        raise ReplyError(name, "take_winners", "it answered for another number of nodes or rows than the level has")
    return heard


OPERATIONS = (join_shares, expect_model, expect_tree, begin_tree, row_step, divide_rows)
