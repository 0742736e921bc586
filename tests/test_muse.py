"""MUSE against an independent, centralised selection over the pooled columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Recording, Serial
from oracles import slow_bins
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

import fedsift as fs
from fedsift import errors
from fedsift.core.message import decode
from fedsift.select.muse.contingency import Entropies, pair_information
from fedsift.select.muse.criteria import Information, _criteria, find_criterion, register_criterion
from fedsift.select.muse.selector import Muse


def many_columns(n=80, columns=18, classes=3, seed=0):
    """Related columns, some coarse (so that scores tie), for classes that depend on a few of them."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 5))
    X = hidden @ rng.normal(size=(5, columns)) + rng.normal(scale=1.5, size=(n, columns))
    X[:, ::4] = np.round(X[:, ::4])
    y = np.digitize(hidden[:, 0] + 0.5 * hidden[:, 1], np.quantile(hidden[:, 0], np.linspace(0, 1, classes + 1)[1:-1]))
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(columns)]), pd.Series(y, name="label")


def quantile_codes(column, bins):
    """Slow and plain: bins cut at quantiles, one for missing values, one for each category."""
    if column.dtype == object or str(column.dtype) in ("str", "string", "category"):
        return pd.factorize(column)[0]
    values = column.astype(float).to_numpy()
    known = values[~np.isnan(values)]
    codes = np.full(len(values), -1)
    codes[~np.isnan(values)] = slow_bins(known, bins)
    return codes


def information(a, b):
    """Mutual information less its expectation over random matchings of the rows."""
    table = contingency_matrix(a, b, sparse=True)
    return mutual_info_score(a, b) - expected_mutual_information(table, len(a))


def entropy(codes):
    share = np.unique(codes, return_counts=True)[1] / len(codes)
    return float(-(share * np.log(share)).sum())


def slow_score(criterion, k, chosen, codes, y, beta, lam):
    relevance = information(codes[k], y)
    shared = [information(codes[k], codes[j]) for j in chosen]
    if criterion == "mrmr":
        return relevance - (np.mean(shared) if shared else 0.0)
    if criterion == "mifs":
        return relevance - beta * sum(shared)

    def rel(i):
        scale = np.sqrt(entropy(codes[i]) * entropy(y))
        return information(codes[i], y) / scale if scale > 0 else 0.0

    if not chosen:
        return rel(k)
    total = 0.0
    for j, info in zip(chosen, shared):
        joint = entropy(codes[k]) + entropy(codes[j]) - info
        distance = 1 - info / joint if joint > 1e-12 else 0.0
        total += lam * distance + (1 - lam) * (rel(k) + rel(j)) / 2
    return total


def slow_greedy(codes, y, candidates, n_features, criterion, beta=0.8, lam=0.5):
    """The textbook loop, constant columns last; among scores equal up to rounding the earliest candidate wins."""
    chosen = []
    for _ in range(min(n_features, len(candidates))):
        left = [k for k in candidates if k not in chosen]
        left = [k for k in left if len(set(codes[k])) > 1] or left
        scores = [slow_score(criterion, k, chosen, codes, y, beta, lam) for k in left]
        chosen.append(next(k for k, s in zip(left, scores) if s > max(scores) - 1e-10))
    return chosen


def oracle(fed, X, y, n_features, criterion, n_bins, preselect):
    """(party, feature) in the order of selection, from the pooled table."""
    places = [(party, name) for party, names in fed.column_names().items() for name in names]
    codes = [quantile_codes(X[name.split("#")[0]], n_bins) for _, name in places]
    candidates = list(range(len(places)))
    if preselect:
        kept = []
        for party in fed.parties:
            own = [k for k in candidates if places[k][0] == party]
            kept += sorted(slow_greedy(codes, y, own, n_features, criterion))
        candidates = kept
    return [places[k] for k in slow_greedy(codes, y, candidates, n_features, criterion)]


def order_of(fitted):
    return list(fitted.order_[["party", "feature"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("preselect", [True, False])
@pytest.mark.parametrize("criterion", ["mrmr", "mifs", "dd"])
def test_selection_and_order_are_those_of_the_pooled_table(criterion, preselect):
    X, y = many_columns()
    fed = fs.Federation.split(X, y, parties=3, how="random", random_state=1)
    fitted = Muse(n_features=5, criterion=criterion, n_bins=4, preselect=preselect).fit(fed)
    assert order_of(fitted) == oracle(fed, X, y, 5, criterion, 4, preselect)
    assert sum(map(len, fitted.selected_.values())) == 5


def test_preselection_can_change_the_result_so_both_ways_are_real():
    """Two columns a party, three wanted: a party's third best cannot come through."""
    differing = 0
    for seed in range(4):
        X, y = many_columns(columns=14, seed=seed)
        fed = fs.Federation.split(X, y, parties=2, random_state=seed)
        orders = [order_of(Muse(n_features=3, n_bins=4, preselect=p).fit(fed)) for p in (True, False)]
        differing += orders[0] != orders[1]
    assert differing < 4  # usually the same: that is the paper's claim


def test_mixed_missing_constant_and_duplicate_columns():
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    fitted = Muse(n_features=5, n_bins=4, preselect=False).fit(fed)
    assert order_of(fitted) == oracle(fed, X, y, 5, "mrmr", 4, False)
    assert fitted.order_.iloc[0]["feature"] == "signal"  # its copy at the lab ties; the earlier party wins
    chosen = fitted.order_["feature"].tolist()
    assert "copy" not in chosen[:3]
    assert "constant" not in chosen  # its score of 0 beats the negative ones of redundant columns


def test_constant_columns_come_after_every_other_column():
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    for criterion in ("mrmr", "mifs", "dd"):
        fitted = Muse(n_features=X.shape[1], criterion=criterion, n_bins=4).fit(fed)
        assert fitted.order_.iloc[-1]["feature"] == "constant"


def test_duplicates_over_many_parties_are_not_taken_twice():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 60)
    base = y + rng.normal(0, 0.7, 60)
    X = pd.DataFrame({f"copy{i}": base for i in range(4)})
    X["other"] = y + rng.normal(0, 1.0, 60)
    fed = fs.Federation.split(X, y, parties=5)
    fitted = Muse(n_features=2, n_bins=5).fit(fed)
    assert order_of(fitted) == [("party1", "copy0"), ("party5", "other")]
    assert fitted.details_["redundancy"] < 1.4


def test_fewer_columns_than_features_and_label_at_the_last_party():
    X, y = many_columns(columns=7)
    fed = fs.Federation.split(X, y, parties=3, label_party="party3")
    fitted = Muse(n_features=20, n_bins=4).fit(fed)
    assert order_of(fitted) == oracle(fed, X, y, 20, "mrmr", 4, True)
    assert len(fitted.order_) == 7


def test_one_column_parties_and_fifty_of_them():
    X, y = many_columns(n=30, columns=50)
    fed = fs.Federation.split(X, y, parties=50)
    fitted = Muse(n_features=3, n_bins=3).fit(fed)
    assert order_of(fitted) == oracle(fed, X, y, 3, "mrmr", 3, True)


def test_regression_target_is_binned():
    rng = np.random.default_rng(0)
    X, _ = many_columns(columns=6)
    y = pd.Series(2 * X["f1"] + rng.normal(scale=0.2, size=len(X)), name="label")
    fed = fs.Federation.split(X, y, parties=2)
    fitted = Muse(n_features=2, n_bins=5).fit(fed)
    assert order_of(fitted) == oracle(fed, X, quantile_codes(y, 5), 2, "mrmr", 5, True)
    assert fitted.order_.iloc[0]["feature"] == "f1"


def test_row_order_does_not_matter():
    X, y = many_columns(n=60, columns=8)
    ids = [f"c{i}" for i in range(60)]
    left, right = X.iloc[:, :4].assign(id=ids, label=y), X.iloc[:, 4:].assign(id=ids)
    rng = np.random.default_rng(9)
    orders = []
    for _ in range(2):
        tables = {"a": left.iloc[rng.permutation(60)], "b": right.iloc[rng.permutation(60)]}
        fed = fs.Federation.from_tables(tables, id="id", label=("a", "label"))
        fitted = Muse(n_features=4, n_bins=4).fit(fed)
        orders.append(fitted.order_)
    pd.testing.assert_frame_equal(*orders, check_exact=True)


def test_another_transport_gives_the_same_numbers():
    X, y = many_columns(columns=8)
    results = []
    for transport in (None, Serial):
        fed = fs.Federation.split(X, y, parties=3)
        if transport:
            fed._link.transport = transport(fed._link.transport.sites)
        results.append(Muse(n_features=4, n_bins=4).fit(fed))
    pd.testing.assert_frame_equal(results[0].order_, results[1].order_, check_exact=True)
    pd.testing.assert_frame_equal(results[0].information_, results[1].information_, check_exact=True)


@pytest.mark.parametrize(("correct", "plain"), [(True, information), (False, mutual_info_score)])
def test_result_tells_what_was_counted(correct, plain):
    X, y = many_columns(columns=12)
    fed = fs.Federation.split(X, y, parties=3)
    fitted = Muse(n_features=2, n_bins=4, bias_correction=correct).fit(fed)
    counted = fitted.details_["federated_computations"]
    assert counted["with_label"] == 8
    assert counted["all_pairs_without_preselection"] == 8 + 3 * 16
    assert counted["all_pairs_with_preselection"] == 8 + 3 * 4
    assert counted["made"] == 8 + 4  # one step: the chosen column against two candidates of two other parties
    codes = {name: quantile_codes(X[name], 4) for name in X}
    matrix = fitted.information_
    first = fitted.order_.iloc[0]
    for (_, feature), row in matrix.iterrows():
        assert row.iloc[0] == pytest.approx(plain(codes[feature], y), abs=1e-9)
        if not np.isnan(row.iloc[1]):
            assert row.iloc[1] == pytest.approx(plain(codes[feature], codes[first["feature"]]), abs=1e-9)
    assert matrix.iloc[:, 1].notna().sum() == 5
    second = fitted.order_.iloc[1]
    assert second["score"] == pytest.approx(second["relevance"] - second["redundancy"])


def test_redundancy_is_the_papers_measure():
    from scipy.stats import spearmanr

    X, y = many_columns(columns=10)
    fed = fs.Federation.split(X, y, parties=3)
    fitted = Muse(n_features=5, n_bins=4).fit(fed)
    chosen = X[fitted.order_["feature"].tolist()]
    expected = np.sqrt(((spearmanr(chosen)[0] - np.eye(5)) ** 2).sum())
    assert fitted.details_["redundancy"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("rows", "levels"), [(60, 15), (300, 2), (300, 15), (20_000, 15)])
def test_the_correction_puts_noise_around_zero_whatever_its_cells(rows, levels):
    rng = np.random.default_rng(0)
    codes = np.array([rng.permutation(np.arange(rows) * levels // rows) for _ in range(60)], dtype=np.uint8)
    counting = Entropies(rows)
    corrected = pair_information(codes[:1], codes[1:], counting, correct=True)[0]
    plugin = pair_information(codes[:1], codes[1:], counting)[0]
    assert abs(corrected.mean()) < 4 * corrected.std() / np.sqrt(59)
    assert plugin.mean() > 0.3 * (levels - 1) ** 2 / (2 * rows)
    expected = [information(codes[0], other) for other in codes[1:4]]
    np.testing.assert_allclose(corrected[:3], expected, atol=1e-9)


def test_coarse_noise_does_not_come_before_fine_signal():
    """Plug-in values: what two fine columns have in common is overrated, so a coarse column of noise came second."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 400)
    X = pd.DataFrame({f"signal{i}": y + rng.normal(scale=1.6, size=400) for i in range(4)})
    X["coin"] = rng.integers(0, 2, 400).astype(float)
    fed = fs.Federation.split(X, pd.Series(y), parties=2)
    assert order_of(Muse(n_features=5).fit(fed))[-1][1] == "coin"
    assert order_of(Muse(n_features=5, bias_correction=False).fit(fed))[-1][1] != "coin"


def test_no_party_gets_a_number_computed_from_labels():
    """Requests carry keys, column numbers and settings: no relevance, no entropy of the label, no score."""
    X, y = many_columns(columns=6)
    fed = fs.Federation.split(X, y, parties=2)
    log = fed._link.transport = Recording(fed._link.transport)
    Muse(n_features=3, n_bins=4).fit(fed)
    for sender, _, data in log.log:
        arguments = decode(data)["arguments"] if sender == "coordinator" else {}
        for name, value in arguments.items():
            assert not isinstance(value, float), name
            assert not (isinstance(value, np.ndarray) and value.dtype.kind == "f"), name


def test_a_data_holder_that_runs_the_coordinator_is_refused():
    X, y = many_columns(columns=6)
    fed = fs.Federation.split(X, y, parties=2, coordinator="party2")
    with pytest.raises(errors.ParameterError, match="'party2'"):
        Muse(n_features=3).fit(fed)


def test_a_party_learns_nothing_about_other_columns():
    """Requests to a party name columns by number only; no list of bins is ever passed on to another party."""
    X, y = many_columns(columns=6)
    fed = fs.Federation.split(X, y, parties=2)
    log = Recording(fed._link.transport)
    fed._link.transport = log
    Muse(n_features=3, n_bins=4).fit(fed)
    for sender, _, data in log.log:
        if sender == "coordinator":
            for value in decode(data)["arguments"].values():
                assert not (isinstance(value, np.ndarray) and value.dtype == np.uint8)


def test_registered_criterion_is_used_and_errors_are_clear():
    def least(known: Information) -> np.ndarray:
        return -known.relevance

    register_criterion("least", least)
    try:
        X, y = many_columns(columns=6)
        fed = fs.Federation.split(X, y, parties=2)
        fitted = Muse(n_features=1, criterion="least", n_bins=4).fit(fed)
        relevance = [mutual_info_score(quantile_codes(X[c], 4), y) for c in X]
        assert fitted.order_.iloc[0]["feature"] == X.columns[int(np.argmin(relevance))]
        register_criterion("least", lambda known: np.full(3, np.nan))
        with pytest.raises(errors.ParameterError, match="one finite score"):
            Muse(n_features=1, criterion="least", n_bins=4).fit(fed)
    finally:
        _criteria.pop("least")
    with pytest.raises(errors.ParameterError, match="register_criterion"):
        find_criterion("least")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features": 0}, "n_features"),
        ({"criterion": "jmi"}, "'jmi'"),
        ({"n_bins": 1}, "n_bins"),
        ({"binning": "log"}, "binning"),
        ({"keys": "three"}, "keys"),
        ({"lam": 2}, "lam"),
        ({"min_cell": 0}, "min_cell"),
    ],
)
def test_bad_parameters_are_quoted_before_anything_is_sent(parameters, message):
    fed = fs.Federation.split(*many_columns(columns=4), parties=2)
    with pytest.raises(errors.ParameterError, match=message):
        Muse(**parameters).fit(fed)
    assert len(fed.ledger) == 0
