"""How much a candidate feature adds to a linear model: exactly from summed moments (ours), or by FedAvg (the paper).

Every party keeps a pool of standardised features: the columns, and the candidates that were offered as formulas. The
coordinator knows formulas and positions in the pool, never a row.

``GramScorer``: a ridge needs sums over rows of products of features only. With S the chosen features, A the inverse
of (S'S + penalty), r the residual, a candidate c lowers the penalised squared error by exactly
(c'r)^2 / (c'c + penalty - c'S A S'c), so one round of sums shortlists thousands of candidates. The best of them are
then fitted exactly (again from the sums) and compared by their summed error on the validation rows. Classes: one
output for each, squared errors.

``FedAvgScorer``: each candidate's model is trained by FedAvg and compared on the validation rows; all candidates of a
batch train in lock-step, so that one message carries all of them.

Both learn totals over the parties only. Parties learn the formulas and the models that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.checks import check_above_zero, check_positions, check_size
from fedsift.core.expressions import evaluate, parse
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.models.fed_linear import FITS as SEARCHED
from fedsift.models.fed_linear import PENALTIES, fed_average, moments, unpack_moments, validation_scores
from fedsift.mpc.horizontal_study import ONCE, Design, Study, design_of, target_of, training_of
from fedsift.mpc.secure_sum import SecureSum, both, summed, told_alike

_FLAT = 1e-6  # a candidate whose deviation is below this share of its size is constant for all purposes
_ALIKE = 1e-4  # one that the chosen features explain up to this share of its variance adds nothing


# --- a party's side --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """The columns that candidates are made of and held against."""

    values: NDArray[np.float64]


@dataclass(frozen=True)
class Incoming:
    """A batch of candidates, not scaled yet."""

    values: NDArray[np.float64]


def _width(party: Party) -> int:
    return int(party.held(Pool).values.shape[1])


def _check_start(party: Party, step: str, start: int, last: int | None = None) -> None:
    """A place in the pool, its end included."""
    if not 0 <= start <= (_width(party) if last is None else last):
        raise OperationRefused(party.name, step, "there is no such place in its pool")


@operation("iife.start_pool", when="epsilon=none", times=ONCE, discloses="control", about="acknowledgement")
def start_pool(party: Party) -> None:
    party.keep(Pool(design_of(party)))
    told_alike(party, "start_pool")


@operation("iife.use_columns", when="epsilon=none", times=SEARCHED, discloses="control", about="acknowledgement")
def use_columns(party: Party, *, positions: np.ndarray) -> None:
    """Take these features of the pool as the design of the next fit."""
    check_positions(party.name, "use_columns", "positions", positions, _width(party))
    party.keep(Design(party.held(Pool).values[:, positions]))
    told_alike(party, "use_columns", positions=positions)


@summed(
    "iife.offer_candidates",
    when="epsilon=none",
    times=SEARCHED,
    about="counts, sums and sums of squares of candidate features",
    receives="control",
)
def offer_candidates(party: Party, *, formulas: Annotated[list[str], AtMost(10_000)]) -> np.ndarray:
    values = evaluate([parse(text) for text in formulas], party.table, party.name)
    party.keep(Incoming(values))
    seen = values[training_of(party)]
    return np.stack([(~np.isnan(seen)).sum(axis=0), np.nansum(seen, axis=0), np.nansum(seen**2, axis=0)])


@operation(
    "iife.admit",
    when="epsilon=none",
    times=SEARCHED,
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="means and deviations of candidate features over all parties",
)
def admit(party: Party, *, start: int, keep: np.ndarray, centre: np.ndarray, deviation: np.ndarray) -> None:
    """Standardise the candidates and put them into the pool from position ``start`` on (asked twice, done once)."""
    check_positions(party.name, "admit", "keep", keep, party.held(Incoming).values.shape[1])
    _check_start(party, "admit", start)
    for name, given in (("centre", centre), ("deviation", deviation)):
        check_size(party.name, "admit", name, given, len(keep))
    check_above_zero(party.name, "admit", "deviation", deviation)
    fresh = np.nan_to_num((party.held(Incoming).values[:, keep] - centre) / deviation, nan=0.0)
    party.keep(Pool(np.hstack([party.held(Pool).values[:, :start], fresh])))
    told_alike(party, "admit", start=start, keep=keep, centre=centre, deviation=deviation)


@summed(
    "iife.candidate_moments",
    when="epsilon=none",
    times=SEARCHED,
    about="sums of products of candidate features with chosen ones and with the target",
    receives="control",
)
def candidate_moments(party: Party, *, start: int, chosen: np.ndarray) -> np.ndarray:
    """For each feature from ``start`` on: its product with each chosen one, with the target, and with itself."""
    _check_start(party, "candidate_moments", start)
    check_positions(party.name, "candidate_moments", "chosen", chosen, _width(party))
    pool, train = party.held(Pool).values, training_of(party)
    fresh = pool[train, start:]
    return np.hstack(
        [fresh.T @ pool[np.ix_(train, chosen)], fresh.T @ target_of(party)[train], (fresh**2).sum(axis=0)[:, None]]
    )


@summed(
    "iife.feature_moments",
    when="epsilon=none",
    times=SEARCHED,
    about="sums of products of one chosen feature with all others",
    receives="control",
)
def feature_moments(party: Party, *, position: int) -> np.ndarray:
    _check_start(party, "feature_moments", position, last=_width(party) - 1)
    pool = party.held(Pool).values[training_of(party)]
    return np.asarray(pool.T @ pool[:, position])


@summed(
    "iife.candidate_errors",
    when="epsilon=none",
    times=SEARCHED,
    about="errors of candidate models on the validation rows",
    learns="the models that are compared",
)
def candidate_errors(
    party: Party, *, chosen: np.ndarray, extra: np.ndarray, weights: np.ndarray, squared: bool
) -> np.ndarray:
    """One error a model, then that of predicting the mean. ``extra`` is a pool position a model, -1 for none."""
    rows = ~training_of(party)
    pool, target = party.held(Pool).values, target_of(party)[rows]
    check_positions(party.name, "candidate_errors", "chosen", chosen, _width(party))
    check_positions(party.name, "candidate_errors", "extra", extra, _width(party), low=-1)
    check_size(party.name, "candidate_errors", "weights", weights, len(extra), len(chosen) + 1, target.shape[1])
    base = pool[np.ix_(rows, chosen)]
    errors = []
    for position, model in zip(extra, weights):
        gap = target - base @ model[:-1]
        if position >= 0:
            gap = gap - pool[rows, position][:, None] * model[-1]
        errors.append((gap**2).sum() if squared else np.abs(gap).sum())
    return np.array([*errors, (target**2).sum() if squared else np.abs(target).sum()])


# --- the coordinator's side ------------------------------------------------------------------------------------------


class Scorer:
    """What both scorers share: the pool's formulas, which are chosen, and how candidates get in."""

    def __init__(self, total: SecureSum, study: Study, names: Sequence[str]):
        self.total = total
        self.study = study
        self.formulas = list(names)
        self.position = {name: i for i, name in enumerate(names)}
        self.chosen = list(range(len(names)))
        self.centre: dict[int, tuple[float, float]] = {}
        self.penalty = 1e-3
        total.ask_all(start_pool)

    def offer(self, formulas: Sequence[str]) -> None:
        """Let every party compute candidates; constant ones and those known already are left out."""
        fresh = [text for text in dict.fromkeys(formulas) if text not in self.position]
        if not fresh:
            return
        counts, sums, squares = self.total.sum(offer_candidates, (3, len(fresh)), formulas=fresh)
        counts = np.maximum(counts, 1.0)
        centre, size = sums / counts, squares / counts
        deviation = np.sqrt(np.maximum(size - centre**2, 0.0))
        keep = np.flatnonzero(deviation > _FLAT * np.sqrt(size) + 1e-12)
        start = len(self.formulas)
        for text in (text for i, text in enumerate(fresh) if i not in set(keep.tolist())):
            self.position[text] = -1
        for i in keep:
            self.centre[len(self.formulas)] = (float(centre[i]), float(deviation[i]))
            self.position[fresh[i]] = len(self.formulas)
            self.formulas.append(fresh[i])
        self.total.ask_all(admit, start=start, keep=keep, centre=centre[keep], deviation=deviation[keep])
        self._admitted(start)

    def _admitted(self, start: int) -> None:
        """More to do once the pool has grown."""

    def candidates(self, formulas: Sequence[str]) -> list[int]:
        """Pool positions of formulas that may still be chosen."""
        positions = (self.position.get(text, -1) for text in dict.fromkeys(formulas))
        return [p for p in positions if p >= 0 and p not in self.chosen]


class GramScorer(Scorer):
    """Exact scores from summed moments."""

    def __init__(self, total: SecureSum, study: Study, names: Sequence[str]):
        super().__init__(total, study, names)
        width, outputs = len(names), study.outputs
        matrix = unpack_moments(total.sum(moments), width + 1 + outputs)
        self._cross = matrix[:width, :width]  # pool x chosen
        self._target = matrix[:width, width + 1 :]  # pool x outputs
        self._size = np.diag(matrix)[:width].copy()
        self.score = self._tune()

    def _admitted(self, start: int) -> None:
        count, width = len(self.formulas) - start, len(self.chosen)
        shape = (count, width + self.study.outputs + 1)
        fresh = self.total.sum(candidate_moments, shape, start=start, chosen=np.array(self.chosen))
        self._cross = np.vstack([self._cross, fresh[:, :width]])
        self._target = np.vstack([self._target, fresh[:, width:-1]])
        self._size = np.concatenate([self._size, fresh[:, -1]])

    def gains(self) -> np.ndarray:
        """By how much each feature of the pool would lower the penalised squared error of the training rows."""
        ridge = self.penalty * self.study.n_train
        inner = self._cross[self.chosen] + ridge * np.eye(len(self.chosen))
        solved = np.linalg.solve(inner, np.hstack([self._cross.T, self._target[self.chosen]]))
        own, weights = solved[:, : len(self.formulas)], solved[:, len(self.formulas) :]
        left = self._size + ridge - np.einsum("ps,sp->p", self._cross, own)
        slope = self._target - self._cross @ weights
        gains = (slope**2).sum(axis=1) / np.maximum(left, 1e-12)
        gains[(left < _ALIKE * self.study.n_train) | ~np.isfinite(gains)] = -np.inf
        gains[self.chosen] = -np.inf
        return np.asarray(gains)

    def validate(self, candidates: Sequence[int]) -> np.ndarray:
        """Scores (1 - relative error) with each candidate added; the penalty for the next step is chosen as well."""
        models = [(each, self.penalty) for each in candidates] + [(-1, penalty) for penalty in PENALTIES]
        scores = self._compare(models)
        self._choose_penalty(scores[len(candidates) :])
        return scores[: len(candidates)]

    def accept(self, position: int) -> None:
        column = self.total.sum(feature_moments, (len(self.formulas),), position=position)
        self._cross = np.hstack([self._cross, column[:, None]])
        self.chosen.append(position)

    def _tune(self) -> float:
        scores = self._compare([(-1, penalty) for penalty in PENALTIES])
        return self._choose_penalty(scores)

    def _choose_penalty(self, scores: np.ndarray) -> float:
        self.penalty = PENALTIES[int(np.argmax(scores))]
        return float(scores.max())

    def _compare(self, models: Sequence[tuple[int, float]]) -> np.ndarray:
        weights = np.stack([self._fit(position, penalty) for position, penalty in models])
        errors = self.total.sum(
            candidate_errors, (len(models) + 1,), chosen=np.array(self.chosen),
            extra=np.array([position for position, _ in models]), weights=weights,
            squared=self.study.task != "regression",
        )  # fmt: skip
        return np.asarray(1.0 - errors[:-1] / max(errors[-1], 1e-12))

    def _fit(self, position: int, penalty: float) -> np.ndarray:
        """Exact weights of the chosen features and one more, (chosen + 1) x outputs; the last is 0 without one."""
        rows, ridge = self.chosen, penalty * self.study.n_train
        inner, right = self._cross[rows], self._target[rows]
        if position >= 0:
            column = self._cross[position]
            inner = np.block(
                [[inner, column[:, None]], [column[None, :], self._size[position : position + 1][:, None]]]
            )
            right = np.vstack([right, self._target[position]])
        weights = np.linalg.solve(inner + ridge * np.eye(len(inner)), right)
        return weights if position >= 0 else np.vstack([weights, np.zeros((1, right.shape[1]))])


class FedAvgScorer(Scorer):
    """The paper's way: a federated fit for each candidate."""

    def __init__(self, total: SecureSum, study: Study, names: Sequence[str], rounds: int):
        super().__init__(total, study, names)
        self.rounds = rounds
        self._weights = np.zeros((len(names) + 1, study.outputs))
        self.score = self.tune()

    def tune(self) -> float:
        """Choose the penalty for the chosen features, and take the model as the start of later ones."""
        masks = np.ones((len(PENALTIES), len(self.chosen)), dtype=bool)
        start = np.repeat(self._weights[None], len(PENALTIES), axis=0)
        weights, scores = self._train(self.chosen, masks, PENALTIES, start)
        best = int(np.argmax(scores))
        self.penalty, self._weights = PENALTIES[best], weights[best]
        return float(scores[best])

    def validate(self, candidates: Sequence[int]) -> np.ndarray:
        count, width = len(candidates), len(self.chosen)
        masks = np.hstack([np.ones((count, width), dtype=bool), np.eye(count, dtype=bool)])
        start = np.zeros((count, width + count + 1, self.study.outputs))
        start[:, :width], start[:, -1] = self._weights[:-1], self._weights[-1]
        weights, scores = self._train([*self.chosen, *candidates], masks, [self.penalty] * count, start)
        self._trained = {
            position: np.vstack([weights[i, :width], weights[i, width + i], weights[i, -1]])
            for i, position in enumerate(candidates)
        }
        return scores

    def accept(self, position: int) -> None:
        self.chosen.append(position)
        self._weights = self._trained.get(position, np.insert(self._weights, -1, 0.0, axis=0))

    def _train(
        self, positions: Sequence[int], masks: np.ndarray, penalties: Sequence[float], start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        self.total.ask_all(use_columns, positions=np.array(positions))
        weights, _ = fed_average(self.total, self.study, masks, penalties, rounds=self.rounds, start=start, tol=1e-4)
        kind = "ridge" if self.study.task == "regression" else "logistic"
        asked = np.concatenate([weights, np.zeros((1, *weights.shape[1:]))]) if kind == "ridge" else weights
        errors = self.total.sum(validation_scores, (2, len(asked)), weights=asked, kind=kind)[0]
        worst = errors[-1] if kind == "ridge" else float(self.study.n_validation)
        return weights, 1.0 - errors[: len(weights)] / max(worst, 1e-12)


OPERATIONS = (
    start_pool,
    use_columns,
    admit,
    *both(candidate_errors, candidate_moments, feature_moments, offer_candidates),
)
