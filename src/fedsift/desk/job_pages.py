"""The pages of ``fedsift desk``: job files and parties, runs with their progress, results side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsift.core.terminal import rough
from fedsift.desk.frame import Frame, Place, at, facts, form, part, state
from fedsift.desk.job_runs import PLACES as WHERE
from fedsift.desk.job_runs import WORK, DeskRun, JobFile, JobRuns
from fedsift.report.markup import Html, h, join, name, short, size, table

PLACES = (Place("/", "Jobs"), Place("/compare", "Compare"))
_WORDS = {"run": "Select columns", "check": "Look without running", "value": "What each partner adds",
          "compare": "Compare methods"}  # fmt: skip
_ON = {"local": "in this process", "simulator": "in FLARE's simulator", "poc": "as FLARE processes here",
       "flare": "at the parties' own sites"}  # fmt: skip


@dataclass(frozen=True)
class Partner:
    """A party of the job files, and how it stands."""

    name: str
    state: str


class JobPages:
    """Pages from one folder of job files."""

    def __init__(self, runs: JobRuns, clients: Sequence[str] | None, base: str):
        """``clients`` are those that are connected to the FLARE server; ``None`` where nobody was asked."""
        self.runs, self._clients, self._base = runs, clients, base
        self._frame = Frame("fedsift desk", PLACES, base)

    def jobs(self, secret: str) -> str:
        jobs, runs = self.runs.jobs(), self.runs.runs()
        return self._frame.page(
            "/", "Jobs",
            part("Start a job", self._start(jobs, secret)),
            h("div", part("Runs", self._runs(runs)), part("Parties", self._parties(jobs, runs)), data_live=True),
            lead=f"Job files and runs in {self.runs.folder.name or 'this folder'}.",
        )  # fmt: skip

    def _start(self, jobs: Sequence[JobFile], secret: str) -> Html:
        sound = [job for job in jobs if not job.problem]
        wrong = [h("p", name(job.problem), class_="note mild") for job in jobs if job.problem]
        if not sound:
            return join(wrong, h("p", "There is no job file in this folder: fedsift init writes one.", class_="quiet"))
        where = [place for place in WHERE if place != "flare" or self.runs.kit is not None]
        return join(
            wrong,
            form(f"{self._base}/start", secret,
                 h("label", "Job file", for_="job"),
                 h("select", [h("option", f"{job.name} ({job.method}: {', '.join(job.parties)})", value=job.name)
                              for job in sound], id="job", name="job"),
                 h("label", "What to do", for_="work"),
                 h("select", [h("option", _WORDS[word], value=word) for word in WORK], id="work", name="work"),
                 h("label", "Where the parties are", for_="on"),
                 h("select", [h("option", _ON[place], value=place) for place in where], id="on", name="on"),
                 h("label", "Methods to compare, with commas between (for that alone)", for_="methods"),
                 h("input", type="text", id="methods", name="methods", maxlength="500", spellcheck="false"),
                 h("div", h("button", "Start", class_="yes"), class_="buttons")),
        )  # fmt: skip

    def _runs(self, runs: Sequence[DeskRun]) -> Html:
        rows = [
            [self._named(run), name(_what(run)), _ON[run.on],
             state(run.state), at(run.started), name(progress_words(run))]
            for run in runs
        ]  # fmt: skip
        heads = ["job", "what", "where", "state", "started", "how far"]
        return table(heads, rows, stack=True) if rows else h("p", "Nothing was started yet.", class_="quiet")

    def _named(self, run: DeskRun) -> Html:
        return h("a", name(run.job), f" {run.id[9:15]}", href=f"{self._base}/run/{run.id}")

    def _parties(self, jobs: Sequence[JobFile], runs: Sequence[DeskRun]) -> Html:
        rows = [[name(partner.name), state(partner.state)] for partner in self.partners(jobs, runs)]
        note = None if self._clients is not None else h(
            "p", "Without --kit nobody is asked who is connected to a FLARE server.", class_="quiet")  # fmt: skip
        return join(table(["party", "state"], rows) if rows else None, note)

    def partners(self, jobs: Sequence[JobFile], runs: Sequence[DeskRun]) -> list[Partner]:
        """Not connected, connected, waiting for approval, or running."""
        at_work = [run for run in runs if run.state == "running"]
        found = {party: self._connected(party) for job in jobs for party in job.parties}
        for run in at_work:
            words = progress_words(run)
            of_run = next((job.parties for job in jobs if job.name == run.job), ())
            for party in of_run:
                waits = "waiting for approval" in words and party in words.replace(",", " ").split()
                found[party] = "waiting for approval" if waits else "running"
        return [Partner(party, word) for party, word in found.items()]

    def _connected(self, party: str) -> str:
        if self._clients is None:
            return "not asked"
        return "connected" if party in self._clients else "not connected"

    # -- a run -----------------------------------------------------------------------------------------------------

    def run(self, run: DeskRun, secret: str) -> str:
        told, events = run.facts(), run.events()
        problem = next((str(event.get("text", "")) for event in reversed(events) if event.get("event") == "error"), "")
        return self._frame.page(
            "/run", f"{run.job} {run.id[9:15]}",
            h("div",
              part("How it stands",
                   facts([("state", state(run.state)), ("what", name(_what(run))), ("where", _ON[run.on]),
                          ("started", at(run.started)), ("how far", name(progress_words(run) or "–"))]),
                   h("p", name(problem), class_="note") if problem else None,
                   self._report(run)),
              part("Result", _result(told)) if told else None,
              part("Steps", _events(events)),
              part("Output", h("pre", run.output(), tabindex="0")) if run.output() else None,
              data_live=run.state == "running"),
            self._stop(run, secret) if run.state == "running" else None,
        )  # fmt: skip

    def _report(self, run: DeskRun) -> Html | None:
        there = h("p", h("a", "The report", href=f"{self._base}/run/{run.id}/report"))
        return there if run.report.is_file() else None

    def _stop(self, run: DeskRun, secret: str) -> Html:
        return part(
            "Stop it",
            h("p", "The command is interrupted; on FLARE the job is aborted at all sites."),
            form(
                f"{self._base}/run/{run.id}/stop",
                secret,
                h("div", h("button", "Stop this run", class_="no"), class_="buttons"),
            ),
        )

    # -- side by side ----------------------------------------------------------------------------------------------

    def compare(self) -> str:
        done = [(run, run.facts()) for run in self.runs.runs() if run.state == "finished"]
        rows = []
        for run, told in done:
            if told:
                kept, of = _kept(told)
                rows.append([
                    self._named(run), name(told.get("method", "")),
                    f"{kept} of {of}", short(told.get("rows")), _score(told), short(told.get("rounds")),
                    size(float(told.get("bytes", 0))), short(_seconds(told)),
                ])  # fmt: skip
        heads = ["run", "method", "columns kept", "rows", "score", "rounds", "sent", "seconds"]
        none = h("p", "No run has finished yet.", class_="quiet")
        return self._frame.page(
            "/compare", "Compare",
            part("Finished runs", table(heads, rows, numeric=(3, 5, 6, 7), stack=True) if rows else none),
            lead="Scores are comparable where rows and evaluation are the same; fedsift compare sees to that.",
        )  # fmt: skip


def _what(run: DeskRun) -> str:
    return f"{_WORDS[run.work]}: {run.methods.replace(',', ', ')}" if run.methods else _WORDS[run.work]


def progress_words(run: DeskRun) -> str:
    """The last thing that the command told of itself."""
    for event in reversed(run.events()):
        if event.get("event") == "step":
            return str(event.get("text", ""))
        if event.get("event") == "progress":
            what, eta = f"{event.get('what', '')} {event.get('done', '')} of {event.get('of', '')}", event.get("eta")
            left = f" (about {rough(float(eta))} left)" if isinstance(eta, (int, float)) else ""
            return f"{event.get('stage', '')}: {what}{left}" if event.get("what") else str(event.get("stage", ""))
        if event.get("event") == "error":
            return "failed"
    return ""


def _events(events: Sequence[Mapping[str, object]]) -> Html:
    """The stages, and of every step what it was and how many bytes it took."""
    rows = []
    for event in events:
        if event.get("event") == "step":
            rows.append([name(event.get("text", "")), "", ""])
        elif event.get("event") == "ask":
            rows.append([name(event.get("operation", "")), size(_number(event.get("bytes"))),
                         f"{_number(event.get('seconds')):.2f}"])  # fmt: skip
    shown = rows[-200:]
    return table(["step", "bytes", "seconds"], shown, numeric=(1, 2)) if shown else h("p", "None yet.", class_="quiet")


def _result(told: Mapping[str, object]) -> Html:
    selected = told.get("selected")
    kept = selected if isinstance(selected, dict) else {}
    cards = [
        h("div", h("h3", name(party)), [name(column, "chip") for column in columns[:60]], class_="party")
        for party, columns in kept.items()
        if isinstance(columns, list)
    ]
    return join(
        facts([("method", name(told.get("method", ""))), ("job hash", h("code", told.get("hash", ""))),
               ("rows", short(told.get("rows"))), ("sent", size(_number(told.get("bytes"))))]),
        h("div", cards, class_="cards"),
    )  # fmt: skip


def _kept(told: Mapping[str, object]) -> tuple[int, int]:
    parties = told.get("parties")
    each = parties.values() if isinstance(parties, dict) else []
    return sum(int(_number(p.get("selected"))) for p in each), sum(int(_number(p.get("columns"))) for p in each)


def _score(told: Mapping[str, object]) -> str:
    lines = told.get("evaluation")
    first = lines[0] if isinstance(lines, list) and lines and isinstance(lines[0], dict) else {}
    known = ("auc", "accuracy", "r2", "f1")
    metric = next((key for key in known if isinstance(first.get(key), (int, float))), None)
    return "–" if metric is None else f"{metric} {first[metric]:.3f}"


def _seconds(told: Mapping[str, object]) -> float:
    seconds = told.get("seconds")
    return sum(_number(value) for value in seconds.values()) if isinstance(seconds, dict) else 0.0


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
