"""What was measured before columns were cut as they are now says so, and nothing else does."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "benchmarks"))
from provenance import BINS, OLD_TABLES, note_of  # noqa: E402

#: Rows from before that have no bins, by what names them; ``None``: all rows of the file.
WITHOUT_BINS: dict[str, dict[str, set[str]] | None] = {
    "autofe_horizontal.jsonl": None,  # pairs of columns by their values, and by edges of Fed-IIFE's own
    "less_vfl.jsonl": None,  # networks
    "autofe_vertical.jsonl": {"row": {"base"}},  # the columns as they are
    "fedsdg.jsonl": {"method": {"all", "random", "sffs", "vflfs", "original", "original_auto"}},  # gates at a half
    "exposure.jsonl": {"method": {"hostile draw_folds", "splitnn, secure", "splitnn, embedding of 4"}},
    "scale.json": {"method": {
        "all", "random", "feature_election", "federated_lasso", "fed_halving", "sffs", "fed_iife", "local_lasso",
    }},
}  # fmt: skip
#: Tables of Markdown alone, from before, that have no bins: networks, linear models.
TABLES_WITHOUT_BINS = {"secure_layer"}


@cache
def before(commit: str) -> bool:
    """Whether this commit, or the one that it is at or before, lacks the present bins."""
    told = commit.removeprefix("<=").removesuffix("+")
    return _git("merge-base", "--is-ancestor", BINS, told).returncode == 1


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def _history() -> None:
    if _git("cat-file", "-e", BINS).returncode:
        pytest.skip("a copy without its history")


def rows_of(path: Path) -> list[dict]:
    """Of an exposure file the last version of each cell: earlier ones are there to be compared with."""
    if path.suffix == ".json":
        kept = json.loads(path.read_text())
        return [{"method": name, **row} for name, rows in kept.items() if isinstance(rows, list) for row in rows]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if path.name != "exposure.jsonl":
        return rows
    last = {(row["method"], row["set"]): row["commit"] for row in rows}
    return [row for row in rows if row["commit"] == last[row["method"], row["set"]]]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json*")), ids=lambda path: path.name)
def test_rows_of_the_old_bins_say_so_and_no_others_do(path):
    allowed = WITHOUT_BINS.get(path.name, {})
    for row in rows_of(path):
        marked = row.get("bins") == "old"
        without = allowed is None or any(row.get(field) in names for field, names in allowed.items())
        assert not (marked and not before(row["commit"])), ("marked, and measured since", row)
        assert marked or without or not before(row["commit"]), ("from before, and not marked", row)


def test_tables_without_rows_from_before_say_so():
    for path in RESULTS.glob("*.md"):
        if path.with_suffix(".jsonl").is_file() or path.with_suffix(".json").is_file():
            continue
        written = _git("log", "-1", "--format=%h", "--", str(path)).stdout.strip()
        if written and before(written) and path.stem not in TABLES_WITHOUT_BINS:
            assert path.stem in OLD_TABLES, f"{path.name} was written before {BINS} and says nothing of it"
            assert note_of(path).startswith("**Old bins.**")


def test_tables_by_set_are_of_one_kind_of_bins():
    """Seeds of old and of present bins are not averaged."""
    rows = [json.loads(line) for line in (RESULTS / "muse.jsonl").read_text().splitlines()]
    for name in {row["data"] for row in rows}:
        assert len({row.get("bins") for row in rows if row["data"] == name}) == 1, name
