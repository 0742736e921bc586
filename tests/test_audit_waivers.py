"""What a waiver says is held against what the operation declares, and against replies of real runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_audit_registry import shipped_operations

import fedsift as fs
from fedsift.audit import WAIVERS, attacks_on, record
from fedsift.audit.naming import matches
from fedsift.core.message import encode
from fedsift.core.operation import Operation, operations
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.methods import METHODS, MODELS
from fedsift.mpc.column_scores.paid_bins import places, searched

shipped_operations()
SHIPPED = {marked.id: marked for marked in operations() if marked.id in shipped_operations()}
HIDDEN = ("masked", "ciphertext")
#: Where a sentence points to what is measured: "measured where ...: name, name" or "see name".
POINTERS = re.compile(
    r"(?:measured[^:.]*|in such sums|see|which see):? ((?:[a-z_]+\.)?[a-z_]+(?:, (?:[a-z_]+\.)?[a-z_]+)*)"
)
TESTS = re.compile(r"tests/(\w+\.py)")


def hidden(marked: Operation, why: str) -> bool:
    """Somebody receives masked numbers, or what is opened is not from these alone."""
    return marked.discloses in HIDDEN or marked.receives in HIDDEN


def at_coordinator(marked: Operation, why: str) -> bool:
    """The coordinator opens it; a party is told at most what is its own."""
    return marked.opened_by == "coordinator" and marked.role != "coordinator"


def in_journal(marked: Operation, why: str) -> bool:
    """A figure of the answer, counted whoever reads it."""
    return marked.opened_by == "result" and marked.releases is not None


def elsewhere(marked: Operation, why: str) -> bool:
    """Every message that the sentence points to has an attack."""
    named = [name for found in POINTERS.findall(why) for name in found.split(", ")]
    known = [name for name in named if any(matches(name, each) for each in SHIPPED)]
    assert known, f"{marked.id} points nowhere: {why}"
    return all(attacks_on([each for each in SHIPPED if matches(name, each)]) for name in known)


def an_option(marked: Operation, why: str) -> bool:
    return marked.id.endswith(".open") or marked.when is not None


def unlisted(marked: Operation, why: str) -> bool:
    """No method and no model has it among its operations."""
    return not any(marked in kind.operations for kind in (*METHODS.values(), *MODELS.values()))


def a_test_is_there(marked: Operation, why: str) -> bool:
    return all((Path(__file__).parent / name).is_file() for name in TESTS.findall(why))


#: What a sentence says, and what must then hold of the operation.
CLAIMS: dict[str, Callable[[Operation, str], bool]] = {
    r"uniform|under (?:one-time |fresh |the label holder's |a |their |other parties' )?masks?\b": hidden,
    r"Ciphertexts|\bmasked\b": hidden,
    r"[Gg]oes to the coordinator|go to the coordinator": at_coordinator,
    r"the site's journal counts": in_journal,
    r"measured where|measured there|in such sums: |\bsee ": elsewhere,
    r"^An option": an_option,
    r"^No method lists it": unlisted,
    r"tests/": a_test_is_there,
}
#: Nothing of it grows with the rows: measured on replies of real runs below.
NO_ROW = re.compile(r"no row|nothing of anybody's rows|number of its bins|names of the columns|Column names")
#: Sentences that say nothing of that kind: arguments alone. They may only get fewer.
MOST_ARGUMENTS = 33


def claims_of(why: str) -> list[Callable[[Operation, str], bool]]:
    return [check for words, check in CLAIMS.items() if re.search(words, why)]


def test_a_waiver_names_one_operation_by_its_whole_id():
    assert [name for name in WAIVERS if name not in SHIPPED] == []


@pytest.mark.parametrize("name", WAIVERS)
def test_what_a_waiver_says_holds_of_its_operation(name):
    for check in claims_of(WAIVERS[name]):
        assert check(SHIPPED[name], WAIVERS[name]), f"{check.__name__}: {WAIVERS[name]}"


def test_arguments_alone_do_not_get_more():
    alone = [name for name, why in WAIVERS.items() if not claims_of(why) and not NO_ROW.search(why)]
    assert len(alone) <= MOST_ARGUMENTS, alone


def test_where_bins_stand_follows_from_counts_with_noise_alone():
    """With the same counts and other values: the same places, so that they cost no budget (f_test.bin_places)."""
    rng = np.random.default_rng(0)
    party = Party(Site("shop", Table.read(pd.DataFrame({"a": rng.normal(size=3000)}), id=None, name="shop")), "")
    [column] = searched(party, 6, 0.5)
    others = places(rng.exponential(size=3000) - 5.0)
    moved = replace(column, places=others, in_order=np.sort(others))
    assert len(column.stands(6, 100)) > 3
    assert (moved.stands(6, 100) == column.stands(6, 100)).all()


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(rows, 6))
    return X, (X[:, 0] + X[:, 3] + np.arange(rows) % 3 > 1.0).astype(int)


RUNS = {
    "woe": lambda: fs.InformationValue(n_features=2, n_bins=3, woe="monotone", woe_digits=1),
    "knockoffs": lambda: fs.Knockoffs(copies=1, squares=False),
    "correlation": lambda: fs.correlation,
    "logistic": lambda: lambda fed: fs.significance(fed, model="logistic", open_scores=True),
    "lasso": lambda: fs.FederatedLasso(n_features=2, max_iter=3),
    "hyfdca": lambda: fs.HyFDCA(rounds=200, tol=10.0, loss="logistic"),
    "vertical logistic": lambda: fs.VerticalLogisticRegression(max_iter=2),
    "additive": lambda: fs.VerticalAdditive(max_iter=2),
    "boosting": lambda: fs.SecureBoostClassifier(n_estimators=1, max_depth=2),
    "boosting, sums opened": lambda: fs.SecureBoostClassifier(n_estimators=1, max_depth=2, protection="coordinator"),
    "flafe": lambda: fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"]),
}


@pytest.mark.parametrize("run", RUNS)
def test_what_tells_of_no_row_is_as_long_of_twice_the_rows(run):
    """A reply with a number of each row would be twice as long."""
    sizes = []
    for rows in (400, 800):
        seen = record(*table(rows), RUNS[run](), parties=["bank", "shop"])
        told: dict[str, int] = {}
        for message in seen["coordinator"].messages:
            if not message.is_request and NO_ROW.search(WAIVERS.get(message.operation, "")):
                told[message.operation] = max(told.get(message.operation, 0), len(encode(message.content)))
        sizes.append(told)
    assert sizes[0]
    for name, size in sizes[1].items():
        assert size <= 1.75 * sizes[0].get(name, size) + 100, name
