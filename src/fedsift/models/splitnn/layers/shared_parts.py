"""What each member holds of a network on shares, and the arithmetic of its own side. No message here.

An *owner* has columns X and a share w of their weights; its *keeper* (the label holder, or the helper where the label
holder is the owner) has X - U and the rest T of the weights: W = w + T. The dealer knows U and T.

    angles    X W = X w (owner) + (X - U) T (keeper) + U T (dealer)
    gradient  X'd = X'(d + t) (owner) - (X - U)'t (keeper) - U't (dealer), where t is a mask of the keeper's
    step      the keeper sends its part less a mask A, the dealer its part less a mask B, and T takes both masks

so that owner and keeper hold shares again, T is still known to the dealer, and the owner has seen uniform numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.shuffling import own_numbers
from fedsift.models.splitnn.basis import Basis
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.layers.sine import (
    Angles,
    Floats,
    Shape,
    brought_in,
    cooled,
    lengthened,
    quantised,
    step_factor,
)
from fedsift.models.splitnn.layers.targets import Targets
from fedsift.models.splitnn.networks import derived_seed
from fedsift.models.splitnn.settings import most_epochs
from fedsift.mpc.ring import Ring, product

LEAST_BATCHES = 4  # between two readings of the gates
LEAST_ROWS = 16  # of a batch, where the job says nothing of it
LEAST_BATCH = 64  # rows of a step that a network which only predicts may take, whatever the job's batch size
MOST_RATE = 10.0  # of a step; usual ones are below 1


@dataclass(frozen=True)
class Roles:
    """Who does what: the label holder and the helper compute on shares, members with inputs own columns."""

    active: str
    helper: str
    owners: dict[str, int]  # inputs of each

    def keeper_of(self, owner: str) -> str:
        return self.helper if owner == self.active else self.active

    @property
    def computing(self) -> tuple[str, str]:
        """Who computes on shares."""
        return self.active, self.helper

    def other(self, party: Party) -> str:
        """The member that computes with this one."""
        if party.name not in self.computing:
            raise OperationRefused(party.name, "shared network", "this party computes nothing on shares")
        return self.helper if party.name == self.active else self.active

    def kept_by(self, name: str) -> list[str]:
        return [owner for owner in self.owners if self.keeper_of(owner) == name]

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Roles:
        return cls(str(fields["active"]), str(fields["helper"]), {str(k): int(v) for k, v in fields["owners"].items()})

    def plain(self) -> dict[str, Any]:
        return {"active": self.active, "helper": self.helper, "owners": self.owners}


def exactly(value: Any, shape: tuple[int, ...], sender: str, kind: Any = np.uint64) -> np.ndarray:
    """An array from another member, checked before it is used."""
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != kind:
        raise ReplyError(sender, "shared network", f"party {sender!r} must send {shape} numbers of the ring")
    return value


def exactly_short(value: Any, shape: tuple[int, int], size: int, sender: str) -> Ring:
    """The same of numbers of which the ``size`` upper bytes travelled."""
    return lengthened(exactly(value, (*shape, size), sender, np.uint8))


@dataclass
class Kept:
    """A keeper's side of one owner: its share of the weights, and the rows under a mask, for one conversation."""

    weights: Ring
    rows: Ring | None = None
    gates: Ring | None = None  # 1 for each input that takes part, 0 for the others; None: all do
    masks: Ring | None = None  # sum of the masks that its gradients travelled under since the gates were set
    before: Ring | None = None  # the weights when the gates were set

    def only(self, places: np.ndarray) -> None:
        """Go on with these inputs alone."""
        self.weights = self.weights[places]
        self.rows = None if self.rows is None else np.ascontiguousarray(self.rows[:, places])
        self.gates = None if self.gates is None else self.gates[places]
        self.masks = self.before = None


def gated(weights: Ring, gates: Ring | None) -> Ring:
    """Weights of the inputs that take part."""
    return weights if gates is None else weights * gates[:, None]


@dataclass
class Part:
    """One member's part of a network, during a run and, without rows, after it."""

    model: str
    roles: Roles
    shape: Shape
    encoder: InputEncoder
    weights: Ring  # its share of the weights of its own inputs
    kept: dict[str, Kept] = field(default_factory=dict)
    targets: Targets | None = None
    gates: Ring | None = None  # of its own inputs, as in Kept
    basis: Basis | None = None  # where its inputs are not columns but axes

    def inputs(self, party: Party, shuffled: int | None = None, repeat: int = 0) -> Ring:
        """This view's rows as the network takes them; the label holder adds a constant."""
        columns = brought_in(own_numbers(party, self.encoder, shuffled, repeat))
        matrix = quantised(columns if self.basis is None else self.basis.turned(columns))
        if party.name != self.roles.active:
            return matrix
        return np.hstack([matrix, quantised(np.ones((len(matrix), 1)))])

    def copy(self) -> Part:
        """For a run of its own, which shares the weights anew."""
        return replace(self, kept={owner: Kept(kept.weights, gates=kept.gates) for owner, kept in self.kept.items()})

    def plain(self) -> dict[str, Any]:
        """What a file says of it, beside the arrays."""
        t = self.targets
        facts = (
            None if t is None else {"task": t.task, "classes": list(t.classes), "spread": t.spread, "truth": t.truth}
        )
        return {
            "roles": self.roles.plain(), "width": self.shape.width, "outputs": self.shape.outputs,
            "seed": self.shape.seed, "encoder": self.encoder.to_plain(), "targets": facts,
        }  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {"weights": self.weights}
        found |= {f"kept/{owner}": kept.weights for owner, kept in self.kept.items()}
        if self.basis is not None:
            found |= {"centre": self.basis.centre, "axes": self.basis.axes, "spread": np.array([self.basis.spread])}
        return found if self.targets is None else {**found, "means": self.targets.means}

    @classmethod
    def load(cls, model: str, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Part:
        shape = Shape(int(facts["width"]), int(facts["outputs"]), int(facts["seed"]))
        kept = {k.removeprefix("kept/"): Kept(v) for k, v in arrays.items() if k.startswith("kept/")}
        t = facts["targets"]
        targets = None
        if t is not None:
            names = tuple(map(str, t["classes"]))
            targets = Targets(str(t["task"]), names, arrays["means"], float(t["spread"]), float(t["truth"]))
        encoder = InputEncoder.from_plain(facts["encoder"])
        basis = Basis(arrays["centre"], arrays["axes"], float(arrays["spread"][0])) if "axes" in arrays else None
        return cls(model, Roles.read(facts["roles"]), shape, encoder, arrays["weights"], kept, targets, basis=basis)


#: Rows that a loss, a gate's gradient or a norm is about at least (all, where there are fewer).
FEWEST_ROWS = 50


@dataclass
class Rows:
    """What a member has of the rows under way, and where it is in the conversation.

    The coordinator says which batch comes next and when something is read. So each batch of an epoch is trained on
    once, a loss is that of a whole epoch, and between two readings of gates or norms there are many rows or none: else
    they would be numbers about one row (the loss of a batch of one gave labels with AUC 0.88).
    """

    part: Part
    own: Ring
    target: Ring | None
    factor: int  # of the first steps; 0: these rows are not for training
    epochs: int  # of the whole training, over which steps get smaller (0: they do not)
    seed: int
    batch_size: int
    unseen: bool = False  # whether outputs stay shares, for a measure
    step: int = 0
    order_of: int = -2
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    loss: Ring = field(default_factory=lambda: np.zeros(1, dtype=np.uint64))
    held: list[Floats] = field(default_factory=list)
    halves: list[Ring] = field(default_factory=list)  # its shares of outputs, for a measure
    batch: Batch | None = None
    gradient: Ring | None = None  # sum of its shares of gradients since the gates were set
    before: Ring | None = None  # its share of the weights when the gates were set
    done: set[int] = field(default_factory=set)  # batches of this epoch
    covered: int = 0  # their rows
    since: int = 0  # rows since gates or norms were read last
    batches: int = 0  # since the gates were set
    following: tuple[int, int] = (0, 0)  # the epoch and place that come after the last batch

    def only(self, owners: dict[str, np.ndarray], name: str) -> None:
        """Go on with these inputs of each owner alone."""
        part = self.part
        part.roles = replace(part.roles, owners={o: len(owners[o]) for o in part.roles.owners})
        for owner, kept in part.kept.items():
            kept.only(owners[owner])
        if name in owners:
            places = owners[name]
            part.weights, self.own = part.weights[places], np.ascontiguousarray(self.own[:, places])
            part.gates = None if part.gates is None else part.gates[places]
        self.gradient = self.before = None
        self.batches = 0

    def begin(self, party: Party, epoch: int, start: int) -> Batch:
        """The next batch: a step is never taken twice, and batches come in their order, or few rows would be chosen."""
        if self.factor and epoch < self.order_of:
            raise OperationRefused(party.name, "shared network", "this epoch is over")
        if self.factor and epoch >= most_epochs(party):
            raise OperationRefused(party.name, "shared network", "the accepted job trains for fewer epochs")
        if start and (epoch, start) != self.following:
            raise OperationRefused(party.name, "shared network", "batches come one after the other")
        if epoch != self.order_of:
            self.order, self.order_of = batch_order(self.seed, epoch, len(self.own)), epoch
            self.done, self.covered, self.loss = set(), 0, np.zeros(1, dtype=np.uint64)
        rows = self.order[start : start + self.batch_size]
        if not len(rows) or start % self.batch_size or (self.factor and start in self.done):
            raise OperationRefused(party.name, "shared network", "there is no such batch, or it was trained on before")
        self.done.add(start)
        self.covered, self.since = self.covered + len(rows), self.since + len(rows)
        end = start + self.batch_size
        self.following = (epoch, end) if end < len(self.own) else (epoch + 1, 0)
        self.step, self.batches = self.step + 1, self.batches + 1
        self.batch = Batch(rows, self.step, np.uint64(cooled(self.factor, epoch, self.epochs)))
        return self.batch

    def take_loss(self, party: Party) -> Ring:
        """Its share of the loss of a whole epoch, once."""
        if self.covered != len(self.own):
            raise OperationRefused(party.name, "shared network", "a loss is that of all rows, each once")
        loss, self.covered = self.loss, 0
        return loss

    def read(self, party: Party) -> None:
        """Before gates or norms are read."""
        if 0 < self.since < min(FEWEST_ROWS, len(self.own)):
            raise OperationRefused(party.name, "shared network", f"a reading is about {FEWEST_ROWS} rows or more")
        self.since = 0

    def check_sums(self, party: Party) -> None:
        """A reading of gates is a sum over the rows of several batches, which no coordinator makes fewer."""
        if self.batches < LEAST_BATCHES:
            raise OperationRefused(party.name, "gates", f"a reading is over {LEAST_BATCHES} batches at least")

    def now(self, party: Party) -> Batch:
        if self.batch is None:
            raise OperationRefused(party.name, "shared network", "no batch is under way")
        return self.batch

    def angle_share(self, batch: Batch) -> Ring:
        """This member's share of the angles: of its own columns, and of those it keeps."""
        share = product(self.own[batch.rows], gated(self.part.weights, self.part.gates))
        for owner, kept in self.part.kept.items():
            if kept.rows is None:
                raise ReplyError(owner, "shared network", f"party {owner!r} has sent no rows")
            share = share + product(kept.rows[batch.rows], gated(kept.weights, kept.gates))
        return share

    def step_weights(self, batch: Batch, delta: Ring, from_keeper: Ring, from_dealer: Ring) -> None:
        """The owner's side of one gradient step."""
        gradient = product(self.own[batch.rows].T, delta) + from_keeper + from_dealer
        part = self.part
        part.weights = part.weights - batch.factor * gated(gradient, part.gates)
        if part.gates is not None:
            self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def step_kept(self, batch: Batch, owner: str, mask: Ring, masks: tuple[Ring, Ring]) -> Ring:
        """The keeper's side: what the owner gets, under the first of two masks; its share takes both."""
        kept = self.part.kept[owner]
        assert kept.rows is not None
        message = -product(kept.rows[batch.rows].T, mask) - masks[0]
        both = masks[0] + masks[1]
        kept.weights = kept.weights - batch.factor * gated(both, kept.gates)
        if kept.gates is not None:
            kept.masks = both if kept.masks is None else kept.masks + both
        return message


@dataclass
class Batch:
    """One batch under way."""

    rows: np.ndarray
    number: int
    factor: np.uint64
    angles: Angles | None = None  # its share, masked
    hidden: Angles | None = None  # of all members, masked
    shares: Any = None
    error: Ring | None = None
    half: Ring | None = None
    again: Ring | None = None
    delta: Ring | None = None


def check_batch_size(party: Party, batch_size: int) -> None:
    """Not smaller than the accepted job's (of which networks that only predict take up to ``LEAST_BATCH``)."""
    told = None if party.run.job is None else party.run.job.parameters.get("batch_size")
    least = min(told if isinstance(told, int) else LEAST_ROWS, LEAST_BATCH, party.n_rows)
    if batch_size < least:
        raise OperationRefused(party.name, "shared network", f"a batch has {least} rows at least in this job")


def check_shape(party: Party, active: str, shape: Shape) -> None:
    """Width, seed and label holder are the accepted job's: of its width once or twice, as a method's networks have it,
    and as many sines as several classes need."""
    job = party.run.job
    if job is None:
        return
    width, least = job.parameters.get("width"), 2 * shape.outputs if shape.outputs > 1 else 1
    if isinstance(width, int) and shape.width not in {max(times * width, least) for times in (1, 2)}:
        raise OperationRefused(party.name, "shared network", "its width is another than that of the accepted job")
    if active != job.active:
        raise OperationRefused(party.name, "shared network", "the accepted job has another label holder")
    check_seed(party, shape.seed)


def check_seed(party: Party, seed: int) -> None:
    """Where the accepted job names a seed, it is that one."""
    told = None if party.run.job is None else party.run.job.random_state
    if isinstance(told, int) and seed != told:
        raise OperationRefused(party.name, "shared network", "its seed is another than that of the accepted job")


def check_factor(party: Party, factor: int, shape: Shape, batch_size: int) -> None:
    """No step is larger than one of ``MOST_RATE``: gradients under masks are multiplied with it."""
    if factor > step_factor(MOST_RATE, shape, min(batch_size, party.n_rows)):
        raise OperationRefused(party.name, "shared network", f"a step has a rate of {MOST_RATE:g} at most")


def batch_order(seed: int, epoch: int, rows: int) -> np.ndarray:
    """The order of an epoch's rows: the same for all members, and of no label. ``epoch`` -1: as they stand."""
    if epoch < 0:
        return np.arange(rows)
    return np.random.default_rng(derived_seed(seed, "rows", epoch)).permutation(rows)
