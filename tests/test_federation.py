"""ask, views, sessions: what a party may be made to do, and what happens when one fails."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Faulty, Recording

import fedsift as fs
from fedsift.core import party as core
from fedsift.core.message import decode, encode
from fedsift.core.operation import ANY, Array, check_reply, operation, register_plugin
from fedsift.core.transports.base import Delivery
from fedsift.errors import (
    MessageError,
    OperationFailed,
    OperationRefused,
    ParameterError,
    PartyGone,
    PartyTimeout,
    ReplyError,
)

register_plugin(__name__)


@operation("test_federation.add", discloses="aggregate", about="a sum", reply=float)
def add(party, *, a: float, b: float = 0.0) -> float:
    return a + b + len(party.name)


meeting, released = threading.Barrier(3, timeout=60), threading.Event()


@operation("test_federation.meet", discloses="control", about="nothing")
def meet(party) -> None:
    meeting.wait()


@operation("test_federation.wait", discloses="control", about="nothing")
def wait(party) -> None:
    released.wait(60)


@operation("test_federation.crash", discloses="control", about="nothing")
def crash(party, *, secret: str) -> None:
    raise RuntimeError(f"the value was {secret}")


@operation("test_federation.wrong_shape", discloses="aggregate", about="a vector", reply=Array("f", 1))
def wrong_shape(party) -> np.ndarray:
    return np.zeros((2, 2))


@operation("test_federation.count_up", discloses="control", about="a number kept", reply=int)
def count_up(party) -> int:
    party.state["n"] = party.state.get("n", 0) + 1
    return party.state["n"]


def test_ask_reaches_one_or_several(small_fed):
    assert small_fed.ask(add, to="bank", a=1.0) == 5.0
    assert small_fed.ask(add, to=["bank", "lab"], a=1.0) == {"bank": 5.0, "lab": 4.0}
    each = {"bank": {"b": 10.0}, "lab": {"b": 20.0}}
    assert small_fed.ask(add, to=["bank", "lab"], each=each, a=1.0) == {"bank": 15.0, "lab": 24.0}


def test_parties_work_at_the_same_time(small_fed):
    small_fed.ask(meet, to=small_fed.parties)  # nobody goes on before all three are there


def test_a_forgotten_federation_ends_its_threads_and_frees_its_tables():
    """Otherwise a long session that tries many splits fills up with tables that nobody can reach."""
    fed = fs.Federation.split(*mixed_table(), parties=["once-a", "once-b"])
    assert sum(fed.n_columns.values()) == 9
    table = weakref.ref(fed._link.transport.sites["once-a"].table)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("fedsift-once")]
    assert len(threads) == 2
    del fed
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert table() is None


def test_only_marked_functions_can_be_asked(small_fed):
    with pytest.raises(ParameterError, match="@operation"):
        small_fed.ask(len, to="bank")
    with pytest.raises(ParameterError, match="nobody"):
        small_fed.ask(add, to="nobody", a=1.0)


@pytest.mark.parametrize(
    "name", ["os.system", "builtins:eval", "fedsift.core.party:Site", "fedsift.nothing.here", "numpy.load", ""]
)
def test_a_party_refuses_what_is_not_registered(small_fed, name):
    """Whatever name comes over the wire, nothing outside the table of operations runs."""
    request = {"operation": name, "view": "", "session": "", "job": b"", "round": 1, "arguments": {}}
    reply = decode(small_fed._link.transport.sites["bank"].handle(encode(request)))
    assert reply["error"] == "OperationRefused"


def test_operations_of_unregistered_modules_are_refused(small_fed):
    @operation("test_federation.foreign", discloses="control", about="x")
    def foreign(party) -> None: ...

    foreign.function.__module__ = "some_notebook"
    with pytest.raises(OperationRefused, match="register_plugin"):
        small_fed.ask(foreign, to="bank")


@pytest.mark.parametrize(
    "request_value",
    [
        None,
        [],
        {"operation": "x"},
        {"operation": 1, "view": "", "session": "", "job": b"", "round": 1, "arguments": {}},
        b"FS\x01",
    ],
)
def test_garbage_requests_get_a_typed_refusal(small_fed, request_value):
    site = small_fed._link.transport.sites["bank"]
    data = request_value if isinstance(request_value, bytes) else encode(request_value)
    assert decode(site.handle(data))["error"] == "MessageError"


def test_unknown_arguments_and_views_are_refused(small_fed):
    with pytest.raises(OperationRefused, match="arguments"):
        small_fed.ask(add, to="bank", nonsense=1)
    with pytest.raises(OperationRefused, match="view"):
        small_fed.named_view("nowhere").ask(add, to="bank", a=1.0)


def test_a_crash_names_party_and_operation_but_no_data(small_fed, caplog):
    with caplog.at_level(logging.CRITICAL, logger="fedsift.core.party"), pytest.raises(OperationFailed) as error:
        small_fed.ask(crash, to="shop", secret="4711-SECRET")
    assert error.value.party == "shop"
    assert error.value.operation == "crash"
    assert "RuntimeError" in str(error.value)
    assert "4711" not in str(error.value)


def test_a_slow_party_is_a_timeout_that_names_it(small_fed):
    with pytest.raises(PartyTimeout, match=r"'lab'.*'wait'"):
        small_fed.ask(wait, to=["lab"], timeout=0.1)
    assert small_fed.ask(add, to="bank", a=1.0) == 5.0
    released.set()


def test_a_wrong_reply_is_refused_before_use(small_fed):
    with pytest.raises(ReplyError, match=r"'bank'.*dimensions"):
        small_fed.ask(wrong_shape, to="bank")


@pytest.mark.parametrize(
    ("replace", "error"),
    [
        (lambda d: Delivery(None, 0.0, "gone"), PartyGone),
        (lambda d: Delivery(b"garbage", 0.0), ReplyError),
        (lambda d: Delivery(d.data[:-3], 0.0), ReplyError),
        (lambda d: Delivery(encode([1]), 0.0), ReplyError),
        (lambda d: Delivery(encode({"ok": "text"}), 0.0), ReplyError),
        (lambda d: Delivery(encode({"error": "NoSuchError", "what": "x"}), 0.0), OperationFailed),
        (lambda d: Delivery(encode({"error": "MessageError", "what": "x"}), 0.0), MessageError),
    ],
)
def test_a_party_that_lies_or_is_gone_gives_a_typed_error(small_fed, replace, error):
    small_fed._link.transport = Faulty(small_fed._link.transport, "shop", replace)
    with pytest.raises(error, match="shop"):
        small_fed.ask(add, to=small_fed.parties, a=1.0)
    if error is not PartyGone:  # what came back is counted even when it is of no use
        assert "shop" in set(small_fed.ledger.frame()["sender"])


def test_state_belongs_to_a_session(small_fed):
    with small_fed.session() as one, small_fed.session() as two:
        assert one.ask(count_up, to="bank") == 1
        assert one.ask(count_up, to="bank") == 2
        assert two.ask(count_up, to="bank") == 1
    assert small_fed._link.transport.sites["bank"].sessions == {}


def test_views_cut_rows_and_columns_the_same_way_everywhere(small_fed):
    view = small_fed.view(rows=[5, 3], columns={"bank": [1], "shop": [0, 2], "lab": []})
    assert view.n_rows == 2
    assert view.n_columns == {"bank": 1, "shop": 2, "lab": 0}
    names = small_fed.column_names()
    assert view.column_names()["shop"] == [names["shop"][0], names["shop"][2]]
    again = view.view(rows=[1])
    assert again.n_rows == 1
    site = small_fed._link.transport.sites["bank"]
    assert site.views[again._view][0].tolist() == [3]
    with pytest.raises(OperationRefused, match="out of range"):
        view.view(rows=[2])


def test_train_and_test_rows_do_not_meet_and_are_stratified():
    X, y = mixed_table(200, classes=3)
    fed = fs.Federation.split(X, y, parties=2)
    train, test = fed.rows(train=0.7, random_state=1)
    site = fed._link.transport.sites["party1"]
    a, b = (set(site.views[v._view][0].tolist()) for v in (train, test))
    assert not a & b
    assert len(a | b) == 200
    shares = [np.bincount(y.iloc[sorted(rows)], minlength=3) / len(rows) for rows in (a, b)]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.03)
    assert fed.rows(train=0.7, random_state=1)[0]._view != train._view


def test_private_names_do_not_leave_the_parties():
    X, y = mixed_table(30)
    fed = fs.Federation.split(X, y, parties=2)
    fed.names = "private"
    log = fed._link.transport = Recording(fed._link.transport)
    fitted = fs.SFFS(n_features=2).fit(fed)
    assert all(column.startswith("column ") for columns in fitted.selected_.values() for column in columns)
    for name in X.columns:
        assert not any(name.encode() in data for *_, data in log.log if len(name) > 4)


@pytest.mark.parametrize("partition", ["horizontal", "hybrid"])
def test_other_partitions_split_rows(partition):
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=4, partition=partition)
    assert len(fed.parties) == 4
    rows = [size.rows for size in fed.sizes().values()]
    assert sum(rows) == (60 if partition == "horizontal" else 120)
    with pytest.raises(ParameterError, match="every party"):
        _ = fed.active


def test_lognormal_split_with_duplicates_makes_twenty_parties():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(10, 200)))
    fed = fs.Federation.split(X, np.arange(10) % 2, parties=20, how="lognormal", duplicates=True)
    assert len(fed.parties) == 20
    assert sum(fed.n_columns.values()) > 200


def test_tables_without_ids_must_have_the_same_length():
    with pytest.raises(fs.FedsiftError, match="same number of rows"):
        fs.Federation.from_tables(
            {"a": pd.DataFrame({"x": [1, 2], "y": [0, 1]}), "b": pd.DataFrame({"z": [1]})}, id=None, label=("a", "y")
        )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"tables": {}}, "empty"),
        ({"label": ("nobody", "y")}, "nobody"),
        ({"label": "y"}, r"\(party, column\)"),
        ({"partition": "diagonal"}, "diagonal"),
        ({"names": "loud"}, "loud"),
        ({"task": "ranking"}, "ranking"),
    ],
)
def test_wrong_arguments_say_what_was_expected(arguments, what):
    given = {
        "tables": {"a": pd.DataFrame({"i": range(20), "y": [0, 1] * 10, "x": range(20)})},
        "id": "i",
        "label": ("a", "y"),
    }
    with pytest.raises(ParameterError, match=what):
        fs.Federation.from_tables(**{**given, **arguments})


def test_reply_specs_accept_what_they_say():
    check_reply(
        {"a": int, "b": [Array("i", 1)], "c": ANY, "d": None},
        {"a": 1, "b": [np.arange(2)], "c": {}, "d": None},
        "p",
        "o",
    )
    for spec, value in [(int, True), (int, 1.0), ({"a": int}, {"a": 1, "b": 2}), ([int], (1,)), (None, 1)]:
        with pytest.raises(ReplyError):
            check_reply(spec, value, "p", "o")
    with pytest.raises(ReplyError, match="not finite"):
        check_reply(Array("f", 1), np.array([np.nan]), "p", "o")


def test_repr_says_who_is_there_and_shows_no_value(small_fed):
    assert "bank" in repr(small_fed)
    site = small_fed._link.transport.sites["bank"]
    assert "signal" not in repr(site) or "0." not in repr(site)
    assert "Party 'bank'" in repr(core.Party(site, ""))
