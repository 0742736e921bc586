"""The two halves of a split network, each inside one party. No graph spans parties: what crosses is arrays.

``Bottom``: a party's columns -> embedding. ``Top``: everybody's embeddings -> prediction, at the label holder, which
may have a bottom of its own. ``forward`` keeps the graph of one batch until ``backward`` brings its gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsift.core.party import Party
from fedsift.errors import ParameterError, ReplyError
from fedsift.models.splitnn.gates import Gates, column_norms, shrink_columns
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.networks import build_model, derived_seed, first_layer, torch_module
from fedsift.models.splitnn.settings import BottomSettings, TopSettings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from fedsift.core.table import Table

_CHUNK = 4096


def secret_seed(party: Party, seed: int) -> int:
    """What a party draws its half from: with first weights that others know, its first embeddings are its columns."""
    return int(party.generator("split network", seed).integers(2**53))


class Bottom:
    """A party's half: encoder, module, optimiser, and what a method adds (gates, shadows, a penalty)."""

    seed = 0  # of a half that is read from a file: its weights are in the file

    def __init__(self, party: Party, settings: BottomSettings):
        self.settings = settings
        self.encoder = InputEncoder.fit(party.table, party.columns)
        self.seed = secret_seed(party, settings.seed)
        self.setup(party.name)
        rows = torch_module().from_numpy(self.encoder.matrix(party.table))
        self.matrix = self._with_shadows(rows, party.name)
        self._seen: tuple[Table, Tensor] | None = None  # the rows that were embedded last
        self.pending: Tensor | None = None

    def setup(self, name: str) -> None:
        """Module, gates and optimiser for the encoder's inputs."""
        torch, s = torch_module(), self.settings
        width = len(self.encoder.owner)
        self.n_columns = len(self.encoder.columns)
        # "shadows" is the least number of shuffled copies that a party trains beside its columns.
        self.n_copies = -(-s.shadows // max(1, self.n_columns))
        copies = 1 + self.n_copies
        self.owner = torch.from_numpy(np.concatenate([self.encoder.owner + i * self.n_columns for i in range(copies)]))
        self.n_groups = copies * self.n_columns
        self._one_input_each = len(self.owner) == self.n_groups
        self.module = build_model(s.model, width * copies, s.width, s.options, derived_seed(self.seed, "bottom", name))
        self._first: Module | None = None
        if s.gates or s.shadows or s.prox is not None or s.equal_norm:
            self._first = first_layer(self.module, width * copies, f"the bottom model of party {name!r}")
        if s.equal_norm and self.n_groups:
            with torch.no_grad():
                norms = column_norms(self.first.weight, self.owner, self.n_groups)
                self.first.weight.mul_((s.equal_norm / norms.clamp_min(1e-12))[self.owner])
        self.gates: dict[str, Gates] = {}
        self.components = None if s.components is None else torch.tensor(s.components, dtype=torch.int64)
        groups = [{"params": list(self.module.parameters()), "lr": s.rate, "weight_decay": s.decay}]
        self.optimiser = torch.optim.Adam(groups, fused=True)

    @property
    def first(self) -> Module:
        """The layer that meets the columns, where something acts on it."""
        if self._first is None:
            raise ParameterError("nothing acts on the first layer of this network")
        return self._first

    def add_gates(self, importance: np.ndarray | None, name: str) -> None:
        """Gates over the columns (and the embedding); ``importance`` says where those of the columns begin."""
        g = self.settings.gates
        assert g is not None
        seed = self.seed
        start = np.full(self.n_columns, 0.5)
        if g.init == "gini" and importance is not None:
            start = importance
        start = np.tile(start, 1 + self.n_copies)  # a copy begins where its column does: a fair race
        self.gates["input"] = Gates(start, g.sigma, g.price, derived_seed(seed, "input gates", name))
        if g.embedding:
            half = np.full(self.settings.width, 0.5)
            self.gates["embedding"] = Gates(half, g.sigma, g.price, derived_seed(seed, "embedding gates", name))
        params = [gate.mu for gate in self.gates.values()]
        self.optimiser.add_param_group({"params": params, "lr": g.rate, "weight_decay": 0.0})

    def _with_shadows(self, matrix: Tensor, name: str) -> Tensor:
        """The columns and copies of them whose rows are shuffled: what a column without any signal looks like."""
        torch = torch_module()
        generator = np.random.default_rng(derived_seed(self.seed, "shadows", name))
        parts = [matrix]
        for _ in range(self.n_copies):
            copy = matrix.clone()
            for column in range(self.n_columns):
                here = np.flatnonzero(self.encoder.owner == column)
                copy[:, here] = matrix[:, here][torch.from_numpy(generator.permutation(len(matrix)))]
            parts.append(copy)
        return torch.cat(parts, dim=1) if self.n_copies else matrix

    def _apply(self, x: Tensor, training: bool) -> Tensor:
        gates = {kind: g.sample(len(x)) if training else g.settled() for kind, g in self.gates.items()}
        if "input" in gates:
            # Where every column is one input, a gate a column is a gate an input: no gather, and none backwards.
            x = x * (gates["input"] if self._one_input_each else gates["input"][..., self.owner])
        embedding = self.module(x)
        if tuple(embedding.shape[-2:]) != (x.shape[-2], self.settings.width):
            raise ParameterError(
                f"the bottom model gives {tuple(embedding.shape)[1:]} numbers a row, not the embedding width "
                f"{self.settings.width}"
            )
        if "embedding" in gates:
            embedding = embedding * gates["embedding"]
        return embedding if self.components is None else embedding[:, self.components]

    def forward(self, rows: np.ndarray) -> np.ndarray:
        torch = torch_module()
        self.module.train()
        self.pending = self._apply(self.matrix[torch.from_numpy(rows)], True)
        return np.asarray(self.pending.detach().numpy())

    def backward(self, gradient: np.ndarray) -> None:
        torch = torch_module()
        if self.pending is None or gradient.shape != tuple(self.pending.shape):
            raise ParameterError("a gradient came that does not fit the last embedding")
        self.optimiser.zero_grad()
        if self.pending.requires_grad:
            self.pending.backward(torch.from_numpy(np.asarray(gradient, dtype=np.float32)))
            for gate in self.gates.values():
                gate.add_penalty_gradient()
            self.optimiser.step()
            if self.settings.prox:
                rate = self.optimiser.param_groups[0]["lr"]
                shrink_columns(self.first.weight, self.owner, self.n_groups, self.settings.prox * rate)
        self.pending = None

    def embed(self, party: Party, start: int, stop: int) -> np.ndarray:
        """Embeddings of rows start..stop of the party's current view, without noise."""
        torch = torch_module()
        if self._seen is None or self._seen[0] is not party.table:  # another view, or another federation's rows
            self._seen = (party.table, torch.from_numpy(self.encoder.matrix(party.table)))
        x = self._seen[1][start:stop]
        if self.n_copies:
            x = torch.cat([x, torch.zeros((len(x), x.shape[1] * self.n_copies))], dim=1)  # copies are silent here
        self.module.eval()
        with torch.no_grad():
            return np.asarray(self._apply(x, False).numpy())

    def norms(self) -> np.ndarray:
        """The norm of each column's weights in the first layer (copies after the columns)."""
        return np.asarray(column_norms(self.first.weight, self.owner, self.n_groups).numpy())

    def restrict(self, columns: np.ndarray, components: np.ndarray, name: str) -> None:
        """Go on with fewer columns (no copies any more) and fewer embedding components, keeping the weights."""
        torch = torch_module()
        inputs = np.flatnonzero(np.isin(self.encoder.owner, columns))
        kept = torch.from_numpy(inputs)
        old = self.module.state_dict()
        first = first_layer(self.module, len(self.owner), f"the bottom model of party {name!r}")
        place = next(k for k, v in old.items() if v.data_ptr() == first.weight.data_ptr())
        old[place] = first.weight.detach()[:, kept].clone()
        self.encoder = InputEncoder([self.encoder.columns[int(c)] for c in columns])
        self.settings = replace(
            self.settings, shadows=0, equal_norm=None, prox=None, components=[int(c) for c in components]
        )
        self.matrix = self.matrix[:, kept].contiguous()
        self.setup(name)
        self.module.load_state_dict(old)


class Top:
    """The label holder's half: top module, loss, and the target in the loss's scale."""

    seed = 0  # of a half that is read from a file: its weights are in the file

    def __init__(self, party: Party, widths: dict[str, int], settings: TopSettings):
        torch = torch_module()
        labels = party.labels(task=settings.task)
        self.settings = settings
        self.widths = dict(widths)
        self.task = labels.task
        self.classes = labels.classes
        self.centre, self.spread = 0.0, 1.0
        if self.task == "regression":
            self.centre, self.spread = float(labels.values.mean()), float(labels.values.std()) or 1.0
        self.outputs = labels.n_classes if self.task == "classification" else 1
        self.seed = secret_seed(party, settings.seed)
        self.setup()
        if self.task == "classification":
            self.target = torch.from_numpy(labels.codes.astype(np.int64))
        else:
            self.target = torch.from_numpy(((labels.values - self.centre) / self.spread).astype(np.float32))[:, None]

    @property
    def stack(self) -> tuple[int, ...]:
        """Networks side by side: () for one, (n,) for n of them."""
        copies = self.settings.options.get("copies")
        return (copies,) if isinstance(copies, int) else ()

    def setup(self) -> None:
        torch, s = torch_module(), self.settings
        seed = derived_seed(self.seed, "top")
        self.module = build_model(s.model, sum(self.widths.values()), self.outputs, s.options, seed)
        self.loss = torch.nn.CrossEntropyLoss() if self.task == "classification" else torch.nn.MSELoss()
        rest = list(self.module.parameters())
        self.interactive: Optimizer | None = None
        if s.interactive:
            # The layer that meets the embeddings learns by plain steps, as it must where it is masked (secure_layer).
            weight = first_layer(self.module, sum(self.widths.values()), "the top model").weight
            rest = [parameter for parameter in rest if parameter is not weight]
            self.interactive = torch.optim.SGD([weight], lr=s.interactive)
        self.optimiser = torch.optim.Adam(rest, lr=s.rate, weight_decay=s.decay, fused=True)

    def losses(self, out: Tensor, rows: np.ndarray) -> tuple[Tensor, dict[str, float]]:
        """What is differentiated (the sum over networks side by side); mean loss and score of a network.

        The score is that of the batch before its step: accuracy, or R2 in the scale of all training rows.
        """
        torch = torch_module()
        target, copies = self.target[torch.from_numpy(rows)], self.stack[0] if self.stack else 1
        if self.stack:
            out = out.reshape(-1, out.shape[-1])
            target = target.repeat(copies, *[1] * (target.dim() - 1))
        loss = self.loss(out, target)
        seen = float(loss.detach())
        right = (out.argmax(dim=-1) == target).float().mean() if self.task == "classification" else 1 - seen
        return loss * copies, {"loss": seen, "score": float(right)}

    def joined(self, embeddings: dict[str, np.ndarray], rows: int) -> Tensor:
        """The embeddings side by side in the parties' order, each checked before it is used."""
        torch, parts = torch_module(), []
        for name, width in self.widths.items():
            array = embeddings.get(name)
            if (
                not isinstance(array, np.ndarray)
                or array.shape != (*self.stack, rows, width)
                or array.dtype.kind != "f"
            ):
                raise ReplyError(
                    name, "embedding", f"party {name!r} must send an embedding of {rows} x {width} numbers"
                )
            if not np.isfinite(array).all():
                raise ReplyError(name, "embedding", f"the embedding of party {name!r} is not finite: it diverged")
            parts.append(torch.from_numpy(np.asarray(array, dtype=np.float32)))
        return torch.cat(parts, dim=-1)

    def step(
        self, embeddings: dict[str, np.ndarray], rows: np.ndarray
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """One optimiser step; loss and score, and the gradient of each party's embedding."""
        torch = torch_module()
        self.module.train()
        joined = self.joined(embeddings, len(rows)).requires_grad_(True)
        loss, seen = self.losses(self.module(joined), rows)
        steppers = [self.optimiser] + ([self.interactive] if self.interactive is not None else [])
        for stepper in steppers:
            stepper.zero_grad()
        loss.backward()
        for stepper in steppers:
            stepper.step()
        pieces = torch.split(joined.grad, list(self.widths.values()), dim=-1)
        return seen, {name: piece.numpy() for name, piece in zip(self.widths, pieces)}

    def restrict(self, kept: dict[str, np.ndarray]) -> None:
        """Go on with fewer embedding components (positions by party); a party without any is left out."""
        torch = torch_module()
        offsets = dict(zip(self.widths, np.cumsum([0, *self.widths.values()])))
        places = np.concatenate([offsets[name] + np.asarray(kept[name], dtype=np.int64) for name in self.widths])
        old = self.module.state_dict()
        first = first_layer(self.module, sum(self.widths.values()), "the top model")
        place = next(k for k, v in old.items() if v.data_ptr() == first.weight.data_ptr())
        old[place] = first.weight.detach()[:, torch.from_numpy(places)].clone()
        self.widths = {name: len(kept[name]) for name in self.widths if len(kept[name])}
        self.setup()
        self.module.load_state_dict(old)

    def predict(self, embeddings: dict[str, np.ndarray], rows: int) -> np.ndarray:
        """Class probabilities (rows x classes) or target values (rows x 1)."""
        torch = torch_module()
        self.module.eval()
        with torch.no_grad():
            return self.presented(self.module(self.joined(embeddings, rows)))

    def presented(self, out: Tensor) -> np.ndarray:
        """The network's output as probabilities, or in the target's own scale."""
        if self.task == "classification":
            return np.asarray(torch_module().softmax(out, dim=-1).numpy())
        return np.asarray(out.numpy().astype(np.float64) * self.spread + self.centre)

    def score(self, out: np.ndarray, label: np.ndarray) -> float:
        """Accuracy, or R2."""
        if self.task == "classification":
            names = np.asarray(self.classes)
            return float(np.mean(names[out.argmax(axis=1)] == np.array([str(v) for v in label])))
        residual = label.astype(np.float64) - out[:, 0]
        return float(1 - (residual**2).sum() / max(((label - label.mean()) ** 2).sum(), 1e-300))


def chunks(rows: int) -> list[tuple[int, int]]:
    return [(start, min(start + _CHUNK, rows)) for start in range(0, rows, _CHUNK)]
