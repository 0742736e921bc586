"""What every model shares: scikit-learn's conventions on the outside, one ``_fit`` and one ``_decision`` on the inside.

Parts of a model stay at the sites that trained them (``parts.py``); the coordinator's object has what the coordinator
knows. ``save`` writes one file a party, at the party, and ``model.json`` with what the coordinator knows. No pickle.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_choice, could_check
from fedsift.core.design import GoesBy, check_served
from fedsift.core.federation import Federation
from fedsift.core.files import announced, write_atomic
from fedsift.core.ledger import Ledger
from fedsift.core.operation import Operation
from fedsift.core.row_access import columns_here, with_columns_of
from fedsift.errors import DataError, ParameterError, ReplyError
from fedsift.models.copies import Copied, Lease, as_json, from_json
from fedsift.models.metrics import fitting, probabilities
from fedsift.models.parts import (
    OPERATIONS,
    SCORE_DIGITS,
    Floats,
    choose_folder,
    forget_part,
    keep_by_id,
    label_kind,
    measure_rows,
    metric,
    read_part,
    same_organisations,
    score_rows,
    score_sums,
    tell_by_id,
    write_part,
)
from fedsift.models.performance import performance_rows, table_of
from fedsift.models.predicted import chosen, let_read
from fedsift.models.shuffling import Shuffled
from fedsift.models.unseen import SharedScores, grade
from fedsift.mpc.secure_sum import SecureSum

Model = TypeVar("Model", bound="FederatedModel")
FORMAT, VERSION = "fedsift-model", 2


class FederatedModel(Copied, GoesBy, BaseEstimator):  # type: ignore[misc]
    """Base of all models. A subclass checks parameters in ``_check``, trains in ``_fit``, scores in ``_decision``.

    After ``fit``: ``task_``, ``classes_`` (for classes), ``parties_``, ``holders_``, ``ledger_``, ``traffic_``,
    ``seconds_``.

    Examples
    --------
    >>> import fedsift as fs, pandas as pd
    >>> X = pd.DataFrame({"a": range(60), "b": [1.0, 2.0] * 30})
    >>> fed = fs.Federation.split(X, ["no"] * 30 + ["yes"] * 30, parties=2)
    >>> model = fs.VerticalLogisticRegression().fit(fed)
    >>> isinstance(model, fs.FederatedModel), model.classes_.tolist(), model.score(fed) > 0.9
    (True, ['no', 'yes'], True)
    """

    #: What a job calls it.
    name: ClassVar[str] = ""
    partitions: ClassVar[tuple[str, ...]] = ("vertical",)
    #: Every operation that fit, predict, score, save and load ask.
    operations: ClassVar[tuple[Operation, ...]] = OPERATIONS
    #: Of these, what predicts rows each by itself, its score for the label holder alone: all that a job for predictions
    #: may ask, also on few rows (``site/few_rows.py``). Empty: no such job.
    predicting: ClassVar[tuple[Operation, ...]] = ()
    #: Parameters that carry the smallest cell (the largest of them counts), and those that carry an epsilon.
    cell_parameters: ClassVar[tuple[str, ...]] = ()
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()
    #: Parameters of noise in what is opened: the least of each, and the operation whose exception allows less.
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {}
    _on_shares: ClassVar[bool] = False  # whether ``_share`` is there, in every form of the model
    _saved: ClassVar[tuple[str, ...]] = ()  # learned values of the coordinator that are written beside every model's
    _in_files = False  # whether there are files of it, which name its job

    def fit(self: Model, fed: Federation, y: object = None) -> Model:
        """Train over the federation's rows. ``y`` is ignored: labels stay with their party."""
        if not isinstance(fed, Federation):
            raise ParameterError(f"fit takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
        if fed.partition not in self.partitions:
            served = " or ".join(self.partitions)
            raise ParameterError(f"{type(self).__name__} is for {served} parties; these are {fed.partition}")
        check_served(fed.design, type(self).__name__, set(self._serves()) - {"labels"}, self.otherwise)
        mark, start = len(fed.ledger), time.perf_counter()
        checked = could_check(self._check, fed)
        self.model_id_, self.parties_ = secrets.token_hex(8), list(fed.parties)
        self.holders_ = [fed.active] if fed.partition == "vertical" else list(fed.label_parties)
        with self._session(fed) as run:
            if not checked:
                self._check(run)
            names = self._fit(run)
            self._read_classes(run, names)
        self._fed: Federation | None = fed
        self.column_digests_ = columns_here(fed)
        self.job_hash_ = fed.job(*self.announcement()).hash.hex()
        self.seconds_ = time.perf_counter() - start
        self.ledger_: Ledger = fed.ledger.since(mark)
        self.traffic_: pd.DataFrame = self.ledger_.traffic()
        self._lease: Lease | None = Lease(fed, self.model_id_)
        return self

    def announcement(self) -> tuple[str, dict[str, object]]:
        """What a party hears first: the model's name in jobs, and its parameters as plain values."""
        return self.name or type(self).__name__, {k: announced(v) for k, v in self.get_params(deep=False).items()}

    def _session(self, fed: Federation) -> AbstractContextManager[Federation]:
        """A session with the model's own job; inside another job (a selector that trains one) it belongs to that."""
        return fed.session(*self.announcement()) if fed._job is None else fed.session()

    @property
    def measured_unseen(self) -> bool:
        """Whether it can be measured on shares, so that nobody sees the score of a row."""
        return self._on_shares

    @property
    def numbers_a_row(self) -> int:
        """How many numbers all parties keep of a row where that is more than one a column; 0 where it is not."""
        return 0

    # What a subclass supplies.
    def _check(self, fed: Federation) -> None:
        """Raise ``ParameterError`` for values that make no sense, before anything is sent."""

    def _fit(self, run: Federation) -> Sequence[str]:
        """Train, leave the parts at the sites under ``self.model_id_``; the names of the classes (none: a number)."""
        raise ParameterError(f"{type(self).__name__} defines no _fit")

    def _decision(self, run: Federation) -> Floats:
        """Raw scores of the rows, rows x outputs; the label holders keep what they ``Predicted``."""
        raise ParameterError(f"{type(self).__name__} defines no _decision")

    def _hold(self, run: Federation) -> None:
        """Predict, and leave what is ``Predicted`` with the label holder: no score is sent to the coordinator."""
        raise ParameterError(f"{type(self).__name__} cannot leave its predictions with the label holder")

    def _share(self, run: Federation, shuffled: Shuffled | None = None) -> SharedScores:
        """Predict, and leave shares of the scores with the label holder and another party: nobody sees a score."""
        raise ParameterError(f"{type(self).__name__} cannot leave its scores as shares")

    def _probabilities(self, scores: Floats) -> Floats:
        """Class probabilities from raw scores: logistic for one score, softmax for several."""
        return probabilities(scores)

    # What users call.
    def decision_function(self, fed: Federation) -> Floats:
        """Raw scores: one a row, or rows x classes."""
        scores = self._scores_of(fed)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, fed: Federation) -> NDArray[Any]:
        """The likeliest class of each row, spelled as in the label column, or the number."""
        scores = self._scores_of(fed)
        return scores[:, 0] if self.task_ == "regression" else self.classes_[chosen(scores)]

    def predict_proba(self, fed: Federation) -> Floats:
        """Rows x classes, in the order of ``classes_``."""
        check_is_fitted(self, "model_id_")
        if self.task_ == "regression":
            raise ParameterError("predict_proba is for classes; this model predicts a number: use predict")
        return self._probabilities(self._scores_of(fed))

    def _scores_of(self, fed: Federation) -> Floats:
        with self._run(fed) as run:
            let_read(run)
            scores = self._decision(run)
        return fitting(scores, [] if self.task_ == "regression" else list(self.classes_), ", ".join(self.holders_))

    def predict_by_id(self, fed: Federation, *, to: str = "caller") -> dict[str, Any]:
        """``{id: p}`` in the order of the label holder's own table; new rows need no label.

        ``p`` is the probability of the second of two classes, a dictionary of more classes, or a number. With
        ``to="label holder"`` predictions stay there, in a file of its own, and nothing comes back: a site's default
        policy allows that.
        """
        check_choice("to", to, ("caller", "label holder"))
        with self._run(fed) as run:
            let_read(run)
            self._hold(run)
            if to == "label holder":
                run.ask(keep_by_id, to=run.active, model=self.model_id_)
                return {}
            told = run.ask(tell_by_id, to=run.active)
        values, single = told["values"], self.task_ == "regression" or len(self.classes_) == 2
        if len(values) != len(told["ids"]) or values.shape[1] not in ((1, 2) if single else (len(self.classes_),)):
            raise ReplyError(str(fed.active), "tell_by_id", "its predictions are not one for each id")
        if single:
            return dict(zip(told["ids"], values[:, -1].tolist()))
        names = [str(name) for name in self.classes_]
        return {who: dict(zip(names, row)) for who, row in zip(told["ids"], values.tolist())}

    def score(self, fed: Federation, y: object = None) -> float:
        """Accuracy or R2: on shares where the model can be, else by the label holder. Several add up under masks.

        ``y`` is refused: rows stand in an order that nobody knows, so labels from outside would meet the wrong rows.
        """
        refuse_labels(y)
        with self._run(fed) as run:
            if self.measured_unseen and run.passive:
                name = "accuracy" if self.task_ == "classification" else "r2"
                return round(grade(run, self._share(run), [name])[name], SCORE_DIGITS)
            let_read(run)
            self._hold(run)
            holders = [name for name in self.holders_ if name in fed.parties]
            if len(holders) == 1:
                return float(run.ask(score_rows, to=holders[0]))
            return metric(SecureSum(run, parties=holders).sum(score_sums, (5,)), self.task_ == "classification")

    def figures(self, fed: Federation, metrics: Sequence[str], shuffled: Shuffled | None = None) -> dict[str, float]:
        """How good the model is on these rows, where it can be measured on shares: nobody sees the score of a row.

        ``shuffled`` names a column that its party shuffles first (permutation importance).
        """
        with self._run(fed) as run:
            return grade(run, self._share(run, shuffled), metrics)

    def measure(self, fed: Federation, record: str, method: str, metrics: Sequence[str]) -> None:
        """Let the label holder measure the model on these rows and keep the figures under ``record``.

        Predictions stay with it, and so do the figures, until a summary over all folds is released (``evaluate``).
        """
        with self._run(fed) as run:
            let_read(run)
            self._hold(run)
            run.ask(measure_rows, to=fed.active, record=record, method=method, metrics=list(metrics))

    def performance(self, fed: Federation, *, groups: int = 10, by: str | None = None) -> pd.DataFrame:
        """For two classes: groups of rows from the least to the most likely, or by a column of the label holder's.

        ``chance`` is the mean predicted probability and ``rate`` the share of the second class (calibration), ``lift``
        the rate over that of all rows. By probability also, of the rows of this group and above: ``reached``, the share
        of the class, ``false_alarms``, that of the other class (a ROC curve), and ``precision`` (a threshold table). By
        a column (fairness): ``picked``, the share of the group among as many rows as the class has, those of the
        highest probability, ``hits`` and ``alarms``, that share of the class and of the other one. The label holder
        releases two digits a figure, and nothing of fewer than ten rows.
        """
        with self._run(fed) as run:
            let_read(run)
            self._hold(run)
            return table_of(run.ask(performance_rows, to=run.active, groups=groups, by=by), by)

    def forget(self, fed: Federation | None = None) -> None:
        """Let the sites free their parts. Afterwards the model predicts no more."""
        check_is_fitted(self, "model_id_")
        where = fed or self._fed
        if where is not None:
            with self._session(where) as run:
                run.ask(forget_part, to=run.parties, model=self.model_id_)

    def save(self, folder: str | Path, fed: Federation | None = None) -> Path:
        """One file a party (written at its site), and ``model.json`` with what the coordinator knows.

        Simulated sites write into ``folder``; deployed ones into the model folder that each has chosen.
        """
        check_is_fitted(self, "model_id_")
        where = fed or self._fed
        if where is None:
            raise ParameterError("save needs the federation whose parties hold the model: save(folder, fed)")
        with self._run(where) as run:
            choose_folder(run, folder)
            self._write_parts(run)
            if not self._in_files and run._job is not None:
                self.job_hash_, self._in_files = run._job.hash.hex(), True  # the sites' files are of this job
        known = {name: as_json(getattr(self, name)) for name in (*_KNOWN, *self._saved) if hasattr(self, name)}
        content = {"format": FORMAT, "version": VERSION, "class": type(self).__name__,
                   "parameters": {k: as_json(v) for k, v in self.get_params(deep=False).items()},
                   "known": known}  # fmt: skip
        return write_atomic(Path(folder) / "model.json", json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls: type[Model], folder: str | Path, fed: Federation) -> Model:
        """The model again; every party of ``fed`` reads its own file."""
        content = _read(Path(folder) / "model.json", cls.__name__)
        parameters = {name: from_json(value) for name, value in content["parameters"].items()}
        unknown = sorted(set(parameters) - set(cls._get_param_names()))
        if unknown:
            raise DataError(f"{str(folder)!r} is of another fedsift, with {unknown[0]!r}: fit it again and save it")
        model = cls(**parameters)
        for name, value in content["known"].items():
            if name not in (*_KNOWN, *cls._saved):
                raise DataError(f"{str(folder)!r} holds {name!r}, which a {cls.__name__} does not have")
            setattr(model, name, from_json(value))
        model._fed, model._in_files = None, True
        model._check_parties(fed)
        choose_folder(fed, folder)
        with model._session(fed) as run:
            model._read_parts(run)
        return model

    # What they share.

    def _write_parts(self, run: Federation) -> None:
        run.ask(write_part, to=self.parties_, model=self.model_id_)

    def _read_parts(self, run: Federation) -> None:
        run.ask(read_part, to=self.parties_, model=self.model_id_, job=self.job_hash_)

    def _read_classes(self, run: Federation, names: Sequence[str]) -> None:
        self.task_ = "classification" if names else "regression"
        if names:
            kinds = set(run.ask(label_kind, to=self.holders_).values())
            self.classes_ = as_they_went_in(names, kinds)

    @contextmanager
    def _run(self, fed: Federation) -> Iterator[Federation]:
        """A session for predictions, with the parts at hand."""
        check_is_fitted(self, "model_id_")
        if not isinstance(fed, Federation):
            raise ParameterError(f"a model predicts over a Federation, got {type(fed).__name__}")
        self._check_parties(fed)
        fed = with_columns_of(getattr(self, "column_digests_", {}), fed)
        if getattr(self, "_fed", None) is not None:
            same_organisations(self._fed, fed, self.model_id_)
        with self._session(fed) as run:
            yield run

    def _check_parties(self, fed: Federation) -> None:
        missing = [name for name in self.parties_ if name not in fed.parties]
        if missing:
            raise DataError(f"the model needs the party {missing[0]!r}, which is not in this federation")
        if fed.partition == "vertical" and [fed.active] != self.holders_:
            raise DataError(
                f"the model was trained with {self.holders_[0]!r} as label holder, here it is {fed.active!r}"
            )


def refuse_labels(y: object) -> None:
    """Labels from outside cannot be brought to the rows."""
    if y is not None:
        raise ParameterError(
            "score(fed) takes no labels: rows stand in a secret order, and labels from outside would be compared with "
            "other rows. The label holder scores with its own labels; predict_by_id(fed) gives predictions by id"
        )


_KNOWN = ("model_id_", "task_", "classes_", "parties_", "holders_", "seconds_", "job_hash_", "column_digests_")


def as_they_went_in(names: Sequence[str], kinds: set[str]) -> NDArray[np.generic]:
    """Classes as the label column spells them: whole numbers, decimals or booleans where all holders have those."""
    if kinds <= {"i", "u"}:
        return np.array([int(name) for name in names])
    if kinds <= {"i", "u", "f"}:
        return np.array([float(name) for name in names])
    if kinds == {"b"}:
        return np.array([name == "True" for name in names])
    return np.array(list(names), dtype=object)


def _read(file: Path, name: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no model file {str(file)!r}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{str(file)!r} is not a model file: {error}") from None
    good = isinstance(content, dict) and content.get("format") == FORMAT and content.get("version") == VERSION
    if not good or content.get("class") != name or not {"parameters", "known"} <= set(content):
        raise DataError(f"{str(file)!r} is not a saved {name} of version {VERSION}: fit it again and save it")
    return content
