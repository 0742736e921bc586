"""What is computed on shares of a model's scores, and what the coordinator makes of the figures that it opens.

An ``Exam`` says what is asked: the measures of classes or of a number, of so many rows. Both parties and the dealer run
the same program (``Exam.program``); the dealer's is on nothing. Figures are opened by the coordinator, which holds no
rows: for classes whole numbers (concordant pairs, right rows), for a number one sum of errors, to about six digits:
each party adds a draw of its own below that, so that no more of it can be read.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Program, Source, conjunctions
from fedsift.mpc.dealer import Bits
from fedsift.mpc.grading import counted, likeliest, sizes, squares, word_for
from fedsift.mpc.ranking import lowest_bit, twice_the_pairs
from fedsift.mpc.ring import Ring, to_ring
from fedsift.mpc.wide import WORDS, Wide, add, from_ints, to_ints, total

Floats = NDArray[np.float64]
_DIGITS = 22  # bits of an error's sum that can be read, beside those of the rows' number


@dataclass(frozen=True)
class Answer:
    """A party's half of the figures: whole numbers, and wide sums of errors."""

    words: NDArray[Any]
    wide: Wide


@dataclass(frozen=True)
class Exam:
    """``classes`` is 0 for a number; ``reach`` says how far scores are spread, and so which bits tell them apart."""

    metrics: tuple[str, ...]
    rows: int
    outputs: int
    classes: int
    fraction: int
    reach: int

    @property
    def by_class(self) -> bool:
        """Whether hits and predictions of each class are counted, or hits alone."""
        return "f1_macro" in self.metrics

    @property
    def counts_hits(self) -> bool:
        return bool({"accuracy", "f1_micro", "f1_macro"} & set(self.metrics))

    @property
    def bits(self) -> float:
        """How many bits the opened figures have at most."""
        found = self.outputs * math.log2(self.rows**2 / 2 + 1) if "auc" in self.metrics else 0.0
        if self.counts_hits:
            found += (2 * self.classes if self.by_class else 1) * math.log2(self.rows + 1)
        return found + sum(metric in self.metrics for metric in ("r2", "1-rae")) * float(_DIGITS + 2)

    # -- at both parties and the dealer --------------------------------------------------------------------------------

    def program(self, source: Source, scores: Ring, truth: NDArray[Any]) -> Program[Answer]:
        """``truth`` is the label holder's: codes of classes, or the number in units of scores; else zeros."""
        if not self.classes:
            return (yield from self._errors(source, scores, truth))
        labels = self._label_bits(source, truth)
        words = [np.zeros(0, dtype=word_for(self.rows))]
        if "auc" in self.metrics:
            words.append((yield from self._ranks(source, scores, labels)))
        if self.counts_hits:
            words.append((yield from self._hits(source, scores, labels)))
        return Answer(np.concatenate(words), np.zeros((0, WORDS), dtype=np.uint64))

    def _label_bits(self, source: Source, truth: NDArray[Any]) -> Bits:
        """A row of packed bits a class; nothing at the other party."""
        bits = np.packbits(truth == np.arange(self.classes)[:, None], axis=1)
        return bits if source.number == 0 else np.zeros_like(bits)

    def _ranks(self, source: Source, scores: Ring, labels: Bits) -> Program[NDArray[Any]]:
        """Of each class against the rest, or of the second of two."""
        mine = np.unpackbits(labels, axis=1, count=self.rows)[1 if self.outputs == 1 else 0 :][: self.outputs]
        low, word = lowest_bit(self.fraction, self.reach), word_for(self.rows)
        members = mine.sum(axis=1).tolist()
        return (yield from twice_the_pairs(source, scores.T, np.packbits(mine.reshape(-1)), members, low, word))

    def _hits(self, source: Source, scores: Ring, labels: Bits) -> Program[NDArray[Any]]:
        predicted = yield from likeliest(source, scores)
        inputs = [*(row[None] for row in predicted), *(row[None] for row in labels)]
        hits = yield from conjunctions(source, inputs, [(c, self.classes + c) for c in range(self.classes)])
        word = word_for(self.rows)
        if self.by_class:
            return (yield from counted(source, np.concatenate([*hits, predicted]), self.rows, word))
        found = yield from counted(source, np.concatenate(hits), self.rows, word)
        return found.sum(dtype=word, keepdims=True)

    def _errors(self, source: Source, scores: Ring, truth: NDArray[Any]) -> Program[Answer]:
        errors = scores[:, 0]
        if source.number == 0:
            errors = errors - to_ring(truth, self.fraction, 2.0 ** (62 - self.fraction))
        sums = [np.zeros((0, WORDS), dtype=np.uint64)]
        for metric, measure in (("r2", squares), ("1-rae", sizes)):
            if metric in self.metrics:
                sums.append(self._blurred(source, metric, total((yield from measure(source, errors)))[None]))
        return Answer(np.zeros(0, dtype=word_for(self.rows)), np.concatenate(sums))

    def _blurred(self, source: Source, metric: str, share: Wide) -> Wide:
        """With a draw of this party's own below the digits that are told."""
        return add(share, from_ints([secrets.randbelow(2 ** self._blur(metric))])) if source.number != 2 else share

    def _blur(self, metric: str) -> int:
        return (2 if metric == "r2" else 1) * self.fraction + self.rows.bit_length() - _DIGITS

    # -- at the label holder, and at the coordinator -------------------------------------------------------------------

    def facts(self, truth: NDArray[Any]) -> Floats:
        """What the label holder tells beside: rows of each class, or how far a number is spread about its mean."""
        if self.classes:
            return (truth == np.arange(self.classes)[:, None]).sum(axis=1).astype(np.float64)
        centred = truth - truth.mean()
        return np.array([(centred**2).sum(), np.abs(centred).sum()])

    def figures(self, words: list[int], wide: Wide, facts: Floats) -> dict[str, float]:
        """The measures, from opened numbers."""
        if not self.classes:
            return self._of_errors(wide, facts)
        found, rest = {}, list(words)
        if "auc" in self.metrics:
            ranks, rest = rest[: self.outputs], rest[self.outputs :]
            found["auc"] = self._area(ranks, facts)
        if self.counts_hits:
            hits = sum(rest[: self.classes]) if self.by_class else rest[0]
            found["accuracy"] = found["f1_micro"] = hits / self.rows
        if self.by_class:
            found["f1_macro"] = self._f1(np.array(rest[: self.classes]), np.array(rest[self.classes :]), facts)
        return {metric: float(found[metric]) for metric in self.metrics}

    def _area(self, pairs: list[int], facts: Floats) -> float:
        """Of the second of two classes; of more, each against the rest, the mean of those that have rows."""
        members = facts[1:2] if self.outputs == 1 else facts
        areas = [n / (2 * m * (self.rows - m)) for n, m in zip(pairs, members) if 0 < m < self.rows]
        return float(np.mean(areas)) if areas else float("nan")

    def _f1(self, hits: NDArray[Any], predicted: NDArray[Any], facts: Floats) -> float:
        """The mean over classes that are there or were predicted; labels that training did not have are a class."""
        seen = (facts + predicted) > 0
        values = 2.0 * hits[seen] / (facts + predicted)[seen]
        unknown = self.rows > facts.sum()
        return float(values.sum() / (len(values) + unknown))

    def _of_errors(self, wide: Wide, facts: Floats) -> dict[str, float]:
        asked = [metric for metric in ("r2", "1-rae") if metric in self.metrics]
        found: dict[str, float] = {}
        for metric, number in zip(asked, to_ints(wide)):
            scale = (2 if metric == "r2" else 1) * self.fraction
            error = math.ldexp(float(number - 2 ** self._blur(metric)), -scale)
            spread = facts[0 if metric == "r2" else 1]
            found[metric] = float(1.0 - error / spread) if spread > 0 else float("nan")
        return {metric: found[metric] for metric in self.metrics}
