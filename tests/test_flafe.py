"""Vertical- and Hybrid-FLAFE: the encrypted products are right, the noise is what it says, and nobody reads more."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Recording
from oracles import slow_bins
from scipy import stats
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.audit import load_attacks, record
from fedsift.audit.attacks.operand_scores import Choice, choices_told, labels_of_choices
from fedsift.audit.scoring import up_to_names
from fedsift.core.expressions import evaluate_columns, parse, parties_of
from fedsift.crypto.ckks.keys import CkksPublicKey, CkksSecretKey
from fedsift.crypto.ckks.vector import CkksCiphertexts
from fedsift.crypto.dp import epsilon_to_rho
from fedsift.engineer.bounds import Spending
from fedsift.engineer.flafe import base as flafe_base
from fedsift.engineer.flafe import combine as ec
from fedsift.engineer.flafe import importance as flafe_importance
from fedsift.engineer.flafe import products
from fedsift.engineer.flafe.candidates import (
    OwnFeatures,
    Pool,
    first_draw,
    form_candidates,
    load_numbers,
    local_candidates,
    numeric_columns,
    representatives,
    scale_candidates,
)
from fedsift.engineer.flafe.choice import Alike, choose, take_operands
from fedsift.engineer.flafe.combine import combine_columns
from fedsift.engineer.flafe.features import BOUND, FUNCTIONS, Pair, column_blocks, plan_products
from fedsift.engineer.flafe.importance import BinImportance, Spread, feature_codes, open_targets
from fedsift.engineer.flafe.joint_moments import JointMatrices, JointProducts, masked_sides
from fedsift.engineer.flafe.privacy import Plan, sensitivity
from fedsift.engineer.flafe.products import Combined, NoisyColumns, Operands
from fedsift.errors import (
    CiphertextError,
    DataError,
    MessageError,
    OperationRefused,
    ParameterError,
    ReplyError,
    SecurityError,
)
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.ring import from_ring, to_ring

SEED = first_draw(0)
SMALL = {"n_operands": 2, "n_features": 3}
WIDE = dict.fromkeys("abcdef", (-4.0, 4.0))


@pytest.fixture(autouse=True, scope="module")
def _small_forests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flafe_importance, "_TREES", 15)
        yield


def interacting(n: int = 160, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """The target depends on a product of columns that different parties hold."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 6)), columns=list("abcdef"))
    y = X["a"] + 1.5 * X["a"] * X["c"] + X["b"] * X["e"] + 0.2 * rng.normal(size=n)
    return X, pd.Series(y, name="y")


def federation(n: int = 160, parties=("bank", "shop", "lab"), **kw) -> fs.Federation:
    return fs.Federation.split(*interacting(n), parties=list(parties), **kw)


def sites(fed):
    return fed._link.transport.sites


def combined(rows: int, pairs: list[Pair], functions, scales, open=False, planned=100):
    """Run the combination of random columns; what each holder has, beside the operands."""
    rng = np.random.default_rng(rows)
    fed = federation(12, parties=("P", "Q"))
    columns = {name: np.clip(rng.normal(0, 2, size=(rows, 3)), -BOUND, BOUND) for name in ("P", "Q")}
    with fed.session() as run:
        for name, site in sites(fed).items():
            state = site.sessions.setdefault(run._session, {})
            state[Operands] = Operands(columns[name])
            if scales:
                state[NoisyColumns] = NoisyColumns(scales, planned, planned)
        held = combine_columns(run, pairs, functions, scales, rows=rows, open=open)
        got = {name: list(sites(fed)[name].sessions[run._session][Combined].columns) for name in held}
    return fed, columns, held, got


ALL_PAIRS = [Pair("P", i, "Q", j, "PQ"[(i + j) % 2]) for i in range(3) for j in range(3)]


# --- the encrypted products ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [50, 5000])
def test_encrypted_products_equal_plain_ones(rows):
    pairs = ALL_PAIRS if rows < 1000 else ALL_PAIRS[:2]
    _, columns, held, got = combined(rows, pairs, list(FUNCTIONS), {})
    assert sum(map(len, held.values())) == len(pairs) * 4
    for holder, items in held.items():
        for (pair, function), values in zip(items, got[holder], strict=True):
            p, q = FUNCTIONS[function]
            plain = columns["P"][:, pair.i] ** p * columns["Q"][:, pair.j] ** q
            assert pair.holder == holder
            assert np.abs(values - plain).max() < 1e-4 * max(1.0, np.abs(plain).max())


def test_coordinator_cannot_decrypt(monkeypatch):
    """Neither it nor the party that multiplies is ever given a secret: all that it could try gives nothing."""
    seen, sent = {}, []
    original, ask = ec._exchange_keys, fs.Federation.ask
    monkeypatch.setattr(ec, "_exchange_keys", lambda *a: seen.setdefault("keys", original(*a)))

    def listening(self, function, **kw):
        reply = ask(self, function, **kw)
        sent.extend(each for each in reply if isinstance(each, CkksCiphertexts)) if isinstance(reply, list) else None
        return reply

    monkeypatch.setattr(fs.Federation, "ask", listening)
    _, columns, _, _ = combined(40, ALL_PAIRS[:2], ["ab"], {})
    assert len(sent) == 4  # for either holder its columns, and the products
    publics = [offered.key for offered in seen["keys"].values()]
    for public in publics:
        assert isinstance(public, CkksPublicKey)
        assert not hasattr(public, "decrypt")
    guess = CkksSecretKey.generate(1, 30, magnitude_bits=11)
    for box in sent:
        public = next(p for p in publics if p.fingerprint in box.to_bytes())
        (vector,) = box.vectors(public)
        with pytest.raises(CiphertextError, match="another public key"):
            guess.decrypt(vector)
        tried = public.ring.decode(guess._opened(vector._chunks[0]), vector.paired).real[:40]
        for party in ("P", "Q"):
            likeness = [abs(np.corrcoef(tried, columns[party][:, i])[0, 1]) for i in range(3)]
            assert max(likeness) < 0.85  # of 40 rows, by luck once in 10^11
        assert np.abs(tried).max() > 1e3  # noise modulo q, nothing of the size of a column


def test_a_key_of_the_coordinators_own_is_refused(monkeypatch):
    """Under it the party that multiplies would send its columns to the coordinator."""
    original, own = ec._exchange_keys, CkksSecretKey.generate(1, 30, magnitude_bits=11)

    def exchange(*args):
        return {name: replace(offered, key=own.public) for name, offered in original(*args).items()}

    ask = fs.Federation.ask

    def encrypting(self, function, **kw):
        if function is products.encrypt_columns:
            return [CkksCiphertexts.pack([own.encrypt(np.ones(40 * len(b)), bound=BOUND)]) for b in kw["blocks"]]
        return ask(self, function, **kw)

    monkeypatch.setattr(ec, "_exchange_keys", exchange)
    monkeypatch.setattr(fs.Federation, "ask", encrypting)
    with pytest.raises(SecurityError, match="not what 'Q' has sent"):
        combined(40, [Pair("P", 0, "Q", 0, "Q")], ["ab"], {})


def test_what_comes_back_cannot_be_linked_to_what_was_sent(monkeypatch):
    """Without blinding, the coordinator would divide a product's ciphertext by its operand's and have the column."""
    column = np.linspace(-2, 2, 50)
    key = CkksSecretKey.generate(1, 30, magnitude_bits=11)
    operand = key.public.encrypt(np.ones(50), bound=1)
    bare, covered = operand.multiply(column, bound=2), products._cover(operand.multiply(column, bound=2), [])
    again = products._cover(operand.multiply(column, bound=2), [])
    assert bare.to_bytes() == operand.multiply(column, bound=2).to_bytes()  # a function of what the coordinator has
    assert len({bare.to_bytes(), covered.to_bytes(), again.to_bytes()}) == 3
    for vector in (covered, again):
        np.testing.assert_allclose(key.decrypt(vector), column, atol=1e-6)


def test_the_target_is_encrypted_and_sent_once():
    """A run asks for importances twice; each encryption of all rows costs as much as many sums."""
    fed = federation(160)
    with_bins = fs.VerticalFLAFE(**SMALL, max_columns=2, validation=0.25).fit(fed)
    frame = with_bins.ledger_.frame()
    assert (frame.operation.str.endswith("encrypt_target") & (frame.receiver == "coordinator")).sum() == 1
    assert (frame.operation.str.endswith("masked_targets") & (frame.receiver == "coordinator")).sum() == 4


@pytest.mark.parametrize(("columns", "together"), [(1, 1), (3, 5), (10, 4), (10, 10), (7, 30)])
def test_every_pair_stands_in_one_slot(columns, together):
    rng = np.random.default_rng(columns)
    members = [Pair("P", i, "Q", j, "P") for i in range(columns) for j in range(6) if rng.random() < 0.7]
    blocks = column_blocks(sorted({pair.i for pair in members}), together)
    plan = plan_products(members, blocks)
    placed = [pair for _, filled in plan for pair in filled.values()]
    assert sorted(placed, key=str) == sorted(members, key=str)
    for block, filled in plan:
        assert filled
        assert all(blocks[block][slot] == pair.i for slot, pair in filled.items())


def test_a_party_cannot_read_what_was_encrypted_for_another():
    mine, other = (CkksSecretKey.generate(1, 30, magnitude_bits=12) for _ in range(2))
    box = CkksCiphertexts.from_bytes(CkksCiphertexts.pack([other.public.encrypt([1.0, 2.0])]).to_bytes())
    with pytest.raises(CiphertextError, match="another public key"):
        box.vectors(mine.public)
    with pytest.raises(CiphertextError, match="another public key"):
        mine.decrypt(box.vectors(other.public)[0])


def test_length_of_a_ciphertext_does_not_vary_with_its_content():
    key = CkksSecretKey.generate(1, 30, magnitude_bits=12)
    rng = np.random.default_rng(0)
    sizes = {len(CkksCiphertexts.pack([key.public.encrypt(rng.normal(size=n))]).to_bytes()) for n in (10, 100, 4000)}
    assert len(sizes) == 1
    assert len(key.public.to_bytes()) == len(CkksSecretKey.generate(1, 30, magnitude_bits=12).public.to_bytes())


def test_damaged_vectors_are_refused():
    key = CkksSecretKey.generate(1, 30, magnitude_bits=12)
    data = CkksCiphertexts.pack([key.public.encrypt([1.0, 2.0, 3.0])]).to_bytes()
    for bad in (data[:20], data + b"x", b"nonsense" + data[8:], data[:-5] + b"12345"):
        with pytest.raises(CiphertextError):
            CkksCiphertexts.from_bytes(bad).vectors(key.public)
    assert CkksCiphertexts.from_bytes(data).scheme_name.startswith("CKKS")


# --- the noise -------------------------------------------------------------------------------------------------------


def test_noise_on_decrypted_columns_has_the_stated_distribution():
    """100,000 draws, through encryption, flooding and decryption."""
    scale = sensitivity("ab") / 0.5
    pairs = [Pair("P", i, "Q", j, "P") for i in range(3) for j in range(3)] + [Pair("P", 0, "Q", 0, "Q")]
    _, columns, held, got = combined(10_000, pairs, ["ab"], {"ab": scale})
    noise = np.concatenate([
        values - columns["P"][:, pair.i] * columns["Q"][:, pair.j]
        for holder, items in held.items() for (pair, _), values in zip(items, got[holder])
    ])  # fmt: skip
    assert len(noise) == 100_000
    assert stats.kstest(noise, stats.norm(scale=scale).cdf).pvalue > 1e-8
    assert stats.kstest(noise, stats.norm(scale=1.1 * scale).cdf).pvalue < 1e-8  # the test can fail


@pytest.mark.parametrize("scale", [0.01, 1.0, 1e4, 1e8])
def test_flooding_is_not_wider_than_the_noise_it_goes_with(scale):
    """It is no part of the promised distribution: a wide one would be noise that nobody asked for."""
    precision, magnitude = ec.key_size({"ab": scale, "a2b2": 25 * scale})
    key = CkksSecretKey.generate(1, precision, magnitude_bits=magnitude)
    product = key.encrypt(np.ones(50), bound=BOUND**2).multiply(np.ones(50), bound=BOUND**2)
    flooded = product.blind(flood_bits=products.FLOOD_BITS)
    spread = np.std(key.decrypt(flooded) - key.decrypt(product))
    assert 0 < spread < 0.2 * scale
    assert spread > 2**products.FLOOD_BITS * product.error  # and it does hide the error


@pytest.mark.parametrize("function", FUNCTIONS)
def test_sensitivity_is_the_range_of_the_function(function):
    p, q = FUNCTIONS[function]
    ends = np.linspace(-BOUND, BOUND, 21)
    values = np.array([a**p * b**q for a, b in itertools.product(ends, ends)])
    assert sensitivity(function) == pytest.approx(values.max() - values.min())


def test_holder_reads_the_other_column_without_noise_and_not_with_it():
    _, columns, _, got = combined(2000, [Pair("P", 0, "Q", 0, "P")], ["ab"], {})
    guess = got["P"][0] / columns["P"][:, 0]
    assert np.corrcoef(guess, columns["Q"][:, 0])[0, 1] > 0.999  # the stated leak of epsilon=None
    scale = Plan(Spending.plan(1.0, 1e-6, {}), 2).column_scale("ab", 1)
    _, columns, _, got = combined(2000, [Pair("P", 0, "Q", 0, "P")], ["ab"], {"ab": scale})
    best = got["P"][0] * columns["P"][:, 0]  # the best linear guess of b from ab + noise
    assert abs(np.corrcoef(best, columns["Q"][:, 0])[0, 1]) < 0.15


def test_no_more_columns_are_made_than_the_noise_was_planned_for():
    with pytest.raises(SecurityError, match="more combined columns were asked for"):
        combined(60, ALL_PAIRS, ["ab"], {"ab": 10.0}, planned=4)


def test_epsilon_is_the_total_over_all_released_columns(noisy):
    _, fitted = noisy
    assert fitted.details_["epsilon_spent"] == pytest.approx(2.0)
    assert fitted.details_["budget"][-1]["total_epsilon"] <= 2.0
    released = fitted.details_["released_columns"]
    assert released == len(fitted.cross_) == 12
    rho = epsilon_to_rho(2.0, 1e-6)
    assert fitted.details_["noise"]["ab"] == pytest.approx(sensitivity("ab") * np.sqrt(released / (2 * rho)))
    assert any("epsilon 2, delta 1e-06 for a person's row" in note for note in fitted.ledger_.notes)
    assert "comparison" not in fitted.details_


# --- Vertical-FLAFE --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    fed = federation()
    return fed, fs.VerticalFLAFE(importance="forest", protection="open", **SMALL).fit(fed)


@pytest.fixture(scope="module")
def secure():
    fed = federation()
    return fed, fs.VerticalFLAFE(importance="forest", **SMALL).fit(fed)


@pytest.fixture(scope="module")
def noisy():
    fed = federation()
    return fed, fs.VerticalFLAFE(functions=["ab"], epsilon=2.0, bounds=WIDE, **SMALL).fit(fed)


def test_encryption_changes_nothing_in_the_result(plain, secure):
    assert secure[1].selection_.engineered == plain[1].selection_.engineered
    assert secure[1].details_["holders"] == plain[1].details_["holders"]
    assert secure[1].ledger_.encryption()["on"]
    assert "CKKS" in secure[1].ledger_.encryption_line()


def test_same_seed_same_features_other_seed_other_holders(plain):
    again = fs.VerticalFLAFE(importance="forest", protection="open", **SMALL).fit(federation())
    assert again.selection_.engineered == plain[1].selection_.engineered
    other = fs.VerticalFLAFE(importance="forest", protection="open", random_state=5, **SMALL).fit(federation())
    assert other.details_["holders"] != plain[1].details_["holders"]


def test_cross_party_features_are_found_named_and_held_by_an_owner(plain):
    _, fitted = plain
    cross = [text for text in fitted.selection_.engineered if len(parties_of(parse(text))) == 2]
    assert cross
    for text in cross:
        assert fitted.details_["holders"][text] in parties_of(parse(text))
    rows = {row["features"]: row["r2"] for row in fitted.details_["comparison"]}
    assert rows["with cross-party features"] > rows["local only"] + 0.1
    assert rows["pure noise in their place"] < rows["local only"] + 0.05


@pytest.mark.parametrize("which", ["plain", "secure"])
def test_combined_columns_are_their_formulas(which, request):
    fed, fitted = request.getfixturevalue(which)
    X, _ = interacting()
    view = fitted.combine(fed)
    for text, holder in fitted.details_["holders"].items():
        column = fs.Party(sites(fed)[holder], view._view).table.values(text)
        assert np.abs(column - evaluate_columns([parse(text)], X)[:, 0]).max() < 1e-4
    own = {name: len(fitted.selection_.engineered_for(name)) for name in fed.parties}
    assert fitted.transform(fed).n_columns == {name: 2 + own[name] for name in fed.parties}
    assert sum(view.n_columns.values()) == 6 + len(fitted.selection_.engineered)


def test_new_rows_are_combined_and_noise_of_a_released_row_is_drawn_once():
    X, y = interacting(140)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    train = fed.view(rows=np.arange(100))
    fitted = fs.VerticalFLAFE(functions=["ab"], epsilon=1e9, bounds=WIDE, **SMALL).fit(train)
    text, holder = next(iter(fitted.details_["holders"].items()))
    old, again = (fs.Party(sites(fed)[holder], fitted.combine(train)._view).table.values(text) for _ in range(2))
    np.testing.assert_array_equal(old, again)
    mark = len(fed.ledger)
    both = fs.Party(sites(fed)[holder], fitted.combine(fed)._view).table.values(text)
    np.testing.assert_array_equal(both[:100], old)
    expected = evaluate_columns([parse(text)], X)[:, 0]
    assert np.abs(both - expected).max() < 0.5
    assert np.abs(both - expected).max() > 0  # there is noise, as little as it is
    assert fed.ledger.since(mark).encryption()["on"]


def importances_of_a_run(X, y, **settings):
    """What the coordinator made of the opened sums, by kind of feature and party, and the features themselves."""
    told = {}
    original = flafe_base.Flafe._importance

    def spy(self, fed, layout, what, sizes):
        told[what] = original(self, fed, layout, what, sizes)
        states = {n: sites(fed)[n].sessions[fed._session] for n in fed.parties}
        kind = OwnFeatures if what == "local" else Pool
        told[what, "values"] = {name: state[kind].values.copy() for name, state in states.items()}
        return told[what]

    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    engineer = fs.VerticalFLAFE(functions=["ab"], validation=0, **SMALL, **settings)
    engineer._importance = spy.__get__(engineer)
    engineer.fit(fed)
    return told


def explained(z, bins):
    """Share of the variance of the columns ``z`` that bins explain, less what chance would."""
    means = np.array([z[bins == b].mean(axis=0) for b in range(bins.max() + 1)])
    share = ((means[bins] - z.mean(axis=0)) ** 2).sum() / ((z - z.mean(axis=0)) ** 2).sum()
    return max(0.0, 1 - (1 - share) * (len(z) - 1) / (len(z) - bins.max() - 1))


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_scores_that_the_coordinator_opens_equal_plain_ones(classes):
    """Against the pooled columns and bins of an oracle of their own: of candidates, and of combined columns."""
    X, y = interacting(65)
    if classes:
        y = pd.Series(pd.qcut(y, classes, labels=False), name="y")
    told = importances_of_a_run(X, y)
    z = np.column_stack([y == k for k in range(classes - 1)]) if classes else y.to_numpy()[:, None]
    z, tolerance = z.astype(float), 1e-9 if classes else 0.01  # an amount has 12 bits and is held at 4 deviations
    for what in ("local", "pool"):
        for name in ("bank", "shop"):
            values, shares = told[what, "values"][name].T, told[what][name]
            assert len(values) == len(shares)
            for column, share in zip(values[::5], shares[::5]):
                assert share == pytest.approx(explained(z, slow_bins(column, 6, 10)), abs=tolerance)


def test_no_bin_that_is_summed_has_fewer_rows_than_the_job_says():
    rng = np.random.default_rng(0)
    heavy = np.where(rng.random(90) < 0.6, 0.0, rng.normal(size=90))
    values = np.column_stack([rng.normal(size=90), heavy, rng.integers(0, 9, 90), np.zeros(90)])
    for least in (1, 10, 30, 200):
        codes, counts = feature_codes(values, least)
        for column, count in zip(codes.T, counts):
            sizes = np.bincount(column, minlength=count)
            assert len(sizes) == count
            assert count == 1 or sizes.min() >= least


def test_the_order_of_bins_changes_no_bit_of_a_score():
    """Bins are shuffled afresh in every run; a run must choose the same of two features that part the rows alike."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 4096, size=(500, 2))
    codes = rng.integers(0, 16, 500)
    sizes = np.bincount(codes)
    sums = np.stack([np.bincount(codes, weights=column) for column in columns.T], axis=1)
    spread = Spread.of(columns)
    orders = [rng.permutation(16) for _ in range(200)]
    assert len({spread.explained(sizes[order], sums[order]) for order in orders}) == 1


def test_sums_of_the_target_are_opened_once():
    """The label holder decrypts what it is sent for a step once, and no earlier step after a later one."""
    X, y = interacting(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with fed.session(*fs.VerticalFLAFE(validation=0).announcement()) as run:
        meet_all(run)
        run.ask(load_numbers, to=run.parties, each={"bank": {"columns": ["a"]}, "shop": {"columns": ["d"]}}, seed=SEED)
        run.ask(form_candidates, to=run.parties, each={n: {"owner": n} for n in run.parties}, grow=True)
        run.ask(scale_candidates, to=run.parties)
        scored = BinImportance(run, "auto", 100, 60)
        assert {name: len(values) for name, values in scored.scores("local").items()} == {"bank": 3, "shop": 3}
        nothing = {"what": "local", "task": "auto", "told": {"sums": {}, "notes": {}, "shapes": {}}}
        with pytest.raises(OperationRefused, match="opened before"):
            run.ask(open_targets, to="bank", **nothing)


def test_a_party_draws_the_validation_rows_of_the_job_itself():
    fed = federation(60)
    with fed.session(*fs.VerticalFLAFE(random_state=4).announcement()) as run:
        with pytest.raises(OperationRefused, match="another than that of the accepted job"):
            run.ask(load_numbers, to="shop", columns=["c"], seed=SEED)
        run.ask(load_numbers, to="shop", columns=["c"], seed=first_draw(4))
        assert sites(fed)["shop"].sessions[run._session][OwnFeatures].train.sum() == 45


@pytest.mark.parametrize("known", [(), (0, 3)])
def test_the_coordinator_chooses_as_a_reader_of_all_columns_would(known):
    """Against a slow oracle that has the columns: best first, none that is flat or follows one taken or known."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(200, 6))
    values = np.hstack([base, base + 0.05 * rng.normal(size=(200, 6)), -base[:, :2], np.ones((200, 1))])
    scores = np.round(rng.random(values.shape[1]), 1)
    scores[4] = 0.0
    expected, taken = [], list(known)
    for position in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if position == 14 or position in taken or not scores[position]:  # the one that never varies
            continue
        if all(abs(np.corrcoef(values[:, position], values[:, i])[0, 1]) <= 0.98 for i in taken):
            expected.append(position)
            taken.append(position)
    alike = Alike.among(values, base[:, :1])
    assert Alike.read(alike.told(), "shop", 15).pairs.tolist() == alike.pairs.tolist()
    assert choose(scores, alike, 4, known) == expected[:4]
    assert np.flatnonzero(alike.column).tolist() == [0, 6, 12]
    assert np.flatnonzero(alike.flat).tolist() == [14]
    with pytest.raises(ReplyError, match="expected 9 features"):
        Alike.read(alike.told(), "shop", 9)


def breast_cancer(rows=120):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:rows, ::3], y.iloc[:rows]


def test_a_party_is_told_choices_and_no_label_follows_from_them():
    """Told its exact importances (the leaky twin: parties.importances_told) a party reads every label."""
    seen = record(*breast_cancer(), fs.VerticalFLAFE(functions=["ab"], n_operands=5), parties=["bank", "shop"])
    for message in seen["shop"].messages:
        if message.is_request:
            assert "scores" not in message.content
    found = load_attacks()["importance_of_operands"].run(seen["shop"], seen.truth)
    assert "choices" in found.note
    assert found.value <= max(found.guess, found.baseline) + 0.05
    assert found.value < 0.95


def wide_table(rows=60, columns=80, seed=0):
    """Columns without labels in them but one here and there, as genes are."""
    rng = np.random.default_rng(seed)
    y = pd.Series((rng.random(rows) < 0.4).astype(int), name="y")
    X = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3 * rng.normal(size=(columns, columns)) / columns**0.5)
    X[:, ::10] += 0.5 * y.to_numpy()[:, None]
    return pd.DataFrame(X, columns=[f"c{i}" for i in range(columns)]), y


def test_the_columns_of_a_wide_table_are_chosen_without_a_label():
    """Whatever the labels, a party grows from the same columns; and it hears choices in the order of its own."""
    X, y = wide_table()
    loaded = []
    for labels in (y, y.sample(frac=1, random_state=1).reset_index(drop=True)):
        seen = record(X, labels, fs.VerticalFLAFE(functions=["ab"], n_operands=5), parties=["bank", "shop"])
        assert len(seen["shop"].requests("load_numbers")) == 1
        loaded.append(seen["shop"].replies("load_numbers")[0].content)
        chosen = seen["shop"].requests("take_operands")[0].content["chosen"]
        assert chosen == sorted(chosen)
        assert all(not choice.first_look and not choice.ordered for choice in choices_told(seen["shop"]))
    assert loaded[0] == loaded[1]
    assert len(loaded[0]) == 12


def test_a_choice_of_columns_by_their_labels_would_tell_the_labels():
    """Why: the twelve best of a party's 400 columns, in no order, give away its 60 labels."""
    X, y = wide_table(columns=400)
    values, labels = X.to_numpy(), y.to_numpy()
    shares = [explained(labels[:, None].astype(float), feature_codes(each[:, None], 10)[0][:, 0]) for each in values.T]
    told = Choice.screened(values, np.argsort(shares)[-12:].tolist())
    sizes = int((labels == 0).sum()), int((labels == 1).sum())
    found = labels_of_choices([told], sizes, np.random.default_rng(0).normal(size=60), True, 10)
    assert up_to_names(found, labels) > max(sizes) / 60 + 0.15


def test_representatives_stand_for_the_other_columns():
    """Four columns and noisy copies of each, most of the first: one of each four is chosen, as one would by hand."""
    rng = np.random.default_rng(3)
    base = rng.normal(size=(300, 4))
    copies = np.repeat(np.arange(4), [9, 5, 4, 3])
    values = base[:, copies] + 0.1 * rng.normal(size=(300, len(copies)))
    values[::7, 2] = np.nan
    assert sorted(copies[representatives(values, 4)].tolist()) == [0, 1, 2, 3]
    assert representatives(values * -3 + 1, 4) == representatives(values, 4)
    assert len(representatives(values, 50)) == len(copies)


@pytest.mark.parametrize("chosen", [[0, 1, 2], [1, 1], [14], [1, 0]])
def test_a_party_takes_as_many_candidates_as_the_job_says_and_no_others(chosen):
    with federation(60).session(*fs.VerticalFLAFE(n_operands=2).announcement()) as run:
        run.ask(load_numbers, to="shop", columns=["c", "d"], seed=SEED)
        run.ask(form_candidates, to="shop", owner="shop", grow=True)
        assert run.ask(scale_candidates, to="shop") == 14
        with pytest.raises(OperationRefused, match="candidates as the job says"):
            run.ask(take_operands, to="shop", chosen=chosen)


def test_a_data_holder_that_runs_the_coordinator_gets_no_importances():
    X, y = interacting(60)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"], coordinator="shop")
    with pytest.raises(ParameterError, match="'shop', which holds rows, runs it: give epsilon"):
        fs.VerticalFLAFE().fit(fed)
    with pytest.raises(ParameterError, match="needs a coordinator that holds no rows"):
        fs.VerticalFLAFE(protection="statistics", epsilon=1.0, bounds=WIDE).fit(fed)
    assert fs.VerticalFLAFE(functions=["ab"], epsilon=1.0, bounds=WIDE, **SMALL).fit(fed).cross_


def test_labels_are_sent_only_when_the_forest_is_asked_for():
    fed = federation(60)
    fitted = fs.VerticalFLAFE(functions=["ab"], n_operands=1, n_features=1, validation=0).fit(fed)
    assert "flafe.share_labels" not in set(fed.ledger.frame()["operation"])
    assert not any("label of every row" in note for note in fitted.ledger_.notes)
    fed = federation(60)
    fitted = fs.VerticalFLAFE(functions=["ab"], protection="open", importance="forest", n_operands=1, n_features=1).fit(
        fed
    )
    assert any("label of every row" in note for note in fitted.ledger_.notes)


def test_missing_text_and_constant_columns():
    X, y = mixed_table(80)
    X["all gone"] = np.nan
    fed = fs.Federation.split(X, y, parties=["one", "two", "three"])
    fitted = fs.VerticalFLAFE(functions=["ab"], protection="open", importance="forest", **SMALL).fit(fed)
    assert not any("colour" in text or "constant" in text or "gone" in text for text in fitted.selection_.engineered)
    assert all(len(fitted.selected_[name]) == fed.n_columns[name] for name in fed.parties)
    made = fitted.selection_.apply(sites(fed)["one"].table, "one")
    assert made.n_rows == 80


def test_a_party_of_text_alone_takes_no_part():
    X, y = interacting(60)
    text = pd.DataFrame({"u": ["x", "y", "z"] * 20, "v": list("ab") * 30})
    frame = pd.concat([X[["a", "b"]], text, X[["c", "d"]]], axis=1)
    fed = fs.Federation.split(frame, y, parties=["bank", "texts", "shop"])
    fitted = fs.VerticalFLAFE(functions=["ab"], protection="open", importance="forest", **SMALL).fit(fed)
    assert not fitted.selection_.engineered_for("texts")
    assert all("texts" not in parties_of(parse(text)) for text in fitted.selection_.engineered)
    only = fs.Federation.split(pd.concat([X[["a", "b"]], text], axis=1), y, parties=2)
    with pytest.raises(DataError, match="two parties need columns of numbers"):
        fs.VerticalFLAFE().fit(only)


def test_wide_parties_are_screened_first():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(80, 12)), columns=[f"w{i}" for i in range(12)])
    y = pd.Series(X["w1"] + X["w1"] * X["w9"] + 0.1 * rng.normal(size=80))
    fed = fs.Federation.split(X, y, parties=2)
    fitted = fs.VerticalFLAFE(
        max_columns=3, importance="forest", protection="open", functions=["ab"], **SMALL
    ).fit(fed)  # fmt: skip
    used = {c.name for text in fitted.selection_.engineered for c in _columns(text)}
    assert used <= set(X.columns)
    assert (fitted.scores_["score"] > 0).sum() > 6  # columns that were screened out have a score too
    assert len(local_candidates([parse(f"x{i}") for i in range(5)])) == 3 * 5 + 4 * 5 * 4


def _columns(text):
    from fedsift.core.expressions import columns_of

    return columns_of(parse(text))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"functions": ["abc"]}, "functions must be a list from ab, a2b, ab2, a2b2; got"),
        ({"functions": []}, "functions must be"),
        ({"importance": "magic"}, "importance must be one of"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1.0}, "protection='open' shows all columns"),
        ({"bounds": {"a": (1.0, 0.0)}}, r"bounds\['a'\] must be two numbers"),
        ({"bounds": {}}, "bounds must be a mapping"),
        ({"target_bounds": (1.0,)}, "target_bounds must be two numbers"),
        ({"clip": 9}, "clip"),
        ({"protection": "everything"}, "protection"),
        ({"protection": "statistics", "functions": ["a2b"]}, "all four"),
        ({"protection": "statistics", "validation": 0}, "validation"),
        ({"protection": "statistics", "max_iter": 50, "max_weight": 1.0}, r"max_iter \* max_weight"),
    ],
)
def test_wrong_parameters_are_told(parameters, message):
    with pytest.raises(ParameterError, match=message):
        fs.VerticalFLAFE(**{"importance": "forest", "protection": "open", **SMALL, **parameters}).fit(federation(60))


def test_federations_that_do_not_fit_are_told():
    with pytest.raises(ParameterError, match="at least two"):
        fs.VerticalFLAFE().fit(federation(40, parties=("alone",)))
    private = federation(40)
    private.names = "private"
    with pytest.raises(ParameterError, match="names='shared'"):
        fs.VerticalFLAFE().fit(private)
    X, y = mixed_table(60, classes=3)
    with pytest.raises(ParameterError, match="two classes"):
        fs.VerticalFLAFE(protection="statistics").fit(fs.Federation.split(X, y, parties=2))
    with pytest.raises(DataError, match="fewer than 10 training rows"):
        fs.VerticalFLAFE(validation=0.5).fit(federation(14))
    fitted = fs.VerticalFLAFE(functions=["ab"], protection="open", importance="forest", **SMALL).fit(federation(60))
    with pytest.raises(ParameterError, match="protection='statistics'"):
        fitted.predict(federation(60))
    with pytest.raises(DataError, match="fit it here"):
        fitted.combine(federation(60))


# --- protection="statistics" -----------------------------------------------------------------------------------------

STATISTICS = {
    "protection": "statistics", "importance": "forest", "max_iter": 3, "max_weight": 0.8,
    "statistics_clip": 2.5, "n_operands": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def statistics():
    fed = federation(400)
    return fed, fs.VerticalFLAFE(**STATISTICS).fit(fed)


def oracle(fed, fitted, X):
    """The same greedy search on pooled columns in plain floating point."""
    session = {name: site.models.part(fitted.model_id_, object) for name, site in sites(fed).items()}
    part = session[fed.active]
    y = np.asarray(sites(fed)[fed.active].table.label, dtype=float)
    z = (y - part.centre) / part.deviation
    score = np.zeros(len(z))
    for name, kept in session.items():
        design = evaluate_columns([parse(text) for text in kept.formulas], X)
        if name == fed.active:
            design = np.hstack([design, np.ones((len(z), 1))])
        score += design @ kept.weights
    train = np.setdiff1d(np.arange(len(z)), fitted._held_out[fed.active])
    left = (z - score)[train]
    sides = {}
    for name, texts in fitted.details_["operands"].items():
        x = np.clip(evaluate_columns([parse(t) for t in texts], X) * fitted.clip / 5 / fitted.statistics_clip, -1, 1)
        sides[name] = np.hstack([x, x**2])[train]
    found = []
    for _ in range(fitted.max_iter):
        tables = {(a, b): (sides[a] * left[:, None]).T @ sides[b] for a, b in itertools.combinations(fed.parties, 2)}
        pair = max(tables, key=lambda key: np.abs(tables[key]).max())
        i, j = np.unravel_index(np.abs(tables[pair]).argmax(), tables[pair].shape)
        x, w = sides[pair[0]][:, i], sides[pair[1]][:, j]
        square = (x**2).mean() * (w**2).mean()
        weight = np.clip(
            fitted.step * tables[pair][i, j] / (len(train) * square), -fitted.max_weight, fitted.max_weight
        )
        left = left - weight * x * w
        found.append((*pair, weight))
    return found


def test_sums_on_shares_equal_the_plain_search(statistics):
    fed, fitted = statistics
    expected = oracle(fed, fitted, interacting(400)[0])
    got = [(term.first, term.second, term.weight) for term in fitted._terms]
    assert [pair[:2] for pair in got] == [pair[:2] for pair in expected]
    np.testing.assert_allclose([w for *_, w in got], [w for *_, w in expected], atol=0.02)
    rows = {row["features"]: row["r2"] for row in fitted.details_["comparison"]}
    assert rows["with cross-party sums"] > rows["local only"] + 0.05


def test_joint_prediction_equals_the_model_on_pooled_rows(statistics):
    fed, fitted = statistics
    X, _ = interacting(400)
    parts = {name: site.models.part(fitted.model_id_, object) for name, site in sites(fed).items()}
    z = np.zeros(len(X))
    for name, kept in parts.items():
        design = evaluate_columns([parse(text) for text in kept.formulas], X)
        z += (np.hstack([design, np.ones((len(X), 1))]) if name == fed.active else design) @ kept.weights
    for feature in fitted.details_["features"]:
        if "weight" in feature:
            power = sum(FUNCTIONS[feature["function"]])
            z += feature["weight"] * evaluate_columns([parse(feature["formula"])], X)[:, 0] / BOUND**power
    expected = z * parts[fed.active].deviation + parts[fed.active].centre
    np.testing.assert_allclose(fitted.predict(fed), expected, atol=0.02 * parts[fed.active].deviation)
    with pytest.raises(ParameterError, match="no combined columns"):
        fitted.combine(fed)
    some = fed.view(rows=np.arange(7))
    np.testing.assert_allclose(fitted.predict(some), expected[:7], atol=0.02 * parts[fed.active].deviation)


def test_statistics_spend_the_budget_and_no_more():
    fed = federation(200)
    known = {"bounds": WIDE, "target_bounds": (-8.0, 8.0)}
    fitted = fs.VerticalFLAFE(**{**STATISTICS, "epsilon": 1.0, "delta": 1e-5, **known}).fit(fed)
    rows = fitted.details_["budget"]
    assert [row["about"].split()[0] for row in rows] == ["sums", "sums"]
    assert rows[-1]["total_epsilon"] <= 1.0 + 1e-9
    assert rows[-1]["total_epsilon"] > 0.99
    assert any("epsilon 1, delta 1e-05" in note for note in fitted.ledger_.notes)
    assert not fitted.details_["holders"]


def test_no_canary_leaves_in_statistics_mode():
    canary = 918273645.4378125
    X, y = interacting(80)
    X.loc[::5, ["a", "c", "e"]] = canary
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    log = Recording(fed._link.transport)
    fed._link.transport = log
    fs.VerticalFLAFE(protection="statistics", max_iter=2, functions=["ab"], n_operands=2).fit(fed)
    frame = fed.ledger.frame()
    forms: dict[tuple[str, str], list[str]] = {}
    for row in frame.itertuples():
        forms.setdefault((row.sender, row.receiver), []).append(row.form)
    labels = y.to_numpy()
    for sender, receiver, data in log.log:
        if forms[sender, receiver].pop(0) != "plain":
            for needle in (
                struct.pack("<d", canary),
                struct.pack("<f", canary),
                labels.tobytes(),
                labels[:4].tobytes(),
            ):
                assert needle not in data


def test_a_mask_is_never_used_twice():
    fed = federation(30, parties=("P", "Q"))
    with fed.session() as run:
        products = JointProducts(run, run.parties)
        rng = np.random.default_rng(0)
        plain = {name: rng.normal(size=(30, 2)) for name in fed.parties}
        for name, site in sites(fed).items():
            site.sessions[run._session][JointMatrices] = JointMatrices({"m": to_ring(plain[name], 20, 8.0)})
        (opened,) = products.open([("P", "m", 2, "Q", "m", 2)])
        np.testing.assert_allclose(from_ring(opened, 40), plain["P"].T @ plain["Q"], atol=1e-4)
        task = {"peer": "Q", "side": "left", "number": 1, "matrix": "m", "width": 2}
        with pytest.raises(SecurityError, match="was used before"):
            run.ask(masked_sides, to="P", tasks=[task])


def test_the_coordinator_cannot_tell_which_column_a_sum_belongs_to():
    """Two rounds over the same residual give the same sums in different places."""
    from fedsift.engineer.flafe import shared_residual as sr

    fed = federation(64, parties=("P", "Q"))
    rng = np.random.default_rng(0)
    orders = []
    with fed.session(*fs.VerticalFLAFE(protection="statistics").announcement()) as run:
        JointProducts(run, run.parties)
        for name in fed.parties:
            state = sites(fed)[name].sessions[run._session]
            state[sr.Sides] = sr.Sides(sr.column_ring(rng.uniform(-1, 1, size=(64, 16)), 8, 1))
            state[sr.ResidualShares] = sr.ResidualShares()
        for _ in range(2):
            run.ask(sr.arrange_sides, to=run.parties, pairs=[["P", "Q", 1]])
            shown = sites(fed)["P"].sessions[run._session][sr.SecretOrder].by_pair[sr.pair_name("P", "Q")]
            orders.append(tuple(shown[0]))
    assert orders[0] != orders[1]  # by chance once in 16! runs


# --- Hybrid-FLAFE ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hybrid():
    fed = federation(200, partition="hybrid", grid=(2, 3))
    return fed, fs.HybridFLAFE(functions=["ab"], n_operands=2, n_features=2).fit(fed)


def test_a_combined_feature_stays_with_one_column_group_in_every_row_block(hybrid):
    fed, fitted = hybrid
    X, _ = interacting(200)
    view = fitted.combine(fed)
    for text, group in fitted.details_["holders"].items():
        members = [name for name in fed.parties if name.endswith(group)]
        assert len(members) == 2
        pieces = [fs.Party(sites(fed)[name], view._view).table.values(text) for name in members]
        expected = evaluate_columns([parse(text)], X)[:, 0]
        # Rows of the blocks are some order of the pooled rows: as sorted lists they are the same.
        np.testing.assert_allclose(np.sort(np.concatenate(pieces)), np.sort(expected), atol=1e-4)
    assert fitted.details_["holders"]


def test_grid_parties_of_a_group_choose_the_same_features(hybrid):
    fed, fitted = hybrid
    for group in ("columns1", "columns2", "columns3"):
        made = {tuple(fitted.selection_.engineered_for(name)) for name in fed.parties if name.endswith(group)}
        assert len(made) == 1
    rows = {row["features"]: row["r2"] for row in fitted.details_["comparison"]}
    assert rows["with cross-party features"] > rows["pure noise in their place"] + 0.1
    again = fs.Selection.from_dict(json.loads(fitted.selection_.to_json()))
    assert again.engineered_for("rows1-columns1") == fitted.selection_.engineered_for("rows1-columns1")


def test_grids_that_do_not_fit_are_told():
    with pytest.raises(ParameterError, match="one row block"):
        fs.HybridFLAFE().fit(federation(60, partition="hybrid", grid=(1, 3)))
    with pytest.raises(ParameterError, match="at least two"):
        fs.HybridFLAFE().fit(federation(60, partition="hybrid", grid=(2, 1)))
    fed = federation(60, partition="hybrid", grid=(2, 2))
    fed.parties = fed.parties[:-1]
    fed._label_parties = [name for name in fed.label_parties if name in fed.parties]
    with pytest.raises(ParameterError, match="divided in the same way"):
        fs.HybridFLAFE().fit(fed)
    assert numeric_columns.discloses == "plain"


def test_a_message_that_is_no_vector_is_refused():
    from fedsift.core.message import decode, encode

    data = encode(CkksCiphertexts([], 8192))
    assert len(decode(data)) == 0
    with pytest.raises(MessageError):
        decode(data[:-4])
