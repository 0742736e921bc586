"""``fedsift desk`` as an application, for whoever runs jobs. It does nothing that the command line cannot do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from fedsift.deploy.session import FlareSession
from fedsift.desk.job_pages import JobPages
from fedsift.desk.job_runs import JobRuns
from fedsift.desk.site_desk import base_of, fields_of, named, plain, report, secret_of, static_routes
from fedsift.errors import FedsiftError

_EVERY = 5.0  # seconds between two looks at who is connected


class Clients:
    """Who is connected to the FLARE server, asked for in the background; ``None`` where there is no kit."""

    def __init__(self, kit: Path | None):
        self.names: list[str] | None = None if kit is None else []
        self._end = threading.Event()
        if kit is not None:
            threading.Thread(target=self._watch, args=(kit,), name="fedsift clients", daemon=True).start()

    def _watch(self, kit: Path) -> None:
        while not self._end.is_set():
            with suppress(FedsiftError), FlareSession(kit) as session:
                while not self._end.wait(_EVERY):
                    self.names = session.clients()
            self.names = []
            time.sleep(_EVERY)

    def close(self) -> None:
        self._end.set()


class JobDesk:
    """The routes of one folder's desk."""

    def __init__(self, folder: Path, kit: Path | None = None):
        self._runs, self._clients = JobRuns(folder, kit), Clients(kit)

    def app(self) -> Starlette:
        get, post = ["GET"], ["POST"]
        return Starlette(
            routes=[
                Route("/", self._page(self._jobs), methods=get),
                Route("/start", self._page(self._start), methods=post),
                Route("/run/{id}", self._page(self._run), methods=get),
                Route("/run/{id}/stop", self._page(self._stop), methods=post),
                Route("/run/{id}/report", self._page(self._report), methods=get),
                Route("/compare", self._page(lambda pages, request: HTMLResponse(pages.compare())), methods=get),
                *static_routes(),
            ]
        )

    def close(self) -> None:
        self._clients.close()

    def _page(self, answer: Callable[[JobPages, Request], Response]) -> Callable[[Request], Response]:
        def shown(request: Request) -> Response:
            try:
                return answer(JobPages(self._runs, self._clients.names, base_of(request)), request)
            except (FedsiftError, OSError) as error:
                return plain(str(error) if isinstance(error, FedsiftError) else "a file cannot be read", 404)

        return shown

    def _jobs(self, pages: JobPages, request: Request) -> Response:
        return HTMLResponse(pages.jobs(secret_of(request)))

    def _start(self, pages: JobPages, request: Request) -> Response:
        told = fields_of(request)
        run = pages.runs.start(told.get("job", ""), told.get("work", ""), told.get("on", ""), told.get("methods", ""))
        return RedirectResponse(f"{base_of(request)}/run/{run.id}", 303)

    def _run(self, pages: JobPages, request: Request) -> Response:
        return HTMLResponse(pages.run(pages.runs.find(named(request)), secret_of(request)))

    def _stop(self, pages: JobPages, request: Request) -> Response:
        return RedirectResponse(f"{base_of(request)}/run/{pages.runs.stop(named(request)).id}", 303)

    def _report(self, pages: JobPages, request: Request) -> Response:
        return report(pages.runs.find(named(request)).report)
