"""The public boundary: the lists are exact, and what a docstring shows runs."""

from __future__ import annotations

import doctest
import inspect
import types

import pytest

import fedsift
import fedsift.report

#: Public names whose docstring has no example yet. The list only shrinks.
WITHOUT_EXAMPLE = {
    "SFFS", "VFLFS", "AllFeatures", "Array", "FeatureElection", "FedLinear", "FedSDG", "FederatedLasso", "GiniFilter",
    "GroupLasso", "HyFDCA", "InformationValue", "LessVFL", "LocalLasso", "Muse", "Outcome", "Party", "PsoEvffs",
    "RandomFeatures", "SecureBoostClassifier", "SecureBoostRegressor", "StochasticGate", "TopGain",
    "operation", "register_criterion", "register_method", "register_model",
    "register_plugin",
}  # fmt: skip


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


@pytest.mark.parametrize("name", sorted(set(fedsift.__all__) - WITHOUT_EXAMPLE))
def test_the_example_of_a_public_name_runs(name, capsys):
    tests = examples(name)
    assert tests, f"{name} has no example in its docstring"
    for test in tests:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed = runner.run(test).failed
        assert not failed, capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(WITHOUT_EXAMPLE))
def test_the_list_of_names_without_an_example_shrinks(name):
    assert name in fedsift.__all__
    assert not examples(name), f"{name} has an example now: take it off WITHOUT_EXAMPLE"


@pytest.mark.parametrize("name", fedsift.__all__)
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(fedsift, name))
