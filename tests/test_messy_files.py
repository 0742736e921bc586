"""Files as a new user has them: each trap gives the right number or a question, never a wrong number in silence."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli import main as cli
from fedsift.core.table import Table
from fedsift.core.wanted import FileForm
from fedsift.errors import DataError, MissingExtra, ParameterError
from fedsift.jobs.columns_seen import look_at


def written(tmp_path, text, encoding="utf-8", name="bank.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def column(tmp_path, *values, separator=";", form=None):
    """What one column of a file comes to: its kind and its numbers or texts."""
    lines = [f"who{separator}x", *(f"p{i}{separator}{value}" for i, value in enumerate(values))]
    table = Table.read(written(tmp_path, "\n".join(lines) + "\n"), id="who", form=form)
    return table.kinds["x"], table.to_polars()["x"].to_list()


def refused(tmp_path, *values, words=(), separator=";", form=None):
    with pytest.raises(DataError) as caught:
        column(tmp_path, *values, separator=separator, form=form)
    for word in ("'x'", *words):
        assert word in str(caught.value)
    assert not any(value in str(caught.value) for value in values if len(value) > 5)


# --- encodings and separators ---


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encoding_and_separator_are_found_and_told(tmp_path, encoding, separator):
    lines = [["who", "größe", "town"], ["a", "5", "Köln"], ["b", "7", "Łódź" if "utf" in encoding else "Zürich"]]
    path = written(tmp_path, "\r\n".join(separator.join(line) for line in lines), encoding)
    table = Table.read(path, id="who")
    assert table.values("größe").tolist() == [5, 7]
    assert table.codes("town")[1][0] == "Köln"
    assert encoding in table.written.file


def test_what_is_said_of_a_file_goes_before_what_is_sniffed(tmp_path):
    path = written(tmp_path, "who;a\np;Łódź\nq;x\n", "cp1250")
    assert Table.read(path, id="who").codes("a")[1][1] != "Łódź"  # a guess: cp1252
    assert Table.read(path, id="who", form=FileForm(encoding="cp1250")).codes("a")[1][1] == "Łódź"
    for wrong in ({"separator": ":"}, {"decimal": "-"}, {"dates": "year first"}, {"forms": {"a": "word"}}):
        with pytest.raises(ParameterError):
            FileForm(**wrong)


def test_two_possible_separators_are_asked_about(tmp_path):
    path = written(tmp_path, "who;price,euro\na;1,5\nb;2,5\n")
    with pytest.raises(DataError, match="separator"):
        Table.read(path, id="who")
    assert Table.read(path, id="who", form=FileForm(separator=";")).values("price,euro").tolist() == [1.5, 2.5]


# --- numbers ---


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,5", "2,25"], [1.5, 2.25]),
        (["1.234,56", "7"], [1234.56, 7]),
        (["1,234.56", "7"], [1234.56, 7]),
        (["1 234,56", "7,5"], [1234.56, 7.5]),
        (["1\u202f234,56", "1\u00a0000"], [1234.56, 1000]),
        (["1'234.50", "2’000.25"], [1234.5, 2000.25]),
        (["1.234.567", "1.234"], [1234567, 1234]),
        (["1,234,567", "1,234"], [1234567, 1234]),
        (["0,125", "1,234"], [0.125, 1.234]),
        (["0.125", "1.234"], [0.125, 1.234]),
        (["€ 5,50", "-€ 1.234,00"], [5.5, -1234]),
        (["5,50 €", "−3,25 €"], [5.5, -3.25]),
        (["$1,234.50", "$-2"], [1234.5, -2]),
        (["12,5 %", "7 %"], [12.5, 7]),
        (["EUR 12", "EUR 7"], [12, 7]),
        (["1,5e3", "2"], [1500, 2]),
        (["+5", "-5"], [5, -5]),
    ],
)
def test_numbers_are_read_as_they_are_meant(tmp_path, values, expected):
    assert column(tmp_path, *values) == ("numeric", expected)


@pytest.mark.parametrize("values", [["1,234", "5"], ["1.234", "2.500"], ["1,234", "2.345"], ["€ 1.234", "€ 2.345"]])
def test_a_number_with_two_readings_is_asked_about(tmp_path, values):
    refused(tmp_path, *values, words=["decimal", "forms", "categorical"])


def test_the_answer_to_the_question_decides(tmp_path):
    for form in (FileForm(decimal=","), FileForm(forms={"x": "decimal comma"})):
        assert column(tmp_path, "1,234", "5", form=form)[1] == [1.234, 5]
        assert column(tmp_path, "1.234", "5", form=form)[1] == [1234, 5]
    for form in (FileForm(decimal="."), FileForm(decimal=",", forms={"x": "decimal point"})):
        assert column(tmp_path, "1,234", "5", form=form)[1] == [1234, 5]
        assert column(tmp_path, "1.234", "5", form=form)[1] == [1.234, 5]
    refused(tmp_path, "12.5", "3.5", words=["decimal"], form=FileForm(decimal=","))


def test_points_are_decimal_points_unless_the_file_shows_decimal_commas(tmp_path):
    assert column(tmp_path, "1.234", "2.345", separator=",")[1] == [1.234, 2.345]
    with pytest.raises(DataError, match="'x'"):
        Table.read(written(tmp_path, 'who,x,y\na,1.234,"0,5"\nb,2.345,"7,25"\n'), id="who")


@pytest.mark.parametrize(
    "values",
    [["12.5", "3,5"], ["12 %", "0.12"], ["$ 5", "€ 5"], ["1.5", "oops", "2.5"], ["2024-01-31", "soon", "2024-02-01"]],
)
def test_kinds_that_mix_are_refused(tmp_path, values):
    refused(tmp_path, *values, words=["categorical"])


def test_leading_zeros_and_very_long_numbers_stay_as_they_are(tmp_path):
    assert column(tmp_path, "01067", "99999", separator=",") == ("categorical", ["01067", "99999"])
    assert column(tmp_path, "12345678901234567890", "1", separator=",")[0] == "categorical"
    assert column(tmp_path, "01", "12", form=FileForm(forms={"x": "number"})) == ("numeric", [1, 12])
    assert column(tmp_path, "0", "0.5", "-0.25", separator=",")[0] == "numeric"


amounts = st.decimals(min_value=-(10**9), max_value=10**9, places=2)


def spelled(value, decimal, group, places):
    """The number as a program with these marks would write it."""
    text = f"{value:,.{places}f}".replace(",", "\0").replace(".", decimal)
    return text.replace("\0", group)


@settings(max_examples=60, deadline=None)
@given(st.lists(amounts, min_size=1, max_size=6), st.sampled_from([(",", "."), (".", ","), (",", " "), (".", "'")]))
def test_numbers_of_every_spelling_come_back_exactly(tmp_path_factory, values, marks):
    folder = tmp_path_factory.mktemp("numbers")
    kind, found = column(folder, *(spelled(value, *marks, 2) for value in values))
    assert kind == "numeric"
    assert found == [float(value) for value in values]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(10**9), 10**9).map(lambda n: n / 1000), min_size=1, max_size=5),
    st.sampled_from([(",", "."), (".", ","), (",", ""), (".", "")]),
    st.sampled_from([";", "|"]),
)
def test_three_decimals_are_read_right_or_asked_about(tmp_path_factory, values, marks, separator):
    """The hard case: 1,234. A wrong number is the one thing that must not come out, where commas are about."""
    folder, texts = tmp_path_factory.mktemp("numbers"), [spelled(value, *marks, 3) for value in values]
    try:
        _, found = column(folder, *texts, separator=separator)
    except DataError:
        _, found = column(folder, *texts, separator=separator, form=FileForm(decimal=marks[0]))
    np.testing.assert_allclose(np.array(found, dtype=float), values, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=5), st.sampled_from([".", ",", " ", "'", ""]))
def test_whole_numbers_with_thousands_are_read_right_or_asked_about(tmp_path_factory, values, group):
    folder, texts = tmp_path_factory.mktemp("numbers"), [f"{value:,}".replace(",", group) for value in values]
    try:
        _, found = column(folder, *texts)
    except DataError:
        _, found = column(folder, *texts, form=FileForm(decimal="." if group == "," else ","))
    assert found == values


# --- dates ---


@pytest.mark.parametrize(
    "texts",
    [
        ["2024-01-31", "2024-02-01"], ["31.01.2024", "01.02.2024"], ["31/01/2024", "01/02/2024"],
        ["01/31/2024", "02/01/2024"], ["31-01-2024", "1-2-2024"], ["31 Jan 2024", "1 February 2024"],
        ["Jan 31, 2024", "Feb 1, 2024"], ["2024/01/31", "2024/02/01"], ["2024-01-31", "01.02.2024"],
    ],
)  # fmt: skip
def test_dates_in_many_forms_are_dates(tmp_path, texts):
    assert column(tmp_path, *texts) == ("date", [dt.date(2024, 1, 31), dt.date(2024, 2, 1)])


def test_dates_with_a_time_and_dates_without_marks(tmp_path):
    assert column(tmp_path, "31.01.2024 06:00", "01.02.2024 7:30:15")[1][1] == dt.datetime(2024, 2, 1, 7, 30, 15)
    assert column(tmp_path, "20240131", "20240201", "19991231", separator=",")[0] == "date"
    form = FileForm(forms={"x": "number"})
    assert column(tmp_path, "20240131", "20240201", "19991231", form=form)[0] == "numeric"
    assert column(tmp_path, "20240131", "20249999", "19991231")[0] == "numeric"


@pytest.mark.parametrize(
    "texts",
    [
        ["05/02/2024", "03/04/2024"],
        ["31/01/2024", "01/31/2024"],
        ["01.02.45", "03.04.46"],
        ["30.02.2024", "01.02.2024"],
    ],
)
def test_dates_that_may_mean_two_days_are_asked_about(tmp_path, texts):
    refused(tmp_path, *texts, words=["categorical"])


def test_a_short_year_among_long_ones_is_said_to_be_one(tmp_path):
    refused(tmp_path, "31.01.2024", "01.02.2024", "03.02.24", words=["line 4", "two digits", "two centuries"])


# --- Excel ---


def test_excel_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"fedsift\[excel\]"):
        Table.read(written(tmp_path, "x", name="bank.xlsx"), id="who")


def test_an_excel_sheet_is_read_as_its_csv_would_be(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [
        ["who", "n", "zip", "day", "yes", "text"],
        [7, 1.5, "01067", dt.datetime(2024, 1, 31), True, "u"],
        [8, None, "10115", dt.datetime(2024, 2, 1), False, "v"],
    ]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "bank.xlsx")
    table = Table.read(tmp_path / "bank.xlsx", id="who")
    assert table.ids.tolist() == ["7", "8"]
    assert list(table.kinds.values()) == ["numeric", "categorical", "date", "boolean", "categorical"]
    book.create_sheet("more").append(["who", "f"])
    book["more"].append([7, "=1+1"])
    book.save(tmp_path / "bank.xlsx")
    with pytest.raises(DataError, match="sheet"):
        Table.read(tmp_path / "bank.xlsx", id="who")
    with pytest.raises(DataError, match="formula"):
        Table.read(tmp_path / "bank.xlsx", id="who", form=FileForm(sheet="more"))


# --- mistakes that would widen what is disclosed ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": {"bnak": ["a"]}}, "columns names the party 'bnak'"),
        ({"categorical": {"shp": ["b"]}}, "categorical names the party 'shp'"),
        ({"id": {"bank": "who", "shpo": "who"}}, "id names the party 'shpo'"),
        ({"id": {"bank": "who"}}, "id has no column for the party 'shop'"),
        ({"label": None}, r"label is \(party, column\)"),
        ({"label": None, "partition": "horizontal"}, "the label column's name"),
        ({"label": {"bank": "y", "shp": "y"}, "partition": "horizontal"}, "label names the party 'shp'"),
    ],
)
def test_a_party_that_is_not_there_is_an_error_and_not_all_columns(options, words):
    tables = {
        "bank": {"who": list("abcdefghijkl"), "a": range(12), "y": [0, 1] * 6},
        "shop": {"who": list("abcdefghijkl"), "b": range(12), "y": [0, 1] * 6},
    }
    frames = {name: pd.DataFrame(table) for name, table in tables.items()}
    with pytest.raises(ParameterError, match=words):
        fs.Federation.from_tables(frames, **{"id": "who", "label": ("bank", "y"), **options})


def test_a_report_with_an_unknown_ending_is_refused_and_nothing_is_written(tmp_path, small_fed):
    fitted = fs.AllFeatures().fit(small_fed)
    for ending in ("bank.csv", "r.pdf", "r"):
        with pytest.raises(ParameterError, match=r"\.html"):
            fitted.report(tmp_path / ending)
    assert not list(tmp_path.iterdir())


# --- three messy files, from init to apply ---


@pytest.fixture
def three(tmp_path):
    """A German bank export, an American shop export and a clinic's in UTF-16, about the same 60 people."""
    draws = np.random.default_rng(3)
    bank = ["Kunde;PLZ;Einkommen;Seit;Ausfall;Mahnstufe;Währung;Cent"]
    shop = ["client,basket,share,last_seen,email,member"]
    clinic = ["patient\tvisits\tnote\tanswer"]
    for i in range(60):
        income, default = draws.uniform(900, 90000), int(draws.random() < 0.4)
        german = f"{income:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
        bank.append(f"{i:05d};{i % 7:02d}067;{german} €;{i % 28 + 1:02d}.03.2020;{default};{default * 3};€;{i * 7}")
        shop.append(f'{i:05d},"${draws.uniform(1000, 9999):,.2f}",{i}%,{i % 12 + 1}/{i % 28 + 1}/2021,m{i}@x.org,{i}')
        clinic.append(f"{i:05d}\t{draws.integers(9)}\t{'yes' if i % 3 else 'Yes'}\t{'5' if i % 4 == 0 else 'word'}")
    files = {
        "bank": written(tmp_path, "\r\n".join(bank), "cp1252", "bank.csv"),
        "shop": written(tmp_path, "\n".join(shop), "utf-8-sig", "shop.csv"),
        "clinic": written(tmp_path, "\n".join(clinic), "utf-16", "clinic.csv"),
    }
    return files


def fedsift(*args):
    return CliRunner().invoke(cli.app, [str(each) for each in args])


def test_three_messy_files_go_from_init_to_check_with_a_warning_for_each_trap(three, tmp_path):
    job = tmp_path / "job.toml"
    asked = fedsift("init", *three.values(), "--out", job)
    assert (asked.exit_code, job.exists()) == (2, False)
    assert "--label COLUMN" in asked.stderr
    made = fedsift("init", *three.values(), "--label", "Ausfall", "--out", job)
    assert made.exit_code == 0, made.output
    assert fedsift("init", *three.values(), "--label", "Ausfall", "--out", job).exit_code == 2  # never overwritten
    result = fedsift("check", job, "--format", "json", "-q")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["rows"] == 60
    each = {c["column"]: c for party in facts["parties"].values() for c in party["each"]}
    assert each["PLZ"]["kind"] == "categorical"
    assert each["Einkommen"]["written"] == "money (€), decimal comma"
    assert each["Seit"]["kind"] == each["last_seen"]["kind"] == "date"
    assert each["share"]["written"] == "percent"
    warnings = "\n".join(w for party in facts["parties"].values() for w in party["warnings"])
    for words in (
        "Währung: constant", "Mahnstufe: tells the label 'Ausfall' nearly alone", "email: a different text in each row",
        "member: says the same as share", "note: some of its texts differ only by capitals", "answer: kinds mix",
    ):  # fmt: skip
        assert words in warnings
    text = fedsift("check", job, "-q").stdout
    assert "cp1252, semicolons between values" in text
    assert "warning: clinic: answer" in text


def test_ids_that_repeat_are_found_by_init_and_named(three, tmp_path):
    text = three["bank"].read_text("cp1252")
    three["bank"].write_text("\n".join([text, text.splitlines()[3]]), "cp1252")
    made = fedsift("init", *three.values(), "--label", "Ausfall", "--out", tmp_path / "job.toml")
    assert "bank: 1 rows have an id of another row" in made.stdout
    assert "appears twice" in fedsift("check", tmp_path / "job.toml", "-q").stderr


def test_ids_whose_zeros_a_spreadsheet_has_cut_are_told_from_files_that_share_nothing(three, tmp_path):
    text = three["clinic"].read_text("utf-16")
    cut = re.sub(r"(?m)^0+(?=\d)", "", text)
    three["clinic"].write_text(cut, "utf-16")
    said = fedsift("init", *three.values(), "--label", "Ausfall", "--out", tmp_path / "job.toml").stderr
    assert "clinic: 'patient' has 60 values of 'Kunde' of bank once leading zeros" in said
    assert "shop" not in said
    three["clinic"].write_text("patient\tx\n" + "\n".join(f"q{i}\t{i % 3}" for i in range(60)), "utf-16")
    other = fedsift("init", *three.values(), "--label", "Ausfall", "--out", tmp_path / "job.toml").stderr
    assert "clinic: no column has values of a column of bank" in other


def test_a_class_of_one_row_is_warned_of(tmp_path):
    frame = pd.DataFrame({"x": range(30), "y": ["a"] * 15 + ["b"] * 14 + ["c"]})
    assert "y: 1 of its 3 classes have one row only" in look_at(Table.read(frame, id=None, label="y")).warnings


def test_apply_changes_no_value_and_keeps_the_id(three, tmp_path):
    chosen = fs.Selection("test", {"bank": ["Einkommen", "PLZ"]}, details={"id": "Kunde"}).save(tmp_path / "s.json")
    result = fedsift("apply", chosen, three["bank"])
    assert result.exit_code == 0, result.output
    whole = [line.split(";") for line in three["bank"].read_text("cp1252").splitlines()]
    kept = [line.split(";") for line in (tmp_path / "bank-selected.csv").read_text("cp1252").splitlines()]
    assert kept == [[line[0], line[2], line[1]] for line in whole]


def test_apply_leaves_the_cells_of_an_excel_sheet_as_they_are(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, day = openpyxl.Workbook(), dt.datetime(2024, 2, 1)
    cells = [
        ["who", "amount", "left out", "day", "text"],
        ["007", "1,50", 1, day, "=SUM"],
        ["008", 2.25, None, day, None],
    ]
    for row in cells:
        book.active.append(row)
    book.active["E2"].data_type = "s"
    book.save(tmp_path / "bank.xlsx")
    chosen = fs.Selection("test", {"bank": ["text", "amount", "day"]}).save(tmp_path / "s.json")
    done = fedsift("apply", chosen, tmp_path / "bank.xlsx", "--id", "who")
    assert done.exit_code == 0, done.output
    sheet = openpyxl.load_workbook(tmp_path / "bank-selected.xlsx").active
    assert list(sheet.values) == [(row[0], row[4], row[1], row[3]) for row in cells]
    assert sheet["B2"].data_type == "s", "a text is no formula"


def test_apply_leaves_the_types_of_a_parquet_file(tmp_path):
    frame = pd.DataFrame({"who": [1, 2], "x": pd.Series([1.5, None], dtype="float32"), "z": [1, 2]})
    frame.to_parquet(tmp_path / "t.parquet")
    chosen = fs.Selection("test", {"p": ["x"]}).save(tmp_path / "s.json")
    result = fedsift("apply", chosen, tmp_path / "t.parquet", "--id", "who")
    assert result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t-selected.parquet"), frame[["who", "x"]])


# --- a second look, at files with other traps ---


def test_a_blank_line_is_no_row_and_line_numbers_stay_those_of_the_file(tmp_path):
    text = "who;x;y\r\n\r\na;1;2\r\n   \r\n\r\nb;3;4\r\n"
    table = Table.read(written(tmp_path, text), id="who")
    assert (table.n_rows, table.values("x").tolist()) == (2, [1, 3])
    with pytest.raises(DataError, match="line 7 is not"):
        Table.read(written(tmp_path, text + "d;word;5\ne;6;7\n"), id="who")
    with pytest.raises(DataError, match="line 7 has 4 values"):
        Table.read(written(tmp_path, text + "d;5;6;7\n"), id="who")
    quoted = 'who,note\na,"one\n\ntwo"\n\nb,three\n'
    assert Table.read(written(tmp_path, quoted), id="who").codes("note")[1] == ["one\n\ntwo", "three"]
    alone = Table.read(written(tmp_path, "x\n1\n\n3\n"), id=None)
    assert np.isnan(alone.values("x")).tolist() == [False, True, False], "in one column it is a missing value"


def test_apply_goes_past_blank_lines(tmp_path):
    path = written(tmp_path, "who;x;y\na;1;2\n\nb;03;4\n")
    chosen = fs.Selection("test", {"bank": ["x"]}, details={"id": "who"}).save(tmp_path / "s.json")
    assert fedsift("apply", chosen, path).exit_code == 0
    assert (tmp_path / "bank-selected.csv").read_text() == "who;x\na;1\nb;03\n"


@pytest.mark.parametrize("mark", ["-", "--", ".", "n/a", "NULL"])
def test_marks_for_nothing_are_missing_values(tmp_path, mark):
    kind, values = column(tmp_path, "1.5", mark, "2.5", mark, mark, mark)
    assert kind == "numeric"
    assert values == [1.5, None, 2.5, None, None, None]


def test_all_unclear_columns_are_told_at_once_and_init_writes_them_down_as_questions(tmp_path):
    rows = [
        f"p{i},{'1' if i % 3 else 'two'},{i % 28 + 1}/{i % 12 + 1}/8{i % 10},{'12%' if i % 2 else '0.12'}"
        for i in range(30)
    ]
    lab = written(tmp_path, "who,mixed,born,ratio\n" + "\n".join(rows), name="lab.csv")
    bank = written(tmp_path, "who,y,x\n" + "\n".join(f"p{i},{i % 2},{i}" for i in range(30)))
    with pytest.raises(DataError) as caught:
        Table.read(lab, id="who")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("mixed", "born", "ratio")):
        assert f'say categorical = ["{name}"]' in line
    assert "day first" not in lines[1], "it would not help: years of two digits are not read"
    job = tmp_path / "job.toml"
    made = fedsift("init", bank, lab, "--label", "y", "--out", job)
    assert made.exit_code == 0, made.output
    assert made.stdout.count("to decide: ") == 3
    assert fedsift("check", job, "-q").exit_code == 3  # nothing is guessed
    text = job.read_text()
    assert '# categorical = ["mixed", "born", "ratio"]' in text
    job.write_text(text.replace("# categorical", "categorical"))
    assert fedsift("check", job, "-q").exit_code == 0


def test_stand_ins_for_missing_values_are_warned_of():
    values = np.random.default_rng(0).integers(18, 90, 60).astype(float)
    frame = pd.DataFrame({"a": values, "b": values, "c": values, "d": values, "big": 1000 * values})
    frame.loc[:5, "a"], frame.loc[:5, "b"], frame.loc[:5, "c"], frame.loc[0, "d"] = 999, -1, 95, 999
    frame.loc[:5, "big"] = 99_999
    warnings = "\n".join(look_at(Table.read(frame, id=None)).warnings)
    assert "a: one value stands far from all others, 6 times" in warnings
    for name in ("b", "c", "d", "big"):  # -1 is near 18, 95 may be an age, once may be true, 99,999 lies near 89,000
        assert f"{name}: one value" not in warnings


def test_a_column_that_is_filled_for_one_class_only_is_a_leak_and_not_constant():
    y = np.arange(60) % 3 == 0
    frame = pd.DataFrame({"x": np.arange(60.0), "closed_on": np.where(y, "2024-03-15", None), "y": y.astype(int)})
    frame["closed_on"] = pd.to_datetime(frame["closed_on"])
    warnings = look_at(Table.read(frame, id=None, label="y")).warnings
    assert "closed_on: tells the label 'y' nearly alone: was it known before the outcome?" in warnings
    assert not any("constant" in warning for warning in warnings)


def test_two_lists_of_ids_are_not_called_copies():
    frame = pd.DataFrame({"mail": [f"{i}@x" for i in range(30)], "phone": [f"+{i}" for i in range(30)]})
    assert not any("copy" in warning for warning in look_at(Table.read(frame, id=None)).warnings)


# --- what three other messy files found: read wrongly in silence, or asked about and not to be answered ---


def warned(tmp_path, *values, separator=";", name="x"):
    lines = [f"who{separator}{name}", *(f"p{i}{separator}{value}" for i, value in enumerate(values))]
    return look_at(Table.read(written(tmp_path, "\n".join(lines) + "\n"), id="who")).warnings


def test_a_mark_for_nothing_at_every_place_that_is_looked_at_does_not_make_text_of_numbers(tmp_path):
    values = ["k.A." if i % 10 == 0 else f"0,{i:03d}" for i in range(240)]
    refused(tmp_path, *values, words=["mixes numbers and text", "line 2 is not", "missing = [...]"])
    kind, numbers = column(tmp_path, *values, form=FileForm(missing=["k.A."], decimal=","))
    assert (kind, numbers[0], numbers[1]) == ("numeric", None, 0.001)


def test_digits_of_other_scripts_are_text_and_not_missing_values(tmp_path):
    assert column(tmp_path, "１２", "３４") == ("categorical", ["１２", "３４"])
    assert column(tmp_path, "١٢", "٣٤") == ("categorical", ["١٢", "٣٤"])


def test_what_stands_for_no_value_may_be_said(tmp_path):
    form = FileForm(missing=["-999", "unknown"])
    assert column(tmp_path, "-999", "5", "unknown", form=form) == ("numeric", [None, 5, None])


def test_months_in_german_are_dates(tmp_path):
    texts = ["1. März 2024", "02. Mrz 2024", "3 Mai 2024", "4. Okt 2024", "5. Dezember 2024"]
    assert column(tmp_path, *texts)[1] == [dt.date(2024, month, i + 1) for i, month in enumerate((3, 3, 5, 10, 12))]


@pytest.mark.parametrize("ends", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("first", ["", "sep=;", '"sep=;"'])
def test_line_ends_of_all_kinds_and_excels_first_line(tmp_path, ends, first):
    lines = [*([first] if first else []), "who;x", "a;1,5", "b;2,5", "", "c;9;9"]
    table = Table.read(written(tmp_path, ends.join(lines[:-2])), id="who")
    assert table.values("x").tolist() == [1.5, 2.5]
    with pytest.raises(DataError, match=f"line {len(lines)} has 3 values"):
        Table.read(written(tmp_path, ends.join(lines)), id="who")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([f"{i % 7} kg" for i in range(30)], "its texts begin with numbers"),
        ([f"2024-{i % 12 + 1:02d}" for i in range(30)], "its texts begin with numbers"),
        ([f"{i + 1}.{i + 101}" for i in range(30)], "three digits behind each point"),
        ([9007199254740993 + 7 * i for i in range(30)], "16 digits and more"),
        ([-1 if i % 2 else i for i in range(40)], "first or last of all, 20 times"),
        (
            ["1900-01-01" if i % 5 == 0 else f"2024-03-{i % 28 + 1:02d}" for i in range(40)],
            "stands far from all others",
        ),
    ],
)
def test_what_is_read_but_looks_odd_is_warned_of(tmp_path, values, words):
    assert any(words in warning for warning in warned(tmp_path, *values, separator=","))


@pytest.mark.parametrize(
    "values", [[f"k{i % 5}" for i in range(30)], [i / 7 for i in range(30)], [i % 4 for i in range(30)]]
)
def test_what_is_not_odd_is_not_warned_of(tmp_path, values):
    assert warned(tmp_path, *values, separator=",") == []


def test_a_postcode_without_zeros_is_asked_about(tmp_path):
    assert any("codes that look like numbers" in w for w in warned(tmp_path, *range(10115, 10155, 1), name="plz"))


def test_ids_that_will_not_meet_are_warned_of(tmp_path):
    def of(ids):
        return look_at(Table.read(pd.DataFrame({"who": ids, "x": range(len(ids))}), id="who")).warnings

    assert any("capitals" in each for each in of(["K1", "k1", "K2", "K3"]))
    assert any("spreadsheet has cut" in each for each in of([f"1.{i}E+11" for i in range(10, 30)]))
    assert any(
        "2 ids are written otherwise" in each for each in of([f"KD {i}" for i in range(40)] + ["Total", "kd 99"])
    )
    assert not any(each.startswith("who:") for each in of([f"KD {i}" for i in range(40)]))


def test_an_encoding_that_was_guessed_is_told(tmp_path):
    path = written(tmp_path, "who;x\na;Łódź\nb;x\n", "cp1250")
    assert any("a guess" in each for each in look_at(Table.read(path, id="who")).warnings)
    told = FileForm(encoding="cp1250")
    assert not any("a guess" in each for each in look_at(Table.read(path, id="who", form=told)).warnings)


def test_a_column_that_is_filled_after_the_outcome_only_is_a_leak_wherever_its_dates_lie():
    draws = np.random.default_rng(2)
    label = (draws.random(240) < 0.4).astype(int)
    day = pd.Series(pd.Timestamp("2024-05-01") + pd.to_timedelta(draws.integers(0, 27, 240), unit="D"))
    frame = pd.DataFrame({"closed": day.where(label == 1), "y": label})
    assert any("closed: tells the label" in w for w in look_at(Table.read(frame, id=None, label="y")).warnings)


def test_the_same_amount_rounded_in_two_currencies_is_named():
    values = np.random.default_rng(1).lognormal(3, 1, 100)
    frame = pd.DataFrame({"usd": (values * 100).round(2), "eur": (values * 93).round(2), "z": values[::-1]})
    warnings = look_at(Table.read(frame, id=None)).warnings
    assert [w for w in warnings if "same order" in w] == [
        "eur: puts the rows in the same order as usd: the same in another unit?"
    ]


def test_how_a_file_was_written_goes_with_the_partys_copy_and_the_model(three, tmp_path):
    """apply and predict read a file as the run read it, also where its own values leave it open."""
    job = tmp_path / "job.toml"
    assert fedsift("init", *three.values(), "--label", "Ausfall", "--out", job).exit_code == 0
    assert fedsift("run", job, "--out", tmp_path / "result", "-q").exit_code == 0
    told = json.loads((tmp_path / "result" / "selection-shop.json").read_text())["details"]["form"]
    assert told["forms"]["last_seen"] == "month first"
    assert FileForm.read(told).dates_of("last_seen") == "month first"
    with pytest.raises(DataError, match="cannot be read"):
        FileForm.read({"decimal": "-"})


def test_a_party_that_is_played_elsewhere_reads_its_file_as_the_job_says(three, tmp_path):
    from fedsift.deploy.run import party_text
    from fedsift.jobs.job_file import load_job
    from fedsift.jobs.text import Source
    from fedsift.site.settings import checked_party

    job = tmp_path / "job.toml"
    fedsift("init", *three.values(), "--label", "Ausfall", "--out", job)
    said = [
        'parties.bank.forms={"Größe 😀" = "day first"}',
        'parties.bank.missing=["k.A.", "-9"]',
        'parties.bank.decimal=","',
    ]
    loaded = load_job(job, said)
    text = party_text(loaded, "bank")
    import tomllib

    read = checked_party(Source(tmp_path / "party.toml", text, tomllib.loads(text)))
    assert read.party.form == loaded.settings.parties["bank"].form
