"""How good a set of pooled columns is: preparation and downstream model, each fitted on training rows only.

Plain functions of arrays; who may see these arrays is decided in ``pooled.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from fedsift.errors import ParameterError
from fedsift.models.metrics import auc, measure

#: Models of a pooled table.
MODELS = ("forest", "linear", "svm", "knn")

_MAX_CATEGORIES = 64


@dataclass(frozen=True)
class Columns:
    """Columns side by side: numbers (NaN where missing) and texts (None where missing), each with its names."""

    numbers: np.ndarray
    number_names: tuple[str, ...]
    texts: np.ndarray
    text_names: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.number_names + self.text_names

    def keep(self, names: Sequence[str]) -> Columns:
        """Some of the columns."""
        wanted = set(names)
        numbers = [i for i, name in enumerate(self.number_names) if name in wanted]
        texts = [i for i, name in enumerate(self.text_names) if name in wanted]
        return Columns(
            self.numbers[:, numbers],
            tuple(self.number_names[i] for i in numbers),
            self.texts[:, texts],
            tuple(self.text_names[i] for i in texts),
        )


class Preparation:
    """Median for missing numbers, mean 0 and variance 1, an indicator a category; learned from the rows of ``fit``."""

    def fit(self, columns: Columns) -> Preparation:
        if columns.numbers.shape[1]:
            self._imputer = SimpleImputer(strategy="median", keep_empty_features=True)
            self._scaler = StandardScaler().fit(self._imputer.fit_transform(columns.numbers))
        if columns.texts.shape[1]:
            self._encoder = OneHotEncoder(
                handle_unknown="infrequent_if_exist", max_categories=_MAX_CATEGORIES, sparse_output=False
            ).fit(_filled(columns.texts))
        return self

    def transform(self, columns: Columns) -> np.ndarray:
        parts = [np.zeros((len(columns.numbers), 0))]
        if columns.numbers.shape[1]:
            parts.append(self._scaler.transform(self._imputer.transform(columns.numbers)))
        if columns.texts.shape[1]:
            parts.append(self._encoder.transform(_filled(columns.texts)))
        return np.hstack(parts)


def _filled(texts: np.ndarray) -> np.ndarray:
    """Missing text is a category of its own."""
    return np.where(pd.isna(texts), "(missing)", texts).astype(object)


def make_model(model: object, task: str, random_state: object) -> object:
    """A fresh downstream model: one of ``MODELS`` by name, or a copy of a scikit-learn estimator."""
    classify = task == "classification"
    if not isinstance(model, str):
        if not (hasattr(model, "fit") and hasattr(model, "predict")):
            raise ParameterError(f"model must be one of {', '.join(MODELS)} or a scikit-learn estimator; got {model!r}")
        if (classify and is_regressor(model)) or (not classify and is_classifier(model)):
            raise ParameterError(f"model {type(model).__name__} does not fit the task, which is {task}")
        return clone(model)
    if model == "forest":
        forest = RandomForestClassifier if classify else RandomForestRegressor
        return forest(n_estimators=100, random_state=random_state)
    if model == "linear":
        return LogisticRegression(max_iter=2000) if classify else Ridge()
    if model == "svm":
        return SVC(kernel="linear", C=1.0) if classify else SVR(kernel="linear", C=1.0)
    if model == "knn":
        return KNeighborsClassifier(3) if classify else KNeighborsRegressor(3)
    raise ParameterError(f"model must be one of {', '.join(MODELS)} or a scikit-learn estimator; got {model!r}")


def score(
    train: Columns, y_train: np.ndarray, test: Columns, y_test: np.ndarray, *, model: object, task: str,
    metrics: Sequence[str], random_state: object,
) -> dict[str, float]:  # fmt: skip
    """Fit preparation and model on the training rows, measure on the test rows."""
    preparation = Preparation().fit(train)
    X_train, X_test = preparation.transform(train), preparation.transform(test)
    if X_train.shape[1] == 0:  # nothing was selected: the best guess without columns
        fitted = DummyClassifier(strategy="prior") if task == "classification" else DummyRegressor()
    else:
        fitted = make_model(model, task, random_state)
    fitted.fit(X_train, y_train)
    predicted = fitted.predict(X_test)
    confidence = _confidence(fitted, X_test) if "auc" in metrics else None
    values = {}
    for metric in metrics:
        if metric == "auc":
            values[metric] = auc(y_test, confidence, fitted.classes_) if confidence is not None else float("nan")
        else:
            values[metric] = measure(metric, y_test, predicted)
    return values


def _confidence(fitted: object, X: np.ndarray) -> np.ndarray | None:
    """A column of scores a class, or one column for two classes; None if the model has none."""
    if hasattr(fitted, "predict_proba"):
        return np.asarray(fitted.predict_proba(X))
    return np.asarray(fitted.decision_function(X)) if hasattr(fitted, "decision_function") else None


def jaccard(sets: Sequence[frozenset[str]]) -> float:
    """Mean over all pairs of |A and B| / |A or B|; two empty sets are the same."""
    pairs = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in combinations(sets, 2)]
    return float(np.mean(pairs)) if pairs else float("nan")


def kuncheva(sets: Sequence[frozenset[str]], n_features: int) -> float:
    """Kuncheva's index, mean over all pairs: overlap beyond chance, 1 for equal sets, 0 for random ones.

    For sets of one size k out of n it is (r n - k^2) / (k (n - k)). Sets of different sizes: overlap less its
    expectation, over the largest possible overlap less its expectation, which is the same for equal sizes. Undefined
    (left out of the mean) when a set is empty or holds everything.
    """
    values = []
    for a, b in combinations(sets, 2):
        expected = len(a) * len(b) / n_features
        most = min(len(a), len(b))
        if most > expected:
            values.append((len(a & b) - expected) / (most - expected))
    return float(np.mean(values)) if values else float("nan")
