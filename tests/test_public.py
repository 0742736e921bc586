"""The public boundary: the lists are exact, and what a docstring shows runs."""

from __future__ import annotations

import doctest
import inspect
import re
import types

import pytest

import fedsift
import fedsift.report
from fedsift import methods
from fedsift.core import operation
from fedsift.core.operation import load_whole
from fedsift.models.splitnn import networks
from fedsift.select.muse import criteria


def visible(module: types.ModuleType) -> set[str]:
    """Names without an underscore; rooms and files are found by their own names."""
    assert all(hasattr(module, name) for name in module.__all__)  # fedsift loads its names when one is asked for
    return {
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and not isinstance(thing, types.ModuleType)
    }


@pytest.mark.parametrize("module", [fedsift, fedsift.report], ids=lambda module: module.__name__)
def test_the_list_of_a_room_is_what_is_visible_in_it(module):
    assert visible(module) == set(module.__all__)


def examples(name: str) -> list[doctest.DocTest]:
    thing = getattr(fedsift, name)
    found = doctest.DocTestFinder(recurse=False).find(thing, name, module=False, globs={})
    return [test for test in found if test.examples]


@pytest.fixture
def registries():
    """What an example registers is gone after it."""
    load_whole()
    kept = [methods.METHODS, operation._registry, operation._plugins, criteria._criteria, networks._factories]
    before = [each.copy() for each in kept]
    yield
    for each, was in zip(kept, before):
        each.clear()
        each.update(was)


@pytest.mark.parametrize("name", sorted(fedsift.__all__))
def test_the_example_of_a_public_name_runs(name, capsys, registries):
    tests = examples(name)
    assert tests, f"{name} has no example in its docstring"
    for test in tests:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed = runner.run(test).failed
        assert not failed, capsys.readouterr().out


@pytest.mark.parametrize("name", fedsift.__all__)
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(fedsift, name))


def own_parameters(name: str) -> list[str]:
    """What somebody who makes one writes; parameters of a base class stand in its docstring's place."""
    thing = getattr(fedsift, name)
    if not inspect.isclass(thing) or issubclass(thing, Exception) or "__init__" not in vars(thing):
        return []
    return [p.name for p in list(inspect.signature(thing.__init__).parameters.values())[1:] if p.kind is p.KEYWORD_ONLY]


@pytest.mark.parametrize("name", [name for name in fedsift.__all__ if own_parameters(name)])
def test_the_docstring_of_a_class_tells_every_parameter(name):
    """``random_state`` is what it is everywhere. (Words of a parameter may name several: "n_features, threshold".)"""
    told = set(re.findall(r"\w+", inspect.getdoc(getattr(fedsift, name))))
    assert set(own_parameters(name)) - {"random_state"} <= told
