"""No request carries what the accepted job decides: bins, layouts, cell sizes, noise, lists of rows, forms, peers.

The whole registry is swept, by the names that such arguments have here: one that is found must be the job's own
(``settings``: a site refuses another value), be a party of the job (``PartyName``), or stand below with the reason why
it weakens nothing. A new operation with such an argument fails until somebody has thought about it.
"""

from __future__ import annotations

from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.arguments import _speaks, schema_of
from fedsift.core.binning import ColumnBins
from fedsift.core.message import is_message
from fedsift.core.operation import Operation, is_own, operations
from fedsift.deploy import delivery
from fedsift.errors import OperationRefused
from fedsift.evaluate import announced
from fedsift.methods import METHODS
from fedsift.models.boost.bins import SEARCHED_BINS, merged
from fedsift.models.boost.hidden.passive import describe_cuts
from fedsift.mpc import pairs
from fedsift.mpc.dealer import Dealer
from hostile.coordinator import Hostile, refused

MEANT = {
    "bins": {"bins", "n_bins", "binning", "edges"},
    "layouts": {"layout", "layouts", "shapes"},
    "cells": {"min_cell", "least", "min_rows"},
    "noise": {"epsilon", "delta", "clip", "scale", "scales", "noise", "sigma"},
    "rows": {"rows", "fold", "folds", "positions", "sets", "train", "validation", "share", "stratify", "sampled"},
    "forms": {"secure", "protection", "noisy", "sums"},
}
PEERS = {
    "peer", "peers", "others", "senders", "sender", "among", "everyone", "holder", "helper", "label_holder", "reader",
    "active", "first", "order", "owners", "widths", "leaders",
}  # fmt: skip
VOUCHED = "what the label holder made: it vouches for key, rows and layout in a sealed note, or they are refused"
SHARE = "a share of numbers, not of rows"
ONE_BINNING = "of the job's own, or of its range and merged from one binning: fitted_bins refuses others"
ARGUED = {
    "f_test.masked_group_sums": VOUCHED, "f_test.open_group_sums": "sums and shapes as of f_test.open_class_sums",
    "f_test.masked_bit_sums": VOUCHED, "f_test.open_bit_sums": "sums and shapes as of f_test.open_class_sums",
    "f_test.masked_weighted_sums": VOUCHED, "f_test.open_weighted_sums": "sums and shapes as of f_test.open_class_sums",
    "core.draw_designed_rows": "whole parts of one assignment for all draws: ten by groups, twenty by time",
    "tables.masked_counts": VOUCHED, "tables.add_counts": VOUCHED + ", a block of rows after the other",
    "f_test.add_class_sums": VOUCHED + ", a block of rows after the other; bits: the same for all blocks",
    "f_test.masked_class_sums": VOUCHED, "muse.masked_tables": VOUCHED,
    "flafe.keep_target": VOUCHED, "boost.receive_gradients": VOUCHED + "; bins: " + ONE_BINNING,
    "tables.open_counts": "sums and shapes for which the party that summed vouches in a sealed note",
    "f_test.open_class_sums": "likewise", "muse.open_tables": "likewise", "flafe.open_targets": "likewise",
    "hyfdca.open_part": "its place in a grid that the coordinator knows: how many rows all have, who holds the label",
    "network.start_top": "protection: the step compares it with the job's label_protection",
    "boost.describe_cuts": ONE_BINNING, "boost.hide_cuts": "one of the bins that describe_cuts has cut",
    "boost.keep_cuts": "one of the bins that meet_cuts was told",
    "boost.meet_cuts": "sizes of sealed boxes that come: a wrong one fits no box",
    "boost.begin_boosting": "sums: how finely gradients are rounded; steps that use them are of the job's form",
    "boost.begin_private_boosting": "likewise",
    "boost.begin_tree": "sampled: whether the label holder draws rows, by itself",
    "boost.divide_nodes": "owners: who cuts each node, by place among the parties; who is asked is the job's parties",
    "boost.route_rows": "which rows are asked about in the open form, which shows left and right of every row",
    "descent.gradient_shares": SHARE, "descent.weigh_share": SHARE, "hyfdca.weigh_rows": SHARE,
    "scores.take_share": SHARE,
    "align.keep_shared": "which of its ids all have, found by the coordinator; in which order is the parties' secret",
    "study.keep_rows": "validation: the job's own, or none where nothing is chosen by it",
    "core.define_view": "rows of a view: judged by min_rows, atoms and the journal, in order and each once",
    "core.draw_rows": "once a run, from the site's own secret; the views are judged as all are",
    "value.shuffle_rows": "the folds that the label holder dealt: as many and as large as the job says, or refused",
    "flafe.compare_matrix": "rows: how many the ring has room for; scale: of the coordinator's own comparison",
    "flafe.local_matrix": "rows: how many the ring has room for",
    "flafe.load_operands": "rows that are released now; with noise each once",
    "flafe.keep_rows_of": "where the holder files what it has decrypted",
    "flafe.open_combinations": "noisy: whether the holder rounds what it has decrypted",
    "iife.additive_moments": "edges of a pool's sums, bound into the masks: all parties are told the same, in a sum",
    "iife.pair_tables": "likewise", "iife.noisy_counts": "likewise", "iife.use_columns": "positions of columns",
}  # fmt: skip


NAME, CHECKED = "the name of a model, not of a parameter", "the step compares it with the job's"
#: Arguments that are called like a parameter of a job that lists the step, and why no declaration ties them.
NAMED = {
    "boost.begin_boosting models": "plans: each is compared with the job, field by field (test_plans.py)",
    "boost.begin_private_boosting models": "likewise",
    "boost.expect_models models": "numbers of the models that grow together, each with the plan that the job has",
    "hyfdca.open_columns loss": CHECKED + ", where that is not 'auto'",
    "hyfdca.open_part loss": CHECKED + ", where that is not 'auto'",
    "less_vfl.autoencode epochs": CHECKED,
    "less_vfl.select_columns epochs": CHECKED,
    "less_vfl.select_components epochs": CHECKED,
    "less_vfl.teach_first_weights epochs": CHECKED,
    "less_vfl.select_columns quantile": "of a party's own shuffled copies, in the open form; None is the usual one",
    "model.forget model": NAME,
    "model.keep_by_id model": NAME,
    "model.read_part model": NAME,
    "model.write_part model": NAME,
    "network.start_bottom batch_size": "not smaller than the job's (check_batch_size)",
    "network.start_bottom gates": "what reads a gate is no step of a method that has none",
    "network.start_bottom shadows": CHECKED,
    "network.start_bottom width": CHECKED,
    "network.start_top batch_size": "not smaller than the job's (check_batch_size)",
    "network.start_top protection": "of the labels: the step compares it with the job's label_protection",
    "sine_gates.set_gates gates": "bits, not a parameter",
    "sine_network.begin_part width": CHECKED,
    "sine_network.hide_rows batch_size": CHECKED,
    "sine_network.hide_rows epochs": "over which steps get smaller; how many there are, the job says (most_epochs)",
    "study.keep_rows validation": CHECKED,
}
PARAMETERS: dict[str, set[str]] = {}
for argument in NAMED:
    PARAMETERS.setdefault(argument.split()[0], set()).add(argument.split()[1])


def own_operations() -> list[Operation]:
    assert delivery.keep_result.id
    return sorted((marked for marked in operations() if is_own(marked.module)), key=lambda marked: marked.id)


def arguments_of(marked: Operation) -> dict[str, object]:
    """With the fields of those that are messages."""
    found = dict(schema_of(marked.function).hints)
    for hint in list(found.values()):
        if is_message(hint):
            found |= get_type_hints(hint, include_extras=True)
    return found


def untied(marked: Operation) -> set[str]:
    """Arguments that nothing ties to the job."""
    tied = {setting.partition("=")[0] for setting in marked.settings} | {marked.min_cell, marked.epsilon}
    return set(arguments_of(marked)) - tied


def loose(marked: Operation) -> set[str]:
    """Those with a forbidden name."""
    hints = arguments_of(marked)
    flags = {name for name, hint in hints.items() if hint is bool and name not in MEANT["forms"] | {"sampled"}}
    speaking = {name for name, hint in hints.items() if _speaks(hint)}
    peers = PEERS & set(hints) - speaking - flags
    return (set().union(*MEANT.values()) & untied(marked) - flags) | peers


def test_no_request_carries_what_the_job_decides():
    found = {marked.id.removesuffix(".open"): loose(marked) for marked in own_operations()}
    assert {id: names for id, names in found.items() if names and id not in ARGUED} == {}


def parameters_of(marked: Operation) -> set[str]:
    """Of all jobs whose method lists the step."""
    jobs = [announced.find_job(name) for name in announced.job_names()]
    return {
        name for job in jobs if job is not None and marked in job.operations for name in job().get_params(deep=False)
    }


def test_no_request_carries_a_parameter_of_its_job():
    """Whatever it is called: an argument with the name of a parameter is the job's, or stands above with the reason."""
    found = {marked.id.removesuffix(".open"): untied(marked) & parameters_of(marked) for marked in own_operations()}
    assert {id: names for id, names in found.items() if names - PARAMETERS.get(id, set())} == {}
    assert {id: names for id, names in PARAMETERS.items() if found[id] != names} == {}


def test_every_exception_is_still_one():
    found = {marked.id.removesuffix(".open") for marked in own_operations() if loose(marked)}
    assert set(ARGUED) == found


# --- what ties them -------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile():
    return Hostile()


def test_a_name_that_is_no_party_of_the_job_is_refused(hostile):
    job = hostile.of(fs.FederatedLasso(max_iter=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    told = {"helper": "ghost", "widths": {"bank": 3, "shop": 3}, "reads_scores": False}
    refused(hostile.send("bank", "descent.hide_columns", **asked, **told), "none of the parties of the accepted job")
    told = {"helper": "shop", "widths": {"bank": 3, "ghost": 3}, "reads_scores": False}
    refused(hostile.send("bank", "descent.hide_columns", **asked, **told), "none of the parties of the accepted job")


def test_a_label_holder_is_the_job_s(hostile):
    job = hostile.of(fs.VerticalLogisticRegression(max_iter=2))
    asked = {"session": hostile.begin(job), "job": job.hash}
    told = {"model": "m", "label_holder": "shop"}
    refused(hostile.send("shop", "logistic.part_scores", **asked, **told), "none of the label holders")


def test_bins_are_the_job_s(hostile):
    """More bins than the job says would show finer cuts; other ones in each model of a swarm, the rows between two."""
    for method, bins in ((METHODS["top_gain"](n_bins=8), 9), (METHODS["pso_evffs"](), 21)):
        with hostile.aligned().session(*method.announcement()) as run:
            pairs.meet_all(run, ["shop", "bank"])
            Dealer.begin(run, ["shop", "bank"])
            with pytest.raises(OperationRefused, match="other bins than the accepted job allows"):
                run.ask(describe_cuts, to="shop", bins=[bins], peer="bank")


def test_bins_of_a_search_merge_one_binning():
    """Whatever number of bins a swarm tries, its cuts are among those of the finest."""
    values = np.random.default_rng(0).normal(size=300)
    table = fs.Table.read(pd.DataFrame({"x": values, "few": np.arange(300) % 7}), id=None, name="t")
    for column in ("x", "few"):
        fine = ColumnBins.fit(table, column, SEARCHED_BINS[1])
        for bins in range(SEARCHED_BINS[0], SEARCHED_BINS[1] + 1):
            coarse = merged(fine, bins)
            assert set(coarse.edges) <= set(fine.edges)
            assert coarse.count == min(bins, fine.count)
    rows = np.bincount(merged(ColumnBins.fit(table, "x", 20), 5).codes(table))
    assert rows.min() >= 55
    assert rows.max() <= 65


def test_smaller_cells_than_the_job_s_are_refused(hostile):
    job = hostile.of(fs.Muse(n_features=2, min_cell=20))
    asked = {"session": hostile.begin(job), "job": job.hash}
    told = {"n_bins": job.parameters["n_bins"], "binning": "quantile", "min_cell": 10, "task": "auto", "label": False}
    refused(hostile.send("shop", "muse.prepare_columns", **asked, **told), "smaller groups of rows")
