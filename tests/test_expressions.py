"""The formula language: what is printed is what is parsed, no input breaks it, nothing in it is ever run as code."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.core.expressions import (
    CLIP,
    FUNCTIONS,
    LIMIT,
    Call,
    Column,
    call,
    columns_of,
    evaluate,
    evaluate_columns,
    parse,
    parties_of,
)
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError
from fedsift.select.selection import Selection

names = st.one_of(
    st.sampled_from(["a", "b", "mul", "x1", "a.b", 'say "hi"', "größe", "a b", "\n", "\\", "1"]), st.text()
)
columns = st.builds(Column, names, st.one_of(st.just(""), names))
numbers = st.floats(allow_nan=False, allow_infinity=False)


def build(children):
    def one(name):
        known = FUNCTIONS[name]
        constants = [numbers, st.floats(1e-3, 1e6)] if known.numbers else []
        arguments = st.tuples(*[children] * known.arguments)
        return st.builds(lambda a, c: call(name, *a, numbers=c), arguments, st.tuples(*constants))

    return st.sampled_from(sorted(FUNCTIONS)).flatmap(one)


formulas = st.recursive(columns, build, max_leaves=8)
local = st.recursive(st.builds(Column, st.sampled_from(["a", "b"])), build, max_leaves=8)
extreme = st.one_of(numbers, st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324, 1e-300]))


@settings(max_examples=200, deadline=None)
@given(formulas)
def test_a_formula_that_does_not_parse_back_to_itself(formula):
    assert parse(str(formula)) == formula
    assert str(parse(str(formula))) == str(formula)


@settings(max_examples=150, deadline=None)
@given(local, st.lists(st.tuples(extreme, extreme), min_size=1, max_size=6))
def test_extreme_values_that_overflow_or_warn(formula, rows):
    a, b = np.array(rows).T
    values = evaluate_columns([formula], {"a": a, "b": b})  # warnings are errors
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= LIMIT


@settings(max_examples=80, deadline=None)
@given(local, st.integers(1, 30), st.integers(0, 1000))
def test_a_feature_that_depends_on_how_rows_are_split(formula, cut, seed):
    frame = pd.DataFrame(np.random.default_rng(seed).normal(0, 3, (31, 2)), columns=["a", "b"])
    whole = evaluate_columns([formula], frame)
    parts = [evaluate_columns([formula], frame.iloc[:cut]), evaluate_columns([formula], frame.iloc[cut:])]
    np.testing.assert_allclose(whole, np.vstack(parts), rtol=1e-12, atol=1e-300)


def test_one_feature_under_two_names():
    a, b = Column("a"), Column("b")
    for name in ("mul", "min", "max", "add"):
        assert call(name, a, b) == call(name, b, a)
    assert call("div1", a, b) != call("div1", b, a)
    assert parse("mul(b, a)") == parse(" mul( a ,b )")
    assert parse("mul(a, a)") == parse("square(a)")
    assert parse("min(a, a)") == a
    assert parse("abs(abs(a))") == parse("abs(a)")
    assert parse("square(abs(a))") == parse("square(a)")


@settings(max_examples=100, deadline=None)
@given(local, st.lists(st.tuples(extreme, extreme), min_size=1, max_size=4))
def test_the_one_form_that_means_something_else(formula, rows):
    """The canonical form computes what the plain form says."""

    def plain(node, data):
        if isinstance(node, Column):
            return np.clip(data[node.name], -LIMIT, LIMIT)
        with np.errstate(all="ignore"):
            raw = FUNCTIONS[node.function].compute(*[plain(each, data) for each in node.arguments], *node.numbers)
        return np.clip(raw, -LIMIT, LIMIT)

    data = dict(zip("ab", np.array(rows).T))
    swapped = Call("mul", (formula, Column("b")))  # not through call(): as written
    canonical = call("mul", Column("b"), formula)
    np.testing.assert_allclose(plain(swapped, data), evaluate_columns([canonical], data)[:, 0], rtol=1e-12, atol=1e-300)


def test_functions_that_compute_something_else():
    x, y = np.array([-2.0, 0.0, 3.0]), np.array([1.0, -1.0, 0.5])
    data = {"x": x, "y": y}
    oracle = {
        "mul(x, y)": x * y,
        "div1(x, y)": x / (abs(y) + 1),
        "min(x, y)": np.minimum(x, y),
        "max(x, y)": np.maximum(x, y),
        "square(x)": x**2,
        "abs(x)": abs(x),
        "sqrtabs(x)": abs(x) ** 0.5,
        "sigmoid(x)": 1 / (1 + np.exp(-x)),
        "scale(x, 1.0, 2.0)": (x - 1) / 2,
        "cube(x)": x**3,
        "sub(x, y)": x - y,
    }
    for text, expected in oracle.items():
        np.testing.assert_allclose(evaluate_columns([parse(text)], data)[:, 0], expected, rtol=1e-13, atol=1e-15)
    assert evaluate_columns([parse("scale(x, 0.0, 0.001)")], data).max() == CLIP


def test_missing_values_that_turn_into_numbers():
    values = evaluate_columns([parse("max(x, scale(x, 0.0, 1.0))"), parse("exp(x)")], {"x": np.array([np.nan, 1.0])})
    assert np.isnan(values[0]).all()
    assert np.isfinite(values[1]).all()


@pytest.mark.parametrize(
    "text",
    ["", "mul(a", "mul(a,)", "mul(a, b))", "mul(a)", "nothere(a)", "a b", "3", "scale(a, 1.0, 0.0)", "scale(a, 1.0)",
     "scale(1.0, 2.0, a)", '"open', "a..b", "__import__('os')", "mul(a, b); x", "mul(a, 1.0)", "scale(a, nan, 1.0)",
     '"bad\\q"', "a.b.c"],
)  # fmt: skip
def test_text_that_is_no_formula(text):
    with pytest.raises(ParameterError):
        parse(text)


def test_a_formula_that_exhausts_the_reader():
    with pytest.raises(ParameterError, match="deeper"):
        parse("cube(" * 60 + "a" + ")" * 60)
    with pytest.raises(ParameterError, match="too long"):
        parse("a" * 30_000)


def test_columns_with_hostile_names():
    odd = ['mul(a, "b")', "a.b", '"', "\\", "a\nb", "", "ü.ö", "'; drop"]
    formula = Column(odd[0])
    for name in odd[1:]:
        formula = call("max", formula, Column(name, party=name or "p"))
    again = parse(str(formula))
    assert again == formula
    assert {column.name for column in columns_of(again)} == set(odd)
    assert set(parties_of(again)) == {*odd[1:], "p"} - {""}


def test_a_table_that_lacks_a_column_or_is_anothers():
    table = Table.read(pd.DataFrame({"a": [1.0, 2.0], "t": ["x", "y"]}), id=None, name="mine")
    with pytest.raises(DataError, match="lacks the column 'b'"):
        evaluate([parse("mul(a, b)")], table)
    with pytest.raises(DataError, match="'shop'"):
        evaluate([parse("mul(a, shop.b)")], table, "bank")
    with pytest.raises(DataError, match="categorical"):
        evaluate([parse("square(t)")], table)


def test_a_saved_selection_that_computes_other_features(tmp_path):
    formula = 'mul(a, "b c")'
    selection = Selection("FedIIFE", {"p": ["a"], "q": ["a"]}, engineered=[formula, "mul(p.a, q.a)", "square(p.a)"])
    loaded = Selection.load(selection.save(tmp_path / "s.json"))
    assert loaded.engineered == selection.engineered
    frame = pd.DataFrame({"a": [1.0, 2.0], "b c": [3.0, 5.0], "unused": [0.0, 1.0]})
    table = loaded.apply(frame, "p")
    assert table.columns == ["a", formula, "square(p.a)"]
    np.testing.assert_allclose(table.matrix(), [[1, 3, 1], [2, 10, 4]])
    transformer = loaded.transformer("p")
    out = transformer.fit(frame).transform(frame)
    np.testing.assert_allclose(out.to_numpy(), table.matrix())
    assert list(transformer.get_feature_names_out()) == table.columns
    assert loaded.for_party("q").engineered == [formula]


def test_a_selection_file_with_code_in_a_formula(tmp_path):
    path = Selection("M", {"p": ["a"]}, engineered=["square(a)"]).save(tmp_path / "s.json")
    data = json.loads(path.read_text())
    for bad in (["__import__('os').system('true')"], "square(a)", [3]):
        data["engineered"] = bad
        path.write_text(json.dumps(data))
        with pytest.raises(DataError):
            Selection.load(path)
