"""The conversation in which trees grow and nobody reads a sum, a node, a leaf or a gradient. Runs at the coordinator.

As in ``hidden/growing.py`` the sums of a level are products on shares, with randomness that the coordinator deals. Here
everything about rows is shared as well (``program.py``, ``state.py``): scores, gradients, who is in a node. The parties
compare candidates on shares (``program.py``), the owner of a cut learns which one it is, the label holder who cuts a
node; then rows are divided on shares, and at the bottom the leaves are divided and added to the scores. All of it is
sealed between the parties: the coordinator sees sizes, which follow from numbers of rows, candidates and levels. One
message carries a step of the trees of all models of a group (``together.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedsift.core.federation import Federation
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import ReplyError
from fedsift.models.boost.compared import choosing, ending, predicting, state, stopping, taking_part
from fedsift.models.boost.compared.choosing import (
    begin_finals,
    begin_leaves,
    compare_level,
    hide_level,
    keep_leaves,
    pass_best,
    take_winners,
    tell_winners,
)
from fedsift.models.boost.compared.ending import (
    begin_gains,
    begin_scores,
    finish_level,
    finish_tree,
    gain_halves,
    hear_scores,
    show_scores,
)
from fedsift.models.boost.compared.predicting import RowDealer
from fedsift.models.boost.compared.program import (
    Ending,
    Shape,
    Sums,
    best_cuts,
    column_gains,
    divided,
    ended,
    leaves,
    scored,
    started,
    winners,
)
from fedsift.models.boost.compared.scales import Limits, Scales
from fedsift.models.boost.compared.state import compare, nodes_and_leaves, purpose
from fedsift.models.boost.compared.taking_part import begin_tree, divide_rows, expect_models, expect_round
from fedsift.models.boost.compared.together import Sized, groups
from fedsift.models.boost.hidden.cuts import Layout, TreeCuts
from fedsift.models.boost.hidden.label_holder import keep_cuts, meet_cuts
from fedsift.models.boost.hidden.passive import dealt_pieces, describe_cuts, hide_cuts
from fedsift.models.boost.hidden.shares import (
    Corrections,
    Level,
    Piece,
    Tree,
    boxes_for,
    draw_counts,
    draw_splits,
    level_products,
)
from fedsift.models.boost.plan import Plan
from fedsift.mpc.comparing import DealerSource, Program, dealt_for
from fedsift.mpc.dealer import Dealer
from fedsift.mpc.fractions import Fractions
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.ring import from_ring
from fedsift.mpc.row_programs import selected
from fedsift.mpc.wide import widen

OPERATIONS = (
    state.compare, *taking_part.OPERATIONS, *choosing.OPERATIONS, *stopping.OPERATIONS, *ending.OPERATIONS,
    *predicting.OPERATIONS,
)  # fmt: skip
T = TypeVar("T")
_Boxes = dict[str, dict[str, SealedBox]]
Use = tuple[str, int, int, int, float]


@dataclass
class ComparedTrees:
    """The coordinator's side of one run, with the dealer's randomness: ``begin`` once, ``grow`` for every model."""

    fed: Federation
    rows: RowDealer
    sources: dict[str, DealerSource]  # of the label holder with each other party
    layouts: dict[str, dict[int, Layout]]
    masks: dict[str, dict[int, list[Piece]]]
    group: list[Sized] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)  # of models that were stopped or looked back: their trees
    shown: int = 0  # groups whose scores were

    @property
    def first(self) -> str:
        return self.fed.passive[0]

    @property
    def dealer(self) -> Dealer:
        return self.rows.dealer

    @classmethod
    def begin(cls, fed: Federation, bins: list[int]) -> ComparedTrees:
        """Keys between the parties, the dealer's seeds, and everybody's cuts, hidden once from the other side."""
        meet_all(fed)
        rows = RowDealer.begin(fed)
        of, first = rows.dealer.of, fed.passive[0]
        told = fed.ask(
            describe_cuts, to=fed.parties, bins=bins,
            each={name: {"peer": first if name == fed.active else fed.active} for name in fed.parties},
        )  # fmt: skip
        layouts = {name: _read_layouts(fed, name, bins, fields) for name, fields in told.items()}
        fed.ask(meet_cuts, to=fed.active, bins=bins, layouts={name: told[name] for name in fed.passive})
        fed.ask(meet_cuts, to=first, bins=bins, layouts={fed.active: told[fed.active]})
        masks = {name: dealt_pieces(of[name], layouts[name], fed.n_rows) for name in fed.parties}
        for name in fed.parties:
            reader = first if name == fed.active else fed.active
            for count in bins:
                for piece in range(len(masks[name][count])):
                    box = fed.ask(hide_cuts, to=name, bins=count, piece=piece)
                    fed.ask(keep_cuts, to=reader, sender=name, bins=count, piece=piece, box=box)
        sources = {name: DealerSource(of[fed.active], of[name], purpose(name)) for name in fed.passive}
        return cls(fed, rows, sources, layouts, masks)

    # -- a model -----------------------------------------------------------------------------------------------------

    def groups(
        self, plans: Sequence[Plan], columns: Sequence[dict[str, np.ndarray]], logistic: bool, outputs: int
    ) -> list[list[Sized]]:
        """Models (``outputs`` of each booster) that grow together."""
        models = []
        for booster, (plan, chosen) in enumerate(zip(plans, columns)):
            scales, depth = Scales.of(logistic, self.fed.n_rows, plan.settings), plan.settings.max_depth
            candidates = sum(int(self.layouts[name][plan.bins].counts[each].sum()) for name, each in chosen.items())
            told = plan.n_estimators, scales, depth, candidates
            models += [Sized(booster * outputs + output, *told) for output in range(outputs)]
        return groups(self.fed.n_rows, models)

    def expect(self, group: list[Sized], plans: Sequence[Plan], logistic: bool, outputs: int) -> None:
        """Begin the models of the next group."""
        fed, fields = self.fed, [plans[model.number // outputs].as_dict() for model in group]
        fed.ask(
            expect_models, to=fed.parties, models=[model.number for model in group], plans=fields, logistic=logistic,
            outputs=outputs,
        )  # fmt: skip
        self.rows.scales, self.group = group[0].scales, group

    def grow(self, trees: list[Tree], columns: dict[str, list[np.ndarray]], sampled: bool) -> None:
        """One more tree of some models of the group, the deepest first."""
        fed, scales = self.fed, self.rows.scales
        fed.ask(expect_round, to=fed.parties, trees=[tree.as_list() for tree in trees], columns=columns)
        cuts = {
            name: [self.layouts[name][tree.bins].tree(chosen) for tree, chosen in zip(trees, columns[name])]
            for name in fed.parties
        }
        zeros = np.zeros((len(trees), fed.n_rows), np.uint64)
        learnt = np.zeros((len(trees), (fed.n_rows + 7) // 8), np.uint8) if sampled else None
        program = started(self.rows.source, scales, zeros.astype(scales.words), zeros, learnt)
        rows = self.rows.run(fed, begin_tree, program, sampled=sampled)
        ends: list[Ending] = []
        for number in range(trees[0].depth):
            level, more = Level.of(trees, number), len(Level.of(trees, number + 1).trees)
            self._choose(level, cuts)
            won = fed.ask(tell_winners, to=fed.active, order=fed.parties)
            answers = fed.ask(take_winners, to=fed.passive, each=boxes_for(won, fed.passive, fed.active))
            nothing = np.zeros_like(rows.bits)
            ends[:0] = ended(rows.bits, nothing, len(level.trees), more)
            if more:
                program = divided(self.rows.source, rows, nothing, more)
            else:
                program = self._leaves(trees, ends)
            rows = self.rows.run(fed, divide_rows, program, answers)
            fed.ask(finish_level, to=fed.parties)
            self.rows.step += 1
        fed.ask(finish_tree, to=fed.parties)

    def stop(self, trees: list[Tree], round: int, patience: int) -> None:
        """Look whether the loss of held-out rows got smaller by these trees, and which models end here."""
        models = [self.group[tree.model].number for tree in trees]
        told = {model.number: model.trees for model in self.group}
        grown = np.array([told[number] == round + 1 for number in models])
        ended = stopping.compare_losses(self.fed, self.rows, len(models), grown, round, patience)
        wanted = {number for number, whole in zip(models, grown) if whole}
        if not wanted <= set(ended) <= set(models) or max(ended.values(), default=1) > round + 1:
            raise ReplyError(self.fed.active, "tell_stopped", "it told of models that have not just grown")
        self.kept |= ended

    def _limits(self, trees: Sequence[Tree], nodes: Sequence[int]) -> Limits:
        return Limits.of([self.group[tree.model].scales for tree in trees], nodes)

    def _choose(self, level: Level, cuts: dict[str, list[TreeCuts]]) -> None:
        """The best cut of every node, on shares: sums, each party's best, the best of all."""
        fed, first = self.fed, self.first
        hidden = fed.ask(hide_level, to=fed.parties)
        mine = boxes_for(hidden[fed.active], fed.passive, fed.active)
        each: dict[str, dict[str, Any]] = {
            name: {"boxes": {fed.active: mine[name]["box"]}, "corrections": {}, "dealt": {}} for name in fed.passive
        }
        others = [name for name in fed.passive if name != first]
        each[first]["corrections"] = {fed.active: self._correction(level, fed.active, first, cuts)}
        each[fed.active] = {
            "boxes": {first: hidden[first][fed.active]},
            "corrections": {name: self._correction(level, name, fed.active, cuts) for name in fed.passive},
            "dealt": {name: self._deal(name, self._best(level, name, cuts)) for name in fed.passive},
        }
        begun = fed.ask(compare_level, to=fed.parties, each=each)
        self._compare(begun)
        passed = fed.ask(pass_best, to=others) if others else {}
        nodes = level.nodes * len(level.trees)
        limits = self._limits(level.trees, [level.nodes] * len(level.trees))
        finals = winners(
            self.sources[first], Sums.nothing(nodes), [Fractions.empty(nodes, 1) for _ in fed.parties],
            fed.parties.index(fed.active), self.rows.scales, limits, widen(np.zeros(nodes, np.uint64)),
        )  # fmt: skip
        dealt = self._deal(first, finals)
        each = {fed.active: {"boxes": {}, "dealt": dealt}, first: {"boxes": passed, "dealt": []}}
        self._talk(fed.ask(begin_finals, to=[fed.active, first], each=each, order=fed.parties))

    def _leaves(self, trees: list[Tree], ends: list[Ending]) -> Program[Any]:
        """Leaves and gains of the trees' nodes, between the label holder and the first party, passed on to the rest.
        Then comes the program that adds them to scores."""
        fed, first, scales = self.fed, self.first, self.rows.scales
        parts = nodes_and_leaves(trees)
        nothing, limits = np.zeros(parts[-1].stop, np.uint64), self._limits(trees, [len(part) for part in parts])
        dealt = self._deal(first, leaves(self.sources[first], nothing, scales, limits))
        each: dict[str, dict[str, Any]] = {fed.active: {"dealt": dealt}, first: {"dealt": []}}
        self._talk(fed.ask(begin_leaves, to=[fed.active, first], each=each))
        passed = fed.ask(keep_leaves, to=[fed.active, first], boxes={})[first]
        others = [name for name in fed.passive if name != first]
        if others:
            fed.ask(keep_leaves, to=others, each={name: {"boxes": {first: passed[name]}} for name in others})
        scores, codes = np.zeros((1, fed.n_rows), scales.words), [np.zeros(2**t.depth, np.uint64) for t in trees]
        return scored(self.rows.source, scores, ends, codes, scales.leaf_width)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _talk(self, begun: dict[str, SealedBox]) -> None:
        """A program between the label holder and the first party."""
        active, first = self.fed.active, self.first
        self._compare({active: {first: begun[active]}, first: {active: begun[first]}})

    def _compare(self, begun: _Boxes) -> None:
        """Messages to and fro until every pair's program has ended. Both sides of a pair end together."""
        fed = self.fed
        own = begun[fed.active]
        theirs = {name: boxes[fed.active] for name, boxes in begun.items() if name != fed.active}
        while own:
            if set(own) != set(theirs) or not set(own) <= set(fed.passive):
                raise ReplyError(fed.active, "compare", "the two sides of a comparison are not at the same step")
            each = {name: {"boxes": {fed.active: box}} for name, box in own.items()}
            answers = fed.ask(compare, to=[fed.active, *own], each={fed.active: {"boxes": theirs}, **each})
            own = answers.pop(fed.active)
            theirs = {name: reply[fed.active] for name, reply in answers.items() if reply}

    # -- the dealer's part -------------------------------------------------------------------------------------------

    def _deal(self, name: str, program: Program[Any]) -> list[np.ndarray]:
        return dealt_for(program, self.sources[name])

    def _best(self, level: Level, name: str, cuts: dict[str, list[TreeCuts]]) -> Program[Fractions]:
        owners, trees = [name, self.fed.active] if name == self.first else [name], len(level.trees)
        shape = Shape.of(level, [each for owner in owners for each in cuts[owner][:trees]])
        found, totals = Sums.nothing(len(shape.node)), Sums.nothing(shape.nodes)
        limits = self._limits(level.trees, [level.nodes] * trees).repeated(len(owners))
        return best_cuts(self.sources[name], shape, found, totals, self.rows.scales, limits)

    def _correction(self, level: Level, owner: str, reader: str, cuts: dict[str, list[TreeCuts]]) -> Corrections:
        """U'V - C, for the one who reads the owner's cuts under a mask and hides its own share of the rows."""
        values, counts = self._hidden(level, reader)
        found = level_products(level, self.masks[owner], cuts[owner], values, counts)
        splits = draw_splits(self.dealer.of[owner], self.rows.step, level, cuts[owner])
        parts, end = [product - split for product, split in zip(found, splits)], level.summed
        return {
            "values": np.concatenate([part[:, :end].ravel() for part in parts]),
            "counts": np.concatenate([part[:, end:].ravel() for part in parts]).astype(np.uint32),
        }

    def _hidden(self, level: Level, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The masks of a party's share of the rows; drawn once a level."""
        dealt, key = self.dealer.of[name], (self.rows.step, name)
        if key not in self.rows.drawn:
            shape = self.fed.n_rows, level.summed * len(level.trees)
            self.rows.drawn = {k: v for k, v in self.rows.drawn.items() if k[0] == self.rows.step}
            values = dealt.draw("boost: gradients", self.rows.step, shape)
            self.rows.drawn[key] = values, draw_counts(dealt, "boost: counts", self.rows.step, *shape)
        return self.rows.drawn[key]

    # -- at the end --------------------------------------------------------------------------------------------------

    def show_scores(self) -> None:
        """The label holder reads the scores of the rows that were held out."""
        number, fed, models = self.shown, self.fed, len(self.group)
        scores = np.zeros((models, fed.n_rows), self.rows.scales.words)
        held = np.zeros((models, (fed.n_rows + 7) // 8), np.uint8)
        self.rows.run(fed, begin_scores, selected(self.rows.source, held, scores))
        box = fed.ask(show_scores, to=self.first, number=number)
        fed.ask(hear_scores, to=fed.active, number=number, box=box)
        self.shown += 1

    def uses(self, model: Sized, outputs: int) -> list[Use]:
        """Of every column that a model of the group cut: party, booster, column, splits, gain."""
        fed, heights, booster = self.fed, dict(self.fed.n_columns), model.number // outputs
        dealt, nodes = {}, self.kept.get(model.number, model.trees) * (2**model.depth - 1)
        for name in fed.passive:
            owners = [name, fed.active] if name == self.first else [name]
            table = np.zeros((sum(heights[each] for each in owners), (nodes + 7) // 8), np.uint8)
            dealt[name] = self._deal(name, column_gains(self.sources[name], table, np.zeros(nodes, np.uint64)))
        each = {name: {"dealt": dealt if name == fed.active else {}} for name in fed.parties}
        self._compare(fed.ask(begin_gains, to=fed.parties, each=each, model=model.number, heights=heights))
        replies = fed.ask(gain_halves, to=fed.parties, model=model.number)
        return [use for name in fed.passive for use in self._opened_gains(name, booster, replies, heights)]

    def _opened_gains(self, name: str, booster: int, replies: dict[str, Any], heights: dict[str, int]) -> list[Use]:
        """Of one pair: the party's columns, and with the first party the label holder's."""
        active, unit = self.fed.active, replies[self.fed.active]["unit"]
        owners = [name, active] if name == self.first else [name]
        size = sum(heights[each] for each in owners)
        halves = replies[active]["halves"].get(name), replies[name]["halves"].get(active)
        for half, whose in zip(halves, (active, name)):
            if not isinstance(half, np.ndarray) or half.dtype != np.uint64 or half.shape != (size,):
                raise ReplyError(whose, "gain_halves", "halves of another number of columns than there are")
        gains, at, found = from_ring(halves[0] + halves[1], 0) * unit, 0, []
        for owner in owners:
            splits = replies[owner]["splits"]
            if splits.shape != (heights[owner],):
                raise ReplyError(owner, "gain_halves", "it counted the cuts of another number of columns")
            for column in np.flatnonzero(splits).tolist():
                found.append((owner, booster, column, int(splits[column]), float(gains[at + column])))
            at += heights[owner]
        return found


def _read_layouts(fed: Federation, name: str, bins: list[int], fields: list[dict[str, Any]]) -> dict[int, Layout]:
    if len(fields) != len(bins):
        raise ReplyError(name, "describe_cuts", "it described another number of tables than were asked for")
    return {
        count: Layout.read(part["counts"], part["categories"], fed.n_columns[name], name)
        for count, part in zip(bins, fields)
    }
