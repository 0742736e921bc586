"""Components for FLARE jobs in tests: several methods in one job, and parties that misbehave.

FLARE's processes import this module by its name: ``TestSystem`` puts the tests' folder on their path.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from nvflare.collab import collab

import fedsift
import fedsift.core.job as core_job
from fedsift.core.federation import Federation
from fedsift.core.files import plain
from fedsift.core.message import decode, encode
from fedsift.core.transports.base import Transport
from fedsift.core.transports.flare import Flare
from fedsift.deploy.coordinator import Coordinator, _caller
from fedsift.deploy.delivery import keep_end
from fedsift.deploy.flare_job import CLASSES, FORMAT, VERSION, read_job
from fedsift.deploy.local_system import SERVER, LocalSystem
from fedsift.deploy.party_app import PartyApp
from fedsift.methods import METHODS
from fedsift.mpc.psi import aligned
from fedsift.site.site import PolicySite, open_site

HERE = Path(__file__).parent
#: FLARE's processes import this module and the fedsift that is tested, wherever another one may be installed.
IMPORTS = {"PYTHONPATH": os.pathsep.join([str(HERE), str(Path(fedsift.__file__).parents[1])])}
COUNT = "core.count_table"
ASKED = "asked"  # beside fault.json, once the party was asked for what it does wrong
NAMES = ["a", "b", "c"]
GRID = {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1)}  # of the hybrid parties: row block, column block
CONTROLLER, EXECUTOR, REAL_COORDINATOR, REAL_PARTY = CLASSES
MANY = (CONTROLLER, EXECUTOR, "flare_doubles.ManyMethods", "flare_doubles.AnyMethodParty")
FAULTY = (CONTROLLER, EXECUTOR, REAL_COORDINATOR, "flare_doubles.FaultyParty")
FORMS = '["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"]'
#: Forty-eight rows are few: no site with the default rules (bits a row, dominance) would let all methods run on them.
OPEN = f'[policy]\nmin_rows = 1\nmin_cell = 0\nmax_bits = "any"\nmax_share = 1.0\nforms = {FORMS}\n'


def federation(transport: Transport, partition: str) -> Federation:
    """The same parties at FLARE's server and in the test's own process."""
    hybrid, names = partition == "hybrid", names_of(partition)
    return Federation(
        transport, names, active=names[0] if partition == "vertical" else None, partition=partition,
        grid=GRID if hybrid else None, label_parties=names if hybrid else None,
    )  # fmt: skip


def names_of(partition: str) -> list[str]:
    return list(GRID) if partition == "hybrid" else NAMES


def results_of(fed: Federation, methods: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What each method selects, and what it sends: the same code at FLARE's server and in the test's own process."""
    found = {}
    for name, parameters in methods.items():
        selector = METHODS[name](**parameters)
        if "random_state" in selector.get_params():
            selector.set_params(random_state=0)
        began = time.perf_counter()
        selector.fit(fed)
        totals = selector.traffic_.groupby(["party", "direction", "operation"])[["messages", "bytes"]].sum()
        found[name] = {
            "selected": selector.selected_,
            "scores": selector.scores_["score"].tolist(),
            "engineered": list(selector.selection_.engineered),
            "traffic": {" / ".join(key): [int(v) for v in row] for key, row in zip(totals.index, totals.to_numpy())},
            "seconds": time.perf_counter() - began,
        }
    return plain(found)


def many_job(partition: str, methods: dict[str, dict[str, Any]], ids: bool = False) -> dict[str, Any]:
    """A job for ``ManyMethods``: rows are in the same order everywhere, or matched by ``ids``; of vertical parties the
    first has the label."""
    parties = names_of(partition)
    told = {name: {"id": ids, "label": partition != "vertical" or i == 0} for i, name in enumerate(parties)}
    return {
        "format": FORMAT, "version": VERSION, "name": "many", "method": {"name": "random"}, "many": methods,
        "federation": {"partition": partition}, "parties": told,
    }  # fmt: skip


class ManyMethods(Coordinator):
    """Several methods in one job: a job's start costs more than most methods on small data."""

    @collab.main
    def coordinate(self) -> None:
        job_id = collab.fl_ctx.get_job_id()
        content = read_job(Path(collab.workspace.get_app_config_dir(job_id)))
        transport = Flare({client.name: _caller(client) for client in collab.clients}, collab.context.is_aborted)
        fed = federation(transport, content["federation"]["partition"])
        if any(party["id"] for party in content["parties"].values()):
            fed = aligned(fed, by_id=True, min_overlap=1)
        found = {"probes": probe(list(content["parties"])), **results_of(fed, content["many"])}
        (Path(collab.workspace.get_run_dir(job_id)) / "many.json").write_text(json.dumps(found))
        fed.ask(keep_end, to=fed.parties)


def probe(parties: list[str]) -> dict[str, Any]:
    """What somebody gets who asks for what is not his: here the server itself asks, and lets a party ask another."""
    request = {"operation": "os:system", "view": "", "session": "", "job": b"", "round": 1, "arguments": {}}
    first, second = collab.get_clients(parties[:2])
    found = {"unregistered": decode(first.handle(encode(request)))}
    found["party asks party"] = decode(first.ask_other(second.name, encode({**request, "operation": COUNT})))
    for name in ("open", "close", "_open", "_refusal"):
        try:
            found[name] = repr(getattr(first, name)())
        except Exception as error:
            found[name] = f"refused: {type(error).__name__}"
    return found


class AnyMethodParty(PartyApp):
    """A real site with its policy, open to whatever method is announced."""

    def _open(self, path: Path, job: dict[str, Any]) -> PolicySite:
        return open_site(path)

    @collab.publish
    def ask_other(self, name: str, data: bytes) -> bytes:
        """A party that is curious about another one."""
        return collab.get_clients([name])[0].handle(data)


class FaultyParty(PartyApp):
    """Does what ``fault.json`` beside its party.toml says, when it is asked for the operation named there."""

    @collab.publish
    def handle(self, data: bytes) -> bytes:
        file = Path(collab.workspace.get_site_config_dir()) / "fault.json"
        fault = json.loads(file.read_text()) if file.exists() else {}
        asked = bool(fault) and decode(data)["operation"].endswith(fault["operation"])
        if asked and fault["do"] == "full disk":  # what the site writes next finds no space
            self._site.ledger.path.unlink()
            self._site.ledger.path.symlink_to("/dev/full")
        if asked and fault["do"] == "other version":
            core_job.VERSION = "0.0.9"
        answer = PartyApp.handle(self, data)
        if asked:
            file.with_name(ASKED).touch()
        return misbehave(fault["do"], data, answer) if asked else answer


def misbehave(what: str, data: bytes, answer: bytes) -> Any:
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sleep":
        time.sleep(30)
    if what == "garbage":
        return os.urandom(64)
    if what == "nothing":
        return None
    return answer


class TestSystem(LocalSystem):
    """A system whose sites also build the classes of this module."""

    __test__ = False

    def __init__(self, folder: Path, parties: dict[str, str], **more: Any):
        super().__init__(folder, parties, env={**IMPORTS, **more.pop("env", {})}, **more)

    def provision(self) -> None:
        super().provision()
        for name in (SERVER, *self.parties):
            local = self.kit(name) / "local"
            source = local / "resources.json"
            content = json.loads((source if source.exists() else local / "resources.json.default").read_text())
            content["class_allow_list"] += sorted({*MANY, *FAULTY} - set(CLASSES))
            source.write_text(json.dumps(content))


def write_parties(
    folder: Path, X: pd.DataFrame, y: pd.Series, partition: str, ids: int | None = None
) -> dict[str, str]:
    """Parquet files of the parties, split as ``Federation.split`` would, and the text of each party.toml.

    With ``ids`` every row has an id, and each party its own order of rows, drawn from this number.
    """
    names = names_of(partition)
    blocks = {"vertical": (1, len(names)), "horizontal": (len(names), 1), "hybrid": (2, 2)}[partition]
    rows, columns = np.array_split(np.arange(len(X)), blocks[0]), np.array_split(np.array(X.columns), blocks[1])
    texts = {}
    for i, name in enumerate(names):
        row, column = divmod(i, blocks[1])
        table = X.iloc[rows[row]][list(columns[column])].copy()
        label = partition != "vertical" or i == 0
        if label:
            table["outcome"] = y.iloc[rows[row]]
        told = 'label = "outcome"\n' if label else ""
        if ids is not None:
            table["person"] = [f"p{row}" for row in rows[row]]
            table, told = table.sample(frac=1, random_state=97 * ids + i), told + 'id = "person"\n'
        file = folder / f"{name}-{partition}-{ids}.parquet"
        table.to_parquet(file)
        texts[name] = f'[party]\nname = "{name}"\nfile = "{file}"\n' + told + OPEN
    return texts
