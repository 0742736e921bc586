"""The report as a person sees it, in headless Chromium: quiet, self-contained, sortable, no wider than the screen.

Screenshots are kept in ``screenshots`` (or the folder that FEDSIFT_SCREENSHOTS names) for people to look at.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from browser import a_browser, find_chromium  # noqa: F401  a fixture is among them
from method_cases import federation, selector

import fedsift as fs
from fedsift.evaluate.evaluation import evaluate
from fedsift.methods import METHODS
from fedsift.report import charts, compare, summarize, write_report
from fedsift.report.page import page as page_of
from fedsift.report.page import section
from fedsift.report.record import Report

NASTY = "<script>document.title='owned'</script>"

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="no Chromium here (Debian: apt-get install chromium), so nobody looked at the report",
)


@pytest.fixture(scope="module")
def folder():
    default = Path(__file__).parents[1] / "screenshots"
    path = Path(os.environ.get("FEDSIFT_SCREENSHOTS", default))
    path.mkdir(parents=True, exist_ok=True)
    return path


def _federation():
    generator = np.random.default_rng(0)
    columns = [NASTY, *(f"a_rather_long_column_name_{i}" for i in range(29))]
    X = pd.DataFrame(generator.normal(size=(60, 30)), columns=columns)
    y = (X.iloc[:, 0] + X.iloc[:, 20] > 0).astype(int)
    return fs.Federation.split(X, y, parties=["bank", "shop", "insurer"], random_state=0)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    fed = _federation()
    fitted = fs.RandomFeatures(n_features=8).fit(fed)
    generator = np.random.default_rng(1)
    labels = [f"bank.c{i}" for i in range(12)]
    fitted.details_ = {
        "loss_curve": np.exp(-np.arange(30) / 9).tolist(),
        "_information": pd.DataFrame(generator.random((12, 12)), index=labels, columns=labels),
        "gates": {label: np.cumsum(generator.normal(size=40)).tolist() for label in labels},
        "order": [{"step": i, "party": "bank", "feature": NASTY, "score": i / 3} for i in range(15)],
    }
    fitted.ledger_.note("encryption was turned off by hand")
    evaluation = evaluate(fed, fs.RandomFeatures(n_features=8), cv=3, model="knn", pooled=True)
    return write_report(fitted, tmp_path_factory.mktemp("report") / "report.html", evaluation=evaluation)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    methods = {"random": fs.RandomFeatures(n_features=8), "everything": fs.AllFeatures()}
    result = compare(_federation(), methods, cv=2, model="knn", pooled=True)
    return result.report(tmp_path_factory.mktemp("compare") / "compare.html")


def _quiet(browser, path):
    assert browser.errors == []
    assert browser.requests == [path.resolve().as_uri()], "the file itself and nothing else"
    assert browser.run("document.title").startswith("fedsift"), "no script of a column's name ran"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["page", "comparison"])
def test_no_error_no_request_and_nothing_wider_than_the_screen(browser, folder, request, which, width, dark):
    path = request.getfixturevalue(which)
    browser.open(path, width=width, dark=dark)
    _quiet(browser, path)
    assert browser.run("document.documentElement.scrollWidth") <= width
    ink = browser.run("getComputedStyle(document.body).color")
    light_text = sum(int(part) for part in ink[4:-1].split(",")) > 380
    assert light_text == dark
    browser.screenshot(folder / f"{which}-{width}-{'dark' if dark else 'light'}.png")


def test_all_sections_can_be_seen(browser, page):
    browser.open(page)
    heights = browser.run(
        "Object.fromEntries([...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight]))"
    )
    assert list(heights) == ["privacy", "answer", "how", "cost", "ledger", "repeat"]
    assert min(heights.values()) > 80
    targets = browser.run("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    assert targets is True
    red = browser.run("getComputedStyle(document.querySelector('.note')).color")
    assert red == "rgb(179, 38, 30)"


def test_tables_sort_by_a_click_and_filter_by_a_word(browser, page):
    browser.open(page)
    table = "[...document.querySelectorAll('#answer div.table')].at(-1)"
    click = f"{table}.querySelectorAll('th button')[%d].click()"
    column = f"[...{table}.querySelectorAll('tbody tr')].map(r => r.cells[%d].textContent)"
    browser.run(click % 3)  # the score, a number: the highest first, then the lowest
    scores = [float(text) for text in browser.run(column % 3)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 30
    browser.run(click % 3)
    assert [float(text) for text in browser.run(column % 3)] == sorted(scores)
    browser.run(click % 1)
    names = browser.run(column % 1)
    assert names != sorted(names, reverse=True)
    assert browser.run(f"{table}.querySelectorAll('th')[1].getAttribute('aria-sort')") == "ascending"
    numbers = [int(name.rsplit("_", 1)[1]) for name in names if name.startswith("a_rather")]
    assert numbers == sorted(numbers), "names with numbers sort as people count"
    shown = f"[...{table}.querySelectorAll('tbody tr')].filter(r => r.offsetHeight).length"
    browser.run(f"(() => {{ const i = {table}.querySelector('input'); i.value = 'BANK kept'; "
                "i.dispatchEvent(new Event('input')); })()")  # fmt: skip
    kept = browser.run(shown)
    assert 0 < kept < 30
    assert browser.run(f"{table}.querySelector('.count').textContent") == f"{kept} of 30"
    _quiet(browser, page)


#: Pairs of texts in a picture that lie on each other, and texts that stick out of it.
COVERED = """(() => { const bad = []; for (const svg of document.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  const at = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
  for (const [text, b] of at) if (b.left < box.left - 1 || b.right > box.right + 1) bad.push(text);
  for (let i = 0; i < at.length; i++) for (let j = i + 1; j < at.length; j++) { const [a, b] = [at[i][1], at[j][1]];
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) bad.push(at[i][0] + ' / ' + at[j][0]); } }
  return bad; })()"""


@pytest.mark.parametrize("width", [1400, 400])
def test_no_text_of_a_picture_covers_another_or_sticks_out(browser, page, comparison, tmp_path, width):
    close = [("lab", 40.0, 0.096), ("insurer and lab", 65.0, 0.098), ("nobody", 0.0, 0.0), ("insurer", 42.0, 0.097)]
    drawn = tmp_path / "close.html"
    picture = charts.points(close, x_name="price", y_name="gain in AUC", log_x=False)
    drawn.write_text(page_of("fedsift: close", "", [("all", "all", section("all", "Close", picture))]))
    for path in (page, comparison, drawn):
        for paper in (False, True):
            browser.open(path, width=width, paper=paper)
            assert browser.run(COVERED) == [], f"{path.name} at {width}"


def test_paper_shows_tables_whole_and_leaves_the_menu_out(browser, folder, page):
    browser.open(page, width=800, paper=True)
    assert browser.run("document.querySelector('nav').offsetHeight") == 0
    assert browser.run("[...document.querySelectorAll('.filter')].every(i => i.offsetHeight === 0)") is True
    cut = browser.run(
        "[...document.querySelectorAll('.scroll')].filter(s => s.scrollHeight > s.clientHeight + 2).length"
    )
    assert cut == 0
    browser.screenshot(folder / "page-paper.png")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_report_of_each_method_on_a_phone(browser, folder, tmp_path, method):
    fitted = selector(method).fit(federation(method))
    path = write_report(fitted, tmp_path / f"{method}.html")
    browser.open(path, width=390)
    _quiet(browser, path)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("document.querySelectorAll('section').length") == 6
    assert browser.run(COVERED) == []
    browser.screenshot(folder / f"method-{method}.png")
    report = Report.read(summarize(fitted))
    assert {each.owner for each in report.readings} == set(report.parties)
    assert not {each.form for each in report.readings} & {"ciphertext", "masked", "control"}
    assert all(each.reader != each.owner for each in report.readings)
    heads = browser.run("[...document.querySelectorAll('#privacy h3')].map(e => e.textContent)")
    assert heads == [f"The data of {party}" for party in report.parties]
