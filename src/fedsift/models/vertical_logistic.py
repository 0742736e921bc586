"""Vertical logistic regression (VFLR): second-order approximation, encrypted gradients, quasi-Newton steps.

Yang et al. 2019, a baseline of PSO-EVFFS. With labels y = +-1 and score z = x.w the loss log(1 + exp(-y z)) is replaced
by log 2 - y z / 2 + z^2 / 8, so the gradient is linear in the scores: X'(z - 2y) / 4. Several classes: one against
the rest. Departures: no third party holds a key, columns are standardised, the quasi-Newton method is limited-memory
BFGS over all parties together (its inner products are summed at the coordinator).

One iteration. Every party q encrypts its own scores (the label holder: its scores less 2y) under its own key. Party p
sums them with its columns as weights, adds a mask 40 bits wider than the sum, and lets q decrypt the masked sums. So a
party learns its own gradient (a sum over all rows for each of its columns) and q learns nothing; nobody sees a score or
a label of another. The coordinator sees inner products of gradients and steps. Rounds: 4 an iteration.

For prediction the parties' scores are added up under the label holder's key; it reads the total of each row. With one
other party that total tells that party's score of the row.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedsift.core.checks import check_number
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import DataError, OverflowGuard, ParameterError, ReplyError
from fedsift.models.design import Design
from fedsift.models.lbfgs import direction
from fedsift.mpc.encrypted_histogram import (
    HIDING_BITS,
    RowLayout,
    encrypt_rows,
    hide_neighbours,
    own_key,
    read_sums,
    weighted_sums,
)

_SCORE_BITS = 32  # of a score, with its sign: 20 of them are the fraction
_SCORE_FRACTION = 20
_WEIGHT_BITS = 30


def _row_bits() -> int:
    return _SCORE_BITS + _WEIGHT_BITS + HIDING_BITS + 1


def _layouts(rows: int, outputs: int, room: int) -> list[RowLayout]:
    """Outputs that share a ciphertext: as many as fit."""
    width = _row_bits() + rows.bit_length()
    fit = max(1, room // width)
    return [
        replace(RowLayout.fit(rows, min(fit, outputs - start), _row_bits(), room), answers_per=1)
        for start in range(0, outputs, fit)
    ]


def _weight_fraction(rows: int) -> int:
    """A standardised value is at most sqrt(rows)."""
    return _WEIGHT_BITS - 2 - (rows.bit_length() + 1) // 2


def _whole_scores(party: Party, scores: np.ndarray) -> np.ndarray:
    whole = np.rint(scores * 2.0**_SCORE_FRACTION).astype(np.int64) + (1 << (_SCORE_BITS - 1))
    if whole.size and (whole.min() < 0 or whole.max() >= 1 << _SCORE_BITS):
        raise OverflowGuard(
            f"party {party.name!r}: a score grew beyond {2 ** (_SCORE_BITS - 1 - _SCORE_FRACTION)}: raise reg_lambda"
        )
    return whole


@operation("logistic.begin_logistic", discloses="control", about="acknowledgement", reply={"outputs": int})
def begin_logistic(party: Party, *, task: str, outputs: int, scheme: str) -> dict[str, int]:
    """Standardise own columns. The label holder says how many scores a row has."""
    design = Design.fit(party.table)
    values = design.matrix(party.table)
    target = None
    if party.table.label is not None and outputs == 0:
        labels = party.labels(task=task)
        outputs = 1 if labels.n_classes == 2 else labels.n_classes
        target = np.where(labels.codes[:, None] == (np.arange(outputs) if outputs > 1 else 1), 1.0, -1.0)
        values = np.hstack([values, np.ones((party.n_rows, 1))])  # the intercept is the label holder's
    fraction = _weight_fraction(party.n_rows)
    whole = np.rint(values * 2.0**fraction).astype(np.int64) + (1 << (_WEIGHT_BITS - 1))
    weights = np.hstack([whole, np.ones((party.n_rows, 1), dtype=np.int64)])  # the last one sums the scores themselves
    party.state["logistic"] = {
        "design": design, "values": values, "whole": weights, "target": target, "outputs": outputs, "scheme": scheme,
        "w": np.zeros((values.shape[1], outputs)), "history": [], "last": None,
    }  # fmt: skip
    return {"outputs": outputs}


@operation(
    "logistic.encrypt_scores",
    discloses="ciphertext",
    about="its scores of the rows, encrypted (the label holder's with the labels in them)",
    reply={"key": PublicKey, "layers": [{"rows": Ciphertexts, "layout": dict}]},
)
def encrypt_scores(party: Party) -> dict[str, Any]:
    state = party.state["logistic"]
    key = own_key(party, state["scheme"]).public
    scores = state["values"] @ state["w"]
    if state["target"] is not None:
        scores = scores - 2 * state["target"]
    state["scores"] = scores
    whole, layers, start = _whole_scores(party, scores), [], 0
    for layout in _layouts(party.n_rows, state["outputs"], key.plaintext_bits):
        part = whole[:, start : start + layout.values]
        layers.append({"rows": encrypt_rows(key, part, layout, _SCORE_BITS), "layout": layout.as_dict()})
        start += layout.values
    return {"key": key, "layers": layers}


@operation(
    "logistic.masked_gradients",
    discloses="masked",
    receives="ciphertext",
    about="for the owner of each key: masked sums of its scores, weighted by own columns",
    reply=dict,
)
def masked_gradients(party: Party, *, others: dict[str, Any]) -> dict[str, Any]:
    state = party.state["logistic"]
    state["masks"], answer = {}, {}
    for name, sent in others.items():
        key, sums, masks = sent["key"], [], []
        expected = _layouts(party.n_rows, state["outputs"], key.plaintext_bits)
        if [layer["layout"] for layer in sent["layers"]] != [layout.as_dict() for layout in expected]:
            raise ParameterError(f"party {name!r} sent scores in another layout than {party.n_rows} rows need")
        for layer, layout in zip(sent["layers"], expected):
            raw = hide_neighbours(key, weighted_sums(key, layer["rows"], layout, state["whole"], _WEIGHT_BITS), layout)
            bits = _SCORE_BITS + _WEIGHT_BITS + party.n_rows.bit_length() + HIDING_BITS
            mask = [[secrets.randbits(bits) for _ in range(layout.values)] for _ in range(len(raw))]
            middle = (layout.per_ciphertext - 1) * layout.pitch
            added = [sum(r << (middle + lane * layout.value_bits) for lane, r in enumerate(row)) for row in mask]
            sums.append(key.blind(key.add_plain(raw, added)))
            masks.append(mask)
        state["masks"][name], answer[name] = masks, sums
    return answer


@operation(
    "logistic.open_masked",
    discloses="masked",
    receives="masked",
    about="another party's sums, decrypted under that party's masks",
    reply=dict,
)
def open_masked(party: Party, *, sums: dict[str, Any]) -> dict[str, Any]:
    state = party.state["logistic"]
    key = own_key(party, state["scheme"])
    layouts = _layouts(party.n_rows, state["outputs"], key.public.plaintext_bits)
    return {
        name: [read_sums(key, part, layout, len(part)) for part, layout in zip(parts, layouts)]
        for name, parts in sums.items()
    }


@operation(
    "logistic.inner_products",
    discloses="aggregate",
    receives="masked",
    about="inner products of its gradient and its last steps",
    learns="its own gradient: one sum over all rows a column",
    reply=Array("f", 2),
)
def inner_products(party: Party, *, opened: dict[str, Any], reg_lambda: float, memory: int) -> np.ndarray:
    """Take the masks off, form the own part of the gradient, and give what the quasi-Newton step needs."""
    state = party.state["logistic"]
    total = state["values"].T @ state["scores"]
    for name, parts in opened.items():
        columns = []
        for part, masks in zip(parts, state["masks"].pop(name)):
            if len(part) != len(masks):
                raise ReplyError(name, "open_masked", f"party {name!r} opened another number of sums than it was sent")
            columns.append([[value - mask for value, mask in zip(a, b)] for a, b in zip(part, masks)])
        total = total + _unshifted(state["whole"], np.concatenate([np.array(c, dtype=object) for c in columns], axis=1))
    gradient = total / (4 * party.n_rows) + reg_lambda * state["w"]
    if state["target"] is not None:
        gradient[-1] -= reg_lambda * state["w"][-1]  # the intercept is not shrunk
    if state["last"] is not None:
        step, before = state["last"]
        state["history"] = [*state["history"], (step, gradient - before)][-memory:]
    state["gradient"] = gradient
    basis = [s for s, _ in state["history"]] + [y for _, y in state["history"]] + [gradient]
    flat = np.array([b.ravel() for b in basis])
    return flat @ flat.T


def _unshifted(whole: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """sum of x * z from sums of (x + a) * (z + b); the last row of ``sums`` is the sum of (z + b)."""
    a, b, rows = 1 << (_WEIGHT_BITS - 1), 1 << (_SCORE_BITS - 1), len(whole)
    shifted_scores = sums[-1]
    x_sum = np.array([int(v) for v in whole[:, :-1].sum(axis=0)], dtype=object) - a * rows
    exact = sums[:-1] - a * shifted_scores[None, :] - b * x_sum[:, None]
    unit = 2.0 ** -(_weight_fraction(rows) + _SCORE_FRACTION)
    return exact.astype(np.float64) * unit


@operation(
    "logistic.take_step",
    discloses="control",
    about="acknowledgement",
    receives="aggregate",
    learns="how to combine its own steps",
)
def take_step(party: Party, *, coefficients: np.ndarray) -> None:
    state = party.state["logistic"]
    basis = [s for s, _ in state["history"]] + [y for _, y in state["history"]] + [state["gradient"]]
    step = sum(c * b for c, b in zip(coefficients.tolist(), basis))
    state["last"] = (step, state["gradient"])
    state["w"] = state["w"] + step


@operation("logistic.keep_weights", discloses="control", about="acknowledgement")
def keep_weights(party: Party, *, model: str) -> None:
    """Own weights stay at the site."""
    state = party.state["logistic"]
    party.keys[f"logistic:{model}"] = {"design": state["design"], "w": state["w"], "scheme": state["scheme"]}


def _part_score(party: Party, model: str) -> np.ndarray:
    part = party.keys.get(f"logistic:{model}")
    if part is None:
        raise DataError(f"party {party.name!r} has no part of the model {model!r}: fit it first")
    values = part["design"].matrix(party.table)
    if part["w"].shape[0] == values.shape[1] + 1:
        values = np.hstack([values, np.ones((party.n_rows, 1))])
    return values @ part["w"]


@operation(
    "logistic.add_scores",
    discloses="ciphertext",
    receives="ciphertext",
    about="sum of the parties' scores of each row so far, encrypted for the label holder",
    reply=Ciphertexts,
)
def add_scores(party: Party, *, key: PublicKey, so_far: Any, model: str) -> Ciphertexts:
    whole = _whole_scores(party, _part_score(party, model)).ravel().tolist()
    return key.encrypt(whole) if so_far is None else key.blind(key.add_plain(so_far, whole))


@operation(
    "logistic.logistic_probabilities",
    discloses="plain",
    receives="ciphertext",
    about="class probabilities of the rows",
    learns="the sum of the other parties' scores of each row",
    reply=Array("f", 2),
)
def logistic_probabilities(party: Party, *, scores: Any, parties: int, model: str) -> np.ndarray:
    own = _part_score(party, model)
    total = own
    if scores is not None:
        bits = _SCORE_BITS + parties.bit_length()
        opened = own_key(party, party.keys[f"logistic:{model}"]["scheme"]).decrypt(scores, bits=bits)
        if len(opened) != own.size:
            raise ReplyError("another party", "add_scores", "another number of scores than rows")
        shift = parties << (_SCORE_BITS - 1)
        rest = np.array([number - shift for number in opened], dtype=np.float64) / 2.0**_SCORE_FRACTION
        total = own + rest.reshape(own.shape)
    chance = 1 / (1 + np.exp(-np.clip(total, -500, 500)))
    if chance.shape[1] == 1:
        return np.hstack([1 - chance, chance])
    return chance / np.maximum(chance.sum(axis=1, keepdims=True), 1e-12)


class VerticalLogisticRegression(BaseEstimator):
    """Logistic regression over vertically split columns (second-order approximation, L-BFGS).

    Parameters
    ----------
    max_iter : iterations. tol : stop when the gradient is shorter. reg_lambda : weight of the squared weights.
    memory : steps that the quasi-Newton method remembers. scheme : additive encryption.
    """

    def __init__(
        self,
        *,
        max_iter: int = 10,
        tol: float = 1e-5,
        reg_lambda: float = 0.01,
        memory: int = 8,
        scheme: str = "auto",
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.reg_lambda = reg_lambda
        self.memory = memory
        self.scheme = scheme

    def fit(self, fed: Federation, y: Any = None) -> VerticalLogisticRegression:
        """Train over the federation's rows. ``y`` is ignored: labels stay with their party."""
        self._check(fed)
        mark, start = len(fed.ledger), time.perf_counter()
        self.model_id_ = secrets.token_hex(8)
        self.curve_: list[float] = []
        with fed.session() as run:
            outputs = run.ask(begin_logistic, to=run.active, task=run.asked_task, outputs=0, scheme=self.scheme)[
                "outputs"
            ]
            if run.passive:
                run.ask(begin_logistic, to=run.passive, task=run.asked_task, outputs=outputs, scheme=self.scheme)
            self._iterate(run)
            run.ask(keep_weights, to=run.parties, model=self.model_id_)
        self.n_iter_, self.active_, self._fed = len(self.curve_), fed.active, fed
        self.seconds_ = time.perf_counter() - start
        self.ledger_ = fed.ledger.since(mark)
        return self

    def _iterate(self, run: Federation) -> None:
        everyone = run.parties
        first = 1.0 / (0.25 * (1 + sum(run.n_columns.values())) ** 0.5 + self.reg_lambda)
        for _ in run.track(range(self.max_iter), "step", at_most=True):
            sent = run.ask(encrypt_scores, to=everyone)
            each = {p: {"others": {q: s for q, s in sent.items() if q != p}} for p in everyone}
            masked = run.ask(masked_gradients, to=everyone, each=each)
            back = {q: {"sums": {p: masked[p][q] for p in everyone if p != q}} for q in everyone}
            opened = run.ask(open_masked, to=everyone, each=back)
            mine = {p: {"opened": {q: opened[q][p] for q in everyone if q != p}} for p in everyone}
            products = run.ask(
                inner_products, to=everyone, each=mine, reg_lambda=float(self.reg_lambda), memory=int(self.memory)
            )
            shapes = {table.shape for table in products.values()}
            if len(shapes) != 1:
                raise ReplyError(run.active, "inner_products", "the parties remember different numbers of steps")
            table = sum(products.values())
            self.curve_.append(float(np.sqrt(max(0.0, table[-1, -1]))))
            if self.curve_[-1] < self.tol:
                break
            run.ask(take_step, to=everyone, coefficients=direction(table, first))

    def _check(self, fed: Federation) -> None:
        if not isinstance(fed, Federation):
            raise ParameterError(f"fit takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
        if fed.partition != "vertical":
            raise ParameterError(f"VerticalLogisticRegression is for vertical parties; these are {fed.partition}")
        check_number("max_iter", self.max_iter, 1, whole=True)
        check_number("memory", self.memory, 1, 50, whole=True)
        check_number("tol", self.tol, 0)
        check_number("reg_lambda", self.reg_lambda, 0)
        if fed.task != "classification":
            raise DataError(f"VerticalLogisticRegression is for classes; the label of {fed.active!r} is a number")

    def predict_proba(self, fed: Federation) -> np.ndarray:
        """Rows x classes."""
        check_is_fitted(self, "model_id_")
        before = self._fed.simulated
        for name, site in fed.simulated.items():  # simulated: the same organisation with new rows knows its weights
            if name in before and f"logistic:{self.model_id_}" in before[name].keys:
                site.keys.setdefault(f"logistic:{self.model_id_}", before[name].keys[f"logistic:{self.model_id_}"])
        with fed.session() as run:
            key = run.ask(_own_public, to=run.active, model=self.model_id_)
            total = None
            for name in run.passive:
                total = run.ask(add_scores, to=name, key=key, so_far=total, model=self.model_id_)
            return run.ask(
                logistic_probabilities, to=run.active, scores=total, parties=len(run.passive), model=self.model_id_
            )

    def predict(self, fed: Federation) -> np.ndarray:
        """Class positions, in the order of the sorted class names."""
        return self.predict_proba(fed).argmax(axis=1)


@operation("logistic.own_public", discloses="control", about="public key", reply=PublicKey)
def _own_public(party: Party, *, model: str) -> PublicKey:
    part = party.keys.get(f"logistic:{model}")
    if part is None:
        raise DataError(f"party {party.name!r} has no part of the model {model!r}: fit it first")
    return own_key(party, part["scheme"]).public


VerticalLogisticRegression.operations = (
    begin_logistic,
    encrypt_scores,
    masked_gradients,
    open_masked,
    inner_products,
    take_step,
    keep_weights,
    add_scores,
    logistic_probabilities,
    _own_public,
)
