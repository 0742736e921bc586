"""The conversation of split training: embeddings up, gradients down, two asks a batch.

What plain split training leaks, and the ledger says so: the embedding of a row tells the label holder about the row's
columns (it can be inverted, more easily the wider it is), and the gradient of a row tells a party about the row's label
(for two classes its sign and norm nearly give the label away). ``label_protection`` blurs the latter at a price in
accuracy; the forms in ``layers/`` hide them. Rows of a batch are never sent: all parties derive
them from the schedule's seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, cast

import numpy as np

from fedsift.core.arguments import Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import COORDINATOR
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party, Task
from fedsift.errors import OperationRefused, ParameterError
from fedsift.models.splitnn.gates import Importance
from fedsift.models.splitnn.halves import Networks, bottom_of, halves_of, rows_of_batch, top_of
from fedsift.models.splitnn.layers.shared_parts import check_batch_size
from fedsift.models.splitnn.party_networks import Bottom, Top, chunks
from fedsift.models.splitnn.settings import BottomSettings, Rows, TopSettings, embeddings_of, protected

Observe = Callable[[int], None] | None  # hears of each epoch


def _check_half(party: Party, settings: BottomSettings) -> None:
    """What the other end sees of this half is no wider than the accepted job says, and has shadows where the job's
    method has them: a wider embedding tells more of the columns. (Gates are read by steps of their own methods.)"""
    told = {} if party.run.job is None else party.run.job.parameters
    width = told.get("embedding")
    width = width.get(party.name) if isinstance(width, dict) else width
    shadowed = bool(told.get("shadows", not told)) or "false_discovery" in told
    for name, fits in (
        ("width", not isinstance(width, int) or settings.width <= width),
        ("shadows", not settings.shadows or shadowed),
    ):
        if not fits:
            raise OperationRefused(party.name, "start_bottom", f"its {name!r} is another than that of the accepted job")


@operation(
    "network.start_bottom",
    when="protection=open|lattice|unsaid",
    discloses="control",
    about="number of inputs of its half of the network",
    reply={"inputs": int},
    times="100 a session",
)
def start_bottom(party: Party, *, model: str, settings: BottomSettings) -> dict[str, int]:
    check_batch_size(party, settings.batch_size)
    _check_half(party, settings)
    bottom = Bottom(party, settings)
    if settings.gates:
        importance: Importance | None = party.state.get(Importance)
        bottom.add_gates(None if importance is None else importance.of_columns, party.name)
    halves_of(party, model).bottom = bottom
    return {"inputs": len(bottom.owner)}


@operation(
    "network.start_top", when="protection=open|lattice|unsaid", discloses="control", about="acknowledgement",
    times="100 a session",
)  # fmt: skip
def start_top(
    party: Party, *, model: str, widths: dict[PartyName, Annotated[int, Between(1, 100_000)]], settings: TopSettings
) -> None:
    check_batch_size(party, settings.batch_size)
    told = {} if party.run.job is None else party.run.job.parameters
    for name, value in (
        ("label_protection", settings.protection),
        ("label_protection_scale", settings.protection_scale),
    ):
        if name in told and told[name] != value:
            raise OperationRefused(party.name, "start_top", f"its {name!r} is another than that of the accepted job")
    halves_of(party, model).top = Top(party, widths, settings)


@operation(
    "network.bottom_round",
    when="protection=open|unsaid",
    discloses="plain",
    receives="plain",
    about="the embedding of each row of a batch",
    learns="the gradient of each row's loss in its own embedding: tells about the row's label",
    reply=(Array("f", (2, 3), finite=False), type(None)),
    times="10000000 a session",
)
def bottom_round(
    party: Party, *, model: str, gradient: Rows | None = None, epoch: int | None = None, start: int = 0
) -> np.ndarray | None:
    """Take the gradient of the last batch, if any, and give the embedding of the next, if there is one."""
    bottom = bottom_of(party, model)
    if gradient is not None:
        bottom.backward(gradient)
    return None if epoch is None else bottom.forward(rows_of_batch(party, bottom, epoch, start))


@operation(
    "network.top_round",
    when="protection=open|lattice|unsaid",
    discloses="plain",
    receives="plain",
    about="mean loss and score of a batch, and the gradient of each row's loss in the embeddings",
    learns="the embedding of each row of a batch: tells about the row's columns",
    reply={"loss": float, "score": float, "gradients": ByName(Array("f", (2, 3), finite=False))},
    times="10000000 a session",
)
def top_round(party: Party, *, model: str, embeddings: dict[str, Rows], epoch: int, start: int) -> dict[str, Any]:
    top = top_of(party, model)
    _check_open(party, embeddings)
    rows = rows_of_batch(party, top, epoch, start)
    own = halves_of(party, model).bottom
    if own is not None:
        embeddings = {**embeddings, party.name: own.forward(rows)}
    seen, gradients = top.step(embeddings, rows)
    if own is not None:
        own.backward(gradients.pop(party.name))
    protect = top.settings.protection
    if protect:
        gradients = {name: protected(g, protect, top.settings.protection_scale) for name, g in gradients.items()}
    return {**seen, "gradients": gradients}


@operation(
    "network.embed_rows", when="protection=open|unsaid", discloses="plain", about="the embedding of each row",
    reply=Array("f", 2), times="10000000 a session",
)  # fmt: skip
def embed_rows(party: Party, *, model: str, start: int, stop: int) -> np.ndarray:
    return bottom_of(party, model).embed(party, start, stop)


def _check_open(party: Party, embeddings: dict[str, Rows]) -> None:
    """In a job under lattice encryption the label holder trains in the clear with its own columns alone."""
    if embeddings and party.run.job is not None and party.run.job.says("protection") == "lattice":
        raise OperationRefused(party.name, "embedding", "it is no step of a job with protection = 'lattice'")


def _predicted(party: Party, model: str, embeddings: dict[str, Rows], start: int, stop: int) -> np.ndarray:
    top = top_of(party, model)
    _check_open(party, embeddings)
    if party.name in top.widths:
        embeddings = {**embeddings, party.name: bottom_of(party, model).embed(party, start, stop)}
    return top.predict(embeddings, stop - start)


@operation(
    "network.predict_rows",
    when="protection=open|lattice|unsaid",
    discloses="plain",
    receives="plain",
    about="the prediction for each row",
    learns="the embedding of each row to be predicted",
    reply=Array("f", 2),
    times="10000000 a session",
)
def predict_rows(party: Party, *, model: str, embeddings: dict[str, Rows], start: int, stop: int) -> np.ndarray:
    return _predicted(party, model, embeddings, start, stop)


@operation(
    "network.score_rows",
    when="protection=open|lattice|unsaid",
    discloses="plain",
    receives="plain",
    about="one score of predictions from embeddings that the request brings: whoever chooses these reads labels",
    learns="the embedding of each row to be predicted",
    reply=float,
    times="10000000 a session",
)
def score_rows(party: Party, *, model: str, embeddings: dict[str, Rows]) -> float:
    top = top_of(party, model)
    out = _predicted(party, model, embeddings, 0, party.n_rows)
    label = party.judged_label
    if label is None:
        raise ParameterError(f"party {party.name!r} has no labels to score against")
    return top.score(out, label)


@operation(
    "network.score_held", when="protection=lattice|unsaid", discloses="aggregate",
    about="one score of the model over many rows", reply=float, times="10000000 a session",
)  # fmt: skip
def score_held(party: Party, *, model: str) -> float:
    """The score of the predictions that the label holder has kept to itself (``hold_predictions``)."""
    halves, label = halves_of(party, model), party.judged_label
    held, halves.held = halves.held, []
    if label is None or sum(map(len, held)) != len(label):
        raise ParameterError(f"party {party.name!r} has no predictions or no labels of all rows to score")
    return top_of(party, model).score(np.concatenate(held), label)


def hold_predictions(party: Party, model: str, out: np.ndarray) -> None:
    halves_of(party, model).held.append(out)


@operation("network.keep_model", discloses="control", about="acknowledgement", times="1 a session")
def keep_model(party: Party, *, model: str) -> None:
    """Keep this run's halves at the site after the run, for predictions."""
    halves = halves_of(party, model).apart()
    if halves.bottom is not None:
        halves.bottom.matrix = None  # training rows are not part of a model
    party.models.keep(model, halves)


@operation("network.forget_model", discloses="control", about="acknowledgement", times="100 a session")
def forget_model(party: Party, *, model: str) -> None:
    if Networks in party.state:
        party.held(Networks).of.pop(model, None)
    party.models.forget(model)


OPERATIONS = (
    start_bottom, start_top, bottom_round, top_round, embed_rows, predict_rows, score_rows, score_held, keep_model,
    forget_model,
)  # fmt: skip


class SplitRun:
    """The coordinator's side of one network: who takes part, and the loop over batches."""

    interactive: float | None = None  # size of the plain steps of weights that are in no one hand (protected forms)

    def __init__(self, fed: Federation, model: str, widths: dict[str, int], batch_size: int):
        self.fed, self.model, self.active = fed, model, fed.active
        self.widths = widths
        self.passive = [name for name in widths if name != fed.active]
        self.batch_size = batch_size
        self.rows = fed.n_rows
        self.loss_curve: list[float] = []
        self.score_curve: list[float] = []
        self.bytes_by_epoch: list[tuple[int, int]] = []  # from the parties, to the parties
        self.bytes_until: list[int] = []  # since the run began, when each epoch ended
        self._batches: list[tuple[float, float]] = []
        self._mark, self._spent = len(fed.ledger), 0

    @classmethod
    def start(
        cls, fed: Federation, model: str, width: int | dict[str, int], bottom: BottomSettings, top: TopSettings
    ) -> SplitRun:
        """Build the halves; their settings are the same for all parties but the width."""
        members = [name for name, count in fed.n_columns.items() if count > 0]
        if not members:
            raise ParameterError("no party has a column to train on")
        widths = {name: int(width[name] if isinstance(width, dict) else width) for name in members}
        run = cls(fed, model, widths, bottom.batch_size)
        each = {name: {"settings": replace(bottom, width=widths[name])} for name in members}
        fed.ask(start_bottom, to=members, each=each, model=model)
        top = replace(top, task=cast(Task, fed.asked_task), interactive=cls.interactive or top.interactive)
        fed.ask(start_top, to=run.active, model=model, widths=widths, settings=top)
        return run

    def batches(self, epoch: int) -> Iterator[tuple[int, int]]:
        for start in range(0, self.rows, self.batch_size):
            yield epoch, start

    def train(self, epochs: int, *, first: int = 0, patience: int | None = None, observe: Observe = None) -> int:
        """Train; the number of the epoch after the last. Stops early when the loss is flat for ``patience`` epochs."""
        if self.passive:
            self.fed.ledger.note(
                "embeddings and their gradients travelled in the clear: they may tell about rows and labels"
            )
        self._count()
        steps = [step for epoch in range(first, first + epochs) for step in self.batches(epoch)]
        sent: dict[str, dict[str, Any]] = {name: {} for name in self.passive}
        for epoch, start in self.fed.track(steps, "batch", at_most=patience is not None):
            replies = self.fed.ask(bottom_round, to=self.passive, each=sent, model=self.model, epoch=epoch, start=start)
            answer = self.fed.ask(
                top_round, to=self.active, model=self.model, embeddings=embeddings_of(replies), epoch=epoch, start=start
            )
            sent = {name: {"gradient": answer["gradients"][name]} for name in self.passive}
            self._saw(answer)
            if start + self.batch_size >= self.rows:
                self._end_epoch()
                flat = self.flat(first, patience)
                if observe is not None or flat:
                    self.fed.ask(bottom_round, to=self.passive, each=sent, model=self.model)
                    sent = {name: {} for name in self.passive}
                if observe is not None:
                    observe(epoch)
                if flat:
                    return epoch + 1
        if any(sent.values()):
            self.fed.ask(bottom_round, to=self.passive, each=sent, model=self.model)
        return first + epochs

    def _saw(self, answer: dict[str, Any]) -> None:
        """A batch was trained on."""
        self._batches.append((answer["loss"], answer["score"]))

    def _count(self) -> tuple[int, int]:
        """Bytes from and to the parties since it was last asked."""
        sent = self.fed.ledger.since(self._mark).entries
        self._mark += len(sent)
        total, up = sum(e.bytes for e in sent), sum(e.bytes for e in sent if e.receiver == COORDINATOR)
        self._spent += total
        return up, total - up

    def _end_epoch(self) -> None:
        """Write down what the epoch came to."""
        loss, score = np.mean(self._batches, axis=0)
        self._batches = []
        self.loss_curve.append(float(loss))
        self.score_curve.append(float(score))
        self.bytes_by_epoch.append(self._count())
        self.bytes_until.append(self._spent)

    def story(self) -> dict[str, object]:
        """How the training went, for a selection's details. Scores are those of training rows, as they came along."""
        up, down = zip(*self.bytes_by_epoch) if self.bytes_by_epoch else ((), ())
        return {
            "loss_curve": self.loss_curve,
            "bytes_by_epoch": {"up": list(up), "down": list(down)},
            "score_by_bytes": {"bytes": self.bytes_until, "score": self.score_curve},
        }

    def flat(self, first: int, patience: int | None) -> bool:
        """No new best loss (by a part in a thousand) within the last ``patience`` epochs of this training."""
        losses = self.loss_curve[first:]
        if patience is None or len(losses) <= patience:
            return False
        return min(losses[-patience:]) > 0.999 * min(losses[:-patience])

    def within(self, view: Federation) -> Federation:
        """Another view's rows, in the session of this network."""
        other = copy.copy(view)
        other._session = self.fed._session
        return other

    def keep(self) -> None:
        """Let the parties keep their halves after the run, for predictions."""
        self.fed.ask(keep_model, to=self.fed.parties, model=self.model)

    def forget(self) -> None:
        self.fed.ask(forget_model, to=self.fed.parties, model=self.model)

    def facts(self) -> dict[str, Any]:
        """What a coordinator must remember to predict later, beside the widths."""
        return {}

    def embeddings(self, fed: Federation, start: int, stop: int) -> dict[str, np.ndarray]:
        if not self.passive:
            return {}
        return embeddings_of(fed.ask(embed_rows, to=self.passive, model=self.model, start=start, stop=stop))

    def score(self, fed: Federation) -> float:
        """Accuracy or R2 on a view's rows, computed by the label holder."""
        fed = self.within(fed)
        found = self.embeddings(fed, 0, fed.n_rows)
        return fed.ask(score_rows, to=self.active, model=self.model, embeddings=found)

    def predict(self, fed: Federation) -> np.ndarray:
        parts, fed = [], self.within(fed)
        for start, stop in chunks(fed.n_rows):
            found = self.embeddings(fed, start, stop)
            parts.append(
                fed.ask(predict_rows, to=self.active, model=self.model, embeddings=found, start=start, stop=stop)
            )
        return np.concatenate(parts)


#: What a method lists that trains networks in the clear, beside what it does with them afterwards.
