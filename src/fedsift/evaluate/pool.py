"""The columns of simulated parties, side by side: scoring by pooling is for simulations, which hold them all anyway."""

from __future__ import annotations

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.job import Run
from fedsift.core.party import Party
from fedsift.errors import ParameterError
from fedsift.evaluate.scoring import Columns


class Pool:
    """Reads the tables of an in-process federation's sites, side by side (vertical) or stacked (horizontal)."""

    def __init__(self, fed: Federation):
        self.sites = fed.simulated
        # Where names stay private, a column is shown by its number here too.
        self.shown = {
            name: dict(zip(self.party(fed, name).columns, columns)) for name, columns in fed.column_names().items()
        }

    def party(self, fed: Federation, name: str) -> Party:
        return Party(self.sites[name], fed._view, run=Run(fed.job("evaluate", {})))

    def labels(self, fed: Federation) -> np.ndarray:
        if fed.partition == "vertical":
            return np.asarray(self.party(fed, fed.active).table.label)
        return np.concatenate([np.asarray(self.party(fed, name).table.label) for name in fed.parties])

    def names(self, fed: Federation) -> tuple[str, ...]:
        return self.columns(fed).names

    def columns(self, fed: Federation) -> Columns:
        blocks = [self._block(fed, name) for name in fed.parties]
        if fed.partition == "vertical":
            return Columns(
                np.hstack([b.numbers for b in blocks]), sum((b.number_names for b in blocks), ()),
                np.hstack([b.texts for b in blocks]), sum((b.text_names for b in blocks), ()),
            )  # fmt: skip
        common = [name for name in blocks[0].names if all(name in b.names for b in blocks)]
        blocks = [b.keep(common) for b in blocks]
        first = blocks[0]
        if any(set(b.text_names) != set(first.text_names) for b in blocks):
            raise ParameterError("a column is text at one horizontal party and numbers at another; give it one type")
        numbers = [b.numbers[:, [b.number_names.index(n) for n in first.number_names]] for b in blocks]
        texts = [b.texts[:, [b.text_names.index(n) for n in first.text_names]] for b in blocks]
        return Columns(np.vstack(numbers), first.number_names, np.vstack(texts), first.text_names)

    def _block(self, fed: Federation, name: str) -> Columns:
        table = self.party(fed, name).table
        shown = self.shown[name]
        prefix = f"{name}." if fed.partition == "vertical" else ""
        numeric = table.numeric_columns
        text = [column for column in table.columns if column not in set(numeric)]
        texts = np.full((table.n_rows, len(text)), None, dtype=object)
        for i, column in enumerate(text):
            codes, categories = table.codes(column)
            texts[:, i] = np.array([*categories, None], dtype=object)[codes]
        return Columns(
            table.matrix(numeric), tuple(prefix + shown.get(c, c) for c in numeric),
            texts, tuple(prefix + shown.get(c, c) for c in text),
        )  # fmt: skip
