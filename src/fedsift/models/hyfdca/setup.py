"""HyFDCA before the first round: what a party holds, the same design at all parties of a column block, common scales.

A column block is agreed on without the coordinator: categories travel encrypted under the block's secret, means,
deviations and the matrix of products of its columns as group sums (``group_sum.py``). The label holders do the same
with an amount as target. A block of one party sends nothing.

Columns hidden for products. In each round a party without labels needs X'a, where X are its columns and a the duals
that the label holder of its rows keeps to itself. The coordinator deals correlated random numbers (and sees neither X
nor a): U to the party, v to the label holder, shares of U'v to both. Once, the party gives the label holder E = X - U;
each round the label holder gives the row block F = a - v, and the party E'v + its share. Then
X'a = X'F + (E'v + share) + the other share, in Z_2^64, exactly. U, v and shares are uniform and v is fresh each round,
so E says nothing of X to the label holder, and F and the rest say X'a to the party and nothing else. All of it travels
under covers that the coordinator cannot take off; with one party on its side it could, which the threat model excludes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsift.core.arguments import Between, PartyName
from fedsift.core.binning import MAX_CATEGORY_BINS
from fedsift.core.labels import amounts, is_amount
from fedsift.core.ledger import other_persons
from fedsift.core.message import decode, encode, message
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused, SealError
from fedsift.models.design import Design, _raw
from fedsift.models.hyfdca.loss import curvature, first_centre
from fedsift.models.hyfdca.state import Labels, Means, Part, RoundState, Walk
from fedsift.models.hyfdca.track import Track
from fedsift.mpc.group_sum import cover_for, fixed, from_words, group_secret, hide, to_words, uncover
from fedsift.mpc.horizontal_study import class_name
from fedsift.mpc.pairs import MAX_PARTIES, Names
from fedsift.mpc.ring import Ring, stream

Loss = Literal["logistic", "hinge", "squared"]


@message
@dataclass(frozen=True)
class Place:
    """What a party is told of its place; everything else of a part comes from its own table."""

    holder: str
    column_group: str | None
    row_group: str | None
    holder_group: str | None
    first: bool
    first_holder: bool
    loss: Loss
    alpha: Annotated[float, Between(1e-9, 1e300)]
    blocks: Annotated[int, Between(1, MAX_PARTIES)]
    rows: Annotated[int, Between(1, 1 << 40)]
    outputs: Annotated[int, Between(1, 10_000)]


@message
@dataclass(frozen=True)
class Among:
    """Who takes part in a sum over a party's columns, and in one over the targets of all label holders."""

    columns: Names
    target: Names


@message
@dataclass(frozen=True)
class Totals:
    """The same sums over the group, covered; none where the group is one party."""

    columns: Ring | None
    target: Ring | None


@message
@dataclass(frozen=True)
class Described:
    """A party's rows and kind of columns (a hash of their names and kinds); of a label holder also its label."""

    rows: int
    schema: str
    label: bool = False
    amount: bool = False
    classes: list[str] = field(default_factory=list)


@message
@dataclass(frozen=True)
class Scaled:
    """The width of the design; products of its columns for the group; its columns less random numbers."""

    width: int
    gram: Ring | None
    hidden: Ring | None


@operation(
    "hyfdca.describe_part",
    times="1 a session",
    discloses="plain",
    about="numbers of rows and columns, a hash of the columns' names and kinds, the kind of label and its class names",
    reply=Described,
)
def describe_part(party: Party, *, task: str, holder: bool) -> Described:
    table = party.table
    kinds = [[name, table.kinds[name] == "categorical"] for name in sorted(table.columns)]
    label = table.label if holder else None
    schema = hashlib.sha256(encode(kinds)).hexdigest()
    if label is None:
        return Described(party.n_rows, schema)
    amount = task == "regression" or (task == "auto" and is_amount(label))
    if amount and label.dtype.kind not in "iufb":
        raise DataError(f"party {party.name!r}: the label is text, so it cannot be a regression target")
    classes = [] if amount else sorted({class_name(value) for value in np.unique(label)})
    return Described(party.n_rows, schema, label=True, amount=bool(amount), classes=classes)


@operation(
    "hyfdca.open_part",
    times="1 a session",
    discloses="ciphertext",
    about="the categories of its columns, readable to the parties with the same columns",
    opened="plain: the categories of its columns, to the parties with the same columns",
    opened_by="parties",
    needs=("column names",),
    reply=(bytes, type(None)),
)
def open_part(party: Party, *, place: Place, classes: list[str], regression: bool) -> bytes | None:
    """Take a place in the grid; read the target."""
    said = "auto" if party.run.job is None else party.run.job.parameters.get("loss", "auto")
    if said not in ("auto", place.loss):
        raise OperationRefused(party.name, "open_part", "its loss is another than that of the accepted job")
    part = Part(**vars(place))
    label = party.table.label
    if part.holder == party.name:
        if label is None:
            raise DataError(f"party {party.name!r} is to hold the labels of its rows, but it has no label column")
        part.target = amounts(label, party.name)[:, None] if regression else _signs(label, classes)
        part.classes = tuple(classes)
    party.keep(part)
    if part.column_group is None:
        return None
    nonce = secrets.token_bytes(12)
    return nonce + _box(party, part.column_group).encrypt(nonce, encode(_own_categories(party)), None)


def _own_categories(party: Party) -> dict[str, list[str]]:
    """The most frequent categories of each categorical column, in order."""
    found = {}
    for name in party.columns:
        if party.table.kinds[name] == "categorical":
            codes, categories = party.table.codes(name)
            count = np.bincount(codes[codes >= 0], minlength=len(categories))
            kept = np.argsort(-count, kind="stable")[:MAX_CATEGORY_BINS]
            found[name] = [categories[i] for i in sorted(kept.tolist()) if count[i] > 0]
    return found


def _signs(label: np.ndarray, classes: list[str]) -> np.ndarray:
    """-1 and 1: one column for two classes (1 is the second), else one a class."""
    code = {name: number for number, name in enumerate(classes)}
    if len(code) != len(classes) or len(code) < 2 or not {class_name(value) for value in label} <= set(code):
        raise DataError("the labels of this party are not all among the classes that it was told")
    codes = np.array([code[class_name(value)] for value in label])
    wanted = np.arange(len(classes)) if len(classes) > 2 else np.array([1])
    return np.where(codes[:, None] == wanted, 1.0, -1.0)


def _box(party: Party, group: str) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(hashlib.sha256(b"fedsift categories" + group_secret(party, group)).digest())


@operation(
    "hyfdca.sum_columns",
    times="1 a session",
    discloses="masked",
    receives="ciphertext",
    about="counts and sums of its columns (label holders: of the target), for the parties with the same columns",
    opened="aggregate: counts and sums of its columns (label holders: of the target), in total over parties with "
    "the same columns",
    opened_by="parties",
    releases=other_persons,
    learns="the categories that the parties with the same columns have together",
    reply=Totals,
    sums=True,
)
def sum_columns(party: Party, *, number: int, categories: list[bytes], among: Among) -> Totals:
    part = party.held(Part)
    columns = _agreed(party, part, categories)
    part.design = Design(columns, np.zeros(0), np.zeros(0))
    part.raw = _raw(party.table, columns)
    return _share(party, part, _own(part, _sums), "first moments", number, among)


def _agreed(party: Party, part: Part, categories: list[bytes]) -> list[tuple[str, tuple[str, ...] | None]]:
    """The columns with their categories: own ones, or those of all parties with the same columns together."""
    if part.column_group is None:
        own = _own_categories(party)
        return [(name, tuple(own[name]) if name in own else None) for name in party.columns]
    seen: dict[str, dict[str, int]] = {}
    for blob in categories:
        if len(blob) < 12 + 16:  # number and tag
            raise SealError(f"party {party.name!r}: a list of categories was cut off on the way")
        try:
            opened = decode(_box(party, part.column_group).decrypt(blob[:12], blob[12:], None))
        except InvalidTag:
            raise SealError(f"party {party.name!r}: a list of categories was altered on the way") from None
        for name, values in opened.items():
            for value in values:
                seen.setdefault(name, {})[value] = seen.setdefault(name, {}).get(value, 0) + 1
    result: list[tuple[str, tuple[str, ...] | None]] = []
    for name in sorted(party.columns):
        if party.table.kinds[name] != "categorical":
            result.append((name, None))
            continue
        common = sorted(seen.get(name, {}), key=lambda value: (-seen[name][value], value))[:MAX_CATEGORY_BINS]
        result.append((name, tuple(sorted(common))))
    return result


def _sums(values: np.ndarray) -> np.ndarray:
    return np.array([(~np.isnan(values)).sum(axis=0), np.nansum(values, axis=0), np.nansum(np.abs(values), axis=0)])


def _share(party: Party, part: Part, own: Means, purpose: str, number: int, among: Among) -> Totals:
    """Of own columns and target: hidden for the group, or ``None`` where there is no group to tell."""
    columns = target = None
    if part.column_group is not None:
        words = to_words(own.columns)
        columns = hide(party, words, f"{purpose} of columns", number, among.columns, part.column_group)
    if own.target is not None and part.holder_group is not None:
        words = to_words(own.target)
        target = hide(party, words, f"{purpose} of target", number, among.target, part.holder_group)
    return Totals(columns, target)


def _totals(party: Party, part: Part, given: Totals, own: Means, purpose: str, number: int) -> Means:
    """The same sums over the group: read from its total, or ``own`` where the group is one party."""

    def read(what: str, covered: Ring | None, mine: np.ndarray, group: str | None) -> np.ndarray:
        if group is None:
            return mine
        words = uncover(party, covered, f"{purpose} of {what}", number, group, (2 * mine.size,))
        return from_words(words, mine.shape)

    columns = read("columns", given.columns, own.columns, part.column_group)
    return Means(columns, None if own.target is None else read("target", given.target, own.target, part.holder_group))


def _own(part: Part, compute: Callable[[np.ndarray], np.ndarray]) -> Means:
    return Means(compute(part.raw), None if part.target is None else compute(part.target))


def _centre(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.maximum(sums[0], 1.0)
    size = sums[2] / counts
    unit = np.where(size > 0, 2.0 ** np.ceil(np.log2(np.where(size > 0, size, 1.0))), 1.0)
    return counts, sums[1] / counts, unit


@operation(
    "hyfdca.sum_spreads",
    times="1 a session",
    discloses="masked",
    receives="masked",
    about="squared deviations of its columns (label holders: of the target), for the parties with the same columns",
    opened="aggregate: squared deviations of its columns (label holders: of the target), in total over parties with "
    "the same columns",
    opened_by="parties",
    releases=other_persons,
    learns="the means of its columns over all parties with the same columns",
    reply=Totals,
)
def sum_spreads(party: Party, *, number: int, totals: Totals, before: int, among: Among) -> Totals:
    part = party.held(Part)
    means = party.keep(_totals(party, part, totals, _own(part, _sums), "first moments", before))
    return _share(party, part, _spreads(part, means), "second moments", number, among)


def _spreads(part: Part, means: Means) -> Means:
    columns = _spread(part.raw, means.columns)
    if part.target is None or means.target is None:
        return Means(columns, None)
    return Means(columns, _spread(part.target, means.target))


def _spread(values: np.ndarray, sums: np.ndarray) -> np.ndarray:
    _, centre, unit = _centre(sums)
    return np.asarray(np.nansum(((values - centre) / unit) ** 2, axis=0)[None, :])


@operation(
    "hyfdca.scale_columns",
    times="1 a session",
    discloses="masked",
    receives="masked",
    about="products of its columns, for parties with the same columns; its columns less random ones, for label holders",
    opened="aggregate: products of its columns, in total over the parties with the same columns",
    opened_by="parties",
    releases=other_persons,
    learns="the deviations of its columns over all parties with the same columns",
    reply=Scaled,
)
def scale_columns(party: Party, *, number: int, totals: Totals, before: int, among: Among, seed: bytes) -> Scaled:
    part = party.held(Part)
    columns, target = means = party.held(Means)
    spreads = _totals(party, part, totals, _spreads(part, means), "second moments", before)
    counts, centre, unit = _centre(columns)
    flat = spreads.columns[0] / counts <= 1e-14
    # As scikit-learn's scaler over rows where a missing value stands at the mean: divided by all rows.
    deviation = np.where(flat, np.inf, unit * np.sqrt(spreads.columns[0] / part.rows))
    part.design = Design(part.design.columns, centre, deviation)
    part.raw = np.zeros((0, 0))
    part.x_ring = fixed(part.design.matrix(party.table), part.bits, "a standardised column")
    part.x = np.ldexp(part.x_ring.view(np.int64).astype(np.float64), -part.bits)
    if part.target is not None and part.loss == "squared":
        part.target_scale = _scaled_target(party, part, target, spreads.target)
        part.target = (part.target - part.target_scale[0]) / part.target_scale[1]
    width = part.x.shape[1]
    gram = hidden = None
    if part.column_group is not None:
        upper = (part.x.T @ part.x)[np.triu_indices(width)]
        gram = hide(party, to_words(upper), "products", number, among.columns, part.column_group)
    if part.holder != party.name:
        mask = stream(seed, "columns", 1, part.x_ring.shape)
        hidden = cover_for(party, part.x_ring - mask, "hidden columns", number, part.holder)
    return Scaled(width, gram, hidden)


def _scaled_target(party: Party, part: Part, sums: Any, spread: Any) -> tuple[float, float]:
    _, centre, unit = _centre(sums)
    deviation = float(unit[0]) * float(np.sqrt(spread[0, 0] / part.rows))
    if not deviation > 1e-12 * max(1.0, abs(float(centre[0]))):
        raise DataError(f"party {party.name!r}: the target is the same in all rows; there is nothing to learn")
    return float(centre[0]), deviation


@operation(
    "hyfdca.start_rounds",
    times="1 a session",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="products of its columns, summed over all parties with the same columns",
)
def start_rounds(
    party: Party, *, gram: Ring | None, hidden: dict[PartyName, Ring], widths: dict[PartyName, int], before: int
) -> None:
    """The metric of the block: steps are taken where blocks * curvature * X'X + alpha is the unit matrix.

    A full step of all blocks together then never overshoots: |sum X_c v_c|^2 <= blocks * sum |X_c v_c|^2.
    """
    part = party.held(Part)
    width = part.x.shape[1]
    if part.column_group is None:
        matrix = part.x.T @ part.x
    else:
        size = width * (width + 1)
        upper = from_words(uncover(party, gram, "products", before, part.column_group, (size,)), (size // 2,))
        matrix = np.zeros((width, width))
        matrix[np.triu_indices(width)] = upper
        matrix = matrix + np.triu(matrix, 1).T
    matrix = part.blocks * curvature(part.loss) * matrix + part.alpha * np.eye(width)
    try:
        part.metric = np.linalg.inv(np.linalg.cholesky(matrix)).T  # metric @ metric.T is the inverse
    except np.linalg.LinAlgError:
        raise DataError("the sums of products that came are none: they are not positive definite") from None
    for name, covered in hidden.items():
        shape = (party.n_rows, widths[name])
        part.hidden[name] = uncover(party, covered, "hidden columns", before, name, shape)
    party.keep(_first_state(party, part))


def _first_state(party: Party, part: Part) -> RoundState:
    rows, width, outputs = party.n_rows, part.x.shape[1], part.outputs
    scores, sums = np.zeros((rows, outputs), dtype=np.uint64), np.zeros((width, outputs), dtype=np.uint64)
    state = RoundState(columns=Walk(Track.start(width, outputs), sums), own=sums, sent=sums, scores=scores)
    if part.holder == party.name:
        line = np.zeros(outputs, dtype=np.uint64)
        state.intercept = Walk(Track.start(1, outputs), line)
        state.labels = Labels(scores, first_centre(part.loss, scores.shape), line, line)
    return state


OPERATIONS = (describe_part, open_part, sum_columns, sum_spreads, scale_columns, start_rounds)
