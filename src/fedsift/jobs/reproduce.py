"""Run a job again and show that it gives the same answer: by hash of the job, of its files, and by versions.

``run.json`` says what a run was made of: the job file, what ``--set`` changed, a digest of each party's file, versions.
Where all of that is the same the answer has to be the same: every draw follows from ``random_state`` and the parties'
own secrets, and rows are matched by their ids, so that not even the order of a file counts. Scores that are read from
shares carry the rounding of fresh masks; a method says how far they may differ (``Selector.repeats_within``).

The digests are of files that lay beside the job file. Where parties run at their own sites nothing of that kind leaves
them, and there is nothing to compare with: each site's journal has the job's hash.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsift.errors import DataError
from fedsift.jobs.job_file import Job, load_job
from fedsift.jobs.origin import origin
from fedsift.jobs.runs import Run, summary
from fedsift.select.selection import Selection

RUN = "run.json"


@dataclass(frozen=True)
class Line:
    """One thing that was compared."""

    what: str
    same: bool
    said: str


@dataclass(frozen=True)
class Reproduction:
    """An earlier run beside the same job run now."""

    lines: tuple[Line, ...]

    @property
    def same(self) -> bool:
        """Whether the answer is the same; versions may differ without it."""
        return all(line.same for line in self.lines if line.what in ("selection", "scores"))

    def sentence(self) -> str:
        """The result in words, with what may be the reason of a difference."""
        if self.same:
            return "The run repeats: the same columns, the same scores."
        reasons = [line.what for line in self.lines if not line.same and line.what not in ("selection", "scores")]
        because = f" Since the first run there changed: {', '.join(reasons)}." if reasons else ""
        return f"The run does not repeat.{because}"


def earlier(folder: Path) -> dict[str, Any]:
    """The facts of a run folder."""
    try:
        facts = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except OSError:
        raise DataError(f"{folder} is no result of fedsift run: it has no {RUN}") from None
    except ValueError:
        raise DataError(f"{folder / RUN} is damaged: it is no JSON") from None
    if not isinstance(facts, dict) or facts.get("format") != "fedsift-run":
        raise DataError(f"{folder / RUN} was not written by fedsift run")
    if facts.get("origin") is None:
        raise DataError(
            f"{folder} does not say which files it was made of: it was run between sites, or by an older fedsift"
        )
    return facts


def job_of(folder: Path, facts: Mapping[str, Any], job: Path | None) -> Job:
    """The job of an earlier run: the file that it names, or another place of it."""
    path = job or folder / facts["origin"]["file"]
    if not path.is_file():
        raise DataError(f"there is no job file {os.path.normpath(path)}: say where it lies now with --job FILE")
    return load_job(Path(os.path.normpath(path)), facts["origin"]["set"])


def compared(folder: Path, facts: Mapping[str, Any], run: Run) -> Reproduction:
    """The earlier run in ``folder``, whose ``run.json`` says ``facts``, beside the same job run now."""
    before, now = Selection.load(folder / "selection.json"), run.selection
    then, inputs = facts["origin"]["inputs"], origin(run.job, folder)["inputs"]
    files = sorted(name for name in then | inputs if then.get(name) != inputs.get(name))
    again = summary(run)
    versions = [f"{name} {version} then" for name, version in facts["versions"].items()
                if again["versions"].get(name) != version]  # fmt: skip
    moved, within = _moved(before, now), run.selector.repeats_within
    kept = before.selected == now.selected and before.engineered == now.engineered
    return Reproduction(
        (
            Line("job", facts["hash"] == again["hash"], f"{facts['hash'][:12]} then, {again['hash'][:12]} now"),
            Line("files", not files, f"other bytes at {', '.join(files)}" if files else "the same bytes"),
            Line("versions", not versions, ", ".join(versions) or "the same"),
            Line("selection", kept, f"{before.n_selected} columns then, {now.n_selected} now"),
            Line("scores", moved <= within, f"moved by {moved:.1g} of their size at most; {within:.1g} is allowed"),
        )
    )


def _moved(before: Selection, now: Selection) -> float:
    """By how much of its size the score moved that moved most; infinite where the columns are others."""
    first, second = ({(row["party"], row["feature"]): row["score"] for row in each.scores} for each in (before, now))
    if first.keys() != second.keys():
        return float("inf")
    if not first:
        return 0.0
    a, b = (np.array([scores[key] for key in first], dtype=float) for scores in (first, second))
    least = 1e-6 * float(np.max(np.abs(a))) or 1.0  # what is nothing beside the others may move as it likes
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(a), least)))
