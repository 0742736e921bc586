"""The conversation in which boosted trees grow, for one model or for many in lock-step. Runs at the coordinator.

``protection="coordinator"`` and ``"all"``: on shares (``hidden/growing.py``, ``compared/growing.py``). ``"open"``,
here: one level of all trees is encrypted sums from the parties, the best splits from the label holder, rows divided by
the owners of the columns that were chosen. The smaller child of each split is summed, the other by subtraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.crypto.dp import Privacy
from fedsift.errors import ReplyError
from fedsift.models.boost.compared import growing as compared_growing
from fedsift.models.boost.compared.growing import ComparedTrees
from fedsift.models.boost.hidden import growing as hidden_growing
from fedsift.models.boost.hidden.growing import HiddenTrees, Uses, check_neutral, check_settings
from fedsift.models.boost.hidden.shares import Tree
from fedsift.models.boost.label_holder import (
    advance,
    choose_splits,
    grow_own_trees,
    next_sampled_trees,
    next_trees,
)
from fedsift.models.boost.level_messages import check_told
from fedsift.models.boost.passive import divide, level_sums, receive_gradients
from fedsift.models.boost.plan import Plain, Plan
from fedsift.models.boost.privacy import LabelNoise
from fedsift.models.boost.rounds import begin_boosting, begin_private_boosting, end_round
from fedsift.models.boost.settings import check_shared
from fedsift.models.boost.sums import expected_answers, rows_per_ciphertext
from fedsift.models.boost.tree import PRECISION_BITS, TreeSettings
from fedsift.mpc import pairs
from fedsift.mpc.encrypted_histogram import public_key
from fedsift.mpc.pairs import meet_all

#: What both forms ask.
OPERATIONS = (
    begin_boosting, begin_private_boosting, end_round, grow_own_trees, next_trees, next_sampled_trees,
    receive_gradients, level_sums,
    choose_splits, divide, advance, public_key, *hidden_growing.OPERATIONS, *compared_growing.OPERATIONS,
)  # fmt: skip


@dataclass
class Booster:
    """One model to grow: its settings and the columns (positions, by party) that it may use."""

    settings: TreeSettings
    columns: dict[str, np.ndarray]
    n_estimators: int
    bins: int = 32
    rows: dict[str, Plain] = field(default_factory=lambda: {"kind": "all"})
    base_score: float | None = None
    subsample: float = 1.0
    top_rate: float = 1.0  # below 1: gradient-based sampling
    other_rate: float = 0.0
    colsample_bytree: float = 1.0
    multi_output: bool = False
    early_stopping_rounds: int = 0
    seed: int = 0

    def plan(self) -> Plan:
        """What the label holder needs to know."""
        return Plan(
            self.settings, self.n_estimators, self.bins, self.rows, self.base_score, self.subsample, self.top_rate,
            self.other_rate, self.multi_output, self.early_stopping_rounds, self.seed,
        )  # fmt: skip

    @property
    def by_gradient(self) -> bool:
        return self.top_rate < 1

    def drawn(self, round: int) -> dict[str, np.ndarray]:
        """The columns of one tree: a share drawn over all parties, at least one."""
        if self.colsample_bytree >= 1:
            return self.columns
        every = [(party, int(c)) for party, columns in self.columns.items() for c in columns]
        generator = np.random.default_rng([self.seed, round])
        size = max(1, round_half_up(self.colsample_bytree * len(every)))
        kept = {every[i] for i in generator.choice(len(every), size=size, replace=False)}
        return {p: np.array([c for c in cs if (p, int(c)) in kept], dtype=np.int64) for p, cs in self.columns.items()}


def round_half_up(value: float) -> int:
    return int(np.floor(value + 0.5))


def grow(
    fed: Federation,
    boosters: list[Booster],
    *,
    protection: str,
    scheme: str = "auto",
    least: int = 1,
    bits: int = PRECISION_BITS,
    first_tree_local: bool = True,
    per: int | None = None,
    privacy: Privacy | None = None,
    scored: bool = False,
) -> Uses:
    """Grow all boosters. Their results stay with the label holder, see ``results.py``; what comes back are the cuts of
    the other parties' columns (none in the open form, where the label holder knows them). With ``privacy`` (of one
    booster) sums and leaves have noise; then no tree is grown apart, because every step of every tree is counted.
    ``scored``: the models are to be scored by held-out rows (on shares the label holder reads their scores then)."""
    if protection == "open" or not fed.passive or not boosters:
        _grow_open(fed, boosters, scheme, least, bits, first_tree_local, per, privacy)
        return []
    check_neutral(fed, "boosting")
    for booster in boosters:
        check_settings(booster.settings)
        check_shared(
            protection, by_gradient=booster.by_gradient, private=privacy is not None,
            together=booster.multi_output and fed.n_classes > 2,
        )  # fmt: skip
    if protection == "all":
        return _grow_shared(fed, boosters, first_tree_local, scored)
    begun = _begin(fed, boosters, scheme, 0, "opened", privacy)
    _note_hidden(fed, first_tree_local, privacy)
    hidden: HiddenTrees | None = None
    for round, live in _rounds(fed, boosters):
        columns, shared = _columns(fed, boosters, live, round)
        if privacy is not None or (shared and not (first_tree_local and round == 0)):
            trees, outputs = [], begun["outputs"]
            for place, booster in enumerate(boosters[m] for m in live):
                together = booster.multi_output or outputs == 1
                tree = Tree(place, booster.bins, booster.settings.max_depth, outputs if together else 1)
                trees += [tree] * (1 if together else outputs)
            hidden = hidden or HiddenTrees.begin(fed, sorted({booster.bins for booster in boosters}))
            noise = None if privacy is None else _noise(fed, boosters[0], outputs, privacy)
            hidden.grow(live, trees, [boosters[m].settings for m in live], columns, noise)
        else:
            fed.ask(grow_own_trees, to=fed.active, live=live, columns=columns)
    return [] if hidden is None else hidden.uses(len(boosters))


def _noise(fed: Federation, booster: Booster, outputs: int, privacy: Privacy) -> LabelNoise:
    """As the label holder counts it: the coordinator allows for the noise when it compares gains."""
    depth = booster.settings.max_depth
    return LabelNoise(privacy.epsilon, privacy.delta, booster.n_estimators, depth, outputs, fed.n_rows)


def _grow_shared(fed: Federation, boosters: list[Booster], first_tree_local: bool, scored: bool) -> Uses:
    """Level ``all``: group after group of models, everything about rows on shares."""
    outputs = _begin(fed, boosters, "auto", 0, "compared")["outputs"]
    fed.ledger.note(
        "protection='all': nobody reads a sum, a node, a leaf or a gradient; the label holder learns who cuts a "
        "node, the owner of a cut which one it is; the coordinator deals the randomness and reads "
        + ("no sum" if scored else "the summed gain of each column")
    )
    if scored:
        fed.ledger.note("the label holder reads the scores of held-out rows, summed over all trees of a model")
    trees = ComparedTrees.begin(fed, sorted({booster.bins for booster in boosters}))
    logistic, plans = fed.task == "classification", [booster.plan() for booster in boosters]
    groups = trees.groups(plans, [booster.columns for booster in boosters], logistic, outputs)
    found: Uses = []
    rounds = [(group, max(boosters[model.number // outputs].n_estimators for model in group)) for group in groups]
    steps = [(group, round, round == count - 1) for group, count in rounds for round in range(count)]
    stops = any(booster.early_stopping_rounds for booster in boosters)
    if stops:
        fed.ledger.note("early stopping: losses stay shares; everybody learns how many trees a model has")
    for group, round, last in fed.track(steps, "tree", at_most=stops):
        if round == 0:
            trees.expect(group, plans, logistic, outputs)
        _shared_round(fed, trees, boosters, round, outputs, first_tree_local)
        if last and scored:
            trees.show_scores()
        elif last:
            found += [use for model in group for use in trees.uses(model, outputs)]
    return found


def _shared_round(
    fed: Federation, trees: ComparedTrees, boosters: list[Booster], round: int, outputs: int, first_tree_local: bool
) -> None:
    """One more tree of every model of the group that goes on."""
    places = [(p, model.number // outputs) for p, model in enumerate(trees.group) if model.number not in trees.kept]
    live = [(place, booster) for place, booster in places if round < boosters[booster].n_estimators]
    if not live:
        return
    columns, _ = _columns(fed, boosters, [booster for _, booster in live], round)
    if first_tree_local and round == 0:
        own = columns[fed.active]
        for name in fed.passive:
            columns[name] = [each[: 0 if len(mine) else None] for each, mine in zip(columns[name], own)]
    chosen = [boosters[booster] for _, booster in live]
    told = [Tree(place, each.bins, each.settings.max_depth, 1) for (place, _), each in zip(live, chosen)]
    trees.grow(told, columns, any(each.subsample < 1 or each.rows["kind"] != "all" for each in chosen))
    if chosen[0].early_stopping_rounds:
        trees.stop(told, round, chosen[0].early_stopping_rounds)


def _begin(
    fed: Federation, boosters: list[Booster], scheme: str, bits: int, sums: str, privacy: Privacy | None = None
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "models": [b.plan().as_dict() for b in boosters], "order": fed.parties, "scheme": scheme,
        "task": fed.asked_task, "bits": bits, "sums": sums,
    }  # fmt: skip
    if privacy is None:
        return fed.ask(begin_boosting, to=fed.active, **given)
    return fed.ask(begin_private_boosting, to=fed.active, **given, epsilon=privacy.epsilon, delta=privacy.delta)


def _rounds(fed: Federation, boosters: list[Booster]) -> Iterator[tuple[int, list[int]]]:
    """Number and live models of every round; the label holder ends it and says which models go on."""
    live = list(range(len(boosters)))
    for round in fed.track(range(max((b.n_estimators for b in boosters), default=0)), "tree", at_most=True):
        live = [m for m in live if round < boosters[m].n_estimators]
        if not live:
            break
        yield round, live
        going = set(fed.ask(end_round, to=fed.active)["live"].tolist())
        live = [m for m in live if m in going]


def _columns(
    fed: Federation, boosters: list[Booster], live: list[int], round: int
) -> tuple[dict[str, list[np.ndarray]], list[str]]:
    """Of each party the columns of each tree, and the parties without labels that have any."""
    drawn = [boosters[m].drawn(round) for m in live]
    columns = {name: [np.asarray(d.get(name, ()), dtype=np.int64) for d in drawn] for name in fed.parties}
    return columns, [name for name in fed.passive if any(len(c) for c in columns[name])]


def _note_hidden(fed: Federation, first_tree_local: bool, privacy: Privacy | None) -> None:
    fed.ledger.note(
        "protection='coordinator': the coordinator reads the sums of every candidate cut, with noise of a row's size "
        "(sum_noise; row counts exactly), candidates shuffled and unnamed, and deals the randomness; the label holder "
        "learns which rows of a node go left at another party's cut"
    )
    if privacy is not None:
        _note_privacy(fed, privacy)
    elif not first_tree_local:
        fed.ledger.note("first_tree_local=False: the first tree's sums are label counts of other parties' bins")


def _note_privacy(fed: Federation, privacy: Privacy) -> None:
    fed.ledger.note(
        f"epsilon {privacy.epsilon:g} (delta {privacy.delta:g}) for the label of one row, in this run: discrete "
        "Gaussian noise of the label holder in every sum that cuts are chosen from, in the start score and in the "
        "leaves. It is no privacy of columns: the label holder reads left and right of node rows (in the open form "
        "sums, too) exactly"
    )


def _grow_open(
    fed: Federation, boosters: list[Booster], scheme: str, least: int, bits: int, first_tree_local: bool,
    per: int | None, privacy: Privacy | None,
) -> None:  # fmt: skip
    """The encrypted form (Cheng et al. 2021): for research, and where a data holder runs the coordinator."""
    if fed.passive:
        meet_all(fed, circle=pairs.CIRCLE)
    begun = _begin(fed, boosters, scheme, bits, "encrypted", privacy)
    packing = (
        _Packing(fed, boosters, scheme, bits, begun["outputs"]) if per is None and fed.passive and boosters else None
    )
    _note_protection(fed, least, first_tree_local, any(b.by_gradient for b in boosters))
    if privacy is not None:
        _note_privacy(fed, privacy)
    for round, live in _rounds(fed, boosters):
        rows_together = per or (packing.choose() if packing else 1)
        answers = _one_round(fed, boosters, live, round, first_tree_local and round == 0, rows_together, least)
        if packing and len(boosters) == 1:
            packing.learn(answers)


def _note_protection(fed: Federation, least: int, first_tree_local: bool, by_gradient: bool) -> None:
    """What is shown, and what was turned off, is in the ledger."""
    if fed.passive:
        fed.ledger.note(
            "protection='open': the label holder reads gradient sums of the other parties' bins, which are linear "
            "equations for their columns, and the other parties see which rows lie together in a node"
        )
    if fed.passive and not first_tree_local:
        fed.ledger.note("first_tree_local=False: the first tree's sums are label counts of other parties' bins")
    if fed.passive and least <= 1:
        fed.ledger.note("min_cell=1 and min_leaf=1: gradients of single rows may have been read as sums")
    if fed.passive and by_gradient:
        fed.ledger.note('sampling_method="gradient_based": the parties saw which rows were sampled, and so learnt '
                        "which rows tend to have large gradients (are predicted badly)")  # fmt: skip


class _Packing:
    """How many rows share a ciphertext, from public sizes: first from an estimate, then from the trees grown so far."""

    def __init__(self, fed: Federation, boosters: list[Booster], scheme: str, bits: int, outputs: int):
        self.fed, self.bits = fed, bits
        self.wide = outputs if boosters[0].multi_output else 1
        self.trees = len(boosters) * (1 if boosters[0].multi_output else outputs)  # that grow in one round
        self.key = fed.ask(public_key, to=fed.active, scheme=scheme)
        self.rows = float(np.mean([fed.n_rows * min(1.0, b.top_rate + b.other_rate, b.subsample) for b in boosters]))
        columns = float(np.mean([sum(len(b.columns.get(p, ())) for p in fed.passive) for b in boosters]))
        depth = float(np.mean([b.settings.max_depth or 6 for b in boosters]))
        bins = float(np.mean([b.bins for b in boosters]))
        self.answers = expected_answers(fed.n_rows, columns, bins, depth)

    def learn(self, answers: int) -> None:
        """So many sums were answered in a round; nothing is known from a round without any."""
        if answers:
            self.answers = answers / self.trees

    def choose(self) -> int:
        return rows_per_ciphertext(
            self.rows, self.answers, self.fed.n_rows, self.wide, self.bits, self.key, len(self.fed.passive)
        )


def _one_round(
    fed: Federation, boosters: list[Booster], live: list[int], round: int, local: bool, per: int, least: int
) -> int:
    """One more tree of each live model (one an output). Returns how many sums the parties answered."""
    columns, helpers = _columns(fed, boosters, live, round)
    if local or not helpers:
        fed.ask(grow_own_trees, to=fed.active, live=live, columns=columns)
        return 0
    start = next_sampled_trees if any(boosters[m].by_gradient for m in live) else next_trees
    started = fed.ask(start, to=fed.active, live=live, columns=columns, per=per)
    nodes, notes, answers = started.pop("nodes"), started.pop("notes"), 0
    each = {name: {"columns": columns[name], "note": notes.get(name, b"")} for name in helpers}
    bins = [boosters[m].bins for m in live]
    fed.ask(receive_gradients, to=helpers, each=each, bins=bins, least=least, **started)
    del started
    check_told(str(fed.active), nodes)
    more = len(nodes["job"]) > 0
    while more:
        replies = fed.ask(level_sums, to=helpers, nodes=nodes) if len(nodes["job"]) else {}
        for name, reply in replies.items():
            if reply["filled"].dtype != np.uint8:
                raise ReplyError(name, "level_sums", "which groups have rows is told in packed bits")
            answers += int(np.unpackbits(reply["filled"]).sum())
        cuts = fed.ask(choose_splits, to=fed.active, replies=replies)
        if not set(cuts) <= set(helpers):
            raise ReplyError(fed.active, "choose_splits", "it cut a column of a party that has none")
        sides = fed.ask(divide, to=list(cuts), each={p: {"cuts": cut} for p, cut in cuts.items()}) if cuts else {}
        step = fed.ask(advance, to=fed.active, sides=sides)
        nodes, more = step["nodes"], step["more"]
        check_told(str(fed.active), nodes)
    return answers
