"""Many sums over the same ciphertexts with few additions: columns are counted jointly where that is cheaper.

A histogram of one column costs an addition a row. Two columns of 32 groups have at most 1,024 pairs of groups: summing
the rows by pairs costs one addition a row for *both* columns, and each column's groups are then sums over pairs. Pairs
of columns are joined again, while the number of cells that occur stays well below the number of rows. So a large node
costs a fraction of rows x columns. Nothing is approximate: the sums are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedsift.core.workers import side_by_side
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey

_LEAST_ROWS = 2_000  # below, planning costs more than it saves
_COLUMNS_TOGETHER = 24  # columns that are compared with each other
_LIST_COST = 2  # a sum costs as much as this many additions, whatever its length


@dataclass
class GroupTable:
    """What to sum: rows of the vector of ciphertexts, by their group in each column."""

    rows: np.ndarray  # positions in the vector
    codes: np.ndarray  # rows x columns: the group of each row
    groups: np.ndarray  # groups of each column
    left_out: np.ndarray  # of each column: the group that nobody needs
    sizes: np.ndarray  # of each group, column after column: 0 means that it is not asked for

    @property
    def wanted(self) -> int:
        return int((self.sizes > 0).sum())


@dataclass
class _Team:
    """Columns that are counted jointly; a single column at the bottom."""

    codes: np.ndarray  # of each row: its cell
    cells: int
    skip: int  # the cell that is not needed, -1: none
    column: int = -1
    parts: tuple[tuple[_Team, np.ndarray], ...] = ()  # the teams it was made of, and their cell for each cell
    additions: int = field(init=False)

    def __post_init__(self) -> None:
        self.additions = len(self.codes) - int(np.count_nonzero(self.codes == self.skip))


def joint_sums(key: PublicKey, vector: Ciphertexts, tables: list[GroupTable]) -> Ciphertexts:
    """One ciphertext for each group that is asked for: table after table, column after column."""
    teams = [(number, team) for number, table in enumerate(tables) for team in _teams(table)]
    asked = [(team, team.codes, tables[number].rows) for number, team in teams]
    lists, at = _gathered(asked)
    work = [(number, team, places) for (number, team), places in zip(teams, at)]  # table, team, where its cells lie
    sums = key.select_sums(vector, lists)
    while any(team.parts for _, team, _ in work):
        teams, asked = [], []
        for number, team, places in work:
            here = np.flatnonzero(places >= 0)
            for part, cell in team.parts or ((team, np.arange(team.cells)),):
                teams.append((number, part))
                asked.append((part, cell[here], places[here]))
        lists, at = _gathered(asked)
        work, sums = [(*team, places) for team, places in zip(teams, at)], key.select_sums(sums, lists)
    return _in_order(key, sums, tables, work)


def _gathered(asked: list[tuple[_Team, np.ndarray, np.ndarray]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Lists of positions, one for each cell that occurs, and for each team where each cell's sum will lie."""
    lists: list[np.ndarray] = []
    at = []
    for (team, _, _), (filled, parts) in zip(asked, side_by_side(lambda each: _sorted(*each), asked)):
        places = np.full(team.cells, -1, dtype=np.int64)
        places[filled] = len(lists) + np.arange(len(filled))
        lists += parts
        at.append(places)
    return lists, at


def _sorted(team: _Team, codes: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The cells of a team that occur and are needed, and the positions that lie in each."""
    small = codes.astype(np.min_scalar_type(team.cells))  # NumPy sorts small numbers by counting them
    inside = positions[np.argsort(small, kind="stable")]
    sizes = np.bincount(codes, minlength=team.cells)
    ends = np.cumsum(sizes)
    filled = np.flatnonzero(sizes)
    filled = filled[filled != team.skip]
    starts = (ends - sizes)[filled].tolist()
    return filled, [inside[start:end] for start, end in zip(starts, ends[filled].tolist())]


def _in_order(
    key: PublicKey, sums: Ciphertexts, tables: list[GroupTable], work: list[tuple[int, _Team, np.ndarray]]
) -> Ciphertexts:
    found = {(number, team.column): at for number, team, at in work}
    places = []
    for number, table in enumerate(tables):
        starts = np.concatenate([[0], np.cumsum(table.groups)]).astype(np.int64)
        for column in range(len(table.groups)):
            asked = np.flatnonzero(table.sizes[starts[column] : starts[column + 1]])
            at = found.get((number, column))
            places.append(np.full(len(asked), -1, dtype=np.int64) if at is None else at[asked])
    flat = np.concatenate(places) if places else np.zeros(0, np.int64)
    if (flat < 0).any():  # a group without rows here: its sum is zero
        flat = np.where(flat < 0, len(sums), flat)
        sums = Ciphertexts.concat([sums, key.encrypt([0])])
    return sums.take(flat)


def _teams(table: GroupTable) -> list[_Team]:
    single = side_by_side(
        lambda c: _Team(table.codes[:, c].astype(np.int64), int(table.groups[c]), int(table.left_out[c]), c),
        range(table.codes.shape[1]),
    )
    if len(table.rows) < _LEAST_ROWS:
        return single
    single.sort(key=lambda team: team.cells)
    blocks = range(0, len(single), _COLUMNS_TOGETHER)
    joined = side_by_side(lambda start: _joined(single[start : start + _COLUMNS_TOGETHER]), blocks)
    return [team for teams in joined for team in teams]


def _joined(teams: list[_Team]) -> list[_Team]:
    """Join the two teams that save most, until no pair saves anything."""
    alive = dict(enumerate(teams))
    saved = {(a, b): _saving(alive[a], alive[b]) for a in alive for b in alive if a < b}
    while saved:
        best = max(saved, key=lambda pair: saved[pair])
        if saved[best] <= 0:
            break
        new = max(alive) + 1
        team = _join(alive.pop(best[0]), alive.pop(best[1]))
        saved = {pair: value for pair, value in saved.items() if not set(pair) & set(best)}
        saved.update({(other, new): _saving(alive[other], team) for other in alive})
        alive[new] = team
    return list(alive.values())


def _saving(a: _Team, b: _Team) -> float:
    """Additions that joining two teams saves."""
    if a.cells * b.cells > 4 * len(a.codes) or min(a.additions, b.additions) < _LEAST_ROWS:
        return 0
    apart = a.additions + b.additions
    counts = np.bincount(a.codes * b.cells + b.codes, minlength=a.cells * b.cells).reshape(a.cells, b.cells)
    occurs = counts > 0
    both = counts[a.skip, b.skip] if a.skip >= 0 and b.skip >= 0 else 0
    cells = int(occurs.sum())
    for_a = cells - (int(occurs[a.skip].sum()) if a.skip >= 0 else 0)
    for_b = cells - (int(occurs[:, b.skip].sum()) if b.skip >= 0 else 0)
    return float(apart - (len(a.codes) - both + for_a + for_b + _LIST_COST * cells))


def _join(a: _Team, b: _Team) -> _Team:
    joint = a.codes * b.cells + b.codes
    cells = np.flatnonzero(np.bincount(joint, minlength=a.cells * b.cells))
    number = np.zeros(a.cells * b.cells, dtype=np.int64)
    number[cells] = np.arange(len(cells))
    in_a, in_b = cells // b.cells, cells % b.cells
    skip = np.flatnonzero((in_a == a.skip) & (in_b == b.skip))
    return _Team(number[joint], len(cells), int(skip[0]) if len(skip) else -1, parts=((a, in_a), (b, in_b)))
