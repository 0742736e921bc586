"""LESS-VFL and its baselines in the clear: noise goes, bytes are what the formula says, stage 3 is silent. Protected
forms are in test_less_vfl_shares.py and test_shared_lasso.py."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.errors import ParameterError
from fedsift.select.less_vfl.component_selection import COLUMN_LAMBDAS
from fedsift.select.less_vfl.lasso_networks import GroupLasso, LocalLasso
from fedsift.select.less_vfl.screening import benjamini_hochberg, screen_columns
from fedsift.select.less_vfl.selector import LessVFL

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

SMALL = {
    "protection": "open", "embedding": 4, "hidden": (8,), "batch_size": 64, "epochs": 3, "stage_epochs": 9,
}  # fmt: skip


def noisy(n=400, real=6, noise=9, seed=0, parties=3):
    """Real columns all tell about the label; noise columns nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {f"real{i}": y * 1.2 + rng.normal(size=n) for i in range(real)}
    columns |= {f"noise{i}": rng.normal(size=n) for i in range(noise)}
    X = pd.DataFrame(columns)
    names = list(X.columns)
    tables = {f"p{p}": X[names[p::parties]].copy() for p in range(parties)}
    tables["p0"]["y"] = y
    return fs.Federation.from_tables(tables, id=None, label=("p0", "y"))


def kept(selector, kind):
    return sum(name.startswith(kind) for names in selector.selected_.values() for name in names)


def test_shadows_let_noise_through_or_lose_the_signal():
    fed = noisy()
    selector = LessVFL(**SMALL, pretrain_epochs=4).fit(fed)
    assert kept(selector, "real") == 6
    assert kept(selector, "noise") <= 1
    assert all(share >= 0.975 for share in selector.details_["copies_zero"].values())
    assert selector.network_.score(fed) > 0.8
    assert selector.details_["share_kept"] == pytest.approx((kept(selector, "real") + kept(selector, "noise")) / 15)
    assert 0 <= selector.details_["removed_by_start_norms_alone"] <= 1


def test_the_paper_s_way_with_lambdas_found_without_a_message():
    fed = noisy()
    selector = LessVFL(**SMALL, shadows=False, pretrain_epochs=3, pretrain_rate=0.01, stage_rate=0.05).fit(fed)
    assert kept(selector, "real") >= 3
    assert all(value in COLUMN_LAMBDAS for value in selector.details_["lambda_columns"].values())
    assert selector.network_.score(fed) > 0.75


def test_the_same_seed_gives_the_same_selection():
    fed = noisy()
    first, second = (LessVFL(**SMALL, pretrain_epochs=20, random_state=4).fit(fed) for _ in range(2))
    pd.testing.assert_frame_equal(first.scores_, second.scores_)
    assert first.details_["lambda_columns"] == second.details_["lambda_columns"]


def test_bytes_differ_from_the_formula_or_stage_3_sends_data():
    fed = noisy()
    selector = LessVFL(**SMALL, pretrain_epochs=2).fit(fed)
    frame = selector.ledger_.frame()
    rows, width, passive = 400, 4, 2
    upload = frame[(frame.operation == "less_vfl.upload_embeddings") & (frame.sender != "coordinator")]
    assert len(upload) == passive
    payload = rows * width * 4
    assert all(payload < size < payload + 60 for size in upload.bytes)
    up = frame[(frame.operation == "network.bottom_round") & (frame.sender != "coordinator")]
    components = selector.details_["components_kept"]
    going_on = [p for p in ("p1", "p2") if selector.selected_[p]]
    floats = 2 * rows * width * passive + 3 * rows * sum(components[p] for p in going_on)
    assert 4 * floats <= up.bytes.sum() <= 4 * floats + 60 * len(up)
    stage_3 = frame[frame.operation == "less_vfl.select_columns"]
    assert len(stage_3) == 2 * 3  # one request and one result a party, nothing in between
    assert stage_3.bytes.max() < 1000
    between = frame[(frame["round"] > upload["round"].max()) & (frame["round"] < stage_3["round"].max())]
    assert set(between.operation) == {"less_vfl.select_components"}


def test_the_story_of_a_run_differs_from_its_ledger_or_its_selection():
    fed = noisy()
    selector = LessVFL(**SMALL, pretrain_epochs=2).fit(fed)
    found, spent = selector.details_, selector.ledger_.bytes()
    by_epoch = np.array([found["bytes_by_epoch"]["up"], found["bytes_by_epoch"]["down"]])
    assert by_epoch.shape == (2, len(found["loss_curve"]))
    assert 0.8 * (found["bytes"]["pre-training"] + found["bytes"]["training"]) < by_epoch.sum() < spent
    until = found["score_by_bytes"]["bytes"]
    assert until[0] >= by_epoch[:, 0].sum()
    assert until == sorted(until)
    assert until[-1] <= spent
    before, after = found["norms_by_epoch"]
    for name, norms in after["norms"].items():
        assert len(before["norms"][name]) == len(norms)
        chosen = [c for c, norm in zip(fed.column_names()[name], norms) if norm > 0]
        assert chosen == list(selector.selected_[name])


def test_a_party_without_signal_leaves_the_network():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 300)
    tables = {
        "good": pd.DataFrame({"a": y + rng.normal(0, 0.3, 300), "b": y + rng.normal(0, 0.5, 300), "y": y}),
        "empty": pd.DataFrame({"constant": np.ones(300), "same": np.full(300, 2.0)}),
    }
    fed = fs.Federation.from_tables(tables, id=None, label=("good", "y"))
    selector = LessVFL(**SMALL, pretrain_epochs=20).fit(fed)
    assert selector.selected_["empty"] == []
    assert "empty" not in selector.network_.widths_
    assert selector.network_.score(fed) > 0.8


def test_group_lasso_removes_columns_over_the_wire():
    fed = noisy()
    small = {"protection": "open", "embedding": 4, "hidden": (8,), "batch_size": 64}
    free = GroupLasso(penalty=0.0, epochs=2, **small).fit(fed)
    assert free.details_["share_kept"] == 1.0
    strong = GroupLasso(penalty=5.0, epochs=12, trace_every=3, **small).fit(fed)
    assert kept(strong, "noise") < 9
    sizes = [point["bytes"] for point in strong.details_["norms_by_epoch"]]
    assert sizes == sorted(sizes)
    less = LessVFL(**SMALL, pretrain_epochs=2).fit(fed)
    assert less.details_["bytes"]["pre-training"] + less.details_["bytes"]["selection"] < sizes[-1]


def test_local_lasso_asks_for_embeddings():
    selector = LocalLasso(embedding=4, hidden=(8,), batch_size=64, epochs=2, stage_epochs=6).fit(noisy())
    assert "less_vfl.upload_embeddings" not in set(selector.ledger_.frame().operation)
    assert kept(selector, "real") >= 1


def test_the_screen_keeps_noise_or_reads_columns_in_the_clear():
    fed = noisy(noise=30)
    mark = len(fed.ledger)
    passed = screen_columns(fed, 0.01, "auto")
    names = fed.column_names()
    found = [n for p in passed for n, yes in zip(names[p], passed[p]) if yes]
    assert sum(n.startswith("real") for n in found) == 6
    assert sum(n.startswith("noise") for n in found) <= 1
    forms = fed.ledger.since(mark).frame()
    assert set(forms[forms.operation == "f_test.masked_class_sums"].form) == {"ciphertext", "aggregate"}


def test_screened_columns_join_the_selection():
    selector = LessVFL(**SMALL, pretrain_epochs=1, screen=True, quantile=1.0).fit(noisy())
    assert kept(selector, "real") == 6


def test_benjamini_hochberg_equals_its_definition():
    p = np.array([0.001, 0.2, 0.012, 0.03, 0.9])
    expected = []
    for i in range(5):  # the largest k with p_(k) <= level k / m decides
        ordered = np.sort(p)
        ks = [k for k in range(1, 6) if ordered[k - 1] <= 0.05 * k / 5]
        expected.append(bool(ks) and p[i] <= ordered[max(ks) - 1])
    assert benjamini_hochberg(p, 0.05).tolist() == expected
    assert benjamini_hochberg(np.zeros(0), 0.05).shape == (0,)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"quantile": 2}, "quantile"), ({"pretrain_epochs": 0}, "pretrain_epochs"),
     ({"lambda_columns": -1}, "lambda_columns"), ({"stage_rate": 0}, "stage_rate")],
)  # fmt: skip
def test_wrong_parameters_are_named_before_anything_is_sent(change, word):
    fed = noisy(50)
    mark = len(fed.ledger)
    with pytest.raises(ParameterError, match=word):
        LessVFL(**change).fit(fed)
    assert len(fed.ledger) == mark


def test_an_empty_answer_says_why_and_what_to_do():
    rng = np.random.default_rng(1)
    tables = {
        "a": pd.DataFrame(rng.normal(size=(60, 2)), columns=["u", "v"]),
        "b": pd.DataFrame({"w": rng.normal(size=60)}),
    }
    tables["a"]["y"] = rng.integers(0, 2, 60)
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    with pytest.warns(
        UserWarning, match=r"LessVFL keeps no column: after 1 pre-training steps on 60 rows.*What helps: raise"
    ):
        selector = LessVFL(**SMALL, pretrain_epochs=1, quantile=1.0, lambda_components=0.0).fit(fed)
    assert not any(selector.selected_.values())
    assert any("keeps no column" in note for note in selector.ledger_.notes)
    with pytest.warns(UserWarning, match="lambda_columns took all weights"):
        LessVFL(**SMALL, shadows=False, lambda_columns=1e6, lambda_components=0.0, pretrain_epochs=1).fit(fed)
