"""The coordinator's side of HyFDCA: it asks, adds up what it cannot read, and chooses steps from inner products.

A round counts for everybody who took part, or for nobody: if a party goes missing in the middle, the others are told in
the next request to forget the round, and it is played again without that party. Parties that share columns hold copies
of the same weights; one that missed rounds gets them from the others, under their secret, when it is back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import Answering
from fedsift.errors import PartyGone, PartyTimeout, ReplyError
from fedsift.models.hyfdca.party import (
    GRAM_SHIFT,
    MEASURES,
    CatchUp,
    Copy,
    HandedOver,
    RaisedDuals,
    finish_round,
    hand_over,
    raise_duals,
    step_and_score,
    weigh_rows,
)
from fedsift.models.hyfdca.search import Measures
from fedsift.models.hyfdca.setup import Among, Scaled, Totals, scale_columns, start_rounds, sum_columns, sum_spreads
from fedsift.models.hyfdca.track import Decision
from fedsift.mpc.group_sum import Groups, add_up, from_words
from fedsift.mpc.ring import Ring, stream

FULL_EVERY = 4  # with partial participation: so often everybody is asked, the progress measured and a long step taken
MAX_ABSENCE = 100  # rounds that a party may miss in a row


@dataclass
class Dealer:
    """The coordinator's random numbers for products (see ``hyfdca_setup``): seeds, and the masks of columns."""

    rows: dict[str, int]
    outputs: int
    holder_seeds: dict[str, bytes] = field(default_factory=dict)
    column_seeds: dict[str, bytes] = field(default_factory=dict)
    masks: dict[str, Ring] = field(default_factory=dict)

    def seed(self, holder: str) -> bytes:
        return self.holder_seeds.setdefault(holder, secrets.token_bytes(32))

    def column_seed(self, name: str) -> bytes:
        return self.column_seeds.setdefault(name, secrets.token_bytes(32))

    def keep_mask(self, name: str, width: int) -> None:
        self.masks[name] = stream(self.column_seed(name), "columns", 1, (self.rows[name], width))

    def share(self, name: str, holder: str, number: int) -> Ring:
        """The share of U'v for party ``name``; the label holder makes the other one from its seed."""
        mask = self.masks[name]
        duals = stream(self.seed(holder), "duals", number, (self.rows[name], self.outputs))
        other = stream(self.seed(holder), f"share of {name}", number, (mask.shape[1], self.outputs))
        return mask.T @ duals - other


def check_ring(name: str, operation: str, value: object, shape: tuple[int, ...]) -> Ring:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint64 or value.shape != shape:
        raise ReplyError(name, operation, f"expected a masked array of shape {shape}")
    return value


def prepare(
    run: Federation, grid: Grid, groups: Groups, dealer: Dealer, categories: dict[str, bytes | None]
) -> dict[str, int]:
    """Common designs, scales and metrics; the width of each party's design."""
    parties = run.parties
    column = {name: grid.columns[grid.column_of(name)] for name in parties}
    among = {name: Among(column[name], grid.holders) for name in parties}

    def total(parts: dict[str, Ring | None], members: Sequence[str], operation: str) -> Ring | None:
        return add_up({n: parts[n] for n in members}, operation) if len(members) > 1 else None

    def for_each(replies: dict[str, Totals], operation: str) -> dict[str, Totals]:
        own = {name: reply.columns for name, reply in replies.items()}
        columns = {block[0]: total(own, block, operation) for block in grid.columns}
        target = total({name: reply.target for name, reply in replies.items()}, grid.holders, operation)
        return {n: Totals(columns[column[n][0]], target if n in grid.holders else None) for n in parties}

    numbers = [groups.number() for _ in range(3)]
    each = {n: {"categories": [categories[m] for m in column[n] if categories[m]], "among": among[n]} for n in parties}
    first = run.ask(sum_columns, to=parties, each=each, number=numbers[0])
    given = for_each(first, "sum_columns")
    each = {n: {"totals": given[n], "among": among[n]} for n in parties}
    second = run.ask(sum_spreads, to=parties, each=each, number=numbers[1], before=numbers[0])
    given = for_each(second, "sum_spreads")
    each = {n: {"totals": given[n], "among": among[n], "seed": dealer.column_seed(n)} for n in parties}
    third: dict[str, Scaled] = run.ask(scale_columns, to=parties, each=each, number=numbers[2], before=numbers[1])
    widths = {name: reply.width for name, reply in third.items()}
    hidden: dict[str, dict[str, Any]] = {name: {} for name in parties}
    for row, block in enumerate(grid.rows):
        for name in block:
            if name != grid.holders[row]:
                shape = (dealer.rows[name], widths[name])
                hidden[grid.holders[row]][name] = check_ring(name, "scale_columns", third[name].hidden, shape)
                dealer.keep_mask(name, widths[name])
    own = {name: reply.gram for name, reply in third.items()}
    grams = {block[0]: total(own, block, "scale_columns") for block in grid.columns}
    run.ask(
        start_rounds, to=parties, each={n: {"gram": grams[column[n][0]], "hidden": hidden[n]} for n in parties},
        widths=widths, before=numbers[2],
    )  # fmt: skip
    return widths


class Rounds:
    """Who takes part, who is behind, and the messages of one round."""

    def __init__(
        self, run: Federation, grid: Grid, groups: Groups, dealer: Dealer, widths: dict[str, int], memory: int
    ):
        self.run, self.grid, self.groups, self.dealer = run, grid, groups, dealer
        self.widths, self.memory, self.outputs = widths, memory, dealer.outputs
        self.decision: dict[str, Decision | None] = dict.fromkeys(run.parties)  # what a party has still to act on
        self.recentre: dict[str, np.ndarray | None] = dict.fromkeys(grid.holders)
        self.last = dict.fromkeys(run.parties, 0)  # the last round that counted, by party
        self.behind = {name: CatchUp() for name in run.parties}  # what a party must catch up with
        self.absences: dict[str, int] = dict.fromkeys(run.parties, 0)
        self._retry: dict[str, int] = {}
        self._seen = dict.fromkeys(run.parties, 0)
        self._ids = 0
        self._told: set[tuple[str, int]] = set()  # groups whose total was given out in this round
        self._quiet: set[tuple[str, int]] = set()  # groups that tell nothing in the next round

    # -- who ----------------------------------------------------------------------------------------------------------

    def available(self, turn: int) -> list[str]:
        return [name for name in self.run.parties if self._retry.get(name, 0) <= turn]

    def play(self, turn: int, present: list[str], rate: float) -> Measures | None:
        """One round with those present, fewer if some go missing. Measures if everybody took part, else ``None``."""
        while True:
            if not any(name in present for name in self.grid.holders):
                self._retry.clear()  # nothing can be done without a label holder: ask everybody again next time
                return None
            try:
                result = self._round(present, rate)
                break
            except (PartyGone, PartyTimeout) as error:
                self._missing(turn, error)
                # The same total again without that party would show its own part by subtraction: say nothing this time.
                self._quiet |= {group for group in self._told if error.party in self._block(*group)}
                present = [name for name in present if name != error.party]
        self._quiet.clear()
        for name in present:
            self._seen[name] = turn
            self._retry.pop(name, None)
            self.absences[name] = 0
        return result

    def _block(self, kind: str, number: int) -> list[str]:
        return {"rows": self.grid.rows, "columns": self.grid.columns, "holders": [self.grid.holders]}[kind][number]

    def _taking_part(self, kind: str, number: int, present: list[str]) -> list[str]:
        """Whose vectors make up a group's total. A sum over one party is told only where there can be no other, since
        its readers would see that party's own numbers."""
        block = self._block(kind, number)
        if kind == "rows":  # the label holder reads
            if self.grid.holders[number] not in present:
                return []
            block = [name for name in block if name != self.grid.holders[number]]
            possible = len(block)
        else:
            possible = len(block) - 1
        names = [name for name in block if name in present]
        alone = len(names) == 1 and possible > 1
        return [] if alone or (kind, number) in self._quiet else names

    def surely(self, operation: Answering[None], **same: Any) -> None:
        """Something that every party must do in the end; one that is away for a moment is asked again."""
        for attempt in range(6):
            try:
                self.run.ask(operation, to=self.run.parties, **same)
                return
            except (PartyGone, PartyTimeout):
                if attempt == 5:
                    raise
                time.sleep(0.05 * 2**attempt)

    def _missing(self, turn: int, error: PartyGone | PartyTimeout) -> None:
        name = error.party
        self.absences[name] += 1
        single = len(self.grid.holders) == 1 and name in self.grid.holders
        if turn - self._seen[name] > MAX_ABSENCE or (single and self.absences[name] > 5):
            raise error
        self._retry[name] = turn + 2 ** min(self.absences[name], 5)  # asked again later, at growing distances
        self.run.ledger.note(f"party {name!r} missed rounds of HyFDCA; the others went on with its last word")

    # -- what ---------------------------------------------------------------------------------------------------------

    def _round(self, present: list[str], rate: float) -> Measures | None:
        grid, number = self.grid, self.groups.number()
        self._ids += 1
        full = len(present) == len(self.run.parties) and not self._quiet
        self._told = set()
        senders = {holder: self._taking_part("rows", r, present) for r, holder in enumerate(grid.holders)}
        scores = self._move(present, senders, number, rate)
        raised = self._raise(present, senders, scores, number)
        sums = self._weigh(present, senders, raised, number)
        holding = self._taking_part("holders", 0, present)
        balance = add_up({n: raised[n].balance for n in holding}, "raise_duals") if len(grid.holders) > 1 else None
        self._told |= {("columns", c) for c, total in sums.items() if total is not None}
        self._told |= {("holders", 0)} if balance is not None else set()
        each = {n: {"total": sums.get(grid.column_of(n)), "balance": balance} for n in present}
        replies = self.run.ask(
            finish_round, to=present, each=each, number=number, full=full, everyone=present, memory=self.memory
        )
        left_behind = [] if full else self._handed_over(present)
        for name in present:  # from here on the round counts
            self.last[name], self.decision[name], self.behind[name] = self._ids, None, CatchUp()
            self.recentre[name] = None
        for name, purpose, copy in left_behind:
            self.behind[name] = replace(self.behind[name], **{purpose: copy})
        return self._measures(replies) if full else None

    def _move(
        self, present: list[str], senders: dict[str, list[str]], number: int, rate: float
    ) -> dict[str, Ring | None]:
        grid = self.grid
        each = {
            name: {
                "after": self.last[name], "decision": self.decision[name], "catch_up": self.behind[name],
                "among": senders[grid.holders[grid.row_of(name)]],
            }
            for name in present
        }  # fmt: skip
        replies = self.run.ask(step_and_score, to=present, each=each, this=self._ids, number=number, rate=rate)
        totals = {}
        for holder, names in senders.items():
            shape = (self.dealer.rows[holder], self.outputs)
            vectors = {n: check_ring(n, "step_and_score", replies[n], shape) for n in names}
            totals[holder] = add_up(vectors, "step_and_score")
        return totals

    def _raise(
        self, present: list[str], senders: dict[str, list[str]], scores: dict[str, Ring | None], number: int
    ) -> dict[str, RaisedDuals]:
        holders = [name for name in self.grid.holders if name in present]
        each = {
            name: {
                "scores": scores[name], "senders": senders[name], "recentre": self.recentre[name],
                "seed": self.dealer.seed(name), "peers": senders[name],
            }
            for name in holders
        }  # fmt: skip
        among = self._taking_part("holders", 0, present)
        self._told |= {("rows", r) for r, holder in enumerate(self.grid.holders) if scores.get(holder) is not None}
        replies: dict[str, RaisedDuals] = self.run.ask(raise_duals, to=holders, each=each, number=number, among=among)
        for name, reply in replies.items():
            if senders[name]:
                check_ring(name, "raise_duals", reply.duals, (self.dealer.rows[name], self.outputs))
            if set(reply.corrections) != set(senders[name]):
                raise ReplyError(name, "raise_duals", "it gave no correction for each of the parties with its rows")
            for peer, value in reply.corrections.items():
                check_ring(name, "raise_duals", value, (self.widths[peer], self.outputs))
            if name in among and len(self.grid.holders) > 1:
                check_ring(name, "raise_duals", reply.balance, (self.outputs,))
        return replies

    def _weigh(
        self, present: list[str], senders: dict[str, list[str]], raised: dict[str, RaisedDuals], number: int
    ) -> dict[int, Ring | None]:
        grid = self.grid
        among = {c: self._taking_part("columns", c, present) for c in range(len(grid.columns))}
        each: dict[str, dict[str, object]] = {}
        for name in present:
            holder = grid.holders[grid.row_of(name)]
            given: dict[str, object] = {"duals": None, "correction": None, "share": None}
            if name in senders[holder]:
                reply = raised[holder]
                share = self.dealer.share(name, holder, number)
                given = {"duals": reply.duals, "correction": reply.corrections[name], "share": share}
            each[name] = {**given, "among": among[grid.column_of(name)]}
        replies = self.run.ask(weigh_rows, to=present, each=each, number=number)
        sums = {}
        for c, names in among.items():
            if len(grid.columns[c]) > 1:
                shapes = {n: (self.widths[n], self.outputs) for n in names}
                vectors = {n: check_ring(n, "weigh_rows", replies[n], shapes[n]) for n in names}
                sums[c] = add_up(vectors, "weigh_rows")
        return sums

    def _handed_over(self, present: list[str]) -> list[tuple[str, str, Copy]]:
        """For each party that is not present but whose copies were moved by others: the new copies, unreadable here."""
        asked: dict[str, dict[str, bool]] = {}
        readers: list[tuple[str, str, str, bool]] = []
        groups = [("columns", c, "state") for c in range(len(self.grid.columns))]
        for kind, number, purpose in [*groups, ("holders", 0, "intercept")]:
            block = self._block(kind, number)
            there = [name for name in block if name in present]
            away = [name for name in block if name not in present]
            if there and away:
                asked.setdefault(there[0], {"columns": False, "holders": False})[kind] = True
                # The copies move alike: a giver that got no total this time does not move on its gradient either.
                fresh = bool(self._taking_part(kind, number, present))
                readers += [(name, there[0], purpose, fresh) for name in away]
        if not asked:
            return []
        number = self.groups.number()
        states: dict[str, HandedOver] = self.run.ask(hand_over, to=list(asked), each=asked, number=number)
        return [
            (name, purpose, Copy(getattr(states[giver], purpose), number, fresh))
            for name, giver, purpose, fresh in readers
        ]

    def _measures(self, replies: dict[str, Ring | None]) -> Measures:
        total = add_up(replies, "finish_round")
        rest = MEASURES * self.outputs
        size = 0 if total is None else len(total) // 2 - rest
        vectors = round((np.sqrt(8 * max(size, 0) / self.outputs + 1) - 1) / 2)
        if total is None or vectors % 2 == 0 or self.outputs * vectors * (vectors + 1) // 2 != size:
            raise ReplyError(self.run.parties[0], "finish_round", "the inner products have no possible shape")
        numbers = from_words(total, (len(total) // 2,))
        upper = np.zeros((self.outputs, vectors, vectors))
        upper[(slice(None), *np.triu_indices(vectors))] = np.ldexp(numbers[:size], -GRAM_SHIFT).reshape(
            self.outputs, -1
        )
        products = upper + np.triu(upper, 1).transpose(0, 2, 1)
        return Measures(products, *numbers[size:].reshape(MEASURES, self.outputs))

    def decide(self, decision: Decision, recentre: np.ndarray) -> None:
        """For everybody, to act on when they next take part."""
        self.decision = dict.fromkeys(self.run.parties, decision)
        self.recentre = dict.fromkeys(self.grid.holders, recentre)
