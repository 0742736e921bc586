"""The Gini impurity of every column under encrypted labels: FedSDG-FS, Algorithm 1.

Li et al. 2023. A column's impurity is 1 - (1/n) sum over bins b and classes c of s_bc^2 / n_b, where s_bc counts class
c in bin b. The label holder learns one impurity a column and nothing finer; the paper's masked squaring is done in one
reply instead of a round trip:

  The party has Enc(s_c) for all classes of a bin in one ciphertext, a slot each. It scales them by
  q = 2^28 / sqrt(n_b) (t_c = q s_c), adds masks r_c that are 40 bits wider, and sends u_c = t_c + r_c. It also sends,
  summed over the bins of the column, Enc(C) with C = sum of 2 r_c t_c + r_c^2: the product of a packed ciphertext with
  the packed plaintext (r in reverse order) has sum r_c t_c in its middle slot; the other slots are masked too.
  The label holder computes sum u_c^2 - C = sum t_c^2, the score. It knows u (hidden by the masks), and C is that sum
  less the score: so it learns the score alone.

Departures: equal-frequency bins; masks are integers in a ring, not Gaussian; bins are padded to a power of two with
empty ones, so that not even their number is seen; bins below ``min_cell`` are merged. Rounds: 3.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.binning import most_bins
from fedsift.core.checks import check_scores
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import OverflowGuard, ReplyError
from fedsift.mpc.column_scores.countable_bins import countable_bins
from fedsift.mpc.encrypted_histogram import HIDING_BITS, own_key

_SCALE_BITS = 28


@dataclass(frozen=True)
class GiniLayout:
    """Widths of the slots: public, from the number of rows, bins, classes and the key alone."""

    rows: int
    classes: int
    bins: int
    plaintext_bits: int

    @property
    def term_bits(self) -> int:
        """Of t = q * s, at most 2^28 * sqrt(n_b) and a rounding."""
        return _SCALE_BITS + (self.rows.bit_length() + 1) // 2 + 1

    @property
    def mask_bits(self) -> int:
        return self.term_bits + HIDING_BITS

    @property
    def pitch(self) -> int:
        """Holds C of a whole column, and in the slots beside it, what the product leaves there plus its mask."""
        return 2 * self.mask_bits + (self.bins * self.classes).bit_length() + 4

    @property
    def lanes(self) -> int:
        """Classes in one ciphertext."""
        lanes = (self.plaintext_bits // self.pitch + 1) // 2
        if lanes < 1:
            raise OverflowGuard(f"{self.rows} rows are too many for this key: impurity needs {self.pitch} bits")
        return min(lanes, self.classes)


def _most_bins(bins: int) -> int:
    return 1 << (most_bins(bins) - 1).bit_length()


@operation(
    "gini.encrypt_one_hot",
    discloses="ciphertext",
    about="class of each row, encrypted",
    reply={"key": PublicKey, "layers": [Ciphertexts], "classes": int},
    role="active",
    concerns="labels",
    settings=("bins", "scheme"),
    times=1,
)
def encrypt_one_hot(party: Party, *, scheme: str, task: str, bins: int) -> dict[str, Any]:
    key = own_key(party, scheme).public
    labels = party.labels(task=task)
    layout = GiniLayout(party.n_rows, labels.n_classes, _most_bins(bins), key.plaintext_bits)
    layers = []
    for start in range(0, labels.n_classes, layout.lanes):
        lane = labels.codes - start
        inside = (lane >= 0) & (lane < layout.lanes)
        layers.append(key.encrypt([1 << (int(k) * layout.pitch) if yes else 0 for k, yes in zip(lane, inside)]))
    return {"key": key, "layers": layers, "classes": labels.n_classes}


@operation(
    "gini.masked_impurities",
    discloses="masked",
    receives="ciphertext",
    about="masked label counts, and what is needed to get one impurity a column out of them",
    reply={"masked": [Ciphertexts], "corrections": Ciphertexts, "bins": Array("i")},
    role="passive",
    opened="aggregate: one impurity an unnamed column, to the label holder",
    min_cell="min_cell",
    settings=("bins", "min_cell"),
    times=1,
)
def masked_impurities(
    party: Party, *, key: PublicKey, layers: list[Ciphertexts], classes: int, bins: int, min_cell: int
) -> dict[str, Any]:
    layout = GiniLayout(party.n_rows, classes, _most_bins(bins), key.plaintext_bits)
    codes, counts = countable_bins(party, bins, min_cell)
    if not counts:
        return {"masked": [], "corrections": key.encrypt([]), "bins": np.zeros(0, np.int64)}
    sizes = np.concatenate([np.bincount(codes[:, j], minlength=n) for j, n in enumerate(counts)])
    scales = [round(2**_SCALE_BITS / float(np.sqrt(size))) for size in sizes]
    padded = [1 << (n - 1).bit_length() for n in counts]
    column_of = np.repeat(np.arange(len(counts)), counts)
    masked, corrections = [], [_side_mask(layout) for _ in counts]
    products: Ciphertexts | None = None
    for layer in layers:
        sums = key.group_sums(layer, codes, counts)
        masks = [[secrets.randbits(layout.mask_bits) for _ in range(layout.lanes)] for _ in range(sum(padded))]
        real, empty = _places(counts, padded)
        terms = key.scale(sums, scales)
        hidden = Ciphertexts.concat([terms, key.encrypt([0] * len(empty))]) if empty else terms
        order = np.argsort(real + empty)
        masked.append(key.blind(key.add_plain(hidden.take(order), [_packed(m, layout) for m in masks])))
        reverse = [2 * scales[i] * _packed(masks[place][::-1], layout) for i, place in enumerate(real)]
        product = key.group_sums(key.scale(sums, reverse), column_of[:, None], [len(counts)])
        products = product if products is None else key.add(products, product)
        middle = (layout.lanes - 1) * layout.pitch
        ends = np.cumsum(padded)
        for j, end in enumerate(ends):
            squares = sum(r * r for m in masks[end - padded[j] : end] for r in m)
            corrections[j] += squares << middle
    if products is None:
        raise OverflowGuard("no class was encrypted")
    return {
        "masked": masked,
        "corrections": key.blind(key.add_plain(products, corrections)),
        "bins": np.asarray(padded, dtype=np.int64),
    }


def _packed(values: list[int], layout: GiniLayout) -> int:
    return sum(value << (lane * layout.pitch) for lane, value in enumerate(values))


def _places(counts: list[int], padded: list[int]) -> tuple[list[int], list[int]]:
    """Where the real bins and the empty ones lie when every column is padded."""
    real: list[int] = []
    empty: list[int] = []
    start = 0
    for count, width in zip(counts, padded):
        real += range(start, start + count)
        empty += range(start + count, start + width)
        start += width
    return real, empty


def _side_mask(layout: GiniLayout) -> int:
    """Random numbers for all slots but the middle one, wider by 40 bits than the product leaves there."""
    bits = layout.pitch - 2
    others = [slot for slot in range(2 * layout.lanes - 1) if slot != layout.lanes - 1]
    return sum(secrets.randbits(bits) << (slot * layout.pitch) for slot in others)


@operation(
    "gini.open_impurities",
    discloses="aggregate",
    receives="masked",
    about="one Gini impurity a column",
    learns="one Gini impurity for each unnamed column of the other parties",
    reply=dict,
    role="active",
    concerns="own columns and labels",
    min_cell="min_cell",
    settings=("bins", "min_cell", "scheme"),
    after="gini.encrypt_one_hot",
    times=1,
)
def open_impurities(
    party: Party, *, replies: dict[str, Any], bins: int, min_cell: int, scheme: str, task: str
) -> dict[str, np.ndarray]:
    key, labels = own_key(party, scheme), party.labels(task=task)
    layout = GiniLayout(party.n_rows, labels.n_classes, _most_bins(bins), key.public.plaintext_bits)
    scores = {}
    for name, reply in replies.items():
        counts = reply["bins"]
        squares = [0] * len(counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        for masked in reply["masked"]:
            if len(masked) != len(owner):
                raise ReplyError(name, "masked_impurities", "another number of bins than it says")
            for j, number in zip(owner, key.decrypt(masked, bits=layout.lanes * layout.pitch)):
                for lane in range(layout.lanes):
                    squares[j] += ((number >> (lane * layout.pitch)) & ((1 << layout.pitch) - 1)) ** 2
        opened = key.decrypt(reply["corrections"], bits=(2 * layout.lanes - 1) * layout.pitch)
        middle = (layout.lanes - 1) * layout.pitch
        corrections = [(number >> middle) & ((1 << layout.pitch) - 1) for number in opened]
        purity = np.array([float((s - c) / 2 ** (2 * _SCALE_BITS)) for s, c in zip(squares, corrections)])
        scores[name] = np.clip(1 - purity / party.n_rows, 0.0, 1.0)
    codes, counts = countable_bins(party, bins, min_cell, shuffle=False)
    scores[party.name] = np.array(
        [gini_impurity(codes[:, j], labels.codes, n, labels.n_classes) for j, n in enumerate(counts)], dtype=np.float64
    )
    return scores


def gini_impurity(codes: np.ndarray, classes: np.ndarray, n_bins: int, n_classes: int) -> float:
    """Mean impurity of the bins, weighted by their size."""
    table = np.bincount(codes * n_classes + classes, minlength=n_bins * n_classes).reshape(n_bins, n_classes)
    return float(1 - ((table**2).sum(axis=1) / table.sum(axis=1)).sum() / len(codes))


def encrypted_gini(fed: Federation, *, bins: int, min_cell: int, scheme: str) -> dict[str, np.ndarray]:
    """The conversation: the impurity of every column of every party."""
    labels = fed.ask(encrypt_one_hot, to=fed.active, scheme=scheme, task=fed.asked_task, bins=bins)
    replies = fed.ask(masked_impurities, to=fed.passive, bins=bins, min_cell=min_cell, **labels)
    impurities = fed.ask(
        open_impurities, to=fed.active, replies=replies, bins=bins, min_cell=min_cell, scheme=scheme,
        task=fed.asked_task,
    )  # fmt: skip
    return check_scores(impurities, fed.n_columns, fed.active)


OPERATIONS = (encrypt_one_hot, masked_impurities, open_impurities)
