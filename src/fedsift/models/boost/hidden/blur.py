"""What keeps exact equations out of the sums that the coordinator opens: noise of the size of a row.

Exact sums of unnamed cuts give records: where two cuts differ by one row their sums differ by its gradient and hessian,
and with the gradients of a small node's rows each cut is a subset-sum problem that lattice reduction solves
(``audit/attacks/cut_sums.py``: 81 % of Sonar's rows from 20 trees). So the label holder adds to each of its shares
before they leave a number drawn uniformly, up to ``WIDTH`` times the root mean square of the tree's gradients (of
hessians: of their deviation, since rows are counted exactly), on either side. A cut is then chosen as if a row or two
more had been in the node. Of nodes that cannot be cut again it sends uniform numbers: nobody needs their sums.

The noise repeats if and only if the sums do, so that a run can be repeated and no two runs can be subtracted: it is a
pseudorandom function, under the label holder's secret, of all that the sums are made of. That is the gradients, the
nodes, and a salt of the other party's columns, which comes sealed with its hidden cuts.

It is no differential privacy (that is ``epsilon``): a sum still tells what it tells about many rows. Under an epsilon
this noise comes on top of the other, in a width that no label decides: half of the largest gradient for its mean square
(hessians follow from what was released before).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.party import Party
from fedsift.crypto.sealed_box import frame
from fedsift.errors import ReplyError
from fedsift.models.boost.growing_tree import Boosting, Job, Node
from fedsift.models.boost.hidden.cuts import TreeCuts
from fedsift.models.boost.hidden.shares import pack
from fedsift.models.boost.privacy import running_noise
from fedsift.models.boost.rounds import counted
from fedsift.mpc.ring import Ring, stream, uniform

#: Times the root mean square of a row's number; 0: exact sums.
WIDTH = 2.0
_SALT_BYTES = 32


def width_of(party: Party) -> float:
    """As the accepted job says; methods without a word for it have the usual width."""
    job = party.run.job
    told = None if job is None else job.parameters.get("sum_noise")
    return WIDTH if told is None else float(told)


# --- what the noise hangs on ------------------------------------------------------------------------------------------


@dataclass
class Hidden:
    """What a party sends of its candidate cuts: a bit a row under a mask, and the salt of its columns."""

    cuts: Ring = field(repr=False)
    salt: bytes = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {"cuts": self.cuts, "salt": self.salt}

    @classmethod
    def read(cls, told: object, shape: tuple[int, int], sender: str) -> Hidden:
        """At the label holder, out of a sealed box."""
        if not isinstance(told, dict) or set(told) != {"cuts", "salt"}:
            raise ReplyError(sender, "hide_cuts", "what it sent are no hidden cuts")
        cuts, salt = told["cuts"], told["salt"]
        if not isinstance(cuts, np.ndarray) or cuts.dtype != np.uint64 or cuts.shape != shape:
            raise ReplyError(sender, "hide_cuts", "it hid another number of rows or cuts than it described")
        if not isinstance(salt, bytes) or len(salt) != _SALT_BYTES:
            raise ReplyError(sender, "hide_cuts", "the salt of its columns is missing")
        return cls(cuts, salt)


def salt_of(party: Party, codes: np.ndarray) -> bytes:
    """Another one as soon as a bin of a row is another; it says nothing to who lacks the party's secret."""
    order = party.table.by_id
    return _keyed(party, b"boost: salt", [np.asarray(party.table.ids)[order], codes[order]])


def _keyed(party: Party, purpose: bytes, parts: list[np.ndarray]) -> bytes:
    digest = hashlib.sha256(frame(purpose, *map(_content, parts))).digest()
    return hmac.new(party.site.secret, digest, hashlib.sha256).digest()


def _content(part: np.ndarray) -> bytes:
    values = part.tobytes() if part.dtype.kind in "biuf" else "\0".join(map(str, part.tolist())).encode()
    return f"{part.dtype.kind}{part.shape}".encode() + values


def _seed(party: Party, job: Job, node: Node, salt: bytes) -> bytes:
    """Of one node: what its rows are, and their numbers."""
    order = party.table.by_id
    inside = np.zeros(party.n_rows, dtype=bool)
    inside[node.train] = True
    rows = order[inside[order]]
    return _keyed(party, b"boost: noise" + salt, [np.asarray(party.table.ids)[rows], job.numbers[rows]])


# --- noise ------------------------------------------------------------------------------------------------------------


def blurred(
    party: Party, boosting: Boosting, job: Job, nodes: list[Node | None], tree: TreeCuts, salt: bytes | None,
    whole: int, share: Ring,
) -> Ring:  # fmt: skip
    """Shares of a tree's sums (nodes x candidates x (outputs + 1)), as they may be opened.

    The shares that the next level is made of have no noise. ``whole``: how many candidates there are, also those that
    the tree may not use: many models of a lock-step group may ask for the same sum, and get the same noise.
    """
    out, width = share.copy(), width_of(party)
    alive = np.array([node is not None for node in nodes])
    if boosting.noise is not None:
        scale = boosting.noise.level_scale(*counted(boosting.me, job.columns))
        private = running_noise(len(nodes), tree.columns, int(tree.blocks.sum()), scale, job.units.gradient)
        out[:, :, 0] += pack(private, np.zeros_like(private))
    out[~alive] = uniform((int((~alive).sum()), *share.shape[1:]))
    if width == 0 or not alive.any() or not share.shape[1]:
        return out
    assert salt is not None
    numbers, outputs = job.numbers[job.train].astype(np.float64), share.shape[2] - 1
    for place, node in enumerate(nodes):
        if node is None:
            continue
        seed = _seed(party, job, node, salt)
        for output in range(outputs):
            g, h = numbers[:, output], numbers[:, outputs + output]
            size = np.sqrt((g**2).mean()) if boosting.noise is None else 0.5 / job.units.gradient
            most = int(width * size), int(width * h.std())
            drawn = stream(seed, "boost: noise", output, (2, whole))[:, tree.candidates]
            out[place, :, output] += pack(*(_either_side(words, size) for words, size in zip(drawn, most)))
    return out


def _either_side(words: Ring, most: int) -> NDArray[np.int64]:
    """Uniform words as whole numbers from -most to most; ``most`` is far below 2^32, so all are as likely."""
    return (words % np.uint64(2 * most + 1)).astype(np.int64) - most
