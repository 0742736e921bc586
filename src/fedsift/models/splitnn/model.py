"""SplitNN: one network over parties that keep their columns. Bottom models at the parties, top model at the label.

The baseline VFDNN of the papers. By default one network trains on shares (``layers/shared_run.py``): no party sees a
row's gradient, another's columns, or a weight. Where parties have networks of their own (``protection="lattice"``, and
``"open"`` for research: ``training.py`` says what leaks), any ``torch.nn.Module`` can be a half:
``register_model(name, factory)`` at the sites (a module cannot be sent).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError
from fedsift.models import parts
from fedsift.models.base import FederatedModel, as_they_went_in, refuse_labels
from fedsift.models.parts import JobHash, check_job, job_of, label_kind, part_file
from fedsift.models.shuffling import Shuffled
from fedsift.models.splitnn import training
from fedsift.models.splitnn.halves import top_of
from fedsift.models.splitnn.layers import lattice, shared_run
from fedsift.models.splitnn.layers.choice import check_neutral, check_protection, outside, own_networks, usual_epochs
from fedsift.models.splitnn.layers.shared_parts import Part
from fedsift.models.splitnn.networks import read_arrays, register_model, torch_module
from fedsift.models.splitnn.part_files import load_part, save_part
from fedsift.models.splitnn.settings import (
    LABEL_PROTECTIONS,
    Blur,
    BottomSettings,
    Options,
    TopSettings,
    check_label_epsilon,
    note_label_epsilon,
)
from fedsift.models.splitnn.training import SplitRun
from fedsift.models.unseen import GRADING, SharedScores

__all__ = ["SplitNN", "load_part", "register_model", "save_part"]


@operation(
    "network.class_names", discloses="plain", about="names of the classes", reply=[str], needs=("class names",),
    times="1 a session",
)  # fmt: skip
def network_classes(party: Party, *, model: str) -> list[str]:
    """Of the labels that the network was trained with; none for a number."""
    kept = party.models.part(model, object) if model in party.models else None
    if isinstance(kept, Part):
        return [] if kept.targets is None else list(kept.targets.classes)
    return [str(name) for name in top_of(party, model).classes]


@operation("network.write_part", discloses="control", about="acknowledgement", times="1 a session")
def write_network(party: Party, *, model: str) -> None:
    save_part(party.site, model, part_file(party, model), job_of(party, model))


@operation("network.read_part", discloses="control", about="acknowledgement", times="1 a session")
def read_network(party: Party, *, model: str, job: JobHash) -> None:
    file = part_file(party, model)
    if not file.exists():
        raise DataError(f"party {party.name!r} has no file {file.name!r} in its model folder")
    facts = read_arrays(file)[0]
    if facts.get("model") != model:
        raise DataError(f"party {party.name!r}: {file.name!r} is the file of another network")
    check_job(party, model, file, facts.get("job"), job)
    load_part(party.site, file)


#: What fit, predict, score, save and load ask, in whatever form.
OPERATIONS = tuple(dict.fromkeys((
    *parts.OPERATIONS, *training.OPERATIONS, *lattice.OPERATIONS, *shared_run.OPERATIONS, network_classes,
    write_network, read_network, *GRADING,
)))  # fmt: skip


class SplitNN(FederatedModel):
    """A network split between parties.

    Parameters
    ----------
    protection : ``"shares"`` (default): one network of ``width`` sines, on shares from end to end; the coordinator
        deals the randomness and must be neutral. ``"lattice"``: networks of the parties' own, the layer between them
        under ciphertexts, for two organisations of which one runs the coordinator; a party sees the gradients of its
        embeddings, which tell about labels. ``"open"``: everything in the clear, for research.
    width : sines of the network on shares, at least two for each of several classes.
    epochs, batch_size : passes over the rows (by default 30, fewer where that were more than 4,000 steps), and rows of
        a step.
    learning_rate : by default on shares 0.5 for few inputs, less for many (plain steps, smaller ones at the end), and
        0.003 (Adam) elsewhere.
    bottom, bottom_options : not on shares: registered model of each party and its options; ``dense`` takes ``hidden``
        and ``dropout``.
    top, top_options : the same for the label holder's top model.
    embedding : not on shares: numbers a row that a party sends, one for all or by party. Smaller leaks less.
    weight_decay : Adam's, not on shares.
    patience : stop when the training loss has not improved for so many epochs.
    label_protection : ``None``, ``"max_norm"`` or ``"noise"``: blur gradients before they leave the label holder.
    label_protection_scale : how much (noise relative to the gradients). Of ``"open"`` only.
    label_epsilon : differential privacy of each label against everybody but its holder, by a randomised copy of the
        labels (``core/labels.py``); no privacy of columns. ``None``: exact labels.
    label_range : with it, for a number as label: (low, high), public, to which it is clipped.
    random_state : the same gives the same network; on shares to the precision of its fixed point (about 1e-3).

    Examples
    --------
    >>> import fedsift as fs, numpy as np, pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 4)), columns=list("abcd"))
    >>> fed = fs.Federation.split(X, (X["a"] * X["c"] > 0).astype(int), parties=2)
    >>> fs.SplitNN(epochs=40).fit(fed).score(fed) > 0.9
    True
    """

    name = "split_network"
    operations = OPERATIONS
    predicting = (*parts.KEPT, read_network, *shared_run.HELD)
    epsilon_parameters = ("label_epsilon",)
    _saved = ("widths_", "loss_curve_", "facts_")

    def __init__(
        self,
        *,
        bottom: str = "dense",
        bottom_options: dict[str, Any] | None = None,
        top: str = "dense",
        top_options: dict[str, Any] | None = None,
        embedding: int | dict[str, int] = 100,
        epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        patience: int | None = None,
        label_protection: str | None = None,
        label_protection_scale: float = 1.0,
        protection: str = "shares",
        width: int = 32,
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: Any = 0,
    ):
        self.bottom = bottom
        self.bottom_options = bottom_options
        self.top = top
        self.top_options = top_options
        self.embedding = embedding
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.label_protection = label_protection
        self.label_protection_scale = label_protection_scale
        self.protection = protection
        self.width = width
        self.label_epsilon = label_epsilon
        self.label_range = label_range
        self.random_state = random_state

    def _fit(self, run: Federation) -> Sequence[str]:
        if self.protection != "shares":
            torch_module()
        split = self._start(run)
        split.train(self._epochs(run), patience=self.patience)
        note_label_epsilon(run, self.label_epsilon)
        self._keep(run, split)
        self.loss_curve_, self.training_ = split.loss_curve, split.story()
        return self._class_names(run)

    def _class_names(self, run: Federation) -> Sequence[str]:
        names: list[str] = run.ask(network_classes, to=run.active, model=self.model_)
        return names

    @property
    def model_id_(self) -> str:
        """The name of the network at the parties; selectors that train one set ``model_`` themselves."""
        return self.model_

    @model_id_.setter
    def model_id_(self, name: str) -> None:
        self.model_ = name

    def _keep(self, run: Federation, split: SplitRun) -> None:
        """Let the parties keep what was trained, and remember who holds it."""
        split.keep()
        self.task_, self.widths_ = run.task, split.widths
        self.facts_ = split.facts()
        self.parties_, self.holders_ = list(run.parties), [run.active]
        self._fed = outside(run)  # whose sites hold it: the same organisations predict other rows with it

    @classmethod
    def of_run(cls, fed: Federation, split: SplitRun, **parameters: Any) -> SplitNN:
        """The network that a selector has trained, in the clear."""
        network = cls(protection="open", batch_size=split.batch_size, **parameters)
        network.model_ = split.model
        network._keep(fed, split)
        return network

    def fit_columns(self, fed: Federation, kept: dict[str, np.ndarray], name: str) -> SplitNN:
        """Fit on the columns of these masks alone, within the run of a selector; the parties keep it."""
        self.model_ = f"{name}-{secrets.token_hex(4)}"
        with fed.view(columns={party: np.flatnonzero(mask) for party, mask in kept.items()}).session() as inner:
            run = self._start(inner)
            run.train(self._epochs(inner))
            self._keep(inner, run)
        return self

    def _epochs(self, run: Federation) -> int:
        return usual_epochs(self.epochs, 30, run.n_rows, self.batch_size)

    def _start(self, run: Federation) -> SplitRun:
        seed, rate = seed_of(self.random_state), self.learning_rate
        if self.protection == "shares":
            split = shared_run.SharedRun.begin(
                run, self.model_, width=self.width, seed=seed, rate=rate, batch_size=self.batch_size, predicts=True,
            )  # fmt: skip
            split.epochs = self._epochs(run)
            return split
        rate = 0.003 if rate is None else rate
        bottom_options: Options = {"hidden": [100]} if self.bottom_options is None else self.bottom_options
        top_options: Options = {"hidden": [50]} if self.top_options is None else self.top_options
        bottom = BottomSettings(seed, self.batch_size, rate, self.bottom, bottom_options, self.weight_decay)
        top = TopSettings(
            seed, self.batch_size, rate, self.top, top_options, self.weight_decay,
            protection=cast("Blur | None", self.label_protection), protection_scale=float(self.label_protection_scale),
        )  # fmt: skip
        return own_networks(self.protection).start(run, self.model_, self.embedding, bottom, top)

    @property
    def measured_unseen(self) -> bool:
        return self.protection == "shares"

    def score(self, fed: Federation, y: Any = None) -> float:
        """Accuracy or R2, on shares, elsewhere computed by the label holder; labels from outside are refused."""
        if self.measured_unseen:
            return super().score(fed, y)
        refuse_labels(y)
        with self._run(fed) as run:
            return self._network(run).score(run)

    def _decision(self, run: Federation) -> np.ndarray:
        """Values, or class probabilities as the network on shares estimates them, elsewhere their logarithms."""
        out = self._network(run).predict(run)
        if self.task_ == "regression":
            return out
        if not hasattr(self, "classes_"):  # a network that a selector trained
            names = self._class_names(run)
            self.classes_ = as_they_went_in(names, {run.ask(label_kind, to=run.active)})
        if self.protection == "shares":  # exact to about 1e-3: the logarithm of a small one would be noise
            return out
        return np.log(np.maximum(out.astype(np.float64), 1e-300))

    def _hold(self, run: Federation) -> None:
        if self.protection != "shares":
            raise ParameterError("only protection='shares' leaves the predictions of a network with the label holder")
        network = self._network(run)
        assert isinstance(network, shared_run.SharedRun)
        network.hold(run)

    def _share(self, run: Federation, shuffled: Shuffled | None = None) -> SharedScores:
        network = self._network(run)
        assert isinstance(network, shared_run.SharedRun)
        return network.share(run, self.task_, shuffled)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return scores if self.protection == "shares" else super()._probabilities(scores)

    def _network(self, run: Federation) -> SplitRun:
        if self.protection == "shares":
            return shared_run.SharedRun.again(run, self.model_, self.facts_)
        return own_networks(self.protection)(run, self.model_, self.widths_, self.batch_size)

    def _check_parties(self, fed: Federation) -> None:
        missing = [name for name in self.widths_ if name not in fed.parties]
        if missing:
            raise ParameterError(f"the network needs party {missing[0]!r}, which this federation does not have")
        if self.protection == "shares":
            check_neutral(fed, "prediction")

    def _write_parts(self, run: Federation) -> None:
        run.ask(write_network, to=run.parties, model=self.model_)

    def _read_parts(self, run: Federation) -> None:
        run.ask(read_network, to=run.parties, model=self.model_, job=self.job_hash_)

    def _check(self, fed: Federation) -> None:
        for name, value in (("epochs", 1 if self.epochs is None else self.epochs), ("batch_size", self.batch_size)):
            if not isinstance(value, int) or value < 1:
                raise ParameterError(f"{name} must be a whole number of at least 1; got {value!r}")
        check_protection(self.protection)
        check_label_epsilon(fed, self.label_epsilon, self.label_range)
        if self.protection == "shares":
            self._check_shares()
            check_neutral(fed, type(self).__name__)
        if self.protection != "open" and self.label_protection is not None:
            raise ParameterError("label_protection is of protection='open': the others compute exact gradients")
        if self.label_protection not in LABEL_PROTECTIONS:
            raise ParameterError(f"label_protection must be one of {LABEL_PROTECTIONS}; got {self.label_protection!r}")
        if isinstance(self.embedding, dict):
            missing = [name for name in fed.parties if name not in self.embedding]
            if missing:
                raise ParameterError(f"embedding names no width for party {missing[0]!r}")
        elif not isinstance(self.embedding, int) or self.embedding < 1:
            raise ParameterError(f"embedding must be a whole number of at least 1; got {self.embedding!r}")

    def _check_shares(self) -> None:
        if not isinstance(self.width, int) or self.width < 2:
            raise ParameterError(f"width must be a whole number of at least 2; got {self.width!r}")
        own = [name for name in ("bottom_options", "top_options") if getattr(self, name) is not None]
        own += [name for name in ("bottom", "top") if getattr(self, name) != "dense"]
        if own:
            raise ParameterError(
                f"{own[0]} is for networks of the parties' own, with protection='lattice' or 'open'; on shares there "
                "is one network of sines, of which you choose the width"
            )


def seed_of(random_state: Any) -> int:
    """A whole number from what scikit-learn allows as random_state (drawn afresh for ``None``)."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**31))
