"""The interactive layer of FedSDG-FS under lattice encryption: Algorithms 2 and 3 between two parties, no third needed.

For each party P the layer has weights w with z = g w. P holds eps and the keys, the label holder H holds w~, and
w = w~ - eps modulo 2^58. Enc is P's (``secure/lattice.py``); products of matrices are ``block_product.py``'s.

  forward   P -> H: Enc(g).  H -> P: Enc(g w~ + r), r uniform.  P -> H: z + r (g eps taken off).  H: z.
  backward  P has sent Enc'(g) and Enc(-eps) along.  H: d = dL/dz.
            H -> P: Enc'(g'd + r'): P opens it, eps := eps + g'd + r'; H: w~ := w~ + r'. So w := w - g'd.
            H -> P: Enc(d w~' - d eps'): P opens d w', the gradient of its own embedding.

Who sees what: H sees z and ciphertexts; P sees numbers under uniform masks, and d w'. That is the paper's view. Where
it differs from the paper's flow, it sends less: the masked gradient need not come back, since P's share of it is its
new noise. How the answers hide their factors from the key's owner is argued in ``secure/lattice.py``.

What P sends in the forward pass (z + r) depends on the noise of the ciphertexts in one way: where it carries into the
last bit (probability below 2^-26 a number). P adds a uniform 14-bit number (2^-20 in z) before it sends, so what H sees
depends on the noise, and so on P's key, with probability below 2^-40 a number.

Both ends vouch for what they send, and the loss is told of whole epochs (``lattice_wire.py`` says why).

Fixed point: g has 12 fractional bits, d 20, the weights 36 (a step is 2^-4, exact), of which products take 22.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.federation import Federation
from fedsift.core.ledger import seen_by_row
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.bfv import LatticeAnswers, LatticeCiphertexts, LatticePublicKey, LatticeSecretKey
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.splitnn.halves import bottom_of, halves_of, rows_of_batch, share_of, shares_of, top_of
from fedsift.models.splitnn.layers.block_product import Plan
from fedsift.models.splitnn.layers.interactive import (
    DELTA_BITS,
    DELTA_EXPONENT,
    EMBEDDING_BITS,
    EMBEDDING_EXPONENT,
    RING,
    WEIGHT_EXPONENT,
    BatchRun,
    first_blocks,
    from_ring,
    interactive_layer,
    product,
    random_ring,
    shifted,
    to_ring,
    top_output,
    top_step,
)
from fedsift.models.splitnn.layers.lattice_wire import (
    ANSWER,
    GRADIENTS,
    KEYS,
    OPENED,
    ROWS,
    Activations,
    Epoch,
    LatticeAnswer,
    LatticeGradients,
    LatticeKeys,
    LatticeRows,
    OwnEnd,
    PeerKeys,
    Plans,
    Ring,
    Weighed,
    checked,
    ends_of,
    keep_weighed,
    own_end,
    peer_keys,
    vouched,
    weighed_of,
)
from fedsift.models.splitnn.party_networks import Bottom
from fedsift.models.splitnn.training import hold_predictions
from fedsift.mpc import pairs
from fedsift.mpc.pairs import meet_all

WEIGHT_BITS = 58  # the shares' ring
VALUE_BITS = 44  # the ring of products with weights, which lose the last 14 bits there
DROPPED = WEIGHT_BITS - VALUE_BITS
FLOOD_BITS = 14
_VALUE = np.uint64((1 << VALUE_BITS) - 1)
_ACTIVATION = EMBEDDING_EXPONENT + WEIGHT_EXPONENT - DROPPED
_GRADIENT = DELTA_EXPONENT + WEIGHT_EXPONENT - DROPPED


def _fixed(values: np.ndarray, exponent: int, bits: int, what: str) -> np.ndarray:
    """Signed fixed-point numbers as ring elements."""
    return (shifted(values, exponent, bits, what) - (1 << (bits - 1))).view(np.uint64)


def _cut(share: np.ndarray) -> np.ndarray:
    """The upper bits of a share: shares of the upper bits of the weight (up to one unit in the last place)."""
    return (share >> np.uint64(DROPPED)) & _VALUE


def _answers(
    key: LatticePublicKey, plan: Plan, pairs: Any, plain: np.ndarray, hide: bool
) -> tuple[LatticeAnswers, Any]:
    """Blinded sums of products; with ``hide`` also the mask that the owner will find on them."""
    made = [
        key.answer([pairs(i, j) for i, j in terms], line, plan.places, hide)
        for terms, line in zip(plan.terms(), plan.spread(plain))
    ]
    return key.pack(made), plain + plan.gather(np.stack([carries for _, _, carries in made]))


@operation("network_lattice.lattice_keys", when="protection=lattice", times="100 a session", discloses="control",
           about="public keys of this conversation",
           reply={"value": LatticePublicKey, "weight": LatticePublicKey, "note": bytes})  # fmt: skip
def lattice_keys(party: Party, *, model: str) -> dict[str, object]:
    end = ends_of(party).own[model] = OwnEnd(LatticeSecretKey(VALUE_BITS), LatticeSecretKey(WEIGHT_BITS))
    public = {"value": end.value.public, "weight": end.weight.public}
    return vouched(party, KEYS, _label_holder(party), public)


def _label_holder(party: Party) -> str:
    if party.job.active is None:
        raise OperationRefused(party.name, "lattice", "this job has no label holder")
    return party.job.active


@operation(
    "network_lattice.take_lattice_keys", when="protection=lattice", times="100 a session", discloses="control",
    about="width of the layer", reply=int,
)  # fmt: skip
def take_lattice_keys(party: Party, *, model: str, keys: dict[str, LatticeKeys]) -> int:
    told = {name: PeerKeys(**checked(party, KEYS, name, each)) for name, each in keys.items()}
    ends_of(party).peers[model] = told
    party.keep(Epoch())
    top, halves = top_of(party, model), halves_of(party, model)
    if halves.shares is None:
        blocks = first_blocks(top, party.name)
        halves.shares = {peer: to_ring(block, WEIGHT_EXPONENT) for peer, block in blocks.items()}
    return int(interactive_layer(top).out_features)


@operation(
    "network_lattice.encrypt_lattice",
    when="protection=lattice",
    times="10000000 a session",
    discloses="ciphertext",
    receives="ciphertext",
    about="its embeddings and its share, under its own key",
    opened="nobody",
    learns="the gradient of each row's loss in its own embedding: tells about the row's label",
    reply=(dict, type(None)),
)
def encrypt_lattice(
    party: Party, *, model: str, outputs: Annotated[int, Between(1, 4096)], answer: LatticeGradients | None = None,
    epoch: int | None = None, start: int = 0, stop: int | None = None,
) -> dict[str, object] | None:  # fmt: skip
    """Algorithm 3, lines 16 to 20 for the last batch, and Algorithm 2, lines 2 to 9 for the next."""
    bottom = bottom_of(party, model)
    if answer is not None:
        _learn(party, model, checked(party, GRADIENTS, _label_holder(party), answer))
    if epoch is None and stop is None:
        return None
    if stop is not None and not 0 <= start < stop <= start + bottom.settings.batch_size:
        raise OperationRefused(party.name, "encrypt_lattice", "these rows are not one batch")
    halves = halves_of(party, model)
    if halves.share is None:
        halves.share = np.zeros((bottom.settings.width, outputs), dtype=np.uint64)
    if halves.share.shape != (bottom.settings.width, outputs):
        raise OperationRefused(party.name, "encrypt_lattice", "its share of the weights is for another layer than this")
    embedding = bottom.embed(party, start, stop) if stop is not None else _next(party, bottom, epoch, start)
    g = _fixed(embedding, EMBEDDING_EXPONENT, EMBEDDING_BITS, f"an embedding of party {party.name!r}")
    plan, end = Plans.of(bottom.settings.batch_size, g.shape[1], outputs), own_end(party, model)
    end.sent = (g, plan)
    sent = {"forward": end.value.encrypt(plan.forward.left(g & _VALUE))}
    if stop is None:
        negative = (np.uint64(0) - _cut(share_of(party, model))) & _VALUE
        sent |= {
            "weights": end.weight.encrypt(plan.weights.left(g.T & np.uint64(RING))),
            "back": end.value.encrypt(plan.back.right(negative.T)),
        }
    return vouched(party, ROWS, _label_holder(party), sent)


def _next(party: Party, bottom: Bottom, epoch: int | None, start: int) -> np.ndarray:
    return np.asarray(bottom.forward(rows_of_batch(party, bottom, int(epoch or 0), start)))


def _sent(party: Party, end: OwnEnd) -> tuple[Ring, Plans]:
    if end.sent is None:
        raise OperationRefused(party.name, "lattice", "it has sent no embeddings that this could be about")
    return end.sent


def _learn(party: Party, model: str, answer: dict[str, Any]) -> None:
    bottom, end = bottom_of(party, model), own_end(party, model)
    (g, plan), end.sent = _sent(party, end), None
    weights = plan.weights.gather(end.weight.open(answer["weights"], plan.weights.places))
    gradient = plan.back.gather(end.value.open(answer["back"], plan.back.places))[: len(g)]
    halves_of(party, model).share = (share_of(party, model) + weights) & np.uint64(RING)
    bottom.backward(_value(gradient, _GRADIENT).astype(np.float32))


def _value(ring: np.ndarray, exponent: int) -> np.ndarray:
    """Numbers modulo 2^44 back to signed reals."""
    return from_ring((ring << np.uint64(DROPPED)) & np.uint64(RING), exponent + DROPPED)


def _loaded(
    party: Party, keys: PeerKeys, name: str, sent: object, products: tuple[str, ...], plan: Plans
) -> dict[str, Any]:
    """A party's ciphertexts, vouched for, counted before anything is computed with them."""
    reply, ready = checked(party, ROWS, name, sent), {}
    for what in products:
        a, b, c = getattr(plan, what).parts
        count, given = b * c if what == "back" else a * b, reply.get(what)
        if not isinstance(given, LatticeCiphertexts):
            raise ReplyError(name, "encrypt_lattice", f"party {name!r} must send its {what} ciphertexts")
        if len(given) != count:
            raise ReplyError(name, "encrypt_lattice", f"party {name!r} must send {count} ciphertexts as {what}")
        ready[what] = (keys.weight if what == "weights" else keys.value).load(given)
    return ready


@operation(
    "network_lattice.weigh_lattice",
    when="protection=lattice",
    times="10000000 a session",
    discloses="ciphertext",
    receives="ciphertext",
    about="masked activations, encrypted under the party's key",
    opened="nobody",
    reply=ByName({"forward": LatticeAnswers, "note": bytes}),
)
def weigh_lattice(party: Party, *, model: str, replies: dict[str, LatticeRows], back: bool = True) -> dict[str, Any]:
    """Algorithm 2, lines 10 to 14, for every party."""
    top, answers, keys = top_of(party, model), {}, peer_keys(party, model)
    weighed: dict[str, Weighed] = {}
    for name, share in shares_of(party, model).items():
        plan = Plans.of(top.settings.batch_size, *share.shape)
        products = ("forward", "weights", "back") if back else ("forward",)
        ready, key = _loaded(party, keys[name], name, replies.get(name), products, plan), keys[name].value
        factors = key.factors(plan.forward.right(_cut(share)))
        mask = random_ring((plan.forward.rows, share.shape[1])) & _VALUE
        answer, mask = _answers(key, plan.forward, lambda i, j, c=ready["forward"], f=factors: (c[i], f[j]), mask, True)
        answers[name] = vouched(party, ANSWER, name, {"forward": answer})
        weighed[name] = Weighed(ready, mask, plan)
    keep_weighed(party, model, weighed)
    return answers


@operation(
    "network_lattice.open_lattice", when="protection=lattice", times="10000000 a session", discloses="masked",
    receives="ciphertext", about="activations under the label holder's mask",
    opened="pseudonymous: weighted activations of each row, sums over the components of its embedding",
    opened_by="active", learns="nothing: activations under a mask", reply={"masked": Array("i", 2), "note": bytes},
)  # fmt: skip
def open_lattice(party: Party, *, model: str, answer: LatticeAnswer) -> dict[str, Any]:
    """Algorithm 2, lines 15 to 18: decrypt, take the own share of the weights off, cover the last bits."""
    end, holder = own_end(party, model), _label_holder(party)
    g, plan = _sent(party, end)
    given = checked(party, ANSWER, holder, answer)["forward"]
    opened = plan.forward.gather(end.value.open(given, plan.forward.places))[: len(g)]
    cover = np.frombuffer(secrets.token_bytes(8 * opened.size), dtype=np.uint64).reshape(opened.shape)
    cover = cover & np.uint64((1 << FLOOD_BITS) - 1)
    masked = (opened - product(g, _cut(share_of(party, model))) + cover) & _VALUE
    return vouched(party, OPENED, holder, {"masked": masked})


def _total(party: Party, model: str, activations: dict[str, Activations], rows: int) -> np.ndarray:
    """z of all other parties together."""
    total = np.zeros(())
    for name, kept in weighed_of(party, model).items():
        masked, shape = checked(party, OPENED, name, activations.get(name)).get("masked"), (rows, kept.mask.shape[1])
        if not isinstance(masked, np.ndarray) or masked.shape != shape or masked.dtype != np.uint64:
            raise ReplyError(name, "open_lattice", f"party {name!r} must send {shape} masked activations")
        middle = np.uint64(1 << (FLOOD_BITS - 1))
        total = total + _value((masked - kept.mask[:rows] - middle) & _VALUE, _ACTIVATION)
    return total


@operation("network_lattice.learn_lattice", when="protection=lattice", times="10000000 a session",
           discloses="ciphertext", receives="masked",
           about="gradients of weights (masked) and embeddings, under the party's keys; loss and score of an epoch",
           opened="plain: the gradient of each row's loss in the reader's own embedding, which tells the row's label; "
                  "to the coordinator the mean loss and score of an epoch", opened_by="passive", concerns="labels",
           releases=seen_by_row,
           learns="weighted activations of a batch: sums over the components of an embedding",
           reply={"loss": (float, type(None)), "score": (float, type(None)),
                  "answers": ByName({"weights": LatticeAnswers, "back": LatticeAnswers, "note": bytes})})  # fmt: skip
def learn_lattice(
    party: Party, *, model: str, activations: dict[str, Activations], epoch: int, start: int
) -> dict[str, Any]:
    """Algorithm 2, lines 19 to 22 and Algorithm 3, lines 1 to 15."""
    top, shares, told = top_of(party, model), shares_of(party, model), party.held(Epoch)
    told.begin(party, epoch, start, top.settings.batch_size)
    rows = rows_of_batch(party, top, epoch, start)
    total = _total(party, model, activations, len(rows))
    seen, gradient = top_step(party, top, total, halves_of(party, model).bottom, rows)
    delta = np.zeros((top.settings.batch_size, gradient.shape[1]), dtype=np.uint64)
    delta[: len(rows)] = _fixed(gradient, DELTA_EXPONENT, DELTA_BITS, "the gradient of an activation")
    answers, of_peers, weighed = {}, peer_keys(party, model), weighed_of(party, model)
    keep_weighed(party, model, {})
    for name, kept in weighed.items():
        keys, plan, ready = of_peers[name], kept.plans, kept.ready
        factors = keys.weight.factors(plan.weights.right(delta & np.uint64(RING)))
        weights, mask = _answers(
            keys.weight, plan.weights, lambda i, j, c=ready["weights"], f=factors: (c[i], f[j]),
            random_ring(shares[name].shape), True,
        )  # fmt: skip
        back = keys.value.factors(plan.back.left(delta & _VALUE))
        embedding, _ = _answers(
            keys.value, plan.back, lambda i, j, c=ready["back"], f=back: (c[j], f[i]),
            product(delta, _cut(shares[name]).T) & _VALUE, False,
        )  # fmt: skip
        shares[name] = (shares[name] + mask) & np.uint64(RING)
        answers[name] = vouched(party, GRADIENTS, name, {"weights": weights, "back": embedding})
    return {**told.add(start, len(rows), seen, party.n_rows), "answers": answers}


def _predicted(party: Party, model: str, activations: dict[str, Activations], start: int, stop: int) -> np.ndarray:
    top = top_of(party, model)
    own = bottom_of(party, model) if party.name in top.widths else None
    return top_output(party, top, _total(party, model, activations, stop - start), own, start, stop)


@operation("network_lattice.predict_lattice", when="protection=lattice", times="10000000 a session", discloses="plain",
           receives="masked",
           about="the prediction for each row",
           learns="weighted activations of the rows: sums over the components of an embedding",
           reply=Array("f", 2, finite=False))  # fmt: skip
def predict_lattice(
    party: Party, *, model: str, activations: dict[str, Activations], start: int, stop: int
) -> np.ndarray:
    return _predicted(party, model, activations, start, stop)


@operation("network_lattice.hold_lattice", when="protection=lattice", times="10000000 a session", discloses="control",
           receives="masked",
           about="acknowledgement",
           learns="weighted activations of the rows: sums over the components of an embedding")  # fmt: skip
def hold_lattice(party: Party, *, model: str, activations: dict[str, Activations], start: int, stop: int) -> None:
    """Predict, and keep the predictions here, to score them."""
    hold_predictions(party, model, _predicted(party, model, activations, start, stop))


OPERATIONS = (
    *pairs.OPERATIONS, lattice_keys, take_lattice_keys, encrypt_lattice, weigh_lattice, open_lattice, learn_lattice,
    predict_lattice, hold_lattice,
)  # fmt: skip


class LatticeRun(BatchRun):
    """Split training under lattice encryption: four asks a batch."""

    _at_the_end = (predict_lattice, hold_lattice)
    _talking = ""
    outputs = 0

    def _meet(self, fed: Federation) -> None:
        if self._talking != fed._session or not self.outputs:
            meet_all(fed, [*self.passive, self.active], pairs.CIRCLE)
            keys = fed.ask(lattice_keys, to=self.passive, model=self.model)
            self.outputs = fed.ask(take_lattice_keys, to=self.active, model=self.model, keys=keys)
            self._talking = fed._session

    def _forward(self, fed: Federation, each: dict[str, Any], **asked: Any) -> dict[str, Any]:
        sent = fed.ask(encrypt_lattice, to=self.passive, each=each, model=self.model, outputs=self.outputs, **asked)
        answers = fed.ask(weigh_lattice, to=self.active, model=self.model, replies=sent, back="stop" not in asked)
        opened = {name: {"answer": answers[name]} for name in self.passive}
        return fed.ask(open_lattice, to=self.passive, each=opened, model=self.model)

    def _epoch(self, epoch: int) -> None:
        fed = self.fed
        self._meet(fed)
        sent: dict[str, dict[str, Any]] = {name: {} for name in self.passive}
        for _, start in fed.track(list(self.batches(epoch)), "batch"):
            activations = self._forward(fed, sent, epoch=epoch, start=start)
            learned = fed.ask(
                learn_lattice, to=self.active, model=self.model, activations=activations, epoch=epoch, start=start
            )
            sent = {name: {"answer": learned["answers"][name]} for name in self.passive}
            if learned["loss"] is not None and learned["score"] is not None:
                self._saw(learned)
        if not self._batches:
            raise ReplyError(self.active, "learn_lattice", "it told no loss and score of the epoch")
        fed.ask(encrypt_lattice, to=self.passive, each=sent, model=self.model, outputs=self.outputs)

    def _activations(self, fed: Federation, start: int, stop: int) -> dict[str, object]:
        self._meet(fed)
        return self._forward(fed, {name: {} for name in self.passive}, start=start, stop=stop)
