"""A headless Chromium for tests, spoken to over a pipe: no driver, no port, no package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
]


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. ``requests``, ``errors`` collect what it asked for and what went wrong in it."""

    def __init__(self, program: str):
        self.folder = tempfile.mkdtemp(prefix="fedsift-browser-")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; the shell puts the pipes there.
        start = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, program, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self._answers: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 90  # on a machine with much else to do
        while self._number not in self._answers:
            self._listen(deadline)
        answer = self._answers.pop(self._number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _listen(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._from], [], [], max(0.0, left))
        data = os.read(self._from, 1 << 20) if ready else b""
        if not data:
            raise TimeoutError("the browser does not answer")
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        for text in whole:
            self._take(json.loads(text))

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled":
            self.errors.append(str(params["args"]))
        elif message["method"] == "Log.entryAdded":
            self.errors.append(params["entry"]["text"])

    def open(self, path: Path | str, *, width: int = 1280, dark: bool = False, paper: bool = False) -> None:
        self.requests, self.errors = [], []
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media="print" if paper else "", features=scheme)
        url = path if isinstance(path, str) else path.resolve().as_uri()
        self.send("Page.navigate", url=url)
        deadline = time.monotonic() + 30
        while self.run("document.readyState") != "complete" or self.run("location.protocol") == "about:":
            assert time.monotonic() < deadline, "the page does not finish loading"

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        data = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=self._whole_page())["data"]
        path.write_bytes(base64.b64decode(data))

    def _whole_page(self) -> dict[str, float]:
        width, height = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        return {"x": 0, "y": 0, "width": width, "height": min(height, 16000), "scale": 1}

    def close(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, AssertionError):
            self._session = None
            self.send("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module", name="browser")
def a_browser():
    """One for all tests of a file; a file imports it by its function's name."""
    opened = Browser(find_chromium())
    yield opened
    opened.close()
