"""The ledger: append-only, readable, and honest about whether encryption was on."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.ledger import COORDINATOR, FORMS, Entry, Ledger
from fedsift.core.operation import operation, operations
from fedsift.errors import ParameterError


def entry(**changes) -> Entry:
    fields = {
        "round": 1,
        "sender": "bank",
        "receiver": COORDINATOR,
        "operation": "op",
        "bytes": 10,
        "form": "aggregate",
        "about": "x",
    }
    return Entry(**{**fields, **changes})


def test_an_unknown_form_cannot_be_declared():
    def nothing(party) -> None: ...

    with pytest.raises(ParameterError, match="harmless"):
        operation("test.harmless", discloses="harmless", about="x")(nothing)
    with pytest.raises(ParameterError, match="secretly"):
        operation("test.secret", discloses="plain", about="x", receives="secretly")(nothing)


def test_traffic_adds_up():
    ledger = Ledger([entry(bytes=5), entry(bytes=7), entry(sender=COORDINATOR, receiver="bank", bytes=11)])
    traffic = ledger.traffic()
    assert traffic["bytes"].sum() == ledger.bytes() == 23
    assert traffic.set_index("direction")["messages"].to_dict() == {"from party": 2, "to party": 1}


def test_an_empty_ledger_has_its_columns():
    assert Ledger().bytes() == 0
    assert list(Ledger().traffic().columns)[:2] == ["round", "party"]
    assert "form" in Ledger().disclosures()
    assert "OFF" in str(Ledger())


def test_no_encryption_is_said_loudly():
    assert Ledger([entry()]).encryption_line() == "encryption: OFF (no ciphertext was sent)"
    assert Ledger([entry(form="masked")]).encryption_line().startswith("encryption: by masks, 10 bytes")
    on = Ledger([entry(ciphertexts=3, scheme="Paillier 2048 bits")])
    assert on.encryption_line() == "encryption: on, Paillier 2048 bits, 3 ciphertexts sent"


def test_encryption_is_counted_from_what_was_sent(small_fed):
    fs.AllFeatures().fit(small_fed)
    assert not small_fed.ledger.encryption()["on"]
    fs.SFFS(n_features=1).fit(small_fed)
    assert small_fed.ledger.encryption()["ciphertexts"] > 10


def test_disclosures_group_what_is_alike():
    table = Ledger([entry(), entry(), entry(about="y")]).disclosures()
    assert table["messages"].tolist() == [2, 1]


def test_entries_written_from_many_threads_are_all_there():
    ledger = Ledger()
    threads = [threading.Thread(target=lambda: [ledger.add(entry()) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger) == 1600


def test_protections_that_are_off_are_noted(small_fed):
    fitted = fs.InformationValue(n_features=2, min_cell=1).fit(small_fed)
    assert any("min_cell=1" in note for note in fitted.ledger_.notes)
    assert "note: min_cell=1" in str(fitted.ledger_)
    again = fs.InformationValue(n_features=2, min_cell=1).fit(small_fed)
    assert again.ledger_.notes == fitted.ledger_.notes  # a second run on the same federation says it again
    assert len(small_fed.ledger.notes) == 1


def test_every_form_is_explained():
    assert all(text.endswith(".") and len(text) > 15 for text in FORMS.values())


def test_nobody_is_said_to_learn_what_it_only_holds_encrypted_or_masked():
    closed = re.compile(r"encrypted|under (a )?masks?|sealed")
    wrong = [marked.id for marked in operations() if closed.search(marked.learns) and "nothing" not in marked.learns]
    assert not wrong, "begin with 'nothing: ...'"


def test_a_resumed_jobs_ledger_covers_both_attempts(tmp_path):
    first = Ledger([entry(round=1), entry(round=2, relayed=True, seconds=0.5, opened="aggregate: sums")])
    first.frame().to_csv(tmp_path / "ledger.csv", index=False)
    again = Ledger([entry(round=1, about="y")])
    again.take_up(Ledger.read(tmp_path / "ledger.csv").entries)
    assert [(e.round, e.about) for e in again.entries] == [(-1, "x"), (0, "x"), (1, "y")]
    assert (again.entries[1].relayed, again.entries[1].seconds, again.entries[0].relayed) == (True, 0.5, False)
    assert again.rounds() == 3
    assert again.bytes() == 30
    assert "2 messages are of an earlier attempt" in again.notes[0]


def test_the_ledger_says_who_opens_what():
    X, y = np.arange(480.0).reshape(120, 4) % 7, np.arange(120) % 2
    ledger = fs.InformationValue(n_features=2).fit(fs.Federation.split(X, y, parties=["bank", "shop"])).ledger_
    opened = {(e.operation, e.sender): (e.opened, e.opened_by) for e in ledger.entries}
    assert opened["tables.masked_counts", "shop"] == (
        "aggregate: label counts of shuffled bins of unnamed columns, to the coordinator", "coordinator",
    )  # fmt: skip
    assert opened["labels.encrypt_classes", "bank"][0].startswith("ciphertext")


def test_what_the_coordinator_passes_on_has_a_line_of_the_party_that_gets_it():
    """Open boosting and linear models: the coordinator reads a message, and so does whoever it passes it on to."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    fed = fs.Federation.split(X, (X[:, 3] > 0).astype(int), parties=["bank", "shop"])
    fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="open").fit(fed)
    opened = {(e.operation.removesuffix(".open"), e.receiver, e.opened_by): e.opened for e in fed.ledger.entries}
    assert opened["boost.advance", COORDINATOR, "coordinator"].startswith("pseudonymous: which rows lie together")
    assert opened["boost.level_sums", "shop", "shop"] == "which rows lie together in a node of a tree"
    assert opened["boost.level_sums", COORDINATOR, "active"].startswith("aggregate: gradient sums")
    assert opened["boost.choose_splits", COORDINATOR, "coordinator"].startswith("aggregate: which column")
    assert opened["boost.divide", "shop", "shop"].startswith("which of its columns was cut")
    assert opened["boost.advance", "bank", "bank"].startswith("which rows go left")


def test_a_linear_model_s_weights_have_a_line_of_each_party():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    fed = fs.Federation.split(X, (X[:, 3] > 0).astype(int), parties=["a", "b"], partition="horizontal")
    fs.FedLinear().fit(fed)
    weights = {(e.receiver, e.opened) for e in fed.ledger.entries if e.operation == "linear.local_steps"}
    assert {("a", "the averaged weights"), ("b", "the averaged weights")} <= weights
    assert any(receiver == COORDINATOR and opened.startswith("aggregate: weights") for receiver, opened in weights)
