"""Many sums over the same ciphertexts with few additions: columns are counted jointly where that is cheaper.

A histogram of one column costs an addition a row. Two columns of 32 groups have at most 1,024 pairs of groups: summing
the rows by pairs costs one addition a row for *both* columns, and each column's groups are then sums over pairs. Pairs
of columns are joined again, while the number of cells that occur stays well below the number of rows. So a large node
costs a fraction of rows x columns. Nothing is approximate: the sums are the same. (Which columns are joined is decided
on some of the rows, where there are many.)

Columns are taken in blocks: of a wide or long table the row numbers of one block are all that is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedsift.core.workers import elsewhere, side_by_side
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey

_LEAST_ROWS = 2_000  # below, planning costs more than it saves
_LOOKED_AT = 1 << 14  # rows on which it is decided what to join
_COLUMNS_TOGETHER = 24  # columns that are compared with each other
_MANY_COLUMNS = 240  # of a table: beyond, half as many are compared
_CELLS_AT_ONCE = 1 << 27  # rows x columns whose row numbers are in memory
_WORTH_SENDING = 1 << 22  # rows x columns that are worth the way to a cluster
_LIST_COST = 2  # a sum costs as much as this many additions, whatever its length


@dataclass
class GroupTable:
    """What to sum: rows of the vector of ciphertexts, by their group in each column."""

    rows: np.ndarray  # positions in the vector
    codes: np.ndarray  # rows x columns: the group of each row; its bin, where ``group_of`` says the group of a bin
    groups: np.ndarray  # groups of each column
    left_out: np.ndarray  # of each column: the group that nobody needs
    sizes: np.ndarray  # of each group, column after column: 0 means that it is not asked for
    lines: np.ndarray | None = None  # where the rows stand in ``codes``, unless there are no others in it
    group_of: np.ndarray | None = None  # columns x bins

    @property
    def wanted(self) -> int:
        return int((self.sizes > 0).sum())

    def part(self, here: np.ndarray, rows: np.ndarray) -> GroupTable:
        """Some of the rows, under other positions."""
        lines = np.flatnonzero(here) if self.lines is None else self.lines[here]
        return replace(self, rows=rows, lines=lines)

    def column(self, number: int) -> np.ndarray:
        """The group of each row in one column."""
        codes = self.codes[:, number] if self.lines is None else self.codes[:, number].take(self.lines)
        groups = codes if self.group_of is None else self.group_of[number].take(codes)
        return groups.astype(np.min_scalar_type(int(self.groups[number])))


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


@dataclass(frozen=True)
class _Block:
    """Some columns of one of the tables."""

    number: int
    table: GroupTable
    columns: list[int]


_Plan = int | tuple["_Plan", "_Plan"]  # a column, or two plans that are counted jointly


def joint_sums(key: PublicKey, vector: Ciphertexts, tables: list[GroupTable]) -> Ciphertexts:
    """One ciphertext for each group that is asked for: table after table, column after column."""
    blocks = [block for number, table in enumerate(tables) for block in _blocks(number, table)]
    places: dict[tuple[int, int], np.ndarray] = {}
    parts: list[Ciphertexts] = []
    done = first = 0
    away = _elsewhere(key, vector, blocks)
    for sums, found in away or ():
        places |= {column: np.where(at < 0, -1, at + done) for column, at in found.items()}
        parts, done = [*parts, sums], done + len(sums)
    while away is None and first < len(blocks):
        cells = np.cumsum([len(block.table.rows) * len(block.columns) for block in blocks[first:]])
        last = first + max(1, int(np.searchsorted(cells, _CELLS_AT_ONCE, side="right")))
        sums, found = _summed(key, vector, blocks[first:last])
        places |= {column: np.where(at < 0, -1, at + done) for column, at in found.items()}
        parts, done, first = [*parts, sums], done + len(sums), last
    return _in_order(key, Ciphertexts.concat(parts) if parts else vector.take([]), tables, places)


def _blocks(number: int, table: GroupTable) -> list[_Block]:
    """Columns of about as many groups lie in the same block: those are joined."""
    order = np.argsort(table.groups, kind="stable").tolist()
    width = _COLUMNS_TOGETHER if len(order) <= _MANY_COLUMNS else _COLUMNS_TOGETHER // 2
    return [_Block(number, table, order[start : start + width]) for start in range(0, len(order), width)]


_Sums = tuple[Ciphertexts, dict[tuple[int, int], np.ndarray]]


def _elsewhere(key: PublicKey, vector: Ciphertexts, blocks: list[_Block]) -> list[_Sums] | None:
    """The sums of each block from the party's cluster, where it has one and the work is worth the way."""
    if sum(len(block.table.rows) * len(block.columns) for block in blocks) < _WORTH_SENDING:
        return None
    found = elsewhere(_there, (key, vector), [(block.number, block.columns, _alone(block)) for block in blocks])
    return None if found is None else [(key.concat([sums]), places) for sums, places in found]


def _alone(block: _Block) -> GroupTable:
    """A block's columns and nothing else."""
    columns, nothing = [block.table.column(column) for column in block.columns], np.zeros(0, np.int64)
    width = np.result_type(*columns)
    codes = np.stack([column.astype(width) for column in columns], axis=1)
    chosen = np.asarray(block.columns, dtype=np.int64)
    return GroupTable(block.table.rows, codes, block.table.groups[chosen], block.table.left_out[chosen], nothing)


def _there(key: PublicKey, vector: Ciphertexts, block: tuple[int, list[int], GroupTable]) -> _Sums:
    number, columns, table = block
    sums, found = _summed(key, vector, [_Block(number, table, list(range(len(columns))))])
    return sums, {(number, columns[place]): at for (_, place), at in found.items()}


def _summed(key: PublicKey, vector: Ciphertexts, blocks: list[_Block]) -> _Sums:
    """The sums of some blocks, and for each table and column where its groups' sums lie among them (-1: nowhere)."""
    work = [(block.number, block.table.rows, team) for block, team in _teams(blocks)]
    order, bounds, at = _gathered([(team, team.codes, rows) for _, rows, team in work])
    here = [(number, team, places) for (number, _, team), places in zip(work, at)]
    sums = key.sums(vector, order, bounds)
    while any(team.parts for _, team, _ in here):
        teams, asked = [], []
        for number, team, places in here:
            there = np.flatnonzero(places >= 0)
            for part, cell in team.parts or ((team, np.arange(team.cells)),):
                teams.append((number, part))
                asked.append((part, cell[there], places[there]))
        order, bounds, at = _gathered(asked)
        here, sums = [(*team, places) for team, places in zip(teams, at)], key.sums(sums, order, bounds)
    return sums, {(number, team.column): places for number, team, places in here}


def _gathered(
    asked: list[tuple[_Team, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Positions in the order of the cells they lie in, where each cell that occurs ends, and for each team where each
    cell's sum will lie."""
    sizes = side_by_side(lambda each: _needed(each[0], each[1]), asked)
    ends = np.append(0, np.cumsum([int(each.sum()) for each in sizes]))
    order = np.empty(int(ends[-1]), dtype=np.int64)

    def sort(number: int) -> None:
        team, codes, positions = asked[number]
        small = codes.astype(np.min_scalar_type(team.cells), copy=False)  # NumPy sorts small numbers by counting them
        inside = np.argsort(small, kind="stable")
        if len(inside) > ends[number + 1] - ends[number]:  # without the cell that nobody needs
            before = int(sizes[number][: team.skip].sum())
            inside = np.delete(inside, slice(before, before + len(inside) - int(ends[number + 1] - ends[number])))
        positions.take(inside, out=order[ends[number] : ends[number + 1]])

    side_by_side(sort, range(len(asked)))
    flat = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
    occurs = flat > 0
    places = np.where(occurs, np.cumsum(occurs) - 1, -1)
    cuts = np.cumsum([len(each) for each in sizes])[:-1]
    return order, np.append(0, np.cumsum(flat[occurs])), np.split(places, cuts) if sizes else []


def _needed(team: _Team, codes: np.ndarray) -> np.ndarray:
    """How many positions lie in each cell of a team; none in the one that nobody needs."""
    sizes = np.bincount(codes, minlength=team.cells)
    if team.skip >= 0:
        sizes[team.skip] = 0
    return sizes


def _in_order(
    key: PublicKey, sums: Ciphertexts, tables: list[GroupTable], found: dict[tuple[int, int], np.ndarray]
) -> Ciphertexts:
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


def _teams(blocks: list[_Block]) -> list[tuple[_Block, _Team]]:
    """What is summed together."""
    columns = [(block, column) for block in blocks for column in block.columns]
    made = side_by_side(lambda each: _single(each[0].table, each[1]), columns)
    single = {(block.number, column): team for (block, column), team in zip(columns, made)}
    # The places of a node's rows in shared ciphertexts are parts of one table: what to join is decided once.
    first = {(id(block.table.left_out), block.columns[0]): block for block in reversed(blocks)}
    found = side_by_side(lambda block: _plans([single[block.number, c] for c in block.columns]), first.values())
    plans = dict(zip(first, found))
    planned = [(block, plan) for block in blocks for plan in plans[id(block.table.left_out), block.columns[0]]]

    def realised(each: tuple[_Block, _Plan]) -> list[_Team]:
        return _realised(each[1], {column: single[each[0].number, column] for column in each[0].columns})

    teams = side_by_side(realised, planned)
    return [(block, team) for (block, _), some in zip(planned, teams) for team in some]


def _single(table: GroupTable, column: int) -> _Team:
    return _Team(table.column(column), int(table.groups[column]), int(table.left_out[column]), column)


def _plans(teams: list[_Team]) -> list[_Plan]:
    """Join the two teams that save most, until no pair saves anything: by what some of the rows say."""
    rows = len(teams[0].codes)
    if rows < _LEAST_ROWS:
        return [team.column for team in teams]
    each = max(1, rows // _LOOKED_AT)
    alive = {number: replace(team, codes=team.codes[::each]) for number, team in enumerate(teams)}
    plans: dict[int, _Plan] = {number: team.column for number, team in enumerate(teams)}
    saved = {(a, b): _saving(alive[a], alive[b], each) for a in alive for b in alive if a < b}
    while saved:
        best = max(saved, key=lambda pair: saved[pair])
        if saved[best] <= 0:
            break
        new = max(alive) + 1
        team = _join(alive.pop(best[0]), alive.pop(best[1]))
        plans[new] = plans.pop(best[0]), plans.pop(best[1])
        saved = {pair: value for pair, value in saved.items() if not set(pair) & set(best)}
        saved.update({(other, new): _saving(alive[other], team, each) for other in alive})
        alive[new] = team
    return list(plans.values())


def _realised(plan: _Plan, single: dict[int, _Team]) -> list[_Team]:
    """The team of a plan; several, where all rows have more cells than was thought."""
    if isinstance(plan, int):
        return [single[plan]]
    left, right = _realised(plan[0], single), _realised(plan[1], single)
    if len(left) == len(right) == 1 and left[0].cells * right[0].cells <= 4 * len(left[0].codes):
        return [_join(left[0], right[0])]
    return left + right


def _saving(a: _Team, b: _Team, each: int = 1) -> float:
    """Additions that joining two teams saves, where each row looked at stands for so many."""
    if a.cells * b.cells > 4 * len(a.codes) or min(a.additions, b.additions) * each < _LEAST_ROWS:
        return 0
    apart = (a.additions + b.additions) * each
    counts = np.bincount(_pairs(a, b), minlength=a.cells * b.cells).reshape(a.cells, b.cells)
    occurs = counts > 0
    both = counts[a.skip, b.skip] if a.skip >= 0 and b.skip >= 0 else 0
    seen = int(occurs.sum())
    for_a = seen - (int(occurs[a.skip].sum()) if a.skip >= 0 else 0)
    for_b = seen - (int(occurs[:, b.skip].sum()) if b.skip >= 0 else 0)
    more = 1.0
    if each > 1:  # cells without a row among those looked at: Chao's estimate, from cells with one and with two
        ones, twos = int((counts == 1).sum()), int((counts == 2).sum())
        more = min(a.cells * b.cells, seen + ones * (ones - 1) / (2 * (twos + 1))) / max(1, seen)
    return float(apart - ((len(a.codes) - both) * each + more * (for_a + for_b + _LIST_COST * seen)))


def _pairs(a: _Team, b: _Team) -> np.ndarray:
    """The cell of each row in two teams together."""
    kind = np.int32 if a.cells * b.cells < 2**31 else np.int64
    joint: np.ndarray = np.multiply(a.codes, b.cells, dtype=kind)
    np.add(joint, b.codes, out=joint, casting="unsafe")
    return joint


def _join(a: _Team, b: _Team) -> _Team:
    joint = _pairs(a, b)
    cells = np.flatnonzero(np.bincount(joint, minlength=a.cells * b.cells))
    number = np.zeros(a.cells * b.cells, dtype=np.min_scalar_type(len(cells)))
    number[cells] = np.arange(len(cells))
    in_a, in_b = cells // b.cells, cells % b.cells
    skip = np.flatnonzero((in_a == a.skip) & (in_b == b.skip))
    return _Team(number[joint], len(cells), int(skip[0]) if len(skip) else -1, parts=((a, in_a), (b, in_b)))
