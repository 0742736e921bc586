"""Noise has the promised distribution and no telling bits; a budget is never overspent."""

import copy
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsift.crypto import dp as privacy
from fedsift.crypto.dp import Budget, Release, epsilon_to_rho, gaussian_noise, rho_to_epsilon, whole_gaussian_noise
from fedsift.errors import BudgetExceeded, ParameterError

pytestmark = pytest.mark.usefixtures("true_noise")


def follows(sample, distribution):
    """Kolmogorov-Smirnov at 1e-4, on a second sample too before it is a failure: one false alarm in 100 million."""
    return any(stats.kstest(sample(), distribution.cdf).pvalue > 1e-4 for _ in range(2))


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_follows_its_distribution():
    # the grid (2**-39) is far below what 100,000 draws can resolve, so the continuous test applies
    assert follows(lambda: gaussian_noise(100_000, 3.0), stats.norm(scale=3.0))


def test_draws_do_not_depend_on_each_other():
    noise = gaussian_noise(10_000, 3.0)
    assert abs(stats.pearsonr(noise[:-1], noise[1:]).statistic) < 0.06  # six deviations


@pytest.mark.parametrize("scale", [1e-6, 3.0, 12500.0])
def test_noise_lies_on_its_documented_grid_and_scales(scale):
    noise = gaussian_noise((40, 50), scale)
    assert noise.shape == (40, 50)
    steps = noise / 2.0 ** (math.floor(math.log2(scale)) - 40)
    np.testing.assert_array_equal(steps, np.round(steps))
    assert noise.std() == pytest.approx(scale, rel=0.15)  # nine deviations of 2,000 draws


@pytest.mark.parametrize("draw", [lambda: gaussian_noise(5, 1.0), lambda: whole_gaussian_noise(9, 1e6)])
def test_no_seed_makes_noise_repeat(draw):
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(draw())
    assert not np.array_equal(*draws)


def test_every_thread_draws_its_own_noise(monkeypatch):
    monkeypatch.setattr(privacy, "_THREADED_FROM", 10)
    monkeypatch.setattr("fedsift.core.workers.available", lambda: 2)
    noise = gaussian_noise(200, 1.0)
    assert noise.shape == (200,)
    assert len(np.unique(noise)) == 200


def test_empty_and_single_shapes():
    assert gaussian_noise(0, 1.0).shape == (0,)
    assert gaussian_noise((), 1.0).shape == ()


@pytest.mark.parametrize(("sensitivity", "rho"), [(1.0, 1.0), (0.3, 0.1), (1250.0, 0.7), (1e-5, 3.3)])
def test_opendp_certifies_the_loss_that_was_asked_for(monkeypatch, sensitivity, rho):
    used = []
    real = privacy._measurement
    monkeypatch.setattr(privacy, "_measurement", lambda *args: used.append(args) or real(*args))
    scale = sensitivity / math.sqrt(2 * rho)
    gaussian_noise(300, scale)
    assert real(*used[-1]).map(sensitivity) == pytest.approx(rho, rel=1e-9)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None])
def test_senseless_amounts_are_refused(bad):
    for attempt in (
        lambda: gaussian_noise(3, bad),
        lambda: whole_gaussian_noise(3, bad),
        lambda: Budget(bad),
        lambda: Budget(1.0).spend(epsilon=bad, about="x"),
        lambda: Budget(1.0, 1e-6).spend_rho(bad, "x"),
    ):
        with pytest.raises(ParameterError):
            attempt()


# --- zCDP -> (epsilon, delta) -----------------------------------------------------------------------------------------

RHOS_AND_DELTAS = [(rho, delta) for rho in (1e-3, 0.05, 0.5, 4.0, 30.0) for delta in (1e-3, 1e-6, 1e-10)]


@pytest.mark.parametrize(("rho", "delta"), RHOS_AND_DELTAS)
def test_conversion_is_safe_and_near_an_independent_accountant(rho, delta):
    accounting = pytest.importorskip("dp_accounting")
    sigma = 1 / math.sqrt(2 * rho)
    exact = accounting.get_epsilon_gaussian(sigma, delta)  # the best possible for one Gaussian release
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(sigma))
    ours = rho_to_epsilon(rho, delta)
    assert exact <= ours <= accountant.get_epsilon(delta) * (1 + 1e-9)
    assert ours <= rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke's simple formula
    assert ours <= exact * 1.25


@pytest.mark.parametrize(("rho", "delta"), RHOS_AND_DELTAS)
def test_what_a_budget_has_left_is_the_inverse_of_the_conversion(rho, delta):
    epsilon = rho_to_epsilon(rho, delta)
    left = Budget(epsilon, delta).left_rho
    assert left == pytest.approx(rho, rel=1e-6)


@pytest.mark.parametrize(("rho", "delta"), RHOS_AND_DELTAS)
def test_conversion_and_its_inverse_agree(rho, delta):
    epsilon = rho_to_epsilon(rho, delta)
    back = epsilon_to_rho(epsilon, delta)
    assert back == pytest.approx(rho, rel=1e-6)
    assert rho_to_epsilon(back, delta) <= epsilon


def test_conversion_needs_a_delta():
    assert rho_to_epsilon(0.0, 1e-6) == 0
    for delta in (0.0, 1.0, -1e-6):
        with pytest.raises(ParameterError, match="delta"):
            rho_to_epsilon(0.1, delta)


# --- budget -----------------------------------------------------------------------------------------------------------


def test_pure_releases_add_up_and_the_last_one_too_many_is_refused():
    budget = Budget(1.0)
    for i in range(10):
        budget.spend(epsilon=0.1, about=f"column {i}")  # ten tenths fit, in floating point too
    assert budget.spent == pytest.approx((1.0, 0.0))
    before = budget.entries
    with pytest.raises(BudgetExceeded) as caught:
        budget.spend(epsilon=0.25, about="one more histogram")
    for part in ("one more histogram", "0.25", "epsilon 1", "10 releases"):
        assert part in str(caught.value)
    assert budget.entries == before
    assert budget.left.epsilon == pytest.approx(0, abs=1e-9)


def test_the_message_says_how_much_is_left():
    budget = Budget(2.0, 1e-6)
    budget.spend(epsilon=0.5, about="scores")
    with pytest.raises(BudgetExceeded, match=r"'moments'.*rho 5.*1\.5 of epsilon 2.*rho 0\.0"):
        budget.spend_rho(5.0, "moments")
    with pytest.raises(BudgetExceeded, match=r"'mean'.*epsilon 1\.75.*1\.5 of epsilon 2"):
        budget.spend(epsilon=1.75, about="mean")


def test_gaussian_noise_needs_a_delta():
    budget = Budget(1.0)
    with pytest.raises(BudgetExceeded, match="no delta"):
        budget.spend_rho(1e-6, "moments")
    assert budget.left_rho == 0
    with pytest.raises(BudgetExceeded):
        budget.spend(epsilon=0.1, delta=1e-9, about="approximate")


def test_deltas_add_up_and_leave_less_for_conversion():
    budget = Budget(10.0, 1e-5)
    budget.spend_rho(0.1, "moments")
    before = budget.spent.epsilon
    budget.spend(epsilon=0.5, delta=9e-6, about="stable histogram")
    assert budget.spent.epsilon == pytest.approx(0.5 + rho_to_epsilon(0.1, 1e-6))
    assert budget.spent.epsilon > before + 0.5
    with pytest.raises(BudgetExceeded):
        budget.spend(epsilon=0.5, delta=2e-6, about="another")
    assert budget.left.delta == pytest.approx(1e-6)


def test_rhos_compose_by_adding_and_beat_basic_composition():
    budget = Budget(3.0, 1e-6)
    rho = budget.left_rho / 32
    for i in range(32):
        budget.spend_rho(rho, f"round {i}")
    assert budget.spent.epsilon == pytest.approx(rho_to_epsilon(32 * rho, 1e-6))
    assert 2.99 < budget.spent.epsilon <= 3.0 * (1 + 1e-9)
    assert 32 * rho_to_epsilon(rho, 1e-6) > 2 * budget.spent.epsilon
    with pytest.raises(BudgetExceeded):
        budget.spend_rho(rho, "round 32")


def test_mixed_kinds_take_the_cheaper_valid_sum():
    few = Budget(10.0, 1e-6)
    few.spend(epsilon=1.0, about="one large")
    assert few.spent == (1.0, 0.0)  # alone, pure composition is best and claims no delta
    few.spend_rho(0.01, "gauss")
    assert few.spent.epsilon == pytest.approx(1.0 + rho_to_epsilon(0.01, 1e-6))
    many = Budget(10.0, 1e-6)
    for i in range(1000):
        many.spend(epsilon=0.01, about=str(i))
    many.spend_rho(0.01, "gauss")
    assert many.spent.epsilon == pytest.approx(rho_to_epsilon(0.01 + 1000 * 0.01**2 / 2, 1e-6))
    assert many.spent.epsilon < 2


spends = st.lists(
    st.one_of(
        st.tuples(st.just("pure"), st.floats(1e-3, 2.0)),
        st.tuples(st.just("rho"), st.floats(1e-5, 0.2)),
        st.tuples(st.just("approximate"), st.floats(1e-3, 1.0)),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(spends, st.sampled_from([0.0, 1e-6]))
def test_no_order_of_requests_overspends(requests, delta):
    budget = Budget(2.0, delta)
    spent = 0.0
    for kind, amount in requests:
        count = len(budget.entries)
        try:
            if kind == "rho":
                budget.spend_rho(amount, "x")
            else:
                budget.spend(epsilon=amount, delta=1e-7 if kind == "approximate" else 0.0, about="x")
        except BudgetExceeded:
            assert len(budget.entries) == count
        else:
            assert len(budget.entries) == count + 1
        assert spent <= budget.spent.epsilon * (1 + 1e-9)
        spent = budget.spent.epsilon
        assert spent <= 2.0 * (1 + 1e-9)
        assert budget.spent.delta <= delta * (1 + 1e-9)
        assert budget.left.epsilon == pytest.approx(2.0 - spent, abs=1e-8)
    if budget.left_rho > 1e-9:
        budget.spend_rho(budget.left_rho, "what left_rho promised")


def test_threads_cannot_overspend_together():
    budget = Budget(1.0)
    refused = []

    def spend():
        for _ in range(25):
            try:
                budget.spend(epsilon=0.01, about="x")
            except BudgetExceeded:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(budget.entries) == 100
    assert len(refused) == 100


def test_a_copy_is_no_second_budget():
    budget = Budget(1.0)
    for other in (copy.copy(budget), copy.deepcopy(budget), copy.deepcopy({"budget": budget})["budget"]):
        other.spend(epsilon=0.2, about="x")
    assert budget.spent.epsilon == pytest.approx(0.6)


def test_entries_cannot_be_changed_from_outside():
    budget = Budget(1.0)
    budget.spend(epsilon=0.9, about="x")
    with pytest.raises(AttributeError):
        budget.entries[0].epsilon = 0.0
    with pytest.raises(AttributeError):
        budget.entries.clear()
    assert budget.spent.epsilon == 0.9


def test_rows_and_repr_tell_the_story():
    budget = Budget(2.0, 1e-6)
    budget.spend(epsilon=0.5, about="scores")
    budget.spend_rho(0.01, "moments")
    first, second = budget.as_rows()
    assert list(first) == ["release", "about", "mechanism", "epsilon", "delta", "rho", "total_epsilon"]
    assert list(first.values()) == [1, "scores", "laplace", 0.5, 0.0, None, 0.5]
    assert list(second) == list(first)
    assert list(second.values())[:-1] == [2, "moments", "gaussian", None, None, 0.01]
    assert second["total_epsilon"] == budget.spent.epsilon
    assert budget.entries[1] == Release("moments", "gaussian", rho=0.01)
    assert repr(budget) == "Budget(epsilon=2, delta=1e-06: 1.122 spent in 2 releases, 0.8783 left)"
