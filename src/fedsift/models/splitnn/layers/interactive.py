"""The label holder's side of the layer where embeddings meet its weights, as the protected forms of it share it.

In plain training the label holder gets embeddings g and computes z = sum of g_m w_m itself. Under ciphertexts
(``lattice.py``) it gets z alone, and gives d = dL/dz back: ``top_step``. The
weights w_m that meet other parties' embeddings learn by plain gradient steps, since they are never in one hand.

All numbers of the layer are fixed point, integers modulo 2^58 with public exponents, chosen so that the weight update
is exact (no truncation under a mask): an embedding has 12 fractional bits, a gradient of an activation 20, a weight 12
+ 20 + 4 for the step 2^-4. A masked ring element is uniform, so it hides its value perfectly.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Answering, R
from fedsift.core.party import Party
from fedsift.errors import OverflowGuard, ReplyError
from fedsift.models.splitnn.networks import first_layer, torch_module
from fedsift.models.splitnn.party_networks import Bottom, Top
from fedsift.models.splitnn.training import Observe, SplitRun, score_held

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear

RING_BITS = 58
RING = (1 << RING_BITS) - 1
STEP_BITS = 4  # the interactive layer's learning rate is 2^-4
EMBEDDING_EXPONENT, EMBEDDING_BITS = 12, 18  # |g| < 32
DELTA_EXPONENT, DELTA_BITS = 20, 22  # |dL/dz| < 2
WEIGHT_EXPONENT = EMBEDDING_EXPONENT + DELTA_EXPONENT + STEP_BITS


def to_ring(values: np.ndarray, exponent: int) -> np.ndarray:
    """round(x * 2^exponent) modulo 2^58."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if scaled.size and np.abs(scaled).max() >= 2.0 ** (RING_BITS - 1):
        raise OverflowGuard("a number of the secure layer does not fit its ring; use a smaller learning rate")
    return scaled.astype(np.int64).view(np.uint64) & np.uint64(RING)


def from_ring(ring: np.ndarray, exponent: int) -> np.ndarray:
    """The numbers back, those above half of the ring as negative ones."""
    signed = (np.asarray(ring, dtype=np.uint64) << np.uint64(64 - RING_BITS)).view(np.int64) >> (64 - RING_BITS)
    return np.ldexp(signed.astype(np.float64), -exponent)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product in the ring (NumPy wraps at 2^64, a multiple of 2^58)."""
    return (a.astype(np.uint64) @ b.astype(np.uint64)) & np.uint64(RING)


def shifted(values: np.ndarray, exponent: int, bits: int, what: str) -> np.ndarray:
    """Fixed-point numbers made non-negative: x * 2^exponent + 2^(bits - 1), refused when they do not fit ``bits``."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if not np.isfinite(scaled).all() or (scaled.size and np.abs(scaled).max() >= 2.0 ** (bits - 1)):
        limit = 2.0 ** (bits - 1 - exponent)
        raise OverflowGuard(f"{what} must stay below {limit:g} in size in the secure layer; scale it down")
    return scaled.astype(np.int64) + (1 << (bits - 1))


def random_ring(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform ring elements from the operating system."""
    count = int(np.prod(shape))
    return (np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64) & np.uint64(RING)).reshape(shape)


def interactive_layer(top: Top) -> Linear:
    return first_layer(top.module, sum(top.widths.values()), "the top model")


def first_blocks(top: Top, own: str) -> dict[str, np.ndarray]:
    """The layer's first weights for each other party: (stack x) width x outputs."""
    torch = torch_module()
    pieces = torch.split(interactive_layer(top).weight.detach(), list(top.widths.values()), dim=-1)
    blocks = {n: piece.transpose(-1, -2).numpy().astype(np.float64) for n, piece in zip(top.widths, pieces)}
    return {name: block for name, block in blocks.items() if name != own}


def _through(party: Party, top: Top, z: Tensor, embedding: Tensor | None, rows: int) -> Tensor:
    """The top model's output for the activations ``z`` of the others and the label holder's own embedding."""
    torch, layer = torch_module(), interactive_layer(top)
    shown: Tensor = z
    if embedding is not None:
        begin = sum(list(top.widths.values())[: list(top.widths).index(party.name)])
        block = layer.weight[..., begin : begin + top.widths[party.name]]
        shown = z + embedding @ block.transpose(-1, -2)
    whole = shown + layer.bias if layer.bias is not None else shown
    hook = layer.register_forward_hook(lambda *_: whole)
    try:
        return top.module(torch.zeros((*top.stack, rows, layer.in_features)))
    finally:
        hook.remove()


Stepped = tuple[dict[str, float], np.ndarray]


def top_step(party: Party, top: Top, total: np.ndarray, own: Bottom | None, rows: np.ndarray) -> Stepped:
    """One step of everything that the label holder has in the clear; loss and score, and dL/dz."""
    torch = torch_module()
    top.module.train()
    z = torch.tensor(total, dtype=torch.float32, requires_grad=True)
    embedding = None if own is None else torch.tensor(own.forward(rows), requires_grad=True)
    loss, seen = top.losses(_through(party, top, z, embedding, len(rows)), rows)
    assert top.interactive is not None
    for stepper in (top.optimiser, top.interactive):
        stepper.zero_grad()
    loss.backward()
    top.optimiser.step()
    if own is not None and embedding is not None:
        top.interactive.step()
        own.backward(embedding.grad.numpy())
    return seen, z.grad.numpy().astype(np.float64)


def top_output(party: Party, top: Top, total: np.ndarray, own: Bottom | None, start: int, stop: int) -> np.ndarray:
    """Class probabilities or target values of rows start..stop of the party's view."""
    torch = torch_module()
    top.module.eval()
    with torch.no_grad():
        embedding = None if own is None else torch.from_numpy(own.embed(party, start, stop))
        return top.presented(_through(party, top, torch.tensor(total, dtype=torch.float32), embedding, stop - start))


class BatchRun(SplitRun):
    """Rows through an encrypted layer, batch by batch; how a batch is encrypted and opened is the layer's own."""

    interactive = 2.0**-STEP_BITS
    #: Of the label holder: predict the rows, keep them to be scored.
    _at_the_end: tuple[Answering[np.ndarray], Answering[None]]

    def _epoch(self, epoch: int) -> None:
        """Every batch once, and the parties' last step."""
        raise NotImplementedError

    def train(self, epochs: int, *, first: int = 0, patience: int | None = None, observe: Observe = None) -> int:
        if not self.passive:
            return super().train(epochs, first=first, patience=patience, observe=observe)
        self._count()
        for epoch in self.fed.track(range(first, first + epochs), "epoch", at_most=patience is not None):
            self._epoch(epoch)
            self._end_epoch()
            if observe is not None:
                observe(epoch)
            if self.flat(first, patience):
                return epoch + 1
        return first + epochs

    def _activations(self, fed: Federation, start: int, stop: int) -> dict[str, object]:
        """What each party opens for the label holder, of these rows of a view."""
        raise NotImplementedError

    def _rows_through(self, fed: Federation, last: Answering[R]) -> list[R]:
        parts = []
        for start in range(0, fed.n_rows, self.batch_size):
            stop = min(start + self.batch_size, fed.n_rows)
            opened = self._activations(fed, start, stop)
            parts.append(fed.ask(last, to=self.active, model=self.model, activations=opened, start=start, stop=stop))
        return parts

    def predict(self, fed: Federation) -> np.ndarray:
        if not self.passive:
            return super().predict(fed)
        found = self._rows_through(self.within(fed), self._at_the_end[0])
        if len({part.shape[1] for part in found}) != 1 or sum(map(len, found)) != fed.n_rows:
            raise ReplyError(str(self.active), "predict", "another number of outputs or rows than were asked for")
        return np.concatenate(found)

    def score(self, fed: Federation) -> float:
        if not self.passive:
            return super().score(fed)
        run = self.within(fed)
        self._rows_through(run, self._at_the_end[1])
        return float(run.ask(score_held, to=self.active, model=self.model))
