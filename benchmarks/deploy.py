"""The same jobs in one process and between real FLARE processes: seconds, bytes on the wire, time to the first request.

    python benchmarks/deploy.py [--quick] [--data DIR] [--out FILE]

Three jobs (MUSE, SecureBoost by its selector top_gain, LESS-VFL) on two parties with the columns of default_credit.
All processes share this machine: the server, two clients, and for each job three more processes. Bytes on the wire are
counted by a relay on loopback through which both clients reach the server: TLS, FLARE's own messages, the job's
deployment and its heartbeats are in them. Seconds are alignment plus selection, as the coordinator measures them, the
local run right before the one on FLARE. On a busy machine six processes get a larger share of it than one, so CPU
seconds are the fairer figure: of all processes, less those of a job that only aligns and draws columns (``random``,
the first line), which is what starting a job costs. The two runs must select the same columns; so
LESS-VFL runs on rows that are in the same order everywhere, without ids: an alignment puts rows into a new random order
each time, and with the order its mini-batches change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from provenance import commit

from fedsift.deploy.flare_job import PARTY_FILE, public_job, write_job
from fedsift.deploy.local_system import LocalSystem
from fedsift.deploy.results import RESULT, check_outcome
from fedsift.deploy.run import party_text
from fedsift.evaluate.datasets import load
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from relay import Relay, through

JOBS = {
    "random": 'name = "random"\nn_features = 8',
    "muse": 'name = "muse"\nn_features = 8',
    "top_gain": 'name = "top_gain"\nn_features = 8\nn_estimators = 10\nmax_depth = 4',
    "less_vfl": 'name = "less_vfl"\npretrain_epochs = 3\nepochs = 3\nstage_epochs = 20\nbatch_size = 256',
}


class RelayedSystem(LocalSystem):
    """Both clients reach the server through a relay."""

    relay: Relay

    def provision(self) -> None:
        super().provision()
        text = (self.folder / "project.yml").read_text()
        port = next(int(line.split(":")[1]) for line in text.splitlines() if "fed_learn_port:" in line)
        self.relay = Relay(port)
        for name in self.parties:
            through(self.relay, self.kit(name))


def write_files(folder: Path, data: Path | None, rows: int) -> None:
    X, y = load("default_credit", data)
    kept = np.random.default_rng(0).permutation(len(X))[:rows]
    X, y = X.iloc[kept].reset_index(drop=True), y.iloc[kept].reset_index(drop=True)
    X.insert(0, "person", [f"p{i:06}" for i in range(len(X))])
    half = len(X.columns) // 2
    bank, shop = X[["person", *X.columns[1:half]]].assign(default=y), X[["person", *X.columns[half:]]]
    bank.to_parquet(folder / "bank.parquet")
    shop.sample(frac=1, random_state=1).to_parquet(folder / "shop.parquet")
    bank.drop(columns="person").to_parquet(folder / "bank-rows.parquet")
    shop.drop(columns="person").to_parquet(folder / "shop-rows.parquet")
    for name, method in JOBS.items():
        end, person = ("-rows", "") if name == "less_vfl" else ("", 'id = "person"\n')
        (folder / f"{name}.toml").write_text(
            f'[parties.bank]\nfile = "bank{end}.parquet"\n{person}label = "default"\n'
            f'[parties.shop]\nfile = "shop{end}.parquet"\n{person}[method]\n{method}\n'
        )


def measure(folder: Path, names: list[str]) -> list[dict]:
    jobs = {name: load_job(folder / f"{name}.toml") for name in names}
    texts = {party: party_text(jobs[names[0]], party) for party in ("bank", "shop")}
    lines = []
    began = time.perf_counter()
    with RelayedSystem(folder / "system", texts) as system, system.session() as session:
        up = time.perf_counter() - began
        for name, job in [(names[0], jobs[names[0]]), *jobs.items()]:  # the first again: everything is cold at first
            for party in texts:
                (system.kit(party) / "local" / PARTY_FILE).write_text(party_text(job, party))
            cpu = time.process_time()
            run = runs.execute(job)
            here = sum(run.seconds[phase] for phase in ("align", "select"))
            cpu = time.process_time() - cpu
            wire, submitted, theirs = system.relay.total(), time.time(), cpu_of(system)
            job_id = session.submit(write_job(public_job(job), folder / "jobs" / f"{name}-{len(lines)}"))
            status = session.wait(job_id)
            left = session.fetch(job_id, folder / "fetched")
            check_outcome(left, status)
            time.sleep(5)  # until the job's processes are all gone and counted
            wire, theirs = system.relay.total() - wire, cpu_of(system) - theirs
            facts = json.loads((left / RESULT / "run.json").read_text())
            outcome = json.loads((left / "outcome.json").read_text())
            there = sum(facts["seconds"][phase] for phase in ("align", "select"))
            same = facts["selected"] == run.selection.selected
            bytes_same = all(facts["bytes_by_phase"][p] == run.ledger(p).bytes() for p in ("align", "select"))
            lines.append(
                {"job": name, "rounds": facts["rounds"], "here": here, "cpu": cpu, "cpu there": theirs, "there": there,
                 "ledger": facts["bytes"], "wire": wire, "first": outcome["started"] - submitted,
                 "whole": time.time() - submitted,
                 "same": same, "bytes": bytes_same, "load": os.getloadavg()[0], "up": up}
            )  # fmt: skip
            print(json.dumps(lines[-1]), flush=True)
        system.relay.close()
    return lines[1:]


def cpu_of(system: LocalSystem) -> float:
    """CPU seconds of the server, the clients, and of their jobs' processes that have ended."""
    spent = [psutil.Process(child.pid).cpu_times() for child in system.processes.started.values()]
    return sum(t.user + t.system + t.children_user + t.children_system for t in spent)


def table(lines: list[dict], rows: int) -> str:
    head = [
        "# FLARE beside one process", "",
        f"Written by `python benchmarks/deploy.py` (commit {commit()}). "
        f"default_credit, {rows:,} rows, two parties, 2 cores; the system "
        f"was up {lines[0]['up']:.0f} s after `provision` began. Load averages are those after each job: other work "
        "ran beside, so seconds are rough and ratios are within a run. Aims: 1.5 in seconds after start-up, 1.1 in "
        "bytes.", "",
        "| job | rounds | in one process, CPU-s | on FLARE, CPU-s | ratio less `random` | in one process, s | "
        "on FLARE, s | ledger, MB | wire, MB | ratio | same columns | same bytes by phase | "
        "submit to first request, s | submit to result, s | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    base = lines[0]
    for x in lines:
        more = x["cpu"] - base["cpu"]
        ratio = f"{(x['cpu there'] - base['cpu there']) / more:.2f}" if x is not base and more > 0 else ""
        head.append(
            f"| {x['job']} | {x['rounds']} | {x['cpu']:.1f} | {x['cpu there']:.1f} | {ratio} | {x['here']:.1f} | "
            f"{x['there']:.1f} | {x['ledger'] / 1e6:.2f} | {x['wire'] / 1e6:.2f} | {x['wire'] / x['ledger']:.2f} | "
            f"{'yes' if x['same'] else 'NO'} | {'yes' if x['bytes'] else 'NO'} | {x['first']:.0f} | {x['whole']:.0f} | "
            f"{x['load']:.1f} |"
        )
    return "\n".join(head) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 rows, no job but random and MUSE")
    parser.add_argument("--data", type=Path, help="the folder of default_credit.parquet, else FEDSIFT_DATA")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "deploy.md")
    given = parser.parse_args()
    rows, names = (500, ["random", "muse"]) if given.quick else (5_000, list(JOBS))
    with tempfile.TemporaryDirectory(prefix="fedsift-") as folder:
        write_files(Path(folder), given.data, rows)
        text = table(measure(Path(folder), names), rows)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
