"""Stochastic gates: a clipped Gaussian a column, whose mean is learned, and proximal steps. Pure mathematics.

Yamada et al. 2020; Li et al. 2023, equation 4. A gate is s = clip(mu + noise, 0, 1) with noise of deviation sigma;
P(s > 0) = Phi(mu / sigma), so lambda * sum of Phi(mu / sigma) is the price of the columns in use, and its derivative
in mu is lambda * phi(mu / sigma) / sigma. Where the gate is not clipped, ds/dmu = 1, else 0: what autograd does with
``clamp``. A column is selected if its mu is positive at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsift.models.splitnn.networks import torch_module

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Importance:
    """Where the gates of a party's columns begin."""

    of_columns: np.ndarray


class Gates:
    """One gate for each group of inputs (a column, or an embedding component).

    A list of prices makes a stack: one set of gates for each price, all with the same noise (prices x gates).
    """

    def __init__(self, mu: np.ndarray, sigma: float, price: float | list[float], seed: int):
        torch = torch_module()
        start = torch.tensor(np.asarray(mu), dtype=torch.float32)
        self.price: float | Tensor = price
        if isinstance(price, list):
            start = start.repeat(len(price), 1)
            self.price = torch.tensor(price, dtype=torch.float32)[:, None]
        self.mu = torch.nn.Parameter(start)
        self.sigma = float(sigma)
        self._generator = torch.Generator().manual_seed(seed)

    def sample(self, rows: int) -> Tensor:
        """Gates for a batch, rows x gates: noise of its own for each row (the C samples of equation 5)."""
        torch = torch_module()
        noise = torch.randn((rows, self.mu.shape[-1]), generator=self._generator).mul_(self.sigma)
        return (self.mu.unsqueeze(-2) + noise).clamp(0.0, 1.0)

    def settled(self) -> Tensor:
        """Gates without noise, for prediction."""
        return self.mu.detach().clamp(0.0, 1.0).unsqueeze(-2)

    def penalty(self) -> Tensor:
        torch = torch_module()
        return (self.price * (0.5 * (1 + torch.erf(self.mu / (self.sigma * 2**0.5))))).sum()

    def add_penalty_gradient(self) -> None:
        """What ``penalty().backward()`` would do, in closed form: it is done at every step."""
        torch = torch_module()
        with torch.no_grad():
            density = torch.exp(-0.5 * (self.mu / self.sigma) ** 2) / (self.sigma * (2 * math.pi) ** 0.5)
            self.mu.grad = density * self.price if self.mu.grad is None else self.mu.grad.add_(density * self.price)

    def values(self) -> np.ndarray:
        return np.asarray(self.mu.detach().numpy().copy())


def importance_to_mu(impurity: np.ndarray, low: float, high: float, best: float, worst: float) -> np.ndarray:
    """1/G scaled to [low, high] between the best and the worst impurity of all parties: 1/G itself is nearly flat,
    as every impurity is close to that of the label."""
    score = 1.0 / np.maximum(np.asarray(impurity, dtype=np.float64), 1e-6)
    top, bottom = 1.0 / max(best, 1e-6), 1.0 / max(worst, 1e-6)
    share = (score - bottom) / (top - bottom) if top > bottom else np.full(len(score), 0.5)
    return (low + (high - low) * np.clip(share, 0.0, 1.0)).astype(np.float32)


def column_norms(weight: Tensor, owner: Tensor, columns: int) -> Tensor:
    """The norm of each column's weights in a dense layer (outputs x inputs; ``owner`` is the column of each input)."""
    torch = torch_module()
    squares = torch.zeros(columns).index_add_(0, owner, (weight.detach() ** 2).sum(dim=0))
    return squares.sqrt()


def shrink_columns(weight: Tensor, owner: Tensor, columns: int, amount: float | Tensor) -> None:
    """The proximal step of ``amount`` * (sum of column norms), in place: shorten each column, or set it to zero."""
    torch = torch_module()
    with torch.no_grad():
        norms = column_norms(weight, owner, columns)
        factor = torch.where(norms > amount, 1 - amount / norms.clamp_min(1e-30), torch.zeros(()))
        weight.mul_(factor[owner])
