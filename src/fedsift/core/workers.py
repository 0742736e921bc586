"""How many cores a party computes on at the same time, and the one way to use them.

Columns, lists and ciphertexts are independent of each other, and NumPy, Polars and the compiled kernel leave Python's
lock free: threads are enough. A site may have a limit of its own (``workers`` in ``party.toml``); several sites in one
process each keep theirs. Work that is itself one of many threads does not start more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_limit: ContextVar[int | None] = ContextVar("fedsift workers", default=None)


def available() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)


def workers() -> int:
    """How many threads the work at hand may take."""
    return min(available(), _limit.get() or available())


@contextmanager
def limited(most: int | None) -> Iterator[None]:
    """Inside, no more than so many threads; ``None`` leaves it at what there is."""
    token = _limit.set(most)
    try:
        yield
    finally:
        _limit.reset(token)


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as may be taken (at most ``most``)."""
    listed = list(items)
    threads = min(workers(), len(listed), most or len(listed))
    if threads <= 1:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(threads, initializer=_limit.set, initargs=(1,)) as pool:
        return list(pool.map(work, listed))
