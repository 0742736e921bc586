"""What a coordinator set by a request until November 2026, and what it read by that."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.party import Site
from fedsift.core.transports.inprocess import InProcess
from fedsift.engineer.flafe.joint_moments import JointMatrices, masked_sides
from fedsift.errors import OperationRefused, PolicyRefused, SecurityError
from fedsift.models.fed_linear import local_steps
from fedsift.models.splitnn.settings import BottomSettings, TopSettings
from fedsift.models.splitnn.training import start_bottom, start_top
from fedsift.mpc.horizontal_study import (
    Design,
    TrainingRows,
    describe_rows,
    keep_rows,
    load_columns,
    open_study,
    standardise,
)
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.psi import JOB, align
from fedsift.mpc.secure_sum import SecureSum
from fedsift.site.journal_rules import ALIGNMENT
from fedsift.site.policy import ALIGNMENT as ALIGNED
from fedsift.site.policy import DEFAULT_EXCEPTIONS
from fedsift.site.site import PolicySite
from hostile.coordinator import ROWS, Hostile, policy, refused


def hospitals(rows: int = 600, **rules) -> tuple[Federation, dict[str, Site]]:
    """Two parties with rows of their own, under the default rules."""
    rng = np.random.default_rng(0)
    sites: dict[str, Site] = {}
    for name in ("north", "south"):
        frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
        frame["sick"] = np.where(frame["a"] + rng.normal(size=rows) > 0, "yes", "no")
        frame["id"] = [f"{name}{row}" for row in range(rows)]
        table = fs.Table.read(frame, id="id", label="sick", name=name)
        sites[name] = PolicySite(name, table, policy(**rules))
    introduce(sites)
    return Federation(InProcess(sites), list(sites), active=None, partition="horizontal"), sites


CLASSES = {"task": "classification", "classes": ["no", "yes"]}


@pytest.mark.parametrize("validation", [0.999, 0.5, 1.0, "south"])
def test_how_many_rows_are_held_out_is_the_job_s(validation):
    """A method that holds none out was asked to sum over two rows of 1,200, and did."""
    fed, _ = hospitals()
    with fed.session(*fs.FeatureElection().announcement()) as run, pytest.raises(SecurityError, match="other rows"):
        run.ask(keep_rows, to=run.parties, validation=validation, **CLASSES)


def test_which_rows_are_held_out_nobody_else_can_choose_or_recompute():
    """The seed was the request's: sums over rows of the coordinator's choice, as many as there are sessions."""
    fed, sites = hospitals()
    with fed.session(*fs.FedLinear(validation=0.2).announcement()) as run:
        study = open_study(SecureSum(run), run.ask(describe_rows, to=run.parties, task="auto"), 0.2)
        first = {name: next(iter(site.sessions.values()))[TrainingRows].mask for name, site in sites.items()}
    assert (study.n_train, study.n_validation) == (960, 240)
    again, others = hospitals()
    others["north"]._secret = bytes(32)
    with again.session(*fs.FedLinear(validation=0.2).announcement()) as run:
        run.ask(keep_rows, to=run.parties, validation=0.2, **CLASSES)
        second = {name: next(iter(site.sessions.values()))[TrainingRows].mask for name, site in others.items()}
    assert (first["south"] == second["south"]).all(), "a site's own runs repeat"
    assert (first["north"] != second["north"]).any(), "and follow from its secret"


def test_parts_of_a_table_have_as_many_rows_as_the_rules_say():
    """Sums over training rows, less those of a job that trains on all, are about the rest."""
    fed, _ = hospitals(rows=200)  # 40 of them for validation
    with pytest.raises(PolicyRefused, match="min_rows"):
        fs.FedLinear(validation=0.2, rounds=5).fit(fed)
    fs.FedLinear(validation=0.3, rounds=5).fit(hospitals(rows=200)[0])


def test_seeds_choose_among_ten_parts_and_cut_no_smaller_ones():
    """However many seeds there are: sums over rows that each draws anew would be equations for single rows."""
    _, sites = hospitals()
    masks = []
    for seed in range(40):
        fed = Federation(InProcess(sites), list(sites), active=None, partition="horizontal")
        with fed.session(*fs.FedLinear(validation=0.2, random_state=seed).announcement()) as run:
            run.ask(keep_rows, to=run.parties, validation=0.2, **CLASSES)
            masks.append(next(iter(sites["north"].sessions.values()))[TrainingRows].mask)
    _, sizes = np.unique(np.array(masks).T, axis=0, return_counts=True)
    assert len({mask.tobytes() for mask in masks}) > 10
    assert sizes.min() >= 60


def test_local_steps_are_the_job_s():
    """One request of 2^53 steps would have kept a site busy for ever."""
    fed, _ = hospitals()
    with fed.session(*fs.FedLinear().announcement()) as run:
        total = SecureSum(run)
        study = open_study(total, run.ask(describe_rows, to=run.parties, task="auto"), 0.2)
        assert study.outputs == 2
        told = {"weights": np.zeros((1, 4, 2)), "masks": np.ones((1, 3), dtype=bool), "penalties": np.zeros(1)}
        for steps in (0, 2, 1000, 2**53):
            with pytest.raises(OperationRefused):
                total.sum(local_steps, (9,), **told, rate=0.1, steps=steps, kind="logistic")


def test_gradients_are_blurred_as_the_job_says():
    """With ``label_protection`` the sign of a gradient is not simply the label; the request could leave it out."""
    pytest.importorskip("torch")
    hostile = Hostile(forms=["control", "plain"])
    told = {"label_protection": "noise", "label_protection_scale": 2.0}
    with hostile.aligned().session(*fs.SplitNN(protection="open", **told).announcement()) as run:
        for how, scale in ((None, 1.0), ("noise", 0.0), ("max_norm", 2.0)):
            settings = TopSettings(0, 128, 0.01, "dense", {}, protection=how, protection_scale=scale)
            with pytest.raises(OperationRefused, match="label_protection"):
                run.ask(start_top, to="bank", model="m", widths={"bank": 2, "shop": 2}, settings=settings)


def test_a_training_has_the_epochs_of_the_job():
    """Each further epoch opens a loss more, and fits the few rows better that a neighbour has changed."""
    made = fs.SplitNN(epochs=2, width=4)
    announced = made.announcement()
    made.set_params(epochs=3)
    made.announcement = lambda: announced
    with pytest.raises(OperationRefused, match="trains for fewer epochs"):
        made.fit(Hostile().aligned())


def test_two_parties_that_are_both_asked_for_the_left_side_use_two_masks():
    """With one mask for "left" the difference of what both sent was the difference of their columns, row by row."""
    hostile = Hostile()
    with hostile.aligned().session(*fs.VerticalFLAFE(n_operands=2, n_features=2).announcement()) as run:
        meet_all(run)
        for site in hostile.sites.values():
            next(iter(site.sessions.values()))[JointMatrices] = JointMatrices({"m": np.zeros((ROWS, 2), np.uint64)})
        for side in ("left", "right"):
            number = ["left", "right"].index(side) + 1
            each = {
                name: {"tasks": [{"peer": peer, "side": side, "number": number, "matrix": "m", "width": 2}]}
                for name, peer in (("bank", "shop"), ("shop", "bank"))
            }
            told = run.ask(masked_sides, to=run.parties, each=each)
            assert (told["bank"][0][0] != told["shop"][0][0]).all()


def test_of_parties_that_share_rows_one_is_the_label_holder():
    """A second one would be asked for its part of scores under the mask that the first uses for its own."""
    hostile = Hostile()
    job = hostile.of(fs.FederatedLasso(max_iter=2), label_parties=("bank", "shop"))
    for name in ("bank", "shop"):
        refused(hostile.announced(job.canonical, to=name), "one is the label holder")


def test_a_request_for_a_view_that_is_not_there_uses_up_no_list_of_ids():
    hostile = Hostile()
    job = hostile.job(JOB, {"blocks": [["bank", "shop"]], "rows": {"bank": ROWS, "shop": ROWS}, "random_state": 0})
    asked = {"session": hostile.begin(job), "job": job.hash}
    hostile.meet(asked)
    refused(hostile.send("bank", "align.blind_ids", **asked, on="ghost"), "no such view")
    assert hostile.sites["bank"].journal.journal.count("form = ?", ALIGNMENT) == 0
    assert "ok" in hostile.send("bank", "align.blind_ids", **asked)


def test_weights_of_the_coordinator_s_choice_still_read_rows_of_horizontal_parties():
    """The price that docs/threat-model.md states: totals at weights that no training led to. Large ones cut the rows by
    a plane; where two planes have one row between them, the totals differ by that row's values."""
    fed, sites = hospitals()
    with fed.session(*fs.FedLinear().announcement()) as run:
        total = SecureSum(run)
        open_study(total, run.ask(describe_rows, to=run.parties, task="auto"), 0.0)
        total.ask_all(load_columns, columns=["a", "b", "c"])
        standardise(total, 3)
        steep, found = 1e5, []
        told = {"masks": np.ones((1, 3), dtype=bool), "penalties": np.zeros(1), "steps": 1, "kind": "logistic"}
        for cut in np.linspace(2.0, 3.5, 40):
            weights = np.zeros((1, 4, 2))
            weights[0, :, 1] = [steep, 0, 0, -steep * cut]
            sums = total.sum(local_steps, (9,), weights=weights, rate=1.0, **told)
            found.append(1200 * weights[0, :, 1] - sums[:-1].reshape(4, 2)[:, 1])
        rows = [low[:3] - high[:3] for low, high in pairwise(found) if round(low[3] - high[3]) == 1]
        known = np.vstack([next(iter(site.sessions.values()))[Design].values for site in sites.values()])
    assert len(rows) >= 3
    assert all(np.abs(known - row).max(axis=1).min() < 0.1 for row in rows)


@pytest.mark.parametrize("changed", [{"width": 9}, {"shadows": 5}], ids=["width", "shadows"])
def test_a_half_of_a_network_is_no_wider_and_has_no_more_than_the_accepted_job_says(changed):
    """A wider embedding tells more of the columns behind it."""
    pytest.importorskip("torch", reason="the extra nn is not installed")
    network = fs.SplitNN(protection="open", embedding=2, epochs=1, batch_size=200)
    told = BottomSettings(0, 200, 0.003, "dense", {"hidden": [4]}, width=2)
    with Hostile().aligned().session(*network.announcement()) as run:
        with pytest.raises(OperationRefused, match=f"its '{next(iter(changed))}' is another than that"):
            run.ask(start_bottom, to="shop", model="m", settings=replace(told, **changed))
        assert run.ask(start_bottom, to="shop", model="m", settings=told)


@pytest.mark.parametrize("matched", [False, True], ids=["other persons", "ids were matched"])
def test_sums_that_a_party_reads_count_where_it_holds_rows_of_the_same_people(matched):
    """In a job that calls parties horizontal sums are of other persons, it says, and counted nothing: a partner with
    which ids had been matched read those of columns and duals of each round, exactly."""
    let = [*DEFAULT_EXCEPTIONS, ALIGNED, "hyfdca.describe_part"]
    fed, sites = hospitals(exceptions=let)
    if matched:
        for site in sites.values():
            table = site.table.to_pandas().assign(id=[f"person {row}" for row in range(600)])
            site.__init__(site.name, fs.Table.read(table, id="id", label="sick", name=site.name),
                          policy(exceptions=let), identity=site.identity)  # fmt: skip
        align(Federation(InProcess(sites), list(sites), active="north"))
        with pytest.raises(PolicyRefused, match="max_bits"):
            fs.HyFDCA(rounds=2).fit(fed)
    else:
        with pytest.warns(Warning, match="stopped after 2 rounds"):
            fs.HyFDCA(rounds=2).fit(fed)
