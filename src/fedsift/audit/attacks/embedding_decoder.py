"""A party's columns from its embeddings, by a decoder that is taught with a few known rows.

Whoever sees the embedding of every row and knows the columns of some of them (its own customers, a leaked extract)
learns the way back: ridge regression on the embedding and on its bends (ReLU features), the penalty chosen by
leave-one-out on the known rows alone. The baseline is the same decoder from the attacker's own columns.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import RidgeCV

from fedsift.audit.exposure import Measure
from fedsift.audit.network_messages import batches_at_holder
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View

SHARE = 0.05
_BENDS = 64
_PENALTIES = np.geomspace(1e-3, 1e4, 15)


def decode(seen: np.ndarray, columns: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The columns of all rows, from what was seen of all rows and the columns of the known ones."""
    if not seen.shape[1]:
        return np.broadcast_to(columns[known].mean(axis=0), columns.shape)
    centre, spread = seen.mean(axis=0), np.maximum(seen.std(axis=0), 1e-9)
    plain = (seen - centre) / spread
    generator = np.random.default_rng(0)
    bends = np.maximum(plain @ generator.normal(size=(plain.shape[1], _BENDS)) / np.sqrt(plain.shape[1]), 0)
    table = np.hstack([plain, bends])
    model = RidgeCV(alphas=_PENALTIES, alpha_per_target=True).fit(table[known], columns[known])
    return np.asarray(model.predict(table)).reshape(columns.shape)


def explained(columns: np.ndarray, decoded: np.ndarray, known: np.ndarray) -> float:
    """Mean R2 of the columns over the rows that were not known; below 0 counts as 0."""
    rest = np.setdiff1d(np.arange(len(columns)), known)
    true, guess = columns[rest], decoded[rest]
    spread = ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    used = spread > 1e-12
    share = 1 - ((true - guess) ** 2).sum(axis=0)[used] / spread[used]
    return float(np.clip(share, 0, 1).mean()) if used.any() else 0.0


def last_seen(view: View, n_rows: int) -> dict[str, np.ndarray]:
    """Of each other party: the last embedding of each row that was seen, of one network."""
    tables: dict[str, np.ndarray] = {}
    networks: dict[str, str] = {}
    for batch in batches_at_holder(view):
        seen = batch.embedding
        if seen is None:
            continue
        flat = seen if seen.ndim == 2 else np.concatenate(list(seen), axis=1)
        if networks.get(batch.party) != batch.model:
            tables[batch.party], networks[batch.party] = np.zeros((n_rows, flat.shape[1])), batch.model
        tables[batch.party][batch.rows] = flat
    for message in view.requests("select_components"):  # LESS-VFL sends those of all rows at once
        for party, table in message.content["embeddings"].items():
            if len(table) == n_rows:
                tables[party] = np.asarray(table, dtype=np.float64)
    for message in view.requests("predict_rows"):  # some rows at a time
        for party, table in message.content["embeddings"].items():
            start, known = message.content["start"], tables.get(party)
            if known is None or known.shape[1] != table.shape[1]:
                tables[party] = known = np.zeros((n_rows, table.shape[1]))
            if start + len(table) <= n_rows:
                known[start : start + len(table)] = table
    return tables


@attack(
    reads=["top_round", "select_components", "embed_rows", "predict_rows"],
    role="active",
    target="columns",
    knows="5 % of the rows of the other party",
    declared="yes",
    line=10,
)
def embedding_decoder(view: View, truth: Truth) -> Measure:
    """Mean R2 of the other parties' columns over the rows that were not known."""
    n_rows = len(truth.labels)
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    own = np.nan_to_num(view.columns)
    values, baselines, widths, found = [], [], [], {}
    seen = last_seen(view, n_rows)
    for party, columns in truth.columns.items():
        if party == view.name:
            continue
        wanted = np.nan_to_num(columns)
        baselines.append(explained(wanted, decode(own, wanted, known), known))
        if party in seen:
            found[party] = decode(seen[party], wanted, known)
            values.append(explained(wanted, found[party], known))
            widths.append(seen[party].shape[1])
    if not values:
        return Measure("r2", 0.0, 0.0, float(np.mean(baselines)), note="nothing to read: no embedding")
    note = f"embeddings of {widths}"
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=note, columns=found)
