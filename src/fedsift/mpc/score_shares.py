"""Scores of a model as two shares, one with the label holder and one with another party, for measures on shares.

After a step of ``shared_descent`` the coordinator has one share of the scores and the label holder the other. Here the
coordinator's goes on to another party, renewed by a mask e that it and the label holder draw from their seed:

    other party: (coordinator's share) + e        label holder: (its own share) - e

The other party does not know e, so what it gets is uniform to it; the label holder gets nothing. Whoever reads a score
must have both shares: neither party sends its own to anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused
from fedsift.mpc.ring import Floats, Ring, check_shape, stream
from fedsift.mpc.shared_descent import Columns, SharedDescent, Step, keep_share


@dataclass(frozen=True)
class ScoreShare:
    """A party's share of the scores, rows x outputs, with so many bits behind the point."""

    numbers: Ring
    fraction: int


def _unread(party: Party, columns: Columns) -> int:
    """Bits behind the point; refused where this run was begun for something else than a measure."""
    if columns.loss is not None or columns.target is not None:
        raise OperationRefused(party.name, "score shares", "this run is for a descent or for predictions")
    return columns.precision.columns + columns.precision.weights


@operation(
    "scores.keep_rest", discloses="control", receives="masked", about="acknowledgement",
    learns="a share of the scores, which is uniform to it", role="active", times="1 a session",
)  # fmt: skip
def keep_rest(party: Party, *, weights: Ring, step: Step, seed: bytes) -> None:
    """The label holder's share."""
    columns = party.held_here(Columns)
    fraction = _unread(party, columns)
    own = keep_share(party, columns, weights, step, seed)
    party.keep(ScoreShare(own - stream(seed, "renew", step, own.shape), fraction))


@operation(
    "scores.take_share", discloses="control", receives="masked", about="acknowledgement",
    learns="a share of the scores, which is uniform to it", role="passive", times="1 a session",
)  # fmt: skip
def take_share(party: Party, *, share: Ring) -> None:
    """The other party's."""
    columns = party.held_here(Columns)
    check_shape(share, (party.n_rows, columns.outputs), party.name)
    party.keep(ScoreShare(share, _unread(party, columns)))


OPERATIONS = (keep_rest, take_share)


def share_scores_at(descent: SharedDescent, weights: Mapping[str, Floats]) -> int:
    """Leave shares of the scores with the label holder and its helper; the bits behind the point."""
    run = descent.run
    descent.step += 1
    scores, given, _ = descent.scores_at(weights)
    run.ask(keep_rest, to=run.active, **given)
    share = scores + stream(given["seed"], "renew", descent.step, scores.shape)
    run.ask(take_share, to=descent.helper, share=share)
    return descent.bits.columns + descent.bits.weights
