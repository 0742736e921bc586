"""Requests that do not fit what a site holds: each is refused in words that say what is wrong, by a check of its own.

The fuzzer found them as errors of Python that no check foresaw (``fuzz.py``). One request of an honest run is changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsift.core.message import decode, encode
from fedsift.core.state import undo
from fedsift.mpc.descent_columns import Columns
from hostile.cases import fit, sites_of
from hostile.coordinator import refused
from hostile.fuzz import ALL
from hostile.mutants import OneByOne

pytestmark = pytest.mark.filterwarnings("ignore")  # of runs that are cut short


class _Told(Exception):
    """The changed request was answered; the run is over."""


class Misfit(OneByOne):
    """Honest up to a step; there its first site gets the request with changes, or (``again``) once more."""

    name = "misfit"

    def __init__(self, sites, step: str, changes: dict[str, Any], again: bool):
        self.sites, self.step, self.changes, self.again = sites, step, changes, again
        self.reply: dict[str, Any] = {}

    def take(self, requests):
        for name, data in requests.items():
            request = decode(data)
            arguments = request["arguments"]
            if request["operation"] != self.step or not {key.split(".")[0] for key in self.changes} <= set(arguments):
                continue
            if self.again:
                assert "ok" in decode(self.sites[name].handle(data))
                request["round"] += 1
            for key, value in self.changes.items():  # "told.shapes" is a field of the message "told"
                message, _, field = key.rpartition(".")
                (arguments[message] if message else arguments)[field] = value
            self.reply = decode(self.sites[name].handle(encode(request)))
            if "ok" not in self.reply:
                raise _Told
        return {name: self.sites[name].handle(data) for name, data in requests.items()}


MISFITS = [
    ("significance, logistic", "weighted.keep_covered", {"order": []}, "are not of the same parties"),
    ("network, lattice", "network_lattice.encrypt_lattice", {"start": 0, "stop": 240}, "these rows are not one batch"),
    ("network, lattice", "network_lattice.encrypt_lattice", {"start": 0, "stop": 9, "outputs": 49}, "another layer"),
    ("less_vfl, open", "less_vfl.select_columns", {"components": np.array([11265])}, "not ascending places below 2"),
    ("less_vfl, open", "less_vfl.select_columns", {"rate": -1.0}, "its argument 'rate' must lie between"),
    ("less_vfl, open", "less_vfl.restrict_top", {"rate": -1.0}, "its argument 'rate' must lie between"),
    ("less_vfl, open", "less_vfl.restrict_top", {"components": {}}, "not of the parties of this network"),
    ("hyfdca, predicted", "hyfdca.read_scores", {"senders": []}, "nobody who sent them"),
    ("hyfdca, predicted", "hyfdca.hold_scores", {"senders": []}, "nobody who sent them"),
    ("feature_election, noise", "election.noisy_ballot", {"regression": True}, "its labels are not numbers"),
    ("feature_election, noise", "election.noisy_ballot", {"columns": []}, "no column to vote on"),
    ("feature_election, blocks", "election.block_votes", {"regression": True}, "its labels are not numbers"),
    ("feature_election, blocks", "election.block_votes", {"columns": []}, "no column to vote on"),
    ("hyfdca, horizontal", "hyfdca.sum_columns", {"categories": [b""]}, "was cut off on the way"),
    ("evaluate", "boost.walk_hidden", {"openings": {}}, "of the parties that it asked"),
    ("fed_iife", "iife.additive_moments", {"edges": np.zeros((1,) * 8)}, "should be 2 x 3 numbers"),
    ("fed_iife", "iife.additive_moments", {"edges": np.zeros(0)}, "should be 2 x 3 numbers"),
    ("fed_iife", "iife.pair_tables", {"edges": np.zeros((2, 0))}, "should be 2 x 3 numbers"),
    ("fed_iife", "iife.pair_tables", {"coefficients": np.zeros((1, 13, 2))}, "should be 13 x 2 numbers"),
    ("fed_iife, ksg, open", "iife.local_interaction.open", {"pairs": np.array([[0, 9]])}, "positions among"),
    ("gini with noise", "tables.open_counts", {"told.shapes": {"shop": []}}, "not the sums that"),
    ("network, lattice", "network_lattice.encrypt_lattice", {"outputs": 2**31}, "must lie between 1 and 4096"),
    ("secureboost", "boost.begin_gains", {"heights": {"bank": 3}}, "a model or columns that are not there"),
    ("secureboost", "boost.begin_gains", {"heights": {"bank": 3, "shop": 2**31}}, "must lie between"),
    ("secureboost", "boost.gain_halves", {"model": 1}, "a model that is not there"),
    ("secureboost, open", "boost.receive_gradients", {"columns": [np.zeros((1,) * 8)]}, "should be positions among"),
    ("network", "sine_network.begin_part", {"owners": {"bank": 7, "shop": -1}}, "must lie between 0 and 1e+06"),
    ("secureboost, open", "boost.next_trees", {"per": 0}, "must lie between 1 and 8"),
    ("secureboost, epsilon", "boost.begin_private_boosting", {"models": []}, "no model to begin"),
    ("vertical_flafe", "flafe.offer_combination_key", {"columns": 2**31}, "must lie between 0 and 100000"),
    ("vertical_flafe", "flafe.encrypt_columns", {"powers": [2**31]}, "must lie between 1 and 2"),
    ("vertical_flafe", "flafe.compare_matrix", {"kept": [2**31]}, "places that are not there"),
    ("vertical_flafe, open", "flafe.take_combinations", {"columns": np.ones(3, dtype=bool)}, "an array of float64"),
    ("woe", "woe.keep_weights", {"columns": []}, "a list of weights for each column"),
    ("flafe, statistics", "flafe.add_terms", {"weights": []}, "a weight for each term"),
    ("fed_iife, noise", "iife.noisy_moments", {"classes": []}, "the label is text"),
    ("logistic, predicted", "scores.begin_grading", {"metrics": []}, "what the scores of the model are for"),
    ("hyfdca, predicted", "hyfdca.open_columns", {"classes": []}, "the label is text"),
    ("hyfdca, horizontal", "hyfdca.open_part", {"regression": True}, "the label is text"),
    ("hyfdca, horizontal", "hyfdca.raise_duals", {"recentre": np.array([True])}, "has no centres"),
    ("hyfdca, horizontal", "hyfdca.raise_duals", {"recentre": np.ones(3, dtype=bool)}, "should be 1 numbers"),
]


def reply_to(case: str, step: str, changes: dict[str, Any], again: bool = False) -> dict[str, Any]:
    misfit = Misfit(sites_of(ALL[case]), step, changes, again)
    with pytest.raises(_Told):
        fit(ALL[case], misfit)
    return misfit.reply


@pytest.mark.parametrize(("case", "step", "changes", "says"), MISFITS)
def test_a_request_that_does_not_fit_is_refused_in_words(case, step, changes, says):
    refused(reply_to(case, step, changes), says)


@pytest.mark.parametrize(
    ("case", "step", "says"),
    [
        ("flafe, statistics", "flafe.scale_candidates", "load the columns again"),
        ("secureboost, open", "boost.choose_splits", "of these nodes already"),
        ("secureboost, coordinator", "boost.own_half_sums", "were told before"),
    ],
)
def test_a_step_that_is_asked_twice_in_a_row_is_refused_in_words(case, step, says):
    refused(reply_to(case, step, {}, again=True), says)


def test_what_a_failed_step_has_kept_is_gone_and_what_it_has_used_up_too():
    """Its reply never left: later steps find what they would have found without it, but nothing is used twice."""
    case = ALL["hyfdca, predicted"]
    misfit = Misfit(sites_of(case), "hyfdca.open_columns", {"classes": []}, again=False)
    with pytest.raises(_Told):
        fit(case, misfit)
    refused(misfit.reply, "the label is text")
    kept = {key for state in misfit.sites["bank"].sessions.values() for key in state}
    assert Columns not in kept  # which it keeps before it reads the label
    state = {"kept": 1, "replaced": 2, "used up": 3}
    before = dict(state)
    state.update({"replaced": 4, "new": 5})
    del state["used up"]
    undo(state, before)
    assert state == {"kept": 1, "replaced": 2}


def test_a_round_that_is_refused_at_its_end_changes_nothing():
    """One of two totals was kept when the other did not fit: the next answer was an error that nobody foresaw."""

    class Twice(Misfit):
        full: list[str] = []  # who was asked to finish a full round

        def take(self, requests):
            for name, data in requests.items():
                request = decode(data)
                told = request["arguments"] if request["operation"] == self.step else {}
                self.full += [name] * (told.get("balance") is not None and told["full"])
                if told and self.full.count(name) == 2:  # steps are remembered from the second full round on
                    for _ in range(2):
                        told["balance"] = np.zeros((7, 7, 7), dtype=np.uint64)
                        refused(decode(self.sites[name].handle(encode(request))), "has not the expected shape")
                    self.reply = decode(self.sites[name].handle(data))
                    assert "ok" in self.reply, self.reply
                    raise _Told
            return {name: self.sites[name].handle(data) for name, data in requests.items()}

    case = ALL["hyfdca, horizontal"]
    with pytest.raises(_Told):
        fit(case, Twice(sites_of(case), "hyfdca.finish_round", {}, again=False))
