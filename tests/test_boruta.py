"""Boruta: shadows that belong to nobody and are gone afterwards, hits against the best shadow, the coin's test."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import fedsift as fs
from fedsift.errors import OperationRefused, ParameterError
from fedsift.select.boruta import add_shadows, passing, remove_shadows


def planted(rows=500, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 6)), columns=list("abcdef"))
    X["colour"] = rng.choice(["red", "green", "blue"], rows)
    return X, (X["a"] + X["e"] ** 2 + (X["colour"] == "red") + 0.3 * rng.normal(size=rows)).to_numpy()


@pytest.mark.parametrize(("level", "rows"), [("coordinator", 800), ("all", 500)])
def test_trees_find_bends_and_categories_and_leave_noise(level, rows):
    """At level coordinator the noise in opened sums hides a category of 500 rows; at level all there is none."""
    X, y = planted(rows)
    fitted = fs.Boruta(rounds=6, fdr=0.2, protection=level).fit(fs.Federation.split(X, y, parties=2))
    assert fitted.selected_ == {"party1": ["a"], "party2": ["e", "colour"]}
    hits = fitted.details_["hits"]
    assert min(hits["party1"][0], hits["party2"][0], hits["party2"][2]) == 6


def test_one_party_and_three_find_the_same_columns():
    """Shadows are other draws there, so that hits may differ; columns this clear do not depend on the draw."""
    X, y = planted()
    kept = []
    for parties in (1, 3):
        fitted = fs.Boruta(rounds=6, fdr=0.2).fit(fs.Federation.split(X, y, parties=parties))
        kept.append({column for columns in fitted.selected_.values() for column in columns})
    assert kept[0] == kept[1] == {"a", "e", "colour"}


@pytest.mark.parametrize("shadows", ["alike", "shuffled"])
def test_a_shadow_has_the_values_of_its_column_in_an_order_of_its_own(shadows):
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=2)
    selector = fs.Boruta(rounds=2, shadows=shadows)
    with fed.session(*selector.announcement()) as run:
        run.ask(add_shadows, to=run.parties, view="shadows")
        for site in fed.simulated.values():
            own = [name for name in site.table.columns if not name.startswith("shadow")]
            assert site.views["shadows"][1] == [*own, *(f"shadow {k} of {name}" for k in range(2) for name in own)]
            for name in own:
                made = [site.table.to_pandas()[f"shadow {k} of {name}"] for k in range(2)]
                for column in made:
                    assert sorted(column.astype(str)) == sorted(site.table.to_pandas()[name].astype(str))
                    assert (column.to_numpy() != site.table.to_pandas()[name].to_numpy()).any()
                assert (made[0].to_numpy() != made[1].to_numpy()).any()
        assert fed.named_view("").n_columns == {"party1": 4, "party2": 3}  # other views have no shadows
        run.ask(remove_shadows, to=run.parties, view="shadows")
    assert [name for site in fed.simulated.values() for name in site.table.columns] == list(X.columns)


def test_shadows_that_are_alike_go_with_the_other_columns_as_the_column_does_and_not_with_the_label():
    """Seeded. Of 4,000 rows a correlation has a standard deviation of 0.016."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=4000)
    X = pd.DataFrame({"a": a, "b": 0.7 * a + 0.7 * rng.normal(size=4000), "c": rng.normal(size=4000)})
    X.loc[rng.choice(4000, 400, replace=False), "b"] = np.nan
    fed = fs.Federation.split(X, a + X["c"], parties=1)
    with fed.session(*fs.Boruta(rounds=1).announcement()) as run:
        run.ask(add_shadows, to=run.parties, view="shadows")
        table = fed.simulated["party1"].table.to_pandas()
    shadow = table["shadow 0 of b"]
    assert shadow.isna().sum() == 400
    assert shadow.corr(table["a"]) == pytest.approx(table["b"].corr(table["a"]), abs=0.08)
    assert abs(shadow.corr(table["c"])) < 0.08
    left = table["shadow 0 of c"]
    assert abs(left.corr(table["c"])) < 0.3  # it goes along with nothing, so that it can be unlike its column
    assert abs(left.corr(X["c"])) < 0.3


@pytest.mark.parametrize("shadows", ["alike", "shuffled"])
def test_shadows_of_a_view_stay_within_its_rows(shadows):
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=1)
    with fed.session(*fs.Boruta(rounds=1, shadows=shadows).announcement()) as run:
        half = run.view(rows=np.arange(0, 500, 2))
        half.ask(add_shadows, to=run.parties, view="shadows")
        site = fed.simulated["party1"]
        shadow, column = site.table.values("shadow 0 of a"), site.table.values("a")
        assert sorted(shadow[::2]) == sorted(column[::2])
        np.testing.assert_array_equal(shadow[1::2], column[1::2])
        run.ask(remove_shadows, to=run.parties, view="shadows")


def test_a_run_that_fails_leaves_no_shadow_behind(monkeypatch):
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=2)

    def fails(*args, **kwargs):
        raise ParameterError("no trees today")

    monkeypatch.setattr("fedsift.select.boruta.uses", fails)
    with pytest.raises(ParameterError, match="no trees today"):
        fs.Boruta().fit(fed)
    assert [name for site in fed.simulated.values() for name in site.table.columns] == list(X.columns)


def test_a_view_that_is_there_is_not_replaced_by_shadows():
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=2)
    with fed.session(*fs.Boruta(rounds=1).announcement()) as run:
        known = run.view(rows=np.arange(100))
        with pytest.raises(OperationRefused, match="name already"):
            run.ask(add_shadows, to="party1", view=known._view)
        run.ask(add_shadows, to="party2", view="shadows")
        with pytest.raises(OperationRefused, match="no such view"):
            run.ask(remove_shadows, to="party2", view="others")


@pytest.mark.parametrize("fdr", [0.05, 0.3])
def test_the_test_of_hits_is_that_of_benjamini_and_hochberg(fdr):
    hits = np.array([10, 9, 8, 7, 5, 2, 0])
    chances = np.array([binomtest(int(hit), 10, alternative="greater").pvalue for hit in hits])
    passed = [k for k in range(1, 8) if np.sort(chances)[k - 1] <= fdr * k / 7]
    assert passing(hits, 10, fdr).sum() == max(passed, default=0)
    assert not passing(np.full(4, 5), 10, 0.1).any()
