"""What a trained model goes by: the columns that matter, over all rows.

Models that are measured on shares (linear, additive, networks) by permutation importance: each party shuffles one of
its own columns under a draw that nobody else can repeat, and the coordinator opens how good the model is then; no row's
score is seen. Boosted trees by the gain of their cuts, where nobody has their leaves; else by Shapley values
(``models/boost/explaining.py``), which need more of the partners: their policies decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_choice, check_number
from fedsift.core.federation import Federation
from fedsift.core.in_step import in_step, room_for
from fedsift.core.row_access import place_of
from fedsift.errors import DataError, ParameterError
from fedsift.models.base import FederatedModel
from fedsift.models.boost.explaining import explain_jointly, importance_frame
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.settings import SHOWN
from fedsift.models.shuffling import Shuffled

Boosted = (SecureBoostClassifier, SecureBoostRegressor)
Place = tuple[str, int]


@dataclass(frozen=True)
class Explanation:
    """``frame`` has a line a column: party, feature, importance (and its deviation over repeats).

    ``by`` says what an importance is. ``rows`` (ids x "party.feature") is there where single rows were asked for.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(120, 4))
    >>> fed = fs.Federation.split(X, (X[:, 2] > 0).astype(int), parties=["bank", "shop"])
    >>> model = fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="coordinator").fit(fed)
    >>> fs.explain(fed, model).by
    'mean absolute Shapley value, in raw scores'
    """

    by: str
    frame: pd.DataFrame
    rows: pd.DataFrame | None = field(default=None, repr=False)

    def __str__(self) -> str:
        shown = self.frame.to_string(index=False, float_format=lambda value: f"{value:.4f}")
        return f"{self.by}\n{shown}"


def explain(
    fed: Federation, model: FederatedModel, *, repeats: int = 3, metric: str = "auto", rows: bool = False,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> Explanation:  # fmt: skip
    """Which columns a model goes by, over these rows.

    Parameters
    ----------
    model : a fitted one. Linear and additive models, networks on shares: how much worse ``metric`` gets when a column
        is shuffled (labels needed). Boosted trees: the mean absolute Shapley value of a column, in units of raw scores;
        at their default level, ``protection="all"``, at which nobody has a leaf, its share of the gain when they grew.
    repeats : how often a column is shuffled. metric : ``auto`` is ``auc`` or ``r2``; ``accuracy``.
    rows : boosted trees: also the values of each row, where the policies allow it.
    columns : models that are measured: which columns are shuffled, names by party; left out, all of them. Each costs as
        much as a prediction of all rows, in which every party hides all of its columns again: of a table of hundreds of
        columns name those that matter.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> fed = fs.Federation.split(X, (X[:, 2] > 0).astype(int), parties=["bank", "shop"])
    >>> fs.explain(fed, fs.VerticalAdditive().fit(fed), repeats=1).frame["party"][0]
    'shop'
    """
    check_number("repeats", repeats, 1, 100, whole=True)
    check_choice("metric", metric, ("auto", "auc", "accuracy", "r2"))
    if isinstance(model, Boosted):
        if columns is not None:
            raise ParameterError("columns are for models that are measured; boosted trees tell of all columns at once")
        return _of_gain(fed, model, rows) if model.protection == "all" else _of_trees(fed, model, rows)
    if rows:
        raise ParameterError("values of single rows are for boosted trees; of other models columns are shuffled")
    if not model.measured_unseen or not fed.passive:
        can = "boosted trees, linear and additive models and networks on shares can"
        raise ParameterError(f"{type(model).__name__} cannot be explained; {can}")
    return _of_shuffling(fed, model, repeats, metric, columns)


def _of_gain(fed: Federation, model: SecureBoostClassifier | SecureBoostRegressor, rows: bool) -> Explanation:
    """Where nobody has a leaf: what was opened when the trees had grown, whatever rows are given."""
    check_is_fitted(model, "model_id_")
    if rows:
        raise ParameterError(
            "protection='all' (the default of boosted trees) keeps leaves from everybody, so nobody can explain single "
            f"rows. {SHOWN}"
        )
    with model._run(fed) as run:
        names = run.column_names()
    frame = model.feature_importances_
    whole = float(frame["gain"].sum()) or 1.0
    lines = [
        {"party": line.party, "column": line.column, "feature": names[line.party][line.column],
         "importance": round(line.gain / whole, 4), "deviation": float("nan")}
        for line in frame.itertuples()
    ]  # fmt: skip
    told = pd.DataFrame(lines).sort_values("importance", ascending=False, ignore_index=True, kind="stable")
    return Explanation("share of the gain of all cuts when the trees grew (nobody has their leaves)", told)


def _of_trees(fed: Federation, model: FederatedModel, rows: bool) -> Explanation:
    with model._run(fed) as run:
        told = explain_jointly(run, model.model_id_, rows=rows)
        names = run.column_names()
    frame, by_row = importance_frame(told, names), None
    if rows:
        heads = [f"{party}.{names[party][column]}" for party, column in zip(told["parties"], told["columns"])]
        outputs = told["values"].shape[2]
        single = {head: table[:, 0] for head, table in zip(heads, told["values"])}
        several = {(h, k): table[:, k] for h, table in zip(heads, told["values"]) for k in range(outputs)}
        by_row = pd.DataFrame(single if outputs == 1 else several, index=pd.Index(told["ids"], name="id"))
    return Explanation("mean absolute Shapley value, in raw scores", frame, by_row)


def _chosen_places(names: Mapping[str, Sequence[str]], columns: Mapping[str, Sequence[str]] | None) -> list[Place]:
    """Party and number of each column that is asked about."""
    every = [(party, column) for party, found in names.items() for column in range(len(found))]
    if columns is None:
        return every
    for party, asked in columns.items():
        unknown = next((column for column in asked if column not in names.get(party, ())), None)
        if party not in names or unknown is not None:
            raise ParameterError(f"columns: there is no {party if party not in names else f'{party}.{unknown}'}")
    return [(party, column) for party, column in every if names[party][column] in columns.get(party, ())]


def _of_shuffling(
    fed: Federation, model: FederatedModel, repeats: int, metric: str, columns: Mapping[str, Sequence[str]] | None
) -> Explanation:
    chosen = {"auto": "auc" if model.task_ == "classification" else "r2"}.get(metric, metric)
    names = fed.column_names()
    places = _chosen_places(names, columns)
    whole = model.figures(fed, [chosen])[chosen]
    if not np.isfinite(whole):
        raise DataError(
            f"the labels of these {fed.n_rows:,} rows are all the same, so there is no {chosen} of them: give more rows"
        )
    with model._run(fed) as run:  # the model's columns alone, where all parties are in this process
        inside = place_of(fed, run)
    known = {(party, column): inside[party][column] for party, column in places}
    asked = [
        Shuffled(*place, repeat)
        for place in ((party, column) for (party, _), column in known.items() if column is not None)
        for repeat in range(repeats)
    ]
    measures = [partial(model.figures, fed, [chosen], shuffled) for shuffled in asked]
    found = in_step(fed, measures, "measure", room_for(fed, model.numbers_a_row))
    told = {shuffled: whole - figures[chosen] for shuffled, figures in zip(asked, found)}
    lines = []
    for party, column in places:
        place = known[party, column]
        drops = np.array([0.0 if place is None else told[Shuffled(party, place, each)] for each in range(repeats)])
        spread = float(drops.std(ddof=1)) if repeats > 1 else float("nan")
        line = {"party": party, "column": column, "feature": names[party][column]}
        lines.append({**line, "importance": round(float(drops.mean()), 4) + 0.0, "deviation": spread})
    frame = pd.DataFrame(lines).sort_values("importance", ascending=False, ignore_index=True)
    return Explanation(f"loss of {chosen} when the column is shuffled ({whole:.4f} as it is)", frame)
