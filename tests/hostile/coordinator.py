"""A coordinator that deviates: it writes request bytes by hand and sends them to sites with the default policy."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
from conftest import mixed_table

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.job import Job
from fedsift.core.message import decode, encode
from fedsift.core.party import UNFORESEEN
from fedsift.core.transports.inprocess import InProcess
from fedsift.mpc.psi import align
from fedsift.site.policy import ALIGNMENT, DEFAULT_EXCEPTIONS, Policy
from fedsift.site.site import PolicySite

ROWS = 240
#: What a refusal may be: each says what rule it is by. ``OperationFailed`` (something was raised unforeseen) is none.
TYPED = {
    "OperationRefused", "PolicyRefused", "MessageError", "SecurityError", "SealError", "CiphertextError", "DataError",
    "OverflowGuard", "ParameterError", "ReplyError",
}  # fmt: skip


def policy(**rules: Any) -> Policy:
    """The default one; alignment by pseudonyms is the exception that every deployment makes, and a site knows how many
    columns its partner has (an alignment tells it; most attacks here come without one)."""
    return Policy(**{"exceptions": [*DEFAULT_EXCEPTIONS, ALIGNMENT], "partner_columns": 3, **rules})


def tables(rows: int = ROWS) -> dict[str, fs.Table]:
    X, y = mixed_table(rows)
    ids = [f"c{i}" for i in range(rows)]
    bank = X[["signal", "noise", "colour"]].assign(id=ids, outcome=np.where(y == 1, "yes", "no"))
    shop = X[["weak", "counts", "flag"]].assign(id=ids)
    return {
        "bank": fs.Table.read(pd.DataFrame(bank), id="id", label="outcome", name="bank"),
        "shop": fs.Table.read(pd.DataFrame(shop), id="id", name="shop"),
    }


class Hostile:
    """Knows every format and follows no rule."""

    def __init__(self, rows: int = ROWS, **rules: Any):
        self.sites = {name: PolicySite(name, table, policy(**rules)) for name, table in tables(rows).items()}
        introduce(self.sites)
        self.rounds = itertools.count(1)
        self.names = itertools.count(1)
        self.last = b""

    def federation(self) -> Federation:
        """An honest coordinator over the same sites, for what has to come before an attack."""
        return Federation(InProcess(self.sites), list(self.sites), active="bank")

    def aligned(self) -> Federation:
        return align(self.federation())

    def job(self, method: str, parameters: dict[str, Any], **fields: Any) -> Job:
        told = {"parties": tuple(self.sites), "active": "bank", "label_parties": ("bank",), **fields}
        return Job(method, parameters, **told)

    def of(self, selector: fs.Selector, **fields: Any) -> Job:
        return self.job(*selector.announcement(), **fields)

    def send(
        self, to: str, operation: str, *, session: str = "", job: bytes = b"", on: str = "", round: int | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """One request, on a view of the rows; whatever comes back, decoded."""
        request = {
            "operation": operation, "view": on, "session": session, "job": job,
            "round": next(self.rounds) if round is None else round, "arguments": arguments,
        }  # fmt: skip
        self.last = encode(request)
        return decode(self.sites[to].handle(self.last))

    def begin(self, job: Job | bytes, to: tuple[str, ...] = ("bank", "shop")) -> str:
        """A session in which the job was accepted."""
        session = f"s{next(self.names)}"
        data = job.canonical if isinstance(job, Job) else job
        for name in to:
            reply = self._begin(name, session, data)
            assert reply == {"ok": None}, reply
        return session

    def end(self, session: str) -> None:
        for name in self.sites:
            assert self._control(name, "core.end_session", "", {"session": session}) == {"ok": None}

    def _begin(self, to: str, session: str, data: bytes) -> dict[str, Any]:
        return self._control(to, "core.begin_job", session, {"job": data})

    def _control(self, to: str, operation: str, session: str, arguments: dict[str, Any]) -> dict[str, Any]:
        request = {
            "operation": operation, "view": "", "session": session, "job": b"", "round": next(self.rounds),
            "arguments": arguments,
        }  # fmt: skip
        return decode(self.sites[to].handle(encode(request)))

    def offers(self, asked: dict[str, Any], circle: str = "") -> dict[str, Any]:
        """The offers of both parties, asked for in one round."""
        round, among = next(self.rounds), list(self.sites)
        told = {"among": among, "circle": circle, "round": round}
        return {name: self.send(name, "pairs.offer_key", **asked, **told)["ok"] for name in among}

    def meet(self, asked: dict[str, Any]) -> None:
        """The handshake as an honest coordinator would relay it."""
        offers = self.offers(asked)
        for name in self.sites:
            assert "ok" in self.send(name, "pairs.meet", **asked, offers=offers)

    def announced(self, data: bytes, to: str = "bank", session: str | None = None) -> dict[str, Any]:
        """What a site says to an announcement."""
        return self._begin(to, f"s{next(self.names)}" if session is None else session, data)


def fields(job: Job, **changed: Any) -> bytes:
    """The job's bytes with other fields, in canonical form."""
    content = {**json.loads(job.canonical), **changed}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def refused(reply: dict[str, Any], says: str = "") -> None:
    """A typed refusal that says why, and nothing else."""
    assert set(reply) == {"error", "what"}, reply
    assert reply["error"] in TYPED, reply
    assert not reply["what"].startswith(UNFORESEEN), reply
    assert says in reply["what"], reply["what"]
