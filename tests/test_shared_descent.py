"""Gradients that only the coordinator reads: exact against the plain ones, and of no use to a party with rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from doubles import Recording
from linear_attack import labels_from_sums
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.operation import operation, register_plugin
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, OverflowGuard
from fedsift.mpc.ring import from_ring
from fedsift.mpc.shared_descent import Columns, Precision, SharedDescent, check_room

register_plugin(__name__)


@operation("testdescent.prepare", discloses="control", about="acknowledgement")
def prepare(party: Party, *, linear: bool, outputs: int) -> None:
    values = np.column_stack([party.table.values(name) for name in party.columns])
    columns = party.keep(Columns(values, outputs))
    if party.table.label is not None:
        y = np.where(party.labels().codes[:, None] == 1, 1.0, -1.0) * np.ones(outputs)
        columns.target, columns.loss = (y, None) if linear else (None, lambda z: (np.array([z.mean()]), np.tanh(z) - y))


def table(rows=50, columns=7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    return X, (X[:, 0] + rng.normal(size=rows) > 0).astype(int), rng


def descend(fed, X, linear, outputs=1):
    with fed.session() as session:
        session.ask(prepare, to=session.parties, linear=linear, outputs=outputs)
        yield SharedDescent(session, session.n_columns, outputs, reads_scores=not linear)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("parties", [1, 2, 3, 4])
def test_gradients_equal_the_plain_ones(parties, linear):
    X, y, rng = table()
    fed = fs.Federation.split(X, y, parties=parties)
    ends = np.cumsum(list(fed.n_columns.values()))[:-1]
    for descent in descend(fed, X, linear, outputs=2):
        for _ in range(3):
            W = rng.normal(size=(7, 2))
            loss, found = descent.at(dict(zip(fed.parties, np.split(W, ends))))
            scores, target = X @ W, np.where(y == 1, 1.0, -1.0)[:, None]
            residuals = scores - target if linear else np.tanh(scores) - target
            np.testing.assert_allclose(np.vstack(list(found.values())), X.T @ residuals / 50, atol=2e-4)
            assert linear or loss[0] == pytest.approx(scores.mean(), abs=1e-4)


@pytest.mark.parametrize("rows", [2, 100, 10**4, 10**6])
@pytest.mark.parametrize("reads", [True, False])
def test_numbers_fit_the_ring(rows, reads):
    bits = Precision.of(rows, reads)
    last = bits.residuals if reads else bits.columns + bits.weights
    assert bits.columns + last + rows.bit_length() + 6 <= 62
    assert bits.columns + bits.weights + 14 <= 62
    assert min(bits.columns, bits.weights) >= 11


def test_weights_that_might_not_fit_are_refused_before_anything_is_sent():
    check_room(np.array([1.0]), 100.0, 2.0)
    with pytest.raises(OverflowGuard, match="room"):
        check_room(np.array([10.0]), 100.0, 2.0)


@pytest.mark.parametrize("linear", [True, False])
def test_the_other_form_is_refused(linear):
    """A label holder that must not read scores cannot be made to, nor can its residuals be taken for linear ones."""
    X, y, _ = table()
    fed = fs.Federation.split(X, y, parties=2)
    for descent in descend(fed, X, linear):
        descent.reads_scores = linear
        with pytest.raises(OperationRefused):
            descent.at({name: np.zeros((count, 1)) for name, count in fed.n_columns.items()})


def test_columns_are_hidden_once():
    X, y, _ = table()
    for descent in descend(fs.Federation.split(X, y, parties=2), X, True):
        with pytest.raises(OperationRefused, match="already"):
            SharedDescent.__init__(descent, descent.run, descent.widths, 1, reads_scores=False)


@pytest.mark.parametrize("linear", [True, False])
def test_sums_over_labels_cannot_be_solved_from_what_a_party_gets(linear):
    """The attack: X'y with y in {-1, 1} is a linear programme. It works on the plain gradient, not on the messages."""
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    X, y = X[:100], data.target[:100]
    own, signs = X[:, 15:], np.where(y == 1, 1.0, -1.0)
    solved = labels_from_sums(own, own.T @ signs, signs.sum())
    assert solved is not None
    assert (solved == signs).mean() > 0.9
    fed = fs.Federation.split(X, y, parties=2)
    log = fed._link.transport = Recording(fed._link.transport)
    for descent in descend(fed, X, linear):
        weights = np.zeros((30, 1))
        for _ in range(5):
            _, found = descent.at({"party1": weights[:15], "party2": weights[15:]})
            weights = weights - 0.05 * np.vstack(list(found.values()))
    requests = [decode(body)["arguments"] for _, to, body in log.log if to == "party2"]
    told = [each["weights"] for each in requests if "weights" in each]
    bits, guess = Precision.of(100, not linear), max((signs == 1).mean(), (signs == -1).mean())
    for each in told:
        guessed = labels_from_sums(own, from_ring(each, bits.weights)[:, 0] * 100 / -0.05, signs.sum())
        assert guessed is None or (guessed == signs).mean() < guess + 0.1
    for before, after in itertools.pairwise(told):
        step = from_ring(after - before, bits.weights)[:, 0]
        guessed = labels_from_sums(own, step * 100 / -0.05, signs.sum())
        assert guessed is None or (guessed == signs).mean() < guess + 0.1
