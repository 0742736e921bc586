"""The baselines of LESS-VFL: group lasso over the wire, and local lasso without the component stage.

``GroupLasso`` trains a network with a group lasso on every party's first layer: by default on shares, by dual averaging
(``shared_lasso.py``), so that nobody sees a gradient, an embedding or a weight; ``protection="open"`` is the paper's
baseline, a proximal step after each batch of a split network in the clear.

``LocalLasso`` is LESS-VFL without stage 2: each party matches all components of its embedding. It knows of the label
by its pre-training in the clear alone, where a party reads every label from its gradients; there is no protected form
of it (without gradients a party would match its own columns, noise and all), so it is for research, and the default
policy of a site refuses it.
"""

from __future__ import annotations

import secrets
import warnings
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation, together
from fedsift.core.party import Party
from fedsift.models.splitnn import training
from fedsift.models.splitnn.halves import bottom_of
from fedsift.models.splitnn.layers.choice import check_neutral, grown_batch, refit_batch, usual_epochs
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.settings import BottomSettings, TopSettings, check_label_epsilon, note_label_epsilon
from fedsift.models.splitnn.training import SplitRun
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.less_vfl import shared_lasso
from fedsift.select.less_vfl.component_selection import restrict_bottom, restrict_top, select_columns
from fedsift.select.less_vfl.open_form import OpenLessVFL
from fedsift.select.less_vfl.shared_lasso import LassoSettings, train_lasso


@operation(
    "less_vfl.read_norms",
    when="protection=open|unsaid",
    discloses="aggregate",
    about="the norm of each column's weights",
    reply=Array("f"),
    times="100000 a session",
)
def read_norms(party: Party, *, model: str) -> np.ndarray:
    return bottom_of(party, model).norms()


OPERATIONS = (read_norms,)
FORMS = ("shares", "open")


def usual(value: object, protection: str, shares: object, open: object) -> Any:
    """A parameter, or where it is ``None`` what is usual in this form."""
    if value is not None:
        return value
    return shares if protection == "shares" else open


class GroupLasso(Selector):
    """Group lasso on the first layer of a network of all parties.

    Parameters
    ----------
    protection : ``"shares"`` (default): no party sees a gradient, an embedding or a weight; the coordinator deals the
        randomness and must be neutral. ``"open"``: in the clear, for research.
    penalty : price of a column's norm, by default 0.02 on shares and 0.1 in the open form; times the learning rate it
        is what a step takes off.
    epochs, learning_rate : by default 30 (fewer where rows are many) and 0.4 (plain steps; less for many columns) on
        shares, 100 and 0.01 (Adam) in the open form.
    width : sines of the network on shares. batch_size : rows of a step, by default 256, on shares more where they are
        very many. trace_every : epochs between looks at norms.
    refit_epochs : on shares: of the network of the selected columns, ``network_`` (in the open form: the lasso's own).
    label_epsilon : differential privacy of each label against everybody but its holder, by a randomised copy of the
        labels (``core/labels.py``); no privacy of columns. ``None``: exact labels.
    label_range : with it, for a number as label: (low, high), public, to which it is clipped.
    embedding, hidden : of the open form, as in LessVFL.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.GroupLasso(epochs=2, refit_epochs=1).fit(fed).selected_
    >>> sorted(kept)
    ['bank', 'shop']
    """

    name = "group_lasso"
    paper = "Castiglia et al. 2023, baseline Group Lasso; on shares by dual averaging (Xiao 2010, Yang et al. 2010)"
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
        penalty: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        protection: str = "shares",
        width: int = 16,
        refit_epochs: int | None = None,
        embedding: int = 16,
        hidden: tuple[int, ...] = (64, 32),
        trace_every: int = 5,
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        self.penalty = penalty
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.protection = protection
        self.width = width
        self.refit_epochs = refit_epochs
        self.embedding = embedding
        self.hidden = hidden
        self.trace_every = trace_every
        self.label_epsilon = label_epsilon
        self.label_range = label_range
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_choice("protection", self.protection, FORMS)
        check_label_epsilon(fed, self.label_epsilon, self.label_range)
        for name, least, whole in (
            ("penalty", 0.0, False),
            ("learning_rate", 1e-9, False),
            ("epochs", 1, True),
            ("refit_epochs", 1, True),
        ):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least, whole=whole)
        for name in ("embedding", "trace_every"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("batch_size", self.batch_size, 1, whole=True, none=True)
        check_number("width", self.width, 2, whole=True)
        if self.protection == "shares":
            check_neutral(fed, type(self).__name__)

    def _select(self, fed: Federation) -> Outcome:
        if self.protection == "open":
            return self._select_open(fed)
        found = train_lasso(fed, self._settings(fed))
        note_label_epsilon(fed, self.label_epsilon)
        selected = {name: values > 0 for name, values in found.norms.items()}
        if not any(mask.any() for mask in selected.values()):
            self._warn_of_nothing(fed)
        epochs = usual_epochs(self.refit_epochs, 20, fed.n_rows, 128)
        left = int(sum(mask.sum() for mask in selected.values()))
        network = SplitNN(
            width=2 * self.width, epochs=epochs, batch_size=refit_batch(self.batch_size, left, fed.n_rows, epochs),
            random_state=self.random_state,
        )  # fmt: skip
        self.network_ = network.fit_columns(fed, selected, "lasso")
        trace = [{"epoch": at.epoch, "bytes": at.bytes, "norms": at.norms} for at in found.trace]
        return Outcome(found.norms, selected, {
            "norms_by_epoch": trace, "share_kept": float(np.mean(np.concatenate(list(selected.values())))),
            **found.story,
        })  # fmt: skip

    def _epochs(self, rows: int) -> int:
        if self.protection == "open":
            return 100 if self.epochs is None else self.epochs
        return usual_epochs(self.epochs, 30, rows, self._batch_size(rows))

    def _batch_size(self, rows: int) -> int:
        return int(usual(self.batch_size, self.protection, grown_batch(256, rows), 256))

    def _settings(self, fed: Federation) -> LassoSettings:
        return LassoSettings(
            float(usual(self.penalty, self.protection, 0.02, 0.1)), self._epochs(fed.n_rows),
            self._batch_size(fed.n_rows), self.width, usual(self.learning_rate, self.protection, None, 0.01),
            seed_of(self.random_state),
        )  # fmt: skip

    def _warn_of_nothing(self, fed: Federation) -> None:
        text = (
            f"{type(self).__name__} keeps no column: a price of {self._settings(fed).price:g} took the weights of all "
            "of them. network_ answers with the mean. What helps: a lower penalty (a tenth, say), or more epochs where "
            "there are few rows."
        )
        fed.ledger.note(text)
        warnings.warn(text, UserWarning, stacklevel=4)

    def _select_open(self, fed: Federation) -> Outcome:
        settings = self._settings(fed)
        seed, rate = settings.seed, usual(settings.rate, self.protection, 0.4, 0.003)
        hidden = list(self.hidden)
        bottom = BottomSettings(seed, settings.batch_size, rate, "dense", {"hidden": hidden}, prox=settings.price)
        top = TopSettings(seed, settings.batch_size, rate, "dense", {"hidden": []})
        run = SplitRun.start(fed, f"lasso-{secrets.token_hex(4)}", self.embedding, bottom, top)
        trace: list[dict[str, Any]] = []
        start = fed.ledger.bytes()

        def observe(epoch: int) -> None:
            if (epoch + 1) % self.trace_every == 0 or epoch + 1 == settings.epochs:
                norms = fed.ask(read_norms, to=list(run.widths), model=run.model)
                trace.append({"epoch": epoch + 1, "bytes": fed.ledger.bytes() - start, "norms": norms})

        run.train(settings.epochs, observe=observe)
        self.network_ = SplitNN.of_run(fed, run, random_state=self.random_state)
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


class LocalLasso(OpenLessVFL):
    """LESS-VFL without the component stage: each party matches its whole embedding. In the clear, for research.

    Parameters
    ----------
    shadows, quantile, lambda_columns, pretrain_epochs, pretrain_rate, epochs, stage_epochs, stage_rate, embedding,
    hidden, batch_size, learning_rate, start_norm, label_epsilon, label_range : as in ``OpenLessVFL``.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.LocalLasso(epochs=2).fit(fed).selected_
    >>> sorted(kept)
    ['bank', 'shop']
    """

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
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        super().__init__(
            shadows=shadows, quantile=quantile, lambda_columns=lambda_columns, pretrain_epochs=pretrain_epochs,
            pretrain_rate=pretrain_rate, epochs=epochs, stage_epochs=stage_epochs, stage_rate=stage_rate,
            embedding=embedding, hidden=hidden, batch_size=batch_size, learning_rate=learning_rate,
            start_norm=start_norm, label_epsilon=label_epsilon, label_range=label_range,
            random_state=random_state,
        )  # fmt: skip
