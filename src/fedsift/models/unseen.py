"""Measures of a model whose row scores nobody sees: the conversation, and what the two parties do in it.

A model leaves shares of its scores with the label holder and one other party (``ScoreShare``). These two compute the
figures on shares (``exam.py``), with randomness from the coordinator, and each sends its half of them, under a mask
that both know and the coordinator does not. The coordinator adds the halves up: it holds no rows, so a figure is about
nobody it knows. Neither party learns anything, not even the figure, before the answer is given.

Both sites write the figures' bits into their journals (``opened_by="result"``): a coordinator that chooses models and
asks how good they are is limited by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.core.release import Release
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.models.exam import Answer, Exam
from fedsift.models.metrics import METRICS
from fedsift.mpc import dealer as dealing
from fedsift.mpc import score_shares
from fedsift.mpc.comparing import DealerSource, Message, Source, dealt_for
from fedsift.mpc.dealer import Dealer, Dealt, check_neutral
from fedsift.mpc.grading import word_for
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ranking import REACHES
from fedsift.mpc.score_shares import ScoreShare
from fedsift.mpc.talking import Talk
from fedsift.mpc.wide import WORDS, add, minus

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


@dataclass
class _Grading:
    exam: Exam
    peer: str
    talk: Talk
    told: bool = False


@operation(
    "scores.begin_grading", discloses="masked", receives="masked", times="1 a session",
    about="numbers of one step of a measure, each under a fresh mask, sealed for the other party",
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
    fits = classes in ((0, 2) if outputs == 1 else (outputs,)) and set(metrics) <= set(known)
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
    about="numbers of one step of a measure, each under a fresh mask, sealed for the other party",
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


OPERATIONS = (*dealing.OPERATIONS, *score_shares.OPERATIONS, begin_grading, grade_on, tell_figures)


# --- the coordinator's side -------------------------------------------------------------------------------------------


def grade(run: Federation, scores: SharedScores, metrics: Sequence[str]) -> dict[str, float]:
    """Measures of scores that lie at the label holder and its helper as shares; inside the model's session."""
    check_neutral(run, "a measure on shares")
    rows, pair = run.n_rows, [run.active, scores.helper]
    exam = Exam(tuple(metrics), rows, scores.outputs, scores.classes, scores.fraction, scores.reach)
    dealer = Dealer.begin(run, pair)
    source = DealerSource(dealer.of[run.active], dealer.of[scores.helper], _PURPOSE)
    nothing = np.zeros((rows, scores.outputs), dtype=np.uint64)
    dealt = dealt_for(exam.program(source, nothing, np.full(rows, -1.0)), source)
    boxes = run.ask(
        begin_grading, to=pair, metrics=list(metrics), classes=scores.classes, reach=scores.reach,
        each={pair[0]: {"peer": pair[1], "dealt": dealt}, pair[1]: {"peer": pair[0], "dealt": []}},
    )  # fmt: skip
    while all(isinstance(boxes[name], SealedBox) for name in pair):
        crossed = {name: {"box": boxes[other]} for name, other in zip(pair, reversed(pair))}
        boxes = run.ask(grade_on, to=pair, each=crossed)
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
