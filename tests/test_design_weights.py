"""Rows and classes that count differently, and times until an event: equal to plaintext, xgboost and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.utils.class_weight import compute_sample_weight

import fedsift as fs
from fedsift.audit import load_attacks, record
from fedsift.audit.opened_at_coordinator import opened_sums
from fedsift.core.design import Design
from fedsift.core.party import Party
from fedsift.core.survival import concordance, residuals
from fedsift.errors import DataError, ParameterError
from fedsift.mpc.column_scores.paid_bins import countable_bins
from fedsift.mpc.column_scores.weighing import STEPS
from fedsift.mpc.column_scores.weighted_f import encrypt_weights
from fedsift.select.filters.information_value import information_value

RNG = np.random.default_rng(11)
ROWS = 400
VALUES = RNG.integers(0, 12, size=(ROWS, 6)).astype(float)
LABEL = (VALUES[:, 0] + VALUES[:, 4] + 4 * RNG.normal(size=ROWS) > 13).astype(int)
WEIGHT = RNG.uniform(0.2, 3.0, ROWS)
TIME = np.round(RNG.exponential(np.exp(-0.3 * (VALUES[:, 1] - VALUES[:, 5]))), 9)
CENSOR = RNG.exponential(2.0, ROWS)
SEEN, EVENT = np.minimum(TIME, CENSOR), (TIME <= CENSOR).astype(int)


def federation(y, **aside) -> fs.Federation:
    return fs.Federation.split(pd.DataFrame(VALUES).add_prefix("f"), y, parties=["bank", "shop"], aside=aside)


def tables(fed, weights, n_bins=10, min_cell=10):
    """Weighted counts of every column, in plaintext."""
    found = {}
    for name, site in fed.simulated.items():
        party = Party(site, "", {})
        codes, counts = countable_bins(party, n_bins, min_cell)
        found[name] = [
            np.array([[weights[(codes[:, c] == b) & (k == LABEL)].sum() for k in (0, 1)] for b in range(counts[c])])
            for c in range(len(counts))
        ]
    return found


@pytest.mark.parametrize("scheme", ["ou", "paillier"])
def test_information_value_of_weighted_rows_is_that_of_the_plain_table(scheme):
    fed = federation(LABEL, w=WEIGHT).designed(Design(weight="bank.w"))
    selector = fs.InformationValue(n_features=3, scheme=scheme).fit(fed)
    rounded = np.rint(WEIGHT / WEIGHT.mean() * STEPS) / STEPS
    for weights, within in ((rounded, 1e-9), (WEIGHT / WEIGHT.mean(), 2e-3)):
        totals = np.array([weights[k == LABEL].sum() for k in (0, 1)])
        for name, columns in tables(fed, weights).items():
            expected = [information_value(table, totals, 0.0, True) for table in columns]
            rows = selector.scores_[selector.scores_.party == name].set_index("feature").score
            got = [rows[column] for column in fed.column_names()[name]]
            np.testing.assert_allclose(got, expected, atol=within)


def weighted_least_squares_f(x, codes, weights):
    """F of the regression of x on indicators of the classes, by least squares with these weights."""
    indicators, root = np.eye(codes.max() + 1)[codes], np.sqrt(weights)
    fitted = indicators @ np.linalg.lstsq(indicators * root[:, None], x * root, rcond=None)[0]
    rest, centre = (weights * (x - fitted) ** 2).sum(), (weights * x).sum() / weights.sum()
    free = len(x) - indicators.shape[1]
    return (((weights * (x - centre) ** 2).sum() - rest) / (indicators.shape[1] - 1)) / (rest / free)


@pytest.mark.parametrize("scheme", ["ou", "paillier"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("by_class", [None, "balanced", {"0": 1.0, "1": 4.0, "2": 2.5}])
@pytest.mark.parametrize("weighted", [True, False])
def test_f_statistics_of_weighted_rows_are_those_of_weighted_least_squares(scheme, classes, by_class, weighted):
    codes = LABEL if classes == 2 else np.minimum(VALUES[:, 0] // 4, 2).astype(int)
    told = {k: v for k, v in by_class.items() if int(k) < classes} if isinstance(by_class, dict) else by_class
    if told is None and not weighted:
        return
    design = Design(weight="bank.w" if weighted else None, class_weight=told)
    fitted = fs.SFFS(n_features=2, scheme=scheme).fit(federation(codes, w=WEIGHT).designed(design))
    rows = np.rint(WEIGHT / WEIGHT.mean() * STEPS) / STEPS if weighted else np.ones(ROWS)
    sums = np.array([rows[codes == k].sum() for k in range(classes)])
    factors = 1 / sums if told == "balanced" else np.array(list(told.values())) if told else np.ones(classes)
    rows = rows * factors[codes]
    for line in fitted.scores_.itertuples():
        expected = weighted_least_squares_f(VALUES[:, int(line.feature[1:])], codes, rows)
        assert line.score == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_weights_of_one_leave_f_statistics_as_they_are():
    plain = fs.SFFS(n_features=2).fit(federation(LABEL))
    ones = fs.SFFS(n_features=2).fit(federation(LABEL, w=np.ones(ROWS)).designed(Design(weight="bank.w")))
    merged = plain.scores_.merge(ones.scores_, on=["party", "feature"])
    np.testing.assert_allclose(merged.score_x, merged.score_y, rtol=1e-6)


def test_a_job_without_weights_encrypts_none():
    fed = federation(LABEL, w=WEIGHT)
    with (
        fed.session(*fs.SFFS(n_features=2).announcement()) as run,
        pytest.raises(fs.FedsiftError, match="names no weight"),
    ):
        run.ask(encrypt_weights, to="bank", scheme="auto", task="classification", answers=6)


def test_weights_of_one_are_no_weights():
    plain = fs.GiniFilter(n_features=2).fit(federation(LABEL))
    ones = fs.GiniFilter(n_features=2).fit(federation(LABEL, w=np.ones(ROWS)).designed(Design(weight="bank.w")))
    merged = plain.scores_.merge(ones.scores_, on=["party", "feature"])
    np.testing.assert_allclose(merged.score_x, merged.score_y, atol=1e-9)


def test_balanced_classes_are_weighted_rows():
    balanced = compute_sample_weight("balanced", LABEL)
    by_class = fs.GiniFilter(n_features=2).fit(federation(LABEL).designed(Design(class_weight="balanced")))
    by_row = fs.GiniFilter(n_features=2).fit(federation(LABEL, w=balanced).designed(Design(weight="bank.w")))
    merged = by_class.scores_.merge(by_row.scores_, on=["party", "feature"])
    np.testing.assert_allclose(merged.score_x, merged.score_y, atol=1e-4)
    told = {str(k): float(balanced[k == LABEL][0]) for k in (0, 1)}
    named = fs.GiniFilter(n_features=2).fit(federation(LABEL).designed(Design(class_weight=told)))
    merged = by_class.scores_.merge(named.scores_, on=["party", "feature"])
    np.testing.assert_allclose(merged.score_x, merged.score_y, atol=1e-9)


def test_bin_sizes_are_not_told_beside_weighted_counts():
    def conversation(fed):
        fs.GiniFilter(n_features=2).fit(fed.designed(Design(weight="bank.w")))

    seen = record(pd.DataFrame(VALUES).add_prefix("f"), LABEL, conversation, parties=["bank", "shop"],
                  aside={"w": WEIGHT})  # fmt: skip
    replies = seen["coordinator"].replies("masked_counts")
    assert replies
    assert all(len(reply.content["sizes"]) == 0 for reply in replies)
    opened = opened_sums(seen["coordinator"])  # what attacks on opened sums read
    assert len(opened) == 1
    assert opened[0].sizes.sum() == pytest.approx(3 * ROWS, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "said"),
    [(np.where(np.arange(ROWS) == 7, 2.9, 1.0), "1 rows have weights that fewer than 10 rows share"),
     (np.where(np.arange(ROWS) == 7, 12.0, RNG.uniform(0.9, 1.1, ROWS)), "one row weighs so much more"),
     (np.where(np.arange(ROWS) == 7, 30.0, 1.0), "more than 20 times")],
)  # fmt: skip
def test_weights_by_which_a_row_stands_out_of_every_sum_are_refused(weights, said):
    fed = federation(LABEL, w=weights).designed(Design(weight="bank.w"))
    with pytest.raises(DataError, match=said):
        fs.GiniFilter(n_features=2).fit(fed)


@pytest.mark.parametrize("weights", [WEIGHT, RNG.lognormal(0, 0.5, ROWS), RNG.choice([1.0, 2.5, 4.0], ROWS)])
def test_of_weights_that_are_taken_no_row_is_placed_by_the_sums_of_its_bins(weights):
    seen = record(RNG.normal(size=(ROWS, 12)), LABEL, lambda fed: fs.GiniFilter(n_features=2).fit(
        fed.designed(Design(weight="bank.w"))), parties=["bank", "shop"], aside={"w": weights})  # fmt: skip
    found = load_attacks()["weighted_counts_place_a_row"].run(seen["coordinator"], seen.truth)
    assert not found.note.startswith("nothing to read")
    assert found.value <= 2 / 6  # of six columns with ten bins each


def trained(kind, fed, protection="coordinator", **more):
    model = kind(n_estimators=8, max_depth=3, learning_rate=0.3, n_bins=32, min_leaf=1, min_cell=1,
                 protection=protection, first_tree_local=False, sum_noise=0, **more)  # fmt: skip
    return model.fit(fed)


def margins(objective, y, weight, **more):
    settings = {"objective": objective, "tree_method": "exact", "max_depth": 3, "eta": 0.3, "lambda": 1.0,
                "min_child_weight": 1.0, **more}  # fmt: skip
    data = xgboost.DMatrix(VALUES, y, weight=weight)
    return xgboost.train(settings, data, 8).predict(data, output_margin=True)


@pytest.mark.parametrize("protection", ["coordinator", "open"])
def test_weighted_classes_are_boosted_as_by_xgboost(protection):
    fed = federation(LABEL, w=WEIGHT).designed(Design(weight="bank.w"))
    model = trained(fs.SecureBoostClassifier, fed, protection, base_score=0.5)
    expected = margins("binary:logistic", LABEL, WEIGHT, base_score=0.5)
    np.testing.assert_allclose(model.decision_function(fed), expected, atol=2e-4)


def test_a_weighted_number_is_boosted_as_by_xgboost():
    y = VALUES[:, 0] * VALUES[:, 4] + RNG.normal(size=ROWS)
    fed = federation(y, w=WEIGHT).designed(Design(weight="bank.w"))
    model = trained(fs.SecureBoostRegressor, fed, base_score=0.0)
    np.testing.assert_allclose(model.predict(fed), margins("reg:squarederror", y, WEIGHT, base_score=0.0), atol=2e-3)


def test_balanced_classes_are_boosted_as_by_xgboost():
    fed = federation(LABEL).designed(Design(class_weight="balanced"))
    model = trained(fs.SecureBoostClassifier, fed, base_score=0.5)
    expected = margins("binary:logistic", LABEL, compute_sample_weight("balanced", LABEL), base_score=0.5)
    np.testing.assert_allclose(model.decision_function(fed), expected, atol=2e-4)


def test_times_until_an_event_are_boosted_as_by_xgboost():
    """No two times are alike; both know differences of scores only, so each is centred."""
    fed = federation(SEEN, e=EVENT).designed(Design(event="bank.e"))
    model = trained(fs.SecureBoostRegressor, fed)
    expected = margins("survival:cox", np.where(EVENT == 1, SEEN, -SEEN), None)
    got = model.predict(fed)
    np.testing.assert_allclose(got - got.mean(), expected - expected.mean(), atol=1e-3)
    assert model.score(fed) == pytest.approx(concordance(SEEN, EVENT == 1, expected.astype(float)), abs=2e-3)


def slow_concordance(times, events, risk):
    right = pairs = 0.0
    for i in range(len(times)):
        for j in range(len(times)):
            if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j])):
                pairs += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return right / pairs


def test_concordance_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    for _ in range(5):
        times, events, risk = rng.integers(0, 9, 60).astype(float), rng.random(60) < 0.6, rng.integers(0, 7, 60) / 2.0
        assert concordance(times, events, risk) == pytest.approx(slow_concordance(times, events, risk))


def test_the_sum_of_a_columns_residuals_is_the_log_rank_tests():
    """Observed less expected events of a group, by the textbook, tie by tie."""
    rng = np.random.default_rng(1)
    times, events, group = rng.integers(1, 20, 200).astype(float), rng.random(200) < 0.7, rng.random(200) < 0.4
    expected = sum(
        (events & (times == t)).sum() * (group & (times >= t)).sum() / (times >= t).sum() for t in np.unique(times)
    )
    assert residuals(times, events)[group].sum() == pytest.approx(events[group].sum() - expected)
    assert residuals(times, events).sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("selector", [fs.GiniFilter, fs.SFFS, fs.InformationValue])
def test_a_filter_finds_the_columns_that_hasten_an_event(selector):
    fed = federation(SEEN, e=EVENT).designed(Design(event="bank.e"))
    assert selector(n_features=2).fit(fed).selected_ == {"bank": ["f1"], "shop": ["f5"]}
    blind = selector(n_features=2).fit(federation(CENSOR, e=EVENT).designed(Design(event="bank.e")))
    assert blind.selected_ != {"bank": [], "shop": []}


def test_an_evaluation_of_times_gives_the_concordance_beside_its_nulls():
    fed = federation(SEEN, e=EVENT).designed(Design(event="bank.e"))
    for model in ("boost", "linear"):
        frame = fs.evaluate(fed, {"gini": fs.GiniFilter(n_features=2)}, model=model, cv=3).frame().set_index("method")
        assert frame["c_index"]["gini"] > 0.65
        assert frame["c_index"]["gini"] > frame["c_index"]["2 random columns"]
        assert "r2" not in frame
    with pytest.raises(ParameterError, match="c_index"):
        fs.evaluate(fed, fs.GiniFilter(n_features=2), cv=3, metrics="auc")


def test_top_gain_chooses_by_concordance():
    fed = federation(SEEN, e=EVENT).designed(Design(event="bank.e"))
    kept = fs.TopGain(n_features=2, protection="coordinator").fit(fed).selected_
    assert kept == {"bank": ["f1"], "shop": ["f5"]}


def test_another_column_stands_in_for_the_label():
    other = (VALUES[:, 2] > 5).astype(int)
    fed = federation(LABEL, other=other)
    assert fs.GiniFilter(n_features=1).fit(fed.designed(Design(label="bank.other"))).selected_["bank"] == ["f2"]
    assert fs.GiniFilter(n_features=1).fit(fed).selected_["bank"] != ["f2"]


def test_several_labels_are_looked_at_one_by_one():
    other, third = (VALUES[:, 2] > 5).astype(int), (VALUES[:, 5] > 5).astype(int)
    fed = federation(LABEL, other=other, third=third)
    found = fs.GiniFilter(n_features=1).fit(fed.designed(Design(labels=["bank.other", "bank.third"])))
    assert found.selected_ == {"bank": ["f2"], "shop": ["f5"]}
    assert found.details_["labels"] == {
        "bank.other": {"bank": ["f2"], "shop": []}, "bank.third": {"bank": [], "shop": ["f5"]}
    }  # fmt: skip
    assert [entry.operation for entry in fed.ledger.entries].count("labels.encrypt_classes") == 4  # asked and answered
    with pytest.raises(ParameterError, match="one label"):
        fs.evaluate(fed.designed(Design(labels=["bank.other"])), fs.GiniFilter(n_features=1), cv=3)
    with pytest.raises(ParameterError, match="does not go by the design's labels"):
        fs.SecureBoostClassifier().fit(fed.designed(Design(labels=["bank.other"])))


def test_the_label_itself_may_be_one_of_several():
    other = (VALUES[:, 2] > 5).astype(int)
    fed = federation(LABEL, other=other)
    alone = fs.GiniFilter(n_features=1).fit(fed)
    found = fs.GiniFilter(n_features=1).fit(fed.designed(Design(labels=["bank.label", "bank.other"])))
    assert found.details_["labels"]["bank.label"] == alone.selected_
    assert found.details_["labels"]["bank.other"] == {"bank": ["f2"], "shop": []}


@pytest.mark.parametrize(
    ("made", "design", "words"),
    [
        (lambda: fs.SFFS(epsilon=1.0), Design(weight="bank.w"), "SFFS does not go by the design's weight"),
        (lambda: fs.SFFS(n_features=2, screen="coarse"), Design(weight="bank.w"), "SFFS does not go by the design's"),
        (lambda: fs.GiniFilter(n_features=2, epsilon=1.0), Design(weight="bank.w"), "does not go by the design's"),
        (lambda: fs.TopGain(protection="all"), Design(class_weight="balanced"), "the design's class_weight"),
        (lambda: fs.GiniFilter(n_features=2), Design(weight="bank.big"), "party 'bank': a row weighs more than 20"),
        (lambda: fs.GiniFilter(n_features=2), Design(class_weight={"a": 1.0, "b": 2.0}), "class_weight must say what"),
    ],
)  # fmt: skip
def test_what_cannot_be_weighed_is_refused_in_words(made, design, words):
    big = np.ones(ROWS)
    big[0] = 1000.0
    with pytest.raises(fs.FedsiftError, match=words):
        made().fit(federation(LABEL, w=WEIGHT, big=big).designed(design))
