"""What every selector must keep to, one function a rule; ``check_selector`` runs them all.

Each takes a ``SelectorCase``: the selector with its parameters, and the partition to try it on. A rule that is broken
raises ``AssertionError`` in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from sklearn.base import clone

from fedsift.core.federation import Federation
from fedsift.core.ledger import FORMS
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import FedsiftError
from fedsift.evaluate import announced
from fedsift.select.base import Selector
from fedsift.select.selection import Selection
from fedsift.testing.doubles import Recording, Serial
from fedsift.testing.tables import Maker, carries, federation, forms_of, mixed_table, needles, record


@dataclass
class SelectorCase:
    """A selector to be tried out; every run takes a fresh clone on a fresh federation."""

    selector: Selector
    partition: str = ""
    rows: int = 48

    def __post_init__(self) -> None:
        self.partition = self.partition or self.selector.partitions[0]

    def make(self) -> Selector:
        fresh: Selector = clone(self.selector)
        if "random_state" in fresh.get_params():
            fresh.set_params(random_state=0)
        return fresh

    def federation(self, transport: Maker = InProcess, *, canaries: bool = False) -> Federation:
        return federation(self.partition, self.rows, transport, canaries=canaries)

    @cached_property
    def first(self) -> tuple[Federation, Selector, Recording]:
        """One recorded run, shared by the rules that only look at it."""
        fed = self.federation()
        log = record(fed)
        return fed, self.make().fit(fed), log


def parameters_are_stored_untouched(case: SelectorCase) -> None:
    again = clone(case.selector)
    assert again.get_params() == case.selector.get_params(), "clone changes a parameter: __init__ must only store them"
    assert type(case.selector).__doc__, "a selector says in its docstring what it keeps and who learns what"


def the_result_is_valid(case: SelectorCase) -> None:
    fed, fitted, _ = case.first
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


def the_same_seed_gives_the_same_answer(case: SelectorCase) -> None:
    _, fitted, _ = case.first
    again = case.make().fit(case.federation())
    assert again.selected_ == fitted.selected_, "the same seed gives another selection"
    same = np.allclose(again.scores_["score"], fitted.scores_["score"], rtol=fitted.repeats_within, atol=0)
    assert same, "the same seed gives other scores"


def another_transport_gives_the_same_answer_and_bytes(case: SelectorCase) -> None:
    _, fitted, _ = case.first
    other = case.make().fit(case.federation(Serial))
    assert other.selected_ == fitted.selected_, "another transport gives another selection"
    keys = ["party", "direction", "operation"]
    totals = [t.groupby(keys)[["messages", "bytes"]].sum() for t in (fitted.traffic_, other.traffic_)]
    pd.testing.assert_frame_equal(*totals)


def every_byte_is_in_the_ledger(case: SelectorCase) -> None:
    fed = case.federation()
    log = record(fed)
    case.make().fit(fed)
    assert sum(len(data) for *_, data in log.log) == fed.ledger.bytes()
    assert len(log.log) == len(fed.ledger)
    assert set(fed.ledger.frame()["form"]) <= set(FORMS)
    assert (fed.ledger.frame()["about"].str.len() > 0).all()


def no_canary_leaves_unless_declared_plain(case: SelectorCase) -> None:
    """Values of columns and labels, in any plain encoding, must not be on the wire unless the ledger says so."""
    fed = case.federation(canaries=True)
    log = record(fed)
    case.make().fit(fed)
    for (sender, receiver, data), form in zip(log.log, forms_of(fed, log)):
        for needle in needles() if form != "plain" else ():
            assert not carries(data, needle), (
                f"{sender} -> {receiver} carries {needle!r} in a message that is not plain"
            )
    assert len(fed.ledger) == len(log.log)


def labels_do_not_leave_row_by_row(case: SelectorCase) -> None:
    """No message holds the label column as an array, in any integer or float type, unless declared plain."""
    fed, _, log = case.first
    label = np.asarray(fed.simulated[fed.label_parties[0]].table.label)
    for (_, _, data), form in zip(log.log, forms_of(fed, log)):
        for dtype in ("i1", "i2", "i4", "i8", "f4", "f8") if form != "plain" else ():
            assert label.astype(dtype).tobytes() not in data, "the label column is in a message that is not plain"


def disclosures_have_a_form_and_words(case: SelectorCase) -> None:
    fed, fitted, _ = case.first
    for row in fed.ledger.disclosures().itertuples():
        assert row.form in FORMS
        assert row.about
    line = fitted.selection_.security["line"]
    assert line.startswith("encryption: ")
    assert line.startswith("encryption: on") == (fitted.selection_.security["ciphertexts"] > 0)


def nothing_stays_behind_at_the_parties(case: SelectorCase) -> None:
    fed, _, _ = case.first
    assert all(site.sessions == {} for site in fed.simulated.values()), "state of the run stays at a party"


def operations_asked_are_listed(case: SelectorCase) -> None:
    """Where a selector lists its ``operations``: it asks no other, but those of the core."""
    listed = getattr(type(case.selector), "operations", ())
    if not listed:
        return
    fed, _, _ = case.first
    asked = {id for id in fed.ledger.frame()["operation"] if not id.startswith("core.")}
    listed = [*listed, *(each for name, _ in case.selector.jobs_within() for each in announced.listed(name))]
    unlisted = asked - {operation.id for operation in listed}
    assert not unlisted, f"asked, but not in its operations: {sorted(unlisted)}"


def another_partition_is_refused(case: SelectorCase) -> None:
    wrong = [each for each in ("vertical", "horizontal") if each not in case.selector.partitions]
    if not wrong:
        return
    X, y = mixed_table(40)
    fed = Federation.split(X.select_dtypes("number"), y, parties=2, partition=wrong[0])
    said = ""
    try:
        case.make().fit(fed)
    except FedsiftError as error:
        said = str(error)
    assert "parties" in said, f"{type(case.selector).__name__} does not refuse {wrong[0]} parties in words"


SELECTOR_CHECKS: tuple[Callable[[SelectorCase], None], ...] = (
    parameters_are_stored_untouched, the_result_is_valid, the_same_seed_gives_the_same_answer,
    another_transport_gives_the_same_answer_and_bytes, every_byte_is_in_the_ledger,
    no_canary_leaves_unless_declared_plain, labels_do_not_leave_row_by_row, disclosures_have_a_form_and_words,
    nothing_stays_behind_at_the_parties, operations_asked_are_listed, another_partition_is_refused,
)  # fmt: skip


def check_selector(selector: Selector, *, partition: str = "", rows: int = 48) -> None:
    """Try a selector (with parameters that make it quick) by every rule; ``AssertionError`` says which it breaks.

    Parameters
    ----------
    selector : an instance; it is cloned, never fitted itself. partition : its first one by default.
    rows : of the table that it is tried on.

    Examples
    --------
    >>> import fedsift as fs
    >>> from fedsift.testing import check_selector
    >>> check_selector(fs.RandomFeatures(n_features=3))
    """
    case = SelectorCase(selector, partition, rows)
    for check in SELECTOR_CHECKS:
        check(case)
