"""A transport carries request bytes to parties and reply bytes back. It knows nothing of what they mean."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from fedsift.core.relayed import Holed


class Aborted(Exception):
    """The job was ended from outside while parties were asked; ``waiting`` are those that had not answered yet."""

    def __init__(self, waiting: Collection[str] = ()):
        super().__init__(f"the job was ended while it waited for {', '.join(waiting) or 'nobody'}")
        self.waiting = list(waiting)


@dataclass(frozen=True)
class Delivery:
    """What came back from one party: reply bytes, or the reason why there are none. A transport gives bytes; of a large
    reply a part is still at its party."""

    data: bytes | Holed | None
    seconds: float
    failure: str = ""  # "", "timeout" or "gone"


class Transport(ABC):
    """One method: ask several parties at the same time, wait for all."""

    name: str

    @abstractmethod
    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        """Send each party its request; one ``Delivery`` a party, whatever happens to the others."""

    def pause(self, seconds: float) -> None:
        """Wait before parties are asked again, where an answer may take days."""
        time.sleep(seconds)

    def close(self) -> None:  # noqa: B027  a transport without resources has nothing to close
        """Free what the transport holds."""
