"""Atoms: what the row sets of all exact releases so far cut the rows into. Arithmetic only, no file.

Two rows are in the same atom if no release has told them apart. Whatever somebody adds up and subtracts of released
sums is a sum over whole atoms, so no such number is about fewer persons than the smallest atom has. (Looking at pairs
of row sets would not do: four sets that differ by ten rows each give one row by alternating sums.)

Each release also adds its bits to the rows that it is about, the same share to each: bits / persons. If no row has more
than r, then the releases that are about rows inside *any* set T of rows have r x persons(T) bits or fewer altogether,
because each of them has spent all of its bits inside T. So one number a row bounds every subset at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Atoms:
    """The atom of each known row, 0 for one that no exact release was about, and the bits a row of each atom."""

    codes: Whole
    bits: NDArray[np.float64]

    @classmethod
    def none(cls) -> Atoms:
        return cls(np.zeros(0, dtype=np.int64), np.zeros(1))

    def grown(self, rows: int) -> Atoms:
        """The same with more rows, which are in no release yet."""
        more = np.zeros(rows - len(self.codes), dtype=np.int64)
        return Atoms(np.concatenate([self.codes, more]), self.bits)

    def cut(self, inside: NDArray[np.bool_]) -> tuple[Atoms, NDArray[np.bool_]]:
        """The atoms after a release about the rows ``inside``; and of each atom, whether it is new."""
        pairs = 2 * self.codes + inside
        kinds, codes = np.unique(pairs, return_inverse=True)
        shift = 0 if len(kinds) and kinds[0] == 0 else 1  # rows that are in no release keep the number 0
        before = kinds // 2
        split = np.bincount(before, minlength=len(self.bits)) > 1
        new = (before == 0) | split[before]
        new[kinds == 0] = False
        bits = self.bits[before]
        if shift:
            bits, new = np.concatenate([[0.0], bits]), np.concatenate([[False], new])
        return Atoms(codes.reshape(-1) + shift, bits), new

    def charged(self, inside: NDArray[np.bool_], bits: float, persons: int) -> Atoms:
        """After a release of so many bits about the rows ``inside``, which are whole atoms of so many persons."""
        more = self.bits.copy()
        more[self._met(inside)] += bits / max(1, persons)
        more[0] = 0.0
        return Atoms(self.codes, more)

    def most_bits(self, inside: NDArray[np.bool_]) -> float:
        """The most bits a row that any of these rows has."""
        return float(self.bits[self._met(inside)].max(initial=0.0))

    def _met(self, inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each atom, whether one of these rows is in it."""
        met = np.zeros(len(self.bits), dtype=bool)
        met[self.codes[inside]] = True
        return met

    def smallest(self, which: NDArray[np.bool_], persons: Whole) -> int | None:
        """How many persons the smallest of these atoms has; ``None`` where there is none."""
        if not which.any():
            return None
        rows = which[self.codes]
        pairs = np.unique(self.codes[rows] * (int(persons.max()) + 1) + persons[rows])  # each person once an atom
        return int(np.bincount(pairs // (int(persons.max()) + 1), minlength=len(which))[which].min())


def count_persons(persons: Whole, inside: NDArray[np.bool_]) -> int:
    """How many different ones have rows among these."""
    met = np.zeros(int(persons.max(initial=0)) + 1, dtype=bool)
    met[persons[inside]] = True
    return int(met.sum())
