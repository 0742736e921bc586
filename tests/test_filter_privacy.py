"""The epsilon of the filters: sensitivities hold, the loss measured from below stays below, scores are not biased."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy import loss_from_below
from sklearn.feature_selection import f_classif

import fedsift as fs
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.crypto.dp import rho_to_epsilon, whole_gaussian_noise
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores import counting, label_tables, noise, paid_bins
from fedsift.mpc.column_scores.counting import TableSettings
from fedsift.mpc.column_scores.gini import gini_impurities
from fedsift.mpc.column_scores.label_tables import ColumnTables
from fedsift.mpc.column_scores.noise import TableNoise, rank_classes, rho_of
from fedsift.mpc.column_scores.noisy_f import f_of_tables
from fedsift.select.filters.information_value import information_value


class FixedLot:
    """Ties by the same lot in two tables: the coupling under which neighbours are compared."""

    def __init__(self, *_):
        self.generator = np.random.Generator(np.random.PCG64(7))

    def permutation(self, rows):
        return self.generator.permutation(rows)


def party_of(frame: pd.DataFrame) -> Party:
    return Party(Site("shop", Table.read(frame, id=None, name="shop")), "")


cells = st.one_of(st.none(), st.integers(-2, 2).map(float), st.floats(-5, 5), st.sampled_from([1e300, -1e300, 1e-300]))
words = st.sampled_from(["a", "b", "c"])


def exact_ranges(frame: pd.DataFrame, n_bins: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ranges that a search without noise would look at, all levels together, of each column."""
    seen = []
    for column in frame:
        found = paid_bins._Column.of(party_of(frame), column)
        begins, ends = [found.begins], [found.ends]
        found.counts = found.exact(found.begins, found.ends).astype(float)
        for _ in range(paid_bins.LEVELS):
            which = found.to_cut(1)
            if len(which):
                parts = paid_bins._parts(found.begins[which], found.ends[which])
                begins.append(parts[0].ravel())
                ends.append(parts[1].ravel())
                found.cut(which, found.exact(*parts).astype(float), 1)
        seen.append((np.concatenate(begins), np.concatenate(ends)))
    return seen


@given(st.data(), st.integers(6, 30), st.sampled_from([2, 4]))
@settings(max_examples=30, deadline=None)
def test_a_replaced_row_moves_counts_and_tables_no_further_than_stated(data, rows, classes):
    numbers = data.draw(st.lists(cells, min_size=rows, max_size=rows))
    names = data.draw(st.lists(words, min_size=rows, max_size=rows))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    frame = pd.DataFrame({"x": pd.Series(numbers, dtype=float), "w": pd.Series(names, dtype=object)})
    other, others = frame.copy(), labels.copy()
    row = data.draw(st.integers(0, rows - 1))
    other.loc[row, "x"], other.loc[row, "w"] = data.draw(cells), data.draw(words)
    others[row] = data.draw(st.integers(0, classes - 1))
    for number, column in enumerate("xw"):
        before, after = (paid_bins._Column.of(party_of(each), column) for each in (frame, other))
        begins, ends = exact_ranges(frame, 4)[number]
        moved = after.exact(begins, ends) - before.exact(begins, ends)
        levels = 1 + (paid_bins.LEVELS if column == "x" else 0)
        assert (moved**2).sum() <= 2 * levels  # at most two disjoint ranges of each level
        edges = np.sort(data.draw(st.lists(st.integers(0, 2 * paid_bins._ZERO), min_size=1, max_size=6)))
        codes = [np.searchsorted(edges, each.places, side="right") for each in (before, after)]
        for told in (labels, others):
            moved = table(codes[1], told, 7, classes) - table(codes[0], labels, 7, classes)
            assert (moved**2).sum() <= 2
        moved = table(codes[0], others, 7, classes) - table(codes[0], labels, 7, classes)
        assert (moved**2).sum() <= 2


@given(st.data(), st.integers(6, 30), st.sampled_from([2, 5]))
@settings(max_examples=60, deadline=None)
def test_a_replaced_target_moves_classes_of_ranks_no_further_than_stated(data, rows, classes):
    target = np.array(data.draw(st.lists(st.integers(-3, 3).map(float), min_size=rows, max_size=rows)))
    codes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)))
    other, others = target.copy(), codes.copy()
    row = data.draw(st.integers(0, rows - 1))
    other[row], others[row] = data.draw(st.floats(-5, 5)), data.draw(st.integers(0, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise.np.random, "default_rng", FixedLot)
        before, after = rank_classes(target, classes), rank_classes(other, classes)
    for told in (codes, others):
        moved = table(told, after, 4, classes) - table(codes, before, 4, classes)
        assert (moved**2).sum() <= 2 * classes


def table(codes, labels, bins, classes):
    return np.bincount(codes * classes + labels, minlength=bins * classes).reshape(bins, classes)


def test_scales_spend_rho_and_no_more():
    rho = rho_of(1.0, 1e-6)
    assert 0.99 < rho_to_epsilon(rho, 1e-6) <= 1.0
    tables = TableNoise(rho)
    assert 2 * 7 / (2 * tables.party_scale(7) ** 2) + tables.edges_rho == pytest.approx(rho)
    assert 2 * 14 / (2 * tables.holder_scale(14) ** 2) + tables.edges_rho == pytest.approx(rho)
    assert 2 * 5 * 14 / (2 * TableNoise(rho, 5).holder_scale(14) ** 2) + tables.edges_rho == pytest.approx(rho)


def test_the_search_for_edges_spends_what_it_was_given(monkeypatch):
    """Each draw of noise is for disjoint counts of one column: 1 / scale^2 of rho, in all columns and levels."""
    spent = []
    monkeypatch.setattr(paid_bins, "whole_gaussian_noise", lambda shape, scale: spent.append(scale) or np.zeros(shape))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=400), "z": rng.integers(0, 9, 400) * 1.0, "w": rng.choice(list("ab"), 400)}
    )
    paid_bins.paid_bins(party_of(frame), 4, 0.8, 1)
    assert 0.5 < sum(1 / scale**2 for scale in spent) <= 0.8 + 1e-12


def test_bins_that_are_paid_for_see_heavy_values_and_categories():
    rng = np.random.default_rng(0)
    rows = 20_000
    x = np.where(rng.random(rows) < 0.9, 0.0, rng.lognormal(8, 1, rows))
    word = rng.choice(list("abcd"), rows, p=[0.5, 0.3, 0.15, 0.05])
    gap = np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows))
    codes, counts = paid_bins.paid_bins(party_of(pd.DataFrame({"x": x, "w": word, "g": gap})), 10, 1.0, 50)
    assert len(set(codes[x == 0, 0])) == 1
    assert not set(codes[x == 0, 0]) & set(codes[x > 500, 0])
    assert len({tuple(set(codes[word == each, 1])) for each in "abcd"}) == 4
    assert set(codes[np.isnan(gap), 2]) == {counts[2] - 1}
    assert not (codes[~np.isnan(gap), 2] == counts[2] - 1).any()
    sizes = np.bincount(codes[~np.isnan(gap), 2])
    assert len(sizes) >= 8
    assert sizes.min() > 0.4 * sizes.mean()


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_places_keep_the_order_of_numbers(values):
    ordered = np.sort(np.array(values))
    at = paid_bins.places(ordered)
    assert (np.diff(at) >= 0).all()
    assert at.min() >= 0
    assert at.max() <= 2 * paid_bins._ZERO


def test_few_rows_have_one_bin_and_no_error():
    for values in (np.zeros(5), np.full(5, np.nan), np.arange(5.0)):
        codes, counts = paid_bins.paid_bins(party_of(pd.DataFrame({"x": values})), 4, 1e-3, 10)
        assert counts[0] >= 1
        assert codes.max() < counts[0]


# --- the loss, from below ---------------------------------------------------------------------------------------------


def neighbours(rows: int = 20) -> tuple[list[pd.DataFrame], list[np.ndarray]]:
    """The passive party's row moved from one end to the other; the label of the first row changed."""
    x = np.arange(rows, dtype=float)
    y = np.arange(rows) % 2
    far = x.copy()
    far[0] = rows + 1.0
    frames = [pd.DataFrame({"own": 0.0 * x, "x": each}) for each in (x, far)]
    return frames, [y, np.where(np.arange(rows) == 0, 1 - y, y)]


def releases(kind: str, frame: pd.DataFrame, y: np.ndarray, draws: int, rho: float = 0.0) -> np.ndarray:
    """What leaves of the passive party's one column, beside one column of the label holder's, by the code that makes
    it; that the conversation opens just this is the next test. ``edges``: the counts that bins are made of."""
    rho = rho or rho_of(1.0, 1e-6)
    party = party_of(frame[["x"]])
    if kind == "edges":
        column = paid_bins._Column.of(party, "x")
        values = np.tile(column.exact(column.begins, column.ends), (draws, 1))
        return values + noise.drawn(values.shape, float(np.sqrt(2 / TableNoise(rho).edges_rho)))
    codes = np.searchsorted([5.0, 10.0, 15.0], frame["x"].to_numpy(), side="right")
    values = np.tile(table(codes, y, 4, 2).ravel().astype(float), (draws, 1))
    made = TableNoise(rho)
    scales = made.party_scale(1), made.holder_scale(2)
    return values + sum(noise.drawn((values.size, 1), scale).reshape(values.shape) for scale in scales)


@pytest.mark.parametrize("kind", ["tables", "edges"])
@pytest.mark.parametrize("whose", ["values", "label"])
def test_the_loss_measured_from_below_is_below_epsilon(kind, whose):
    frames, labels = neighbours()
    pairs = [(frames[0], labels[0]), (frames[1], labels[0]) if whose == "values" else (frames[0], labels[1])]
    first, second = (releases(kind, *pair, draws=2_000) for pair in pairs)
    assert loss_from_below(first, second) <= 1.0


@pytest.mark.parametrize("kind", ["tables", "edges"])
def test_the_same_measure_finds_noise_that_is_too_small(kind):
    frames, labels = neighbours()
    rho = {"edges": 4096}.get(kind, 256) * rho_of(1.0, 1e-6)
    first, second = (releases(kind, frame, labels[0], draws=2_000, rho=rho) for frame in frames)
    assert loss_from_below(first, second) > 1.0


def tables_of(fed: fs.Federation, **changed) -> dict[str, ColumnTables]:
    selector = fs.InformationValue(**{"n_bins": 4, "min_cell": 1, "epsilon": 1.0, **changed})
    settings = TableSettings(selector.n_bins, selector.min_cell, selector.epsilon, selector.delta)
    with fed.session(*selector.announcement()) as run:
        return label_tables.label_tables(run, settings, "auto")


@pytest.fixture
def two_bins(monkeypatch):
    """Bins that need no search: what is left of the noise is that of the tables."""

    def halves(party: Party, *_):
        codes = (np.arange(party.n_rows)[:, None] % 2).repeat(len(party.columns), axis=1)
        return codes, [2] * len(party.columns)

    for module in (counting, label_tables):  # a party's, and the label holder's
        monkeypatch.setattr(module, "bins_of", halves)


def test_the_conversation_opens_exact_counts_and_the_noise_of_both_sides(two_bins):
    frames, labels = neighbours()
    frame = pd.concat([frames[0]["x"].rename(f"x{number}") for number in range(8)], axis=1)  # four columns each
    fed = fs.Federation.split(frame, labels[0], parties=["bank", "shop"])
    found = [tables_of(fed) for _ in range(25)]
    made = TableNoise(rho_of(1.0, 1e-6))
    variance = made.party_scale(4) ** 2 + made.holder_scale(8) ** 2
    assert found[0]["shop"].variance == pytest.approx(variance)
    cells = np.array([each["shop"].cells for each in found])
    assert cells.size == 400
    # The mean of 400 squares lies half too high once in 10^8 (chi-squared), half too low never; the total of a column's
    # four cells, as a mean over 25 runs and 4 columns, seven deviations off once in 10^11.
    assert cells.var() == pytest.approx(variance, rel=0.5)
    assert abs(cells.sum() / 100 - len(frame)) < 7 * np.sqrt(4 * variance / 100)


def test_large_epsilon_opens_the_tables_of_the_bins(two_bins):
    for classes in (2, 3, 7):
        X, y = mixed_table(70, seed=classes, classes=classes)
        fed = fs.Federation.split(X[["signal", "noise"]], y, parties=["bank", "shop"])
        order = np.unique(y, return_inverse=True)[1]
        found = tables_of(fed, epsilon=1e12)
        rows = {name: site.table for name, site in fed.simulated.items()}
        for name in ("bank", "shop"):
            assert sorted(found[name].cells.sum(axis=0)) == sorted(np.bincount(order))
            assert len(rows[name].ids) == found[name].cells.sum()


@pytest.mark.parametrize("who", ["bank", "shop"])
def test_each_side_adds_full_noise_by_itself(monkeypatch, two_bins, who):
    """Whoever takes its own noise off is left with the other's: either alone has the scale of its guarantee."""
    frames, labels = neighbours()
    fed = fs.Federation.split(frames[0], labels[0], parties=["bank", "shop"])
    scales = []

    def spy(shape, scale):
        scales.append(scale)
        return whole_gaussian_noise(shape, scale)

    monkeypatch.setattr(noise, "whole_gaussian_noise", spy)
    monkeypatch.setattr("fedsift.mpc.two_halves.whole_gaussian_noise", spy)
    tables_of(fed)
    made = TableNoise(rho_of(1.0, 1e-6))
    expected = {"shop": [made.party_scale(1)], "bank": [made.holder_scale(2)] * 2}[who]
    assert [scale for scale in scales if scale == pytest.approx(expected[0])] == pytest.approx(expected)
    assert len(scales) == 3  # shop's on its own table, bank's on shop's and on its own


# --- what the noise leaves of the scores ------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_corrected_scores_are_not_biased(classes):
    rng = np.random.default_rng(0)
    counts = np.array([300.0, 420, 510, 600, 700])
    exact = np.column_stack([counts, *[(1000 - counts) / (classes - 1)] * (classes - 1)])
    totals, sigma = exact.sum(axis=0), 40.0
    values: dict[str, list[float]] = {"gini": [], "iv": [], "raw gini": [], "raw iv": []}
    for _ in range(3_000):
        cells = exact + rng.normal(0, sigma, exact.shape)
        for name, variance in (("", sigma**2), ("raw ", 0.0)):
            values[name + "gini"].append(gini_impurities(ColumnTables(cells, np.array([5]), variance))[0])
            values[name + "iv"].append(information_value(cells, totals, variance))
    truth = {
        "gini": gini_impurities(ColumnTables(exact, np.array([5]), 0.0))[0],
        "iv": information_value(exact, totals),
    }
    for name, expected in truth.items():
        error, raw = abs(np.mean(values[name]) - expected), abs(np.mean(values["raw " + name]) - expected)
        assert error < 0.2 * raw, name


@pytest.mark.parametrize("classes", [2, 3])
def test_f_of_tables_is_that_of_values_where_bins_are_values_and_is_not_biased_by_noise(classes):
    rng = np.random.default_rng(0)
    rows, sigma = 20_000, 40.0
    y = rng.integers(0, classes, rows)
    x = np.clip(rng.integers(0, 6, rows) + (rng.random(rows) < 0.3) * y, 0, 6).astype(float)
    exact, sizes = table(x.astype(int), y, 7, classes).astype(float), np.bincount(y).astype(float)
    truth = f_classif(x[:, None], y)[0][0]
    places = (np.arange(7) - x.mean()) / x.std()
    found = f_of_tables(ColumnTables(exact, np.array([7]), 0.0), places, sizes, 1)[0]
    assert found == pytest.approx(truth, rel=1e-9)
    indicators = max(f_classif((x == value)[:, None] * 1.0, y)[0][0] for value in range(7))
    found = f_of_tables(ColumnTables(exact, np.array([7]), 0.0), np.full(7, np.nan), sizes, 1)[0]
    assert found == pytest.approx(indicators, rel=1e-9)
    noisy = [
        f_of_tables(
            ColumnTables(exact + rng.normal(0, sigma, exact.shape), np.array([7]), sigma**2), places, sizes, 100
        )[0]
        for _ in range(400)
    ]
    assert np.mean(noisy) == pytest.approx(truth, rel=0.05)


def test_places_of_bins_are_the_values_where_these_are_few():
    rng = np.random.default_rng(0)
    values = rng.choice([-3.0, 0.0, 1.0, 2.5, 40.0], 20_000)
    column = paid_bins.searched(party_of(pd.DataFrame({"x": values, "w": np.where(values > 0, "a", "b")})), 10, 100.0)
    codes, count = column[0].codes(10, 50)
    stand = column[0].stands(10, 50)
    assert (count, len(stand)) == (5, 5)
    np.testing.assert_allclose(stand[codes], (values - values.mean()) / values.std(), atol=0.01)
    assert np.isnan(column[1].stands(10, 50)).all()


def test_what_could_not_be_searched_stands_near_the_rest():
    """A few rows far out: their range is wide, its middle lies anywhere."""
    values = np.concatenate([np.tile(np.arange(8.0), 1_000), [1e9]])
    column = paid_bins.searched(party_of(pd.DataFrame({"x": values})), 8, 1.0)[0]
    assert np.abs(column.stands(8, 50)).max() < 3


@pytest.mark.parametrize("selector", [fs.InformationValue, fs.GiniFilter, fs.SFFS])
def test_with_many_rows_noise_changes_little(selector):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4_000)
    X = pd.DataFrame({f"x{i}": rng.normal(size=4_000) + (i < 3) * (3 - i) * 0.4 * y for i in range(8)})
    fed = fs.Federation.split(X, y, parties=2)
    kept = selector(n_features=3, epsilon=2.0).fit(fed).selected_
    assert sorted(column for columns in kept.values() for column in columns) == ["x0", "x1", "x2"]


def test_a_heavy_value_and_shuffled_names_are_found_under_noise():
    """Ranks with ties by lot hid both: a tenth of one bin, and neighbours in the alphabet."""
    rng = np.random.default_rng(0)
    rows = 8_000
    y = (rng.random(rows) < 0.3).astype(int)
    heavy = np.where(rng.random(rows) < np.where(y, 0.15, 0.01), rng.lognormal(8, 1, rows), 0.0)
    names = np.array(list("qcxeamzk"))[np.clip(rng.integers(0, 6, rows) + 2 * y, 0, 7)]
    noisy = {f"n{i}": rng.normal(size=rows) for i in range(6)}
    X = pd.DataFrame({"heavy": heavy, "name": names, **noisy})
    for selector in (fs.InformationValue, fs.GiniFilter, fs.SFFS):
        kept = selector(n_features=2, epsilon=1.0).fit(fs.Federation.split(X, y, parties=2)).selected_
        assert sorted(column for columns in kept.values() for column in columns) == ["heavy", "name"]


def test_a_regression_target_has_a_guarantee():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"x{i}": rng.normal(size=3_000) for i in range(4)})
    fed = fs.Federation.split(X, 3 * X["x3"] + rng.normal(size=3_000), parties=2)
    assert fs.InformationValue(n_features=1, epsilon=5.0).fit(fed).selected_["party2"] == ["x3"]
    assert fs.SFFS(n_features=1, epsilon=5.0).fit(fed).selected_["party2"] == ["x3"]


@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"epsilon": -1.0}, {"epsilon": "1"}, {"epsilon": 1.0, "delta": 0.0}])
def test_bad_budgets_are_quoted(bad, small_fed):
    with pytest.raises(ParameterError, match=r"epsilon|delta"):
        fs.InformationValue(**bad).fit(small_fed)


def test_two_runs_draw_new_noise(small_fed):
    runs = [fs.InformationValue(epsilon=100.0).fit(small_fed).scores_["score"].tolist() for _ in range(2)]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("selector", [fs.InformationValue, fs.GiniFilter, fs.SFFS, fs.Muse])
def test_a_run_says_how_many_columns_the_noise_has_hidden(selector):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 4))).add_prefix("x")
    fed = fs.Federation.split(frame, (frame["x0"] > 0).astype(int), parties=["bank", "shop"])
    for epsilon, hidden in ((0.05, True), (1e4, False)):
        notes = selector(n_features=2, epsilon=epsilon).fit(fed).ledger_.notes
        assert any(note.startswith("noise: 4 of 4 columns show one bin only") for note in notes) == hidden
