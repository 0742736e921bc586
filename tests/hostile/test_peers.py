"""Attacks on the handshake: a coordinator that passes for a party, with sites that have the default policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.identity import Identity, SigningKey
from fedsift.mpc.pairs import Meeting, Offer, Pairs
from hostile.coordinator import Hostile, refused
from hostile.test_decryption import Talk as Conversation

GINI = fs.GiniFilter(n_features=2)
AMONG = ["bank", "shop"]


class Talk:
    """An accepted job in a session, and the offers of both sites for its handshake."""

    def __init__(self, hostile: Hostile, **job):
        self.hostile = hostile
        self.job = hostile.of(GINI, **job)
        self.asked = {"session": hostile.begin(self.job), "job": self.job.hash}
        self.round = next(hostile.rounds)
        self.offers = {name: self.offer(name)["ok"] for name in AMONG}

    def offer(self, name: str, **told):
        return self.hostile.send(name, "pairs.offer_key", **self.asked, **{"among": AMONG, "round": self.round, **told})

    def meet(self, offers, to: str = "bank"):
        return self.hostile.send(to, "pairs.meet", **self.asked, offers=offers)

    def forged(self, name: str, key: SigningKey | None = None) -> Pairs:
        """A party of the coordinator's own under a real name, with all that the coordinator knows of the meeting."""
        meeting = Meeting(self.job.hash, self.asked["session"], self.round, "", tuple(AMONG))
        return Pairs(name, meeting, Identity(key or SigningKey.generate()))


@pytest.fixture
def talk():
    return Talk(Hostile())


def test_the_handshake_is_a_real_one(talk):
    for name in AMONG:
        assert talk.meet(talk.offers, to=name) == {"ok": None}


def test_the_coordinators_own_key_under_a_peers_name(talk):
    """security.md, deviating 7, and what the first version of the handshake let pass."""
    refused(talk.meet({**talk.offers, "shop": talk.forged("shop").offer()}), "another key than the one")


def test_the_coordinators_key_under_the_peers_own_signature(talk):
    own = talk.forged("shop")
    refused(talk.meet({**talk.offers, "shop": replace(talk.offers["shop"], key=own.key.public)}), "not signed for")
    refused(talk.meet({**talk.offers, "shop": replace(own.offer(), signer=talk.offers["shop"].signer)}), "not signed")


def test_a_coordinator_between_both_reads_nothing(talk):
    """It would have to be accepted as the shop at the bank and as the bank at the shop; neither takes it."""
    for name, other in (AMONG, AMONG[::-1]):
        refused(talk.meet({**talk.offers, other: talk.forged(other).offer()}, to=name), "pinned")
        refused(
            talk.hostile.send(name, "labels.encrypt_classes", **talk.asked, scheme="auto", task="auto")
            if name == "shop"
            else talk.meet({}, to=name)
        )


@pytest.mark.parametrize("cut", [0, 1, 63])
def test_a_signature_that_was_cut_short(talk, cut):
    short = replace(talk.offers["shop"], signature=talk.offers["shop"].signature[:cut])
    refused(talk.meet({**talk.offers, "shop": short}), "cut short")
    zeros = replace(talk.offers["shop"], signature=bytes(64))
    refused(talk.meet({**talk.offers, "shop": zeros}), "not signed")


def test_peers_in_each_others_place(talk):
    refused(talk.meet({"bank": talk.offers["shop"], "shop": talk.offers["bank"]}), "lacks its own key")
    refused(talk.meet({"bank": talk.offers["bank"], "shop": talk.offers["bank"]}), "one key twice")


def test_ghosts(talk):
    ghost = talk.forged("ghost").offer()
    refused(talk.meet({**talk.offers, "ghost": ghost}), "not the offers of those")
    refused(talk.meet({"bank": talk.offers["bank"]}), "not the offers of those")
    refused(talk.meet({}), "not the offers of those")
    for among in (["bank", "ghost"], ["bank", "shop", "ghost"], ["shop"], [], ["bank", "bank"]):
        fresh = Talk(talk.hostile)
        why = "none of the parties of the accepted job" if "ghost" in among else "among parties of the job"
        refused(fresh.offer("bank", among=among, round=next(talk.hostile.rounds)), why)


def test_a_job_with_a_party_that_this_site_has_not_pinned(talk):
    """The coordinator can write any name into a job; a site meets only whom its own file names."""
    three = Talk(talk.hostile, parties=("bank", "shop", "ghost"))
    told = {"among": ["bank", "shop", "ghost"], "round": next(talk.hostile.rounds), "circle": "sum"}
    offers = {name: three.offer(name, **told)["ok"] for name in AMONG}
    own = three.forged("ghost")
    own.meeting = replace(own.meeting, round=told["round"], circle="sum", among=tuple(told["among"]))
    reply = talk.hostile.send(
        "bank", "pairs.meet", **three.asked, offers={**offers, "ghost": own.offer()}, circle="sum"
    )
    refused(reply, "'ghost' is not among the [peers]")


def test_a_handshake_of_another_job_session_or_round_played_again():
    hostile = Hostile()
    first, second = Talk(hostile), Talk(hostile)
    refused(second.meet({**second.offers, "shop": first.offers["shop"]}), "not signed for this job, session and round")
    other = Talk(hostile, coordinator="shop")
    refused(other.meet({**other.offers, "shop": second.offers["shop"]}), "not signed for this job, session and round")
    later = {"among": AMONG, "circle": "sum", "round": next(hostile.rounds)}
    apart = {"bank": first.offer("bank", **later)["ok"]}
    apart["shop"] = first.offer("shop", **{**later, "round": next(hostile.rounds)})["ok"]
    refused(hostile.send("bank", "pairs.meet", **first.asked, offers=apart, circle="sum"), "not signed")


def test_a_session_under_an_old_name_takes_no_old_handshake():
    """The coordinator names sessions; an old name and the same job bring no old key back."""
    hostile = Hostile()
    old = Talk(hostile)
    hostile.end(old.asked["session"])
    for name in AMONG:
        assert hostile.announced(old.job.canonical, to=name, session=old.asked["session"]) == {"ok": None}
    old.round = next(hostile.rounds)
    again = {name: old.offer(name)["ok"] for name in AMONG}
    assert again["bank"].key != old.offers["bank"].key
    refused(old.meet(old.offers), "lacks its own key")


def test_a_second_handshake_in_the_same_session(talk):
    assert talk.meet(talk.offers) == {"ok": None}
    refused(talk.meet(talk.offers), "already")
    refused(talk.offer("bank", round=next(talk.hostile.rounds)), "already")


def test_a_party_without_pins_meets_nobody():
    hostile = Hostile()
    hostile.sites["bank"].identity.peers = None
    talk = Talk(hostile)
    refused(talk.meet(talk.offers), "knows no peers")
    hostile.sites["bank"].identity.peers = {}
    fresh = Talk(hostile)
    refused(fresh.meet(fresh.offers), "not among the [peers]")


def test_an_offer_that_is_none(talk):
    for offer in (None, b"x" * 128, "x", {}, np.zeros(128, np.uint8)):
        refused(talk.meet({**talk.offers, "shop": offer}))
    refused(talk.hostile.send("bank", "pairs.meet", **talk.asked, offers=[1]), "must be a dict")
    bad = Offer(bytes(32), *(getattr(talk.offers["shop"], part) for part in ("signer", "signature")))
    refused(talk.meet({**talk.offers, "shop": bad}), "not signed")


def test_a_refused_handshake_leaves_no_peers_behind(talk):
    refused(talk.meet({**talk.offers, "shop": talk.forged("shop").offer()}))
    kept = talk.hostile.sites["bank"].sessions[talk.asked["session"]][Pairs]
    assert kept.peers == []
    assert talk.meet(talk.offers) == {"ok": None}


def test_masks_and_boxes_of_a_job_are_used_once():
    talk = Conversation(Hostile())
    assert "ok" in talk.counts()
    refused(talk.counts())
