"""LESS-VFL, stages 2 and 3: which embedding components matter, then which columns. One upload, no other message.

Stage 2 at the label holder: proximal gradient steps on the top model's first layer over the embeddings that the parties
uploaded once; a component whose weights reach zero is not needed. Stage 3 inside each party: proximal steps on the
bottom model's first layer, matching the embedding components that are needed; a column whose weights reach zero goes.
Castiglia et al. 2023, Algorithm 1. Both stages choose their lambda without a message.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.models.splitnn.gates import shrink_columns
from fedsift.models.splitnn.halves import bottom_of, halves_of, top_of
from fedsift.models.splitnn.networks import derived_seed, first_layer, torch_module
from fedsift.models.splitnn.party_networks import Bottom, Top
from fedsift.models.splitnn.settings import Rows, Scale

Epochs = Annotated[int, Between(0, 10_000)]
Places = Annotated[NDArray[np.int64], Between(0, 10**7)]
_FLAT = 1e-3
LAMBDAS = tuple(float(v) for v in np.geomspace(1e-3, 1.0, 16))
COLUMN_LAMBDAS = tuple(1e-3 * 2.0**k for k in range(16))  # up to 33: 1 left most of Phishing's noise in


@operation(
    "less_vfl.upload_embeddings",
    when="protection=open|unsaid",
    discloses="plain",
    about="the embedding of each training row, once",
    reply=Array("f", 2),
    times=1,
)
def upload_embeddings(party: Party, *, model: str) -> np.ndarray:
    return _training_embedding(bottom_of(party, model))


def _training_embedding(bottom: Bottom) -> np.ndarray:
    """On the training rows as they were trained on: with the copies, where there are some."""
    torch = torch_module()
    bottom.module.eval()
    with torch.no_grad():
        return np.asarray(bottom._apply(bottom.matrix, False).numpy())


@operation(
    "less_vfl.select_components",
    when="protection=open|unsaid",
    discloses="control",
    receives="plain",
    about="which embedding components matter",
    learns="the embedding of each training row, once",
    reply={"components": ByName(Array("i")), "lambda": float},
    times=1,
)
def select_components(
    party: Party, *, model: str, embeddings: dict[str, Rows], price: Scale | None, epochs: Epochs, rate: Scale
) -> dict[str, Any]:
    """Stage 2. ``price`` None: the largest lambda whose loss on held-out training rows is near the best."""
    check_epochs(party, "select_components", epochs, "stage_epochs")
    torch, top = torch_module(), top_of(party, model)
    if party.name in top.widths:
        embeddings = {**embeddings, party.name: _training_embedding(bottom_of(party, model))}
    joined = top.joined(embeddings, party.n_rows)
    generator = np.random.default_rng(derived_seed(top.seed, "stage 2"))
    held = torch.from_numpy(generator.permutation(party.n_rows)[: party.n_rows // 5])
    train = torch.ones(party.n_rows, dtype=torch.bool)
    train[held] = False
    if price is None:
        price = _component_price(top, joined, train, epochs, rate)
    module = _sparse_top(top, joined, torch.ones_like(train), price, epochs, rate)
    top.module.load_state_dict(module.state_dict())
    first = first_layer(module, joined.shape[1], "the top model")
    alive = (first.weight.detach().norm(dim=0) > 0).numpy()
    bounds = np.cumsum([0, *top.widths.values()])
    kept = {name: np.flatnonzero(alive[bounds[i] : bounds[i + 1]]) for i, name in enumerate(top.widths)}
    return {"components": kept, "lambda": float(price)}


def check_epochs(party: Party, step: str, epochs: int, parameter: str) -> None:
    """No longer than the accepted job says."""
    most = None if party.run.job is None else party.run.job.parameters.get(parameter)
    if isinstance(most, int) and epochs > most:
        raise OperationRefused(party.name, step, "its 'epochs' are more than the accepted job's")


def check_places(party: Party, step: str, what: str, places: np.ndarray, most: int) -> None:
    """Places in ascending order, each once, of so many."""
    ordered = places.ndim == 1 and (np.diff(places) > 0).all()
    if not ordered or (len(places) and places[-1] >= most):
        raise OperationRefused(party.name, step, f"its {what!r} are not ascending places below {most}")


def _component_price(top: Top, joined: Tensor, train: Tensor, epochs: int, rate: float) -> float:
    """Along the path of lambdas; the largest whose held-out loss is within 2 % of the best and that leaves a
    component to every party (whether a party matters at all is for its columns to say)."""
    torch = torch_module()
    losses, whole = [], []
    for value in LAMBDAS:
        module = _sparse_top(top, joined, train, value, max(1, epochs // 3), rate)
        with torch.no_grad():
            losses.append(float(top.loss(module(joined[~train]), top.target[~train])))
        alive = first_layer(module, joined.shape[1], "the top model").weight.detach().norm(dim=0) > 0
        whole.append(all(bool(part.any()) for part in torch.split(alive, list(top.widths.values()))))
    best = min(losses)
    return max([v for v, loss, all_in in zip(LAMBDAS, losses, whole) if loss <= best * 1.02 and all_in] or LAMBDAS[:1])


def _sparse_top(top: Top, joined: Tensor, rows: Tensor, price: float, epochs: int, rate: float) -> Module:
    """A copy of the top model after proximal gradient steps (all rows at once, so nothing is random)."""
    torch = torch_module()
    module = copy.deepcopy(top.module)
    first = first_layer(module, joined.shape[1], "the top model")
    owner = torch.arange(joined.shape[1])
    optimiser = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.0)
    x, y, last = joined[rows], top.target[rows], float("inf")
    for step in range(epochs * 10):
        optimiser.zero_grad()
        loss = top.loss(module(x), y)
        loss.backward()
        optimiser.step()
        shrink_columns(first.weight, owner, len(owner), price * rate)
        if step % 20 == 19:
            now = float(loss.detach())
            if abs(last - now) < _FLAT * abs(now):
                break
            last = now
    return module


@operation(
    "less_vfl.select_columns", when="protection=open|unsaid",
    discloses="aggregate",
    about="the norm of each column's weights: zero for a column that goes",
    learns="which components of its embedding matter",
    reply={
        "norms": Array("f"), "start": Array("f"), "shrinkage": float, "lambda": float, "copies_zero": float,
        "match": float,
    },
    times=1,
)  # fmt: skip
def select_columns(
    party: Party, *, model: str, components: Places, price: Scale | None, epochs: Epochs, rate: Scale,
    quantile: Annotated[float, Between(0, 1)],
) -> dict[str, Any]:  # fmt: skip
    """Stage 3, nothing but local work: match the embedding while columns are paid for."""
    check_epochs(party, "select_columns", epochs, "stage_epochs")
    bottom = bottom_of(party, model)
    if bottom.components is not None:
        raise OperationRefused(party.name, "select_columns", "its network is cut down to its components already")
    check_places(party, "select_columns", "components", components, bottom.settings.width)
    copies = bottom.norms()[bottom.n_columns :]
    stage = _LocalLasso(bottom, components, rate)
    if len(components) == 0:
        stage.wipe()
    elif bottom.n_copies:
        price = stage.until_copies_are_zero(epochs, quantile)
    elif price is None:
        price = stage.cheapest_match(epochs)
    else:
        stage.run(price, epochs)
    norms = bottom.norms()
    return {
        "norms": norms[: bottom.n_columns],
        "start": stage.start[: bottom.n_columns],
        "shrinkage": float(stage.shrinkage),
        "lambda": float(price or 0.0),
        "copies_zero": float((copies <= stage.shrinkage).mean()) if len(copies) else -1.0,
        "match": stage.match(),
    }


class _LocalLasso:
    """Proximal gradient descent on one party's bottom model towards its own pre-trained embedding."""

    def __init__(self, bottom: Bottom, components: np.ndarray, rate: float):
        torch = torch_module()
        self.bottom, self.rate = bottom, rate
        self.components = torch.from_numpy(components)
        target = torch.from_numpy(_training_embedding(bottom))[:, self.components]
        self.scale = float(target.std()) if target.numel() else 1.0
        self.target = target
        self.start = bottom.norms()
        self.shrinkage = 0.0
        generator = np.random.default_rng(derived_seed(bottom.seed, "stage 3"))
        self.order = generator
        self.held = torch.from_numpy(generator.permutation(len(target))[: len(target) // 5])

    def run(self, price: float, epochs: int, rows: np.ndarray | None = None, frozen: Tensor | None = None) -> None:
        """Epochs of proximal steps; weights of ``frozen`` inputs stay at zero."""
        torch, b = torch_module(), self.bottom
        optimiser = torch.optim.SGD(b.module.parameters(), lr=self.rate)
        b.module.train()
        size = b.settings.batch_size
        pool = np.arange(len(self.target)) if rows is None else rows
        for _ in range(epochs):
            order = self.order.permutation(pool)
            for start in range(0, len(order), size):
                here = torch.from_numpy(order[start : start + size])
                out = b.module(b.matrix[here])[:, self.components]
                loss = ((out - self.target[here]) ** 2).sum(dim=1).mean()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(b.module.parameters(), 10.0)
                if frozen is not None:
                    b.first.weight.grad[:, frozen] = 0.0
                optimiser.step()
                if price:
                    shrink_columns(b.first.weight, b.owner, b.n_groups, price * self.rate)
                self.shrinkage += price * self.rate

    def until_copies_are_zero(self, epochs: int, quantile: float) -> float:
        """One proximal step so large that ``quantile`` of the copies are at zero; then repair the embedding.

        All columns began at one small norm, so what a copy has gained is what a column gains without a signal.
        """
        torch, b = torch_module(), self.bottom
        copies = np.sort(b.norms()[b.n_columns :])
        level = float(copies[max(0, int(np.ceil(quantile * len(copies))) - 1)])
        shrink_columns(b.first.weight, b.owner, b.n_groups, level)
        self.shrinkage = level
        gone = torch.from_numpy(b.norms() == 0)[b.owner]
        with torch.no_grad():
            b.first.weight[:, len(b.encoder.owner) :] = 0.0  # the copies have done their work
        gone[len(b.encoder.owner) :] = True
        self.run(0.0, epochs, frozen=gone)
        return level

    def cheapest_match(self, epochs: int) -> float:
        """The largest lambda that explains half of the embedding on held-out rows after a third of the stage.

        The whole stage then shrinks three times as much: to ask for half after all of it left 39 % of Gina's noise in,
        and the network was worse for it (0.862 against 0.902, seed 0). Lower if no column at all would be left.
        """
        saved = copy.deepcopy(self.bottom.module.state_dict())
        train = np.setdiff1d(np.arange(len(self.target)), self.held.numpy())

        def run(price: float, length: int, rows: np.ndarray | None = None) -> None:
            self.bottom.module.load_state_dict(copy.deepcopy(saved))
            self.shrinkage = 0.0
            self.run(price, length, rows)

        def explains(price: float) -> bool:
            run(price, max(1, epochs // 3), train)
            return self.match() >= 0.5

        good = list(itertools.takewhile(explains, COLUMN_LAMBDAS))
        for price in good[:0:-1]:
            run(price, epochs)
            if self.bottom.norms().any():
                return price
        run(COLUMN_LAMBDAS[0], epochs)
        return COLUMN_LAMBDAS[0]

    def match(self) -> float:
        """Share of the embedding's variance that is still explained, on held-out rows."""
        torch, b = torch_module(), self.bottom
        if not len(self.components):
            return 0.0
        b.module.eval()
        with torch.no_grad():
            out = b.module(b.matrix[self.held])[:, self.components]
            error = ((out - self.target[self.held]) ** 2).sum()
            total = ((self.target[self.held] - self.target[self.held].mean(dim=0)) ** 2).sum()
        return float(1 - error / total.clamp_min(1e-12))

    def wipe(self) -> None:
        with torch_module().no_grad():
            self.bottom.first.weight.zero_()


@operation(
    "less_vfl.restrict_bottom", when="protection=open|unsaid", discloses="control", about="acknowledgement", times=1
)
def restrict_bottom(party: Party, *, model: str, columns: Places, components: Places, rate: Scale) -> None:
    """Go on with these columns and components (or leave the network, without any)."""
    if len(columns) and len(components):
        bottom = bottom_of(party, model)
        check_places(party, "restrict_bottom", "columns", columns, bottom.n_columns)
        check_places(party, "restrict_bottom", "components", components, bottom.settings.width)
        bottom.settings = replace(bottom.settings, rate=rate)
        bottom.restrict(columns, components, party.name)
    else:
        halves_of(party, model).bottom = None


@operation(
    "less_vfl.restrict_top", when="protection=open|unsaid", discloses="control", about="acknowledgement", times=1
)
def restrict_top(party: Party, *, model: str, components: dict[str, Places], rate: Scale) -> None:
    top = top_of(party, model)
    if set(components) != set(top.widths) or not any(map(len, components.values())):
        raise OperationRefused(party.name, "restrict_top", "its 'components' are not of the parties of this network")
    for name, places in components.items():
        check_places(party, "restrict_top", "components", places, top.widths[name])
    top.settings = replace(top.settings, rate=rate)
    top.restrict(components)


if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

OPERATIONS = (upload_embeddings, select_components, select_columns, restrict_bottom, restrict_top)
