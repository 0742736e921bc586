"""What every party does about rows while trees grow on shares: join, expect a tree, multiply, divide.

The label holder's part differs by its targets and by the rows that a tree learns from, both in its share alone.
"""

from __future__ import annotations

import itertools
from typing import Annotated

import numpy as np

from fedsift.core.arguments import AtMost, Between, LabelHolder, PartyName
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.models.boost.compared.program import divided, ended, scored, started
from fedsift.models.boost.compared.scales import Scales
from fedsift.models.boost.compared.state import Growing, Grown, Learning, Shares, Talk, Talks, purpose
from fedsift.models.boost.compared.together import MOST_MODELS, few_enough, fits
from fedsift.models.boost.growing_tree import Boosting, Model
from fedsift.models.boost.hidden.cuts import Layout, TreeCuts
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
#: The loss before the first tree: any is smaller.
WORST = 2**63 - 1
Models = Annotated[list[Annotated[int, Between(0, 10**9)]], AtMost(MOST_MODELS)]


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
    "boost.expect_models", when="protection=all", discloses="control", about="acknowledgement", times="20000 a session"
)
def expect_models(
    party: Party, *, models: Models, plans: Annotated[list[PlanFields], AtMost(MOST_MODELS)], logistic: bool,
    outputs: Annotated[int, Between(1, 1000)],
) -> None:  # fmt: skip
    """Begin models that grow together: their scores are the start scores, as the label holder's share. With more than
    two classes a booster is a model a class (``outputs``), each of one class against the rest."""
    state, read = party.held(Shares), [Plan.read(plan, party) for plan in plans]
    if state.models and state.outputs != outputs:
        raise OperationRefused(party.name, "expect_models", "all boosters of a run have as many outputs")
    fresh = len(models) == len(set(models)) == len(read) and not set(models) & set(state.models)
    if not fresh or state.now is not None or any(model.due > 0 for model in state.group):
        raise OperationRefused(party.name, "expect_models", "groups grow one after the other, each model once")
    if not fits(party.n_rows, [plan.settings.max_depth for plan in read]):
        raise OperationRefused(party.name, "expect_models", "more models than may grow together")
    scales = [Scales.of(logistic, party.n_rows, plan.settings) for plan in read]
    if len({plan.early_stopping_rounds for plan in read}) > 1:
        raise OperationRefused(party.name, "expect_models", "models that grow together stop alike")
    if len({each.units for each in scales}) != 1:
        raise OperationRefused(party.name, "expect_models", "models that grow together have the same units")
    start = [0.0] * len(models)
    if state.number == 0:
        start = [_started_at(party, model, plan, outputs) for model, plan in zip(models, read)]
    state.outputs, state.scales = outputs, scales[0]
    state.scores = np.repeat(scales[0].scores(np.array(start))[:, None], party.n_rows, axis=1)
    worst = WORST if state.number == 0 else 0
    state.group = [Learning(*each, each[1].n_estimators, best=worst) for each in zip(models, read, scales)]
    state.models |= {model: Grown() for model in models}


def _started_at(party: Party, model: int, plan: Plan, outputs: int) -> float:
    boosting = party.held(Boosting)
    booster, output = divmod(model, outputs)
    if outputs != boosting.outputs or not 0 <= booster < len(boosting.models) or boosting.models[booster].plan != plan:
        raise OperationRefused(party.name, "expect_models", "a model that does not grow here")
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
    "boost.expect_round", when="protection=all", discloses="control", about="acknowledgement", times="20000 a session"
)
def expect_round(
    party: Party, *, trees: Annotated[list[list[int]], AtMost(MOST_MODELS)], columns: dict[str, list[np.ndarray]]
) -> None:
    """One more tree of some models of the group, the deepest first, and which columns each may use."""
    state, own = party.held(Shares), party.held(HiddenCuts)
    read = read_trees(trees, party)
    for tree in read:
        model = state.group[tree.model] if 0 <= tree.model < len(state.group) else None
        planned = model is not None and model.due > 0 and tree.outputs == 1 and not model.unseen
        if not planned or model is None or (tree.bins, tree.depth) != (model.plan.bins, model.plan.settings.max_depth):
            raise OperationRefused(party.name, "expect_round", "columns or bins that are not there, or other trees")
    ordered = all(a.depth >= b.depth for a, b in itertools.pairwise(read))
    if state.now is not None or not read or not ordered or len({tree.model for tree in read}) != len(read):
        raise OperationRefused(party.name, "expect_round", "a round has a tree a model, the deepest first")
    layouts = {party.name: {bins: each.layout for bins, each in own.cuts.items()}}
    if HiddenGradients in party.state:
        layouts |= {name: peer.layouts for name, peer in party.held(HiddenGradients).peers.items()}
    cuts = {name: _candidates(party, read, of, columns.get(name, [])) for name, of in layouts.items()}
    state.now = Growing(read, cuts, own=[[] for _ in read])


def _candidates(
    party: Party, trees: list[Tree], layouts: dict[int, Layout], columns: list[np.ndarray]
) -> list[TreeCuts]:
    """What each tree may cut of the columns of one party."""
    if len(columns) != len(trees) or any(tree.bins not in layouts for tree in trees):
        raise OperationRefused(party.name, "expect_round", "columns or bins of a party are missing")
    found = []
    for tree, chosen in zip(trees, columns):
        layout = layouts[tree.bins]
        check_columns(chosen, len(layout.counts), party)
        found.append(layout.tree(chosen.astype(np.int64)))
    if not few_enough([(len(part.candidates), tree.depth) for part, tree in zip(found, trees)]):
        raise OperationRefused(party.name, "expect_round", "more trees than may grow together")
    return found


@operation(
    "boost.begin_tree",
    when="protection=all",
    discloses="masked",
    about="scores of the rows under a fresh mask, sealed for the other side",
    opened="nobody",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000 a session",
    after="boost.expect_round",
)
def begin_tree(party: Party, *, sampled: bool, dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """The gradients of the trees, from shared scores. ``sampled``: a tree learns from some rows alone; ``dealt``: the
    dealer's corrections, for the label holder."""
    state = party.held(Shares)
    now, scales = state.growing(party)
    scores = state.scores[now.models]
    targets, learnt = np.zeros(scores.shape, np.uint64), None
    if sampled:
        learnt = np.zeros((len(scores), (party.n_rows + 7) // 8), np.uint8)
    if state.number == 0:
        told = [_learnt(party, state, scales, place) for place in now.models]
        targets, rows = (np.stack(parts) for parts in zip(*told))
        if learnt is None and not rows.all():
            raise OperationRefused(party.name, "begin_tree", "the trees do not learn from all rows")
        learnt = None if learnt is None else np.packbits(rows, axis=1)
    program = started(state.rows.source, scales, scores, targets, learnt)
    return state.begin_rows(party, program, dealt)


def _learnt(party: Party, state: Shares, scales: Scales, place: int) -> tuple[Ring, np.ndarray]:
    """The label holder's targets, and the rows that the next tree of a model learns from."""
    boosting = party.held(Boosting)
    (model, output), labels = state.learner(boosting, place), boosting.labels
    values = labels.values if state.outputs == 1 else (labels.values == output).astype(float)
    if labels.task == "regression":
        middle, size = spread(model, values)
        values = (values - middle) / size
    rows = model.train
    if model.plan.subsample < 1:
        drawn = sampler(party, state, place, model).random(party.n_rows)
        rows = rows & (drawn < model.plan.subsample)
    return scales.targets(np.where(rows, np.clip(values, -1, 1), 0.0)), rows


def sampler(party: Party, state: Shares, place: int, model: Model) -> np.random.Generator:
    """Of the rows of a model's trees: the booster's own, and with several classes one for each of these."""
    number = state.group[place].number
    if state.outputs == 1:
        return model.generator
    if number not in state.samplers:
        output = number % state.outputs
        state.samplers[number] = party.generator(f"boost: rows of a tree of class {output}", model.plan.seed)
    return state.samplers[number]


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
    """The next level of the trees, or after the last one the new scores. ``boxes``: to the label holder, who goes left
    at the others' cuts, under masks."""
    state = party.held(Shares)
    now, scales = state.growing(party)
    more = now.going_on
    if now.going is None or now.rows is None or not (more or now.leaves):
        raise OperationRefused(party.name, "divide_rows", "nobody has cut the nodes of this level")
    if state.number == 0:
        for name in party.held(Pairs).peers:
            now.going = now.going ^ heard_cuts(party, name, boxes, state.step, now.going.shape)
    going, now.going = now.going, None
    now.ends[:0] = ended(now.rows.bits, going, len(now.now().trees), more)
    if more:
        return state.begin_rows(party, divided(state.rows.source, now.rows, going, more), dealt)
    program = scored(state.rows.source, state.scores[now.models], now.ends, now.leaves, scales.leaf_width)
    return state.begin_rows(party, program, dealt)


def heard_cuts(party: Party, name: str, boxes: dict[str, SealedBox], step: int, shape: tuple[int, ...]) -> Bits:
    """At the label holder: who goes left at another party's cuts, under a mask."""
    if name not in boxes:
        raise OperationRefused(party.name, "divide_rows", "not every party has said who goes left")
    heard = party.held(Pairs).open(boxes[name], sender=name, about="boost: left", number=step)
    if not isinstance(heard, np.ndarray) or heard.dtype != np.uint8 or heard.shape != shape:
        raise ReplyError(name, "take_winners", "it answered for another number of nodes or rows than the level has")
    return heard


OPERATIONS = (join_shares, expect_models, expect_round, begin_tree, row_step, divide_rows)
