"""What is neither a method nor a model, under the rules of the contract: statistics, designs, encoders, screening.

The same answer twice and over another transport, every byte in the ledger, no value in a message that is not declared
plain, nothing left at the parties, and no operation that the job does not list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.design import Design
from fedsift.core.ledger import FORMS, Entry
from fedsift.core.transports.inprocess import InProcess
from fedsift.evaluate import announced
from fedsift.testing.doubles import Serial
from fedsift.testing.tables import carries, record

ROWS = 240
CANARY = "zq8canary"
NUMBER = 9.87654321098765


def tables(canaries: bool = False) -> dict[str, pd.DataFrame]:
    """Two parties; what is set aside, a text and a date are the bank's. Canaries are values of single rows."""
    rng = np.random.default_rng(4)
    a, b, c, d = rng.normal(size=(4, ROWS))
    label = (a + 0.5 * c + rng.normal(size=ROWS) > 0).astype(int)
    bank = pd.DataFrame({
        "a": a, "b": b, "label": label, "weight": rng.uniform(0.5, 2.0, ROWS), "person": np.arange(ROWS) // 3,
        "month": np.arange(ROWS) // 20, "happened": rng.integers(0, 2, ROWS), "took": rng.exponential(1.0, ROWS) + 0.1,
        "joined": pd.Series(pd.date_range("2020-01-01", periods=ROWS, freq="5D")).dt.strftime("%Y-%m-%d"),
        "note": np.where(a > 0, "likes tea", "likes milk"),
    })  # fmt: skip
    shop = pd.DataFrame({"c": c, "d": d})
    if canaries:
        bank.loc[7, "b"], shop.loc[9, "d"], bank.loc[11, "weight"], bank.loc[13, "took"] = NUMBER, NUMBER, 3.3, NUMBER
        bank.loc[12, "note"] = CANARY
    return {"bank": bank, "shop": shop}


NOTES = ["weight", "person", "month", "happened", "took"]


def federation(design: Design | None, encode: Any = None, canaries: bool = False) -> fs.Federation:
    told = tables(canaries)
    if design is not None and design.event is not None:
        told["bank"] = told["bank"].drop(columns="label").rename(columns={"took": "label"})
    drop = [] if encode else ["joined", "note"]
    told["bank"] = told["bank"].drop(columns=drop)
    aside = {"bank": [name for name in NOTES if name in told["bank"]]}
    fed = fs.Federation.from_tables(told, id=None, label=("bank", "label"), aside=aside, encode=encode or {})
    return fed if design is None else fed.designed(design)


def statistic(name: str, **said: Any) -> tuple[Any, ...]:
    return None, None, lambda fed: getattr(fs, name)(fed, **said)


def fitted(make: Callable[[], Any], design: Design | None = None, encode: Any = None) -> tuple[Any, ...]:
    def run(fed: fs.Federation) -> Any:
        found = make().fit(fed)
        return found.scores_["score"].to_numpy() if hasattr(found, "scores_") else found.decision_function(fed)

    return design, encode, run


HALVES = (range(ROWS // 2), range(ROWS // 2, ROWS))
WEIGHT, CLASSES = Design(weight="bank.weight"), Design(class_weight="balanced")
DATES = {"bank": {"joined": ["month", "weekday"], "note": "words:8"}}
CASES: dict[str, tuple[Any, ...]] = {
    "correlation": statistic("correlation"),
    "spearman": statistic("correlation", kind="spearman"),
    "vif": statistic("vif"),
    "significance": statistic("significance"),
    "logistic": statistic("significance", model="logistic", open_scores=True),
    "psi": (None, None, lambda fed: fs.psi(fed, *HALVES)),
    "weights of evidence": fitted(lambda: fs.InformationValue(n_features=1, n_bins=3, woe="bins", woe_digits=1)),
    "weights, gini": fitted(lambda: fs.GiniFilter(n_features=2), WEIGHT),
    "weights, sffs": fitted(lambda: fs.SFFS(n_features=2), WEIGHT),
    "class weights, sffs": fitted(lambda: fs.SFFS(n_features=2), CLASSES),
    "weights, logistic": fitted(lambda: fs.VerticalLogisticRegression(max_iter=3), WEIGHT),
    "weights, hyfdca": fitted(lambda: fs.HyFDCA(tol=0.1), WEIGHT),
    "weights, boosting": fitted(
        lambda: fs.TopGain(n_features=2, n_estimators=2, max_depth=2, protection="coordinator"), WEIGHT
    ),
    "groups": fitted(lambda: fs.Stable("gini", q=2, pairs=1, blocks=2, fdr=1.0), Design(group="bank.person")),
    "survival": fitted(lambda: fs.SFFS(n_features=2), Design(event="bank.happened")),
    "another label": fitted(lambda: fs.GiniFilter(n_features=2), Design(label="bank.happened")),
    "several labels": fitted(lambda: fs.GiniFilter(n_features=2), Design(labels=["bank.happened"])),
    "dates and texts": fitted(lambda: fs.SFFS(n_features=2), None, DATES),
    "coarse screening": fitted(lambda: fs.SFFS(n_features=2, screen="coarse", screen_share=0.5)),
    "screening by groups": fitted(lambda: fs.SFFS(n_features=2, screen=2, screen_share=0.5)),
    "auto without a number": fitted(
        lambda: fs.Auto(n_features=None, candidates=["gini"], model="linear", folds=2)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What was answered, and all that was sent, each message with the form that the ledger gives it."""

    fed: fs.Federation
    found: Any
    messages: list[tuple[str, str, bytes, str]]
    entries: list[Entry]


def run(name: str, transport: Any = InProcess, canaries: bool = False) -> Run:
    design, encode, conversation = CASES[name]
    fed = federation(design, encode, canaries)
    if transport is not InProcess:
        fed._link.transport = transport(fed.simulated)
    log, mark = record(fed), len(fed.ledger)
    found = conversation(fed)
    entries, forms = fed.ledger.entries[mark:], {}
    for entry in entries:
        forms.setdefault((entry.sender, entry.receiver), []).append(entry.form)
    messages = [(sender, receiver, data, forms[sender, receiver].pop(0)) for sender, receiver, data in log.log]
    return Run(fed, found, messages, entries)


@cache
def first(name: str) -> Run:
    return run(name)


def same(a: Any, b: Any) -> bool:
    left, right = (pd.DataFrame(np.asarray(each)) for each in (a, b))
    numbers = left.apply(pd.to_numeric, errors="coerce"), right.apply(pd.to_numeric, errors="coerce")
    return bool(np.allclose(*(each.to_numpy(float) for each in numbers), rtol=2e-3, atol=1e-4, equal_nan=True))


@pytest.mark.parametrize("name", CASES)
def test_it_gives_the_same_answer_twice_and_over_another_transport(name):
    found = first(name).found
    assert same(run(name).found, found)
    assert same(run(name, Serial).found, found)


@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_in_the_ledger_with_a_form_and_words(name):
    seen = first(name)
    assert sum(len(data) for _, _, data, _ in seen.messages) == sum(entry.bytes for entry in seen.entries)
    assert len(seen.messages) == len(seen.entries) > 0
    assert {entry.form for entry in seen.entries} <= set(FORMS)
    assert all(entry.about for entry in seen.entries)


@pytest.mark.parametrize("name", CASES)
def test_no_value_leaves_in_a_message_that_is_not_plain(name):
    needles = [np.array([NUMBER]).tobytes(), np.array([NUMBER], np.float32).tobytes(), str(NUMBER).encode(),
               CANARY.encode(), np.array([3.3]).tobytes()]  # fmt: skip
    for sender, receiver, data, form in run(name, canaries=True).messages:
        for needle in needles if form != "plain" else ():
            assert not carries(data, needle), f"{sender} -> {receiver} carries {needle!r}"


@pytest.mark.parametrize("name", CASES)
def test_labels_and_what_is_set_aside_do_not_leave_row_by_row(name):
    table = first(name).fed.simulated["bank"].table
    kept = [np.asarray(table.label), *(table.aside[column].to_numpy() for column in table.aside)]
    for _, _, data, form in first(name).messages:
        for values in kept if form != "plain" else ():
            for dtype in ("i1", "i4", "i8", "f4", "f8") if values.dtype.kind in "iuf" else ():
                assert values.astype(dtype).tobytes() not in data


@pytest.mark.parametrize("name", CASES)
def test_nothing_stays_behind_and_only_listed_operations_are_asked(name):
    seen = first(name)
    assert all(site.sessions == {} for site in seen.fed.simulated.values())
    asked = {entry.operation for entry in seen.entries if not entry.operation.startswith("core.")}
    every = {operation.id for job in announced.job_names() for operation in announced.listed(job)}
    assert asked <= every
