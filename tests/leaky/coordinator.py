"""What the coordinator was told in the clear: class sums and counts, rows that cuts send left, ids under a plain hash,
lists of bins in one and the same order, sums of one horizontal party.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedsift.core.binning import codes_of
from fedsift.core.operation import ANY, operation
from fedsift.models.boost.model import SecureBoostClassifier
from fedsift.mpc.secure_sum import open_words
from fedsift.select.muse.contingency import column_codes
from leaky.sums import standardised


@operation("leaky_coordinator.show", discloses="plain", about="columns or bins, for a sum in the clear", reply=ANY)
def show(party, *, bins):
    return codes_of(party.table.matrix(party.columns).T, bins).T if bins else standardised(party)


@operation("leaky_coordinator.open_class_sums", discloses="aggregate", about="class sums of columns", reply=ANY)
def open_class_sums(party, *, columns):
    codes = party.labels().codes
    sums = {name: (part.T @ (codes == 0))[:, None].astype(float) for name, part in columns.items()}
    return {"told": sums, "sizes": np.bincount(codes)}


@operation("leaky_coordinator.open_counts", discloses="aggregate", about="label counts of bins", reply=ANY)
def open_counts(party, *, columns):
    zero = party.labels().codes == 0
    told = {}
    for name, codes in columns.items():
        bins = codes.max(axis=0) + 1
        told[name] = {
            "bins": bins,
            "sizes": np.concatenate([np.bincount(c, minlength=b) for c, b in zip(codes.T, bins)]),
            "sums": np.concatenate([np.bincount(c[zero], minlength=b) for c, b in zip(codes.T, bins)]),
        }
    return {"told": told}


def sums_in_the_clear(operation, bins=0):
    def conversation(fed):
        with fed.session("a filter", {"n_bins": bins or 10, "min_cell": 1}) as run:
            run.ask(operation, to=run.active, columns=run.ask(show, to=run.passive, bins=bins))

    return conversation


@operation("leaky_coordinator.half_sums", discloses="aggregate", about="rows that candidate cuts send left", reply=ANY)
def half_sums(party, *, bins):
    codes = codes_of(party.table.matrix(party.columns).T, bins)
    counts = [np.sum(column <= b) for column in codes for b in range(int(column.max()))]
    return {"counts": np.array(counts, dtype=np.uint32)}


@operation("leaky_coordinator.own_half_sums", discloses="aggregate", about="nothing more", reply=ANY)
def own_half_sums(party, *, sizes):
    return {"halves": {name: {"counts": np.zeros(size, dtype=np.uint32)} for name, size in sizes.items()}}


def cuts_in_the_clear(trees=3, bins=16):
    def conversation(fed):
        with fed.session("boosting", {"max_bin": bins}) as run:
            for _ in range(trees):
                halves = run.ask(half_sums, to=run.passive, bins=bins)
                run.ask(own_half_sums, to=run.active, sizes={n: len(half["counts"]) for n, half in halves.items()})

    return conversation


@operation("leaky_coordinator.matched_codes", discloses="pseudonymous", about="bins of columns", reply=ANY)
def matched_codes(party, *, requests):
    """Under shuffled names of bins, but always in the order of the rows."""
    codes = column_codes(party, 5, "quantile")
    if party.table.label is not None:
        codes = np.vstack([codes, party.labels().codes.astype(np.uint8)])
    rng = np.random.default_rng(0)
    return [np.stack([rng.permutation(5).astype(np.uint8)[codes[c]] for c in r["columns"]]) for r in requests]


def lists_in_one_order(fed):
    with fed.session("muse", {"n_bins": 5, "binning": "quantile"}) as run:
        holder, (other,) = run.active, run.passive
        mine, theirs = run.n_columns[holder], run.n_columns[other]
        for batch, column in enumerate([-1, 0]):  # with the label, then with a column
            left = np.full(theirs, mine if column < 0 else column)
            sides = {holder: (other, left), other: (holder, np.arange(theirs))}
            each = {name: {"requests": [{"peer": peer, "batch": batch, "columns": columns}]}
                    for name, (peer, columns) in sides.items()}  # fmt: skip
            run.ask(matched_codes, to=run.parties, each=each)


@operation("leaky_coordinator.blind_ids", discloses="pseudonymous", about="ids under a plain hash", reply=ANY)
def blind_ids(party):
    return b"".join(hashlib.sha256(str(each).encode()).digest() for each in party.table.ids)


def hashed_ids(fed):
    with fed.session("alignment", {}) as run:
        run.ask(blind_ids, to=run.parties)


@operation("leaky_coordinator.feature_sums.open", discloses="aggregate", about="sums of one party", reply=ANY)
def feature_sums(party):
    values = party.table.matrix(party.columns)
    return open_words(np.concatenate([np.full(values.shape[1], len(values)), values.sum(axis=0),
                                              np.abs(values).sum(axis=0)]))  # fmt: skip


@operation("leaky_coordinator.scale_features", discloses="control", about="acknowledgement", receives="aggregate",
           learns="means over all parties")  # fmt: skip
def scale_features(party, *, centre, deviation):
    """A member is told exact means."""


@operation("leaky_coordinator.show_sums", discloses="aggregate", about="sums of one party", reply=ANY)
def show_sums(party):
    values = party.table.matrix(party.columns)
    return {"rows": len(values), "sums": values.sum(axis=0)}


def horizontal_sums(fed):
    with fed.session("horizontal", {}) as run:
        run.ask(feature_sums, to=run.parties)
        shown = run.ask(show_sums, to=run.parties)
        rows = sum(part["rows"] for part in shown.values())
        centre = sum(part["sums"] for part in shown.values()) / rows
        run.ask(scale_features, to=run.parties, centre=centre, deviation=np.ones(len(centre)))


def exact_sums_of_cuts(fed):
    """Boosting as it was: the coordinator opens exact sums of the unnamed candidate cuts."""
    return SecureBoostClassifier(n_estimators=8, max_depth=5, sum_noise=0, protection="coordinator").fit(fed)
