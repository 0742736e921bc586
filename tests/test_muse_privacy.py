"""MUSE with epsilon: what a replaced row moves, what a run spends, the loss from below, and what is left of scores."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy import loss_from_below
from sklearn.metrics import mutual_info_score

import fedsift as fs
from fedsift.core.message import decode, encode
from fedsift.crypto.dp import rho_to_epsilon, whole_gaussian_noise
from fedsift.errors import OperationRefused, ParameterError
from fedsift.mpc import two_halves
from fedsift.mpc.column_scores import noise, paid_bins
from fedsift.mpc.column_scores.noise import rho_of
from fedsift.mpc.pairs import meet_all
from fedsift.select.muse import noisy_tables
from fedsift.select.muse.counted import Counted
from fedsift.select.muse.noisy_tables import NoisyTables, encrypt_bins, masked_tables, open_tables
from fedsift.select.muse.spending import EDGES_SHARE, Spending


def related(rows: int = 3_000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """One good column, its copy at the other party, two weaker ones, and noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    good = rng.normal(size=rows) + 1.2 * y
    columns = {"good": good, "weak": rng.normal(size=rows) + 0.6 * y, "n0": rng.normal(size=rows)}
    columns |= {"copy": good + 0.05 * rng.normal(size=rows), "other": rng.normal(size=rows) + 0.8 * y}
    return pd.DataFrame({**columns, "n1": rng.normal(size=rows)}), y


def parts(**changed) -> dict:
    return {"n_features": 3, "n_bins": 6, "epsilon": 1.0, **changed}


# --- what a replaced row moves, and what a run spends -----------------------------------------------------------------


@given(st.data(), st.integers(4, 25))
@settings(max_examples=60, deadline=None)
def test_a_replaced_row_moves_a_joint_table_by_two_cells_at_most(data, rows):
    codes = st.lists(st.integers(0, 3), min_size=rows, max_size=rows).map(np.array)
    first, second = data.draw(codes), data.draw(codes)
    row, value = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, 3))
    moved = np.where(np.arange(rows) == row, value, first)

    def joint(left, right):
        return np.bincount(left * 4 + right, minlength=16)

    assert ((joint(moved, second) - joint(first, second)) ** 2).sum() <= 2
    inside = joint(moved, np.where(np.arange(rows) == row, value, second)) - joint(first, second)
    assert (inside**2).sum() <= 2  # both columns of the same party


def test_a_run_spends_what_it_was_given_at_every_party(monkeypatch):
    """rho of what is asked in each step, by the party whose rows it is about; that noise has these scales: below."""
    spent: dict[str, float] = {"bank": 0.0, "shop": 0.0}
    tables: dict[str, int] = {}
    X, y = related(400)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    spending = Spending.of(fs.Muse(**parts()).get_params())
    asked = fs.Federation.ask

    def ask(self, marked, **given):
        if marked is masked_tables:
            for name, told in given["each"].items():
                scale = spending.noise(given["step"]).party_scale(len(told["columns"]))
                spent[name] += len(told["columns"]) / scale**2
        if marked is encrypt_bins:
            tables["home"], tables["step"] = given["to"], given["step"]
        if marked is open_tables:
            total = sum(shape[0] for shape in given["told"].shapes.values()) + len(given["columns"])
            spent[tables["home"]] += total / spending.noise(tables["step"]).holder_scale(total) ** 2
        return asked(self, marked, **given)

    monkeypatch.setattr(fs.Federation, "ask", ask)
    fs.Muse(**parts()).fit(fed)
    rho = rho_of(1.0, 1e-6)
    assert rho_to_epsilon(rho, 1e-6) <= 1.0
    for name, tables_rho in spent.items():
        assert 0.3 * rho < tables_rho + EDGES_SHARE * rho <= rho * (1 + 1e-9), name


def test_noise_is_drawn_at_the_scales_that_are_counted(monkeypatch):
    """Each side by itself: whoever takes its own noise off is left with the other's."""
    X, y = related(400)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    scales = []

    def spy(shape, scale):
        scales.append((tuple(np.atleast_1d(shape)), scale))
        return whole_gaussian_noise(shape, scale)

    monkeypatch.setattr(noise, "whole_gaussian_noise", spy)
    monkeypatch.setattr("fedsift.mpc.two_halves.whole_gaussian_noise", spy)
    fs.Muse(**parts(n_features=1)).fit(fed)
    first = Spending.of(parts(delta=1e-6)).noise(0)
    drawn = sorted(scale for _, scale in scales)
    assert drawn == pytest.approx(
        [first.party_scale(3)] + [first.holder_scale(6)] * 4
    )  # shop's; bank's: shop and own 3


# --- the loss, from below ---------------------------------------------------------------------------------------------


def released(left: np.ndarray, right: np.ndarray, draws: int, rho: float) -> np.ndarray:
    """One joint table of two columns of two parties, as the coordinator opens it."""
    exact = np.bincount(left * 4 + right, minlength=16)
    values = np.tile(exact, (draws, 1)).astype(float)
    made = Spending(rho, 4, 2).noise(1)
    return values + noise.drawn(values.shape, made.party_scale(1)) + noise.drawn(values.shape, made.holder_scale(1))


@pytest.mark.parametrize("times", [1, 4096])
def test_the_loss_of_a_joint_table_measured_from_below(times):
    left, right = np.arange(20) % 4, np.arange(20) // 5
    moved = np.where(np.arange(20) == 0, 3, left)
    rho = times * rho_of(1.0, 1e-6)
    first, second = (released(each, right, 1_000, rho) for each in (left, moved))
    assert (loss_from_below(first, second) <= 1.0) == (times == 1)


@given(st.integers(1, 60))
def test_all_steps_and_the_edges_cost_what_there_is(n_features):
    spending = Spending(1.0, 10, n_features)
    shares = [spending.noise(step).share for step in range(n_features)]
    assert min(shares) > 0
    assert sum(shares) + EDGES_SHARE <= 1 + 1e-9


def whole_run(codes: np.ndarray, draws: int, rho: float) -> np.ndarray:
    """All tables that a party of four columns takes part in, of three choices: a step's noise is for its tables."""
    spending = Spending(rho, 3, 3)
    label, found = np.arange(len(codes)) % 3, []
    for step, count in enumerate((4, 3, 2)):
        for i in range(count):
            exact = np.bincount(codes[:, i] * 3 + label, minlength=9)
            tables = np.tile(exact, (draws, 1)).astype(float)
            found.append(tables + noise.drawn(tables.shape, spending.noise(step).party_scale(count)))
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("times", [1, 100])
def test_the_loss_of_a_whole_run_measured_from_below(times):
    """By its own noise alone, as whoever adds the other side's sees it; a row is replaced in all columns at once."""
    codes = np.random.default_rng(0).integers(0, 3, (30, 4))
    moved = np.where(np.arange(30)[:, None] == 0, (codes + 1) % 3, codes)
    rho = times * rho_of(1.0, 1e-6)
    first, second = (whole_run(each, 1_000, rho) for each in (codes, moved))
    assert (loss_from_below(first, second) <= 1.0) == (times == 1)


def test_a_column_that_repeats_nothing_is_still_in_the_race():
    """Only the most relevant columns went on once: of three that are wanted six, and the weak one came seventh."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    strong = rng.normal(size=20_000) + 1.0 * y
    copies = {f"copy{i}": strong + 0.3 * rng.normal(size=20_000) for i in range(8)}
    X = pd.DataFrame({"weak": rng.choice(list("ab"), 20_000), "strong": strong, **copies})
    kept = fitted(fs.Federation.split(X, y, parties=2), n_features=2, epsilon=3.0).order_.feature.tolist()
    assert kept[1] == "weak"


# --- what is opened, and what is left of the scores -------------------------------------------------------------------


def fitted(fed: fs.Federation, **changed) -> fs.Muse:
    return fs.Muse(**parts(**changed)).fit(fed)


def test_large_epsilon_chooses_what_exact_tables_choose():
    X, y = related()
    for names in (["bank", "shop"], ["bank", "shop", "lab"]):
        fed = fs.Federation.split(X, y, parties=names)
        exact, noisy = fitted(fed, epsilon=None), fitted(fed, epsilon=1e9)
        assert noisy.order_.feature.tolist() == exact.order_.feature.tolist()
        np.testing.assert_allclose(noisy.order_.relevance, exact.order_.relevance, atol=0.01)


def test_with_many_rows_noise_leaves_the_choice():
    X, y = related(20_000)
    kept = fitted(fs.Federation.split(X, y, parties=2), epsilon=2.0).order_.feature.tolist()
    assert set(kept) == {kept[0], "other", "weak"}
    assert kept[0] in ("good", "copy")


@pytest.mark.parametrize("classes", [2, 3])
def test_tables_without_noise_are_those_of_the_bins(monkeypatch, classes):
    """Every cell, of either side and inside a party, against the codes that the parties keep."""
    monkeypatch.setattr("fedsift.mpc.two_halves.whole_gaussian_noise", lambda shape, scale: np.zeros(shape, np.int64))
    monkeypatch.setattr(noise, "whole_gaussian_noise", lambda shape, scale: np.zeros(shape, np.int64))
    monkeypatch.setattr(paid_bins, "whole_gaussian_noise", lambda shape, scale: np.zeros(shape, np.int64))
    X, y = related(500)
    y = y + (X["n0"].to_numpy() > 1) * (classes - 2)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    selector = fs.Muse(**parts(epsilon=1e4))
    with fed.session(*selector.announcement()) as run:
        tables = NoisyTables(run, parameters=selector.get_params())
        found = tables.with_label()
        chosen = tables._step_of("shop", 0, {"bank": np.array([0, 2]), "shop": np.array([1])})
        kept = {n: s.sessions[run._session][noisy_tables.NoisyBins] for n, s in fed.simulated.items()}
    label = kept["bank"].label.codes
    for name in ("bank", "shop"):
        for column, table in enumerate(found[name]):
            codes = kept[name].codes[:, column]
            assert np.array_equal(table.cells, pd.crosstab(codes, label).to_numpy())
    own = kept["shop"].codes[:, 0]
    for name, columns in (("bank", [0, 2]), ("shop", [1])):
        for column, table in zip(columns, chosen[name]):
            assert np.array_equal(table.cells, pd.crosstab(kept[name].codes[:, column], own).to_numpy())


def test_information_without_noise_is_mutual_information_less_its_bias():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 900)
    b = np.where(rng.random(900) < 0.6, a, rng.integers(0, 4, 900))
    table = Counted(pd.crosstab(a, b).to_numpy().astype(float), 0.0, 900)
    assert table.information() == pytest.approx(mutual_info_score(a, b) - 9 / 1800, abs=1e-9)
    share = np.bincount(a) / 900
    assert table.entropies()[0] == pytest.approx(-(share * np.log(share)).sum(), abs=1e-9)


@pytest.mark.parametrize("related_by", [0.0, 0.5])
def test_noise_does_not_bias_information(related_by):
    rng = np.random.default_rng(0)
    rows, sigma = 20_000, 60.0
    a = rng.integers(0, 5, rows)
    b = np.where(rng.random(rows) < related_by, a, rng.integers(0, 5, rows))
    exact = pd.crosstab(a, b).to_numpy().astype(float)
    truth = Counted(exact, 0.0, rows).information()
    noisy = [exact + rng.normal(0, sigma, exact.shape) for _ in range(400)]
    corrected = np.mean([Counted(each, sigma**2, rows).information() for each in noisy])
    raw = np.mean([Counted(each, 0.0, rows).information() for each in noisy])
    assert abs(corrected - truth) < 0.25 * abs(raw - truth)


@pytest.mark.parametrize("epsilon", [3.0, 10.0])
def test_what_a_few_rare_categories_share_is_read_too(epsilon):
    """All that two columns share lies in four rare cells: at epsilon 3 most of it was taken for noise once."""
    rng = np.random.default_rng(0)
    shares = np.outer(rng.dirichlet(np.full(12, 1.5)), [0.8, 0.12, 0.05, 0.03])
    shares[np.argsort(shares[:, 0])[:4], 3] *= 4
    exact = rng.multinomial(45_000, (shares / shares.sum()).ravel()).reshape(shares.shape).astype(float)
    truth = Counted(exact, 0.0, 45_000).information()
    noise_of = Spending(rho_of(epsilon, 1e-6), 10, 5).noise(2)
    variance = noise_of.holder_scale(16) ** 2 + noise_of.party_scale(8) ** 2
    noisy = [exact + rng.normal(0, variance**0.5, exact.shape) for _ in range(60)]
    read = np.mean([Counted(each, variance, 45_000).information() for each in noisy])
    assert 0.5 * truth < read < 1.2 * truth


# --- who learns what --------------------------------------------------------------------------------------------------


def test_no_party_gets_a_seed_of_masks_and_nothing_exact_is_asked():
    X, y = related(300)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    log = Recording(fed._link.transport)
    fed._link.transport = log
    fitted(fed)
    messages = [(sender, decode(data)) for sender, _, data in log.log]
    seeds = [
        m["ok"]["seed"]
        for s, m in messages
        if s != "coordinator" and isinstance(m.get("ok"), dict) and "seed" in m["ok"]
    ]
    requests = [m for s, m in messages if s == "coordinator"]
    assert seeds
    assert not [m for m in requests for seed in seeds if seed in encode(m)]
    asked = {m["operation"] for m in requests}
    assert not asked & {"muse.matched_codes", "muse.prepare_columns", "muse.own_information", "muse.correlate_ranks"}


def test_a_data_holder_may_run_the_coordinator_where_tables_carry_noise():
    X, y = related(300)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], coordinator="shop")
    assert sum(map(len, fitted(fed).selected_.values())) == 3
    with pytest.raises(ParameterError, match="'shop'"):
        fitted(fed, epsilon=None)


class Talk:
    """The steps one by one, so that a test can ask what the search would not."""

    def __init__(self, run: fs.Federation):
        self.run = run
        meet_all(run)
        run.ask(noisy_tables.pay_for_bins, to=run.parties, task="auto", columns=6)

    def encrypt(self, **changed):
        given = {"to": "bank", "scheme": "auto", "column": -1, "step": 0, "answers": 0, "weight_bits": 16, **changed}
        return self.run.ask(encrypt_bins, **given)


@pytest.fixture
def talk():
    X, y = related(300)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with fed.session(*fs.Muse(**parts()).announcement()) as run:
        yield Talk(run)


@pytest.mark.parametrize("step", [0, 3, 100])
def test_a_step_is_taken_part_in_once_and_there_are_no_more_than_columns(talk, step):
    talk.encrypt()
    with pytest.raises(OperationRefused, match="is over"):
        talk.encrypt(column=0, step=step)


@pytest.mark.parametrize(("column", "step"), [(-1, 1), (0, 0), (9, 1)])
def test_the_label_is_counted_in_the_first_step_only(talk, column, step):
    with pytest.raises(OperationRefused, match="is none of step"):
        talk.encrypt(column=column, step=step)


def test_own_tables_get_their_noise_once(talk):
    """Asked again and again, the mean of the answers would be the exact table."""
    talk.encrypt()
    nothing = {"told": {"sums": {}, "notes": {}, "shapes": {}}}
    talk.run.ask(open_tables, to="bank", **nothing, columns=[0])
    with pytest.raises(OperationRefused):
        talk.run.ask(open_tables, to="bank", **nothing, columns=[0])


def test_a_party_is_not_both_sides_of_a_step(talk):
    told = talk.encrypt()
    with pytest.raises(OperationRefused, match="is over"):
        talk.run.ask(masked_tables, to="bank", given=told.each("bank", ["shop"])["shop"]["given"], step=0, columns=[0])


@pytest.mark.parametrize("columns", [[-1], [7]])
def test_columns_that_a_party_has_not_are_refused(talk, columns):
    told = talk.encrypt()
    with pytest.raises(OperationRefused):
        talk.run.ask(masked_tables, to="shop", each=told.each("bank", ["shop"]), step=0, columns=columns)


# --- the twin of the benchmark ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_features", [1, 4])
def test_the_benchmark_measures_what_a_run_chooses(monkeypatch, n_features):
    """Without their noise, with bins, scales and corrections as they are: the same columns in the same order."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    epsilon = importlib.import_module("epsilon")

    def nothing(shape, scale):
        return np.zeros(shape, dtype=np.int64)

    for module in (noise, paid_bins, two_halves):
        monkeypatch.setattr(module, "whole_gaussian_noise", nothing)
    X, y = related(3_000)
    data = epsilon.Data(X, y, list(X)[:3])
    run = fs.Muse(n_features=n_features, n_bins=epsilon.BINS, epsilon=3.0, delta=epsilon.DELTA)
    fitted = run.fit(epsilon.federation(data, "vertical"))
    assert fitted.order_["feature"].tolist() == epsilon.MuseTwin(data, n_features, 3.0).chosen()
    sys.modules.pop("epsilon")
