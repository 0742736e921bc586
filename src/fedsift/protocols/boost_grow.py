"""The conversation in which boosted trees grow, for one model or for many in lock-step. Runs at the coordinator.

One level of all trees: sums from the parties, the best splits from the label holder, rows divided by the owners of the
columns that were chosen. The smaller child of each split is summed, the other follows by subtraction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.errors import ReplyError
from fedsift.federation import Federation
from fedsift.protocols.boost_active import advance, begin_boosting, choose_splits, end_round, grow_own_trees, next_trees
from fedsift.protocols.boost_party import divide, level_sums, receive_gradients
from fedsift.protocols.boost_sums import rows_per_ciphertext
from fedsift.protocols.boost_tree import PRECISION_BITS, TreeSettings
from fedsift.protocols.histogram import public_key


@dataclass
class Booster:
    """One model to grow: its settings and the columns (positions, by party) that it may use."""

    settings: TreeSettings
    columns: dict[str, np.ndarray]
    n_estimators: int
    bins: int = 32
    rows: dict[str, Any] = field(default_factory=lambda: {"kind": "all"})
    base_score: float | None = None
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    multi_output: bool = False
    early_stopping_rounds: int = 0
    seed: int = 0

    def plan(self) -> dict[str, Any]:
        """What the label holder needs to know."""
        return {
            "settings": dict(self.settings.__dict__), "rows": self.rows, "base_score": self.base_score,
            "subsample": self.subsample, "multi_output": self.multi_output, "bins": self.bins,
            "early_stopping_rounds": self.early_stopping_rounds, "seed": self.seed,
        }  # fmt: skip

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
    scheme: str = "auto",
    least: int = 1,
    bits: int = PRECISION_BITS,
    first_tree_local: bool = True,
    per: int | None = None,
    each_round: Callable[[int], None] | None = None,
) -> str:
    """Grow all boosters. Their results stay with the label holder; see ``boost_results``. Returns the task."""
    begun = fed.ask(
        begin_boosting, to=fed.active, models=[b.plan() for b in boosters], order=fed.parties, scheme=scheme,
        task=fed.asked_task, bits=bits,
    )  # fmt: skip
    if per is None:
        per = _packing(fed, boosters, scheme, bits, begun["outputs"])
    _note_protection(fed, least, first_tree_local)
    live = list(range(len(boosters)))
    for round in range(max((b.n_estimators for b in boosters), default=0)):
        live = [m for m in live if round < boosters[m].n_estimators]
        if not live:
            break
        _one_round(fed, boosters, live, round, first_tree_local and round == 0, per, least)
        going = set(fed.ask(end_round, to=fed.active)["live"].tolist())
        live = [m for m in live if m in going]
        if each_round is not None:
            each_round(round)
    return str(begun["task"])


def _note_protection(fed: Federation, least: int, first_tree_local: bool) -> None:
    """What was turned off is in the ledger."""
    if fed.passive and not first_tree_local:
        fed.ledger.note("first_tree_local=False: the first tree's sums are label counts of other parties' bins")
    if fed.passive and least <= 1:
        fed.ledger.note("min_cell=1 and min_leaf=1: gradients of single rows may have been read as sums")


def _packing(fed: Federation, boosters: list[Booster], scheme: str, bits: int, outputs: int) -> int:
    """Rows in a ciphertext, from public sizes."""
    if not fed.passive or not boosters:
        return 1
    room = fed.ask(public_key, to=fed.active, scheme=scheme).plaintext_bits
    columns = float(np.mean([sum(len(b.columns.get(p, ())) for p in fed.passive) for b in boosters]))
    depth = float(np.mean([b.settings.max_depth or 6 for b in boosters]))
    bins = float(np.mean([b.bins for b in boosters]))
    wide = outputs if boosters[0].multi_output else 1
    return rows_per_ciphertext(
        fed.n_rows, round_half_up(columns), round_half_up(bins), round_half_up(depth), wide, bits, room
    )


def _one_round(
    fed: Federation, boosters: list[Booster], live: list[int], round: int, local: bool, per: int, least: int
) -> None:
    """One more tree of each live model (one an output)."""
    drawn = [boosters[m].drawn(round) for m in live]
    columns = {name: [np.asarray(d.get(name, ()), dtype=np.int64) for d in drawn] for name in fed.parties}
    helpers = [name for name in fed.passive if any(len(c) for c in columns[name])]
    if local or not helpers:
        fed.ask(grow_own_trees, to=fed.active, live=live, columns=columns)
        return
    started = fed.ask(next_trees, to=fed.active, live=live, columns=columns, per=per)
    nodes, more = started.pop("nodes"), True
    fed.ask(
        receive_gradients, to=helpers, each={name: {"columns": columns[name]} for name in helpers},
        bins=[boosters[m].bins for m in live], least=least, **started,
    )  # fmt: skip
    del started
    more = len(nodes["job"]) > 0
    while more:
        replies = fed.ask(level_sums, to=helpers, nodes=nodes) if len(nodes["job"]) else {}
        cuts = fed.ask(choose_splits, to=fed.active, replies=replies)
        if not set(cuts) <= set(helpers):
            raise ReplyError(fed.active, "choose_splits", "it cut a column of a party that has none")
        sides = fed.ask(divide, to=list(cuts), each={p: {"cuts": cut} for p, cut in cuts.items()}) if cuts else {}
        step = fed.ask(advance, to=fed.active, sides=sides)
        nodes, more = step["nodes"], step["more"]
