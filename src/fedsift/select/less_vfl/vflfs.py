"""VFLFS (Feng 2022, on overlapping rows only), a baseline of FedSDG-FS.

A split network with group lasso on the first layers, whose bottoms also have to rebuild their columns from the
embedding (an auto-encoder); the ``n_features`` columns with the largest norms are kept.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.models.splitnn import training
from fedsift.models.splitnn.gates import shrink_columns
from fedsift.models.splitnn.model import seed_of
from fedsift.models.splitnn.networks import build_model, derived_seed, torch_module
from fedsift.models.splitnn.training import SplitRun, bottom_of, forget_model
from fedsift.select.base import Outcome, Selector, check_number, check_size
from fedsift.select.less_vfl.lasso_networks import read_norms


@operation("less_vfl.autoencode", discloses="control", about="acknowledgement", times=1)
def autoencode(party: Party, *, model: str, epochs: int, weight: float, price: float) -> None:
    """Local epochs of an auto-encoder with group lasso: embedding -> columns, sharing the bottom model."""
    torch, bottom = torch_module(), bottom_of(party, model)
    s = bottom.settings
    decoder = party.state.get(f"{model}/decoder")
    if decoder is None:
        seed = derived_seed(s["seed"], "decoder", party.name)
        hidden = [int(size) for size in reversed(s["options"].get("hidden", []))]
        decoder = build_model("dense", s["width"], len(bottom.owner), {"hidden": hidden}, seed)
        party.state[f"{model}/decoder"] = decoder
    parameters = [*bottom.module.parameters(), *decoder.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=s["rate"], fused=True)
    generator = np.random.default_rng(derived_seed(s["seed"], "auto-encoder", party.name))
    for _ in range(epochs):
        order = generator.permutation(len(bottom.matrix))
        for start in range(0, len(order), s["batch_size"]):
            x = bottom.matrix[torch.from_numpy(order[start : start + s["batch_size"]])]
            loss = weight * ((decoder(bottom.module(x)) - x) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            shrink_columns(bottom.first.weight, bottom.owner, bottom.n_groups, price * s["rate"])


OPERATIONS = (autoencode, read_norms)


class VFLFS(Selector):
    """Group lasso with an auto-encoder at each party, on the rows that all parties share.

    Parameters
    ----------
    n_features, threshold : how many columns to keep by their weights' norm, or the least norm.
    lambda_ : price of a column's norm. reconstruction : weight of the auto-encoder's loss.
    pretrain_epochs, epochs : of the auto-encoder alone and of the split training.
    """

    name = "vflfs"
    paper = "Feng 2022, VFLFS (without non-overlapping rows); baseline of FedSDG-FS"
    leaks = (
        "label holder: embeddings of every batch, in the clear; others: gradients of their embeddings (which tell "
        "about labels); coordinator: weight norms of columns"
    )
    operations = (*training.OPERATIONS, *OPERATIONS)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        lambda_: float = 0.05,
        reconstruction: float = 1.0,
        pretrain_epochs: int = 10,
        epochs: int = 30,
        batch_size: int = 128,
        learning_rate: float = 0.003,
        embedding: int = 100,
        hidden: tuple[int, ...] = (100,),
        top_hidden: tuple[int, ...] = (50,),
        random_state: Any = 0,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.lambda_ = lambda_
        self.reconstruction = reconstruction
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.embedding = embedding
        self.hidden = hidden
        self.top_hidden = top_hidden
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_number("lambda_", self.lambda_, 0.0)
        check_number("reconstruction", self.reconstruction, 0.0)
        check_number("pretrain_epochs", self.pretrain_epochs, 0, whole=True)
        for name in ("epochs", "batch_size", "embedding"):
            check_number(name, getattr(self, name), 1, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        common = {
            "seed": seed_of(self.random_state), "batch_size": self.batch_size, "rate": self.learning_rate,
            "model": "dense",
        }  # fmt: skip
        bottom = {**common, "options": {"hidden": list(self.hidden)}, "prox": float(self.lambda_)}
        top = {**common, "options": {"hidden": list(self.top_hidden)}}
        run = SplitRun.start(fed, f"vflfs-{secrets.token_hex(4)}", self.embedding, bottom, top)
        members = list(run.widths)
        if self.pretrain_epochs:
            fed.ask(
                autoencode, to=members, model=run.model, epochs=self.pretrain_epochs,
                weight=float(self.reconstruction), price=float(self.lambda_),
            )  # fmt: skip
        run.train(self.epochs)
        found = fed.ask(read_norms, to=members, model=run.model)
        fed.ask(forget_model, to=fed.parties, model=run.model)
        norms = {
            name: found[name].astype(np.float64) if name in found else np.zeros(count)
            for name, count in fed.n_columns.items()
        }
        return Outcome.best(norms, self.n_features, self.threshold, **run.story())
