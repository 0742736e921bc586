"""Draws of rows tell nothing about labels or ids, and runs on aligned tables repeat."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from method_cases import NEEDS_TORCH, selector
from sklearn.metrics import roc_auc_score as auc_of

import fedsift as fs
from fedsift.core.operation import operations
from fedsift.core.party import Site
from fedsift.core.row_draws import draw_rows
from fedsift.core.splits import train_test_rows
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess


def federation(rows: int = 208, seed: int = 0, share: float = 0.5) -> tuple[fs.Federation, np.ndarray]:
    """Labels in the order of the ids; the passive party's column tells nothing."""
    rng = np.random.default_rng(seed)
    y = (rng.permutation(rows) < share * rows).astype(int)
    ids = [f"p{i:05}" for i in range(rows)]
    bank = pd.DataFrame({"id": ids, "y": y, "a": rng.normal(size=rows)})
    shop = pd.DataFrame({"id": ids, "b": rng.normal(size=rows)})
    sites = {
        "bank": Site("bank", Table.read(bank, id="id", label="y", name="bank")),
        "shop": Site("shop", Table.read(shop, id="id", name="shop")),
    }
    return fs.Federation(InProcess(sites), list(sites), active="bank"), y


def masks_of(fed: fs.Federation, seeds, train: float = 0.5, stratify: bool = True) -> np.ndarray:
    """What a coordinator gets that asks for draws under seeds of its choice: draws x rows, 1 for training."""
    masks = []
    for seed in seeds:
        reply = fed.ask(draw_rows, to="bank", train=train, stratify=stratify, seed=int(seed), task="auto")
        mask = np.zeros(fed.n_rows, dtype=int)
        mask[reply["train"]] = 1
        masks.append(mask)
    return np.array(masks)


def walks(rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """For each row the chance of class 1 over all ways to merge the two known sequences into ``rows``; None: no way."""
    ones = len(second)
    forward, places = np.zeros((len(rows) + 1, ones + 1)), np.arange(ones + 1)
    forward[0, 0] = 1.0

    def steps(i: int) -> tuple[np.ndarray, np.ndarray]:
        zero = i - places
        inside = (zero >= 0) & (zero < len(first))
        return inside & (first[np.clip(zero, 0, len(first) - 1)] == rows[i]), np.append(second, -1) == rows[i]

    for i in range(len(rows)):
        stay, up = steps(i)
        forward[i + 1] = forward[i] * stay
        forward[i + 1, 1:] += (forward[i] * up)[:-1]
        if not forward[i + 1].any():
            return None
        forward[i + 1] /= forward[i + 1].sum()
    chance, back = np.empty(len(rows)), np.zeros(ones + 1)
    back[-1] = 1.0
    for i in range(len(rows) - 1, -1, -1):
        stay, up = steps(i)
        by_stay, by_up = stay * back, up * np.append(back[1:], 0.0)
        weights = (forward[i] * by_stay).sum(), (forward[i] * by_up).sum()
        chance[i] = weights[1] / sum(weights)
        back = (by_stay + by_up) / (by_stay + by_up).max()
    return chance


def known_seed_attack(masks: np.ndarray, seeds, sizes: tuple[int, int], train: float) -> np.ndarray | None:
    """security.md, lines 1 to 3: with the seed, a stratified draw is two known sequences, merged row by row."""
    codes = np.repeat([0, 1], sizes)
    drawn = np.zeros((len(seeds), len(codes)), dtype=int)
    for mask, seed in zip(drawn, seeds):
        mask[train_test_rows(len(codes), train, stratify_on=codes, random_state=int(seed))[0]] = 1
    _, joint = np.unique(np.hstack([masks, drawn]).T, axis=0, return_inverse=True)
    joint = joint.ravel()
    return walks(joint[: len(codes)], joint[len(codes) :][: sizes[0]], joint[len(codes) :][sizes[0] :])


def test_the_attack_reads_labels_from_a_draw_by_the_announced_seed():
    """The attack can succeed: on the old rule it does."""
    _, y = federation()
    masks = np.zeros((12, len(y)), dtype=int)
    for seed, mask in enumerate(masks):
        mask[train_test_rows(len(y), 0.5, stratify_on=y, random_state=seed)[0]] = 1
    chance = known_seed_attack(masks, range(12), (104, 104), 0.5)
    assert chance is not None
    assert ((chance > 0.5) == y).mean() > 0.97


@pytest.mark.parametrize("train", [0.5, 0.8])
def test_seeds_of_the_coordinators_choice_tell_no_label(train):
    for calls in (1, 12):
        fed, y = federation()
        masks = masks_of(fed, range(calls), train)
        chance = known_seed_attack(masks, range(calls), (104, 104), train)
        assert chance is None or 0.4 < auc_of(y, chance) < 0.6


def test_many_stratified_draws_are_one_assignment():
    """However many draws: ten parts alike in their classes, some of them cut by lot, and no direction but those."""
    fed, y = federation()
    masks = masks_of(fed, range(600), 0.5)
    assert np.unique(masks, axis=1).shape[1] <= 40
    found = least_squares_attack(masks, fed.n_rows)
    assert max(auc_of(y, found), 1 - auc_of(y, found)) < 0.62


def least_squares_attack(masks: np.ndarray, rows: int) -> np.ndarray:
    """The direction in which the draws vary least: with many independent stratified draws it is the label."""
    centred = masks - masks.mean(axis=1, keepdims=True)
    _values, vectors = np.linalg.eigh(centred.T @ centred)
    return vectors[:, 1 if abs(vectors[:, 0].sum()) > 0.9 * rows**0.5 else 0]


def test_the_least_squares_attack_reads_labels_from_independent_stratified_draws():
    """The attack can succeed: independent stratified draws, however secret their seeds, give labels away."""
    _, y = federation()
    masks = np.zeros((600, len(y)), dtype=int)
    for seed, mask in enumerate(masks):
        mask[train_test_rows(len(y), 0.5, stratify_on=y, random_state=seed + 10**6)[0]] = 1
    found = least_squares_attack(masks, len(y))
    assert max(auc_of(y, found), 1 - auc_of(y, found)) > 0.95


def test_positions_are_sorted_and_do_not_follow_the_order_of_ids():
    fed, _ = federation()
    turned, _ = federation()
    site = turned.simulated["bank"]
    for stratify in (True, False):
        reply = fed.ask(draw_rows, to="bank", train=0.7, stratify=stratify, seed=3, task="auto")
        assert all((np.diff(part) > 0).all() for part in reply.values())
        guess = train_test_rows(208, 0.7, random_state=3)[0]
        assert abs(np.isin(reply["train"], guess).mean() - 0.7) < 0.12
    assert site.secret == fed.simulated["bank"].secret


def test_splits_keep_class_shares_and_sizes_and_repeat():
    fed, y = federation(rows=211, share=0.2)
    for train in (0.5, 0.66, 0.7, 0.8, 100):
        size = round(train * 211) if train < 1 else train
        for seed in range(5):
            mask = masks_of(fed, [seed], train)[0].astype(bool)
            assert mask.sum() == size
            assert abs(y[mask].mean() - y[~mask].mean()) < 0.12
    assert np.array_equal(masks_of(fed, [4]), masks_of(federation(rows=211, share=0.2)[0], [4]))
    assert not np.array_equal(masks_of(fed, [4]), masks_of(fed, [5]))


def test_no_operation_deals_folds_for_whoever_asks():
    """Those of an evaluation are dealt without a look at the labels (tests/test_evaluate_joint.py turns them round)."""
    found = [each.id for each in operations() if "fold" in each.id and each.family in ("evaluate", "core")]
    assert found == ["evaluate.deal_folds"]


# --- the same seed and parties, the same result ---------------------------------------------------------------------


def aligned_tables() -> dict[str, pd.DataFrame]:
    """Two tables with partial overlap, rows in different orders."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(150, 8))
    score = x[:, 0] + x[:, 5] * x[:, 1] + 0.5 * rng.normal(size=150)
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(8)])
    frame.insert(0, "id", [f"k{i}" for i in range(150)])
    bank = frame[["id", "c0", "c1", "c2", "c3"]].assign(y=(score > 0).astype(int))
    shop = frame[["id", "c4", "c5", "c6", "c7"]]
    return {"bank": bank.iloc[:130].sample(frac=1.0, random_state=0), "shop": shop.iloc[20:]}


@pytest.mark.parametrize("name", ["pso_evffs", "top_gain", "less_vfl", "fedsdg", "vertical_flafe"])
def test_runs_on_aligned_tables_repeat(name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    results = []
    for _ in range(2):
        fed = fs.Federation.from_tables(aligned_tables(), id="id", label=("bank", "y"))
        fitted = selector(name).fit(fed)
        results.append((fitted.selected_, fitted.selection_.engineered, fitted.scores_))
    assert results[0][:2] == results[1][:2]
    pd.testing.assert_frame_equal(results[0][2], results[1][2])
