"""Alignment by private set intersection."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.crypto import oprf
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import AlignmentError, OperationRefused, ParameterError, SecurityError
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.psi import KEY_HOLDERS, _way, align, blind_ids, keyed_ids
from fedsift.mpc.shared_rows import CommonKeys, exchanged, keep_known, keep_shared, seal_order


def tables(ids: dict[str, list], label_at: str) -> dict[str, pd.DataFrame]:
    result = {}
    for name, values in ids.items():
        result[name] = pd.DataFrame({"id": values, f"{name}_x": [float(hash(str(v)) % 1000) for v in values]})
        if name == label_at:
            result[name]["y"] = [hash(str(v)) % 2 for v in values]
    return result


def shared_ids(fed: fs.Federation) -> dict[str, list[str]]:
    sites = fed._link.transport.sites
    return {name: sites[name].table.ids[sites[name].views[fed._view][0]].tolist() for name in fed.parties}


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_rows_are_the_shared_ids_in_one_order(parties):
    rng = np.random.default_rng(parties)
    names = [f"p{i}" for i in range(parties)]
    ids = {}
    for i, name in enumerate(names):
        own = [f"c{k}" for k in range(40)] + [f"{name}-{k}" for k in range(5 * i)]
        ids[name] = [str(v) for v in rng.permutation([v for k, v in enumerate(own) if k % (i + 7) != 3])]
    fed = fs.Federation.from_tables(tables(ids, names[0]), id="id", label=(names[0], "y"))
    found = shared_ids(fed)
    expected = set.intersection(*(set(v) for v in ids.values()))
    assert all(rows == found[names[0]] for rows in found.values())
    assert set(found[names[0]]) == expected
    assert fed.n_rows == len(expected)


def test_integer_and_text_ids_meet():
    data = tables({"a": list(range(100, 140)), "b": [str(i) for i in range(120, 160)]}, "a")
    fed = fs.Federation.from_tables(data, id="id", label=("a", "y"))
    assert set(shared_ids(fed)["a"]) == {str(i) for i in range(120, 140)}


def test_id_columns_may_have_different_names():
    data = tables({"a": list(range(20)), "b": list(range(20))}, "a")
    data["b"] = data["b"].rename(columns={"id": "customer"})
    fed = fs.Federation.from_tables(data, id={"a": "id", "b": "customer"}, label=("a", "y"))
    assert fed.n_rows == 20


def row_order(data: dict[str, pd.DataFrame], secrets: dict[str, bytes] | None = None, random_state=0) -> list[str]:
    given = secrets or {}
    sites = {
        n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n), given.get(n))
        for n, t in data.items()
    }
    fed = align(fs.Federation(InProcess(sites), list(sites), active="a"), random_state=random_state)
    found = shared_ids(fed)
    assert all(rows == found["a"] for rows in found.values())
    return found["a"]


def test_the_same_parties_and_seed_order_the_rows_alike_in_every_run():
    data = tables({"a": list(range(60)), "b": list(range(20, 90)), "c": list(range(10, 70))}, "a")
    first = row_order(data)
    assert row_order(data) == first
    assert row_order(data, random_state=1) != first
    assert first != sorted(first, key=int)


def test_the_order_follows_from_all_secrets_and_from_no_other_rows():
    data = tables({"a": list(range(60)), "b": list(range(20, 90))}, "a")
    secrets = {"a": b"a" * 32, "b": b"b" * 32}
    first = row_order(data, secrets)
    more = tables({"a": list(range(60)), "b": list(range(20, 120))}, "a")
    turned = {name: table.sample(frac=1.0, random_state=0) for name, table in more.items()}
    assert row_order(turned, secrets) == first
    assert row_order(data, {**secrets, "a": b"x" * 32}) != first
    assert row_order(data, {**secrets, "b": b"x" * 32}) != first


def test_the_coordinator_relays_the_key_of_the_order_in_boxes_and_sends_sorted_positions():
    data = tables({"a": list(range(40)), "b": list(range(40))}, "a")
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
    transport = Recording(InProcess(sites))
    align(fs.Federation(transport, ["a", "b"], active="a"))
    told = [decode(d)["arguments"] for s, _, d in transport.log if s == "coordinator"]
    kept = [arguments for arguments in told if "positions" in arguments]
    assert len(kept) == 2
    for arguments in kept:
        assert (np.diff(arguments["positions"]) > 0).all()
        assert all(isinstance(box, SealedBox) for box in arguments["boxes"].values())


def test_a_box_of_the_order_opens_once_and_for_its_own_party_only():
    data = tables({"a": list(range(40)), "b": list(range(40)), "c": list(range(40))}, "a")
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
    fed = fs.Federation(InProcess(sites), list(sites), active="a")

    def swapped(sealed):
        return {"b": sealed["c"]["a"], "c": sealed["b"]["a"]}

    def foreign(sealed):
        return {"b": sealed["b"]["c"], "c": sealed["c"]["a"]}

    def lacking(sealed):
        return {"b": sealed["b"]["a"]}

    for wrong, error in ((swapped, "does not open"), (foreign, "does not open"), (lacking, "every other party")):
        with fed.session("alignment", {"blocks": [list("abc")], "rows": dict.fromkeys("abc", 40)}) as run:
            meet_all(run)
            run.ask(blind_ids, to=run.parties)
            boxes = wrong(run.ask(seal_order, to=run.parties))
            with pytest.raises(SecurityError, match=error):
                run.ask(keep_shared, to="a", positions=np.arange(40), boxes=boxes)
            with pytest.raises(OperationRefused, match="as often as it declares"):
                run.ask(keep_shared, to="a", positions=np.arange(40), boxes=boxes)


def test_too_few_shared_ids_is_an_error_with_the_counts():
    data = tables({"a": [f"x{i}" for i in range(30)], "b": [f"X{i}" for i in range(27)] + ["x1", "x2", "x3"]}, "a")
    with pytest.raises(AlignmentError, match=r"only 3 ids.*a 30, b 30.*left after each: a 30, b 3"):
        fs.Federation.from_tables(data, id="id", label=("a", "y"))
    assert fs.Federation.from_tables(data, id="id", label=("a", "y"), min_overlap=3).n_rows == 3


def test_no_id_is_on_the_wire_and_pseudonyms_are_new_each_time():
    """Neither ids nor anything that repeats from run to run: two alignments cannot be linked."""
    ids = [f"patient-{i:04}" for i in range(30)]
    pieces = []
    for _ in range(2):
        data = tables({"a": ids, "b": ids[5:]}, "a")
        sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
        transport = Recording(InProcess(sites))
        align(fs.Federation(transport, ["a", "b"], active="a"))
        whole = b"".join(payload for *_, payload in transport.log)
        assert b"patient" not in whole
        blinded = [d for s, r, d in transport.log if r == "coordinator" and len(d) > 200]
        pieces.append({d[i : i + 16] for d in blinded for i in range(len(d) - 16)})
    common = {piece for piece in pieces[0] & pieces[1] if len(set(piece)) > 8}
    assert not common


def test_parties_never_see_each_others_unblinded_pseudonyms():
    """A party gets points under a key it lacks: hashing its own ids gives no match."""
    from fedsift.crypto import oprf

    ids = [f"c{i}" for i in range(20)]
    data = tables({"a": ids, "b": ids}, "a")
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
    transport = Recording(InProcess(sites))
    align(fs.Federation(transport, ["a", "b"], active="a"))
    guesses = oprf.hash_to_group([i.encode() for i in ids])
    known = {guesses[i : i + 32] for i in range(0, len(guesses), 32)}
    for _, _, payload in transport.log:
        assert not any(guess in payload for guess in known)


def test_alignment_is_in_the_ledger():
    data = tables({"a": list(range(20)), "b": list(range(20))}, "a")
    fed = fs.Federation.from_tables(data, id="id", label=("a", "y"))
    forms = fed.ledger.disclosures().set_index("operation")["form"]
    assert set(forms["align.blind_ids"]) >= {"pseudonymous"}


# --- beyond three parties: a star -----------------------------------------------------------------------------------


def opened(ids: dict[str, list], pad: dict[str, int] | None = None) -> tuple[fs.Federation, Recording]:
    first = next(iter(ids))
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == first else None, name=n)) for n, t in
             tables(ids, first).items()}  # fmt: skip
    for name, step in (pad or {}).items():
        sites[name].pad_rows = step
    transport = Recording(InProcess(sites))
    return fs.Federation(transport, list(sites), active=first), transport


def test_bytes_of_matching_grow_with_the_parties_and_not_with_their_square():
    ids = [f"c{i}" for i in range(400)]
    sent = {}
    for parties in (4, 8, 16):
        fed, _ = opened({f"p{i}": ids for i in range(parties)})
        assert align(fed).n_rows == 400
        sent[parties] = sum(e.bytes for e in fed.ledger.entries if e.operation.startswith("align"))
    assert sent[16] - sent[8] == pytest.approx(2 * (sent[8] - sent[4]), rel=0.05)


def test_every_list_visits_each_key_holder_once_and_ends_at_its_owner():
    block = list("abcdefg")
    for owner in block:
        way = _way(block, owner)
        assert set(way) - {owner} == set(block[:KEY_HOLDERS]) - {owner}
        assert (way[-1] == owner) == (owner not in block[:KEY_HOLDERS])
        assert len(set(way)) == len(way)
    assert {_way(block, owner)[0] for owner in "def"} == {"a", "b", "c"}


def test_in_a_star_nobody_but_the_owner_and_the_coordinator_sees_a_pseudonym():
    """What key holders raise for others has no element in common with any other list, though all ids are the same."""
    ids = [f"c{i}" for i in range(30)]
    fed, transport = opened({f"p{i}": ids for i in range(5)})
    sites = transport.inner.sites
    seen: dict[str, list[bytes]] = {name: [] for name in sites}
    with pytest.MonkeyPatch.context() as patch:
        whole = Pairs.open

        def noted(self, box, **told):
            found = whole(self, box, **told)
            seen[self.me].append(found)
            return found

        patch.setattr(Pairs, "open", noted)
        align(fed)
    for lists in seen.values():
        points = [each[i : i + 32] for each in lists if len(each) == 32 * 30 for i in range(0, len(each), 32)]
        assert len(points) == len(set(points))
    assert all(len([each for each in lists if len(each) == 960]) >= 1 for lists in seen.values())


def test_too_few_shared_ids_among_the_first_parties_end_the_matching_there():
    ids = {f"p{i}": [f"c{k}" for k in range(20)] for i in range(6)} | {"p3": [f"x{k}" for k in range(12)]}
    fed, _ = opened(ids)
    with pytest.raises(AlignmentError, match=r"shared by p0, p1, .*left after each: p0 20, .*p3 0"):
        align(fed)
    few = [f"x{k}" for k in range(5)]
    fed, _transport = opened({f"p{i}": [f"c{k}" for k in range(20)] for i in range(10)} | {"p3": few})
    with pytest.raises(AlignmentError, match="the first 6 of 10 parties"):
        align(fed)
    asked = {e.receiver for e in fed.ledger.entries if e.operation == "align.blind_ids" and e.sender == "coordinator"}
    assert asked == {"p0", "p1", "p2", "p3", "p4", "p5"}, "the smallest list goes first, the rest stays at home"


def test_a_padded_list_tells_a_multiple_and_shares_the_same_rows():
    ids = {"a": list(range(40)), "b": list(range(10, 47)), "c": list(range(5, 60)), "d": list(range(43))}
    fed, _ = opened(ids, pad={"b": 25, "d": 50})
    assert {name: size.rows for name, size in fed.sizes().items()} == {"a": 40, "b": 50, "c": 55, "d": 50}
    done = align(fed)
    assert set(shared_ids(done)["a"]) == {str(i) for i in range(10, 40)}
    assert all(rows == shared_ids(done)["a"] for rows in shared_ids(done).values())
    assert done.n_rows == 30, "what the job is about is told exactly"
    sizes = {
        e.sender: e.bytes for e in fed.ledger.entries if e.operation == "align.blind_ids" and e.sender != "coordinator"
    }
    assert sizes["b"] == sizes["d"]


def test_a_filling_id_is_no_row(monkeypatch):
    fed, _transport = opened({"a": list(range(20)), "b": list(range(20))}, pad={"b": 25})
    told = {"blocks": [["a", "b"]], "rows": {"a": 20, "b": 25}, "random_state": 0}
    with fed.session("alignment", told) as run:
        meet_all(run)
        run.ask(blind_ids, to=run.parties)
        sealed = run.ask(seal_order, to=run.parties)
        with pytest.raises(OperationRefused, match="nobody's"):
            run.ask(keep_shared, to="b", positions=np.arange(25), boxes={"a": sealed["a"]["b"]})


# --- matched once ---------------------------------------------------------------------------------------------------


def known_rows(fed: fs.Federation, rows: dict[str, list[int]]) -> None:
    """Sites that remember which rows an earlier job was about."""
    for name, site in fed._link.transport.inner.sites.items():
        site.rows_of_job = lambda job, parties, mine=rows[name]: np.array(mine)


def test_rows_of_an_earlier_job_need_no_matching():
    fed, _ = opened({"a": list(range(40)), "b": list(range(10, 50))})
    known_rows(fed, {"a": list(range(10, 40)), "b": list(range(30))})
    done = align(fed, as_in="0" * 12)
    found = shared_ids(done)
    assert found["a"] == found["b"]
    assert set(found["a"]) == {str(i) for i in range(10, 40)}
    assert not any(entry.operation == "align.blind_ids" for entry in fed.ledger.entries)
    assert sum(e.bytes for e in fed.ledger.entries if e.operation == "align.keep_known") < 2000


def test_where_the_rows_are_not_the_same_any_more_they_are_matched():
    fed, _ = opened({"a": list(range(40)), "b": list(range(10, 50))})
    known_rows(fed, {"a": list(range(10, 40)), "b": list(range(5, 30))})  # the first five were deleted at b
    done = align(fed, as_in="0" * 12)
    found = shared_ids(done)
    assert found["a"] == found["b"]
    assert set(found["a"]) == {str(i) for i in range(15, 40)}


def test_no_known_rows_without_an_earlier_job():
    fed, _ = opened({"a": list(range(20)), "b": list(range(20))})
    with fed.session("alignment", {"blocks": [["a", "b"]], "rows": {"a": 20, "b": 20}}) as run:
        meet_all(run)
        sealed = run.ask(seal_order, to=run.parties)
        with pytest.raises(OperationRefused, match="names no earlier job"):
            run.ask(keep_known, to="a", boxes={"b": sealed["b"]["a"]})


def keyed(data: dict[str, pd.DataFrame], **given) -> fs.Federation:
    return fs.Federation.from_tables(data, id="id", label=("a", "y"), matching="keyed", **given)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_keyed_matching_finds_the_same_rows_in_the_same_order(parties):
    names = list("abcde")[:parties]
    ids = {name: [f"c{k}" for k in range(3 * i, 60 + i)] for i, name in enumerate(names)}
    data = tables(ids, "a")
    found = shared_ids(keyed(data))
    assert found == shared_ids(fs.Federation.from_tables(data, id="id", label=("a", "y")))
    assert set(found["a"]) == set.intersection(*(set(each) for each in ids.values()))


def test_keyed_matching_says_who_shares_too_little():
    data = tables({"a": list(range(30)), "b": list(range(27, 60))}, "a")
    with pytest.raises(AlignmentError, match=r"only 3 ids.*left after each: a 30, b 3"):
        keyed(data)


def keyed_lists(data: dict[str, pd.DataFrame]) -> list[bytes]:
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
    transport = Recording(InProcess(sites))
    align(fs.Federation(transport, list(data), active="a"), matching="keyed")
    replies = [decode(payload) for sender, _, payload in transport.log if sender != "coordinator"]
    return [each["ok"] for each in replies if isinstance(each.get("ok"), bytes) and len(each["ok"]) % 16 == 0]


def test_keyed_pseudonyms_are_made_for_one_alignment_and_tell_the_coordinator_no_order():
    data = tables({"a": [f"c{i}" for i in range(40)], "b": [f"c{i}" for i in range(40)]}, "a")

    def pseudonyms(listed: bytes) -> list[bytes]:
        return [listed[at : at + 16] for at in range(0, len(listed), 16)]

    first, second = ([pseudonyms(each) for each in keyed_lists(data)] for _ in range(2))
    assert len(first) == 2
    assert set(first[0]) == set(first[1])  # both lists have the same ids ...
    assert first[0] != first[1]  # ... each in an order of its own
    assert not set(first[0]) & set(second[0])  # and nothing of it comes again


def test_keyed_matching_is_refused_where_a_party_runs_the_job():
    data = tables({"a": list(range(40)), "b": list(range(40))}, "a")
    for who in ("coordinator", "dealer", "submitter"):
        with pytest.raises(ParameterError, match="coordinator that holds no rows"):
            keyed(data, **{who: "b"})
    with pytest.raises(ParameterError, match="'curve', 'keyed'"):
        fs.Federation.from_tables(data, id="id", label=("a", "y"), matching="fast")


def test_who_has_the_common_key_and_the_pseudonyms_recognises_every_id_that_it_guesses():
    """The price of keyed matching, as its page says it: the coordinator together with any one party."""
    data = tables({"a": [f"c{i}" for i in range(40)], "b": [f"c{i}" for i in range(10, 90)]}, "a")
    sites = {n: Site(n, Table.read(t, id="id", label="y" if n == "a" else None, name=n)) for n, t in data.items()}
    transport = Recording(InProcess(sites))
    fed = fs.Federation(transport, ["a", "b"], active="a")
    told = {"blocks": [["a", "b"]], "rows": {"a": 40, "b": 80}, "random_state": 0, "matching": "keyed"}
    with fed.session("alignment", told) as run:
        meet_all(run)
        boxes = exchanged(run, ["a", "b"])
        lists = run.ask(keyed_ids, to=["a", "b"], each={name: {"boxes": boxes[name]} for name in "ab"})
        key = next(state[CommonKeys] for state in sites["a"].sessions.values() if CommonKeys in state).fresh
    guesses = [f"c{i}".encode() for i in range(200)]
    known = {each.tobytes() for each in oprf.keyed_digests(guesses, key)}
    seen = {lists["b"][at : at + 16] for at in range(0, len(lists["b"]), 16)}
    assert len(known & seen) == 80
