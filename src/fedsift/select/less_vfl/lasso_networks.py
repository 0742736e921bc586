"""The baselines of LESS-VFL: group lasso over the wire, and local lasso without the component stage.

``GroupLasso`` trains the split network with a proximal step on every party's first layer after each batch: columns go
slowly, and every batch costs embeddings up and gradients down. ``LocalLasso`` is LESS-VFL without stage 2: each party
matches all components of its embedding.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.models.splitnn import training
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.training import SplitRun, bottom_of
from fedsift.select.base import Outcome, Selector, check_number
from fedsift.select.less_vfl.component_selection import restrict_bottom, restrict_top, select_columns
from fedsift.select.less_vfl.selector import LessVFL


@operation("less_vfl.read_norms", discloses="aggregate", about="the norm of each column's weights", reply=Array("f"))
def read_norms(party: Party, *, model: str) -> np.ndarray:
    return bottom_of(party, model).norms()


OPERATIONS = (read_norms,)


class GroupLasso(Selector):
    """Group lasso by proximal training over the wire.

    Parameters
    ----------
    lambda_ : price of a column's norm; the proximal step of each batch is lambda_ x learning_rate.
    epochs, batch_size, learning_rate, embedding, hidden : as in LessVFL.
    """

    name = "group_lasso"
    paper = "Castiglia et al. 2023, baseline Group Lasso"
    leaks = (
        "label holder: embeddings of every batch, in the clear; others: gradients of their embeddings (which tell "
        "about labels); coordinator: weight norms of columns"
    )
    operations = (*training.OPERATIONS, *OPERATIONS)

    def __init__(
        self,
        *,
        lambda_: float = 0.1,
        epochs: int = 100,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        embedding: int = 16,
        hidden: tuple[int, ...] = (64, 32),
        trace_every: int = 5,
        random_state: Any = 0,
    ):
        self.lambda_ = lambda_
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.embedding = embedding
        self.hidden = hidden
        self.trace_every = trace_every
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_number("lambda_", self.lambda_, 0.0)
        check_number("learning_rate", self.learning_rate, 1e-9)
        for name in ("epochs", "batch_size", "embedding", "trace_every"):
            check_number(name, getattr(self, name), 1, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        common = {"seed": seed_of(self.random_state), "batch_size": self.batch_size, "rate": self.learning_rate}
        bottom = {**common, "model": "dense", "options": {"hidden": list(self.hidden)}, "prox": float(self.lambda_)}
        top = {**common, "model": "dense", "options": {"hidden": []}}
        run = SplitRun.start(fed, f"lasso-{secrets.token_hex(4)}", self.embedding, bottom, top)
        trace: list[dict[str, Any]] = []
        start = fed.ledger.bytes()

        def observe(epoch: int) -> None:
            if (epoch + 1) % self.trace_every == 0 or epoch + 1 == self.epochs:
                norms = fed.ask(read_norms, to=list(run.widths), model=run.model)
                trace.append({"epoch": epoch + 1, "bytes": fed.ledger.bytes() - start, "norms": norms})

        run.train(self.epochs, observe=observe)
        self.network_ = SplitNN(protection="open", batch_size=self.batch_size, random_state=self.random_state)
        self.network_.model_ = run.model
        self.network_._keep(fed, run)
        norms = {
            name: trace[-1]["norms"][name].astype(np.float64) if name in run.widths else np.zeros(count)
            for name, count in fed.n_columns.items()
        }
        selected = {name: values > 0 for name, values in norms.items()}
        details = {
            "norms_by_epoch": trace,
            "share_kept": float(np.mean(np.concatenate(list(selected.values())))),
            **run.story(),
        }
        return Outcome(norms, selected, details)


class LocalLasso(LessVFL):
    """LESS-VFL without the component stage: each party matches its whole embedding."""

    name = "local_lasso"
    paper = "Castiglia et al. 2023, baseline Local Lasso"
    leaks = (
        "label holder: embeddings of the pre-training batches, in the clear; others: gradients of their embeddings "
        "(which tell about labels); coordinator: weight norms of columns"
    )
    operations = (*training.OPERATIONS, select_columns, restrict_bottom, restrict_top)
    _component_stage = False

    def __init__(
        self,
        *,
        shadows: bool = False,
        quantile: float = 0.99,
        lambda_columns: float | str = "auto",
        pretrain_epochs: int = 5,
        pretrain_rate: float = 0.01,
        epochs: int = 15,
        stage_epochs: int = 30,
        stage_rate: float = 0.01,
        embedding: int = 16,
        hidden: tuple[int, ...] = (64, 32),
        batch_size: int = 256,
        learning_rate: float = 0.01,
        start_norm: float = 0.01,
        random_state: Any = 0,
    ):
        super().__init__(
            shadows=shadows, quantile=quantile, lambda_columns=lambda_columns, pretrain_epochs=pretrain_epochs,
            pretrain_rate=pretrain_rate, epochs=epochs, stage_epochs=stage_epochs, stage_rate=stage_rate,
            embedding=embedding, hidden=hidden, batch_size=batch_size, learning_rate=learning_rate,
            start_norm=start_norm, random_state=random_state,
        )  # fmt: skip
