"""Exact sums X'y over a party's own columns, in the form in which three linear models hand them over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.core.operation import operation

BITS = 24


@dataclass
class Part:
    x: np.ndarray
    bits: int
    loss: str


def standardised(party):
    values = party.table.matrix(party.columns)
    return (values - values.mean(axis=0)) / values.std(axis=0)


@operation("leaky_sums.show_standardised", discloses="plain", about="standardised columns", reply=np.ndarray)
def show_standardised(party):
    return standardised(party)


@operation("leaky_sums.label_products", discloses="aggregate", about="X'y for labels of -1 and 1", reply=np.ndarray)
def label_products(party, *, columns):
    return columns.T @ np.where(party.labels().codes == 1, 1.0, -1.0)


@operation("leaky_sums.inner_products", discloses="aggregate", about="nothing more", learns="its own gradient")
def inner_products(party, *, products):
    """Vertical logistic regression: the party's gradient at scores of zero is -X'y / (2 n)."""
    party.state["logistic"] = {"values": standardised(party), "gradient": -products[:, None] / (2 * party.n_rows)}


@operation(
    "leaky_sums.weigh_rows",
    discloses="masked",
    about="nothing more",
    opened="nobody",
    learns="for each column the sum of column times dual",
)
def weigh_rows(party, *, products):
    """HyFDCA, logistic loss: the first duals are half a label."""
    party.state["part"] = Part(standardised(party), BITS, "logistic")
    ring = np.rint(np.ldexp(products / 2, 2 * BITS)).astype(np.int64).view(np.uint64)
    party.state["round"] = {"own": ring[:, None]}


@operation(
    "leaky_sums.partial_scores",
    discloses="masked",
    about="nothing more",
    opened="nobody",
    receives="aggregate",
    learns="its own coefficients",
)
def partial_scores(party, *, weights):
    """Federated lasso: the coordinator sends a party its coefficients."""


def one_step(operation, alpha=0.01, rate=0.037):
    def conversation(fed):
        with fed.session("a linear model", {"penalty": alpha}) as run:
            for name in run.passive:
                products = run.ask(label_products, to=run.active, columns=run.ask(show_standardised, to=name))
                if operation is partial_scores:
                    slope = products / (2 * run.n_rows)
                    shrunk = np.sign(slope) * np.maximum(np.abs(slope) - alpha, 0.0)
                    run.ask(partial_scores, to=name, weights=rate * shrunk[:, None])
                else:
                    run.ask(operation, to=name, products=products)

    return conversation
