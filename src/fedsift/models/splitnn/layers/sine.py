"""The network that trains on shares: sines of weighted sums, in numbers that a ring of 64 bits holds by nature.

    output(x) = mean + unit * sum over k of V[k] sin(x W[k]),   unit = AMPLITUDE / sqrt(width)

W is trained, by gradient steps on the squared error (class indicators for a classification, so outputs are estimates of
probabilities); V holds fixed signs that everybody knows. Random Fourier features (Rahimi and Recht 2007) with trained
frequencies; periodic activations as in SIREN (Sitzmann et al. 2020).

Why a sine. An angle is measured in turns, 2^64 to a turn, so the ring wraps where the function does: nothing overflows,
no comparison and no truncation is needed, and of an opened, masked angle only the 16 upper bits travel. With a masked
angle h = z + r that both sides know, sin z = sin h cos r - cos h sin r is linear in cos r and sin r, of which a dealer
hands out shares; the derivative uses the same two. A polynomial of comparable accuracy on Madelon has degree 4, needs
four times the openings and diverges at twice the rate (measured).

Where each scale is kept (fractional bits): inputs 6, clipped at 6 deviations; angles 16 opened; tables of the dealer
12; public tables 16 forwards, 8 backwards; outputs 28, of which errors keep 10; gradients of angles 30; weights 58
(turns), so a step is an exact multiple: ``step_factor``.

What travels under a mask is uniform, so its lower bits may be left out: the rounding is noise without a bias, of 2^-14
for a row's gradient (6 of 8 bytes travel) and of 2^-13 for a batch's gradient of a weight (5 of 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import ParameterError
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.ring import Ring, product

INPUT_BITS, CLIP = 6, 6.0
ANGLE_BITS = 16
TABLE_BITS, FORWARD_BITS, BACKWARD_BITS = 12, 16, 8
OUTPUT_BITS = TABLE_BITS + FORWARD_BITS
ERROR_BITS = 10
DROPPED = OUTPUT_BITS - ERROR_BITS
DELTA_BITS = ERROR_BITS + TABLE_BITS + BACKWARD_BITS
WEIGHT_BITS = 64 - INPUT_BITS
DELTA_BYTES, GRADIENT_BYTES = 6, 5
AMPLITUDE = 2.0
FIRST_SPREAD = 0.7  # deviation of the first angles, in radians, over all inputs of all parties
FEW_INPUTS = 24  # bear the full rate and the full spread
OFFSET = np.uint64(1 << 62)  # makes an error that is below 2^62 in size a positive number

Angles = NDArray[np.uint16]
Short = NDArray[np.uint8]  # the upper bytes of elements of the ring, along a last axis
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """What everybody knows of the network."""

    width: int
    outputs: int
    seed: int

    @property
    def unit(self) -> float:
        return AMPLITUDE / math.sqrt(self.width)

    def signs(self) -> Ring:
        """V: width x outputs of 1 and -1, columns of Sylvester's Hadamard matrix (1 and -1 in turn come first).

        Its columns are at right angles where the width is a power of two, and nearly so elsewhere: random signs of as
        many columns leave directions in which outputs hardly move (Isolet's 26 classes did not train).
        """
        common = np.arange(self.width)[:, None] & np.arange(1, self.outputs + 1)
        ones = np.ones_like(common)
        while common.any():
            ones, common = np.where(common & 1, -ones, ones), common >> 1
        return ones.astype(np.int64).view(np.uint64)


def step_factor(rate: float, shape: Shape, batch: int) -> int:
    """The whole number that a gradient in the ring is multiplied with: one step of ``rate`` on the mean of a batch."""
    exact = rate * shape.unit**2 / (2 * math.pi * batch) * 2.0 ** (WEIGHT_BITS - INPUT_BITS - DELTA_BITS)
    factor = round(exact)
    if factor < 1:
        raise ParameterError(
            f"a learning_rate of {rate:g} with batches of {batch} rows is too small for steps on shares: raise it "
            f"above {rate / exact:.2g}, or take smaller batches"
        )
    return factor


def usual_rate(inputs: int, outputs: int, batch: int, mixed: bool) -> float:
    """The rate that plain steps bear: less where inputs are many.

    On the parties' own axes (``basis.py``) it follows the largest variance within a batch of so many even inputs,
    (1 + sqrt(inputs / batch))^2; columns as they are, correlated as a rule, bear less in proportion to their number.
    """
    if mixed:
        return min(1.0, (3.0 if outputs == 1 else 2.0) / (1.0 + math.sqrt(inputs / batch)) ** 2)
    return 0.5 * FEW_INPUTS / max(FEW_INPUTS, inputs)


def cooled(factor: int, epoch: int, epochs: int) -> int:
    """Steps get smaller towards the end: a quarter from 60 % of ``epochs`` on, a sixteenth from 85 % on (0: never)."""
    if epoch < 0 or epoch < 0.6 * epochs or not epochs:
        return factor
    return max(1, factor // (4 if epoch < 0.85 * epochs else 16))


def brought_in(inputs: NDArray[np.floating]) -> Floats:
    """Far values at ``CLIP`` deviations."""
    return np.clip(np.asarray(inputs, dtype=np.float64), -CLIP, CLIP)


def quantised(inputs: NDArray[np.floating]) -> Ring:
    """Inputs as whole numbers of 2^-6."""
    return np.rint(np.ldexp(brought_in(inputs), INPUT_BITS)).astype(np.int64).view(np.uint64)


def first_weights(
    generator: np.random.Generator, inputs: int, all_inputs: int, width: int, spread: float = FIRST_SPREAD
) -> Ring:
    """Normal frequencies, such that the angles of all parties' inputs (of variance 1) together spread by ``spread``."""
    radians = generator.standard_normal((inputs, width)) * spread / math.sqrt(max(1, all_inputs))
    return turns_to_ring(radians / (2 * math.pi))


def small_spread(all_inputs: int) -> float:
    """Many inputs begin smaller: what is random in directions that no gradient moves stays, and is noise."""
    return FIRST_SPREAD * math.sqrt(FEW_INPUTS / max(FEW_INPUTS, all_inputs))


def first_phases(generator: np.random.Generator, width: int, part: float = 1.0) -> Ring:
    """Weights of the constant input (one unit): a phase anywhere on the circle, or on a ``part`` of it around 0."""
    return turns_to_ring(part * (generator.random((1, width)) - 0.5))


def turns_to_ring(turns: Floats) -> Ring:
    return np.rint(np.ldexp(turns, WEIGHT_BITS)).astype(np.int64).view(np.uint64)


def shortened_to(size: int, masked: Ring) -> Short:
    """The ``size`` upper bytes of masked numbers, rounded."""
    half = np.uint64(1 << (8 * (8 - size) - 1))
    parts = (masked + half).astype("<u8", copy=False).view(np.uint8)
    return np.ascontiguousarray(parts.reshape(*masked.shape, 8)[..., 8 - size :])


def lengthened(short: Short) -> Ring:
    """Elements of the ring again, with zeros below."""
    parts = np.zeros((*short.shape[:-1], 8), dtype=np.uint8)
    parts[..., 8 - short.shape[-1] :] = short
    return parts.view("<u8")[..., 0].astype(np.uint64, copy=False)


def angles_of(share: Ring) -> Angles:
    """The upper bits of a share of angles."""
    return (share >> np.uint64(64 - ANGLE_BITS)).astype(np.uint16)


def angle_mask(dealt: Dealt, number: int, shape: tuple[int, ...], purpose: str = "angles") -> Angles:
    """A member's mask of the angles of one batch (or of weights)."""
    return dealt.bits(purpose, number, shape[0], ANGLE_BITS * shape[1]).view("<u2").astype(np.uint16, copy=False)


def circle(angles: Angles, bits: int) -> tuple[Ring, Ring]:
    """Cosine and sine in the ring with ``bits`` fractional bits."""
    turns = angles.astype(np.float64) * (2 * math.pi / 2**ANGLE_BITS)
    cosine, sine = (np.rint(np.ldexp(f(turns), bits)).astype(np.int64).view(np.uint64) for f in (np.cos, np.sin))
    return cosine, sine


def targets_to_ring(target: Floats, shape: Shape) -> Ring:
    """Targets (less their mean) in units of the output, with ``OUTPUT_BITS``."""
    return np.rint(np.ldexp(target / shape.unit, OUTPUT_BITS)).astype(np.int64).view(np.uint64)


def signed(ring: Ring) -> Floats:
    return ring.view(np.int64).astype(np.float64)


@dataclass
class ActivationShares:
    """One side's shares of what a dealer knows about the masks of one batch."""

    cos: Ring  # of the angles' masks, rows x width, TABLE_BITS
    sin: Ring
    high: Ring  # of the mask of the outputs without its lower bits, rows x outputs
    wrap: Ring  # of that mask's highest bit
    back_cos: Ring  # of (mask of the errors times the signs) x cos, rows x width
    back_sin: Ring
    square: Ring  # of the sum of squares of the mask of the errors, one number


PARTS = ("cos", "sin", "high", "wrap", "back_cos", "back_sin", "square")


def shapes_of(rows: int, shape: Shape) -> dict[str, tuple[int, ...]]:
    wide, out = (rows, shape.width), (rows, shape.outputs)
    return dict(zip(PARTS, (wide, wide, out, out, wide, wide, (1,))))


def drawn_shares(dealt: Dealt, number: int, rows: int, shape: Shape) -> ActivationShares:
    """The helper's shares are drawn. The label holder gets what is missing to the sums."""
    return ActivationShares(**{part: dealt.draw(part, number, size) for part, size in shapes_of(rows, shape).items()})


def outputs(hidden: Angles, shares: ActivationShares, signs: Ring) -> Ring:
    """One side's share of the outputs for masked angles that both sides know."""
    cosine, sine = circle(hidden, FORWARD_BITS)
    return product(sine * shares.cos - cosine * shares.sin, signs)


def shortened(opened: Ring, shares: ActivationShares, first: bool) -> Ring:
    """One side's share of an error with fewer bits, exact but for the last: ``opened`` is the error (made positive)
    under a mask r. The sum wrapped if and only if the highest bit of r is 1 and that of ``opened`` is 0.
    """
    dropped = np.uint64(DROPPED)
    wrapped = (np.uint64(1) - (opened >> np.uint64(63))) << np.uint64(64 - DROPPED)
    half = wrapped * shares.wrap - shares.high
    return half + (opened >> dropped) - (OFFSET >> dropped) if first else half


def angle_gradients(hidden: Angles, error: Ring, shares: ActivationShares, signs: Ring) -> Ring:
    """One side's share of d loss / d angle: (error V') cos z, for a masked error that both sides know."""
    cosine, sine = circle(hidden, BACKWARD_BITS)
    through = product(error, signs.T)
    return through * (cosine * shares.cos + sine * shares.sin) - (cosine * shares.back_cos + sine * shares.back_sin)
