"""What the documentation shows works."""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.audit import load_attacks
from fedsift.methods import METHODS

ROOT = Path(__file__).parents[1]


def test_the_worked_example_of_adding_a_method():
    text = (ROOT / "docs" / "adding-a-method.md").read_text()
    source = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    modules = set(re.findall(r"^(?:from|import) ([\w.]+)", source, re.MULTILINE))
    assert modules == {"numpy", "fedsift", "fedsift.testing"}, "an author of a plug-in imports public names only"
    module = types.ModuleType("worked_example")
    sys.modules["worked_example"] = module
    exec(compile(source, "adding-a-method.md", "exec"), module.__dict__)
    module.test_correlation_keeps_to_the_contract()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef"))
    y = (X["e"] + 0.3 * rng.normal(size=80) > 0).astype(int)
    fitted = module.Correlation(n_features=1).fit(fs.Federation.split(X, y, parties=2))
    assert fitted.selected_ == {"party1": [], "party2": ["e"]}
    expected = abs(np.corrcoef(X["e"], y)[0, 1])
    assert fitted.scores_["score"].max() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_method_is_in_the_readme_and_has_a_page():
    readme = (ROOT / "README.md").read_text()
    index = (ROOT / "docs" / "index.md").read_text()
    for name, method in METHODS.items():
        assert f"`{method.__name__}`" in readme, name
        if method.paper != "null":
            assert method.__name__ in index, name


# --- pages that are made: never older than what they are made from --------------------------------------------------


def script(name):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_the_results_page_is_what_the_script_makes_of_the_tables():
    made = script("render_results")
    assert (ROOT / "docs" / "results.md").read_text() == made.render(), "run python benchmarks/render_results.py"
    for name in made.tables():
        assert f"benchmarks/results/{name}.md" in made.render()


def test_figures_in_words_about_results_stand_in_the_table():
    assert script("render_results").stale() == []


def test_a_figure_that_is_no_longer_in_the_table_is_found(tmp_path, monkeypatch):
    made = script("render_results")
    (tmp_path / "results").mkdir()
    (tmp_path / "intros").mkdir()
    (tmp_path / "results" / "pso.md").write_text("# Swarm\n\n| a |\n|--:|\n| 0.871 |\n\n```\n# no heading\n```\n")
    (tmp_path / "intros" / "pso.md").write_text("It has 0.871; before it had 0.865.")
    monkeypatch.setattr(made, "HERE", tmp_path)
    assert made.stale() == ["benchmarks/intros/pso.md says 0.865, which is not in benchmarks/results/pso.md"]
    page = made.render()
    assert "## Swarm\n\nIt has 0.871" in page
    assert "\n# no heading" in page


def test_the_exposure_page_is_what_the_script_makes_of_the_figures():
    assert (ROOT / "docs" / "exposure.md").read_text() == script("exposure_page").render(), (
        "run benchmarks/exposure.py --render"
    )


def test_every_method_is_measured_on_the_six_sets_with_its_defaults():
    cases, six = script("exposure_models").every_case(), script("exposure_cases").SIX
    assert [name for name in METHODS if name not in cases or not set(six) <= set(cases[name].sets)] == []


#: Attacks that say which unnamed column or cut is which: no value, and not on that part of the page.
NAMING = {
    "sizes_name_columns", "class_sums_name_columns", "label_counts_name_columns", "bits_name_columns",
    "cut_sizes_name_columns", "cuts_followed_over_trees",
}  # fmt: skip


def test_every_cell_of_the_exposure_page_above_its_null_is_explained():
    """What was read and how a site avoids it: in words of the attack, and the cell stands under them."""
    page, words = script("exposure_page"), script("exposure_read").WORDS
    above = page.above(page.by_cell())
    text = "\n".join(script("exposure_read").read_lines(above, {}))
    assert above
    for method, name, adds, row in above:
        assert words[row["attack"]]["read"] in text, row["attack"]
        assert words[row["attack"]]["avoid"] in text, row["attack"]
        assert f"{name} +{adds:.3f}" in text, (method, name)
    assert set(load_attacks()) - set(words) == NAMING


def test_the_exposure_page_says_what_changed_since_the_version_before(monkeypatch):
    page = script("exposure_page")
    row = {"method": "sffs", "set": "colon", "attack": "scores_of_result", "role": "passive", "target": "labels",
           "metric": "accuracy", "guess": 0.6, "baseline": 0.8, "control": None, "knows": "nothing", "declared": "no",
           "note": "", "commit": "old", "value": 1.0}  # fmt: skip
    monkeypatch.setattr(page, "rows_of", lambda: [row])
    assert "No figure was measured on two versions" in page.render()
    monkeypatch.setattr(page, "rows_of", lambda: [row, {**row, "commit": "new", "value": 0.6}])
    assert "| sffs | colon | scores_of_result | 1.000 (old) | 0.600 (new) | +0.200 | -0.200 |" in page.render()
    assert page.worst_of("sffs")["commit"] == "new"
    assert page.worst_of("muse") is None


def test_choosing_a_method_has_every_method_and_the_registrys_own_words():
    choosing = script("choosing")
    page, figures = (ROOT / "docs" / "choosing.md").read_text(), choosing.read()
    for name, method in METHODS.items():
        assert name in choosing.WORDS, f"say in benchmarks/choosing_words.py when {name} is good and when not"
        assert name in figures, f"run python benchmarks/choosing.py --only {name}"
        assert method.leaks in page, "run python benchmarks/choosing.py --render"
    assert page == choosing.render(page, figures), "run python benchmarks/choosing.py --render"


def test_figures_in_judgements_stand_in_a_results_table():
    there = "\n".join(path.read_text() for path in (ROOT / "benchmarks" / "results").glob("*.md"))
    known = set(re.findall(r"\d+(?:\.\d+)?", there))
    for name, words in script("choosing").WORDS.items():
        for figure in re.findall(r"(?<![\w.,])\d+\.\d+(?!\w|\.\d)", words["good"] + " " + words["not"]):
            assert figure in known, f"choosing_words.py says {figure} of {name}; no results table has it any more"


@pytest.mark.parametrize("name", ["gini", "random"])
def test_rounds_and_bytes_in_the_choosing_table_are_those_of_a_run(name):
    """Two quick ones stand for all: a protocol that changed its conversation needs a new reference run."""
    choosing = script("choosing")
    data = load_breast_cancer(as_frame=True)
    fed = fs.Federation.split(data.data, data.target, parties=3, partition=choosing.partition_of(name))
    fitted = METHODS[name](**choosing.SIZES.get(name, {})).fit(fed)
    figures = choosing.read()[name]
    assert fitted.ledger_.rounds() == figures["rounds"], f"run python benchmarks/choosing.py --only {name}"
    assert fitted.ledger_.bytes() == pytest.approx(figures["bytes"], rel=0.02)


METHOD_PAGES = [
    "fed-halving", "fed-iife", "fedsdg-fs", "gini", "information-value", "less-vfl", "muse", "pso-evffs", "secureboost",
    "sffs", "splitnn",
]  # fmt: skip


@pytest.mark.parametrize("page", METHOD_PAGES)
def test_every_method_page_has_a_diagram_leaks_and_cost(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert "```mermaid\nsequenceDiagram" in text
    assert re.search(r"who learns what", text, re.IGNORECASE)
    assert re.search(r"^#+.*\bcost\b", text, re.IGNORECASE | re.MULTILINE)
    assert "parameter" in text.lower()


def test_links_to_a_heading_lead_to_one():
    """GitHub's anchors: lower case, hyphens for spaces, other signs left out."""
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            text = ((page.parent / target) if target else page).read_text()
            heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in anchors, f"{page.name} links to {target}#{anchor}"


def test_the_readme_is_short_and_has_its_picture():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 120
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    data = (ROOT / picture).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) < 400_000


# --- where a figure comes from --------------------------------------------------------------------------------------


def test_every_row_of_a_result_names_the_commit_that_made_it():
    for path in (ROOT / "benchmarks" / "results").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(re.fullmatch(r"(<=)?[0-9a-f]{7,}\+?", row["commit"]) for row in rows), path.name
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        for name, measured in json.loads(path.read_text()).items():
            rows = measured if isinstance(measured, list) else [measured]
            assert all(re.fullmatch(r"(<=)?[0-9a-f]{7,}\+?", row["commit"]) for row in rows), (path.name, name)


def test_a_new_cell_is_written_with_its_commit(tmp_path):
    row = script("cells").Cells(tmp_path / "x.jsonl").run(lambda: {"score": 1.0}, data="x")
    assert row["commit"] == script("provenance").commit() == json.loads((tmp_path / "x.jsonl").read_text())["commit"]
    script("split_cells").append_row(tmp_path / "y.jsonl", {"data": "y", "score": 1.0})
    assert json.loads((tmp_path / "y.jsonl").read_text())["commit"] == row["commit"]


def test_a_table_measured_with_the_old_bins_says_so_until_it_is_measured_again(tmp_path):
    note_of = script("provenance").note_of
    (tmp_path / "pso.md").write_text("# Swarm")
    (tmp_path / "pso.jsonl").write_text('{"commit": "<=1234567", "bins": "old"}\n{"commit": "7654321"}\n')
    assert note_of(tmp_path / "pso.md").startswith("**Old bins.** 1 of the 2 rows")
    (tmp_path / "pso.jsonl").write_text('{"commit": "7654321"}\n')
    assert note_of(tmp_path / "pso.md") == ""
    (tmp_path / "boost.md").write_text("# SecureBoost\n\n`python benchmarks/boost.py`")
    assert "This table was measured" in note_of(tmp_path / "boost.md")
    (tmp_path / "boost.md").write_text("# SecureBoost\n\n`python benchmarks/boost.py` (commit 1234567+)")
    assert note_of(tmp_path / "boost.md") == ""
    figures = script("choosing").read()
    old = any(facts.get("bins") == "old" for facts in figures.values())
    assert ("**Old bins**" in (ROOT / "docs" / "choosing.md").read_text()) == old


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]))
    assert listed == {page.name for page in (ROOT / "docs").rglob("*.md")} | {"reference.md"}


#: Figures under "Figures" of a page that stand in no table of benchmarks/results: of runs before them. The list only
#: shrinks: take the figure out, or measure it again.
OF_NO_TABLE = {"flafe.md": 8, "muse.md": 22}


def of_no_table(text: str, tables: str) -> list[str]:
    """Decimal numbers of a text that no table has, as they are or, of "98.8 %", as the share 0.988."""
    figures = set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", text))
    shares = {each: f"{float(each) / 100:.3f}" for each in re.findall(r"(?<![\w.])(\d+\.\d) %", text)}

    def stands(figure: str) -> bool:
        return re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", tables) is not None

    return sorted(each for each in figures if not stands(each) and not (each in shares and stands(shares[each])))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_the_figures_of_a_page_stand_in_a_table_that_a_benchmark_wrote(page):
    tables = "\n".join(path.read_text() for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")))
    own = re.search(r"^## Figures\n(.*?)(?=^## |\Z)", page.read_text(), re.DOTALL | re.MULTILINE)
    stale = [] if own is None else of_no_table(own[1], tables)
    assert len(stale) <= OF_NO_TABLE.get(page.name, 0), f"in no table of benchmarks/results: {', '.join(stale)}"


def test_the_figures_of_the_readme_stand_in_a_table_and_another_would_not():
    tables = "\n".join(path.read_text() for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")))
    limits = (ROOT / "README.md").read_text().partition("## Honest limits")[2].replace("Apache-2.0", "")
    assert of_no_table(limits, tables) == []
    assert of_no_table("matching takes 25.0123 s", tables) == ["25.0123"]
