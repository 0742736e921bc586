"""Columns from scores of the rows that the label holder reads: in every step of a training, or as predictions.

A score of a row is an equation about its columns. One of them is the answer; with one other party and a score in every
step, they are as many combinations of that party's columns as there are steps. Whoever knows the columns of some rows
learns the way back by the decoder of ``embedding_decoder.py``. The baseline has the attacker's own columns and the last
of the scores: what many of them add is what is measured. Under lattice encryption the label holder reads activations
of its first layer in every epoch, which are such scores too; in hybrid HyFDCA the rows' scores in each round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.attacks.scores import own_party
from fedsift.audit.exposure import Measure
from fedsift.audit.naming import matches
from fedsift.audit.network_messages import Networks
from fedsift.audit.registry import attack
from fedsift.audit.views import Message, Truth, View
from fedsift.models.hyfdca.party import SCORE_BITS
from fedsift.models.hyfdca.state import RoundState
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import from_ring
from fedsift.mpc.shared_descent import Columns, keep_share

PREDICTIONS = ("sine_network.predict", "read_scores", "predict_rows", "predict_lattice", "predicted", "read_prediction")
_MOST = 60  # score vectors


def scores_read(view: View) -> list[np.ndarray]:
    """Every vector of scores (rows x outputs) that the label holder has read, in order."""
    n_rows = view.own_table.n_rows
    found = [*_while_training(view), *activations_read(view)]
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


def activations_read(view: View) -> Iterator[np.ndarray]:
    """Networks under lattice encryption: for each epoch the activations of all rows, which the label holder unmasks."""
    from fedsift.models.splitnn.layers import lattice
    from fedsift.models.splitnn.layers.lattice_wire import Weighings

    networks, n_rows = Networks(view), view.own_table.n_rows
    tables: dict[tuple[str, str, int], np.ndarray] = {}
    for message in view.requests("learn_lattice"):
        model, epoch = message.content["model"], message.content["epoch"]
        before = [s for s in view.states if s.session == message.session and s.number < message.number]
        kept = before[-1].values.get(Weighings, Weighings({})).of.get(model, {}) if before else {}
        rows = networks.rows(message, n_rows)
        for party, told in message.content["activations"].items():
            if party in kept and len(told["masked"]) == len(rows):
                ring = told["masked"] - kept[party].mask[: len(rows)]
                z = lattice._value(ring & lattice._VALUE, lattice._ACTIVATION)
                tables.setdefault((model, party, epoch), np.full((n_rows, z.shape[1]), np.nan))[rows] = z
    yield from (table for table in tables.values() if not np.isnan(table).any())


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
    reads=["open_residuals", "learn_lattice", "hold_lattice", *PREDICTIONS], role="active", target="columns",
    declared="yes", knows="5 % of the rows of the other party",
)  # fmt: skip
def scores_give_columns(view: View, truth: Truth) -> Measure:
    """Mean R2 of the other parties' columns from all scores that the label holder read."""
    seen, n_rows = scores_read(view), len(truth.labels)
    seen = [table for table in seen if len(table) == n_rows]
    if not seen:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no scores of the rows")
    return _columns_from(seen, view, truth)


@attack(
    reads=["raise_duals"], role="member", target="columns", declared="yes",
    knows="5 % of the rows of a party with the same rows",
)  # fmt: skip
def dual_scores_give_columns(view: View, truth: Truth) -> Measure:
    """R2 of columns from what other parties with the same rows add to each score, in every round (hybrid HyFDCA)."""
    n_rows = view.own_table.n_rows
    told = [m.content["total"] for m in view.requests("raise_duals") if "total" in m.content]
    rounds = [state.values[RoundState] for state in view.states if RoundState in state.values]
    kept = [each.labels.others for each in rounds if each.labels is not None]
    seen = [np.asarray(each, dtype=np.float64) for each in told] + [from_ring(each, SCORE_BITS) for each in kept]
    seen = [table for table in seen if len(table) == n_rows]
    if not seen:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no scores of the rows")
    return _columns_from(seen, view, truth)


def _columns_from(seen: list[np.ndarray], view: View, truth: Truth) -> Measure:
    """Of every other party with as many rows; beside the attacker's own columns and the last of the scores."""
    step, n_rows = max(1, len(seen) // _MOST), len(seen[0])
    table, own = np.hstack(seen[::step]), np.nan_to_num(view.columns)
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    values, baselines, found = [], [], {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1] or len(columns) != n_rows:
            continue
        wanted = np.nan_to_num(columns)
        found[party] = decode(np.hstack([own, table]), wanted, known)
        values.append(explained(wanted, found[party], known))
        baselines.append(explained(wanted, decode(np.hstack([own, seen[-1]]), wanted, known), known))
    if not values:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: nobody else has these rows")
    note = f"{len(seen)} scores a row"
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=note, columns=found)
