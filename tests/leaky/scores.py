"""Exact scores of a party's own columns, told to it: at the end of a job, or before (MUSE, FedSDG)."""

from __future__ import annotations

import json

import numpy as np

from fedsift.core.operation import operation
from fedsift.mpc.column_scores.paid_bins import countable_bins
from fedsift.select.muse.contingency import column_codes


def f_statistic(column, codes):
    groups = [column[codes == k] for k in np.unique(codes)]
    between = sum(len(g) * (g.mean() - column.mean()) ** 2 for g in groups)
    within = sum(((g - g.mean()) ** 2).sum() for g in groups)
    return between / (len(groups) - 1) / (within / (len(column) - len(groups)))


def table_of(bins, codes):
    return np.array([[((bins == b) & (codes == k)).sum() for k in (0, 1)] for b in np.unique(bins)])


def purity(bins, codes):
    table = table_of(bins, codes)
    return ((table**2).sum(axis=1) / table.sum(axis=1)).sum() / len(codes)


def information_value(bins, codes):
    table = table_of(bins, codes)
    share = np.where(table == 0, 0.5, table) / table.sum(axis=0)
    return ((share[:, 0] - share[:, 1]) * np.log(share[:, 0] / share[:, 1])).sum()


def mutual_information(bins, codes):
    joint = table_of(bins, codes) / len(codes)
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    return (joint[joint > 0] * np.log(joint[joint > 0] / independent[joint > 0])).sum()


SETTINGS = {
    "sffs": {},
    "information_value": {"n_bins": 10, "min_cell": 5},
    "gini": {"n_bins": 8, "min_cell": 5},
    "muse": {"n_bins": 5, "binning": "quantile"},
}
_SCORES = {"sffs": f_statistic, "information_value": information_value, "gini": purity, "muse": mutual_information}


@operation("leaky_scores.show_bins", discloses="plain", about="columns or bins, for a score in the clear", reply=dict)
def show_bins(party, *, method):
    if method == "sffs":
        shown = party.table.matrix(party.columns)
    elif method == "muse":
        shown = column_codes(party, **SETTINGS["muse"]).T.astype(np.int64)
    else:
        shown = countable_bins(party, **SETTINGS[method], shuffle=False)[0].astype(np.int64)
    return {"columns": shown, "names": party.columns}


@operation("leaky_scores.exact_scores", discloses="aggregate", about="exact scores", reply=np.ndarray)
def exact_scores(party, *, columns, method):
    codes = party.labels().codes
    return np.array([_SCORES[method](column, codes) for column in columns.T])


@operation(
    "leaky_scores.keep_result",
    discloses="control",
    about="acknowledgement",
    receives="aggregate",
    learns="its own scores",
)
def keep_result(party, *, selection):
    """A party keeps what it is told."""


@operation(
    "leaky_scores.preselect",
    discloses="aggregate",
    about="nothing more",
    receives="aggregate",
    learns="relevance of its own columns",
)
def preselect(party, *, relevance):
    """As MUSE lets a party choose by the relevance of its columns."""


@operation(
    "leaky_scores.take_importance",
    discloses="control",
    about="acknowledgement",
    receives="aggregate",
    learns="impurities of its own columns",
)
def take_importance(party, *, impurity):
    """As FedSDG begins its gates."""


def told(method, tell="keep_result"):
    """A filter that ends by telling every passive party the exact scores of its columns."""

    def conversation(fed):
        with fed.session(method, SETTINGS[method]) as run:
            for name in run.passive:
                shown = run.ask(show_bins, to=name, method=method)
                scores = run.ask(exact_scores, to=run.active, columns=shown["columns"], method=method)
                if tell == "preselect":
                    run.ask(preselect, to=name, relevance=scores)
                elif tell == "take_importance":
                    run.ask(take_importance, to=name, impurity=1.0 - scores)
                else:
                    rows = [{"feature": f, "score": float(s)} for f, s in zip(shown["names"], scores)]
                    run.ask(keep_result, to=name, selection=json.dumps({"scores": rows}))

    return conversation
