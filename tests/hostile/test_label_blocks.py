"""Attacks on labels that come in blocks: sums of some of the rows, subtracted from sums of all, would give labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.mpc import encrypted_histogram
from fedsift.mpc.encrypted_histogram import RowLayout, row_blocks
from hostile.coordinator import ROWS, Hostile, refused

#: What adds up a block, what answers with the last, the method, what it is asked beside and how wide labels are.
COUNTS = ("tables.add_counts", "tables.masked_counts", fs.InformationValue(n_features=2), {}, {})
SUMS = (
    "f_test.add_class_sums", "f_test.masked_class_sums", fs.SFFS(n_features=2), {"bits": 36, "clip": 0.0},
    {"weight_bits": 37},
)  # fmt: skip
FORMS = {"counts": COUNTS, "sums": SUMS}


class Blocks:
    """An honest beginning: the blocks of labels as their holder sent them, before a party got any."""

    def __init__(self, form: str = "counts", **views: np.ndarray) -> None:
        self.hostile = Hostile()
        self.adding, self.answering, method, self.how, width = FORMS[form]
        job = self.hostile.of(method)
        self.asked = {"session": self.hostile.begin(job), "job": job.hash}
        self.hostile.meet(self.asked)
        for (name, rows), to in itertools.product(views.items(), ("bank", "shop")):
            assert "ok" in self.ask(to, "core.define_view", view=name, rows=rows)
        self.asked |= {"on": next(iter(views), "")}
        told = {"scheme": "auto", "task": "auto", "in_blocks": True, **width}
        self.sent = [self.ask("bank", "labels.encrypt_classes", **told)["ok"]]
        while "ok" in (more := self.ask("bank", "labels.encrypt_more")):
            self.sent.append(more["ok"])
        refused(more, "all rows were sent")

    def ask(self, to: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.hostile.send(to, operation, **self.asked, **arguments)

    def answer(self, number: int) -> dict[str, Any]:
        return self.pass_on(number, self.answering)

    def pass_on(self, number: int, operation: str = "", **changed: Any) -> dict[str, Any]:
        block = self.sent[number]
        told = {name: block[name] for name in ("key", "rows", "layouts")}
        given = {**told, "note": block["notes"]["shop"], "holder": "bank", **changed}
        return self.ask("shop", operation or self.adding, given=given, **self.how)


@pytest.fixture(params=list(FORMS))
def blocks(request, monkeypatch):
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 4000)
    found = Blocks(request.param)
    assert len(found.sent) >= 3
    return found


def test_the_conversation_is_a_real_one(blocks):
    last = len(blocks.sent) - 1
    assert all("ok" in blocks.pass_on(number) for number in range(last))
    assert "ok" in blocks.answer(last)


def test_the_labels_of_all_rows_are_in_as_many_blocks_as_the_rows_say(blocks):
    first = blocks.sent[0]
    layouts = [RowLayout.read(layout, ROWS) for layout in first["layouts"]]
    assert len(blocks.sent) == len(row_blocks(first["key"], layouts))


@pytest.mark.parametrize("before", [0, 1])
def test_sums_of_some_blocks_are_not_told(blocks, before):
    for number in range(before):
        assert "ok" in blocks.pass_on(number)
    refused(blocks.answer(before), "have not come yet")
    refused(blocks.answer(len(blocks.sent) - 1))


def test_a_block_comes_once(blocks):
    assert "ok" in blocks.pass_on(0)
    refused(blocks.pass_on(0))
    refused(blocks.answer(0))


def test_no_block_is_left_out_or_comes_before_its_turn(blocks):
    refused(blocks.pass_on(1))
    refused(blocks.answer(len(blocks.sent) - 1))
    assert "ok" in blocks.pass_on(0)  # nothing was used up by what came too early
    refused(blocks.pass_on(2))


def test_the_last_block_ends_it(blocks):
    last = len(blocks.sent) - 1
    for number in range(last):
        assert "ok" in blocks.pass_on(number)
    refused(blocks.pass_on(last), f"{blocks.answering.partition('.')[2]} takes it")


def test_no_block_comes_after_the_answer(blocks):
    last = len(blocks.sent) - 1
    for number in range(last):
        assert "ok" in blocks.pass_on(number)
    assert "ok" in blocks.answer(last)
    refused(blocks.answer(last), "as often as it declares")
    refused(blocks.pass_on(0))
    refused(blocks.ask("bank", "labels.encrypt_more"), "all rows were sent")


def test_a_block_under_the_note_of_another(blocks):
    refused(blocks.pass_on(0, note=blocks.sent[1]["notes"]["shop"]))
    refused(blocks.pass_on(1, note=blocks.sent[0]["notes"]["shop"]), "not the labels")


def test_rows_of_two_blocks_in_one(blocks):
    both = [blocks.sent[0]["rows"][0].concat([blocks.sent[0]["rows"][0], blocks.sent[1]["rows"][0]])]
    refused(blocks.pass_on(0, rows=both), "not the labels")


@pytest.mark.parametrize("size", [2_000, 8_000, 10**9])
def test_a_label_holder_that_cuts_its_rows_otherwise(monkeypatch, size):
    """Its notes are its own; the size of a block is not."""
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", size)
    blocks = Blocks()
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 4000)
    refused(blocks.pass_on(0), "another size than its rows")


def test_more_blocks_are_for_whoever_began(blocks):
    refused(blocks.ask("shop", "labels.encrypt_more"), "it comes after")
    fresh = Hostile()
    job = fresh.of(fs.InformationValue(n_features=2))
    refused(fresh.send("bank", "labels.encrypt_more", session=fresh.begin(job), job=job.hash))


@pytest.mark.parametrize("fewer", [{"columns": [0]}, {"rows": np.arange(ROWS - 60)}], ids=["columns", "rows"])
def test_all_blocks_are_added_up_on_one_view(blocks, fewer):
    """The noise of a job with an epsilon was made for the columns of the view that the last block came for: all columns
    were counted before, and one was named in the end."""
    assert "ok" in blocks.hostile.send("shop", "core.define_view", **blocks.asked, view="fewer", **fewer)
    last = len(blocks.sent) - 1
    assert all("ok" in blocks.pass_on(number) for number in range(last))
    blocks.asked["on"] = "fewer"
    refused(blocks.answer(last), f"other {next(iter(fewer))} than these")


@pytest.mark.parametrize("odd", [{"bits": 35}, {"clip": 4.0}])
def test_other_numbers_for_some_of_the_rows_are_refused(monkeypatch, odd):
    """Sums with one block at another scale, less the sums of all, would be about the rows of that block."""
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 4000)
    blocks = Blocks("sums")
    assert "ok" in blocks.pass_on(0)
    blocks.how = {**blocks.how, **odd}
    refused(blocks.pass_on(1))


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_of_one_view(monkeypatch, form):
    """The answer is judged by the rows of its view: what was added up must be about these."""
    monkeypatch.setattr(encrypted_histogram, "BLOCK_BYTES", 4000)
    blocks = Blocks(form, one=np.arange(ROWS - 60), other=np.arange(60, ROWS))
    assert "ok" in blocks.pass_on(0)
    blocks.asked["on"] = "other"
    refused(blocks.pass_on(1), "other rows than these")
