"""Long work that is shown: no estimate out of nothing, no loop left standing, no silence and no flood of lines."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from method_cases import NEEDS_TORCH, federation, selector
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli import main as cli
from fedsift.core import progress as tracking
from fedsift.core import progress_bar
from fedsift.core.progress import Loop, Watcher, Work, watching
from fedsift.evaluate.evaluation import evaluate

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"


class Notes(Watcher):
    """Writes down where the loops stand, each time it is told."""

    def __init__(self):
        self.seen, self.asks = [], []

    def moved(self, loops):
        self.seen.append(tuple((loop.what, loop.done, loop.of) for loop in loops))

    def asked(self, operation, round, ledger):
        self.asks.append(operation.short_name)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Time goes on when a test says so."""
    now = [100.0]
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


# --- loops -----------------------------------------------------------------------------------------------------------


def test_an_estimate_out_of_nothing(clock):
    loop = Loop("epoch", 10)
    clock(50)
    assert loop.left() is None
    loop.move(1, 10)
    assert loop.left() == pytest.approx(9 * 50)
    clock(20)
    assert loop.left() == pytest.approx(9 * 50 - 20)


def test_an_estimate_that_forgets_how_turns_change(clock):
    """Turns that grow: the last ones count, and one that takes longer than they did says so before it is over."""
    loop = Loop("step", 100)
    for done in range(1, 51):
        clock(1 if done <= 40 else 4)
        loop.move(done, 100)
    assert loop.left() == pytest.approx(50 * 4)
    clock(15)
    assert loop.left() == pytest.approx(49 * (10 * 4 + 15) / 11)
    loop.move(100, 100)
    assert loop.left() == 0.0


def test_turns_that_differ_are_no_measure_of_each_other(clock):
    """A filter that took a second says nothing about the swarm that comes next."""
    loop = Loop("method", 2, alike=False)
    clock(1)
    loop.move(1, 2)
    assert loop.left() is None
    loop.move(2, 2)
    assert loop.left() == 0.0


def test_a_loop_that_is_begun_anew_does_not_go_by_the_earlier_one(clock):
    work = Work()
    clock(1)
    work.progress(0, 5, "epoch")
    clock(30)
    work.progress(1, 5, "epoch")
    assert work.loops[0].left() == pytest.approx(120)
    work.progress(0, 5, "epoch")
    assert work.loops[0].left() is None


def test_a_loop_that_ends_early_or_by_an_error_is_left_standing():
    work, notes = Work(), Notes()
    with watching(notes):
        for epoch in work.track(range(10), "epoch"):
            for _ in work.track("abc", "batch"):
                pass
            if epoch == 1:
                break
        assert work.loops == []
        with pytest.raises(ZeroDivisionError):
            [1 / epoch for epoch in work.track(range(3), "epoch")]
        assert work.loops == []
    assert (("epoch", 1, 10), ("batch", 2, 3)) in notes.seen
    assert (("epoch", 2, 10),) not in notes.seen


def test_loops_of_a_session_end_with_it_and_inner_ones_with_the_turn(small_fed):
    work = small_fed._link.work
    with small_fed.session() as run:
        run.progress(0, 3, "iteration")
        run.progress(1, 8, "tree")
        assert [loop.what for loop in work.loops] == ["iteration", "tree"]
        run.progress(1, 3, "iteration")
        assert [loop.what for loop in work.loops] == ["iteration"]
    assert work.loops == []


def test_items_of_unknown_number_are_passed_on_without_a_word():
    work, notes = Work(), Notes()
    with watching(notes):
        assert list(work.track(iter("ab"), "letter")) == ["a", "b"]
        assert list(work.track(iter("ab"), "letter", of=2)) == ["a", "b"]
    assert notes.seen[0] == (("letter", 0, 2),)
    assert notes.seen[-2:] == [(("letter", 2, 2),), ()]


LOOPS = {
    "muse": "column",
    "pso_evffs": "iteration of the swarm",
    "federated_lasso": "step",
    "fed_iife": "new feature",
    "fed_halving": "refinement",
    "top_gain": "tree",
    "less_vfl": "batch",
    "fedsdg": "batch",
}


@pytest.mark.parametrize("method", sorted(LOOPS))
def test_a_method_that_works_long_in_silence(method):
    if method in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    fed, notes = federation(method), Notes()
    with watching(notes):
        fitted = selector(method).fit(fed)
    told = [place for seen in notes.seen for place in seen if place[0] == LOOPS[method]]
    assert told, f"{method} says nothing of its loop"
    assert all(0 <= done <= of for _, done, of in told)
    assert notes.seen[-1] == ()
    assert fed._link.work.loops == []
    again = selector(method).fit(federation(method))
    assert again.traffic_["messages"].sum() == fitted.traffic_["messages"].sum(), "watching must send nothing"


def test_alignment_and_folds_are_watched_too():
    rng = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame({"id": np.arange(40), f"{name}_a": rng.normal(size=40), f"{name}_b": rng.normal(size=40)})
        for name in ("bank", "shop", "lab")
    }
    tables["bank"]["label"] = np.arange(40) % 2
    notes = Notes()
    with watching(notes):
        fed = fs.Federation.from_tables(tables, id="id", label=("bank", "label"))
        aligned = [place for seen in notes.seen for place in seen]
        evaluate(fed, {"a": fs.AllFeatures(), "r": fs.RandomFeatures(n_features=2)}, cv=2, model="knn", pooled=True)
    assert [done for what, done, of in aligned if what == "pass over the ids" and of == 3] == [0, 1, 2]
    assert notes.asks[:4] == ["count_table", "begin_job", "offer_key", "meet"]
    assert notes.asks[4:8] == ["seal_order", "blind_ids", "blind_again", "blind_again"]
    assert (("repeat", 0, 1), ("fold", 1, 2), ("method", 1, 2)) in notes.seen
    assert notes.seen[-1] == ()


# --- what is shown ---------------------------------------------------------------------------------------------------


def drawn(monkeypatch, work):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar.follow() as shown:
        work(shown)
        shown._bar.refresh()
        text = sys.stderr.getvalue()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_bar_without_a_known_end_shows_a_spinner_and_a_clock_only(monkeypatch, small_fed):
    def work(shown):
        for _ in small_fed.track(range(3), "step"):
            pass
        shown.say("selecting by gini")
        small_fed.sizes()

    text = drawn(monkeypatch, work)
    last = re.split(r"[\r\n]+", text.strip())[-1]
    assert "━" not in last, "the bar of a loop that is over"
    assert re.search(r"selecting by gini  round 1  count_table  \d+ B", last)
    assert re.search(r"0:00:0\d", last)


def test_a_bar_tells_the_loop_the_time_left_the_round_and_the_bytes(monkeypatch, small_fed, clock):
    loops = small_fed._link.work

    def work(shown):
        loops.progress(0, 5, "fold")
        loops.progress(0, 200, "epoch")
        clock(90)
        loops.progress(10, 200, "epoch")
        shown._bar.refresh()
        clock(300)
        loops.progress(1, 5, "fold")
        loops.progress(3, 10, "tree", at_most=True)
        small_fed.sizes()

    text = drawn(monkeypatch, work)
    assert "━" in text
    assert "fold 1 of 5, epoch 11 of 200 (about 28 min left)" in text
    assert re.search(r"fold 2 of 5 \(about 26 min left\), tree 4 of 10  round 1  count_table  \d+ B", text)


def test_a_loop_that_may_end_sooner_says_at_most(clock):
    loop = Loop("new feature", 10, at_most=True)
    clock(3)
    loop.move(4, 10)
    assert progress_bar.loop_words(loop, True) == "new feature 5 of 10 (at most 4 s left)"
    assert progress_bar.loop_words(loop, False) == "new feature 5 of 10"


def test_lines_without_a_terminal_come_from_a_clock_also_in_one_long_step(capsys):
    text, start = "", time.monotonic()
    with progress_bar.follow(every=0.05) as shown:
        shown.say("aligning")
        while text.count("\n") < 4 and time.monotonic() < start + 60:
            time.sleep(0.01)
            text += capsys.readouterr().err
    lines = (text + capsys.readouterr().err).splitlines()
    assert lines[0] == "aligning"
    assert 3 <= len(lines[1:]) <= (time.monotonic() - start) / 0.05
    assert all(re.fullmatch(r"aligning  \d+ s so far", line) for line in lines[1:])
    time.sleep(0.15)
    assert capsys.readouterr().err == "", "the clock goes on after the end"


def test_short_work_without_a_terminal_says_nothing_and_quiet_never_does(capsys):
    fed = federation("federated_lasso")
    with fs.progress():
        selector("federated_lasso").fit(fed)
    assert capsys.readouterr().err == ""
    with progress_bar.follow(quiet=True, every=0.01) as shown:
        shown.say("selecting")
        selector("federated_lasso").fit(federation("federated_lasso"))
    assert capsys.readouterr().err == ""


@pytest.fixture
def job(tmp_path):
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path / "job.toml"


def test_scripts_get_progress_as_json_from_alignment_to_folds(job):
    with job.open("a") as file:
        file.write('[evaluate]\nmodel = "knn"\npooled = true\nfolds = 2\n')
    arguments = ["run", str(job), "--log-json", "--set", "method.name=sffs"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stderr.splitlines()]
    asks = [event["operation"] for event in events if event["event"] == "ask"]
    assert asks[:2] == ["core.count_table", "core.begin_job"]
    assert asks[4:7] == ["align.seal_order", "align.blind_ids", "align.blind_again"]
    assert events.index(next(e for e in events if e.get("operation") == "align.blind_ids")) < events.index(
        {"event": "step", "text": "selecting by sffs"}
    ), "the alignment is told while it goes on, not afterwards"
    told = [event for event in events if event["event"] == "progress"]
    assert told[0]["what"] == "pass over the ids"
    assert (told[0]["done"], told[0]["of"], told[0]["eta"]) == (0, 2, None)
    last = [event for event in told if event["what"] == "fold"][-1]
    assert (last["done"], last["of"], last["eta"]) == (2, 2, 0.0)
    assert last["bytes"] > 0
    assert last["elapsed"] >= 0
    quiet = CliRunner().invoke(cli.app, [*arguments, "--quiet"])
    assert {json.loads(line)["event"] for line in quiet.stderr.splitlines()} == {"ask"}
