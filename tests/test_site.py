"""A site with a policy: each rule refuses, says so by name at the coordinator, and nothing goes round it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Recording

import fedsift as fs
from fedsift.core import party
from fedsift.core.job import Job
from fedsift.core.message import decode, encode
from fedsift.core.operation import _plugins, _registry, operation, operations
from fedsift.core.row_draws import draw_rows
from fedsift.core.transports.inprocess import InProcess
from fedsift.engineer.flafe.products import multiply_columns, multiply_noisy
from fedsift.errors import DataError, JobError, OperationRefused, ParameterError, PolicyRefused
from fedsift.jobs.job_file import load_job
from fedsift.methods import METHODS, GiniFilter, GroupLasso, InformationValue, Muse, RandomFeatures
from fedsift.mpc.column_scores.label_tables import open_counts
from fedsift.mpc.encrypted_labels import encrypt_classes
from fedsift.mpc.psi import align
from fedsift.site.policy import FREE, Policy, listed
from fedsift.site.record import SiteLedger
from fedsift.site.settings import load_party
from fedsift.site.site import PolicySite, open_site

PARTY = """\
[party]
name = "bank"
file = "data/bank.csv"
id = "customer"
label = "outcome"
columns = ["signal", "noise", "colour"]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    X, y = mixed_table(80)
    X.insert(0, "customer", [f"c{i}" for i in range(80)])
    X.assign(outcome=np.where(y == 1, "yes", "no")).to_csv(tmp_path / "data" / "bank.csv", index=False)
    return tmp_path


def write(folder: Path, policy: str = "", text: str = PARTY) -> Path:
    path = folder / "party.toml"
    path.write_text(f"{text}\n[policy]\n{policy}\n", encoding="utf-8")
    return path


def bank(folder: Path, policy: str = "", **job) -> PolicySite:
    return open_site(write(folder, policy), **job)


def federation(site: PolicySite, names: str = "shared") -> fs.Federation:
    """The bank with its policy, and a shop without one, aligned."""
    X, _ = mixed_table(80, seed=1)
    X.insert(0, "client", [f"c{i}" for i in range(80)])
    shop = party.Site("shop", fs.Table.read(X[["client", "weak", "counts"]], id="client", name="shop"))
    transport = InProcess({"bank": site, "shop": shop})
    return fs.Federation(transport, ["bank", "shop"], active="bank", names=names)


def refusal(call) -> PolicyRefused:
    with pytest.raises(PolicyRefused) as caught:
        call()
    assert caught.value.party == "bank"
    assert f"rule {caught.value.rule!r}" in str(caught.value)
    return caught.value


# --- a job within the rules ------------------------------------------------------------------------------------------


def test_a_job_within_the_rules_gives_the_same_answer_as_without_rules(folder):
    site = bank(folder)
    fed = align(federation(site))
    allowed = GiniFilter(n_features=2).fit(fed)
    free = party.Site("bank", site.table)
    assert GiniFilter(n_features=2).fit(align(federation(free))).selected_ == allowed.selected_


def test_the_method_and_its_parameters_are_announced_before_anything_of_it_is_asked(folder):
    fed = federation(bank(folder))
    log = fed._link.transport = Recording(fed._link.transport)
    RandomFeatures(n_features=2).fit(fed)
    first = decode(next(data for _, receiver, data in log.log if receiver == "bank"))
    assert first["operation"] == party.begin_job.id
    job = Job.read(first["arguments"]["job"], "bank")
    assert (job.method, job.parameters) == ("random", {"n_features": 2, "random_state": 0})
    assert (job.parties, job.active, job.coordinator) == (("bank", "shop"), "bank", "neutral")


def test_sites_without_a_policy_accept_every_method(small_fed):
    class Mine(RandomFeatures):
        """Not registered anywhere."""

    assert Mine(n_features=2).fit(small_fed).selection_.n_selected == 2


# --- each rule -------------------------------------------------------------------------------------------------------


def test_a_method_that_is_not_allowed_is_refused_before_it_starts(folder):
    fed = federation(bank(folder, 'methods = ["muse", "information_value"]'))
    error = refusal(lambda: GiniFilter().fit(fed))
    assert error.rule == "methods"
    assert "'gini' is not allowed here; allowed are muse, information_value" in str(error)
    assert set(fed.ledger.frame()["operation"]) == {"core.begin_job", "core.end_session"}


def test_a_method_that_this_site_does_not_know_is_refused_even_where_any_is_allowed(folder):
    class Foreign(RandomFeatures):
        """Registered nowhere."""

    error = refusal(lambda: Foreign().fit(federation(bank(folder))))
    assert error.rule == "methods"
    assert "'Foreign' is not known here" in str(error)


def test_one_method_announced_and_another_one_asked_for(folder):
    fed = federation(bank(folder, 'methods = ["random"]'))
    with fed.session(*RandomFeatures().announcement()) as run:
        error = refusal(lambda: run.ask(encrypt_classes, to="bank", scheme="auto", task="auto"))
    assert error.rule == "methods"
    assert "no part of the announced method 'random'" in str(error)


def test_an_operation_of_a_method_without_an_announcement(folder):
    fed = federation(bank(folder))
    with fed.session() as run:
        error = refusal(lambda: run.ask(encrypt_classes, to="bank", scheme="auto", task="auto"))
    assert error.rule == "methods"
    assert "no method was announced" in str(error)


def test_a_run_cannot_change_its_method_halfway(folder):
    fed = federation(bank(folder))
    asked = pytest.raises(OperationRefused, match="asked 1 times already")
    with fed.session(*RandomFeatures().announcement()) as run, asked:
        run.announce(*GiniFilter().announcement())


def test_an_announcement_ends_with_its_run(folder):
    site = bank(folder)
    fed = federation(site)
    with fed.session(*GiniFilter().announcement()) as run:
        assert site.runs[run._session].job.method == "gini"
    assert site.runs == {}


def test_a_model_trained_inside_a_method_belongs_to_the_method(folder):
    site = bank(folder, "partner_columns = 2")
    fed = federation(site)
    with fed.session(*InformationValue().announcement()) as run, run.session() as inner:
        assert inner._session != run._session
        assert inner.ask(encrypt_classes, to="bank", scheme="auto", task="auto") is not None


def test_plain_is_off_unless_somebody_turns_it_on(folder):
    pytest.importorskip("torch", reason="the extra nn is not installed")
    quick = {"epochs": 1, "batch_size": 40, "protection": "open"}
    error = refusal(lambda: GroupLasso(**quick).fit(align(federation(bank(folder)))))
    assert error.rule == "forms"
    assert "gradient of each row's loss" in str(error)
    on = bank(folder, 'forms = ["ciphertext", "masked", "pseudonymous", "aggregate", "plain"]')
    assert GroupLasso(**quick).fit(align(federation(on))).selection_


def test_ciphertexts_that_open_to_numbers_of_each_row_count_as_what_they_open_to(folder):
    """They were let through as ciphertexts: the other party decrypts the gradient of each row, which is its label."""
    pytest.importorskip("torch", reason="the extra nn is not installed")
    network = fs.SplitNN(epochs=1, batch_size=40, protection="lattice")
    error = refusal(lambda: network.fit(align(federation(bank(folder)))))
    assert error.rule == "forms"
    assert "gradient of each row's loss in the reader's own embedding" in str(error)
    name = "network_lattice.learn_lattice"
    on = bank(folder, f'exceptions = ["column names", "class names", "error messages", "{name}"]')
    assert network.fit(align(federation(on))).parties_


def test_a_product_that_its_holder_can_divide_is_a_column_and_one_with_noise_is_not():
    policy = Policy()
    with pytest.raises(PolicyRefused, match="its columns, which the holder of a product computes"):
        policy._check_form("bank", multiply_columns)
    policy._check_form("bank", multiply_noisy)


def test_an_exception_lets_one_operation_through_and_no_other(folder):
    pytest.importorskip("torch", reason="the extra nn is not installed")
    name = "network.top_round"
    site = bank(folder, f'exceptions = ["column names", "error messages", "{name}"]')
    assert GroupLasso(epochs=1, batch_size=40, protection="open").fit(align(federation(site))).selection_


def test_column_names_stay_here_where_they_are_no_exception(folder):
    site = bank(folder, "exceptions = []")
    error = refusal(lambda: RandomFeatures(n_features=2).fit(federation(site)))
    assert error.rule == "forms"
    assert 'names = "private"' in str(error)
    assert not any(column in str(error) for column in site.table.columns)
    private = RandomFeatures(n_features=2).fit(federation(site, names="private"))
    assert private.selection_.n_selected == 2


def test_alignment_can_be_the_only_thing_that_is_row_by_row(folder):
    forms = 'forms = ["ciphertext", "masked", "aggregate"]'
    assert refusal(lambda: align(federation(bank(folder, forms)))).rule == "forms"
    site = bank(folder, forms + '\nexceptions = ["column names", "alignment"]')
    assert align(federation(site)).n_rows == 80


@pytest.mark.parametrize(("given", "now"), [(4, "is 4"), (None, "is not set"), (1, "is 1")])
def test_a_smaller_cell_than_the_sites_is_refused(folder, given, now):
    fed = align(federation(bank(folder, "min_cell = 5")))
    error = refusal(lambda: Muse(n_features=2, min_cell=given).fit(fed))
    assert error.rule == "min_cell"
    assert f"min_cell {now}" in str(error)
    assert "min_cell = 5" in str(error)


def test_a_cell_that_was_announced_large_and_asked_for_small(folder):
    fed = federation(bank(folder, "min_cell = 5\npartner_columns = 2"))
    asked = {"told": {"sums": {}, "notes": {}, "shapes": {}}}
    with fed.session(*GiniFilter(min_cell=5).announcement()) as run:
        run.ask(encrypt_classes, to="bank", scheme="auto", task="auto")
        with pytest.raises(OperationRefused, match="unknown or missing arguments"):
            run.ask(open_counts, to="bank", min_cell=1, **asked)


def test_the_cell_of_a_request_is_judged_where_an_operation_declares_it():
    def count(party, *, least: int) -> None: ...

    marked = operation("test_site.count", discloses="aggregate", about="counts", min_cell="least")(count)
    try:
        policy = Policy(min_cell=5, plugins=[__name__])
        with pytest.raises(PolicyRefused, match="least is 4"):
            policy.check_operation("bank", dataclasses.replace(marked, id="core.count_table"), {"least": 4}, None)
    finally:
        _registry.pop(marked.id)


def test_what_a_job_does_not_tell_is_the_methods_default(folder):
    policy = Policy(min_cell=11)
    with pytest.raises(PolicyRefused, match="min_cell is 10"):
        policy.check_job("bank", "gini", {})
    policy.check_job("bank", "gini", {"min_cell": 11})
    policy.check_job("bank", "top_gain", {"min_cell": 1, "min_leaf": 11})  # it takes the larger one
    policy.check_job("bank", "sffs", {})  # counts no cells


@pytest.mark.parametrize("value", [0, 0.9, float("nan")])
def test_a_job_with_too_little_noise_in_opened_sums_is_refused_and_the_refusal_says_what_to_do(value):
    with pytest.raises(PolicyRefused, match=r"sum_noise is .*Write sum_noise = 1 .*'boost.half_sums' to exceptions"):
        Policy().check_job("bank", "boost_classifier", {"sum_noise": value})
    Policy().check_job("bank", "boost_classifier", {})
    Policy(exceptions=["boost.half_sums"]).check_job("bank", "boost_classifier", {"sum_noise": 0})


class Noisy(RandomFeatures):
    """A null that takes a privacy budget."""

    name = "noisy"
    epsilon_parameters = ("epsilon",)

    def __init__(self, *, n_features=1, random_state=0, epsilon=None):
        super().__init__(n_features=n_features, random_state=random_state)
        self.epsilon = epsilon


@pytest.mark.parametrize(("epsilon", "fine"), [(0.5, True), (1.0, True), (1.01, False), (None, False)])
def test_more_epsilon_than_the_site_allows_or_none_at_all(folder, monkeypatch, epsilon, fine):
    monkeypatch.setitem(METHODS, "noisy", Noisy)
    fed = federation(bank(folder, "max_epsilon = 1.0"))
    if fine:
        assert Noisy(epsilon=epsilon).fit(fed)
    else:
        assert refusal(lambda: Noisy(epsilon=epsilon).fit(fed)).rule == "max_epsilon"


@pytest.mark.parametrize("rules", ["", "max_epsilon = 1.0"])
@pytest.mark.parametrize("epsilon", ["x", "0.5", 0, -1])
def test_an_epsilon_that_is_no_number_above_0_is_refused_by_every_site(folder, monkeypatch, rules, epsilon):
    monkeypatch.setitem(METHODS, "noisy", Noisy)
    fed = federation(bank(folder, rules))
    with pytest.raises(OperationRefused, match="no number above 0"):
        Noisy(epsilon=epsilon).fit(fed)


def test_a_part_of_the_budget_that_is_not_set_is_no_missing_budget():
    policy = Policy(max_epsilon=1.0)
    policy._check_epsilon("bank", "begin_job", "column_epsilon", None)
    with pytest.raises(PolicyRefused, match="max_epsilon"):
        policy._check_epsilon("bank", "begin_job", "column_epsilon", 2.0)


def test_too_few_shared_rows_are_refused_when_they_are_matched(folder):
    site = bank(folder, "min_rows = 81")
    error = refusal(lambda: align(federation(site)))
    assert error.rule == "min_rows"
    assert "80" not in str(error)
    assert "aligned" not in site.views


def test_a_small_view_is_refused_and_taken_back(folder):
    site = bank(folder, "min_rows = 50")
    with align(federation(site)).session(*GiniFilter().announcement()) as run:
        assert run.view(rows=np.arange(50)).n_rows == 50
        before = dict(site.views)
        assert refusal(lambda: run.view(rows=np.arange(49))).rule == "min_rows"
        assert site.views == before


def test_one_row_named_many_times_is_refused(folder):
    fed, job = align(federation(bank(folder, "min_rows = 50"))), GiniFilter().announcement()
    with fed.session(*job) as run, pytest.raises(OperationRefused, match="each once"):
        run.view(rows=np.zeros(80, dtype=int))


def test_a_view_that_came_past_the_check_is_judged_again_before_a_method_works_on_it(folder):
    site = bank(folder, "min_rows = 50")
    fed = federation(site)
    site.views["small"] = site._accepted["small"] = (np.arange(3), None)
    fed._link.transport.sites["shop"].views["small"] = (np.arange(3), None)
    small = fed.named_view("small")
    with small.session(*InformationValue().announcement()) as run:
        error = refusal(lambda: run.ask(encrypt_classes, to="bank", scheme="auto", task="auto"))
    assert error.rule == "min_rows"


def test_operations_of_a_module_that_this_site_did_not_allow(folder):
    def peek(party) -> None:
        raise AssertionError("it ran")

    peek.__module__ = "elsewhere"
    marked = operation("elsewhere.peek", discloses="control", about="acknowledgement")(peek)
    _plugins.add("elsewhere")  # another site of this process allows it
    fed = federation(bank(folder))
    try:
        with fed.session(*RandomFeatures().announcement()) as run:
            assert refusal(lambda: run.ask(marked, to="bank")).rule == "plugins"
    finally:
        _registry.pop(marked.id)
        _plugins.discard("elsewhere")


def test_a_plugin_that_the_site_names_is_loaded_and_its_method_allowed(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    (folder / "own_method.py").write_text(
        "import fedsift as fs\n"
        "from fedsift.methods import register_method\n"
        "@fs.operation('own.nod', discloses='control', about='acknowledgement')\n"
        "def nod(party): pass\n"
        "class Own(fs.RandomFeatures):\n"
        "    '''Asks for one thing more.'''\n"
        "    operations = (nod,)\n"
        "    def _select(self, fed):\n"
        "        fed.ask(nod, to='bank')\n"
        "        return super()._select(fed)\n"
        "register_method('own', Own)\n"
    )
    before = dict(METHODS)
    try:
        site = bank(folder, 'plugins = ["own_method"]\nmethods = ["own"]')
        assert METHODS["own"](n_features=1).fit(federation(site)).selection_.n_selected == 1
    finally:
        METHODS.clear()
        METHODS.update(before)
        _plugins.discard("own_method")
        _registry.pop("own.nod")


# --- what comes from outside -----------------------------------------------------------------------------------------


def test_no_request_can_say_where_the_data_are(folder):
    """No operation that a site runs takes a path, and one that is smuggled in is refused."""
    site = bank(folder)
    other = folder / "secret.csv"
    other.write_text("customer,outcome,signal\nc1,yes,1\n")
    request = {"operation": party.count_table.id, "view": "", "session": "", "job": b"", "round": 1}
    for extra in ({"file": str(other)}, {"path": str(other)}, {"table": str(other)}):
        reply = decode(site.handle(encode({**request, "arguments": extra})))
        assert reply["error"] == "OperationRefused"
        assert "secret" not in reply["what"]
    reply = decode(site.handle(encode({**request, "arguments": {}, "file": str(other)})))
    assert reply["error"] == "MessageError"
    assert decode(site.handle(encode({**request, "arguments": {}}))) == {"ok": {"rows": 80, "columns": 3}}


def test_columns_that_may_not_take_part_are_never_in_memory(folder):
    site = bank(folder)
    assert site.table.columns == ["signal", "noise", "colour"]
    assert "holes" not in site.table.to_polars().columns


def test_paths_start_at_the_party_file(folder, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert bank(folder).table.n_rows == 80


def test_error_texts_stay_here_where_they_are_no_exception(folder):
    def told(policy: str) -> str:
        fed = federation(bank(folder, policy))
        with fed.session(*GiniFilter().announcement()) as run, pytest.raises(DataError) as caught:
            run.ask(party.describe_label, to="bank", task="regression")
        return str(caught.value)

    assert "the label is text" in told("")
    assert "the label is text" not in told("exceptions = []")


def test_a_refusal_quotes_nothing_that_was_read_from_the_data(folder):
    canary = "CANARY-VALUE"
    frame = pd.read_csv(folder / "data" / "bank.csv").assign(colour=canary)
    frame.to_csv(folder / "data" / "bank.csv", index=False)
    fed = federation(bank(folder, 'min_rows = 81\nmin_cell = 9\nmethods = ["muse", "gini", "random"]'))
    log = fed._link.transport = Recording(fed._link.transport)
    for call in (
        lambda: align(fed),
        lambda: Muse(n_features=2).fit(fed),
        lambda: fs.SFFS().fit(fed),
        lambda: fs.InformationValue().fit(fed),
    ):
        refusal(call)
    sent = b"".join(data for sender, _, data in log.log if sender == "bank")
    assert canary.encode() not in sent
    for column in ("colour", "noise", "outcome"):
        assert column.encode() not in sent


# --- opening for a job -----------------------------------------------------------------------------------------------


JOB = """\
[parties.bank]
id = "customer"
label = "outcome"
[parties.shop]
id = "client"
[method]
name = "gini"
n_features = 2
"""


def test_a_job_that_is_refused_when_the_site_is_opened_reads_no_data(folder, monkeypatch):
    (folder / "job.toml").write_text(JOB)
    job = load_job(folder / "job.toml", files=False)
    monkeypatch.setattr("fedsift.site.settings.read_table", lambda *_: pytest.fail("it read the data"))
    with pytest.raises(PolicyRefused, match="'methods'"):
        bank(folder, 'methods = ["muse"]', job=job)
    with pytest.raises(PolicyRefused, match="'min_cell'"):
        bank(folder, "min_cell = 7", job={"parties": {"bank": {}}, "method": {"name": "gini", "min_cell": 6}})
    with pytest.raises(ParameterError, match="no party 'bank'"):
        bank(folder, job={"parties": {"shop": {}}, "method": {"name": "gini"}})


def test_a_site_opened_for_one_job_runs_no_other_method(folder):
    (folder / "job.toml").write_text(JOB)
    site = bank(folder, job=load_job(folder / "job.toml", files=False))
    fed = align(federation(site))
    assert refusal(lambda: RandomFeatures().fit(fed)).rule == "methods"
    assert GiniFilter(n_features=2).fit(fed).selection_.n_selected == 2


# --- which operations a method has -----------------------------------------------------------------------------------


def test_a_method_lists_its_operations():
    assert {marked.family for marked in listed("gini")} == {"pairs", "labels", "tables"}
    assert listed("random") == ()
    assert {marked.family for marked in listed("alignment")} == {"align", "pairs"}


def test_a_method_that_lists_nothing_asks_nothing(folder, monkeypatch):
    class Silent(GiniFilter):
        """Lists nothing, asks what GiniFilter asks."""

        operations = ()

    monkeypatch.setitem(METHODS, "Silent", Silent)
    error = refusal(lambda: Silent(n_features=2).fit(align(federation(bank(folder)))))
    assert error.rule == "methods"
    assert "no part of the announced method 'Silent'" in str(error)


def test_what_runs_without_an_announced_job_is_a_short_list():
    free = [marked for marked in operations() if marked.id in FREE]
    assert {marked.discloses for marked in free} <= {"control", "plain"}
    assert [marked.id for marked in free if marked.discloses == "plain"] == ["core.share_names"]


@pytest.mark.parametrize("name", ["draw_rows", "describe_label", "define_view"])
def test_rows_and_labels_are_not_touched_without_a_job(folder, name):
    arguments = {
        "draw_rows": {"train": 0.5, "stratify": True, "seed": 0, "task": "auto"},
        "describe_label": {"task": "auto"},
        "define_view": {"view": "mine", "rows": np.arange(60)},
    }[name]
    fed = align(federation(bank(folder)))
    marked = draw_rows if name == "draw_rows" else getattr(party, name)
    error = refusal(lambda: fed.ask(marked, to="bank", **arguments))
    assert error.rule == "methods"
    assert "no method was announced" in str(error)


# --- the file --------------------------------------------------------------------------------------------------------


MISTAKES = {
    "unknown key": ("", "min_row = 5", 9, "policy.min_row", "did you mean 'min_rows'?"),
    "number as text": ("", 'min_rows = "5"', 9, "policy.min_rows", "expected a whole number of rows"),
    "zero rows": ("", "min_rows = 0", 9, "policy.min_rows", "got 0"),
    "misspelt method": ("", 'methods = ["ginni"]', 9, "policy.methods", "did you mean 'gini'?"),
    "methods as a word": ("", 'methods = "gini"', 9, "policy.methods", 'expected "any" or a list'),
    "misspelt form": ("", 'forms = ["plane"]', 9, "policy.forms", "a list out of control"),
    "misspelt exception": ("", 'exceptions = ["column name"]', 9, "policy.exceptions", "mean 'column names'?"),
    "no such plugin": ("", 'plugins = ["not_there_at_all"]', 9, "policy.plugins", "cannot be imported"),
    "epsilon below zero": ("", "max_epsilon = -1", 9, "policy.max_epsilon", "a number above 0"),
    "no name": ('name = "bank"\n', "", 1, "party.name", "is missing"),
    "bad name": ('"bank"', '"coordinator"', 2, "party.name", "cannot be a party's name"),
    "no file": ('file = "data/bank.csv"\n', "", 1, "party.file", "is missing"),
    "no such file": ("bank.csv", "bnk.csv", 3, "party.file", "did you mean 'bank.csv'?"),
    "columns as text": ('["signal", "noise", "colour"]', '"signal"', 6, "party.columns", "a list of column names"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_a_mistake_is_named_with_line_key_and_remedy(folder, mistake):
    before, after, line, key, remedy = MISTAKES[mistake]
    text = PARTY.replace(before, after) if before else PARTY
    path = write(folder, "" if before else after, text)
    with pytest.raises(JobError) as caught:
        load_party(path)
    message = str(caught.value)
    assert f"party.toml, line {line}: {key}" in message
    assert remedy in message
    assert "\n" not in message


def test_a_column_that_is_not_in_the_file_is_named_with_its_line(folder):
    path = write(folder, "", PARTY.replace('"noise"', '"nois"'))
    with pytest.raises(DataError, match=r"party\.toml, line 6: .*'nois'.*"):
        open_site(path)


def test_a_file_that_is_no_toml_or_not_there(folder):
    path = write(folder, "min_rows: 5")
    with pytest.raises(JobError, match=r"line 9: not valid TOML.*key = value"):
        load_party(path)
    with pytest.raises(JobError, match="there is no party file"):
        load_party(folder / "partie.toml")


def test_the_policy_that_is_left_out_is_strict(folder):
    (folder / "party.toml").write_text(PARTY)
    policy = load_party(folder / "party.toml")[0].policy
    assert "plain" not in policy.forms
    assert policy.min_rows >= 50
    assert policy.min_cell >= 10
    assert policy.plugins == []


def test_refusals_are_refusals_for_whoever_catches_them():
    assert issubclass(PolicyRefused, OperationRefused)
    assert PolicyRefused("bank", "ask", "something else").rule == ""


def test_no_party_thread_outlives_the_interpreter():
    """A thread that still frees C++ objects while Python ends aborts the program, after all its work was done."""
    code = (
        "import atexit, threading\n"
        "def left(): print([t.name for t in threading.enumerate() if t.name.startswith('fedsift-')])\n"
        "atexit.register(left)\n"  # registered first, so it runs last
        "import pandas as pd, fedsift as fs\n"
        "X = pd.DataFrame({'a': range(20), 'b': range(20)})\n"
        "fed = fs.Federation.split(X, X['a'] % 2, parties=2)\n"
        "fed.column_names()\n"
        "left()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['fedsift-party1', 'fedsift-party2']", "[]"]


# --- the site's own ledger -------------------------------------------------------------------------------------------


def test_a_site_writes_down_what_it_answered_and_refused_however_the_job_ends(folder):
    site = bank(folder)
    site.ledger = SiteLedger(folder / "ledger.csv")
    fed = align(federation(site))
    with pytest.raises(PolicyRefused):
        Muse(n_features=2).fit(fed)  # no min_cell
    GiniFilter(n_features=2).fit(fed)
    lines = pd.read_csv(folder / "ledger.csv")
    refused = lines[lines["outcome"] != "answered"]
    assert refused["operation"].tolist() == ["core.begin_job"]
    assert refused["outcome"].str.startswith("PolicyRefused").all()
    opened = lines[lines["operation"] == "tables.open_counts"].iloc[0]
    assert (opened["form"], opened["outcome"]) == ("aggregate", "answered")
    assert opened["opened"].startswith("aggregate: ")
    told = [entry for entry in fed.ledger.entries if entry.sender == "bank" and entry.about != "an error message"]
    assert lines[lines["outcome"] == "answered"]["sent"].tolist() == [entry.bytes for entry in told]
    assert not lines.astype(str).apply(lambda column: column.str.contains("c17|CANARY")).any(axis=None)
