"""LESS-VFL: group lasso over vertical parties with one exchange about the label instead of thousands of rounds.

Castiglia et al. 2023: (1) pre-train a split network; (2) the label holder finds out which components of the parties'
embeddings matter; (3) each party drops columns by group lasso on its own, matching those components; (4) training goes
on with what is left. In (1) a party reads every label from the gradients of its embedding, and in (2) the label holder
gets embeddings that tell about columns: ``protection="open"`` is that, for research (``open_form.py``).

``protection="shares"`` (the default) keeps the idea and shows neither:

1. Embeddings are self-taught: a column's components are itself, standardised, and its square. No message.
2. One exchange says which components matter: class sums under ciphertexts, opened by the coordinator from two halves,
   and an F test (``screening.py``). The level is that of columns without a signal: ``quantile`` of them go, and of all
   that pass at most the share ``screen_level`` is expected to be noise (Benjamini-Hochberg over all parties).
3. Each party hears which of its columns have a component that matters, and drops by group lasso those that the others
   explain (``matching.py``). No message but the columns left.
4. ``network_`` is trained on shares on what is left.

What pre-training on shares would cost and find, and why auto-encoders do not serve, is in docs/less-vfl.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Operation, together
from fedsift.errors import ReplyError
from fedsift.models.splitnn.layers.choice import check_neutral, refit_batch, usual_epochs
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.settings import note_label_epsilon
from fedsift.select.base import Outcome, check_choice, check_number
from fedsift.select.less_vfl import matching, screening
from fedsift.select.less_vfl.matching import match_components
from fedsift.select.less_vfl.open_form import OpenLessVFL
from fedsift.select.less_vfl.screening import benjamini_hochberg, label_screen

FORMS = ("shares", "open")


class LessVFL(OpenLessVFL):
    """Group lasso with almost no communication.

    Parameters
    ----------
    protection : ``"shares"`` (default) shows no label, no embedding and no gradient; the coordinator must be neutral.
        ``"open"``: the paper's way in the clear, for research.
    quantile : share of the columns without a signal that goes: 0.97 by default, of shuffled copies 0.99 in the open
        form.
    screen_level : false-discovery rate of the label screen, 0.05 by default; 0.01 in the open form.
    squares : a column's square is a component too.
    match : share of the components' variance that a party's remaining columns must explain; 1: none is dropped for
        being explained by others.
    width, epochs, batch_size : of ``network_``, trained on shares on what is left (18 epochs by default, fewer where
        rows are many).
    label_epsilon : differential privacy of each label against everybody but its holder, by a randomised copy of the
        labels (``core/labels.py``); no privacy of columns. ``None``: exact labels.
    label_range : with it, for a number as label: (low, high), public, to which it is clipped.
    shadows, screen, lambda_columns, lambda_components, pretrain_epochs, pretrain_rate, stage_epochs, stage_rate,
    embedding, hidden, learning_rate, start_norm, patience, keep_model, scheme : of the open form (``OpenLessVFL``).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.LessVFL().fit(fed).selected_
    >>> sorted(kept)
    ['bank', 'shop']
    """

    name = "less_vfl"
    paper = "Castiglia et al. 2023, LESS-VFL (Algorithm 1); self-taught components, label screen and shadows are ours"
    leaks = (
        "coordinator: per-class sums of unnamed standardised columns and of their squares, p values; parties: which of "
        "their columns pass, then which are left; label holder: the network's outputs when it predicts; in the open "
        "form also embeddings of the training rows to the label holder and gradients of embeddings (which tell about "
        "labels) to their party"
    )
    operations: ClassVar[tuple[Operation, ...]] = together(
        OpenLessVFL.operations, SplitNN.operations, matching.OPERATIONS, screening.OPERATIONS
    )

    @classmethod
    def told_beside(cls, parameters: Mapping[str, object], columns: int) -> float:
        """Beside which columns are left: of the others which had passed the label's screen."""
        return 0.0 if parameters.get("match") == 1 else columns * (math.log2(3) - 1)

    def __init__(
        self,
        *,
        protection: str = "shares",
        quantile: float | None = None,
        screen_level: float | None = None,
        squares: bool = True,
        match: float = 0.9,
        width: int = 32,
        epochs: int | None = None,
        batch_size: int = 256,
        shadows: bool = True,
        screen: bool = False,
        lambda_columns: float | str = "auto",
        lambda_components: float | str = "auto",
        pretrain_epochs: int = 2,
        pretrain_rate: float = 0.001,
        stage_epochs: int = 30,
        stage_rate: float = 0.01,
        embedding: int = 16,
        hidden: tuple[int, ...] = (64, 32),
        learning_rate: float = 0.01,
        start_norm: float = 0.01,
        patience: int | None = None,
        keep_model: bool = True,
        scheme: str = "auto",
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        super().__init__(
            shadows=shadows, quantile=quantile, screen=screen, screen_level=screen_level, lambda_columns=lambda_columns,
            lambda_components=lambda_components, pretrain_epochs=pretrain_epochs, pretrain_rate=pretrain_rate,
            epochs=epochs, stage_epochs=stage_epochs, stage_rate=stage_rate, embedding=embedding, hidden=hidden,
            batch_size=batch_size, learning_rate=learning_rate, start_norm=start_norm, patience=patience,
            keep_model=keep_model, scheme=scheme, label_epsilon=label_epsilon, label_range=label_range,
            random_state=random_state,
        )  # fmt: skip
        self.protection = protection
        self.squares = squares
        self.match = match
        self.width = width

    def _check(self, fed: Federation) -> None:
        super()._check(fed)
        check_choice("protection", self.protection, FORMS)
        check_number("match", self.match, 0.0, 1.0)
        check_number("width", self.width, 2, whole=True)
        if self.protection == "shares":
            check_neutral(fed, type(self).__name__)

    def _select(self, fed: Federation) -> Outcome:
        if self.protection == "open":
            return super()._select(fed)
        begun = fed.ledger.bytes()
        note_label_epsilon(fed, self.label_epsilon)
        p = label_screen(fed, self.scheme)
        passed = self._passed(p)
        replies = fed.ask(
            match_components, to=fed.parties, each={name: {"passed": bits} for name, bits in passed.items()},
            share=float(self.match), seed=seed_of(self.random_state),
        )  # fmt: skip
        for name, reply in replies.items():
            if np.shape(reply["kept"]) != passed[name].shape:
                raise ReplyError(name, "match_components", "it kept another number of columns than it has")
        kept = {name: reply["kept"] & passed[name] for name, reply in replies.items()}
        chosen = fed.ledger.bytes()
        if not any(mask.any() for mask in kept.values()):
            self._warn_of_no_signal(fed, p)
        epochs, left = usual_epochs(self.epochs, 18, fed.n_rows, 128), int(sum(mask.sum() for mask in kept.values()))
        network = SplitNN(
            width=self.width, epochs=epochs, batch_size=refit_batch(self.batch_size, left, fed.n_rows, epochs),
            random_state=self.random_state,
        )  # fmt: skip
        self.network_ = network.fit_columns(fed, kept, "less")
        scores = {name: -np.log10(np.maximum(values, 1e-300)) for name, values in p.items()}
        return Outcome(scores, kept, {
            "share_kept": float(np.mean(np.concatenate(list(kept.values())))),
            "columns_passed": {name: int(bits.sum()) for name, bits in passed.items()},
            "components_explained": {name: reply["explained"] for name, reply in replies.items()},
            "bytes": {"selection": chosen - begun, "training": fed.ledger.bytes() - chosen},
        })  # fmt: skip

    def _passed(self, p: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Columns below both levels: that of a column alone, and that of all columns of all parties together."""
        joined = np.concatenate(list(p.values()))
        passed = benjamini_hochberg(joined, self._screen_level) & (joined <= 1 - self._quantile)
        return dict(zip(p, np.split(passed, np.cumsum([len(values) for values in p.values()])[:-1])))

    @property
    def _quantile(self) -> float:
        usual = 0.97 if self.protection == "shares" else 0.99
        return usual if self.quantile is None else self.quantile

    @property
    def _screen_level(self) -> float:
        usual = 0.05 if self.protection == "shares" else 0.01
        return usual if self.screen_level is None else self.screen_level

    def _warn_of_no_signal(self, fed: Federation, p: dict[str, np.ndarray]) -> None:
        joined = np.concatenate(list(p.values()))
        text = (
            f"{type(self).__name__} keeps no column: over {fed.n_rows} rows none of {len(joined)} columns differs "
            f"between the classes by more than chance (least p value {joined.min(initial=1.0):.2g}, needed about "
            f"{self._screen_level / max(1, len(joined)):.2g}). network_ answers with the mean. What helps: more rows, "
            "a higher screen_level (0.2, say), or FedSDG, which finds columns that tell only together."
        )
        fed.ledger.note(text)
        warnings.warn(text, UserWarning, stacklevel=4)
