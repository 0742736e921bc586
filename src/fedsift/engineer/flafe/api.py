"""Vertical-FLAFE and Hybrid-FLAFE: new features from columns of different parties, combined under encryption.

Overman and Klabjan, "Federated Automated Feature Engineering", section 4.2. Every party makes candidates from its own
columns and takes the ``n_operands`` most important; every two of different parties are multiplied under encryption; one
of the two owners, drawn by lot, gets the product (with noise, if ``epsilon`` is set) and keeps it if it is among the
``n_features`` most important of what it has then.

``protection="statistics"`` is ours: no product column ever leaves encryption, only sums over all rows do
(`statistics.py`). With ``epsilon`` all that leaves a party has noise on it, in either form (`private.py`).

Departures. Importance without sharing labels (`importance.py`; ``importance="forest"`` is the paper's way and shares
them). A key for every holder instead of one secret key at all parties, and the other owner multiplies instead of the
coordinator (`combine.py` says why). An epsilon that holds (`privacy.py`); the paper's does not, and is not offered.
Where the paper misleads, and the figures: docs/flafe.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import together
from fedsift.engineer.flafe import (
    candidates,
    choice,
    compare,
    importance,
    joint,
    joint_moments,
    prediction,
    private,
    products,
    shared_residual,
    statistics,
)
from fedsift.engineer.flafe.base import Flafe
from fedsift.engineer.flafe.features import FUNCTIONS, cross_formula
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.joint_moments import JointProducts
from fedsift.engineer.flafe.prediction import predict_jointly
from fedsift.engineer.flafe.privacy import Plan
from fedsift.engineer.flafe.private import WEIGHT_BITS, PrivateRun
from fedsift.engineer.flafe.statistics import MOST_WEIGHT, StatisticsRun, Term, held_out_error, powers_of
from fedsift.engineer.noisy_model import BITS
from fedsift.errors import ParameterError
from fedsift.mpc import horizontal_study, secure_sum
from fedsift.mpc.dealer import check_neutral
from fedsift.select.base import check_number
from fedsift.select.engineered import add_engineered

_JOINTLY = "protection='statistics'"
_MASKS = "it reads columns under masks that two parties share, and deals the randomness of products"

#: What both forms ask.
OPERATIONS = (
    *candidates.OPERATIONS,
    *choice.OPERATIONS,
    *products.OPERATIONS,
    *compare.OPERATIONS,
    *joint.OPERATIONS,
    *joint_moments.OPERATIONS,
    *private.COLUMNS,
    add_engineered,
)


class VerticalFLAFE(Flafe):
    """Build new features over column-partitioned parties.

    Parameters
    ----------
    n_operands : features that each party brings into the combination (the paper's K).
    n_features : combined features that each party keeps in the end.
    keep_own : keep a party's own chosen features beside them; False (the paper): both compete for the places.
    functions : products to make: ``ab``, ``a2b``, ``ab2``, ``a2b2``.
    clip : columns are held within so many deviations.
    importance : ``"bins"`` (labels stay encrypted) or ``"forest"`` (the paper; labels are sent to all parties).
    epsilon, delta : total privacy loss of a person's row over all releases of the run, towards everybody; None for no
        noise. With it operands are the first ``n_operands`` columns of each party, and importances, validation rows
        and ``functions`` of "statistics" (it takes products ab) play no part.
    bounds : with ``epsilon``, public ranges of columns (``{"age": (0, 120)}``, or ``"shop.age"``): only these take
        part; None: ranges are drawn under the epsilon, at a price.
    target_bounds : with ``epsilon`` and ``protection="statistics"``, the public range of an amount that is predicted.
    protection : what may leave encryption: ``"columns"`` (the paper: a combined column, to its holder),
        ``"statistics"`` (sums over all rows; see ``predict``), ``"open"`` (research: the coordinator multiplies in the
        clear).
    max_iter, step : of ``protection="statistics"``: cross-party products that are looked for, part of a step taken.
    statistics_clip, max_weight : the same, without epsilon.
    max_columns : of a wide party only so many columns are grown from: with ``importance="bins"`` those that stand for
        its others best, whatever the label (run a filter first to have others); with forests the most important.
    min_cell : of ``importance="bins"``: no bin that the target is summed over has fewer rows.
    validation : share of rows that nothing is fitted on; the comparison is made there (0: no comparison).
    scheme : additive encryption of the labels (``importance="bins"``).

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = X["income"] * X["basket"]
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> engineer = fs.VerticalFLAFE(n_operands=2, n_features=1, functions=["ab"], importance="forest").fit(fed)
    >>> [feature.function for feature in engineer.cross_]
    ['ab', 'ab']
    """

    name = "vertical_flafe"
    _protections = ("columns", "statistics", "open")
    partitions = ("vertical",)
    leaks = (
        "coordinator: formulas with means and deviations, sizes and target sums of shuffled bins of unnamed features, "
        "which features are alike, joint second moments; every party: which of its features were chosen; holder of a "
        "combined column: that column (the other party's column unless epsilon is set)"
    )
    operations = (
        *OPERATIONS,
        *candidates.VERTICAL,
        *choice.VERTICAL,
        *importance.VERTICAL,
        *statistics.OPERATIONS,
        *shared_residual.OPERATIONS,
        *prediction.OPERATIONS,
        *private.STATISTICS,
    )
    cell_parameters = ("min_cell",)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_operands: int = 10,
        n_features: int = 10,
        keep_own: bool = True,
        functions: Sequence[str] = ("ab", "a2b", "ab2", "a2b2"),
        clip: float = 5.0,
        importance: str = "bins",
        epsilon: float | None = None,
        delta: float = 1e-6,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        target_bounds: tuple[float, float] | None = None,
        protection: str = "columns",
        max_iter: int = 8,
        statistics_clip: float = 1.0,
        step: float = 0.8,
        max_weight: float = 0.2,
        max_columns: int = 12,
        min_cell: int = 10,
        validation: float = 0.25,
        random_state: object = 0,
        scheme: str = "auto",
    ):
        self.n_operands = n_operands
        self.n_features = n_features
        self.keep_own = keep_own
        self.functions = functions
        self.clip = clip
        self.importance = importance
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.protection = protection
        self.max_iter = max_iter
        self.statistics_clip = statistics_clip
        self.step = step
        self.max_weight = max_weight
        self.max_columns = max_columns
        self.validation = validation
        self.random_state = random_state
        self.scheme = scheme
        self.min_cell = min_cell

    @classmethod
    def as_published(cls, **others: Any) -> VerticalFLAFE:
        """The paper's settings, as far as it gives them."""
        return cls(**{"importance": "forest", "keep_own": False, **others})

    def _check(self, fed: Federation) -> None:
        super()._check(fed)
        check_number("max_iter", self.max_iter, 1, 200, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)
        for name, most in (("statistics_clip", 5), ("step", 1), ("max_weight", 2)):
            check_number(name, getattr(self, name), 1e-3, most)
        if self.protection == "statistics":
            if self.max_iter * self.max_weight > MOST_WEIGHT:
                raise ParameterError(
                    f"max_iter * max_weight must be at most {MOST_WEIGHT:g}, so that sums fit 64 bits; lower one"
                )
            check_neutral(fed, _JOINTLY, because=_MASKS)
            if set(self.functions) not in ({"ab"}, set(FUNCTIONS)):
                raise ParameterError("protection='statistics' takes functions=['ab'] or all four")
            if not self.validation > 0 and self.epsilon is None:
                raise ParameterError(
                    "protection='statistics' chooses its penalty on validation rows: validation must be above 0"
                )
            if fed.task == "classification" and fed.n_classes > 2:
                raise ParameterError(
                    f"protection='statistics' is for amounts and two classes; this label has {fed.n_classes} classes"
                )

    def _layout(self, fed: Federation) -> Layout:
        return Layout.vertical(fed)

    def _release(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], rows: dict[str, int]
    ) -> dict[str, object]:
        if self.protection != "statistics":
            return super()._release(fed, layout, operands, rows)
        self.cross_, self._model = [], secrets.token_hex(8)
        held_out = self._held_out[fed.active]
        n_train = rows[fed.active] - len(held_out)
        run = StatisticsRun(fed, self._joint[0], operands, rows[fed.active], n_train, powers_of(self.functions))
        local_only = run.local_only()
        run.boost(self.max_iter, step=self.step, max_weight=self.max_weight)
        run.keep(self._model, self.statistics_clip, self.clip)
        self._terms, self._bits = run.terms, (run.column_bits, run.weight_bits)
        self.model_id_ = self._model
        return self._statistics_details(run, local_only)

    def _release_privately(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], plan: Plan
    ) -> dict[str, object]:
        if self.protection != "statistics":
            return super()._release_privately(fed, layout, operands, plan)
        self.cross_, self._model, self._scales = [], secrets.token_hex(8), {}
        run = PrivateRun(fed, operands, plan, self.max_iter, self.step)
        run.fit(self._model)
        self._terms, self._bits, self.model_id_ = run.terms, (BITS, WEIGHT_BITS), self._model
        return {"features": _terms_told(operands, run.terms), "operands": operands, "holders": {}}

    def _statistics_details(self, run: StatisticsRun, local_only: float) -> dict[str, object]:
        fed = run.fed
        held_out = self._held_out[fed.active]
        predict_jointly(fed.view(rows=held_out), run.products, run.terms, self._model, *self._bits)
        told = fed.ask(held_out_error, to=fed.active, task=fed.asked_task)
        r2 = 1 - told["error"] / max(told["variance"], 1e-300)
        return {
            "features": _terms_told(run.operands, run.terms), "operands": run.operands, "holders": {},
            "comparison": [
                {"features": "local only", "r2": local_only},
                {"features": "with cross-party sums", "r2": r2},
            ],
        }  # fmt: skip

    def combine(self, fed: Federation) -> Federation:
        """See `Flafe.combine`; with ``protection="statistics"`` there are no combined columns."""
        if self.protection == "statistics":
            raise ParameterError("protection='statistics' releases no combined columns: use predict(fed)")
        return super().combine(fed)

    def predict(self, fed: Federation) -> np.ndarray:
        """Joint predictions of the rows of ``fed`` (``protection="statistics"``); amounts, or scores of two classes.

        The label holder reads the total of the parties' scores of each row; no party sees another's columns.
        """
        check_is_fitted(self, "selection_")
        if self.protection != "statistics":
            raise ParameterError("predict is for protection='statistics'; with columns train a model on combine(fed)")
        check_neutral(fed, _JOINTLY, because=_MASKS)
        with fed.session() as run:
            products = JointProducts(run, run.parties)
            return predict_jointly(run, products, self._terms, self._model, *self._bits)


def _terms_told(operands: dict[str, list[str]], terms: list[Term]) -> list[dict[str, object]]:
    """Operands, and the cross-party terms of a model with their weights."""
    told: list[dict[str, object]] = [
        {"party": name, "formula": text} for name, chosen in operands.items() for text in chosen
    ]
    for term in terms:
        if term.weight:
            formula = cross_formula(term.left_formula, term.right_formula, term.function)
            told.append(
                {"party": "", "formula": str(formula), "weight": term.weight, "function": term.function,
                 "first": term.first, "second": term.second, "round": term.round}
            )  # fmt: skip
    return told


class HybridFLAFE(Flafe):
    """Build new features over a grid of parties: row blocks, each divided into the same column groups.

    Importances are averaged over the parties of a column group and statistics are taken over them by secure sums, so
    they all choose the same features. A combined feature belongs to one column group in every row block. Formulas call
    columns by group: ``columns1.age``. Parties without labels are sent those of their rows (with a note in the ledger).

    Parameters
    ----------
    n_operands, n_features, keep_own, functions, clip, epsilon, delta, bounds, max_columns, validation :
        as in ``VerticalFLAFE``; with ``epsilon`` bounds must be public, for row blocks share them. Importance is always
        that of random forests.
    protection : ``"columns"`` or ``"open"``.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = X["income"] * X["basket"]
    >>> fed = fs.Federation.split(X, y, parties=["a", "b", "c", "d"], partition="hybrid", grid=(2, 2))
    >>> engineer = fs.HybridFLAFE(n_operands=2, n_features=1, functions=["ab"]).fit(fed)
    >>> sorted({feature.holder for feature in engineer.cross_})
    ['columns1', 'columns2']
    """

    name = "hybrid_flafe"
    partitions = ("hybrid",)
    leaks = (
        "coordinator: formulas, statistics and importances over a column group, joint second moments of a row block; "
        "every party: which of its features were chosen; holder of a combined column: that column (the other party's "
        "column unless epsilon is set)"
    )
    operations = together(
        OPERATIONS,
        candidates.HYBRID,
        importance.HYBRID,
        compare.HYBRID,
        secure_sum.OPERATIONS,
        horizontal_study.SCALING,
    )
    epsilon_parameters = ("epsilon",)
    importance = "forest"
    scheme = "auto"
    target_bounds = None
    _importances = ("forest",)

    def __init__(
        self,
        *,
        n_operands: int = 10,
        n_features: int = 10,
        keep_own: bool = True,
        functions: Sequence[str] = ("ab", "a2b", "ab2", "a2b2"),
        clip: float = 5.0,
        epsilon: float | None = None,
        delta: float = 1e-6,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        protection: str = "columns",
        max_columns: int = 12,
        validation: float = 0.25,
        random_state: object = 0,
    ):
        self.n_operands = n_operands
        self.n_features = n_features
        self.keep_own = keep_own
        self.functions = functions
        self.clip = clip
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.protection = protection
        self.max_columns = max_columns
        self.validation = validation
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        super()._check(fed)
        if self.epsilon is not None and self.bounds is None:
            raise ParameterError("a grid needs public bounds for its epsilon, the same in all row blocks: set bounds")

    def _layout(self, fed: Federation) -> Layout:
        return Layout.hybrid(fed)

    def _unlabelled(self, fed: Federation, layout: Layout) -> dict[str, list[str]]:
        grid, labelled = Grid.of(fed), set(fed.label_parties)
        return {
            holder: [name for name in block if name not in labelled] for holder, block in zip(grid.holders, grid.rows)
        }
