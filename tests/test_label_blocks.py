"""Encrypted labels in blocks of rows: the same tables to the bit, and no large message."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import cached_key

import fedsift as fs
from fedsift.core.design import Design
from fedsift.mpc import encrypted_histogram
from fedsift.mpc.encrypted_histogram import BLOCK_BYTES, RowLayout, row_blocks

ROWS = 700
LABELS = (
    "labels.encrypt_classes",
    "tables.encrypt_every_class",
    "tables.encrypt_weighted_classes",
    "labels.encrypt_more",
)


def federation(classes: int = 2, weight: bool = False) -> fs.Federation:
    rng = np.random.default_rng(5)
    y = rng.permutation(np.arange(ROWS) % classes)
    X = pd.DataFrame(rng.standard_normal((ROWS, 6)) + 0.4 * y[:, None] * np.arange(6), columns=list("abcdef"))
    X["d"] = X["d"].round()
    X["e"] = (X["e"] > 2).astype(float)  # mostly one value: counted as sparse
    aside = {"w": rng.uniform(0.2, 3.0, ROWS)} if weight else None
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "post"], aside=aside)
    return fed.designed(Design(weight="bank.w")) if weight else fed


def sent(fitted: fs.Selector) -> pd.DataFrame:
    """Messages with encrypted labels from their holder."""
    frame = fitted.ledger_.frame()
    return frame[frame.operation.isin(LABELS) & (frame.sender == "bank")]


@pytest.mark.parametrize(
    ("method", "classes", "weight"),
    [
        *((method, *how) for method in (fs.InformationValue, fs.GiniFilter) for how in ((2, 0), (5, 0), (2, 1))),
        (fs.SFFS, 2, False),
        (fs.SFFS, 5, False),
    ],
)
def test_blocks_give_the_tables_of_one_message_to_the_bit(monkeypatch, method, classes, weight):
    whole = method(n_features=3).fit(federation(classes, weight))
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 6000)
    cut = method(n_features=3).fit(federation(classes, weight))
    assert cut.selected_ == whole.selected_
    assert cut.scores_["score"].tolist() == whole.scores_["score"].tolist()
    assert len(sent(whole)) == 1 < len(sent(cut))
    assert sent(cut).bytes.max() < 7500 < sent(whole).bytes.max()
    assert cut.ledger_.rounds() == whole.ledger_.rounds() + 2 * (len(sent(cut)) - 1)


def test_noise_is_added_once_however_many_blocks_there_are(monkeypatch):
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 6000)
    noisy = fs.InformationValue(n_features=2, epsilon=5.0).fit(federation())
    assert len(sent(noisy)) > 2
    assert [line.operation for line in noisy.ledger_.entries].count("tables.masked_counts") == 4  # asked, answered


def test_what_fits_a_message_has_no_more_rounds_than_before():
    fitted = fs.InformationValue(n_features=3).fit(federation())
    assert not {"labels.encrypt_more", "tables.add_counts"} & set(fitted.ledger_.frame().operation)


@pytest.mark.parametrize("values", [[], [1], [4, 2]])
@pytest.mark.parametrize("rows", [1, 7, 10**6, 10**7])
def test_blocks_have_all_rows_once_and_no_more_bytes_than_a_message_may(values, rows):
    key = cached_key().public
    layouts = [RowLayout.fit(rows, value, 1, key.plaintext_bits - 41, answers=1000) for value in values]
    blocks = row_blocks(key, layouts)
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == (rows if values else 0)
    for block in blocks:
        assert all(block.start % layout.per_ciphertext == 0 for layout in layouts)
        parts = [layout.of_rows(block) for layout in layouts]
        assert sum(-(-part.rows // part.per_ciphertext) for part in parts) * key.ciphertext_bytes <= BLOCK_BYTES
