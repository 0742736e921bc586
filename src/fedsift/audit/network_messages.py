"""What the messages of split networks say: embeddings and gradients of batches, as each role can read them.

In plain training both travel as they are. On secret shares a party takes its own masks off, which come from a seed that
it shares with the label holder (its own state): what remains is the gradient of its embedding; the label holder gets
the weighted activations of all other parties together. Rows of a batch follow from the announced seed.
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
    party: str  # whose embedding it is; "" where those of several parties are summed
    epoch: int
    rows: np.ndarray  # of the table
    embedding: np.ndarray | None = None
    activations: np.ndarray | None = None  # the embedding times the top model's first weights
    gradient: np.ndarray | None = None  # of the embedding, or of the activations where those were seen


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
    done: list[Batch] = []
    waiting: dict[str, Batch] = {}
    masks = _Masks(view)
    for message in view.messages:
        plain, shared = is_of(message, "bottom_round"), is_of(message, "hide_embedding")
        if not plain and not shared:
            continue
        if not message.is_request:
            _take_embedding(waiting, message, masks if shared else None)
            continue
        model = message.content["model"]
        came = message.content.get("gradient" if plain else "answer")
        batch = waiting.pop(model, None)
        if came is not None and batch is not None:
            done.append(replace(batch, gradient=came if plain else masks.gradient(model, came)))
        if message.content.get("epoch") is not None:
            rows = networks.rows(message, n_rows)
            waiting[model] = Batch(model, view.name, message.content["epoch"], rows)
            waiting["latest"] = waiting[model]
            if shared:
                masks.begin(model, message.content["holder"], message.content["step"])
    return done


def _take_embedding(waiting: dict[str, Batch], message: Message, masks: _Masks | None) -> None:
    latest = waiting.pop("latest", None)
    if latest is None or message.content is None:
        return
    content = message.content
    embedding = content if masks is None else masks.embedding(latest.model, content)
    waiting[latest.model] = replace(latest, embedding=embedding)


class _Masks:
    """A passive party's own masks on secret shares: it knows the seed, so it reads its own numbers."""

    def __init__(self, view: View):
        self.talks = {key: value for state in view.states for key, value in state.values.items() if "/talk" in str(key)}
        self.now: dict[str, tuple[bytes, int]] = {}
        self.sent: dict[str, dict[str, np.ndarray]] = {}

    def begin(self, model: str, holder: str, step: int) -> None:
        talk = self.talks.get(f"{model}/talk", {}).get(holder)
        if talk is not None:
            self.now[model] = (talk._seed, step)

    def mask(self, model: str, purpose: str, shape: tuple[int, ...]) -> np.ndarray:
        from fedsift.mpc.shared_product import ring_stream

        seed, step = self.now[model]
        return ring_stream(seed, f"layer: {purpose}", step, shape)

    def embedding(self, model: str, sent: dict[str, np.ndarray]) -> np.ndarray | None:
        from fedsift.models.splitnn.layers.shared import EMBEDDING_EXPONENT, from_ring

        self.sent[model] = sent
        if model not in self.now:
            return None
        hidden = sent["hidden"]
        return from_ring(hidden - self.mask(model, "embedding", hidden.shape), EMBEDDING_EXPONENT)

    def gradient(self, model: str, answer: dict[str, np.ndarray]) -> np.ndarray | None:
        from fedsift.models.splitnn.layers.shared import DELTA_EXPONENT, WEIGHT_EXPONENT, from_ring, product, turned

        if model not in self.now:
            return None
        sent = self.sent[model]
        shape = sent["hidden"].shape
        delta = self.mask(model, "delta", (*shape[:-1], sent["eps"].shape[-1]))
        ring = answer["embedding"] - self.mask(model, "gradient", shape) + product(delta, turned(sent["eps"]))
        return from_ring(ring, DELTA_EXPONENT + WEIGHT_EXPONENT)


def batches_at_holder(view: View) -> Iterator[Batch]:
    """What the label holder (or, in plain training, the coordinator) sees of the other parties in each batch."""
    networks = Networks(view)
    holder = view.job.active
    opened: list[Batch] = []
    opener = _Opener(view)
    for message in view.messages:
        if message.party != holder:
            continue
        if is_of(message, "top_round") and message.is_request:
            rows = networks.rows(message, _count(view, message))
            epoch, model = message.content["epoch"], message.content["model"]
            opened = [Batch(model, n, epoch, rows, embedding=e) for n, e in message.content["embeddings"].items()]
        elif is_of(message, "top_round"):
            yield from (replace(b, gradient=message.content["gradients"].get(b.party)) for b in opened)
        elif view.role == "active":
            yield from opener.take(message, networks, _count(view, message))


def _count(view: View, message: Message) -> int:
    """Rows of the table: the coordinator has asked for them."""
    if view.table is not None:
        return view.table.n_rows
    counts = [m.content["rows"] for m in view.replies("count_table") if m.view == ""]
    return int(counts[0]) if counts else 0


class _Opener:
    """The label holder's reading of training on secret shares: the activations of all other parties together."""

    def __init__(self, view: View):
        self.talks = {key: value for state in view.states for key, value in state.values.items() if "/talk" in str(key)}
        self.weights: dict[str, dict[str, np.ndarray]] = {}
        self.step: dict[str, int] = {}
        self.asked: dict[str, Any] = {}
        self.model = ""

    def take(self, message: Message, networks: Networks, n_rows: int) -> Iterator[Batch]:
        from fedsift.models.splitnn.layers.shared import DELTA_EXPONENT, from_ring

        if is_of(message, "hide_weights"):
            if message.is_request:
                self.model = message.content["model"]
                self.step[self.model] = message.content["step"]
            else:
                self.weights[self.model] = message.content
        elif is_of(message, "shared_step") and message.is_request:
            self.model = message.content["model"]
            self.asked = {"z": self._activations(message.content["sums"]), "rows": networks.rows(message, n_rows),
                          "epoch": message.content["epoch"]}  # fmt: skip
        elif is_of(message, "shared_step") and self.asked.get("z") is not None:
            name, answer = next(iter(message.content["answers"].items()))
            mask = self._mask(name, "delta", answer["delta"].shape)
            delta = from_ring(answer["delta"] - mask, DELTA_EXPONENT)
            party = name if len(message.content["answers"]) == 1 else ""
            yield Batch(self.model, party, self.asked["epoch"], self.asked["rows"], activations=self.asked["z"],
                        gradient=delta)  # fmt: skip
            self.weights[self.model] = message.content["weights"]
            self.step[self.model] += 1

    def _mask(self, peer: str, purpose: str, shape: tuple[int, ...]) -> np.ndarray:
        from fedsift.mpc.shared_product import ring_stream

        seed = self.talks[f"{self.model}/talk"][peer]._seed
        return ring_stream(seed, f"layer: {purpose}", self.step[self.model], shape)

    def _activations(self, sums: np.ndarray) -> np.ndarray | None:
        from fedsift.models.splitnn.layers.shared import EMBEDDING_EXPONENT, WEIGHT_EXPONENT, from_ring, product

        if f"{self.model}/talk" not in self.talks:
            return None
        total = np.array(sums, dtype=np.uint64)
        for name, hidden in self.weights[self.model].items():
            shape = (*total.shape[:-1], hidden.shape[-2])
            total = total - product(self._mask(name, "embedding", shape), hidden)
            total = total + self._mask(name, "activations", total.shape)
        return from_ring(total, EMBEDDING_EXPONENT + WEIGHT_EXPONENT)
