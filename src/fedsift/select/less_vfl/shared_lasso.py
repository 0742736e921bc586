"""Group lasso of a network on shares: proximal steps some twenty times in a training.

After every few batches each column's weights are shrunk, W[j] -> W[j] max(0, 1 - lambda rate t / |W[j]|) for t batches.
The coordinator reads the norms |W[j]|, one number a column, from two halves (``layers/shared_gates.py``), and the
weights are multiplied on shares (``layers/shared_shrinking.py``) by sixteenths; what rounding gives or takes is carried
to the next step (``Sixteenths``). The parties hear nothing of them: a column that is out comes back if its gradients
insist, and which columns have something left at the end, the answer, is all that they are told.

``teach_first_weights`` lets a party begin with what an auto-encoder of its own columns has learned (VFLFS): nothing of
it leaves the party but as shares.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.models.splitnn.basis import WIDE
from fedsift.models.splitnn.layers import shared_gates, shared_shrinking
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_parts import Part
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.shared_shrinking import WHOLE, SharedShrinking
from fedsift.models.splitnn.layers.sine import FEW_INPUTS, INPUT_BITS, WEIGHT_BITS, Floats, signed, turns_to_ring
from fedsift.select.less_vfl.component_selection import check_epochs

_TAUGHT_BATCH = 128
READINGS = 20  # of the norms in a training, at least where there are as many batches


@dataclass(frozen=True)
class LassoSettings:
    price: float
    epochs: int
    batch_size: int
    width: int
    rate: float | None  # None: 0.4, less for many columns
    seed: int
    taught: int = 0  # epochs of the auto-encoder that the first weights come from
    reconstruction: float = 1.0


@dataclass(frozen=True)
class LassoTrace:
    """What was left of the columns when they were read."""

    epoch: int
    bytes: int
    norms: dict[str, Floats]


@dataclass(frozen=True)
class LassoFound:
    norms: dict[str, Floats]  # of what is left: zero for a column that is out
    trace: list[LassoTrace]
    story: dict[str, object]


def usual_rate(columns: int) -> float:
    """Of plain steps: many columns, correlated as a rule, do not settle at the rate of few."""
    return 0.4 if columns <= WIDE else 0.4 * FEW_INPUTS / columns


def left_of(norms: Floats, shrinkage: float) -> Floats:
    """The share of each column's weights that the lasso leaves."""
    return np.maximum(0.0, 1.0 - shrinkage / np.maximum(norms, 1e-12))


@dataclass
class Sixteenths:
    """Factors as whole sixteenths, such that their product over the steps follows that of the exact factors."""

    owed: dict[str, Floats] = field(default_factory=dict)

    def of(self, name: str, factor: Floats) -> NDArray[np.uint8]:
        exact = factor * self.owed.get(name, np.ones_like(factor))
        whole = np.clip(np.rint(WHOLE * exact), 0, WHOLE)
        whole[factor == 0] = 0
        self.owed[name] = np.where(whole > 0, np.clip(WHOLE * exact / np.maximum(whole, 1), 0.5, 2.0), 1.0)
        return whole.astype(np.uint8)


@operation(
    "less_vfl.teach_first_weights",
    when="protection=shares",
    discloses="control",
    about="acknowledgement",
    times="1 a session",
)
def teach_first_weights(
    party: Party, *, epochs: Annotated[int, Between(1, 10_000)], weight: Annotated[float, Between(0, 1e6)], seed: int
) -> None:
    """Let the first weights of this party's columns be those of an auto-encoder of them, learned here alone."""
    check_epochs(party, "teach_first_weights", epochs, "pretrain_epochs")
    part = party.held(Part)
    columns = len(part.encoder.owner)  # without the label holder's constant
    inputs = signed(part.inputs(party))[:, :columns] / 2**INPUT_BITS
    turn = 2.0**-WEIGHT_BITS
    first = signed(part.weights[:columns]) * 2 * np.pi * turn
    taught = autoencoded(inputs, first, epochs, weight, party.generator("auto-encoder", seed))
    part.weights = np.vstack([turns_to_ring(taught / (2 * np.pi)), part.weights[columns:]])


def autoencoded(x: Floats, first: Floats, epochs: int, weight: float, generator: np.random.Generator) -> Floats:
    """First-layer weights, in radians, whose sines rebuild ``x`` by a linear decoder."""
    w, decoder = first.copy(), np.zeros((first.shape[1], x.shape[1]))
    rate = 0.5 / max(1.0, float(np.sqrt(x.shape[1])))
    for _ in range(epochs):
        order = generator.permutation(len(x))
        for start in range(0, len(x), _TAUGHT_BATCH):
            batch = x[order[start : start + _TAUGHT_BATCH]]
            z = batch @ w
            error = np.sin(z) @ decoder - batch
            back = (error @ decoder.T) * np.cos(z)
            decoder = decoder - rate * np.sin(z).T @ error / len(batch)
            w = w - rate * weight * batch.T @ back / len(batch)
    return w


#: Beside those of the network itself.
OPERATIONS = (teach_first_weights, *shared_gates.OPERATIONS, *shared_shrinking.OPERATIONS)


def train_lasso(fed: Federation, settings: LassoSettings) -> LassoFound:
    """One training from first weights to what the lasso leaves; nobody sees the network."""
    begun = fed.ledger.bytes()
    rate = usual_rate(sum(fed.n_columns.values())) if settings.rate is None else settings.rate
    with fed.session() as inner:
        run = SharedRun.begin(
            inner, f"lasso-{secrets.token_hex(4)}", width=settings.width, seed=settings.seed, rate=rate,
            batch_size=settings.batch_size, small=True,
        )  # fmt: skip
        owners = list(run.widths)
        if settings.taught:
            inner.ask(
                teach_first_weights, to=owners, epochs=settings.taught, weight=settings.reconstruction,
                seed=settings.seed,
            )  # fmt: skip
        gates = SharedGates(run)
        shrinking, sixteenths = SharedShrinking(gates), Sixteenths()
        batches = -(-fed.n_rows // settings.batch_size)
        run.every = max(1, settings.epochs * batches // READINGS)
        trace: list[LassoTrace] = []
        steps = 0

        def shrink() -> None:
            nonlocal steps
            steps += run.taken
            norms, whole = gates.norms(), {}
            for name, values in norms.items():
                factor = left_of(values, settings.price * rate * run.taken)
                whole[name] = sixteenths.of(name, factor)
            shrinking.shrink(whole)
            left = {name: norms[name] * whole[name] / WHOLE for name in norms}
            trace.append(LassoTrace(-(-steps // batches), fed.ledger.bytes() - begun, left))

        run.pause = shrink
        run.train(settings.epochs)
        if run.taken and run.may_read(0):
            shrink()
        story = run.story()
    none = {name: np.zeros(count) for name, count in fed.n_columns.items()}
    return LassoFound({**none, **trace[-1].norms}, trace, story)
