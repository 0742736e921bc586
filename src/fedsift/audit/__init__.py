"""The audit: attacks from the literature, run on what each role really received in a run.

``record`` runs a method and gives the view of each role, ``attacks_on`` the attacks that read its operations, and an
attack's ``run`` an ``Exposure``: its success beside guess and baseline. Attacks are lower bounds; a pass is no proof.
"""

from __future__ import annotations

from fedsift.audit.exposure import Exposure, Measure
from fedsift.audit.recording import Recording, record, record_sites, record_tables
from fedsift.audit.registry import ATTACKS, Attack, attack, attacks_on, load_attacks, uncovered
from fedsift.audit.views import Truth, View
from fedsift.audit.waivers import PENDING, WAIVERS

__all__ = [
    "ATTACKS",
    "PENDING",
    "WAIVERS",
    "Attack",
    "Exposure",
    "Measure",
    "Recording",
    "Truth",
    "View",
    "attack",
    "attacks_on",
    "load_attacks",
    "record",
    "record_sites",
    "record_tables",
    "uncovered",
]
