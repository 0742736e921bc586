"""How many cores a party computes on at the same time, and the one way to use them.

Columns, lists and ciphertexts are independent of each other, and NumPy, Polars and the compiled kernel leave Python's
lock free: threads are enough. A site may have a limit of its own (``workers`` in ``party.toml``); several sites in one
process each keep theirs. Work that is itself one of many threads does not start more.

A party that outgrows one machine names an engine (``engine = "tcp://..."`` in ``party.toml``): the scheduler of a Dask
cluster of its own. Sums of ciphertexts are cut into blocks of columns, which its machines compute as this one would:
the same numbers to the bit. What goes there is what this party holds anyway: ciphertexts that others sent it, and the
bins of its own columns.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from fedsift.errors import DataError, MissingExtra

Item = TypeVar("Item")
Result = TypeVar("Result")

_PATIENCE_S = 10  # until a cluster has answered

_limit: ContextVar[int | None] = ContextVar("fedsift workers", default=None)
_engine: ContextVar[str | None] = ContextVar("fedsift engine", default=None)


def available() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)


def workers() -> int:
    """How many threads the work at hand may take."""
    return min(available(), _limit.get() or available())


@contextmanager
def limited(most: int | None, engine: str | None = None) -> Iterator[None]:
    """Inside, no more than so many threads (``None`` leaves it at what there is), and a cluster for large sums."""
    token, address = _limit.set(most), _engine.set(engine)
    try:
        yield
    finally:
        _limit.reset(token)
        _engine.reset(address)


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as may be taken (at most ``most``)."""
    listed = list(items)
    threads = min(workers(), len(listed), most or len(listed))
    if threads <= 1:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(threads, initializer=_limit.set, initargs=(1,)) as pool:
        return list(pool.map(work, listed))


def elsewhere(work: Callable[..., Result], common: Sequence[object], items: Iterable[object]) -> list[Result] | None:
    """``[work(*common, item) for item in items]`` on the party's cluster; ``None`` where it has none.

    What is ``common`` goes to each machine once. An error there is raised here.
    """
    address = _engine.get()
    if address is None:
        return None
    client = _client(address)
    kept = client.scatter(list(common), broadcast=True, hash=False)
    found: list[Result] = client.gather([client.submit(work, *kept, item, pure=False) for item in items])
    return found


@functools.cache
def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtra("distributed", "dask") from None
    try:
        return Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError):  # a timeout is an OSError
        raise DataError(
            f"the engine {address!r} (party.toml) does not answer; start its scheduler and machines, or remove the line"
        ) from None
