"""Every exception that fedsift raises on purpose.

FedsiftError
 |- ParameterError        a selector's or function's argument is wrong (also a ValueError)
 |- DataError             a table cannot be used: names the party, the column or the row (also a ValueError)
 |   `- AlignmentError    the parties' ids do not meet
 |- JobError              a job file or a party file is wrong: names the key and what was expected
 |- MessageError          bytes that are no valid message
 |- PartyError            a party did not do its part: names the party and the operation
 |   |- OperationRefused  not registered at the party
 |   |   |- PolicyRefused against the party's own policy: names the rule
 |   |   `- ApprovalPending its people have not approved the job yet: ask again later
 |   |- OperationFailed   the operation raised inside the party
 |   |- ReplyError        the reply has the wrong shape, type or range
 |   |- PartyTimeout      no reply in time
 |   `- PartyGone         the party cannot be reached any more
 |- SecurityError
 |   |- CiphertextError   wrong key, truncated, tampered or foreign ciphertext
 |   |- OverflowGuard     a value would not fit its slot (raised before anything wraps)
 |   |- SealError         a sealed payload is not authentic or not for this receiver
 |   `- BudgetExceeded    the privacy budget does not cover the next release
 `- MissingExtra          an optional dependency is not installed (also an ImportError)
"""

from __future__ import annotations

import errno

#: What a request is told that no check of ours had refused, but Python did while its step ran; fuzzing looks for it.
UNFORESEEN = "it does not fit what this party holds"


def disk_words(error: BaseException) -> str:
    """What to say where a disk is full or cannot be written; nothing for other errors. It names no file."""
    told = {errno.ENOSPC: "no space is left on its disk", errno.EDQUOT: "its disk quota is used up",
            errno.EROFS: "its disk can only be read"}  # fmt: skip
    return told.get(error.errno or 0, "") if isinstance(error, OSError) else ""


class FedsiftError(Exception):
    """Base of all errors raised on purpose. ``exit_code`` is what the command line returns.

    Examples
    --------
    >>> import fedsift as fs
    >>> try:
    ...     fs.GiniFilter(n_features=3).fit("a table")
    ... except fs.FedsiftError as error:
    ...     print(type(error).__name__, error.exit_code)
    ParameterError 2
    """

    exit_code = 1


class ParameterError(FedsiftError, ValueError):
    exit_code = 2


class DataError(FedsiftError, ValueError):
    exit_code = 3


class UnclearColumns(DataError):
    """Columns of a file that could be read in several ways; a line each, with what to say in the job file."""

    def __init__(self, what: str, columns: dict[str, str] | None = None):
        super().__init__(what)
        self.columns = columns or {}  # name -> its line


class AlignmentError(DataError):
    pass


class JobError(FedsiftError, ValueError):
    exit_code = 2


class MessageError(FedsiftError, ValueError):
    exit_code = 4


class PartyError(FedsiftError):
    """Something went wrong at one party."""

    exit_code = 5

    def __init__(self, party: str, operation: str, what: str):
        super().__init__(f"party {party!r}, operation {operation!r}: {what}")
        self.party = party
        self.operation = operation
        self.what = what

    def __reduce__(self) -> tuple[type[PartyError], tuple[str, str, str]]:
        """As its parts: an error of one process is read in another (workers, tests side by side)."""
        return type(self), (self.party, self.operation, self.what)


class OperationRefused(PartyError):
    pass


class PolicyRefused(OperationRefused):
    """A party's own policy forbids it. ``rule`` is the key under ``[policy]`` in its ``party.toml``."""

    _LEAD = "its policy refuses this by the rule "

    @classmethod
    def by(cls, rule: str, party: str, operation: str, what: str) -> PolicyRefused:
        return cls(party, operation, f"{cls._LEAD}{rule!r}: {what}")

    @property
    def rule(self) -> str:
        """Which rule, read from the text: the text is all that travels."""
        lead, _, rest = self.what.partition(self._LEAD)
        return rest.partition(":")[0].strip("'") if not lead else ""


class ApprovalPending(OperationRefused):
    """The party's people have to approve this job, and have not yet. Nothing was computed."""


class OperationFailed(PartyError):
    pass


class ReplyError(PartyError):
    pass


class PartyTimeout(PartyError):
    pass


class PartyGone(PartyError):
    pass


class SecurityError(FedsiftError):
    exit_code = 6


class CiphertextError(SecurityError):
    pass


class OverflowGuard(SecurityError, OverflowError):
    pass


class SealError(SecurityError):
    pass


class BudgetExceeded(SecurityError):
    pass


class MissingExtra(FedsiftError, ImportError):
    """An optional dependency is missing; the message carries the install command."""

    exit_code = 7

    def __init__(self, package: str, extra: str):
        super().__init__(f"this needs the package {package!r}: pip install 'fedsift[{extra}]'")
