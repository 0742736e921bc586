"""The epsilon of the filters: sensitivities hold, the loss measured from below stays below, scores are not biased."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

import fedsift as fs
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.crypto.dp import rho_to_epsilon, whole_gaussian_noise
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores import label_tables, noise
from fedsift.mpc.column_scores.gini import gini_impurities
from fedsift.mpc.column_scores.label_tables import ColumnTables
from fedsift.mpc.column_scores.noise import Noise, rank_bins, ranks
from fedsift.select.filters.information_value import information_value


class FixedLot:
    """Ties by the same lot in two tables: the coupling under which neighbours are compared."""

    def __init__(self, *_):
        self.generator = np.random.Generator(np.random.PCG64(7))

    def permutation(self, rows):
        return self.generator.permutation(rows)


def party_of(frame: pd.DataFrame) -> Party:
    return Party(Site("shop", Table.read(frame, id=None, name="shop")), "", {})


cells = st.one_of(st.none(), st.integers(-2, 2).map(float), st.floats(-5, 5))
words = st.sampled_from(["a", "b", "c"])


@given(st.data(), st.integers(6, 30), st.sampled_from([2, 3, 5]), st.sampled_from([2, 4]))
@settings(max_examples=60, deadline=None)
def test_a_replaced_row_moves_tables_and_rank_sums_no_further_than_stated(data, rows, bins, classes):
    numbers = data.draw(st.lists(cells, min_size=rows, max_size=rows))
    names = data.draw(st.lists(words, min_size=rows, max_size=rows))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    frame = pd.DataFrame({"x": pd.Series(numbers, dtype=float), "w": pd.Series(names, dtype=object)})
    other, others = frame.copy(), labels.copy()
    row = data.draw(st.integers(0, rows - 1))
    other.loc[row, "x"], other.loc[row, "w"] = data.draw(cells), data.draw(words)
    others[row] = data.draw(st.integers(0, classes - 1))
    counted = 1 if classes == 2 else 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise.np.random, "default_rng", FixedLot)
        codes = [rank_bins(party_of(each), bins)[0] for each in (frame, other)]
        values = [2 * ranks(party_of(each)) - (rows - 1) for each in (frame, other)]
    for column in range(2):
        for before, after, squared in ((labels, others, bins), (labels, labels, bins)):
            moved = table(codes[1][:, column], after, bins, classes) - table(codes[0][:, column], before, bins, classes)
            assert (moved**2).sum() <= counted * squared
        moved = table(codes[0][:, column], others, bins, classes) - table(codes[0][:, column], labels, bins, classes)
        assert (moved**2).sum() <= counted
        for before, after, first, squared in ((labels, others, 0, 4), (labels, labels, 0, 4), (labels, others, 1, 1)):
            moved = sums(values[1][:, column], after, classes) - sums(values[first][:, column], before, classes)
            assert (moved**2).sum() <= counted * squared * rows**2


def table(codes, labels, bins, classes):
    counts = np.bincount(codes * classes + labels, minlength=bins * classes).reshape(bins, classes)
    return counts[:, :-1]


def sums(values, labels, classes):
    return np.array([values[labels == k].sum() for k in range(classes - 1)])


def test_bins_of_ranks_are_equally_full_whatever_the_values_are():
    for values in (np.zeros(23), np.r_[np.zeros(20), 1, 2, 3], np.full(23, np.nan), np.arange(23.0)):
        codes, counts = rank_bins(party_of(pd.DataFrame({"x": values})), 4)
        assert counts == [4]
        assert np.bincount(codes[:, 0]).tolist() == noise.bin_sizes(23, 4).tolist()


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("bins", [0, 8])
def test_scales_spend_rho_and_no_more(bins, classes):
    made = Noise(1.0, 1e-6, 1_000, classes, bins)
    assert rho_to_epsilon(made.rho, 1e-6) <= 1.0
    counted = 1 if classes == 2 else 2
    row, label = (counted * bins, counted) if bins else (counted * 4e6, counted * 1e6)
    assert 7 * row / (2 * made.party_scale(7) ** 2) == pytest.approx(made.rho)
    spent = (3 * row + 11 * label) / (2 * made.holder_scale(3, 11) ** 2)
    if not bins:
        spent += counted / (2 * made.sizes_scale() ** 2)
    assert spent == pytest.approx(made.rho)


# --- the loss, from below ---------------------------------------------------------------------------------------------


def loss_from_below(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """A lower bound on epsilon at 95 % (Clopper and Pearson), from draws of a release on two neighbouring tables:
    direction and threshold from one half of the draws, counted on the other."""
    half = len(first) // 2
    direction = second[:half].mean(axis=0) - first[:half].mean(axis=0)
    one, other = first @ direction, second @ direction
    best, event = 0.0, None
    for threshold, sign in product(np.quantile(np.r_[one[:half], other[:half]], np.linspace(0.01, 0.99, 99)), (1, -1)):
        for likely, rare in ((one, other), (other, one)):
            found = bound(likely[:half], rare[:half], threshold, sign, delta)
            if found > best:
                best, event = found, (likely[half:], rare[half:], threshold, sign)
    return bound(*event, delta) if event else 0.0


def bound(likely, rare, threshold, sign, delta):
    n = len(likely)
    hits, misses = int((sign * likely >= sign * threshold).sum()), int((sign * rare >= sign * threshold).sum())
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, misses + 1, n - misses) if misses < n else 1.0
    return max(0.0, math.log((low - delta) / high)) if low - delta > high else 0.0


def neighbours(rows: int = 20) -> tuple[list[pd.DataFrame], list[np.ndarray]]:
    """The passive party's row moved from one end to the other; the label of the first row changed."""
    x = np.arange(rows, dtype=float)
    y = np.arange(rows) % 2
    far = x.copy()
    far[0] = rows + 1.0
    frames = [pd.DataFrame({"own": 0.0 * x, "x": each}) for each in (x, far)]
    return frames, [y, np.where(np.arange(rows) == 0, 1 - y, y)]


def releases(kind: str, frame: pd.DataFrame, y: np.ndarray, draws: int, epsilon: float = 1.0) -> np.ndarray:
    """What the coordinator opens of the passive party's one column, beside one column of the label holder's, by the
    code that makes it; that the conversation opens just this is the next test."""
    party, made = party_of(frame[["x"]]), Noise(epsilon, 1e-6, len(y), 2, 4 if kind == "tables" else 0)
    exact = []
    for _ in range(draws):
        if kind == "tables":
            exact.append(table(rank_bins(party, 4)[0][:, 0], y, 4, 2)[:, 0])
        else:
            exact.append(sums(2 * ranks(party)[:, 0] - (len(y) - 1), y, 2))
    values = np.array(exact, dtype=float)
    scales = made.party_scale(1), made.holder_scale(1, 1)
    return values + sum(noise.drawn((values.size, 1), scale).reshape(values.shape) for scale in scales)


@pytest.mark.parametrize("kind", ["tables", "sums"])
@pytest.mark.parametrize("whose", ["values", "label"])
def test_the_loss_measured_from_below_is_below_epsilon(kind, whose):
    frames, labels = neighbours()
    pairs = [(frames[0], labels[0]), (frames[1], labels[0]) if whose == "values" else (frames[0], labels[1])]
    first, second = (releases(kind, *pair, draws=2_000) for pair in pairs)
    assert loss_from_below(first, second, 1e-6) <= 1.0


@pytest.mark.parametrize("kind", ["tables", "sums"])
def test_the_same_measure_finds_noise_that_is_too_small(monkeypatch, kind):
    monkeypatch.setattr(noise, "whole_gaussian_noise", lambda shape, scale: whole_gaussian_noise(shape, scale / 16))
    frames, labels = neighbours()
    first, second = (releases(kind, frame, labels[0], draws=2_000) for frame in frames)
    assert loss_from_below(first, second, 1e-6) > 1.0


def test_the_conversation_opens_exact_counts_and_the_noise_of_both_sides():
    frames, labels = neighbours()
    fed = fs.Federation.split(frames[0], labels[0], parties=["bank", "shop"])
    found = [label_tables.label_tables(fed, n_bins=4, min_cell=1, scheme="auto", epsilon=1.0) for _ in range(25)]
    made = Noise(1.0, 1e-6, 20, 2, 4)
    variance = made.party_scale(1) ** 2 + made.holder_scale(1, 1) ** 2
    exact = table(rank_bins(party_of(frames[0][["x"]]), 4)[0][:, 0], labels[0], 4, 2)
    errors = np.array([each["shop"].cells[:, :1] - exact for each in found])
    assert found[0]["shop"].variance == pytest.approx(variance)
    assert errors.var() == pytest.approx(variance, rel=0.5)
    assert abs(errors.mean()) < 4 * np.sqrt(variance / errors.size)


@pytest.mark.parametrize("who", ["bank", "shop"])
def test_each_side_adds_full_noise_by_itself(monkeypatch, who):
    """Whoever takes its own noise off is left with the other's: either alone has the scale of its guarantee."""
    frames, labels = neighbours()
    fed = fs.Federation.split(frames[0], labels[0], parties=["bank", "shop"])
    drawn = noise.drawn
    scales = {}

    def spy(shape, scale):
        scales.setdefault(shape, []).append(scale)
        return drawn(shape, scale)

    monkeypatch.setattr(label_tables, "drawn", spy)
    label_tables.label_tables(fed, n_bins=4, min_cell=1, scheme="auto", epsilon=1.0)
    made = Noise(1.0, 1e-6, 20, 2, 4)
    expected = made.party_scale(1) if who == "shop" else made.holder_scale(1, 1)
    assert any(scale == pytest.approx(expected) for scale in scales[(4, 1)])
    assert len(scales[(4, 1)]) == 3  # shop's on its own table, bank's on shop's and on its own


# --- what the noise leaves of the scores ------------------------------------------------------------------------------


def test_corrected_scores_are_not_biased():
    rng = np.random.default_rng(0)
    counts, totals = np.array([300.0, 420, 510, 600, 700]), np.array([2530.0, 2470])
    exact = np.column_stack([counts, 1000 - counts])
    sigma = 40.0
    values: dict[str, list[float]] = {"gini": [], "iv": [], "raw gini": [], "raw iv": []}
    for _ in range(3_000):
        noisy = counts + rng.normal(0, sigma, 5)
        cells = np.column_stack([noisy, 1000 - noisy])
        for name, variance in (("", sigma**2), ("raw ", 0.0)):
            values[name + "gini"].append(gini_impurities(ColumnTables(cells, np.array([5]), variance))[0])
            values[name + "iv"].append(information_value(cells, totals, variance))
    truth = {
        "gini": gini_impurities(ColumnTables(exact, np.array([5]), 0.0))[0],
        "iv": information_value(exact, totals),
    }
    for name, expected in truth.items():
        error, raw = abs(np.mean(values[name]) - expected), abs(np.mean(values["raw " + name]) - expected)
        assert error < 0.15 * raw, name


@pytest.mark.parametrize("selector", [fs.InformationValue, fs.GiniFilter, fs.SFFS])
def test_with_many_rows_noise_changes_little(selector):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4_000)
    X = pd.DataFrame({f"x{i}": rng.normal(size=4_000) + (i < 3) * (3 - i) * 0.4 * y for i in range(8)})
    fed = fs.Federation.split(X, y, parties=2)
    kept = selector(n_features=3, epsilon=2.0).fit(fed).selected_
    assert sorted(column for columns in kept.values() for column in columns) == ["x0", "x1", "x2"]


@pytest.mark.parametrize("selector", [fs.InformationValue, fs.GiniFilter, fs.SFFS])
def test_large_epsilon_gives_the_scores_of_the_ranks(selector):
    """Every layout and several classes: the noisy path opens what the exact one does."""
    for classes in (2, 3, 7):
        X, y = mixed_table(70, seed=classes, classes=classes)
        fed = fs.Federation.split(X[["signal", "noise"]], y, parties=2)
        first, second = (selector(n_features=1, epsilon=1e9).fit(fed).scores_.set_index("feature") for _ in range(2))
        np.testing.assert_allclose(first.score["signal"], second.score["signal"], rtol=0.05)


@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"epsilon": -1.0}, {"epsilon": "1"}, {"epsilon": 1.0, "delta": 0.0}])
def test_bad_budgets_are_quoted(bad, small_fed):
    with pytest.raises(ParameterError, match=r"epsilon|delta"):
        fs.InformationValue(**bad).fit(small_fed)


def test_two_runs_draw_new_noise(small_fed):
    runs = [fs.InformationValue(epsilon=1.0).fit(small_fed).scores_["score"].tolist() for _ in range(2)]
    assert runs[0] != runs[1]
