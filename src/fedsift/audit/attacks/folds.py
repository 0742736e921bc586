"""Labels from folds that are dealt within classes by a seed that everybody knows (security.md, lines 1 to 3).

A stratified draw takes the rows of each class in a fixed order and deals them by a random permutation of their number.
With the seed, the permutation is known for any class sizes: so the row positions in the folds, which travel in the
clear, are two known sequences, one a class, shuffled into each other row by row. Which labelings explain them is a
walk on a grid: after i rows, c of them of class 1, the next row has the fold of the next class 0 row or that of the
next class 1 row. Counting the walks forward and backward gives the chance of class 1 for every row, exactly; rows at
0 or 1 are certain. Several draws over the same order of rows are one walk that has to satisfy all.

The attacker knows the class sizes (a study's first figure; otherwise it tries them, for wrong ones leave no walk).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, control_accuracy, nothing_to_read, own_rows_accuracy, own_rows_auc
from fedsift.audit.views import Truth, View
from fedsift.core.federation import Federation
from fedsift.core.splits import train_test_rows

#: A draw: class codes of rows in the order in which the draw takes them -> a symbol (the fold) for each.
Deal = Callable[[np.ndarray], np.ndarray]


def dealt_folds(codes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The landed rule of the boosters: classes one after the other, each in an order drawn from the seed."""
    generator = np.random.default_rng(seed)
    fold = np.empty(len(codes), dtype=np.int64)
    offset = 0
    for k in np.unique(codes):
        members = generator.permutation(np.flatnonzero(codes == k))
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def split_rows(codes: np.ndarray, train: float, seed: int, stratify: bool = True) -> np.ndarray:
    """The landed rule of ``draw_rows``: 1 for training rows."""
    chosen, _ = train_test_rows(len(codes), train, stratify_on=codes if stratify else None, random_state=seed)
    mask = np.zeros(len(codes), dtype=np.int64)
    mask[chosen] = 1
    return mask


def chance_of_class_1(observed: Sequence[np.ndarray], deals: Sequence[Deal], sizes: tuple[int, int]) -> np.ndarray:
    """For every row the share of the labelings of these class sizes with class 1, among those that explain all draws.

    ``observed[d]`` is the symbol of each row under draw ``d``, rows in the order in which the draws take them. NaN
    everywhere if no labeling does.
    """
    zeros, ones = sizes
    codes = np.repeat([0, 1], [zeros, ones])
    drawn = np.column_stack([deal(codes) for deal in deals])
    seen = np.column_stack(observed)
    _, joint = np.unique(np.vstack([seen, drawn]), axis=0, return_inverse=True)
    joint = joint.ravel()
    rows, first, second = joint[: len(seen)], joint[len(seen) :][:zeros], joint[len(seen) :][zeros:]
    return _walks(rows, first, second)


def _walks(rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Over all walks that merge ``first`` and ``second`` into ``rows``: the chance that a step takes ``second``."""
    count, ones = len(rows), len(second)
    places = np.arange(ones + 1)
    fits_1 = np.append(second, -1)
    forward = np.zeros((count + 1, ones + 1))
    forward[0, 0] = 1.0

    def steps(i: int) -> tuple[np.ndarray, np.ndarray]:
        zero = i - places
        inside = (zero >= 0) & (zero < len(first))
        stay = inside & (first[np.clip(zero, 0, max(0, len(first) - 1))] == rows[i]) if len(first) else inside & False
        return stay, fits_1 == rows[i]

    for i in range(count):
        stay, up = steps(i)
        forward[i + 1] = forward[i] * stay
        forward[i + 1, 1:] += (forward[i] * up)[:-1]
        total = forward[i + 1].sum()
        if total == 0:
            return np.full(count, np.nan)
        forward[i + 1] /= total
    return _backward(forward, steps)


def _backward(forward: np.ndarray, steps: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    count = len(forward) - 1
    chance = np.empty(count)
    back = np.zeros(forward.shape[1])
    back[-1] = 1.0
    for i in range(count - 1, -1, -1):
        stay, up = steps(i)
        higher = np.append(back[1:], 0.0)
        by_stay, by_up = stay * back, up * higher
        weight_1, weight_0 = float((forward[i] * by_up).sum()), float((forward[i] * by_stay).sum())
        if weight_0 + weight_1 == 0:
            return np.full(count, np.nan)
        chance[i] = weight_1 / (weight_0 + weight_1)
        back = by_stay + by_up
        back /= back.max()
    return chance


@dataclass(frozen=True)
class Draw:
    """One draw as an attacker saw it: the symbol of each row, the order in which the draw took the rows, its rule."""

    symbols: np.ndarray
    deal: Deal
    order: np.ndarray


def infer(draws: Sequence[Draw], sizes: tuple[int, int]) -> np.ndarray | None:
    """Chance of class 1 by row: one walk for all draws of the same order, the odds of different orders combined."""
    by_order: dict[bytes, list[Draw]] = {}
    for draw in draws:
        by_order.setdefault(draw.order.tobytes(), []).append(draw)
    odds, found = np.zeros(sum(sizes)), False
    for together in by_order.values():
        order = together[0].order
        chance = chance_of_class_1([d.symbols[order] for d in together], [d.deal for d in together], sizes)
        if np.isnan(chance).any():
            continue
        found = True
        clipped = np.clip(chance, 1e-9, 1 - 1e-9)
        odds[order] += np.log(clipped / (1 - clipped)) - np.log(sizes[1] / sizes[0]) * (len(by_order) > 1)
    return 1 / (1 + np.exp(-odds)) if found else None


# --- what the messages hold -------------------------------------------------------------------------------------------


def fold_draws(view: View, rows: int, sets: Sequence[tuple[str, Sequence[np.ndarray]]]) -> list[Draw]:
    """Folds (or one held-out part) from the row sets of boosters: ``sets`` are (session, packed masks) in order."""
    draws, used = [], set()
    for session, packed in sets:
        job = view.job_of(session).parameters
        masks = [np.unpackbits(bits, count=rows).astype(bool) for bits in packed]
        parts = list({mask.tobytes(): mask for mask in masks if not mask.all()}.values())
        folds, seed = int(job.get("folds", 0)), int(job.get("random_state", 0) or 0)
        rule: Deal | None = None
        if folds and len(parts) == folds and (np.sum([~p for p in parts], axis=0) == 1).all():
            symbols = np.argmax([~p for p in parts], axis=0)
            rule = _fold_rule(folds, seed)
        elif len(parts) == 1 and job.get("early_stopping_rounds"):
            symbols = (~parts[0]).astype(np.int64)
            rule = _first_fold_rule(max(2, round(1 / float(job["validation_fraction"]))), seed)
        if rule is not None and symbols.tobytes() not in used:
            used.add(symbols.tobytes())
            draws.append(Draw(symbols, rule, np.arange(rows)))
    return draws


def _fold_rule(folds: int, seed: int) -> Deal:
    return lambda codes: dealt_folds(codes, folds, seed)


def _first_fold_rule(folds: int, seed: int) -> Deal:
    return lambda codes: (dealt_folds(codes, folds, seed) == 0).astype(np.int64)


def _split_rule(train: float, seed: int, stratify: bool = True) -> Deal:
    return lambda codes: split_rows(codes, train, seed, stratify)


def _labels_measure(view: View, truth: Truth, draws: Sequence[Draw], metric: str = "accuracy") -> Measure:
    if truth.n_classes != 2:
        return nothing_to_read(truth, "written for two classes")
    chance = infer(draws, truth.class_sizes) if draws else None
    if chance is None:
        return nothing_to_read(truth, "no draw of rows that the announced seed explains")
    certain = float(((chance < 1e-6) | (chance > 1 - 1e-6)).mean())
    note = f"{certain:.2f} of the rows certain, {len(draws)} draws"
    if metric == "auc":
        return Measure("auc", auc(chance, truth.labels), 0.5, own_rows_auc(view, truth), note=note, rows=chance)
    found = (chance > 0.5).astype(np.int64)
    control = control_accuracy(view, truth, found)
    return Measure(
        "accuracy", accuracy(found, truth.labels), truth.guess, own_rows_accuracy(view, truth), control, note,
        auc(chance, truth.labels),
    )  # fmt: skip


@attack(
    reads=["receive_gradients"], role="passive", target="labels", declared="no", line=1,
    knows="the announced seed and folds, the class sizes",
)  # fmt: skip
def fold_masks_at_party(view: View, truth: Truth) -> Measure:
    """Labels from the training masks of cross-validated boosters, as a passive party gets them."""
    sets = [(m.session, m.content["sets"]) for m in view.requests("receive_gradients") if "sets" in m.content]
    return _labels_measure(view, truth, fold_draws(view, len(truth.labels), sets))


@attack(
    reads=["next_trees", "next_sampled_trees"], role="coordinator", target="labels", declared="no", line=1,
    knows="the announced seed and folds, the class sizes",
)  # fmt: skip
def fold_masks_at_coordinator(view: View, truth: Truth) -> Measure:
    """Labels from the fold masks that the coordinator relays, and the announced seed."""
    sets = [
        (m.session, m.content["sets"])
        for name in ("next_trees", "next_sampled_trees")
        for m in view.replies(name)
        if isinstance(m.content, dict) and "sets" in m.content
    ]
    return _labels_measure(view, truth, fold_draws(view, len(truth.labels), sets))


@attack(
    reads=["define_view"], role="passive", target="labels", declared="no", line=3,
    knows="the announced seed and share of validation rows, the class sizes",
)  # fmt: skip
def one_split_at_party(view: View, truth: Truth) -> Measure:
    """Ranking of the labels from one stratified split whose row positions define the party's views (FedSDG)."""
    rows, ids = len(truth.labels), np.asarray(view.own_table.ids)
    order = np.argsort(ids, kind="stable")
    draws = []
    for message in view.requests("define_view"):
        job = view.job_of(message.session).parameters
        listed, share = message.content.get("rows"), job.get("validation")
        if listed is None or share is None or not 0 < len(listed) < rows:
            continue
        symbols = np.zeros(rows, dtype=np.int64)
        symbols[listed] = 1
        if len(listed) == round((1 - share) * rows):
            draws.append(Draw(symbols, _split_rule(1 - share, int(job.get("random_state") or 0)), order))
    return _labels_measure(view, truth, draws, "auc")


@attack(
    reads=["receive_gradients"], role="passive", target="labels", declared="no", line=3,
    knows="the announced seed and share of held-out rows, the class sizes",
)  # fmt: skip
def early_stopping_rows(view: View, truth: Truth) -> Measure:
    """Ranking of the labels from the rows that SecureBoost holds out for early stopping."""
    sets = [
        (m.session, m.content["sets"])
        for m in view.requests("receive_gradients")
        if "sets" in m.content and view.job_of(m.session).parameters.get("early_stopping_rounds")
    ]
    return _labels_measure(view, truth, fold_draws(view, len(truth.labels), sets), "auc")


# --- a coordinator that asks for draws of its own ---------------------------------------------------------------------


def ask_for_draws(draw_rows: Any, calls: int = 24, train: float = 0.5) -> Callable[[Federation], None]:
    """What a hostile coordinator asks the label holder, no method announced: draws under seeds of its choice.

    The first is not stratified: its positions are known beforehand, so its reply tells the order of the holder's ids.
    """

    def conversation(fed: Federation) -> None:
        for seed in range(calls + 1):
            fed.ask(draw_rows, to=fed.active, train=train, stratify=seed > 0, seed=seed, task=fed.asked_task)

    return conversation


@attack(
    reads=["draw_rows"], role="coordinator", target="labels", declared="no", line=2,
    knows="the seeds that it chose, the class sizes",
)  # fmt: skip
def chosen_seeds(view: View, truth: Truth) -> Measure:
    """Labels from ``draw_rows`` under seeds of the coordinator's choice."""
    rows = len(truth.labels)
    asked = [m.content for m in view.requests("draw_rows")]
    replies = [m.content for m in view.replies("draw_rows")]
    pairs = [(a, r) for a, r in zip(asked, replies) if isinstance(r, dict) and "train" in r]
    order = None
    for request, reply in pairs:
        if not request["stratify"]:
            mask = split_rows(np.zeros(rows, dtype=np.int64), request["train"], request["seed"], stratify=False)
            order = np.empty(rows, dtype=np.int64)
            order[mask == 1], order[mask == 0] = reply["train"], reply["test"]
    if order is None:
        return nothing_to_read(truth, "no draw told the order of the ids")
    draws = []
    for request, reply in pairs:
        if request["stratify"]:
            symbols = np.zeros(rows, dtype=np.int64)
            symbols[reply["train"]] = 1
            draws.append(Draw(symbols, _split_rule(request["train"], request["seed"]), order))
    return _labels_measure(view, truth, draws)


def ask_for_many_folds(draw_folds: Any) -> Callable[[Federation], None]:
    """One request of a hostile coordinator: as many folds as rows, so that a row's fold is its place in the order."""

    def conversation(fed: Federation) -> None:
        fed.ask(draw_folds, to=fed.active, folds=fed.n_rows, stratify=True, seed=0, task=fed.asked_task)

    return conversation


@attack(
    reads=["draw_folds"], role="coordinator", target="labels", declared="no", line=2,
    knows="the number of folds that it chose, the class sizes",
)  # fmt: skip
def as_many_folds_as_rows(view: View, truth: Truth) -> Measure:
    """Labels from ``draw_folds``: rows are dealt class after class, so with a fold a row the first are class 0."""
    rows = len(truth.labels)
    asked = zip(view.requests("draw_folds"), view.replies("draw_folds"))
    for request, reply in asked:
        told = request.content.get("folds", 0) >= rows and isinstance(reply.content, dict)
        if told and "fold" in reply.content and truth.n_classes == 2:
            found = (reply.content["fold"] >= truth.class_sizes[0]).astype(np.int64)
            return Measure("accuracy", accuracy(found, truth.labels), truth.guess, truth.guess, note="one request",
                           auc=auc(found, truth.labels))  # fmt: skip
    return nothing_to_read(truth, "no draw of as many folds as rows")
