"""What the tests of FLARE jobs share: data, one job with several methods, greetings over TLS, a running system."""

from __future__ import annotations

import json
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import flare_doubles as doubles
import pytest
from conftest import mixed_table

from fedsift.core.transports.inprocess import InProcess
from fedsift.deploy.flare_job import PARTY_FILE, write_job
from fedsift.deploy.introductions import introduce_parties
from fedsift.methods import METHODS
from fedsift.mpc.psi import aligned
from fedsift.site.site import open_site


def parties(folder: Path, partition: str, ids: int | None = None) -> dict[str, str]:
    """Files and party.toml texts with the data of the contract tests; with ``ids`` the rows in an order of its own."""
    X, y = mixed_table(48)
    if partition != "vertical":
        X = X.select_dtypes("number").fillna(0.0)
    return doubles.write_parties(folder, X, y, partition, ids)


def in_one_process(folder: Path, partition: str, methods: dict, ids: int | None = None) -> dict:
    files = {}
    for name, text in parties(folder, partition, ids).items():
        files[name] = folder / f"{partition}-{ids}" / name / PARTY_FILE
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_text(text)
    introduce_parties(files)
    sites = {name: open_site(file) for name, file in files.items()}
    fed = doubles.federation(InProcess(sites), partition)
    return doubles.results_of(fed if ids is None else aligned(fed, by_id=True, min_overlap=1), methods)


def assert_same(there: dict, here: dict) -> None:
    """The same columns, the same features, and the same bytes for each party, direction and operation."""
    for name in here:
        for what in ("selected", "engineered", "traffic"):
            assert there[name][what] == here[name][what], f"{name}: {what}"
        within = max(1e-6, METHODS[name].repeats_within)  # what the method promises of two runs in one process, too
        assert there[name]["scores"] == pytest.approx(here[name]["scores"], rel=within, abs=1e-9), name


def assert_same_answer(there: dict, here: dict) -> None:
    """As far as the method promises: where scores may move by a share, so may what stands at the border."""
    for name in here:
        within = METHODS[name].repeats_within
        assert there[name]["scores"] == pytest.approx(here[name]["scores"], rel=max(1e-6, within), abs=1e-9), name
        if within < 0.01:
            for what in ("selected", "engineered"):
                assert there[name][what] == here[name][what], f"{name}: {what}"


def many(system, folder: Path, partition: str, methods: dict, ids: int | None = None) -> dict:
    """Run several methods in one job of a running system."""
    for name, text in parties(folder, partition, ids).items():
        system.party_file(name).write_text(text)
    introduce_parties({name: system.party_file(name) for name in doubles.names_of(partition)})
    job = write_job(doubles.many_job(partition, methods, ids is not None), folder / f"job-{partition}", doubles.MANY)
    with system.session() as session:
        job_id = session.submit(job)
        status = session.wait(job_id)
        left = session.fetch(job_id, folder / f"fetched-{partition}")
    assert status == "FINISHED:COMPLETED", (left / "log.txt").read_text()[-3000:]
    return json.loads((left / "many.json").read_text())


def greeting(port: int, ca: Path, kit: Path | None) -> bytes:
    """The server's first bytes to somebody with the certificate of ``kit``, or with none."""
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    plain = socket.create_connection(("localhost", port), timeout=10)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as link:
        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        return link.recv(16)


def assert_gets_nothing(port: int, ca: Path, kit: Path | None) -> None:
    got = b""
    with suppress(ssl.SSLError, ConnectionError):  # a time-out is neither
        got = greeting(port, ca, kit)
    assert got == b""


def ports(system) -> list[int]:
    text = (system.folder / "project.yml").read_text()
    return [int(line.split(":")[1]) for line in text.splitlines() if "_port:" in line]


def wait_until(true, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.2)


@pytest.fixture(scope="module", name="system")
def running_system(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flare")
    with doubles.TestSystem(folder / "system", parties(folder, "vertical")) as running:
        yield running
    assert running.processes.marked() == []
