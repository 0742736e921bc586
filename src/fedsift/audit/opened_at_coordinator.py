"""What the coordinator opens from two halves: sums over rows of columns, bins and cuts without names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import Message, View
from fedsift.mpc.column_scores.weighing import STEPS
from fedsift.mpc.encrypted_histogram import RowLayout
from fedsift.mpc.two_halves import join_halves

#: What a party sends under masks, and what the label holder opens of it.
OPENED = (
    ("masked_counts", "open_counts"), ("masked_class_sums", "open_class_sums"), ("masked_bit_sums", "open_bit_sums"),
    ("masked_weighted_sums", "open_weighted_sums"),
)  # fmt: skip


@dataclass(frozen=True)
class OpenedSums:
    """One party's class sums: of standardised columns (``bins`` is none), or counts of the bins of its columns."""

    party: str
    sums: np.ndarray  # columns or bins x all classes but the last
    sizes: np.ndarray  # rows of each class; for bins, of each bin
    bins: np.ndarray | None = None  # how many each column has


def opened_sums(view: View) -> list[OpenedSums]:
    """The label sums that the coordinator has opened, of every passive party."""
    found = list(_told(view))
    for labels in view.replies("encrypt_classes"):
        for masked, opened in _pairs(view, labels):
            reply, halves = masked.content, opened.content["halves"].get(masked.party, [])
            counted = "bins" in reply
            rows = int(reply["sizes"].sum() // max(1, len(reply["bins"]))) if counted else int(
                opened.content["sizes"].sum()
            )  # fmt: skip
            layouts = [RowLayout.read(layout, rows) for layout in labels.content["layouts"]]
            count = len(reply["sizes"]) if counted else len(reply["owner"])
            offset = not counted or view.job_of(masked.session).parameters.get("epsilon") is not None
            table = join_halves(masked.party, reply["seed"], halves, layouts, count, offset=offset).astype(np.float64)
            sizes = reply["sizes"] if counted else opened.content["sizes"]
            found.append(OpenedSums(masked.party, table, np.asarray(sizes), reply["bins"] if counted else None))
    return [*found, *_weighted(view), *_weighted_columns(view), *_columns_of_candidates(view)]


def _weighted(view: View) -> Iterator[OpenedSums]:
    """Weighted counts, of which every class is told and no bin's size: the sum over the classes stands for it."""
    for labels in view.replies("encrypt_weighted_classes"):
        layouts = [RowLayout.read(layout, int(layout["rows"])) for layout in labels.content["layouts"]]
        for masked, opened in _pairs(view, labels):
            reply, halves = masked.content, opened.content["halves"].get(masked.party, [])
            table = join_halves(masked.party, reply["seed"], halves, layouts, int(reply["bins"].sum())) / STEPS
            counts = table.astype(np.float64)
            yield OpenedSums(masked.party, counts[:, :-1], counts.sum(axis=1), reply["bins"])


def _weighted_columns(view: View) -> Iterator[OpenedSums]:
    """Weighted sums of columns, of which every class is told; those of their squares come after them."""
    for labels in view.replies("f_test.encrypt_weights"):
        layouts = [RowLayout.read(layout, int(layout["rows"])) for layout in labels.content["layouts"]]
        for masked, opened in _pairs(view, labels, OPENED[3:]):
            reply, halves = masked.content, opened.content["halves"].get(masked.party, [])
            count = len(reply["owner"])
            table = join_halves(masked.party, reply["seed"], halves, layouts, 2 * count, offset=True)
            sums = table[:count, :-1].astype(np.float64) / STEPS
            yield OpenedSums(masked.party, sums, np.asarray(opened.content["sizes"]))


def opened_bits(view: View) -> Iterator[OpenedSums]:
    """Label counts of the rows above and below the mean of each column."""
    for labels in view.replies("f_test.encrypt_for_bits"):
        layouts = [RowLayout.read(layout, int(layout["rows"])) for layout in labels.content["layouts"]]
        for masked, opened in _pairs(view, labels, OPENED[2:3]):
            reply, halves = masked.content, opened.content["halves"].get(masked.party, [])
            above, classes = reply["above"], opened.content["sizes"]
            ones = join_halves(masked.party, reply["seed"], halves, layouts, len(above)).astype(np.float64)
            both = np.stack([classes[:-1] - ones, ones], axis=1).reshape(2 * len(above), -1)
            sizes = np.stack([classes.sum() - above, above], axis=1).ravel()
            yield OpenedSums(masked.party, both, sizes, np.full(len(above), 2))


def _columns_of_candidates(view: View) -> Iterator[OpenedSums]:
    """FLAFE: a party's columns are the first of its candidates (those of the others are made of them)."""
    for labels in view.replies("encrypt_target"):
        grown = {message.party: len(message.content) for message in view.replies("load_numbers", labels.session)}
        opened = view.replies("open_targets", labels.session)
        for masked in view.replies("masked_targets", labels.session)[: len(grown) - 1] if opened else []:
            reply, bins = masked.content, masked.content["bins"]
            rows = int(reply["sizes"].sum() // max(1, len(bins)))
            layouts = [RowLayout.read(layout, rows) for layout in labels.content["layouts"]]
            halves = opened[0].content["halves"].get(masked.party, [])
            sums = join_halves(masked.party, reply["seed"], halves, layouts, len(reply["sizes"])).astype(np.float64)
            mine = bins[: grown.get(masked.party, 0)]
            end = int(mine.sum())
            yield OpenedSums(masked.party, sums[:end], reply["sizes"][:end], mine)


def _told(view: View) -> Iterator[OpenedSums]:
    """Sums that were told in the clear."""
    for message in view.replies("open_class_sums"):
        for party, sums in message.content.get("told", {}).items():
            yield OpenedSums(party, sums, np.asarray(message.content["sizes"]))
    for message in view.replies("open_counts"):
        for party, table in message.content.get("told", {}).items():
            yield OpenedSums(party, table["sums"][:, None].astype(np.float64), table["sizes"], table["bins"])


def _pairs(
    view: View, labels: Message, kinds: tuple[tuple[str, str], ...] = OPENED[:2]
) -> Iterator[tuple[Message, Message]]:
    """A party's masked reply and the label holder's opening of the same run."""
    for first, second in kinds:
        opened = view.replies(second, labels.session)
        for masked in view.replies(first, labels.session) if opened else []:
            yield masked, opened[0]


def root_counts(view: View) -> dict[str, list[np.ndarray]]:
    """Boosting on shares, one model: rows that each candidate cut sends left at the root of every tree, by party."""
    found: dict[str, list[np.ndarray]] = {}
    halves: dict[str, np.ndarray] = {}
    for message in view.messages:
        if message.is_request or not isinstance(message.content, dict):
            continue
        if matches("half_sums", message.operation):
            halves[message.party] = message.content["counts"]
        elif matches("own_half_sums", message.operation):
            for party, half in message.content["halves"].items():
                if party in halves and len(half["counts"]) == len(halves[party]):
                    counts = (half["counts"] + halves[party]).astype(np.int64)
                    known = found.setdefault(party, [])
                    if not known or len(known[0]) == len(counts):  # levels below the root have more nodes
                        known.append(counts)
            halves = {}
    return found
