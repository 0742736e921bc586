"""Attacks on boosted trees: they read labels and columns from the old messages, and nothing from empty ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from leaky.boosting import boosting
from sklearn.datasets import load_breast_cancer

from fedsift.audit import record
from fedsift.audit.attacks.bin_membership import bins_of_rows, sums_give_bins, true_bins
from fedsift.audit.attacks.node_labels import nodes_give_labels, spread_labels
from fedsift.audit.boost_messages import NodeSums, leaves_seen, sums_opened
from fedsift.models.boost.model import SecureBoostClassifier


@pytest.fixture(scope="module")
def table():
    data = load_breast_cancer(as_frame=True)
    rows = np.random.default_rng(0).permutation(len(data.target))[:240]
    X = data.data.iloc[rows].reset_index(drop=True)
    # The attacker's party holds columns that say little about the label; the label holder those that say most.
    hard = ["mean fractal dimension", "texture error", "smoothness error", "symmetry error", "fractal dimension error"]
    easy = ["worst radius", "worst concave points", "mean concavity", "worst texture", "area error"]
    return X[easy + hard], data.target.to_numpy()[rows]


@pytest.fixture(scope="module")
def wide_table():
    """As Sonar: many columns, a noisy label. So no two rows have the same gradients in all trees."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 60))
    score = X[:, :8].sum(axis=1) + X[:, 30:32].sum(axis=1)
    y = (score + generator.normal(0, 2.0, 200) > 0).astype(int)
    return pd.DataFrame(X, columns=[f"c{number:02d}" for number in range(60)]), y


@pytest.fixture(scope="module")
def leaky(table):
    return record(*table, boosting(), parties=["holder", "other"])


@pytest.fixture(scope="module")
def leaky_sums(wide_table):
    return record(*wide_table, boosting(), parties=["holder", "other"])


def test_rows_of_nodes_give_the_labels(leaky):
    found = nodes_give_labels.run(leaky["other"], leaky.truth)
    assert found.value > 0.95
    assert found.baseline < found.value - 0.1


def test_nodes_of_shuffled_rows_give_no_label(leaky):
    trees = leaves_seen(leaky["other"])
    labels = leaky.truth.labels
    generator = np.random.default_rng(1)
    known = np.arange(40)
    score = spread_labels([codes[generator.permutation(len(codes))] for codes in trees], known, labels[known])
    rest = score[40:], labels[40:]
    concordant = np.mean(rest[0][rest[1] == 1][:, None] > rest[0][rest[1] == 0][None, :])
    assert 0.35 < concordant < 0.65


def test_exact_sums_give_the_bin_of_every_cell(leaky_sums):
    found = sums_give_bins.run(leaky_sums["holder"], leaky_sums.truth)
    assert found.value > 0.98
    assert found.guess < 0.2


@pytest.mark.parametrize("which", ["leaky_sums", "leaky"])  # without and with rows that have doubles
def test_a_certain_bin_is_a_right_bin(which, request):
    recording = request.getfixturevalue(which)
    for column in bins_of_rows(sums_opened(recording["holder"]), len(recording.truth.labels)):
        true = true_bins(recording.truth.columns["other"][:, column.column], True, 16, 1)
        assert (column.codes == true)[column.certain].all()


def test_most_cells_are_certain_where_rows_have_no_double(leaky_sums):
    columns = bins_of_rows(sums_opened(leaky_sums["holder"]), len(leaky_sums.truth.labels))
    assert np.mean([column.certain.mean() for column in columns]) > 0.9


def test_masked_sums_give_no_more_than_the_guess(wide_table):
    generator = np.random.default_rng(0)

    def masked(nodes, replies):
        if replies is not None:
            replies = {
                n: {**r, "sums": generator.integers(-(2**40), 2**40, r["sums"].shape)} for n, r in replies.items()
            }
        return nodes, replies

    hidden = record(*wide_table, boosting(trees=6, hide=masked), parties=["holder", "other"])
    found = sums_give_bins.run(hidden["holder"], hidden.truth)
    assert found.value < found.guess + 0.1
    assert "0.000" in found.note


def test_the_reader_takes_the_shipped_messages_as_they_are(table):
    """Sums that the label holder opens with its key equal sums of its gradients over the true bins."""
    model = SecureBoostClassifier(n_estimators=3, max_depth=3, protection="open")
    shipped = record(*table, model, parties=["holder", "other"])
    nodes = list(sums_opened(shipped["holder"]))
    assert nodes
    assert len(leaves_seen(shipped["other"])) == 2  # the first tree is the label holder's own
    values = shipped.truth.columns["other"][:, 0]
    for node in nodes:
        _check_first_column(node, values)


def _check_first_column(node: NodeSums, values: np.ndarray) -> None:
    width = int(node.groups[0])
    order = np.argsort(values[node.rows], kind="stable")
    running = np.cumsum(node.gradients[order], axis=0)
    for end in np.cumsum(node.sums[:width], axis=0)[:-1]:
        empty = not end.any()
        assert empty or (running == end).all(axis=1).any()  # each prefix of the bins is a prefix of the sorted rows


def test_no_messages_leave_the_baseline_alone(table):
    """Where the parties are told nothing of nodes, both attacks say so and fall to the guess."""
    X, y = table
    silent = record(pd.DataFrame(X), y, lambda fed: fed.sizes(), parties=["holder", "other"])
    assert nodes_give_labels.run(silent["other"], silent.truth).value == 0.5
    bins = sums_give_bins.run(silent["holder"], silent.truth)
    assert bins.value == bins.guess
