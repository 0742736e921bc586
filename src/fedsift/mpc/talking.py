"""One party's side of a program on shares (``comparing.py``): what it sent, what it makes of the other's answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedsift.errors import ReplyError
from fedsift.mpc.comparing import Message, Program, Source


@dataclass
class Talk:
    """With one peer: the program under way, what was sent last, and what the last program gave."""

    source: Source
    number: int = 0
    program: Program[object] | None = field(default=None, repr=False)
    sent: Message = field(default_factory=list, repr=False)
    result: Any = field(default=None, repr=False)

    def begin(self, program: Program[Any]) -> Message:
        self.program, self.result = program, None
        self.sent = next(program)
        return self.sent

    def hear(self, peer: str, theirs: Any) -> Message | None:
        """The next message, or ``None`` at the end."""
        if self.program is None:
            raise ReplyError(peer, "compare", "nothing is being compared")
        same = isinstance(theirs, list) and [(p.shape, p.dtype) for p in theirs] == [
            (p.shape, p.dtype) for p in self.sent
        ]
        if not same:
            raise ReplyError(peer, "compare", f"party {peer!r} sent numbers of another shape than were asked for")
        try:
            self.sent = self.program.send(theirs)
        except StopIteration as done:
            self.source.finish()
            self.program, self.sent, self.result = None, [], done.value
            return None
        return self.sent
