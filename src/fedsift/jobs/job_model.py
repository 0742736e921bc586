"""The table ``[model]`` of a job file: which model the parties train on the selected columns, and its parameters."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from fedsift.errors import ParameterError
from fedsift.jobs.text import Section, nearest
from fedsift.models.base import FederatedModel
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.hyfdca.model import HyFDCA
from fedsift.models.splitnn.model import SplitNN
from fedsift.models.vertical_logistic import VerticalLogisticRegression


class ModelSection(Section):
    """Parameters of the model stand beside its name."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: Literal["boost", "linear", "network"] = Field(default="boost", description='"boost", "linear" or "network"')

    def make(self, task: str) -> FederatedModel:
        """The model, for classes or for a number; an unknown parameter is named."""
        kinds: dict[str, type[FederatedModel]] = {
            "boost": SecureBoostClassifier if task == "classification" else SecureBoostRegressor,
            "linear": VerticalLogisticRegression if task == "classification" else HyFDCA,
            "network": SplitNN,
        }
        kind, given = kinds[self.name], dict(self.model_extra or {})
        known = kind().get_params(deep=False)
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            raise ParameterError(f"[model]: {self.name} has no parameter {unknown!r}{nearest(unknown, list(known))}")
        told: dict[str, object] = {key: None if value == "none" else value for key, value in given.items()}
        return kind(**told)
