"""The shape of the code: imports point to the left, the public list is exact, nothing dangerous is in it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedsift

SOURCE = Path(fedsift.__file__).parent
#: Left to right. A module may import from its own layer and from those before it.
LAYERS = [
    ["errors"],
    ["ledger", "message", "tracking"],
    ["operation", "reading", "columns", "splits"],
    ["table", "datasets"],
    ["party", "simulate", "selection"],
    ["transports"],
    ["exchange"],
    ["terminal", "progress_bar"],
    ["federation"],
    ["secure"],
    ["protocols"],
    ["select", "engineer"],
    ["scoring"],
    ["evaluate"],
    ["report"],
    ["job_text", "job"],
    ["policy", "site", "rehearsal", "party_file"],
    ["audit"],
    ["runs", "console"],
    ["deploy"],
    ["cli", "party_cli", "demo"],
]
#: The looks to the right that are on purpose, each inside a function.
ALLOWED = {("federation", "protocols"), ("federation", "evaluate"), ("select", "report"), ("selection", "engineer")}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_to_the_left(path):
    here = layer_of(path)
    if here in ("__init__", "__main__"):
        return
    assert here in LEVEL, f"{here} has no place in the line: add it to LAYERS"
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedsift"):
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name.split(".")[1] for a in node.names if a.name.startswith("fedsift.")]
        for name in names:
            if name in LEVEL and (here, name) not in ALLOWED:
                assert LEVEL[name] <= LEVEL[here], f"{path.name} looks to the right: {here} imports {name}"


def test_methods_never_import_a_transport():
    for folder in ("select", "engineer", "protocols"):
        for path in (SOURCE / folder).rglob("*.py"):
            assert "fedsift.transports" not in path.read_text(), path


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_pickle_no_eval(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve"} & {n.split(".")[0] for n in names}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}


def test_public_names_are_exactly_the_list():
    assert fedsift.__all__ == sorted(fedsift.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n))
    for name in fedsift.__all__:
        assert getattr(fedsift, name) is not None


def test_importing_fedsift_is_light():
    """torch, nvflare, tenseal, plotly and sf-heu are loaded when they are used, not when fedsift is imported."""
    heavy = "('torch', 'nvflare', 'tenseal', 'plotly', 'heu', 'opendp', 'xgboost')"
    code = f"import sys, fedsift; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
