"""Two jobs over nearly the same rows, answered exactly both times."""

from __future__ import annotations

import json

import numpy as np

from fedsift.core.operation import operation
from fedsift.mpc.encrypted_histogram import RowLayout, finish, weighted_sums
from fedsift.mpc.encrypted_labels import encrypt_classes
from leaky.scores import exact_scores, keep_result, show_bins

BITS = 36


@operation("leaky_jobs.define_view", discloses="control", about="acknowledgement")
def define_view(party, *, view, rows):
    party.site.views[view] = (rows, None)


@operation(
    "leaky_jobs.class_sums",
    discloses="ciphertext",
    receives="ciphertext",
    about="encrypted per-class sums",
    opened="nobody",
    reply=dict,
)
def class_sums(party, *, key, rows, layouts):
    values = party.table.matrix(party.columns)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    fraction = BITS - 2 - (party.n_rows.bit_length() + 1) // 2
    weights = np.rint(values * 2.0**fraction).astype(np.int64) + (1 << (BITS - 1))
    layout = RowLayout.read(layouts[0], party.n_rows)
    sums = finish(key, weighted_sums(key, rows[0], layout, weights, BITS), layout)
    return {"sums": [sums], "owner": np.arange(values.shape[1])}


@operation(
    "leaky_jobs.f_statistics",
    discloses="aggregate",
    receives="ciphertext",
    about="nothing more",
    learns="per-class sums",
)
def f_statistics(party, *, replies, layouts, bits, clip):
    """What can be opened is in the request."""


def _job(run):
    labels = run.ask(encrypt_classes, to=run.active, scheme="auto", task="auto", weight_bits=BITS, answers=8)
    replies = run.ask(class_sums, to=run.passive, key=labels.key, rows=labels.rows, layouts=labels.layouts)
    run.ask(f_statistics, to=run.active, replies=replies, layouts=labels.layouts, bits=BITS, clip=0.0)
    for name in run.passive:
        shown = run.ask(show_bins, to=name, method="sffs")
        scores = run.ask(exact_scores, to=run.active, columns=shown["columns"], method="sffs")
        rows = [{"feature": f, "score": float(s)} for f, s in zip(shown["names"], scores)]
        run.ask(keep_result, to=name, selection=json.dumps({"scores": rows}))


def with_and_without(rows):
    def conversation(fed):
        everybody = np.arange(fed.n_rows)
        with fed.session("sffs", {}) as run:
            _job(run)
        for row in rows:
            with fed.session("sffs", {}) as run:
                view = f"without {row}"
                run.ask(define_view, to=run.parties, view=view, rows=np.delete(everybody, row))
                _job(run.named_view(view))

    return conversation
