"""LESS-VFL as published, in the clear, for research: a party reads every label from the gradients of its embedding.

Castiglia et al. 2023. (1) Pre-train a split network for a few epochs. (2) Each party sends its embeddings once; the
label holder sparsifies its own first layer and says which components matter. (3) Each party drops columns by group
lasso on its own, matching those components; no message. (4) Training goes on with what is left.

Ours, ``shadows=True``: with a fixed lambda, what goes is little more than what began with small weights. So each party
trains row-shuffled copies of its columns beside them, all starting at the same small norm, gently (two epochs at a
low rate), and takes the smallest shrinkage that sets ``quantile`` of its own copies to zero: the level is set by
columns that are noise for certain. A party has at least 80 copies, or the quantile would mean little.
``shadows=False`` is the paper, with both lambdas searched without a message.

``screen=True`` adds columns that pass an F test on encrypted class sums (those of SFFS), at a false-discovery rate of
``screen_level`` (Benjamini-Hochberg) within each party.
"""

from __future__ import annotations

import secrets
import warnings
from typing import Any, ClassVar

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Operation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import ReplyError
from fedsift.models.splitnn import training
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.settings import BottomSettings, TopSettings, check_label_epsilon, note_label_epsilon
from fedsift.models.splitnn.training import SplitRun
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.less_vfl import component_selection, screening
from fedsift.select.less_vfl.component_selection import (
    restrict_bottom,
    restrict_top,
    select_columns,
    select_components,
    upload_embeddings,
)
from fedsift.select.less_vfl.screening import screen_columns

LEAST_COPIES = 80


class OpenLessVFL(Selector):
    """Group lasso with almost no communication, in the clear.

    Parameters
    ----------
    shadows : set lambda by permuted copies of the columns (ours) instead of by search (the paper).
    quantile : share of the copies that must reach zero.
    screen, screen_level, scheme : also keep columns that pass an encrypted F test at this false-discovery rate, and the
        test's encryption.
    lambda_columns, lambda_components : penalties; ``"auto"`` searches them without communication.
    pretrain_epochs, epochs : of training before and after selection (the paper's way wants about 5 before).
    pretrain_rate, learning_rate : Adam's, before and after selection. The paper's is 0.01 for both.
    stage_epochs, stage_rate : of the proximal stages.
    embedding, hidden : width of a party's embedding, and of its hidden layers.
    batch_size, patience : of the split training.
    start_norm : norm of every column's weights at the start, with shadows.
    keep_model : keep the trained network at the parties; ``network_`` predicts with it.
    label_epsilon, label_range : as in LessVFL.
    """

    name = "less_vfl"
    paper = "Castiglia et al. 2023, LESS-VFL (Algorithm 1); shadows and screen are ours"
    leaks = (
        "label holder: embeddings of the training rows, in the clear; others: gradients of their embeddings (which "
        "tell about labels), which components matter; coordinator: weight norms of columns"
    )
    operations: ClassVar[tuple[Operation, ...]] = (
        *training.OPERATIONS,
        *component_selection.OPERATIONS,
        *screening.OPERATIONS,
    )
    epsilon_parameters: ClassVar[tuple[str, ...]] = ("label_epsilon",)

    def __init__(
        self,
        *,
        shadows: bool = True,
        quantile: float | None = 0.99,
        screen: bool = False,
        screen_level: float | None = 0.01,
        lambda_columns: float | str = "auto",
        lambda_components: float | str = "auto",
        pretrain_epochs: int = 2,
        pretrain_rate: float = 0.001,
        epochs: int | None = 18,
        stage_epochs: int = 30,
        stage_rate: float = 0.01,
        embedding: int = 16,
        hidden: tuple[int, ...] = (64, 32),
        batch_size: int = 256,
        learning_rate: float = 0.01,
        start_norm: float = 0.01,
        patience: int | None = None,
        keep_model: bool = True,
        scheme: str = "auto",
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        self.shadows = shadows
        self.quantile = quantile
        self.screen = screen
        self.screen_level = screen_level
        self.lambda_columns = lambda_columns
        self.lambda_components = lambda_components
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_rate = pretrain_rate
        self.epochs = epochs
        self.stage_epochs = stage_epochs
        self.stage_rate = stage_rate
        self.embedding = embedding
        self.hidden = hidden
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.start_norm = start_norm
        self.patience = patience
        self.keep_model = keep_model
        self.scheme = scheme
        self.label_epsilon = label_epsilon
        self.label_range = label_range
        self.random_state = random_state

    #: LocalLasso leaves stage 2 out.
    _component_stage = True

    def _check(self, fed: Federation) -> None:
        for name in ("pretrain_epochs", "stage_epochs", "embedding", "batch_size"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("epochs", self._epochs, 0, whole=True)
        check_label_epsilon(fed, self.label_epsilon, self.label_range)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("quantile", self._quantile, 0.5, 1.0)
        check_number("screen_level", self._screen_level, 0.0, 1.0)
        for name in ("learning_rate", "pretrain_rate", "stage_rate", "start_norm"):
            check_number(name, getattr(self, name), 1e-9)
        for name in ("lambda_columns", "lambda_components"):
            if getattr(self, name) != "auto":
                check_number(name, getattr(self, name), 0.0)

    @property
    def _epochs(self) -> int:
        return 18 if self.epochs is None else self.epochs

    @property
    def _quantile(self) -> float:
        return 0.99 if self.quantile is None else self.quantile

    @property
    def _screen_level(self) -> float:
        return 0.01 if self.screen_level is None else self.screen_level

    def _select(self, fed: Federation) -> Outcome:
        begin = len(fed.ledger)
        note_label_epsilon(fed, self.label_epsilon)
        passed = screen_columns(fed, self._screen_level, self.scheme) if self.screen else None
        run = self._start(fed)
        mark = len(fed.ledger)
        epoch = run.train(self.pretrain_epochs, patience=self.patience)
        trained = len(fed.ledger)
        components, price = self._components(fed, run)
        replies = self._columns(fed, run, components)
        staged = len(fed.ledger)
        kept = {name: reply["norms"] > 0 for name, reply in replies.items()}
        if passed is not None:
            kept = {name: mask | passed[name] for name, mask in kept.items()}
        if not any(mask.any() for mask in kept.values()):
            self._warn_of_nothing(fed, replies, components)
        self._restrict(fed, run, kept, components)
        if run.widths and self._epochs:
            run.train(self._epochs, first=epoch, patience=self.patience)
        self._keep(fed, run)
        return self._outcome(fed, replies, kept, components, price, run, (begin, mark, trained, staged))

    def _warn_of_nothing(self, fed: Federation, replies: dict[str, object], components: dict[str, np.ndarray]) -> None:
        """An empty answer says why, and what to do about it."""
        rows, columns = fed.n_rows, sum(fed.n_columns.values())
        steps = self.pretrain_epochs * -(-rows // self.batch_size)
        if not any(len(places) for places in components.values()):
            why = "no component of any embedding helps to predict the label after pre-training"
            what = "raise pretrain_epochs or lower lambda_components"
        elif self.shadows:
            why = (
                f"after {steps} pre-training steps on {rows} rows no column has gained more weight than "
                f"{self._quantile:.0%} of its shuffled copies"
            )
            what = "raise pretrain_epochs, lower batch_size or quantile (0.9, say), or set screen=True"
        else:
            why = f"lambda_columns took all weights of all {columns} columns"
            what = "lower lambda_columns, or raise pretrain_epochs"
        text = f"{type(self).__name__} keeps no column: {why}. What helps: {what}."
        fed.ledger.note(text)
        warnings.warn(text, UserWarning, stacklevel=4)

    def _start(self, fed: Federation) -> SplitRun:
        seed, rate = seed_of(self.random_state), self.pretrain_rate
        bottom = BottomSettings(
            seed, self.batch_size, rate, "dense", {"hidden": list(self.hidden)},
            shadows=LEAST_COPIES if self.shadows else 0,
            equal_norm=float(self.start_norm) if self.shadows else None, prox=0.0,
        )  # fmt: skip
        top = TopSettings(seed, self.batch_size, rate, "dense", {"hidden": []})
        return SplitRun.start(fed, f"less-{secrets.token_hex(4)}", self.embedding, bottom, top)

    def _components(self, fed: Federation, run: SplitRun) -> tuple[dict[str, np.ndarray], float]:
        if not self._component_stage:
            return {name: np.arange(width) for name, width in run.widths.items()}, 0.0
        uploaded = fed.ask(upload_embeddings, to=run.passive, model=run.model)
        answer = fed.ask(
            select_components, to=run.active, model=run.model, embeddings=uploaded,
            price=None if self.lambda_components == "auto" else float(self.lambda_components),
            epochs=self.stage_epochs, rate=0.1,
        )  # fmt: skip
        for name, places in answer["components"].items():
            if not np.isin(places, range(run.widths.get(name, 0))).all() or name not in run.widths:
                raise ReplyError(run.active, "select_components", "it kept components that there are not")
        return answer["components"], answer["lambda"]

    def _columns(self, fed: Federation, run: SplitRun, components: dict[str, np.ndarray]) -> dict[str, Any]:
        each = {name: {"components": components[name]} for name in run.widths}
        replies = fed.ask(
            select_columns, to=list(run.widths), each=each, model=run.model,
            price=None if self.lambda_columns == "auto" else float(self.lambda_columns),
            epochs=self._stage_length,
            rate=self.stage_rate, quantile=self._quantile,
        )  # fmt: skip
        for name, reply in replies.items():
            if len(reply["norms"]) != fed.n_columns[name]:
                raise ReplyError(name, "select_columns", "a norm for each of its columns")
        return replies

    @property
    def _stage_length(self) -> int:
        """Epochs of the column stage; with shadows they only repair the embedding."""
        return max(1, self.stage_epochs // 3) if self.shadows else self.stage_epochs

    def _restrict(
        self, fed: Federation, run: SplitRun, kept: dict[str, np.ndarray], components: dict[str, np.ndarray]
    ) -> None:
        """Tell everybody what goes on; a party without columns or components leaves the network."""
        columns = {name: np.flatnonzero(mask) for name, mask in kept.items()}
        alive = {name: components[name] if len(columns[name]) else components[name][:0] for name in run.widths}
        each = {name: {"columns": columns[name], "components": alive[name]} for name in run.widths}
        rate = float(self.learning_rate)
        fed.ask(restrict_bottom, to=list(run.widths), each=each, model=run.model, rate=rate)
        if any(len(places) for places in alive.values()):
            fed.ask(restrict_top, to=run.active, model=run.model, components=alive, rate=rate)
        run.widths = {name: len(places) for name, places in alive.items() if len(places)}
        run.passive = [name for name in run.widths if name != run.active]

    def _keep(self, fed: Federation, run: SplitRun) -> None:
        self.loss_curve_ = run.loss_curve
        if not self.keep_model or not run.widths:
            return
        self.network_ = SplitNN.of_run(fed, run, random_state=self.random_state)

    def _outcome(
        self, fed: Federation, replies: dict[str, Any], kept: dict[str, np.ndarray],
        components: dict[str, np.ndarray], price: float, run: SplitRun, marks: tuple[int, int, int, int],
    ) -> Outcome:  # fmt: skip
        counts = fed.n_columns
        none = {name: np.zeros(count) for name, count in counts.items()}
        scores = {name: replies[name]["norms"].astype(np.float64) if name in replies else none[name] for name in counts}
        selected = {name: kept.get(name, none[name].astype(bool)) for name in counts}
        below = {name: r["start"] <= r["shrinkage"] for name, r in replies.items()}
        entries = fed.ledger.entries
        points = [*marks, len(entries)]
        stages = zip(("start", "pre-training", "selection", "training"), points, points[1:])
        details = {
            "share_kept": float(np.mean(np.concatenate(list(selected.values())))),
            "removed_by_start_norms_alone": float(np.mean(np.concatenate(list(below.values())))),
            "start_norm_below_shrinkage": {name: mask.tolist() for name, mask in below.items()},
            "components_kept": {name: len(places) for name, places in components.items()},
            "lambda_components": price,
            "lambda_columns": {name: r["lambda"] for name, r in replies.items()},
            "copies_zero": {name: r["copies_zero"] for name, r in replies.items()},
            "embedding_explained": {name: r["match"] for name, r in replies.items()},
            "bytes": {stage: sum(e.bytes for e in entries[a:b]) for stage, a, b in stages},
            "norms_by_epoch": [
                {"epoch": epoch, "norms": {name: r[when].tolist() for name, r in replies.items()}}
                for epoch, when in ((0, "start"), (self._stage_length, "norms"))
            ],
            **run.story(),
        }
        return Outcome(scores, selected, details)
