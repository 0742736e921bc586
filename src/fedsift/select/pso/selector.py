"""PSO-EVFFS: a particle swarm over columns and SecureBoost's hyper-parameters (Zhang et al.).

Stage 1: ``models`` boosters with drawn hyper-parameters; a column's importance is its mean share of their splits, and
columns that are never split on are dropped. Stage 2: the swarm (``swarm.py``). All particles of an iteration, and all
folds of each, grow in lock-step: one message carries a level of all of them; equal particles are scored once.

Departures. Fitness is k-fold cross-validation inside the rows of the federation, less a price for columns; the paper
takes the test rows (measured: that inflates Sonar's AUC by 0.10, and shows 0.71 on shuffled labels). ``final="vote"``
keeps the columns that the good particles agree on, which is steadier than the single best particle.

The swarm moves at the coordinator, which sees masks, hyper-parameters and one score a model. The rest is as in
SecureBoost (docs/secureboost.md).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.operation import together
from fedsift.errors import DataError
from fedsift.models.boost.growing import Booster
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.plan import fold_rules
from fedsift.models.boost.results import METRICS
from fedsift.models.boost.scoring import OPERATIONS, Protection, by_party, cross_validate, flat, uses
from fedsift.models.boost.settings import WEIGHED_OPENLY, check_boosting, serves, tree_settings
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.pso.swarm import (
    HYPER,
    Bounds,
    Swarm,
    decode,
    first_swarm,
    learn,
    move,
    particle_key,
    read_key,
    vote,
)

_CHECKPOINT = "fedsift-swarm"


class PsoEvffs(Selector):
    """Keep the columns (and hyper-parameters) that a particle swarm finds.

    Parameters
    ----------
    popsize, iterations : of the swarm. patience : stop after so many iterations without a better particle.
    models : boosters of stage 1 (the paper's H).
    max_trees, max_depth : highest values of these hyper-parameters (paper: 6 and 6); bins 5-20, gamma and lambda 1-20.
    learning_rate : of all boosters. multi_output : one tree for all classes instead of one for each (much quicker).
    init : ``fiis``, ``ris`` or ``pis``; ``alpha`` as in the paper.
    inertia, c1, c2, velocity_clamp : of the swarm.
    folds, metric, price : fitness is the mean score of the folds less ``price`` x share of columns kept.
    final : ``best`` (the best particle's mask) or ``vote`` (columns voted by the best ``vote_share`` of the particles).
    n_features : how many columns a vote may keep; ``None`` means a third of all.
    refit : fit a final model on the selected columns (``model_``).
    checkpoint : a file; an interrupted search goes on from it.
    protection, first_tree_local, min_cell, min_leaf, scheme : as in ``SecureBoostClassifier``. A fit costs forty to
        eighty times the bytes of ``protection="coordinator"``, where the label holder hears which rows of so many nodes
        go left that it places most of the others' cells (sites under default rules refuse it).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> swarm = fs.PsoEvffs(popsize=4, iterations=1, models=1, max_trees=2, max_depth=2, n_features=2, refit=False)
    >>> kept = swarm.fit(fed).selected_
    >>> 1 <= sum(len(columns) for columns in kept.values()) <= 2
    True
    """

    name = "pso_evffs"
    paper = "Zhang et al., PSO-EVFFS: embedded vertical federated feature selection by particle swarm"
    leaks = "what SecureBoost gives away for every particle; coordinator: masks, hyper-parameters, one score a model"
    operations = together(OPERATIONS, SecureBoostClassifier.operations)
    cell_parameters = ("min_cell", "min_leaf")
    otherwise = WEIGHED_OPENLY

    def __init__(
        self,
        *,
        popsize: int = 50,
        iterations: int = 20,
        patience: int | None = 8,
        models: int = 10,
        max_trees: int = 6,
        max_depth: int = 6,
        learning_rate: float = 0.3,
        multi_output: bool = False,
        init: str = "fiis",
        alpha: float = 0.3,
        inertia: float = 0.73,
        c1: float = 1.496,
        c2: float = 1.496,
        velocity_clamp: float = 0.2,
        folds: int = 3,
        metric: str = "auto",
        price: float = 0.02,
        final: str = "vote",
        vote_share: float = 0.1,
        n_features: int | None = None,
        refit: bool = True,
        checkpoint: str | None = None,
        protection: str = "all",
        first_tree_local: bool = True,
        min_cell: int = 10,
        min_leaf: int = 5,
        scheme: str = "auto",
        random_state: int = 0,
    ):
        self.popsize = popsize
        self.iterations = iterations
        self.patience = patience
        self.models = models
        self.max_trees = max_trees
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.multi_output = multi_output
        self.init = init
        self.alpha = alpha
        self.inertia = inertia
        self.c1 = c1
        self.c2 = c2
        self.velocity_clamp = velocity_clamp
        self.folds = folds
        self.metric = metric
        self.price = price
        self.final = final
        self.vote_share = vote_share
        self.n_features = n_features
        self.refit = refit
        self.checkpoint = checkpoint
        self.protection = protection
        self.first_tree_local = first_tree_local
        self.min_cell = min_cell
        self.min_leaf = min_leaf
        self.scheme = scheme
        self.random_state = random_state

    def _serves(self) -> tuple[str, ...]:
        return serves(self)

    def _check(self, fed: Federation) -> None:
        for name in ("iterations", "models"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("popsize", self.popsize, 2, whole=True)
        check_number("folds", self.folds, 2, 20, whole=True)
        check_number("patience", self.patience, 1, whole=True, none=True)
        check_number("alpha", self.alpha, 1e-9, 0.5)
        for name in ("inertia", "c1", "c2", "price"):
            check_number(name, getattr(self, name), 0)
        check_number("velocity_clamp", self.velocity_clamp, 1e-9, 1)
        check_number("n_features", self.n_features, 1, whole=True, none=True)
        check_number("vote_share", self.vote_share, 1e-9, 1)
        check_choice("init", self.init, ("fiis", "ris", "pis"))
        check_choice("final", self.final, ("best", "vote"))
        check_choice("metric", self.metric, METRICS)
        check_boosting(self, fed)

    def _select(self, fed: Federation) -> Outcome:
        bounds = Bounds.of(self.max_trees, self.max_depth)
        swarm, importance = self._resume(fed)
        generator = np.random.default_rng(self.random_state)
        if swarm is None:
            importance = self._importance(fed, bounds, generator)
        kept = np.flatnonzero(importance > 0)
        if not len(kept):
            raise DataError("no tree of the first models cuts any column: there is nothing that a swarm could search")
        if swarm is None:
            swarm = first_swarm(self.popsize, bounds, importance[kept], self.init, self.alpha, generator)
        while swarm.iteration < self.iterations and not self._stalled(swarm):
            fed.progress(swarm.iteration, self.iterations, "iteration of the swarm", at_most=True)
            if swarm.iteration:
                move(swarm, bounds, self.inertia, self.c1, self.c2, self.velocity_clamp)
            hyper, masks = decode(swarm, bounds)
            fitness = self._fitness(fed, swarm, kept, hyper, masks)
            learn(swarm, masks, fitness)
            self._save(fed, swarm, importance)
        return self._outcome(fed, swarm, importance, kept)

    # -- stage 1 -----------------------------------------------------------------------------------------------------

    def _importance(self, fed: Federation, bounds: Bounds, generator: np.random.Generator) -> np.ndarray:
        """Mean share of the splits of each column, over boosters with drawn hyper-parameters."""
        everything = by_party(fed, np.arange(sum(fed.n_columns.values())))
        drawn = [np.rint(bounds.draw(generator, True)).astype(int) for _ in range(self.models)]
        boosters = [self._booster(hyper, everything) for hyper in drawn]
        shares = []
        for found in uses(fed, boosters, self._protection(), "splits"):
            splits = flat(found, fed)
            shares.append(splits / max(1.0, splits.sum()))
        importance: np.ndarray = np.mean(shares, axis=0)
        if not importance.any():
            raise DataError(
                "no booster of stage 1 found a split: the columns say nothing about the label, or there are too few "
                f"rows ({fed.n_rows}) for min_leaf={self.min_leaf}"
            )
        return importance

    # -- stage 2 -----------------------------------------------------------------------------------------------------

    def _fitness(
        self, fed: Federation, swarm: Swarm, kept: np.ndarray, hyper: np.ndarray, masks: np.ndarray
    ) -> np.ndarray:
        """Of each particle; those that were scored before (or twice in this iteration) cost nothing."""
        keys = [particle_key(h, m) for h, m in zip(hyper, masks)]
        swarm.asked += len(keys)
        new = [key for key in dict.fromkeys(keys) if key not in swarm.known]
        boosters = []
        for key in new:
            numbers, mask = read_key(key, len(kept))
            boosters.append(self._booster(numbers, by_party(fed, kept[mask])))
        scores = self._scores(fed, boosters)
        total = sum(fed.n_columns.values())
        for key, score in zip(new, scores):
            swarm.known[key] = float(score - self.price * read_key(key, len(kept))[1].sum() / total)
        return np.array([swarm.known[key] for key in keys])

    def _scores(self, fed: Federation, boosters: list[Booster]) -> np.ndarray:
        """Mean over folds inside the federation's rows. Benchmarks replace this to show what test rows would do."""
        if not boosters:
            return np.zeros(0)
        rules = fold_rules(self.folds, int(self.random_state))
        return np.asarray(cross_validate(fed, boosters, rules, self._protection(), self.metric).mean(axis=1))

    def _booster(self, hyper: np.ndarray, columns: dict[str, np.ndarray]) -> Booster:
        trees, depth, bins, gamma, reg_lambda = (int(value) for value in hyper)
        settings = replace(tree_settings(self), max_depth=depth, gamma=float(gamma), reg_lambda=float(reg_lambda))
        return Booster(
            settings, columns, trees, bins=bins, multi_output=bool(self.multi_output), seed=int(self.random_state)
        )

    def _protection(self) -> Protection:
        return Protection(self.protection, max(self.min_cell, self.min_leaf), self.first_tree_local, scheme=self.scheme)

    def _stalled(self, swarm: Swarm) -> bool:
        if self.patience is None or len(swarm.curve) <= self.patience:
            return False
        return swarm.curve[-1]["best"] <= swarm.curve[-1 - self.patience]["best"]

    # -- what comes out ----------------------------------------------------------------------------------------------

    def _outcome(self, fed: Federation, swarm: Swarm, importance: np.ndarray, kept: np.ndarray) -> Outcome:
        votes, voted = vote(swarm, importance[kept], self.vote_share, self._size(fed))
        best_key = max(swarm.known, key=lambda key: (swarm.known[key], key))
        hyper, best_mask = read_key(best_key, len(kept))
        mask = voted if self.final == "vote" else best_mask
        chosen, scores = by_party(fed, kept[mask]), np.zeros(len(importance))
        scores[kept] = votes
        parted = np.split(scores, np.cumsum(list(fed.n_columns.values()))[:-1])
        selected = {name: np.isin(np.arange(count), chosen[name]) for name, count in fed.n_columns.items()}
        details: dict[str, Any] = {
            "hyper_parameters": dict(zip(HYPER, hyper.tolist())), "curve": swarm.curve,
            "best_fitness": float(swarm.best_fitness.max()), "fits_asked": swarm.asked * self.folds,
            "fits_done": len(swarm.known) * self.folds, "dropped_in_stage_1": int((importance == 0).sum()),
        }  # fmt: skip
        if self.refit:
            self.model_ = self._final_model(hyper, fed.task).fit(fed.view(columns=chosen))
        return Outcome(dict(zip(fed.n_columns, parted)), selected, details)

    def _size(self, fed: Federation) -> int:
        return max(1, round(sum(fed.n_columns.values()) / 3)) if self.n_features is None else int(self.n_features)

    def _final_model(self, hyper: np.ndarray, task: str) -> Any:
        trees, depth, bins, gamma, reg_lambda = (int(value) for value in hyper)
        kind = SecureBoostClassifier if task == "classification" else SecureBoostRegressor
        together: dict[str, Any] = {"multi_output": self.multi_output} if task == "classification" else {}
        return kind(
            n_estimators=trees, max_depth=depth, n_bins=bins, gamma=gamma, reg_lambda=reg_lambda,
            learning_rate=self.learning_rate, protection=self.protection,
            first_tree_local=self.first_tree_local, min_cell=self.min_cell,
            min_leaf=self.min_leaf, scheme=self.scheme, random_state=self.random_state, **together,
        )  # fmt: skip

    # -- interruptions -----------------------------------------------------------------------------------------------

    def _signature(self, fed: Federation) -> dict[str, Any]:
        """A checkpoint is for one search: same parameters (but how long), same columns, same rows."""
        free = ("checkpoint", "iterations", "patience", "final", "vote_share", "n_features", "refit")
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in free}
        told: dict[str, Any] = json.loads(
            json.dumps({"parameters": parameters, "columns": fed.n_columns, "rows": fed.n_rows})
        )
        return told

    def _save(self, fed: Federation, swarm: Swarm, importance: np.ndarray) -> None:
        if self.checkpoint is not None:
            content = {"format": _CHECKPOINT, "search": self._signature(fed), "importance": importance.tolist(),
                       "swarm": swarm.as_dict()}  # fmt: skip
            write_atomic(self.checkpoint, json.dumps(content))

    def _resume(self, fed: Federation) -> tuple[Swarm | None, np.ndarray]:
        if self.checkpoint is None or not Path(self.checkpoint).exists():
            return None, np.zeros(0)
        try:
            content = json.loads(Path(self.checkpoint).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise DataError(
                f"the checkpoint {str(self.checkpoint)!r} cannot be read: remove it to start again"
            ) from None
        if not isinstance(content, dict) or content.get("format") != _CHECKPOINT:
            raise DataError(f"{str(self.checkpoint)!r} is not a checkpoint of a swarm: give another file name")
        if content.get("search") != self._signature(fed):
            raise DataError(
                f"the checkpoint {str(self.checkpoint)!r} is of another search (parameters, rows or columns differ): "
                "remove it, or give the same parameters"
            )
        return Swarm.read(content["swarm"]), np.array(content["importance"])
