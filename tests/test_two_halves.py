"""Sums that the coordinator opens from two halves: exact, masked on the way, and bound to who made them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import cached_key
from scipy.stats import kstest

import fedsift as fs
from fedsift.core.message import decode, encode
from fedsift.crypto.additive.keys import generate_key
from fedsift.errors import FedsiftError, OperationRefused, ReplyError, SecurityError
from fedsift.mpc.column_scores.counting import masked_counts
from fedsift.mpc.column_scores.label_tables import open_counts
from fedsift.mpc.encrypted_histogram import HIDING_BITS, RowLayout, encrypt_rows
from fedsift.mpc.encrypted_labels import encrypt_classes
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import ForHolder, join_halves

JOB = fs.InformationValue(n_bins=4, min_cell=1).announcement()


def federation(rows: int = 40, classes: int = 2) -> tuple[fs.Federation, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(rows)
    X = pd.DataFrame(rng.integers(0, 4, (rows, 4)).astype(float), columns=list("abcd"))
    y = rng.permutation(np.arange(rows) % classes)
    return fs.Federation.split(X, y, parties=["bank", "shop"]), X, y


class Conversation:
    """The steps one by one, so that a test can change what the coordinator passes on."""

    def __init__(self, run: fs.Federation, answers: int = 8):
        self.run = run
        meet_all(run)
        self.labels = run.ask(encrypt_classes, to="bank", scheme="auto", task="auto", answers=answers)

    def counts(self, **changed):
        given = self.labels.each("bank", ["shop"])["shop"]["given"]
        return self.run.ask(masked_counts, to="shop", given=replace(given, **changed))

    def opened(self, reply, **changed):
        told = ForHolder.of({"shop": replace(reply, **changed)})
        return self.run.ask(open_counts, to="bank", told=told)


@pytest.mark.parametrize("answers", [1, 8, 100_000])
@pytest.mark.parametrize("classes", [2, 5])
def test_joined_halves_are_the_sums(answers, classes):
    fed, X, y = federation(classes=classes)
    with fed.session(*JOB) as run:
        talk = Conversation(run, answers)
        reply = talk.counts()
        halves = talk.opened(reply).halves["shop"]
    layouts = [RowLayout.read(layout, 40) for layout in talk.labels.layouts]
    count = len(reply.sizes)
    table = join_halves("shop", reply.seed, halves, layouts, count).astype(int)
    expected = [
        [((X[column] == value) & (y == k)).sum() for k in range(classes - 1)]
        for column in "cd"
        for value in sorted(X[column].unique())
    ]
    assert sorted(map(tuple, table.tolist())) == sorted(map(tuple, expected))
    with pytest.raises(ReplyError, match="belong together"):
        join_halves("shop", bytes(32), halves, layouts, count)


def test_a_half_is_uniform_whatever_the_sums_are():
    """What the label holder decrypts, over many runs: the top bits of its numbers are uniform."""
    seen = []
    for _ in range(12):
        fed, *_ = federation()
        with fed.session(*JOB) as run:
            talk = Conversation(run, 100_000)
            reply = talk.counts()
        layout = RowLayout.read(talk.labels.layouts[0], 40)
        numbers = cached_key().decrypt(reply.sums[0], bits=layout.answer_bits + HIDING_BITS + 1)
        seen += [number / 2.0 ** (layout.answer_bits + HIDING_BITS) for number in numbers]
    assert kstest(seen, "uniform").pvalue > 1e-9


def test_labels_of_the_coordinators_own_are_refused():
    """security.md, deviating 4: a key and "labels" of its own would open every value of every column."""
    fed, *_ = federation()
    with fed.session(*JOB) as run:
        talk = Conversation(run)
        own = generate_key("ou")
        layout = RowLayout.read(talk.labels.layouts[0], 40)
        forged = [encrypt_rows(own.public, np.eye(40, 1, dtype=np.int64), layout, 1)]
        for changed in ({"key": own.public, "rows": forged}, {"rows": forged}, {"holder": "shop"}, {"note": None}):
            with pytest.raises(FedsiftError):
                talk.counts(**changed)


def test_another_layout_than_the_label_holders_is_refused():
    fed, *_ = federation()
    with fed.session(*JOB) as run:
        talk = Conversation(run)
        layouts = decode(encode(talk.labels.layouts))
        layouts[0]["answers_per"] += 1
        with pytest.raises(SecurityError, match="not the labels"):
            talk.counts(layouts=layouts)


def test_ciphertexts_of_the_coordinators_choice_are_not_decrypted():
    """security.md, deviating 1: the label holder opens what a party vouches for, once, under its own layout."""
    fed, *_ = federation()
    with fed.session(*JOB) as run:
        talk = Conversation(run)
        reply = talk.counts()
        with pytest.raises(SecurityError, match="not the sums"):
            talk.opened(reply, sums=talk.labels.rows)
    fed, *_ = federation()
    with fed.session(*JOB) as run:
        talk = Conversation(run)
        reply = talk.counts()
        talk.opened(reply)
        with pytest.raises(OperationRefused, match="as often as it declares"):
            talk.opened(reply)


def test_without_a_handshake_nothing_is_counted():
    fed, *_ = federation()
    with fed.session(*JOB) as run:
        labels = run.ask(encrypt_classes, to="bank", scheme="auto", task="auto")
        assert labels.notes == {}
        given = labels.each("bank", ["shop"])["shop"]["given"]
        with pytest.raises(OperationRefused, match="an earlier step of this run must come first"):
            run.ask(masked_counts, to="shop", given=given)
        with pytest.raises(OperationRefused, match="must be of type bytes"):
            run.ask(masked_counts, to="shop", given=replace(given, note=None))
