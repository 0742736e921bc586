"""The report: says what the record says, nothing of others in a party's own, and no name can run as code."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.ledger import COORDINATOR, FORMS, Entry, Ledger
from fedsift.errors import ParameterError
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.result import Evaluation
from fedsift.methods import METHODS
from fedsift.report import PICTURES, compare, picture, render_html, render_text, summarize, write_report
from fedsift.report.charts import bars, dots, heat, lines, points
from fedsift.report.markup import Html, duration, h, join, short, size, table
from fedsift.report.pictures import draw_details
from fedsift.report.plain import PLAIN
from fedsift.report.record import Answer, Margin, Method, Report, ScoredColumn
from fedsift.report.summary import verdict
from fedsift.report.words import about_share, how_clear, how_sure, in_plain_words, is_warning
from fedsift.select.base import Outcome, Selector

NASTY = "<script>alert(1)</script>"
QUOTED = "\" onload='alert(2)' x=\"&amp;"
ESCAPE_CODE = "bell\x07\x1b[31m"

fs.register_plugin(__name__)


@fs.operation(
    "test_report.spreads",
    discloses="aggregate",
    about="spread of each column, for the test",
    reply=dict,
    learns="its own spreads",
)
def spreads(party):
    return {"spread": np.array([np.nanstd(party.table.values(column)) for column in party.columns])}


class Widest(Selector):
    """Keep the columns that vary most.

    For tests of the report.
    """

    paper = "none"
    leaks = "coordinator: the spread of each column"

    def __init__(self, n_features=3, random_state=7, remark=None):
        self.n_features = n_features
        self.random_state = random_state
        self.remark = remark

    def _select(self, fed):
        replies = fed.ask(spreads, to=fed.parties)
        fed.ledger.note("spreads were sent in the open")
        fed.ledger.note("budget spent: epsilon 1.0 of 2.0")
        details = {"curve": [0.1, 0.4, 0.5, 0.55], "pairs": 12, "_secret": "never shown"}
        return Outcome.best({name: r["spread"] for name, r in replies.items()}, self.n_features, None, **details)


def federation(columns=6, rows=30):
    generator = np.random.default_rng(0)
    names = [NASTY, QUOTED, ESCAPE_CODE, *(f"c{i}" for i in range(columns - 3))]
    X = pd.DataFrame(generator.normal(size=(rows, columns)) * np.arange(columns, 0, -1), columns=names)
    return fs.Federation.split(X, np.arange(rows) % 2, parties=["bank", "shop & co"], random_state=0)


@pytest.fixture
def fitted():
    return Widest().fit(federation())


class Tags(HTMLParser):
    """Every tag with its attributes, and the text outside of style and script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._stack = [], [], []
        self.feed(text)
        assert not self._stack, f"not closed: {self._stack}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "hr"):
            self._stack.append(tag)

    def handle_endtag(self, tag):
        assert self._stack.pop() == tag, f"{tag} closed out of order"

    def handle_data(self, data):
        if not self._stack or self._stack[-1] not in ("style", "script"):
            self.text.append(data)


# -- the record ------------------------------------------------------------------------------------------------------


def test_the_record_says_what_the_selector_found(fitted):
    record = summarize(fitted)
    assert record["answer"]["selected"] == fitted.selected_
    assert record["answer"]["kept"] == 3
    assert record["answer"]["of"] == 6
    assert [row["rank"] for row in record["answer"]["scores"]] == list(range(1, 7))
    scores = sorted((row["score"] for row in record["answer"]["scores"]), reverse=True)
    assert record["answer"]["margin"]["last_kept"] == scores[2]
    assert record["answer"]["margin"]["first_left"] == scores[3]
    assert record["method"]["what"] == "Keep the columns that vary most."
    assert record["method"]["call"] == "Widest()"
    assert record["method"]["seed"] == 7
    assert record["details"] == {"curve": [0.1, 0.4, 0.5, 0.55], "pairs": 12}
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_record_counts_every_byte_of_the_ledger(fitted):
    record, ledger = summarize(fitted), fitted.ledger_
    cost = record["cost"]
    assert cost["bytes"] == ledger.bytes() == sum(row["bytes"] for row in cost["by_operation"])
    assert cost["bytes"] == sum(row["sent"] + row["received"] for row in cost["by_party"])
    assert cost["bytes"] == sum(row["bytes"] for row in cost["by_round"])
    assert cost["bytes"] == sum(row["bytes"] for row in record["ledger"]["forms"])
    assert cost["bytes"] == sum(row["bytes"] for row in record["ledger"]["lines"])
    assert cost["messages"] == len(ledger) == sum(row["messages"] for row in record["ledger"]["lines"])


def test_many_rounds_are_drawn_together_without_losing_a_byte():
    entries = [Entry(i, "a", COORDINATOR, "step", i, "masked", "x") for i in range(1, 1001)]
    fitted = Widest().fit(federation())
    rounds = summarize(fitted, ledger=Ledger(entries))["cost"]["by_round"]
    assert len(rounds) == 24
    assert sum(row["bytes"] for row in rounds) == 500500
    assert rounds[0]["round"] == 1
    assert rounds[-1]["to"] == 1000


def test_a_partys_own_report_holds_nothing_of_another_party():
    remark = f"beware of {NASTY}"
    fitted = Widest(n_features=4, remark=remark).fit(federation())
    everything = {row["feature"] for row in fitted.selection_.scores}
    for party in ("bank", "shop & co"):
        own = {row["feature"] for row in fitted.selection_.scores if row["party"] == party}
        record = summarize(fitted, party=party)
        record["run"]["job"] = record["federation"]["job"] = ""  # a hash, in whose digits anything may stand
        text = json.dumps(record, ensure_ascii=False)
        for other in everything - own:
            assert json.dumps(other, ensure_ascii=False)[1:-1] not in text, f"{party} sees {other}"
        assert {row["feature"] for row in record["answer"]["scores"]} == own
        assert record["details"] == {"pairs": 12}
        assert {row["party"] for row in record["cost"]["by_party"]} == {party}
        assert (record["method"]["parameters"]["remark"] == remark) == (NASTY in own)
        assert "curve" not in render_html(record)
    with pytest.raises(ParameterError, match=r"no party 'x'.*bank"):
        summarize(fitted, party="x")


def test_a_run_with_protection_turned_off_is_never_shown_without_a_warning():
    class Open(Widest):
        def __init__(self, protection="open"):
            self.n_features, self.remark, self.random_state, self.protection = 3, None, 0, protection

        def _select(self, fed):
            return Outcome.best({p: np.arange(n, dtype=float) for p, n in fed.n_columns.items()}, 2, None)

    assert any("protection='open'" in note for note in summarize(Open().fit(federation()))["ledger"]["notes"])
    assert summarize(Open(protection="sums").fit(federation()))["ledger"]["notes"] == []


def test_the_share_that_was_hidden_counts_ciphertexts_masks_and_sealed_boxes():
    entries = [
        Entry(1, "a", COORDINATOR, "x", 60, "ciphertext", "sums"),
        Entry(1, "a", COORDINATOR, "x", 10, "masked", "sums"),
        Entry(1, "a", COORDINATOR, "x", 10, "plain", "sums", relayed=True),
        Entry(1, "a", COORDINATOR, "x", 20, "plain", "names"),
        Entry(1, COORDINATOR, "a", "x", 500, "control", "request: x"),
    ]
    fitted = Widest().fit(federation())
    assert summarize(fitted, ledger=Ledger(entries))["ledger"]["hidden_share"] == pytest.approx(0.8)
    assert summarize(fitted, ledger=Ledger())["ledger"]["hidden_share"] is None


def test_columns_that_every_party_has_are_told_once():
    X = pd.DataFrame(np.arange(80.0).reshape(20, 4), columns=list("abcd"))
    fed = fs.Federation.split(X, np.arange(20) % 2, parties=2, partition="horizontal", random_state=0)
    fitted = fs.AllFeatures().fit(fed)
    record = summarize(fitted)
    assert record["answer"]["selected"] == {"every party": list("abcd")}
    assert [row["rank"] for row in record["answer"]["scores"]] == [1, 2, 3, 4]
    assert "Keep 4 of 4 columns that all 2 parties have" in render_text(record)
    assert summarize(fitted, party="party2")["answer"]["selected"] == {"party2": list("abcd")}


def test_engineered_features_are_part_of_the_answer(fitted):
    from dataclasses import replace

    fitted.selection_ = replace(fitted.selection_, engineered=['mul(bank.c0, "shop & co".c1)', "square(bank.c0)"])
    record = summarize(fitted)
    for text in (render_text(record), render_html(record)):
        assert "make 2 new ones" in text
        assert "square(bank.c0)" in text
    own = summarize(fitted, party="bank")["answer"]["engineered"]
    assert own == ["square(bank.c0)"], "a formula over another party's column names that column"


def test_a_sealed_or_encrypted_line_says_who_cannot_read_it():
    entries = [
        Entry(1, "a", COORDINATOR, "hand", 10, "ciphertext", "sums"),
        Entry(1, "b", COORDINATOR, "hand", 10, "ciphertext", "sums"),
        Entry(2, "a", COORDINATOR, "box", 5, "plain", "keys", relayed=True),
        Entry(3, COORDINATOR, "a", "open", 20, "ciphertext", "the label counts"),
        Entry(4, COORDINATOR, "a", "hand", 2, "control", "request: hand"),
    ]
    rows = summarize(Widest().fit(federation()), ledger=Ledger(entries))["ledger"]["lines"]
    by_what = {row["what"]: row for row in rows}
    assert by_what["sums"]["from"] == ["a", "b"]
    assert by_what["sums"]["reader"] == "cannot read it"
    assert by_what["sums"]["bytes"] == 20
    assert "coordinator cannot read" in by_what["keys"]["reader"]
    assert by_what["the label counts"]["learns"]
    assert rows[0]["what"] == "the label counts", "what somebody learns comes first"
    assert rows[-1]["form"] == "control"


# -- rendering -------------------------------------------------------------------------------------------------------


def test_a_column_called_script_is_harmless(fitted):
    evaluation = evaluate(federation(), {NASTY: Widest()}, cv=2, model="knn", pooled=True)
    page = render_html(summarize(fitted, evaluation=evaluation))
    parsed = Tags(page)
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert NASTY in "".join(parsed.text), "it is shown, as text"
    assert not any(key.startswith("on") for _, attrs in parsed.tags for key in attrs)
    assert not [a for _, a in parsed.tags if re.match(r"(https?:)?//", a.get("href") or a.get("src") or "")]
    assert "\x1b" not in page
    policy = next(a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_terminal_codes_in_names_do_not_reach_the_terminal(fitted):
    text = write_report(fitted)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert NASTY in text


def test_the_page_has_all_sections_and_warns_in_red(fitted):
    parsed = Tags(render_html(summarize(fitted)))
    sections = [attrs["id"] for tag, attrs in parsed.tags if tag == "section"]
    assert sections == ["privacy", "answer", "how", "cost", "ledger", "repeat"]
    warnings = [attrs for _, attrs in parsed.tags if attrs.get("class") == "note"]
    assert len(warnings) == 2, "the protection that was off: at the top and in the ledger; the budget is no warning"
    text = " ".join(parsed.text)
    for form in ("control", "aggregate", "plain"):
        assert FORMS[form] in text
    assert "fs.evaluate(fed, selector)" in text, "a report without quality says so"
    assert "Widest(" in text
    assert "encryption: OFF" in text


def test_how_good_stands_beside_its_nulls(fitted):
    evaluation = evaluate(federation(), {"Widest": Widest(), "other": Widest(2)}, cv=3, model="knn", pooled=True)
    record = summarize(fitted, evaluation=evaluation)
    line = next(line for line in evaluation.frame().to_dict("records") if line["method"] == "Widest")
    assert record["quality"]["method"] == "Widest"
    assert f"accuracy {line['accuracy']:.3f}" in record["quality"]["verdict"]
    assert "random columns" in record["quality"]["verdict"]
    for text in (render_text(record), render_html(record)):
        assert "3 random columns" in text
        assert "all features" in text


def test_files_are_chosen_by_their_ending_and_no_path_gives_text(fitted, tmp_path):
    assert write_report(fitted, tmp_path / "r.HTML").read_text().startswith("<!doctype html>")
    assert write_report(fitted, tmp_path / "r.txt").read_text().startswith("Keep 3 of 6 columns")
    assert fitted.report() == write_report(fitted)
    record = summarize(fitted)
    assert write_report(json.loads(json.dumps(record))) == write_report(fitted)
    own = write_report(fitted, tmp_path / "bank.html", party="bank").read_text()
    assert "Report for bank only" in own


@pytest.mark.parametrize(
    ("thing", "options", "message"),
    [
        (Widest(), {}, "not fitted"),
        ({"format": "other"}, {}, "no report record"),
        ({"format": "fedsift-report", "version": 99}, {}, "version 99"),
        ({"format": "fedsift-report", "version": 1, "party": None}, {"party": "a"}, "summarize"),
    ],
)
def test_what_cannot_be_reported_says_why(thing, options, message):
    with pytest.raises(ParameterError, match=message):
        write_report(thing, **options)


def test_a_thousand_columns_stay_far_below_five_megabytes(tmp_path):
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.normal(size=(20, 1000)), columns=[f"a_long_column_name_number_{i}" for i in range(1000)])
    fitted = Widest(n_features=100).fit(fs.Federation.split(X, np.arange(20) % 2, parties=4))
    fitted.details_ = {"matrix": np.ones((300, 300)), "gates": {f"c{i}": list(range(500)) for i in range(300)}}
    path = write_report(fitted, tmp_path / "wide.html")
    assert path.stat().st_size < 2_000_000
    assert path.read_text().count("a_long_column_name_number_") > 1000


# -- pictures --------------------------------------------------------------------------------------------------------


def record_with(**details):
    fitted = Widest().fit(federation())
    fitted.details_ = details
    return summarize(fitted)


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        ([1.0, 2.0, None, 3.0], "polyline"),
        (np.eye(4), "rect"),
        ({"a": [1, 2, 3], "b": [3, 2, 1]}, "polyline"),
        ({"a": 1.5, "b": -2.0}, "ul"),
        ([{"step": 1, "gain": 0.5}, {"step": 2, "gain": None}], "table"),
        ({"x": {"n": 1}, "y": {"n": 2}}, "table"),
        ([NASTY, "b"], "ol"),
        ([[1], "mixed", {}], "pre"),
        (pd.DataFrame(np.eye(3), index=list("abc"), columns=list("abc")), "rect"),
        ("a sentence", "table"),
        (float("nan"), None),
        ([float("nan"), float("nan"), float("inf"), float("nan")], "p"),
    ],
)
def test_details_of_any_shape_are_drawn_and_never_break_the_report(value, tag):
    record = record_with(**{"some_thing": value})
    figures = draw_details(Report.read(record))
    if tag is None:
        assert figures == []
        return
    parsed = Tags("".join(figures))
    assert tag in [name for name, _ in parsed.tags]
    assert "script" not in [name for name, _ in parsed.tags]
    Tags(render_html(record))


def test_values_for_each_column_are_drawn_under_the_right_names():
    fed = federation()
    names = fed.column_names()
    fitted = Widest().fit(fed)
    fitted.details_ = {"norms": {party: np.arange(len(columns)) + 1.0 for party, columns in names.items()}}
    text = Tags("".join(draw_details(Report.read(summarize(fitted))))).text
    last = names["bank"][-1]
    position = text.index(f"bank.{last}".replace("\x1b", "\ufffd").replace("\x07", "\ufffd"))
    assert short(float(len(names["bank"]))) in text[position : position + 3]


def test_what_the_methods_leave_is_drawn_as_meant():
    fed = federation()
    sizes = fed.n_columns
    fitted = Widest().fit(fed)
    trace = [{"epoch": e, "gates": {p: np.full(n, e / 10) for p, n in sizes.items()}} for e in (5, 10, 15)]
    fitted.details_ = {
        "gates_by_epoch": trace,
        "norms_by_epoch": [{"epoch": 1, "norms": {}}],  # not as expected: drawn by its shape
        "path": [{"lambda": v, "columns": 9 - i, "validation": 0.8} for i, v in enumerate((0.1, 0.2, 0.3))],
        "curve": [{"columns": k, "score": k / 9} for k in (2, 4, 8)],
        "ranking": [{"first": "a", "second": NASTY, "score": 0.5}, {"first": "a", "second": "c", "score": 0.9}],
        "bytes": {"training": 2000, "selection": 10},
        "loss_curve": [3.0, 2.0, 1.0, 0.5],
        "order": [{"step": 1, "feature": NASTY, "relevance": 0.1, "redundancy": 0.2}],
    }
    drawn = "".join(draw_details(Report.read(summarize(fitted))))
    parsed = Tags(drawn)
    assert [t for t, _ in parsed.tags].count("polyline") == sum(sizes.values()) + 3
    assert "Gates while training" in parsed.text
    assert "2 kB" in parsed.text
    assert parsed.text.index("a × c") < parsed.text.index(f"a × {NASTY}")


def test_a_method_can_bring_its_own_picture():
    @picture("planets", title="Planets", caption="by size")
    def planets(value, report):
        return h("p", f"{len(value)} planets")

    try:
        drawn = "".join(draw_details(Report.read(record_with(planets=["a", "b"]))))
        assert "2 planets" in drawn
        assert "by size" in drawn
        broken = "".join(draw_details(Report.read(record_with(planets=3))))
        assert "2 planets" not in broken
    finally:
        del PICTURES["planets"]


def test_charts_place_marks_where_the_values_are():
    widths = re.findall(r"margin-left:([\d.]+)%;width:([\d.]+)%", bars([("a", 3.0, "on"), ("b", -1.0, "off")]))
    assert [(float(x), float(w)) for x, w in widths] == [(25.0, 75.0), (0.0, 25.0)]
    drawn = lines({"a": [0.0, 1.0]})
    x0, y0, x1, y1 = map(float, re.search(r'points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"', drawn).groups())
    assert x0 < x1
    assert y0 > y1, "larger is higher"
    assert heat([[0.0, 1.0], [-1.0, float("nan")]], ["a", "b"]).count("<rect") == 3
    circles = re.findall(
        r'cx="([\d.]+)" cy="([\d.]+)"', points([("a", 10, 0.5), ("b", 1000, 0.9)], x_name="x", y_name="y")
    )
    assert float(circles[0][0]) < float(circles[1][0])
    assert float(circles[0][1]) > float(circles[1][1])
    left = [
        float(x) for x in re.findall(r"dot on\" style=\"left:([\d.]+)%", dots([("a", 1, 0, "on"), ("b", 2, 0, "on")]))
    ]
    assert left[0] < left[1]
    assert "No values" in points([], x_name="x", y_name="y") + dots([])


# -- small things ----------------------------------------------------------------------------------------------------


def test_text_is_text_unless_this_module_made_it():
    assert h("p", "<b>", class_='a"b', data_x=1, hidden=False) == '<p class="a&quot;b" data-x="1">&lt;b&gt;</p>'
    assert join("<", Html("<i>"), ["&", None]) == "&lt;<i>&amp;"
    rows = table(["a", "n"], [["x", ("1 kB", 1000)], ["y", ("2 B", 2)]], numeric=(1,))
    assert 'data-sort="1000"' in rows
    assert "filter" not in rows, "a short table needs no filter"
    assert "filter" in table(["a"], [[str(i)] for i in range(20)])


def test_numbers_are_for_people():
    assert [size(n) for n in (0, 999, 1500, 2_000_000)] == ["0 B", "999 B", "1.5 kB", "2 MB"]
    assert [short(v) for v in (3, 3.0, 0.123456, None, True, 12345)] == ["3", "3", "0.1235", "–", "yes", "12,345"]
    assert [duration(s) for s in (0.0123, 3.21, 600)] == ["12 ms", "3.2 s", "10.0 min"]


def answer_of(columns, margin=None, fits=0):
    """An answer with columns of these (score, selected, folds)."""
    rows = [ScoredColumn("bank", f"c{i}", s, i + 1, kept, i, folds) for i, (s, kept, folds) in enumerate(columns)]
    kept = sum(row.selected for row in rows)
    return Answer(kept, len(rows), {"bank": []}, [], {"bank": len(rows)}, rows, margin, fits)


def test_a_thin_border_is_called_thin():
    def answer(scores, kept):
        margin = Margin(min(scores[:kept]), max(scores[kept:]), max(scores) - min(scores))
        return answer_of([(s, i < kept, 0) for i, s in enumerate(scores)], margin)

    assert "thin" in how_clear(answer([9.0, 5.0, 4.99, 0.0], 2))
    assert "44%" in how_clear(answer([9.0, 5.0, 1.0, 0.0], 2))
    assert "not choose by score alone" in how_clear(answer([9.0, 1.0, 5.0, 0.0], 2))
    assert "one after the other" in how_clear(answer([2.0, 1.0, -3.0, -5.0], 2))


@pytest.mark.parametrize(
    ("note", "warns"),
    [
        ("evaluate pooled nothing: the label holder measured", False),
        ("evaluate pooled the columns of all parties", True),
        ("weights stayed with the coordinator: no party that holds rows learned any", False),
        ("min_cell=1: bins of a single row may have been counted", True),
        ("min_cell is not set: cells of a single row may have been counted", True),
        ("secure=False: the coordinator saw each party's own sums", True),
        ("protection='open': the coordinator saw the parties' columns in the clear", True),
        ("protection='open': this run was not protected; for research only", True),
        ("first_tree_local=False: the first tree's sums are label counts of other parties' bins", True),
        ("party 'a' left during the run; the others went on without it", True),
        ("something that nobody foresaw", True),
        ("encryption was turned off under protest", True),
        ("budget spent: epsilon 1.0 of 2.0", False),
        ("columns, scores and residuals travelled under one-time masks (X25519, ChaCha20)", False),
        ("rows were matched under an oblivious PRF (ristretto255), not by ciphertexts", False),
    ],
)
def test_a_protection_that_was_off_is_red_and_one_that_was_on_is_not(note, warns):
    assert is_warning(note) == warns


# -- compare and notebooks -------------------------------------------------------------------------------------------


def test_compare_sets_methods_and_nulls_side_by_side(tmp_path):
    comparison = compare(federation(), {"wide": Widest(2), NASTY: "random"}, cv=2, model="knn", pooled=True)
    frame = comparison.frame()
    assert frame["null"].tolist() == sorted(frame["null"])
    methods = frame[~frame["null"]]
    assert methods["accuracy"].is_monotonic_decreasing
    assert set(methods["method"]) == {"wide", NASTY}
    wide = frame.set_index("method").loc["wide"]
    assert wide["leaks"] == Widest.leaks
    assert "aggregate" in wide["forms"]
    assert wide["bytes"] > 0
    assert "highest accuracy" in comparison.advice()
    parsed = Tags(comparison.report(tmp_path / "c.html").read_text())
    assert [a["id"] for t, a in parsed.tags if t == "section"] == ["answer", "bytes", "ledger", "repeat"]
    assert [t for t, _ in parsed.tags].count("script") == 1
    assert "circle" in [t for t, _ in parsed.tags]
    assert comparison.report(tmp_path / "c.txt").read_text() == f"{comparison}\n"
    assert comparison.report() == str(comparison)
    json.dumps(comparison.to_dict(), allow_nan=False)
    assert NASTY not in comparison._repr_html_()


def test_compare_takes_method_names_and_suggests_the_right_one():
    with pytest.raises(ParameterError, match=r"'ginni'.*gini"):
        compare(federation(), ["ginni"])
    assert list(compare(federation(), ["all"], cv=2, model="knn", pooled=True).evaluation.methods) == ["all"]
    assert list(compare(federation(), [Widest(), Widest()], cv=2, model="knn", pooled=True).evaluation.methods) == [
        "Widest",
        "Widest 2",
    ]


def test_notebooks_show_names_as_text_and_looking_sends_nothing(fitted):
    fed = federation()
    before = len(fed.ledger)
    assert "shop &amp; co" in fed._repr_html_()
    assert len(fed.ledger) == before
    html = fitted._repr_html_()
    Tags(html)
    assert NASTY not in html
    assert "&lt;script&gt;" in html
    assert fitted._repr_mimebundle_()["text/html"] == html
    assert "not fitted" in Widest()._repr_html_()


# -- for somebody who has not heard of any of this --------------------------------------------------------------------


def test_how_sure_counts_the_folds_that_chose_a_column(fitted):
    evaluation = evaluate(federation(), Widest(), cv=3, model="knn", pooled=True)
    record = summarize(fitted, evaluation=evaluation)
    assert record["answer"]["fits"] == 3
    for row in record["answer"]["scores"]:
        name = f"{row['party']}.{row['feature']}"
        assert row["folds"] == sum(name in chosen for chosen in evaluation.selected["Widest"])
    assert sum(row["folds"] for row in record["answer"]["scores"]) == 9
    for text in (render_text(record), render_html(record)):
        assert "How sure: the choice was repeated 3 times" in text
    assert "3/3" in render_html(record)
    own = summarize(fitted, party="bank", evaluation=evaluation)
    assert {row["party"] for row in own["answer"]["scores"]} == {"bank"}
    plain = summarize(fitted)
    assert "fits" not in plain["answer"]
    assert how_sure(Report.read(plain).answer) == ""


def test_a_record_reads_back_as_it_was_written(fitted):
    evaluation = fs.evaluate(federation(), Widest(), model="linear", cv=2)
    for record in (summarize(fitted), summarize(fitted, evaluation=evaluation), summarize(fitted, party="bank")):
        assert Report.read(json.loads(json.dumps(record))).write() == record


def test_how_sure_in_words():
    some = answer_of([(3.0, True, 5), (2.0, True, 3), (1.0, False, 5)], fits=5)
    assert how_sure(some).endswith("1 of these 2 came out all 5 times.")
    every = answer_of([(3.0, True, 5), (2.0, True, 5), (1.0, False, 5)], fits=5)
    assert how_sure(every).endswith("all 2 columns came out all 5 times.")
    assert how_sure(answer_of([(3.0, True, 2), (2.0, True, 2)], fits=2)).endswith("both times.")


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "100%"), (0.997, "over 99%"), (0.5, "50%"), (0.004, "under 1%"), (0.0, "0%")],
)
def test_a_share_that_is_not_whole_is_not_called_whole(share, words):
    assert about_share(share) == words


def test_all_columns_that_are_better_are_called_better():
    def lines(mine, everything, spread):
        rows = [("Widest", mine, 3), ("all features", everything, 6), ("3 random columns", mine - 0.2, 3)]
        made = [
            {"method": m, "accuracy": s + d, "n_features": n, "seconds": 0.0, "bytes": 0, "rounds": 0}
            for m, s, n in rows for d in (-spread, spread)
        ]  # fmt: skip
        return Evaluation(made, ("accuracy",), {"Widest": {"null": "3 random columns"}}, {}, 6)

    assert verdict(lines(0.8, 0.95, 0.02), "Widest", "accuracy").endswith(
        "All columns are better, by more than the spread between folds."
    )
    assert "better" not in verdict(lines(0.8, 0.81, 0.02), "Widest", "accuracy")
    assert "better" not in verdict(lines(0.9, 0.8, 0.02), "Widest", "accuracy")


def test_every_method_is_told_in_plain_words():
    for name, method in METHODS.items():
        assert method.__name__ in PLAIN, f"say in report/plain.py how {name} chooses"
    own = Method("Widest", "", "Keep the widest.", "", "", {}, None, "")
    assert in_plain_words(own) == "Keep the widest."


def test_rows_of_parties_that_hold_rows_are_not_called_shared():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc"))
    fed = fs.Federation.split(X, np.arange(30) % 2, parties=2, partition="horizontal")
    page = render_html(summarize(fs.RandomFeatures(n_features=2).fit(fed)))
    assert "over 30 rows" in page
    assert "Keep 2 of 3 columns that all 2 parties have" in page


def test_engineering_that_found_nothing_says_so(fitted):
    record = summarize(fitted)
    record["details"]["features"] = []
    assert "No new feature was found" in render_html(record)
    assert "No new feature was found" not in render_html(summarize(fitted))


def test_a_small_change_of_bytes_does_not_fill_the_picture(fitted):
    record = summarize(fitted)
    record["details"]["bytes_by_epoch"] = {"up": [1000.0, 1010.0, 1000.0], "down": [1000.0, 1000.0, 1000.0]}
    drawing, _ = re.findall(r'points="([^"]+)"', "".join(map(str, draw_details(Report.read({**record, "details": {
        "bytes_by_epoch": record["details"]["bytes_by_epoch"]}})))))  # fmt: skip
    heights = [float(point.split(",")[1]) for point in drawing.split()]
    assert max(heights) - min(heights) < 5


def test_several_parties_in_one_cell_stay_one_cell_on_a_phone(fitted):
    """On a phone a cell is a grid of a label and one thing; loose pieces would fall into the label's place."""
    page = render_html(summarize(fitted))
    assert '<td data-label="from"><span><bdi>bank</bdi>, <bdi>shop &amp; co</bdi></span></td>' in page


def test_labels_of_points_that_are_close_do_not_cover_each_other():
    drawn = points([("sffs", 186e3, 0.941), ("muse", 197e3, 0.941), ("gini", 351e3, 0.952)], x_name="b", y_name="s")
    places = {}
    for label in ("sffs", "muse", "gini"):
        x, y = re.search(rf'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>{label}<', drawn).groups()
        places[label] = (float(x), float(y))
    (x1, y1), (x2, y2) = places["sffs"], places["muse"]
    assert abs(y1 - y2) >= 13 or abs(x1 - x2) >= 28


def test_advice_tells_when_all_columns_are_better():
    comparison = compare(federation(), {"wide": Widest(2)}, cv=2, model="knn", pooled=True)
    rows = [dict(row, accuracy=0.9 if row["method"] == "all features" else 0.6) for row in comparison.evaluation.rows]
    comparison.evaluation.rows = rows
    assert "All 6 columns score higher: 0.900" in comparison.advice()
    for row in rows:
        row["accuracy"] = 0.5 if row["method"] == "all features" else 0.6
    assert "All 6 columns" not in comparison.advice()
