"""The interactive layer of FedSDG-FS (Algorithms 2 and 3): the label holder never sees an embedding, a party never
sees an activation or the label holder's gradients, and neither sees the weights between them.

For each party m the layer has weights w_m with z = sum over m of g_m w_m. The party holds the key and eps (a uniform
ring mask of its own); the label holder holds w~ = w + eps modulo 2^58, which is uniform to it.

  forward   party: Enc(g). Holder: Enc(g w~ + r), r a fresh wide mask. Party: opens it, takes g eps off, returns
            z + r (uniform to it, since r is). Holder: z.
  backward  holder: d = dL/dz, Enc(g d + r'). Party: opens it (uniform to it), adds a fresh mask eps', returns
            g d + r' + eps' and Enc(-eps). Holder: takes r' off, w~ := w~ - step (g d + eps'), so eps := eps - step eps'
            at the party; sends Enc(d w~ - d eps) with the part above 2^58 masked. Party: its own gradient d w.

Departures: ring masks instead of Gaussian noise, so nothing is learned from a masked value; one public fixed-point
exponent each, and an exact update (``ring.py``); every ciphertext is blinded; the layer learns by plain gradient steps
of 2^-4, since Adam is not linear (the rest by Adam). Left as in the paper: the holder sees z, the party the gradient of
its own embedding (which tells about labels). The layer's first weights come from the run's seed, so in the first batch
the holder knows w and z together: a linear view of g, narrower than g. ``shared_layer`` and ``lattice_layer`` do the
same at a thousandth and a thirtieth of the cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import ANY, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import ReplyError
from fedsift.models.splitnn.layers.interactive import BatchRun, first_blocks, interactive_layer, top_output, top_step
from fedsift.models.splitnn.training import _rows, bottom_of, hold_predictions, share_of, top_of
from fedsift.mpc.encrypted_histogram import own_key
from fedsift.mpc.fixed_point import (
    ACTIVATION_EXPONENT,
    DELTA_BITS,
    DELTA_EXPONENT,
    EMBEDDING_BITS,
    EMBEDDING_EXPONENT,
    GRADIENT_EXPONENT,
    RING,
    RING_BITS,
    WEIGHT_EXPONENT,
    Packing,
    from_ring,
    linear_sums,
    masked_sums,
    product,
    random_ring,
    shifted,
    to_ring,
)

_MANY = 1 << 20


def packings(key: PublicKey, width: int, outputs: int, rows: int) -> dict[str, Packing]:
    """Slots of the three products, from public sizes alone."""
    bits = {
        "forward": EMBEDDING_BITS + RING_BITS + width.bit_length(),
        "weights": max(EMBEDDING_BITS + DELTA_BITS + rows.bit_length(), RING_BITS),
        "back": DELTA_BITS + RING_BITS + outputs.bit_length() + 1,
    }
    return {name: Packing(key, value, _MANY) for name, value in bits.items()}


class _Layer:
    """One party's share of the layer, or the label holder's share of it."""

    def __init__(self, key: PublicKey, width: int, outputs: int, rows: int, share: np.ndarray, scheme: str = ""):
        self.key, self.width, self.outputs, self.scheme = key, width, outputs, scheme
        self.share = share  # eps at the party, w~ at the label holder: width x outputs
        self.packing = packings(key, width, outputs, rows)
        self.kept: dict[str, Any] = {}


@operation(
    "network_ciphertext.share_weights",
    discloses="masked",
    about="the layer's first weights under its own mask, and its public key",
    reply={"key": PublicKey, "weights": np.ndarray},
)
def share_weights(party: Party, *, model: str, scheme: str, weights: Any, outputs: int) -> dict[str, Any]:
    bottom, key = bottom_of(party, model), own_key(party, scheme)
    first = to_ring(np.asarray(weights), WEIGHT_EXPONENT)
    mask = random_ring(first.shape)
    width, rows = bottom.settings["width"], bottom.settings["batch_size"]
    party.state[f"{model}/share"] = _Layer(key.public, width, outputs, rows, mask, scheme)
    return {"key": key.public, "weights": (first + mask) & np.uint64(RING)}


@operation(
    "network_ciphertext.first_weights",
    discloses="control",
    about="first weights of the layer, from the seed, and its width",
    reply={"weights": dict, "outputs": int},
)
def first_weights(party: Party, *, model: str) -> dict[str, Any]:
    top = top_of(party, model)
    return {"weights": first_blocks(top, party.name), "outputs": interactive_layer(top).out_features}


@operation("network_ciphertext.take_weights", discloses="control", receives="masked", about="acknowledgement")
def take_weights(party: Party, *, model: str, shares: dict[str, Any]) -> None:
    top = top_of(party, model)
    layer = interactive_layer(top)
    rows = top.settings["batch_size"]
    party.state[f"{model}/share"] = {
        name: _Layer(share["key"], top.widths[name], layer.out_features, rows, share["weights"])
        for name, share in shares.items()
    }


@operation(
    "network_ciphertext.encrypt_embedding",
    discloses="ciphertext",
    receives="ciphertext",
    about="its embeddings, encrypted under its own key",
    learns="the gradient of each row's loss in its own embedding: tells about the row's label",
    reply=(dict, type(None)),
)
def encrypt_embedding(
    party: Party, *, model: str, gradient: Any = None, epoch: int | None = None, start: int = 0, stop: int | None = None
) -> dict[str, Any] | None:
    """Algorithm 3, lines 16 to 20 for the last batch, and Algorithm 2, lines 2 to 9 for the next."""
    bottom, layer = bottom_of(party, model), share_of(party, model)
    if gradient is not None:
        rows = len(layer.kept["g"])
        opened = layer.packing["back"].open(own_key(party, layer.scheme), gradient, layer.width)
        # The holder shifted d to be non-negative; the party knows eps, so it takes that shift off itself.
        shift = layer.kept["old"].sum(axis=1, dtype=np.uint64) << np.uint64(DELTA_BITS - 1)
        ring = (opened + shift[None, :]) & np.uint64(RING)
        bottom.backward(from_ring(ring, GRADIENT_EXPONENT).astype(np.float32).reshape(rows, layer.width))
    if epoch is None and stop is None:
        return None
    if epoch is None:
        g = bottom.embed(party, start, int(stop or 0)).astype(np.float64)
    else:
        g = bottom.forward(_rows(party, bottom, epoch, start)).astype(np.float64)
    whole = shifted(g, EMBEDDING_EXPONENT, EMBEDDING_BITS, f"an embedding of party {party.name!r}")
    layer.kept = {"g": whole - (1 << (EMBEDDING_BITS - 1))}
    return {
        "by_component": layer.key.encrypt(layer.packing["forward"].pack(whole.T)),
        "by_row": layer.key.encrypt(layer.packing["weights"].pack(whole)),
        "rows": len(g),
    }


def _checked(name: str, reply: Any, layer: _Layer, rows: int) -> dict[str, Any]:
    """Ciphertext counts that fit the layer, before anything is computed with them."""
    forward, weights = layer.packing["forward"], layer.packing["weights"]
    expected = {"by_component": layer.width * forward.groups(rows), "by_row": rows * weights.groups(layer.width)}
    if not isinstance(reply, dict) or reply.get("rows") != rows:
        raise ReplyError(name, "encrypt_embedding", f"party {name!r} must send {rows} encrypted rows")
    for field, count in expected.items():
        if not isinstance(reply.get(field), Ciphertexts) or len(reply[field]) != count:
            raise ReplyError(name, "encrypt_embedding", f"party {name!r} must send {count} ciphertexts as {field}")
    return reply


@operation(
    "network_ciphertext.weigh",
    discloses="ciphertext",
    receives="ciphertext",
    about="masked activations, encrypted under the party's key",
    reply=dict,
)
def weigh(
    party: Party, *, model: str, embeddings: dict[str, Any], epoch: int = 0, start: int = 0, stop: int | None = None
) -> dict[str, Any]:
    """Algorithm 2, lines 10 to 14, for every party."""
    rows = len(_rows(party, top_of(party, model), epoch, start)) if stop is None else stop - start
    answers = {}
    for name, layer in share_of(party, model).items():
        reply = _checked(name, embeddings.get(name), layer, rows)
        packing = layer.packing["forward"]
        sums = linear_sums(layer.key, reply["by_component"], layer.share.T)
        masks = packing.masks(layer.outputs, rows)
        layer.kept = {"by_row": reply["by_row"], "mask": _modulo(masks)}
        answers[name] = masked_sums(layer.key, sums, packing, masks)
    return answers


def _modulo(masks: np.ndarray) -> np.ndarray:
    flat = [int(mask) & RING for mask in masks.ravel()]
    return np.array(flat, dtype=np.uint64).reshape(masks.shape)


@operation(
    "network_ciphertext.open_activations",
    discloses="masked",
    receives="ciphertext",
    about="activations under the label holder's mask",
    learns="nothing: activations under a mask",
    reply=np.ndarray,
)
def open_activations(party: Party, *, model: str, sums: Any) -> np.ndarray:
    """Algorithm 2, lines 15 to 18: decrypt and take the own mask of the weights off."""
    layer = share_of(party, model)
    g = layer.kept["g"].view(np.uint64)
    opened = layer.packing["forward"].open(own_key(party, layer.scheme), sums, len(g)).T
    return (opened - product(g, layer.share)) & np.uint64(RING)


def _total(layers: dict[str, _Layer], activations: dict[str, Any], rows: int) -> np.ndarray:
    """z of all other parties together."""
    total = np.zeros((rows, next(iter(layers.values())).outputs))
    for name, layer in layers.items():
        masked = activations.get(name)
        if not isinstance(masked, np.ndarray) or masked.shape != total.shape or masked.dtype != np.uint64:
            raise ReplyError(name, "open_activations", f"party {name!r} must send {total.shape} masked activations")
        # The embedding was shifted to be non-negative; the holder knows w~, so it takes that shift off itself.
        shift = layer.share.sum(axis=0, dtype=np.uint64) << np.uint64(EMBEDDING_BITS - 1)
        total += from_ring((masked - layer.kept["mask"].T - shift[None, :]) & np.uint64(RING), ACTIVATION_EXPONENT)
    return total


def _predicted(party: Party, model: str, activations: dict[str, Any], start: int, stop: int) -> np.ndarray:
    top = top_of(party, model)
    own = bottom_of(party, model) if party.name in top.widths else None
    return top_output(party, top, _total(share_of(party, model), activations, stop - start), own, start, stop)


@operation(
    "network_ciphertext.predict_additive",
    discloses="plain",
    receives="masked",
    about="the prediction for each row",
    learns="weighted activations of the rows: sums over the components of an embedding",
    reply=ANY,
)
def predict_additive(party: Party, *, model: str, activations: dict[str, Any], start: int, stop: int) -> np.ndarray:
    return _predicted(party, model, activations, start, stop)


@operation("network_ciphertext.hold_additive", discloses="control", receives="masked", about="acknowledgement",
           learns="weighted activations of the rows: sums over the components of an embedding")  # fmt: skip
def hold_additive(party: Party, *, model: str, activations: dict[str, Any], start: int, stop: int) -> None:
    """Predict, and keep the predictions here, to score them."""
    hold_predictions(party, model, _predicted(party, model, activations, start, stop))


@operation("network_ciphertext.learn_top", discloses="ciphertext", receives="masked",
           about="mean loss and score of a batch; masked gradients of the layer's weights, under the party's key",
           learns="weighted activations of a batch: sums over the components of an embedding",
           reply={"loss": float, "score": float, "gradients": dict})  # fmt: skip
def learn_top(party: Party, *, model: str, activations: dict[str, Any], epoch: int, start: int) -> dict[str, Any]:
    """Algorithm 2, lines 19 to 22 and Algorithm 3, lines 1 to 4."""
    top = top_of(party, model)
    layers = share_of(party, model)
    rows = _rows(party, top, epoch, start)
    total = _total(layers, activations, len(rows))
    own = party.state.get(f"{model}/bottom")
    seen, delta = top_step(party, top, total, own, rows)
    gradients = {}
    for name, layer in layers.items():
        whole = shifted(delta, DELTA_EXPONENT, DELTA_BITS, "the gradient of an activation")
        packing = layer.packing["weights"]
        sums = linear_sums(layer.key, layer.kept["by_row"], whole.T)
        masks = packing.masks(layer.outputs, layer.width)
        layer.kept = {"delta": whole, "mask": _modulo(masks)}
        gradients[name] = masked_sums(layer.key, sums, packing, masks)
    return {**seen, "gradients": gradients}


@operation(
    "network_ciphertext.open_gradients",
    discloses="masked",
    receives="ciphertext",
    learns="nothing: gradients of the weights under a mask",
    about="gradients of the layer's weights under both masks, and its mask, encrypted",
    reply={"gradient": np.ndarray, "mask": Ciphertexts},
)
def open_gradients(party: Party, *, model: str, sums: Any) -> dict[str, Any]:
    """Algorithm 3, lines 5 to 10: a fresh mask on the gradient, and the mask of the weights encrypted."""
    layer = share_of(party, model)
    g = layer.kept["g"]
    opened = layer.packing["weights"].open(own_key(party, layer.scheme), sums, layer.width).T
    # The holder shifted d to be non-negative; the party knows the sum of g, so it takes that shift off itself.
    shift = g.sum(axis=0).view(np.uint64) << np.uint64(DELTA_BITS - 1)
    fresh = random_ring(layer.share.shape)
    gradient = (opened - shift[:, None] + fresh) & np.uint64(RING)
    negative = (np.uint64(0) - layer.share) & np.uint64(RING)
    layer.kept["old"] = layer.share
    layer.share = (layer.share - fresh) & np.uint64(RING)  # step and exponents cancel: the update is exact
    mask = layer.key.encrypt(layer.packing["back"].pack(negative.T))
    return {"gradient": gradient, "mask": mask}


@operation(
    "network_ciphertext.update_weights",
    discloses="ciphertext",
    receives="masked",
    learns="nothing: gradients of the weights under a mask",
    about="the gradient of each row's loss in the party's embedding, encrypted under its key",
    reply=dict,
)
def update_weights(party: Party, *, model: str, replies: dict[str, Any]) -> dict[str, Any]:
    """Algorithm 3, lines 11 to 15."""
    answers = {}
    for name, layer in share_of(party, model).items():
        reply, packing = replies.get(name), layer.packing["back"]
        shape = layer.share.shape
        count = layer.outputs * packing.groups(layer.width)
        if not isinstance(reply, dict) or getattr(reply.get("gradient"), "shape", None) != shape:
            raise ReplyError(name, "open_gradients", f"party {name!r} must send a gradient of shape {shape}")
        if not isinstance(reply["mask"], Ciphertexts) or len(reply["mask"]) != count:
            raise ReplyError(name, "open_gradients", f"party {name!r} must send {count} ciphertexts")
        whole = layer.kept["delta"]
        delta = (whole - (1 << (DELTA_BITS - 1))).view(np.uint64)
        plain = product(delta, layer.share.T)
        masks = packing.masks(len(whole), layer.width, step=RING + 1) + plain.astype(object)
        sums = linear_sums(layer.key, reply["mask"], whole)
        answers[name] = masked_sums(layer.key, sums, packing, masks)
        shift = whole.sum(axis=0).view(np.uint64) << np.uint64(EMBEDDING_BITS - 1)
        gradient = (reply["gradient"] - layer.kept["mask"].T - shift[None, :]) & np.uint64(RING)
        layer.share = (layer.share - gradient) & np.uint64(RING)
    return answers


class SecureRun(BatchRun):
    """Split training whose embeddings never leave a party readable: six asks a batch."""

    _at_the_end = (predict_additive, hold_additive)

    @classmethod
    def start(
        cls, fed: Federation, model: str, width: int | dict[str, int], bottom: dict[str, Any], top: dict[str, Any]
    ) -> SecureRun:
        run: SecureRun = super().start(fed, model, width, bottom, top)  # type: ignore[assignment]
        if not run.passive:
            return run
        first = fed.ask(first_weights, to=run.active, model=model)
        each = {name: {"weights": first["weights"][name]} for name in run.passive}
        shares = fed.ask(
            share_weights, to=run.passive, each=each, model=model, scheme=bottom.get("scheme", "auto"),
            outputs=first["outputs"],
        )  # fmt: skip
        fed.ask(take_weights, to=run.active, model=model, shares=shares)
        return run

    def _epoch(self, epoch: int) -> None:
        fed, model = self.fed, self.model
        last: dict[str, dict[str, Any]] = {name: {} for name in self.passive}
        for _, start in fed.track(list(self.batches(epoch)), "batch"):
            batch: dict[str, Any] = {"model": model, "epoch": epoch, "start": start}
            embeddings = fed.ask(encrypt_embedding, to=self.passive, each=last, **batch)
            sums = fed.ask(weigh, to=self.active, embeddings=embeddings, **batch)
            opened = fed.ask(
                open_activations, to=self.passive, each={n: {"sums": sums[n]} for n in self.passive}, model=model
            )
            learned = fed.ask(learn_top, to=self.active, activations=opened, **batch)
            each = {n: {"sums": learned["gradients"][n]} for n in self.passive}
            replies = fed.ask(open_gradients, to=self.passive, each=each, model=model)
            gradients = fed.ask(update_weights, to=self.active, model=model, replies=replies)
            last = {name: {"gradient": gradients[name]} for name in self.passive}
            self._saw(learned)
        fed.ask(encrypt_embedding, to=self.passive, each=last, model=model)

    def _activations(self, fed: Federation, start: int, stop: int) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": self.model, "start": start, "stop": stop}
        embeddings = fed.ask(encrypt_embedding, to=self.passive, **asked)
        sums = fed.ask(weigh, to=self.active, embeddings=embeddings, **asked)
        each = {name: {"sums": sums[name]} for name in self.passive}
        return fed.ask(open_activations, to=self.passive, each=each, model=self.model)


TRAINING = (
    first_weights,
    share_weights,
    take_weights,
    encrypt_embedding,
    weigh,
    open_activations,
    learn_top,
    open_gradients,
    update_weights,
    hold_additive,
)
PREDICTION = (encrypt_embedding, weigh, open_activations, predict_additive)
