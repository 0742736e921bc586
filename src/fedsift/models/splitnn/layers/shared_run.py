"""The conversation of a network on shares, and the dealer's side of it (both the coordinator's).

One batch, four asks (H the label holder, P the helper, both compute; O an owner):

    all -> H, P    angles of its columns, masked        H <-> P      shares of the errors, masked
    H <-> P        shares of the shortened errors       H, P -> O    masked gradients; O steps with the next ask

Round trips are what a long training costs, so H and P send at the same time what each could wait for.
The dealer sends H seven corrections a batch and each owner one part of its gradient. Nothing is opened but the sum of
squared errors, once an epoch, to the coordinator. Errors are those of a squared loss, so no logit is needed to train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Answering, R
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import ParameterError, ReplyError
from fedsift.models.predicted import let_read
from fedsift.models.shuffling import Shuffled, told_each
from fedsift.models.splitnn.basis import WIDE, axes_of
from fedsift.models.splitnn.inputs import MOST_INPUTS
from fedsift.models.splitnn.layers import shared_answers as answers
from fedsift.models.splitnn.layers import shared_network as ops
from fedsift.models.splitnn.layers.shared_parts import FEWEST_ROWS, Roles, batch_order, exactly, gated
from fedsift.models.splitnn.layers.sine import (
    DROPPED,
    ERROR_BITS,
    GRADIENT_BYTES,
    OUTPUT_BITS,
    PARTS,
    TABLE_BITS,
    Shape,
    Short,
    angle_mask,
    angles_of,
    circle,
    cooled,
    drawn_shares,
    shortened_to,
    step_factor,
    usual_rate,
)
from fedsift.models.splitnn.training import Observe, SplitRun
from fedsift.models.unseen import SharedScores
from fedsift.mpc import dealer as dealing
from fedsift.mpc import pairs
from fedsift.mpc.dealer import Dealer
from fedsift.mpc.ranking import reach_of
from fedsift.mpc.ring import Ring, product

OPERATIONS = (*pairs.OPERATIONS, *dealing.OPERATIONS, *ops.OPERATIONS, *answers.OPERATIONS)
#: Of these, what leaves predictions with the label holder.
HELD = (*pairs.OPERATIONS, *dealing.OPERATIONS, ops.hide_rows, ops.take_rows, ops.send_angles,
        answers.send_answer, answers.hold_rows, answers.hold_all)  # fmt: skip
PREDICT_ROWS = 4096


class ShareDealer:
    """The dealer's own arithmetic: it knows every mask and no number under it."""

    def __init__(self, dealer: Dealer, roles: Roles, shape: Shape):
        self.of, self.roles, self.shape = dealer.of, roles, shape
        self.rows: dict[str, Ring] = {}  # U of each owner
        self.weights: dict[str, Ring] = {}  # T of each owner
        self.gates: dict[str, Ring] = {}  # of each owner's inputs, where there are any
        self.masks: dict[str, Ring] = {}  # of the gradients of each owner since the gates were last set

    def begin_rows(self, number: int, rows: int) -> None:
        for owner, inputs in self.roles.owners.items():
            self.rows[owner] = self.of[owner].draw("rows", number, (rows, inputs))
            keeper = self.of[self.roles.keeper_of(owner)]
            self.weights[owner] = keeper.draw(f"weights of {owner}", number, (inputs, self.shape.width))

    def corrections(self, step: int, rows: np.ndarray, members: list[str], train: bool) -> dict[str, Ring]:
        """What the label holder lacks to the helper's shares of one batch."""
        shape, size = self.shape, (len(rows), self.shape.outputs)
        absorbed = sum(product(u[rows], gated(self.weights[o], self.gates.get(o))) for o, u in self.rows.items())
        mask = np.zeros((len(rows), shape.width), dtype=np.uint16) - angles_of(np.asarray(absorbed, dtype=np.uint64))
        for name in members:
            mask = mask + angle_mask(self.of[name], step, (len(rows), shape.width))
        cosine, sine = circle(mask, TABLE_BITS)
        helper, active = self.of[self.roles.helper], self.of[self.roles.active]
        long = short = np.zeros(size, dtype=np.uint64)
        if train:
            long = helper.draw("error", step, size) + active.draw("error", step, size)
            short = helper.draw("short error", step, size) + active.draw("short error", step, size)
        through = product(short, shape.signs().T)
        whole = {
            "cos": cosine, "sin": sine, "high": long >> np.uint64(DROPPED), "wrap": long >> np.uint64(63),
            "back_cos": through * cosine, "back_sin": through * sine,
            "square": np.array([(short**2).sum(dtype=np.uint64)], dtype=np.uint64),
        }  # fmt: skip
        drawn = drawn_shares(helper, step, len(rows), shape)
        return {part: whole[part] - getattr(drawn, part) for part in PARTS}

    def only(self, places: dict[str, np.ndarray]) -> None:
        """Go on with these inputs of each owner alone."""
        for owner, kept in places.items():
            self.rows[owner] = np.ascontiguousarray(self.rows[owner][:, kept])
            self.weights[owner] = self.weights[owner][kept]
            if owner in self.gates:
                self.gates[owner] = self.gates[owner][kept]
        self.masks = {}

    def gradients(self, step: int, rows: np.ndarray, factor: int) -> dict[str, Short]:
        """The dealer's part of each owner's gradient, masked; its knowledge of T follows the step."""
        masks = {
            name: self.of[name].draw("gradient", step, (len(rows), self.shape.width))
            for name in {self.roles.keeper_of(owner) for owner in self.roles.owners}
        }
        parts = {}
        for owner, u in self.rows.items():
            name = self.roles.keeper_of(owner)
            shape = self.weights[owner].shape
            kept = self.of[name].draw(f"kept of {owner}", step, shape)
            dealt = self.of[name].draw(f"dealt of {owner}", step, shape)
            parts[owner] = shortened_to(GRADIENT_BYTES, -product(u[rows].T, masks[name]) - dealt)
            moved = gated(kept + dealt, self.gates.get(owner))
            self.weights[owner] = self.weights[owner] - np.uint64(factor) * moved
            if owner in self.gates:
                self.masks[owner] = self.masks.get(owner, np.uint64(0)) + kept + dealt
        return parts


class SharedRun(SplitRun):
    """One network on shares within one session: its training, or predictions of a kept one."""

    every: int
    pause: Callable[[], None] | None

    def __init__(self, fed: Federation, model: str, widths: dict[str, int], batch_size: int):
        super().__init__(fed, model, widths, batch_size)
        self.shape = Shape(1, 1, 0)
        self.rate, self.seed = 0.0, 0
        self.helper = fed.passive[0] if fed.passive else ""
        self._step = self._number = 0
        self._dealer: ShareDealer | None = None
        self.every, self.pause = 0, None
        self.taken = self._rows = 0  # batches and rows since the last pause
        self.seen = 0  # rows trained on; whoever pauses may set it back
        self._for_training = False
        self.epochs = 0  # over which steps get smaller; 0: they do not

    @classmethod
    def begin(
        cls, fed: Federation, model: str, *, width: int, seed: int, rate: float | None, batch_size: int,
        predicts: bool = False, small: bool = False,
    ) -> SharedRun:  # fmt: skip
        """Build the parts at the members: parties with columns, the label holder and a helper.

        ``predicts``: no column's own weights will be asked for, so parties with many may turn them to axes. ``small``:
        the weights of many columns begin small. A rate of ``None`` is the usual one for so many inputs. At least two
        sines are taken for each of several classes.
        """
        if not fed.passive:
            raise ParameterError("a network on shares needs a second party; with one alone use protection='open'")
        counts = fed.ask(ops.count_inputs, to=fed.parties, task=fed.asked_task)
        for name, count in counts.items():
            if count["inputs"] > MOST_INPUTS * fed.n_columns[name] + 1:
                raise ReplyError(name, "count_inputs", "its columns do not make so many inputs")
        if not counts[fed.active]["inputs"]:
            raise ReplyError(fed.active, "count_inputs", "it left out the constant, which is an input of its own")
        if not counts[fed.active]["outputs"]:
            raise ReplyError(fed.active, "count_inputs", "the label holder's network has one output or more")
        owners = {name: c["inputs"] for name, c in counts.items() if c["inputs"]}
        wide = sum(owners.values()) > WIDE
        mixed = predicts and wide
        if mixed:  # the label holder's constant stays as it is
            fixed = {name: int(name == fed.active) for name in owners}
            owners = {name: axes_of(count - fixed[name], fed.n_rows) + fixed[name] for name, count in owners.items()}
        run = cls(fed, model, owners, batch_size)
        run.helper = next((name for name in fed.passive if name in run.widths), fed.passive[0])
        outputs = counts[fed.active]["outputs"]
        run.shape = Shape(max(width, 2 * outputs if outputs > 1 else 1), outputs, seed)
        usual = usual_rate(sum(owners.values()), outputs, min(batch_size, fed.n_rows), mixed)
        run.rate, run.seed = usual if rate is None else rate, seed
        assert run.factor >= 1  # raises where the rate is too small
        fed.ask(
            ops.begin_part, to=run.members, model=model, active=run.active, helper=run.helper, owners=run.widths,
            width=run.shape.width, outputs=outputs, seed=seed, task=fed.asked_task, mixed=mixed,
            small=wide and (predicts or small),
        )  # fmt: skip
        return run

    @property
    def roles(self) -> Roles:
        return Roles(self.active, self.helper, self.widths)

    @property
    def members(self) -> list[str]:
        """Who takes part, the label holder last."""
        others = [name for name in self.widths if name != self.active]
        return [*([] if self.helper in others else [self.helper]), *others, self.active]

    def _hide(
        self, fed: Federation, factor: int, batch_size: int, each: dict[str, dict[str, Any]] | None = None
    ) -> ShareDealer:
        """Keys and seeds once a session; the rows of a view, masked, once for all batches."""
        if self._dealer is None:
            pairs.meet_all(fed, self.members)
            self._dealer = ShareDealer(Dealer.begin(fed, self.members), self.roles, self.shape)
        sent = fed.ask(
            ops.hide_rows, to=self.members, model=self.model, number=self._number, factor=factor, epochs=self.epochs,
            seed=self.seed, batch_size=batch_size, each=each,
        )  # fmt: skip
        self._dealer.begin_rows(self._number, fed.n_rows)
        boxes = {name: {"boxes": {s: b[name] for s, b in sent.items() if name in b}} for name in self.members}
        fed.ask(ops.take_rows, to=self.members, each=boxes, number=self._number)
        self._number += 1
        self._for_training = factor > 0
        return self._dealer

    def may_read(self, left: int) -> bool:
        """Whether so many rows were trained on since the last pause that parties let gates or norms be read, and as
        many are ``left``, or none, for the reading after this one."""
        fewest = min(FEWEST_ROWS, self.rows)
        return self._rows >= fewest and (left == 0 or left >= fewest)

    @property
    def factor(self) -> int:
        return step_factor(self.rate, self.shape, min(self.batch_size, self.rows))

    def hide(self) -> ShareDealer:
        """The training rows, masked, unless they are there already."""
        if self._dealer is None or not self._for_training:
            return self._hide(self.fed, self.factor, self.batch_size)
        return self._dealer

    def train(self, epochs: int, *, first: int = 0, patience: int | None = None, observe: Observe = None) -> int:
        """Train. ``observe`` hears of each epoch, ``pause`` of every ``every``-th batch, when its step is taken."""
        fed = self.fed
        self._count()
        factor, dealer = self.factor, self.hide()
        learned: dict[str, dict[str, Any]] = {name: {} for name in self.members}
        last, left = first, epochs * self.rows
        for epoch in fed.track(range(first, first + epochs), "epoch", at_most=patience is not None):
            order = batch_order(self.seed, epoch, self.rows)
            for _, start in fed.track(list(self.batches(epoch)), "batch"):
                learned = self._batch(fed, dealer, cooled(factor, epoch, self.epochs), order, epoch, start, learned)
                left -= min(self.batch_size, self.rows - start)
                if self.every and self.taken >= self.every and self.may_read(left):
                    learned = self._pause(fed, learned)
            self._loss(fed, epoch)
            last = epoch + 1
            if observe is not None:
                observe(epoch)
            if self.flat(first, patience):
                break
        fed.ask(ops.send_angles, to=self.members, each=learned, epoch=None)
        return last

    def _batch(
        self, fed: Federation, dealer: ShareDealer, factor: int, order: np.ndarray, epoch: int, start: int,
        learned: dict[str, dict[str, object]],
    ) -> dict[str, dict[str, object]]:  # fmt: skip
        """One batch, top to bottom; what each owner needs for its step."""
        rows = order[start : start + self.batch_size]
        self._step, self.seen = self._step + 1, self.seen + len(rows)
        self.taken, self._rows = self.taken + 1, self._rows + len(rows)
        computing = [self.active, self.helper]
        dealt = dealer.corrections(self._step, rows, self.members, train=True)
        each = self._joined(fed.ask(ops.send_angles, to=self.members, each=learned, epoch=epoch, start=start), dealt)
        for operation in (ops.send_output, ops.shorten_error):
            sent = fed.ask(operation, to=computing, each=each)
            each = {self.helper: {"box": sent[self.active]}, self.active: {"box": sent[self.helper]}}
        boxes = fed.ask(ops.send_gradients, to=computing, each=each)
        parts = dealer.gradients(self._step, rows, factor)
        return {name: self._step_of(name, boxes, parts) if name in self.widths else {} for name in self.members}

    def _joined(self, sent: dict[str, dict[str, SealedBox]], dealt: dict[str, Ring]) -> dict[str, dict[str, object]]:
        """For each computing member everyone else's masked angles; for the label holder the dealer's corrections."""
        each: dict[str, dict[str, object]] = {}
        for name in (self.active, self.helper):
            others = [member for member in self.members if member != name]
            each[name] = {"boxes": {member: _box(sent[member], member, name) for member in others}}
        each[self.active]["dealt"] = dealt
        return each

    def _step_of(
        self, owner: str, boxes: dict[str, dict[str, SealedBox]], parts: dict[str, Short]
    ) -> dict[str, object]:
        keeper = self.roles.keeper_of(owner)
        told: dict[str, object] = {"from_keeper": _box(boxes[keeper], keeper, owner), "from_dealer": parts[owner]}
        if owner not in self.roles.computing:
            told["from_helper"] = _box(boxes[self.helper], self.helper, owner)
        return told

    def _pause(self, fed: Federation, learned: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """Let the parties take their last step, and whoever wants look at the weights."""
        fed.ask(ops.send_angles, to=self.members, each=learned, epoch=None)
        if self.pause is not None:
            self.pause()
        self.taken = self._rows = 0
        return {name: {} for name in self.members}

    def _loss(self, fed: Federation, epoch: int) -> None:
        """The mean squared error of the epoch, from two halves."""
        halves = fed.ask(ops.loss_half, to=[self.active, self.helper], epoch=epoch)
        for name, half in halves.items():
            exactly(half, (1,), name)
        first, second = halves.values()
        total = int((first + second)[0].astype(np.int64))
        loss = total * 4.0**-ERROR_BITS * self.shape.unit**2 / self.rows
        self._saw({"loss": loss, "score": 1 - loss})
        self._end_epoch()

    def _answers(self, fed: Federation, last: Answering[R]) -> list[R]:
        """Rows of a view through the network, chunk by chunk; ``last`` is what the label holder does with outputs."""
        parts = list[R]()
        for each in self._forward(fed, self._hide(fed, 0, PREDICT_ROWS)):
            box = fed.ask(answers.send_answer, to=self.helper, **each[self.helper])
            parts.append(fed.ask(last, to=self.active, **each[self.active], box=box))
        return parts

    def _forward(self, fed: Federation, dealer: ShareDealer) -> Iterator[dict[str, dict[str, Any]]]:
        """Of each chunk of rows what the computing members need to know its masked angles."""
        order = np.arange(fed.n_rows)
        for start in range(0, fed.n_rows, PREDICT_ROWS):
            self._step += 1
            angles = fed.ask(ops.send_angles, to=self.members, epoch=-1, start=start)
            rows = order[start : start + PREDICT_ROWS]
            yield self._joined(angles, dealer.corrections(self._step, rows, self.members, train=False))

    def share(self, fed: Federation, task: str, shuffled: Shuffled | None) -> SharedScores:
        """Scores that nobody reads: their shares stay with the label holder and the helper."""
        run, told = self.within(fed), told_each(self.members, shuffled)
        dealer = self._hide(run, 0, PREDICT_ROWS, {name: {"unseen": True, **told[name]} for name in self.members})
        for each in self._forward(run, dealer):
            run.ask(answers.keep_half, to=[self.helper, self.active], each=each)
        run.ask(answers.leave_scores, to=[self.helper, self.active])
        outputs, reach = self.shape.outputs, reach_of(self.shape.width / 4)  # a sum of so many sines
        classes = 0 if task == "regression" else max(2, outputs)
        return SharedScores(self.helper, OUTPUT_BITS, outputs, classes, reach, Dealer(dealer.of))

    def predict(self, fed: Federation) -> np.ndarray:
        return np.concatenate(self._answers(self.within(fed), answers.predict_rows))

    def hold(self, fed: Federation) -> None:
        """Predictions that stay with the label holder."""
        run = self.within(fed)
        self._answers(run, answers.hold_rows)
        run.ask(answers.hold_all, to=self.active)

    def score(self, fed: Federation) -> float:
        """How good it is on these rows; the label holder reads an output of each, so the partners are asked first."""
        run = self.within(fed)
        let_read(run)
        self._answers(run, answers.hold_rows)
        return float(run.ask(answers.score_rows, to=self.active))

    def keep(self) -> None:
        self.fed.ask(answers.keep_part, to=self.members, model=self.model)

    def forget(self) -> None:
        self.fed.ask(answers.forget_part, to=self.members, model=self.model)

    def facts(self) -> dict[str, Any]:
        shape = self.shape
        return {"helper": self.helper, "inputs": self.widths, "width": shape.width, "outputs": shape.outputs,
                "seed": shape.seed}  # fmt: skip

    @classmethod
    def again(cls, fed: Federation, model: str, facts: dict[str, Any]) -> SharedRun:
        """A kept network, to predict with."""
        run = cls(fed, model, {str(k): int(v) for k, v in facts["inputs"].items()}, PREDICT_ROWS)
        run.helper = str(facts["helper"])
        run.shape = Shape(int(facts["width"]), int(facts["outputs"]), int(facts["seed"]))
        return run


def _box(boxes: dict[str, SealedBox], sender: str, receiver: str) -> SealedBox:
    """What a member sent to another."""
    if receiver not in boxes:
        raise ReplyError(sender, "shared network", f"it sent nothing to {receiver!r}")
    return boxes[receiver]
