"""Every attack of the registry has a leaky twin, succeeds on it, and fails where the leak is mended."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch")

from leaky import masks
from leaky.twins import BOTH, ELSEWHERE, TWINS, made, noisy

from fedsift.audit import attacks_on, load_attacks, record

ATTACKS = load_attacks()
LEAST = {"model_completion": 0.02}  # what a twin must add to guess and baseline, where it is not a tenth


def test_every_attack_has_a_leaky_twin():
    assert set(ATTACKS) == set(TWINS) | set(ELSEWHERE), "write the operation with the old behaviour into tests/leaky"


@pytest.mark.parametrize("test", ELSEWHERE.values())
def test_a_twin_that_is_elsewhere_is_there(test):
    module, name = test.split(".")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("name", TWINS)
def test_an_attack_succeeds_on_its_leaky_twin(name):
    recording = made(TWINS[name].recording)
    view = recording[TWINS[name].view]
    assert ATTACKS[name] in attacks_on(view.operations, view.role)
    found = ATTACKS[name].run(view, recording.truth)
    assert not found.note.startswith("nothing to read")
    assert found.added > LEAST.get(name, 0.1), found


@pytest.mark.parametrize("name", [name for name in TWINS if name.startswith("masks_hide")])
def test_masks_that_are_fresh_hide_everything(name):
    mended = record(*noisy(), masks.twice(fresh=True), parties=BOTH)
    found = ATTACKS[name].run(mended[TWINS[name].view], mended.truth)
    assert found.value < found.guess + 0.1
    assert not found.note.startswith("nothing to read")


def test_a_mask_that_came_off_is_told_by_its_size():
    recording = made("masks")
    note = ATTACKS["masks_hide_labels"].run(recording["shop"], recording.truth).note
    assert float(note.rsplit("size ", 1)[1].split()[0]) < 0.1
