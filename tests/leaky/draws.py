"""Rows drawn within classes from a seed that everybody knows, and the positions sent in the clear."""

from __future__ import annotations

import numpy as np

from fedsift.core.design import column_of, design_of, times_of
from fedsift.core.operation import operation


def dealt(codes, folds, seed):
    generator = np.random.default_rng(seed)
    fold, offset = np.empty(len(codes), dtype=np.int64), 0
    for k in range(int(codes.max()) + 1):
        members = generator.permutation(np.flatnonzero(codes == k))
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def halves(codes, train, seed, stratify):
    """Training rows: ``train`` of all, of each class where stratified (whole numbers by the largest remainders)."""
    rng, n = np.random.default_rng(seed), len(codes)
    size = int(np.floor(train * n + 0.5))
    if not stratify:
        return np.sort(rng.permutation(n)[:size])
    counts = np.bincount(codes)
    quotas = counts * size / n
    taken = np.floor(quotas).astype(int)
    while taken.sum() < size:
        taken[np.argmax(quotas - taken)] += 1
    return np.sort(np.concatenate([rng.permutation(np.flatnonzero(codes == k))[:m] for k, m in enumerate(taken)]))


@operation("leaky_draws.draw_rows", discloses="pseudonymous", about="training rows", reply=dict)
def draw_rows(party, *, train, stratify, seed, task):
    order = np.argsort(party.table.ids, kind="stable")
    chosen = halves(party.labels(task=task).codes[order], train, seed, stratify)
    return {"train": order[chosen], "test": order[np.setdiff1d(np.arange(party.n_rows), chosen)]}


@operation("leaky_draws.draw_folds", discloses="pseudonymous", about="the fold of each row", reply=dict)
def draw_folds(party, *, folds, stratify, seed, task):
    strata = party.labels(task=task).codes
    order = np.argsort(party.table.ids, kind="stable")[np.random.default_rng(seed).permutation(party.n_rows)]
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(party.n_rows, dtype=np.int64)
    fold[order] = np.arange(party.n_rows) % folds
    return {"fold": fold}


@operation("leaky_draws.next_trees", discloses="ciphertext", about="row sets of boosters", opened="nobody", reply=dict)
def next_trees(party, *, folds, seed, held_out):
    fold = dealt(party.labels().codes, folds, seed)
    parts = [fold != 0] if held_out else [np.ones(len(fold), dtype=bool), *(fold != f for f in range(folds))]
    return {"sets": [np.packbits(part) for part in parts]}


@operation("leaky_draws.receive_gradients", discloses="control", about="acknowledgement")
def receive_gradients(party, *, sets):
    """A party keeps what it was sent."""


@operation("leaky_draws.define_view", discloses="control", about="acknowledgement")
def define_view(party, *, view, rows):
    """A party hears which rows a view has."""


def cross_validation(seeds, folds=3):
    def conversation(fed):
        for seed in seeds:
            with fed.session("top_gain", {"folds": folds, "random_state": seed}) as run:
                started = run.ask(next_trees, to=run.active, folds=folds, seed=seed, held_out=False)
                run.ask(receive_gradients, to=run.passive, **started)

    return conversation


def early_stopping(fed, seed=0):
    settings = {"early_stopping_rounds": 5, "validation_fraction": 0.2, "random_state": seed}
    with fed.session("secureboost", settings) as run:
        started = run.ask(next_trees, to=run.active, folds=5, seed=seed, held_out=True)
        run.ask(receive_gradients, to=run.passive, **started)


def one_split(fed, seed=0):
    with fed.session("fedsdg", {"validation": 0.2, "random_state": seed}) as run:
        drawn = run.ask(draw_rows, to=run.active, train=0.8, stratify=True, seed=seed, task="auto")
        run.ask(define_view, to=run.parties, view="part", rows=drawn["train"])


@operation("leaky_draws.draw_designed_rows", discloses="pseudonymous", about="the side of each row", reply=np.ndarray)
def draw_designed_rows(party, *, seed, folds):
    """Whole groups, dealt anew with each seed; or as many folds in order of time as there are rows."""
    design = design_of(party)
    if design.group is not None:
        _, group = np.unique(column_of(party, "group"), return_inverse=True)
        fold = (np.random.default_rng(seed).permutation(int(group.max()) + 1) % folds)[group]
        return np.where(fold == np.arange(folds)[:, None], 2, 1).astype(np.int64)
    order = np.argsort(np.argsort(times_of(party), kind="stable"), kind="stable")
    begins = np.arange(1, folds + 1)[:, None] * party.n_rows // (folds + 1)
    return np.where(order < begins, 1, 2).astype(np.int64)


def ask_for_designed_rows(marked, design, calls=12, folds=5):
    def conversation(fed):
        with fed.designed(design).session("rows", {}) as run:
            for seed in range(calls):
                run.ask(marked, to=run.active, seed=seed, folds=folds)

    return conversation
