"""What tells how much columns matter, told to the wrong ones: scores of shadows and losses of a shuffled column to the
party that drew them, products of columns without masks, bits of cuts under a mask that is used twice.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import ANY, Array, operation
from fedsift.mpc.moments import MomentColumns, scaled
from fedsift.mpc.ring import product
from leaky.masks import ring, under_one_mask
from leaky.scores import f_statistic


@operation("leaky_measures.show", discloses="plain", about="columns, for a score in the clear", reply=np.ndarray)
def show(party):
    return party.table.matrix(party.columns)


@operation("leaky_measures.exact_scores", discloses="aggregate", about="exact scores", reply=np.ndarray)
def exact_scores(party, *, columns):
    return np.array([f_statistic(column, party.labels().codes) for column in columns.T])


@operation("leaky_measures.hear_gains", discloses="control", about="acknowledgement", receives="aggregate",
           learns="exact scores of its columns and their shadows")  # fmt: skip
def hear_gains(party, *, orders, scores):
    """A party is told how its shadows did; the orders are its own."""


def shadows_told(rounds=10):
    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("boruta", {}) as run:
            for name in run.passive:
                columns = run.ask(show, to=name)
                orders = [np.arange(run.n_rows), *(rng.permutation(run.n_rows) for _ in range(rounds))]
                scores = [run.ask(exact_scores, to=run.active, columns=columns[order]) for order in orders]
                run.ask(hear_gains, to=name, orders=orders, scores=scores)

    return conversation


@operation("leaky_measures.auc_of", discloses="aggregate", about="how good scores are", reply=float)
def auc_of(party, *, scores):
    codes = party.labels().codes
    return float((scores[codes == 1][:, None] > scores[codes == 0][None, :]).mean())


@operation("leaky_measures.hear_figures", discloses="control", about="acknowledgement", receives="aggregate",
           learns="how much worse the model is without a column")  # fmt: skip
def hear_figures(party, *, column, order, weight, loss):
    """A party is told what its own shuffle has cost; the order is its own."""


def importances_told(repeats=20):
    """A model that adds up all columns: exact losses of its AUC."""

    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("explain", {}) as run:
            tables = {name: scaled(values) for name, values in run.ask(show, to=run.parties).items()}
            total = sum(values.sum(axis=1) for values in tables.values())
            whole = run.ask(auc_of, to=run.active, scores=total)
            for name in run.passive:
                for column in range(tables[name].shape[1]):
                    for _ in range(repeats):
                        order, values = rng.permutation(run.n_rows), tables[name][:, column]
                        shuffled = run.ask(auc_of, to=run.active, scores=total - values + values[order])
                        run.ask(hear_figures, to=name, column=column, order=order, weight=1.0, loss=whole - shuffled)

    return conversation


@operation("leaky_measures.open_columns", discloses="aggregate", about="columns", reply={"columns": Array("i"),
           "targets": int})  # fmt: skip
def open_columns(party):
    values = party.keep(MomentColumns(scaled(party.table.matrix(party.columns)))).values
    return {"columns": np.arange(values.shape[1]), "targets": 0}


@operation("leaky_measures.own_products", discloses="aggregate", about="products of its own columns", reply=ANY)
def own_products(party):
    values = party.held(MomentColumns).ring
    return product(values.T, values)


@operation("leaky_measures.masked_sides", discloses="plain", about="columns without a mask", reply=ANY)
def masked_sides(party, *, widths):
    mine = party.held(MomentColumns).ring
    order, sides = list(party.job.parties), {}
    for peer, width in widths.items():
        first = order.index(party.name) < order.index(peer)
        shape = (mine.shape[1], width) if first else (width, mine.shape[1])
        sides[peer] = [mine, np.zeros(shape, dtype=np.uint64)]
    return {"sides": sides}


def products_in_the_clear(fed):
    with fed.session("statistics", {"what": "correlation", "kind": "pearson"}) as run:
        run.ask(open_columns, to=run.parties)
        run.ask(own_products, to=run.parties)
        each = {
            name: {"widths": {peer: run.n_columns[peer] for peer in run.parties if peer != name}}
            for name in run.parties
        }
        run.ask(masked_sides, to=run.parties, each=each)


@operation("leaky_measures.divide_rows", discloses="masked", about="columns under one mask", opened="nobody", reply=ANY)
def divide_rows(party, *, factor):
    return under_one_mask(party, ring(factor * party.table.matrix(party.columns)), fresh=False)


@operation("leaky_measures.take_winners", discloses="control", about="acknowledgement", receives="masked")
def take_winners(party, *, box):
    """The label holder takes what would be uniform to it."""


def shares_under_one_mask(fed):
    with fed.session("boosting", {"n_bins": 8}) as run:
        for factor in (1.0, 2.0):
            for name in run.passive:
                run.ask(take_winners, to=run.active, box=run.ask(divide_rows, to=name, factor=factor))
