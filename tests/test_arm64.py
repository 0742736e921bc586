"""The kernel as it is compiled for arm64, run under emulation: the same numbers to the bit as this machine's."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fedsift.crypto import kernel
from fedsift.crypto.additive import montgomery

SOURCES = Path(montgomery.__file__).parents[1]
NAMES = ("products", "squares", "powers", "segments", "ring_product", "map_scale", "scale", "sha512")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"no {COMPILER} or no {EMULATOR} here"
)


class Arm64:
    """The functions that ``montgomery`` calls, each in a process of the emulator."""

    def __init__(self, program: Path):
        self.program = program

    def call(self, name: str, *arguments: int | bytes | None) -> tuple[int, list[bytes]]:
        parts = [bytes([NAMES.index(name), len(arguments)])]
        sizes = []
        for each in arguments:
            if isinstance(each, bytes):
                parts.append(struct.pack("<Bq", 1, len(each)) + each)
                sizes.append(len(each))
            else:
                parts.append(struct.pack("<BQ", 0, int(each or 0)))
        done = subprocess.run([EMULATOR, str(self.program)], input=b"".join(parts), capture_output=True, check=True)
        ends = np.cumsum([8, *sizes]).tolist()
        blocks = [done.stdout[start:end] for start, end in itertools.pairwise(ends)]
        return struct.unpack("<q", done.stdout[:8])[0], blocks

    def _into(self, out: int, size: int, name: str, *arguments: int | bytes) -> None:
        """The one block that is written, ``out``, is where its bytes stand among the arguments."""
        before = ctypes.string_at(out, size)
        given = [before if each is out else each for each in arguments]
        place = sum(isinstance(each, bytes) for each in given[: next(i for i, e in enumerate(given) if e is before)])
        _, blocks = self.call(name, *given)
        ctypes.memmove(out, blocks[place], size)

    def fedsift_products(self, a, b, count, many, n, inverse, out, limbs):
        row, read = 8 * limbs, ctypes.string_at
        first, second = read(a, count * row), read(b, many * row)
        self._into(out, count * row, "products", first, second, count, many, read(n, row), inverse, out, limbs)

    def fedsift_squares(self, values, count, times, n, inverse, out, limbs):
        row, read = 8 * limbs, ctypes.string_at
        self._into(
            out, count * row, "squares", read(values, count * row), count, times, read(n, row), inverse, out, limbs
        )

    def fedsift_powers(self, values, count, exponents, size, one, n, inverse, out, limbs):
        row, read = 8 * limbs, ctypes.string_at
        given = read(values, count * row), count, read(exponents, count * size), size, read(one, row), read(n, row)
        self._into(out, count * row, "powers", *given, inverse, out, limbs)

    def fedsift_segments(self, values, order, bounds, first, last, one, n, inverse, out, limbs):
        row, read = 8 * limbs, ctypes.string_at
        ends = np.frombuffer(read(bounds, 8 * (last + 1)), np.int64)
        places = np.frombuffer(read(order, 8 * int(ends[-1])), np.int64)
        rows = read(values, (int(places.max(initial=0)) + 1) * row)
        given = rows, places.tobytes(), ends.tobytes(), first, last, read(one, row), read(n, row), inverse
        self._into(out, last * row, "segments", *given, out, limbs)


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    program = tmp_path_factory.mktemp("arm64") / "driver"
    names = ("montgomery", "ristretto", "ristretto_portable", "sha512", "ring", "avx2", "portable")
    sources = [str(SOURCES / f"_{name}.c") for name in names]
    driver = str(Path(__file__).parent / "arm64_driver.c")
    options = ["-O3", "-static", "-fvisibility=hidden", "-o", str(program)]
    subprocess.run([COMPILER, *options, driver, *sources], check=True, capture_output=True)
    return Arm64(program)


@pytest.mark.parametrize("bits", [104, 1371, 2054, 4096])
def test_large_moduli_equal_plain_integers(arm, bits):
    rng = np.random.default_rng(bits)
    n = int.from_bytes(rng.bytes(bits // 8), "little") | 1 << (bits - 1) | 1
    mod = montgomery._Kernel(n, arm)
    values = [0, 1, n - 1, *(int.from_bytes(rng.bytes(bits // 8), "little") % n for _ in range(9))]
    a, b = mod.numbers(values), mod.numbers(values[::-1])
    assert mod.integers(a) == values
    assert mod.integers(mod.product(a, b)) == [x * y % n for x, y in zip(values, values[::-1])]
    assert mod.integers(mod.squared(a, 3)) == [pow(x, 8, n) for x in values]
    exponents = [int(each) for each in rng.integers(0, 1 << 62, len(values))]
    assert mod.integers(mod.power(a, exponents)) == [pow(x, e, n) for x, e in zip(values, exponents)]
    sums = mod.segments(a, np.array([3, 4, 5, 4]), np.array([0, 1, 1, 4]))
    assert mod.integers(sums) == [values[3], 1, values[4] * values[5] * values[4] % n]


def test_products_modulo_2_64_equal_numpys(arm):
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 1 << 63, (300, width), dtype=np.uint64) * np.uint64(2) for width in (3, 17))
    out = np.zeros((3, 17), np.uint64).tobytes()
    _, blocks = arm.call("ring_product", left.tobytes(), right.tobytes(), 300, 3, 17, out)
    np.testing.assert_array_equal(np.frombuffer(blocks[2], np.uint64).reshape(3, 17), left.T @ right)


def test_points_are_those_of_this_machine(arm):
    compiled = kernel.library()
    if compiled is None:
        pytest.skip("no compiled kernel here")
    rng = np.random.default_rng(0)
    uniform = rng.bytes(64 * 21)
    scalars = b"".join(rng.bytes(31) + b"\0" for _ in range(21))
    here = ctypes.create_string_buffer(32 * 21)
    compiled.fedsift_ristretto_map_scale(uniform, 21, scalars, 32, here)
    _, blocks = arm.call("map_scale", uniform, 21, scalars, 32, bytes(32 * 21))
    assert blocks[2] == here.raw
    again = ctypes.create_string_buffer(32 * 21)
    assert compiled.fedsift_ristretto_scale(here.raw, 21, scalars[:32], 0, again) == -1
    bad, blocks = arm.call("scale", here.raw, 21, scalars[:32], 0, bytes(32 * 21))
    assert (bad, blocks[2]) == (-1, again.raw)
    assert arm.call("scale", here.raw[:64] + b"\xff" * 32, 3, scalars[:32], 0, bytes(96))[0] == 2


def test_hashes_are_sha512(arm):
    words = [b"", b"a", b"b" * 300]
    ends = np.cumsum([0, *map(len, words)]).astype(np.int64)
    _, blocks = arm.call("sha512", b"<", 1, b"".join(words), ends.tobytes(), 3, b">", 1, 64, bytes(192))
    assert blocks[-1] == b"".join(hashlib.sha512(b"<" + word + b">").digest() for word in words)
