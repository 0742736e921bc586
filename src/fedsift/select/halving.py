"""Fed-Halving: successive halving over random feature masks, with more communication for those that survive.

Overman and Klabjan, federated AutoFE, Algorithms 5 and 6. Masks are drawn with random sparsities; each is trained for
a few federated rounds and scored on validation rows; the best share goes on with more rounds. Later halvings start
with fewer masks and more rounds (as in Hyperband), and an outer loop narrows the range of sparsities to where the
best masks were.

The model is FedAvg under secure aggregation for row-partitioned parties; all masks of a level train in lock-step, so
a level costs as many messages as one model. For other partitions (or other models) pass ``model``. New features are
selected too: give their ``expressions``, or fit on ``engineer.transform(fed)``.

Departures: the mask of all features takes part in the first halving, so that the result is not worse on the validation
rows than no selection; a mask has at least one feature; the score pays ``size_penalty`` for the share of features kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.expressions import evaluate, parse
from fedsift.core.federation import Federation
from fedsift.core.operation import operation, together
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError
from fedsift.models import fed_linear
from fedsift.models.fed_linear import fed_average, validation_scores
from fedsift.mpc import horizontal_study
from fedsift.mpc.horizontal_study import (
    RawColumns,
    agree_columns,
    check_validation,
    describe_rows,
    open_study,
    standardise,
)
from fedsift.mpc.secure_sum import SecureSum, told_alike
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.engineered import add_engineered, engineered_view


@operation("halving.load_features", times="parties a session", discloses="control", about="acknowledgement")
def load_features(party: Party, *, columns: list[str], formulas: list[str]) -> None:
    """Take columns and engineered features as the raw features of this run."""
    made = evaluate([parse(text) for text in formulas], party.table, party.name)
    party.keep(RawColumns(np.hstack([party.table.matrix(columns), made])))
    told_alike(party, "load_features", columns=columns, formulas=formulas)


class MaskModel(Protocol):
    """What Fed-Halving needs of a federated model: its features, and scores of masks after so many rounds."""

    features: list[tuple[str, str]]  # (party, column); the party is empty for a column of all, or a formula

    def score(self, masks: np.ndarray, rounds: int) -> np.ndarray: ...


class RowModel:
    """FedAvg over row-partitioned parties."""

    def __init__(self, fed: Federation, owner: FedHalving):
        described = fed.ask(describe_rows, to=fed.parties, task=fed._task)
        numeric, _ = agree_columns(described)
        formulas = list(owner.expressions or [])
        if len(numeric) + len(formulas) < 2:
            raise DataError("there are fewer than two numeric columns to select from")
        self.total = SecureSum(fed, secure=owner.protection != "open")
        self.study = open_study(self.total, described, owner.validation)
        if self.study.n_validation < 1:
            raise DataError("no validation rows: the parties have too few rows for this share; raise validation")
        self.total.ask_all(load_features, columns=numeric, formulas=formulas)
        standardise(self.total, len(numeric) + len(formulas))
        self.features = [("", name) for name in [*numeric, *formulas]]
        self.penalty = owner.penalty

    def score(self, masks: np.ndarray, rounds: int) -> np.ndarray:
        """1 - relative absolute error, or accuracy, on the validation rows."""
        weights, _ = fed_average(self.total, self.study, masks, [self.penalty] * len(masks), rounds=rounds)
        regression = self.study.task == "regression"
        asked = np.concatenate([weights, np.zeros((1, *weights.shape[1:]))])
        kind = "ridge" if regression else "logistic"
        errors = self.total.sum(validation_scores, (2, len(asked)), weights=asked, kind=kind)[0]
        worst = errors[-1] if regression else float(self.study.n_validation)
        return np.asarray(1.0 - errors[:-1] / max(worst, 1e-12))


@dataclass
class Scored:
    mask: np.ndarray
    score: float
    sparsity: float


class FedHalving(Selector):
    """Keep the best of many random feature masks.

    Parameters
    ----------
    refinements : how often the range of sparsities is narrowed.
    halvings : halving runs in each; run h starts with ``candidates / 2**h`` masks.
    candidates, ratio, levels : masks at the start, share that goes on, number of levels.
    max_iter : communication rounds of the first level; each next level has ``1 / ratio`` times as many.
    sparsities : how many of the best masks say where to look next.
    size_penalty : what keeping all features costs in units of the score; 0 as in the paper.
    penalty : L2 penalty of the linear model.
    expressions : formulas of new features to select from beside the columns.
    validation : share of each party's rows, or the name of the party whose rows are for validation.
    model : ``model(fed) -> MaskModel`` for another model or partition.
    protection : what leaves a party: ``"sums"`` (under masks: only totals over all parties can be read) or ``"open"``
        (research: each party's own sums).

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["dose", "age", "weight"])
    >>> fed = fs.Federation.split(X, 3 * X["dose"] + X["age"], parties=["north", "south"], partition="horizontal")
    >>> "dose" in fs.FedHalving(candidates=8, halvings=1, size_penalty=0.2).fit(fed).selected_["north"]
    True
    """

    name = "fed_halving"
    paper = "Overman and Klabjan, Federated Automated Feature Engineering (Fed-Halving)"
    partitions = ("horizontal", "vertical", "hybrid")
    leaks = "coordinator: averaged weights and summed errors of each mask's model; parties: the averaged weights"
    operations = together(horizontal_study.OPERATIONS, fed_linear.OPERATIONS, [load_features, add_engineered])
    told_bits = 53.0  # the averaged weights

    def __init__(
        self,
        *,
        refinements: int = 2,
        halvings: int = 2,
        candidates: int = 32,
        ratio: float = 0.5,
        levels: int = 3,
        max_iter: int = 10,
        sparsities: int = 4,
        size_penalty: float = 0.0,
        penalty: float = 1e-3,
        expressions: Sequence[str] | None = None,
        validation: float | str = 0.25,
        model: Callable[[Federation], MaskModel] | None = None,
        random_state: Any = 0,
        protection: str = "sums",
    ):
        self.refinements = refinements
        self.halvings = halvings
        self.candidates = candidates
        self.ratio = ratio
        self.levels = levels
        self.max_iter = max_iter
        self.sparsities = sparsities
        self.size_penalty = size_penalty
        self.penalty = penalty
        self.expressions = expressions
        self.validation = validation
        self.model = model
        self.random_state = random_state
        self.protection = protection

    def _check(self, fed: Federation) -> None:
        for name in ("refinements", "halvings", "levels", "max_iter", "sparsities"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("candidates", self.candidates, 2, 4096, whole=True)
        check_number("ratio", self.ratio, 0.01, 0.99)
        check_number("size_penalty", self.size_penalty, 0)
        check_choice("protection", self.protection, ("sums", "open"))
        check_number("penalty", self.penalty, 0)
        check_validation(self.validation)
        if self.validation == 0:
            raise ParameterError("validation must be above 0: masks are compared on validation rows")
        for text in self.expressions or []:
            parse(text)
        if fed.partition != "horizontal" and self.model is None:
            raise ParameterError(f"the built-in model is for horizontal parties; pass model= for {fed.partition} ones")

        if fed.names == "private" and self.model is None:
            raise ParameterError("columns are matched by name: FedHalving needs a federation with names='shared'")

    def transform(self, fed: Federation) -> Federation:
        """The same federation with the selected columns and new features only."""
        check_is_fitted(self, "selection_")
        return engineered_view(fed, self.selection_) if self.selection_.engineered else super().transform(fed)

    def _select(self, fed: Federation) -> Outcome:
        model: MaskModel = self.model(fed) if self.model is not None else RowModel(fed, self)
        generator = np.random.default_rng(self.random_state)
        low, high = 0.0, 1.0
        finalists: list[Scored] = []
        history = []
        for refinement in fed.track(range(self.refinements), "refinement"):
            found: list[Scored] = []
            for halving in fed.track(range(self.halvings), "halving"):
                masks = self._draw(generator, len(model.features), halving, low, high, refinement == 0)
                found += self._halve(model, masks, self.max_iter * 2**halving)
            finalists += found
            top = np.array([each.sparsity for each in _best(found, self.sparsities)])
            low, high = max(0.0, top.mean() - top.std()), min(1.0, top.mean() + top.std())
            history.append({"low": float(low), "high": float(high), "best": max(each.score for each in found)})
        return self._outcome(fed, model.features, finalists, history)

    def _draw(
        self, generator: np.random.Generator, width: int, halving: int, low: float, high: float, first: bool
    ) -> np.ndarray:
        count = max(2, self.candidates // 2**halving)
        shares = generator.uniform(low, high, count)
        masks = generator.random((count, width)) < shares[:, None]
        empty = ~masks.any(axis=1)
        masks[empty, generator.integers(0, width, int(empty.sum()))] = True
        if first and halving == 0:
            masks[0] = True
        return np.unique(masks, axis=0)

    def _halve(self, model: MaskModel, masks: np.ndarray, rounds: int) -> list[Scored]:
        """One successive halving; the masks that are left and their scores."""
        scores = np.zeros(len(masks))
        for level in range(self.levels):
            scores = model.score(masks, int(np.ceil(rounds / self.ratio**level)))
            scores = scores - self.size_penalty * masks.mean(axis=1)
            if level < self.levels - 1:
                kept = np.argsort(-scores, kind="stable")[: max(1, int(np.ceil(self.ratio * len(masks))))]
                masks, scores = masks[kept], scores[kept]
        return [Scored(mask, float(score), float(mask.mean())) for mask, score in zip(masks, scores)]

    def _outcome(
        self, fed: Federation, features: list[tuple[str, str]], finalists: list[Scored], history: Sequence[object]
    ) -> Outcome:
        """A column's score is the share of the best masks that keep it, the winner's columns first."""
        best = _best(finalists, max(self.sparsities, 1))
        winner = best[0]
        share = np.mean([each.mask for each in best], axis=0)
        names = fed.column_names()
        formulas = list(self.expressions or [])
        position = {feature: i for i, feature in enumerate(features)}
        scores, selected = {}, {}
        for party, columns in names.items():
            where = [position.get((party, c), position.get(("", c), -1)) for c in columns]
            scores[party] = np.array([share[i] if i >= 0 else 0.0 for i in where])
            selected[party] = np.array([bool(winner.mask[i]) if i >= 0 else False for i in where], dtype=bool)
        kept = [text for text in formulas if winner.mask[position["", text]]]
        details = {
            "score": winner.score, "sparsity": winner.sparsity, "history": history, "expressions": kept,
            "without_numbers": [c for c in next(iter(names.values())) if ("", c) not in position],
        }  # fmt: skip
        return Outcome(scores, selected, details, engineered=kept)


def _best(scored: list[Scored], count: int) -> list[Scored]:
    """Highest score first; of equal scores the smaller mask."""
    return sorted(scored, key=lambda each: (-each.score, each.sparsity))[:count]
