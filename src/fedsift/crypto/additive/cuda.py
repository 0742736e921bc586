"""The same modular products on a graphics processor: vectors that are large live there, small ones stay with the CPU.

``_montgomery.cu`` is compiled at run time (NVRTC, through CuPy: the extra ``gpu``). ``Device`` wraps the CPU's engine:
what is loaded from a message or encrypted in thousands goes to the device and stays there until it is sent; what is
small is computed as ever. Both give the same numbers to the last bit, so parties with and without one work together.

The device is used where CuPy finds one, unless FEDSIFT_GPU=off. Nothing secret is decided by it: randomness comes from
the operating system, and secret keys never go there.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsift.crypto.additive.engine import Array, Modulus, check_lengths, check_segments

LARGE = 4_096  # numbers of a vector that is worth the way
_WORD = 32
_PIECE = 48  # products that one thread makes one after the other
_STRETCH = 2_048  # rows that one thread sorts by group
_BATCH = 1 << 28  # row numbers that are sorted at once: a gigabyte
_POWERS_AT_ONCE = 1 << 18  # their tables take 16 numbers each


class Machine(Protocol):
    """What ``Device`` needs of a device: arrays with NumPy's functions, and the kernels by their names."""

    xp: Any

    def run(self, kernel: str, limbs: int, constants: Constants, count: int, *arguments: Any) -> None:
        """``kernel`` once for each number below ``count``, which follows the arguments."""

    def host(self, a: Array) -> Array:
        """The array in the CPU's memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """What a modulus puts into the device's constant memory."""

    modulus: Array
    one: Array
    inverse: Array


@functools.cache
def machine() -> Machine | None:
    """The graphics processor of this machine, or ``None``; ``state()`` says why."""
    return _find()[0]


def state() -> str:
    """In words for people: whether a graphics processor computes here."""
    return _find()[1]


@functools.cache
def _find() -> tuple[Machine | None, str]:
    if os.environ.get("FEDSIFT_GPU") == "off":
        return None, "none: switched off by FEDSIFT_GPU"
    try:
        import cupy
    except ImportError:
        return None, "none: CuPy is not installed (pip install 'fedsift[gpu]')"
    try:
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return None, f"none: {error}"
    return _Cupy(cupy), name


class _Cupy:
    """One device. A kernel finds its modulus in constant memory: setting that and starting are one step."""

    def __init__(self, cupy: Any):
        self.xp = cupy
        self._lock = threading.Lock()
        self._modules: dict[int, Any] = {}
        self._set: dict[int, Constants] = {}

    def run(self, kernel: str, limbs: int, constants: Constants, count: int, *arguments: Any) -> None:
        block = 128
        with self._lock:
            module = self._module(limbs)
            if self._set.get(limbs) is not constants:
                for name in ("modulus", "one", "inverse"):
                    value = getattr(constants, name)
                    place = self.xp.ndarray(value.shape, self.xp.uint32, module.get_global(name))
                    place.set(value)
                self._set[limbs] = constants
            sized = [np.int64(each) if isinstance(each, int) else each for each in (*arguments, count)]
            module.get_function(kernel)((-(-count // block),), (block,), tuple(sized))

    def _module(self, limbs: int) -> Any:
        if limbs not in self._modules:
            source = importlib.resources.files(__package__).joinpath("_montgomery.cu").read_text()
            options = (f"-DLIMBS={limbs}", "--std=c++14")
            self._modules[limbs] = self.xp.RawModule(code=source, options=options)
        return self._modules[limbs]

    def host(self, a: Array) -> Array:
        return np.asarray(self.xp.asnumpy(a))


class Table:
    """The powers of one base for all digits; on the device once they are needed there."""

    def __init__(self, host: Array):
        self.host = host
        self.device: Array | None = None


class Device(Modulus):
    """The CPU's engine, and rows of 32-bit words in Montgomery's form on the device for what is large."""

    def __init__(self, cpu: Modulus, machine: Machine, large: int = LARGE):
        self.n, self.cpu, self.machine, self.large = cpu.n, cpu, machine, large
        self.limbs = -(-(self.n.bit_length() + 2) // _WORD)  # two bits free
        self._size = self.limbs * _WORD // 8
        radix = 1 << _WORD * self.limbs
        self._constants = Constants(
            self._words(self.n),
            self._words(radix % self.n),
            np.array([-pow(self.n, -1, 1 << _WORD) % (1 << _WORD)], "<u4"),
        )
        self._enter = machine.xp.asarray(self._words(radix * radix % self.n)[None])
        self._leave = machine.xp.asarray(self._words(1)[None])
        self._modulus = machine.xp.asarray(self._constants.modulus)

    def _words(self, number: int) -> Array:
        return np.frombuffer(number.to_bytes(self._size, "little"), "<u4")

    def load(self, raw: bytes, size: int) -> Array:
        count = len(raw) // size
        if count < self.large or size > self._size:
            return self.cpu.load(raw, size)
        xp = self.machine.xp
        wide = xp.zeros((count, self._size), xp.uint8)
        wide[:, :size] = xp.asarray(np.frombuffer(raw, np.uint8).reshape(count, size))
        return self._enter_all(wide.view("<u4"))

    def dump(self, a: Array, size: int) -> bytes:
        if not self._there(a):
            return self.cpu.dump(a, size)
        xp = self.machine.xp
        plain = self.product(a, self._leave)  # at most n, and n itself only for zero
        plain[(plain == self._modulus).all(axis=1)] = 0
        wide = xp.zeros((len(a), max(size, self._size)), xp.uint8)
        wide[:, : self._size] = plain.view(xp.uint8)
        return self.machine.host(xp.ascontiguousarray(wide[:, :size])).tobytes()

    def take(self, a: Array, places: Array) -> Array:
        return self.cpu.take(a, self.machine.xp.asarray(places) if self._there(a) else places)

    def join(self, parts: Sequence[Array]) -> Array:
        if not any(map(self._there, parts)):
            return self.cpu.join(parts)
        joined: Array = self.machine.xp.concatenate([self._up(part) for part in parts])
        return joined

    def product(self, a: Array, b: Array) -> Array:
        check_lengths(a, b, 1)
        if not (self._there(a) or self._there(b)):
            return self.cpu.product(a, b)
        a, b = self._up(a), self._up(b)
        out: Array = self.machine.xp.empty_like(a)
        self._run("products", len(a), a, len(a), b, len(b), out)
        return out

    def squared(self, a: Array, times: int) -> Array:
        if not self._there(a):
            return self.cpu.squared(a, times)
        out: Array = self.machine.xp.empty_like(a)
        self._run("squares", len(a), a, times, out)
        return out

    def segments(self, values: Array, order: Array, bounds: Array) -> Array:
        if not self._there(values):
            return self.cpu.segments(values, order, bounds)
        check_segments(values, order, bounds)
        return self._down(self._pieces(values, self.machine.xp.asarray(order, dtype="i4"), bounds))

    def _pieces(self, values: Array, order: Array, bounds: Array) -> Array:
        """Long segments are cut so that all threads have work, and the pieces' products multiplied in turn."""
        lengths = np.diff(bounds)
        pieces = np.maximum(1, -(-lengths // _PIECE))
        ends = np.append(0, np.cumsum(pieces))
        number = np.arange(ends[-1]) - np.repeat(ends[:-1], pieces)
        cut = np.append(np.repeat(bounds[:-1], pieces) + number * _PIECE, bounds[-1])
        out: Array = self.machine.xp.empty((int(ends[-1]), self.limbs), "<u4")
        self._run("segments", len(out), values, order, self.machine.xp.asarray(cut.astype(np.int64)), out)
        if len(out) == len(lengths):
            return out
        return self._pieces(out, self.machine.xp.arange(len(out), dtype="i4"), ends)

    def power(self, a: Array, exponents: Sequence[int]) -> Array:
        check_lengths(a, exponents)
        if not self._there(a):
            return self.cpu.power(a, exponents)
        size = max([(int(e).bit_length() + 7) // 8 for e in exponents], default=0)
        raw = b"".join([int(e).to_bytes(size, "big") for e in exponents])
        xp = self.machine.xp
        digits = xp.asarray(np.frombuffer(raw, np.uint8))
        out: Array = xp.empty_like(a)
        for start in range(0, len(a), _POWERS_AT_ONCE):
            part = a[start : start + _POWERS_AT_ONCE]
            table = xp.empty((len(part), 16, self.limbs), "<u4")
            self._run("powers", len(part), part, digits[start * size :], size, table, out[start:])
        return out

    def inverse(self, a: Array) -> Array:
        return self._up(super().inverse(self._down(a, always=True))) if self._there(a) else self.cpu.inverse(a)

    def power_table(self, base: int, digits: int) -> Any:
        return Table(self.cpu.power_table(base, digits))

    def table_powers(self, table: Any, exponents: bytes, count: int) -> Array:
        if count < self.large or not exponents:
            return self.cpu.table_powers(table.host, exponents, count)
        if table.device is None:
            table.device = self._up(table.host)
        xp = self.machine.xp
        out: Array = xp.empty((count, self.limbs), "<u4")
        digits = xp.asarray(np.frombuffer(exponents, np.uint8))
        self._run("table_powers", count, table.device, digits, len(exponents) // count, out)
        return out

    def grouped(self, values: Array, codes: Array, groups: Sequence[int]) -> Array | None:
        """Each group's product for each column of ``codes``, column after column; ``None``: the CPU plans it better."""
        if not self._there(values) or max(groups, default=0) > 256:
            return None
        rows, xp = codes.shape[0], self.machine.xp
        step = max(1, _BATCH // max(rows, 1))
        parts = []
        for first in range(0, len(groups), step):
            block = xp.asarray(np.ascontiguousarray(codes[:, first : first + step], dtype=np.uint8))
            parts.append(self._columns(values, xp.ascontiguousarray(block.T), groups[first : first + step]))
        return self._down(xp.concatenate(parts)) if parts else None

    def _columns(self, values: Array, codes: Array, groups: Sequence[int]) -> Array:
        xp, (columns, rows) = self.machine.xp, codes.shape
        stretches = max(1, -(-rows // _STRETCH))
        starts = np.append(0, np.cumsum(groups))
        where = xp.asarray(starts[:-1].astype(np.int32))
        counts = xp.zeros(int(starts[-1]) * stretches, "i4")
        self._run("tally", columns * stretches, codes, rows, _STRETCH, stretches, where, counts)
        ends = xp.cumsum(counts, dtype="i8")
        places = ends - counts
        bounds = np.append(0, self.machine.host(ends[stretches - 1 :: stretches]))
        order = xp.empty(columns * rows, "i4")
        self._run("scatter", columns * stretches, codes, rows, _STRETCH, stretches, where, places, order)
        return self._pieces(values, order, bounds)

    def _there(self, a: Array) -> bool:
        """Whether a vector lies on the device: as an array of the device's, or (in a double of it) by its words."""
        return bool(isinstance(a, self.machine.xp.ndarray) and a.dtype == np.dtype("<u4"))

    def _up(self, a: Array) -> Array:
        if self._there(a):
            return a
        size = (self.n.bit_length() + 7) // 8
        raw = np.frombuffer(self.cpu.dump(a, size), np.uint8).reshape(len(a), size)
        wide = np.zeros((len(a), self._size), np.uint8)
        wide[:, :size] = raw
        return self._enter_all(self.machine.xp.asarray(wide.view("<u4")))

    def _enter_all(self, plain: Array) -> Array:
        """Numbers of any size that a row holds, into Montgomery's form."""
        out: Array = self.machine.xp.empty_like(plain)
        self._run("products", len(plain), self._enter, 1, plain, len(plain), out)
        return out

    def _down(self, a: Array, always: bool = False) -> Array:
        if len(a) >= self.large and not always:
            return a
        size = (self.n.bit_length() + 7) // 8
        return self.cpu.load(self.dump(a, size), size)

    def _run(self, kernel: str, count: int, *arguments: Any) -> None:
        if count:
            self.machine.run(kernel, self.limbs, self._constants, count, *arguments)
