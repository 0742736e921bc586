"""A coordinator that chooses what a number is about: rows of a view, one row of a batch, predictions of its own, keys.

Each of these gave labels or rows away at sites with the default policy; the figure stands with the attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.table import Table
from fedsift.errors import OperationRefused, SecurityError
from fedsift.models.splitnn.layers import lattice, shared_network
from fedsift.models.splitnn.layers.lattice import LatticeRun
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_parts import FEWEST_ROWS, batch_order
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.sine import cooled
from fedsift.models.splitnn.settings import BottomSettings, TopSettings
from fedsift.mpc.shared_descent import SharedDescent
from fedsift.site.policy import DEFAULT_EXCEPTIONS
from fedsift.site.site import PolicySite
from hostile.coordinator import Hostile, policy, refused, tables

ROWS = 400
NOISY = fs.InformationValue(n_features=2, epsilon=0.001)
FILTERS = {"exact": fs.InformationValue(n_features=2), "under noise": NOISY}


@pytest.fixture
def hostile():
    return Hostile(rows=ROWS)


@pytest.fixture
def lattice_let():
    """The label holder's default rules refuse the step: its people have let it pass."""
    return Hostile(rows=ROWS, exceptions=[*DEFAULT_EXCEPTIONS, "network_lattice.learn_lattice"])


# --- how many classes there are in rows of the coordinator's choice --------------------------------------------------


def rare_labels() -> Hostile:
    """One row in twenty is "yes": fifty rows without one are soon found."""
    hostile = Hostile(rows=ROWS)
    frame = tables(ROWS)["bank"].to_polars().to_pandas()
    frame = frame.assign(id=[f"c{i}" for i in range(ROWS)], outcome=np.where(np.arange(ROWS) % 20, "no", "yes"))
    bank = Table.read(frame, id="id", label="outcome", name="bank")
    hostile.sites["bank"] = PolicySite("bank", bank, policy())
    return hostile


def classes_of(hostile: Hostile, asked: dict[str, Any], number: int, rows: np.ndarray) -> dict[str, Any]:
    hostile.send("bank", "core.define_view", **asked, view=f"v{number}", rows=rows)
    return hostile.send("bank", "core.describe_label", **asked, on=f"v{number}", task="classification")


@pytest.mark.parametrize("form", FILTERS)
def test_group_testing_by_the_number_of_classes(form):
    """Fifty rows of one class and one row more: "two classes", or an error, says which label it has. All 400 labels
    were read so, in 357 requests and no line of the journal; with an epsilon in the job as well."""
    hostile = rare_labels()
    job = hostile.of(FILTERS[form])
    asked = {"session": hostile.begin(job), "job": job.hash}
    base = np.flatnonzero(np.arange(ROWS) % 20)[:50]
    told = 0
    for number in range(60):
        reply = classes_of(hostile, asked, number, np.union1d(base, [60 + number]))
        told += reply["error"] == "DataError" if "error" in reply else 1
    assert told <= (1 if form == "exact" else ROWS // 10)
    refused(classes_of(hostile, asked, 100, np.union1d(base, [390])), "its policy refuses this by the rule")


def test_describing_the_same_rows_again_costs_nothing(hostile):
    job = hostile.of(NOISY)
    for _ in range(60):
        asked = {"session": hostile.begin(job), "job": job.hash}
        assert "ok" in hostile.send("bank", "core.describe_label", **asked, task="auto")
        hostile.end(asked["session"])


def test_an_error_counts_as_a_refusal_does():
    """A job with a tiny epsilon pays nothing for its noise, and that it fails says that all these rows are alike."""
    hostile = rare_labels()
    alike = np.flatnonzero(np.arange(ROWS) % 20)[:60]
    replies = []
    for _ in range(ROWS // 10 + 5):
        job = hostile.of(NOISY)
        asked = {"session": hostile.begin(job), "job": job.hash}
        hostile.send("bank", "core.define_view", **asked, view="alike", rows=alike)
        told = {"scheme": "auto", "task": "auto", "answers": 1, "weight_bits": 10}
        replies.append(hostile.send("bank", "tables.encrypt_every_class", **asked, on="alike", **told))
        hostile.end(asked["session"])
    assert replies[0]["error"] == "DataError"
    refused(replies[-1], "max_bits")


def test_a_view_that_is_defined_anew_has_no_rows_of_the_old_one(hostile):
    """A table was kept by the view's name: rows minus one were computed with while all rows were judged."""
    job = hostile.of(fs.InformationValue(n_features=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    for rows in (ROWS - 1, ROWS):
        assert hostile.send("bank", "core.define_view", **asked, view="v", rows=np.arange(rows)) == {"ok": None}
        assert hostile.send("bank", "core.count_table", **asked, on="v")["ok"]["rows"] == rows


def test_steps_that_tell_nothing_readable_cut_the_table_too(hostile):
    """How many inputs a network has tells which categories are among its rows."""
    job = hostile.of(fs.SplitNN())
    asked = {"session": hostile.begin(job), "job": job.hash}
    assert "ok" in hostile.send("bank", "sine_network.count_inputs", **asked, task="auto")
    again = {"session": hostile.begin(job), "job": job.hash}
    hostile.send("bank", "core.define_view", **again, view="fewer", rows=np.arange(1, ROWS))
    refused(hostile.send("bank", "sine_network.count_inputs", **again, on="fewer", task="auto"), "min_rows")


# --- scores of the coordinator's own predictions ---------------------------------------------------------------------


def test_a_score_of_embeddings_from_the_request_is_no_aggregate(hostile):
    """One row's embedding changed, and the score says which label it has: 200 of 200 labels, 0 bits counted."""
    job = hostile.of(fs.SplitNN(protection="open"))
    asked = {"session": hostile.begin(job), "job": job.hash}
    settings = TopSettings(0, 128, 0.003, "dense", {"hidden": [8]}, task="classification")
    told = {"model": "m", "widths": {"shop": 4}, "settings": settings}
    assert "ok" in hostile.send("bank", "network.start_top", **asked, **told)
    chosen = {"shop": np.zeros((ROWS, 4), dtype=np.float32)}
    refused(hostile.send("bank", "network.score_rows", **asked, model="m", embeddings=chosen), "forms")


# --- numbers about one row -------------------------------------------------------------------------------------------


@contextmanager
def on_shares(hostile: Hostile, model: fs.SplitNN | fs.GroupLasso) -> Iterator[SharedRun]:
    with hostile.aligned().session(*model.announcement()) as run:
        yield SharedRun.begin(run, "m", width=model.width, seed=0, rate=0.1, batch_size=model.batch_size)


def one_batch(run: SharedRun, epoch: int, start: int) -> None:
    dealer, order = run.hide(), batch_order(0, epoch, run.rows)
    run._batch(run.fed, dealer, cooled(run.factor, epoch, run.epochs), order, epoch, start, _nothing(run))


def _nothing(run: SharedRun) -> dict[str, dict[str, Any]]:
    return {name: {} for name in run.members}


def test_the_loss_of_one_row(hostile):
    """The last row of an epoch's order as a batch of its own, and then the loss: labels with AUC 0.88."""
    with on_shares(hostile, fs.SplitNN()) as run, pytest.raises(OperationRefused, match="batch"):
        one_batch(run, 0, ROWS - 1)


def test_the_loss_of_a_batch_of_one(hostile):
    with on_shares(hostile, fs.SplitNN(batch_size=1)) as run:
        one_batch(run, 0, 0)
        with pytest.raises(OperationRefused, match="all rows, each once"):
            run.fed.ask(shared_network.loss_half, to=[run.active, run.helper], epoch=0)


def test_a_batch_is_trained_on_once_an_epoch_and_epochs_go_on(hostile):
    with on_shares(hostile, fs.SplitNN()) as run:
        one_batch(run, 1, 0)
        with pytest.raises(OperationRefused, match="trained on before"):
            run.fed.ask(shared_network.send_angles, to="shop", epoch=1, start=0)
        with pytest.raises(OperationRefused, match="this epoch is over"):
            run.fed.ask(shared_network.send_angles, to="shop", epoch=0, start=0)


def test_gates_and_norms_are_read_of_many_rows_or_none(hostile):
    with on_shares(hostile, fs.GroupLasso(batch_size=10)) as run:
        gates = SharedGates(run)
        gates.set({name: np.ones(count, dtype=bool) for name, count in run.fed.n_columns.items()})
        before = gates.norms()
        one_batch(run, 0, 0)
        with pytest.raises(OperationRefused, match=f"about {FEWEST_ROWS} rows or more"):
            gates.norms()
    assert set(before) == {"bank", "shop"}


# --- a network under lattice encryption: keys and numbers of the coordinator's own -----------------------------------

LATTICE = fs.SplitNN(protection="lattice", embedding=2, epochs=1, batch_size=200)


class Between(LatticeRun):
    """Relays as an honest coordinator does, but for one step."""

    changed = ""

    @classmethod
    def of(cls, fed: Federation, changed: str) -> Between:
        bottom = BottomSettings(0, 200, 0.003, "dense", {"hidden": [4]})
        run = cls.start(fed, "m", 2, bottom, TopSettings(0, 200, 0.003, "dense", {"hidden": [4]}))
        assert isinstance(run, Between)
        run.changed = changed
        return run

    def forward(self) -> dict[str, Any]:
        fed, model, shop = self.fed, self.model, "shop"
        self._meet(fed)
        sent = fed.ask(lattice.encrypt_lattice, to=[shop], model=model, outputs=self.outputs, epoch=0, start=0)
        if self.changed == "rows":
            sent[shop]["back"] = sent[shop]["forward"]
        answers = fed.ask(lattice.weigh_lattice, to=self.active, model=model, replies=sent)
        if self.changed == "answer":
            again = fed.ask(lattice.weigh_lattice, to=self.active, model=model, replies=sent)
            answers[shop] = {**again[shop], "note": answers[shop]["note"]}
        opened = fed.ask(lattice.open_lattice, to=[shop], model=model, answer=answers[shop])
        if self.changed == "activations":
            opened[shop]["masked"][3] += np.uint64(1 << 30)
        return fed.ask(lattice.learn_lattice, to=self.active, model=model, activations=opened, epoch=0, start=0)


@pytest.mark.parametrize("changed", ["rows", "answer", "activations"])
def test_what_one_end_did_not_send_the_other_does_not_take(lattice_let, changed):
    """Activations of one row moved, and the loss of the batch says which label it has."""
    with lattice_let.aligned().session(*LATTICE.announcement()) as fed, pytest.raises(SecurityError):
        Between.of(fed, changed).forward()


def test_a_lattice_key_of_the_coordinators_own(hostile):
    """Under it the label holder would encrypt the gradient of each row: the labels, to whoever has the key."""
    with hostile.aligned().session(*LATTICE.announcement()) as fed:
        run = Between.of(fed, "")
        lattice.meet_all(fed, ["shop", "bank"], lattice.pairs.CIRCLE)
        told = fed.ask(lattice.lattice_keys, to=["shop"], model="m")
        own = {"value": lattice.LatticeSecretKey(lattice.VALUE_BITS).public, "weight": told["shop"]["weight"]}
        forged = {"shop": {**own, "note": told["shop"]["note"]}}
        with pytest.raises(SecurityError):
            fed.ask(lattice.take_lattice_keys, to=run.active, model="m", keys=forged)


def test_the_loss_under_lattice_encryption_is_that_of_an_epoch(lattice_let):
    """By batches of one row it was that row's: which label it has."""
    with lattice_let.aligned().session(*LATTICE.announcement()) as fed:
        told = Between.of(fed, "").forward()
    assert told["loss"] is None
    assert told["score"] is None


# --- an epsilon that is spent many times -----------------------------------------------------------------------------


def test_boosting_under_an_epsilon_is_charged_and_begun_once_a_run(hostile):
    """In every session of a run it could be begun anew: a thousand models for one epsilon, and their noise averages."""
    model = fs.SecureBoostClassifier(n_estimators=1, max_depth=2, epsilon=1.0, protection="coordinator")
    model.model_id_ = "m"
    fed = hostile.aligned()
    with fed.session(*model.announcement()) as run:
        model._fit(run)
        with run.session() as inner, pytest.raises(OperationRefused, match="is spent on a model"):
            model._fit(inner)
    lines = hostile.sites["bank"].journal.journal.lines()
    assert [line.epsilon for line in lines if line.rho > 0] == [1.0]


# --- what does not hold: shares of a coordinator that lies -----------------------------------------------------------


class Lying(SharedDescent):
    """Adds one to its share of one row's score."""

    row: int | None = None

    def _unopened(self, reply: dict[str, Any], scores: np.ndarray, seed: bytes) -> dict[str, np.ndarray]:
        if self.row is not None:
            scores = scores.copy()
            scores[self.row] += np.uint64(1 << (self.bits.columns + self.bits.weights))
        return super()._unopened(reply, scores, seed)


def test_a_coordinator_that_lies_about_its_share_reads_rows_as_the_threat_model_says(hostile):
    """docs/threat-model.md says so. When this fails, the protocol is better than the page: write that there."""
    from fedsift.models.vertical_additive import open_columns
    from fedsift.mpc.shared_descent import Columns

    model = fs.VerticalAdditive(bins=4)
    asked = {"model": "m", "task": "classification", "outputs": 1, "bins": 4, "min_cell": model.min_cell}
    with hostile.aligned().session(*model.announcement()) as run:
        widths = {name: told["width"] for name, told in run.ask(open_columns, to=run.parties, **asked).items()}
        descent = Lying(run, widths, 1, reads_scores=False)
        zero = {name: np.zeros((width, 1)) for name, width in widths.items()}
        _, honest = descent.at(zero)
        descent.row = 7
        _, moved = descent.at(zero)
        state = next(each for each in hostile.sites["shop"].sessions.values() if Columns in each)
        read = (moved["shop"] - honest["shop"])[:, 0] * ROWS
        assert np.abs(read - state[Columns].values[7]).max() < 0.05


def test_a_refused_reading_changes_nothing(hostile):
    """The policy's refusal comes before the step; the rows are as they were."""
    job = hostile.of(fs.SplitNN())
    asked = {"session": hostile.begin(job), "job": job.hash}
    before = hostile.sites["bank"].journal.journal.atoms.codes.copy()
    hostile.send("bank", "core.define_view", **asked, view="few", rows=np.arange(3))
    refused(hostile.send("bank", "sine_network.count_inputs", **asked, on="few", task="auto"), "no such view")
    assert np.array_equal(before, hostile.sites["bank"].journal.journal.atoms.codes)


# --- predictions and rows of the coordinator's own, again ------------------------------------------------------------


def test_the_error_of_predictions_that_nobody_made(hostile):
    """FLAFE's label holder told the mean squared error on rows, and of predictions, that the request named: one row
    and zero gave its label, one a job, and no step had to come before."""
    job = hostile.of(fs.VerticalFLAFE(protection="statistics"))
    asked = {"session": hostile.begin(job), "job": job.hash}
    named = {"rows": np.array([3]), "predictions": np.zeros(1)}
    refused(hostile.send("bank", "flafe.held_out_error", **asked, **named, task="auto"), "unknown or missing arguments")
    refused(hostile.send("bank", "flafe.held_out_error", **asked, task="auto"), "it comes after flafe.read_prediction")
