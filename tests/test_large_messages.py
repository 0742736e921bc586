"""Large messages of the methods in parts: the same answers to the bit, and nothing large on its way."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from fedsift.models.boost.hidden import cuts

ROWS = 400


def federation(parties: int = 2) -> fs.Federation:
    rng = np.random.default_rng(3)
    y = rng.permutation(np.arange(ROWS) % 2)
    X = rng.normal(size=(ROWS, 6)) + 0.5 * y[:, None] * np.arange(6)
    X[:, 4] = np.round(X[:, 4])
    X[rng.random(ROWS) < 0.1, 5] = np.nan
    return fs.Federation.split(X, y, parties=parties)


def boosted(protection: str) -> tuple[fs.Federation, np.ndarray]:
    fed = federation()
    model = fs.SecureBoostClassifier(
        n_estimators=2, max_depth=2, n_bins=8, protection=protection, first_tree_local=False
    ).fit(fed)
    return fed, model.predict_proba(fed)


@pytest.mark.parametrize("protection", ["coordinator", "all"])
def test_candidate_cuts_go_in_pieces_that_may_end_inside_a_column(monkeypatch, protection):
    whole, expected = boosted(protection)
    monkeypatch.setattr(cuts, "_PIECE", 3 * ROWS)
    fed, found = boosted(protection)
    np.testing.assert_array_equal(found, expected)
    sizes = [[line.bytes for line in each.ledger.entries if "_cuts" in line.operation] for each in (whole, fed)]
    assert max(sizes[1]) < 3 * 8 * ROWS + 1000 < max(sizes[0])
