"""SecureBoost: gradient boosted trees over vertically split columns, on shares.

Cheng et al. 2021 (SecureBoost); the model under PSO-EVFFS. The same trees as histogram XGBoost on the pooled table
with the same bins. By default (``protection="all"``) nobody reads a sum, a node, a leaf or a gradient: trees grow on
shares, with randomness that a neutral coordinator deals (``compared/``). With ``"coordinator"`` it reads the sums of
unnamed candidate cuts and chooses, and the label holder which rows of a node go left (``hidden/``). ``"open"`` is the
encrypted form of the paper, by name: it shows sums to the label holder and nodes to the others. Beside: the first tree
uses the label holder's columns only, every split leaves ``min_leaf`` (``min_cell``) rows on each side.

Modules: ``tree`` (mathematics), ``bins``, ``rows``, ``rounds`` (the label holder's shared steps), ``growing`` (the
conversation), ``predicting``, ``results``, ``store``; ``compared/`` and ``hidden/`` are the forms on shares; ``sums``,
``passive`` and ``label_holder`` the encrypted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_choice, check_number
from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.operation import Operation, together
from fedsift.core.party import share_names
from fedsift.crypto.dp import MOST_DELTA, Privacy
from fedsift.errors import DataError, MissingExtra, ParameterError, ReplyError
from fedsift.models import parts
from fedsift.models.base import FederatedModel
from fedsift.models.boost import explaining, predicting
from fedsift.models.boost.compared.ending import keep_tree_shares
from fedsift.models.boost.growing import OPERATIONS as GROWING
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.hidden.blur import WIDTH
from fedsift.models.boost.plan import Plain
from fedsift.models.boost.predicting import hold_predicted, predict_jointly, walk_jointly
from fedsift.models.boost.results import all_uses, class_names, column_uses, keep_model, keep_records
from fedsift.models.boost.settings import (
    SHOWN,
    WEIGHED_OPENLY,
    check_boosting,
    serves,
    tree_settings,
)
from fedsift.models.boost.stored import OPERATIONS as FILES
from fedsift.models.boost.stored import read_part, write_part
from fedsift.models.boost.tree import PRECISION_BITS

#: What fit, predict, save and load ask.
OPERATIONS = together(
    GROWING, parts.OPERATIONS, FILES, predicting.OPERATIONS, explaining.OPERATIONS,
    [column_uses, keep_model, keep_records, class_names],
)  # fmt: skip


class _SecureBoost(FederatedModel):
    """What classifier and regressor share.

    Parameters
    ----------
    n_estimators, max_depth, learning_rate, gamma, reg_lambda, min_child_weight, subsample, colsample_bytree : as in
        xgboost, and ``n_bins`` is its ``max_bin``.
    sampling_method : ``uniform`` (``subsample``), or ``gradient_based``: a tree learns from the ``top_rate`` of
        the rows with the largest gradients and ``other_rate`` drawn from the rest (weighted up). On shares nobody is
        told which; in the open form only those are encrypted and sent, and the other parties see which they are.
    grow_policy : ``depthwise`` or ``lossguide`` (leaf by leaf, up to ``max_leaves``; in the open form).
    max_leaves : 0 means as many as the depth allows.
    early_stopping_rounds : stop when the loss of held-out rows (``validation_fraction`` of the rows) has not improved
        for so many trees; 0 means never.
    base_score : the score before the first tree; ``None`` takes the mean.
    protection : ``all`` (on shares, nobody reads a sum, a node, a leaf or a gradient; several classes one against the
        rest), ``coordinator`` (on shares, a neutral coordinator reads sums of unnamed candidate cuts, the label holder
        which rows of a node go left at another party's cut), or ``open`` (encrypted gradients; the label holder reads
        sums, the other parties see nodes): see docs/secureboost.md.
    sum_noise : at level ``coordinator`` the deviation of the noise in the sums that it reads, times the largest
        gradient of a row of the node: exact sums (0) are equations that give records (``hidden/blur.py``).
    first_tree_local, min_cell, min_leaf : see the module.
    epsilon, delta : differential privacy of each label against everybody but its holder (``privacy.py``): noise in all
        sums that cuts are chosen from, the start score and the leaves; ``None``: exact. No privacy of columns.
    random_state : for samples of rows and columns; rows are drawn from the label holder's secret and this.
    precision, scheme, rows_per_ciphertext : of the open form alone: bits of a gradient, additive encryption, ``None``
        lets a cost model decide.
    """

    otherwise = WEIGHED_OPENLY
    operations: ClassVar[tuple[Operation, ...]] = OPERATIONS
    predicting: ClassVar[tuple[Operation, ...]] = together(parts.KEPT, [read_part], predicting.HELD)
    cell_parameters = ("min_cell", "min_leaf")
    epsilon_parameters = ("epsilon",)
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {"sum_noise": (WIDTH, "boost.half_sums")}
    _saved = ("n_trees_", "best_iteration_", "validation_curve_", "n_columns_", "feature_importances_")
    _task = ""

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.3,
        n_bins: int = 32,
        gamma: float = 0.0,
        reg_lambda: float = 1.0,
        min_child_weight: float = 1.0,
        subsample: float = 1.0,
        sampling_method: str = "uniform",
        top_rate: float = 0.2,
        other_rate: float = 0.1,
        colsample_bytree: float = 1.0,
        grow_policy: str = "depthwise",
        max_leaves: int = 0,
        early_stopping_rounds: int = 0,
        validation_fraction: float = 0.2,
        base_score: float | None = None,
        multi_output: bool = False,
        protection: str = "all",
        sum_noise: float = WIDTH,
        first_tree_local: bool = True,
        min_cell: int = 10,
        min_leaf: int = 5,
        epsilon: float | None = None,
        delta: float = 1e-6,
        precision: int = PRECISION_BITS,
        scheme: str = "auto",
        rows_per_ciphertext: int | None = None,
        random_state: int = 0,
    ):
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.n_bins = n_bins
        self.gamma = gamma
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.subsample = subsample
        self.sampling_method = sampling_method
        self.top_rate = top_rate
        self.other_rate = other_rate
        self.colsample_bytree = colsample_bytree
        self.grow_policy = grow_policy
        self.max_leaves = max_leaves
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_fraction = validation_fraction
        self.base_score = base_score
        self.multi_output = multi_output
        self.protection = protection
        self.sum_noise = sum_noise
        self.first_tree_local = first_tree_local
        self.min_cell = min_cell
        self.min_leaf = min_leaf
        self.epsilon = epsilon
        self.delta = delta
        self.precision = precision
        self.scheme = scheme
        self.rows_per_ciphertext = rows_per_ciphertext
        self.random_state = random_state

    # -- fitting -----------------------------------------------------------------------------------------------------

    def _fit(self, run: Federation) -> Sequence[str]:
        self.n_columns_ = dict(run.n_columns)
        cuts = grow(
            run, [self._booster(run)], protection=self.protection, scheme=self.scheme,
            least=max(self.min_cell, self.min_leaf), bits=self.precision, first_tree_local=self.first_tree_local,
            per=self.rows_per_ciphertext,
            privacy=None if self.epsilon is None else Privacy(float(self.epsilon), float(self.delta)),
        )  # fmt: skip
        uses = all_uses(run, 1, cuts)[0]
        if self.protection == "all" and run.passive:
            shared = run.ask(keep_tree_shares, to=run.parties, model=self.model_id_)[run.active]
            self.n_trees_, self.best_iteration_, self.validation_curve_ = shared["trees"], shared["rounds"] - 1, []
        else:
            kept = run.ask(keep_model, to=run.active, model=self.model_id_)
            if run.passive:
                run.ask(keep_records, to=run.passive, model=self.model_id_)
            self.n_trees_, self.best_iteration_ = kept["trees"], kept["rounds"] - 1
            self.validation_curve_ = kept["curve"]
        own = run.ask(share_names, to=run.active) if run.names == "shared" else None
        if own is not None and len(own) != self.n_columns_[run.active]:
            raise ReplyError(run.active, "share_names", "it named another number of columns than it counted")
        self.feature_importances_ = self._importances(uses, own, run.active)
        return run.ask(class_names, to=run.active) if self._task == "classification" else []

    def _booster(self, fed: Federation) -> Booster:
        rows: dict[str, Plain] = {"kind": "all"}
        by_gradient = self.sampling_method == "gradient_based"
        if self.early_stopping_rounds:
            rows = {"kind": "validation", "share": self.validation_fraction, "seed": int(self.random_state)}
        return Booster(
            settings=tree_settings(self),
            columns={name: np.arange(count) for name, count in fed.n_columns.items()},
            n_estimators=self.n_estimators, bins=self.n_bins, rows=rows,
            base_score=None if self.base_score is None else float(self.base_score), subsample=float(self.subsample),
            top_rate=float(self.top_rate) if by_gradient else 1.0,
            other_rate=float(self.other_rate) if by_gradient else 0.0,
            colsample_bytree=float(self.colsample_bytree), multi_output=self.multi_output,
            early_stopping_rounds=self.early_stopping_rounds, seed=int(self.random_state),
        )  # fmt: skip

    def _serves(self) -> tuple[str, ...]:
        return serves(self)

    def _check(self, fed: Federation) -> None:
        check_number("max_leaves", self.max_leaves, 0, whole=True)
        for name in ("subsample", "colsample_bytree", "top_rate", "other_rate"):
            check_number(name, getattr(self, name), 1e-9, 1)
        check_choice("sampling_method", self.sampling_method, ("uniform", "gradient_based"))
        if self.sampling_method == "gradient_based":
            if self.top_rate + self.other_rate >= 1:
                raise ParameterError(f"top_rate + other_rate must be below 1, got {self.top_rate + self.other_rate:g}")
            if self.subsample < 1:
                raise ParameterError('subsample is for sampling_method="uniform"; set top_rate and other_rate instead')
        check_choice("grow_policy", self.grow_policy, ("depthwise", "lossguide"))
        check_number("early_stopping_rounds", self.early_stopping_rounds, 0, whole=True)
        check_number("validation_fraction", self.validation_fraction, 0.02, 0.5)
        check_number("sum_noise", self.sum_noise, 0, 1000)
        check_boosting(self, fed, least_depth=0 if self.max_leaves else 1)
        self._check_privacy(fed)
        check_number("precision", self.precision, 8, 40, whole=True)
        check_number("rows_per_ciphertext", self.rows_per_ciphertext, 1, 8, whole=True, none=True)
        if fed.task != self._task:
            raise DataError(f"{type(self).__name__} is for {self._task}; the label of {fed.active!r} is for {fed.task}")
        self._check_target(fed)

    def _check_privacy(self, fed: Federation) -> None:
        """With epsilon every look at labels is counted; what cannot be counted is refused."""
        check_number("epsilon", self.epsilon, 1e-3, 100, none=True)
        check_number("delta", self.delta, 1e-12, MOST_DELTA)
        if self.epsilon is None:
            return
        told = {
            "a classifier": self._task == "classification",
            "early_stopping_rounds=0": not self.early_stopping_rounds,
            "sampling_method='uniform'": self.sampling_method == "uniform",
            "multi_output=False": not self.multi_output,
            "grow_policy='depthwise'": self.grow_policy == "depthwise" and self.max_depth > 0,
        }
        missing = [what for what, holds in told.items() if not holds]
        if missing:
            raise ParameterError(
                f"epsilon={self.epsilon:g} needs {', '.join(missing)}: other looks at labels have no noise"
            )
        if self.protection == "all":
            raise ParameterError(
                f"epsilon={self.epsilon:g} cannot be had with protection='all' (the default): nobody reads a sum, so "
                f"there is none to add noise to. {SHOWN}"
            )

    def _check_target(self, fed: Federation) -> None:
        check_number("base_score", self.base_score, -1e12, 1e12, none=True)

    def _importances(self, uses: dict[str, Any], own: list[str] | None, active: str) -> pd.DataFrame:
        rows = []
        for name, count in self.n_columns_.items():
            splits, gain = np.zeros(count, dtype=np.int64), np.zeros(count)
            if name in uses:
                splits[uses[name]["columns"]], gain[uses[name]["columns"]] = uses[name]["splits"], uses[name]["gain"]
            labels = own if own is not None and name == active else [f"column {i}" for i in range(count)]
            rows += [
                {"party": name, "column": i, "feature": labels[i], "splits": int(splits[i]), "gain": float(gain[i])}
                for i in range(count)
            ]
        return pd.DataFrame(rows, columns=["party", "column", "feature", "splits", "gain"])

    # -- using -------------------------------------------------------------------------------------------------------

    def _decision(self, run: Federation) -> np.ndarray:
        return predict_jointly(run, self.model_id_, protection=self.protection)

    def _hold(self, run: Federation) -> None:
        walk_jointly(run, self.model_id_, protection=self.protection)
        run.ask(hold_predicted, to=run.active, model=self.model_id_)

    def _write_parts(self, run: Federation) -> None:
        run.ask(write_part, to=self.parties_, model=self.model_id_)

    def _read_parts(self, run: Federation) -> None:
        run.ask(read_part, to=self.parties_, model=self.model_id_, job=self.job_hash_)

    def plot_importance(self, path: str | Path | None = None, *, by: str = "gain", top: int = 20) -> Any:
        """A bar chart of the most used columns (plotly figure); written as HTML when ``path`` is given."""
        check_is_fitted(self, "model_id_")
        check_choice("by", by, ("gain", "splits"))
        try:
            import plotly.graph_objects as graph
        except ImportError:
            raise MissingExtra("plotly", "report") from None
        frame = self.feature_importances_.sort_values(by, ascending=False).head(top).iloc[::-1]
        names = [f"{row.party}: {row.feature}" for row in frame.itertuples()]
        figure = graph.Figure(graph.Bar(x=frame[by].tolist(), y=names, orientation="h"))
        figure.update_layout(title=f"Column importance by {by}", xaxis_title=by)
        if path is not None:
            write_atomic(path, figure.to_html(include_plotlyjs=True, full_html=True))
        return figure


def _with_parameters(text: str) -> str:
    """The docstring of a class with the parameters that both classes have, before its examples."""
    head, examples, rest = text.partition("    Examples\n")
    return head + (_SecureBoost.__doc__ or "").partition("\n\n")[2].rstrip() + "\n\n" + examples + rest


class SecureBoostClassifier(_SecureBoost):
    """Boosted trees for two or more classes (a tree a class, or ``multi_output=True``: one tree for all).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> model = fs.SecureBoostClassifier(n_estimators=5, max_depth=2).fit(fed)
    >>> model.score(fed) > 0.9
    True
    """

    __doc__ = _with_parameters(__doc__)
    name = "boost_classifier"
    _task = "classification"

    def _check_target(self, fed: Federation) -> None:
        if self.base_score is not None and fed.n_classes == 2:
            check_number("base_score", self.base_score, 1e-7, 1 - 1e-7)


class SecureBoostRegressor(_SecureBoost):
    """Boosted trees for a number (squared error).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.SecureBoostRegressor(n_estimators=5, max_depth=2).fit(fed).score(fed) > 0.3
    True
    """

    __doc__ = _with_parameters(__doc__)
    name = "boost_regressor"
    _task = "regression"
