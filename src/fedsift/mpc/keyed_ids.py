"""Matching ids by pseudonyms under a key that all parties have and the coordinator has not.

Each party sends digests of its ids (SHA-512 under a key of 32 bytes, cut to 16: ``oprf.keyed_digests``) in an order of
its own, and the coordinator compares the lists: a hash and 16 bytes an id, where ``psi.py`` takes an exponentiation at
each key holder (server-aided set intersection; Kamara, Mohassel, Raykova, Sadeghian 2014). The key is made for this
alignment alone, of a fresh part from each party, sealed for the others (``shared_rows.py``): pseudonyms of two
alignments have nothing in common.

Who learns what: exactly as in ``psi.py``, as long as the coordinator works with no party. To the coordinator alone the
pseudonyms are random; it learns the sizes of lists and intersections. A party sees nobody else's pseudonyms. **But the
coordinator together with one party can test guesses of every party's ids** (a telephone number is guessed in minutes),
where ``psi.py`` takes all key holders and the coordinator. So a site has to allow this way (``keyed_matching = true``
in its rules), and it is refused where a party runs the coordinator, deals or gets the results.
"""

from __future__ import annotations

from fedsift.core.arguments import PartyName
from fedsift.core.federation import Federation
from fedsift.core.job import Job
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ParameterError
from fedsift.mpc.matched_lists import PSEUDONYM_BYTES
from fedsift.mpc.shared_rows import CommonKeys, Sent

JOB = "alignment"  # what matching ids is called when it is put to the parties
CURVE, KEYED = "curve", "keyed"
MATCHING = (CURVE, KEYED)
_NOT_NEUTRAL = (
    'matching = "keyed" needs a coordinator that holds no rows: a party that has the key and sees the pseudonyms can '
    'test guesses of all ids. Write matching = "curve", or let an organisation without rows run it'
)


def is_keyed(job: Job) -> bool:
    """Whether this alignment makes its pseudonyms with a key that all parties have."""
    return job.method == JOB and job.says("matching") == KEYED


def check_keyed(fed: Federation, matching: str) -> None:
    """Refuse an unknown way, and this one where a party would see the pseudonyms. Sites refuse it there, too."""
    if matching not in MATCHING:
        raise ParameterError(f"matching must be one of {', '.join(map(repr, MATCHING))}; got {matching!r}")
    if matching == KEYED and not fed.neutral:
        raise ParameterError(f"{_NOT_NEUTRAL}; here {fed.run_by!r} runs it, deals or gets the results")


@operation(
    "align.keyed_ids",
    discloses="pseudonymous",
    about="pseudonyms of the own ids, under a key that the parties share and made for this alignment alone",
    learns="the other parties' parts of the common keys",
    reply=bytes,
    needs=("alignment",),
    after="align.seal_order",
    times=1,
    when=f"matching={KEYED}",
)
def keyed_ids(party: Party, *, boxes: dict[PartyName, SealedBox]) -> bytes:
    """The list of ids, in a random order, filled to the size that the job says."""
    if not party.job.neutral:
        raise OperationRefused(party.name, "keyed_ids", _NOT_NEUTRAL)
    key = CommonKeys.of(party, boxes).fresh
    _, words = Sent.drawn(party)
    return oprf.keyed_digests(words, key, PSEUDONYM_BYTES).tobytes()
