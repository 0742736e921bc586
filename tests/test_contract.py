"""Every registered method, over every transport, under the same rules."""

from __future__ import annotations

import json
import struct

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Recording, Serial
from sklearn.base import clone

import fedsift as fs
from fedsift.core.ledger import FORMS
from fedsift.core.message import decode
from fedsift.core.transports.inprocess import InProcess
from fedsift.methods import METHODS
from fedsift.select.selection import Selection

#: Parameters that make a method quick on small data; what is not named here runs with its defaults.
QUICK: dict[str, dict] = {
    "muse": {"n_features": 4, "n_bins": 4},
    "fedsdg": {"lambda_": 0.01, "epochs": 2, "refit_epochs": 2},
    "less_vfl": {
        "pretrain_epochs": 2,
        "epochs": 1,
        "stage_epochs": 2,
        "batch_size": 24,
        "quantile": 0.5,
        "lambda_components": 0.0,
    },
    "pso_evffs": {"popsize": 3, "iterations": 1, "models": 1, "folds": 2, "max_trees": 2, "max_depth": 2},
    "top_gain": {"n_features": 3, "n_estimators": 2, "max_depth": 2, "folds": 2},
    "information_value": {"n_features": 4},
    "gini": {"n_features": 4},
    "sffs": {"n_features": 4},
    "federated_lasso": {"n_features": 4, "max_iter": 3},
    "group_lasso": {"epochs": 2, "batch_size": 24},
    "local_lasso": {"pretrain_epochs": 1, "epochs": 1, "stage_epochs": 2, "batch_size": 24},
    "stochastic_gate": {"lambda_": 0.01, "epochs": 2, "refit_epochs": 2},
    "vflfs": {"n_features": 4, "epochs": 1, "pretrain_epochs": 1},
    "fed_iife": {"n_pairs": 2, "max_features": 2},
    "vertical_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "hybrid_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "fed_halving": {"candidates": 4, "levels": 2, "rounds": 2, "refinements": 1, "halvings": 1},
    "random": {"n_features": 4},
}
NEEDS_TORCH = {"fedsdg", "less_vfl", "group_lasso", "local_lasso", "stochastic_gate", "vflfs"}
COLUMN_CANARY = 918273645.4378125  # exact in float64; its float32 and integer forms are looked for too
LABEL_CANARIES = ("CANARY-LABEL-YES", "CANARY-LABEL-NO")


def federation(method: str, transport=InProcess, *, canaries: bool = False) -> fs.Federation:
    X, y = mixed_table(48)
    if canaries:
        X = X.assign(signal=np.where(np.arange(len(X)) % 5 == 0, COLUMN_CANARY, X["signal"]))
        X["noise"] = np.where(np.arange(len(X)) % 7 == 0, COLUMN_CANARY, X["noise"])
        X["colour"] = np.where(np.arange(len(X)) % 3 == 0, "CANARY-COLOUR", X["colour"])
        y = pd.Series(np.where(y == 1, *LABEL_CANARIES), name="outcome")
    partition = METHODS[method].partitions[0]
    if partition == "horizontal":
        X = X.select_dtypes("number").fillna(0.0)
    grid = (2, 2) if partition == "hybrid" else None
    fed = fs.Federation.split(X, y, parties=3, partition=partition, grid=grid)
    fed._link.transport = transport(fed._link.transport.sites)
    return fed


def selector(method: str):
    chosen = METHODS[method](**QUICK.get(method, {}))
    if "random_state" in chosen.get_params():
        chosen.set_params(random_state=0)
    return chosen


def record(fed: fs.Federation) -> Recording:
    fed._link.transport = Recording(fed._link.transport)
    return fed._link.transport


@pytest.fixture(params=sorted(METHODS))
def method(request):
    if request.param in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    return request.param


@pytest.fixture(scope="module")
def first_runs():
    """One recorded run a method, shared by the tests that only look at it."""
    return {}


@pytest.fixture
def run(method, first_runs):
    if method not in first_runs:
        fed = federation(method)
        log = record(fed)
        first_runs[method] = (fed, selector(method).fit(fed), log)
    return first_runs[method]


def test_parameters_are_stored_untouched_and_cloneable(method):
    original = METHODS[method](**QUICK.get(method, {}))
    assert clone(original).get_params() == original.get_params()
    assert METHODS[method].__doc__
    assert METHODS[method].paper
    assert METHODS[method].leaks


def test_result_is_valid(method, run):
    fed, fitted, _ = run
    names = fed.column_names()
    assert set(fitted.selected_) == set(fed.parties)
    for party, columns in fitted.selected_.items():
        assert set(columns) <= set(names[party])
        assert len(columns) == len(set(columns))
    frame = fitted.scores_
    assert list(frame.columns) == ["party", "feature", "score", "rank", "selected"]
    assert len(frame) == sum(map(len, names.values()))
    assert sorted(frame["rank"]) == list(range(1, len(frame) + 1))
    assert np.isfinite(frame["score"]).all()
    assert frame["selected"].sum() == fitted.selection_.n_selected
    assert Selection.from_dict(json.loads(fitted.selection_.to_json())).selected == fitted.selected_
    made = {party: len(fitted.selection_.engineered_for(party)) for party in fed.parties}
    assert fitted.transform(fed).n_columns == {p: len(c) + made[p] for p, c in fitted.selected_.items()}


def test_same_seed_gives_the_same_answer(method, run):
    _, fitted, _ = run
    again = selector(method).fit(federation(method))
    assert again.selected_ == fitted.selected_
    np.testing.assert_allclose(again.scores_["score"], fitted.scores_["score"], rtol=1e-9)


def test_another_transport_gives_the_same_answer_and_the_same_bytes(method, run):
    _, fitted, _ = run
    other = selector(method).fit(federation(method, Serial))
    assert other.selected_ == fitted.selected_
    keys = ["party", "direction", "operation"]
    totals = [t.groupby(keys)[["messages", "bytes"]].sum() for t in (fitted.traffic_, other.traffic_)]
    pd.testing.assert_frame_equal(*totals)


def test_every_byte_on_the_transport_is_in_the_ledger(method):
    fed = federation(method)
    log = record(fed)
    selector(method).fit(fed)
    assert sum(len(data) for *_, data in log.log) == fed.ledger.bytes()
    assert len(log.log) == len(fed.ledger)
    assert set(fed.ledger.frame()["form"]) <= set(FORMS)
    assert (fed.ledger.frame()["about"].str.len() > 0).all()


def test_no_canary_leaves_a_party_in_a_message_that_is_not_plain(method):
    """Values of columns and labels, in any plain encoding, must not be on the wire unless the ledger says so."""
    fed = federation(method, canaries=True)
    log = record(fed)
    selector(method).fit(fed)
    number = COLUMN_CANARY
    whole = int(number)
    needles = [
        struct.pack("<d", number), struct.pack(">d", number), struct.pack("<f", number), struct.pack(">f", number),
        struct.pack("<q", whole), struct.pack("<i", whole), struct.pack(">q", whole)[3:], str(whole).encode(),
        b"CANARY-COLOUR", *(label.encode() for label in LABEL_CANARIES),
    ]  # fmt: skip
    frame = fed.ledger.frame()
    for (sender, receiver, data), form in zip(log.log, ordered_forms(fed, log)):
        if form != "plain":
            for needle in needles:
                assert needle not in data, f"{sender} -> {receiver} carries {needle!r}"
    assert len(frame) == len(log.log)


def ordered_forms(fed: fs.Federation, log: Recording) -> list[str]:
    """The ledger's form of each recorded message, matched by round, sender and receiver (both logs are complete)."""
    frame = fed.ledger.frame()
    forms: dict[tuple[str, str], list[str]] = {}
    for row in frame.itertuples():
        forms.setdefault((row.sender, row.receiver), []).append(row.form)
    return [forms[sender, receiver].pop(0) for sender, receiver, _ in log.log]


def test_labels_do_not_leave_row_by_row(method):
    """No message holds the label column as an array, in any integer or float type, unless declared plain."""
    fed = federation(method)
    log = record(fed)
    site = fed._link.transport.sites.get(fed._active or fed.parties[0])
    label = np.asarray(site.table.label)
    selector(method).fit(fed)
    forms = ordered_forms(fed, log)
    for (_, _, data), form in zip(log.log, forms):
        if form == "plain":
            continue
        for dtype in ("i1", "i2", "i4", "i8", "f4", "f8"):
            assert label.astype(dtype).tobytes() not in data
        decode(data)


def test_operations_declare_what_they_disclose(method, run):
    fed, _, _ = run
    for row in fed.ledger.disclosures().itertuples():
        assert row.form in FORMS
        assert row.about


def test_encryption_line_is_in_every_result(method, run):
    _, fitted, _ = run
    assert fitted.selection_.security["line"].startswith("encryption: ")
    on = fitted.selection_.security["line"].startswith("encryption: on")
    assert on == (fitted.selection_.security["ciphertexts"] > 0)


def test_state_is_forgotten_after_the_run(method, run):
    fed, _, _ = run
    for site in fed._link.transport.sites.values():
        assert site.sessions == {}


def test_wrong_partition_is_refused(method):
    supported = METHODS[method].partitions
    wrong = next((p for p in ("vertical", "horizontal") if p not in supported), None)
    if wrong is None:
        return
    X, y = mixed_table(40)
    fed = fs.Federation.split(X.select_dtypes("number"), y, parties=2, partition=wrong)
    with pytest.raises(fs.FedsiftError, match="parties"):
        METHODS[method](**QUICK.get(method, {})).fit(fed)
