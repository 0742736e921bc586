"""The interactive layer of FedSDG-FS on secret shares: the coordinator multiplies masked matrices and reads none.

For each party P the layer has weights w with z = g w. P holds eps, the label holder H holds w~, and w = w~ - eps; all
numbers are integers modulo 2^64. P and H share a secret seed (X25519) that the coordinator C does not have; A, B, B',
A', M, M' are fresh streams of it in every step, and r is H's alone.

  forward   P -> C: U = g + A,  S = g (B + eps) + M.    H -> C: V = w~ + B.
            C -> H: U V - S, summed over all parties.    H: takes A V off, adds M, and has the sum of all z.
  backward  H: d = dL/dz.  H -> C: V' = d + B',  T = r - A'V',  D = d w~' + d A'' + M'.  (x' is transposed, A'' is A')
            C -> P: U'V' + T and D - V' E' with E = eps + A', which P sent beside U.
            P: takes g'B' off the first: g'd + r, and eps := eps + g'd + r.  H: w~ := w~ + r.  So w := w - g'd.
            P: takes M' off the second and adds B'E': d w', the gradient of its own embedding.

Who sees what. C: U, S, V, V', T, D, E, each hidden by a mask of its own that is used once, so all are uniform and
independent: nothing. H: the sum of the parties' z (in the paper: each party's z), the loss. P: g'd + r, uniform because
r is, and d w', the gradient of its own embedding. Neither sees w: eps and w~ are each uniform after the first step.
This is Algorithms 2 and 3's view, without ciphertexts; the price is that C must not collude: with H it could read g
(U - A), with P it could read d. ``lattice_layer`` needs no such trust and costs ten times more.

Left as in the paper: d w' tells P about labels, and z is a linear view of g. The first weights are H's own, so in the
first step H knows w and z together. Steps are 2^-4, exact in the ring: fractional bits are 12 (g), 22 (d), 38 (w).
"""

from __future__ import annotations

import secrets
from contextlib import nullcontext
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import ANY, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealKey, pair_key
from fedsift.errors import OperationRefused, OverflowGuard, ParameterError, ReplyError
from fedsift.models.splitnn.layers.interactive import first_blocks, interactive_layer, top_output, top_step
from fedsift.models.splitnn.networks import torch_module
from fedsift.models.splitnn.party_networks import chunks
from fedsift.models.splitnn.training import SplitRun, _rows, bottom_of, share_of, top_of
from fedsift.mpc.fixed_point import STEP_BITS
from fedsift.mpc.shared_product import ring_stream

EMBEDDING_EXPONENT, DELTA_EXPONENT = 12, 22
WEIGHT_EXPONENT = EMBEDDING_EXPONENT + DELTA_EXPONENT + STEP_BITS
_ROOM = {EMBEDDING_EXPONENT: 2.0**10, DELTA_EXPONENT: 2.0**6, WEIGHT_EXPONENT: 2.0**6}  # largest magnitude of each


def to_ring(values: np.ndarray, exponent: int) -> np.ndarray:
    """round(x * 2^exponent) modulo 2^64; refused where a product of such numbers could wrap unseen."""
    values = np.asarray(values, dtype=np.float64)
    if values.size and not np.abs(values).max() < _ROOM[exponent]:
        raise OverflowGuard(
            f"a number of the shared layer is not below {_ROOM[exponent]:g} in size: the network diverged; "
            "use a smaller learning rate"
        )
    return np.rint(np.ldexp(values, exponent)).astype(np.int64).view(np.uint64)


def from_ring(ring: np.ndarray, exponent: int) -> np.ndarray:
    return np.ldexp(ring.view(np.int64).astype(np.float64), -exponent)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product modulo 2^64 of stacks of matrices (torch's is four times as fast as NumPy's)."""
    torch = torch_module()
    left, right = (torch.from_numpy(np.ascontiguousarray(x).view(np.int64)) for x in (a, b))
    return torch.matmul(left, right).numpy().view(np.uint64)


def turned(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


class Talk:
    """A party's side of one conversation with one other: their secret seed, and steps that never come twice."""

    def __init__(self, seed: bytes):
        self._seed = seed
        self.step = 0

    def begin(self, party: Party, step: int) -> None:
        if step <= self.step:
            raise OperationRefused(party.name, "shared layer", f"step {step} was asked before: a mask is used once")
        self.step = step

    def mask(self, purpose: str, shape: tuple[int, ...], later: int = 0) -> np.ndarray:
        return ring_stream(self._seed, f"layer: {purpose}", self.step + later, shape)


@operation(
    "network_shares.begin_talk",
    discloses="control",
    about="public key of this conversation, width of the layer",
    reply={"seal": bytes, "outputs": int},
)
def begin_talk(party: Party, *, model: str) -> dict[str, Any]:
    key = SealKey.generate()  # for this conversation only: its masks count steps from the start
    party.state[f"{model}/seal"] = key
    top = party.state.get(f"{model}/top", party.keys.get(f"model:{model}/top"))
    return {"seal": key.public, "outputs": 0 if top is None else int(interactive_layer(top).out_features)}


@operation("network_shares.meet", discloses="control", about="acknowledgement")
def meet(party: Party, *, model: str, seals: dict[str, bytes], outputs: int) -> None:
    """Agree on secret seeds; where the weights were never shared yet, begin with eps = 0 and w~ = the first weights."""
    key = party.state.pop(f"{model}/seal")
    party.state[f"{model}/talk"] = {
        name: Talk(pair_key(key, public, name=name, purpose="interactive layer", context=model.encode()))
        for name, public in seals.items()
    }
    name = f"{model}/share"
    if name in party.state or f"model:{name}" in party.keys:
        return
    top = party.state.get(f"{model}/top")
    if top is not None:
        blocks = first_blocks(top, party.name)
        party.state[name] = {peer: to_ring(block, WEIGHT_EXPONENT) for peer, block in blocks.items()}
    else:
        bottom = bottom_of(party, model)
        copies = bottom.settings["options"].get("copies")
        stack = () if copies is None else (int(copies),)
        party.state[name] = np.zeros((*stack, bottom.settings["width"], outputs), dtype=np.uint64)


def _talk(party: Party, model: str, peer: str, step: int) -> Talk:
    talk = party.state.get(f"{model}/talk", {}).get(peer)
    if talk is None:
        raise OperationRefused(party.name, "shared layer", f"no secret was agreed with {peer!r} for this conversation")
    talk.begin(party, step)
    return talk


@operation(
    "network_shares.hide_embedding",
    discloses="masked",
    receives="masked",
    about="its embeddings and its share of the weights, under masks",
    learns="the gradient of each row's loss in its own embedding: tells about the row's label",
    reply=(dict, type(None)),
)
def hide_embedding(
    party: Party, *, model: str, holder: str, step: int = 0, answer: Any = None, epoch: int | None = None,
    start: int = 0, stop: int | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """Take the last batch's answer, if any; hide the embedding of the next batch, or of rows start..stop."""
    bottom = bottom_of(party, model)
    if answer is not None:
        _learn(party, model, answer)
    if epoch is None and stop is None:
        return None
    talk, eps = _talk(party, model, holder, step), share_of(party, model)
    if stop is not None:
        g = to_ring(bottom.embed(party, start, stop), EMBEDDING_EXPONENT)
    else:
        g = to_ring(bottom.forward(_rows(party, bottom, int(epoch), start)), EMBEDDING_EXPONENT)  # type: ignore[arg-type]
    weights_mask = talk.mask("weights", eps.shape)
    activation_mask = talk.mask("activations", (*g.shape[:-1], eps.shape[-1]))
    sent = {
        "hidden": g + talk.mask("embedding", g.shape),
        "share": product(g, weights_mask + eps) + activation_mask,
    }
    if stop is None:
        sent["eps"] = eps + talk.mask("share", eps.shape)
        party.state[f"{model}/kept"] = {"g": g, "eps": sent["eps"], "talk": talk}
    return sent


def _learn(party: Party, model: str, answer: dict[str, Any]) -> None:
    """The end of a batch at the party: its new share of the weights, and a step of its own half."""
    bottom, eps = bottom_of(party, model), share_of(party, model)
    kept = party.state.pop(f"{model}/kept")
    g, talk = kept["g"], kept["talk"]
    delta_mask = talk.mask("delta", (*g.shape[:-1], eps.shape[-1]))
    gradient = answer["embedding"] - talk.mask("gradient", g.shape) + product(delta_mask, turned(kept["eps"]))
    party.state[f"{model}/share"] = eps + answer["weights"] - product(turned(g), delta_mask)
    bottom.backward(from_ring(gradient, DELTA_EXPONENT + WEIGHT_EXPONENT).astype(np.float32))


@operation(
    "network_shares.hide_weights",
    discloses="masked",
    about="its share of the layer's weights, under a mask",
    reply=dict,
)
def hide_weights(party: Party, *, model: str, step: int) -> dict[str, np.ndarray]:
    shares = share_of(party, model)
    talks = {name: _talk(party, model, name, step) for name in shares}
    return {name: share + talks[name].mask("weights", share.shape) for name, share in shares.items()}


def _activations(party: Party, model: str, sums: Any, rows: int) -> np.ndarray:
    """z of all other parties together, from what the coordinator added up."""
    top, shares = top_of(party, model), share_of(party, model)
    talks = party.state[f"{model}/talk"]
    total = np.array(sums, dtype=np.uint64)
    for name, share in shares.items():
        talk = talks[name]
        hidden = share + talk.mask("weights", share.shape)
        total = total - product(talk.mask("embedding", (*top.stack, rows, share.shape[-2])), hidden)
        total = total + talk.mask("activations", (*top.stack, rows, share.shape[-1]))
    return from_ring(total, EMBEDDING_EXPONENT + WEIGHT_EXPONENT)


@operation("network_shares.shared_step", discloses="masked", receives="masked",
           about="mean loss and score of a batch; gradients and new weights of the layer, under masks",
           learns="weighted activations of a batch, summed over the parties",
           reply={"loss": float, "score": float, "answers": dict, "weights": dict})  # fmt: skip
def shared_step(party: Party, *, model: str, sums: Any, epoch: int, start: int) -> dict[str, Any]:
    top, shares = top_of(party, model), share_of(party, model)
    rows = _rows(party, top, epoch, start)
    total = _activations(party, model, sums, len(rows))
    seen, gradient = top_step(party, top, total, party.state.get(f"{model}/bottom"), rows)
    delta = to_ring(gradient, DELTA_EXPONENT)
    answers, weights = {}, {}
    for name, share in shares.items():
        talk = party.state[f"{model}/talk"][name]
        own = np.frombuffer(secrets.token_bytes(share.nbytes), dtype=np.uint64).reshape(share.shape)
        hidden = delta + talk.mask("delta", delta.shape)
        embedding_mask = talk.mask("embedding", (*delta.shape[:-1], share.shape[-2]))
        answers[name] = {
            "delta": hidden,
            "weights": own - product(turned(embedding_mask), hidden),
            "embedding": product(delta, turned(share + talk.mask("share", share.shape)))
            + talk.mask("gradient", embedding_mask.shape),
        }
        shares[name] = share + own
        weights[name] = shares[name] + talk.mask("weights", share.shape, later=1)
        talk.begin(party, talk.step + 1)
    return {**seen, "answers": answers, "weights": weights}


@operation("network_shares.shared_predict", discloses="plain", receives="masked", about="the prediction for each row",
           learns="weighted activations of the rows, summed over the parties", reply=ANY)  # fmt: skip
def shared_predict(party: Party, *, model: str, sums: Any, start: int, stop: int) -> np.ndarray:
    return _predicted(party, model, sums, start, stop)


@operation(
    "network_shares.shared_score",
    discloses="aggregate",
    receives="masked",
    about="one score of the model over many rows",
    learns="weighted activations of the rows, summed over the parties",
    reply=float,
)
def shared_score(party: Party, *, model: str, sums: Any) -> float:
    if party.table.label is None:
        raise ParameterError(f"party {party.name!r} has no labels to score against")
    return top_of(party, model).score(_predicted(party, model, sums, 0, party.n_rows), party.table.label)


def _predicted(party: Party, model: str, sums: Any, start: int, stop: int) -> np.ndarray:
    top = top_of(party, model)
    own = bottom_of(party, model) if party.name in top.widths else None
    return top_output(party, top, _activations(party, model, sums, stop - start), own, start, stop)


class SharedRun(SplitRun):
    """Split training on shares. The coordinator multiplies what it cannot read; two asks a batch, as in plain mode."""

    interactive = 2.0**-STEP_BITS

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.step = 0
        self._talking = ""
        self.outputs = 0

    def _meet(self, fed: Federation) -> None:
        """Secret seeds for this session, between the label holder and each other party."""
        if self._talking == fed._session:
            return
        members = [*self.passive, self.active]
        said = fed.ask(begin_talk, to=members, model=self.model)
        self.outputs = said[self.active]["outputs"]
        holder = {self.active: said[self.active]["seal"]}
        others = {name: said[name]["seal"] for name in self.passive}
        each = {name: {"seals": others if name == self.active else holder} for name in members}
        fed.ask(meet, to=members, each=each, model=self.model, outputs=self.outputs)
        self._talking, self.step = fed._session, 0

    def _sums(self, replies: dict[str, Any], weights: dict[str, Any]) -> np.ndarray:
        """The coordinator's part of the forward pass: products of masked matrices, less the masked shares."""
        total: Any = 0
        for name in self.passive:
            hidden, share = replies[name]["hidden"], replies[name]["share"]
            self._check(name, hidden, (*share.shape[:-1], self.widths[name]))
            total = total + product(hidden, weights[name]) - share
        return total

    @staticmethod
    def _check(name: str, array: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
            raise ReplyError(name, "hide_embedding", f"party {name!r} must send {shape} masked numbers")

    def train(self, epochs: int, *, first: int = 0, patience: int | None = None, observe: Any = None) -> int:
        if not self.passive:
            return super().train(epochs, first=first, patience=patience, observe=observe)
        fed, model = self.fed, self.model
        self._count()
        self._meet(fed)
        self.step += 1
        weights = fed.ask(hide_weights, to=self.active, model=model, step=self.step)
        sent: dict[str, dict[str, Any]] = {name: {} for name in self.passive}
        for epoch in fed.track(range(first, first + epochs), "epoch", at_most=patience is not None):
            for _, start in fed.track(list(self.batches(epoch)), "batch"):
                batch: dict[str, Any] = {"model": model, "epoch": epoch, "start": start}
                replies = fed.ask(
                    hide_embedding, to=self.passive, each=sent, holder=self.active, step=self.step, **batch
                )
                learned = fed.ask(shared_step, to=self.active, sums=self._sums(replies, weights), **batch)
                sent = {name: {"answer": self._answer(name, replies, learned["answers"])} for name in self.passive}
                weights = learned["weights"]
                self._saw(learned)
                self.step += 1
            self._end_epoch()
            flat = self.flat(first, patience)
            if observe is not None or flat or epoch + 1 == first + epochs:
                fed.ask(hide_embedding, to=self.passive, each=sent, holder=self.active, model=model)
                sent = {name: {} for name in self.passive}
            if observe is not None:
                observe(epoch)
            if flat:
                return epoch + 1
        return first + epochs

    def _answer(self, name: str, replies: dict[str, Any], answers: dict[str, Any]) -> dict[str, np.ndarray]:
        """The coordinator's part of the backward pass."""
        hidden, eps, answer = replies[name]["hidden"], replies[name]["eps"], answers[name]
        return {
            "weights": product(turned(hidden), answer["delta"]) + answer["weights"],
            "embedding": answer["embedding"] - product(answer["delta"], turned(eps)),
        }

    def _forward(self, fed: Federation, start: int, stop: int) -> np.ndarray:
        self._meet(fed)
        self.step += 1
        weights = fed.ask(hide_weights, to=self.active, model=self.model, step=self.step)
        asked: dict[str, Any] = {"model": self.model, "start": start, "stop": stop}
        replies = fed.ask(hide_embedding, to=self.passive, holder=self.active, step=self.step, **asked)
        return self._sums(replies, weights)

    def score(self, fed: Federation) -> float:
        if not self.passive:
            return super().score(fed)
        with nullcontext(fed) if fed._session else fed.session() as run:
            sums = self._forward(run, 0, run.n_rows)
            return run.ask(shared_score, to=self.active, model=self.model, sums=sums)

    def predict(self, fed: Federation) -> np.ndarray:
        if not self.passive:
            return super().predict(fed)
        parts = []
        with nullcontext(fed) if fed._session else fed.session() as run:
            for start, stop in chunks(run.n_rows):
                sums = self._forward(run, start, stop)
                asked: dict[str, Any] = {"model": self.model, "start": start, "stop": stop}
                parts.append(run.ask(shared_predict, to=self.active, sums=sums, **asked))
        return np.concatenate(parts)


TRAINING = (begin_talk, meet, hide_embedding, hide_weights, shared_step, shared_score)
PREDICTION = (begin_talk, meet, hide_embedding, hide_weights, shared_predict)
