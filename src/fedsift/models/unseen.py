"""Measures of a model whose row scores nobody sees: the conversation, and what the two parties do in it.

A model leaves shares of its scores with the label holder and one other party (``ScoreShare``). These two compute the
figures on shares (``Exam``), with randomness from the coordinator, and each sends its half of them, under a mask
that both know and the coordinator does not. The coordinator adds the halves up: it holds no rows, so a figure is about
nobody it knows. Neither party learns anything, not even the figure, before the answer is given.

Both sites write the figures' bits into their journals (``opened_by="result"``): a coordinator that chooses models and
asks how good they are is limited by that.

An ``Exam`` says what is asked: the measures of classes or of a number, of so many rows. Both parties and the dealer run
the same program (``Exam.program``); the dealer's is on nothing. Figures are opened by the coordinator, which holds no
rows: for classes whole numbers (concordant pairs, right rows), for a number one sum of errors, to about six digits:
each party adds a draw of its own below that, so that no more of it can be read.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.models.metrics import METRICS
from fedsift.mpc import dealer as dealing
from fedsift.mpc import score_shares
from fedsift.mpc.comparing import DealerSource, Message, Program, Source, conjunctions, dealt_for
from fedsift.mpc.dealer import Bits, Dealer, Dealt, check_neutral
from fedsift.mpc.grading import counted, likeliest, sizes, squares, word_for
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ranking import REACHES, lowest_bit, twice_the_pairs
from fedsift.mpc.ring import Ring, to_ring
from fedsift.mpc.score_shares import ScoreShare
from fedsift.mpc.talking import Talk
from fedsift.mpc.wide import WORDS, Wide, add, from_ints, minus, to_ints, total

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

    def _label_bits(self, source: Source, truth: NDArray[np.generic]) -> Bits:
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
        return np.asarray(found.sum(dtype=word, keepdims=True))

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
            return np.asarray((truth == np.arange(self.classes)[:, None]).sum(axis=1).astype(np.float64))
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


Metric = Literal["accuracy", "auc", "f1_micro", "f1_macro", "r2", "1-rae"]
_PURPOSE = "grading"


@dataclass(frozen=True)
class Truth:
    """The label holder's: codes of the classes (-1: one that training did not have), or the number in units of
    scores."""

    values: NDArray[Any]


@dataclass(frozen=True)
class SharedScores:
    """What the coordinator knows of scores that lie at two parties as shares."""

    helper: str
    fraction: int
    outputs: int
    classes: int
    reach: int
    dealer: Dealer | None = None  # where this session has one already


@dataclass
class _Grading:
    exam: Exam
    peer: str
    talk: Talk
    told: bool = False


@operation(
    "scores.begin_grading", discloses="masked", receives="masked", times="1 a session",
    about="numbers of one step of a measure, each under a fresh mask, sealed for the other party", opened="nobody",
    concerns="own columns and labels", reply=SealedBox,
)  # fmt: skip
def begin_grading(
    party: Party, *, peer: PartyName, metrics: Annotated[list[Metric], AtMost(6)],
    classes: Annotated[int, Between(0, 1000)], reach: Annotated[int, Between(*REACHES)],
    dealt: Annotated[list[np.ndarray], AtMost(10_000)],
) -> SealedBox:  # fmt: skip
    """The first message. ``dealt``: what the dealer gives the label holder."""
    share = party.held_here(ScoreShare)
    outputs = share.numbers.shape[1]
    known = METRICS["classification" if classes else "regression"]
    fits = bool(metrics) and classes in ((0, 2) if outputs == 1 else (outputs,)) and set(metrics) <= set(known)
    if _Grading in party.state or not fits:
        raise OperationRefused(party.name, "begin_grading", "it measures once, what the scores of the model are for")
    exam = Exam(tuple(metrics), party.n_rows, outputs, classes, share.fraction, reach)
    holder = party.table.label is not None
    truth = party.held_here(Truth).values if holder else np.zeros(party.n_rows)
    talk = Talk(Source(party.held(Dealt), _PURPOSE, 0 if holder else 1, corrections=list(dealt)))
    party.keep(_Grading(exam, peer, talk))
    return _sealed(party, peer, talk, talk.begin(exam.program(talk.source, share.numbers, truth)))


@operation(
    "scores.grade_on", discloses="masked", receives="masked", times="1000 a session",
    about="numbers of one step of a measure, each under a fresh mask, sealed for the other party", opened="nobody",
    concerns="own columns and labels", reply=(SealedBox, type(None)),
)  # fmt: skip
def grade_on(party: Party, *, box: SealedBox) -> SealedBox | None:
    """The next message; nothing at the end."""
    grading = party.held(_Grading)
    talk, peer = grading.talk, grading.peer
    theirs = party.held(Pairs).open(box, sender=peer, about=_PURPOSE, number=talk.number - 1)
    message = talk.hear(peer, theirs)
    return None if message is None else _sealed(party, peer, talk, message)


def _sealed(party: Party, peer: str, talk: Talk, message: Message) -> SealedBox:
    box = party.held(Pairs).seal(message, to=peer, about=_PURPOSE, number=talk.number)
    talk.number += 1
    return box


def _opened(reply: Any) -> Release:
    return Release(1, float(reply["bits"]))


@operation(
    "scores.tell_figures", discloses="masked", times="1 a session", after="scores.grade_on",
    about="its half of how good the model is on these rows, under a mask that the other party takes off; and how many "
    "rows each class has (or how far the number is spread)",
    opened="aggregate: how good the model is on these rows", opened_by="result", releases=_opened,
    concerns="own columns and labels",
    reply={"words": Array("i"), "wide": Array("i", 2), "facts": Array("f"), "bits": float},
)  # fmt: skip
def tell_figures(party: Party) -> dict[str, Any]:
    """Once, when the program is over."""
    grading = party.held_here(_Grading)
    answer: Answer | None = grading.talk.result
    if answer is None or grading.told:
        raise OperationRefused(party.name, "tell_figures", "there is no figure, or it was told before")
    grading.told, pairs, peer = True, party.held(Pairs), grading.peer
    words = pairs.cancelling(peer, "figures", 0, answer.words.shape).astype(answer.words.dtype)
    mask = pairs.mask(peer, "sums of errors", 0, answer.wide.shape)
    wide = add(answer.wide, mask) if party.name < peer else minus(answer.wide, mask)
    facts = grading.exam.facts(party.held_here(Truth).values) if party.table.label is not None else np.zeros(0)
    return {"words": answer.words + words, "wide": wide, "facts": facts, "bits": grading.exam.bits}


#: What measures scores that lie as shares already.
GRADING = (begin_grading, grade_on, tell_figures)
OPERATIONS = (*dealing.OPERATIONS, *score_shares.OPERATIONS, *GRADING)


# --- the coordinator's side -------------------------------------------------------------------------------------------


def grade(run: Federation, scores: SharedScores, metrics: Sequence[str]) -> dict[str, float]:
    """Measures of scores that lie at the label holder and its helper as shares; inside the model's session."""
    check_neutral(run, "a measure on shares")
    rows, pair = run.n_rows, [run.active, scores.helper]
    exam = Exam(tuple(metrics), rows, scores.outputs, scores.classes, scores.fraction, scores.reach)
    dealer = scores.dealer or Dealer.begin(run, pair)
    source = DealerSource(dealer.of[run.active], dealer.of[scores.helper], _PURPOSE)
    nothing = np.zeros((rows, scores.outputs), dtype=np.uint64)
    dealt = dealt_for(exam.program(source, nothing, np.full(rows, -1.0)), source)
    boxes = run.ask(
        begin_grading, to=pair, metrics=list(metrics), classes=scores.classes, reach=scores.reach,
        each={pair[0]: {"peer": pair[1], "dealt": dealt}, pair[1]: {"peer": pair[0], "dealt": []}},
    )  # fmt: skip
    going: Mapping[str, SealedBox | None] = boxes
    while all(going.values()):
        crossed = {name: {"box": going[other]} for name, other in zip(pair, reversed(pair))}
        going = run.ask(grade_on, to=pair, each=crossed)
    told = run.ask(tell_figures, to=pair)
    return _read(exam, [told[name] for name in pair], pair)


def _read(exam: Exam, halves: list[dict[str, Any]], pair: list[str]) -> dict[str, float]:
    word = word_for(exam.rows)
    count = (exam.outputs if "auc" in exam.metrics else 0) + (
        (2 * exam.classes if exam.by_class else 1) if exam.counts_hits else 0
    )
    wide = 0 if exam.classes else len(exam.metrics)
    for name, half in zip(pair, halves):
        if half["words"].dtype != word or half["words"].shape != (count if exam.classes else 0,):
            raise ReplyError(name, "tell_figures", "other figures than were asked for")
        if half["wide"].dtype != np.uint64 or half["wide"].shape != (wide, WORDS):
            raise ReplyError(name, "tell_figures", "other sums than were asked for")
    facts = halves[0]["facts"]
    if len(facts) != (exam.classes or 2):
        raise ReplyError(pair[0], "tell_figures", "another number of classes than the model has")
    words = (halves[0]["words"] + halves[1]["words"]).tolist()
    try:
        return exam.figures(words, add(halves[0]["wide"], halves[1]["wide"]), facts)
    except (ZeroDivisionError, ValueError):
        raise DataError("the parties' figures do not belong together") from None
