"""Small transports for tests: one that writes down every byte, one that serves the parties one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsift.core.identity import introduce
from fedsift.core.message import unpack
from fedsift.core.party import Site
from fedsift.core.transports.base import Delivery, Transport


class Recording(Transport):
    """Passes everything on to another transport and keeps (sender, receiver, bytes), a line a request and reply."""

    def __init__(self, inner: Transport):
        self.inner = inner
        self.name = inner.name
        self.log: list[tuple[str, str, bytes]] = []

    @property
    def sites(self) -> dict[str, Site]:
        found: dict[str, Site] = self.inner.sites  # type: ignore[attr-defined]
        return found

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        self.log += [("coordinator", name, each) for name, data in requests.items() for each in unpack(data)]
        replies = self.inner.exchange(requests, timeout)
        given = {name: reply.data for name, reply in replies.items() if isinstance(reply.data, bytes)}
        self.log += [(name, "coordinator", each) for name, data in given.items() for each in unpack(data)]
        return replies


class Serial(Transport):
    """No threads; parties in reverse order. Another transport as far as a method can tell."""

    name = "serial"

    def __init__(self, sites: dict[str, Site]):
        self.sites = sites
        introduce(sites)

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        result = {}
        for name in reversed(list(requests)):
            start = time.perf_counter()
            result[name] = Delivery(self.sites[name].receive(requests[name]), time.perf_counter() - start)
        return result


class Faulty(Transport):
    """Replaces one party's replies: by a function of the bytes, or by a failure."""

    name = "faulty"

    def __init__(self, inner: Transport, party: str, replace: Callable[[Delivery], Delivery]):
        self.inner, self.party, self.replace = inner, party, replace

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        replies = self.inner.exchange(requests, timeout)
        if self.party in replies:
            replies[self.party] = self.replace(replies[self.party])
        return replies
