"""What a graphics processor changes: modular products, encryption, encrypted histograms, beside the same machine's CPU.

    python benchmarks/gpu.py [--quick] [--rows 1000000] [--columns 1000] [--out FILE]
    python benchmarks/gpu.py --render          # results/gpu.json into docs/scale.md

Runs on a machine that has CuPy, NumPy and gmpy2 and none of fedsift's other dependencies: only ``fedsift.crypto`` is
imported then. Every part first compares the device with plain integers, to the last bit. What such a run hides: the
rows' numbers from whoever sums them (ciphertexts under the label holder's key); the sums are for that holder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import commit

if importlib.util.find_spec("polars") is None:  # a machine for computing alone: without the package's front door
    root = types.ModuleType("fedsift")
    root.__path__ = [str(Path(__file__).parent.parent / "src" / "fedsift")]
    sys.modules["fedsift"] = root

from fedsift.crypto import kernel
from fedsift.crypto.additive import cuda, montgomery
from fedsift.crypto.additive.grouped import group_sums
from fedsift.crypto.additive.keys import generate_key

BITS = 2_054
BEGIN, END = "<!-- begin: written by benchmarks/gpu.py -->", "<!-- end -->"


def timed(work: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """The result, and the fastest of a few runs in wall seconds; what the device still does is waited for."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        machine = cuda.machine()
        if machine is not None:
            machine.xp.cuda.Device().synchronize()
        best = min(best, time.perf_counter() - start)
    return result, best


def odd(bits: int) -> int:
    return int.from_bytes(os.urandom(bits // 8 + 1), "little") % (1 << bits - 1) | 1 << bits - 1 | 1


def check(n: int) -> int:
    """The device against plain integers; how many numbers were compared."""
    mod = cuda.Device(montgomery.cpu_modulus(n), cuda.machine(), large=1)
    rng = np.random.default_rng(0)
    special = [0, 1, 2, n - 1, n - 2, n >> 1]
    values = special + [int.from_bytes(rng.bytes(300), "little") % n for _ in range(4_000)]
    a, b = mod.numbers(values), mod.numbers(values[::-1])
    assert mod.integers(a) == values
    assert mod.integers(mod.product(a, b)) == [x * y % n for x, y in zip(values, values[::-1])]
    assert mod.integers(mod.squared(a, 5)) == [pow(x, 32, n) for x in values]
    exponents = [int(e) for e in rng.integers(0, 1 << 62, len(values))]
    assert mod.integers(mod.power(a, exponents)) == [pow(x, e, n) for x, e in zip(values, exponents)]
    table = mod.power_table(3, 5)
    raw = rng.bytes(5 * 1_000)
    digits = [int.from_bytes(raw[i : i + 5], "little") for i in range(0, len(raw), 5)]
    assert mod.integers(mod.table_powers(table, raw, 1_000)) == [pow(3, e, n) for e in digits]
    codes = rng.integers(0, 30, (len(values), 3)).astype(np.uint8)
    codes[:, 2] = 7
    sums = mod.integers(mod.grouped(a, codes, [30, 32, 8]))
    at = 0
    for column, groups in enumerate((30, 32, 8)):
        for group in range(groups):
            expected = 1
            for place in np.flatnonzero(codes[:, column] == group):
                expected = expected * values[place] % n
            assert sums[at] == expected, (column, group)
            at += 1
    return 4 * len(values) + 1_000 + at


def products(n: int, count: int) -> dict[str, float]:
    """Products a second without any transfer, and by the CPU with all its cores."""
    cpu = montgomery.cpu_modulus(n)
    mod = cuda.Device(cpu, cuda.machine())
    raw = os.urandom(256 * count)
    a = mod.load(raw, 256)
    _, device = timed(lambda: mod.squared(a, 64))
    fewer = cpu.load(raw[: 256 * (count // 50)], 256)
    _, alone = timed(lambda: cpu.squared(fewer, 64))
    return {"device": 64 * count / device, "cpu": 64 * (count // 50) / alone}


def histogram(rows: int, columns: int, bins: int, share: int) -> dict[str, float]:
    """Encrypt, send, sum by column and bin, send back: with the device, and with the CPU on a share of the columns."""
    key = generate_key()
    codes = np.random.default_rng(1).integers(0, bins, (rows, columns), dtype=np.uint8)
    values = np.random.default_rng(2).integers(0, 1 << 20, rows)
    public = key.public
    public.encrypt([1] * 5_000)  # tables, and the compiler at run time
    encrypted, encrypt = timed(lambda: public.encrypt(values.tolist()), 2)
    raw, dump = timed(encrypted.to_bytes, 1)
    received = type(encrypted).from_bytes(raw)
    public._own(received)
    _, load = timed(lambda: received.payload, 1)
    sums, group = timed(lambda: group_sums(public, received, codes, [bins] * columns), 2)
    opened = key.decrypt(sums.take(np.arange(bins)), bits=64)
    assert opened == np.bincount(codes[:, 0], weights=values, minlength=bins).astype(int).tolist()
    public._key.modulus.large = 1 << 60  # nothing is worth the way any more
    on_cpu = type(encrypted).from_bytes(raw)
    again, alone = timed(lambda: group_sums(public, on_cpu, codes[:, :share], [bins] * share), 1)
    _, encrypt_cpu = timed(lambda: public.encrypt(values[: rows // 20].tolist()), 1)
    assert key.decrypt(again.take(np.arange(bins)), bits=64) == opened
    return {
        "encrypt": encrypt, "to the wire": dump, "from the wire": load, "sums": group,
        "cpu sums": alone * columns / share, "cpu encrypt": encrypt_cpu * 20,
    }  # fmt: skip


def words(result: dict[str, Any]) -> str:
    """The figures as the page shows them."""
    seconds, rates = result["histogram"], result["products a second"]
    size = f"{result['rows']:,} rows x {result['columns']:,} columns x {result['bins']} bins"
    table = [
        f"`python benchmarks/gpu.py`, commit {result['commit']}: {result['device']} beside {result['cores']} cores "
        f"of the same machine ({result['cpu']}); {' and '.join(f'{n:,}' for n in result['compared'])} results of both "
        "key lengths compared with plain integers first, to the last bit.",
        "",
        "| work | device | CPU, all cores |",
        "|---|---|---|",
        *[
            f"| million products a second, {bits} bits | {rate['device'] / 1e6:.0f} | {rate['cpu'] / 1e6:.0f} |"
            for bits, rate in rates.items()
        ],
        f"| encrypting {result['rows']:,} numbers | {seconds['encrypt']:.1f} s | {seconds['cpu encrypt']:.1f} s* |",
        f"| those from and to a message | {seconds['from the wire'] + seconds['to the wire']:.1f} s | |",
        f"| encrypted histogram, {size} | {seconds['sums']:.1f} s | {seconds['cpu sums']:.0f} s* |",
        "",
        "\\* from a part of the work, taken in proportion. The run hides the rows' numbers from whoever sums them; the "
        "sums are the key holder's to open.",
    ]
    return "\n".join(table)


def render() -> None:
    here = Path(__file__).parent
    page = here.parent / "docs" / "scale.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    text = words(json.loads((here / "results" / "gpu.json").read_text())["runs"][-1])
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        return render()
    if cuda.machine() is None:
        raise SystemExit(f"no graphics processor: {cuda.state()}")
    rows, columns = (50_000, 20) if options.quick else (options.rows, options.columns)
    result: dict[str, Any] = {
        "commit": commit(), "device": cuda.state(), "cpu": kernel.state(), "cores": os.cpu_count(),
        "rows": rows, "columns": columns, "bins": options.bins, "compared": [],
    }  # fmt: skip
    for bits in (BITS, 4_098):
        start = time.perf_counter()
        result["compared"].append(check(odd(bits)))
        print(
            f"{bits} bits: {result['compared'][-1]} numbers equal ({time.perf_counter() - start:.1f} s with compiling)",
            flush=True,
        )
    result["products a second"] = {
        str(bits): products(odd(bits), 200_000 if options.quick else 1_000_000) for bits in (BITS, 4_098)
    }
    print(json.dumps(result["products a second"]), flush=True)
    result["histogram"] = histogram(rows, columns, options.bins, min(columns, 8))
    print(json.dumps(result, indent=1), flush=True)
    if options.out:
        options.out.write_text(json.dumps({"runs": [result]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
