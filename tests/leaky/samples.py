"""What tells of samples of rows too exactly: weights of evidence of small bins, indices of rows and rows less one, how
many rows of each class any set of rows has, sides of the same column at several values, products of many columns.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import ANY, operation
from fedsift.mpc.column_scores import weighing
from fedsift.select.filters.gini import GiniFilter
from fedsift.select.filters.sffs import SFFS
from fedsift.select.filters.woe import weights_of
from fedsift.statistics.job import stability
from fedsift.statistics.statistics import psi


def bins_of(values, count):
    """Of each column so many bins with equally many rows."""
    order = np.argsort(np.argsort(values, axis=0), axis=0)
    return order * count // len(values)


@operation("leaky_samples.show", discloses="plain", about="bins, for weights in the clear", reply=np.ndarray)
def show(party, *, bins):
    return bins_of(party.table.matrix(party.columns), bins)


@operation("leaky_samples.weigh_bins", discloses="aggregate", about="exact weights of evidence", reply=ANY)
def weigh_bins(party, *, codes):
    labels = party.labels().codes
    tables = [np.bincount(2 * column + labels, minlength=2 * (column.max() + 1)).reshape(-1, 2) for column in codes.T]
    return [weights_of(table.astype(float), np.bincount(labels).astype(float)) for table in tables]


@operation("leaky_samples.hear_evidence", discloses="control", about="acknowledgement", receives="aggregate",
           learns="exact weights of evidence of small bins")  # fmt: skip
def hear_evidence(party, *, columns, weights, codes):
    """The bins are its own."""


def evidence_of_small_bins(bins=50):
    def conversation(fed):
        with fed.session("information_value", {"woe": "bins"}) as run:
            for name in run.passive:
                codes = run.ask(show, to=name, bins=bins)
                weights = run.ask(weigh_bins, to=run.active, codes=codes)
                run.ask(hear_evidence, to=name, columns=np.arange(codes.shape[1]), weights=weights, codes=codes)

    return conversation


@operation("leaky_samples.count_classes", discloses="aggregate", about="rows of each class", reply=ANY)
def count_classes(party):
    return {"facts": np.bincount(party.labels(task="classification").codes, minlength=2).astype(float)}


def counts_of_many_sets(sets=90):
    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("evaluate", {}) as run:
            for _ in range(sets):
                rows = np.flatnonzero(rng.random(run.n_rows) < 0.5)
                run.view(rows=rows).ask(count_classes, to=run.active)

    return conversation


@operation("leaky_samples.keep_first", discloses="control", about="acknowledgement")
def keep_first(party, *, bins):
    party.run.kept["first"] = party.table.matrix(party.columns)


@operation("leaky_samples.compare_sample", discloses="aggregate", about="an exact index a column", reply=np.ndarray)
def compare_sample(party, *, bins):
    first, second = party.run.kept["first"], party.table.matrix(party.columns)
    edges = [np.quantile(column, np.arange(1, bins) / bins) for column in first.T]
    counts = [
        [
            np.bincount(np.searchsorted(edge, column), minlength=bins).astype(float)
            for edge, column in zip(edges, part.T)
        ]
        for part in (first, second)
    ]
    return np.array([stability(one, other) for one, other in zip(*counts)])


def with_and_without(rows, bins=10):
    """The index of the second half of the rows, and of the same less one row."""

    def conversation(fed):
        half, everybody = fed.n_rows // 2, np.arange(fed.n_rows)
        for gone in [None, *rows]:
            with fed.session("statistics", {"what": "psi"}) as run:
                run.view(rows=everybody[:half]).ask(keep_first, to=run.passive, bins=bins)
                rest = everybody[half:]
                run.view(rows=rest if gone is None else rest[rest != gone]).ask(
                    compare_sample, to=run.passive, bins=bins
                )

    return conversation


def parted_at(column, values):
    """The shipped statistic, asked at several values of one column."""
    return lambda fed: [psi(fed, by=column, at=value) for value in values]


@operation("leaky_samples.open_logistic", discloses="aggregate", about="columns", reply=np.ndarray)
def open_logistic(party):
    return np.arange(len(party.columns))


@operation("leaky_samples.right_sides", discloses="aggregate", about="weighted products of its columns", reply=ANY)
def right_sides(party):
    values = np.nan_to_num(party.table.matrix(party.columns))
    values = np.column_stack([(values - values.mean(axis=0)) / values.std(axis=0), np.ones(len(values))])
    return {"own": values.T @ values / 4, "sides": {}}


def products_of_many_columns(fed):
    with fed.session("statistics", {"model": "logistic"}) as run:
        run.ask(open_logistic, to=run.active)
        run.ask(right_sides, to=run.active)


def counts_of_any_weights(design):
    """Weighted counts whatever the weights are: one row of another weight, or a very heavy one, too."""

    def conversation(fed):
        asked, weighing.check_weights = weighing.check_weights, lambda party, steps: None
        try:
            return GiniFilter(n_features=2).fit(fed.designed(design))
        finally:
            weighing.check_weights = asked

    return conversation


def half_of_the_groups_go_on():
    """Pairs of columns, of which half go on: a bit a pair about the labels."""
    return SFFS(n_features=2, screen=2, screen_share=0.5)
