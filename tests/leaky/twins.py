"""For every attack the recording on which it must succeed: operations with the behaviour that it was written for.

A twin is made once and kept: several attacks read the same one. ``TWINS`` names, for each attack, the recording and
whose view of it the attack gets; a test demands an entry for every attack of the registry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from repeated_draws import streams
from sklearn.datasets import load_breast_cancer

from fedsift.audit import Recording, record, record_sites, record_tables
from fedsift.audit.attacks.folds import ask_for_draws, ask_for_many_folds
from fedsift.core.design import Design
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.engineer.fed_iife.selector import FedIIFE
from fedsift.engineer.flafe.importance import BINS
from fedsift.models.boost.model import SecureBoostClassifier
from fedsift.models.vertical_additive import VerticalAdditive
from fedsift.select.filters.sffs import SFFS
from fedsift.select.knockoffs import Knockoffs
from leaky import (
    boosting,
    coordinator,
    draws,
    gini,
    jobs,
    masks,
    measures,
    networks,
    parties,
    samples,
    scores,
    sizes,
    sums,
)

BOTH = ["bank", "shop"]


def wdbc(rows=569, seed=3):
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))[:rows]
    return X[order], y[order]


def wide(rows=60, columns=160, seed=0, strength=0.3):
    """Short and wide, as expression data are: a fifth of the columns tells about the label, in every draw the same."""
    rng = np.random.default_rng(seed)
    y = (np.arange(rows) < round(rows * 0.4)).astype(int)
    rng.shuffle(y)
    X = rng.normal(size=(rows, columns))
    X[:, ::5] += strength * y[:, None] * np.random.default_rng(42).normal(size=X[:, ::5].shape[1])
    return X, y


def graded(rows=1000, columns=20, seed=0):
    """The class moves every column by another amount."""
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < 0.4).astype(int)
    return rng.normal(size=(rows, columns)) + y[:, None] * np.linspace(-2, 2, columns), y


def unrelated(rows=569, columns=6):
    """Columns that say nothing about the label."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, columns)), (rng.random(rows) < 0.4).astype(int)


def by_lot(seed=0):
    """Nobody's columns say anything about the label."""
    return noisy(seed=seed)[0], np.random.default_rng(seed).permutation(np.arange(300) % 2)


def separable(rows=120, columns=90):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    return X, (X[:, columns // 2 :] @ rng.normal(size=columns // 2) > 0).astype(int)


def noisy(rows=300, columns=12, seed=0):
    """The label hangs on all columns; the second party's say little alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    return X, (X[:, :3].sum(axis=1) + 0.3 * X[:, columns // 2] + rng.normal(size=rows) > 0.8).astype(int)


def poisson(rows=2000, columns=18, seed=0):
    """Every column has heavy values of its own."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(np.geomspace(0.3, 8.0, columns), size=(rows, columns))
    return X, (X[:, -1] + rng.normal(0, 2, rows) > 8).astype(int)


@functools.cache
def made(name: str) -> Recording:
    with streams.aside(f"the recording {name}"):
        return MAKERS[name]()


def split(data, conversation, **more):
    return lambda: record(*data(), conversation, parties=BOTH, **more)


def with_ids():
    X, y = noisy(80, 4)
    bank = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(id=np.arange(80), y=y)
    shop = pd.DataFrame(X[:, 2:], columns=["c", "d"]).assign(id=np.arange(80))
    return record_tables({"bank": bank, "shop": shop}, coordinator.hashed_ids, id="id", label=("bank", "y"))


def padded():
    """Each party has 20 rows of guesses, which the other one knows: no values, only ids."""
    X, y = noisy(100, 4)
    ids, nothing = np.arange(100), np.where(np.arange(100) < 20, np.nan, 1.0)[:, None]
    bank = pd.DataFrame(X[:, :2] * nothing[::-1], columns=["a", "b"]).assign(id=ids, y=y)
    shop = pd.DataFrame(X[:, 2:] * nothing, columns=["c", "d"]).assign(id=ids)
    return record_tables({"bank": bank, "shop": shop}, lambda fed: None, id="id", label=("bank", "y"))


def three_lists():
    """Bank and shop share 60 rows, of which the post knows 20; shop and post share 30."""
    X, y = noisy(100, 3)
    rows = {"bank": np.r_[0:60], "shop": np.r_[0:70], "post": np.r_[40:60, 60:70]}
    frames = {name: pd.DataFrame({name[0]: X[mine, place]}).assign(id=mine)
              for place, (name, mine) in enumerate(rows.items())}  # fmt: skip
    frames["bank"]["y"] = y[rows["bank"]]
    return record_tables(frames, lambda fed: None, id="id", label=("bank", "y"))


def two_valued(rows=500, columns=8, seed=0):
    """Columns of two values that go together."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 1))
    X = (0.6 * common + rng.normal(size=(rows, columns)) > np.linspace(-1, 1.5, columns)).astype(float)
    return X, (common[:, 0] + rng.normal(size=rows) > 0.3).astype(int)


def same_rows():
    """Two members of a grid with the same rows; one has the labels."""
    X, y = noisy()
    frames = {"bank": pd.DataFrame(X[:, :6]).assign(label=y), "shop": pd.DataFrame(X[:, 6:])}
    sites = {}
    for name, frame in frames.items():
        frame.columns = [str(column) for column in frame.columns]
        label = "label" if name == "bank" else None
        sites[name] = Site(name, Table.read(frame, id=None, label=label, name=name))
    grid = {"bank": (0, 0), "shop": (0, 1)}
    return record_sites(sites, None, parties.duals_in_every_round(), partition="hybrid", grid=grid)


def gini_table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    return (rng.random((200, 10)) < 0.3 + 0.3 * y[:, None] * rng.random(10)).astype(float), y


def network_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 12))
    return X, (X[:, 0] + X[:, 1] + X[:, 6] + X[:, 7] + rng.normal(0, 1.5, 500) > 2.2).astype(int)


def boosted_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 60))
    return X, (X[:, :8].sum(axis=1) + X[:, 30:32].sum(axis=1) + rng.normal(0, 2.0, 200) > 0).astype(int)


def many_predictions(fed):
    """Nobody counts what predictions of the same rows by many models tell."""
    for seed in range(20):
        model = SecureBoostClassifier(n_estimators=8, max_depth=4, random_state=seed, protection="coordinator")
        model.fit(fed.view(rows=np.random.default_rng(seed).permutation(150)[:100]))
        model.predict(fed.view(rows=np.arange(150, 300)))


MAKERS: dict[str, Callable[[], Recording]] = {
    "folds": split(unrelated, draws.cross_validation([0])),
    "draws": split(unrelated, ask_for_draws(draws.draw_rows, calls=24)),
    "groups dealt anew": lambda: record(
        *unrelated(),
        draws.ask_for_designed_rows(draws.draw_designed_rows, Design(group="bank.customer")),
        parties=BOTH,
        aside={"customer": np.arange(569) // 3},
    ),
    "order of time": lambda: record(
        *unrelated(),
        draws.ask_for_designed_rows(draws.draw_designed_rows, Design(time="bank.day"), calls=1, folds=60),
        parties=BOTH,
        aside={"day": np.random.default_rng(0).permutation(569)},
    ),
    "many folds": split(unrelated, ask_for_many_folds(draws.draw_folds)),
    "one split": split(unrelated, draws.one_split),
    "early stopping": split(unrelated, draws.early_stopping),
    "scores": split(lambda: wide(columns=400), scores.told("sffs")),
    "relevance": split(wide, scores.told("muse", "preselect")),
    "impurity": split(wide, scores.told("gini", "take_importance")),
    "gradient": split(separable, sums.one_step(sums.inner_products), every_step=True),
    "duals": split(separable, sums.one_step(sums.weigh_rows), every_step=True),
    "coefficients": split(separable, sums.one_step(sums.partial_scores), every_step=True),
    "integers": split(gini_table, gini.impurities),
    "sizes": split(poisson, sizes.sizes_told, fresh=poisson(1000, seed=1)),
    "two jobs": split(lambda: (wdbc(120)[0][:, ::2], wdbc(120)[1]), jobs.with_and_without(range(0, 48, 4))),
    "boosting": split(boosted_table, boosting.boosting()),
    "network": split(network_table, networks.split_training()),
    "wide network": split(network_table, networks.split_training(epochs=2, embedding=64, batch_size=32)),
    "masks": split(noisy, masks.twice()),
    "weights": split(lambda: unrelated(120, 180), parties.weights_at_optimum()),
    "every step": split(noisy, parties.scores_in_every_step()),
    "every round": same_rows,
    "gates": split(lambda: wide(columns=400), parties.gates_by_score()),
    "bits": split(noisy, parties.bits_of_all_rows()),
    "told products": split(noisy, parties.products_told),
    "importances": split(lambda: wide(columns=60), parties.importances_told(BINS)),
    "class sums": split(
        lambda: wide(60, 600),
        coordinator.sums_in_the_clear(coordinator.open_class_sums),
        fresh=wide(400, 600, seed=1),
    ),
    "graded sums": split(
        graded, coordinator.sums_in_the_clear(coordinator.open_class_sums), fresh=graded(1000, seed=1)
    ),
    "counts": split(
        poisson, coordinator.sums_in_the_clear(coordinator.open_counts, bins=10), fresh=poisson(1000, seed=1)
    ),
    "few counts": split(
        lambda: graded(60, 800),
        coordinator.sums_in_the_clear(coordinator.open_counts, bins=5),
        fresh=graded(400, 800, seed=1),
    ),
    "bits of columns": split(poisson, SFFS(n_features=4, screen="coarse"), fresh=poisson(1000, seed=1)),
    "bits of few rows": split(
        lambda: wide(60, 600), SFFS(n_features=4, screen="coarse", screen_share=0.01), fresh=wide(400, 600, seed=1)
    ),
    "exact sums": split(lambda: noisy(160, 40), coordinator.exact_sums_of_cuts),
    "cuts": split(poisson, coordinator.cuts_in_the_clear(), fresh=poisson(1000, seed=1)),
    "joint tables": split(noisy, coordinator.lists_in_one_order, fresh=noisy(seed=1)),
    "ids": with_ids,
    "padded lists": padded,
    "three lists": three_lists,
    "shadows": split(lambda: wide(columns=24), measures.shadows_told()),
    "shuffles": split(lambda: noisy(120, 16), measures.importances_told()),
    "products": split(two_valued, measures.products_in_the_clear, fresh=two_valued(500, seed=1)),
    "many products": split(lambda: wide(60, 120), measures.products_in_the_clear, fresh=wide(400, 120, seed=1)),
    "released scores": split(lambda: graded(60, 600), scores.told("sffs"), fresh=graded(400, 600, seed=1)),
    "evidence": split(lambda: unrelated(200, 20), samples.evidence_of_small_bins()),
    "many sets": split(lambda: unrelated(150, 4), samples.counts_of_many_sets()),
    "index less a row": split(lambda: noisy(200), samples.with_and_without(range(100, 130))),
    "sides": split(noisy, samples.parted_at("shop.f6", [-0.7, 0.0, 0.7])),
    "weighted products": split(lambda: wide(60, 120), samples.products_of_many_columns, fresh=wide(400, 120, seed=1)),
    "shared bits": split(lambda: noisy(1000), measures.shares_under_one_mask),
    "predictions": split(noisy, many_predictions),
    "weighted counts": split(
        lambda: noisy(400),
        samples.counts_of_any_weights(Design(weight="bank.w")),
        aside={"w": np.where(np.arange(400) == 7, 2.9, 1.0)},
    ),
    "descent": split(lambda: wide(60, 160), VerticalAdditive(bins=None, max_iter=1), fresh=wide(400, 160, seed=1)),
    "pooled products": split(
        lambda: wide(60, 60), Knockoffs(squares=False), partition="horizontal", fresh=wide(400, 60, seed=1)
    ),
    "pooled tables": split(by_lot, FedIIFE(max_features=1), partition="horizontal", fresh=by_lot(seed=1)),
    "groups that go on": split(lambda: wide(40, 480, strength=0.0), samples.half_of_the_groups_go_on()),
    "horizontal": split(
        lambda: wide(60, 300), coordinator.horizontal_sums, partition="horizontal", fresh=wide(200, 300, seed=9)
    ),
}


@dataclass(frozen=True)
class Twin:
    """Which recording, and whose view."""

    recording: str
    view: str


TWINS = {
    "fold_masks_at_party": Twin("folds", "shop"),
    "fold_masks_at_coordinator": Twin("folds", "coordinator"),
    "chosen_seeds": Twin("draws", "coordinator"),
    "persons_from_draws": Twin("groups dealt anew", "coordinator"),
    "times_from_draws": Twin("order of time", "coordinator"),
    "as_many_folds_as_rows": Twin("many folds", "coordinator"),
    "one_split_at_party": Twin("one split", "shop"),
    "early_stopping_rows": Twin("early stopping", "shop"),
    "scores_of_result": Twin("scores", "shop"),
    "rounded_scores_of_result": Twin("scores", "shop"),
    "ranks_of_result": Twin("scores", "shop"),
    "relevance_of_columns": Twin("relevance", "shop"),
    "impurity_of_columns": Twin("impurity", "shop"),
    "first_gradient": Twin("gradient", "shop"),
    "first_duals": Twin("duals", "shop"),
    "first_coefficients": Twin("coefficients", "shop"),
    "integers_give_tables": Twin("integers", "bank"),
    "sizes_name_columns": Twin("sizes", "coordinator"),
    "label_of_row_left_out": Twin("two jobs", "shop"),
    "values_of_row_left_out": Twin("two jobs", "bank"),
    "nodes_give_labels": Twin("boosting", "shop"),
    "sums_give_bins": Twin("boosting", "bank"),
    "gradient_spectral": Twin("network", "shop"),
    "gradient_norm": Twin("network", "shop"),
    "gradient_cosine": Twin("network", "shop"),
    "model_completion": Twin("network", "shop"),
    "batch_gradients": Twin("wide network", "shop"),
    "first_weights_at_holder": Twin("network", "bank"),
    "first_weights_at_coordinator": Twin("network", "coordinator"),
    "embedding_decoder": Twin("network", "bank"),
    "masks_hide_labels": Twin("masks", "shop"),
    "masks_hide_labels_from_coordinator": Twin("masks", "coordinator"),
    "masks_hide_columns": Twin("masks", "bank"),
    "masks_hide_columns_from_coordinator": Twin("masks", "coordinator"),
    "final_weights": Twin("weights", "shop"),
    "scores_give_columns": Twin("every step", "bank"),
    "dual_scores_give_columns": Twin("every round", "bank"),
    "gates_give_labels": Twin("gates", "shop"),
    "bits_give_cells": Twin("bits", "bank"),
    "pair_tables_tell_members": Twin("pooled tables", "coordinator"),
    "pair_tables_tell_labels": Twin("pooled tables", "coordinator"),
    "predictions_give_cells": Twin("predictions", "bank"),
    "products_at_holder": Twin("told products", "bank"),
    "products_at_party": Twin("told products", "shop"),
    "importance_of_operands": Twin("importances", "shop"),
    "class_sums_name_columns": Twin("graded sums", "coordinator"),
    "class_sums_tell_members": Twin("class sums", "coordinator"),
    "label_counts_name_columns": Twin("counts", "coordinator"),
    "label_counts_tell_members": Twin("few counts", "coordinator"),
    "bits_name_columns": Twin("bits of columns", "coordinator"),
    "bits_tell_members": Twin("bits of few rows", "coordinator"),
    "cut_sizes_name_columns": Twin("cuts", "coordinator"),
    "cuts_followed_over_trees": Twin("cuts", "coordinator"),
    "cut_sums_give_records": Twin("exact sums", "coordinator"),
    "joint_tables_give_records": Twin("joint tables", "coordinator"),
    "guessed_ids": Twin("ids", "coordinator"),
    "padded_list_of_party": Twin("padded lists", "shop"),
    "padded_list_of_holder": Twin("padded lists", "bank"),
    "pairwise_sizes": Twin("three lists", "coordinator"),
    "scores_of_shadows": Twin("shadows", "shop"),
    "importances_give_labels": Twin("shuffles", "shop"),
    "moments_give_tables": Twin("products", "coordinator"),
    "moments_tell_members": Twin("many products", "coordinator"),
    "released_scores_tell_members": Twin("released scores", "coordinator"),
    "shared_bits_give_cells": Twin("shared bits", "bank"),
    "weighted_counts_place_a_row": Twin("weighted counts", "coordinator"),
    "gradients_tell_members": Twin("descent", "coordinator"),
    "gradients_tell_labels": Twin("descent", "coordinator"),
    "products_tell_members": Twin("pooled products", "coordinator"),
    "groups_give_labels": Twin("groups that go on", "shop"),
    "weights_give_labels": Twin("evidence", "shop"),
    "fold_counts_give_labels": Twin("many sets", "coordinator"),
    "index_of_row_left_out": Twin("index less a row", "coordinator"),
    "sides_give_column": Twin("sides", "bank"),
    "logistic_sums_tell_members": Twin("weighted products", "coordinator"),
    "column_means_tell_members": Twin("horizontal", "coordinator"),
    "means_less_own_rows": Twin("horizontal", "shop"),
}

#: Attacks whose twin is arithmetic, or the shipped step itself on a table made for it, and the test that has it.
ELSEWHERE = {
    "combinations_lose_more": "test_attacks_privacy_loss.test_the_old_release_loses_more_than_it_claims",
    "compared_scores_give_columns": "test_attacks_held_out.test_scores_by_which_models_are_compared_give_columns",
}
