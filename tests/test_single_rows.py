"""Predictions of single new rows at sites with the default policy: what passes, what is counted, what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.party import describe_label
from fedsift.core.row_draws import draw_rows
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import AlignmentError, OperationRefused, ParameterError, PolicyRefused
from fedsift.models.boost.hidden.predicting import route_hidden
from fedsift.models.boost.predicting import walk_down
from fedsift.models.boost.stored import Routes, StoredPart, StoredTree
from fedsift.models.design import LinearPart
from fedsift.models.parts import class_names, label_kind, score_rows, tell_by_id
from fedsift.models.predicted import let_read, open_scores
from fedsift.models.vertical_logistic import keep_weights, open_columns, part_scores, read_scores
from fedsift.mpc.dealer import Dealer
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.psi import align
from fedsift.site.journal_facts import JournalFacts
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite

ROWS = 300
MADE: dict[str, Callable[[], Any]] = {
    "logistic": fs.VerticalLogisticRegression,
    "boost": lambda: fs.SecureBoostClassifier(n_estimators=4, max_depth=2, protection="coordinator"),
    "boost, nothing told": lambda: fs.SecureBoostClassifier(n_estimators=2, max_depth=2),
    "network": lambda: fs.SplitNN(epochs=2, width=8),
}


def frames(rows: int = ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
    X = np.random.default_rng(5).normal(size=(rows, 4))
    ids = [f"c{i}" for i in range(rows)]
    outcome = np.where(X[:, 0] + X[:, 2] + 0.3 * X[:, 3] > 0, "yes", "no")
    bank = pd.DataFrame({"id": ids, "income": X[:, 0], "age": X[:, 1], "outcome": outcome})
    return bank, pd.DataFrame({"id": ids, "spent": X[:, 2], "visits": X[:, 3]})


@dataclass
class Trained:
    """Two organisations with the default policy, which have trained a model, and the files of its parts."""

    folder: Path
    model: fs.FederatedModel
    sites: dict[str, PolicySite] = field(default_factory=dict)

    def open_with(self, bank: pd.DataFrame, **rules: Any) -> Federation:
        """The bank comes back with a table of its new rows; the shop's site is the same as before, with its journal."""
        new = Table.read(bank.drop(columns="outcome", errors="ignore"), id="id", name="bank")
        old = self.sites["bank"]
        site = PolicySite("bank", new, old.policy, secret=old.secret, identity=old.identity)
        site.models.folder = self.folder
        self.sites["shop"].policy = self.sites["shop"].journal.policy = Policy(**rules)
        return Federation(InProcess({"bank": site, "shop": self.sites["shop"]}), ["bank", "shop"], active="bank")

    def load(self, fed: Federation) -> fs.FederatedModel:
        return type(self.model).load(self.folder, fed)

    def aligned(self, bank: pd.DataFrame, **rules: Any) -> Federation:
        return align(self.open_with(bank, **rules).for_predictions(), min_overlap=1)

    def predicted(self, bank: pd.DataFrame, **rules: Any) -> dict[str, float]:
        fed = self.aligned(bank, **rules)
        self.load(fed).predict_by_id(fed, to="label holder")
        written = next(self.folder.glob("bank.*.predictions.csv")).read_text().splitlines()
        return {line.split(",")[0]: float(line.split(",")[1]) for line in written[1:]}

    def lines(self, operation: str) -> list[Any]:
        return self.sites["shop"].journal.journal.lines(f"operation = '{operation}'")


def trained_by(folder: Path, model: Any) -> Trained:
    bank, shop = frames()
    sites = {
        "bank": PolicySite("bank", Table.read(bank, id="id", label="outcome", name="bank"), Policy()),
        "shop": PolicySite("shop", Table.read(shop, id="id", name="shop"), Policy()),
    }
    introduce(sites)
    fed = align(Federation(InProcess(sites), list(sites), active="bank"))
    for site in sites.values():
        site.models.folder = folder
    model.fit(fed).save(folder, fed)
    return Trained(folder, model, sites)


@pytest.fixture
def logistic(tmp_path):
    return trained_by(tmp_path, fs.VerticalLogisticRegression())


def rows_of(numbers: Iterable[int]) -> pd.DataFrame:
    return frames()[0].iloc[list(numbers)]


# --- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", MADE)
def test_a_row_alone_has_the_score_that_it_has_among_many(made, tmp_path):
    """Under the default policy of both parties, which refuses any other work on fewer than 50 rows. Whatever is read
    of a row alone is what is read of it in a batch: the exception lets nothing out that a batch would not."""
    there = trained_by(tmp_path, MADE[made]())
    assert there.sites["shop"].policy == Policy()
    many = there.predicted(rows_of(range(60)))
    assert len(many) == 60
    alone = [there.predicted(rows_of([number])) for number in (7, 31)]
    assert [list(each) for each in alone] == [["c7"], ["c31"]]
    exact = 2e-3 if made == "network" else 1e-6  # a network on shares is exact to about 1e-3
    for each in alone:
        assert each == pytest.approx({who: many[who] for who in each}, abs=exact)


def test_what_was_predicted_stands_in_the_journal_and_cuts_no_table(logistic):
    rules = logistic.sites["shop"].journal
    logistic.predicted(rows_of([7]))
    before = rules.journal.atoms.codes.copy()
    logistic.predicted(rows_of([7, 8, 9]))
    matched, opened = logistic.lines("alignment of few ids"), logistic.lines("model.open_scores")
    assert [(line.statistics, line.readers) for line in matched] == [(1, "bank"), (3, "bank")]
    assert [(line.rows, line.readers) for line in opened] == [(1, "bank"), (3, "bank")]
    assert len(logistic.lines("alignment")) == 1, "few ids are no list of guesses: they count by the id"
    np.testing.assert_array_equal(rules.journal.atoms.codes, before)
    facts = JournalFacts.of(rules.journal, "shop", Policy())
    assert (facts.predicted_alone, facts.few_rows_a_day) == (4, 100)
    bank = fs.GiniFilter(n_features=1)
    assert bank.fit(align(_whole(logistic))).selection_ is not None, "other work goes on as before"


def _whole(there: Trained) -> Federation:
    return Federation(InProcess(there.sites), list(there.sites), active="bank")


def test_a_batch_may_overlap_another_by_a_few_rows(logistic):
    """Scores of rows are no sums: until November 2026 sixty new rows, ten of which were asked before, were refused."""
    assert len(logistic.predicted(rows_of(range(60)))) == 60
    assert len(logistic.predicted(rows_of(range(50, 110)))) == 60
    assert len(logistic.lines("alignment")) == 3, "lists of 50 ids or more count as lists"


def test_a_person_that_the_partner_does_not_know_is_named_by_nobody(logistic):
    new = rows_of([7]).assign(id="somebody else")
    with pytest.raises(AlignmentError, match="only 0 ids"):
        logistic.aligned(new)


def test_three_organisations_predict_one_row_and_each_partner_counts_it(tmp_path):
    bank, shop = frames()
    tables = {
        "bank": Table.read(bank, id="id", label="outcome", name="bank"),
        "shop": Table.read(shop[["id", "spent"]], id="id", name="shop"),
        "lab": Table.read(shop[["id", "visits"]], id="id", name="lab"),
    }
    sites = {name: PolicySite(name, table, Policy()) for name, table in tables.items()}
    introduce(sites)
    model = fs.VerticalLogisticRegression().fit(align(Federation(InProcess(sites), list(sites), active="bank")))
    for site in sites.values():
        site.models.folder = tmp_path
    model.save(tmp_path)
    new = Table.read(bank.iloc[[7]].drop(columns="outcome"), id="id", name="bank")
    sites["bank"] = PolicySite("bank", new, Policy(), identity=sites["bank"].identity)
    sites["bank"].models.folder = tmp_path
    one = align(Federation(InProcess(sites), list(sites), active="bank").for_predictions(), min_overlap=1)
    type(model).load(tmp_path, one).predict_by_id(one, to="label holder")
    written = next(tmp_path.glob("bank.*.predictions.csv"))
    assert written.read_text().splitlines()[1].startswith("c7,")
    assert os.name != "posix" or written.stat().st_mode & 0o077 == 0, "nobody else on this machine reads it"
    for partner in ("shop", "lab"):
        lines = sites[partner].journal.journal.lines("rows = 1 OR operation = 'alignment of few ids'")
        assert [line.operation for line in lines][:2] == ["alignment of few ids", "model.open_scores"]


# --- what is counted -------------------------------------------------------------------------------------------------


def test_single_rows_are_so_many_a_day_and_none_where_the_policy_says_so(logistic):
    for number in range(3):
        logistic.predicted(rows_of([number]), few_rows_a_day=4)
    with pytest.raises(PolicyRefused, match=r"few_rows_a_day.*4 a day"):
        logistic.predicted(rows_of([3, 4]), few_rows_a_day=4)
    logistic.predicted(rows_of([3]), few_rows_a_day=4)
    with pytest.raises(PolicyRefused, match="few_rows_a_day"):
        logistic.predicted(rows_of([5]), few_rows_a_day=4)
    logistic.predicted(rows_of(range(60)), few_rows_a_day=4)
    with pytest.raises(PolicyRefused, match="min_rows"):
        logistic.predicted(rows_of([6]), few_rows_a_day=0)


def test_scores_count_by_the_day_too_where_rows_that_were_matched_once_are_asked_again(logistic):
    fed = logistic.aligned(rows_of([1, 2]), few_rows_a_day=5)
    model = logistic.load(fed)
    for _ in range(2):
        model.predict_by_id(fed, to="label holder")
    with pytest.raises(PolicyRefused, match="few_rows_a_day"):
        model.predict_by_id(fed, to="label holder")


def test_yesterdays_rows_do_not_count_today(logistic, monkeypatch):
    monkeypatch.setattr("fedsift.site.journal_rules.now", lambda: "2020-01-01T00:00:00Z")
    logistic.predicted(rows_of([1]), few_rows_a_day=1)
    monkeypatch.undo()
    logistic.predicted(rows_of([2]), few_rows_a_day=1)
    with pytest.raises(PolicyRefused, match="few_rows_a_day"):
        logistic.predicted(rows_of([3]), few_rows_a_day=1)


def test_a_row_has_as_many_scores_alone_as_it_has_in_batches(logistic):
    logistic.predicted(rows_of(range(60)), max_row_scores=3)
    for _ in range(2):
        logistic.predicted(rows_of([7]), max_row_scores=3)
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        logistic.predicted(rows_of([7]), max_row_scores=3)
    logistic.predicted(rows_of([61]), max_row_scores=3)


def test_scores_that_were_refused_are_not_opened_all_the_same(logistic):
    """The refusal came after the step had run: until November 2026 a coordinator that went on read the scores."""
    fed = logistic.aligned(rows_of([7]), max_row_scores=0)
    model = logistic.load(fed)
    with model._run(fed) as run:
        with pytest.raises(PolicyRefused, match="max_row_scores"):
            let_read(run)
        meet_all(run)
        with pytest.raises(OperationRefused, match="earlier step"):
            run.ask(part_scores, to="shop", model=model.model_id_, label_holder="bank")


@pytest.mark.parametrize(
    ("changed", "ids"),
    [
        ({}, 1),
        ({"rows": {"bank": 10_000, "shop": ROWS, "ghost": 1}}, 0),  # sizes of nobody who is there
        ({"blocks": [["shop"], ["bank"]]}, 0),
        ({"blocks": [["bank", "shop", "ghost"]], "rows": {"bank": 10_000, "shop": ROWS, "ghost": 1}}, 0),
        ({"rows": {"bank": True, "shop": ROWS}}, 0),
        ({"rows": {"bank": -5, "shop": ROWS}}, 1),
    ],
)
def test_long_lists_of_guesses_do_not_count_as_few_ids(logistic, changed, ids):
    """Else a coordinator would match as many lists as it likes, of any length."""
    told = {"blocks": [["bank", "shop"]], "rows": {"bank": 1, "shop": ROWS}, **changed}
    job = logistic.open_with(rows_of([7])).for_predictions().job("alignment", told)
    assert logistic.sites["shop"].few.ids_of(job) == ids
    assert logistic.sites["shop"].few.ids_of(replace(job, purpose="")) == 0
    assert logistic.sites["shop"].few.ids_of(replace(job, coordinator="bank")) == 0


# --- what is refused -------------------------------------------------------------------------------------------------


OTHERS = [fs.GiniFilter(n_features=1), fs.VerticalLogisticRegression(), fs.TopGain(n_features=1)]


@pytest.mark.parametrize("made", OTHERS)
def test_no_other_job_works_on_rows_that_were_matched_for_predictions(logistic, made):
    ordinary = logistic.aligned(rows_of(range(20)))
    ordinary._purpose = ""
    with pytest.raises(PolicyRefused, match="min_rows"):
        made.fit(ordinary)


def test_without_the_purpose_few_rows_are_refused_as_ever(logistic):
    with pytest.raises(PolicyRefused, match="min_rows"):
        align(logistic.open_with(rows_of([7])), min_overlap=1)


REFUSED = {
    "training": (open_columns, {"task": "classification", "outputs": 1}),
    "weights of the coordinator's": (keep_weights, {"model": "m", "weights": np.zeros((2, 1))}),
    "predictions to whoever asks": (tell_by_id, {}),
    "scores to whoever asks": (read_scores, {"model": "m", "total": None, "others": []}),
    "a measure": (score_rows, {}),
    "names of classes": (class_names, {"task": "auto"}),
    "kind of label": (label_kind, {}),
    "the label": (describe_label, {"task": "auto"}),
    "a draw of rows": (draw_rows, {"train": 0.5, "stratify": False, "seed": 0, "task": "auto"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_job_for_predictions_is_answered_nothing_else(logistic, what):
    operation, told = REFUSED[what]
    logistic.sites["bank"].policy = Policy(forms=[*Policy().forms, "plain"])
    fed = logistic.aligned(rows_of(range(60)))
    model = logistic.load(fed)
    with model._run(fed) as run, pytest.raises((PolicyRefused, OperationRefused), match=r"no part of|no step"):
        run.ask(operation, to="bank", **told)


def test_the_rows_are_those_that_were_matched_and_no_choice_of_the_coordinators(logistic):
    """Else it would put a row of its choice beside somebody else's, or rows that nobody has matched at all."""
    fed = logistic.aligned(rows_of(range(5)))
    model = logistic.load(fed)
    with model._run(fed) as run:
        with pytest.raises(OperationRefused, match="in their order"):
            run.view(rows=[2])
        with pytest.raises(PolicyRefused, match="min_rows"):
            run.named_view("").ask(open_scores, to="bank")  # its whole table, of five rows, by position


def test_horizontal_parties_models_in_the_open_and_rows_of_earlier_jobs_are_not_for_few_rows(logistic):
    fed = logistic.open_with(rows_of([7])).for_predictions()
    with pytest.raises(OperationRefused, match="all that they have"):
        align(fed, as_in="0" * 12)
    for made in (fs.VerticalAdditive(), fs.HyFDCA(), fs.GiniFilter(), fs.FedLinear()):
        said = "horizontal" if isinstance(made, fs.FedLinear) else "each by itself"
        with pytest.raises(OperationRefused, match=said), fed.session(*made.announcement()):
            pass
    boost = fs.SecureBoostClassifier(protection="open")
    with fed.session(*boost.announcement()) as run, pytest.raises(PolicyRefused, match="no part of predictions"):
        run.ask(walk_down, to="bank", model="m", sides={})
    fed._purpose = "anything"
    with pytest.raises(ParameterError, match="for 'predictions' alone"):
        fed.job("gini", {})


def test_trees_that_tell_no_side_of_a_row_are_not_predicted_in_a_form_that_does(tmp_path):
    """A job for predictions names the form; until November 2026 a model grown with "all" answered in the other one."""
    there = trained_by(tmp_path, MADE["boost, nothing told"]())
    fed = there.aligned(rows_of([7]))
    model = there.load(fed)
    model.protection = "coordinator"
    with model._run(fed) as run:
        let_read(run)
        meet_all(run)
        Dealer.begin(run)
        question = {"splits": np.array([0]), "box": SealedBox(bytes(200)), "peer": "bank", "step": 0}
        with pytest.raises(OperationRefused, match="no side of a row is told"):
            run.ask(route_hidden, to="shop", model=model.model_id_, **question)


# --- as the attacker -------------------------------------------------------------------------------------------------


def test_asking_again_with_other_own_columns_tells_of_a_linear_model_one_number_a_row(logistic):
    """The label holder asks about one person with twenty values of its own columns. The partner's part of the score is
    one number, the same each time: what a batch would have told."""
    part = logistic.sites["bank"].models.part(logistic.model.model_id_, LinearPart)
    found = []
    for value in np.linspace(-3, 3, 20):
        row = rows_of([7]).assign(income=value, age=-value)
        chance = next(iter(logistic.predicted(row).values()))
        found.append(_partners(row, chance, part))
    assert np.ptp(found) < 1e-6
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        logistic.predicted(rows_of([7]))


def _partners(row: pd.DataFrame, chance: float, own: LinearPart) -> float:
    """What the label holder reads of the partner: the score less its own part."""
    here = Table.read(row.drop(columns="outcome"), id="id", name="bank")
    return float(np.log(chance / (1 - chance)) - own.scores(here)[0, 0])


def test_the_weights_of_a_partner_are_read_from_as_many_known_persons_as_it_has_columns(logistic):
    """Not kept from anybody, alone or in a batch: whoever knows the partner's columns of three persons has its two
    weights (and of a partner with one column that column of everybody). The bound is a number a row and a score."""
    shop = frames()[1][["spent", "visits"]].to_numpy()
    bank_part = logistic.sites["bank"].models.part(logistic.model.model_id_, LinearPart)
    shop_part = logistic.sites["shop"].models.part(logistic.model.model_id_, LinearPart)
    told = []
    for number in (3, 14, 159):
        row = rows_of([number])
        chance = next(iter(logistic.predicted(row).values()))
        told.append(_partners(row, chance, bank_part))
    known = np.column_stack([shop[[3, 14, 159]], np.ones(3)])
    slopes = np.linalg.solve(known, np.array(told))[:2]
    true = shop_part.weights[:, 0] / frames()[1][["spent", "visits"]].to_numpy().std(axis=0)
    np.testing.assert_allclose(slopes, true, rtol=1e-3)


def test_asking_again_with_other_own_columns_shows_of_trees_at_most_the_side_at_each_cut(tmp_path):
    """One question shows the sides on one way down (12 of 22 here), twenty chosen ones more (17, since the fourth).
    What is behind a side that the row does not take is never shown, but to a label holder that claims the row at every
    node, alone or in a batch. So the bound is one side a cut of the model's."""
    there = trained_by(tmp_path, fs.SecureBoostClassifier(n_estimators=8, max_depth=3, protection="coordinator"))
    cuts = [
        (at, number)
        for at, tree in enumerate(_trees(there))
        for number, node in enumerate(tree.nodes)
        if node.party == "shop"
    ]
    seen, after = set[tuple[int, int]](), []
    drawn = np.random.default_rng(0).normal(size=(20, 2))
    for income, age in drawn:
        seen |= _passed(there, rows_of([7]).assign(income=income, age=age))
        after.append(len(seen))
    assert seen <= set(cuts)
    assert after[0] < after[-1] < len(cuts)
    with pytest.raises(PolicyRefused, match="max_row_scores"):
        _passed(there, rows_of([7]))


def _trees(there: Trained) -> list[StoredTree]:
    return there.sites["bank"].models.part(there.model.model_id_, StoredPart).trees


def _passed(there: Trained, bank: pd.DataFrame) -> set[tuple[int, int]]:
    """The partner's cuts of which the label holder reads the side of its one row."""
    fed = there.aligned(bank)
    model = there.load(fed)
    with model._run(fed) as run:
        let_read(run)
        model._hold(run)
        leaves = fed._link.transport.sites["bank"].sessions[run._session][Routes].at[:, 0]
    found = set()
    for place, tree in enumerate(_trees(there)):
        parents = {
            child: n for n, node in enumerate(tree.nodes) if not node.is_leaf for child in (node.left, node.right)
        }
        node = int(leaves[place])
        while node in parents:
            node = parents[node]
            if tree.nodes[node].party == "shop":
                found.add((place, node))
    return found
