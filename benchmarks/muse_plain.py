"""Plaintext twins of MUSE and of its baselines: what the federated runs must equal, at the price of pooled columns."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.mpc.column_scores.f_statistic import f_statistic
from fedsift.select.baselines.federated_lasso import FederatedLasso
from fedsift.select.filters.information_value import information_value
from fedsift.select.muse.contingency import Entropies, count_tables, number_codes, pair_information
from fedsift.select.muse.criteria import in_step, steps

FEATURES, BINS = 50, 15
CRITERIA = ("mrmr", "mifs", "dd")


def plain_search(codes, y, n_features, criterion, correct=True):
    """Greedy selection over pooled codes (columns x rows)."""
    counting = Entropies(codes.shape[1])
    entropy = np.array([float(counting.entropy(np.bincount(c))) for c in codes])
    relevance = pair_information(y[None], codes, counting, correct=correct)[0]

    def answer(wanted):
        chosen, others = wanted[""]
        return {"": pair_information(codes[chosen : chosen + 1], codes[others], counting, correct=correct)[0]}

    label_entropy = float(counting.entropy(np.bincount(y)))
    search = steps(n_features, criterion, relevance, entropy, label_entropy, beta=0.8, lam=0.5)
    return in_step({"": search}, answer)[""].order


def plain_muse(codes, y, groups, n_features, criterion, preselect, correct=True):
    candidates = np.arange(len(codes))
    if preselect:
        kept = []
        start = 0
        for group in groups:
            own = np.arange(start, start + len(group))
            kept += sorted(own[plain_search(codes[own], y, n_features, criterion, correct)].tolist())
            start += len(group)
        candidates = np.array(kept)
    return candidates[plain_search(codes[candidates], y, n_features, criterion, correct)]


def plain_sffs(X, y, n_features):
    centred = X - X.mean(axis=0)
    spread = centred.std(axis=0)
    values = np.where(spread > 0, centred / np.where(spread > 0, spread, 1), 0.0)
    one_hot = y[:, None] == np.arange(y.max() + 1)
    one_hot = one_hot[:, one_hot.any(axis=0)]
    return np.argsort(-f_statistic(values.T @ one_hot[:, :-1], one_hot.sum(axis=0)), kind="stable")[:n_features]


def plain_iv(codes, y, n_features):
    totals = np.bincount(y)
    tables = count_tables(codes, np.broadcast_to(y.astype(np.uint8), codes.shape))[:, :, totals > 0]
    values = [information_value(t[t.sum(axis=1) > 0], totals[totals > 0]) for t in tables]
    return np.argsort(-np.array(values), kind="stable")[:n_features]


def plain_lasso(X, y, n_features):
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    fitted = FederatedLasso(n_features=n_features, max_iter=100).fit(Federation.split(frame, y, parties=1))
    scores = fitted.scores_[fitted.scores_["selected"]].head(n_features)["feature"]
    return np.array([int(name[1:]) for name in scores])


def methods(X, y, groups, original, rng):
    """Chosen positions (best first) by method, from these rows only."""
    codes = number_codes(np.ascontiguousarray(X.T), BINS, "quantile")
    chosen = {
        "all original columns (OFS)": original,
        "all columns with copies (AFP)": np.arange(X.shape[1]),
        "random columns (null)": rng.permutation(X.shape[1])[:FEATURES],
        "SFFS": plain_sffs(X, y, FEATURES),
        "information value": plain_iv(codes, y, FEATURES),
        "lasso": plain_lasso(X, y, FEATURES),
    }
    for criterion in CRITERIA:
        for preselect in (True, False):
            name = f"MUSE ({criterion}){'' if preselect else ' without preselection'}"
            chosen[name] = plain_muse(codes, y.astype(np.uint8), groups, FEATURES, criterion, preselect)
    return chosen
