"""Figures of models, evaluations and values as a way to labels: measured on chosen rows, of chosen models, often."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.ledger import rounded_numbers
from fedsift.errors import OperationRefused, PolicyRefused
from fedsift.evaluate.holder import EvaluationJob, release
from fedsift.models.parts import measure_rows, score_rows
from fedsift.models.performance import performance_rows
from fedsift.models.predicted import let_read
from fedsift.models.unseen import grade, tell_figures
from fedsift.models.vertical_additive import open_rows, open_unseen_rows
from fedsift.mpc.score_shares import share_scores_at
from fedsift.mpc.shared_descent import Columns, SharedDescent, open_residuals
from hostile.coordinator import Hostile

ROWS, HALF = 400, 200
ONE = EvaluationJob(methods=("mine",), folds=1, train=0.5, digits=4, metrics=("accuracy",))


@pytest.fixture
def hostile():
    return Hostile(rows=ROWS, max_row_scores=1000)  # bits are what most of these are about


@pytest.fixture
def fed(hostile):
    return hostile.aligned()


@pytest.fixture
def model(fed):
    """Trained as it should be; then the coordinator, which has the weights, takes others: all rows are "yes"."""
    fitted = fs.VerticalAdditive().fit(fed)
    fitted._weights = {name: np.zeros_like(weights) for name, weights in fitted._weights.items()}
    fitted._weights["bank"][-1] = 1.0
    return fitted


def on(run: Federation, view: Federation) -> Federation:
    """The same session, asked about another view."""
    other = copy.copy(run)
    other._view = view._view
    return other


def asked(run: Federation, operation: Any, **told: Any) -> Any:
    return run.ask(operation, to="bank", **told)


MEASURE = {"record": "figures-1", "method": "mine", "metrics": ["accuracy"]}
TOLD = {
    "measure": (measure_rows, MEASURE),
    "score": (score_rows, {}),
    "performance": (performance_rows, {"groups": 2, "by": None}),
}


@pytest.mark.parametrize("what", TOLD)
def test_predictions_of_some_rows_are_not_held_against_the_labels_of_others(fed, model, what):
    """Predicted for 200 rows, measured on 200 others: 60 of 60 labels were read so, in 0.8 seconds and 0 bits."""
    operation, told = TOLD[what]
    with model._session(fed) as run:
        first, other = run.view(rows=np.arange(HALF)), run.view(rows=np.arange(1, HALF + 1))
        with first.session() as inner:
            let_read(inner)
            model._hold(inner)
            with pytest.raises((OperationRefused, PolicyRefused), match=r"other rows|min_rows"):
                asked(on(inner, other), operation, **told)


def test_the_rows_of_a_measure_are_entered_although_it_says_nothing_yet(hostile, fed, model):
    """Rows and rows minus one, where all that is told comes later in a summary."""
    with model._session(fed) as run:
        model.measure(run, "figures-1", "mine", ["accuracy"])
        fewer = run.view(rows=np.arange(1, ROWS))
        with fewer.session() as inner:
            let_read(inner)
            with pytest.raises(PolicyRefused, match="min_rows"):
                inner.ask(open_rows, to=inner.parties, model=model.model_id_)
    lines = hostile.sites["bank"].journal.journal.lines("operation = 'model.measure'")
    assert [(line.rows, line.counted) for line in lines] == [(ROWS, 0.0)]


@pytest.mark.parametrize("folds", [[(0, 200), (200, 400), (0, 200)], [(0, 200)], [(0, 100), (0, 200), (200, 400)]])
def test_a_summary_is_of_all_rows_that_it_counts_for_evenly(fed, model, folds):
    """Else figures about few rows would be counted as if they were about many."""
    job = EvaluationJob(methods=("mine",), folds=len(folds) + (len(folds) == 1), metrics=("accuracy",))
    with model._session(fed) as run:
        for first, last in folds:
            model.measure(run.view(rows=np.arange(first, last)), "figures-1", "mine", ["accuracy"])
    with fed.session(*job.announcement()) as run, pytest.raises(OperationRefused, match="other rows"):
        asked(run, release, record="figures-1")


def test_a_measure_on_shares_is_of_the_rows_of_its_view(fed, model):
    """Shares of the scores of some rows, the figure about others: the journal would count it for these."""
    with model._session(fed) as run:
        first, other = run.view(rows=np.arange(HALF)), run.view(rows=np.arange(HALF, ROWS))
        with first.session() as inner:
            shared = model._share(inner)
            with pytest.raises(OperationRefused, match="other rows"):
                grade(on(inner, other), shared, ["accuracy"])


def test_shares_of_a_measure_open_no_score(fed, model):
    """A run that was begun for a measure is not turned into predictions, and the other way round."""
    with model._session(fed) as run, run.session() as inner:
        inner.ask(open_unseen_rows, to=inner.parties, model=model.model_id_)
        descent = SharedDescent(inner, model._widths, 1, reads_scores=True)
        descent.step = 1
        scores, given, _ = descent.scores_at(model._weights)
        with pytest.raises(OperationRefused, match="nobody reads scores"):
            asked(inner, open_residuals, scores=scores, **given)
    with model._session(fed) as run, run.session() as inner:
        let_read(inner)
        inner.ask(open_rows, to=inner.parties, model=model.model_id_)
        descent = SharedDescent(inner, model._widths, 1, reads_scores=True)
        with pytest.raises(OperationRefused, match="for predictions"):
            share_scores_at(descent, model._weights)


def test_a_figure_is_told_once(fed, model):
    with model._session(fed) as run, run.session() as inner:
        grade(inner, model._share(inner), ["accuracy"])
        with pytest.raises(OperationRefused, match="asked 1 times"):
            asked(inner, tell_figures)


def test_figures_on_shares_of_ever_other_models_tell_less_than_a_bit_a_row(hostile, fed, model):
    """Counted at both sites: a figure is about the labels of one and the columns of the other."""
    told = 0.0

    def ask() -> None:
        nonlocal told
        for number in range(80):
            _tuned(model, number)
            model.figures(fed, ["auc"])
            told += np.log2(ROWS**2 / 2 + 1)

    with pytest.raises(PolicyRefused, match="max_bits"):
        ask()
    assert 0 < told < ROWS
    for name in ("bank", "shop"):
        lines = hostile.sites[name].journal.journal.lines("operation = 'scores.tell_figures'")
        assert sum(line.counted for line in lines) == pytest.approx(0.1 * told, rel=0.1)


def test_a_summary_has_the_names_of_its_job_and_no_others(fed, model):
    for number in range(3):
        model.measure(fed, "figures-1", f"model {number}", ["accuracy"])
    with fed.session(*ONE.announcement()) as run, pytest.raises(OperationRefused, match="does not name"):
        asked(run, release, record="figures-1")


def _tuned(model: fs.VerticalAdditive, number: int) -> None:
    """Another model for each question: the sign of a sum of random steps."""
    generator = np.random.default_rng(number)
    model._weights = {name: generator.normal(size=weights.shape) for name, weights in model._weights.items()}


def _figure(fed: Federation, model: fs.VerticalAdditive, what: str) -> float:
    """Bits of one figure that was told; 0 where the budget is used up."""
    operation, told = TOLD[what]
    try:
        with model._session(fed) as run:
            let_read(run)
            model._hold(run)
            return rounded_numbers(asked(run, operation, **told)).bits
    except PolicyRefused as refusal:
        if refusal.rule != "max_bits":
            raise
        return 0.0


@pytest.mark.parametrize("what", ["score", "performance"])
def test_figures_of_ever_other_models_tell_less_than_a_bit_a_row(hostile, fed, model, what):
    """An equal figure of another model is news: counted once, 638 bits about 400 rows were told."""
    told = []
    for number in range(80):
        _tuned(model, number)
        told.append(_figure(fed, model, what))
    assert 0 < sum(told) < ROWS
    assert told[-1] == 0
    lines = hostile.sites["bank"].journal.journal.lines()
    assert sum(line.counted for line in lines) <= 0.1 * ROWS


def test_scores_of_a_row_are_read_a_limited_number_of_times_over_all_jobs():
    """Predictions go to the label holder by purpose; each further model is a further equation about the partner."""
    hostile = Hostile(rows=ROWS, max_row_scores=3)
    fed = hostile.aligned()
    model = fs.VerticalLogisticRegression().fit(fed)
    for _ in range(3):
        _held(model, fed)
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        _held(model, fed)
    lines = hostile.sites["shop"].journal.journal.lines("form = 'row by row'")
    assert [(line.rows, line.counted) for line in lines] == 3 * [(ROWS, 0.0)]
    assert model.score(fed) > 0.5, "a score on shares reads no row"


def _held(model: fs.FederatedModel, fed: Federation) -> None:
    with model._run(fed) as run:
        let_read(run)
        model._hold(run)


@pytest.mark.parametrize(
    "made",
    [
        fs.VerticalAdditive(),
        fs.VerticalLogisticRegression(),
        fs.HyFDCA(rounds=3),
        fs.SecureBoostClassifier(n_estimators=6, max_depth=3, protection="coordinator"),
        fs.SecureBoostClassifier(n_estimators=1, max_depth=2),
        fs.SplitNN(epochs=1),
    ],
    ids=lambda made: f"{made.name} {made.get_params().get('protection', '')}".strip(),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nobody_reads_scores_that_the_partner_has_not_opened(made):
    """Of no model: the step at the partner that lets scores be read asks whether it has agreed, and was counted."""
    hostile = Hostile(
        rows=ROWS, max_row_scores=1000, exceptions=["class names", "column names", "hyfdca.describe_part"]
    )
    fed = hostile.aligned()
    fitted = made.fit(fed)
    rules = hostile.sites["shop"].journal
    trained = len(rules.journal.lines("form = 'row by row'"))
    rules.policy = rules.policy.model_copy(update={"max_row_scores": trained + 1})
    with fitted._run(fed) as run, pytest.raises(OperationRefused, match="earlier step"):
        fitted._hold(run)
    _held(fitted, fed)
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        _held(fitted, fed)
    assert [line.operation for line in rules.journal.lines("form = 'row by row'")][trained:] == ["model.open_scores"]


def test_rounded_figures_count_by_their_digits():
    told: dict[str, Any] = {"mine": {"auc": {"mean": 0.731, "deviation": 0.02, "low": None, "high": None}}}
    assert rounded_numbers(told).bits == pytest.approx(2 * np.log2(1001))
    assert rounded_numbers(np.array([0.5, 12.25])).bits == pytest.approx(2 * np.log2(1226))
    assert rounded_numbers({"names": ["a"]}).bits == 0


@pytest.mark.parametrize("made", [fs.HyFDCA(rounds=4), fs.FederatedLasso(max_iter=4)], ids=["hyfdca", "lasso"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_each_step_of_a_training_in_which_scores_are_read_counts_as_predictions_do(made):
    """Until November 2026 the label holder read ten score vectors of the same rows in a training, and none counted."""
    allowed = ["class names", "column names", "hyfdca.describe_part"]
    hostile = Hostile(rows=ROWS, max_row_scores=1000, max_bits="any", exceptions=allowed)
    made.fit(hostile.aligned())
    lines = hostile.sites["shop"].journal.journal.lines("form = 'row by row'")
    assert len(lines) >= 2
    assert {(line.operation, line.readers, line.rows) for line in lines} == {("descent.share_scores", "bank", ROWS)}
    assert hostile.sites["bank"].journal.journal.lines("form = 'row by row'") == []
    few = Hostile(rows=ROWS, max_row_scores=1, max_bits="any", exceptions=allowed)
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        made.fit(few.aligned())


@pytest.mark.parametrize("made", [fs.VerticalAdditive(max_iter=3), fs.VerticalLogisticRegression(max_iter=3)])
def test_a_training_in_which_nobody_reads_a_score_counts_none(made):
    hostile = Hostile(rows=ROWS, max_row_scores=0)
    fed = hostile.aligned()
    assert made.fit(fed).score(fed) > 0.5
    assert hostile.sites["shop"].journal.journal.lines("form = 'row by row'") == []


def test_a_partner_that_was_told_of_shares_is_not_read():
    """The coordinator tells the partner that nobody reads the scores, and the label holder that it does."""
    use = Columns(np.zeros((2, 1)), 1, use="a measure", reads_scores=True)
    read, shared = Columns(np.zeros((2, 1)), 1, reads_scores=True), Columns(np.zeros((2, 1)), 1)
    assert len({each.scores_mask for each in (use, read, shared)}) == 3
    assert [each.read_here for each in (use, read, shared)] == [False, True, False]
