"""FedSDG-FS on shares: gates that the coordinator learns while a network trains that nobody sees.

In a block of batches every column takes part with the same probability, by lot: a party hears which of its columns do,
and that says nothing, for it does not depend on the gates. (Drawn with probability Phi(mu / sigma), the paper's
P(s > 0), the bits of a training told a party the order of its gates.) The coordinator holds the means mu: after each
block it gets dL/ds of every column, a sum over rows (``layers/shared_gates.py``), and takes Adam's step on
(dL/ds + price) phi(mu / sigma) / sigma. A column whose mean is below ``OUT`` leaves the conversation: that, and which
are kept in the end, is what a party learns. Lots come from numbers that all parties gave the coordinator.

The prices are one path, from the highest down: the network of one price goes on with the next lower one. (Upwards, what
the low prices let in was learned by heart and stayed.)
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Whole, operation
from fedsift.core.party import Party
from fedsift.models.splitnn.layers import shared_gates
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_parts import LEAST_BATCHES
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.sine import Floats

BLOCK = LEAST_BATCHES  # batches between two readings of the gates
GATE_RATE = 0.045  # Adam's, of the means
WEIGHT_RATE = 0.4  # of the network's steps
LATER = 8  # a price after the first gets the n-th part of its epochs
TAKES_PART = 0.6  # how often a column does; with 0.84, what is useless held up what is useful (measured)
OUT = -0.4  # a mean below this is out for good: a later price has no time to bring it back above zero


@operation(
    "fedsdg.gate_seed",
    when="protection=shares",
    discloses="control",
    about="a random number for drawing gates",
    reply=Whole(2**62),
    times="1 a session",
)
def gate_seed(party: Party, *, seed: int) -> int:
    return int(party.generator("gates", seed).integers(2**62))


#: Beside those of the network itself.
OPERATIONS = (gate_seed, *shared_gates.OPERATIONS)


def lots(generator: np.random.Generator, columns: int) -> np.ndarray:
    """Which columns take part: a bit each, whatever their gates are."""
    return generator.random(columns) < TAKES_PART


@dataclass
class GateMeans:
    """The means of all gates, and Adam's memory of them. Pure mathematics."""

    mu: Floats
    sigma: float
    first: Floats = field(init=False)
    second: Floats = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.first, self.second = np.zeros_like(self.mu), np.zeros_like(self.mu)

    def step(self, gain: Floats, price: float, rate: float) -> None:
        """Adam on the gradient of loss + price * expected number of open gates; a gain of infinity: it stays."""
        density = np.exp(-0.5 * (self.mu / self.sigma) ** 2) / (self.sigma * math.sqrt(2 * math.pi))
        gradient = np.where(np.isfinite(gain), (gain + price) * density, 0.0)
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, square = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        self.mu = self.mu - np.where(np.isfinite(gain), rate * mean / (np.sqrt(square) + 1e-8), 0.0)


@dataclass(frozen=True)
class GatePath:
    """What was found at one price."""

    price: float
    means: dict[str, Floats]
    trace: list[tuple[int, dict[str, Floats]]]
    story: dict[str, object]


@dataclass(frozen=True)
class GateSettings:
    epochs: int
    batch_size: int
    width: int
    sigma: float
    seed: int
    rate: float = WEIGHT_RATE
    trace_every: int = 10
    later: int = LATER


def train_gates(
    fed: Federation, prices: list[float], start: dict[str, Floats], settings: GateSettings
) -> list[GatePath]:
    """Gates at each of the descending prices, beginning at ``start``."""
    counts = fed.n_columns
    with fed.session() as inner:
        run = SharedRun.begin(
            inner, f"gates-{secrets.token_hex(4)}", width=settings.width, seed=settings.seed, rate=settings.rate,
            batch_size=settings.batch_size,
        )  # fmt: skip
        gates = SharedGates(run)
        owners = list(run.widths)
        given = inner.ask(gate_seed, to=inner.parties, seed=settings.seed)
        generator = np.random.default_rng(sorted(given.values()))
        means = GateMeans(np.concatenate([start[name] for name in owners]), settings.sigma)
        cuts = np.cumsum([counts[name] for name in owners])[:-1]

        def by_party(values: np.ndarray) -> dict[str, np.ndarray]:
            return dict(zip(owners, np.split(values, cuts)))

        gates.set(by_party(lots(generator, len(means.mu))))
        run.every = BLOCK
        found: list[GatePath] = []
        epoch = 0
        for price in prices:
            trace: list[tuple[int, dict[str, Floats]]] = []

            def pause(price: float = price) -> None:
                gain = gates.gradients()
                means.step(np.concatenate([gain[name] for name in owners]), price, GATE_RATE)
                gates.drop(by_party(means.mu < OUT))
                gates.set(by_party(lots(generator, len(means.mu))))

            def observe(at: int, trace: list[tuple[int, dict[str, Floats]]] = trace) -> None:
                if (at + 1) % settings.trace_every == 0:
                    trace.append((at + 1, by_party(means.mu.copy())))

            run.pause = pause
            epochs = settings.epochs if not found else max(1, settings.epochs // settings.later)
            epoch = run.train(epochs, first=epoch, observe=observe)
            last = by_party(means.mu.copy())
            if not trace or trace[-1][0] != epoch:
                trace.append((epoch, last))
            found.append(GatePath(price, last, trace, run.story()))
    return found
