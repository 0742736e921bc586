"""Group lasso on shares: proximal steps, norms and dropped inputs against plain arithmetic, and what a member sees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2
from shared_networks import CLOSE, PlainNetwork, Views, begun, federation, joined_weights, numbers, parts_of
from test_less_vfl import kept, noisy

from fedsift.errors import ParameterError
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_shrinking import WHOLE, SharedShrinking
from fedsift.select.less_vfl.lasso_networks import GroupLasso
from fedsift.select.less_vfl.shared_lasso import Sixteenths, autoencoded, left_of
from fedsift.select.less_vfl.vflfs import VFLFS


@pytest.mark.parametrize("parties", [2, 4])
def test_a_proximal_step_on_shares_multiplies_the_weights(parties):
    fed = federation(*numbers(), parties=parties)
    with begun(fed) as net:
        gates = SharedGates(net)
        shrinking, plain = SharedShrinking(gates), PlainNetwork(net, fed)
        before = joined_weights(parts_of(fed, net.fed), net.roles)
        left = {n: np.linspace(0, WHOLE, count).round().astype(np.uint8) for n, count in gates.counts.items()}
        shrinking.shrink(left)
        found = joined_weights(parts_of(fed, net.fed), net.roles)
        for name, weights in before.items():
            factor = np.append(left[name], WHOLE)[gates.columns[name]][:, None] / WHOLE
            np.testing.assert_allclose(found[name], weights * factor, atol=1e-12)
            plain.weights[name] = plain.weights[name] * factor
        plain.train(2)
        net.train(2)  # the dealer's knowledge followed the step, or the angles would be garbage
        found = joined_weights(parts_of(fed, net.fed), net.roles)
    for name, weights in plain.weights.items():
        np.testing.assert_allclose(found[name], weights, atol=CLOSE)


def test_norms_are_those_of_the_weights_that_nobody_has():
    with begun(fed := federation(*numbers(d=12), parties=3)) as net:
        gates = SharedGates(net)
        net.train(3)
        found = gates.norms()
        true = joined_weights(parts_of(fed, net.fed), net.roles)
    for name, norms in found.items():
        read = np.sqrt((1 - np.cos(2 * true[name])).sum(axis=1) / 2)[: len(norms)]  # a little less than the norm
        np.testing.assert_allclose(norms, read, atol=0.01)
        np.testing.assert_allclose(norms, np.linalg.norm(true[name], axis=1)[: len(norms)], rtol=0.15)


def test_training_goes_on_without_the_inputs_that_were_dropped():
    with begun(fed := federation(*numbers(d=12), parties=3), batch_size=30) as net:
        gates = SharedGates(net)
        gates.set({n: np.ones(count, dtype=bool) for n, count in gates.counts.items()})
        plain = PlainNetwork(net, fed)
        out = {n: np.arange(count) % 2 == 1 for n, count in gates.counts.items()}
        gates.drop(out)
        stay = {n: ~np.append(out[n], False)[: len(w)] for n, w in plain.weights.items()}
        for name, bits in stay.items():
            plain.weights[name], plain.inputs[name] = plain.weights[name][bits], plain.inputs[name][:, bits]
            plain.gates[name], plain.gradients[name] = plain.gates[name][bits], plain.gradients[name][bits]
        gates.set({n: np.ones(count, dtype=bool) for n, count in gates.counts.items()})
        net.train(2)
        plain.train(2)
        found, gains = joined_weights(parts_of(fed, net.fed), net.roles), gates.gradients()
    for name, weights in plain.weights.items():
        np.testing.assert_allclose(found[name], weights, atol=CLOSE)
        assert np.isinf(gains[name][out[name]]).all()
        assert np.isfinite(gains[name][~out[name]]).all()


def test_what_a_step_shows_its_members_is_uniform(monkeypatch):
    views = Views(monkeypatch)
    with begun(federation(*numbers(d=40)), width=32) as net:
        shrinking = SharedShrinking(SharedGates(net))
        for _ in range(8):
            shrinking.shrink({n: np.full(count, 15, dtype=np.uint8) for n, count in shrinking.gates.counts.items()})
    for member, seen in views.seen.items():
        bits = np.concatenate([array.reshape(-1) for what, _, _, array in seen if what == "wraps"])
        assert abs(bits.mean() - 0.5) < 6 * 0.5 / math.sqrt(len(bits)), member  # by chance: 2 in 10^9, twice
        for message in ("factors", "product", "shrunk"):
            shares = np.concatenate([array.reshape(-1) for what, _, _, array in seen if what == message])
            for shift in (0, 56):
                counts = np.bincount((shares >> np.uint64(shift)).astype(np.uint8), minlength=256)
                expected = counts.sum() / 256
                # 12 tests of uniform numbers: one fails by chance once in 10^8 runs
                assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 255) > 1e-9, (member, message, shift)


def test_more_than_a_whole_is_refused():
    with begun(federation(*numbers())) as net:
        shrinking = SharedShrinking(SharedGates(net))
        more = {n: np.full(count, 17, dtype=np.uint8) for n, count in shrinking.gates.counts.items()}
        with pytest.raises(ValueError, match="sixteenths"):
            shrinking.shrink(more)


def test_what_is_left_of_a_norm_is_the_proximal_factor():
    np.testing.assert_allclose(left_of(np.array([0.0, 0.5, 1.0, 4.0]), 1.0), [0.0, 0.0, 0.0, 0.75])


def test_sixteenths_follow_the_exact_factors_over_many_steps():
    factors = np.array([0.99, 0.97, 0.6, 0.0, 1.0])
    sixteenths, product = Sixteenths(), np.ones(5)
    for step in range(1, 40):
        product = product * sixteenths.of("p", factors) / WHOLE
        if step <= 8:
            np.testing.assert_allclose(product[:3], factors[:3] ** step, rtol=0.08)
    assert product[3] == 0
    assert product[4] == 1
    np.testing.assert_allclose(product[:2], factors[:2] ** 39, rtol=0.08)


def test_group_lasso_on_shares_drops_noise_keeps_the_signal_and_shows_no_row():
    fed = noisy()
    selector = GroupLasso(penalty=0.05, batch_size=64, epochs=15, refit_epochs=15).fit(fed)
    assert kept(selector, "real") >= 4
    assert kept(selector, "noise") <= 1
    assert selector.network_.score(fed) > 0.8
    frame = selector.ledger_.frame()
    assert set(frame[frame.operation.str.startswith("sine_")].form) <= {"control", "masked", "aggregate"}
    assert set(frame[frame.operation.str.startswith("sine_lasso")].form) == {"control", "masked"}  # no sixteenths told
    assert not frame.operation.str.startswith("network.bottom").any()
    free = GroupLasso(penalty=0.0, batch_size=64, epochs=1, refit_epochs=1).fit(fed)
    assert free.details_["share_kept"] == 1.0


def test_a_price_that_takes_all_columns_says_so():
    with pytest.warns(UserWarning, match="keeps no column: a price of 50"):
        selector = GroupLasso(penalty=50.0, batch_size=64, epochs=2, refit_epochs=2).fit(fed := noisy())
    assert not any(selector.selected_.values())
    assert 0.4 < selector.network_.score(fed.rows(train=0.5, random_state=0)[1]) < 0.6  # the more frequent class


def test_vflfs_on_shares_keeps_the_number_it_is_asked_for_and_the_signal():
    selector = VFLFS(n_features=5, penalty=0.05, pretrain_epochs=3, epochs=15, batch_size=64).fit(noisy())
    assert kept(selector, "real") + kept(selector, "noise") == 5
    assert kept(selector, "real") >= 4


def test_an_auto_encoder_s_first_weights_rebuild_the_columns_better_than_random_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 20)) * 0.5 + 0.5 * rng.normal(size=(500, 20))
    first = rng.normal(size=(20, 2)) * 0.05

    def error(weights):
        hidden = np.sin(x @ weights)
        return ((x - hidden @ np.linalg.lstsq(hidden, x, rcond=None)[0]) ** 2).mean()

    assert error(autoencoded(x, first, 100, 1.0, rng)) < 0.7 * error(first)


@pytest.mark.parametrize("method", [GroupLasso, VFLFS])
def test_a_form_that_is_none_is_named(method):
    with pytest.raises(ParameterError, match="protection"):
        method(protection="lattice").fit(noisy(60))
