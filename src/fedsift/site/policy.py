"""A site's policy: what this organisation lets a job do with its data, whoever asks.

A rule is judged from what the site itself knows: the operation that it has installed under the asked name (its form of
disclosure, its module), the arguments that the operation would run with, and the rows of the view it would run on.
What the coordinator *says* about the job narrows things down further, it never widens them: the announced method must
be an allowed one, and then only the operations that this method's own code uses are run. So a coordinator that
announces one method and asks for another is refused at the first operation.

A refusal is a ``PolicyRefused`` that names the rule and what to change. It quotes names of methods, parameters and
operations and numbers of the policy, never anything that was read from the data.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedsift.core.ledger import FORMS
from fedsift.core.operation import Operation, is_own, operations
from fedsift.errors import PolicyRefused
from fedsift.jobs.text import Section
from fedsift.methods import METHODS, Selector

COLUMN_NAMES, CLASS_NAMES, ERRORS, ALIGNMENT = "column names", "class names", "error messages", "alignment"

#: What a site may let out although it does not accept the form, in words; a run can hardly do without the first three.
EXCEPTIONS = {
    COLUMN_NAMES: "the names of the columns that take part, to whoever runs the job",
    CLASS_NAMES: "the names of the label's classes, to whoever runs the job",
    ERRORS: "the text of an error: it may name columns, rows by number and counts, never a value",
    ALIGNMENT: "ids under pseudonyms, to find the rows that all parties share",
}
DEFAULT_EXCEPTIONS = [COLUMN_NAMES, CLASS_NAMES, ERRORS]
#: What every job does before and after its method: sizes, names, alignment, views of rows, and giving this party its
#: own part of the result. Needs no announced method.
CORE = ("core", "align", "delivery")
#: The smallest group of rows that is counted or summed: as a parameter of methods, and as an argument of operations.
#: SecureBoost takes the larger of its two.
_CELL_PARAMETERS = ("min_cell", "min_leaf")
_CELL_ARGUMENTS = ("min_cell", "least")


class Policy(Section):
    """The table ``[policy]`` of a party file. What is left out is as strict as it can be and still be of use."""

    methods: Literal["any"] | list[str] = Field(
        default="any", description='"any" or a list of methods, such as ["gini", "muse"] (see: fedsift methods)'
    )
    min_rows: int = Field(default=50, ge=1, description="a whole number of rows, 1 or more")
    min_cell: int = Field(default=5, ge=0, description="a whole number of rows; 0 for no such rule")
    max_epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="a number above 0, such as 1.0"
    )
    forms: list[Literal["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"]] = Field(
        default=["control", "ciphertext", "masked", "pseudonymous", "aggregate"],
        description=f"a list out of {', '.join(FORMS)}",
    )
    exceptions: list[str] = Field(
        default=DEFAULT_EXCEPTIONS, description=f"a list out of {', '.join(map(repr, EXCEPTIONS))}, or of operations"
    )
    plugins: list[str] = Field(default=[], description='a list of Python modules, such as ["my_methods"]')
    max_label_auc: float = Field(default=0.7, ge=0.5, le=1, description="an AUC from 0.5 (a guess) to 1, such as 0.7")
    max_column_r2: float = Field(default=0.3, ge=0, le=1, description="an R2 from 0 to 1, such as 0.3")
    require_audit: bool = Field(default=False, description="true or false")

    # -- before a job ----------------------------------------------------------------------------------------------

    def check_job(self, party: str, method: str, parameters: Mapping[str, Any]) -> None:
        """Refuse a method that is not allowed, or parameters that are too weak; what is not told is the default."""
        known = METHODS.get(method)
        allowed = sorted(METHODS) if self.methods == "any" else self.methods
        if known is None or method not in allowed:
            what = "is not allowed here" if known else "is not known here"
            raise PolicyRefused.by(
                "methods", party, "begin_job",
                f"the method {_short(method)} {what}; allowed are {', '.join(allowed)}. Take one of these, or ask the "
                "party to allow it (methods)",
            )  # fmt: skip
        told = {**known().get_params(deep=False), **parameters}
        cells = {name: told[name] for name in _CELL_PARAMETERS if name in told}
        if "min_cell" in cells:
            self._check_cell(party, "begin_job", "min_cell", max(map(_number, cells.values())))
        for name, value in told.items():
            if _is_epsilon(name):
                self._check_epsilon(party, "begin_job", name, value)

    # -- before an operation ---------------------------------------------------------------------------------------

    def check_operation(self, party: str, marked: Operation, arguments: Mapping[str, Any], method: str | None) -> None:
        """Refuse an operation for where it comes from, what it discloses, or what it is asked to do."""
        self._check_module(party, marked)
        self._check_form(party, marked)
        if not is_core(marked):
            _check_method(party, marked, method)
        given = {**_defaults(marked), **arguments}
        for name, value in _flat(given):
            if name in _CELL_ARGUMENTS:
                self._check_cell(party, marked.short_name, name, _number(value))
            elif _is_epsilon(name):
                self._check_epsilon(party, marked.short_name, name, value)

    def check_rows(self, party: str, operation: str, rows: int) -> None:
        """Refuse to work on too few rows. How many there are is not said."""
        if rows < self.min_rows:
            raise PolicyRefused.by(
                "min_rows", party, operation,
                f"it would work on fewer than {self.min_rows} of its rows. Use more rows (fewer folds, a larger "
                "overlap), or ask the party to lower min_rows",
            )  # fmt: skip

    def _check_module(self, party: str, marked: Operation) -> None:
        module = marked.module
        if not is_own(module) and module not in self.plugins:
            raise PolicyRefused.by(
                "plugins", party, marked.short_name,
                f"its module {module!r} is not part of fedsift. Ask the party to install it and to add it to plugins",
            )  # fmt: skip

    def _check_form(self, party: str, marked: Operation) -> None:
        needs = marked.needs
        excepted = marked.id in self.exceptions or (needs and set(needs) <= set(self.exceptions))
        if marked.discloses in self.forms or marked.discloses == "control" or excepted:
            return
        missing = [name for name in needs if name not in self.exceptions]
        if missing == [COLUMN_NAMES] and marked.id == "core.share_names":
            way = 'Write names = "private" under [federation] in the job'
        else:
            way = "Take a method or a setting that does without it"
        asked = " and ".join(map(repr, missing)) or repr(marked.id)
        raise PolicyRefused.by(
            "forms", party, marked.short_name,
            f"it discloses {marked.about!r} in the form {marked.discloses!r}, which this party does not accept. {way}, "
            f"or ask the party to add {asked} to exceptions",
        )  # fmt: skip

    def _check_cell(self, party: str, operation: str, name: str, value: float) -> None:
        if value < self.min_cell:
            now = "is not set" if value <= 0 else f"is {value:g}"
            raise PolicyRefused.by(
                "min_cell", party, operation,
                f"{name} {now}, and this party counts no group of fewer than {self.min_cell} rows. "
                f"Write min_cell = {self.min_cell} (or more) under [method] in the job",
            )  # fmt: skip

    def _check_epsilon(self, party: str, operation: str, name: str, value: Any) -> None:
        if self.max_epsilon is None:
            return
        number = _number(value)
        if value is None and name != "epsilon":
            return  # a part of the whole, which is judged by itself
        if not 0 < number <= self.max_epsilon:
            now = f"is {number:g}" if number > 0 else "is not set (no noise at all)"
            raise PolicyRefused.by(
                "max_epsilon", party, operation,
                f"{name} {now}, and this party allows at most {self.max_epsilon:g}. "
                f"Write {name} = {self.max_epsilon:g} (or less) under [method] in the job",
            )  # fmt: skip


def _check_method(party: str, marked: Operation, method: str | None) -> None:
    if method is None:
        raise PolicyRefused.by(
            "methods", party, marked.short_name,
            "no method was announced for this run. Fit a selector of fedsift (it announces itself), or call "
            "Federation.session(method, parameters)",
        )  # fmt: skip
    if marked.id not in operations_of(METHODS[method]):
        raise PolicyRefused.by(
            "methods", party, marked.short_name,
            f"it is no part of the announced method {method!r}. Announce the method that is really run",
        )  # fmt: skip


def _is_epsilon(name: str) -> bool:
    return name == "epsilon" or name.endswith("_epsilon")


def _number(value: Any) -> float:
    """A number as it is; 0 for what is none, so that it counts as not set."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else 0.0


def _short(text: str) -> str:
    return repr(text[:60])


def _defaults(marked: Operation) -> dict[str, Any]:
    parameters = inspect.signature(marked.function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _flat(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those inside dictionaries too: a setting may travel inside another one."""
    for name, value in arguments.items():
        if isinstance(value, dict):
            yield from _flat(value)
        yield str(name), value


# --- which operations a method has -----------------------------------------------------------------------------------


def is_core(marked: Operation) -> bool:
    return is_own(marked.module) and marked.family in CORE


def operations_of(method: type[Selector]) -> frozenset[str]:
    """The ids of all operations in the modules that a method's code imports, wherever an import statement stands.

    More than the method uses with any one setting, never less. They are loaded here, because the method's name was
    looked up in the table of methods: a message can make this site load nothing else.
    """
    with _LOADING:
        return _operations_from(method.__module__)


#: CPython 3.11's parser fails when threads use it at the same time ("AST constructor recursion depth mismatch").
_LOADING = threading.Lock()


@lru_cache(maxsize=256)
def _operations_from(module: str) -> frozenset[str]:
    modules = modules_of(module)
    for name in modules:
        importlib.import_module(name)
    return frozenset(marked.id for marked in operations() if marked.module in modules)


def modules_of(start: str) -> set[str]:
    """The module and those that it leads to: protocols, other methods, and its own package; not the core."""
    home = start.partition(".")[0]
    found = {start}
    waiting = list(_imports(start))
    while waiting:
        name = waiting.pop()
        if name not in found and _leads_to_operations(name, home) and _spec(name) is not None:
            found.add(name)
            waiting += _imports(name)
    return found


def _leads_to_operations(name: str, home: str) -> bool:
    method_code = name.startswith(("fedsift.mpc.", "fedsift.models.", "fedsift.select.", "fedsift.engineer."))
    return method_code or (home != "fedsift" and name.partition(".")[0] == home)


def _imports(name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(_source(name))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = name if _is_package(name) else name.rpartition(".")[0]
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))  # a name may be a module, too


def _source(name: str) -> str:
    """The text of a module; empty for one that was made without a file (in a notebook)."""
    spec = _spec(name)
    origin = spec.origin if spec is not None else None
    return Path(origin).read_text(encoding="utf-8") if origin and origin.endswith(".py") else ""


def _is_package(name: str) -> bool:
    spec = _spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _spec(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


__all__ = ["EXCEPTIONS", "Policy", "is_core", "modules_of", "operations_of"]
