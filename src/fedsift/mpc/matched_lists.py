"""The coordinator's side of matching: lists of pseudonyms come one after the other, what all of them have is left.

No list is kept: of each only the places of what is still shared.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsift.errors import ReplyError

PSEUDONYM_BYTES = 16  # two different ids of 10^6 meet with probability below 2^-88


class Matched:
    """The pseudonyms that all lists so far share, and where they stand in each."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}  # how many are shared after each party's list
        self._frame = pl.DataFrame()

    @property
    def parties(self) -> list[str]:
        return list(self.left)

    @property
    def n_shared(self) -> int:
        return self._frame.height

    def meet(self, owner: str, listed: bytes) -> None:
        """Leave what this list has, too; the first list begins. A pseudonym stands in a list once: one that two lists
        had n times each would be n^2 pairs."""
        if len(listed) % PSEUDONYM_BYTES:
            raise ReplyError(owner, "match", "its list of ids was cut short")
        halves = np.frombuffer(listed, "<u8").reshape(-1, 2)
        new = pl.DataFrame({"high": halves[:, 0], "low": halves[:, 1], f"at {owner}": np.arange(len(halves))})
        if new.select("high", "low").n_unique() != len(new):
            raise ReplyError(owner, "match", "its list has an id twice")
        self._frame = self._frame.join(new, on=["high", "low"], how="inner") if self.left else new
        self.left[owner] = self._frame.height

    def positions(self, owner: str) -> NDArray[np.int64]:
        """Where the shared ids stand in a party's list, in the order of the list: any other would tell something."""
        return np.sort(self._frame[f"at {owner}"].to_numpy().astype(np.int64))

    def too_few(self, rows: dict[str, int], wanted: int, among: list[str]) -> str:
        """What is wrong, for the person who started the job."""
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        left = ", ".join(f"{name} {count:,}" for name, count in self.left.items())
        whom = (
            ", ".join(among) if len(self.left) == len(among) else f"the first {len(self.left)} of {len(among)} parties"
        )
        return (
            f"only {self.n_shared} ids are shared by {whom}, fewer than min_overlap={wanted} (rows: {told}; left after "
            f"each: {left}): are the ids written the same way everywhere (spaces, leading zeros, case), and do these "
            "parties share rows?"
        )
