"""Anonymous bin matching against plain counting, and what the coordinator gets to see."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Faulty, Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import mutual_info_score

import fedsift as fs
from fedsift import errors
from fedsift.core.message import decode, encode, walk
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery
from fedsift.select.muse import fresh_orders, row_secrets
from fedsift.select.muse import mutual_information as mi
from fedsift.select.muse.contingency import (
    Entropies,
    column_codes,
    number_codes,
    pair_information,
)
from fedsift.select.muse.rank_correlation import spearman_matrix, unit_ranks
from fedsift.select.muse.state import Matching


def matched(fed, *, keys="two", min_cell=None, n_bins=5, binning="quantile"):
    matching = mi.BinMatching(fed, keys=keys, min_cell=min_cell)
    return matching, matching.prepare(n_bins=n_bins, binning=binning)


def plain_codes(fed, n_bins=5, binning="quantile"):
    """All parties' codes (the test holds all tables), keyed by party."""
    found = {}
    for name, site in fed._link.transport.sites.items():
        found[name] = column_codes(Party(site, fed._view), n_bins, binning)
    return found


def pairs_of_everything(fed):
    counts, wanted = fed.n_columns, []
    for i, a in enumerate(fed.parties):
        for b in fed.parties[i + 1 :]:
            left, right = np.meshgrid(np.arange(counts[a]), np.arange(counts[b]), indexing="ij")
            wanted.append(mi.Pairs(a, left.ravel(), b, right.ravel()))
    return wanted


@pytest.mark.parametrize("keys", ["two", "one"])
@pytest.mark.parametrize("binning", ["quantile", "width"])
def test_information_equals_the_plain_value(keys, binning):
    X, y = mixed_table(70)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    codes = plain_codes(fed, binning=binning)
    with fed.session() as run:
        matching, entropies = matched(run, keys=keys, binning=binning)
        wanted = pairs_of_everything(run)
        for pairs, values in zip(wanted, matching.information(wanted)):
            expected = [
                mutual_info_score(codes[pairs.left][i], codes[pairs.right][j])
                for i, j in zip(pairs.left_columns, pairs.right_columns)
            ]
            np.testing.assert_allclose(values, expected, atol=1e-9, rtol=0)
    for name, own in codes.items():
        expected = [mutual_info_score(column, column) for column in own]
        np.testing.assert_allclose(entropies[name][: len(own)], expected, atol=1e-9)
    assert entropies["bank"][-1] == pytest.approx(mutual_info_score(y, y), abs=1e-9)


def test_rows_are_matched_by_id_and_not_by_position():
    X, y = mixed_table(50)
    X["id"] = [f"p{i}" for i in range(50)]
    left = X[["id", "signal", "noise"]].assign(outcome=y)
    rng = np.random.default_rng(5)
    right = X[["id", "counts", "weak"]].iloc[rng.permutation(50)]
    sites = {
        "bank": Site("bank", Table.read(left, id="id", label="outcome", name="bank")),
        "shop": Site("shop", Table.read(right, id="id", name="shop")),
    }
    from fedsift.core.transports.inprocess import InProcess

    fed = fs.Federation(InProcess(sites), list(sites), active="bank")  # not aligned on purpose
    with fed.session() as run:
        matching, _ = matched(run)
        values = matching.information([mi.Pairs("bank", np.array([0]), "shop", np.array([0]))])[0]
    codes = [number_codes(X[[c]].to_numpy(dtype=float).T, 5, "quantile")[0] for c in ("signal", "counts")]
    assert values[0] == pytest.approx(mutual_info_score(*codes), abs=1e-9)


def test_parties_with_different_rows_are_told_so():
    frame = pd.DataFrame({"id": ["a", "b", "c", "d"], "x": [1.0, 2, 3, 4], "y": [0, 1, 0, 1]})
    other = frame[["id", "x"]].assign(id=["a", "b", "c", "e"])
    sites = {
        "bank": Site("bank", Table.read(frame, id="id", label="y", name="bank")),
        "shop": Site("shop", Table.read(other, id="id", name="shop")),
    }
    from fedsift.core.transports.inprocess import InProcess

    fed = fs.Federation(InProcess(sites), list(sites), active="bank")
    with fed.session() as run, pytest.raises(errors.AlignmentError, match="shop"):
        mi.BinMatching(run, keys="two", min_cell=None)


def test_the_coordinator_cannot_follow_a_row_from_one_table_to_another():
    """The shop holds a column and many copies. If two pairs shared an order, two lists would be equal up to labels."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=64)})
    for i in range(12):
        X[f"b{i}"] = np.arange(64) // 8
    sites = fs.Federation.split(X, rng.integers(0, 2, 64), parties=1)._link.transport.sites
    frame = next(iter(sites.values())).table.to_pandas()
    fed = fs.Federation.from_tables(
        {"bank": frame[["a", "label"]], "shop": frame[[f"b{i}" for i in range(12)]]}, id=None, label=("bank", "label")
    )
    log = Recording(fed._link.transport)
    fed._link.transport = log
    with fed.session() as run:
        matching, _ = matched(run, n_bins=8)
        for _ in range(2):  # the same pairs asked twice must not come in the same order either
            matching.information([mi.Pairs("bank", np.zeros(12, int), "shop", np.arange(12))])
    partitions = []
    for sender, _, data in log.log:
        value = decode(data).get("ok")
        if sender == "shop" and isinstance(value, list):
            for codes in value[0]:
                partitions.append(pd.factorize(codes)[0].tobytes())  # the same rows together, whatever the labels
    assert len(partitions) == 24
    assert len(set(partitions)) == 24


def test_a_batch_number_is_never_used_twice():
    fed = fs.Federation.split(*mixed_table(40), parties=2)
    with fed.session() as run:
        matching, _ = matched(run)
        pairs = mi.Pairs("party1", np.array([0]), "party2", np.array([0]))
        matching.information([pairs])
        matching._batch -= 1
        with pytest.raises(errors.OperationRefused, match="used up"):
            matching.information([pairs])


def test_pair_secrets_are_fresh_for_every_run_and_cannot_be_brought_back():
    fed = fs.Federation.split(*mixed_table(40), parties=2)
    seeds = []
    for _ in range(2):
        with fed.session() as run:
            matched(run)
            site = fed._link.transport.sites["party1"]
            seeds.append(site.sessions[run._session][Matching].seeds["party2"])
            peer = fed._link.transport.sites["party2"].sessions[run._session][Matching].seeds["party1"]
            assert peer == seeds[-1]
            with pytest.raises(errors.OperationRefused, match="as often as it declares"):
                run.ask(row_secrets.blind_rows, to="party1", factors=[])
            with pytest.raises(errors.OperationRefused, match="as often as it declares"):
                run.ask(row_secrets.number_rows, to="party1", points=b"", factors=[])
    assert seeds[0] != seeds[1]


def test_the_coordinators_whole_view_has_no_id_and_no_value():
    ids = [f"PERSON-{i:04d}" for i in range(40)]
    canary = 71234.5678
    X, y = mixed_table(40)
    left = X[["signal", "noise"]].assign(id=ids, outcome=y)
    right = X[["weak", "counts"]].assign(id=ids[::-1], money=canary)
    fed = fs.Federation.from_tables({"bank": left, "shop": right}, id="id", label=("bank", "outcome"))
    log = Recording(fed._link.transport)
    fed._link.transport = log
    with fed.session() as run:
        matching, _ = matched(run)
        matching.information(pairs_of_everything(run))
        spearman_matrix(run, [("bank", 0), ("shop", 0), ("shop", 1)])
    everything = b"".join(data for _, _, data in log.log)
    assert not re.search(rb"PERSON", everything)
    for needle in (np.float64(canary), np.float32(canary), *X["weak"].head(5), *X["signal"].head(5)):
        assert np.asarray(needle).tobytes() not in everything
    # No row secret of one party is in a message, and no blinded point is seen twice.
    for site in log.sites.values():
        for known in site.keys["muse rows"].values():
            assert len(known) == 40
            assert not any(secret in everything for secret in known.values())
    points = [
        leaf[i : i + 32]
        for _, _, data in log.log
        for leaf in walk(decode(data))
        if isinstance(leaf, bytes) and len(leaf) == 40 * 32
        for i in range(0, len(leaf), 32)
    ]
    # Sent by two parties, then raised twice, relayed in between: each list is seen going up and coming down.
    assert len(set(points)) == 40 * 2 * 3


def test_ids_are_evaluated_once_and_only_new_rows_again():
    fed = fs.Federation.split(*mixed_table(40), parties=2)
    half = fed.view(rows=np.arange(25))

    def raised():
        return [e.bytes for e in fed.ledger.entries if e.operation == "muse.raise_rows" and e.sender != "coordinator"]

    def agree(view):
        with view.session() as run:
            mi.BinMatching(run, keys="two", min_cell=None)

    agree(half)
    first = len(raised())
    agree(half)
    assert first == 2
    assert len(raised()) == 2
    agree(fed)
    assert len(raised()) == 4
    assert raised()[-1] < raised()[0]  # 15 new rows against 25


def test_min_cell_refuses_and_names_the_column():
    fed = fs.Federation.split(*mixed_table(60), parties=["bank", "shop", "lab"])
    expected = pytest.raises(errors.DataError, match=r"column 'signal' of party 'bank'.*min_cell=2")
    with fed.session() as run, expected:
        matched(run, min_cell=2, n_bins=8, binning="width")
    with fed.session() as run:
        matching, _ = matched(run, n_bins=2)
        matching.min_cell = 16  # of 60 rows in four cells one has 15 or fewer
        with pytest.raises(
            errors.DataError, match=r"'signal' of party 'bank'.*'counts' of party 'lab'.*min_cell=16"
        ) as error:
            matching.information([mi.Pairs("bank", np.array([0, 0]), "lab", np.array([1, 2]))])
        assert "n_bins" in str(error.value)


def test_private_names_are_not_told_by_min_cell():
    X, y = mixed_table(60)
    fed = fs.Federation.from_tables(
        {"bank": X[["signal"]].assign(outcome=y), "shop": X[["counts"]]}, id=None, label=("bank", "outcome"),
        names="private",
    )  # fmt: skip
    with fed.session() as run, pytest.raises(errors.DataError, match="column 0") as error:
        matched(run, min_cell=3, n_bins=8, binning="width")
    assert "signal" not in str(error.value)


@pytest.mark.parametrize("bad", [np.zeros((1, 3), np.uint8), np.zeros((1, 40), np.int64)])
def test_a_party_that_lies_about_its_lists_is_named(bad):
    fed = fs.Federation.split(*mixed_table(40), parties=2)

    def lie(delivery):
        value = decode(delivery.data).get("ok")
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return Delivery(encode({"ok": [bad]}), delivery.seconds)
        return delivery

    fed._link.transport = Faulty(fed._link.transport, "party2", lie)
    with fed.session() as run:
        matching, _ = matched(run)
        with pytest.raises(errors.ReplyError, match="party2"):
            matching.information([mi.Pairs("party1", np.array([0]), "party2", np.array([0]))])


def test_long_lists_go_in_several_messages(monkeypatch):
    monkeypatch.setattr(mi, "_MESSAGE_BYTES", 3 * 40)
    fed = fs.Federation.split(*mixed_table(40), parties=3)
    codes = plain_codes(fed)
    with fed.session() as run:
        matching, _ = matched(run)
        wanted = pairs_of_everything(run)
        for pairs, values in zip(wanted, matching.information(wanted)):
            expected = pair_information(
                codes[pairs.left][pairs.left_columns], codes[pairs.right][pairs.right_columns], Entropies(40)
            )[0]
            np.testing.assert_array_equal(values, expected)
    sizes = [e.bytes for e in fed.ledger.entries if e.operation == "muse.matched_codes" and e.receiver == "coordinator"]
    assert max(sizes) < 400


def test_equal_row_keys_do_not_spoil_the_match(monkeypatch):
    """Keys that are drawn from few values tie; both parties must draw again, and then agree."""
    honest, draws = fresh_orders.key_stream, []

    def poor(seed, purpose, number, shape, kind):
        draws.append(kind)
        keys = honest(seed, purpose, number, shape, kind)
        return (keys & keys.dtype.type(0x3F)) << keys.dtype.type(8) if kind == "<u4" else keys

    monkeypatch.setattr(fresh_orders, "key_stream", poor)
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, (2, 6, 40)).astype(np.uint8)
    lists = [fresh_orders.in_fresh_orders(codes, np.arange(6), b"s" * 32, 1, 4) for codes in (a, b)]
    assert "<u8" in draws
    values = [pair_information(*pair, Entropies(40))[0] for pair in ((a, b), lists)]
    np.testing.assert_array_equal(*values)


def test_long_columns_take_other_paths_and_match_all_the_same():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 7, (2, 3, 20_000)).astype(np.uint8)  # 64-bit keys, labels renamed column by column
    lists = [fresh_orders.in_fresh_orders(codes, np.arange(3), b"s" * 32, 1, 4) for codes in (a, b)]
    values = [pair_information(*pair, Entropies(20_000))[0] for pair in ((a, b), lists)]
    np.testing.assert_array_equal(*values)
    assert (lists[0] == a).mean() < 0.2


@pytest.mark.parametrize("kind", ["<u4", "<u8"])
def test_orders_of_rows_are_uniform(kind):
    """Every row lands at every place about equally often; a cyclic shift or a half-shuffle would fail."""
    codes = np.tile(np.arange(10, dtype=np.uint8), (8000, 1))
    keys = fresh_orders.key_stream(b"s" * 32, "row keys", 2, (8000, 10), kind)
    orders, tied = fresh_orders.sort_by_keys(keys, codes, 4)
    counts = np.stack([np.bincount(orders[:, place], minlength=10) for place in range(10)])
    assert abs(counts - 800).max() < 5.5 * np.sqrt(800 * 0.9)
    assert len({row.tobytes() for row in orders}) > 7900
    assert tied.mean() < 0.001


def test_streams_differ_by_seed_purpose_and_number():
    base = fresh_orders.key_stream(b"s" * 32, "a", 1, (4,))
    assert base.all()
    for other in ((b"t" * 32, "a", 1), (b"s" * 32, "b", 1), (b"s" * 32, "a", 2)):
        assert not (base == fresh_orders.key_stream(*other, (4,))).any()
    np.testing.assert_array_equal(base, fresh_orders.key_stream(b"s" * 32, "a", 1, (4,)))


@pytest.mark.parametrize("repeat", [3, 200])
def test_labels_of_bins_are_shuffled_afresh(repeat):
    codes = np.repeat(np.arange(4, dtype=np.uint8), repeat)[None, :]
    shuffled = fresh_orders._shuffle_labels(codes, np.zeros(400, int))
    assert len({row.tobytes() for row in shuffled}) == 24  # all orders of four labels
    for row in shuffled[:20]:
        np.testing.assert_array_equal(pd.factorize(row)[0], codes[0])


@settings(max_examples=40, deadline=None)
@given(arrays(np.uint8, (2, 30), elements=st.integers(0, 6)), st.randoms(use_true_random=False))
def test_information_is_exact_and_does_not_depend_on_labels_or_sides(codes, random):
    a, b = codes
    entropies = Entropies(30)
    value = pair_information(a[None], b[None], entropies)[0][0]
    assert value == pytest.approx(mutual_info_score(a, b), abs=1e-12)
    labels = list(range(7))
    random.shuffle(labels)
    renamed = np.array(labels, dtype=np.uint8)[b]
    assert pair_information(renamed[None], a[None], entropies)[0][0] == value  # bit for bit


def test_entropies_stay_exact_for_a_million_rows():
    entropies = Entropies(1_000_000)
    counts = np.random.default_rng(0).multinomial(1_000_000, [1 / 225] * 225)
    share = counts / 1e6
    assert float(entropies.entropy(counts)) == pytest.approx(-(share * np.log(share)).sum(), abs=1e-10)


def test_fast_codes_are_those_of_the_party():
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=1)
    site = next(iter(fed._link.transport.sites.values()))
    party = Party(site, "")
    for column, codes in zip(party.columns, column_codes(party, 6, "quantile")):
        slow = party.binned(column, 6)[0]
        assert mutual_info_score(slow, codes) == pytest.approx(mutual_info_score(slow, slow))
        assert len(set(zip(slow, codes))) == len(set(slow)) == len(set(codes))


def test_equally_wide_bins_missing_and_constant_values():
    values = np.array([[0.0, 1, 2, 3, 4, 10], [5, 5, 5, 5, 5, 5], [np.nan, 0, 1, np.nan, 2, 2], [np.nan] * 6])
    codes = number_codes(values, 5, "width")
    np.testing.assert_array_equal(codes[0], [0, 0, 1, 1, 2, 4])
    np.testing.assert_array_equal(codes[1], 0)
    assert codes[2][0] == codes[2][3] > codes[2][1:3].max()
    np.testing.assert_array_equal(codes[3], 0)


def test_rank_correlations_equal_scipy():
    from scipy.stats import spearmanr

    X, y = mixed_table(50)
    X = X[["signal", "weak", "counts", "copy", "noise", "constant"]]
    fed = fs.Federation.split(X, y, parties=3)
    places = [("party3", 0), ("party1", 0), ("party2", 1), ("party1", 1), ("party3", 1)]
    with fed.session() as run:
        mi.BinMatching(run, keys="two", min_cell=None)
        found = spearman_matrix(run, places)
        with pytest.raises(errors.OperationRefused, match="as often as it declares"):
            spearman_matrix(run, places)
    names = fed.column_names()
    chosen = X[[names[p][c] for p, c in places]].drop(columns="constant")
    np.testing.assert_allclose(found[:4, :4], spearmanr(chosen.iloc[:, :4])[0], atol=1e-7)
    np.testing.assert_array_equal(found[4], [0, 0, 0, 0, 1])


def test_missing_values_take_the_mean_rank():
    ranks = unit_ranks(np.array([[3.0, np.nan, 1.0, 2.0]]))[0]
    assert ranks[1] == 0
    assert ranks.sum() == pytest.approx(0)
