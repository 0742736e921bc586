"""scikit-learn's habits: copies and pickles that hold answers only, support masks, any table in and out, folds."""

from __future__ import annotations

import copy
import gc
import pickle
import pickletools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from method_cases import NEEDS_TORCH, federation, selector
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline

import fedsift as fs
from fedsift import testing
from fedsift.errors import DataError, ParameterError, SecurityError
from fedsift.methods import METHODS

#: What a pickle may be made of: answers and the record of who learned what. No site, key, table or connection.
ANSWERS = {"fedsift.core.ledger", "fedsift.select", "fedsift.engineer", "fedsift.methods", "fedsift.core.evidence"}
PLAIN = {"builtins", "numpy", "pandas", "collections", "copyreg", "_codecs", "datetime", "functools", "pyarrow"}
MODELS = {
    "VerticalLogisticRegression": lambda: fs.VerticalLogisticRegression(max_iter=3),
    "VerticalAdditive": lambda: fs.VerticalAdditive(max_iter=3),
    "SecureBoost": lambda: fs.SecureBoostClassifier(n_estimators=2, max_depth=2),
    "HyFDCA": lambda: fs.HyFDCA(tol=0.2),
    "FedLinear": lambda: fs.FedLinear(rounds=5, penalty=0.1),
    "SplitNN": lambda: fs.SplitNN(epochs=1, batch_size=30),
}


def modules_in(data: bytes) -> set[str]:
    """The modules whose classes and functions a pickle names."""
    found, texts = set(), []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            found.add(argument.partition(" ")[0])
        elif opcode.name == "STACK_GLOBAL":
            found.add(texts[-2])
        elif opcode.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(argument)
        elif opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PROTO", "FRAME"):
            continue
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            texts.append("(seen before)")
    return found - {"(seen before)"}


def holds_only(data: bytes, *more: str) -> None:
    for module in modules_in(data):
        known = any(module == name or module.startswith(f"{name}.") for name in (*ANSWERS, *PLAIN, *more))
        assert known, f"a pickle holds something of {module}"


def raw_columns(fed: fs.Federation) -> list[bytes]:
    """Columns and secrets of the simulated parties, as they would lie in a pickle."""
    sites = fed.simulated.values()
    columns = [site.table.values(name).tobytes() for site in sites for name in site.table.numeric_columns]
    return [*columns, *(site.secret for site in sites)]


@pytest.mark.parametrize("method", METHODS)
def test_a_fitted_selector_is_copied_and_pickled_with_its_answer_and_nothing_of_a_party(method):
    if method in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    fed = federation(method)
    fitted = selector(method).fit(fed)
    data = pickle.dumps(fitted)
    holds_only(data, "fedsift.models")
    assert not any(secret in data for secret in raw_columns(fed))
    for other in (pickle.loads(data), copy.deepcopy(fitted), copy.copy(fitted)):
        assert other.selected_ == fitted.selected_
        assert other.scores_.equals(fitted.scores_)
        assert other.ledger_.entries == fitted.ledger_.entries
        assert np.array_equal(other.get_support(), fitted.get_support())
        assert other.transform(fed).n_columns == fitted.transform(fed).n_columns
        assert other.report() == fitted.report()


def has_parts(fed: fs.Federation, model: str) -> bool:
    return any(model in site.models for site in fed.simulated.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_is_copied_with_its_parts_and_pickled_without_them(name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    model = MODELS[name]()
    fed = testing.federation(model.partitions[0])
    model.fit(fed)
    data = pickle.dumps(model)
    holds_only(data, "fedsift.models")
    assert not any(secret in data for secret in raw_columns(fed))
    expected = model.predict(fed)
    again, other = pickle.loads(data), copy.deepcopy(model)
    assert (again.predict(fed) == expected).all()
    del model
    gc.collect()
    assert (other.predict(fed) == expected).all(), "the parts are there as long as one copy is"
    part = other.model_id_
    assert has_parts(fed, part) or name == "FedLinear"  # its weights are the coordinator's
    del other
    gc.collect()
    assert not has_parts(fed, part), "a pickle keeps nothing alive"


def test_a_federation_is_not_pickled_and_says_why():
    fed = testing.federation("vertical")
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(SecurityError, match="tables and keys"):
            attempt(fed)
    with pytest.raises(TypeError):
        pickle.dumps(next(iter(fed.simulated.values())))


# --- support masks ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fed():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(150, 5)), columns=["age", "x", "income", "y", "basket"])
    return fs.Federation.split(X, (X["income"] + X["basket"] > 0).astype(int), parties=["bank", "shop"])


def test_the_support_is_that_of_all_columns_or_of_one_party(fed):
    fitted = fs.GiniFilter(n_features=2).fit(fed)
    assert fitted.get_support().tolist() == [False, False, True, False, True]
    assert fitted.get_support(indices=True).tolist() == [2, 4]
    assert fitted.get_support(party="shop").tolist() == [False, True]
    assert fitted.get_feature_names_out().tolist() == ["bank.income", "shop.basket"]
    assert fitted.get_feature_names_out(party="shop").tolist() == ["basket"]
    assert fitted.n_features_in_ == 5
    with pytest.raises(ParameterError, match="no party 'lab'"):
        fitted.get_support(party="lab")
    with pytest.raises(ParameterError, match=r"selection_\.transform"):
        fitted.transform(pd.DataFrame({"income": [1.0]}))
    assert not hasattr(clone(fitted), "selection_")


def test_parties_with_rows_have_one_support():
    rows = testing.federation("horizontal")
    fitted = fs.AllFeatures().fit(rows)
    columns = rows.column_names()[rows.parties[0]]
    assert len(fitted.get_support()) == len(columns) == fitted.n_features_in_
    assert fitted.get_feature_names_out().tolist() == columns


# --- a party's own tables --------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"income": [1.5, np.nan, 3.0], "town": ["Ulm", None, "Bonn"], "visits": [1, 2, 3]}, index=[7, 8, 9]
)
KINDS = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "arrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_comes_back_as_the_kind_it_was(kind):
    given = KINDS[kind](FRAME)
    chosen = fs.Selection("by hand", {"bank": ["visits", "town"]}).transform(given)
    assert type(chosen) is type(given)
    assert list(getattr(chosen, "column_names", chosen.columns)) == ["visits", "town"]
    assert chosen.equals(given.select(["visits", "town"]) if kind != "pandas" else given[["visits", "town"]])
    made = fs.Selection("by hand", {"bank": ["visits"]}, engineered=["mul(bank.visits, bank.income)"])
    new = made.transform(given)
    table = new if kind == "pandas" else new.to_pandas()
    assert table.columns.tolist() == ["visits", "mul(bank.visits, bank.income)"]
    assert table.iloc[[0, 2], 1].tolist() == [1.5, 9.0]
    if kind == "pandas":
        assert new.index.tolist() == [7, 8, 9]


def test_set_output_and_names_of_the_plain_transformer():
    keeper = fs.Selection("by hand", {"bank": ["visits", "income"]}).transformer()
    assert keeper.fit(FRAME).get_support().tolist() == [True, False, True]
    assert keeper.get_feature_names_out().tolist() == ["visits", "income"]
    assert isinstance(clone(keeper).set_output(transform="polars").fit_transform(FRAME), pl.DataFrame)
    again = pickle.loads(pickle.dumps(keeper))
    assert again.transform(FRAME).equals(FRAME[["visits", "income"]])
    with pytest.raises(DataError, match="lack the selected column 'visits'"):
        keeper.transform(FRAME[["income"]])


def test_a_party_uses_its_part_in_a_pipeline_of_its_own(fed):
    fitted = fs.GiniFilter(n_features=2).fit(fed)
    shop = pd.DataFrame(np.random.default_rng(1).normal(size=(80, 2)), columns=["y", "basket"])
    own = make_pipeline(fitted.selection_.transformer("shop"), RandomForestClassifier(10, random_state=0))
    scores = cross_val_score(own, shop, (shop["basket"] > 0).astype(int), cv=3)
    assert scores.mean() > 0.9


# --- folds over a federation -----------------------------------------------------------------------------------------

FOLDS = KFold(3, shuffle=True, random_state=0)


def test_cross_val_score_selects_and_trains_on_the_other_folds_only(fed):
    both = Pipeline([("select", fs.GiniFilter(n_features=2)), ("model", fs.VerticalLogisticRegression())])
    scores = cross_val_score(both, fed, cv=FOLDS)
    assert scores.min() > 0.85
    by_hand = []
    for train, test in FOLDS.split(np.zeros(150)):
        inside = clone(both).fit(fed.view(rows=train))
        by_hand.append(inside.score(fed.view(rows=test)))
    assert scores == pytest.approx(by_hand, abs=0.021)  # shares round afresh: a row at the border may fall either way


def test_a_grid_search_finds_how_many_columns(fed):
    both = Pipeline([("select", fs.GiniFilter()), ("model", fs.VerticalLogisticRegression())])
    search = GridSearchCV(both, {"select__n_features": [1, 2]}, cv=FOLDS).fit(fed)
    assert search.best_params_ == {"select__n_features": 2}
    assert search.best_estimator_.score(fed) > 0.9


def test_rows_of_parties_that_hold_rows_are_counted_one_party_after_the_other():
    rows = testing.federation("horizontal")
    sizes = [size.rows for size in rows.sizes().values()]
    first = rows[np.array([0, sizes[0]])] if len(sizes) == 2 else rows[[0, *np.cumsum(sizes)[:-1]]]
    assert [size.rows for size in first.sizes().values()] == [1] * len(sizes)
    assert rows.shape == (sum(sizes), len(rows.column_names()[rows.parties[0]]))
    assert len(cross_val_score(fs.FedLinear(rounds=5), rows, cv=FOLDS)) == 3
    with pytest.raises(ParameterError, match="shuffle=True"):
        rows[:1]


def test_a_federation_is_indexed_by_rows_and_asked_nothing_for_its_truth():
    fed = testing.federation("vertical")
    before = len(fed.ledger)
    assert bool(fed)
    assert len(fed.ledger) == before
    assert fed[5:25].n_rows == fed[np.arange(len(fed)) < 20].n_rows == 20
    with pytest.raises(ParameterError, match="indexed by rows"):
        fed[:, 1]
    with pytest.raises(TypeError):
        iter(fed)
