"""What a party that holds rows was told and should not be: weights at the optimum, scores in every step, gates, bits of
all rows, importances of its candidates. Everything travels in the clear; only what is told matters here.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.binning import codes_of
from fedsift.core.operation import ANY, operation
from fedsift.engineer.flafe.candidates import Operands, OwnFeatures
from fedsift.engineer.flafe.products import Combined
from leaky.scores import f_statistic
from leaky.sums import label_products, show_standardised, standardised


@operation("leaky_parties.keep_final_weights", discloses="control", about="acknowledgement", receives="aggregate",
           learns="the final weights of its own columns")  # fmt: skip
def keep_weights(party, *, weights):
    """Vertical logistic regression: a party keeps its weights."""


def weights_at_optimum(reg_lambda=10.0):
    """The other parties' scores are constant: then the weights of one party are those of a ridge of its own."""

    def conversation(fed):
        with fed.session("a linear model", {"reg_lambda": reg_lambda}) as run:
            for name in run.passive:
                columns = run.ask(show_standardised, to=name)
                products = run.ask(label_products, to=run.active, columns=columns)
                penalty = 4 * len(columns) * reg_lambda * np.eye(columns.shape[1])
                weights = np.linalg.solve(columns.T @ columns + penalty, 2 * products)
                run.ask(keep_weights, to=name, weights=weights[:, None])

    return conversation


@operation("leaky_parties.open_residuals", discloses="aggregate", about="nothing more", receives="aggregate",
           learns="the other party's score of each row in this step")  # fmt: skip
def open_residuals(party, *, total):
    """The label holder reads scores in every step."""


def scores_in_every_step(steps=12):
    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("a linear model", {}) as run:
            for name in run.passive:
                columns = run.ask(show_standardised, to=name)
                for _ in range(steps):
                    run.ask(open_residuals, to=run.active, total=columns @ rng.normal(size=(columns.shape[1], 1)))

    return conversation


@operation("leaky_parties.raise_duals", discloses="control", about="nothing more", receives="aggregate",
           learns="the other parties' part of the score of each row in this round")  # fmt: skip
def raise_duals(party, *, total):
    """A label holder of a grid reads scores in every round."""


def duals_in_every_round(rounds=12):
    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("a linear model of a grid", {}) as run:
            columns = run.ask(show_standardised, to="shop")
            for _ in range(rounds):
                run.ask(raise_duals, to="bank", total=columns @ rng.normal(size=(columns.shape[1], 1)))

    return conversation


@operation("leaky_parties.label_scores", discloses="aggregate", about="exact scores", reply=np.ndarray)
def label_scores(party, *, columns):
    return np.array([f_statistic(column, party.labels().codes) for column in columns.T])


@operation("leaky_parties.set_gates", discloses="control", about="acknowledgement", receives="aggregate",
           learns="which of its columns take part")  # fmt: skip
def set_gates(party, *, gates):
    """A party hears a bit a column, often."""


def gates_by_score(times=400):
    """Gates that are open the more often the better a column is."""

    def conversation(fed):
        rng = np.random.default_rng(0)
        with fed.session("gates", {}) as run:
            for name in run.passive:
                scores = run.ask(label_scores, to=run.active, columns=run.ask(show_standardised, to=name))
                chance = np.argsort(np.argsort(scores)) / len(scores)
                for _ in range(times):
                    run.ask(set_gates, to=name, gates={name: rng.random(len(scores)) < chance})

    return conversation


@operation("leaky_parties.walk_down", discloses="pseudonymous", about="which rows are at a cut", reply=ANY)
def walk_down(party, *, sides, cuts, owner):
    """The label holder asks about all rows at every cut."""
    rows = np.tile(np.arange(party.n_rows, dtype=np.int32), cuts)
    counts = np.full(cuts, party.n_rows)
    return {} if sides else {owner: {"splits": np.arange(cuts), "counts": counts, "rows": rows}}


@operation("leaky_parties.route_rows", discloses="pseudonymous", about="which rows go left", reply=ANY)
def route_rows(party, *, splits, counts, rows, bins):
    """Every bin of every column is cut off once."""
    codes = np.stack([codes_of(party.table.values(c)[None, :], bins)[0] for c in party.columns], axis=1)
    places = [(c, b) for c in range(codes.shape[1]) for b in range(int(codes[:, c].max()))][: len(splits)]
    return np.packbits(np.concatenate([codes[:, c] <= b for c, b in places]))


def bits_of_all_rows(bins=8):
    def conversation(fed):
        with fed.session("boosting", {"max_bin": bins}) as run:
            for name in run.passive:
                cuts = run.n_columns[name] * (bins - 1)
                asked = run.ask(walk_down, to=run.active, sides={}, cuts=cuts, owner=name)
                bits = run.ask(route_rows, to=name, bins=bins, **asked[name])
                run.ask(walk_down, to=run.active, sides={name: bits}, cuts=cuts, owner=name)

    return conversation


@operation("leaky_parties.take_combinations", discloses="control", about="acknowledgement", receives="plain",
           learns="combined columns that it will hold")  # fmt: skip
def take_combinations(party, *, columns):
    """Products of a column of its own with one of another party, without noise."""
    party.keep(Operands(standardised(party)))
    party.keep(Combined(list((standardised(party)[:, : columns.shape[1]] * columns).T)))


def products_told(fed):
    with fed.session("vertical_flafe", {}) as run:
        shown = run.ask(show_standardised, to=run.parties)
        for name in run.parties:
            other = next(each for each in run.parties if each != name)
            run.ask(take_combinations, to=name, columns=shown[other])


@operation("leaky_parties.form_candidates", discloses="plain", about="candidates, for a score in the clear", reply=ANY)
def form_candidates(party):
    """All columns, and all products of two."""
    values = standardised(party)
    pairs = [values[:, i] * values[:, j] for i in range(values.shape[1]) for j in range(i)]
    grown = np.column_stack([values, *pairs])
    names = [f"c{i}" for i in range(grown.shape[1])]
    everybody = np.arange(party.n_rows)
    party.keep(OwnFeatures(party.columns, everybody, values, names, grown))
    return grown


@operation("leaky_parties.explained", discloses="aggregate", about="exact importances", reply=np.ndarray)
def explained(party, *, columns, bins):
    """The share of the label's variance that the bins of each candidate explain, less what chance would."""
    y = (party.labels().codes == 1).astype(float)
    shares = []
    for codes in codes_of(columns.T, bins):
        means = np.array([y[codes == b].mean() for b in codes])
        share = ((means - y.mean()) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        shares.append(max(0.0, 1 - (1 - share) * (len(y) - 1) / (len(y) - len(np.unique(codes)))))
    return np.array(shares)


@operation("leaky_parties.choose_operands", discloses="plain", about="formulas", receives="aggregate", reply=ANY,
           learns="one importance for each of its candidates")  # fmt: skip
def choose_operands(party, *, scores):
    return {"chosen": [0], "formulas": ["c0"]}


def importances_told(bins):
    def conversation(fed):
        with fed.session("vertical_flafe", {}) as run:
            for name in run.passive:
                columns = run.ask(form_candidates, to=name)
                scores = run.ask(explained, to=run.active, columns=columns, bins=bins)
                run.ask(choose_operands, to=name, scores=scores)

    return conversation
