"""What encryption costs: the histogram kernel, information value, private set intersection.

    python benchmarks/crypto.py [--quick] [--data DIR] [--out FILE]

Every claim is a ratio within this run: the same work by sf-heu's own kernel, by another scheme, by another library.
CPU seconds count all threads of the process; wall seconds depend on what else the machine does (load is printed).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import commit

import fedsift as fs
from fedsift.crypto import kernel
from fedsift.crypto.additive import montgomery
from fedsift.crypto.additive import okamoto_uchiyama as _ou
from fedsift.crypto.additive.keys import SCHEMES, SecretKey, generate_key
from fedsift.evaluate import datasets
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.mpc.encrypted_histogram import RowLayout

LINES: list[str] = []


def say(text: str = "") -> None:
    print(text, flush=True)
    LINES.append(text)


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, CPU seconds, wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def ours(key: SecretKey, values: np.ndarray, codes: np.ndarray, bins: int) -> dict[str, float]:
    rows, columns = codes.shape
    public = key.public
    layout = RowLayout.fit(rows, 2, 26, public.plaintext_bits, answers=columns * bins, scheme=public.scheme)
    encrypted, encrypt, _ = timed(lambda: histogram.encrypt_rows(public, values, layout, 26))
    sums, add, _ = timed(lambda: histogram.binned_sums(public, encrypted, layout, codes, [bins] * columns))
    opened, decrypt, _ = timed(lambda: histogram.read_sums(key, sums, layout, columns * bins))
    check(opened, values, codes, bins)
    sent = len(encrypted.to_bytes()) + len(sums.to_bytes())
    return {"encrypt": encrypt, "sum": add, "decrypt": decrypt, "bytes": sent}


def check(opened: list[list[int]], values: np.ndarray, codes: np.ndarray, bins: int) -> None:
    for column in (0, codes.shape[1] - 1):
        for b in range(bins):
            assert opened[column * bins + b] == values[codes[:, column] == b].sum(axis=0).tolist()


def sf_heu(values: np.ndarray, codes: np.ndarray, bins: int, scheme: str) -> dict[str, float]:
    """g and h in one plaintext, as SecretFlow does, by the library's own kernel."""
    from heu import numpy as heu_numpy
    from heu import phe

    kit = heu_numpy.setup({"ou": phe.SchemaType.OU, "zpaillier": phe.SchemaType.ZPaillier}[scheme], 2048)
    encoder = phe.BigintEncoder(kit.get_schema())
    packed = np.array([[(int(g) << 60) | int(h)] for g, h in values], dtype=object)
    everyone = np.ones((1, len(codes)), dtype=np.int8)
    order = np.ascontiguousarray(codes.astype(np.int8))
    encrypted, encrypt, _ = timed(lambda: kit.encryptor().encrypt(kit.array(packed, encoder)))
    kernel = kit.evaluator().feature_wise_bucket_sum
    sums, add, _ = timed(lambda: kernel(encrypted, everyone, order, bins, False))
    _, decrypt, _ = timed(lambda: kit.decryptor().decrypt(sums).to_numpy(encoder))
    sent = len(encrypted.serialize()) + len(sums.serialize())
    return {"encrypt": encrypt, "sum": add, "decrypt": decrypt, "bytes": sent}


def phe_library(values: np.ndarray, codes: np.ndarray, bins: int, rows: int, columns: int) -> dict[str, float]:
    """python-paillier on few rows and columns, scaled up linearly."""
    import phe

    public, private = phe.generate_paillier_keypair(n_length=2048)
    few = values[:rows]
    encrypted, encrypt, _ = timed(lambda: [public.encrypt((int(g) << 60) | int(h)) for g, h in few])

    def add() -> list[Any]:
        tables = []
        for column in range(columns):
            table: list[Any] = [None] * bins
            for code, value in zip(codes[:rows, column], encrypted):
                table[code] = value if table[code] is None else table[code] + value
            tables += [cell for cell in table if cell is not None]
        return tables

    sums, adding, _ = timed(add)
    _, decrypt, _ = timed(lambda: [private.decrypt(cell) for cell in sums[:20]])
    scale_rows, all_columns = len(values) / rows, codes.shape[1]
    return {
        "encrypt": encrypt * scale_rows,
        "sum": adding * scale_rows * all_columns / columns,
        "decrypt": decrypt / 20 * bins * all_columns,
        "bytes": 512.0 * (len(values) + bins * all_columns),
    }


def histograms(quick: bool) -> None:
    rows, columns, bins = (2_000, 20, 32) if quick else (10_000, 100, 32)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**26, (rows, 2))
    codes = rng.integers(0, bins, (rows, columns)).astype(np.int32)
    say(f"\n## Encrypted histogram: {rows:,} (g, h) x {columns} columns x {bins} bins, 2048-bit keys, CPU seconds\n")
    say("| by | encrypt | sum | decrypt | all | of sf-heu OU | MB |")
    say("|---|--:|--:|--:|--:|--:|--:|")
    peer = sf_heu(values, codes, bins, "ou")
    base = sum(seconds for step, seconds in peer.items() if step != "bytes")
    results = {"sf-heu kernel, OU (110 random bits)": peer}
    for scheme in SCHEMES[1:]:
        results[f"fedsift, {scheme}"] = ours(generate_key(scheme), values, codes, bins)
    engine, _ou.modulus = _ou.modulus, montgomery._Gmp  # what a machine without AVX-512 or a compiler gets
    results["fedsift, ou, gmpy2 instead of the kernel"] = ours(generate_key("ou"), values, codes, bins)
    _ou.modulus = engine
    if not quick:
        results["sf-heu kernel, ZPaillier"] = sf_heu(values, codes, bins, "zpaillier")
    results["phe (scaled from 100 rows x 2 columns)"] = phe_library(values, codes, bins, 100, 2)
    for name, cost in results.items():
        total = cost["encrypt"] + cost["sum"] + cost["decrypt"]
        say(
            f"| {name} | {cost['encrypt']:.2f} | {cost['sum']:.2f} | {cost['decrypt']:.2f} | {total:.2f} "
            f"| {total / base:.2f} | {cost['bytes'] / 1e6:.1f} |"
        )


def information_value(data: str | None, quick: bool) -> None:
    X, y = datasets.load("default_credit", path=data)
    say("\n## InformationValue on default_credit, 2 parties, 10 bins (key made beforehand)\n")
    say("| rows | columns | seconds | CPU seconds | MB on the wire | MB of labels | peak memory MB |")
    say("|--:|--:|--:|--:|--:|--:|--:|")
    cases = [(7_500, 23), (15_000, 23), (30_000, 23), (30_000, 12), (30_000, 6)]
    for rows, columns in cases[:1] if quick else cases:
        fed = fs.Federation.split(X.iloc[:rows, :columns], y.iloc[:rows], parties=2)
        fed.ask(histogram.public_key, to=fed.active, scheme="auto")
        fitted, cpu, wall = timed(lambda fed=fed: fs.InformationValue(n_features=10).fit(fed))
        traffic = fitted.traffic_
        labels = traffic[(traffic["operation"] == "encrypt_classes") & (traffic["direction"] == "from party")][
            "bytes"
        ].sum()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(
            f"| {rows:,} | {columns} | {wall:.2f} | {cpu:.2f} | {fitted.ledger_.bytes() / 1e6:.2f} "
            f"| {labels / 1e6:.2f} | {peak:.0f} |"
        )
    say("\nBytes count both ways through the coordinator, so what one party sends another is counted twice.")
    say("SecretFlow's WOE/IV on the same data (OU, 10 bins, measured on such a machine): 1.3-2.3 s, 8.2 MB.")


def intersection(quick: bool) -> None:
    count = 5_000 if quick else 100_000
    say(f"\n## Private set intersection, {count:,} x {count:,} ids, half shared\n")
    say("| by | seconds | CPU seconds | MB |")
    say("|---|--:|--:|--:|")
    import pandas as pd

    ids = [f"id-{i:07}" for i in range(count + count // 2)]
    left = pd.DataFrame({"id": ids[:count], "x": 1.0, "y": np.arange(count) % 2})
    right = pd.DataFrame({"id": ids[count // 2 :], "z": 1.0})
    fed, cpu, wall = timed(lambda: fs.Federation.from_tables({"a": left, "b": right}, id="id", label=("a", "y")))
    assert fed.n_rows == count // 2
    say(f"| fedsift (2 parties, any number works) | {wall:.1f} | {cpu:.1f} | {fed.ledger.bytes() / 1e6:.1f} |")
    try:
        import private_set_intersection.python as psi
    except ImportError:
        return
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)

    def openmined() -> int:
        setup = server.CreateSetupMessage(1e-9, count, ids[count // 2 :], psi.DataStructure.GCS)
        request = client.CreateRequest(ids[:count])
        response = server.ProcessRequest(request)
        assert len(client.GetIntersection(setup, response)) >= count // 2
        return sum(len(part.SerializeToString()) for part in (setup, request, response))

    size, cpu, wall = timed(openmined)
    say(f"| openmined-psi (2 parties) | {wall:.1f} | {cpu:.1f} | {size / 1e6:.1f} |")
    say("\nSecretFlow's PSI on such a machine: 0.7-1.9 s, 4.5-12 MB, for two parties.")
    say(f"Arithmetic kernel here: {kernel.state()}; without it libsodium is called once an id.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default=None, help="folder of the benchmark data (or FEDSIFT_DATA)")
    parser.add_argument("--out", default="benchmarks/results/crypto.md")
    options = parser.parse_args()
    say("# Cost of the secure layer")
    command = f"python benchmarks/crypto.py{' --quick' if options.quick else ''}"
    say(f"\n`{command}` (commit {commit()}), {os.cpu_count()} cores, load at start {os.getloadavg()[0]:.1f}")
    histograms(options.quick)
    information_value(options.data, options.quick)
    intersection(options.quick)
    say(f"\nLoad at end {os.getloadavg()[0]:.1f}.")
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text("\n".join(LINES) + "\n")


if __name__ == "__main__":
    main()
