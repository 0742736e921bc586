"""Matrix products as products of polynomials modulo X^N + 1.

A block of A (m x n) puts A[i, j] at the power i n k + (n - 1 - j), a block of B (n x k) puts B[j, l] at l n + j. In
the product, the coefficient at i n k + l n + n - 1 is the sum over j of A[i, j] B[j, l]: the power of no other pair
(j, j') lands there as long as m n k <= N, because j' - j lies strictly between -n and n. (The layout is known from
secure inference; Huang et al. 2022.) ``Plan`` cuts larger matrices into blocks by measured costs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from fedsift.errors import ParameterError

#: CPU milliseconds (measured): to encrypt and load a polynomial, to answer one, to prepare a factor, to multiply.
_ENCRYPT, _ANSWER, _FACTOR, _MULTIPLY = 6.0, 8.0, 0.6, 0.3


@dataclass(frozen=True)
class Plan:
    """How an (rows x inner) and an (inner x columns) matrix are cut: sizes of a block, all public."""

    degree: int
    rows: int
    inner: int
    columns: int
    block: tuple[int, int, int]

    @classmethod
    @functools.lru_cache(maxsize=64)
    def choose(cls, degree: int, rows: int, inner: int, columns: int, encrypted: str = "left") -> Plan:
        """The cheapest cut, where the ``encrypted`` side costs an encryption a block and the other a factor."""
        best: tuple[float, tuple[int, int, int]] | None = None
        for n in sorted({-(-inner // parts) for parts in range(1, inner + 1)}):
            for k in sorted({-(-columns // parts) for parts in range(1, columns + 1)}):
                m = min(rows, degree // (n * k))
                if m < 1:
                    continue
                a, b, c = -(-rows // m), -(-inner // n), -(-columns // k)
                left, right = (_ENCRYPT, _FACTOR) if encrypted == "left" else (_FACTOR, _ENCRYPT)
                cost = a * b * left + b * c * right + a * c * _ANSWER + a * b * c * _MULTIPLY
                if best is None or cost < best[0]:
                    best = (cost, (-(-rows // a), n, k))
        if best is None:
            raise ParameterError(f"no block of {rows} x {inner} x {columns} fits a polynomial of degree {degree}")
        return cls(degree, rows, inner, columns, best[1])

    @property
    def parts(self) -> tuple[int, int, int]:
        """Blocks along rows, inner and columns."""
        m, n, k = self.block
        return -(-self.rows // m), -(-self.inner // n), -(-self.columns // k)

    def left(self, matrix: np.ndarray) -> np.ndarray:
        """(row blocks x inner blocks) x degree."""
        (m, n, k), (a, b, _) = self.block, self.parts
        blocks = _cut(matrix, a, m, b, n)
        places = np.arange(m)[:, None] * n * k + (n - 1 - np.arange(n))[None, :]
        return self._polynomials(blocks, places)

    def right(self, matrix: np.ndarray) -> np.ndarray:
        """(inner blocks x column blocks) x degree."""
        (_, n, k), (_, b, c) = self.block, self.parts
        blocks = _cut(matrix, b, n, c, k)
        places = np.arange(k)[None, :] * n + np.arange(n)[:, None]
        return self._polynomials(blocks, places)

    def _polynomials(self, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        out = np.zeros((*blocks.shape[:2], self.degree), dtype=np.uint64)
        out[:, :, places.ravel()] = blocks.reshape(*blocks.shape[:2], -1)
        return out.reshape(-1, self.degree)

    @property
    def places(self) -> np.ndarray:
        """Where the product of a block lies in its polynomial: m x k, line after line."""
        m, n, k = self.block
        return (np.arange(m)[:, None] * n * k + np.arange(k)[None, :] * n + n - 1).ravel()

    def spread(self, matrix: np.ndarray) -> np.ndarray:
        """A rows x columns matrix as answers x places: what is added to the product."""
        (m, _, k), (a, _, c) = self.block, self.parts
        return _cut(matrix, a, m, c, k).reshape(a * c, m * k)

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Answers x places back to the rows x columns product."""
        (m, _, k), (a, _, c) = self.block, self.parts
        return numbers.reshape(a, c, m, k).transpose(0, 2, 1, 3).reshape(a * m, c * k)[: self.rows, : self.columns]

    def terms(self) -> list[list[tuple[int, int]]]:
        """For each answer: which left and which right polynomials it is the sum of products of."""
        a, b, c = self.parts
        return [[(i * b + j, j * c + column) for j in range(b)] for i in range(a) for column in range(c)]


def _cut(matrix: np.ndarray, across: int, height: int, along: int, width: int) -> np.ndarray:
    """Blocks of a matrix (across x along x height x width), zeros where it ends."""
    padded = np.zeros((across * height, along * width), dtype=np.uint64)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(across, height, along, width).transpose(0, 2, 1, 3)
