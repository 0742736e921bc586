"""Large messages of the methods in parts: the same answers to the bit, and nothing large on its way."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from doubles import Recording

import fedsift as fs
from fedsift.core import pieces
from fedsift.core.exchange import Exchange
from fedsift.core.message import encode
from fedsift.core.pieces import Piece
from fedsift.core.transports.base import Delivery, Transport
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.boost.hidden import cuts
from fedsift.models.boost.hidden.passive import hide_cuts
from fedsift.mpc.pairs import meet_all
from fedsift.select.muse import row_secrets

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


def test_blinded_ids_are_raised_in_blocks_and_some_parties_at_a_time(monkeypatch):
    whole = fs.Muse(n_features=3).fit(federation(3))
    monkeypatch.setattr(row_secrets, "_BLOCK_BYTES", 32 * 150)
    cut = fs.Muse(n_features=3).fit(federation(3))
    assert cut.selected_ == whole.selected_
    assert cut.scores_["score"].tolist() == whole.scores_["score"].tolist()
    sizes = [[line.bytes for line in each.ledger_.entries if "raise" in line.operation] for each in (whole, cut)]
    assert len(sizes[0]) == 4 < len(sizes[1])
    assert max(sizes[1]) < 32 * 150 + 1000 < max(sizes[0])


def test_a_holder_raises_no_more_ids_of_a_party_than_there_are_rows():
    """Each raised point is a question to the key: a coordinator has no more of them than the protocol needs."""
    fed, points = federation(), oprf.hash_to_group([b"a guess"])
    with fed.session("muse", fs.Muse().get_params()) as run:
        meet_all(run, circle=row_secrets.CIRCLE)
        run.ask(row_secrets.matching_keys, to=run.parties)
        raised = run.ask(row_secrets.raise_rows, to=run.active, lists={run.active: points * (ROWS - 1)})
        assert len(raised[run.active]) == 32 * (ROWS - 1)
        run.ask(row_secrets.raise_rows, to=run.active, lists={run.active: points})
        with pytest.raises(OperationRefused, match="more ids of"):
            run.ask(row_secrets.raise_rows, to=run.active, lists={run.active: points})


METHODS = {
    "sffs": lambda: fs.SFFS(n_features=3),
    "muse": lambda: fs.Muse(n_features=3),
    "information value": lambda: fs.InformationValue(n_features=3),
    "federated lasso": lambda: fs.FederatedLasso(n_features=3, max_iter=5),
    "trees, open": lambda: fs.TopGain(n_features=3, protection="open", n_estimators=1),
    "trees, coordinator": lambda: fs.TopGain(n_features=3, protection="coordinator", n_estimators=1),
    "trees, all": lambda: fs.TopGain(n_features=3, protection="all", n_estimators=1, max_depth=2, n_bins=8),
}
LIMIT = 3000


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", LIMIT)
    monkeypatch.setattr(pieces, "LARGE", 500)


def watched(fed: fs.Federation) -> Recording:
    fed._link.transport = Recording(fed._link.transport)
    return fed._link.transport


@pytest.mark.parametrize("method", METHODS)
def test_every_method_selects_the_same_and_nothing_large_is_on_its_way(small, monkeypatch, method):
    fed = federation(3)
    transport = watched(fed)
    found = METHODS[method]().fit(fed)
    assert max(len(data) for *_, data in transport.log) <= LIMIT + pieces._HEAD.size
    monkeypatch.undo()
    whole = METHODS[method]().fit(federation(3))
    assert found.selected_ == whole.selected_
    assert found.scores_["score"].tolist() == whole.scores_["score"].tolist()
    assert fed.ledger.rounds() == whole.ledger_.rounds()
    assert max(line.bytes for line in found.ledger_.entries) > LIMIT, "the ledger tells whole messages"
    relayed = {piece.name for *_, data in transport.log if (piece := Piece.read(data)) and piece.is_index}
    assert relayed
    assert all(not site.pieces.waiting for site in transport.sites.values()), "nothing is kept after the run"


def test_lists_of_ids_are_matched_the_same(small):
    import pandas as pd

    ids = np.arange(600)
    tables = {
        name: pd.DataFrame({"id": np.random.default_rng(n).permutation(ids)[:500], name: np.arange(500.0)})
        for n, name in enumerate(["bank", "shop", "post", "rail"])
    }
    tables["bank"]["y"] = np.arange(500) % 2
    fed = fs.Federation.from_tables(tables, id="id", label=("bank", "y"))
    shared = set.intersection(*(set(table["id"]) for table in tables.values()))
    assert fed.n_rows == len(shared)


class Generous(Transport):
    """Parties whose replies are large, and that keep neither these nor what they are asked."""

    name = "generous"

    def __init__(self, size: int):
        self.index = pieces._index(encode({"ok": SealedBox(bytes(size))}))
        self.size, self.count, self.asked = size + 100, -(-(size + 100) // pieces.PIECE), 0

    def exchange(self, requests, timeout):
        return {name: Delivery(self._answer(data), 0.1) for name, data in requests.items()}

    def _answer(self, data: bytes) -> bytes:
        self.asked += len(data)
        piece = Piece.read(data)
        if piece is None or (piece.kind == 0 and piece.number + 1 == piece.count):
            return Piece(2, bytes(16), 0, self.count, self.index).to_bytes()
        if piece.kind == 1:
            return Piece(0, piece.name, piece.number, piece.count, bytes(pieces.PIECE)).to_bytes()
        return Piece(1, piece.name, piece.number, piece.count).to_bytes()


def test_a_coordinator_passes_on_what_it_does_not_hold(monkeypatch):
    """Each of twelve parties says 20 MB, and each is told what all said: 2.9 GB go by, a few pieces are in memory."""
    monkeypatch.setattr(pieces, "PIECE", 1 << 20)
    names, size = [f"party{n}" for n in range(12)], 20 << 20
    transport = Generous(size)
    link = Exchange(transport, None)
    asked = {"view": "", "session": "", "timeout": None}
    tracemalloc.start()
    try:
        boxes = link.ask(hide_cuts, {name: {} for name in names}, **asked)
        assert all(len(box.data) == size for box in boxes.values())
        link.ask(hide_cuts, {name: {"boxes": boxes} for name in names}, **asked)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert transport.asked > 12 * 12 * size
    assert sum(line.bytes for line in link.ledger.entries) > 12 * 12 * size
    assert peak < 40 * pieces.PIECE
