"""HyFDCA: a linear model over any grid of row blocks and column blocks, trained through duals that nobody pools.

Overman, Blum and Klabjan 2024, as federated AutoFE uses it. Primal alpha/2 |w|^2 + sum loss(w.x_i + b, y_i); the dual
has one coordinate a row, and the weights follow from the duals as w = 1/alpha sum dual_i x_i. One round:

1. Every party moves the weights of its columns and gives its part of its rows' scores; the parts are added up under
   masks, and the total is readable to the rows' label holder alone.
2. The label holder sets each row's dual to the best at that score and gives them to the other parties with these rows
   hidden by random numbers, so that each gets the sum of column times dual for its own columns and no dual.
3. Parties with the same columns add these sums up, unread by the coordinator: the weights rebuilt from the duals, w'.
4. The difference w - w' is the gradient. Inner products of gradients and last steps, summed over all parties, go to the
   coordinator, which sends back how to combine them (limited-memory BFGS), whether the last step is to be undone, and
   whether it is enough: for the squared and the logistic loss |w - w'| >= |w - optimum|, so ``tol`` is a guarantee.

Departures from the paper: it lets each party with a row run its own coordinate ascent and averages the changes, which
needs the labels at all of them and, for weak penalties, diverges unless the local passes are short; w is rebuilt
from the duals outright. Here the label holder alone sets the duals, all rows at once, and w moves towards w' by a step
that cannot overshoot: sigma' = number of column blocks, as in CoCoA+, with the block's own curvature. The paper
encrypts homomorphically; here sums and products are hidden by one-time masks, which cost 8 bytes a number.

That is the conversation of a grid of several row blocks, in which a party reads sums over its own columns. Vertical
parties have another, in which it reads none (``vertical.py``): without labels of its own it could solve for them.

Why it is secure: ``group_sum.py`` (sums), ``setup.py`` (products) and ``mpc/shared_descent.py`` (vertical parties) give
the argument next to the code. Who learns what is on the method's page.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_choice, check_number
from fedsift.core.design import WEIGHTED
from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.core.operation import Answering, R, together
from fedsift.errors import DataError, ParameterError
from fedsift.models import parts
from fedsift.models.base import FederatedModel
from fedsift.models.design import LinearPart
from fedsift.models.hyfdca import party, setup, vertical
from fedsift.models.hyfdca.loss import LOSSES, probabilities
from fedsift.models.hyfdca.party import hold_scores, keep_part, read_scores, score_rows
from fedsift.models.hyfdca.rounds import FULL_EVERY, Dealer, Rounds, check_ring, prepare
from fedsift.models.hyfdca.search import Search
from fedsift.models.hyfdca.setup import Described, Loss, Place, describe_part, open_part
from fedsift.mpc import group_sum
from fedsift.mpc.group_sum import Groups, add_up
from fedsift.mpc.horizontal_study import _class_order as class_order
from fedsift.mpc.shared_descent import check_neutral

_MAX_CLASSES = 100
OPERATIONS = together(parts.OPERATIONS, group_sum.OPERATIONS, setup.OPERATIONS, party.OPERATIONS, vertical.OPERATIONS)


class HyFDCA(FederatedModel):
    """Ridge, logistic regression or linear support vector machine over vertical, horizontal and hybrid parties.

    Columns are standardised over all rows; categories become indicators; a missing value stands at the mean. On these
    columns the result is that of scikit-learn's ``Ridge(alpha)``, ``LogisticRegression(C=1/alpha)`` or
    ``SVC(kernel="linear", C=1/alpha)`` on the pooled table; several classes are one against the rest.

    Parameters
    ----------
    loss : ``"squared"`` (amounts), ``"logistic"``, ``"hinge"`` (classes), or ``"auto"``: squared or logistic.
    penalty : strength alpha of alpha/2 |w|^2 beside the sum of the losses; the intercept is free.
    rounds : at most so many.
    tol : stop when the weights are surely within this relative distance of the optimum (squared, logistic), or when the
        duality gap is below this share of the objective (hinge).
    participation : share of the parties of a grid that is asked in a round; every fourth round asks all.
    memory : steps that the quasi-Newton method remembers.
    allow_sums : let parties without labels take part in a grid of several row blocks, where they read sums over their
        columns from which labels can be solved. Vertical parties never read any.
    random_state : draws who takes part. Masks and keys come from the operating system.
    callback : called as ``callback(run, round)`` after each round (research).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> round(fs.HyFDCA().fit(fed).score(fed), 2)
    0.95
    """

    partitions = ("vertical", "horizontal", "hybrid")
    name = "hyfdca"
    designs = WEIGHTED
    operations = OPERATIONS
    _saved = ("loss_", "n_rows_", "n_rounds_", "converged_", "history_")

    def __init__(
        self,
        *,
        loss: str = "auto",
        penalty: float = 1.0,
        rounds: int = 500,
        tol: float = 1e-3,
        participation: float = 1.0,
        memory: int = 10,
        allow_sums: bool = False,
        random_state: Any = 0,
        callback: Any = None,
    ):
        self.loss = loss
        self.penalty = penalty
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.memory = memory
        self.allow_sums = allow_sums
        self.random_state = random_state
        self.callback = callback

    # -- training -----------------------------------------------------------------------------------------------------

    def _fit(self, run: Federation) -> Sequence[str]:
        grid = Grid.of(run)
        described = run.ask(
            describe_part, to=run.parties, each={n: {"holder": n in grid.holders} for n in run.parties},
            task=run.asked_task,
        )  # fmt: skip
        loss, classes = self._task(grid, described)
        rows = {name: facts.rows for name, facts in described.items()}
        self.loss_, self.holders_ = loss, list(grid.holders)
        self.n_rows_ = sum(rows[holder] for holder in grid.holders)
        if len(grid.rows) == 1:
            self._fit_one_block(run, loss, classes)
        else:
            self._fit_grid(run, grid, rows, loss, classes)
        return classes

    def _fit_one_block(self, run: Federation, loss: Loss, classes: list[str]) -> None:
        """Vertical parties: nobody but the coordinator sees a gradient or a weight before the end."""
        block = vertical.OneBlock(run, loss, float(self.penalty), classes)
        weighted = run.design.weight is not None or run.design.class_weight is not None
        search = Search(loss, float(self.tol), block.outputs, weighted)
        history, turns = vertical.train(
            block, search, int(self.rounds), int(self.memory), self.model_id_, self.callback
        )
        run.ledger.note("columns, weights, scores and residuals travelled under one-time masks (X25519, ChaCha20)")
        self._settle(search, history, turns)

    def _fit_grid(self, run: Federation, grid: Grid, rows: dict[str, int], loss: Loss, classes: list[str]) -> None:
        """Several row blocks: weights lie with the parties, and every party reads sums over its own columns."""
        self._check_labels(run, grid)
        dealer = Dealer(rows, len(classes) if len(classes) > 2 else 1)
        groups = Groups(run, _groups(grid))
        categories = self._open(run, grid, groups, dealer, loss, classes)
        widths = prepare(run, grid, groups, dealer, categories)
        rounds = Rounds(run, grid, groups, dealer, widths, int(self.memory))
        back = self._train(run, rounds, loss)
        rounds.surely(keep_part, model=self.model_id_, back=back)

    def _check(self, fed: Federation) -> None:
        if fed.partition == "vertical":
            check_neutral(fed, type(self).__name__)
        elif fed.design.parts:
            raise ParameterError(f"HyFDCA goes by a design for vertical parties; these are {fed.partition}")
        if len(fed.parties) < 2:
            raise ParameterError("HyFDCA needs at least two parties; a single table is fitted with scikit-learn")
        check_choice("loss", self.loss, ("auto", *LOSSES))
        check_number("penalty", self.penalty, 1e-9)
        check_number("rounds", self.rounds, 1, whole=True)
        check_number("tol", self.tol, 0.0)
        check_number("participation", self.participation, 0.0, 1.0)
        if fed.partition == "vertical" and self.participation < 1:
            raise ParameterError(
                f"participation is for row blocks; vertical parties all take part, got {self.participation!r}"
            )
        check_number("memory", self.memory, 1, whole=True)

    def _task(self, grid: Grid, described: dict[str, Described]) -> tuple[Loss, list[str]]:
        """The loss and the classes; blocks are checked before anything else is sent."""
        for block in grid.rows:
            counts = {name: described[name].rows for name in block}
            if len(set(counts.values())) > 1:
                raise DataError(f"parties of a row block must have the same rows; got {counts}")
        for block in grid.columns:
            odd = [name for name in block if described[name].schema != described[block[0]].schema]
            if odd:
                raise DataError(
                    f"{block[0]!r} and {odd[0]!r} stand in the same column block, but their columns differ in name or "
                    "kind (numbers, categories)"
                )
        facts = [described[name] for name in grid.holders]
        unlabelled = [name for name in grid.holders if not described[name].label]
        if unlabelled:
            raise DataError(f"party {unlabelled[0]!r} is to hold the labels of its rows, but it has no label column")
        amount = any(each.amount for each in facts)
        if self.loss == "squared" and not amount:
            raise ParameterError("loss='squared' is for amounts, but the label has classes; task='regression' says so")
        if self.loss in ("logistic", "hinge") and amount:
            raise ParameterError(f"loss={self.loss!r} is for classes, but the label is an amount")
        if amount:
            return "squared", []
        classes = sorted({c for each in facts for c in each.classes}, key=class_order)
        if not 2 <= len(classes) <= _MAX_CLASSES:
            raise DataError(f"the label has {len(classes)} class(es) over all rows; 2 to {_MAX_CLASSES} are possible")
        return ("hinge" if self.loss == "hinge" else "logistic"), classes

    def _check_labels(self, run: Federation, grid: Grid) -> None:
        """A party without labels that reads sums of its columns times duals can solve for the labels of its rows."""
        reads = [name for name in run.parties if name not in run.label_parties]
        if reads and not self.allow_sums:
            raise DataError(
                f"party {reads[0]!r} has no labels, and in a grid of several row blocks it reads sums over its columns "
                "from which labels can be solved; allow_sums=True if it may know them"
            )
        if reads:
            run.ledger.note(f"allow_sums: {', '.join(reads)} could compute labels from sums over their columns")

    def _open(
        self, run: Federation, grid: Grid, groups: Groups, dealer: Dealer, loss: Loss, classes: list[str]
    ) -> dict[str, bytes | None]:
        rows = sum(dealer.rows[holder] for holder in grid.holders)
        each = {}
        for name in run.parties:
            row, column = grid.row_of(name), grid.column_of(name)
            holder = grid.holders[row]
            place = Place(
                holder=holder, column_group=_in(groups, f"columns {column}"), row_group=_in(groups, f"rows {row}"),
                holder_group=_in(groups, "label holders") if name == holder else None,
                first=grid.columns[column][0] == name, first_holder=grid.holders[0] == name, loss=loss,
                alpha=float(self.penalty), blocks=len(grid.columns), rows=rows, outputs=dealer.outputs,
            )  # fmt: skip
            each[name] = {"place": place, "classes": classes if name == holder else []}
        replies: dict[str, bytes | None] = run.ask(open_part, to=run.parties, each=each, regression=not classes)
        return replies

    def _train(self, run: Federation, rounds: Rounds, loss: str) -> np.ndarray:
        """Rounds until it is enough. For each output: whether the weights before the last full round were better."""
        generator = np.random.default_rng(self.random_state)
        search = Search(loss, float(self.tol), rounds.outputs)
        history = []
        rate, turn, measured = 1.0, 0, 0
        for turn in run.track(range(1, int(self.rounds) + 1), "round", at_most=True):
            present = self._drawn(run, rounds.available(turn), turn, generator)
            measures = rounds.play(turn, present, rate)
            if self.callback is not None:
                self.callback(run, turn)
            if measures is None:
                rate = search.slide * len(present) / len(run.parties)  # on partly old gradients: a shorter step
                continue
            history.append({"round": turn, **search.judge(measures, since_last=turn - measured)})
            measured = turn
            if search.enough():
                break
            rounds.decide(*search.decision(measures))
        self._settle(search, history, turn)
        return search.back

    def _settle(self, search: Search, history: list[dict[str, float]], turn: int) -> None:
        self.history_ = pd.DataFrame(history, columns=["round", "objective", "gap", "bound"])
        self.n_rounds_, self.converged_ = turn, search.converged()
        if not self.converged_:
            left = f"{history[-1]['bound']:.1e}" if history else "unknown"
            warnings.warn(
                f"HyFDCA stopped after {turn} rounds at a bound of {left}, not tol={self.tol:g}: raise rounds, penalty",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _drawn(self, run: Federation, available: list[str], turn: int, generator: np.random.Generator) -> list[str]:
        count = max(2, round(float(self.participation) * len(run.parties)))
        if turn % FULL_EVERY == 1 or count >= len(available):
            return available
        chosen = set(generator.choice(len(available), size=count, replace=False).tolist())
        return [name for number, name in enumerate(available) if number in chosen]

    # -- use ----------------------------------------------------------------------------------------------------------

    def _decision(self, run: Federation) -> np.ndarray:
        """Scores row block after row block (horizontal: party after party)."""
        return np.concatenate(self._scores(run, read_scores))

    def _hold(self, run: Federation) -> None:
        self._scores(run, hold_scores)

    def _scores(self, run: Federation, last: Answering[R]) -> list[R]:
        """``last`` is what each label holder does with the scores of its row block."""
        outputs = len(self.classes_) if self.task_ == "classification" and len(self.classes_) > 2 else 1
        rows, groups = run.sizes(), Groups(run, {})
        number = groups.number()
        parts = []
        for block in _row_blocks(run):
            holder = next((name for name in block if name in self.holders_), None)
            if holder is None:
                raise ParameterError(f"none of {', '.join(block)} held labels when the model was trained")
            senders = [name for name in block if name != holder]
            total = None
            if senders:
                told = run.ask(
                    score_rows, to=senders, model=self.model_id_, number=number, among=senders, reader=holder
                )
                shape = (rows[holder].rows, outputs)
                vectors = {n: check_ring(n, "score_rows", reply, shape) for n, reply in told.items()}
                total = add_up(vectors, "score_rows")
            parts.append(run.ask(last, to=holder, model=self.model_id_, number=number, scores=total, senders=senders))
        return parts

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        if self.loss_ != "logistic":
            raise ParameterError(f"predict_proba needs loss='logistic'; this model has loss={self.loss_!r}")
        return probabilities(scores)

    def _check_parties(self, fed: Federation) -> None:
        missing = [name for name in self.holders_ if name not in fed.parties]
        if missing:
            raise ParameterError(f"the model was trained with the party {missing[0]!r}, which this federation lacks")

    @property
    def coef_(self) -> dict[str, pd.DataFrame]:
        """Weights by party and column, in the units of the table. Only a simulation has them: they stay at sites."""
        parts = self._parts()
        scale = next(part.scale for part in parts.values() if part.intercept is not None)
        result = {}
        for name, part in parts.items():
            names = [n if c is None else f"{n}={value}" for n, c in part.design.columns for value in (c or (None,))]
            weights = scale * part.weights / part.design.scales[:, None]
            several = self.task_ == "classification" and len(self.classes_) > 2
            result[name] = pd.DataFrame(weights, index=names, columns=self.classes_ if several else ["weight"])
        return result

    @property
    def intercept_(self) -> np.ndarray:
        """In the units of the table. Simulated parties only."""
        parts, coef = self._parts(), self.coef_
        holder = parts[self.holders_[0]]
        seen: set[int] = set()
        total = (
            np.zeros(coef[self.holders_[0]].shape[1]) if holder.intercept is None else holder.scale * holder.intercept
        )
        for name, (_, column) in self._place.items():
            if column not in seen:
                seen.add(column)
                total = total - parts[name].design.means @ coef[name].to_numpy()
        return holder.centre + total

    @property
    def _place(self) -> dict[str, tuple[int, int]]:
        return {} if self._fed is None else self._fed.grid

    def _parts(self) -> dict[str, LinearPart]:
        check_is_fitted(self, "model_id_")
        if self._fed is None or not self._fed.simulated:
            raise ParameterError("the weights lie with the parties; only a simulation can show them together")
        sites = self._fed.simulated
        return {name: sites[name].models.part(self.model_id_, LinearPart) for name in self.parties_}


def _groups(grid: Grid) -> dict[str, list[str]]:
    columns = {f"columns {number}": block for number, block in enumerate(grid.columns)}
    return (
        columns | {f"rows {number}": block for number, block in enumerate(grid.rows)} | {"label holders": grid.holders}
    )


def _in(groups: Groups, name: str) -> str | None:
    return name if name in groups.groups else None


def _row_blocks(fed: Federation) -> list[list[str]]:
    place = fed.grid
    numbers = sorted({row for row, _ in place.values()})
    return [[name for name in fed.parties if place[name][0] == number] for number in numbers]
