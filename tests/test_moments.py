"""Mean products of all parties' columns: equal to pooled ones, nothing of a row on the wire, no data holder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, OverflowGuard, ParameterError, ReplyError
from fedsift.mpc.moments import MomentColumns, fraction_bits, masked_sides, open_moments, own_products, scaled
from fedsift.select.knockoffs import components, open_columns


def table(rows=300, columns=7, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, columns)) @ rng.normal(size=(columns, columns)), columns=list("abcdefg"))
    return X, X["a"] - X["f"] + rng.normal(size=rows)


def pooled(fed):
    """The same columns side by side, read at the sites."""
    blocks = []
    for site in fed.simulated.values():
        party = Party(site, "")
        label = [] if site.table.label is None else [scaled(np.asarray(site.table.label, dtype=float)[:, None])]
        blocks += [components(party, True)[0], *label]
    joint = np.hstack(blocks)
    return joint.T @ joint / len(joint)


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_opened_products_are_the_pooled_ones(parties):
    fed = fs.Federation.split(*table(), parties=parties)
    with fed.session(*fs.Knockoffs().announcement()) as run:
        opened = run.ask(open_columns, to=run.parties, task="regression")
        widths = {name: len(reply["owner"]) + reply["targets"] for name, reply in opened.items()}
        found = open_moments(run, widths)
    np.testing.assert_allclose(found, pooled(fed), atol=1e-8)


def test_a_million_rows_leave_twenty_bits_of_fraction_and_too_many_are_refused():
    assert fraction_bits(1000) == 26
    assert fraction_bits(10**6) == 21
    with pytest.raises(OverflowGuard):
        fraction_bits(2**32)


def test_columns_are_scaled_whatever_their_size_and_holes():
    values = np.array([[1e300, 5.0, np.nan, 1.0], [-1e300, 5.0, np.nan, np.nan], [1e300, 5.0, np.nan, 3.0]])
    found = scaled(values)
    assert np.isfinite(found).all()
    np.testing.assert_allclose((found**2).mean(axis=0), [1.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-12)


def test_where_a_data_holder_runs_the_coordinator_nothing_is_opened():
    X, y = table()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], coordinator="shop")
    with pytest.raises(ParameterError, match="holds no rows"):
        fs.Knockoffs().fit(fed)
    with fed.session(*fs.Knockoffs().announcement()) as run:  # a coordinator that asks all the same
        run.ask(open_columns, to=run.parties, task="regression")
        with pytest.raises(OperationRefused, match="runs the coordinator"):
            run.ask(own_products, to="bank")


def test_products_are_opened_once_a_job_and_of_the_rows_that_were_scaled():
    fed = fs.Federation.split(*table(), parties=2)
    with fed.session(*fs.Knockoffs().announcement()) as run:
        run.ask(open_columns, to=run.parties, task="regression")
        fewer = run.view(rows=np.arange(200))
        with pytest.raises(OperationRefused, match="other rows"):
            fewer.ask(own_products, to="party1")
    with fed.session(*fs.Knockoffs().announcement()) as run:
        run.ask(open_columns, to=run.parties, task="regression")
        run.ask(own_products, to="party1")
        with pytest.raises(OperationRefused, match="1 times already"):
            run.ask(own_products, to="party1")


def test_what_travels_under_masks_is_another_each_time_and_no_side_alone_goes_with_the_columns():
    """Two runs of the same job have other masked columns; their correlation with the columns is that of chance.

    Uniform ring elements against 300 fixed values: a correlation of 0.45 is 7.8 standard deviations off (1e-14)."""
    seen = []
    for _ in range(2):
        fed = fs.Federation.split(*table(), parties=2)
        with fed.session(*fs.Knockoffs().announcement()) as run:
            opened = run.ask(open_columns, to=run.parties, task="regression")
            widths = {name: len(reply["owner"]) + reply["targets"] for name, reply in opened.items()}
            replies = {}
            original = run.ask

            def ask(operation, *, to, original=original, replies=replies, **same):
                answer = original(operation, to=to, **same)
                if operation is masked_sides:
                    replies.update(answer)
                return answer

            run.ask = ask
            open_moments(run, widths)
        seen.append(replies["party1"]["sides"]["party2"][0])
    assert not np.array_equal(*seen)
    values = components(Party(fed.simulated["party1"], ""), True)[0]
    shown = seen[1][:, : values.shape[1]].astype(np.float64)
    assert max(abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(values.T, shown.T)) < 0.45


def test_a_reply_of_another_shape_names_its_party(monkeypatch):
    fed = fs.Federation.split(*table(), parties=2)
    with fed.session(*fs.Knockoffs().announcement()) as run:
        opened = run.ask(open_columns, to=run.parties, task="regression")
        widths = {name: len(reply["owner"]) + reply["targets"] for name, reply in opened.items()}
        with pytest.raises(ReplyError, match="party2"):
            open_moments(run, {**widths, "party2": widths["party2"] + 1})


def test_columns_that_were_not_kept_are_refused():
    fed = fs.Federation.split(*table(), parties=2)
    with fed.session(*fs.Knockoffs().announcement()) as run, pytest.raises(OperationRefused, match="earlier step"):
        run.ask(own_products, to="party1")
    assert MomentColumns(np.zeros((4, 1))).ring.dtype == np.uint64
