"""A site's draws: repeatable for itself, unforeseeable for everybody else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.errors import ParameterError


def party_of(values, secret: bytes | None = None, name: str = "bank") -> Party:
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(len(values))], "x": values})
    return Party(Site(name, Table.read(frame, id="id", name=name), secret), "")


def draw(party: Party, purpose: str = "folds", seed=0) -> list[float]:
    return party.generator(purpose, seed).random(4).tolist()


def test_the_same_site_rows_purpose_and_seed_draw_the_same():
    assert draw(party_of([1.0, 2.0, 3.0])) == draw(party_of([1.0, 2.0, 3.0]))
    assert draw(party_of([1.0, 2.0], b"s" * 32)) == draw(party_of([5.0, 6.0], b"s" * 32))  # the same ids


def test_another_secret_purpose_seed_or_row_set_draws_otherwise():
    first = draw(party_of([1.0, 2.0, 3.0]))
    assert first != draw(party_of([1.0, 2.0, 3.5]))
    assert first != draw(party_of([1.0, 2.0, 3.0], name="shop"))
    assert first != draw(party_of([1.0, 2.0, 3.0]), purpose="weights")
    assert first != draw(party_of([1.0, 2.0, 3.0]), seed=1)
    assert draw(party_of([1.0] * 3, b"s" * 32)) != draw(party_of([1.0] * 4, b"s" * 32))


def test_the_order_of_the_rows_does_not_matter():
    site = Site("bank", Table.read(pd.DataFrame({"id": list("abc"), "x": [1.0, 2, 3]}), id="id"), b"k" * 32)
    turned = Site("bank", Table.read(pd.DataFrame({"id": list("cab"), "x": [3.0, 1, 2]}), id="id"), b"k" * 32)
    assert draw(Party(site, "")) == draw(Party(turned, ""))


def test_a_generator_as_a_seed_is_refused():
    with pytest.raises(ParameterError, match="whole number"):
        draw(party_of([1.0]), seed=np.random.default_rng(0))


def test_the_secret_is_in_no_repr():
    party = party_of([1.0, 2.0])
    assert party.site.secret.hex() not in repr(party.site) + repr(party)
    assert repr(party.site.secret) not in repr(vars(party))
