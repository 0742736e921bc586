"""The shape of the code: imports point to the left, the public list is exact, nothing dangerous is in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedsift

SOURCE = Path(fedsift.__file__).parent
#: Left to right. A module may import from its own layer and from those before it.
LAYERS = [
    ["errors", "version"],
    ["core"],
    ["crypto"],
    ["mpc"],
    ["models"],
    ["toolbox"],
    ["select"],
    ["engineer"],
    ["statistics"],  # sums of protocols as answers: no method needs it, and the list of all jobs does
    ["methods"],
    ["evaluate"],
    ["report"],
    ["jobs"],
    ["site"],
    ["audit"],  # it rehearses a site's job; the site itself reads only the stored verdict
    ["deploy"],
    ["desk"],
    ["cli"],
    ["testing"],
    ["_public"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


#: Folders of methods and models. None imports from another; what two of them share lies beside or to the left of them.
METHOD_FOLDERS = [
    path.parent for room in ("models", "select", "engineer") for path in (SOURCE / room).glob("*/__init__.py")
]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def named(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {named(path) for path in modules()}


def imports(path: Path) -> set[str]:
    """The modules of fedsift that a file imports, late imports included."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):  # what only the type checker reads is never run
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedsift":
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in KNOWN else node.module for name in whole}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "fedsift"}
    return found


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_to_the_left(path):
    here = layer_of(named(path))
    if not here:
        return  # the package itself stands to the right of all
    assert here in LEVEL, f"{here} has no place in the line: add it to LAYERS"
    for module in imports(path):
        assert module != "fedsift" or here in ("cli", "deploy", "jobs"), f"{path.name} imports the whole package"
        if layer_of(module):
            assert LEVEL[layer_of(module)] <= LEVEL[here], f"{path.name} looks to the right: it imports {module}"


def test_no_module_leads_back_to_itself():
    graph = {named(path): imports(path) - {named(path)} for path in modules()}
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"a circle: {' -> '.join([*trail[trail.index(module) :], module])}"
        if module not in done:
            for other in graph.get(module, ()):
                walk(other, (*trail, module))
            done.add(module)

    for module in graph:
        walk(module, ())


def test_crypto_is_a_leaf():
    for path in (SOURCE / "crypto").rglob("*.py"):
        others = {name for name in imports(path) if layer_of(name) != "crypto"}
        assert others <= {"fedsift.errors", "fedsift.core.message", "fedsift.core.workers"}, path


@pytest.mark.parametrize("folder", METHOD_FOLDERS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_method_imports_another(folder):
    others = [
        named(other / "__init__.py") for other in METHOD_FOLDERS if other != folder and other.parent == folder.parent
    ]
    for path in folder.rglob("*.py"):
        for module in imports(path):
            assert not any(module == other or module.startswith(f"{other}.") for other in others), (path.name, module)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 400


def test_methods_never_reach_a_transport():
    """Nor does anything else outside the core, but what opens sites and starts systems."""
    for path in modules():
        room = layer_of(named(path))
        if room not in ("core", "deploy", "testing"):
            assert "_link" not in path.read_text(), path
        if room not in ("core", "deploy", "site", "audit", "testing"):
            assert not any(module.startswith("fedsift.core.transports") for module in imports(path)), path


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_pickle_no_eval(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve"} & {n.split(".")[0] for n in names}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}


def test_loose_types_stay_few():
    """The word ``Any``, imports of it and all, and entries by their spelling (a state or a message with a type has
    attributes), a thousand lines."""
    lines = loose = spelled = 0
    for path in modules():
        text = path.read_text()
        lines += text.count("\n")
        loose += len(re.findall(r"\bAny\b", text))
        if layer_of(named(path)) != "testing":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                    spelled += isinstance(node.slice.value, str)
    assert 1000 * loose / lines < 10
    assert 1000 * spelled / lines < 15.5  # asked: 15


def test_the_type_checker_is_strict_everywhere():
    project = (SOURCE.parents[1] / "pyproject.toml").read_text()
    settings = project[project.index("[tool.mypy]") : project.index("[tool.pytest")]
    assert "strict = true" in settings
    assert not re.findall(r"(?:allow|warn)_\w+ = |implicit_reexport|strict_equality", settings)


def test_public_names_are_exactly_the_list():
    assert fedsift.__all__ == sorted(fedsift.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n))
    for name in fedsift.__all__:
        assert getattr(fedsift, name) is not None


def test_only_one_place_loads_modules_of_fedsift_by_their_names():
    """A name in a string is an import that no test above sees: the whole, the commands, attacks, plug-ins."""
    calls = {path for path in modules() if re.search(r"\bimport_module\(", path.read_text())}
    known = {"core/operation.py", "cli/late.py", "audit/registry.py", "site/settings.py"}
    assert {str(path.relative_to(SOURCE)) for path in calls} <= known
    assert re.findall(r'"fedsift\.\w+"', (SOURCE / "core" / "operation.py").read_text()) == ['"fedsift._public"']


HEAVY = ["torch", "nvflare", "tenseal", "plotly", "heu", "opendp", "xgboost"]
TABLES = ["sklearn", "scipy", "pandas", "polars", "pyarrow", "numpy"]


def loaded_by(code: str, *names: str) -> list[str]:
    """Which of these modules are there after the code was run in a process of its own."""
    code += f"; import sys; sys.stdout.write('loaded ' + ' '.join(m for m in {names!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.rpartition("loaded ")[2].split()


def test_the_public_names_need_no_extra():
    """torch, nvflare, tenseal, plotly and sf-heu are loaded when they are used, not with the names of fedsift."""
    assert loaded_by("import fedsift; fedsift.Federation", *HEAVY, "numpy") == ["numpy"]


def test_importing_fedsift_loads_nothing_but_itself():
    assert loaded_by("import fedsift", *HEAVY, *TABLES, "fedsift.core", "fedsift.errors") == []


@pytest.mark.parametrize("arguments", [["--help"], ["party", "--help"], ["runn"]], ids=" ".join)
def test_help_loads_no_library_of_tables_or_models(arguments):
    """By what is imported, not by the clock."""
    code = "import contextlib; from fedsift.cli.main import app\n"
    code += f"with contextlib.suppress(SystemExit): app({arguments!r})\npass"
    assert loaded_by(code, *HEAVY, *TABLES, "fedsift._public", "cryptography") == []


def test_a_module_that_is_imported_alone_has_what_stands_to_its_right():
    code = """
import io
from fedsift.core.federation import Federation
a, b = ({"id": [1, 2, 3] * 1, "x": [1, 2, 3], "y": [0, 1, 0]}, {"id": [3, 2, 1], "z": [1, 2, 3]})
import pandas as pd
fed = Federation.from_tables({"a": pd.DataFrame(a), "b": pd.DataFrame(b)}, id="id", label=("a", "y"), min_overlap=1)
print(fed.n_rows)
from fedsift.core.operation import find_operation
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
    assert loaded_by("from fedsift.core.operation import find_operation; find_operation('muse.open_tables', 'a')") == []


def test_python_m_fedsift_is_the_command():
    done = subprocess.run([sys.executable, "-m", "fedsift", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: fedsift [OPTIONS] COMMAND")


def test_torch_is_a_range_and_the_constraints_pin_one_within_it():
    project = (SOURCE.parents[1] / "pyproject.toml").read_text()
    low, high = re.search(r'"torch>=([\d.]+),<(\d+)"', project).groups()
    pinned = re.search(r"^torch==([\d.]+)$", (SOURCE.parents[1] / "constraints.txt").read_text(), re.MULTILINE)[1]
    numbers = [tuple(map(int, version.split("."))) for version in (low, pinned, high)]
    assert numbers == sorted(numbers)
