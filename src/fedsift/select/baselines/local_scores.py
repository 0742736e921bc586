"""How rows select by themselves: one number a column from these rows alone, and the vote that it makes."""

from __future__ import annotations

import threading

import numpy as np

METHODS = ("lasso", "elastic_net", "forest", "mutual_information")
#: Of the penalty, what is on absolute values; the rest is on squares.
L1_RATIO = {"lasso": 1.0, "elastic_net": 0.5}
LINEAR = tuple(L1_RATIO)
#: scikit-learn's parallel loops put Python's global warning filters aside while they run. Parties of one process are
#: threads: two that do so at once leave each other's filters behind, and warn of it.
_ONE_AT_A_TIME = threading.Lock()


def local_scores(design: np.ndarray, y: np.ndarray, method: str, alpha: float, task: str, seed: int) -> np.ndarray:
    """One number a column, never negative; columns are standardised."""
    if method in LINEAR:
        from sklearn.linear_model import ElasticNet

        model = ElasticNet(alpha=alpha, l1_ratio=L1_RATIO[method], max_iter=20_000, tol=1e-3)
        targets = [y] if task == "regression" else [(y == label).astype(float) for label in np.unique(y)]
        return np.asarray(np.sum([np.abs(model.fit(design, each).coef_) for each in targets], axis=0))
    if method == "forest":
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        forest = RandomForestRegressor if task == "regression" else RandomForestClassifier
        with _ONE_AT_A_TIME:
            return np.asarray(forest(n_estimators=100, random_state=seed).fit(design, y).feature_importances_)
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    estimate = mutual_info_regression if task == "regression" else mutual_info_classif
    with _ONE_AT_A_TIME:
        return np.asarray(estimate(design, y, random_state=seed))


def ballot(scores: np.ndarray, most: int) -> np.ndarray:
    """A vote for the ``most`` columns with the highest scores above 0."""
    votes = np.zeros(len(scores), dtype=bool)
    votes[np.argsort(-scores, kind="stable")[:most]] = True
    return votes & (scores > 0)
