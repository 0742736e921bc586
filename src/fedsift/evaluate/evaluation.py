"""Score selectors with a downstream model, honestly: selection and model see training rows only.

By default nothing is pooled: the parties train a joint model under protection inside each fold. Linear and additive
models and networks on shares are measured on shares, so that nobody sees the score of a row; of boosted trees the label
holder alone gets the predictions of the test rows, and what leaves it is a rounded summary over all folds
(``joint.py``). It runs on every transport. ``pooled=True`` scores with a scikit-learn model on one pooled table, in a
simulation (``pooled.py``).
"""

from __future__ import annotations

import numpy as np

from fedsift.core.checks import check_number
from fedsift.core.federation import Federation
from fedsift.errors import ParameterError
from fedsift.evaluate.joint import evaluate_jointly, make_joint_model
from fedsift.evaluate.pooled import evaluate_pooled
from fedsift.evaluate.result import Evaluation
from fedsift.evaluate.scoring import make_model


def evaluate(
    fed: Federation,
    selectors: object,
    model: object = None,
    cv: int | float = 5,
    metrics: object = None,
    random_state: int = 0,
    nulls: bool = True,
    repeats: int = 1,
    *,
    pooled: bool = False,
    random_draws: int = 3,
    digits: int = 3,
    next_column: bool = False,
) -> Evaluation:
    """Score selectors by cross-validation (or one split), with selection inside each fold. Nothing is pooled.

    The parties train the model together. It is measured on shares (linear, additive, network), or the label holder
    measures its predictions and releases rounded summaries (boosting).

    Parameters
    ----------
    selectors : a selector, a list of them, or a dictionary name -> selector.
    model : ``boost``, ``additive``, ``linear``, ``network`` or a model of fedsift. With ``pooled=True``: ``forest``,
        ``linear``, ``svm``, ``knn`` (3 neighbours) or a scikit-learn estimator.
    cv : a number of folds, or the share of training rows of a single split (below 1).
    metrics : from ``accuracy``, ``auc`` (one against the rest), ``f1_micro``, ``f1_macro``, or ``r2``, ``1-rae``.
    nulls : rows for all columns and for random columns of the same number.
    repeats : how often to draw the folds anew; a selector's ``random_state`` counts up with it.
    pooled : score on one pooled table, in a simulation: only for data that you may pool.
    random_draws : where pooled, draws of random columns in each fold; their mean is the null. Else there is one.
    digits : of the figures that the label holder releases, at most 4.
    next_column : score what a method keeps with the best column that it left out beside, too: what one more would add.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> result = fs.evaluate(fed, {"gini": fs.GiniFilter(n_features=2)}, model="linear", cv=0.7)
    >>> result.settings["how"]
    'one split, 0.7 of the rows for training'
    """
    if not isinstance(fed, Federation):
        raise ParameterError(f"evaluate takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
    if fed.partition == "hybrid":
        raise ParameterError("evaluate scores vertical or horizontal parties; these are hybrid")
    if fed.design.labels:
        raise ParameterError("evaluate scores a model of one label: give the design's label, not labels")
    _check(fed, cv, repeats, random_draws, random_state, digits)
    if pooled and next_column:
        raise ParameterError("next_column is scored by a joint model: leave pooled out")
    if pooled:
        chosen = "forest" if model is None else model
        return evaluate_pooled(fed, selectors, chosen, cv, metrics, random_state, nulls, repeats, random_draws)
    chosen = "boost" if model is None else model
    return evaluate_jointly(fed, selectors, chosen, cv, metrics, random_state, nulls, repeats, digits, next_column)


def check_evaluation(fed: Federation, model: object, cv: int | float, *, pooled: bool, next_column: bool) -> None:
    """What can be seen of an evaluation before any work: whether these parties, this model and these folds can be."""
    if fed.partition == "hybrid":
        raise ParameterError("evaluate scores vertical or horizontal parties; these are hybrid")
    if pooled and next_column:
        raise ParameterError("next_column is scored by a joint model: leave pooled out")
    _check_folds(fed, cv)
    if pooled:
        make_model("forest" if model is None else model, fed.task, 0)
    elif fed.partition != "vertical":
        raise ParameterError("joint models are scored for vertical parties; horizontal ones need pooled=True")
    else:
        make_joint_model("boost" if model is None else model, fed.task, 0)


def _check(fed: Federation, cv: object, repeats: object, draws: object, random_state: object, digits: object) -> None:
    check_number("repeats", repeats, 1, None if fed.design.deals is None else 1, whole=True)
    check_number("random_draws", draws, 1, whole=True)
    check_number("random_state", random_state, 0, whole=True)
    check_number("digits", digits, 1, 4, whole=True)
    _check_folds(fed, cv)


def _check_folds(fed: Federation, cv: object) -> None:
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        most = min(size.rows for size in fed.sizes().values())
        check_number("cv", cv, 2, most, whole=True)
    elif not (isinstance(cv, float) and 0.0 < cv < 1.0):
        raise ParameterError(f"cv must be a number of folds (2 or more) or a share between 0 and 1; got {cv!r}")
