"""Attacks on the matching of ids: guessing, lists without end, rows of the coordinator's choice."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.message import encode
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox, SealKey, seal
from fedsift.errors import ReplyError
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.psi import JOB
from fedsift.mpc.shared_rows import Matched
from hostile.coordinator import ROWS, Hostile, refused

AGREED = {"blocks": [["bank", "shop"]], "rows": {"bank": ROWS, "shop": ROWS}, "random_state": 0}


@pytest.fixture
def hostile():
    return Hostile()


def start(hostile: Hostile, **changed) -> dict:
    job = hostile.job(JOB, {**AGREED, **changed})
    return {"session": hostile.begin(job), "job": job.hash}


def guesses(count: int) -> bytes:
    """Ids that the coordinator would like to know about, hashed to the group as a party does it."""
    return oprf.hash_to_group([f"c{i}".encode() for i in range(count)])


def lists(hostile: Hostile, asked: dict) -> dict:
    """Both lists on their way, each sealed for the other party."""
    hostile.meet(asked)
    return {name: hostile.send(name, "align.blind_ids", **asked)["ok"] for name in ("bank", "shop")}


def sealed_by(hostile: Hostile, asked: dict, points: bytes, number: int = 0):
    """A box as the shop itself would make it: what follows if a peer, and not only the coordinator, deviates."""
    met = hostile.sites["shop"].sessions[asked["session"]][Pairs]
    met._used.clear()
    return met.seal(points, to="bank", about="blinded ids of shop", number=number)


def test_nothing_is_raised_before_the_own_list_went_out(hostile):
    asked = start(hostile)
    box = SealedBox(bytes(100))
    refused(hostile.send("bank", "align.blind_again", **asked, owner="shop", box=box), "comes after")
    refused(hostile.send("bank", "align.blind_ids", **asked), "an earlier step")


def test_a_list_goes_out_once(hostile):
    asked = start(hostile)
    lists(hostile, asked)
    refused(hostile.send("bank", "align.blind_ids", **asked), "as often as it declares")


def test_no_guess_takes_the_place_of_a_list(hostile):
    """security.md, deviating 6: a site would raise any number of guesses to its secret exponent."""
    asked = start(hostile)
    sent = lists(hostile, asked)
    own = SealKey.generate()
    told = {"sender": "shop", "receiver": "bank", "round": 0, "about": "blinded ids of shop"}
    bank = hostile.sites["bank"].sessions[asked["session"]][Pairs].key.public
    forged = seal(encode(guesses(ROWS)), key=own, peer=bank, **told)
    for box in (forged, sent["bank"], SealedBox(bytes(32 * ROWS)), guesses(ROWS), None):
        fresh = start(hostile)
        lists(hostile, fresh)
        refused(hostile.send("bank", "align.blind_again", **fresh, owner="shop", box=box))


def test_a_list_of_another_alignment_does_not_come_back(hostile):
    old, new = start(hostile), start(hostile)
    before = lists(hostile, old)
    lists(hostile, new)
    refused(hostile.send("bank", "align.blind_again", **new, owner="shop", box=before["shop"]), "does not open")


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS + 1, 5 * ROWS])
def test_a_peers_list_of_another_size_than_told(hostile, count):
    asked = start(hostile)
    lists(hostile, asked)
    box = sealed_by(hostile, asked, guesses(count))
    refused(hostile.send("bank", "align.blind_again", **asked, owner="shop", box=box), "in the size that it told")


def test_more_lists_than_peers(hostile):
    asked = start(hostile)
    sent = lists(hostile, asked)
    assert isinstance(hostile.send("bank", "align.blind_again", **asked, owner="shop", box=sent["shop"])["ok"], bytes)
    refused(hostile.send("bank", "align.blind_again", **asked, owner="shop", box=sent["shop"]), "raised already")
    inner = {**asked, "session": f"{asked['session']}.more"}
    refused(hostile.send("bank", "align.blind_again", **inner, owner="shop", box=sent["shop"]))


NONSENSE = {
    "no blocks": {"blocks": None},
    "blocks without this party": {"blocks": [["shop"]]},
    "the own name twice": {"blocks": [["bank", "bank"]]},
    "a peer that is not of the job": {"blocks": [["bank", "ghost"]], "rows": {"bank": ROWS, "ghost": 10**6}},
    "no sizes": {"rows": None},
    "sizes that are no numbers": {"rows": {"bank": "x", "shop": "y"}},
    "a size for the own list alone": {"rows": {"bank": ROWS}},
    "a size below zero": {"rows": {"bank": ROWS, "shop": -1}},
    "a truth value": {"rows": {"bank": ROWS, "shop": True}},
    "names that are none": {"blocks": [[["bank"], "bank"]]},
}

OWN_SIZES = [ROWS - 1, ROWS + 1, 10**12, 10**30]


@pytest.mark.parametrize("attack", NONSENSE)
def test_an_alignment_that_does_not_say_who_shares_which_rows(hostile, attack):
    asked = start(hostile, **NONSENSE[attack])
    hostile.meet(asked)
    refused(hostile.send("bank", "align.blind_ids", **asked), "does not say with whom")


@pytest.mark.parametrize("matching", ["curve", "keyed"])
@pytest.mark.parametrize("size", OWN_SIZES)
def test_a_list_is_filled_to_the_size_that_this_site_told_and_not_to_the_jobs(size, matching):
    """Until November 2026 a job with 10^12 rows made a site draw as many random ids."""
    hostile = Hostile(keyed_matching=True)
    rows = {"bank": size, "shop": ROWS}
    asked = start(hostile, rows=rows, matching=matching)
    hostile.meet(asked)
    if matching == "curve":
        refused(hostile.send("bank", "align.blind_ids", **asked), "the job")
    else:
        refused(hostile.send("bank", "align.seal_order", **asked), "the job")


@pytest.mark.parametrize("points", [b"\xff" * 32 * ROWS, bytes(32 * ROWS), b"\x01" * 32 * ROWS])
def test_points_that_are_none(hostile, points):
    asked = start(hostile)
    lists(hostile, asked)
    refused(hostile.send("bank", "align.blind_again", **asked, owner="shop", box=sealed_by(hostile, asked, points)))


ROWS_CHOSEN = {
    "one row many times": np.zeros(ROWS, dtype=np.int64),
    "rows that are not there": np.arange(ROWS) + 1,
    "rows from behind": np.arange(ROWS) - 1,
    "a square": np.zeros((10, 12), dtype=np.int64),
}


def met(hostile: Hostile) -> tuple[dict, dict]:
    """The state before the last step: both lists out, both parties met."""
    asked = start(hostile)
    lists(hostile, asked)
    sealed = {name: hostile.send(name, "align.seal_order", **asked)["ok"] for name in ("bank", "shop")}
    return asked, {"shop": sealed["shop"]["bank"]}


@pytest.mark.parametrize("attack", ROWS_CHOSEN)
def test_shared_rows_that_are_none(hostile, attack):
    asked, boxes = met(hostile)
    reply = hostile.send("bank", "align.keep_shared", **asked, positions=ROWS_CHOSEN[attack], boxes=boxes)
    refused(reply)
    assert "aligned" not in hostile.sites["bank"].views


def test_few_shared_rows_of_the_coordinators_choice(hostile):
    asked, boxes = met(hostile)
    reply = hostile.send("bank", "align.keep_shared", **asked, positions=np.arange(5), boxes=boxes)
    refused(reply, "min_rows")
    assert "aligned" not in hostile.sites["bank"].views


def test_the_row_order_is_not_the_coordinators(hostile):
    """A box that it made itself, or none, gives no order that it knows."""
    asked, _ = met(hostile)
    reply = hostile.send("bank", "align.keep_shared", **asked, positions=np.arange(ROWS), boxes={})
    refused(reply, "every other party")


def test_alignment_is_no_way_to_the_labels(hostile):
    asked = start(hostile)
    refused(
        hostile.send("bank", "core.draw_rows", **asked, train=0.5, stratify=True, seed=0, task="auto"), "no part of"
    )
    refused(hostile.send("bank", "core.describe_label", **asked, task="auto"), "no part of")
    refused(hostile.send("bank", "core.define_view", **asked, view="v", rows=np.arange(60)), "no part of")
    refused(hostile.send("bank", "labels.encrypt_classes", **asked, scheme="auto", task="auto"), "no part of")


def test_a_site_that_accepts_no_pseudonyms_is_not_aligned():
    hostile = Hostile(exceptions=[], forms=["ciphertext", "masked", "aggregate"])
    asked = start(hostile)
    hostile.meet(asked)
    refused(hostile.send("bank", "align.blind_ids", **asked), "forms")


def test_an_honest_job_still_runs_after_all_that(hostile):
    for name in ("bank", "shop"):
        refused(hostile.send(name, "align.blind_ids"), "methods")
    fed = hostile.aligned()
    assert fs.GiniFilter(n_features=2).fit(fed).selection_.n_selected == 2
    assert all(site.runs == {} and site.sessions == {} for site in hostile.sites.values())


# -- pseudonyms under a key that all parties have (matching = "keyed") -----------------------------------------------


def keyed(hostile: Hostile, **fields) -> tuple[dict, dict]:
    """After the keys have met: what every request names, and the boxes that an honest coordinator would relay."""
    job = hostile.job(JOB, {**AGREED, "matching": "keyed"}, **fields)
    asked = {"session": hostile.begin(job), "job": job.hash}
    hostile.meet(asked)
    sealed = {name: hostile.send(name, "align.seal_order", **asked)["ok"] for name in ("bank", "shop")}
    return asked, {"bank": {"shop": sealed["shop"]["bank"]}, "shop": {"bank": sealed["bank"]["shop"]}}


def test_a_site_does_not_match_under_a_common_key_unless_it_allows_it(hostile):
    job = hostile.job(JOB, {**AGREED, "matching": "keyed"})
    refused(hostile.announced(job.canonical), "keyed_matching")


@pytest.mark.parametrize("who", ["coordinator", "dealer", "submitter"])
def test_no_pseudonyms_under_a_common_key_for_a_party(who):
    hostile = Hostile(keyed_matching=True)
    asked, boxes = keyed(hostile, **{who: "shop"})
    refused(hostile.send("bank", "align.keyed_ids", **asked, boxes=boxes["bank"]), "holds no rows")


def test_keyed_ids_go_out_once_and_under_the_peers_key_only():
    hostile = Hostile(keyed_matching=True)
    asked, boxes = keyed(hostile)
    for wrong, says in ((boxes["shop"], "every other party"), ({}, "every other party"), (None, "")):
        fresh, _ = keyed(hostile)
        refused(hostile.send("bank", "align.keyed_ids", **fresh, boxes=wrong), says)
    fresh, _ = keyed(hostile)
    forged = {"shop": SealedBox(bytes(200))}
    refused(hostile.send("bank", "align.keyed_ids", **fresh, boxes=forged), "does not open")
    refused(hostile.send("bank", "align.keyed_ids", **fresh, boxes=boxes["bank"]))  # of another alignment
    assert len(hostile.send("bank", "align.keyed_ids", **asked, boxes=boxes["bank"])["ok"]) == 16 * ROWS
    refused(hostile.send("bank", "align.keyed_ids", **asked, boxes=boxes["bank"]), "as often as it declares")


def test_an_alignment_goes_one_way_only():
    """Pseudonyms of both kinds of one list would be two views of it."""
    hostile = Hostile(keyed_matching=True)
    asked, boxes = keyed(hostile)
    refused(hostile.send("bank", "align.blind_ids", **asked), "matching")
    curve = start(hostile)
    hostile.meet(curve)
    hostile.send("bank", "align.seal_order", **curve)
    refused(hostile.send("bank", "align.keyed_ids", **curve, boxes=boxes["bank"]), "matching")


@pytest.mark.parametrize("matching", ["curve", "keyed"])
def test_each_way_of_matching_counts_as_a_list_of_ids(matching):
    """Otherwise the others could bring any number of lists of guesses, each as large as they like."""
    hostile = Hostile(keyed_matching=True, max_id_lists=1)
    for says in (None, "max_id_lists"):
        asked, boxes = keyed(hostile) if matching == "keyed" else (start(hostile), {"bank": None})
        if matching == "keyed":
            reply = hostile.send("bank", "align.keyed_ids", **asked, boxes=boxes["bank"])
        else:
            hostile.meet(asked)
            reply = hostile.send("bank", "align.blind_ids", **asked)
        refused(reply, says) if says else reply["ok"]


def test_a_partners_columns_are_known_after_a_keyed_alignment_too():
    """They are what an answer is reckoned by."""
    hostile = Hostile(keyed_matching=True)
    job = hostile.job(JOB, {**AGREED, "matching": "keyed", "columns": {"bank": 3, "shop": 7, "ghost": 1}})
    asked = {"session": hostile.begin(job), "job": job.hash}
    hostile.meet(asked)
    sealed = {name: hostile.send(name, "align.seal_order", **asked)["ok"] for name in ("bank", "shop")}
    hostile.send("bank", "align.keyed_ids", **asked, boxes={"shop": sealed["shop"]["bank"]})
    assert hostile.sites["bank"].journal._columns == {"bank": 3, "shop": 7}


@pytest.mark.parametrize("matching", ["curve", "keyed"])
def test_common_keys_are_for_those_who_share_rows_alone(matching):
    """A party of another block of rows that had them could test guesses together with the coordinator."""
    hostile = Hostile(keyed_matching=True)
    asked = start(hostile, blocks=[["bank"], ["shop"]], matching=matching)
    hostile.meet(asked)
    refused(hostile.send("bank", "align.seal_order", **asked), "shares rows with others")


def test_keys_met_among_fewer_are_none():
    hostile = Hostile(keyed_matching=True)
    asked = start(hostile, matching="keyed")
    offer = hostile.send("bank", "pairs.offer_key", **asked, among=["bank"], circle="")["ok"]
    hostile.send("bank", "pairs.meet", **asked, offers={"bank": offer})
    refused(hostile.send("bank", "align.seal_order", **asked), "shares rows with others")


@pytest.mark.parametrize("matching", ["CURVE", "", None, 1, True, ["keyed"], {"keyed": 1}])
def test_a_way_of_matching_that_is_none(matching):
    job = Hostile().job(JOB, {**AGREED, "matching": matching})
    refused(Hostile().announced(job.canonical), "keyed_matching")
    hostile = Hostile(keyed_matching=True)
    asked = start(hostile, matching=matching)
    hostile.meet(asked)
    for step in ("align.blind_ids", "align.keyed_ids"):
        refused(hostile.send("bank", step, **asked, **({"boxes": {}} if step == "align.keyed_ids" else {})))


def test_a_list_that_names_an_id_twice_is_a_lie_and_not_a_product():
    """Two such lists of n ids would be n^2 pairs at the coordinator."""
    matched = Matched()
    matched.meet("bank", bytes(range(32)))
    with pytest.raises(ReplyError, match="twice"):
        matched.meet("shop", bytes(16) * 2)
    with pytest.raises(ReplyError, match="cut short"):
        Matched().meet("shop", bytes(17))
