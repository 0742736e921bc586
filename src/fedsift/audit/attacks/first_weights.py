"""A party's columns from its first embeddings, where its first weights follow from the announced seed.

Whoever sees the embedding of batch 1 builds the party's half from the seed, and solves for the rows by damped least
squares: dense layers with ReLU are linear between bends, and rows are independent of each other. With the rows found
and the gradient that went back, the half's first step is replayed, and batch 2 is opened the same way, and so on. The
half sees standardised columns: they come out up to place and scale, which a correlation does not mind.

The guess is no zero: solving with wrong weights gives mixtures of the party's columns, and those correlate with each of
them, the more the fewer there are. So it is measured: the same attack with the weights of other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.network_messages import Batch, Networks, batches_at_holder
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.models.splitnn.networks import build_model, derived_seed, torch_module

if TYPE_CHECKING:
    from torch import Tensor

    from fedsift.models.splitnn.gates import Gates

_STEPS = 60
_BATCHES = 2
_OTHER_SEEDS = 3
_MOST_INPUTS = 64  # that are tried where nobody told
_PROBED, _PROBE_STEPS = 12, 12  # rows and steps of each trial


class Replica:
    """The party's half as the announced seed gives it, and as it learns from then on."""

    def __init__(self, settings: dict[str, Any], inputs: int, party: str, importance: np.ndarray | None = None):
        torch = torch_module()
        self.settings = settings
        seed = derived_seed(settings["seed"], "bottom", party)
        self.module = build_model(settings["model"], inputs, settings["width"], settings["options"], seed)
        self.gates: dict[str, Gates] = {}
        if settings.get("equal_norm"):
            first = next(iter(self.module.parameters()))
            with torch.no_grad():
                first.mul_(settings["equal_norm"] / first.norm(dim=0).clamp_min(1e-12))
        parameters = list(self.module.parameters())
        self.optimiser = torch.optim.Adam(parameters, lr=settings["rate"], weight_decay=settings.get("decay", 0.0))
        if settings.get("gates"):
            self._add_gates(inputs, party, importance)

    def _add_gates(self, inputs: int, party: str, importance: np.ndarray | None) -> None:
        from fedsift.models.splitnn.gates import Gates

        g, seed = self.settings["gates"], self.settings["seed"]
        sizes = {"input": inputs, **({"embedding": self.settings["width"]} if g["embedding"] else {})}
        for kind, size in sizes.items():
            begin = np.full(size, 0.5)
            if kind == "input" and importance is not None and len(importance) == size:
                begin = importance
            self.gates[kind] = Gates(begin, g["sigma"], g["price"], derived_seed(seed, f"{kind} gates", party))
        self.optimiser.add_param_group({"params": [gate.mu for gate in self.gates.values()], "lr": g["rate"]})

    def draw(self, rows: int) -> dict[str, Tensor]:
        """The gates of the next batch."""
        return {kind: gate.sample(rows) for kind, gate in self.gates.items()}

    def forward(self, x: Tensor, drawn: dict[str, Tensor]) -> Tensor:
        embedding = self.module(x * drawn["input"] if "input" in drawn else x)
        return embedding * drawn["embedding"] if "embedding" in drawn else embedding

    def learn(self, x: Tensor, drawn: dict[str, Tensor], gradient: np.ndarray) -> None:
        """The step that the party makes when its gradient comes."""
        torch = torch_module()
        self.optimiser.zero_grad()
        self.forward(x, drawn).backward(torch.from_numpy(np.array(gradient, dtype=np.float32)))
        for gate in self.gates.values():
            gate.add_penalty_gradient()
        self.optimiser.step()


def invert(forward: Callable[[Tensor], Tensor], observed: np.ndarray, inputs: int, steps: int = _STEPS) -> np.ndarray:
    """Rows x with ``forward(x) = observed``, each by itself (Levenberg and Marquardt), from the mean row."""
    torch = torch_module()
    goal = torch.from_numpy(np.array(observed, dtype=np.float32))
    x = torch.zeros((len(observed), inputs))
    damping = torch.full((len(x), 1, 1), 1e-2)
    error = ((forward(x) - goal) ** 2).sum(dim=1).detach()
    for _ in range(steps):
        jacobian, miss = _linear(forward, x, goal)
        square = jacobian.transpose(1, 2) @ jacobian
        size = square.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp_min(1e-12)
        steep = (jacobian.transpose(1, 2) @ miss[:, :, None]).double()
        system = (square + damping * size * torch.eye(inputs)).double()
        tried = x + torch.linalg.solve(system, steep)[:, :, 0].float()
        found = ((forward(tried) - goal) ** 2).sum(dim=1).detach()
        better = found < error
        x = torch.where(better[:, None], tried, x)
        error = torch.where(better, found, error)
        damping = torch.where(better[:, None, None], damping * 0.3, damping * 4).clamp(1e-7, 1e4)
    return np.asarray(x.numpy())


def _linear(forward: Callable[[Tensor], Tensor], x: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of each row's outputs in its own inputs, and what is missing to the goal."""
    torch = torch_module()
    x = x.clone().requires_grad_(True)
    out = forward(x)
    lines = [torch.autograd.grad(out[:, k].sum(), x, retain_graph=True)[0] for k in range(out.shape[1])]
    return torch.stack(lines, dim=1), (goal - out).detach()


@dataclass(frozen=True)
class Opened:
    """Rows of the table, and the inputs of the party's network that were found for them."""

    rows: np.ndarray
    inputs: np.ndarray


def replay(replica: Replica, batches: Sequence[Batch], inputs: int) -> list[Opened]:
    """Open batch after batch."""
    torch = torch_module()
    opened = []
    for batch in batches:
        seen = batch.embedding
        if seen is None or seen.ndim != 2:
            break
        drawn = replica.draw(len(seen))

        def shown(x: Tensor, drawn: dict[str, Tensor] = drawn) -> Tensor:
            return replica.forward(x, drawn)

        found = invert(shown, seen, inputs)
        opened.append(Opened(batch.rows, found))
        if batch.gradient is None:
            break
        replica.learn(torch.from_numpy(found), drawn, batch.gradient)
    return opened


def column_correlations(opened: Sequence[Opened], columns: np.ndarray, by_place: bool = True) -> np.ndarray:
    """Of each true column: its correlation, in size, with the input in its place, or with the best of all inputs.

    The latter where categories take several inputs each: a code then correlates with its indicators in part only.
    """
    rows = np.concatenate([each.rows for each in opened])
    found = np.concatenate([each.inputs for each in opened])
    true = np.nan_to_num(columns[rows])
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.nan_to_num(np.corrcoef(true.T, found.T)[: true.shape[1], true.shape[1] :])
    by_place = by_place and found.shape[1] == true.shape[1]
    return np.abs(np.diag(table)) if by_place else np.abs(table).max(axis=1)


def _first_batches(view: View) -> dict[tuple[str, str], list[Batch]]:
    """The first batches of each network and party."""
    found: dict[tuple[str, str], list[Batch]] = {}
    for batch in batches_at_holder(view):
        kept = found.setdefault((batch.model, batch.party), [])
        if len(kept) < _BATCHES:
            kept.append(batch)
    return {key: kept for key, kept in found.items() if kept}


def _attack(view: View, truth: Truth) -> Measure:
    networks = Networks(view)
    values, guesses, baselines, notes = [], [], [], []
    done: set[str] = set()
    for (model, party), batches in _first_batches(view).items():
        if party in done:
            continue
        done.add(party)
        half = _half(view, networks, model, party, batches[0])
        opened = half.open(batches) if half is not None else []
        if half is not None and opened:
            columns = truth.columns[party]
            values.append(float(column_correlations(opened, columns).mean()))
            wrong = [half.open(batches[:1], other=number) for number in range(1, 1 + _OTHER_SEEDS)]
            guesses.append(float(np.mean([column_correlations(each, columns).mean() for each in wrong])))
            notes.append(f"{party}: {sum(len(o.rows) for o in opened)} rows, {half.inputs} inputs")
            own = view.columns if view.table is not None else np.zeros((len(columns), 1))
            mine = [Opened(each.rows, np.nan_to_num(own[each.rows])) for each in opened]
            baselines.append(float(column_correlations(mine, columns, by_place=False).mean()))
    if not values:
        return Measure("correlation", 0.0, 0.0, 0.0, note="nothing to read: no first embedding")
    return Measure(
        "correlation", float(np.mean(values)), float(np.mean(guesses)), float(np.mean(baselines)), note="; ".join(notes)
    )


@dataclass(frozen=True)
class _Half:
    """What the attacker knows of one party's half before it opens anything."""

    settings: dict[str, Any]
    party: str
    inputs: int
    importance: np.ndarray | None

    def open(self, batches: Sequence[Batch], other: int = 0) -> list[Opened]:
        """With the weights of the announced seed, or of another."""
        settings = {**self.settings, "seed": self.settings["seed"] + 1_000_003 * other}
        return replay(Replica(settings, self.inputs, self.party, self.importance), batches, self.inputs)


def _half(view: View, networks: Networks, model: str, party: str, batch: Batch) -> _Half | None:
    """The number of the network's inputs is tried where it was not told."""
    settings, importance = _settings_of(networks, model, party), _importance(view, party)
    if settings is None:
        return None
    inputs = networks.inputs.get((model, party))
    if inputs is None:
        inputs = fitting_inputs(settings, party, batch, importance)
    return _Half(settings, party, inputs, importance)


def fitting_inputs(settings: dict[str, Any], party: str, batch: Batch, importance: np.ndarray | None) -> int:
    """How many inputs the party's network has: the number with which some rows of batch 1 are explained best."""
    seen = batch.embedding
    if seen is None or seen.ndim != 2:
        return 1
    torch = torch_module()
    missed = {}
    for inputs in range(1, min(_MOST_INPUTS, seen.shape[1])):
        replica = Replica(settings, inputs, party, importance)
        drawn = {kind: gate[:_PROBED] for kind, gate in replica.draw(len(seen)).items()}

        def shown(x: Tensor, replica: Replica = replica, drawn: dict[str, Tensor] = drawn) -> Tensor:
            return replica.forward(x, drawn)

        found = invert(shown, seen[:_PROBED], inputs, steps=_PROBE_STEPS)
        with torch.no_grad():
            left = ((shown(torch.from_numpy(found)).numpy() - seen[:_PROBED]) ** 2).mean(axis=1)
        missed[inputs] = float(np.median(left))  # with the right weights most rows are met exactly, not all
    return min(missed, key=lambda inputs: missed[inputs])


def _importance(view: View, party: str) -> np.ndarray | None:
    """Where the party's gates begin, from what was opened or relayed here."""
    from fedsift.models.splitnn.gates import importance_to_mu

    for message in view.requests("take_importance"):
        content = message.content
        impurity = content["impurity"] if message.party == party else None
        for reply in view.replies("open_impurities") if impurity is None else []:
            impurity = reply.content.get(party)
        if impurity is not None:
            return importance_to_mu(impurity, content["low"], content["high"], content["best"], content["worst"])
    return None


def _settings_of(networks: Networks, model: str, party: str) -> dict[str, Any] | None:
    """Settings of a party's half. The label holder was sent the same for a half of its own; widths are in the top's."""
    known = networks.bottoms.get((model, party))
    if known is None:
        known = next((s for (name, _), s in networks.bottoms.items() if name == model), None)
    if known is None:
        return None
    widths = networks.tops.get(model, {}).get("widths", {})
    return {**known, "width": widths.get(party, known["width"])}


@attack(reads=["top_round"], role="active", target="columns", knows="the announced seed", declared="denied", line=9)
def first_weights_at_holder(view: View, truth: Truth) -> Measure:
    """Mean correlation of the other parties' columns with what the label holder solves the first batches for."""
    return _attack(view, truth)


@attack(
    reads=["top_round"], role="coordinator", target="columns", knows="the announced seed", declared="denied", line=9
)
def first_weights_at_coordinator(view: View, truth: Truth) -> Measure:
    """Mean correlation of columns that the coordinator computes back from embeddings that it relays."""
    return _attack(view, truth)
