"""The page of a valuation: what each partner adds, as sentences, a picture with intervals, and the table behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsift.core.files import write_atomic
from fedsift.evaluate.worth import Gain, Offer, Valuation
from fedsift.report import charts
from fedsift.report.markup import Html, duration, h, join, short, size, table
from fedsift.report.page import page, section
from fedsift.report.summary import versions

_KINDS = (
    ("adds", "to the label holder"),
    ("beyond", "beyond the others"),
    ("null", "rows shuffled"),
)


def picture(valuation: Valuation) -> Html:
    """A dot a gain, with its interval: green where a gain is seen, grey where the line reaches zero."""
    rows: list[tuple[str, float, float, str]] = []
    for line in valuation.lines:
        for what, words in _KINDS:
            gain: Gain | None = getattr(line, what)
            if gain is not None:
                reach = float("nan") if gain.high is None else gain.high - gain.mean
                rows.append((f"{line.partner}, {words}", gain.mean, reach, "good" if gain.seen else "off"))
    return charts.dots(rows, zero=True)


def front(valuation: Valuation, prices: Mapping[str, float]) -> Html:
    """Gain against price and against what is let out; combinations that another one beats in all are in the table."""
    offers, gain = valuation.offers(prices), f"gain in {valuation.measure}"
    best = [offer for offer in offers if offer.on_front]
    rows = [
        [_who(offer), f"{offer.price:g}", f"{offer.gain:.3f}", "–" if not offer.price else f"{offer.for_one:.2g}",
         str(offer.columns), "yes" if offer.on_front else ""]
        for offer in offers
    ]  # fmt: skip
    heads = ["partners", "price", gain, "gain for 1", "columns that let something out", "bargain"]
    paid = [(_who(offer), offer.price, offer.gain) for offer in best]
    told = [(_who(offer), float(offer.columns), offer.gain) for offer in best]
    return join(
        charts.points(paid, x_name="price", y_name=gain, log_x=False, x_shown=short),
        charts.points(told, x_name="partners' columns that take part", y_name=gain, log_x=False, x_shown=short),
        h("p", "Drawn are the bargains: combinations that no other one beats in gain, price and number of columns. Of "
          "every column that takes part the coordinator opens numbers; which, and what can be made of them, is in the "
          "ledger and in fedsift audit.", class_="quiet"),
        table(heads, rows, numeric=(1, 2, 3, 4)),
    )  # fmt: skip


def _who(offer: Offer) -> str:
    return " and ".join(offer.partners) or "nobody"


def value_page(valuation: Valuation, prices: Mapping[str, float] | None = None) -> str:
    """The whole page; with prices also what is gained for which price."""
    settings = valuation.settings
    answer = section("answer", "What each partner adds", h("ul", [h("li", text) for text in valuation.sentences()]))
    drawn = section(
        "picture", f"Gain in {valuation.measure}", picture(valuation),
        h("p", "Dots are means over the folds, lines 95 % intervals, paired over folds, corrected for their overlap. "
          "The mark is zero: where a line reaches it (grey) we see no gain. A partner whose rows were shuffled must "
          "show none.", class_="quiet"),
    )  # fmt: skip
    cells = [
        [line.partner, *(_shown(getattr(line, what)) for what in ("adds", "beyond", "share", "null"))]
        for line in valuation.lines
    ]
    heads = ["partner", "adds alone", "beyond the others", "share of the whole (Shapley)", "shuffled"]
    figures = section(
        "figures", "Figures", table(heads, cells), h("h3", "Models"),
        table(["model", valuation.measure], _models(valuation), numeric=(1,)),
    )  # fmt: skip
    how = section(
        "how", "How", h("p", f"{settings['rows']:,} rows that all parties share, {settings['folds']} folds. The "
                        "parties trained the models together, and each was measured on shares: nobody saw the score of "
                        "a row, and no party learned a weight of any model. "
                        f"{size(valuation.bytes)} sent in {duration(valuation.seconds)}."),
        h("p", ", ".join(f"{key} {value}" for key, value in versions().items()), class_="quiet"),
    )  # fmt: skip
    head = join(h("h1", "Is the partner worth it?"), h("p", valuation.sentences()[0], class_="lead"))
    parts = [("answer", "The answer", answer), ("picture", "Picture", drawn), ("figures", "Figures", figures),
             ("how", "How", how)]  # fmt: skip
    if prices:
        parts.insert(
            2, ("prices", "Prices", section("prices", "Gain against price and disclosure", front(valuation, prices)))
        )
    return page("fedsift: value", head, parts, "Made by fedsift. This file loads nothing from anywhere.")


def write_value(valuation: Valuation, path: str | Path, prices: Mapping[str, float] | None = None) -> Path:
    """HTML when the path ends in .html, text otherwise."""
    as_html = Path(path).suffix.lower() in (".html", ".htm")
    return write_atomic(path, value_page(valuation, prices) if as_html else f"{valuation}\n")


def _shown(gain: Gain | None) -> str:
    if gain is None:
        return "–"
    return f"{gain.mean:.3f}" + ("" if gain.low is None else f" ({gain.low:.3f} to {gain.high:.3f})")


def _models(valuation: Valuation) -> Sequence[Sequence[object]]:
    return [[f"{valuation.holder} {name}", f"{score:.3f}"] for name, score in valuation.scores.items()]
