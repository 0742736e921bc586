"""The conversation in which trees grow on shares and nobody reads a sum. Runs at the coordinator, which deals.

As in ``hidden/growing.py`` the sums of a level are products on shares. Here they stay shares: the label holder and each
other party compare that party's candidates in a tournament (``program.py``); then the label holder and one fixed party,
which gets the others' shares of their best cuts, compare those with the label holder's own best cut. The label holder
learns who won, and tells the winner its share of the place of its cut. All of it is sealed between the two parties: the
coordinator sees sizes, which follow from the numbers of rows, candidates and nodes. One fixed partner for the last
comparison is as safe as another: it sees one share of each number, under fresh randomness of the dealer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsift.core.federation import Federation
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import ParameterError, ReplyError
from fedsift.models.boost.compared import label_holder, passive, talks
from fedsift.models.boost.compared.label_holder import (
    begin_comparing,
    begin_own_finals,
    divide_compared,
    own_gain_halves,
    tell_winners,
)
from fedsift.models.boost.compared.passive import (
    begin_finals,
    compare_own,
    gain_halves,
    hide_cut_columns,
    pass_best,
    take_winners,
)
from fedsift.models.boost.compared.program import NodeFacts, Shape, best_cuts, finalists, winners
from fedsift.models.boost.compared.talks import compare, purpose
from fedsift.models.boost.hidden.cuts import Numbers
from fedsift.models.boost.hidden.growing import HiddenTrees, check_depth, of_level
from fedsift.models.boost.hidden.label_holder import hide_gradients
from fedsift.models.boost.hidden.passive import expect_trees
from fedsift.models.boost.hidden.shares import Level, Tree
from fedsift.models.boost.hidden.wire import boxes_for
from fedsift.models.boost.privacy import LabelNoise
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc.comparing import DealerSource, Fractions, dealt_for
from fedsift.mpc.dealer import correction
from fedsift.mpc.ring import from_ring
from fedsift.mpc.wide import WORDS

OPERATIONS = (talks.compare, *label_holder.OPERATIONS, *passive.OPERATIONS)


@dataclass
class ComparedTrees:
    """The coordinator's side of one run, with the dealer's randomness of every pair."""

    trees: HiddenTrees
    sources: Mapping[str, DealerSource]
    nodes: list[int]  # the model of every node of the run

    @classmethod
    def begin(cls, fed: Federation, bins: list[int]) -> ComparedTrees:
        trees = HiddenTrees.begin(fed, bins)
        of = trees.dealer.of
        sources = {name: DealerSource(of[fed.active], of[name], purpose(name)) for name in fed.passive}
        return cls(trees, sources, [])

    def grow(
        self, live: list[int], trees: list[Tree], settings: list[TreeSettings], columns: dict[str, list[Numbers]],
        noise: LabelNoise | None = None,
    ) -> None:  # fmt: skip
        """One more tree of each live model (one an output)."""
        if noise is not None:
            raise ParameterError("protection='all' has no epsilon: gains of columns are exact at its end")
        hidden, fed = self.trees, self.trees.fed
        shapes, first = [tree.as_list() for tree in trees], fed.passive[0]
        for name, peer in hidden.peers.items():
            peer.tree_cuts = [peer.layouts[tree.bins].tree(columns[name][tree.model]) for tree in trees]
        fed.ask(
            expect_trees, to=fed.passive, trees=shapes, live=live,
            each={name: {"columns": columns[name]} for name in fed.passive},
        )  # fmt: skip
        told = fed.ask(hide_gradients, to=fed.active, live=live, columns=columns, trees=shapes)
        number = 0
        while told["more"]:
            level = Level.of(trees, number)
            check_depth(level, fed.active)
            theirs = fed.ask(compare_own, to=fed.passive, each=boxes_for(told["boxes"], fed.passive, fed.active))
            dealt = {name: self._dealt(level, trees, name) for name in fed.passive}
            own = fed.ask(
                begin_comparing, to=fed.active, corrections=hidden.corrections(level, trees), dealt=dealt
            )  # fmt: skip
            self._compare(own, theirs)
            others = [name for name in fed.passive if name != first]
            passed = fed.ask(pass_best, to=others, first=first) if others else {}
            box = fed.ask(begin_finals, to=first, order=fed.parties, boxes=passed)
            final = fed.ask(begin_own_finals, to=fed.active, first=first, dealt=self._dealt_finals(level, first))
            self._compare({first: final}, {first: box})
            won = fed.ask(tell_winners, to=fed.active, first=first)
            answers = fed.ask(take_winners, to=fed.passive, each=boxes_for(won, fed.passive, fed.active))
            openings = hidden.openings(level, {name: slice(None) for name in fed.passive})
            told = fed.ask(divide_compared, to=fed.active, answers=answers, openings=openings)
            self.nodes += [live[tree.model] for tree in level.trees for _ in range(level.nodes)]
            hidden.step, number = hidden.step + 1, number + 1

    def _compare(self, own: dict[str, SealedBox], theirs: dict[str, SealedBox]) -> None:
        """Messages to and fro until every program has ended. Both sides of a pair end together."""
        fed = self.trees.fed
        while own:
            if set(own) != set(theirs) or not set(own) <= set(fed.passive):
                raise ReplyError(fed.active, "compare", "the two sides of a comparison are not at the same step")
            each = {name: {"boxes": {fed.active: box}} for name, box in own.items()}
            answers = fed.ask(compare, to=[fed.active, *own], each={fed.active: {"boxes": theirs}, **each})
            own = answers.pop(fed.active)
            theirs = {name: reply.get(fed.active) for name, reply in answers.items() if reply}

    # -- the dealer's part -------------------------------------------------------------------------------------------

    def _dealt(self, level: Level, trees: list[Tree], name: str) -> list[np.ndarray]:
        shape = Shape.of(level, of_level(level, trees, self.trees.peers[name].tree_cuts))
        source, count = self.sources[name], len(shape.node)
        nothing = np.zeros(count, np.uint64), np.zeros(count, np.uint32)
        return dealt_for(best_cuts(source, shape, *nothing, NodeFacts.unknown(shape.nodes)), source)

    def _dealt_finals(self, level: Level, first: str) -> list[np.ndarray]:
        fed, source = self.trees.fed, self.sources[first]
        empty = np.zeros((level.nodes * len(level.trees), 1, WORDS), np.uint64)
        bests = {fed.parties.index(name): Fractions(empty, empty, empty) for name in fed.passive}
        finals = finalists(source, len(fed.parties), fed.parties.index(fed.active), ([], []), bests)
        return dealt_for(winners(source, finals), source)

    # -- importances -------------------------------------------------------------------------------------------------

    def uses(self, models: int) -> list[tuple[str, int, int, int, float]]:
        """Of every column of a passive party that was cut: party, model, column, splits, gain."""
        fed, of = self.trees.fed, self.trees.dealer.of
        boxes = fed.ask(hide_cut_columns, to=fed.passive, models=models)
        corrections = {}
        for place, name in enumerate(fed.passive):
            parts, width = [], fed.n_columns[name]
            for model in range(models):
                rows = self.nodes.count(model)
                left = of[name].draw("boost: columns", model, (rows, width))
                right = of[fed.active].draw("boost: gains", place * models + model, (rows, 1))
                split = of[name].draw("boost: gain splits", model, (width,))
                parts.append(correction(left, right, split[:, None])[:, 0])
            corrections[name] = parts
        own = fed.ask(own_gain_halves, to=fed.active, boxes=boxes, corrections=corrections)
        replies = fed.ask(gain_halves, to=fed.passive, each=boxes_for(own["boxes"], fed.passive, fed.active))
        found = []
        for name, reply in replies.items():
            shape = (models, fed.n_columns[name])
            half = own["halves"].get(name)
            size = shape[0] * shape[1]
            if not (_is_half(half, size) and _is_half(reply["half"], size)) or reply["splits"].shape != shape:
                raise ReplyError(name, "gain_halves", "halves of another number of columns than there are")
            gains = from_ring(half + reply["half"], 0).reshape(shape) * own["unit"]
            for model, column in zip(*np.nonzero(reply["splits"])):
                splits, gain = reply["splits"][model, column], gains[model, column]
                found.append((name, int(model), int(column), int(splits), float(gain)))
        return found


def _is_half(value: object, size: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint64 and value.shape == (size,)
