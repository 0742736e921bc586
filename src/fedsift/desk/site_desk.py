"""``fedsift party desk`` as an application: which path shows which page, and what its forms do.

Whatever a page shows is read from the site's files for that page. The only things that a request can change are a
decision, a stop and the rules, and each goes through the same functions as the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from fedsift.desk import policy_editor
from fedsift.desk.frame import LIVE, STYLE
from fedsift.desk.office import Office, Person
from fedsift.desk.rehearsing import Rehearsals
from fedsift.desk.site_pages import SitePages
from fedsift.errors import FedsiftError, ParameterError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class SiteDesk:
    """The routes of one site's desk; ``person`` is who sits at it."""

    def __init__(self, party: Path, person: Person):
        self._party, self._person = party, person
        self._rehearsals = Rehearsals(party)

    def app(self) -> Starlette:
        get, post = ["GET"], ["POST"]
        return Starlette(
            routes=[
                Route("/", self._page(self._now), methods=get),
                Route("/request/{id}", self._page(self._request), methods=get),
                Route("/request/{id}/decide", self._page(self._decide), methods=post),
                Route("/job/{id}", self._page(self._job), methods=get),
                Route("/job/{id}/stop", self._page(self._stop), methods=post),
                Route("/job/{id}/report", self._page(self._report), methods=get),
                Route("/history", self._page(self._history), methods=get),
                Route("/journal", self._page(self._journal), methods=get),
                Route("/policy", self._page(self._policy), methods=get),
                Route("/policy", self._page(self._change_policy), methods=post),
                *static_routes(),
            ]
        )

    def _page(self, answer: Callable[[SitePages, Request], Response]) -> Callable[[Request], Response]:
        """Each page reads the files anew: what another process has decided meanwhile is seen."""

        def shown(request: Request) -> Response:
            try:
                return answer(SitePages(Office(self._party), self._person.name, base_of(request)), request)
            except (FedsiftError, OSError) as error:
                known = isinstance(error, FedsiftError)
                return plain(str(error) if known else "a file of this site cannot be read", 404)

        return shown

    def _now(self, pages: SitePages, request: Request) -> Response:
        return HTMLResponse(pages.now())

    def _request(self, pages: SitePages, request: Request) -> Response:
        standing = pages.office.approvals.find(named(request))
        return HTMLResponse(pages.request(standing, self._rehearsals.of(standing.request.id), secret_of(request)))

    def _decide(self, pages: SitePages, request: Request) -> Response:
        told = fields_of(request)
        if told.get("word") not in ("approved", "refused"):
            raise ParameterError("a decision is to approve or to refuse")
        word: Any = told["word"]
        id = named(request)
        pages.office.decide(id, word, self._person, why=told.get("why", "").strip(), sent="send" in told)
        return RedirectResponse(f"{base_of(request)}/request/{id}", 303)

    def _job(self, pages: SitePages, request: Request) -> Response:
        return HTMLResponse(pages.job(pages.office.job(named(request)), secret_of(request)))

    def _stop(self, pages: SitePages, request: Request) -> Response:
        id = named(request)
        pages.office.stop(id, self._person, why=fields_of(request).get("why", "").strip())
        return RedirectResponse(f"{base_of(request)}/job/{id}", 303)

    def _report(self, pages: SitePages, request: Request) -> Response:
        return report(pages.office.job(named(request)).folder / "report.html")

    def _history(self, pages: SitePages, request: Request) -> Response:
        return HTMLResponse(pages.history())

    def _journal(self, pages: SitePages, request: Request) -> Response:
        return HTMLResponse(pages.journal())

    def _policy(self, pages: SitePages, request: Request) -> Response:
        return HTMLResponse(pages.policy(secret_of(request)))

    def _change_policy(self, pages: SitePages, request: Request) -> Response:
        told = fields_of(request)
        save = told.get("do") == "save"
        change = policy_editor.save if save else policy_editor.propose
        proposal = change(pages.office.path, told.get("text", ""), pages.office.refused_by)
        return HTMLResponse(pages.policy(secret_of(request), proposal, saved=save))


def static_routes() -> list[Route]:
    """The style and the script, from memory: no path of this machine is ever served."""
    files = {"/style.css": (STYLE, "text/css"), "/desk.js": (LIVE, "text/javascript")}

    def served(text: str, kind: str) -> Callable[[Request], Response]:
        return lambda request: Response(text, media_type=kind)

    return [Route(path, served(*file), methods=["GET"]) for path, file in files.items()]


def named(request: Request) -> str:
    """The id in a path: letters and digits, so that it can name nothing but a folder's entry."""
    id = str(request.path_params["id"])
    if not _NAME.fullmatch(id):
        raise ParameterError("there is no such page")
    return id


def secret_of(request: Request) -> str:
    return str(request.scope["state"]["session"].form)


def base_of(request: Request) -> str:
    return str(request.scope["state"]["base"])


def fields_of(request: Request) -> dict[str, str]:
    found: dict[str, str] = request.scope["state"]["form"]
    return found


def report(file: Path) -> Response:
    """A report that lies on this machine, shown as a stranger to the desk (``guard.py``)."""
    if not file.is_file():
        return plain("there is no report", 404)
    return HTMLResponse(file.read_bytes(), headers={"x-desk-report": "1"})


def plain(text: str, status: int) -> Response:
    return Response(f"{text}\n", status, media_type="text/plain")
