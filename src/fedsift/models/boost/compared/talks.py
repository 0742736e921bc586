"""A party's side of a program that runs with another party, message by message, sealed from the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.mpc.comparing import Message
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.talking import Talk as Talk

_ABOUT = "boost: comparing"


def purpose(peer: str) -> str:
    """Of the dealer's randomness for the label holder and this party."""
    return f"boost: comparing with {peer}"


@dataclass
class Talks:
    """All of a party's talks, by peer."""

    of: dict[str, Talk]

    def sealed(self, pairs: Pairs, peer: str, message: Message) -> SealedBox:
        talk = self.of[peer]
        box = pairs.seal(message, to=peer, about=_ABOUT, number=talk.number)
        talk.number += 1
        return box


@operation(
    "boost.compare",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="numbers of one step of comparing cuts, each under a fresh mask, sealed for the other party",
    learns="nothing: numbers under masks that it does not have",
    concerns="own columns and labels",
    reply=dict,
    times="20000000 a session",
)
def compare(party: Party, *, boxes: dict[str, SealedBox]) -> dict[str, SealedBox]:
    """One step of every program under way; nothing comes back from those that have ended."""
    talks, pairs, answers = party.held(Talks), party.held(Pairs), {}
    for name, box in boxes.items():
        if name not in talks.of:
            raise OperationRefused(party.name, "compare", f"it compares nothing with {name!r}")
        talk = talks.of[name]
        theirs = pairs.open(box, sender=name, about=_ABOUT, number=talk.number - 1)
        message = talk.hear(name, theirs)
        if message is not None:
            answers[name] = talks.sealed(pairs, name, message)
    return answers
