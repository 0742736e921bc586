"""Correlated randomness from a dealer: products of two parties' matrices on shares, and ANDs of their bits.

Beaver 1991, with the coordinator as dealer. Once a run the dealer gives every party a fresh seed (``Dealer.begin``); a
party draws its own part of the randomness from it (``Dealt``), the dealer draws the same and sends only what does not
follow from a seed. All numbers are in Z_2^64 (``ring.py``), so nothing is rounded and wrap-around does no harm.

**Product.** L holds X (rows x a), R holds Y (rows x b); both shall end with shares of X'Y.

    dealer -> L: U (rows x a), C (a x b), from L's seed      dealer -> R: V (rows x b), from R's seed, and U'V - C
    L -> R, sealed: X - U                                    R -> L, sealed: Y - V
    share of L: U'(Y - V) + C                                share of R: (X - U)'Y + (U'V - C)

The shares add up to X'Y. X - U may serve many Y's as long as V and C are fresh for each (``again`` redraws U). To L
the message Y - V is uniform (V is unknown to it), to R so are X - U and the correction (U and C are).

**AND.** P holds the bits l, R the bits m; R alone learns m & l, that is l where m is 1, and P learns nothing.

    dealer -> P: a, r, from P's seed                         dealer -> R: b, from R's seed, and w = (a & b) ^ r
    R -> P, sealed: e = m ^ b                                P -> R, sealed: d = l ^ a,  s = (e & a) ^ r
    R: m & l = (m & d) ^ s ^ w

**The dealer must see nothing else.** It knows U, V, C, a, r and b, so X - U, Y - V or one share in its hands are the
data themselves. What the parties tell each other is therefore sealed (``pairs.py``), and whatever the coordinator
opens comes as two halves under a mask of a key that it does not have (``Pairs.cancelling``). A dealer that holds rows,
or that colludes with one of the two, reads the other: where a data holder runs the coordinator these forms are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ParameterError, SecurityError
from fedsift.mpc.ring import SEED_BYTES, Ring, new_seed, product, stream

Bits = NDArray[np.uint8]  # eight to a byte, as ``np.packbits`` gives them


@dataclass
class Dealt:
    """One party's part of the dealer's randomness for one run; the dealer has the same for each party.

    A purpose's numbers ascend, so that nothing is drawn twice by mistake; ``again`` repeats what was drawn before,
    for the mask of a matrix that stays (it masks the same numbers each time) or to save memory.
    """

    owner: str
    seed: bytes = field(repr=False)
    _used: dict[str, int] = field(default_factory=dict, repr=False)
    _shapes: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def draw(self, purpose: str, number: int, shape: tuple[int, ...]) -> Ring:
        """Fresh uniform elements of Z_2^64."""
        self._use(purpose, number)
        return stream(self.seed, purpose, number, shape)

    def keep(self, purpose: str, number: int, shape: tuple[int, ...]) -> Ring:
        """The same, of which ``again`` may be asked later."""
        self._use(purpose, number)
        self._shapes[purpose, number] = shape
        return stream(self.seed, purpose, number, shape)

    def again(self, purpose: str, number: int) -> Ring:
        """What ``keep`` gave, once more."""
        if (purpose, number) not in self._shapes:
            raise SecurityError(f"party {self.owner!r}: number {number} of {purpose!r} was not drawn to be kept")
        return stream(self.seed, purpose, number, self._shapes[purpose, number])

    def bits(self, purpose: str, number: int, rows: int, count: int) -> Bits:
        """Fresh uniform bits for ``rows`` vectors of ``count`` bits, packed along the last axis."""
        width = (count + 7) // 8
        self._use(f"bits: {purpose}", number)
        words = stream(self.seed, f"bits: {purpose}", number, (max(1, -(-rows * width // 8)),))
        return words.astype("<u8", copy=False).view(np.uint8)[: rows * width].reshape(rows, width)

    def _use(self, purpose: str, number: int) -> None:
        last = self._used.get(purpose, -1)
        if not isinstance(number, int) or isinstance(number, bool) or not last < number < 2**62:
            raise SecurityError(f"party {self.owner!r}: number {number} of {purpose!r} was used before, or is none")
        self._used[purpose] = number


@dataclass
class Dealer:
    """The coordinator's side: the seed of every party of one run. ``dealer.of[name]`` draws what the party draws."""

    of: Mapping[str, Dealt]

    @classmethod
    def begin(cls, run: Federation, parties: Iterable[str] | None = None) -> Dealer:
        """Deal a fresh seed to every party, inside a session; afterwards operations have ``party.held(Dealt)``."""
        names = list(run.parties if parties is None else parties)
        seeds = {name: new_seed() for name in names}
        run.ask(take_seed, to=names, each={name: {"seed": seed} for name, seed in seeds.items()})
        return cls({name: Dealt(name, seed) for name, seed in seeds.items()})


@operation(
    "dealer.take_seed", discloses="control", about="acknowledgement", learns="randomness from the dealer",
    times="1 a session",
)  # fmt: skip
def take_seed(party: Party, *, seed: bytes) -> None:
    """Keep the dealer's seed for this run; a second one is refused, and one from somebody who holds rows."""
    if party.run.job is not None and not party.run.job.neutral:
        raise OperationRefused(
            party.name, "take_seed", "a party of this job runs the coordinator, deals or gets the results: whoever "
            "holds rows and knows the dealer's randomness reads the other parties' tables",
        )  # fmt: skip
    if Dealt in party.state:
        raise SecurityError(f"party {party.name!r} has a dealer's seed already in this run")
    if len(seed) != SEED_BYTES:
        raise SecurityError(f"party {party.name!r}: a dealer's seed has {SEED_BYTES} bytes, got {len(seed)}")
    party.keep(Dealt(party.name, seed))


#: What a method lists that uses this layer.
OPERATIONS = (take_seed,)


def check_neutral(
    fed: Federation, what: str, *, because: str = "it deals the randomness",
    instead: str = "Let an organisation without rows run it",
) -> None:  # fmt: skip
    """Refuse where a data holder runs the coordinator, deals or gets the results: with the masks it reads the others.

    The sites refuse the dealer's seed there too (``take_seed``).
    """
    if fed.passive and not fed.neutral:
        raise ParameterError(
            f"{what} needs a coordinator that holds no rows and colludes with nobody, because {because}; here "
            f"{fed.run_by!r} runs it, deals or gets the results. {instead}"
        )


# --- the product: X'Y ------------------------------------------------------------------------------------------------


def correction(left_mask: Ring, right_mask: Ring, split: Ring) -> Ring:
    """What the dealer sends to R: U'V - C."""
    return product(left_mask.T, right_mask) - split


def left_share(left_mask: Ring, hidden_right: Ring, split: Ring) -> Ring:
    """Of the holder of X: U'(Y - V) + C."""
    return product(left_mask.T, hidden_right) + split


def right_share(hidden_left: Ring, right: Ring, corrected: Ring) -> Ring:
    """Of the holder of Y: (X - U)'Y + (U'V - C)."""
    return product(hidden_left.T, right) + corrected


# --- the AND: bits of P where R's bits are 1 -------------------------------------------------------------------------


def and_correction(a: Bits, b: Bits, r: Bits) -> Bits:
    """What the dealer sends to R: w."""
    return (a & b) ^ r


def answer_and(bits: Bits, hidden: Bits, a: Bits, r: Bits) -> tuple[Bits, Bits]:
    """What P sends to R: d = l ^ a and s = (e & a) ^ r, where ``hidden`` is R's e = m ^ b."""
    return bits ^ a, (hidden & a) ^ r


def open_and(mine: Bits, d: Bits, s: Bits, w: Bits) -> Bits:
    """R's result m & l."""
    return (mine & d) ^ s ^ w
