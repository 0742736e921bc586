"""What stands between the desk's pages and everybody else who can reach a port of this machine.

The desk listens on 127.0.0.1 alone, but other users of the machine and every page in the person's own browser can send
requests there. So: one secret link, good for one browser, once; then a cookie that scripts cannot read and that other
sites' requests do not carry; a second secret in each form; the Host must be this one (a name that somebody points at
127.0.0.1 is refused), the Origin too; small requests, not too many of them; and a policy under which the browser loads
nothing from anywhere and runs no script but the desk's own file.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ENTER = "/enter"
OPEN = ("/style.css", "/desk.js")  # they hold nothing of anybody's
MAX_BODY, MAX_PATH, MAX_QUERY = 1 << 16, 500, 2000
MAX_WRONG, WRONG_WINDOW = 5, 60.0  # wrong links in so many seconds, then none is looked at
MAX_REQUESTS, REQUEST_WINDOW = 600, 60.0
IDLE = 3600.0  # seconds without a request after which a session is over
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
#: A report is a page that other parties' names went into: its one script runs, but as a stranger to the desk.
_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; sandbox allow-scripts"
)
_HEADERS = {
    "x-content-type-options": "nosniff", "referrer-policy": "same-origin", "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY", "permissions-policy": "camera=(), microphone=(), geolocation=()",
}  # fmt: skip


@dataclass
class Session:
    """One browser. ``form`` is the secret that each of its forms carries."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    used: float = 0.0


class Refused(Exception):
    """What a request gets in place of an answer."""

    def __init__(self, status: int, what: str):
        super().__init__(what)
        self.status, self.what = status, what


class Guard:
    """Wraps the desk. ``link`` is what the person opens, once."""

    def __init__(self, app: App, port: int, clock: Callable[[], float] = time.monotonic):
        self._app, self._port, self._clock = app, port, clock
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.base = f"/{secrets.token_urlsafe(16)}"  # where the pages are: see ``_enter``
        self._token: str | None = secrets.token_urlsafe(32)
        self._session: Session | None = None
        self._wrong: deque[float] = deque()
        self._seen: deque[float] = deque()

    @property
    def link(self) -> str:
        return f"http://{self.hosts[0]}{ENTER}?token={self._token}"

    @property
    def cookie_name(self) -> str:
        return f"fedsift-desk-{self._port}"  # cookies do not know ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            await self._let_in(scope, receive, _hardened(send))
        except Refused as refused:
            await _answer(_hardened(send), refused.status, f"{refused.what}\n")

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        heads = _headers(scope)
        self._check_shape(scope, heads)
        if scope["path"] == ENTER:
            await self._enter(scope, send)
            return
        if scope["path"] not in OPEN:
            session = self._session_of(heads)
            scope["path"] = self._inside(scope["path"])
            scope["raw_path"] = scope["path"].encode()
            scope["state"] = {"session": session, "form": {}, "base": self.base}
            if scope["method"] == "POST":
                self._check_origin(heads)
                scope["state"]["form"] = await _form(receive, heads)
                if not _same(scope["state"]["form"].get("form", ""), session.form):
                    raise Refused(403, "this form is not of this session: open the page again")
        await self._app(scope, receive, send)

    def _check_shape(self, scope: Scope, heads: dict[str, list[str]]) -> None:
        self._check_rate(self._seen, MAX_REQUESTS, REQUEST_WINDOW)
        self._seen.append(self._clock())
        if heads.get("host") not in [[host] for host in self.hosts]:
            raise Refused(421, "this desk has another address")
        if scope["method"] not in ("GET", "POST"):
            raise Refused(405, "GET and POST only")
        if len(scope["path"]) > MAX_PATH or len(scope.get("query_string", b"")) > MAX_QUERY:
            raise Refused(414, "too long")
        if ".." in scope["path"] or "\\" in scope["path"] or any(ord(letter) < 32 for letter in scope["path"]):
            raise Refused(400, "no such path")
        if heads.get("sec-fetch-site", ["none"]) not in (["none"], ["same-origin"]):
            raise Refused(403, "another site has sent this request")

    def _check_rate(self, seen: deque[float], most: int, window: float) -> None:
        while seen and seen[0] < self._clock() - window:
            seen.popleft()
        if len(seen) >= most:
            raise Refused(429, "too many requests: wait a minute")

    async def _enter(self, scope: Scope, send: Send) -> None:
        """The link: right once. A wrong one is counted, and after a few of them none is looked at for a while.

        Cookies do not know ports: a server of somebody else on this machine would be sent the desk's, if the person
        opened it. So the cookie is for a path that nobody else knows.
        """
        self._check_rate(self._wrong, MAX_WRONG, WRONG_WINDOW)
        told = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"), max_num_fields=5)
        given = (told.get("token") or [""])[0]
        if scope["method"] != "GET" or self._token is None or not _same(given, self._token):
            self._wrong.append(self._clock())
            raise Refused(403, "this link is wrong or was used: start the desk again for a new one")
        self._token, self._session = None, Session(used=self._clock())
        cookie = f"{self.cookie_name}={self._session.cookie}; HttpOnly; SameSite=Strict; Path={self.base}"
        await _answer(send, 303, "", [(b"location", f"{self.base}/".encode()), (b"set-cookie", cookie.encode())])

    def _session_of(self, heads: dict[str, list[str]]) -> Session:
        session, given = self._session, ""
        try:
            jar = SimpleCookie(heads.get("cookie", [""])[0])
            given = jar[self.cookie_name].value if self.cookie_name in jar else ""
        except CookieError:
            given = ""
        if session is None or not _same(given, session.cookie) or self._clock() - session.used > IDLE:
            raise Refused(403, "open the desk by the link that its command has printed; a link is good once")
        session.used = self._clock()
        return session

    def _inside(self, path: str) -> str:
        if not path.startswith(f"{self.base}/"):
            raise Refused(404, "there is no such page")
        return path[len(self.base) :]

    def _check_origin(self, heads: dict[str, list[str]]) -> None:
        if heads.get("origin") != [f"http://{heads['host'][0]}"]:
            raise Refused(403, "another site has sent this request")


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _form(receive: Receive, heads: dict[str, list[str]]) -> dict[str, str]:
    """The fields of a form, each once; nothing else is read."""
    if heads.get("content-type", [""])[0].partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Refused(415, "a form is sent as a form")
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "gone")
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > MAX_BODY:
            raise Refused(413, "too long")
    try:
        told = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise Refused(400, "this is no form") from None
    if any(len(values) > 1 for values in told.values()):
        raise Refused(400, "a field is there twice")
    return {name: values[0] for name, values in told.items()}


def _hardened(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            heads = [(name, value) for name, value in message.get("headers", []) if name != b"x-desk-report"]
            report = len(heads) < len(message.get("headers", []))
            more = {**_HEADERS, "content-security-policy": _REPORT if report else _POLICY}
            message = {**message, "headers": heads + [(name.encode(), value.encode()) for name, value in more.items()]}
        await send(message)

    return sent


async def _answer(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    heads = [(b"content-type", b"text/plain; charset=utf-8"), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": heads})
    await send({"type": "http.response.body", "body": text.encode()})
