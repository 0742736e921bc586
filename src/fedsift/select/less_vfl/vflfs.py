"""VFLFS (Feng 2022, on overlapping rows only), a baseline of FedSDG-FS.

A split network with group lasso on the first layers, whose bottoms also have to rebuild their columns from the
embedding (an auto-encoder); the ``n_features`` columns with the largest norms are kept.

On shares (the default) the network is the one of ``shared_lasso.py``: each party's first weights are those of an
auto-encoder that it trained on its own columns, and nobody sees what becomes of them. ``protection="open"`` is the
paper's way in the clear, for research.
"""

from __future__ import annotations

import secrets
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation, together
from fedsift.core.party import Party
from fedsift.models.splitnn.gates import shrink_columns
from fedsift.models.splitnn.halves import bottom_of
from fedsift.models.splitnn.layers.choice import check_neutral, grown_batch, refit_batch, usual_epochs
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.networks import build_model, derived_seed, torch_module
from fedsift.models.splitnn.settings import BottomSettings, TopSettings, check_label_epsilon, note_label_epsilon
from fedsift.models.splitnn.training import SplitRun
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_size
from fedsift.select.less_vfl import shared_lasso
from fedsift.select.less_vfl.component_selection import Epochs, check_epochs
from fedsift.select.less_vfl.lasso_networks import FORMS, read_norms, usual
from fedsift.select.less_vfl.shared_lasso import LassoSettings, train_lasso


@dataclass(frozen=True)
class Decoder:
    """From a party's embedding back to its columns."""

    model: str
    module: Any


@operation("less_vfl.autoencode", when="protection=open|unsaid", discloses="control", about="acknowledgement", times=1)
def autoencode(party: Party, *, model: str, epochs: Epochs, weight: float, price: float) -> None:
    """Local epochs of an auto-encoder with group lasso: embedding -> columns, sharing the bottom model."""
    check_epochs(party, "autoencode", epochs, "pretrain_epochs")
    torch, bottom = torch_module(), bottom_of(party, model)
    s = bottom.settings
    kept: Decoder | None = party.state.get(Decoder)
    if kept is None or kept.model != model:
        seed = derived_seed(bottom.seed, "decoder", party.name)
        told = s.options.get("hidden")
        hidden = [int(size) for size in reversed(told)] if isinstance(told, list) else []
        kept = party.keep(Decoder(model, build_model("dense", s.width, len(bottom.owner), {"hidden": hidden}, seed)))
    decoder = kept.module
    parameters = [*bottom.module.parameters(), *decoder.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=s.rate, fused=True)
    generator = np.random.default_rng(derived_seed(bottom.seed, "auto-encoder", party.name))
    for _ in range(epochs):
        order = generator.permutation(len(bottom.matrix))
        for start in range(0, len(order), s.batch_size):
            x = bottom.matrix[torch.from_numpy(order[start : start + s.batch_size])]
            loss = weight * ((decoder(bottom.module(x)) - x) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            shrink_columns(bottom.first.weight, bottom.owner, bottom.n_groups, price * s.rate)


OPERATIONS = (autoencode, read_norms)


class VFLFS(Selector):
    """Group lasso with an auto-encoder at each party, on the rows that all parties share.

    Parameters
    ----------
    n_features, threshold : how many columns to keep by their weights' norm, or the least norm.
    protection : ``"shares"`` (default): no party sees a gradient, an embedding or a weight; the coordinator deals the
        randomness and must be neutral. ``"open"``: in the clear, for research.
    refit_epochs : on shares: of the network of the selected columns, ``network_`` (in the open form: the lasso's own,
        of all columns).
    penalty : price of a column's norm, by default 0.01 on shares and 0.05 in the open form.
    reconstruction : weight of the auto-encoder's loss.
    pretrain_epochs, epochs : of the auto-encoder alone and of the training of all (30, fewer where rows are many).
    batch_size, learning_rate : by default 256 (more where rows are very many) and 0.4 (plain steps; less for many
        columns) on shares, 128 and 0.003 (Adam) in the open form.
    label_epsilon : differential privacy of each label against everybody but its holder, by a randomised copy of the
        labels (``core/labels.py``); no privacy of columns. ``None``: exact labels.
    label_range : with it, for a number as label: (low, high), public, to which it is clipped.
    width : sines of the network on shares. embedding, hidden, top_hidden : of the open form.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.VFLFS(n_features=2, pretrain_epochs=1, epochs=2, refit_epochs=1).fit(fed).selected_
    >>> sum(len(columns) for columns in kept.values())
    2
    """

    name = "vflfs"
    paper = "Feng 2022, VFLFS (without non-overlapping rows); baseline of FedSDG-FS"
    leaks = (
        "coordinator: weight norms of columns about twenty times, losses; parties: which of their columns are kept; in "
        "the open form also embeddings of every batch to the label holder and gradients of embeddings (which tell "
        "about labels) to their party"
    )
    operations = together(SplitNN.operations, OPERATIONS, shared_lasso.OPERATIONS)
    epsilon_parameters = ("label_epsilon",)
    repeats_within = 0.1

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        penalty: float | None = None,
        reconstruction: float = 1.0,
        pretrain_epochs: int = 10,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        protection: str = "shares",
        width: int = 16,
        refit_epochs: int | None = None,
        embedding: int = 100,
        hidden: tuple[int, ...] = (100,),
        top_hidden: tuple[int, ...] = (50,),
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.penalty = penalty
        self.reconstruction = reconstruction
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.protection = protection
        self.width = width
        self.refit_epochs = refit_epochs
        self.embedding = embedding
        self.hidden = hidden
        self.top_hidden = top_hidden
        self.label_epsilon = label_epsilon
        self.label_range = label_range
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_number("penalty", self.penalty, 0.0, none=True)
        check_number("reconstruction", self.reconstruction, 0.0)
        check_number("pretrain_epochs", self.pretrain_epochs, 0, whole=True)
        check_choice("protection", self.protection, FORMS)
        check_label_epsilon(fed, self.label_epsilon, self.label_range)
        check_number("embedding", self.embedding, 1, whole=True)
        for name in ("epochs", "refit_epochs"):
            check_number(name, getattr(self, name), 1, whole=True, none=True)
        check_number("width", self.width, 2, whole=True)
        if self.batch_size is not None:
            check_number("batch_size", self.batch_size, 1, whole=True)
        if self.protection == "shares":
            check_neutral(fed, type(self).__name__)

    @property
    def _price(self) -> float:
        return float(usual(self.penalty, self.protection, 0.01, 0.05))

    def _batch_size(self, rows: int) -> int:
        return int(usual(self.batch_size, self.protection, grown_batch(256, rows), 128))

    def _epochs(self, fed: Federation) -> int:
        return usual_epochs(self.epochs, 30, fed.n_rows, self._batch_size(fed.n_rows))

    def _select(self, fed: Federation) -> Outcome:
        if self.protection == "open":
            return self._select_open(fed)
        found = train_lasso(fed, LassoSettings(
            self._price, self._epochs(fed), self._batch_size(fed.n_rows), self.width,
            self.learning_rate, seed_of(self.random_state), self.pretrain_epochs,
            float(self.reconstruction),
        ))  # fmt: skip
        note_label_epsilon(fed, self.label_epsilon)
        left = int(sum((values > 0).sum() for values in found.norms.values()))
        if self.n_features is not None and left < self.n_features:
            text = (
                f"VFLFS: a price of {self._price:g} left weights to {left} columns only, and {self.n_features} are "
                "asked for: the others are taken by their place. What helps: a lower penalty (a tenth, say)."
            )
            fed.ledger.note(text)
            warnings.warn(text, UserWarning, stacklevel=4)
        outcome = Outcome.best(found.norms, self.n_features, self.threshold, **found.story)
        epochs = usual_epochs(self.refit_epochs, 20, fed.n_rows, 128)
        columns = int(sum(mask.sum() for mask in outcome.selected.values()))
        network = SplitNN(
            width=2 * self.width, epochs=epochs, batch_size=refit_batch(self.batch_size, columns, fed.n_rows, epochs),
            random_state=self.random_state,
        )  # fmt: skip
        self.network_ = network.fit_columns(fed, outcome.selected, "vflfs")
        return outcome

    def _select_open(self, fed: Federation) -> Outcome:
        seed, rate = seed_of(self.random_state), usual(self.learning_rate, self.protection, 0.4, 0.003)
        hidden = list(self.hidden)
        bottom = BottomSettings(seed, self._batch_size(fed.n_rows), rate, "dense", {"hidden": hidden}, prox=self._price)
        top = TopSettings(seed, self._batch_size(fed.n_rows), rate, "dense", {"hidden": list(self.top_hidden)})
        run = SplitRun.start(fed, f"vflfs-{secrets.token_hex(4)}", self.embedding, bottom, top)
        members = list(run.widths)
        if self.pretrain_epochs:
            fed.ask(
                autoencode, to=members, model=run.model, epochs=self.pretrain_epochs,
                weight=float(self.reconstruction), price=self._price,
            )  # fmt: skip
        run.train(self._epochs(fed))
        found = fed.ask(read_norms, to=members, model=run.model)
        self.network_ = SplitNN.of_run(fed, run, random_state=self.random_state)
        norms = {
            name: found[name].astype(np.float64) if name in found else np.zeros(count)
            for name, count in fed.n_columns.items()
        }
        return Outcome.best(norms, self.n_features, self.threshold, **run.story())
