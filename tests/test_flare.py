"""Jobs on NVIDIA FLARE: real processes, mutual TLS. One test runs in ``make test``, the rest by ``make test-flare``.

Everything that FLARE starts here carries a mark in its environment, and each test ends without a living process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from method_cases import NEEDS_TORCH, QUICK
from test_training import job_file as training_job
from test_training import tables as new_tables

pytest.importorskip("nvflare", reason="the extra flare is not installed")
import flare_doubles as doubles
import flare_support as support
import psutil
from flare_support import running_system  # noqa: F401  a fixture
from relay import Relay, through

from fedsift.deploy.flare_job import PARTY_FILE, write_job
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.processes import Processes
from fedsift.deploy.run import run_on
from fedsift.deploy.status import read_status
from fedsift.jobs.job_file import load_job
from fedsift.methods import METHODS

SHORT = {name: QUICK[name] for name in ("random", "information_value", "muse")}
FEDSIFT = [sys.executable, "-c", "from fedsift.cli.main import main; main()"]


def assert_probes_get_nothing(probes: dict) -> None:
    assert probes["unregistered"]["error"] == "OperationRefused"
    assert probes["party asks party"] == {"error": "OperationRefused", "what": "only the coordinator may ask a party"}
    for name in ("open", "close", "_open", "_refusal"):
        assert probes[name].startswith("refused"), f"{name} can be called from outside: {probes[name]}"


def test_real_processes_give_the_same_selections_and_bytes_and_strangers_get_nothing(tmp_path):
    """The short part of the contract: a FLARE system with certificates, three parties, several methods in one job."""
    with doubles.TestSystem(tmp_path / "system", support.parties(tmp_path, "vertical")) as system:
        there = support.many(system, tmp_path, "vertical", SHORT)
        ca, member = system.kit("a") / "startup" / "rootCA.pem", system.kit("a")
        for port in support.ports(system):
            assert support.greeting(port, ca, member)
            support.assert_gets_nothing(port, ca, None)
    assert system.processes.marked() == []
    assert_probes_get_nothing(there.pop("probes"))
    support.assert_same(there, support.in_one_process(tmp_path, "vertical", SHORT))
    for name in doubles.NAMES:
        (folder,) = (system.kit(name) / "local" / "results").iterdir()
        assert read_status(folder)["state"] == "finished"  # the job says its end to each site


# --- the whole contract ----------------------------------------------------------------------------------------------


def left_out() -> set[str]:
    return set() if importlib.util.find_spec("torch") else NEEDS_TORCH


def methods_of(partition: str) -> dict:
    missing = left_out() | (set() if partition == "horizontal" else {"fed_halving"})  # elsewhere it needs a model
    names = [name for name in METHODS if partition in METHODS[name].partitions and name not in missing]
    chosen = {name: QUICK.get(name, {}) for name in names}
    if partition != "vertical" and "stable" in chosen:  # around a selector that serves such parties
        chosen["stable"] = {**chosen["stable"], "selector": "random"}
    return chosen


PARTITIONS = sorted({method.partitions[0] for method in METHODS.values()})


@pytest.mark.flare
def test_every_method_on_a_grid_of_real_processes(tmp_path):
    methods = methods_of("hybrid")
    with doubles.TestSystem(tmp_path / "system", support.parties(tmp_path, "hybrid")) as system:
        there = support.many(system, tmp_path, "hybrid", methods)
    assert_probes_get_nothing(there.pop("probes"))
    support.assert_same(there, support.in_one_process(tmp_path, "hybrid", methods))


@pytest.mark.flare
@pytest.mark.parametrize("partition", ["horizontal", "vertical"])
def test_every_method_between_real_processes(system, tmp_path, partition):
    methods = methods_of(partition)
    there = support.many(system, tmp_path, partition, methods)
    assert_probes_get_nothing(there.pop("probes"))
    support.assert_same(there, support.in_one_process(tmp_path, partition, methods))


def in_the_simulator(tmp_path, partition: str, methods: dict, ids: int | None = None) -> dict:
    workspace = tmp_path / "workspace"
    for name, text in support.parties(tmp_path, partition, ids).items():
        (tmp_path / "parties" / name).mkdir(parents=True)
        (tmp_path / "parties" / name / PARTY_FILE).write_text(text)
    introduce_parties({name: tmp_path / "parties" / name / PARTY_FILE for name in doubles.names_of(partition)})
    (workspace / "local").mkdir(parents=True)
    rules = {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": list(doubles.MANY)}
    (workspace / "local" / "resources.json").write_text(json.dumps(rules))
    job = write_job(doubles.many_job(partition, methods, ids is not None), tmp_path / "job", doubles.MANY)
    names = doubles.names_of(partition)
    simulator = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(job)]
    command = [*simulator, "-w", str(workspace), "-c", ",".join(names), "-t", str(len(names))]
    with Processes() as processes:
        env = {**doubles.IMPORTS, "FEDSIFT_PARTY": str(tmp_path / "parties")}
        processes.start("simulator", command, tmp_path / "log.txt", env)
        processes.started["simulator"].wait(900)
    there = json.loads((workspace / "server" / "simulate_job" / "many.json").read_text())
    assert_probes_get_nothing(there.pop("probes"))
    return there


@pytest.mark.flare
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_method_in_the_simulator(tmp_path, partition):
    methods = methods_of(partition)
    there = in_the_simulator(tmp_path, partition, methods)
    support.assert_same(there, support.in_one_process(tmp_path, partition, methods))


@pytest.mark.flare
def test_four_aligned_runs_of_every_method_are_equal_on_every_transport(system, tmp_path):
    """The same people and seed, each time in another order of rows: twice in one process, in the simulator, in a real
    system. Each run draws its own keys, so each aligns its rows anew."""
    methods = methods_of("vertical")
    first, second = (support.in_one_process(tmp_path, "vertical", methods, ids) for ids in (1, 2))
    simulated = in_the_simulator(tmp_path, "vertical", methods, 3)
    real = support.many(system, tmp_path, "vertical", methods, 4)
    real.pop("probes")
    for other in (second, simulated, real):
        support.assert_same_answer(other, first)


class SlowLine(doubles.TestSystem):
    """Every party reaches the server over a line of 30 ms each way that loses a packet in a hundred."""

    def provision(self) -> None:
        super().provision()
        self.relay = Relay(support.ports(self)[0], delay=0.03, loss=0.01)
        for name in self.parties:
            through(self.relay, self.kit(name))


@pytest.mark.flare
def test_slow_and_lossy_line_changes_nothing_but_the_time(tmp_path):
    methods = {name: QUICK[name] for name in ("information_value", "muse", "less_vfl") if name not in left_out()}
    with SlowLine(tmp_path / "system", support.parties(tmp_path, "vertical")) as system:
        there = support.many(system, tmp_path, "vertical", methods)
        assert system.relay.connections >= 2 * len(doubles.NAMES)  # each party's client, and its process of the job
        system.relay.close()
    sent = sum(row[1] for found in there.values() if "traffic" in found for row in found["traffic"].values())
    assert system.relay.total() > sent  # the messages did go over this line
    there.pop("probes")
    support.assert_same(there, support.in_one_process(tmp_path, "vertical", methods))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def job_file(tmp_path):
    X, y = mixed_table(60)
    X = X.assign(person=[f"p{i:03}" for i in range(60)], outcome=y)
    X[["person", "outcome", "signal", "noise", "colour"]].to_csv(tmp_path / "a.csv", index=False)
    X[["person", "weak", "counts", "copy"]].sample(frac=1, random_state=0).iloc[:55].to_csv(
        tmp_path / "b.csv", index=False
    )
    (tmp_path / "job.toml").write_text(
        '[parties.a]\nfile = "a.csv"\nid = "person"\nlabel = "outcome"\n[parties.b]\nfile = "b.csv"\nid = "person"\n'
        '[method]\nname = "information_value"\nn_features = 3\n[federation]\nnames = "private"\n'
    )
    return tmp_path / "job.toml"


@pytest.mark.flare
@pytest.mark.parametrize("on", ["simulator", "poc"])
def test_run_gives_the_same_folder_as_in_one_process(job_file, tmp_path, on):
    for where in ("local", on):
        done = subprocess.run(
            [*FEDSIFT, "run", str(job_file), "--on", where, "--out", str(tmp_path / where)],
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    here, there = (json.loads((tmp_path / where / "run.json").read_text()) for where in ("local", on))
    assert there["selected"] == here["selected"]
    for phase in ("align", "select"):
        assert there["bytes_by_phase"][phase] == here["bytes_by_phase"][phase]
    assert there["files"] == here["files"]
    for name in ("a", "b"):  # private names are put back at the party's own site
        own = [json.loads((tmp_path / where / f"selection-{name}.json").read_text()) for where in ("local", on)]
        assert own[0]["selected"] == own[1]["selected"]
        assert not any("column" in column for column in own[1]["selected"][name])
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def told_by(command: list[str]) -> dict:
    done = subprocess.run([*FEDSIFT, *command, "--format", "json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.flare
@pytest.mark.parametrize(
    ("model", "on", "close"),
    [
        ("linear", "simulator", 0.002),
        ("boost", "simulator", 0.2),  # noise of the size of a row in what is opened, on 24 test rows
        ("boost", "poc", 0.2),
        ("network", "simulator", 0.02),  # exact to 1e-3: a few rows change places
        ("network", "poc", 0.02),
    ],
)
def test_evaluation_scores_the_same_elsewhere(job_file, tmp_path, model, on, close):
    job_file.write_text(job_file.read_text() + f'[evaluate]\nmodel = "{model}"\ntrain = 0.6\n')
    here, there = (
        told_by(["run", str(job_file), "--on", where, "--out", str(tmp_path / where)]) for where in ("local", on)
    )
    assert [row["method"] for row in here["evaluation"]] == [row["method"] for row in there["evaluation"]]
    for mine, yours in zip(here["evaluation"], there["evaluation"], strict=True):
        assert yours["auc"] == pytest.approx(mine["auc"], abs=close)
    if model == "linear":
        assert there["bytes_by_phase"]["evaluate"] == here["bytes_by_phase"]["evaluate"]
    assert there["files"] == here["files"]


@pytest.mark.flare
@pytest.mark.parametrize("on", ["simulator", "poc"])
def test_partners_are_worth_the_same_elsewhere(job_file, on):
    here, there = (told_by(["value", str(job_file), "--folds", "3", "--on", where]) for where in ("local", on))
    assert there["scores"] == pytest.approx(here["scores"], abs=0.002)
    assert there["lines"][0]["adds"] == pytest.approx(here["lines"][0]["adds"], abs=0.002)
    assert (there["holder"], there["metric"], there["settings"]) == (here["holder"], here["metric"], here["settings"])


@pytest.mark.flare
@pytest.mark.parametrize("what", [["correlation"], ["psi", "--by", "a.signal", "--at", "0"]])
def test_statistics_are_the_same_elsewhere(job_file, what):
    asked = ["statistics", str(job_file), "--what", *what]
    here, there = (told_by([*asked, "--on", where]) for where in ("local", "simulator"))
    assert there.keys() == here.keys()
    for column, figures in here.items():
        assert there[column] == pytest.approx(figures, rel=1e-6, nan_ok=True)


@pytest.mark.flare
def test_a_model_is_trained_and_predicts_elsewhere(tmp_path):
    """Every site keeps its part; the same model folder predicts in one process, to the same numbers."""
    job = training_job(tmp_path, "linear")
    card = told_by(["train", str(job), "--on", "simulator", "--out", str(tmp_path / "model")])
    assert card["metrics"]["auc"] > 0.8
    bank, shop = new_tables(80, seed=3)
    bank.drop(columns="default").to_csv(tmp_path / "bank-new.csv", index=False)
    shop.to_csv(tmp_path / "shop-new.csv", index=False)
    files = [f"{name}={tmp_path / name}-new.csv" for name in ("bank", "shop")]
    tables = []
    for where in ("local", "simulator"):
        out = tmp_path / f"{where}.csv"
        command = [*FEDSIFT, "predict", str(tmp_path / "model"), *files, "--on", where, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        tables.append(pd.read_csv(out))
    assert tables[0]["id"].tolist() == tables[1]["id"].tolist() == bank["id"].tolist()
    np.testing.assert_allclose(tables[0].iloc[:, -1], tables[1].iloc[:, -1], atol=1e-6)
    rows = [f"{name}={tmp_path / name}.csv" for name in ("bank", "shop")]
    asked = ["explain", str(tmp_path / "model"), *rows, "--repeats", "1"]
    here, there = (told_by([*asked, "--on", where]) for where in ("local", "simulator"))
    assert [line["feature"] for line in there["columns"]][:2] == [line["feature"] for line in here["columns"]][:2]
    assert there["groups"] == here["groups"]


@pytest.mark.flare
@pytest.mark.parametrize("model", ["linear", "boost", "network"])
def test_real_processes_train_predict_and_explain_from_one_job_file(tmp_path, model):
    """A FLARE system of its own for each command; parts and predictions are where they were played."""
    job = training_job(tmp_path, model)
    told_by(["train", str(job), "--on", "poc", "--out", str(tmp_path / "model")])
    bank, shop = new_tables(80, seed=3)
    bank.to_csv(tmp_path / "bank-new.csv", index=False)
    shop.to_csv(tmp_path / "shop-new.csv", index=False)
    files = [f"{name}={tmp_path / name}-new.csv" for name in ("bank", "shop")]
    out, why = tmp_path / "told.csv", tmp_path / "why.html"
    command = [*FEDSIFT, "predict", str(tmp_path / "model"), *files, "--on", "poc", "--out", str(out), "--explain", why]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    told = pd.read_csv(out)
    assert told["id"].tolist() == bank["id"].tolist()
    assert ((told["yes"] > 0.5) == (bank["default"] == "yes")).mean() > 0.75
    page = why.read_text()
    for title in ("What the model goes by", "Calibration", "ROC curve", "Lift", "Threshold table"):
        assert f"<h2>{title}" in page


@pytest.mark.flare
def test_interruption_leaves_no_process_and_no_folder(job_file, tmp_path):
    mark = f"FEDSIFT_TEST_{os.getpid()}"
    command = [*FEDSIFT, "run", str(job_file), "--on", "poc", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, mark: "1"}) as running:
        for line in running.stderr:
            if "RUNNING" in line:
                break
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "interrupted" in running.stderr.read()
    assert not (tmp_path / "out").exists()
    alive = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ() and process.pid != os.getpid():
                alive.append(process.cmdline())
        except psutil.Error:
            continue
    assert alive == []


# --- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.flare
def test_search_goes_on_from_its_checkpoint_after_the_coordinator_died(tmp_path, job_file):
    """The server is killed in the middle of a swarm; run again with --resume, it goes on and ends as it would have."""
    X, y = mixed_table(90)
    X = X.assign(person=range(90), outcome=y)
    X[["person", "outcome", "signal", "noise"]].to_csv(tmp_path / "a.csv", index=False)
    X[["person", "weak", "counts", "copy"]].to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[parties.a]\nfile = "a.csv"\nid = "person"\nlabel = "outcome"\n[parties.b]\nfile = "b.csv"\nid = "person"\n'
        '[method]\nname = "pso_evffs"\npopsize = 3\niterations = 12\npatience = "none"\nmodels = 1\nfolds = 2\n'
        'max_trees = 2\nmax_depth = 2\nrefit = false\nprotection = "coordinator"\n'
    )
    out = tmp_path / "out"
    kept = tmp_path / ".out.checkpoints"
    command = [*FEDSIFT, "run", str(tmp_path / "job.toml"), "--on", "poc", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        support.wait_until(lambda: list(kept.glob("*.json")) or first.poll() is not None, 400)
        (checkpoint,) = kept.glob("*.json")
        for process in psutil.Process(first.pid).children(recursive=True):
            if "server_train" in " ".join(process.cmdline()):
                process.kill()  # the coordinator's machine goes away
        first.send_signal(signal.SIGINT)
        first.wait(60)
    assert not out.exists()
    before = json.loads(checkpoint.read_text())["swarm"]
    facts = run_on(load_job(tmp_path / "job.toml"), "poc", out, resume=True, say=lambda text: None)
    there = json.loads((out / "selection.json").read_text())
    curve = there["details"]["curve"]
    assert len(curve) >= len(before["curve"]) >= 1
    assert curve[: len(before["curve"])] == before["curve"]
    assert facts["method"] == "pso_evffs"
    assert not checkpoint.parent.exists()
    done = subprocess.run([*FEDSIFT, "run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "whole"), "-q"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole = json.loads((tmp_path / "whole" / "selection.json").read_text())
    assert there["selected"] == whole["selected"]
    for found, expected in zip(curve, whole["details"]["curve"], strict=True):
        assert found == pytest.approx(expected, rel=METHODS["pso_evffs"].repeats_within)


@pytest.mark.flare
def test_ledger_of_a_fetched_result_reads_back(job_file, tmp_path):
    from fedsift.cli.deploy import read_ledger

    facts = run_on(load_job(job_file), "simulator", tmp_path / "out", say=lambda text: None)
    ledger = read_ledger(tmp_path / "out")
    assert ledger.bytes() == facts["bytes"]
    assert len(ledger) == facts["messages"]
