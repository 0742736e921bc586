"""The table ``[evaluate]`` of a job file: how a method is scored on rows that it did not see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsift.jobs.text import Section


class EvaluateSection(Section):
    model: Literal["boost", "additive", "linear", "network", "forest", "svm", "knn"] | None = Field(
        default=None,
        description='"boost", "additive", "linear" or "network"; with pooled = true "forest", "linear", "svm" or "knn"',
    )
    pooled: bool = Field(default=False, description="true or false: score on one pooled table (data you may pool)")
    train: float = Field(default=0.7, gt=0, lt=1, description="the share of training rows, between 0 and 1")
    folds: int | None = Field(default=None, ge=2, description="a number of folds, 2 or more (in place of train)")
    seed: int = Field(default=0, ge=0, description="a whole number, 0 or more")
    nulls: bool = Field(default=True, description="true or false")
    next_column: bool = Field(default=False, description="true or false: score one column more than was kept, too")

    @property
    def cv(self) -> int | float:
        """Folds, or the share of training rows of one split."""
        return self.folds or self.train
