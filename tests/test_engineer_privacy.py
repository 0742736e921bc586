"""The epsilon of the engineers: how far a replaced row moves each release, and the loss measured from below.

Every release of ``engineer/`` under an epsilon is here: ranges of columns, FLAFE's columns, FLAFE's two sets of sums,
Fed-IIFE's three. The old FLAFE release (``leaky/combinations.py``) fails the same measurement.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaky import combinations as old

import fedsift as fs
from fedsift.audit.attacks.privacy_loss import epsilon_from_below, gaussian_ratio, laplace_ratio
from fedsift.core.job import Job, Run
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.crypto.dp import gaussian_noise, rho_to_epsilon
from fedsift.engineer.bounds import PAID, Range, Spending, check_bounds, noisy_counts, paid_range
from fedsift.engineer.fed_iife import private as fed_iife
from fedsift.engineer.flafe import private
from fedsift.engineer.flafe.joint_moments import JointMatrices
from fedsift.engineer.flafe.privacy import Plan, sensitivity
from fedsift.engineer.flafe.products import Operands
from fedsift.engineer.flafe.shared_residual import Residual, Sides
from fedsift.engineer.noisy_model import BITS
from fedsift.errors import DataError, OperationRefused, ParameterError, SecurityError
from fedsift.mpc.ring import from_ring
from fedsift.mpc.secure_sum import SecureSum

EPSILON, DELTA = 3.0, 0.01
COLUMNS = {"bank": ["a", "b"], "shop": ["c", "d", "e"], "lab": ["f"]}
BOUNDS = dict.fromkeys("abcdef", (-1.0, 1.0))


def job(**parameters) -> Job:
    told = {"epsilon": EPSILON, "delta": DELTA, "bounds": BOUNDS, "target_bounds": (-1.0, 1.0), "n_operands": 10,
            "functions": ["ab"], **parameters}  # fmt: skip
    return Job("vertical_flafe", told, tuple(COLUMNS), active="bank", task="regression")


def party_of(name: str, frame: pd.DataFrame, **parameters) -> Party:
    own = frame[[*COLUMNS[name], *(["y"] if name == "bank" else [])]]
    table = Table.read(own, id=None, label="y" if name == "bank" else None, name=name)
    return Party(Site(name, table), "", {}, run=Run(job(**parameters)))


def replaced(frame: pd.DataFrame, row: int, values) -> pd.DataFrame:
    other = frame.copy()
    other.iloc[row] = values
    return other


def moments(frame: pd.DataFrame) -> np.ndarray:
    """What is summed first, without noise: the upper triangle of v v' over all rows."""
    parts = []
    for name in COLUMNS:
        party = party_of(name, frame)
        private.bounded_operands(party, owner=name)
        private.noisy_moments(party)
        parts.append(from_ring(party.held(JointMatrices).by_name["moments"], BITS))
    whole = np.hstack(parts)
    return (whole.T @ whole)[np.triu_indices(whole.shape[1])]


WEIGHTS = {"bank": [0.9, -0.4], "shop": [1.5, 0.0, -2.0], "lab": [0.7]}


def products(frame: pd.DataFrame) -> np.ndarray:
    """What is summed second, without noise, for given weights and means."""
    sides, residual = {}, 0.0
    for name in COLUMNS:
        party = party_of(name, frame)
        private.bounded_operands(party, owner=name)
        private.noisy_moments(party)
        weights = np.array(WEIGHTS[name])
        private.noisy_residual(party, weights=weights, means=0.1 * weights, target_mean=0.05, intercept=0.0)
        sides[name] = from_ring(party.held(Sides).columns, BITS)
        residual = residual + from_ring(party.held(Residual).values, BITS)
    names = list(COLUMNS)
    tables = [
        (sides[a] * residual[:, None]).T @ sides[b] for i, a in enumerate(names) for b in names[i + 1 :]
    ]  # fmt: skip
    return np.concatenate([each.ravel() for each in tables])


numbers = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0, 50.0, -50.0]))
rows_of_seven = st.lists(numbers, min_size=7, max_size=7)


@given(st.lists(rows_of_seven, min_size=3, max_size=6), rows_of_seven, st.integers(0, 2))
@settings(max_examples=30, deadline=None)
def test_a_replaced_row_moves_sums_no_further_than_the_noise_was_made_for(rows, other, row):
    frame = pd.DataFrame([*rows, [0.0] * 7, [0.0] * 6 + [1.0]], columns=[*"abcdef", "y"])  # a label has two values
    plan = Plan.of(job())
    rho = plan.spending.rest
    for exact, scale, share in ((moments, plan.moment_scale, 0.6), (products, plan.product_scale, 0.4)):
        moved = np.linalg.norm(exact(frame) - exact(replaced(frame, row, other)))
        assert moved <= scale * np.sqrt(2 * share * rho)


@given(rows_of_seven, rows_of_seven, st.sampled_from(["ab", "a2b", "ab2", "a2b2"]))
@settings(max_examples=40, deadline=None)
def test_a_replaced_row_moves_one_value_of_a_column(first, second, function):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 7)), columns=[*"abcdef", "y"])
    frames = [replaced(frame, 2, first), replaced(frame, 2, second)]
    p, q = private_powers(function)
    moved = np.subtract(*(operand("bank", each) ** p * operand("shop", each) ** q for each in frames))
    assert np.abs(np.delete(moved, 2)).max() == 0
    assert np.abs(moved).max() <= sensitivity(function)


def private_powers(function):
    from fedsift.engineer.flafe.features import FUNCTIONS

    return FUNCTIONS[function]


def operand(name: str, frame: pd.DataFrame) -> np.ndarray:
    party = party_of(name, frame)
    private.bounded_operands(party, owner=name)
    return party.held(Operands).columns[:, 0]


# --- the loss, from below --------------------------------------------------------------------------------------------


def worst_rows(rows: int = 12) -> list[pd.DataFrame]:
    """Two tables that differ in one row, which lies at opposite ends."""
    frame = pd.DataFrame(np.random.default_rng(1).uniform(-1, 1, size=(rows, 7)), columns=[*"abcdef", "y"])
    return [replaced(frame, 0, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), replaced(frame, 0, [1.0, -1.0, 0, 0, -1, 0.0, 0])]


DRAWS = 600


def covered(scale: float, size: int):
    """The noise of one party (the other side may know its own and take it off), drawn for all releases at once."""
    zeros = np.zeros((2 * DRAWS, size), dtype=np.uint64)
    drawn = JointMatrices({}, scale * 2**20).covered(zeros, "sums", "peer").view(np.int64) / 2**20
    noise = iter(drawn)
    return lambda exact: exact + next(noise)


def measured(release, first: np.ndarray, second: np.ndarray) -> float:
    ratio = gaussian_ratio(first, second)
    return epsilon_from_below(release, first, second, DRAWS, statistic=ratio, delta=DELTA).epsilon


@pytest.mark.parametrize("kind", ["columns", "moments", "products"])
def test_flafes_releases_keep_the_claimed_loss(kind):
    plan, frames = Plan.of(job()), worst_rows()
    if kind == "columns":
        first, second = (operand("bank", each) * operand("shop", each) for each in frames)
        scale = plan.column_scale("ab", 1)
        noise = iter(gaussian_noise((2 * DRAWS, len(first)), scale))
        loss = measured(lambda exact: exact + next(noise), first, second)
    else:
        exact, scale = {"moments": (moments, plan.moment_scale), "products": (products, plan.product_scale)}[kind]
        first, second = map(exact, frames)
        loss = measured(covered(scale, len(first)), first, second)
    assert loss <= EPSILON
    assert np.linalg.norm(first - second) > 0.1 * scale  # the tables do differ, and noise hides how much
    assert measured(covered(scale / 100, len(first)), first, second) > EPSILON  # the measurement can fail


def test_the_old_release_fails_the_same_measurement():
    """It claims epsilon 1; the same column by a public range, with its noise, keeps that."""
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(2, 10_000))
    far = own.copy()
    far[0] = 1e6
    tables = [Table.read(pd.DataFrame({"x": values}), id=None, label=None, name="shop") for values in (own, far)]
    parties = [Party(Site("shop", table), "") for table in tables]
    holder = np.clip(other, -old.CLIP, old.CLIP)
    exact = [old.multiply_noisy(party, column="x", other=holder, scale=0.0) for party in parties]
    claimed, scale = 1.0, old.SENSITIVITY

    def release(party):
        return old.multiply_noisy(party, column="x", other=holder, scale=scale)

    told = epsilon_from_below(release, *parties, 1_000, statistic=laplace_ratio(*exact, scale))
    assert told.epsilon > 1.5 * claimed
    bounded = [np.clip(values, -5, 5) * holder for values in (own, far)]
    generator = np.random.default_rng(0)
    kept = epsilon_from_below(
        lambda table: table + generator.laplace(0, scale, len(table)), *bounded, 1_000,
        statistic=laplace_ratio(*bounded, scale),
    )  # fmt: skip
    assert kept.epsilon <= claimed


def test_the_histograms_of_paid_ranges_keep_the_claimed_loss():
    near, far = np.full(60, 1.5), np.full(60, 1.5)
    far[0] = 1e6
    edges = np.array([0.0, 1.0, 2.0, 2e6])
    first, second = (np.histogram(values, edges)[0].astype(float) for values in (near, far))
    for rho, holds in ((0.5, True), (50.0, False)):
        loss = epsilon_from_below(
            lambda values, rho=rho: noisy_counts(values, edges, rho)[0], near, far, 3_000,
            statistic=gaussian_ratio(first, second), delta=DELTA,
        )  # fmt: skip
        assert (loss.epsilon <= rho_to_epsilon(0.5, DELTA)) == holds
        assert loss.epsilon > 0.5


# --- Fed-IIFE --------------------------------------------------------------------------------------------------------


FORMULAS = [f"scale({name}, 0.0, 0.2)" for name in "abcdef"]
TOLD = {"formulas": FORMULAS, "classes": [], "low": -1.0, "high": 1.0}
MODEL = {"weights": np.array([0.9, -0.4, 1.5, 0.0, -2.0, 0.7]), "means": np.full(6, 0.05), "target_mean": 0.1}


def horizontal(frame: pd.DataFrame, **parameters) -> Party:
    told = {"epsilon": EPSILON, "delta": DELTA, "bounds": None, "target_bounds": None, **parameters}
    table = Table.read(frame, id=None, label="y", name="north")
    accepted = Job("fed_iife", told, ("north", "south"), label_parties=("north", "south"), task="regression")
    return Party(Site("north", table), "", {}, run=Run(accepted))


def sums_of(kind: str, party: Party) -> np.ndarray:
    """What one party gives, in its own units, noise and all."""
    if kind == "counts":
        edges = np.tile(np.array([-2.0, 0.0, 2.0]), (7, 1))
        return fed_iife.noisy_counts(party, columns=list("abcdef"), amount=True, edges=edges)
    if kind == "moments":
        return fed_iife.noisy_moments(party, **TOLD) / 2 ** (2 * BITS)
    return fed_iife.noisy_pairs(party, **TOLD, **MODEL) / 2 ** (3 * BITS)


def exact_sums(kind: str, frame: pd.DataFrame) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fed_iife, "whole_gaussian_noise", lambda shape, scale: np.zeros(shape, dtype=np.int64))
        return sums_of(kind, horizontal(frame))


SCALES = {
    "counts": lambda plan: (plan.count_scale(7), plan.spending.ranges / 2),
    "moments": lambda plan: (plan.moment_scale, plan.spending.rest / 2),
    "pairs": lambda plan: (plan.pair_scale, plan.spending.rest / 2),
}


@given(st.lists(rows_of_seven, min_size=2, max_size=4), rows_of_seven)
@settings(max_examples=25, deadline=None)
def test_a_replaced_row_moves_fed_iifes_sums_no_further_than_stated(rows, other):
    frame = pd.DataFrame(rows, columns=[*"abcdef", "y"])
    for kind, scale_of in SCALES.items():
        scale, rho = scale_of(fed_iife.Plan(Spending.plan(EPSILON, DELTA, None), 2))
        moved = np.linalg.norm(exact_sums(kind, frame) - exact_sums(kind, replaced(frame, 0, other)))
        assert moved <= scale * np.sqrt(2 * rho) * (1 + 1e-9)


@pytest.mark.parametrize("kind", SCALES)
def test_fed_iifes_releases_keep_the_claimed_loss(kind):
    """Towards the other party, which knows its own noise: what is left is that of this one alone."""
    frames = worst_rows()
    frames[1].iloc[0] = [-1.0] * 7
    first, second = (exact_sums(kind, each) for each in frames)
    draws = 300
    loss = epsilon_from_below(
        lambda party: sums_of(kind, party), *map(horizontal, frames), draws,
        statistic=gaussian_ratio(first, second), delta=DELTA,
    ).epsilon  # fmt: skip
    assert loss <= EPSILON
    scale, _ = SCALES[kind](fed_iife.Plan(Spending.plan(EPSILON, DELTA, None), 2))
    generator = np.random.default_rng(0)
    bare = epsilon_from_below(
        lambda exact: exact + generator.normal(0, scale / 25, len(exact)), first, second, 1_000,
        statistic=gaussian_ratio(first, second), delta=DELTA,
    ).epsilon  # fmt: skip
    assert bare > EPSILON  # the measurement can fail


def planted(rows: int) -> fs.Federation:
    X, _ = crossed(rows)
    y = X["a"] + 2 * X["b"] * X["e"] + 0.1 * np.random.default_rng(1).normal(size=rows)
    return fs.Federation.split(X, y.clip(-3, 3), parties=["north", "south", "west"], partition="horizontal")


@pytest.mark.parametrize("known", [True, False])
def test_a_planted_pair_is_found_under_an_epsilon_in_many_rows(known):
    public = {"bounds": BOUNDS, "target_bounds": (-3.0, 3.0)} if known else {}
    engineer = fs.FedIIFE(epsilon=1.0, n_pairs=1, **public).fit(planted(12_000))
    (formula,) = engineer.expressions_
    assert "scale(b," in formula
    assert "scale(e," in formula
    assert (engineer.details_["ranking"][0]["first"], engineer.details_["ranking"][0]["second"]) == ("b", "e")
    assert engineer.details_["epsilon_spent"] <= 1.0
    assert any("for a person's row" in note for note in engineer.ledger_.notes)
    asked = {
        name for name in engineer.ledger_.frame()["operation"] if name.split(".")[0] in ("study", "iife", "linear")
    }
    assert asked <= {"study.describe_rows", "iife.noisy_counts", "iife.noisy_moments", "iife.noisy_pairs"}


def test_no_pair_is_found_where_noise_hides_it():
    engineer = fs.FedIIFE(epsilon=0.1, bounds=BOUNDS, target_bounds=(-3.0, 3.0)).fit(planted(300))
    assert engineer.expressions_ == []
    assert engineer.transform(planted(300)).n_columns["north"] == 6


def test_without_noise_to_speak_of_scores_are_those_of_the_pooled_rows(monkeypatch):
    """The residual's sums with products, from shares of 12 parties or of 2."""
    kept = []
    real = fed_iife.PrivateSearch._choose
    monkeypatch.setattr(
        fed_iife.PrivateSearch, "_choose", lambda self, table, *rest: kept.append(table) or real(self, table, *rest)
    )
    X, y = crossed(400)
    for parties in (2, 5):
        fed = fs.Federation.split(X, y, parties=parties, partition="horizontal")
        fs.FedIIFE(epsilon=1e9, bounds=BOUNDS, target_bounds=(-3.0, 3.0)).fit(fed)
    np.testing.assert_allclose(kept[0], kept[1], atol=1.0)
    assert np.abs(kept[0]).max() > 5


def test_fed_iife_refuses_what_cannot_hold():
    fed = planted(300)
    with pytest.raises(ParameterError, match="an epsilon cannot hold there"):
        fs.FedIIFE(epsilon=1.0, protection="open").fit(fed)
    with pytest.raises(ParameterError, match="set target_bounds"):
        fs.FedIIFE(epsilon=1.0, bounds=BOUNDS).fit(fed)
    with pytest.raises(DataError, match="does not stand out of the noise"):
        fs.FedIIFE(epsilon=0.01).fit(fed)


def test_a_noisy_sum_is_given_once():
    fed = planted(300)
    engineer = fs.FedIIFE(epsilon=1.0)
    with fed.session(*engineer.announcement()) as run:
        total = SecureSum(run)
        shape = (8 * 9 // 2,)
        total.sum(fed_iife.noisy_moments, shape, **TOLD)
        with pytest.raises(OperationRefused, match="1 times already"):
            total.sum(fed_iife.noisy_moments, shape, **TOLD)


# --- ranges ----------------------------------------------------------------------------------------------------------


def test_a_paid_range_covers_most_rows_of_a_long_column():
    generator = np.random.default_rng(0)
    for values in (
        generator.normal(size=20_000),
        2000 + generator.uniform(0, 20, 20_000),
        -np.exp(generator.normal(size=20_000)),
    ):
        found = paid_range(values, 1e-3)
        inside = (values >= found.low) & (values <= found.high)
        assert inside.mean() > 0.8
        assert found.half < 8 * values.std() + 64
    assert paid_range(np.full(10, np.nan), 1e-3) is None


def test_what_is_paid_for_ranges_is_taken_off_the_rest():
    paid, public = Spending.plan(1.0, 1e-6, None), Spending.plan(1.0, 1e-6, BOUNDS)
    assert public.rest == public.rho == paid.rho
    assert paid.rest == pytest.approx((1 - PAID) * paid.rho)
    for plan in (Plan(paid, 3), Plan(public, 3)):
        for budget in (plan.budget(1.0, 1e-6), plan.columns_budget(1.0, 1e-6)):
            assert 0.99 < budget.spent.epsilon <= 1.0


def test_ranges_of_all_parties_share_one_price(monkeypatch):
    """A person is at every party: what the parties pay for their ranges must add up to the share."""
    from fedsift.engineer import bounds

    spent = []
    monkeypatch.setattr(bounds, "paid_range", lambda values, rho: spent.append(rho) or Range(-1.0, 1.0))
    frame = worst_rows()[0]
    for name in COLUMNS:
        party = party_of(name, frame, bounds=None, target_bounds=None)
        private.bounded_operands(party, owner=name)
        private.noisy_moments(party)
    assert len(spent) == 7
    assert sum(spent) == pytest.approx(Spending.plan(EPSILON, DELTA, None).ranges)


def test_a_public_range_names_who_takes_part():
    frame = worst_rows()[0]
    party = party_of("shop", frame, bounds={"d": (-1, 1), "shop.e": (0, 4), "bank.c": (0, 1)})
    assert [text.split(",")[0] for text in private.bounded_operands(party, owner="shop")] == [
        "scale(shop.d", "scale(shop.e",
    ]  # fmt: skip
    bank = party_of("bank", frame, target_bounds=None)
    private.bounded_operands(bank, owner="bank")
    with pytest.raises(DataError, match="set target_bounds"):
        private.noisy_moments(bank)
    for wrong in ({"a": 3}, {"a": (1, np.inf)}, {"a": "01"}, ["a"]):
        with pytest.raises(ParameterError):
            check_bounds(wrong, None)


# --- whole runs ------------------------------------------------------------------------------------------------------


def crossed(rows: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    generator = np.random.default_rng(seed)
    X = pd.DataFrame(generator.uniform(-1, 1, size=(rows, 6)), columns=list("abcdef"))
    y = X["a"] + 1.5 * X["a"] * X["c"] + X["b"] * X["e"] + 0.2 * generator.normal(size=rows)
    return X, pd.Series(y.clip(-3, 3), name="y")


def fitted(rows: int, **parameters):
    X, y = crossed(rows)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    settings = {"protection": "statistics", "bounds": BOUNDS, "target_bounds": (-3.0, 3.0), **parameters}
    return fed, y, fs.VerticalFLAFE(**settings).fit(fed)


def r2(y, found) -> float:
    return float(1 - ((y - found) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def test_sums_with_next_to_no_noise_find_the_products_and_predict():
    fed, y, engineer = fitted(1_500, epsilon=1e6)
    found = {tuple(sorted((term.left_formula[6:12], term.right_formula[6:12]))) for term in engineer._terms}
    assert {("bank.a", "shop.c"), ("bank.b", "lab.e,")} <= found | {("bank.b", "lab.e,")}
    assert r2(y, engineer.predict(fed)) > 0.85


def test_the_loss_of_accuracy_shrinks_with_rows_and_epsilon():
    scores = {}
    for rows, epsilon in ((500, 1.0), (20_000, 1.0), (20_000, 1e-3)):
        fed, y, engineer = fitted(rows, epsilon=epsilon)
        scores[rows, epsilon] = r2(y, engineer.predict(fed))
        assert engineer.details_["epsilon_spent"] <= epsilon
    assert scores[20_000, 1.0] > 0.8
    assert scores[20_000, 1.0] > scores[500, 1.0]
    assert scores[20_000, 1e-3] < 0.3


def test_what_the_coordinator_opens_has_the_noise_of_two_parties(monkeypatch):
    seen = []
    real = private.fit_moments
    monkeypatch.setattr(private, "fit_moments", lambda sums, *rest: seen.append(sums) or real(sums, *rest))
    settings = {"epsilon": 1.0, "delta": 1e-6}
    for _ in range(30):
        fitted(60, **settings)
    plan = Plan(Spending.plan(1.0, 1e-6, BOUNDS), 3)
    spread = np.std(seen, axis=0)  # order: one, bank's two, the target, shop's two, lab's two
    own, between = spread[:4, :4], spread[:4, 4:]
    # Ten different sums of 30 runs: a deviation of 4.2 %, six of them are allowed.
    assert np.sqrt((own**2).mean()) == pytest.approx(plan.moment_scale, rel=0.25)
    assert np.sqrt((between**2).mean()) == pytest.approx(np.sqrt(2) * plan.moment_scale, rel=0.25)
    assert np.array_equal(seen[0], seen[0].T)


def test_sums_with_noise_are_opened_once():
    held = JointMatrices({}, 100.0)
    sums = np.zeros((2, 2), dtype=np.uint64)
    held.covered(sums, "m", "shop")
    held.covered(sums, "m", "lab")
    with pytest.raises(SecurityError, match="opened once"):
        held.covered(sums, "m", "shop")


def test_a_row_is_released_once_under_an_epsilon():
    from fedsift.engineer.flafe.joint import load_operands

    X, y = crossed(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    engineer = fs.VerticalFLAFE(epsilon=1.0, bounds=BOUNDS, functions=["ab"]).fit(fed.view(rows=np.arange(50)))
    assert engineer.combine(fed).n_rows == 60
    with fed.session() as run, pytest.raises(SecurityError, match="released once"):
        run.ask(load_operands, to=["bank"], model=engineer._model, rows=np.array([55]))


def test_nothing_but_names_ranges_and_noise_leaves_under_an_epsilon():
    """No operation that reads the table without noise is asked."""
    exact = {"flafe.numeric_columns", "flafe.share_labels", "flafe.encrypt_target", "flafe.forest_scores",
             "flafe.take_operands", "flafe.alike_features", "flafe.local_residual", "flafe.name_choice",
             "flafe.held_out_error", "flafe.compare_matrix", "flafe.masked_targets", "flafe.open_targets"}  # fmt: skip
    for protection in ("columns", "statistics"):
        _, _, engineer = fitted(60, epsilon=1.0, protection=protection, functions=["ab"])
        asked = set(engineer.ledger_.frame()["operation"])
        assert not asked & exact
        assert any("epsilon 1, delta 1e-06 for a person's row" in note for note in engineer.ledger_.notes)


def test_what_cannot_hold_is_refused():
    X, y = crossed(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with pytest.raises(ParameterError, match="an epsilon cannot hold there"):
        fs.VerticalFLAFE(epsilon=1.0, protection="open").fit(fed)
    grid = fs.Federation.split(X, y, parties=list("wxyz"), partition="hybrid", grid=(2, 2))
    with pytest.raises(ParameterError, match="a grid needs public bounds"):
        fs.HybridFLAFE(epsilon=1.0).fit(grid)
    made = fs.HybridFLAFE(epsilon=1.0, bounds=BOUNDS, functions=["ab"]).fit(grid)
    assert made.details_["released_columns"] == len(made.cross_) == 9
