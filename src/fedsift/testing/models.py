"""What every model must keep to, one function a rule; ``check_model`` runs them all (see ``selectors.py``)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.base import clone

from fedsift.core.federation import Federation
from fedsift.core.ledger import FORMS
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import FedsiftError, ParameterError
from fedsift.models.base import FederatedModel
from fedsift.models.parts import SCORE_DIGITS
from fedsift.testing.doubles import Recording, Serial
from fedsift.testing.tables import LABEL_CANARIES, Maker, carries, federation, forms_of, mixed_table, needles, record


@dataclass
class ModelCase:
    """A model of classes to be tried out; every run takes a fresh clone on a fresh federation."""

    model: FederatedModel
    partition: str = ""
    rows: int = 60
    repeats: float = 1e-9  # how far two fits with the same seed may differ
    rounds: float = 1e-5  # how far two predictions of one model may differ

    def __post_init__(self) -> None:
        self.partition = self.partition or self.model.partitions[0]

    def make(self) -> FederatedModel:
        fresh: FederatedModel = clone(self.model)
        return fresh

    def federation(self, transport: Maker = InProcess, *, canaries: bool = False) -> Federation:
        return federation(self.partition, self.rows, transport, canaries=canaries)

    @cached_property
    def first(self) -> tuple[Federation, FederatedModel, Recording]:
        """One recorded fit on text labels, shared by the rules that only look at it."""
        fed = self.federation(canaries=True)
        log = record(fed)
        return fed, self.make().fit(fed), log


def _truth(fed: Federation, model: FederatedModel) -> np.ndarray:
    return np.concatenate([np.asarray(fed.simulated[name].table.label) for name in model.holders_])


def parameters_are_stored_untouched(case: ModelCase) -> None:
    assert clone(case.model).get_params() == case.model.get_params()
    assert type(case.model).__doc__
    assert type(case.model).operations, "a model lists the operations that it asks"


def classes_come_back_as_they_went_in(case: ModelCase) -> None:
    fed, fitted, _ = case.first
    assert sorted(fitted.classes_.tolist()) == sorted(LABEL_CANARIES)
    predicted = fitted.predict(fed)
    assert set(predicted.tolist()) <= set(LABEL_CANARIES)
    assert predicted.shape == (case.rows,)
    assert np.isfinite(fitted.decision_function(fed)).all()


def the_label_holder_scores(case: ModelCase) -> None:
    fed, fitted, _ = case.first
    expected = float(np.mean(fitted.predict(fed) == _truth(fed, fitted)))
    assert abs(fitted.score(fed) - expected) <= 0.5 * 10**-SCORE_DIGITS + 1e-9, "score is not the accuracy of predict"
    try:
        fitted.score(fed, y=np.zeros(1))
    except ParameterError:
        return
    raise AssertionError("score takes labels from outside")


def the_same_seed_and_another_transport_give_the_same_model(case: ModelCase) -> None:
    _, fitted, _ = case.first
    here = case.federation(canaries=True)
    expected = fitted.decision_function(here)
    for transport in (InProcess, Serial):
        fed = case.federation(transport, canaries=True)
        again = case.make().fit(fed)
        np.testing.assert_allclose(again.decision_function(fed), expected, atol=case.repeats)
        totals = [t.groupby(["party", "operation"])["bytes"].sum() for t in (fitted.traffic_, again.traffic_)]
        assert totals[0].equals(totals[1]), f"{transport.__name__} carries other bytes"


def another_federation_is_predicted(case: ModelCase) -> None:
    """The same organisations with new rows, and a file in between."""
    _, fitted, _ = case.first
    other = federation(case.partition, 24, canaries=True)
    expected = fitted.decision_function(other)
    assert len(expected) == 24
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        fresh = federation(case.partition, 24, canaries=True)
        loaded = type(fitted).load(folder, fresh)
        np.testing.assert_allclose(loaded.decision_function(fresh), expected, atol=case.rounds)
        assert loaded.predict(fresh).tolist() == fitted.predict(other).tolist()


def every_byte_is_in_the_ledger(case: ModelCase) -> None:
    fed, _, log = case.first
    assert len(log.log) == len(fed.ledger)
    assert sum(len(data) for *_, data in log.log) == fed.ledger.bytes()
    assert set(fed.ledger.frame()["form"]) <= set(FORMS)


def no_canary_leaves_unless_declared_plain(case: ModelCase) -> None:
    fed = case.federation(canaries=True)
    log = record(fed)
    case.make().fit(fed).score(fed)
    classes = {label.encode() for label in LABEL_CANARIES}
    for (sender, receiver, data), form in zip(log.log, forms_of(fed, log)):
        for needle in needles() if form != "plain" else ():
            told = needle in classes and receiver in fed.label_parties  # their own class names, back at them
            assert told or not carries(data, needle), f"{sender} -> {receiver} carries {needle!r} and is not plain"


def a_forgotten_model_is_gone(case: ModelCase) -> None:
    fed = case.federation()
    fitted = case.make().fit(fed)
    fitted.forget()
    for site in fed.simulated.values():
        assert site.sessions == {}
        assert len(site.models) == 0, f"party {site.name!r} keeps its part"
        assert not [name for name in site.keys if fitted.model_id_ in name], f"party {site.name!r} keeps its part"


def another_partition_is_refused(case: ModelCase) -> None:
    wrong = [each for each in ("vertical", "horizontal") if each not in case.model.partitions]
    if not wrong:
        return
    X, y = mixed_table(40)
    fed = Federation.split(X.select_dtypes("number"), y, parties=2, partition=wrong[0])
    said = ""
    try:
        case.make().fit(fed)
    except FedsiftError as error:
        said = str(error)
    assert "parties" in said, f"{type(case.model).__name__} does not refuse {wrong[0]} parties in words"


MODEL_CHECKS: tuple[Callable[[ModelCase], None], ...] = (
    parameters_are_stored_untouched, every_byte_is_in_the_ledger, classes_come_back_as_they_went_in,
    the_label_holder_scores, the_same_seed_and_another_transport_give_the_same_model, another_federation_is_predicted,
    no_canary_leaves_unless_declared_plain, a_forgotten_model_is_gone, another_partition_is_refused,
)  # fmt: skip


def check_model(
    model: FederatedModel, *, partition: str = "", rows: int = 60, repeats: float = 1e-9, rounds: float = 1e-5
) -> None:
    """Try a model of classes (with parameters that make it quick) by every rule; an error says which it breaks.

    Parameters
    ----------
    model : an instance; it is cloned, never fitted itself. partition : its first one by default.
    rows : of the table that it is tried on.
    repeats : how far the scores of two fits with the same seed may differ.
    rounds : how far the scores of two predictions with one model may differ (on shares what is rounded hangs on masks).
    """
    case = ModelCase(model, partition, rows, repeats, rounds)
    for check in MODEL_CHECKS:
        check(case)
