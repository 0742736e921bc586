"""Bytes that are passed on without being held: a large reply stays at its party until somebody wants them.

Of a reply that does not fit a piece (``pieces.py``) the coordinator gets what it needs to read it: all but the insides
of its large blocks (``Holed``). A block that it only passes on, a sealed box or ciphertexts, is known by its place
there (``Elsewhere``), and a request that has such blocks in it (``Parts``) reads them where they lie while it goes out,
piece by piece. So the coordinator holds some pieces, however large messages are and however many parties there are.
What it does open (arrays, lists of points) it reads at once, as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedsift.errors import MessageError


@dataclass(frozen=True)
class Holed:
    """A message of ``size`` bytes without the insides of some blocks, which ``read`` brings where they are needed."""

    size: int
    skeleton: bytes = field(repr=False)
    starts: list[int]
    stops: list[int]
    read: Callable[[int, int], bytes] = field(repr=False)

    def __post_init__(self) -> None:
        """What a party says of its reply is looked at before anything is read by it."""
        ends = [0, *self.stops]
        apart = all(before <= start < stop for before, start, stop in zip(ends, self.starts, self.stops))
        inside = sum(self.stops) - sum(self.starts)
        if len(self.starts) != len(self.stops) or not apart or ends[-1] > self.size or (
            inside + len(self.skeleton) != self.size
        ):  # fmt: skip
            raise MessageError("the parts of a reply do not fit together")

    def __len__(self) -> int:
        return self.size

    def lacks(self, start: int, stop: int) -> bool:
        """Whether some of these bytes are not here."""
        before = bisect_right(self.stops, start)  # holes that end before it
        return before < len(self.starts) and self.starts[before] < stop

    def __getitem__(self, where: slice) -> bytes:
        start, stop, _ = where.indices(self.size)
        if self.lacks(start, stop):
            return self.read(start, stop)
        before = bisect_right(self.stops, start)
        left_out = sum(self.stops[:before]) - sum(self.starts[:before])
        return self.skeleton[start - left_out : stop - left_out]


@dataclass(frozen=True)
class Elsewhere:
    """A block of such a message."""

    message: Holed = field(repr=False)
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def missing(self) -> bool:
        """Whether some of it is not here."""
        return self.message.lacks(self.start, self.stop)

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        end = self.stop if stop is None else min(self.start + stop, self.stop)
        return self.message[self.start + start : end]


#: Of a message that is being written.
Part = bytes | memoryview | Elsewhere


@dataclass(frozen=True)
class Parts:
    """A message to be sent, with blocks that are read when they go out."""

    parts: Sequence[Part] = field(repr=False)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        found, at, end = [], 0, len(self) if stop is None else stop
        for part in self.parts:
            first, last = max(start - at, 0), min(end - at, len(part))
            if first < last:
                found.append(part.read(first, last) if isinstance(part, Elsewhere) else part[first:last])
            at += len(part)
        return b"".join(found)


def whole(data: bytes | Holed | Parts) -> bytes:
    """All of it, in memory."""
    if isinstance(data, bytes):
        return data
    return data.read(0, len(data))
