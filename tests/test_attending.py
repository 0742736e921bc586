"""What a site's process of a job does beside answering: stops are told and heard, and how far the job is in numbers."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest

from fedsift.core.transports.flare import Flare
from fedsift.deploy.attending import NAME, Attendant, Progress, read_progress
from fedsift.deploy.status import ENDED, FINISHED, RUNNING, read_status, write_status
from fedsift.desk.office import JobHere
from fedsift.desk.running import how_far, progress_words
from fedsift.errors import PolicyRefused
from fedsift.site import gate


class Ended(Exception):
    pass


class Stage:
    """A folder, a coordinator that answers as told, and a clock that does not tick."""

    def __init__(self, folder: Path, answers):
        write_status(folder, RUNNING)
        self.folder, self.answers, self.told, self.left, self.looks = folder, list(answers), [], [], 0
        self.aborted = False
        self.attendant = Attendant(folder, self.ask, lambda: self.aborted, self.left.append, self.sleep)

    def ask(self, stopped: bool):
        self.told.append(stopped)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.looks += 1
        if self.looks == 100:
            raise Ended


def test_a_stop_of_its_own_people_is_told_at_once_and_the_process_ends(tmp_path):
    stage = Stage(tmp_path, [])
    gate.stop(tmp_path, "Ann", "enough")
    stage.attendant.attend()
    assert (stage.told, stage.left) == ([True], [1])


def test_a_stop_elsewhere_ends_this_process_too(tmp_path):
    stage = Stage(tmp_path, [{"over": False}, {"over": True}])
    stage.attendant.attend()
    assert (stage.told, stage.left) == ([False, False], [1])
    assert "another site" in read_status(tmp_path)["why"]


@pytest.mark.parametrize("answer", [ConnectionError("gone"), None, b"over", {"over": "true"}, {"over": 1}])
def test_a_coordinator_that_does_not_answer_or_talks_nonsense_ends_nothing(tmp_path, answer):
    stage = Stage(tmp_path, [answer] * 1000)
    with pytest.raises(Ended):
        stage.attendant.attend()
    assert stage.left == []


def test_a_job_that_flare_has_ended_or_that_is_done_is_not_attended(tmp_path):
    stage = Stage(tmp_path, [])
    stage.attendant.end()
    stage.attendant.attend()
    assert stage.left == []
    write_status(tmp_path, FINISHED)
    stage.aborted = True
    stage.attendant = Attendant(tmp_path, stage.ask, lambda: True, stage.left.append, stage.sleep)
    stage.attendant.attend()
    assert (stage.left, read_status(tmp_path)["state"]) == ([], FINISHED)


def test_a_job_that_flare_has_ended_before_its_end_ends_this_process(tmp_path):
    stage = Stage(tmp_path, [])
    stage.aborted = True
    stage.attendant.attend()
    assert (stage.left, read_status(tmp_path)["state"]) == ([1], ENDED)


def test_how_far_it_is_is_kept_as_numbers_and_shown_in_the_sites_own_words(tmp_path):
    told = {"done": 2, "of": 200, "left": 240.0, "round": 61, "words": "<b>approve it</b>"}
    stage = Stage(tmp_path, [told] * 1000)
    with pytest.raises(Ended):
        stage.attendant.attend()
    assert read_progress(tmp_path) == Progress(2, 200, 240.0, 61)
    job = JobHere("id", tmp_path, RUNNING, "gini", "", "", "")
    assert how_far(job) == "turn 3 of 200, about 4 min left, round 61 (as who runs it counts)"
    assert "approve" not in (tmp_path / NAME).read_text()


@pytest.mark.parametrize("value", ["9" * 40, -1, True, None, [], {}, math.nan, math.inf, 10**30, "<script>"])
def test_nothing_but_numbers_of_a_sane_size_is_taken(tmp_path, value):
    told = Progress.told(dict.fromkeys(("done", "of", "left", "round"), value))
    assert all(0 <= number <= 10**9 for number in (told.done, told.of, told.round, told.left or 0))
    assert "script" not in progress_words(told)
    (tmp_path / NAME).write_text(json.dumps([1]))
    assert read_progress(tmp_path) is None


def test_nobody_waits_for_a_busy_party_when_another_ones_people_have_stopped_the_job():
    stopped: set[str] = set()
    free = threading.Event()

    def busy(data, limit):
        stopped.add("bank")
        free.wait(60)
        return b""

    try:
        with pytest.raises(PolicyRefused, match="stopped") as caught:
            Flare({"shop": busy}, stopped=stopped).exchange({"shop": b""}, None)
        assert (caught.value.rule, caught.value.party) == ("stop", "bank")
        with pytest.raises(PolicyRefused):
            Flare({}, stopped=stopped).pause(60.0)
    finally:
        free.set()
