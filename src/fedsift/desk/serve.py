"""Starts a desk: on 127.0.0.1 and nowhere else, behind the guard, until it is interrupted."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from typing import Any

from fedsift.desk.guard import App, Guard
from fedsift.errors import MissingExtra, ParameterError

ADDRESS = "127.0.0.1"
_CONNECTIONS = 64


def check_installed() -> None:
    for package in ("starlette", "uvicorn", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "desk")


def listen(port: int) -> socket.socket:
    """A socket of this machine alone; port 0 is any that is free."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
    except OSError as error:
        listening.close()
        raise ParameterError(f"the desk cannot listen on port {port}: {error.strerror}") from None
    return listening


def server(guard: Guard) -> Any:
    """The server of a guarded desk, not yet started."""
    import uvicorn

    config = uvicorn.Config(
        guard, log_level="critical", access_log=False, server_header=False, date_header=False, proxy_headers=False,
        limit_concurrency=_CONNECTIONS, timeout_keep_alive=5, h11_max_incomplete_event_size=1 << 14, ws="none",
        lifespan="off", http="h11", loop="asyncio",
    )  # fmt: skip
    return uvicorn.Server(config)


def run(app: App, port: int, say: Callable[[str], None]) -> None:
    """Serve until interrupted; ``say`` is told the link."""
    listening = listen(port)
    with listening:
        guard = Guard(app, listening.getsockname()[1])
        say(guard.link)
        server(guard).run(sockets=[listening])
