"""Differential privacy: noise that is safe to draw, and a budget that cannot be overspent.

Noise. Textbook samplers add a floating-point number to a floating-point number, and the last bits of the sum tell
which values were possible (Mironov 2012). Here OpenDP draws exact *discrete* Gaussian noise on a grid of
powers of two, with randomness from the operating system. No ``random_state`` reaches this module: noise that can be
drawn again protects nothing.

Budget. One `Budget` goes through a whole run, and each release asks it first. Whoever overspends gets an error before
anything is released. Composition is the simple kind with proofs that fit on a page: basic composition for pure and
approximate differential privacy, and zero-concentrated differential privacy (zCDP, Bun and Steinke 2016) for Gaussian
noise, where the rhos add up.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.workers import side_by_side, workers
from fedsift.errors import BudgetExceeded, ParameterError

FloatArray = NDArray[np.float64]

GRID_BITS = 40
"""Noise lies on a grid of a power of two, at least this many bits finer than its scale."""

LEAST_DELTA, MOST_DELTA = 1e-15, 1e-5
"""Of a job. With a large delta an epsilon says little: (0.001, 0.5) is an epsilon of 4.5 at delta 1e-6."""

_THREADED_FROM = 4096  # draws; below this a second thread costs more than it brings
_ROUNDING_SLACK = 1e-9  # lets ten releases of a tenth of the budget fit, whatever floating point makes of a tenth


def gaussian_noise(shape: int | tuple[int, ...], scale: float) -> FloatArray:
    """Gaussian noise (standard deviation ``scale``) on a grid of 2**(floor(log2(scale)) - 40).

    For noise that is added elsewhere, under encryption or to a masked share: adding these numbers to a float held in
    the clear rounds, and rounding is what leaks.
    """
    _positive("scale", scale)
    zeros = np.zeros(shape)
    return _add_noise(zeros.ravel(), scale, _grid_exponent(scale)).reshape(zeros.shape)


def whole_gaussian_noise(shape: int | tuple[int, ...], scale: float) -> NDArray[np.int64]:
    """Discrete Gaussian noise on the whole numbers: rho = (L2 sensitivity)^2 / (2 scale^2) for whole numbers."""
    _positive("scale", scale)
    zeros = np.zeros(shape)
    return _add_noise(zeros.ravel(), scale, 0).reshape(zeros.shape).astype(np.int64)


def _grid_exponent(scale: float) -> int:
    return max(-1074, math.floor(math.log2(scale)) - GRID_BITS)


def _measurement(count: int, scale: float, exponent: int) -> Any:
    # Not through opendp.prelude, which takes two seconds to import.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T=float, nan=False), size=count)
    return make_gaussian(domain, l2_distance(T=float), scale=float(scale), k=exponent)


def _add_noise(values: FloatArray, scale: float, exponent: int) -> FloatArray:
    """Noise is independent from value to value, so parts of the vector can be drawn on different cores."""
    if values.size == 0:
        return values.copy()
    parts = np.array_split(values, workers() if values.size >= _THREADED_FROM else 1)

    def draw(part: FloatArray) -> FloatArray:
        return np.asarray(_measurement(part.size, scale, exponent)(part.tolist()), dtype=np.float64)

    return np.concatenate(side_by_side(draw, parts))


def rho_to_epsilon(rho: float, delta: float) -> float:
    """The epsilon at which rho-zCDP gives (epsilon, delta)-DP.

    Canonne, Kamath and Steinke 2020 (Proposition 12): for each order a > 1,
    ``epsilon = a rho + log(1/delta) / (a-1) + log(a-1) - a/(a-1) log(a)`` is valid. The least of a fine grid of
    orders is taken; a coarser grid would only make it more cautious.
    """
    _positive("delta", delta)
    if delta >= 1:
        raise ParameterError(f"delta must be below 1, not {delta!r}")
    if rho <= 0:
        return 0.0
    middle, width = math.log(math.sqrt(math.log(1 / delta) / rho)), 8.0
    best = math.inf
    for _ in range(4):
        exponents = middle + np.linspace(-width, width, 401)
        x = np.exp(exponents)  # a - 1
        epsilons = (1 + x) * rho - math.log(delta) / x + exponents - (1 + x) / x * np.log1p(x)
        middle, width = float(exponents[epsilons.argmin()]), width / 50
        best = min(best, float(epsilons.min()))
    return max(0.0, best)


@functools.lru_cache(maxsize=64)
def epsilon_to_rho(epsilon: float, delta: float) -> float:
    """The largest rho whose releases stay within (epsilon, delta)-DP."""
    _positive("epsilon", epsilon)
    return _largest(lambda rho: rho_to_epsilon(rho, delta) <= epsilon)


def _largest(fits: Callable[[float], bool]) -> float:
    """The largest number that fits, by bisection, from below."""
    low, high = 0.0, 1.0
    while fits(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class Privacy(NamedTuple):
    """A pair (epsilon, delta)."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Release:
    """One release: what it is about, how its noise was drawn, and what it cost: an epsilon (and delta), or a rho."""

    about: str
    mechanism: str
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None


class ReleaseRow(TypedDict):
    """A release as a row of a table (reports, JSON), with the epsilon of the run up to it."""

    release: int
    about: str
    mechanism: str
    epsilon: float | None
    delta: float | None
    rho: float | None
    total_epsilon: float


class Budget:
    """What a run may give away in all: ``epsilon`` and ``delta`` of the person whose row it is.

    Pure releases (``spend``) add up their epsilons, zCDP ones (``spend_rho``) their rhos, which are turned into an
    epsilon at the budget's delta. Where both kinds occur the cheaper of two valid sums counts: epsilons plus converted
    rhos, or all in zCDP (a pure epsilon is epsilon^2/2-zCDP). That choice is sound as long as the amounts asked for
    come from public parameters; do not derive an amount from what earlier releases showed.

    Copies are the same object, lest the same privacy be spent twice. Safe to use from several threads.
    """

    def __init__(self, epsilon: float, delta: float = 0.0):
        _positive("epsilon", epsilon)
        if not 0 <= delta < 1:
            raise ParameterError(f"delta must lie in [0, 1), not {delta!r}")
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self._entries: list[Release] = []
        self._lock = threading.RLock()

    def spend(self, *, epsilon: float, delta: float = 0.0, about: str, mechanism: str = "laplace") -> None:
        """Record a release that is (epsilon, delta)-DP, or raise BudgetExceeded and record nothing."""
        _positive("epsilon", epsilon)
        if not 0 <= delta < 1:
            raise ParameterError(f"delta must lie in [0, 1), not {delta!r}")
        asked = f"epsilon {epsilon:g}" + (f" with delta {delta:g}" if delta else "")
        self._record(Release(about, mechanism, epsilon=float(epsilon), delta=float(delta)), asked)

    def spend_rho(self, rho: float, about: str, mechanism: str = "gaussian") -> None:
        """Record a release that is rho-zCDP, or raise BudgetExceeded and record nothing."""
        _positive("rho", rho)
        self._record(Release(about, mechanism, rho=float(rho)), f"rho {rho:g} (zCDP)")

    @property
    def spent(self) -> Privacy:
        with self._lock:
            return self._total(self._entries)

    @property
    def left(self) -> Privacy:
        """Epsilon for one more pure release, and the delta that no release has claimed for itself."""
        with self._lock:
            claimed = math.fsum(entry.delta or 0.0 for entry in self._entries)
            return Privacy(max(0.0, self.epsilon - self.spent.epsilon), max(0.0, self.delta - claimed))

    @property
    def left_rho(self) -> float:
        """The largest rho that one more zCDP release may take (0 where delta is 0)."""
        with self._lock:
            return _largest(lambda rho: rho <= 0 or self._fits([*self._entries, Release("", "", rho=rho)]))

    @property
    def entries(self) -> tuple[Release, ...]:
        """The releases, in order."""
        with self._lock:
            return tuple(self._entries)

    def as_rows(self) -> list[ReleaseRow]:
        """The releases as rows of one table, each with the epsilon of the run up to it."""
        entries = self.entries
        return [
            {"release": i + 1, "about": entry.about, "mechanism": entry.mechanism, "epsilon": entry.epsilon,
             "delta": entry.delta, "rho": entry.rho, "total_epsilon": self._total(entries[: i + 1]).epsilon}
            for i, entry in enumerate(entries)
        ]  # fmt: skip

    def __repr__(self) -> str:
        with self._lock:
            delta = f", delta={self.delta:g}" if self.delta else ""
            return (
                f"Budget(epsilon={self.epsilon:g}{delta}: {self.spent.epsilon:.4g} spent in {len(self._entries)} "
                f"releases, {self.left.epsilon:.4g} left)"
            )

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Budget:
        return self

    def _record(self, entry: Release, asked: str) -> None:
        with self._lock:
            if not self._fits([*self._entries, entry]):
                left = f"{self.left.epsilon:.4g} of epsilon {self.epsilon:g}"
                left += f" and {self.left.delta:.4g} of delta {self.delta:g}" if self.delta else ", and no delta,"
                left += f" (rho {self.left_rho:.4g})" if entry.rho is not None else ""
                raise BudgetExceeded(
                    f"the privacy budget does not cover {entry.about!r}: it asks for {asked}, and {left} is left "
                    f"after {len(self._entries)} releases; ask for less, or set a larger budget"
                )
            self._entries.append(entry)

    def _fits(self, entries: Sequence[Release]) -> bool:
        total = self._total(entries)
        slack = 1 + _ROUNDING_SLACK
        return total.epsilon <= self.epsilon * slack and total.delta <= self.delta * slack

    def _total(self, entries: Sequence[Release]) -> Privacy:
        """The least (epsilon, delta) that composition proves for these releases together."""
        claimed = [entry for entry in entries if entry.delta]  # approximate: basic composition only
        pure = [entry.epsilon for entry in entries if entry.epsilon is not None and not entry.delta]
        rho = math.fsum(entry.rho for entry in entries if entry.rho is not None)
        base = math.fsum(entry.epsilon or 0.0 for entry in claimed)
        delta = math.fsum(entry.delta or 0.0 for entry in claimed)
        options = [] if rho else [Privacy(base + math.fsum(pure), delta)]
        if self.delta > delta:
            room = self.delta - delta
            apart = math.fsum(pure) + rho_to_epsilon(rho, room)
            together = rho_to_epsilon(rho + math.fsum(epsilon**2 / 2 for epsilon in pure), room)
            options.append(Privacy(base + min(apart, together), self.delta))
        return min(options, default=Privacy(math.inf, delta))


def _positive(name: str, value: float) -> None:
    if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0):
        raise ParameterError(f"{name} must be a positive number, not {value!r}")
