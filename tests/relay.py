"""A relay on loopback between FLARE's clients and its server: counts the bytes on the wire, and can make the line slow.

Used where the kernel cannot add latency to a network namespace (no ``netem``). A lost packet is what TCP makes of it:
a stall of a retransmission time, now and then. TLS passes through unread.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path

RETRANSMISSION = 0.2  # seconds, Linux's smallest


class Relay:
    """Listens on ``port`` and forwards to ``target``; ``delay`` seconds each way, ``loss`` of the pieces stall."""

    def __init__(self, target: int, delay: float = 0.0, loss: float = 0.0):
        self.target, self.delay, self.loss = target, delay, loss
        self.bytes = {"to server": 0, "to clients": 0}
        self.connections = 0
        self._random = random.Random(0)
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait(10)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.connections += 1
        await asyncio.gather(self._pump(reader, far_writer, "to server"), self._pump(far_reader, writer, "to clients"))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send(waiting, writer))
        try:
            while data := await reader.read(1 << 16):
                self.bytes[way] += len(data)
                stall = RETRANSMISSION if self._random.random() < self.loss else 0.0
                waiting.put_nowait((self._loop.time() + self.delay + stall, data))
        except (OSError, asyncio.CancelledError):
            pass
        waiting.put_nowait((0.0, b""))
        await sender

    async def _send(self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        try:
            while (item := await waiting.get())[1]:
                if (left := item[0] - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                writer.write(item[1])
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        writer.close()

    def total(self) -> int:
        return sum(self.bytes.values())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def through(relay: Relay, kit: Path) -> None:
    """Let a client's start kit call the relay in place of the server."""
    file = kit / "startup" / "fed_client.json"
    content = json.loads(file.read_text())
    content["servers"][0]["service"]["target"] = f"localhost:{relay.port}"
    file.write_text(json.dumps(content))
