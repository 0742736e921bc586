"""HyFDCA against scikit-learn on the pooled table, over every partition; absence; what the coordinator can read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Faulty, Recording
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

import fedsift as fs
from fedsift.core.message import decode, encode, walk
from fedsift.core.party import Party, Site
from fedsift.core.transports.base import Delivery, Transport
from fedsift.errors import DataError, ParameterError, PartyGone, ReplyError, SecurityError
from fedsift.models.hyfdca.loss import best_duals
from fedsift.models.hyfdca.model import HyFDCA
from fedsift.models.hyfdca.party import SCORE_BITS
from fedsift.models.hyfdca.state import Part, RoundState
from fedsift.mpc.group_sum import Groups, add_up, cover_for, from_words, hide, to_words, uncover
from fedsift.mpc.shared_descent import Columns

SPLITS = {
    "vertical": {"parties": 3},
    "horizontal": {"parties": 3, "partition": "horizontal"},
    "hybrid": {"partition": "hybrid", "grid": (2, 3), "label_party": "columns2"},
}
#: Parties without labels in a grid read sums over their columns: only where it is said that they may.
SHOWN = {"allow_sums": True}
GRIDS = [split for split in SPLITS if split != "vertical"]


def cancer(rows=240, columns=12):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X.columns = [f"c{i}" for i in range(X.shape[1])]
    return X.iloc[:rows, :columns], y.iloc[:rows]


def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X, y


def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    X.columns = [f"w{i}" for i in range(X.shape[1])]
    return X, y


def standard(X):
    values = X.to_numpy(dtype=float)
    return (values - values.mean(axis=0)) / values.std(axis=0), values.std(axis=0)


def weights(model, columns):
    """Columns x outputs, in units of the table."""
    found = {name: row for frame in model.coef_.values() for name, row in zip(frame.index, frame.to_numpy())}
    return np.array([found[name] for name in columns])


def pooled(X, y, classes, **settings):
    """Weights of scikit-learn's solution on standardised columns: columns x outputs."""
    Z, _ = standard(X)
    if not classes:
        return Ridge(alpha=settings.get("penalty", 1.0)).fit(Z, y).coef_[:, None]
    wanted = range(classes) if classes > 2 else [1]
    C = 1 / settings.get("penalty", 1.0)
    fits = [LogisticRegression(C=C, tol=1e-9, max_iter=5000).fit(Z, y == k) for k in wanted]
    return np.array([each.coef_[0] for each in fits]).T


def distance(model, X, reference):
    _, scale = standard(X)
    got = weights(model, X.columns) * scale[:, None]
    return np.linalg.norm(got - reference) / np.linalg.norm(reference)


class Flaky(Transport):
    """Some parties do not answer some exchanges."""

    name = "flaky"

    def __init__(self, inner, away):
        self.inner, self.away, self.turn = inner, away, 0

    @property
    def sites(self):
        return self.inner.sites

    def exchange(self, requests, timeout):
        self.turn += 1
        operations = {name: decode(data)["operation"] for name, data in requests.items()}
        gone = [name for name in requests if self.away(name, self.turn, operations[name])]
        replies = self.inner.exchange(requests, timeout)  # those who are away did the work: only the answer is lost
        return {**replies, **{name: Delivery(None, 0.0, self.failure) for name in gone}}


def flaky(fed, away, failure="gone"):
    fed._link.transport = Flaky(fed._link.transport, away)
    fed._link.transport.failure = failure
    return fed


# --- the solution ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("data", [diabetes, cancer, wine])
def test_training_ends_at_the_pooled_fit(split, data):
    X, y = data()
    classes = 0 if data is diabetes else y.nunique()
    task = "classification" if classes else "regression"
    fed = fs.Federation.split(X, y, task=task, **SPLITS[split])
    model = HyFDCA(**SHOWN).fit(fed)
    assert model.converged_
    assert distance(model, X, pooled(X, y, classes)) < 1e-3


@pytest.mark.parametrize("split", SPLITS)
def test_the_hinge_reaches_its_optimum(split):
    X, y = cancer(160, 8)
    Z, scale = standard(X)
    sign = np.where(y == 1, 1.0, -1.0)

    def objective(w, b):
        return np.maximum(0, 1 - sign * (Z @ w + b)).sum() + 0.5 * w @ w

    reference = SVC(kernel="linear", C=1.0, tol=1e-6).fit(Z, sign)
    model = HyFDCA(loss="hinge", **SHOWN).fit(fs.Federation.split(X, y, **SPLITS[split]))
    w = weights(model, X.columns)[:, 0] * scale
    b = model.intercept_[0] + (w / scale) @ X.to_numpy().mean(axis=0)
    best = objective(reference.coef_[0], reference.intercept_[0])
    assert best * 0.999 < objective(w, b) < best * 1.002


def test_the_bound_promises_no_more_than_is_true():
    X, y = cancer()
    for tol in (0.3, 0.03):
        model = HyFDCA(tol=tol, penalty=3.0).fit(fs.Federation.split(X, y, parties=3))
        reference = pooled(X, y, 2, penalty=3.0)
        _, scale = standard(X)
        got = weights(model, X.columns) * scale[:, None]
        assert np.linalg.norm(got - reference) <= 1.001 * model.history_["bound"].iloc[-1] * np.linalg.norm(got)
        assert model.history_["bound"].iloc[-1] <= tol


def test_too_few_rounds_are_told_as_not_converged():
    X, y = cancer()
    with pytest.warns(ConvergenceWarning, match="2 rounds"):
        model = HyFDCA(rounds=2).fit(fs.Federation.split(X, y, parties=3))
    assert not model.converged_


def test_duals_equal_a_search_over_each_coordinate():
    """The closed forms maximise the dual at fixed scores: compared with a fine grid."""
    scores, y = np.array([[0.3], [-1.2], [2.0]]), np.array([[1.0], [1.0], [-1.0]])
    grid = np.linspace(1e-6, 1 - 1e-6, 200001)
    for loss in ("logistic", "hinge"):
        centre = np.array([[0.5], [0.2], [0.9]])
        found = (best_duals(loss, scores, y, centre).signed * y)[:, 0]
        for row in range(3):
            margin = (y * scores)[row, 0]
            value = -grid * margin
            if loss == "logistic":
                value = value - grid * np.log(grid) - (1 - grid) * np.log(1 - grid)
            else:
                value = value + grid - 0.5 * (grid - centre[row, 0]) ** 2
            assert abs(grid[value.argmax()] - found[row]) < 1e-4


def test_repeated_runs_are_equal():
    X, y = cancer(120, 6)
    runs = [
        HyFDCA(participation=0.6, random_state=5).fit(fs.Federation.split(X, y, parties=3, partition="horizontal"))
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*[weights(model, X.columns) for model in runs])
    assert clone(runs[0]).get_params() == runs[0].get_params()


# --- tables as they are ----------------------------------------------------------------------------------------------


def oracle_design(X):
    """Indicators for categories, the mean for what is missing, zero for constants."""
    blocks, names = [], []
    for name in X.columns:
        if X[name].dtype == object or str(X[name].dtype) in ("str", "string"):
            for value in sorted(X[name].unique()):
                blocks.append((X[name] == value).to_numpy(dtype=float))
                names.append(f"{name}={value}")
        else:
            values = X[name].astype(float)
            blocks.append(values.fillna(values.mean()).to_numpy())
            names.append(name)
    Z = np.array(blocks).T
    spread = Z.std(axis=0)
    return np.where(spread > 1e-12, (Z - Z.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0), 0.0), names


@pytest.mark.parametrize("split", SPLITS)
def test_categories_and_missing_values_are_read_alike_by_the_parties(split):
    X, y = mixed_table(90)
    X.loc[80:, "colour"] = "violet"  # only some row blocks have it
    X.loc[:30, "holes"] = np.nan
    fed = fs.Federation.split(X, y, **SPLITS[split])
    model = HyFDCA(**SHOWN).fit(fed)
    Z, names = oracle_design(X)
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(Z, y)
    chances = model.predict_proba(fed)
    rows = np.concatenate([site.table.values("signal") for site in _sites_with(fed, "signal")])
    order = [int(np.flatnonzero(X["signal"].to_numpy() == value)[0]) for value in rows]
    np.testing.assert_allclose(chances, reference.predict_proba(Z)[order], atol=2e-3)
    assert set(names) == {name for frame in model.coef_.values() for name in frame.index}


def _sites_with(fed, column):
    return [site for site in fed._link.transport.sites.values() if column in site.table.columns]


def test_new_rows_are_scored_by_the_rules_of_training():
    X, y = mixed_table(90)
    model = HyFDCA().fit(fs.Federation.split(X, y, parties=["bank", "shop", "lab"]))
    strange = X.head(12).assign(colour="purple", holes=np.nan)
    again = fs.Federation.split(strange, y.head(12), parties=["bank", "shop", "lab"])
    assert np.isfinite(model.decision_function(again)).all()
    assert set(model.predict(again)) <= {0, 1}
    with pytest.raises(ParameterError, match="bank"):
        model.predict(fs.Federation.split(strange, y.head(12), parties=["shop", "lab"]))


def test_amounts_and_intercept_come_back_in_their_units():
    X, y = diabetes()
    fed = fs.Federation.split(X * 1000 + 5, y * 10 - 3, parties=2, task="regression")
    model = HyFDCA().fit(fed)
    Z, _ = standard(X)
    reference = Ridge(alpha=1.0).fit(Z, y * 10 - 3)
    np.testing.assert_allclose(model.predict(fed), reference.predict(Z), rtol=1e-3)
    assert model.score(fed) == pytest.approx(reference.score(Z, y * 10 - 3), abs=1e-4)
    total = weights(model, X.columns)[:, 0] @ (X.to_numpy() * 1000 + 5).T + model.intercept_[0]
    np.testing.assert_allclose(total, reference.predict(Z), rtol=1e-3)


def test_hybrid_tables_of_different_order_are_joined_by_id():
    X, y = cancer(200, 8)
    frame = X.assign(id=[f"p{i}" for i in range(len(X))], y=y)
    left, right = ["id", *X.columns[:4], "y"], ["id", *X.columns[4:]]
    tables = {
        "north bank": frame.loc[:99, left], "north lab": frame.loc[:99, right].sample(frac=1, random_state=1),
        "south bank": frame.loc[100:, left], "south lab": frame.loc[90:, right].sample(frac=1, random_state=2),
    }  # fmt: skip
    grid = {"north bank": (0, 0), "north lab": (0, 1), "south bank": (1, 0), "south lab": (1, 1)}
    fed = fs.Federation.from_tables(
        tables, id="id", label={"north bank": "y", "south bank": "y"}, partition="hybrid", grid=grid
    )
    assert fed.n_rows == 200
    model = HyFDCA(**SHOWN).fit(fed)
    assert distance(model, X, pooled(X, y, 2)) < 1e-3
    with pytest.raises(ParameterError, match="same place"):
        fs.Federation.from_tables(tables, id="id", label="y", partition="hybrid", grid={**grid, "south lab": (0, 0)})
    with pytest.raises(ParameterError, match="grid"):
        fs.Federation.from_tables(tables, id="id", label="y", partition="hybrid")


def test_a_party_with_the_label_alone_takes_part():
    X, y = cancer(120, 6)
    ids = np.arange(len(X)).astype(str)
    tables = {
        "bank": pd.DataFrame({"id": ids, "y": y}), "shop": X.iloc[:, :3].assign(id=ids),
        "lab": X.iloc[:, 3:].assign(id=ids, huge=1e200 * X["c0"], constant=4.0),
    }  # fmt: skip
    fed = fs.Federation.from_tables(tables, id="id", label=("bank", "y"))
    model = HyFDCA().fit(fed)
    Z, _ = standard(X.assign(huge=X["c0"]))
    reference = LogisticRegression(C=1.0, tol=1e-9, max_iter=5000).fit(Z, y)
    assert np.sort(model.decision_function(fed)) == pytest.approx(np.sort(reference.decision_function(Z)), abs=2e-2)


def test_training_rows_of_a_hybrid_federation_are_the_same_within_a_block():
    X, y = cancer(160, 8)
    fed = fs.Federation.split(X, y, partition="hybrid", grid=(2, 2), label_party="columns2")
    assert (fed.n_rows, fed.grid["rows2-columns1"]) == (160, (1, 0))
    assert fed.label_parties == ["rows1-columns2", "rows2-columns2"]
    train, test = fed.rows(train=0.75)
    assert (train.n_rows, test.n_rows) == (120, 40)
    model = HyFDCA(**SHOWN).fit(train)
    rows = [site.table.take(site.views[train._view][0]) for site in fed._link.transport.sites.values()]
    pool = pd.concat([pd.concat([a.to_pandas(), b.to_pandas()], axis=1) for a, b in (rows[:2], rows[2:])])
    label = pool.pop(y.name)
    assert distance(model, pool, pooled(pool, label, 2)) < 1e-3
    assert len(model.predict(test)) == 40


def test_one_class_or_a_wrong_loss_is_told_before_training():
    X, y = cancer(60, 6)
    fed = fs.Federation.split(X, y, parties=2)
    before = len(fed.ledger)
    for wrong in ({"loss": "cubic"}, {"penalty": 0}, {"rounds": 0}, {"participation": 2}, {"tol": -1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            HyFDCA(**wrong).fit(fed)
    assert len(fed.ledger) == before
    with pytest.raises(ParameterError, match="squared"):
        HyFDCA(loss="squared").fit(fed)
    with pytest.raises(DataError, match="1 class"):
        HyFDCA().fit(fs.Federation.split(X, np.zeros(60, dtype=int), parties=2, partition="horizontal"))
    with pytest.raises(ParameterError, match="two parties"):
        HyFDCA().fit(fs.Federation.split(X, y, parties=1))
    with pytest.raises(ParameterError, match="logistic"):
        HyFDCA(loss="logistic").fit(fs.Federation.split(X, y * 1.5, parties=2, task="regression"))


def test_one_class_at_one_party_does_not_stop_a_horizontal_run():
    X, y = wine()
    fed = fs.Federation.split(X, y, parties=3, partition="horizontal", how="target")
    assert distance(HyFDCA().fit(fed), X, pooled(X, y, 3)) < 1e-3


def test_a_grid_with_parties_without_labels_is_refused_unless_they_may_know_them():
    X, y = cancer(60, 6)
    fed = fs.Federation.split(X, y, **SPLITS["hybrid"])
    with pytest.raises(DataError, match="rows1-columns1"):
        HyFDCA().fit(fed)
    model = HyFDCA(tol=0.5, **SHOWN).fit(fed)
    assert any("allow_sums" in note for note in model.ledger_.notes)
    assert not any(note.startswith("allow_sums") for note in HyFDCA(tol=0.5).fit(grid_of(X, y)).ledger_.notes)


def grid_of(X, y):
    return fs.Federation.split(X, y, partition="hybrid", grid=(2, 3))


def test_more_columns_than_rows_are_no_way_to_the_labels():
    """The passive party of a wide table: its requests hold uniform numbers and its final weights, nothing else."""
    X, y = cancer(40, 30)
    X = pd.concat([X, X**2, np.log1p(X)], axis=1).set_axis([f"d{i}" for i in range(90)], axis=1)
    fed = fs.Federation.split(X, y, parties=2)
    log = fed._link.transport = Recording(fed._link.transport)
    HyFDCA(tol=0.1).fit(fed)
    requests = [decode(data) for _, to, data in log.log if to == "party2"]
    floats = {
        request["operation"]
        for request in requests
        for leaf in walk(request["arguments"])
        if isinstance(leaf, np.ndarray) and leaf.dtype != np.uint64
    }
    assert floats == {"hyfdca.keep_weights"}
    words = np.concatenate(
        [
            leaf.ravel()
            for each in requests
            for leaf in walk(each)
            if isinstance(leaf, np.ndarray) and leaf.dtype == np.uint64
        ]
    )
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(bits))


def test_blocks_that_do_not_fit_together_are_refused():
    X, y = cancer(60, 6)
    sites = {
        "a": Site("a", fs.Table.read(X.iloc[:30, :3].assign(y=y[:30]), id=None, label="y", name="a")),
        "b": Site("b", fs.Table.read(X.iloc[30:, 1:4].assign(y=y[30:]), id=None, label="y", name="b")),
    }
    from fedsift.core.transports.inprocess import InProcess

    with pytest.raises(DataError, match="column block"):
        HyFDCA().fit(fs.Federation(InProcess(sites), ["a", "b"], active=None, partition="horizontal"))


# --- absence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [*SPLITS, "3 x 3"])
def test_a_party_may_miss_rounds(split):
    X, y = cancer(180, 9)
    settings = {"partition": "hybrid", "grid": (3, 3)} if split == "3 x 3" else SPLITS[split]
    generator = np.random.default_rng(1)
    fed = flaky(
        fs.Federation.split(X, y, **settings),
        lambda name, turn, _: turn > 12 and turn % 3 == 0 and generator.random() < 0.05,
    )

    def copies_agree(run, turn):
        """Parties of a column block that took part in the same last round hold the same weights and the same sums."""
        seen = {}
        for name, site in fed._link.transport.sites.items():
            if split == "vertical":
                return  # the weights lie with the coordinator
            state = site.sessions[run._session][RoundState]
            first = seen.setdefault((fed.grid[name][1], state.round), state)
            np.testing.assert_array_equal(state.columns.track.u, first.columns.track.u)
            np.testing.assert_array_equal(state.columns.total, first.columns.total)

    model = HyFDCA(callback=copies_agree, **SHOWN).fit(fed)
    assert any("missed rounds" in note for note in model.ledger_.notes)
    assert len(model.history_) < model.n_rounds_
    assert distance(model, X, pooled(X, y, 2)) < 1e-3


@pytest.mark.parametrize("operation", ["step_and_score", "raise_duals", "weigh_rows", "finish_round", "keep_part"])
def test_a_round_in_which_a_party_is_lost_leaves_nothing_behind(operation):
    """The party did its work but its answer was lost: the round must not count for anybody."""
    X, y = cancer(150, 8)
    seen = {"count": 0}

    def away(name, turn, asked):
        if not asked.endswith(f".{operation}"):
            return False
        seen["count"] += name == "rows1-columns1"
        return name == "rows1-columns1" and seen["count"] in (1, 3, 4)

    fed = flaky(fs.Federation.split(X, y, partition="hybrid", grid=(2, 2)), away)
    model = HyFDCA().fit(fed)
    assert seen["count"] > 1
    assert distance(model, X, pooled(X, y, 2)) < 1e-3


def test_a_repeated_round_hides_the_lost_party_from_subtraction():
    """The label holder has read a total with the lost party in it: it must not get the same total without it."""
    X, y = cancer(100, 8)
    asked = []

    def away(name, turn, operation):
        asked.append((turn, name, operation.rpartition(".")[2]))
        return name == "rows1-columns3" and operation.endswith("weigh_rows") and lost(turn)

    def lost(turn):
        return len([1 for _, n, o in asked if n == "rows1-columns3" and o == "weigh_rows"]) == 3

    fed = flaky(fs.Federation.split(X, y, partition="hybrid", grid=(2, 4)), away)
    fed._link.transport.inner = Recording(fed._link.transport.inner)
    HyFDCA(tol=0.5).fit(fed)
    told = [
        decode(data)["arguments"]
        for _, receiver, data in fed._link.transport.inner.log
        if receiver == "rows1-columns1" and b".raise_duals" in data
    ]
    assert [len(arguments["senders"]) for arguments in told[:5]] == [3, 3, 3, 0, 2]
    assert told[3]["scores"] is None


@pytest.mark.parametrize("split", GRIDS)
def test_asking_a_share_of_the_parties_could_end_elsewhere(split):
    X, y = cancer(150, 8)
    with pytest.raises(ParameterError, match="participation"):
        HyFDCA(participation=0.5).fit(fs.Federation.split(X, y, parties=2))
    model = HyFDCA(participation=0.5, rounds=2000, **SHOWN).fit(fs.Federation.split(X, y, **SPLITS[split]))
    assert len(model.history_) < model.n_rounds_
    assert distance(model, X, pooled(X, y, 2)) < 1e-3


def test_a_slow_party_does_not_break_the_run():
    X, y = cancer(100, 6)
    fed = fs.Federation.split(X, y, parties=3, timeout=60.0)
    flaky(fed, lambda name, turn, _: 20 < turn < 40 and turn % 3 == 0 and name == "party2", failure="timeout")
    model = HyFDCA().fit(fed)
    assert any("'party2' missed rounds" in note for note in model.ledger_.notes)
    assert distance(model, X, pooled(X, y, 2)) < 1e-3


def test_a_party_that_never_comes_back_is_not_waited_for_without_end():
    X, y = cancer(100, 6)
    for lost in ("party1", "party3"):  # the label holder, and another
        fed = flaky(fs.Federation.split(X, y, parties=3), lambda name, turn, _, lost=lost: turn > 14 and name == lost)
        with pytest.raises(PartyGone, match=lost):
            HyFDCA(tol=1e-9).fit(fed)


# --- what is on the wire ---------------------------------------------------------------------------------------------


def secrets_of(fed, run_session):
    """Arrays that no one else may read, as they are in the parties' memory."""
    found = {}
    for name, site in fed._link.transport.sites.items():
        session = site.sessions[run_session]
        if Columns in session:
            columns = session[Columns]
            own = columns.values.ravel() if columns.loss is None else columns.values[:, :-1].ravel()
            found[name] = [own, columns.ring, columns.own_mask, *columns.helped.values()]
            if columns.loss is not None:
                found[name] += [columns.loss.last, columns.loss.target]
            continue
        part, state = session[Part], session[RoundState]
        u = state.columns.track.u
        arrays = [part.x, part.x_ring, u, state.columns.total, state.own, part.metric @ u]
        arrays += [state.scores, part.x @ (part.metric @ u)]
        if part.target is not None:
            arrays += [part.target, state.labels.duals.signed, state.labels.others, state.intercept.track.u]
        found[name] = [np.ascontiguousarray(each) for each in arrays]
    return found


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("split", SPLITS)
def test_scores_duals_columns_and_weights_never_leave_in_the_clear(split):
    X, y = cancer(60, 9)
    X = X.assign(c0=np.where(np.arange(60) % 5 == 0, 918273645.4378125, X["c0"]))
    fed = fs.Federation.split(X, pd.Series(np.where(y == 1, "CANARY-YES", "CANARY-NO")), **SPLITS[split])
    fed._link.transport = Recording(fed._link.transport)
    needles: set[bytes] = {np.float64(918273645.4378125).tobytes(), np.float32(918273645.4378125).tobytes()}

    def note(run, turn):
        for arrays in secrets_of(fed, run._session).values():
            for array in arrays:
                # Numbers with many digits only: a half or a one is in every message.
                words = [word.tobytes() for word in array.ravel()[:40]]
                needles.update(word for word in words if sum(byte not in (0, 255) for byte in word) >= 4)

    HyFDCA(rounds=6, callback=note, **SHOWN).fit(fed)
    assert len(needles) > 100
    plain = {"hyfdca.describe_part", "hyfdca.read_scores"}
    for sender, receiver, data in fed._link.transport.log:
        message = decode(data)
        operation = message.get("operation", "") if isinstance(message, dict) else ""
        for needle in needles:
            assert needle not in data, (sender, receiver, operation)
    forms = fed.ledger.disclosures()
    assert set(forms[forms["form"] == "plain"]["operation"]) <= plain
    labels = [data for *_, data in fed._link.transport.log if b"CANARY-YES" in data]
    assert len(labels) <= 2 * len(fed.label_parties)  # the class names, to and from each label holder


def test_the_coordinator_cannot_read_the_total_of_the_scores():
    """The sum of the masked vectors is not the total: a cover lies on it that only the label holder takes off."""
    X, y = cancer(60, 9)
    fed = grid_of(X, y)
    fed._link.transport = Recording(fed._link.transport)
    totals = []

    def note(run, turn):
        sites = fed._link.transport.sites
        totals.append(sites["rows1-columns1"].sessions[run._session][RoundState].labels.others)

    with pytest.warns(ConvergenceWarning):
        HyFDCA(rounds=2, callback=note).fit(fed)
    sent = []
    asked = [
        decode(data)["operation"]
        for s, r, data in fed._link.transport.log
        if s == "coordinator" and r == "rows1-columns2"
    ]
    replies = {
        name: [decode(d) for s, _, d in fed._link.transport.log if s == name]
        for name in ("rows1-columns2", "rows1-columns3")
    }
    for number, operation in enumerate(asked):
        if operation.endswith(".step_and_score"):
            sent.append(sum(replies[name][number]["ok"] for name in ("rows1-columns2", "rows1-columns3")))
    change = totals[1] - totals[0]
    assert np.abs(change.view(np.int64)).max() < 2 ** (SCORE_BITS + 8)
    assert not (sent[1] == change).any()
    assert np.abs(sent[1].view(np.int64).astype(float)).mean() > 2.0**60  # uniform in the ring


def test_masks_are_used_once_and_hide_what_they_cover():
    sites = {name: Site(name, fs.Table.read(pd.DataFrame({"x": [1.0, 2.0]}), id=None, name=name)) for name in "abc"}
    from fedsift.core.transports.inprocess import InProcess

    fed = fs.Federation(InProcess(sites), list("abc"), active="a")
    with fed.session() as run:
        Groups(run, {"all": list("abc")})
        parties = {name: Party(site, "", site.sessions[run._session]) for name, site in sites.items()}
        values = {name: np.array([[0.5, -3.25], [1e9, number]]) for number, name in enumerate("abc")}
        vectors = {
            name: hide(parties[name], to_words(value), "test", 7, list("abc"), "all") for name, value in values.items()
        }
        total = add_up(vectors, "test")
        for name in "abc":
            read = from_words(uncover(parties[name], total, "test", 7, "all", total.shape), (2, 2))
            np.testing.assert_allclose(read, sum(values.values()), rtol=1e-15)
            assert not (vectors[name] == to_words(values[name])).any()
        assert not (total == to_words(sum(values.values()))).any()
        for again in (7, 3):
            with pytest.raises(SecurityError, match="was used before"):
                hide(parties["a"], total, "test", again, list("abc"), "all")
        for fewer in (["a"], ["a", "b"]):  # what the coordinator reads leaves nobody out
            with pytest.raises(SecurityError, match="all who have met"):
                hide(parties["a"], total, "test", 8, fewer, None)
        with pytest.raises(SecurityError, match="no secret"):
            cover_for(parties["a"], total, "other", 8, "stranger")


def test_no_state_stays_behind_at_the_parties():
    X, y = cancer(60, 6)
    fed = fs.Federation.split(X, y, parties=2)
    HyFDCA(tol=0.5).fit(fed)
    assert all(site.sessions == {} for site in fed._link.transport.sites.values())


@pytest.mark.parametrize(
    ("operation", "party"),
    [
        ("step_and_score", "rows1-columns2"), ("raise_duals", "rows1-columns1"), ("scale_columns", "rows1-columns3"),
        ("finish_round", "rows2-columns2"), ("describe_part", "rows1-columns2"), ("offer_key", "rows1-columns3"),
        ("draw_secrets", "rows1-columns1"), ("open_columns", "party2"), ("hide_columns", "party3"),
        ("share_scores", "party2"), ("open_residuals", "party1"),
    ],
)  # fmt: skip
def test_garbage_from_a_party_is_refused(operation, party):
    X, y = cancer(60, 9)
    for nonsense in (None, 3.5, {"scores": np.ones(3)}, _wrong_shapes):
        fed = fs.Federation.split(X, y, parties=3) if party.startswith("party") else grid_of(X, y)
        inner = fed._link.transport
        asked = {"now": False}

        class Listening(Faulty):
            def exchange(self, requests, timeout):
                asked["now"] = self.party in requests and decode(requests[self.party])["operation"].endswith(operation)  # noqa: B023
                return super().exchange(requests, timeout)

        def replace(delivery, nonsense=nonsense, asked=asked):
            if not asked["now"]:
                return delivery
            value = decode(delivery.data)["ok"]
            return Delivery(encode({"ok": nonsense(value) if callable(nonsense) else nonsense}), 0.0)

        fed._link.transport = Listening(inner, party, replace)
        with pytest.raises(ReplyError, match=party):
            HyFDCA(rounds=3).fit(fed)


def _wrong_shapes(value):
    """The same reply with every array one element short (and sealed boxes or keys left out)."""
    if isinstance(value, dict):
        return {key: _wrong_shapes(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return value.ravel()[:-1]
    return "x" if isinstance(value, (int, bool)) else (b"short" if isinstance(value, bytes) else None)
