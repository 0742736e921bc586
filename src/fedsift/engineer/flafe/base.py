"""The conversation that Vertical- and Hybrid-FLAFE share; `api.py` has the two classes and says what they are.

Every party makes candidates from its own columns and takes the most important; every two of different parties are
multiplied while one of them is encrypted; one of the two owners, drawn by lot, gets the product and keeps it if it is
among the most important of what it has then. Vertical parties are a grid of one row block.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.federation import Federation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.crypto.dp import LEAST_DELTA, MOST_DELTA
from fedsift.engineer.bounds import Spending, check_bounds
from fedsift.engineer.flafe.candidates import (
    first_draw,
    form_candidates,
    form_candidates_by,
    load_numbers,
    numeric_columns,
    pool_features,
    scale_candidates,
    scale_candidates_by,
)
from fedsift.engineer.flafe.choice import choose_final, choose_operands, take_operands, told_formulas
from fedsift.engineer.flafe.combine import combine_columns
from fedsift.engineer.flafe.compare import Compared, compare_features
from fedsift.engineer.flafe.features import (
    FUNCTIONS,
    CrossFeature,
    Feature,
    Pair,
    What,
    all_pairs,
    combined_features,
    count_candidates,
    feature_at,
    is_column,
    top,
)
from fedsift.engineer.flafe.grid import Described, Layout, held_out_rows, told_rows
from fedsift.engineer.flafe.importance import (
    BINS,
    BinImportance,
    forest_scores,
    forest_sums,
    open_shares,
    share_labels,
    take_labels,
)
from fedsift.engineer.flafe.joint import keep_parts, parts_of, widen
from fedsift.engineer.flafe.joint_moments import JointProducts
from fedsift.engineer.flafe.privacy import Plan
from fedsift.engineer.flafe.private import agree_operands, plan_columns
from fedsift.errors import DataError, ParameterError, ReplyError
from fedsift.mpc.horizontal_study import standardise
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_opener
from fedsift.select.engineered import engineered_view


class Flafe(Selector):
    """What both have in common; the layout says who shares rows and who shares columns."""

    working = ("_sums", "_bins", "_joint")

    paper = "Overman and Klabjan, Federated Automated Feature Engineering (Vertical-/Hybrid-FLAFE)"

    #: Parameters of both; the classes set them.
    n_operands: int
    n_features: int
    keep_own: bool
    functions: Sequence[str]
    clip: float
    importance: str
    epsilon: float | None
    delta: float
    bounds: Mapping[str, tuple[float, float]] | None
    target_bounds: tuple[float, float] | None
    protection: str
    max_columns: int
    validation: float
    random_state: Any
    scheme: str

    def _check(self, fed: Federation) -> None:
        check_choice("importance", self.importance, self._importances)
        check_choice("protection", self.protection, self._protections)
        check_choice("scheme", self.scheme, SCHEMES)
        for name in ("n_operands", "n_features"):
            check_number(name, getattr(self, name), 1, 200, whole=True)
        check_number("max_columns", self.max_columns, 2, 60, whole=True)
        check_number("clip", self.clip, 0.1, 5)
        check_number("validation", self.validation, 0, 0.9)
        check_number("epsilon", self.epsilon, 1e-6, none=True)
        check_number("delta", self.delta, LEAST_DELTA, MOST_DELTA)
        check_bounds(self.bounds, self.target_bounds)
        check_opener(fed, self.epsilon)
        if self.epsilon is not None and self._open:
            raise ParameterError("protection='open' shows all columns: an epsilon cannot hold there; set epsilon=None")
        unknown = [name for name in self.functions if name not in FUNCTIONS]
        if unknown or not self.functions or isinstance(self.functions, str):
            raise ParameterError(f"functions must be a list from {', '.join(FUNCTIONS)}; got {self.functions!r}")
        if fed.names == "private":
            raise ParameterError(f"formulas name columns: {type(self).__name__} needs a federation with names='shared'")
        if len(self._layout(fed).groups) < 2:
            raise ParameterError(
                f"{type(self).__name__} combines columns of different parties: at least two are needed"
            )

    _importances: tuple[str, ...] = ("bins", "forest")
    _protections: tuple[str, ...] = ("columns", "open")

    def _layout(self, fed: Federation) -> Layout:
        raise NotImplementedError

    def transform(self, fed: Federation) -> Federation:
        """The same federation with every party's own new features; ``combine`` computes those across parties too."""
        check_is_fitted(self, "selection_")
        return engineered_view(fed, self.selection_)

    def combine(self, fed: Federation) -> Federation:
        """The same federation with the cross-party features as well, each as a column of the party that holds it.

        Rows that were released in ``fit`` keep the values of that release: noise is drawn once. New rows are combined
        as in ``fit``, with the same noise scales; each new person spends the run's epsilon once.
        """
        check_is_fitted(self, "selection_")
        return widen(fed, self._layout(fed), self.selection_, self.cross_, self._scales, self._model, self._open)

    @property
    def _open(self) -> bool:
        return self.protection == "open"

    # -- the conversation ----------------------------------------------------------------------------------------------

    def _select(self, fed: Federation) -> Outcome:
        layout = self._layout(fed)
        self._seed = first_draw(self.random_state)
        if self.epsilon is not None:
            return self._select_privately(fed, layout, self.epsilon)
        described = {n: Described(**reply) for n, reply in fed.ask(numeric_columns, to=layout.parties).items()}
        numeric = layout.same_numbers(described)
        if sum(bool(columns) for columns in numeric.values()) < 2:
            raise DataError("at least two parties need columns of numbers: there is nothing to combine across parties")
        self._sums: dict[str, SecureSum] = {}
        self._bins: BinImportance | None = None
        rows = {name: described[name].rows for name in layout.parties}
        self._held_out = {name: held_out_rows(count, self.validation, self._seed) for name, count in rows.items()}
        if min(rows[name] - len(held) for name, held in self._held_out.items()) < 10:
            raise DataError("fewer than 10 training rows are left in a row block; lower validation or bring more rows")
        if self.importance == "forest" or self._open:
            self._share_labels(fed, layout)
        self._joint = [JointProducts(fed, list(block.values())) for block in layout.blocks]
        by_column, numeric = self._screened(fed, layout, numeric)
        operands, scores, numeric = self._operands(fed, layout, numeric)
        for group, columns in numeric.items():
            by_column[group].update(zip(columns, scores[group].tolist()))
        details = self._release(fed, layout, operands, rows)
        return self._outcome(fed, layout, by_column, details)

    def _release(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], rows: dict[str, int]
    ) -> dict[str, object]:
        """Combine, choose, compare: the paper's way, in which combined columns are released to their holders."""
        pairs = all_pairs(operands, self._seed)
        fed.ledger.note("epsilon=None: a holder can work out the other party's column from a combined one")
        self._scales: dict[str, float] = {}
        held = self._combine(fed, layout, pairs, rows)
        kept = self._final(fed, layout, operands, held)
        details = self._keep(fed, layout, operands, kept)
        if self.validation > 0:
            details["comparison"] = [asdict(row) for row in self._compare(fed, layout, kept, rows)]
        return details

    def _keep(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], kept: dict[str, list[Feature]]
    ) -> dict[str, Any]:
        """Let the sites remember what was kept; the record of it."""
        self._model = secrets.token_hex(8)
        features = [feature for group in layout.groups for feature in kept[group]]
        self.cross_: list[CrossFeature] = [feature for feature in features if isinstance(feature, CrossFeature)]
        records = {g: {"records": [asdict(part) for part in parts_of(self.cross_, g)]} for g in layout.groups}
        fed.ask(keep_parts, to=layout.parties, each=layout.each(records), model=self._model)
        return {
            "features": [asdict(feature) for feature in features],
            "holders": {feature.formula: feature.holder for feature in self.cross_},
            "operands": operands,
        }  # fmt: skip

    def _select_privately(self, fed: Federation, layout: Layout, epsilon: float) -> Outcome:
        """Nothing is chosen by the data before it has noise (`private.py`)."""
        operands = agree_operands(fed, layout)
        plan = Plan(Spending.plan(epsilon, self.delta, self.bounds), len(fed.parties))
        spent = plan.budget if self.protection == "statistics" else plan.columns_budget
        budget = spent(epsilon, self.delta)
        fed.ledger.note(f"differential privacy: epsilon {epsilon:g}, delta {self.delta:g} for a person's row")
        details = self._release_privately(fed, layout, operands, plan)
        told = {"budget": budget.as_rows(), "epsilon_spent": budget.spent.epsilon}
        return self._outcome(fed, layout, {group: {} for group in layout.groups}, details | told)

    def _release_privately(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], plan: Plan
    ) -> dict[str, object]:
        """Every product with noise, and every one is kept."""
        pairs = all_pairs(operands, self._seed)
        count = len(pairs) * len(self.functions)
        self._scales = {name: plan.column_scale(name, count) for name in self.functions}
        fed.ask(plan_columns, to=layout.parties, columns=count)
        rows = told_rows(fed, layout)
        held = self._combine(fed, layout, pairs, rows)
        fed.ask(pool_features, to=layout.parties)
        kept = {group: combined_features(group, operands, held[group]) for group in layout.groups}
        details = self._keep(fed, layout, operands, kept)
        return {**details, "noise": dict(self._scales), "released_columns": count}

    def _compare(
        self, fed: Federation, layout: Layout, kept: dict[str, list[Feature]], rows: dict[str, int]
    ) -> list[Compared]:
        """Scores of a joint ridge on the validation rows, with and without the new features and with pure noise."""
        count = sum(rows[next(iter(block.values()))] for block in layout.blocks)
        holders = list(self._unlabelled(fed, layout))
        return compare_features(fed, layout, self._joint, kept, holders, count, seed=self._seed)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _share_labels(self, fed: Federation, layout: Layout) -> None:
        """The paper's parties all have the labels. Where they do not, they are told: a choice that the ledger notes."""
        for holder, others in self._unlabelled(fed, layout).items():
            if others:
                why = "importance='forest'" if self.importance == "forest" else "protection='open'"
                fed.ledger.note(f"{why}: the label of every row was sent to the parties without it")
                told = fed.ask(share_labels, to=holder, task=fed.asked_task)
                fed.ask(take_labels, to=others, values=told["values"], classes=told["classes"])

    def _unlabelled(self, fed: Federation, layout: Layout) -> dict[str, list[str]]:
        return {fed.active: fed.passive}

    def _candidates(
        self, fed: Federation, layout: Layout, numeric: dict[str, list[str]], grow: bool
    ) -> tuple[dict[str, int], dict[str, list[str]]]:
        """Let all parties make their candidates; how many there are by group, and which columns they are grown from."""
        each = layout.each({group: {"columns": columns} for group, columns in numeric.items()})
        loaded: dict[str, list[str]] = fed.ask(load_numbers, to=layout.parties, each=each, seed=self._seed)
        for name, columns in loaded.items():
            if not set(columns) <= set(numeric[layout.group_of(name)]):
                raise ReplyError(name, "load_numbers", "it takes columns that it did not name before")
        numeric = {group: loaded[layout.members(group)[0]] for group in layout.groups}
        told = self._statistics(fed, layout, {group: len(columns) for group, columns in numeric.items()})
        owners = layout.each({group: {"owner": group, **told[group]} for group in layout.groups})
        grid = len(layout.blocks) > 1
        fed.ask(form_candidates_by if grid else form_candidates, to=layout.parties, each=owners, grow=grow)
        grown = {group: count_candidates(len(columns)) if grow else len(columns) for group, columns in numeric.items()}
        told = self._statistics(fed, layout, grown)
        scale = scale_candidates_by if grid else scale_candidates
        counts = fed.ask(scale, to=layout.parties, each=layout.each(told))
        found = {group: counts[layout.members(group)[0]] for group in layout.groups}
        for name, count in counts.items():
            if count != found[layout.group_of(name)]:
                raise ReplyError(name, "scale_candidates", "another number of candidates than its column group")
        return found, numeric

    def _statistics(self, fed: Federation, layout: Layout, widths: dict[str, int]) -> dict[str, dict[str, Any]]:
        """What the parties of a group are told to standardise by: nothing where a party has all rows."""
        if len(layout.blocks) == 1:
            return {group: {} for group in layout.groups}
        told = {}
        for group, width in widths.items():
            if group not in self._sums:
                self._sums[group] = SecureSum(fed, parties=layout.members(group))
            centre, deviation = standardise(self._sums[group], width)
            told[group] = {"centre": centre, "deviation": deviation}
        return told

    def _importance(self, fed: Federation, layout: Layout, what: What, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """One number a candidate, by group."""
        task = fed.asked_task
        if len(layout.blocks) > 1:
            told = {"what": what, "task": task, "seed": self._seed, "blocks": len(layout.blocks)}
            sums = {group: self._sums[group].sum(forest_sums, (size,), **told) for group, size in sizes.items()}
            return {group: values / len(layout.blocks) for group, values in sums.items()}
        if self.importance == "forest":
            scores: dict[str, np.ndarray]
            scores = fed.ask(forest_scores, to=layout.parties, what=what, task=task, seed=self._seed)
        elif self._open:
            scores = fed.ask(open_shares, to=layout.parties, what=what, task=task)
        else:
            if self._bins is None:
                rows = fed.n_rows - len(self._held_out[fed.active])
                self._bins = BinImportance(fed, self.scheme, self._sums_asked(fed, max(sizes.values())), rows)
            scores = self._bins.scores(what)
        for name, size in sizes.items():
            values = scores.get(name)
            if not isinstance(values, np.ndarray) or values.shape != (size,) or not np.isfinite(values).all():
                raise ReplyError(name, "importance", f"expected {size} finite scores")
        return scores

    def _sums_asked(self, fed: Federation, candidates: int) -> int:
        """About how many sums a party will be asked for: of its candidates, then of what it chooses from."""
        own, crossed = self.n_operands, self.n_operands**2 * len(self.functions) // 2
        return BINS * (candidates + own + crossed * len(fed.passive))

    def _screened(
        self, fed: Federation, layout: Layout, numeric: dict[str, list[str]]
    ) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
        """Columns that candidates are grown from: all, or the ``max_columns`` most important of a wide table.

        By forests alone, which need the labels at every party anyway; else each party chooses by its own columns.
        """
        by_column = {group: dict.fromkeys(names, 0.0) for group, names in numeric.items()}
        if max(map(len, numeric.values())) <= self.max_columns or self.importance != "forest":
            return by_column, numeric
        sizes, _ = self._candidates(fed, layout, numeric, grow=False)
        scores = self._importance(fed, layout, "local", sizes)
        kept = {}
        for group, names in numeric.items():
            by_column[group].update(zip(names, scores[group].tolist()))
            best = np.sort(np.argsort(-scores[group], kind="stable")[: self.max_columns])
            kept[group] = [names[i] for i in best]
        return by_column, kept

    def _operands(
        self, fed: Federation, layout: Layout, numeric: dict[str, list[str]]
    ) -> tuple[dict[str, list[str]], dict[str, np.ndarray], dict[str, list[str]]]:
        """The features that every group brings into the combination, as formulas; all importances, and the columns."""
        sizes, numeric = self._candidates(fed, layout, numeric, grow=True)
        scores = self._importance(fed, layout, "local", sizes)
        if len(layout.blocks) > 1:
            chosen = {group: top(scores[group], self.n_operands) for group in layout.groups}
        else:
            chosen = choose_operands(fed, scores, self.n_operands)
        each = layout.each({group: {"chosen": positions} for group, positions in chosen.items()})
        said = fed.ask(take_operands, to=layout.parties, each=each)
        return {g: told_formulas(said, layout.members(g)[0], len(chosen[g])) for g in layout.groups}, scores, numeric

    def _combine(
        self, fed: Federation, layout: Layout, pairs: list[Pair], rows: dict[str, int]
    ) -> dict[str, list[tuple[Pair, str]]]:
        """Row block by row block; a pair keeps its holding group in every block. What each group holds, in order."""
        held: dict[str, list[tuple[Pair, str]]] = {group: [] for group in layout.groups}
        for number, block in enumerate(layout.blocks):
            named = [Pair(block[p.first], p.i, block[p.second], p.j, block[p.holder]) for p in pairs]
            back = dict(zip(named, pairs))
            found = combine_columns(
                fed, named, self.functions, self._scales, rows=rows[next(iter(block.values()))],
                open=self._open,
            )  # fmt: skip
            for group, name in block.items():
                order = [(back[pair], function) for pair, function in found.get(name, [])]
                if number and order != held[group]:
                    raise ReplyError(name, "combine", "a row block has combined features in another order")
                held[group] = order
        return held

    def _final(
        self, fed: Federation, layout: Layout, operands: dict[str, list[str]], held: dict[str, list[tuple[Pair, str]]]
    ) -> dict[str, list[Feature]]:
        """What every group keeps: its own features first, then combined ones, with formulas."""
        sizes = fed.ask(pool_features, to=layout.parties)
        expected = {group: len(operands[group]) + len(held[group]) for group in layout.groups}
        for name, size in sizes.items():
            if size != expected[layout.group_of(name)]:
                raise ReplyError(name, "pool_features", "another number of features than it was sent")
        scores = self._importance(fed, layout, "pool", expected)
        own = {group: [i for i, text in enumerate(texts) if not is_column(text)] for group, texts in operands.items()}
        found = {group: values.copy() for group, values in scores.items()}
        for group, texts in operands.items():  # a column itself is an operand, but no new feature
            found[group][[i for i in range(len(texts)) if self.keep_own or i not in own[group]]] = 0.0
        count = self.n_features
        if len(layout.blocks) > 1:
            kept = {group: top(found[group], count) for group in layout.groups}
        else:
            kept = choose_final(fed, found, {group: len(texts) for group, texts in operands.items()}, count)
        if self.keep_own:
            kept = {group: [*own[group], *kept[group]] for group in layout.groups}
        return {
            group: [feature_at(group, position, operands, held[group], scores[group]) for position in kept[group]]
            for group in layout.groups
        }

    def _outcome(
        self, fed: Federation, layout: Layout, by_column: dict[str, dict[str, float]], details: dict[str, Any]
    ) -> Outcome:
        """All columns stay; a column's score is its own importance."""
        names = fed.column_names()
        scores = {
            name: np.array([by_column[layout.group_of(name)].get(column, 0.0) for column in columns], dtype=float)
            for name, columns in names.items()
        }
        kept = {name: np.ones(len(columns), dtype=bool) for name, columns in names.items()}
        formulas = list(dict.fromkeys(record["formula"] for record in details["features"]))
        groups = {name: layout.group_of(name) for name in layout.parties if layout.group_of(name) != name}
        return Outcome(scores, kept, details, engineered=formulas, groups=groups)
