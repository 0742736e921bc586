"""The label holder's steps that all forms of boosting share: beginning, the trees of a round, the end of a round.

Labels, gradients and the rows that a model learns from stay here. Folds, held-out rows and samples come from the site's
own secret (``core/identity.py``): who knows the seed but not the secret cannot draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsift.core.arguments import PartyName
from fedsift.core.operation import Array, Whole, operation
from fedsift.core.party import Labels, Party, Task
from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.errors import OperationRefused
from fedsift.models.boost.bins import chosen_codes, fitted_bins
from fedsift.models.boost.growing_tree import Boosting, Job, Model, Node, make_node
from fedsift.models.boost.objective import Objective
from fedsift.models.boost.plan import Plan, PlanFields, large_gradients, training_rows
from fedsift.models.boost.privacy import LabelNoise, whole_noise
from fedsift.models.boost.stored import StoredNode, StoredTree
from fedsift.models.boost.tree import (
    TreeSettings,
    Units,
    leaf_value,
    whole_for_sums,
    whole_numbers,
)

#: Sums are taken of encrypted gradients, or on shares (units follow from the totals) and opened by the coordinator, or
#: compared.
Sums = Literal["encrypted", "opened", "compared"]
_BEGUN = {"outputs": Whole(1000, 1), "task": str}


@operation(
    "boost.begin_boosting",
    when="epsilon=none|unsaid",
    discloses="control",
    about="number of outputs of a tree",
    reply=_BEGUN,
    times="1 a session",
    settings=("scheme",),
)
def begin_boosting(
    party: Party, *, models: list[PlanFields], order: list[PartyName], scheme: str, task: Task, bits: int, sums: Sums
) -> dict[str, object]:
    """Prepare models that will grow in lock-step, from gradients of so many ``bits`` where they are encrypted."""
    labels = party.labels(task=task)
    plans = [Plan.read(fields, party) for fields in models]
    state = Boosting(party.name, labels, _outputs(labels), order, [], scheme=scheme, bits=bits, sums=sums)
    return _begin(party, state, plans)


@operation(
    "boost.begin_private_boosting",
    when="protection=coordinator|open",
    discloses="control",
    about="number of outputs of a tree",
    reply=_BEGUN,
    times="1 a session",
    epsilon="epsilon",
    settings=("epsilon", "delta", "scheme"),
)
def begin_private_boosting(
    party: Party, *, models: list[PlanFields], order: list[PartyName], scheme: str, task: Task, bits: int, sums: Sums,
    epsilon: float, delta: float,
) -> dict[str, object]:  # fmt: skip
    """The same for one model under differential privacy of labels (``privacy.py``).

    Where the job has the epsilon, it is that of one model: a second one in another session would spend it again.
    """
    if party.run.job is not None and party.run.job.parameters.get("epsilon") is not None:
        if PrivateModel in party.run.kept:
            raise OperationRefused(party.name, "begin_private_boosting", "the epsilon of this job is spent on a model")
        party.run.kept[PrivateModel] = PrivateModel(party.session)
    labels = party.labels(task=task)
    plans = [Plan.read(fields, party) for fields in models]
    outputs = _outputs(labels)
    noise = _label_noise(party, labels, plans, outputs, epsilon, delta, sums)
    state = Boosting(party.name, labels, outputs, order, [], scheme=scheme, bits=bits, sums=sums, noise=noise)
    return _begin(party, state, plans)


@dataclass(frozen=True)
class PrivateModel:
    """That a run has begun a model under its epsilon, and in which session."""

    session: str


def _outputs(labels: Labels) -> int:
    return 1 if labels.task == "regression" or labels.n_classes == 2 else labels.n_classes


def _begin(party: Party, state: Boosting, plans: list[Plan]) -> dict[str, Any]:
    """Which rows each model learns from is drawn here and stays here."""
    labels, outputs, noise = state.labels, state.outputs, state.noise
    state.goal = goal = Objective.of(party, labels)
    if noise is not None or state.sums == "compared":
        if goal.weighted:
            raise OperationRefused(
                party.name, "begin_boosting", "rows that count differently are for exact sums that somebody opens"
            )
        state.goal = Objective(labels)  # nobody reads scores: times are learned as residuals
    added = None if noise is None else whole_gaussian_noise((outputs,), noise.start_scale())
    for plan in plans:
        train = training_rows(plan.rows, labels, party)
        if train.any() and not train.all():
            party.site.enter_part(party, party.row_numbers[train], "boost.begin_boosting")
        base = state.objective.start(train, outputs, plan.base_score, added)
        state.models.append(
            Model(plan.settings, plan, train, np.tile(base, (party.n_rows, 1)), base,
                   party.generator("boost: rows of a tree", plan.seed))
        )  # fmt: skip
    party.keep(state)
    return {"outputs": outputs, "task": labels.task}


def _label_noise(
    party: Party, labels: Labels, plans: list[Plan], outputs: int, epsilon: float, delta: float, sums: str
) -> LabelNoise:
    """Of one model whose every step is counted; what looks at labels otherwise is refused here, too."""
    if not plans:
        raise OperationRefused(party.name, "begin_private_boosting", "there is no model to begin")
    plan = plans[0]
    depthwise = plan.settings.max_depth > 0 and not plan.settings.leaf_wise
    counted = depthwise and plan.rows == {"kind": "all"} and not plan.by_gradient and not plan.early_stopping_rounds
    together = plan.multi_output and outputs > 1
    if len(plans) != 1 or not counted or together or labels.task == "regression" or sums == "compared":
        raise OperationRefused(party.name, "begin_boosting", "epsilon covers one classifier whose steps are counted")
    return LabelNoise(epsilon, delta, plan.n_estimators, plan.settings.max_depth, outputs, party.n_rows)


def check_first_tree(
    party: Party, state: Boosting, live: list[int], columns: dict[str, list[np.ndarray]]
) -> None:  # fmt: skip
    """Sums of the first tree are counts of labels: where the accepted job grows it from own columns alone, no others
    are looked at, unless there are none. (Under an epsilon every step of every tree is counted.)"""
    told = {} if party.run.job is None else party.run.job.parameters
    if not told.get("first_tree_local") or told.get("epsilon") is not None:
        return
    own = columns.get(party.name, [])
    for number, chosen in zip(live, own):
        if 0 <= number < len(state.models) and len(chosen) and not state.models[number].trees:
            raise OperationRefused(
                party.name, "boosting", "the accepted job grows the first tree from own columns alone"
            )


def new_jobs(
    party: Party, state: Boosting, live: list[int], columns: dict[str, list[np.ndarray]], sample: bool
) -> list[Job]:
    """One more tree of each live model (one an output), with its root; ``set`` numbers the different gradients."""
    if len(set(live)) != len(live) or not all(0 <= number < len(state.models) for number in live):
        raise OperationRefused(party.name, "boosting", "a model that does not grow here")
    if party.name not in columns or any(len(chosen) != len(live) for chosen in columns.values()):
        raise OperationRefused(party.name, "boosting", "columns are told for every live model")
    for chosen in columns[party.name]:
        if chosen.ndim != 1 or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(party.columns)):
            raise OperationRefused(party.name, "boosting", "a column number is out of range")
    jobs: list[Job] = []
    known: dict[bytes, int] = {}
    for index, model_number in enumerate(live):
        model = state.models[model_number]
        model.begun += 1
        if model.begun > model.plan.n_estimators:
            raise OperationRefused(party.name, "boosting", "a model grows as many trees as its plan says")
        g, h = state.objective.gradients(model.margins, model.train)
        train, weights = _sampled(model, g, sample)
        fitted, codes = fitted_bins(party, model.plan.bins)
        mine = {name: chosen[index].astype(np.int64) for name, chosen in columns.items()}
        own = mine[party.name]
        together = model.plan.multi_output or state.outputs == 1
        for output in [None] if together else range(state.outputs):
            part = slice(None) if output is None else slice(output, output + 1)
            exact = g[:, part], h[:, part]
            heavy = exact[0][train] * weights[train, None], exact[1][train] * weights[train, None]
            numbers, units = _whole(state, model, mine, *heavy)
            whole = np.zeros((party.n_rows, numbers.shape[1]), dtype=np.int64)
            whole[train] = numbers
            fingerprint = np.packbits(train).tobytes() + numbers.tobytes()
            gradient_set = known.setdefault(fingerprint, len(known))
            job = Job(model_number, output, gradient_set, train, exact, whole, units,
                      [fitted[c] for c in own], chosen_codes(codes, own), mine)  # fmt: skip
            job.nodes[0] = make_node(job, 0, 0, np.arange(party.n_rows))
            jobs.append(job)
    state.jobs = jobs
    return jobs


def _whole(
    state: Boosting, model: Model, columns: dict[str, np.ndarray], g: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, Units]:
    """Gradients and hessians as whole numbers."""
    if state.sums == "encrypted":
        return whole_numbers(g, h, state.bits, None if state.noise is None else 1.0)
    if state.noise is not None:
        return whole_for_sums(g, h, largest=state.noise.largest_sum(model.plan.bins, *counted(state.me, columns)))
    return whole_for_sums(g, h)


def counted(me: str, columns: dict[str, np.ndarray]) -> tuple[int, int]:
    """How many columns of a tree are others', and how many are the label holder's own."""
    return sum(len(chosen) for name, chosen in columns.items() if name != me), len(columns[me])


def _sampled(model: Model, g: np.ndarray, by_gradient: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows of one tree and their weights."""
    plan = model.plan
    if by_gradient and plan.top_rate < 1:
        return large_gradients(g, model.train, plan.top_rate, plan.other_rate, model.generator)
    every = np.ones(len(g))
    if plan.subsample < 1:
        return model.train & (model.generator.random(len(g)) < plan.subsample), every
    return model.train, every


def _noisy_leaf(noise: LabelNoise, job: Job, node: Node, settings: TreeSettings) -> np.ndarray:
    """With noise in the gradient sum, and as much more penalty as a noisy leaf of this weight deserves."""
    scale = noise.leaf_scale()
    gradient = (int(node.total[0]) + int(whole_noise((1,), scale, job.units.gradient)[0])) * job.units.gradient
    weight = float(node.total[1]) * job.units.hessian + settings.reg_lambda + 1e-12
    return np.array([-settings.learning_rate * gradient / (weight + scale**2 / weight)])


@operation(
    "boost.end_round",
    when="protection=coordinator|open",
    times="20000 a session",
    discloses="control",
    about="which models go on",
    reply={"live": Array("i")},
)
def end_round(party: Party) -> dict[str, Any]:
    """Leaf values, new scores, early stopping."""
    state = party.held(Boosting)
    if state.noise is not None:
        state.noise.use_leaves()
    touched: dict[int, Model] = {}
    for job in state.jobs:
        model = touched.setdefault(job.model, state.models[job.model])
        part = slice(None) if job.output is None else slice(job.output, job.output + 1)
        for number, node in job.nodes.items():
            if number in job.tree:
                continue
            # A sample by gradients only chooses splits: the label holder has every row's gradient for the leaves.
            rows = node.rows[model.train[node.rows]] if model.plan.top_rate < 1 else node.train
            if state.noise is None:
                value = leaf_value(job.exact[0][rows], job.exact[1][rows], model.settings)
            else:
                value = _noisy_leaf(state.noise, job, node, model.settings)
            job.tree[number] = StoredNode(value.tolist())
            model.margins[node.rows, part] += value
        nodes = [job.tree[number] for number in sorted(job.tree)]
        model.trees.append(StoredTree(-1 if job.output is None else job.output, nodes))
    for model in touched.values():
        if model.plan.early_stopping_rounds:
            model.history.append(state.objective.loss(model.margins, ~model.train))
            since = len(model.history) - 1 - int(np.argmin(model.history))
            model.stopped = since >= model.plan.early_stopping_rounds
    state.jobs = []
    live = [number for number, model in enumerate(state.models) if not model.stopped]
    return {"live": np.array(live, dtype=np.int64)}
