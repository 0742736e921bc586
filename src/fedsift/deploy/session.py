"""The submitter's end of a running FLARE system: submit a job, wait for it, fetch its result, abort it."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fedsift.errors import MissingExtra, ParameterError, PartyGone

_POLL = 1.0
_AT_WORK = ("RUNNING", "DISPATCHED")
LOST = "FINISHED:LOST"
STANDING = "fedsift"  # under which name a running job says how far it is, among FLARE's own figures
_EVERY = 10.0  # seconds between two such questions
#: So long may the server be away (a restart, say) while a job is waited for.
AWAY = 120.0


class FlareSession:
    """A log-in with the start kit of somebody who may submit jobs. Connects again when the server was away."""

    def __init__(self, kit: Path):
        self.kit = kit
        self.user = _user(kit)
        self._session: Any = None
        self._unchecked = True  # whether the server may be another than before
        self.waited = False  # whether the job waited for people when it was last asked how far it is

    def submit(self, folder: Path) -> str:
        return str(self._do(lambda session: session.submit_job(str(folder)), "submit_job"))

    def status(self, job_id: str) -> str:
        """FLARE's word for how the job stands; ``LOST`` for one that ran when the server was last restarted."""
        status = str(self._do(lambda session: session.get_job_status(job_id), "get_job_status"))
        if status in _AT_WORK and self._unchecked:
            self._unchecked = False
            if self._is_lost(job_id):
                return LOST
        return status

    def _is_lost(self, job_id: str) -> bool:
        """FLARE 2.9 goes on calling a job RUNNING that ended with the server; both times are by the server's clock."""
        meta = self._do(lambda session: session.get_job_meta(job_id), "get_job_meta")
        server = self._do(lambda session: session.get_system_info(), "get_system_info").server_info
        began = datetime.fromisoformat(str(meta["start_time"])).timestamp() if meta.get("start_time") else None
        return began is not None and server.start_time is not None and float(server.start_time) > began

    def clients(self) -> list[str]:
        """Names of the clients that are connected."""
        return [client.name for client in self._do(lambda s: s.get_system_info(), "get_system_info").client_info]

    def standing(self, job_id: str) -> str:
        """How far a running job is, in words; empty where it does not say."""
        with suppress(PartyGone, KeyError, TypeError):
            told = self._do(lambda session: session.show_stats(job_id, "server"), "show_stats", keep=True)
            self.waited = bool(told["server"][STANDING]["waiting"])
            return str(told["server"][STANDING]["words"])[:300]
        return ""

    def wait(self, job_id: str, seen: Callable[[str], None] = lambda status: None) -> str:
        """Until the job has ended; gives FLARE's word for how. ``seen`` hears it, and how far the job is."""
        away, last, words, asked = 0.0, "", "", 0.0
        while True:
            try:
                status = self.status(job_id)
                away = 0.0
            except PartyGone:
                away = away or time.monotonic()
                if time.monotonic() - away > AWAY:
                    raise
                status = "(the server does not answer)"
            if status != last:
                seen(status)
                last = status
            if status.startswith("FINISHED"):
                return status
            if status == "RUNNING" and time.monotonic() - asked > _EVERY:
                asked, before, words = time.monotonic(), words, self.standing(job_id)
                if words and words != before:
                    seen(words)
            time.sleep(_POLL)

    def fetch(self, job_id: str, folder: Path) -> Path:
        """What the coordinator left in the job's folder at the server."""
        found = self._do(lambda session: session.download_job_result(job_id, str(folder)), "download_job")
        return Path(found) / "workspace"

    def abort(self, job_id: str) -> None:
        self._do(lambda session: session.abort_job(job_id), "abort_job")

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the server may be gone; there is nothing left to do with this session
                session.close()

    def _do(self, command: Callable[[Any], Any], name: str, *, keep: bool = False) -> Any:
        """A command of the session; one that fails ends it, unless ``keep``."""
        try:
            with redirect_stdout(io.StringIO()):  # FLARE tells of its connections on stdout, which is for results
                if self._session is None:
                    self._session, self._unchecked = _connect(self.user, self.kit), True
                return command(self._session)
        except Exception as error:
            if not keep:
                self.close()
            raise PartyGone("server", name, f"FLARE says: {type(error).__name__}: {error}") from None

    def __enter__(self) -> FlareSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(user: str, kit: Path) -> Any:
    try:
        from nvflare.fuel.flare_api.flare_api import new_secure_session
    except ImportError:
        raise MissingExtra("nvflare", "flare") from None
    return new_secure_session(user, str(kit), timeout=20.0)


def _user(kit: Path) -> str:
    """The name in an admin start kit."""
    try:
        settings = json.loads((kit / "startup" / "fed_admin.json").read_text(encoding="utf-8"))
        return str(settings["admin"]["username"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ParameterError(
            f"{kit} is no start kit of a FLARE user (it has no startup/fed_admin.json): give the folder that "
            "`nvflare provision` made for you (--kit DIR)"
        ) from None
