"""What the documentation shows works."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.select import METHODS

ROOT = Path(__file__).parents[1]


def test_the_worked_example_of_adding_a_method(small_fed):
    text = (ROOT / "docs" / "adding-a-method.md").read_text()
    source = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    module = types.ModuleType("worked_example")
    sys.modules["worked_example"] = module
    exec(compile(source, "adding-a-method.md", "exec"), module.__dict__)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef"))
    y = (X["e"] + 0.3 * rng.normal(size=80) > 0).astype(int)
    fitted = module.Correlation(n_features=1).fit(fs.Federation.split(X, y, parties=2))
    assert fitted.selected_ == {"party1": [], "party2": ["e"]}
    expected = abs(np.corrcoef(X["e"], y)[0, 1])
    assert fitted.scores_["score"].max() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]), ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_method_is_in_the_readme_and_has_a_page():
    readme = (ROOT / "README.md").read_text()
    index = (ROOT / "docs" / "index.md").read_text()
    for name, method in METHODS.items():
        assert f"`{method.__name__}`" in readme, name
        if method.paper != "null":
            assert method.__name__ in index, name
