"""Who took part in a horizontal job, from products of columns over all rows: on many more numbers than means are.

A ridge, knockoffs and what is built on them need products of all columns (and the target) over the rows of all parties,
which the coordinator opens from replies under pairwise masks. Everybody who took part pulls each product a little to
the own record (Homer et al. 2008, on products): there are as many products as pairs of columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View
from fedsift.mpc.ring import from_words

_SILENT = "nothing to read: no products of columns, or there is no public sample"
_FAR = 5


def pooled_products(view: View) -> NDArray[np.float64] | None:
    """Mean products of the columns, in the units that all parties were told; ``None`` where none were opened."""
    first = {message.party: message.content for message in reversed(view.replies("linear.moments"))}
    if set(first) < set(view.job.parties) or len({len(vector) for vector in first.values()}) != 1:
        return None
    flat = from_words(np.asarray(np.sum(list(first.values()), axis=0, dtype=np.uint64)))
    size = int((np.sqrt(8 * len(flat) + 1) - 1) / 2)
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = flat
    told = view.requests("scale_features")
    columns = len(told[-1].content["centre"]) if told else 0
    rows = found[columns, columns] if columns < size else 0.0
    return (found + np.triu(found, 1).T)[:columns, :columns] / rows if rows >= 1 else None


@attack(
    reads=["linear.moments"], role="coordinator", target="membership", declared="no",
    knows="whole records of people, some of whom took part, and a public sample",
)  # fmt: skip
def products_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from the products of all columns over all parties' rows."""
    found = pooled_products(view) if truth.fresh is not None else None
    if truth.fresh is None or found is None:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    inside, outside = (np.vstack(list(each.values())) for each in (truth.columns, truth.fresh.columns))
    if len(found) != outside.shape[1]:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    half = len(outside) // 2
    centre, spread = np.nanmean(outside[:half], axis=0), np.maximum(np.nanstd(outside[:half], axis=0), 1e-9)
    people = np.clip(np.nan_to_num((np.vstack([inside, outside]) - centre) / spread), -_FAR, _FAR)
    public = people[len(inside) : len(inside) + half]
    asked = np.vstack([people[: len(inside)], people[len(inside) + half :]])
    pull = found - public.T @ public / half
    score = np.einsum("ij,jk,ik->i", asked, pull, asked, optimize=True)
    member = np.repeat([1, 0], [len(inside), len(asked) - len(inside)])
    return Measure("auc", auc(score, member), 0.5, 0.5, note=f"{len(found)} columns of all parties together")
