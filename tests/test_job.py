"""The job file: every mistake is named with its line, its key and the way out."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsift.errors import DataError, JobError
from fedsift.jobs.job_file import load_job
from fedsift.methods import METHODS

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"
GOOD = """\
[parties.bank]
file = "bank.csv"
id = "customer"
label = "default"

[parties.shop]
file = "shop.csv"
id = "client"

[method]
name = "information_value"
n_features = 4
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    for name in ("bank.csv", "shop.csv"):
        shutil.copy(EXAMPLE / name, folder)
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str, overrides=()) -> str:
    with pytest.raises(JobError) as caught:
        load_job(write(folder, text), overrides)
    return str(caught.value)


def test_paths_start_at_the_job_file_not_at_the_working_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = load_job(write(folder, GOOD))
    assert {name: table.n_rows for name, table in job.tables().items()} == {"bank": 270, "shop": 270}
    assert job.out == folder / "job-result"
    assert job.selector().get_params()["n_features"] == 4


def test_the_example_that_newcomers_copy_is_valid():
    job = load_job(EXAMPLE / "job.toml")
    assert job.method in METHODS
    assert job.tables()["bank"].label_name == "default"


MISTAKES = {
    "misspelt parameter": ("n_features = 4", "n_feature = 4", 12, "method.n_feature", "did you mean 'n_features'?"),
    "misspelt method": ("information_value", "informaton_value", 11, "method.name", "mean 'information_value'?"),
    "far-off method": ("information_value", "xyz", 11, "method.name", "there are: auto, muse"),
    "key of another table": (
        "n_features = 4",
        '[federation]\nid = "client"',
        13,
        "federation.id",
        "it belongs to [parties.NAME]",
    ),
    "misspelt key": ('id = "client"', 'ids = "client"', 8, "parties.shop.ids", "did you mean 'id'?"),
    "missing file key": ('file = "shop.csv"\n', "", 6, "parties.shop.file", "expected a file name"),
    "missing file": ("shop.csv", "shpo.csv", 7, "parties.shop.file", "did you mean 'shop.csv'?"),
    "number for a name": ('id = "client"', "id = 5", 8, "parties.shop.id", "got 5"),
    "text for a list": (
        'id = "client"',
        'id="client"\ncolumns = "visits"',
        9,
        "parties.shop.columns",
        "expected a list",
    ),
    "two labels": ('id = "client"', 'id = "client"\nlabel = "visits"', 9, "parties.shop.label", "bank and shop"),
    "one id only": ('id = "client"\n', "", 6, "parties.shop", "id is missing"),
    "bad choice": ("n_features = 4", '[federation]\ntask = "classify"', 13, "federation.task", '"classification"'),
    "negative timeout": ("n_features = 4", "[federation]\ntimeout = -1", 13, "federation.timeout", "above 0"),
    "text for a number": ("n_features = 4", '[evaluate]\ntrain = "0.7"', 13, "evaluate.train", "between 0 and 1"),
    "unquoted text": ('"shop.csv"', "shop.csv", 7, "file = shop.csv", "text needs quotes"),
    "colon": ("n_features = 4", "n_features: 4", 12, "n_features: 4", "key = value"),
    "unclosed header": ("[parties.shop]", "[parties.shop", 6, "[parties.shop", "not valid TOML"),
    "unknown section": ("n_features = 4", '[outputs]\ndir = "x"', 12, "outputs", "did you mean 'output'?"),
    "folder in a name": ("[parties.shop]", '[parties."../shop"]', 6, "../shop", "cannot be a party's name"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_a_mistake_is_named_with_line_key_and_remedy(folder, mistake):
    before, after, line, key, remedy = MISTAKES[mistake]
    assert before in GOOD
    message = complaint(folder, GOOD.replace(before, after))
    assert f"job.toml, line {line}: " in message
    assert key in message
    assert remedy in message


def test_all_mistakes_are_reported_at_once(folder):
    text = GOOD.replace('id = "client"', "id = 5").replace('label = "default"', 'lable = "default"')
    lines = complaint(folder, text).splitlines()
    assert len(lines) == 2
    assert any("line 4" in line for line in lines)
    assert any("line 8" in line for line in lines)


@pytest.mark.parametrize("text", ["", "# nothing\n", "[method]\n", 'parties = "x"\n', "method = 3\n", "[[parties]]\n"])
def test_a_nearly_empty_file_is_no_crash(folder, text):
    assert "expected" in complaint(folder, text)


def test_a_file_that_is_not_there_or_not_toml_is_named(folder):
    with pytest.raises(JobError, match=r"there is no job file .*jbo\.toml; did you mean 'job\.toml'"):
        load_job(write(folder, GOOD).with_name("jbo.toml"))
    with pytest.raises(JobError, match="is a folder"):
        load_job(folder)
    with pytest.raises(JobError, match="not valid TOML; is this the job file") as caught:
        load_job(folder / "bank.csv")
    assert "C35139" not in str(caught.value)  # a table given by mistake is not quoted
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JobError, match="not a text file"):
        load_job(folder / "binary.toml")


def test_a_column_that_is_not_in_the_file_leads_back_to_the_job_file(folder):
    job = load_job(write(folder, GOOD.replace('label = "default"', 'label = "defualt"')))
    with pytest.raises(DataError, match=r"line 4: .*'defualt' is not there. Did you mean 'default'"):
        job.tables()
    job = load_job(write(folder, GOOD.replace('id = "client"', 'id = "client"\ncolumns = ["visit"]')))
    with pytest.raises(DataError, match=r"line 9: .*'visit' is not there. Did you mean 'visits'"):
        job.tables()


def test_a_parameter_that_the_method_refuses_leads_back_to_its_line(folder):
    job = load_job(write(folder, GOOD.replace("n_features = 4", "n_features = 4\nn_bins = 1")))
    fed = job.federation(job.tables())
    with pytest.raises(JobError, match=r"line 13: method\.n_bins must be .*got 1"):
        job.check_parameters(job.selector(), fed)
    job = load_job(write(folder, GOOD.replace("n_features = 4", "")), ["method.n_features=0"])
    with pytest.raises(JobError, match=r'--set method\.n_features=0: method\.n_features must .*or "none"; got 0'):
        job.check_parameters(job.selector(), fed)


# --- --set and none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), (" 7", 7), ("0.5", 0.5), ("true", True), ('"text"', "text"), ("text", "text"), ("[1, 2]", [1, 2])],
)
def test_set_reads_toml_values_and_takes_bare_words_as_text(folder, monkeypatch, text, value):
    class Anything(METHODS["all"]):
        def __init__(self, *, thing=None):
            self.thing = thing

    monkeypatch.setitem(METHODS, "anything", Anything)
    job = load_job(write(folder, GOOD.replace("n_features = 4", "")), ["method.name=anything", f"method.thing={text}"])
    assert job.selector().thing == value
    assert type(job.selector().thing) is type(value)


def test_set_wins_over_the_file_and_can_add_a_section(folder):
    job = load_job(write(folder, GOOD), ["method.n_features=9", "output.dir=elsewhere", "federation.min_overlap=50"])
    assert job.parameters["n_features"] == 9
    assert job.out == folder / "elsewhere"
    assert job.settings.federation.min_overlap == 50


@pytest.mark.parametrize("text", ["method", "method.n_bins", "=3", "method.n_bins=", "a b=3", "x=1\ny=2", "x=]"])
def test_a_malformed_set_is_refused_and_shown(folder, text):
    assert "KEY=VALUE" in complaint(folder, GOOD, [text])


def test_a_wrong_set_is_blamed_on_the_option_not_on_a_line(folder):
    message = complaint(folder, GOOD, ["method.n_feature=3"])
    assert message.startswith("--set method.n_feature=3: ")
    assert "did you mean 'n_features'?" in message


def test_a_threshold_can_be_given_although_toml_has_no_null(folder):
    job = load_job(write(folder, GOOD.replace("n_features = 4", "threshold = 0.1")))
    assert job.parameters == {"threshold": 0.1, "n_features": None}
    job = load_job(write(folder, GOOD.replace("n_features = 4", 'threshold = 0.1\nn_features = "none"')))
    assert job.parameters == {"threshold": 0.1, "n_features": None}
    both = load_job(write(folder, GOOD.replace("n_features = 4", "threshold = 0.1\nn_features = 4")))
    assert both.parameters["n_features"] == 4  # two wishes: the method itself refuses that


# --- properties ------------------------------------------------------------------------------------------------------

_SECTIONS = GOOD.rstrip().split("\n\n")
_quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_quick
@given(st.permutations(_SECTIONS), st.lists(st.sampled_from(["", "# [method]", "# n_feature = 3", "  "]), max_size=4))
def test_the_line_is_right_wherever_the_key_stands(folder, sections, filling):
    lines = "\n".join([*filling, *"\n\n".join(sections).split("\n")]).split("\n")
    position = next(i for i, line in enumerate(lines) if line.startswith("n_features"))
    lines[position] = " n_feature=4 # n_feature = 5"
    assert f"line {position + 1}: method.n_feature: " in complaint(folder, "\n".join(lines))


@pytest.mark.parametrize(
    "method", ['method.name = "gini"\nmethod.bin = 3', 'method = {name = "gini", bin = 3}', "\"method\".'bin' = 3"]
)
def test_dotted_and_inline_keys_have_a_line_too(folder, method):
    text = f"{method}\n" + "\n\n".join(_SECTIONS[:2])
    if "name" not in method:
        text = 'method.name = "gini"\n' + text
    number = next(i for i, line in enumerate(text.split("\n"), 1) if "bin" in line)
    assert f"line {number}: method.bin: unknown parameter of gini; did you mean 'n_bins'?" in complaint(folder, text)


@_quick
@given(st.data())
def test_a_damaged_file_is_a_job_error_or_a_job_never_a_crash(folder, data):
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.text("[]{}=\"'.,#\n 0a-\\\t", max_size=5)) + text[end:]
    with suppress(JobError):
        load_job(write(folder, text))


def grid_job(folder: Path, places: dict[str, str], partition: str = "hybrid", labels: tuple[str, ...] = ("a", "c")):
    """Four parties, two people's lists x two sets of columns, the rows of each list in another order."""
    text = f'[federation]\npartition = "{partition}"\n[method]\nname = "random"\nn_features = 2\n'
    for number, (name, place) in enumerate(places.items()):
        people = [f"p{i}" for i in range(20)] if name in "ab" else [f"q{i}" for i in range(30)]
        people = people[number:] + people[:number]
        column, label = ("x" if name in "ac" else "z"), ",y" if name in labels else ""
        rows = "\n".join(f"{p},{i % 7},{i % 3}{f',{p[1:]}.5' if label else ''}" for i, p in enumerate(people))
        (folder / f"{name}.csv").write_text(f"person,{column}1,{column}2{label}\n{rows}\n", encoding="utf-8")
        text += f'[parties.{name}]\nfile = "{name}.csv"\nid = "person"\n{place}\n'
        text += 'label = "y"\n' if label else ""
    return text


PLACES = {"a": "grid = [0, 0]", "b": "grid = [0, 1]", "c": "grid = [1, 0]", "d": "grid = [1, 1]"}


def test_hybrid_parties_are_aligned_block_by_block(tmp_path):
    job = load_job(write(tmp_path, grid_job(tmp_path, PLACES)))
    fed = job.federation(job.tables())
    assert fed.grid == {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1)}
    assert fed.n_rows == 50
    kept = job.selector().fit(fed).selected_
    assert kept["a"] == kept["c"]
    assert kept["b"] == kept["d"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"places": {**PLACES, "d": ""}}, "hybrid parties say where they stand: grid = [row block, column block]"),
        ({"places": {**PLACES, "d": "grid = [1, 0]"}}, "parties.d.grid: c stands on this place already"),
        ({"places": {**PLACES, "d": "grid = [1]"}}, "row block and column block, such as [1, 2]"),
        ({"places": PLACES, "labels": ("a",)}, "no party of row block 1 has a label"),
        ({"places": PLACES, "partition": "vertical", "labels": ("a",)}, 'grid is for partition = "hybrid"'),
    ],
)
def test_a_grid_that_makes_no_sense_is_named(tmp_path, change, said):
    assert said in complaint(tmp_path, grid_job(tmp_path, **change))
