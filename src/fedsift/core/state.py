"""What the operations of one run keep at a party, by type."""

from __future__ import annotations

from typing import Any

from fedsift.errors import OperationRefused


class State(dict[Any, Any]):
    """What the operations of a run keep at a party; a step that finds nothing there came too early."""

    def __init__(self, party: str):
        super().__init__()
        self._party = party

    def __missing__(self, key: Any) -> Any:
        named = key.__name__ if isinstance(key, type) else str(key)
        raise OperationRefused(
            self._party, named, "an earlier step of this run must come first; it was not asked"
        ) from None
