"""A party's ballot from a linear model under differential privacy: a lasso of sums over its own rows with noise.

A lasso reads nothing of the rows but the products of columns with the target and with one another. So a party puts
noise on these, fits, and votes by what it found: its ballot costs nothing more, and no sum leaves it.

1. Numbers are held within bounds, and brought to mean 0 and variance 1, by counts with noise alone (``standardised``):
   a replaced row moves no other row. Missing ones stand at 0.
2. Sums of (x, 1) t: x a row, cut to length R, t its class as an indicator, or its amount, standardised likewise and
   held within +-1. A row adds sqrt(R^2 + 1) at most (L2), so a replaced one moves them by twice that.
3. Sums of x x' of the columns that have most in common with the target by 2., cut to a length R of their own: a
   replaced row moves the matrix by sqrt(2) R^2 at most (Frobenius), since (x'z)^2 is not negative. Elements beside the
   diagonal count twice there, so they have half of the variance. ``PRODUCTS`` x ``n_local`` columns go on, and as many
   more as leave the noise small (``_SMALL``), which public figures tell: a column may say little of the target by
   itself and much beside others, so with more rows or a larger epsilon all go on.

*Neighbours*: one person's row (values and label) is replaced; ids, numbers of rows, names and kinds of columns, names
of classes are public. *Noise*: discrete Gaussian on whole numbers of steps of 4^-BITS. *Composition*: zCDP, the shares
of rho below add up to one; which columns are in 3. follows from 2. What noise is left in the products is met by a ridge
of about half of the largest eigenvalue that noise alone has.

Shares and constants were chosen on spambase, phishing_websites, jm1, california_housing, wine (rows drawn up to 40,000)
and generated tables, by how many of the five best columns are found at epsilon 3 and 1. Tried there and left: places of
bins for numbers (they hide how large the largest are), numbers without bounds (a few of them are all that is seen),
sums of all parties in the place of each party's own, which found as many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.mpc.column_scores.paid_bins import standardised

Floats = NDArray[np.float64]

#: Of a party's rho: for bounds, means and deviations, and for products of columns. The rest is for products with the
#: target.
BOUNDS_SHARE, PRODUCTS_SHARE = 0.3, 0.25
N_BINS = 15
PRODUCTS = 2  # columns that are multiplied with one another, for each that a ballot may name: at least
_SMALL = 0.1  # the largest eigenvalue of the noise in correlations, where more columns go on
BITS = 10  # after the point
_LONG = 1.0  # the squared length of a row that is not cut, for each column
_AMOUNT = 3.0  # deviations of an amount beyond which it is held
_RIDGE = 0.5
#: Deviation of noise above which votes are mostly chance: a tenth of the most that a class and a column of variance 1
#: have in common.
CHANCE = 0.05
_FLAT = 0.05  # variance of a column that is hardly there


@dataclass(frozen=True)
class NoisyFit:
    """What the job says about a party's fit."""

    alpha: float
    l1_ratio: float
    n_local: int
    rho: float

    def scores(self, values: Floats, target: NDArray[np.int64] | Floats, classes: int) -> Floats:
        """Absolute coefficients of the columns, summed over classes; an amount as target has ``classes`` 0."""
        x = standardised(values, N_BINS, BOUNDS_SHARE * self.rho / 2 if classes == 0 else BOUNDS_SHARE * self.rho)
        if classes:
            t = np.asarray(target[:, None] == np.arange(classes), dtype=np.float64)
        else:
            amounts = standardised(target[:, None].astype(np.float64), N_BINS, BOUNDS_SHARE * self.rho / 2)
            t = np.clip(amounts, -_AMOUNT, _AMOUNT) / _AMOUNT
        common = self._with_target(x, t)
        size = np.abs(common).sum(axis=1)
        going = np.sort(np.argsort(-size, kind="stable")[: self.going(*x.shape)])
        inner, spread = self._products(x[:, going])
        found = np.zeros(len(size))
        found[going] = self._solved(inner, spread, common[going] * (1.0 if classes else _AMOUNT))
        return found

    def going(self, rows: int, columns: int) -> int:
        """How many columns are multiplied with one another. Noise of n columns has eigenvalues up to 2 n^0.5 of its own
        deviation, and that grows with n.
        """
        one = 2 * self.product_scale(1) / math.sqrt(2) / max(1, rows)
        return min(columns, max(PRODUCTS * self.n_local, int((_SMALL / one) ** (2 / 3))))

    def target_scale(self, columns: int) -> float:
        """Standard deviation of the noise in each sum of x t."""
        return 2 * math.sqrt(length(columns) ** 2 + 1) / math.sqrt(2 * (1 - BOUNDS_SHARE - PRODUCTS_SHARE) * self.rho)

    def product_scale(self, columns: int) -> float:
        """Of the noise on the diagonal of the sums of x x'; beside it by sqrt(2) less."""
        return math.sqrt(2) * length(columns) ** 2 / math.sqrt(2 * PRODUCTS_SHARE * self.rho)

    def _with_target(self, x: Floats, t: Floats) -> Floats:
        """Covariance of the columns with the target, from noisy sums."""
        sums = target_sums(x, t)
        noisy = sums + whole_gaussian_noise(sums.shape, self.target_scale(x.shape[1]) * 4.0**BITS)
        told = np.ldexp(noisy.astype(np.float64), -2 * BITS)
        shares = np.clip(told[-1] / len(x), 0.0, 1.0)
        shares = shares / max(shares.sum(), 1e-9) if t.shape[1] > 1 else np.zeros(1)  # an amount stands around 0
        return np.asarray((told[:-1] - told[:-1].sum(axis=1, keepdims=True) * shares) / len(x))

    def _products(self, x: Floats) -> tuple[Floats, Floats]:
        """Correlations of columns from noisy sums, and each column's deviation."""
        width, scale = x.shape[1], self.product_scale(x.shape[1]) * 4.0**BITS
        upper = np.triu_indices(width, 1)
        sums = product_sums(x)
        noisy = np.zeros((width, width))
        noisy[upper] = sums[upper] + whole_gaussian_noise(len(upper[0]), scale / math.sqrt(2))
        noisy += noisy.T
        np.fill_diagonal(noisy, np.diag(sums) + whole_gaussian_noise(width, scale))
        told = np.ldexp(noisy, -2 * BITS) / len(x)
        spread = np.sqrt(np.maximum(np.diag(told), _FLAT))
        inner = np.clip(told / np.outer(spread, spread), -1.0, 1.0)
        np.fill_diagonal(inner, 1.0)
        noise = self.product_scale(width) / math.sqrt(2) / len(x)
        return inner + _RIDGE * 2 * math.sqrt(width) * noise * np.eye(width), spread

    def _solved(self, inner: Floats, spread: Floats, common: Floats) -> Floats:
        """The coefficients that minimise w'Cw / 2 - c'w and the penalty, of all classes."""
        from sklearn.linear_model import ElasticNet

        width = len(inner)
        sizes, turned = np.linalg.eigh(inner)
        roots = np.sqrt(np.maximum(sizes, 1e-3) * width)
        design, found = roots[:, None] * turned.T, np.zeros(width)
        model = ElasticNet(alpha=self.alpha, l1_ratio=self.l1_ratio, fit_intercept=False, max_iter=20_000, tol=1e-4)
        for column in common.T:
            aim = width * (turned.T @ (column / spread)) / roots
            found += np.abs(model.fit(design, aim).coef_)
        return found


def length(columns: int) -> float:
    """R: what a row of so many columns is cut to."""
    return math.sqrt(_LONG * max(1, columns))


def cut_rows(x: Floats) -> Floats:
    """In whole steps; rows that are longer than R are cut to it (and a rounding less)."""
    most = length(x.shape[1]) - math.sqrt(x.shape[1]) * 2.0 ** -(BITS + 1)
    long = np.sqrt((x**2).sum(axis=1, keepdims=True))
    return np.asarray(np.rint(np.ldexp(x * np.minimum(1.0, most / np.maximum(long, 1e-300)), BITS)))


def target_sums(x: Floats, t: Floats) -> Floats:
    """Exact sums of x t in steps of 4^-BITS; the last row has the sums of t."""
    ones = np.full((len(x), 1), 2.0**BITS)
    return np.asarray(np.hstack([cut_rows(x), ones]).T @ np.rint(np.ldexp(t, BITS)))


def product_sums(x: Floats) -> Floats:
    """Exact sums of x x' in steps of 4^-BITS."""
    cut = cut_rows(x)
    return np.asarray(cut.T @ cut)
