"""``fedsift methods``: what there is, what it costs and what attacks have read of it."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from fedsift.cli import console
from fedsift.cli.options import Format, FormatOption, Verbose, print_json
from fedsift.errors import ParameterError
from fedsift.jobs import cost
from fedsift.jobs.text import nearest
from fedsift.methods import GROUPS, METHODS, OTHERS, Selector, group_of

#: What analysts ask beside which columns to keep (docs/statistics.md, designs.md, encoders.md, job-file.md).
TABLES = (
    ("correlation", "Pearson's and Spearman's correlations, also across parties", "fedsift statistics JOB"),
    ("vif", "how far each column is a mix of all others", "fedsift statistics JOB --what vif"),
    ("significance", "p-values of a linear or logistic model", "fedsift statistics JOB --what significance"),
    ("psi", "whether columns are spread alike in two samples or times", "fedsift statistics JOB --what psi"),
    (
        "weights of evidence",
        "bins of a column in the place of its values",
        'information_value, woe = "bins" or "monotone"',
    ),
    ("designs", "weights, persons, times, events, several labels", "[design] of a job"),
    ("texts and dates", "months, ages, categories, hashes instead of an error", "[parties.NAME.encode] of a job"),
    ("rules", "columns that go together, are always or never kept", "[rules] of a job"),
    ("very wide tables", "10^5 columns and more", 'sffs, screen = "coarse"'),
)


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method in full.", show_default=False)] = None,
    format: FormatOption = Format.table,
    verbose: Verbose = False,
) -> None:
    """List the methods, or show one in full."""
    if name is not None and name not in METHODS:
        raise ParameterError(f"there is no method {name!r}{nearest(name, list(METHODS))}")
    shown = {key: _method_facts(key, method) for key, method in METHODS.items() if name in (None, key)}
    if format is Format.json:
        print_json(shown[name] if name else list(shown.values()))
    elif name is None:
        for group in (*GROUPS, OTHERS):
            mine = [m for m in shown.values() if m["group"] == group]
            rows = [[m["name"], m["does"], m["cost"], m["leaks"], m["exposure"]] for m in mine]
            if rows:
                heads = ["name", "what it does", "costs", "what it gives away", "attacks read at most"]
                console.table(rows, heads, title=group.capitalize())
        console.table([list(row) for row in TABLES], ["name", "what it does", "how"], title="Beside the methods")
        console.show("\nCosts: all links, two parties, 10,000 rows, 100 columns, default settings, 30 ms apart "
                     "(docs/scale.md). Attacks: docs/exposure.md.\nfedsift methods NAME shows a method's parameters, "
                     "paper and parties.")  # fmt: skip
    else:
        console.show_method(shown[name])


def _method_facts(name: str, method: type[Selector]) -> dict[str, Any]:
    signature = inspect.signature(method)
    defaults = {
        key: None if parameter.default is inspect.Parameter.empty else parameter.default
        for key, parameter in signature.parameters.items()
    }
    return {
        "name": name,
        "group": group_of(name),
        "class": f"fedsift.{method.__name__}",
        "partitions": list(method.partitions),
        "parameters": defaults,
        "paper": method.paper,
        "leaks": method.leaks,
        "about": inspect.getdoc(method) or "",
        "does": (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " "),
        "cost": cost.at_a_glance(name),
        "exposure": cost.exposure(name),
    }
