"""Knockoffs: columns that the label prefers to copies of themselves that know nothing of it.

Candes et al. 2018 (model-X knockoffs), several copies at once (Gimenez and Zou 2019), drawn from sums over the rows
(He et al. 2022): the coordinator, which holds no rows, opens mean products of all parties' columns and the label
(``mpc/moments.py``; horizontal parties add theirs up under masks) and draws what knockoffs would have given
(``knockoff_sums.py``). A lasso over columns and knockoffs then competes; a column is kept if it wins by a margin by
which knockoffs win seldom. In the mean at most ``fdr`` of what is kept is noise: a column that tells nothing more about
the label once all the others are known. That needs columns that are jointly about Gaussian; what the label has to do
with them may be anything.

Departures: a number stands by its normal score (the Gaussian value of its rank), so that the shape of a column matters
no more; beside it, with ``squares``, the square of that, which finds columns that tell by their spread; a category by
indicators. Horizontal parties' columns are scaled as they are, for ranks over all parties would need more messages.

Who learns what: the coordinator: correlations of all unnamed columns and the label; of categories and columns of few
values these are tables of counts, so that they are refused unless the job says ``open_tables``. Parties: which of
their columns were kept. Three rounds beside names and sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation, together
from fedsift.core.party import Party, Task
from fedsift.errors import DataError, ReplyError
from fedsift.models.fed_linear import moments
from fedsift.mpc import horizontal_study
from fedsift.mpc.dealer import check_neutral
from fedsift.mpc.horizontal_study import agree_columns, describe_rows, load_columns, open_study, standardise
from fedsift.mpc.moments import OPERATIONS as MOMENTS
from fedsift.mpc.moments import MomentColumns, check_few_values, open_moments, scaled
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.knockoff_sums import contrasts, discoveries, lasso, with_knockoffs

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
#: Of the penalty below which noise alone would hardly stay out: less finds more, and the margins sort it out.
_PENALTY = 0.6


@operation(
    "knockoffs.open_columns",
    discloses="aggregate",
    about="the column that each component belongs to, and how many stand for the label",
    reply={"owner": Array("i"), "targets": int},
    times=1,
)
def open_columns(party: Party, *, task: Task) -> dict[str, Any]:
    """Columns as components: normal scores, their squares where the job says so, indicators of categories."""
    check_few_values(party, {name: _told_apart(party, name) for name in party.columns})
    values, owner = components(party, party.job.parameters["squares"] is True)
    targets = np.zeros((party.n_rows, 0))
    if party.table.label is not None:
        labels = party.labels(task=task)
        wanted = np.arange(1 if labels.n_classes == 2 else labels.n_classes)
        regression = labels.task == "regression"
        targets = labels.values[:, None] if regression else (labels.codes[:, None] == wanted)
    party.keep(MomentColumns(np.hstack([values, scaled(targets.astype(np.float64))])))
    return {"owner": owner, "targets": targets.shape[1]}


def _told_apart(party: Party, column: str) -> Floats:
    """The values by which exact products are tables of counts: of a category those of an indicator, so two."""
    if party.table.kinds[column] != "categorical":
        return party.table.values(column)
    codes, count = party.binned(column, 2)
    return np.asarray(codes == np.bincount(codes, minlength=count).argmax(), dtype=np.float64)


def components(party: Party, squares: bool) -> tuple[Floats, Whole]:
    """Rows x components, each of mean 0 and mean square 1, and the column of each."""
    parts, owner = [np.zeros((party.n_rows, 0))], []
    for number, column in enumerate(party.columns):
        if party.table.kinds[column] == "categorical":
            codes, count = party.binned(column, 2)
            block = (codes[:, None] == np.arange(1 if count == 2 else count)).astype(np.float64)
        else:
            block = normal_scores(party.table.values(column))[:, None]
            if squares and len(np.unique(block)) > 2:
                block = np.hstack([block, block**2])
        parts.append(scaled(block))
        owner += [number] * block.shape[1]
    return np.hstack(parts), np.array(owner, dtype=np.int64)


def normal_scores(values: Floats) -> Floats:
    """The Gaussian value of each value's rank (equal values share one); missing values stay missing."""
    present = ~np.isnan(values)
    scores = np.full(len(values), np.nan)
    if present.any():
        scores[present] = norm.ppf((rankdata(values[present]) - 0.5) / present.sum())
    return scores


class Knockoffs(Selector):
    """Keep the columns that tell something about the label beyond all others, at most ``fdr`` of them false.

    Parameters
    ----------
    fdr : at most this share of the kept columns is noise, in the mean over tables. With few true columns nothing can
        be kept at a small rate: at least 1 / (copies * fdr) must stand out.
    copies : knockoffs of each column. squares : also look for columns that tell by their spread (vertical parties).
    random_state : of the draw of knockoffs; it hides nothing.
    open_tables : let categories and columns of at most four values take part (vertical parties): the coordinator reads
        the exact tables of counts of every two of them.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 12))
    >>> fed = fs.Federation.split(X, X[:, 0] + X[:, 1] ** 2 + X[:, 7], parties=["bank", "shop"])
    >>> fs.Knockoffs(fdr=0.1).fit(fed).selected_
    {'bank': ['f0', 'f1'], 'shop': ['f7']}
    """

    name = "knockoffs"
    paper = "Candes et al. 2018; Gimenez and Zou 2019; He et al. 2022 (knockoffs from sums over the rows)"
    partitions = ("vertical", "horizontal")
    leaks = (
        "coordinator: correlations of unnamed columns and the label, with open_tables the tables of counts of columns "
        "of few values; parties: which of their columns were kept"
    )
    operations = together(MOMENTS, (open_columns,), horizontal_study.OPERATIONS, (load_columns, moments.masked))

    def __init__(self, *, fdr: float = 0.1, copies: int = 5, squares: bool = True, random_state: int = 0,
        open_tables: bool = False,
    ):  # fmt: skip
        self.fdr = fdr
        self.copies = copies
        self.squares = squares
        self.random_state = random_state
        self.open_tables = open_tables

    def _check(self, fed: Federation) -> None:
        check_number("fdr", self.fdr, 1e-9, 1)
        check_number("copies", self.copies, 1, 20, whole=True)
        check_number("random_state", self.random_state, 0, whole=True)
        check_choice("open_tables", self.open_tables, (True, False))
        if fed.partition == "vertical":
            check_neutral(fed, "Knockoffs", because="it opens correlations of all columns")

    def _select(self, fed: Federation) -> Outcome:
        joint, owner, names = _joint(fed) if fed.partition == "vertical" else _added(fed)
        importance = np.zeros((self.copies + 1, len(names)))
        varies = np.flatnonzero(np.diag(joint)[: len(owner)] > 0.5)  # the others are constant
        targets = len(joint) - len(owner)
        kept = np.concatenate([varies, np.arange(len(owner), len(joint))])
        rows, generator = fed.n_rows, np.random.default_rng(self.random_state)
        gram, linear = with_knockoffs(joint[np.ix_(kept, kept)], targets, rows, self.copies, generator)
        alpha = _PENALTY * np.sqrt(2 * np.log(max(2, len(gram))) / rows)
        sizes = np.abs(lasso(gram, linear, alpha)).sum(axis=1).reshape(self.copies + 1, len(varies))
        for column, size in zip(owner[varies], sizes.T):
            importance[:, column] += size
        winner, margin = contrasts(importance)
        chosen = discoveries(winner, margin, self.copies, self.fdr)
        if not chosen.any():
            fed.ledger.note(
                f"nothing was kept: too few columns beat their knockoffs for fdr={self.fdr:g} (columns that repeat "
                "each other hide each other); more rows, fewer such columns or a higher fdr find more; filters rank all"
            )
        signed = np.where(winner == 0, margin, -margin)
        scores = {party: np.zeros(count) for party, count in fed.n_columns.items()}
        selected = {party: np.zeros(count, dtype=bool) for party, count in fed.n_columns.items()}
        for number, places in enumerate(names):
            for party, position in places:
                scores[party][position], selected[party][position] = signed[number], chosen[number]
        return Outcome(scores, selected, {"columns": len(names), "components": len(varies)})


Place = tuple[str, int]  # a party and the position of one of its columns


def _joint(fed: Federation) -> tuple[Floats, Whole, list[list[Place]]]:
    """Vertical parties: mean products with the label last, the column of each component, and where columns are."""
    opened = fed.ask(open_columns, to=fed.parties, task=fed.asked_task)
    widths, owner, label = {}, [], []
    names: list[list[Place]] = []
    for party, reply in opened.items():
        targets = int(reply["targets"])
        if set(reply["owner"].tolist()) != set(range(fed.n_columns[party])) or (targets > 0) != (party == fed.active):
            raise ReplyError(party, "open_columns", "its components do not cover its columns")
        label += [False] * len(reply["owner"]) + [True] * targets
        owner.append(reply["owner"] + len(names))
        names += [[(party, position)] for position in range(fed.n_columns[party])]
        widths[party] = len(reply["owner"]) + targets
    joint, last = open_moments(fed, widths), np.argsort(label, kind="stable")
    return joint[np.ix_(last, last)], np.concatenate(owner), names


def _added(fed: Federation) -> tuple[Floats, Whole, list[list[Place]]]:
    """Horizontal parties: the same, added up over all of them under masks. Columns that are no numbers take no part."""
    described = fed.ask(describe_rows, to=fed.parties, task=fed.asked_task)
    numeric, _ = agree_columns(described)
    if not numeric:
        raise DataError("there is no numeric column to select from")
    total = SecureSum(fed)
    study = open_study(total, described, 0.0)
    total.ask_all(load_columns, columns=numeric)
    standardise(total, len(numeric))
    size = len(numeric) + 1 + study.outputs
    found = total.sum(moments, (size * (size + 1) // 2,)) / study.n_train
    joint = np.zeros((size, size))
    joint[np.triu_indices(size)] = found
    joint = joint + np.triu(joint, 1).T
    spread = np.sqrt(np.maximum(np.diag(joint), 1e-300))
    joint = joint / np.outer(spread, spread)
    used = np.delete(np.arange(size), len(numeric))  # not the column of ones
    if study.outputs == 2:
        used = used[:-1]  # of two classes one says all
    columns = fed.column_names()
    places = [[(party, names.index(column)) for party, names in columns.items()] for column in numeric]
    return joint[np.ix_(used, used)], np.arange(len(numeric)), places
