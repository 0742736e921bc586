"""What the messages of split networks say: embeddings and gradients of batches, as each role can read them.

Of networks of the parties' own in the open form (``protection="open"``, and the lasso methods), where both travel as
they are. Rows of a batch follow from the announced seed. On shares neither travels: there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import Message, View
from fedsift.models.splitnn.networks import derived_seed


@dataclass(frozen=True)
class Batch:
    """One batch of one network, as one role sees it. Arrays are rows x width, or networks x rows x width."""

    model: str
    party: str  # whose embedding it is
    epoch: int
    rows: np.ndarray  # of the table
    embedding: np.ndarray | None = None
    gradient: np.ndarray | None = None  # of the embedding


class Networks:
    """Settings of the networks in a view, and the rows of its batches."""

    def __init__(self, view: View):
        self.view = view
        self.bottoms: dict[tuple[str, str], dict[str, Any]] = {}  # (network, party) -> settings
        self.inputs: dict[tuple[str, str], int] = {}
        self.tops: dict[str, dict[str, Any]] = {}  # network -> settings and widths
        self._rows: dict[str, np.ndarray | None] = {"": None}
        for message in view.messages:
            self._learn(message)

    def _learn(self, message: Message) -> None:
        content = message.content
        if is_of(message, "define_view") and message.is_request:
            above, rows = self._rows.get(message.view), content["rows"]
            self._rows[content["view"]] = above if rows is None else rows if above is None else above[rows]
        elif is_of(message, "start_bottom") and message.is_request:
            self.bottoms[content["model"], message.party] = content["settings"]
            self._started = content["model"]
        elif is_of(message, "start_bottom"):
            self.inputs[self._started, message.party] = int(content["inputs"])
        elif is_of(message, "start_top") and message.is_request:
            self.tops[content["model"]] = content

    def settings(self, model: str) -> dict[str, Any] | None:
        """Seed and size of batches, the same for all halves."""
        if model in self.tops:
            return dict(self.tops[model]["settings"])
        return next((s for (name, _), s in self.bottoms.items() if name == model), None)

    def rows(self, message: Message, n_rows: int) -> np.ndarray:
        """The table's rows of the batch that a message speaks of."""
        settings = self.settings(message.content["model"])
        here = self._rows.get(message.view)
        count = n_rows if here is None else len(here)
        seed = derived_seed(settings["seed"], "rows", message.content["epoch"]) if settings else 0
        order = np.random.default_rng(seed).permutation(count)
        start = message.content["start"]
        picked = order[start : start + int(settings["batch_size"] if settings else count)]
        return picked if here is None else here[picked]


def is_of(message: Message, name: str) -> bool:
    return matches(name, message.operation)


def gradients_of_own(view: View) -> list[Batch]:
    """What a passive party sees of each batch: its own embedding, and the gradient that came back for it."""
    networks, n_rows = Networks(view), view.own_table.n_rows
    done: list[Batch] = list(_under_lattice_keys(view, networks))
    waiting: dict[str, Batch] = {}
    for message in view.messages:
        if not is_of(message, "bottom_round"):
            continue
        if not message.is_request:
            latest = waiting.pop("latest", None)
            if latest is not None and message.content is not None:
                waiting[latest.model] = replace(latest, embedding=message.content)
            continue
        model = message.content["model"]
        gradient, batch = message.content.get("gradient"), waiting.pop(model, None)
        if gradient is not None and batch is not None:
            done.append(replace(batch, gradient=gradient))
        if message.content.get("epoch") is not None:
            rows = networks.rows(message, n_rows)
            waiting[model] = Batch(model, view.name, message.content["epoch"], rows)
            waiting["latest"] = waiting[model]
    return done


def _under_lattice_keys(view: View, networks: Networks) -> Iterator[Batch]:
    """Gradients of the party's embedding that came back under its own key, which it opens."""
    from fedsift.models.splitnn.layers import lattice
    from fedsift.models.splitnn.layers.lattice_wire import Ends, Plans

    waiting: dict[str, Batch] = {}
    for message in view.requests("encrypt_lattice"):
        content, model = message.content, message.content["model"]
        batch = waiting.pop(model, None)
        keys = [
            state.values[Ends].own[model].value
            for state in view.states
            if state.session == message.session and model in state.values.get(Ends, Ends()).own
        ]
        settings = networks.settings(model)
        if batch is not None and content.get("answer") is not None and keys and settings:
            plan = Plans.of(settings["batch_size"], settings["width"], content["outputs"]).back
            opened = plan.gather(keys[-1].open(content["answer"]["back"], plan.places))[: len(batch.rows)]
            yield replace(batch, gradient=lattice._value(opened, lattice._GRADIENT))
        if content.get("epoch") is not None:
            rows = networks.rows(message, view.own_table.n_rows)
            waiting[model] = Batch(model, view.name, content["epoch"], rows)


def batches_at_holder(view: View) -> Iterator[Batch]:
    """What the label holder, or the coordinator that relays it, sees of the other parties in each batch."""
    networks = Networks(view)
    holder = view.job.active
    opened: list[Batch] = []
    for message in view.messages:
        if message.party != holder or not is_of(message, "top_round"):
            continue
        if message.is_request:
            rows = networks.rows(message, _count(view, message))
            epoch, model = message.content["epoch"], message.content["model"]
            opened = [Batch(model, n, epoch, rows, embedding=e) for n, e in message.content["embeddings"].items()]
        else:
            yield from (replace(b, gradient=message.content["gradients"].get(b.party)) for b in opened)


def _count(view: View, message: Message) -> int:
    """Rows of the table: the coordinator has asked for them."""
    if view.table is not None:
        return view.table.n_rows
    counts = [m.content["rows"] for m in view.replies("count_table") if m.view == ""]
    return int(counts[0]) if counts else 0
