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


def row_of(case: str, value: float, **more) -> dict:
    return {"method": case, "set": "bank", "attack": "bits_give_cells", "role": "active", "target": "columns",
            "metric": "cells in their true bin", "guess": 0.4, "baseline": 0.4, "control": None, "knows": "",
            "note": "", "declared": "in words", "commit": "a", "value": value, **more}  # fmt: skip


def test_the_figure_of_a_method_is_that_of_a_run_as_large_as_by_default(monkeypatch):
    page, defaults = script("exposure_page"), script("exposure_defaults")
    told = defaults.told(METHODS["top_gain"](protection="coordinator"))
    rows = [
        row_of("top_gain, coordinator", 0.85, parameters=told), row_of("top_gain, coordinator, few trees", 0.6),
        row_of("top_gain, coordinator, three runs", 0.99), row_of("top_gain, few trees", 0.45),
    ]  # fmt: skip
    monkeypatch.setattr(page, "rows_of", lambda: rows)
    found = defaults.worst_by_default("top_gain")
    assert (found[0]["value"], found[1]) == (0.45, True), "it says that the run was a smaller one"
    rows.append(row_of("top_gain", 0.44, parameters=defaults.told(METHODS["top_gain"]())))
    found = defaults.worst_by_default("top_gain")
    assert (found[0]["value"], found[1]) == (0.45, True), "a smaller run that shows more stands"
    rows.append(row_of("top_gain", 0.5, commit="b", parameters=defaults.told(METHODS["top_gain"]())))
    found = defaults.worst_by_default("top_gain")
    assert (found[0]["value"], found[1]) == (0.5, False)


def test_the_bare_name_of_a_case_on_trees_is_the_run_of_a_user_who_names_nothing():
    """And a level of protection that is named is the one that is run."""
    cases, told = script("exposure_models").every_case(), script("exposure_defaults").told
    for name in ("top_gain", "boruta", "pso_evffs", "auto"):
        assert told(cases[name].make()) == told(METHODS[name]()), name
        assert cases[name].rows == script("exposure_cases").ROWS
    made = cases["secureboost"].make()
    assert told(made) == told(type(made)())
    for name, case in cases.items():
        if name.startswith(("top_gain", "boruta", "pso_evffs", "secureboost")):
            parameters = told(case.make()) if hasattr(case.make(), "get_params") else {}
            levels = {"coordinator", "all", "open"} & set(name.split(", "))
            assert not parameters or not levels or parameters["protection"] == repr(*levels), name
            assert not case.smaller or case.smaller in cases, name


def test_beside_a_run_that_took_too_long_stands_what_a_smaller_one_showed(monkeypatch):
    page = script("exposure_page")
    given_up = row_of("boruta", 0.0, attack="", note="too long: not ended after 600 CPU-s")
    monkeypatch.setattr(page, "rows_of", lambda: [given_up, row_of("boruta, few trees", 0.43)])
    (line,) = [line for line in page.render().splitlines() if line.startswith("| boruta |") and "too long" in line]
    assert "| too long; smaller: +0.030 |" in line
    assert "| not run |" in line


def test_a_row_of_another_form_than_the_default_is_no_figure_of_the_method(monkeypatch):
    """What was run counts: rows that were measured before a default changed are not those of the new one."""
    page, defaults = script("exposure_page"), script("exposure_defaults")
    told = {**defaults.told(METHODS["boruta"]()), "protection": repr("another")}
    monkeypatch.setattr(page, "rows_of", lambda: [row_of("boruta", 0.9, parameters=told)])
    assert defaults.worst_by_default("boruta") is None


def test_a_run_that_default_rules_refuse_is_marked_with_the_rule(monkeypatch):
    page = script("exposure_page")
    rows = [row_of("sffs", 0.6), {**row_of("sffs", 0.6), "set": "wdbc"}]
    asked = {("sffs", "bank"): {"rule": "max_bits"}, ("sffs", "wdbc"): {"rule": ""}}
    monkeypatch.setattr(page, "rows_of", lambda: rows)
    monkeypatch.setattr(page, "asked_of_rules", lambda: asked)
    text = page.render()
    assert "| sffs | +0.200 | not run | not run | +0.200\u2020 | not run | not run |" in text
    assert "| `max_bits` | sffs: bank |" in text
    assert "| none: they let it happen | sffs: wdbc |" in text


def test_no_figure_on_the_choosing_page_is_below_that_of_a_default_run():
    """On the rows as they are: of every method, in the form that it has today."""
    page, defaults = script("exposure_page"), script("exposure_defaults")
    cases, text = script("exposure_models").every_case(), (ROOT / "docs" / "choosing.md").read_text()
    most = {name: defaults.worst_by_default(name) for name in METHODS}
    for name, sets in page.by_cell().items():
        method = defaults.method_of(cases[name])
        for cell in sets.values() if method else ():
            if defaults.is_smaller(method, defaults.measured(cases[name], cell)) is None:
                continue
            worst, _ = most[method] or ({"value": 0, "guess": 0, "baseline": 0, "metric": ""}, True)
            assert max([page.added(row) for row in cell.told], default=0.0) <= page.added(worst), (name, method)
            assert f"{worst['metric']} {worst['value']:.2f}" in text or not cell.told, method


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


#: Figures of a page that no benchmark makes, and what they are.
NO_BENCHMARK = {
    "desk.md": {"2.8": "seconds that a test saw"},
    "party.md": {"0.84": "measured in the audit's own page", "19.2": "counted: bits of the demo's answer"},
    "report.md": {"4.8": "the size of a file of another project"},
    "scale.md": {"2.8": "GHz of the machine"},
    "value.md": {"0.623": "an attack run by hand; gradients_tell_labels has no row in exposure.jsonl yet"},
    "threat-model.md": {"0.82": "of the exposure page, rounded"},
}


def in_words(text: str) -> str:
    """What a person wrote: without tables that scripts write, code, output that is shown, and quotations."""
    for made in (r"<!-- begin: written by.*?<!-- end.*?-->", r"^```.*?^```", r"<!-- table of .*? -->\n\n(?:\|.*\n)*"):
        text = re.sub(made, "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?m)^(?:    |>).*$|`[^`\n]*`", "", text)


def numbers(tables: str) -> set[float]:
    return {float(each) for each in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", tables.replace(",", ""))}


def of_no_table(text: str, tables: str) -> list[str]:
    """Decimal numbers of a text that no table has, as they are or, of "98.8 %", as the share 0.988."""
    known = numbers(tables)
    shares = {each: round(float(each) / 100, 3) for each in re.findall(r"(?<![\w.])(\d+\.\d) %", text)}
    figures = set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", text))
    return sorted(each for each in figures if float(each) not in known and shares.get(each) not in known)


def tables_of(text: str) -> str:
    """The files of results that a page names: by their benchmark, by themselves or by their heading in results.md."""
    made = script("render_results")
    paths = made.tables()
    titles = {
        made.anchor(made.section(name, path).splitlines()[0].removeprefix("## ")): name for name, path in paths.items()
    }
    named = re.findall(r"benchmarks/(\w+)\.py|table of (\w+)\.md|results/(\w+)\.md", text)
    names = {each for found in named for each in found} | {
        titles.get(a) for a in re.findall(r"results\.md#([\w-]+)", text)
    }
    others = [ROOT / "benchmarks" / "published.md", ROOT / "docs" / "exposure.md"]
    return "\n".join(path.read_text() for path in [*(paths[name] for name in names if name in paths), *others])


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_the_figures_of_a_page_stand_in_a_table_that_it_names(page):
    if page.name in ("results.md", "exposure.md", "choosing.md"):  # written by scripts, which other tests hold to them
        return
    text = page.read_text()
    stale = set(of_no_table(in_words(text), tables_of(text))) - set(NO_BENCHMARK.get(page.name, {}))
    assert not stale, f"in no table that {page.name} names: {', '.join(sorted(stale))}"


def test_the_figures_of_the_readme_stand_in_a_table_and_another_would_not():
    tables = "\n".join(path.read_text() for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")))
    readme = in_words((ROOT / "README.md").read_text()).replace("Apache-2.0", "").replace("Python 3.11", "")
    assert of_no_table(readme, tables) == []
    by_hand = re.sub(r"<!-- cell of .*?<!-- -->", "", readme)
    assert re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", by_hand) == [], "write it as a cell of its table"
    assert of_no_table("matching takes 25.0123 s", tables) == ["25.0123"]
    assert of_no_table("98.8 % of the noise", "0.988") == [] != of_no_table("98.9 % of the noise", "0.988")


def test_tables_of_benchmarks_in_pages_are_what_the_script_makes_of_their_files():
    made = script("page_tables")
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        assert made.filled(page.read_text()) == page.read_text(), f"{page.name}: run python benchmarks/page_tables.py"


def test_a_table_with_figures_in_a_page_says_which_file_it_is_of():
    """Two or more decimals in a row of a table are a benchmark's, or a script's that marks its block."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name not in ("results.md", "exposure.md", "choosing.md"):
            rows = [row for row in in_words(page.read_text()).splitlines() if row.startswith("|")]
            by_hand = [row for row in rows if len(re.findall(r"(?<![\w.])\d+\.\d{2,}", row)) > 2]
            assert by_hand == [], f"{page.name}: {by_hand[0]}"


def test_a_table_is_copied_chosen_joined_and_missed(tmp_path, monkeypatch):
    made = script("page_tables")
    monkeypatch.setattr(made, "HERE", tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.md").write_text(
        "# All\n## First, 3 seeds\n| who | s | s |\n|---|--:|--:|\n| jm1 | 1.5 | 2 |\n| b | - | 4 |\n\n"
        "| who | of |\n|---|--:|\n| b | 9 |\n\n## Second, 2 seeds\n| who | s |\n|---|--:|\n| b | 7 |\n"
    )
    (tmp_path / "published.md").write_text("# P\n| who | told |\n|---|--:|\n| b | 8 |\n")
    page = "a\n\n<!-- table of {} -->\n\n| old |\n|---|\n| 0.1 |\n\nb\n"
    assert "| b | - | 4 |\n\nb" in made.filled(page.format("x.md: First"))
    assert "| 0.1 |" not in made.filled(page.format("x.md: First"))
    chosen = made.made("x.md: First | with:published.md: P | who | both = {s} / {s#2} | theirs = {P.told}")
    assert chosen == "| who | both | theirs |\n|---|--:|--:|\n| JM1 | 1.5 / 2 | - |\n| b | - / 4 | 8 |\n"
    assert "| b | 4 |" in made.made("x.md: First | rows:who=b | who | it = {s#2}")
    assert made.made("x.md: First | number:2 | of").endswith("| 9 |\n")
    across = made.made("x.md: First; Second | across:{s} | data | seeds | it = {b}")
    assert across == "| data | seeds | it |\n|---|--:|--:|\n| First | 3 | - |\n| Second | 2 | 7 |\n"
    assert "takes <!-- cell of x.md: First | jm1 | s -->1.5<!-- --> s" in made.filled(
        "takes <!-- cell of x.md: First | jm1 | s -->9.9<!-- --> s"
    )
    for missing in ("x.md: Third", "x.md: First | rows:who=c"):
        with pytest.raises(SystemExit):
            made.made(missing)
