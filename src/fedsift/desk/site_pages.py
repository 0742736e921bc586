"""The pages of ``fedsift party desk``: what waits, what runs, what was, what was let out, and the rules."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedsift.core.job import Job
from fedsift.core.ledger import FORMS
from fedsift.desk import running
from fedsift.desk.frame import Frame, Place, at, facts, form, part, state, tiles
from fedsift.desk.leaving import gives_away, leaving, meaning
from fedsift.desk.office import JobHere, Office
from fedsift.desk.policy_editor import Proposal
from fedsift.desk.rehearsing import Played
from fedsift.jobs.cost import expected
from fedsift.methods import METHODS
from fedsift.report.markup import Html, h, join, name, plural, size, table
from fedsift.site.approval import APPROVED, SHORT, WAITING, Standing, stored_audit
from fedsift.site.decisions import Decision
from fedsift.site.journal_facts import what_of
from fedsift.site.journal_noise import spent
from fedsift.site.journal_rules import DELTA

PLACES = (Place("/", "Now"), Place("/history", "History"), Place("/journal", "Journal"), Place("/policy", "Rules"))
_SHOWN = 500  # lines of a ledger or journal on a page


class SitePages:
    """Pages from the files of one site; ``who`` is the person at the desk."""

    def __init__(self, office: Office, who: str, base: str):
        self.office, self.who, self._base = office, who, base
        self._frame = Frame(f"The desk of {office.name}", PLACES, base)

    # -- now -------------------------------------------------------------------------------------------------------

    def now(self) -> str:
        standings = self.office.approvals.standings()
        waiting = [each for each in standings if each.state == WAITING]
        at_work = [job for job in self.office.jobs() if job.running]
        return self._frame.page(
            "/", "Now",
            h("div", self._budgets(len(waiting), len(at_work)), self._waiting(waiting), self._running(at_work),
              data_live=True),
            lead=f"You decide here as {self.who}. {self._asked()}",
        )  # fmt: skip

    def _asked(self) -> str:
        words = {
            "policy": "The rules alone decide at this site: no job waits for a person.",
            "person": "A job that the rules allow waits for one person.",
            "two persons": "A job that the rules allow waits for two persons.",
        }
        return words[self.office.settings.policy.approval]

    def _budgets(self, waiting: int, running: int) -> Html:
        told = self.office.journal()
        bits = "no limit" if told.max_bits == "any" else f"{max(0.0, told.max_bits - told.most_bits_a_row):.4f}"
        left = max(0.0, told.total_epsilon - told.epsilon)
        return tiles([
            (f"{waiting}", "jobs wait"), (f"{running}", "jobs run"), (bits, "bits a row left"),
            (f"{left:.2f}", f"epsilon left (delta {DELTA:g})"),
        ])  # fmt: skip

    def _waiting(self, found: Sequence[Standing]) -> Html:
        rows = [
            [self._named(each), name(", ".join(each.request.main.parties)), at(each.request.asked), at(each.until),
             f"{each.missing}"]
            for each in found
        ]  # fmt: skip
        heads = ["job", "parties", "asked", "waits until", "persons to come"]
        shown = table(heads, rows, stack=True) if rows else h("p", "No job waits.", class_="quiet")
        return part("Jobs that wait for you", shown)

    def _named(self, standing: Standing) -> Html:
        request = standing.request
        return h("a", name(request.main.method), f" {request.id[:SHORT]}", href=f"{self._base}/request/{request.id}")

    def _running(self, found: Sequence[JobHere]) -> Html:
        rows = [
            [
                self._named_job(job),
                at(job.since),
                running.phase(job),
                name(running.how_far(job)),
                size(running.sent(job)),
            ]
            for job in found
        ]
        shown = table(["job", "since", "last step", "how far", "sent"], rows, stack=True) if rows else None
        return part("Jobs that run", shown or h("p", "No job runs.", class_="quiet"))

    def _named_job(self, job: JobHere) -> Html:
        return h("a", name(job.method), f" {job.id[:SHORT]}", href=f"{self._base}/job/{job.id}")

    # -- a request -------------------------------------------------------------------------------------------------

    def request(self, standing: Standing, played: Played | None, secret: str) -> str:
        request, main = standing.request, standing.request.main
        return self._frame.page(
            "/request", f"{main.method} {request.id[:SHORT]}",
            h("div",
              part("What is asked", self._what(standing)),
              part("What leaves this site", self._leaves(request.jobs, played)),
              part("What it costs", self._costs(standing)),
              part("What attacks could read", self._audit(main)),
              data_live=played is None),
            self._decide(standing, secret),
            part("The record", self._decisions(standing.decisions), self._contracts(request.jobs)),
            lead=meaning(main),
        )  # fmt: skip

    def _what(self, standing: Standing) -> Html:
        request, main = standing.request, standing.request.main
        role = "holds the label" if main.role_of(self.office.name) == "active" else "holds columns, not the label"
        who = {"neutral": "somebody who holds no rows"}
        shown = {key: value for key, value in main.parameters.items() if _is_changed(main, key, value)}
        return facts([
            ("state", state(standing.state)), ("parties", name(", ".join(main.parties))), ("this site", role),
            ("run by", name(who.get(main.coordinator, main.coordinator))),
            ("result for", name(who.get(main.submitter, main.submitter))),
            ("parameters", name(json.dumps(shown, ensure_ascii=False) if shown else "all as by default")),
            ("jobs", name(", ".join(job.method for job in request.jobs))),
            *([("design", name(json.dumps(main.design, ensure_ascii=False)))] if main.design else []),
            ("asked", f"{at(request.asked)}, for the last time {at(standing.last_asked)}"),
            ("waits until", at(standing.until)), ("table", f"{request.rows:,} rows when it was asked"),
        ])  # fmt: skip

    def _leaves(self, jobs: Sequence[Job], played: Played | None) -> Html:
        asked = None if played is None or played.problem else played.asked
        rows, forms = [], set()
        for job in jobs:
            for line in leaving(job, self.office.name):
                counts = None if asked is None else asked.get(job.hash.hex())
                if counts is None or line.operation in counts:
                    forms |= {line.form, line.opened_form}
                    opened = "the same" if line.opened == line.what else line.opened
                    row = [name(line.what), running.form_of(line.form), name(opened),
                           running.form_of(line.opened_form), name(line.readers)]  # fmt: skip
                    rows += [row] if row not in rows else []
        if played is None:
            note = "The job is being rehearsed on made-up rows; until then all that its method could ask for is shown."
        elif played.problem:
            note = f"All that the method could ask for, not this job alone: {played.problem}"
        else:
            note = "As the job asked for it in a rehearsal on made-up rows."
        heads = ["what leaves", "travels as", "what its reader can open", "readable as", "by whom"]
        own = next((gives_away(job) for job in jobs if job.method in METHODS), "")
        return join(
            h("p", note, class_="note mild" if played is None or played.problem else "note info"),
            [h("p", f"Your rules would refuse: {why}", class_="note") for why in (played.refused if played else ())],
            h("p", h("b", "The method says of itself: "), own) if own else None,
            table(heads, rows, stack=True) if rows else h("p", "Sizes and acknowledgements only.", class_="quiet"),
            facts([(running.form_of(key), FORMS[key]) for key in FORMS if key in forms]),
        )  # fmt: skip

    def _costs(self, standing: Standing) -> Html:
        main = standing.request.main
        told, (epsilon, _) = self.office.journal(), spent(main)
        noise = f"epsilon {epsilon:g} of noise" if epsilon else "no noise: its numbers are exact and count as bits"
        before = [job for job in self.office.jobs() if job.method == main.method and job.state == "finished"]
        runs = (
            f"{size(running.sent(before[0]))} sent in {running.took(before[0])} the last time, {at(before[0].since)}"
            if before
            else "not run here before"
        )
        limit = "no limit" if told.max_bits == "any" else f"{told.max_bits:g}"
        return facts([
            ("noise", noise),
            ("epsilon so far", f"{told.epsilon:.2f} of {told.total_epsilon:g} (delta {DELTA:g}), all jobs"),
            ("bits a row so far", f"{told.most_bits_a_row:.4f} of {limit}"), ("traffic", runs),
            ("to be expected", _expected(standing.request.jobs, main, standing.request.rows)),
        ])  # fmt: skip

    def _audit(self, main: Job) -> Html:
        found = stored_audit(self.office.approvals.audits, self.office.name, main)
        if found is None:
            return h("p", "There is no audit of this job here. Run ", h("code", "fedsift audit JOB.toml --party FILE"),
                     " before you decide: it attacks a rehearsal and prints what labels and columns could be read.",
                     class_="note mild")  # fmt: skip
        policy = self.office.settings.policy
        return join(
            h("p", f"The audit of {found.made[:10]} has {found.outcome}, on {found.rows:,} rows.",
              class_="note info" if found.outcome == "passed" else "note"),
            facts([
                ("labels, AUC (0.5 is a guess)", f"{found.label_auc:.3f}, your limit {policy.max_label_auc:g}"),
                ("columns, R2 (0 is nothing)", f"{found.column_r2:.3f}, your limit {policy.max_column_r2:g}"),
                ("complete", "yes" if found.complete else "no: a message has no attack yet"),
            ]),
        )  # fmt: skip

    def _decide(self, standing: Standing, secret: str) -> Html:
        request = standing.request
        if standing.state not in (WAITING, APPROVED, "refused") or not self.office.approvals.needed:
            return part("Decide", h("p", f"There is nothing to decide: {standing.state}.", class_="quiet"))
        more = f"; {plural(standing.missing, 'person')} still to come" if standing.missing else ""
        return part(
            "Decide",
            h("p", f"You decide as {self.who}{more}. Your decision is signed with this site's key and kept."),
            form(
                f"{self._base}/request/{request.id}/decide", secret,
                h("label", "Reason", for_="why"),
                h("textarea", id="why", name="why", rows="3", maxlength="1000"),
                h("label", h("input", type="checkbox", name="send", value="yes"),
                  "If refused, send the reason to whoever submitted the job", class_="box"),
                h("div", h("button", "Approve", name="word", value="approved", class_="yes"),
                  h("button", "Refuse", name="word", value="refused", class_="no"), class_="buttons"),
            ),
        )  # fmt: skip

    def _decisions(self, decisions: Sequence[Decision]) -> Html:
        rows = [[state(d.word), name(d.by), at(d.at), name(d.why), "sent" if d.sent else "", name(d.audit)]
                for d in decisions]  # fmt: skip
        if not rows:
            return h("p", "Nobody has decided yet.", class_="quiet")
        return table(["decision", "by", "at", "reason", "reason sent", "audit then"], rows, stack=True)

    def _contracts(self, jobs: Sequence[Job]) -> Html:
        shown = [
            h("pre", json.dumps(json.loads(job.canonical), indent=2, ensure_ascii=False), tabindex="0") for job in jobs
        ]
        hashes = [h("li", h("code", job.hash.hex()), " ", name(job.method)) for job in jobs]
        return join(
            h("h3", "Job hashes"), h("ul", hashes), h("details", h("summary", "The jobs as they were put"), shown)
        )

    # -- a job -----------------------------------------------------------------------------------------------------

    def job(self, job: JobHere, secret: str) -> str:
        lines = running.read_ledger(job.ledger)
        report = (job.folder / "report.html").is_file()
        return self._frame.page(
            "/job", f"{job.method} {job.id[:SHORT]}",
            h("div",
              part("How it stands", facts([
                  ("state", state(job.state)), ("since", at(job.since)), ("last word", at(job.at)),
                  ("last step", running.phase(job)), ("how far", name(running.how_far(job))),
                  ("sent", f"{size(running.sent(job))} in {plural(len(lines), 'message')}"),
                  ("why", name(job.why or "–")),
              ]), h("p", h("a", "Its report", href=f"{self._base}/job/{job.id}/report")) if report else None),
              part("What has left so far", running.steps(lines)),
              data_live=job.running),
            self._stop(job, secret) if job.running else None,
        )  # fmt: skip

    def _stop(self, job: JobHere, secret: str) -> Html:
        return part(
            "Stop it",
            h("p", "From that moment this site answers nothing more of this job; its process ends within seconds."),
            form(
                f"{self._base}/job/{job.id}/stop", secret,
                h("label", "Reason (stays here)", for_="why"),
                h("input", type="text", id="why", name="why", maxlength="1000"),
                h("div", h("button", "Stop this job", class_="no"), class_="buttons"),
            ),
        )  # fmt: skip

    # -- history, journal ------------------------------------------------------------------------------------------

    def history(self) -> str:
        asked = [
            [self._named(each), state(each.state), at(each.request.asked),
             name(", ".join(f"{d.word} by {d.by}" for d in each.decisions)),
             name("; ".join(d.why for d in each.decisions if d.why))]
            for each in self.office.approvals.standings(past=True)
        ]  # fmt: skip
        ran = [[self._named_job(job), state(job.state), at(job.since), size(running.sent(job)), name(job.why or "–")]
               for job in self.office.jobs()]  # fmt: skip
        none = h("p", "None yet.", class_="quiet")
        return self._frame.page(
            "/history", "History",
            part("What people were asked",
                 table(["job", "state", "asked", "decided", "reason"], asked, stack=True) if asked else none),
            part("What ran here", table(["job", "state", "since", "sent", "why"], ran, stack=True) if ran else none),
        )  # fmt: skip

    def journal(self) -> str:
        told = self.office.journal()
        smallest = "nothing exact was let out yet" if told.smallest_atom is None else f"{told.smallest_atom:,} persons"
        rows = [
            [at(line.at), name(line.job[:SHORT]), name(what_of(line)), name(line.readers), f"{line.rows:,}",
             f"{line.statistics:,}", f"{line.counted:.1f}", f"{line.epsilon:g}"]
            for line in reversed(told.lines[-_SHOWN:])
        ]  # fmt: skip
        heads = ["at", "job", "what", "who can read it", "rows", "numbers", "bits that count", "epsilon"]
        return self._frame.page(
            "/journal", "Journal",
            self._budgets(sum(s.state == WAITING for s in self.office.approvals.standings()),
                          sum(job.running for job in self.office.jobs())),
            part("What is left", facts([
                ("smallest group of rows told apart", f"{smallest}; min_rows = {told.min_rows}"),
                ("bits a row", f"at most {told.most_bits_a_row:.4f} so far; max_bits = {told.max_bits}"),
                ("noise", f"epsilon {told.epsilon:.2f} so far; total_epsilon = {told.total_epsilon:g}"),
                ("sides of cuts", f"{told.most_sides:.2f} for each bit of a row so far; max_sides = {told.max_sides}"),
                ("rows predicted alone or among few", f"{told.predicted_alone} within a day; "
                                                      f"few_rows_a_day = {told.few_rows_a_day}"),
            ])),
            part(f"{len(told.lines):,} lines",
                 table(heads, rows, numeric=(4, 5, 6, 7), stack=True) if rows else
                 h("p", "Nothing was let out yet.", class_="quiet")),
            lead="What this site has let out, over all jobs. Rows are known here by hashes; no value stands in it.",
        )  # fmt: skip

    # -- rules -----------------------------------------------------------------------------------------------------

    def policy(self, secret: str, proposal: Proposal | None = None, saved: bool = False) -> str:
        text = proposal.text if proposal is not None else self.office.path.read_text(encoding="utf-8-sig")
        return self._frame.page(
            "/policy", "Rules",
            part("What this text would do", _judged(proposal, saved)) if proposal is not None else None,
            part(
                "party.toml",
                h("p", "Only the rules under [policy] can be changed here."),
                form(f"{self._base}/policy", secret,
                     h("label", "The whole file", for_="text"),
                     h("textarea", text, id="text", name="text", class_="code", spellcheck="false"),
                     h("div", h("button", "Check", name="do", value="check"),
                       h("button", "Save", name="do", value="save", class_="yes"), class_="buttons")),
            ),
            lead="A job that is running keeps the rules that it began under.",
        )  # fmt: skip


def _judged(proposal: Proposal, saved: bool) -> Html:
    if proposal.problem:
        return h("p", proposal.problem, class_="note")
    changed = [h("li", h("code", rule), f": {before} becomes {after}") for rule, before, after in proposal.changed]
    refused = [[name(each.job.method), name(each.job.hash.hex()[:SHORT]), name(each.why)] for each in proposal.refused]
    return join(
        h("p", "Saved; the old file is kept beside." if saved else "Nothing is wrong with it.", class_="note info"),
        h("ul", changed) if changed else h("p", "No rule changes.", class_="quiet"),
        h("h3", "Earlier jobs that these rules would have refused"),
        table(["method", "job", "why"], refused, stack=True) if refused else h("p", "None.", class_="quiet"),
    )  # fmt: skip


def _is_changed(job: Job, key: str, value: object) -> bool:
    known = METHODS.get(job.method)
    return known is None or json.dumps(known().announcement()[1].get(key), default=str) != json.dumps(
        value, default=str
    )


def _expected(jobs: Sequence[Job], main: Job, rows: int) -> str:
    """What a run of this size costs at the method's default settings; its columns are those that matching announces."""
    told = next((found for found in (job.parameters.get("columns") for job in jobs) if isinstance(found, dict)), {})
    counts = [count for count in told.values() if isinstance(count, int)]
    cost = expected(main.method, rows=rows, columns=sum(counts), parties=len(main.parties)) if counts else None
    return "unknown: nobody has measured it, or its columns are not told" if cost is None else cost.sentence()
