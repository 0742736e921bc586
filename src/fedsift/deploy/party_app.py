"""A party inside NVIDIA FLARE: one published function, ``handle(bytes) -> bytes``.

This class is what a site allows a job to build (see ``provision.py``): the job brings no code, and nothing in it says
where data lie. The site finds its own ``party.toml``: the file or folder that the environment variable FEDSIFT_PARTY
names, else ``local/party.toml`` in the site's start kit. Data, policy and results are what that file says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedsift.core.message import encode
from fedsift.deploy import attending, delivery
from fedsift.deploy.flare_job import PARTY_FILE, quiet_calls, read_job
from fedsift.deploy.model_jobs import PARTS
from fedsift.deploy.status import ENDED, RUNNING, close_abandoned, read_status, remove_old, write_status
from fedsift.errors import DataError, FedsiftError, OperationFailed, PartyError, disk_words
from fedsift.site.record import NAME, SiteLedger
from fedsift.site.site import PolicySite, open_site

log = logging.getLogger("fedsift.core.party")


#: The end of a job: known at a party because this module names them (nothing is imported because a message says so).
DELIVERED = (delivery.keep_result, delivery.keep_end, delivery.keep_failure)
#: FLARE ends a job at once when a process of it has died: then nobody could tell this site why.
_CUT = "the job was ended before there was a result; whoever submitted it hears why"


class PartyApp:
    """The client component of a fedsift job."""

    def __init__(self) -> None:
        self._site: PolicySite | None = None
        self._problem: FedsiftError | None = None
        self._folder: Path | None = None
        self._attendant: attending.Attendant | None = None

    @collab.init  # type: ignore[untyped-decorator]
    def open(self) -> None:
        """Read the site's own settings and data. A failure is kept: each request is answered with it."""
        quiet_calls()
        try:
            workspace, job_id = collab.workspace, collab.fl_ctx.get_job_id()
            job = read_job(Path(workspace.get_app_config_dir(job_id)))
            path = party_file(Path(workspace.get_site_config_dir()), collab.site_name)
            results = path.parent / "results"
            close_abandoned(results)
            self._folder = results / job_id
            self._folder.mkdir(parents=True, exist_ok=True)
            write_status(self._folder, RUNNING, job=job_id, method=job["method"]["name"], party=collab.site_name)
            site = self._open(path, job)
            if site.name != collab.site_name:
                raise DataError(
                    f"{path}: this file is for the party {site.name!r}, but the site is {collab.site_name!r}: "
                    "give the party the name in its certificate"
                )
            remove_old(results, site.keep_results)
            site.job_folder, site.ledger = self._folder, SiteLedger(self._folder / NAME)
            site.models.folder = path.parent / PARTS
            self._site = site
            self._attendant = attending.Attendant(self._folder, _teller(collab.server), collab.context.is_aborted)
            self._attendant.start()
        except FedsiftError as error:
            log.warning("this site takes no part: %s", error)
            self._problem = error
            if self._folder is not None:
                write_status(self._folder, RUNNING, refused=str(error))
        except OSError as error:
            log.exception("this site takes no part: it cannot read or write its own files")
            self._problem = OperationFailed(
                collab.site_name, "open", disk_words(error) or "it cannot read or write its own files; its log says why"
            )

    def _open(self, path: Path, job: Mapping[str, object]) -> PolicySite:
        """The site, bound to this job's method by its own policy."""
        return open_site(path, job)

    @collab.publish  # type: ignore[untyped-decorator]
    def handle(self, data: bytes) -> bytes:
        """Answer one request of the coordinator. Nobody else may ask: parties do not talk to each other."""
        if collab.caller != "server":
            return encode({"error": "OperationRefused", "what": "only the coordinator may ask a party"})
        if self._site is None:
            return self._refusal()
        try:
            return self._site.receive(data if isinstance(data, bytes) else b"")
        except Exception as error:  # FLARE would send the traceback to the server; it may quote data
            log.exception("the request could not be answered")
            what = disk_words(error) or f"it raised {type(error).__name__}; see its log"
            return encode({"error": "OperationFailed", "what": what})

    def _refusal(self) -> bytes:
        """A rule of this site's policy is told; what went wrong with its files stays in its own log and status."""
        if isinstance(self._problem, PartyError):
            return encode({"error": type(self._problem).__name__, "what": self._problem.what})
        what = "it could not open its data or settings; its own log and status.json say why"
        return encode({"error": "OperationFailed", "what": what})

    @collab.final  # type: ignore[untyped-decorator]
    def close(self) -> None:
        """The job is over. If nobody said how, it ended without a result."""
        if self._attendant is not None:
            self._attendant.end()
        if self._folder is not None and read_status(self._folder).get("state") == RUNNING:
            why = str(self._problem) if self._problem is not None else _CUT
            write_status(self._folder, ENDED, why=why)


def _teller(server: Any) -> attending.Ask:
    return lambda stopped: server(timeout=attending.LIMIT).attend(stopped)


def party_file(local: Path, name: str) -> Path:
    """This site's own party.toml. Nothing from outside has a say in it."""
    given = os.environ.get("FEDSIFT_PARTY")
    places = [local / PARTY_FILE]
    if given:
        places = [Path(given)] if Path(given).is_file() else [Path(given) / name / PARTY_FILE]
    for place in places:
        if place.is_file():
            return place
    raise DataError(
        f"party {name!r}: there is no {PARTY_FILE} at this site: write one with `fedsift party init`, "
        "into the start kit's local folder or wherever FEDSIFT_PARTY points to"
    )
