"""Attacks on the keys: ciphertexts of the coordinator's choice, labels of its own, settings that open more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.crypto.additive.keys import generate_key
from fedsift.mpc.encrypted_histogram import RowLayout, encrypt_rows
from hostile.coordinator import ROWS, Hostile, refused

IV = fs.InformationValue(n_features=2)


class Talk:
    """An honest beginning of a filter's conversation, up to the sums of the passive party."""

    def __init__(self, hostile: Hostile):
        self.hostile = hostile
        job = hostile.of(IV)
        self.asked = {"session": hostile.begin(job), "job": job.hash}
        hostile.meet(self.asked)
        self.labels = self.ask("bank", "labels.encrypt_classes", scheme="auto", task="auto")["ok"]
        self.settings = {"n_bins": IV.bins, "min_cell": IV.min_cell, "epsilon": IV.epsilon, "delta": IV.delta}

    def ask(self, to: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.hostile.send(to, operation, **self.asked, **arguments)

    def counts(self, **changed: Any) -> dict[str, Any]:
        told = {
            "key": self.labels["key"], "layers": self.labels["layers"], "note": self.labels["notes"]["shop"],
            "holder": "bank", **self.settings, **changed,
        }  # fmt: skip
        return self.ask("shop", "tables.masked_counts", **told)

    def opened(self, sums: dict[str, Any], **changed: Any) -> dict[str, Any]:
        told = {"sums": sums, "columns": {"shop": 3}, **self.settings, **changed}
        return self.ask("bank", "tables.open_counts", **told)


@pytest.fixture
def talk():
    return Talk(Hostile())


def test_the_conversation_is_a_real_one(talk):
    reply = talk.counts()["ok"]
    assert "ok" in talk.opened({"shop": {key: reply[key] for key in reply if key in ("sums", "note")}})


def test_settings_that_are_not_the_jobs(talk):
    """security.md, deviating 5 and 9: a bin of one row, noise of another size, with a job that says otherwise."""
    for changed in (
        {"min_cell": 1},
        {"min_cell": 0},
        {"n_bins": 64},
        {"n_bins": 2**40},
        {"epsilon": 1e6},
        {"delta": 0.5},
    ):
        refused(talk.counts(**changed), "another than that of the accepted job")
        refused(talk.opened({}, **changed), "another than that of the accepted job")


def forged(rows: int) -> tuple[Any, list[dict[str, Any]]]:
    """A key and "labels" of the coordinator's own: what is summed under them it can read."""
    own = generate_key("ou")
    layout = RowLayout.fit(rows, 1, 1, own.public.plaintext_bits)
    codes = np.eye(rows, 1, dtype=np.int64)
    return own.public, [{"rows": encrypt_rows(own.public, codes, layout, 1), "layout": layout.as_dict()}]


def test_a_key_and_labels_of_the_coordinators_own(talk):
    """security.md, deviating 4: all values of every column came out in one request."""
    key, layers = forged(ROWS)
    refused(talk.counts(key=key, layers=layers), "not the labels")


def test_the_right_labels_under_a_foreign_note(talk):
    other = Talk(Hostile()).labels["notes"]["shop"]
    refused(talk.counts(note=other))


def test_row_ciphertexts_are_not_decrypted(talk):
    """security.md, deviating 1: the label holder decrypted what it was sent."""
    rows = talk.labels["layers"][0]["rows"]
    reply = talk.counts()["ok"]
    refused(talk.opened({"shop": {"sums": [rows], "note": reply["note"]}}), "not the sums")


def test_chosen_ciphertexts_are_not_decrypted(talk):
    """Seventeen of them gave the private key."""
    key = talk.labels["key"]
    chosen = key.encrypt([1 << (key.plaintext_bits - 2)])
    reply = talk.counts()["ok"]
    refused(talk.opened({"shop": {"sums": [chosen], "note": reply["note"]}}), "not the sums")
    refused(talk.opened({"shop": {"sums": reply["sums"], "note": reply["note"]}}), "as often as it declares")


def test_an_answer_is_opened_once(talk):
    reply = talk.counts()["ok"]
    sums = {"shop": {"sums": reply["sums"], "note": reply["note"]}}
    assert "ok" in talk.opened(sums)
    refused(talk.opened(sums), "as often as it declares")


def test_an_answer_under_the_name_of_nobody(talk):
    reply = talk.counts()["ok"]
    refused(talk.opened({"ghost": {"sums": reply["sums"], "note": reply["note"]}}))


def test_a_key_is_made_for_a_job(monkeypatch):
    """What was encrypted in one job is of no use in the next."""
    monkeypatch.setattr("fedsift.mpc.encrypted_histogram.generate_key", lambda scheme: generate_key("ou"))
    hostile = Hostile()
    first, second = Talk(hostile), Talk(hostile)
    assert first.labels["key"].to_bytes() != second.labels["key"].to_bytes()
