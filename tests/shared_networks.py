"""Doubles and oracles for networks on shares: the same network in floating point, and what a member gets to see."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pandas as pd

import fedsift as fs
from fedsift.core.party import Party
from fedsift.models.splitnn.layers import sine
from fedsift.models.splitnn.layers.shared_parts import Part, batch_order
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.mpc.pairs import Pairs

RADIANS = 2 * math.pi * 2.0**-sine.WEIGHT_BITS
#: How far weights may be from those in floating point after some twenty steps: fresh masks round angles to 2^-16 turns
#: and gradients to 2^-13, which sums up to 0.001 to 0.003 in a weight (the largest of some 50, by draw); steps move
#: weights by 0.1 and more.
CLOSE = 0.01


def numbers(n=120, d=8, seed=0, task="two classes"):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{i}" for i in range(d)])
    signal = X["f0"] + X["f2"] * X[f"f{d - 1}"]
    if task == "regression":
        return X, signal * 10 + 50.25
    return X, (signal > 0).astype(int) if task == "two classes" else pd.cut(signal, 3, labels=False)


def sites(fed):
    return fed._link.transport.sites


def parts_of(fed, run):
    """Every member's part of the network of a session."""
    return {
        n: sites(fed)[n].sessions[run._session][Part]
        for n in fed.parties
        if Part in sites(fed)[n].sessions[run._session]
    }


def joined_weights(parts, roles):
    """What nobody has: the weights, in radians, from both shares."""
    return {
        owner: sine.signed(parts[owner].weights + parts[roles.keeper_of(owner)].kept[owner].weights) * RADIANS
        for owner in roles.owners
    }


class PlainNetwork:
    """The oracle: the same network, first weights, inputs and batches, in floating point."""

    def __init__(self, net: SharedRun, fed):
        parts = parts_of(fed, net.fed)
        self.net, self.weights = net, joined_weights(parts, net.roles)
        self.inputs = {o: sine.signed(parts[o].inputs(Party(sites(fed)[o], ""))) / 64 for o in net.roles.owners}
        targets = parts[net.active].targets
        self.target = sine.signed(targets.ring(Party(sites(fed)[net.active], "").labels(), net.shape))
        self.target = self.target * 2.0**-sine.OUTPUT_BITS * net.shape.unit
        self.signs = net.shape.signs().view(np.int64).astype(float)
        self.gates = {o: np.ones((len(w), 1)) for o, w in self.weights.items()}
        self.gradients = {o: np.zeros_like(w) for o, w in self.weights.items()}
        self.losses = []
        scale = net.shape.unit**2 / (2 * math.pi) * 2.0 ** (sine.WEIGHT_BITS - sine.INPUT_BITS - sine.DELTA_BITS)
        self.scale = scale

    def angles(self, rows):
        return sum(self.inputs[o][rows] @ (w * self.gates[o]) for o, w in self.weights.items())

    def train(self, epochs):
        unit = self.net.shape.unit
        for epoch in range(epochs):
            order, total = batch_order(self.net.seed, epoch, self.net.rows), 0.0
            step = sine.cooled(self.net.factor, epoch, self.net.epochs) / self.scale  # rate / rows, as it was rounded
            for start in range(0, self.net.rows, self.net.batch_size):
                rows = order[start : start + self.net.batch_size]
                z = self.angles(rows)
                error = unit * np.sin(z) @ self.signs - self.target[rows]
                delta = unit * (error @ self.signs.T) * np.cos(z)
                total += (error**2).sum()
                for owner in self.weights:
                    gradient = self.inputs[owner][rows].T @ delta
                    self.gradients[owner] = self.gradients[owner] + gradient
                    self.weights[owner] = self.weights[owner] - step * gradient * self.gates[owner]
            self.losses.append(total / self.net.rows)
        return self


@contextlib.contextmanager
def begun(fed, **changes):
    """A network on shares in a session of its own."""
    options = {"width": 6, "seed": 3, "rate": 0.3, "batch_size": 25, **changes}
    with fed.session() as run:
        yield SharedRun.begin(run, "m", **options)


class Views:
    """What each member opens from the others' boxes, in order: (about, number, sender, content)."""

    def __init__(self, monkeypatch):
        self.seen: dict[str, list] = {}
        opened = Pairs.open

        def record(pairs, box, *, sender, about, number):
            content = opened(pairs, box, sender=sender, about=about, number=number)
            self.seen.setdefault(pairs.me, []).append((about, number, sender, content))
            return content

        monkeypatch.setattr(Pairs, "open", record)

    def arrays(self, member, about):
        """All arrays of one kind of message, with the step they came in."""
        for what, number, _, content in self.seen.get(member, []):
            if what == about:
                yield from ((number, a) for a in (content.values() if isinstance(content, dict) else [content]))


def spectral(batches, n_rows):
    """Side of each row along the first singular vector of its batch's gradients, averaged (Sun et al. 2022)."""
    total, before = np.zeros(n_rows), None
    for rows, gradient in batches:
        direction = np.linalg.svd(gradient, full_matrices=False)[2][0]
        direction = -direction if before is not None and direction @ before < 0 else direction
        total[rows] += np.sign(gradient @ direction)
        before = direction
    return total


def norms(batches, n_rows):
    total = np.zeros(n_rows)
    for rows, gradient in batches:
        lengths = np.linalg.norm(gradient, axis=1)
        total[rows] += lengths / lengths.mean()
    return total


def cosine(batches, n_rows, known, hit):
    """Cosine to the gradients of known rows of either class (Li et al. 2022)."""
    sign, total = np.zeros(n_rows), np.zeros(n_rows)
    sign[known] = np.where(hit == 1, 1.0, -1.0)
    for rows, gradient in batches:
        unit = gradient / np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-300)
        total[rows] += unit @ (unit.T @ sign[rows])
    return total


def explained(seen, columns, known):
    """Mean R2 over unknown rows of a ridge decoder that is taught with known rows."""
    from sklearn.linear_model import RidgeCV

    rest = np.setdiff1d(np.arange(len(columns)), known)
    model = RidgeCV(alphas=np.geomspace(1e-3, 1e4, 15)).fit(seen[known], columns[known])
    true, guess = columns[rest], model.predict(seen[rest])
    share = 1 - ((true - guess) ** 2).sum(axis=0) / ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    return float(np.clip(share, 0, 1).mean())


def federation(X, y, parties=2):
    return fs.Federation.split(X, y, parties=parties)
