"""What partners are worth: the record that ``fs.value`` gives, in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pandas as pd

from fedsift.errors import DataError, ParameterError


@dataclass(frozen=True)
class Gain:
    """A gain and its 95 % interval (``None``: one fold says nothing of the spread)."""

    mean: float
    low: float | None
    high: float | None

    @property
    def seen(self) -> bool:
        """Whether the whole interval, as released, lies above nothing."""
        return self.low is not None and self.low > 0

    def words(self, metric: str) -> str:
        """``0.039 AUC (0.021 to 0.055)``."""
        between = "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.mean:.3f} {metric}{between}"


@dataclass(frozen=True)
class PartnerLine:
    """One partner: what it adds to the label holder alone, beyond all others, its share of the whole, and shuffled."""

    partner: str
    adds: Gain
    beyond: Gain
    share: Gain | None
    null: Gain | None

    def words(self, metric: str) -> str:
        if not self.adds.seen:
            text = f"{self.partner} adds nothing that we can see"
        else:
            text = f"{self.partner} adds {self.adds.words(metric)}"
            if not self.beyond.seen:
                text += ", but nothing that we can see beyond the other partners"
        if self.null is not None and self.null.seen:
            text += f". Careful: with its rows shuffled it adds {self.null.words(metric)}: do not trust these figures"
        return text


@dataclass(frozen=True)
class Offer:
    """A combination of partners: what it costs, what it gains over the label holder alone, and what it lets out.

    ``columns`` of partners take part: of each the coordinator opens numbers (weights and sums by bin). ``on_front``: no
    other combination is as good in all three (gain, price, columns) and better in one.
    """

    partners: tuple[str, ...]
    price: float
    gain: float
    columns: int = 0
    on_front: bool = False

    @property
    def for_one(self) -> float:
        """Gain a unit of price; infinite for what costs nothing."""
        return self.gain / self.price if self.price else float("inf") if self.gain > 0 else 0.0

    def beats(self, other: Offer) -> bool:
        """As good in all three, and better in one."""
        mine, theirs = (self.gain, -self.price, -self.columns), (other.gain, -other.price, -other.columns)
        return mine != theirs and all(a >= b for a, b in zip(mine, theirs))


@dataclass
class Valuation:
    """What each partner adds to the label holder's model, measured on rows that no model had seen.

    ``lines`` has a record a partner, ``scores`` the mean of each coalition, ``together`` the gain of all partners.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = (X[:, 0] + 2 * X[:, 2] > 0).astype(int)
    >>> valuation = fs.value(fs.Federation.split(X, y, parties=["bank", "shop"]), folds=3)
    >>> valuation.lines[0].adds.seen, list(valuation.scores)
    (True, ['alone', 'with shop'])
    """

    holder: str
    metric: str
    lines: list[PartnerLine]
    together: Gain
    scores: dict[str, float]
    settings: dict[str, Any]
    seconds: float = 0.0
    bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def measure(self) -> str:
        """The metric as people spell it."""
        return {"auc": "AUC", "r2": "R2"}.get(self.metric, self.metric)

    def sentences(self) -> list[str]:
        """The answer in words, a sentence a partner."""
        name = self.measure
        told = [f"{self.holder} alone: {name} {self.scores['alone']:.3f}."]
        told += [f"{line.words(name)}." for line in self.lines]
        if len(self.lines) > 1:
            what = f"add {self.together.words(name)}" if self.together.seen else "add nothing that we can see"
            who = "Both partners" if len(self.lines) == 2 else f"All {len(self.lines)} partners"
            told.append(f"{who} together {what}.")
        return told

    def offers(self, prices: Mapping[str, float]) -> list[Offer]:
        """Every combination that was measured, the cheapest first; ``prices`` by partner, 0 where none is named."""
        unknown = next((name for name in prices if name not in {*(line.partner for line in self.lines)}), None)
        if unknown is not None:
            raise ParameterError(f"prices names {unknown!r}, which is no partner of {self.holder!r}")
        found = []
        for name, score in self.scores.items():
            partners = tuple(name.removeprefix("with ").split(", ")) if name != "alone" else ()
            price = sum(prices.get(partner, 0.0) for partner in partners)
            columns = sum(self.settings.get("parties", {}).get(partner, 0) for partner in partners)
            found.append(Offer(partners, float(price), round(score - self.scores["alone"], 4), columns))
        found.sort(key=lambda offer: (offer.price, -offer.gain, offer.columns, len(offer.partners)))
        return [replace(offer, on_front=not any(other.beats(offer) for other in found)) for offer in found]

    def best_within(self, budget: float, prices: Mapping[str, float]) -> Offer:
        """The combination with the highest gain that the budget pays for; nobody, if nobody gains anything."""
        return max((o for o in self.offers(prices) if o.price <= budget), key=lambda o: (o.gain, -o.price))

    def frame(self) -> pd.DataFrame:
        """A line a partner: each gain with the ends of its interval."""
        rows = []
        for line in self.lines:
            row: dict[str, Any] = {"partner": line.partner}
            for what in ("adds", "beyond", "share", "null"):
                gain: Gain | None = getattr(line, what)
                if gain is not None:
                    row[what], row[f"{what}_from"], row[f"{what}_to"] = gain.mean, gain.low, gain.high
            rows.append(row)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"format": "fedsift-value", "words": self.sentences(), **asdict(self)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Valuation:
        """Out of what ``to_dict`` gave; something else is a ``DataError``."""

        def gain(found: Any) -> Gain | None:
            return None if found is None else Gain(**found)

        try:
            lines = [
                PartnerLine(line["partner"], Gain(**line["adds"]), Gain(**line["beyond"]), gain(line["share"]),
                            gain(line["null"]))
                for line in told["lines"]
            ]  # fmt: skip
            names = ("holder", "metric", "scores", "settings", "seconds", "bytes", "notes")
            rest = {name: told[name] for name in names}
            return cls(lines=lines, together=Gain(**told["together"]), **rest)
        except (KeyError, TypeError):
            raise DataError("this is no record of what partners are worth (fedsift value)") from None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__
