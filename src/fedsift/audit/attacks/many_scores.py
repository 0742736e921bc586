"""Columns from scores of the rows that the label holder reads: in every step of a training, or as predictions.

A score of a row is an equation about its columns. One of them is the answer; with one other party and a score in every
step, they are as many combinations of that party's columns as there are steps. Whoever knows the columns of some rows
learns the way back by the decoder of ``embedding_decoder.py``. The baseline has the attacker's own columns and the last
of the scores: what many of them add is what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.attacks.scores import own_party
from fedsift.audit.exposure import Measure
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.views import Message, Truth, View
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import from_ring
from fedsift.mpc.shared_descent import Columns, keep_share

PREDICTIONS = ("sine_network.predict", "read_scores", "predict_rows", "predict_lattice", "predicted", "read_prediction")
_MOST = 60  # score vectors


def scores_read(view: View) -> list[np.ndarray]:
    """Every vector of scores (rows x outputs) that the label holder has read, in order."""
    n_rows = view.own_table.n_rows
    found = list(_while_training(view))
    pieces: list[np.ndarray] = []
    for message in view.messages:
        mine = not message.is_request and any(matches(name, message.operation) for name in PREDICTIONS)
        if not mine or not isinstance(message.content, np.ndarray):
            continue
        pieces.append(message.content.reshape(len(message.content), -1).astype(np.float64))
        if sum(map(len, pieces)) >= n_rows:  # some rows at a time
            whole = np.vstack(pieces)
            found += [whole] if len(whole) == n_rows else []
            pieces = []
    return found


def _while_training(view: View) -> Iterator[np.ndarray]:
    """Linear descent with a loss: the label holder adds its own share to that of the coordinator."""
    for message in view.requests("open_residuals"):
        total = _opened(view, message)
        if total is not None:
            yield total


def _opened(view: View, message: Message) -> np.ndarray | None:
    content = message.content
    if "total" in content:  # told in the clear
        return np.asarray(content["total"], dtype=np.float64)
    kept = [state.values for state in view.states if state.session == message.session]
    if not kept or Columns not in kept[-1] or Pairs not in kept[-1]:
        return None
    party, columns = own_party(view), kept[-1][Columns]
    party.keep(replace(kept[-1][Pairs], _used={}))  # its own masks, once more
    share = keep_share(party, columns, content["weights"], content["step"], content["seed"])
    return from_ring(content["scores"] + share, columns.precision.columns + columns.precision.weights)


@attack(
    reads=["open_residuals", *PREDICTIONS], role="active", target="columns", declared="yes",
    knows="5 % of the rows of the other party",
)  # fmt: skip
def scores_give_columns(view: View, truth: Truth) -> Measure:
    """Mean R2 of the other parties' columns from all scores that the label holder read."""
    seen, n_rows = scores_read(view), len(truth.labels)
    seen = [table for table in seen if len(table) == n_rows]
    if not seen:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no scores of the rows")
    step = max(1, len(seen) // _MOST)
    table, own = np.hstack(seen[::step]), np.nan_to_num(view.columns)
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    values, baselines = [], []
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        wanted = np.nan_to_num(columns)
        values.append(explained(wanted, decode(np.hstack([own, table]), wanted, known), known))
        baselines.append(explained(wanted, decode(np.hstack([own, seen[-1]]), wanted, known), known))
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=f"{len(seen)} scores a row")
