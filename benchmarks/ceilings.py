"""Selection on one pooled table, as anybody would do it without parties: what a federated method could reach at best.

And the judge of every selection, federated or not: one centralised model on the chosen columns, boosted trees and a
linear one, trained on the training rows and scored on the test rows. Ceilings see training rows only, as all methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_selection import RFE, f_classif, f_regression
from sklearn.linear_model import LassoCV, LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]


def boosting(task: str, trees: int = 100) -> Any:
    kind = xgboost.XGBRegressor if task == "regression" else xgboost.XGBClassifier
    return kind(n_estimators=trees, max_depth=4, learning_rate=0.2, n_jobs=1, random_state=0)


def linear(task: str) -> Any:
    if task == "regression":
        return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 3, 6)))
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def judge(X: Floats, y: Any, test_X: Floats, test_y: Any, task: str) -> dict[str, float]:
    """AUC (one against the rest) and accuracy of classes, R2 of amounts, of both models; without columns a guess."""
    found: dict[str, float] = {}
    for name, model in (("boost", boosting(task)), ("linear", linear(task))):
        if not X.shape[1]:
            guess = 0.0 if task == "regression" else 0.5
            found |= {name: guess} if task == "regression" else {name: guess, f"{name}_accuracy": _majority(y, test_y)}
            continue
        model.fit(X, y)
        if task == "regression":
            found[name] = r2_score(test_y, model.predict(test_X))
            continue
        chances = model.predict_proba(test_X)
        told = chances[:, 1] if chances.shape[1] == 2 else chances
        found[name] = roc_auc_score(test_y, told, multi_class="ovr", labels=np.unique(y) if told.ndim > 1 else None)
        found[f"{name}_accuracy"] = accuracy_score(test_y, chances.argmax(axis=1))
    return {name: round(float(value), 4) for name, value in found.items()}


def _majority(y: Any, test_y: Any) -> float:
    return float(np.mean(test_y == np.bincount(y).argmax()))


def l1(X: Floats, y: Any, task: str, k: int) -> NDArray[np.int64]:
    """The largest coefficients of a lasso (logistic, one class against the rest), its penalty by three folds."""
    Z = StandardScaler().fit_transform(X)
    if task == "regression":
        weight = np.abs(LassoCV(cv=3, random_state=0).fit(Z, y).coef_)
    else:
        inner = LogisticRegression(l1_ratio=1.0, solver="liblinear", random_state=0)
        grid = {"estimator__C": [0.01, 0.1, 1.0]}
        fitted = GridSearchCV(OneVsRestClassifier(inner), grid, cv=3).fit(Z, y)
        weight = sum(np.abs(each.coef_[0]) for each in fitted.best_estimator_.estimators_)
    return _best(weight, k)


def rfe_linear(X: Floats, y: Any, task: str, k: int) -> NDArray[np.int64]:
    """Recursive elimination by a linear model (Guyon et al. 2002), a fifth of the columns at a time."""
    model = linear(task).steps[1][1]
    return np.flatnonzero(
        RFE(model, n_features_to_select=k, step=0.2).fit(StandardScaler().fit_transform(X), y).support_
    )


def rfe_boost(X: Floats, y: Any, task: str, k: int) -> NDArray[np.int64]:
    """Recursive elimination by boosted trees."""
    return np.flatnonzero(RFE(boosting(task, 50), n_features_to_select=k, step=0.2).fit(X, y).support_)


def boruta(X: Floats, y: Any, task: str, k: int, rounds: int = 20) -> NDArray[np.int64]:
    """Kursa and Rudnicki 2010: hits of a forest's importances against the best shuffled copy; the most hits first.

    Columns with fewer hits than a coin would have (binomial, 5 %, Bonferroni) are left out.
    """
    generator, columns = np.random.default_rng(0), X.shape[1]
    hits, total = np.zeros(columns), np.zeros(columns)
    kind = RandomForestRegressor if task == "regression" else RandomForestClassifier
    for number in range(rounds):
        shadows = generator.permuted(X, axis=0)
        forest = kind(100, max_depth=7, max_features="sqrt", n_jobs=1, random_state=number)
        found = forest.fit(np.hstack([X, shadows]), y).feature_importances_
        hits += found[:columns] > found[columns:].max()
        total += found[:columns]
    confirmed = binom.sf(hits - 1, rounds, 0.5) * columns < 0.05
    return _best(np.where(confirmed, hits + total / (total.max() * 2), 0.0), k)


def mrmr(X: Floats, y: Any, task: str, k: int) -> NDArray[np.int64]:
    """Minimum redundancy, maximum relevance: F statistic over the mean absolute correlation with what is chosen."""
    score = (f_regression if task == "regression" else f_classif)(X, y)[0]
    score = np.nan_to_num(score, nan=0.0, posinf=0.0)
    Z = StandardScaler().fit_transform(X)
    chosen, redundancy = [int(score.argmax())], np.zeros(X.shape[1])
    while len(chosen) < k:
        redundancy += np.abs(Z.T @ Z[:, chosen[-1]]) / len(Z)
        worth = score / np.maximum(redundancy / len(chosen), 1e-3)
        worth[chosen] = -1.0
        chosen.append(int(worth.argmax()))
    return np.sort(chosen)


def _best(score: Floats, k: int) -> NDArray[np.int64]:
    order = np.argsort(-score, kind="stable")[:k]
    return np.sort(order[score[order] > 0])


CEILINGS: dict[str, Callable[[Floats, Any, str, int], NDArray[np.int64]]] = {
    "pooled L1": l1, "pooled RFE, linear": rfe_linear, "pooled RFE, boosting": rfe_boost, "pooled Boruta": boruta,
    "pooled mRMR": mrmr,
}  # fmt: skip
