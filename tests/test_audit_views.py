"""A view holds what its role received and what is its own, and nothing else."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit import record, record_tables
from fedsift.core.checks import TableSize
from fedsift.core.ledger import COORDINATOR
from fedsift.core.message import decode
from fedsift.core.table import Table

#: Doubles that no other column holds and no computation gives by chance.
BANK, SHOP = 1234567.8910111213, 7654321.0987654321


def tables(rows: int = 60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    bank = pd.DataFrame({"id": np.arange(rows), "income": rng.normal(size=rows) + y, "age": rng.normal(size=rows)})
    shop = pd.DataFrame({"id": np.arange(rows), "basket": rng.normal(size=rows) + y, "visits": rng.normal(size=rows)})
    bank.loc[3, "income"], shop.loc[3, "basket"] = BANK, SHOP
    bank["default"] = y
    return {"bank": bank, "shop": shop}


def holds(value, number: float, seen: set[int] | None = None) -> bool:
    """Whether the number is anywhere inside: in arrays, tables, containers, records and objects."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, Table):
        return any(holds(value.values(c), number, seen) for c in value.columns if value.kinds[c] != "categorical")
    if isinstance(value, np.ndarray):
        return bool((value == number).any()) if value.dtype.kind == "f" else False
    if isinstance(value, (bytes, bytearray)):
        return np.float64(number).tobytes() in bytes(value)
    if isinstance(value, dict):
        return any(holds(item, number, seen) for item in value.values())
    if isinstance(value, (list, tuple, set)):
        return any(holds(item, number, seen) for item in value)
    if is_dataclass(value):
        return any(holds(getattr(value, f.name), number, seen) for f in fields(value))
    return isinstance(value, float) and value == number


@pytest.fixture(scope="module", params=["sffs", "information_value", "federated_lasso"])
def seen(request):
    from fedsift.methods import METHODS

    selector = METHODS[request.param](n_features=2)
    return record_tables(tables(), selector, id="id", label=("bank", "default"), every_step=True)


def test_the_search_for_a_canary_finds_it_where_it_is(seen):
    assert holds(seen["bank"], BANK)
    assert holds(seen["shop"], SHOP)


def test_no_view_holds_another_partys_values(seen):
    assert not holds(seen["shop"], BANK)
    assert not holds(seen["bank"], SHOP)
    assert not holds(seen[COORDINATOR], BANK)
    assert not holds(seen[COORDINATOR], SHOP)


def test_a_party_sees_its_own_requests_and_replies_only(seen):
    for name in ("bank", "shop"):
        assert {m.party for m in seen[name].messages} == {name}
    assert {m.party for m in seen[COORDINATOR].messages} == {"bank", "shop"}


def test_the_coordinator_has_no_table_keys_or_state(seen):
    view = seen[COORDINATOR]
    assert view.table is None
    assert not view.keys
    assert not view.states


def test_roles_and_job_are_told_to_all(seen):
    assert {name: view.role for name, view in seen.views.items()} == {
        "bank": "active", "shop": "passive", COORDINATOR: "coordinator",
    }  # fmt: skip
    for view in seen.views.values():
        assert view.job.active == "bank"
        assert view.job.parameters["n_features"] == 2


def test_rows_of_view_and_truth_are_in_the_common_order(seen):
    np.testing.assert_array_equal(seen["shop"].columns, seen.truth.columns["shop"])
    np.testing.assert_array_equal(seen["shop"].own_table.ids, seen["bank"].own_table.ids)


def test_a_reply_belongs_to_the_request_before_it():
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    seen = record(X, y, fs.SFFS(n_features=2), parties=["bank", "shop"])
    view = seen["shop"]
    assert len(view.requests("masked_class_sums")) == len(view.replies("masked_class_sums")) == 1
    assert view.requests("masked_class_sums")[0].number < view.replies("masked_class_sums")[0].number
    assert set(view.replies("masked_class_sums")[0].content) >= {"sums", "owner"}


def test_a_party_is_told_its_own_part_of_the_result_only():
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    seen = record(X, y, fs.SFFS(n_features=2), parties=["bank", "shop"])
    told = seen["shop"].requests("keep_result")[0].content["selection"]
    assert '"shop"' in told
    assert '"bank"' not in told
    np.testing.assert_array_equal(seen["shop"].kept, seen.result.masks_["shop"])


def test_the_recorder_passes_the_bytes_on_unchanged():
    from fedsift.audit.recording import Recorder
    from fedsift.core.federation import Federation
    from fedsift.core.simulate import simulated_sites
    from fedsift.core.transports.inprocess import InProcess

    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    sites, active = simulated_sites(
        X,
        y,
        parties=2,
        partition="vertical",
        how="equal",
        duplicates=False,
        random_state=0,
        label_party=None,
        grid=None,
    )
    recorder = Recorder(InProcess(sites), sites)
    fed = Federation(recorder, list(sites), active=active)
    assert fed.sizes() == {"party1": TableSize(40, 2), "party2": TableSize(40, 2)}
    assert [decode(data)["operation"] for _, _, asked, data in recorder.log if asked] == ["core.count_table"] * 2
    assert sum(len(data) for *_, data in recorder.log) == fed.ledger.bytes()


def test_a_hostile_conversation_is_recorded_too():
    from fedsift.core.party import share_names

    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    seen = record(X, y, lambda fed: fed.ask(share_names, to="shop"), parties=["bank", "shop"])
    assert seen[COORDINATOR].replies("share_names")[0].content == seen.result
    assert not seen["bank"].messages


def test_messages_in_pieces_are_recorded_whole(monkeypatch):
    """An audit of a wide table ended with "not a fedsift message": requests of more than 32 MiB go piece by piece."""
    X, y = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 2

    def seen():
        recording = record(X, y, fs.SFFS(n_features=3), parties=["bank", "shop"])
        return [(m.party, m.is_request, m.operation) for m in recording["coordinator"].messages]

    whole = seen()
    monkeypatch.setattr("fedsift.core.pieces.PIECE", 1500)
    assert seen() == whole
