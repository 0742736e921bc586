"""Row sets that count as many rows and weigh as few: rows named often, rows put beside other people's."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.errors import OperationRefused
from fedsift.evaluate.value_holder import ValueJob
from fedsift.models.vertical_additive import open_columns
from fedsift.mpc.shared_descent import SharedDescent
from hostile.coordinator import Hostile, refused

MODEL = fs.VerticalAdditive(bins=4)


@pytest.fixture
def hostile():
    return Hostile(rows=400)


def sums(run: Federation) -> dict[str, np.ndarray]:
    """What the coordinator opens at weights of zero: for each column (bin), its sum with the target."""
    asked = {"model": "watched", "task": "classification", "outputs": 1, "bins": MODEL.bins, "min_cell": MODEL.min_cell}
    told = run.ask(open_columns, to=run.parties, **asked)
    widths = {name: reply["width"] for name, reply in told.items()}
    descent = SharedDescent(run, widths, 1, reads_scores=False)
    _, gradients = descent.at({name: np.zeros((width, 1)) for name, width in widths.items()})
    return {name: -found[:, 0] * run.n_rows / 2 for name, found in gradients.items()}


def test_rows_that_are_named_often_would_spell_labels_in_one_sum(hostile):
    """Eight rows named 500, 1000, 2000, ... times beside the others: one sum of the default additive model spelled
    their labels, 8 of 8, and the journal counted 400 rows."""
    often = [np.full(500 << place, place) for place in range(8)]
    with hostile.aligned().session(*MODEL.announcement()) as run, pytest.raises(OperationRefused, match="each once"):
        run.view(rows=np.concatenate([np.arange(400), *often]))


def test_two_rows_that_change_places_would_tell_whether_their_labels_differ(hostile):
    """At the shop alone: the same row set to every rule, and sums that differ by just these two people."""
    swapped = np.arange(400)
    swapped[[3, 4]] = [4, 3]
    with hostile.aligned().session(*MODEL.announcement()) as run, pytest.raises(OperationRefused, match="in the order"):
        run.view(rows={"bank": np.arange(400), "shop": swapped})


@pytest.mark.parametrize("rows", [np.arange(400), np.delete(np.arange(400), np.arange(60)), np.arange(0, 400, 2)])
def test_rows_in_order_pass_and_are_summed_as_they_are(hostile, rows):
    fed = hostile.aligned()
    with fed.session(*MODEL.announcement()) as run:
        told = sums(run.view(rows=rows))["bank"][-1]
    bank = hostile.sites["bank"]
    label = bank.table.label[bank.views[fed._view][0][rows]]
    assert round(float(told)) == (label == "yes").sum() - (label == "no").sum()


@pytest.mark.parametrize("fold", [
    np.r_[0, 0, np.arange(1, 399)],  # two rows change places or do not, everybody else stays
    np.r_[np.zeros(391), np.ones(9)],
    np.zeros(400),
    np.arange(399) % 10,
])  # fmt: skip
def test_a_partner_shuffles_inside_the_folds_of_the_job_and_no_others(hostile, fold):
    job = hostile.job(*ValueJob().announcement())
    asked = {"session": hostile.begin(job), "job": job.hash}
    reply = hostile.send("shop", "value.shuffle_rows", **asked, view="mixed", fold=fold.astype(np.int64))
    refused(reply, "rows")
    assert "mixed" not in hostile.sites["shop"].views
    again = {"session": hostile.begin(job), "job": job.hash}
    assert "ok" in hostile.send("shop", "value.shuffle_rows", **again, view="mixed", fold=np.arange(400) % 10)
