"""Columns from scores of held-out rows, by which boosted models are compared in a cross-validation.

TopGain and the swarm ask the label holder how good each model is on the rows that it did not learn from. So the label
holder has a score of every row for each number of columns, or particle, that is tried, also at the level ``all`` where
it hears of no row which way it goes: as many functions of the other parties' columns as models were compared. Whoever
knows some rows of the other party learns the way back (``embedding_decoder.py``). None of these scores is the answer,
so the baseline has the attacker's own columns alone.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.models.boost.growing_tree import Boosting, Model

_MOST = 60  # score vectors


def scores_compared(view: View) -> list[np.ndarray]:
    """Vectors of scores (rows x outputs) of rows by models that did not learn from them: of each fold the first model
    that was compared, the second, and so on."""
    found = []
    for state in view.states:
        boosting = state.values.get(Boosting)
        folds: dict[bytes, list[Model]] = {}
        for model in boosting.models if boosting is not None else ():
            if not model.train.all() and model.margins[~model.train].any():
                folds.setdefault(model.train.tobytes(), []).append(model)
        for together in zip(*folds.values()):
            scores = np.zeros_like(together[0].margins, dtype=np.float64)
            for model in together:
                scores[~model.train] = model.margins[~model.train]
            found.append(scores)
    return found


@attack(
    reads=["held_out_scores", "hear_scores"], role="active", target="columns", declared="yes",
    knows="5 % of the rows of the other party",
)  # fmt: skip
def compared_scores_give_columns(view: View, truth: Truth) -> Measure:
    """Mean R2 of the other parties' columns from its own and the scores of held-out rows of all models."""
    n_rows = len(truth.labels)
    seen = [scores for scores in scores_compared(view) if len(scores) == n_rows]
    if not seen:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no models were compared by rows held out")
    own = np.nan_to_num(view.columns)
    table = np.hstack([own, *seen[:: max(1, len(seen) // _MOST)]])
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    values, baselines, found = [], [], {}
    for party, columns in truth.columns.items():
        if party != view.name and columns.shape[1]:
            wanted = np.nan_to_num(columns)
            found[party] = decode(table, wanted, known)
            values.append(explained(wanted, found[party], known))
            baselines.append(explained(wanted, decode(own, wanted, known), known))
    note = f"{len(seen)} scores a row"
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=note, columns=found)
