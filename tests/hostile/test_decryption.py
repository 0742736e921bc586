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

    def ask(self, to: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.hostile.send(to, operation, **self.asked, **arguments)

    def counts(self, beside: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
        given = {
            "key": self.labels["key"], "rows": self.labels["rows"], "layouts": self.labels["layouts"],
            "note": self.labels["notes"]["shop"], "holder": "bank", **changed,
        }  # fmt: skip
        return self.ask("shop", "tables.masked_counts", given=given, **(beside or {}))

    def opened(
        self, reply: dict[str, Any], name: str = "shop", beside: dict[str, Any] | None = None, **changed: Any
    ) -> dict[str, Any]:
        parts = {"sums": reply["sums"], "notes": reply["note"], "shapes": reply["shape"]}
        told = {**{key: {name: parts[key]} for key in parts}, **changed}
        return self.ask("bank", "tables.open_counts", told=told, **(beside or {}))


@pytest.fixture
def talk():
    return Talk(Hostile())


def test_the_conversation_is_a_real_one(talk):
    reply = talk.counts()["ok"]
    assert "ok" in talk.opened(reply)


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
        nothing = {"sums": [], "note": b"", "shape": []}
        refused(talk.counts(beside=changed), "unknown or missing arguments")
        refused(talk.counts(**changed), "must have the fields")
        refused(talk.opened(nothing, beside=changed), "unknown or missing arguments")
        refused(talk.opened(nothing, **changed), "must have the fields")


def forged(rows: int) -> dict[str, Any]:
    """A key and "labels" of the coordinator's own: what is summed under them it can read."""
    own = generate_key("ou")
    layout = RowLayout.fit(rows, 1, 1, own.public.plaintext_bits)
    codes = np.eye(rows, 1, dtype=np.int64)
    rows_under_it = [encrypt_rows(own.public, codes, layout, 1)]
    return {"key": own.public, "rows": rows_under_it, "layouts": [layout.as_dict()]}


def test_a_key_and_labels_of_the_coordinators_own(talk):
    """security.md, deviating 4: all values of every column came out in one request."""
    refused(talk.counts(**forged(ROWS)), "not the labels")


def test_the_right_labels_under_a_foreign_note(talk):
    other = Talk(Hostile()).labels["notes"]["shop"]
    refused(talk.counts(note=other))


def test_row_ciphertexts_are_not_decrypted(talk):
    """security.md, deviating 1: the label holder decrypted what it was sent."""
    reply = talk.counts()["ok"]
    refused(talk.opened(reply, sums={"shop": talk.labels["rows"]}), "not the sums")


@pytest.mark.parametrize("shape", [[0, 5], [-100, 5], [3], []])
def test_another_number_of_tables_than_the_party_vouches_for(talk, shape):
    """The label holder's noise grows with the number of tables: fewer than there are would weaken it."""
    refused(talk.opened(talk.counts()["ok"], shapes={"shop": shape}), "not the sums")


def test_chosen_ciphertexts_are_not_decrypted(talk):
    """Seventeen of them gave the private key."""
    key = talk.labels["key"]
    chosen = key.encrypt([1 << (key.plaintext_bits - 2)])
    reply = talk.counts()["ok"]
    refused(talk.opened(reply, sums={"shop": [chosen]}), "not the sums")
    refused(talk.opened(reply), "as often as it declares")


def test_an_answer_is_opened_once(talk):
    reply = talk.counts()["ok"]
    assert "ok" in talk.opened(reply)
    refused(talk.opened(reply), "as often as it declares")


def test_an_answer_under_the_name_of_nobody(talk):
    reply = talk.counts()["ok"]
    refused(talk.opened(reply, "ghost"))


def test_a_key_is_made_for_a_job(monkeypatch):
    """What was encrypted in one job is of no use in the next."""
    monkeypatch.setattr("fedsift.mpc.encrypted_histogram.generate_key", lambda scheme: generate_key("ou"))
    hostile = Hostile()
    first, second = Talk(hostile), Talk(hostile)
    assert first.labels["key"].to_bytes() != second.labels["key"].to_bytes()
