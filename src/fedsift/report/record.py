"""The record of a run, typed: what ``summarize`` writes down as plain data, and what every rendering reads.

A run folder keeps the record as JSON; ``Report.read`` makes it typed again, ``Report.write`` makes it plain. The keys
of the JSON are the names of the fields, but for the two ends of a message (``from`` and ``to``, which Python keeps for
itself) and for the measures of a line of the evaluation, which lie in it side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedsift.core.files import plain
from fedsift.report.readings import Learned, Reading

FORMAT = "fedsift-report"
VERSION = 1
#: Anything that JSON holds: what a method leaves in its details.
Json = Any


@dataclass
class ScoredColumn:
    """A column with its score; ``place`` is where it stands in its party's table, ``folds`` how often it was chosen."""

    party: str
    feature: str
    score: float | None
    rank: int
    selected: bool
    place: int
    folds: int = 0
    p: float | None = None  # of the test that the column has nothing to do with the label
    q: float | None = None  # the false-discovery rate at which it would be called related


@dataclass(frozen=True)
class Margin:
    """The scores at the border between kept and left out, and the range of all scores."""

    last_kept: float | None
    first_left: float | None
    range: float | None


@dataclass
class Answer:
    """Which columns were kept. ``fits`` is in how many folds the choice was repeated; 0: it was not.

    ``test`` is what gave the p-values, ``noise_floor`` the score that the best column of noise reaches, ``copies`` are
    [party, column, party, column] where the second says the same as the first; ``leaks`` are [party, column] of those
    that tell the label nearly alone.
    """

    kept: int
    of: int
    selected: dict[str, list[str]]
    engineered: list[str]
    columns: dict[str, int]
    scores: list[ScoredColumn]
    margin: Margin | None
    fits: int = 0
    test: str = ""
    noise_floor: float | None = None
    copies: list[list[str]] = field(default_factory=list)
    leaks: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Method:
    """The method that was run, as it was run."""

    name: str
    module: str
    what: str
    paper: str
    leaks: str
    parameters: dict[str, Json]
    seed: Json
    call: str


@dataclass(frozen=True)
class QualityLine:
    """A method or a null in the evaluation: mean and spread of each measure."""

    method: str
    null: bool
    n_features: float | None
    jaccard: float | None
    mean: dict[str, float | None]
    spread: dict[str, float | None]

    @classmethod
    def read(cls, line: Mapping[str, Json], metrics: Sequence[str]) -> QualityLine:
        return cls(
            line["method"],
            line["null"],
            line["n_features"],
            line["jaccard"],
            {metric: line[metric] for metric in metrics},
            {metric: line[f"{metric}_std"] for metric in metrics},
        )


@dataclass(frozen=True)
class Quality:
    """How good the choice is beside its nulls. ``lines`` as ``Evaluation.frame`` has them."""

    settings: dict[str, Json]
    metrics: list[str]
    lines: list[dict[str, Json]]
    method: str | None
    verdict: str

    @property
    def read_lines(self) -> list[QualityLine]:
        return [QualityLine.read(line, self.metrics) for line in self.lines]


@dataclass
class PartyCost:
    party: str
    received: int = 0
    sent: int = 0
    messages: int = 0


@dataclass
class StepCost:
    operation: str
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class RoundCost:
    """A round, or several neighbouring ones (``to`` is the last of them)."""

    round: int
    operation: str
    bytes: int = 0
    to: int | None = None


@dataclass(frozen=True)
class Cost:
    """What it cost, in all and by party, step and round."""

    bytes: int
    messages: int
    rounds: int
    seconds: float
    by_party: list[PartyCost]
    by_operation: list[StepCost]
    by_round: list[RoundCost]


@dataclass
class FormCount:
    form: str
    meaning: str
    messages: int = 0
    bytes: int = 0


@dataclass
class Disclosure:
    """One kind of message: parties that did the same stand together."""

    what: str
    form: str
    learns: bool
    sealed: bool
    operation: str
    reader: str
    messages: int = 0
    bytes: int = 0
    senders: list[str] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)

    @property
    def only_instruction(self) -> bool:
        return self.form == "control" and not self.learns


@dataclass(frozen=True)
class Encryption:
    on: bool
    schemes: list[str]
    line: str
    ciphertexts: int = 0
    masked_bytes: int = 0


@dataclass(frozen=True)
class Disclosures:
    """Who learned what."""

    hidden_share: float | None
    encryption: Encryption
    notes: list[str]
    forms: list[FormCount]
    lines: list[Disclosure]
    sent_by_form: dict[str, dict[str, int]]


@dataclass(frozen=True)
class RunFacts:
    """What a reader asks first: whose label, how many rows, when, which job, which files, and how to do it again.

    ``label`` is its column's name where the reader of this report may know it, ``inputs`` digests of the files that
    were read here, ``commands`` what repeats a run of a job file; a run from Python is repeated by its call.
    """

    made: str = ""
    label: str = ""
    holders: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    shared: int | None = None
    job: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    coordinator: str = ""
    submitter: str = ""


@dataclass(frozen=True)
class Report:
    """All that a report shows, and nothing else."""

    party: str | None
    parties: list[str]
    method: Method
    federation: dict[str, Json]
    answer: Answer
    quality: Quality | None
    details: dict[str, Json]
    cost: Cost
    ledger: Disclosures
    versions: dict[str, str]
    run: RunFacts = field(default_factory=RunFacts)
    readings: list[Reading] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)

    def write(self) -> dict[str, Json]:
        """Plain data, as JSON has it."""
        record: dict[str, Json] = asdict(self)
        answer = record["answer"]
        if not self.answer.fits:
            del answer["fits"]
            for row in answer["scores"]:
                del row["folds"]
        for line in record["ledger"]["lines"]:
            line["from"], line["to"] = line.pop("senders"), line.pop("receivers")
        for turn in record["cost"]["by_round"]:
            if turn["to"] is None:
                del turn["to"]
        made: dict[str, Json] = plain({"format": FORMAT, "version": VERSION, **record})
        return made

    @classmethod
    def read(cls, record: Mapping[str, Json]) -> Report:
        """From what ``write`` made."""
        answer, cost, ledger = dict(record["answer"]), dict(record["cost"]), dict(record["ledger"])
        margin, quality = answer.pop("margin"), record["quality"]
        scores = [ScoredColumn(**row) for row in answer.pop("scores")]
        return cls(
            party=record["party"],
            parties=record["parties"],
            method=Method(**record["method"]),
            federation=record["federation"],
            answer=Answer(**answer, scores=scores, margin=None if margin is None else Margin(**margin)),
            quality=None if quality is None else Quality(**quality),
            details=record["details"],
            cost=Cost(
                by_party=[PartyCost(**row) for row in cost.pop("by_party")],
                by_operation=[StepCost(**row) for row in cost.pop("by_operation")],
                by_round=[RoundCost(**row) for row in cost.pop("by_round")],
                **cost,
            ),
            ledger=Disclosures(
                encryption=Encryption(**ledger.pop("encryption")),
                forms=[FormCount(**row) for row in ledger.pop("forms")],
                lines=[_disclosure(row) for row in ledger.pop("lines")],
                **ledger,
            ),
            versions=record["versions"],
            run=RunFacts(**record.get("run", {})),
            readings=[Reading(**row) for row in record.get("readings", [])],
            learned=[Learned(**row) for row in record.get("learned", [])],
        )


def _disclosure(row: Mapping[str, Json]) -> Disclosure:
    fields = dict(row)
    return Disclosure(senders=fields.pop("from"), receivers=fields.pop("to"), **fields)
