"""Plain scikit-learn transformers for one party's own pipeline: they keep what a selection has found.

They hold names, formulas and the party's own weights of evidence, no connection and no key, so they can be copied and
stored like any transformer. pandas, polars and Arrow tables come back as they went in; ``set_output`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin

from fedsift.core.encoding import needed, source_of
from fedsift.core.evidence import Evidence, woe_name
from fedsift.core.expressions import evaluate_columns, parse
from fedsift.core.table import Table
from fedsift.errors import DataError


class ColumnKeeper(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn transformer that keeps named columns of a table."""

    def __init__(self, columns: Sequence[str]):
        self.columns = columns

    def fit(self, X: Any, y: Any = None) -> ColumnKeeper:
        self.feature_names_in_ = np.asarray(self._checked(X), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: Any) -> Any:
        self._checked(X)
        kept = self._kept()
        made = self._made(X if isinstance(X, pd.DataFrame) else X.to_pandas()) if self._makes else {}
        if isinstance(X, pa.Table):
            X = X.select(kept)
            for name, values in made.items():
                X = X.append_column(name, pa.array(values))
            return X
        if isinstance(X, pl.DataFrame):
            return X.select(kept).with_columns([pl.Series(name, values) for name, values in made.items()])
        return pd.concat([X[kept], pd.DataFrame(made, index=X.index)], axis=1) if made else X[kept]

    def get_support(self, indices: bool = False) -> np.ndarray:
        """Which of the columns that ``fit`` saw are kept."""
        mask = np.isin(self.feature_names_in_, list(self.columns))
        return np.flatnonzero(mask) if indices else mask

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        return np.asarray([*self._kept(), *self._makes], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def _makes(self) -> list[str]:
        """The names of the columns that it adds."""
        return []

    def _kept(self) -> list[str]:
        return list(self.columns)

    def _made(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        """The values of the columns that it adds."""
        return {}

    def _checked(self, X: Any) -> list[str]:
        """The names of the columns, the kept ones among them."""
        names = list(X.column_names if isinstance(X, pa.Table) else getattr(X, "columns", ()))
        missing = [column for column in self.columns if column not in names]
        if missing:
            raise DataError(
                f"the data lack the selected column {missing[0]!r} (a DataFrame with named columns is needed)"
            )
        return names


class FeatureMaker(ColumnKeeper):
    """scikit-learn transformer that keeps named columns of a table and adds engineered features after them."""

    def __init__(self, columns: Sequence[str], formulas: Sequence[str]):
        super().__init__(columns)
        self.formulas = formulas

    @property
    def _makes(self) -> list[str]:
        return list(self.formulas)

    def _made(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        values = evaluate_columns([parse(text) for text in self.formulas], X)
        return {text: values[:, i] for i, text in enumerate(self.formulas)}


class EncodedKeeper(ColumnKeeper):
    """scikit-learn transformer that keeps named columns and makes those whose names say how (``month(joined)``)."""

    @property
    def _makes(self) -> list[str]:
        return [column for column in self.columns if source_of(column) is not None]

    def _kept(self) -> list[str]:
        return [column for column in self.columns if source_of(column) is None]

    def _made(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        table = Table.read(X.reset_index(drop=True), id=None, columns=list(self.columns), name="data")
        return {name: np.asarray(table.column(name).to_list(), dtype=object) if table.kinds[name] == "categorical"
                else table.values(name) for name in self._makes}  # fmt: skip

    def _checked(self, X: Any) -> list[str]:
        names = list(X.column_names if isinstance(X, pa.Table) else getattr(X, "columns", ()))
        missing = next((column for column in needed(self.columns, names) if column not in names), None)
        if missing is not None:
            raise DataError(f"the data lack the column {missing!r}, of which a selected one is made or which is one")
        return names


class EvidenceMaker(ColumnKeeper):
    """scikit-learn transformer that puts weights of evidence in the place of the kept columns that have them."""

    def __init__(self, columns: Sequence[str], evidence: list[dict[str, Any]]):
        super().__init__(columns)
        self.evidence = evidence

    @property
    def _makes(self) -> list[str]:
        return [woe_name(each["column"]) for each in self.evidence]

    def _kept(self) -> list[str]:
        weighed = {each["column"] for each in self.evidence}
        return [column for column in self.columns if column not in weighed]

    def _made(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        table = Table.read(X[list(self.columns)].reset_index(drop=True), id=None, name="data")
        return dict(Evidence.read(self.evidence).values(table))
