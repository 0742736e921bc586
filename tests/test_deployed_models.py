"""Training and prediction at sites with policies of their own: what is submitted is all that they run."""

from __future__ import annotations

import json
import shutil
from functools import partial

import numpy as np
import pytest
from doubles import Recording
from test_training import job_file, tables

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.deploy import model_jobs
from fedsift.deploy.flare_job import settings_of
from fedsift.deploy.introductions import introduce_parties
from fedsift.deploy.run import explain_on, party_text, predict_on, prediction_job
from fedsift.errors import DataError, FedsiftError, ParameterError, PolicyRefused
from fedsift.jobs import runs, training
from fedsift.jobs.card import read_card
from fedsift.jobs.job_file import Job, load_job
from fedsift.jobs.text import Source
from fedsift.mpc.psi import aligned
from fedsift.report.explain import explain_page
from fedsift.site.site import open_site


class Apart(Recording):
    """As between machines: nobody can look through the transport at a site."""

    sites: dict = {}


def opened(folder, job, content, *, usual_rules=False):
    """The sites of party files, each opened for this very job, as ``party_app`` does it; behind a transport that shows
    the coordinator none of them. ``usual_rules``: with the policy of a party file that says nothing."""
    files = {}
    for name in content["parties"]:
        files[name] = folder / name / "party.toml"
        files[name].parent.mkdir(exist_ok=True, parents=True)
        text = party_text(job, name)
        files[name].write_text(text.partition("[policy]")[0] if usual_rules else text)
    introduce_parties(files)
    sites = {name: open_site(file, content) for name, file in files.items()}
    for name, site in sites.items():
        site.models.folder = files[name].parent / model_jobs.PARTS
    fed = Federation(Apart(InProcess(sites)), list(sites), active="bank")
    fed = fed.for_predictions() if content.get("purpose") else fed
    assert not fed.simulated
    return aligned(fed, by_id=True, min_overlap=1)


@pytest.fixture(scope="module", params=["boost", "linear"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"deployed-{request.param}")
    job = load_job(job_file(folder, request.param))
    content = json.loads(json.dumps(model_jobs.train_content(job)))
    fed = opened(folder / "sites", job, content)
    tables_here = {name: Table.read(job.file(name), id="id", name=name) for name in fed.parties}
    run = runs.Run(job, tables_here, fed, job.selector())
    run.phases["align"] = (0, len(fed.ledger))
    model_jobs.train(run, folder / "result")
    return folder, job, content


def test_every_site_keeps_its_own_part_and_the_submitter_gets_none(trained):
    folder, _, _ = trained
    for name in ("bank", "shop"):
        parts = [part.name for part in (folder / "sites" / name / model_jobs.PARTS).iterdir()]
        assert [part.split(".")[0] for part in parts] == [name]
    names = {file.name for file in (folder / "result").iterdir()}
    assert names == {"report.html", "card.json", "card.md", "model.json", "selection.json"}
    assert read_card(folder / "result").metrics["auc"] > 0.8


def test_new_rows_are_predicted_by_the_parts_at_the_sites_and_stay_with_the_label_holder(trained):
    folder, _, _ = trained
    bank, shop = tables(80, seed=3)
    content = json.loads(json.dumps(model_jobs.predict_content(folder / "result")))
    files = {"bank": folder / "new-bank.csv", "shop": folder / "new-shop.csv"}
    bank.drop(columns="default").to_csv(files["bank"], index=False)
    shop.to_csv(files["shop"], index=False)
    fed = opened(folder / "sites", prediction_job(folder / "result", files), content)
    model_jobs.predict(content, fed, folder / "predicted", folder / "scratch")
    told = json.loads((folder / "predicted" / model_jobs.PREDICTED).read_text())
    assert told["rows"] == 80
    found = list((folder / "sites" / "bank" / model_jobs.PARTS).glob("*.predictions.csv"))
    lines = found[0].read_text().splitlines()
    assert lines[0] == "id,yes", "as in one process"
    assert [line.split(",")[0] for line in lines[1:]] == bank["id"].tolist(), "in the order of its own file"
    right = [(float(line.split(",")[1]) > 0.5) == (label == "yes") for line, label in zip(lines[1:], bank["default"])]
    assert np.mean(right) > 0.75
    assert not any(b"person 3-" in data for sender, _, data in fed._link.transport.log if sender == "bank")


def new_rows(folder, numbers):
    """Files of new rows, of which the bank has some, and the shop all."""
    bank, shop = tables(80, seed=3)
    files = {"bank": folder / "new-bank.csv", "shop": folder / "new-shop.csv"}
    bank.iloc[numbers].drop(columns="default").to_csv(files["bank"], index=False)
    shop.to_csv(files["shop"], index=False)
    return files


def test_one_new_row_is_predicted_at_sites_with_the_usual_rules(trained):
    """By default a site refuses work on fewer than 50 rows; a job for predictions alone says so, and is allowed."""
    folder, _, _ = trained
    content = json.loads(json.dumps(model_jobs.predict_content(folder / "result")))
    assert content["purpose"] == "predictions"
    job = prediction_job(folder / "result", new_rows(folder, [11]))
    fed = opened(folder / "sites", job, content, usual_rules=True)
    model_jobs.predict(content, fed, folder / "predicted-one", folder / "scratch-one")
    assert json.loads((folder / "predicted-one" / model_jobs.PREDICTED).read_text())["rows"] == 1
    found = next((folder / "sites" / "bank" / model_jobs.PARTS).glob("*.predictions.csv")).read_text().splitlines()
    assert [line.split(",")[0] for line in found] == ["id", tables(80, seed=3)[0]["id"][11]]
    assert 0 < float(found[1].split(",")[1]) < 1


def test_the_coordinator_between_machines_predicts_one_row_at_sites_with_the_usual_rules(trained):
    """The whole job as FLARE's server runs it, on what was submitted; the parties' sites are behind calls."""
    pytest.importorskip("nvflare")
    from fedsift.core.transports.flare import Flare
    from fedsift.deploy.coordinator import run_job

    folder, _, _ = trained
    content = json.loads(json.dumps(model_jobs.predict_content(folder / "result")))
    job = prediction_job(folder / "result", new_rows(folder, [23]))
    fed = opened(folder / "sites", job, content, usual_rules=True)
    sites = fed._link.transport.inner.sites
    for name, site in sites.items():
        site.job_folder = folder / "sites" / name / "results" / "job"
        site.job_folder.mkdir(parents=True, exist_ok=True)
    calls = {name: (lambda data, limit, site=site: site.receive(data)) for name, site in sites.items()}
    (folder / "server").mkdir()
    run_job(content, Flare(calls), folder / "server")
    found = next((folder / "sites" / "bank" / model_jobs.PARTS).glob("*.predictions.csv")).read_text().splitlines()
    assert [line.split(",")[0] for line in found] == ["id", tables(80, seed=3)[0]["id"][23]]


def test_a_site_that_was_opened_to_predict_does_nothing_else(trained):
    """Until November 2026 it would have trained the model again, or measured it, if the coordinator asked."""
    folder, _, _ = trained
    content = json.loads(json.dumps(model_jobs.predict_content(folder / "result")))
    fed = opened(folder / "sites", prediction_job(folder / "result", new_rows(folder, range(80))), content)
    told = dict(content["method"])
    name = told.pop("name")
    fed._purpose = ""
    with pytest.raises(PolicyRefused, match="for predictions alone"), fed.session(name, told):
        pass


def test_the_submitters_card_has_the_names_that_do_not_travel(tmp_path):
    """Between machines a job says that there is an id and a label, not what the columns are called."""
    job_file(tmp_path, "linear")
    for name, table in zip(("bank", "shop"), tables(300)):
        table.rename(columns={"id": "person", "default": "ill"}).to_csv(tmp_path / f"{name}.csv", index=False)
    text = (tmp_path / "job.toml").read_text().replace('"id"', '"person"').replace('"default"', '"ill"')
    (tmp_path / "job.toml").write_text(text)
    job = load_job(tmp_path / "job.toml")
    content = json.loads(json.dumps(model_jobs.train_content(job)))
    assert "person" not in json.dumps(content)
    assert "ill" not in content["parties"]["bank"]
    source = Source(tmp_path / "job.toml", "", {})
    there = Job(source.path, settings_of(content), job.parameters, source)  # as the coordinator reads it
    fed = opened(tmp_path / "sites", job, content)
    tables_here = {name: Table.read(job.file(name), id="person", name=name) for name in fed.parties}
    run = runs.Run(there, tables_here, fed, there.selector())
    run.phases["align"] = (0, len(fed.ledger))
    model_jobs.train(run, tmp_path / "result")
    results = {name: tmp_path / "sites" / name / "results" / "job" for name in ("bank", "shop")}
    card = model_jobs.take_model(job, tmp_path / "result", tmp_path / "model", results)
    assert (card.data["bank"].id, card.data["shop"].id, card.label) == ("person", "person", "ill")
    assert "the classes of ill" in (tmp_path / "model" / "card.md").read_text()
    files = {name: tmp_path / f"{name}.csv" for name in ("bank", "shop")}
    told = training.predict(tmp_path / "model", files)
    assert len(told) == 300
    assert training.explained(tmp_path / "model", files, 1).groups is not None


@pytest.mark.parametrize("labelled", [True, False])
def test_sites_explain_a_model_as_one_process_does(trained, labelled):
    """Permutation importance on shares and Shapley values of trees; with labels also how the model does on groups."""
    folder, _, _ = trained
    bank, shop = tables(200, seed=5)
    bank["ward"] = np.where(np.arange(200) % 3, "north", "south")
    files = {"bank": folder / f"rows-{labelled}.csv", "shop": folder / "rows-shop.csv"}
    (bank if labelled else bank.drop(columns="default")).to_csv(files["bank"], index=False)
    shop.to_csv(files["shop"], index=False)
    content = json.loads(json.dumps(model_jobs.explain_content(folder / "result", 2, ["ward"] if labelled else [])))
    fed = opened(folder / "sites", prediction_job(folder / "result", files, labelled=True), content)
    out = folder / f"explained-{labelled}"
    linear = content["known"]["class"] == "VerticalLogisticRegression"
    if linear and not labelled:
        with pytest.raises(DataError, match="label"):
            model_jobs.explain(content, fed, out, folder / "scratch")
        return
    model_jobs.explain(content, fed, out, folder / "scratch")
    told = model_jobs.take_explanation(out)
    assert {line.feature for line in told.explanation.frame[:2].itertuples()} == {"a", "c"}
    assert (told.groups is not None and len(told.groups) > 0) is labelled
    assert [set(frame["ward"]) for frame in told.by.values()] == ([{"north", "south"}] if labelled else [])
    local = folder / "local"
    if not local.exists():
        shutil.copytree(folder / "result", local)
        for part in folder.glob(f"sites/*/{model_jobs.PARTS}/*.*.*"):
            shutil.copy(part, local)
    here = training.explained(local, files, 2, by=["ward"] if labelled else [])
    mine, theirs = (each.explanation.frame.set_index(["party", "feature"]) for each in (told, here))
    np.testing.assert_allclose(mine["importance"], theirs.loc[mine.index, "importance"], atol=0.02 if linear else 1e-6)
    if labelled:
        assert told.to_dict()["groups"] == here.to_dict()["groups"]
        assert told.to_dict()["groups_by"] == here.to_dict()["groups_by"]
        explain_page(told)


def test_what_is_asked_of_an_explanation_is_bounded_and_a_torn_answer_is_named(trained, tmp_path):
    folder, _, _ = trained
    content = model_jobs.explain_content(folder / "result", 2, [])
    for asked in ({"repeats": 10**6, "by": []}, {"repeats": 1, "by": ["x"] * 21}, {"repeats": 1, "by": "ward"}):
        with pytest.raises(ParameterError):
            model_jobs.explain({**content, "asked": asked}, None, tmp_path / "out", tmp_path)
    (tmp_path / model_jobs.EXPLAINED).write_text('{"columns": 3}')
    with pytest.raises(FedsiftError, match="no readable"):
        model_jobs.take_explanation(tmp_path)


def test_a_party_that_left_and_a_stranger_are_named_before_anything_is_started(trained, tmp_path):
    folder, _, _ = trained
    (tmp_path / "bank.csv").write_text("id,a,b\n1,2,3\n")
    for do in (predict_on, partial(explain_on, repeats=1)):
        with pytest.raises(DataError, match="'shop', which has left"):
            do(folder / "result", "poc", {"bank": tmp_path / "bank.csv"}, say=print)
        with pytest.raises(ParameterError, match="no party 'bnak'; did you mean 'bank'"):
            do(folder / "result", "poc", {"bnak": tmp_path / "bank.csv"}, say=print)
        with pytest.raises(DataError, match="there is no file"):
            do(folder / "result", "poc", {"bank": tmp_path / "bank.csv", "shop": tmp_path / "none.csv"}, say=print)


def test_a_site_that_was_opened_for_one_model_trains_no_other(trained):
    folder, job, content = trained
    fed = opened(folder / "sites", job, content)
    other = fs.VerticalLogisticRegression(max_iter=7)
    with pytest.raises(PolicyRefused, match="as submitted"):
        other.fit(fed)
