"""Conversations side by side: the answers of one after the other, the rounds of one, and each request judged alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording, Serial
from test_evaluate_joint import federation, tables, with_policy

import fedsift as fs
from fedsift.core import in_step as module
from fedsift.core.in_step import in_step, room_for
from fedsift.core.message import MOST_TOGETHER, answered, decode, encode, pack, unpack
from fedsift.core.party import count_table
from fedsift.core.transports.base import Aborted, Delivery, Transport
from fedsift.errors import MessageError, ParameterError, PartyGone, PolicyRefused
from fedsift.site.policy import Policy


class Counted(Recording):
    """How many times parties were asked: round trips between machines."""

    trips = 0

    def exchange(self, requests, timeout):
        self.trips += 1
        return super().exchange(requests, timeout)


def counted(fed):
    fed._link.transport = Counted(fed._link.transport)
    return fed


def one_by_one(monkeypatch):
    monkeypatch.setattr(module, "ROOM", 0)


@pytest.mark.parametrize("kind", ["additive", "linear", "boost"])
def test_folds_side_by_side_give_what_folds_one_by_one_give_in_the_rounds_of_one(kind, monkeypatch):
    model = fs.SecureBoostClassifier(n_estimators=1, max_depth=1, n_bins=4) if kind == "boost" else kind
    told, trips = [], []
    for apart in (False, True):
        if apart:
            one_by_one(monkeypatch)
        for folds in (2, 5):
            fed = counted(federation())
            told.append(fs.evaluate(fed, fs.GiniFilter(n_features=2), model=model, cv=folds).released)
            trips.append(fed._link.transport.trips)
    assert told[:2] == told[2:], "the same figures, intervals too"
    together, apart = trips[1] - trips[0], trips[3] - trips[2]
    assert together < 0.15 * apart, f"three more folds cost {together} round trips, one by one {apart}"


def test_value_asks_in_ten_folds_little_more_often_than_in_two(monkeypatch):
    def valued(folds):
        fed = counted(federation(rows=400))
        before = fed.ledger.rounds()
        found = fs.value(fed, folds=folds)
        return found, fed._link.transport.trips, fed.ledger.rounds() - before

    (few, trips, _), (many, more, rounds) = valued(2), valued(10)
    assert more < 1.3 * trips
    assert rounds == more, "the ledger counts a round where parties were asked once"
    one_by_one(monkeypatch)
    alone, most, _ = valued(10)
    assert most > 4 * more
    assert alone.to_dict()["lines"] == many.to_dict()["lines"]
    assert few.holder == "bank"


def test_shuffles_of_all_columns_are_measured_side_by_side(monkeypatch):
    fed = counted(federation())
    model = fs.VerticalAdditive(max_iter=3).fit(fed)
    before = fed._link.transport.trips
    model.figures(fed, ["auc"])
    one = fed._link.transport.trips - before
    found = fs.explain(fed, model, repeats=2).frame
    assert fed._link.transport.trips - before < 4 * one, "twelve measures, and the one of the columns as they are"
    one_by_one(monkeypatch)
    pd.testing.assert_frame_equal(found, fs.explain(fed, model, repeats=2).frame)


def test_ledgers_are_of_one_conversation_and_all_of_them_stand_in_the_common_one():
    fed = federation()
    models = [fs.VerticalAdditive(max_iter=3), fs.VerticalAdditive(max_iter=3, bins=None)]
    fitted = in_step(fed, [lambda m=m: m.fit(fed) for m in models], "model")
    alone = [fs.VerticalAdditive(max_iter=3, bins=b).fit(federation()).ledger_ for b in (8, None)]
    for model, other in zip(fitted, alone):
        assert [e.operation for e in model.ledger_.entries] == [e.operation for e in other.entries]
        assert model.ledger_.rounds() == other.rounds()
        assert set(model.ledger_.entries) <= set(fed.ledger.entries)
    assert len([n for n in fed.ledger.notes if "weights stayed" in n]) == 1
    rounds = [e.round for e in fed.ledger.entries]
    assert rounds == sorted(rounds)


def test_a_conversation_that_fails_ends_the_others_and_its_error_is_raised():
    fed, seen = federation(), []

    def good():
        for turn in range(5):
            fed.ask(count_table, to=fed.parties)
            seen.append(turn)

    def bad():
        fed.ask(count_table, to="bank")
        raise ParameterError("it makes no sense")

    with pytest.raises(ParameterError, match="no sense"):
        in_step(fed, [good, bad, good], "model")
    assert len(seen) <= 4
    assert fed.ask(count_table, to="bank").columns == 3, "and the federation goes on"


def test_a_refusal_is_raised_by_name_and_sessions_are_ended():
    fed = with_policy(tables(rows=900), Policy(methods=["evaluate", "gini"]))
    with pytest.raises(PolicyRefused, match="boost_classifier"):
        fs.evaluate(fed, fs.GiniFilter(n_features=2), model="boost", cv=3)
    assert all(not site.runs for site in fed.simulated.values())


class Broken(Transport):
    """After some exchanges the job is over."""

    name = "broken"

    def __init__(self, inner, left, end):
        self.inner, self.left, self.end = inner, left, end

    def exchange(self, requests, timeout):
        self.left -= 1
        return self.inner.exchange(requests, timeout) if self.left > 0 else self.end(requests)


def _over(requests):
    raise Aborted(list(requests))


@pytest.mark.parametrize(
    ("end", "error"),
    [(_over, Aborted), (lambda requests: {name: Delivery(None, 0.0, "gone") for name in requests}, PartyGone)],
)
def test_a_job_that_is_ended_from_outside_ends_all(end, error):
    fed = federation()
    fed._link.transport = Broken(fed._link.transport, 12, end)
    with pytest.raises(error):
        fs.value(fed, folds=3)


def test_an_interruption_ends_all_at_once():
    fed = federation()

    def interrupted(requests):
        raise KeyboardInterrupt

    fed._link.transport = Broken(fed._link.transport, 12, interrupted)
    with pytest.raises(KeyboardInterrupt):
        fs.value(fed, folds=3)


def test_large_tables_go_with_fewer_folds_at_a_time(monkeypatch):
    fed = federation()
    assert room_for(fed) > 1000
    monkeypatch.setattr(module, "ROOM", 2 * 300 * 6)
    assert room_for(fed) == 2


def test_one_conversation_inside_another_goes_by_itself():
    fed = federation()
    found = in_step(fed, [lambda k=k: in_step(fed, [lambda: k, lambda: -k], "inner") for k in (1, 2)], "outer")
    assert found == [[1, -1], [2, -2]]


def test_another_transport_gives_the_same():
    both = [federation(), federation()]
    both[1]._link.transport = Serial(both[1].simulated)
    one, other = (fs.value(fed, folds=4).to_dict()["lines"] for fed in both)
    assert one == other


# -- several requests in one message ---------------------------------------------------------------------------------


def _site():
    return federation().simulated["bank"]


def _request(round=1, view=""):
    return encode(
        {"operation": count_table.id, "view": view, "session": "", "job": b"", "round": round, "arguments": {}}
    )


def test_requests_of_one_message_are_answered_one_by_one():
    replies = unpack(_site().receive(pack([_request(), _request(view="none such"), _request()])))
    assert [set(decode(each)) for each in replies] == [{"ok"}, {"error", "what"}, {"ok"}]


@pytest.mark.parametrize(
    "data",
    [
        b"FT",
        b"FT\x02" + encode([b"a", b"b"]),
        b"FT\x01" + encode([_request()]),
        b"FT\x01" + encode([_request()] * (MOST_TOGETHER + 1)),
        b"FT\x01" + encode([1, 2]),
        b"FT\x01" + encode({"a": b"x"}),
        b"FT\x01" + np.random.default_rng(0).bytes(40),
    ],
)
def test_what_is_no_such_message_is_refused(data):
    assert decode(_site().receive(data))["error"] == "MessageError"
    with pytest.raises(MessageError):
        unpack(data)


def test_a_message_inside_a_message_is_no_request():
    inner = pack([_request(), _request()])
    replies = unpack(answered([pack([inner, _request()])], _site().handle))
    assert [set(decode(each)) for each in replies] == [{"error", "what"}, {"ok"}]
