"""FedSDG-FS in one process, without messages: many lambdas and seeds at once, on a GPU if there is one.

    python benchmarks/fedsdg_prototype.py --data DIR [--sets madelon friedman] [--seeds 20 21 ...] [--out FILE]

The defaults of ``FedSDG`` were set and checked with this (docs/fedsdg-fs.md): the same gates, network, steps, search
for lambda and refit, written anew on stacked matrices, so it also is a second opinion on the method's own code. It
needs NumPy and torch alone; ``--export FILE`` writes Madelon for a machine without more, ``--data FILE`` reads it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

SIGMA, RATE, BATCH, STEPS, WIDTH, HIDDEN, TOP = 0.5, 0.003, 128, 800, 100, 100, 50
LAMBDAS = (0.001, 0.0025, 0.0035, 0.005, 0.007, 0.01)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def madelon(source: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if source.endswith(".npz"):
        with np.load(source, allow_pickle=False) as file:
            return file["X"].astype(float), file["y"], file["true"]
    from fedsift.evaluate.datasets import load

    X, y = load("madelon", path=source)
    values = X.to_numpy(float)
    correlation = np.abs(np.corrcoef(values.T))
    np.fill_diagonal(correlation, 0)
    return values, np.unique(y, return_inverse=True)[1], correlation.max(axis=0) > 0.2


def friedman(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's make_friedman1 with 1,000 rows and 995 columns of noise."""
    rng = np.random.RandomState(seed)
    X = rng.uniform(size=(1000, 1000))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.standard_normal(1000), np.arange(1000) < 5


def split(name: str, seed: int, source: str) -> dict[str, Any]:
    """Columns in random order (two parties take halves), test rows apart, 20 % of the rest to choose lambda."""
    X, y, true = madelon(source) if name == "madelon" else friedman(seed)
    rng = np.random.default_rng(1000 + seed)
    order, rows = rng.permutation(X.shape[1]), rng.permutation(len(X))
    n = round((2000 / 2600 if name == "madelon" else 0.75) * len(X))
    train, test = rows[:n], rows[n:]
    inner = np.random.default_rng(seed).permutation(n)
    part, held = train[inner[: int(0.8 * n)]], train[inner[int(0.8 * n) :]]
    X = X[:, order]
    return {"X": X, "y": y, "true": true[order], "train": train, "test": test, "part": part, "held": held}


def scaled(p: dict[str, Any], fit: str, other: str, regression: bool) -> tuple[np.ndarray, ...]:
    a, b = p[fit], p[other]
    mean, spread = p["X"][a].mean(0), p["X"][a].std(0)
    y = (p["y"] - p["y"][a].mean()) / p["y"][a].std() if regression else p["y"]
    return tuple(np.asarray(v) for v in ((p["X"][a] - mean) / spread, y[a], (p["X"][b] - mean) / spread, y[b]))


def gini_start(X: np.ndarray, y: np.ndarray, regression: bool) -> np.ndarray:
    codes = np.searchsorted(np.quantile(y, [0.2, 0.4, 0.6, 0.8]), y) if regression else y
    one_hot = np.eye(int(codes.max()) + 1)[codes]
    bins = (X[None] >= np.quantile(X, np.linspace(0, 1, 9)[1:-1], axis=0)[:, None]).sum(0)
    impurity = np.zeros(X.shape[1])
    for b in range(8):
        counts = (bins == b).astype(float).T @ one_hot
        n = counts.sum(1)
        impurity += n / len(y) * (1 - ((counts / np.maximum(n, 1)[:, None]) ** 2).sum(1))
    purity = 1 / np.maximum(impurity, 1e-6)
    return 0.3 + 0.4 * (purity - purity.min()) / (purity.max() - purity.min())


class Stack:
    """Networks for seeds x lambdas: two bottoms with (or without) gates, one top."""

    def __init__(self, inputs: list[Any], outputs: int, generator: Any, step: float | None, decay: float = 0.0):
        self.generator = generator
        shape = inputs[0].shape[:2]  # seeds x lambdas x inputs (fan-in), the same for both parties but the last
        self.bottoms = [[self.layer(fan, HIDDEN), self.layer(HIDDEN, WIDTH, shape)] for fan in inputs]
        self.top = [self.layer(2 * WIDTH, TOP, shape), self.layer(TOP, outputs, shape)]
        first = self.top[0][0]
        layers = [w for bottom in self.bottoms for layer in bottom for w in layer] + [w for t in self.top for w in t]
        rest = [w for w in layers if step is None or w is not first]
        self.adam = torch.optim.Adam([{"params": rest, "weight_decay": decay}], lr=RATE, fused=True)
        self.plain = None if step is None else torch.optim.SGD([first], lr=step)

    def layer(self, fan: Any, out: int, shape: Any = None) -> list[Any]:
        """A dense layer; ``fan`` is a number, or for each network which of the padded inputs are real."""
        if isinstance(fan, int):
            size, bound = (*shape, fan, out), torch.full((*shape, 1, 1), fan**-0.5, device=DEVICE)
        else:
            size, bound = (*fan.shape, out), fan.sum(-1).clamp_min(1)[..., None, None] ** -0.5
        weight = (2 * torch.rand(size, generator=self.generator, device=DEVICE) - 1) * bound
        bias = (2 * torch.rand((*size[:2], 1, out), generator=self.generator, device=DEVICE) - 1) * bound
        return [weight.requires_grad_(), bias.requires_grad_()]

    def embed(self, party: int, x: Any) -> Any:
        (w1, b1), (w2, b2) = self.bottoms[party]
        return torch.relu(x @ w1 + b1) @ w2 + b2

    def output(self, embeddings: list[Any]) -> Any:
        (w1, b1), (w2, b2) = self.top
        return torch.relu(torch.cat(embeddings, -1) @ w1 + b1) @ w2 + b2

    def step(self, loss: Any, more: Any = None) -> None:
        for optimiser in (self.adam, self.plain):
            if optimiser is not None:
                optimiser.zero_grad()
        loss.backward()
        if more is not None:
            more()
        for optimiser in (self.adam, self.plain):
            if optimiser is not None:
                optimiser.step()


def loss_of(out: Any, y: Any, regression: bool) -> Any:
    """The sum over networks of each one's mean loss."""
    if regression:
        return ((out[..., 0] - y[:, None]) ** 2).mean(-1).sum()
    target = y[:, None].expand(out.shape[:-1]).reshape(-1)
    return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), target) * out.shape[0] * out.shape[1]


def gates(X: Any, y: Any, start: Any, regression: bool, dual: bool, step: float | None) -> np.ndarray:
    """Means of the input gates at the end: seeds x lambdas x columns."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    seeds, n, d = X.shape
    count, half = len(LAMBDAS), (d + 1) // 2
    halves = [X[..., :half].contiguous(), X[..., half:].contiguous()]
    every = [torch.ones((seeds, count, x.shape[-1]), device=DEVICE) for x in halves]
    net = Stack(every, 1 if regression else 2, generator, step)
    mus = [s[:, None].repeat(1, count, 1).requires_grad_() for s in (start[:, :half], start[:, half:])]
    omegas = [torch.full((seeds, count, WIDTH), 0.5, device=DEVICE).requires_grad_() for _ in range(2)]
    means = mus + omegas if dual else mus
    net.adam.add_param_group({"params": means, "weight_decay": 0.0})
    price = torch.tensor(LAMBDAS, device=DEVICE)[None, :, None]

    def noisy(mean: Any, rows: int) -> Any:
        noise = torch.randn((seeds, 1, rows, mean.shape[-1]), generator=generator, device=DEVICE) * SIGMA
        return (mean[:, :, None] + noise).clamp(0, 1)

    def pay() -> None:
        with torch.no_grad():
            for mean in means:
                mean.grad += price * torch.exp(-0.5 * (mean / SIGMA) ** 2) / (SIGMA * (2 * np.pi) ** 0.5)

    rng = np.random.default_rng(1)
    for _ in range(int(np.clip(np.ceil(STEPS / np.ceil(n / BATCH)), 20, 400))):
        order = torch.from_numpy(rng.permutation(n)).to(DEVICE)
        for rows in order.split(BATCH):
            embeddings = []
            for party in range(2):
                g = net.embed(party, halves[party][:, rows][:, None] * noisy(mus[party], len(rows)))
                embeddings.append(g * noisy(omegas[party], len(rows)) if dual else g)
            net.step(loss_of(net.output(embeddings), y[:, rows], regression), pay)
    return torch.cat([m.detach() for m in mus], -1).cpu().numpy()


def refit(X: Any, y: Any, V: Any, v: Any, kept: np.ndarray, epochs: int, regression: bool, step: float | None) -> Any:
    """Scores on V of networks of the kept columns (seeds x lambdas x columns) trained on X."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    _, n, d = X.shape
    half, inputs, views = (d + 1) // 2, [], []
    for part in (slice(0, half), slice(half, d)):
        mask = kept[..., part]
        most = max(1, int(mask.sum(-1).max()))
        places = torch.from_numpy(np.argsort(~mask, axis=-1, kind="stable")[..., :most]).to(DEVICE)
        real = torch.from_numpy(np.arange(most) < mask.sum(-1)[..., None]).float().to(DEVICE)
        inputs.append(real)
        views.append([_picked(Z[..., part], places) * real[:, :, None] for Z in (X, V)])
    net = Stack(inputs, 1 if regression else 2, generator, step, decay=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        for rows in torch.from_numpy(rng.permutation(n)).to(DEVICE).split(BATCH):
            out = net.output([net.embed(p, views[p][0][:, :, rows]) for p in range(2)])
            net.step(loss_of(out, y[:, rows], regression))
    with torch.no_grad():
        out = net.output([net.embed(p, views[p][1]) for p in range(2)])
        if not regression:
            return (out.argmax(-1) == v[:, None]).float().mean(-1).cpu().numpy()
        spread = ((v - v.mean(1, keepdim=True)) ** 2).sum(-1)[:, None]
        return (1 - ((out[..., 0] - v[:, None]) ** 2).sum(-1) / spread).cpu().numpy()


def _picked(Z: Any, places: Any) -> Any:
    """Columns of each seed's rows for each of its networks: seeds x lambdas x rows x picked."""
    return torch.stack([torch.stack([z[:, line] for line in lines]) for z, lines in zip(Z, places)])


def chosen(scores: np.ndarray, counts: np.ndarray, held: int, regression: bool) -> int:
    """The rule of ``FedSDG``: from few columns to many until clearly worse; then the fewest within one error."""

    def error(score: float) -> float:
        return (1 - score) * (2 / held) ** 0.5 if regression else (max(score * (1 - score), 0.01) / held) ** 0.5

    best, tried = -np.inf, []
    for place in reversed(range(len(LAMBDAS))):
        score = scores[place] if counts[place] else -np.inf
        best = max(best, score)
        tried.append((counts[place] or np.inf, place, score))
        if np.isfinite(best) and score < best - 2 * error(best):
            break
    return min(t for t in tried if t[2] >= best - error(best))[1]


def measure(name: str, seeds: list[int], source: str, dual: bool, step: float | None) -> list[dict[str, Any]]:
    regression = name == "friedman"
    problems = [split(name, seed, source) for seed in seeds]

    def tensors(fit: str, other: str) -> list[Any]:
        columns = zip(*(scaled(p, fit, other, regression) for p in problems))
        kinds = (torch.float32, torch.float32 if regression else torch.int64) * 2
        return [torch.tensor(np.stack(c), dtype=kind, device=DEVICE) for c, kind in zip(columns, kinds)]

    X, y, V, v = tensors("part", "held")
    starts = [gini_start(x, t, regression) for x, t in zip(X.cpu().numpy(), y.cpu().numpy())]
    kept = gates(X, y, torch.tensor(np.stack(starts), dtype=torch.float32, device=DEVICE), regression, dual, step) > 0
    held = refit(X, y, V, v, kept, 40, regression, step)
    test = refit(*tensors("train", "test"), kept, 60, regression, step)
    rows = []
    for s, (seed, p) in enumerate(zip(seeds, problems)):
        place = chosen(held[s], kept[s].sum(-1), V.shape[1], regression)
        mask, true = kept[s, place], p["true"]
        rows.append({"data": name, "gates": "dual" if dual else "single", "layer": "Adam" if step is None else "2^-4",
                     "seed": seed, "lambda": LAMBDAS[place], "columns": int(mask.sum()),
                     "precision": float(true[mask].mean()) if mask.any() else 0.0, "recall": float(mask[true].mean()),
                     "score": float(test[s, place])})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder with the Parquet files, or what --export wrote")
    parser.add_argument("--sets", nargs="+", default=["madelon", "friedman"], choices=["madelon", "friedman"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(20, 30)))
    parser.add_argument("--export", help="write Madelon to this .npz and end")
    parser.add_argument("--out", help="a .jsonl for the rows")
    arguments = parser.parse_args()
    if arguments.export:
        X, y, true = madelon(arguments.data)
        np.savez_compressed(arguments.export, X=X.astype(np.float32), y=y, true=true)
        return
    print("| data | gates | layer | columns | precision | recall | score |\n|---|---|---|--:|--:|--:|--:|")
    every = []
    for name in arguments.sets:
        for dual, step in ((True, 2.0**-4), (False, 2.0**-4), (True, None)):
            rows = measure(name, arguments.seeds, arguments.data, dual, step)
            every += rows
            cells = []
            for column in ("columns", "precision", "recall", "score"):
                values = [row[column] for row in rows]
                cells.append(f"{np.mean(values):.3g} ± {np.std(values):.2g}")
            print(f"| {name} | {rows[0]['gates']} | {rows[0]['layer']} | {' | '.join(cells)} |", flush=True)
    if arguments.out:
        Path(arguments.out).write_text("".join(json.dumps(row) + "\n" for row in every), encoding="utf-8")


if __name__ == "__main__":
    main()
