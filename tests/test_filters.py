"""The encrypted filters equal a plaintext computation on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import cached_key, mixed_table
from doubles import Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import slow_bins
from sklearn.feature_selection import f_classif

import fedsift as fs
from fedsift.core.message import decode, encode
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import DataError, ParameterError
from fedsift.mpc import encrypted_histogram as histogram

BINS, MIN_CELL = 4, 3


def oracle_bins(column: pd.Series) -> np.ndarray:
    """Bins in plain Python: a bin for missing values, small categories and few missing values merged."""
    if column.dtype == object or isinstance(column.dtype, (pd.StringDtype, pd.CategoricalDtype)):
        labels = column.astype(object).where(column.notna(), "missing!").tolist()
        names = [*sorted({v for v in labels if v != "missing!"}), "missing!"]
    else:
        values = column.astype(float).to_numpy()
        codes = np.full(len(values), len(values))
        codes[~np.isnan(values)] = slow_bins(values[~np.isnan(values)], BINS, MIN_CELL)
        labels = codes.tolist()
        names = sorted(set(labels))
    sizes = {name: labels.count(name) for name in names if labels.count(name)}
    names = [name for name in names if name in sizes]
    group = {name: [name] for name in names}
    while len(names) > 1 and min(sizes[n] for n in names) < MIN_CELL:
        small = min(names, key=lambda n: sizes[n])
        into = min((n for n in names if n != small), key=lambda n: sizes[n])
        sizes[into] += sizes.pop(small)
        group[into] += group.pop(small)
        names.remove(small)
    number = {old: i for i, name in enumerate(names) for old in group[name]}
    return np.array([number[label] for label in labels])


def oracle_iv(column: pd.Series, y: np.ndarray, correct: bool = True) -> float:
    """The textbook's value, less what chance adds: a degree of freedom a further bin."""
    bins = oracle_bins(column)
    if len(set(bins)) < 2:
        return 0.0
    total, classes = 0.0, np.unique(y)
    for k in classes if len(classes) > 2 else classes[:1]:
        iv = 0.0
        for b in set(bins):
            yes, no = ((y == k) & (bins == b)).sum() or 0.5, ((y != k) & (bins == b)).sum() or 0.5
            p, q = yes / (y == k).sum(), no / (y != k).sum()
            iv += (p - q) * np.log(p / q)
        if correct:
            iv -= (len(set(bins)) - 1) * (1 / (y == k).sum() + 1 / (y != k).sum())
        total += iv * (y == k).mean()
    return total / ((y == classes[0]).mean() if len(classes) == 2 else 1.0)


def oracle_gini(column: pd.Series, y: np.ndarray) -> float:
    bins = oracle_bins(column)
    return sum(
        (bins == b).mean() * (1 - sum(((y[bins == b] == k).mean()) ** 2 for k in np.unique(y))) for b in set(bins)
    )


def oracle_f(column: pd.Series, y: np.ndarray) -> float:
    if column.dtype == object or isinstance(column.dtype, (pd.StringDtype, pd.CategoricalDtype)):
        filled = column.astype(object).where(column.notna(), "missing!")
        table = np.column_stack([(filled == v).astype(float) for v in sorted(set(filled))])
    else:
        values = column.astype(float)
        table = values.fillna(values.mean() if values.notna().any() else 0.0).to_numpy()[:, None]
    varies = table.std(axis=0) > 1e-9
    with np.errstate(divide="ignore"):  # a column that separates the classes: infinite
        return float(f_classif(table[:, varies], y)[0].max()) if varies.any() else 0.0


ORACLES = {
    "iv": (fs.InformationValue(n_features=3, n_bins=BINS, min_cell=MIN_CELL), oracle_iv, lambda s: s),
    "textbook iv": (
        fs.InformationValue(n_features=3, n_bins=BINS, min_cell=MIN_CELL, bias_correction=False),
        lambda column, y: oracle_iv(column, y, correct=False),
        lambda s: s,
    ),
    "gini": (fs.GiniFilter(n_features=3, n_bins=BINS, min_cell=MIN_CELL), oracle_gini, lambda s: 1 - s),
    "sffs": (fs.SFFS(n_features=3), oracle_f, lambda s: s),
}


def check_against_oracle(name: str, X: pd.DataFrame, y: np.ndarray, parties: int = 2, **parameters) -> fs.Selector:
    selector, oracle, value_of = ORACLES[name]
    fitted = selector.__class__(**{**selector.get_params(), **parameters})
    fitted.fit(fs.Federation.split(X, y, parties=parties))
    for row in fitted.scores_.itertuples():
        expected = oracle(X[row.feature], np.asarray(y))
        if np.isinf(expected):  # fixed point ends somewhere
            assert row.score > 1e6
            continue
        assert value_of(row.score) == pytest.approx(expected, rel=1e-6, abs=1e-9), row.feature
    return fitted


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_scores_equal_the_plaintext_computation(name, classes):
    X, y = mixed_table(70, seed=classes, classes=classes)
    check_against_oracle(name, X, y.to_numpy(), parties=3)


cells = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-3, 3).map(float))
words = st.one_of(st.none(), st.sampled_from(["a", "b", "ü", "<c>"]))


@st.composite
def tables(draw):
    rows = draw(st.integers(8, 24))
    numbers = {f"x{j}": draw(st.lists(cells, min_size=rows, max_size=rows)) for j in range(draw(st.integers(1, 3)))}
    text = draw(st.lists(words, min_size=rows, max_size=rows))
    frame = pd.DataFrame({k: pd.Series(v, dtype=float) for k, v in numbers.items()})
    frame["word"] = pd.Series(
        ["a" if all(t is None for t in text) and i == 0 else t for i, t in enumerate(text)], dtype=object
    )
    frame["constant"] = 1.5
    y = np.array(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)))
    y[:2] = [0, 1]
    return frame, y


@pytest.mark.parametrize("name", ORACLES)
@given(tables())
@settings(max_examples=8, deadline=None)
def test_scores_equal_the_plaintext_computation_on_any_table(name, table):
    """Missing values, categories, constants, ties and tiny classes."""
    X, y = table
    counts = np.bincount(y)
    if (counts[counts > 0] < 2).any():
        y = np.where(np.arange(len(y)) % 2, 1, 0)
    check_against_oracle(name, X, y)


def test_a_category_that_is_the_class_has_no_largest_score():
    """Its F statistic is infinite (scikit-learn divides by zero); ours must still rank it first, as a number."""
    y = np.array([0, 1, 0, 0, 0, 0, 0, 1])
    word = pd.Series([None, "a", None, None, None, None, None, "a"], dtype=object)
    X = pd.DataFrame({"x": [np.nan] * 8, "word": word, "constant": 1.5, "z": np.arange(8.0)})
    fitted = check_against_oracle("sffs", X, y)
    assert fitted.scores_.iloc[0].feature == "word"
    assert np.isfinite(fitted.scores_.score).all()


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("scheme", SCHEMES[2:])
def test_other_schemes_give_the_same(name, scheme):
    cached_key(scheme)
    X, y = mixed_table(30)
    fitted = check_against_oracle(name, X[["signal", "noise", "holes", "colour"]], y.to_numpy(), scheme=scheme)
    assert "Paillier" in fitted.selection_.security["line"]


@pytest.mark.parametrize("name", ORACLES)
def test_many_classes_need_several_ciphertexts_a_row(name):
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(60), 2)
    X = pd.DataFrame({"a": number + rng.normal(0, 3, 120), "b": rng.normal(0, 1, 120)})
    check_against_oracle(name, X, np.array([f"class {i:02}" for i in number]))


@pytest.mark.parametrize("name", ORACLES)
def test_regression_targets_are_cut_into_classes(name):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80)})
    y = X["b"] * 2 + rng.normal(0, 0.1, 80) + 0.5
    selector = ORACLES[name][0]
    fitted = selector.__class__(**{**selector.get_params(), "n_features": 1}).fit(fs.Federation.split(X, y, parties=2))
    assert fitted.selected_["party2"] == ["b"]


@pytest.mark.parametrize("name", ORACLES)
def test_one_class_only_is_an_error_that_names_the_party(name):
    X, _ = mixed_table(20)
    with pytest.raises(DataError, match=r"party1.*one value only"):
        ORACLES[name][0].fit(fs.Federation.split(X, np.ones(20), parties=2))


@pytest.mark.parametrize("name", ORACLES)
def test_a_label_holder_without_columns_can_ask(name, tmp_path):
    X, y = mixed_table(30)
    tables = {
        "clinic": pd.DataFrame({"id": range(30), "y": y}),
        "lab": X[["signal", "noise"]].assign(id=range(30)),
    }
    fed = fs.Federation.from_tables(tables, id="id", label=("clinic", "y"))
    selector = ORACLES[name][0]
    fitted = selector.__class__(**{**selector.get_params(), "n_features": 1}).fit(fed)
    assert fitted.selected_ == {"clinic": [], "lab": ["signal"]}


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ({"n_features": 0}, "n_features.*0"),
        ({"n_features": 2.5}, "2.5"),
        ({"n_features": None}, "one of the two"),
        ({"threshold": 0.1}, "one of the two"),
        ({"scheme": "rsa"}, "'rsa'"),
    ],
)
@pytest.mark.parametrize("name", ORACLES)
def test_bad_parameters_are_quoted(name, bad, what, small_fed):
    selector = ORACLES[name][0]
    with pytest.raises(ParameterError, match=what):
        selector.__class__(**{**selector.get_params(), **bad}).fit(small_fed)


def test_threshold_keeps_what_reaches_it(small_fed):
    fitted = fs.SFFS(n_features=None, threshold=20.0).fit(small_fed)
    assert (fitted.scores_["selected"] == (fitted.scores_["score"] >= 20.0)).all()


def test_asking_for_more_features_than_there_are_keeps_all(small_fed):
    assert fs.SFFS(n_features=1000).fit(small_fed).selection_.n_selected == sum(small_fed.n_columns.values())


def recorded(selector, X, y):
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    log = fed._link.transport = Recording(fed._link.transport)
    selector.fit(fed)
    return fed, [(s, r, decode(data)) for s, r, data in log.log]


def replies(messages, party: str, entry: str) -> list:
    return [m["ok"] for s, _, m in messages if s == party and isinstance(m.get("ok"), dict) and entry in m["ok"]]


@pytest.mark.parametrize("selector", [fs.InformationValue(n_bins=10, min_cell=7), fs.GiniFilter(n_bins=10, min_cell=7)])
def test_no_bin_below_min_cell_is_counted(selector):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice([1.0, 2.0, 3.0], 60, p=[0.9, 0.08, 0.02])})
    X["c"] = rng.choice(["x", "y", "rare", "rarer"], 60, p=[0.5, 0.4, 0.05, 0.05])
    X["d"] = np.where(rng.random(60) < 0.03, np.nan, X["a"])
    _, messages = recorded(selector, X, rng.integers(0, 2, 60))
    sizes = [reply["sizes"] for reply in replies(messages, "shop", "sizes")]
    assert len(sizes) == 1
    assert sizes[0].min() >= 7
    own = [reply["own"] for reply in replies(messages, "bank", "own")]
    assert own[0].sum(axis=1).min() >= 7


def test_bins_are_shuffled_so_that_their_order_says_nothing():
    X = pd.DataFrame({"a": np.arange(64.0), "b": np.repeat(np.arange(4.0), [8, 12, 18, 26])})
    y = np.arange(64) % 2
    orders = set()
    for _ in range(12):
        _, messages = recorded(fs.InformationValue(n_features=1, n_bins=4, min_cell=1), X, y)
        orders.add(tuple(replies(messages, "shop", "sizes")[0]["sizes"].tolist()))
    assert len(orders) > 1


@pytest.mark.parametrize("name", ORACLES)
def test_what_the_label_holder_decrypts_is_masked_anew_in_every_run(name):
    """Its whole view of another party's columns: numbers 40 bits wider than the sums, new each time."""
    X, y = mixed_table(40)
    key, views = cached_key(), []
    selector = ORACLES[name][0]
    for _ in range(2):
        _, messages = recorded(selector.__class__(**selector.get_params()), X[["noise", "signal"]], y)
        reply = replies(messages, "shop", "seed")[0]
        views.append(key.decrypt(reply["sums"][0], bits=key.public.plaintext_bits))
    assert not set(views[0]) & set(views[1])
    assert all((a - b).bit_length() > 40 for a, b in zip(*views))


@pytest.mark.parametrize("name", ORACLES)
def test_no_party_gets_a_score_or_a_seed_of_masks(name):
    """Requests to parties hold keys, ciphertexts, notes and settings; the seeds stay at the coordinator."""
    X, y = mixed_table(40)
    selector = ORACLES[name][0]
    _, messages = recorded(selector.__class__(**selector.get_params()), X, y)
    seed = replies(messages, "shop", "seed")[0]["seed"]
    requests = [m for s, _, m in messages if s == "coordinator"]
    assert not [m for m in requests if seed in encode(m)]
    told = {argument for m in requests for argument in m["arguments"]}
    assert told <= {
        "among", "circle", "offers",
        "scheme", "task", "answers", "weight_bits", "in_blocks", "given", "epsilon", "delta", "told", "bits", "clip",
        "job", "session",
    }  # fmt: skip
    messages = [m["arguments"][name] for m in requests for name in ("given", "told") if name in m["arguments"]]
    fields = {"key", "rows", "layouts", "note", "holder", "sums", "notes", "shapes"}
    assert messages
    assert {field for message in messages for field in message} <= fields


def test_passive_parties_hold_nothing_that_decrypts_labels(monkeypatch):
    """And the label holder's key is made for the job, and forgotten with it."""
    X, y = mixed_table(30)
    made = []
    monkeypatch.setattr(histogram, "generate_key", lambda scheme: made.append(scheme) or cached_key(scheme))
    for name in ORACLES:
        selector = ORACLES[name][0]
        fed, _ = recorded(selector.__class__(**selector.get_params()), X, y)
        for site in fed._link.transport.sites.values():
            assert (site.keys, site.runs, site.sessions) == ({}, {}, {})
    assert made == ["auto"] * len(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
def test_a_data_holder_that_runs_the_coordinator_gets_noisy_sums_or_nothing(name):
    selector = ORACLES[name][0]
    small_fed = fs.Federation.split(*mixed_table(), parties=["bank", "shop", "lab"], coordinator="shop")
    with pytest.raises(ParameterError, match=r"'shop'.*epsilon"):
        selector.__class__(**selector.get_params()).fit(small_fed)
    fitted = selector.__class__(**{**selector.get_params(), "epsilon": 1.0}).fit(small_fed)
    assert any("epsilon 1" in note for note in fitted.ledger_.notes)


def test_bins_are_made_coarser_by_their_sizes_alone_never_by_the_label():
    """What min_cell promises: bins, not cells. The same sizes whatever the labels are; a cell may be small."""
    X, y = mixed_table(120)
    rng = np.random.default_rng(0)
    rare = (np.arange(120) < 12).astype(int)
    sizes = []
    for labels in (y, rng.permutation(y), rare):
        _, messages = recorded(fs.InformationValue(n_features=2, min_cell=10), X, labels)
        reply = replies(messages, "shop", "sizes")[0]
        parts = np.split(reply["sizes"], np.cumsum(reply["bins"])[:-1])
        assert min(part.min() for part in parts) >= 10
        sizes.append([sorted(part.tolist()) for part in parts])
    assert sizes[0] == sizes[1] == sizes[2]
