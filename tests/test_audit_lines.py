"""The fifteen lines of the first review, found again on operations with the old behaviour, and gone in shipped runs.

``FOUND`` says for each line which attack reads which leaky twin (``leaky/twins.py``), what the review reached, and what
the attack must reach here: the same figure where labels, columns or counts were read whole, and at least the lower end
of the review's range where it had one. Lines 12 and 13 are arithmetic and have tests of their own (``ELSEWHERE``).
Twins draw from streams of their own name (``repeated_draws.py``), so that their figures are the same in every run.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from leaky.twins import TWINS, gini_table, made, noisy, separable, wide

import fedsift as fs
from fedsift.audit import Exposure, Recording, attacks_on, load_attacks, record
from fedsift.audit.attacks.differencing import two_jobs
from fedsift.audit.attacks.folds import ask_for_draws
from fedsift.core import row_draws

ATTACKS = load_attacks()
AT_LEAST = 12  # of 15 lines


@dataclass(frozen=True)
class Line:
    """An attack on its twin: what the review reached, and the least that it must reach here."""

    attack: str
    review: str
    least: float


FOUND = {
    1: Line("fold_masks_at_party", "0.84-0.95 of labels after one run", 0.84),
    2: Line("chosen_seeds", "1.000 of labels", 1.0),
    3: Line("one_split_at_party", "AUC 0.77-0.89", 0.77),
    4: Line("nodes_give_labels", "AUC 0.768-0.978, 0.06-0.25 above own columns", 0.76),
    5: Line("sums_give_bins", "0.989-1.000 of cells in their bin", 0.98),
    6: Line("scores_of_result", "1.000 of labels", 1.0),
    7: Line("first_gradient", "1.000 of labels", 1.0),
    8: Line("gradient_spectral", "AUC 1.000", 0.99),
    9: Line("first_weights_at_holder", "correlation 1.000", 0.99),
    10: Line("embedding_decoder", "R2 0.79-0.97", 0.79),
    11: Line("integers_give_tables", "2x2 tables unique", 1.0),
    14: Line("sizes_name_columns", "columns named 9/9", 1.0),
    15: Line("label_of_row_left_out", "label 25/25", 1.0),
}
ELSEWHERE = {
    12: ("test_attacks_privacy_loss", "test_one_row_moves_a_standardised_column_as_far_as_was_found"),
    13: ("test_attacks_exponents", "test_sizes_of_blinded_groups_are_read"),
}


@functools.cache
def reached(line: int) -> float:
    twin = TWINS[FOUND[line].attack]
    recording = made(twin.recording)
    return ATTACKS[FOUND[line].attack].run(recording[twin.view], recording.truth).value


@pytest.mark.parametrize("line", FOUND)
def test_a_line_of_the_review_is_found_on_its_twin(line):
    assert ATTACKS[FOUND[line].attack].line == line
    assert reached(line) >= FOUND[line].least, FOUND[line].review


def test_at_least_twelve_of_the_fifteen_lines_are_found():
    assert {*FOUND, *ELSEWHERE} == set(range(1, 16))
    by_attack = [line for line in FOUND if reached(line) >= FOUND[line].least]
    tested = [line for line, (module, name) in ELSEWHERE.items() if hasattr(importlib.import_module(module), name)]
    assert len(by_attack) >= AT_LEAST
    assert len(by_attack) + len(tested) == 15


@dataclass(frozen=True)
class Shipped:
    """A default run of what the line was read from, on a table where nobody's own columns tell, and who read what."""

    run: Callable[[], Any]
    roles: tuple[str, ...]
    target: str
    table: Callable[[], tuple[np.ndarray, np.ndarray]] = lambda: noisy(240)
    read: bool = True  # something is sent in its place, which attacks of these roles read in vain
    luck: float = 0.1


BOOSTED = {"n_estimators": 2, "max_depth": 2}
BOUNDS = {f"f{i}": (-4.0, 4.0) for i in range(12)}
SHIPPED = {
    1: Shipped(lambda: fs.TopGain(**BOOSTED, folds=2, n_features=5), ("passive", "coordinator"), "labels"),
    2: Shipped(lambda: ask_for_draws(row_draws.draw_rows, calls=24), ("coordinator",), "labels", read=False),
    3: Shipped(
        lambda: fs.SecureBoostClassifier(**BOOSTED, early_stopping_rounds=1),
        ("passive",),
        "labels",
    ),
    4: Shipped(lambda: fs.SecureBoostClassifier(**BOOSTED), ("passive",), "labels"),
    5: Shipped(lambda: fs.SecureBoostClassifier(**BOOSTED), ("active",), "columns"),
    6: Shipped(lambda: fs.SFFS(n_features=5), ("passive",), "labels", wide),
    7: Shipped(lambda: fs.FederatedLasso(n_features=5, max_iter=5), ("passive",), "labels", separable, read=False),
    8: Shipped(lambda: fs.GroupLasso(epochs=1), ("passive",), "labels"),
    9: Shipped(lambda: fs.GroupLasso(epochs=1), ("active", "coordinator"), "columns"),
    10: Shipped(lambda: fs.GroupLasso(epochs=1), ("active",), "columns"),
    11: Shipped(lambda: fs.GiniFilter(n_features=5), ("active",), "columns", gini_table, read=False),
    12: Shipped(
        lambda: fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"], epsilon=1.0, bounds=BOUNDS),
        ("passive", "active"),
        "membership",
    ),
    15: Shipped(lambda: two_jobs(fs.SFFS, range(0, 150, 6)), ("passive",), "labels", luck=0.2),  # of 25 rows
}


@functools.cache
def shipped(line: int) -> list[Exposure]:
    """All attacks of these roles on the run, of any line: what is sent in the place of the old message is read too."""
    case = SHIPPED[line]
    with np.errstate(all="ignore"):
        seen = record(*case.table(), case.run(), parties=["bank", "shop"])
    return [
        attack.run(view, seen.truth)
        for view in seen.views.values()
        for attack in attacks_on(view.operations, view.role)
        if attack.role in case.roles and attack.target == case.target
    ]


@pytest.mark.parametrize("line", SHIPPED)
def test_a_line_of_the_review_is_gone_from_the_shipped_code(line):
    """Line 14 stands (sizes of bins are told, names are the job's subject), line 13 is a key's."""
    found = shipped(line)
    assert all(each.value < max(each.guess, each.baseline) + SHIPPED[line].luck for each in found), found
    assert any(not each.note.startswith("nothing to read") for each in found) == SHIPPED[line].read, found


OPEN_NETWORKS = {
    "SplitNN": lambda: fs.SplitNN(epochs=1, protection="open", embedding=8, bottom_options={"hidden": [12]}),
    "LocalLasso": lambda: fs.LocalLasso(pretrain_epochs=1, epochs=1, stage_epochs=2, embedding=8, hidden=(12,)),
}


@pytest.mark.parametrize("name", OPEN_NETWORKS)
@pytest.mark.parametrize("attack", ["first_weights_at_holder", "first_weights_at_coordinator"])
def test_where_embeddings_are_shown_they_are_made_with_weights_that_nobody_else_can_draw(name, attack):
    """Line 9 in the open form, which shows embeddings: with weights of the announced seed they were the columns."""
    seen = open_network(name)
    view = next(view for view in seen.views.values() if view.role == ATTACKS[attack].role)
    found = ATTACKS[attack].run(view, seen.truth)
    assert not found.note.startswith("nothing to read")
    assert found.value < found.guess + 0.1, found


@functools.cache
def open_network(name: str) -> Recording:
    return record(*noisy(240), OPEN_NETWORKS[name](), parties=["bank", "shop"])


@pytest.mark.parametrize("line", [line for line in SHIPPED if SHIPPED[line].target == "labels" and SHIPPED[line].read])
def test_what_is_known_anyway_leaves_room_for_a_leak(line):
    """A party whose own columns tell the labels would pass every test above."""
    assert all(max(each.guess, each.baseline) < 0.8 for each in shipped(line)), shipped(line)


@pytest.mark.parametrize("method", [fs.SFFS, fs.GiniFilter, fs.Muse])
def test_where_the_kept_flags_alone_are_told_there_is_nothing_to_add_to_them(method):
    seen = record(*wide(), method(n_features=5), parties=["bank", "shop"])
    found = ATTACKS["scores_of_result"].run(seen["shop"], seen.truth)
    assert found.note.endswith("told are the kept flags alone")
    assert found.baseline >= found.value
    twin = made(TWINS["scores_of_result"].recording)
    assert "flags" not in ATTACKS["scores_of_result"].run(twin["shop"], twin.truth).note
