"""A federation with engineered columns: every party computes them from its own table."""

from __future__ import annotations

from fedsift.core.expressions import evaluate, parse
from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import MAX_VIEWS, Party
from fedsift.select.selection import Selection


@operation("engineered.add_engineered", times=MAX_VIEWS, discloses="control", about="acknowledgement")
def add_engineered(party: Party, *, formulas: list[str], kept: list[str], view: str, called: str = "") -> None:
    """Compute features from this site's own columns and define a view that has them beside the kept columns."""
    site = party.site
    names = party.columns
    before = site.table.columns
    values = evaluate([parse(text) for text in formulas], site.table, called or party.name)
    site.table = site.table.with_columns({text: values[:, i] for i, text in enumerate(formulas)})
    for name, (rows, columns) in site.views.items():
        # A view of all columns meant all columns that there were: new ones belong to the new view only.
        site.views[name] = (rows, list(before) if columns is None else columns)
    wanted = [name for name in names if name in kept]
    site.views[view] = (party._rows, [*wanted, *formulas])


def engineered_view(fed: Federation, selection: Selection) -> Federation:
    """The same federation with a selection's columns and new features."""
    view = fed.new_view("engineered")
    fed.ask(add_engineered, to=fed.parties, each=own_features(fed, selection), view=view)
    return fed.named_view(view)


def own_features(fed: Federation, selection: Selection) -> dict[str, dict[str, object]]:
    """What ``add_engineered`` is told, by party."""
    return {
        name: {
            "kept": list(selection.selected[name]), "formulas": selection.engineered_for(name),
            "called": selection.groups.get(name, name),
        }
        for name in fed.parties
    }  # fmt: skip
