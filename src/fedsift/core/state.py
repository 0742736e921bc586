"""What a party keeps: the state of one run, by type, and its parts of trained models, apart from its keys.

A part stays at the site when the run that trained it is over, until ``forget``: the model's owner says so
(``FederatedModel.forget``), or the site itself goes. A request can use a part, but neither fetch it nor name a path:
the folder for files is the site's own choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedsift.errors import DataError, OperationRefused


class State(dict[Any, Any]):
    """What the operations of a run keep at a party; a step that finds nothing there came too early."""

    def __init__(self, party: str):
        super().__init__()
        self._party = party

    def __missing__(self, key: object) -> Any:
        named = key.__name__ if isinstance(key, type) else str(key)
        raise OperationRefused(
            self._party, named, "an earlier step of this run must come first; it was not asked"
        ) from None


def undo(state: dict[object, object], before: dict[object, object]) -> None:
    """After a step that failed, whose reply never left: what it kept goes, what it replaced comes back. What it used
    up stays gone, so that nothing is opened or masked by it again."""
    for key in list(state):
        if key not in before:
            del state[key]
        else:
            state[key] = before[key]


T = TypeVar("T")


@dataclass(frozen=True)
class StoredPart:
    """What one site keeps of one model; ``owner`` is the run (session) that made it, empty for one from a file."""

    owner: str
    content: object


@dataclass
class ModelStore:
    """Model -> this site's part. ``folder`` is where the site reads and writes part files; ``None``: nowhere."""

    site: str
    folder: Path | None = None
    jobs: dict[str, str] = field(default_factory=dict)  # model -> hash of the job that its file is of
    _parts: dict[str, StoredPart] = field(default_factory=dict, repr=False)

    def keep(self, model: str, content: object, owner: str = "") -> None:
        self._parts[model] = StoredPart(owner, content)

    def part(self, model: str, kind: type[T]) -> T:
        """This site's part of a model, of the kind that the asking operation can use."""
        stored = self._parts.get(model)
        if stored is None or not isinstance(stored.content, kind):
            raise DataError(
                f"party {self.site!r} has no part of the model {model!r}: fit it here, or load its file first"
            )
        return stored.content

    def share(self, other: ModelStore, model: str) -> None:
        """Take over a part from another store of the same organisation (a simulated site with new rows)."""
        if model in other._parts:
            self._parts.setdefault(model, other._parts[model])
        if model in other.jobs:
            self.jobs.setdefault(model, other.jobs[model])

    def forget(self, model: str) -> None:
        self._parts.pop(model, None)
        self.jobs.pop(model, None)

    def __contains__(self, model: object) -> bool:
        return model in self._parts

    def __len__(self) -> int:
        return len(self._parts)
