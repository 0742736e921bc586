"""``fedsift value``: what does each partner add, before anybody signs anything?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.cli.deploy import KitOption, On, OnOption
from fedsift.core.files import plain
from fedsift.core.terminal import size
from fedsift.deploy.run import value_on
from fedsift.evaluate.value import value as partners_value
from fedsift.evaluate.value_holder import ValueJob
from fedsift.evaluate.worth import Gain, Valuation
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.jobs.tracking import check_tracking, track_value
from fedsift.report.value import write_value


def value(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, metavar="N", help="Folds of the cross-validation.")] = 10,
    null: Annotated[bool, typer.Option(help="Also value each partner with shuffled rows: must add nothing.")] = True,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="For folds and shuffles.")] = 0,
    budget: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Name the best partners for it (price in the job).")
    ] = None,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="Words for people or JSON for scripts.")
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(help="Also write a page: FILE.html (or FILE.txt).", metavar="FILE")
    ] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="stderr has one JSON object a line.")] = False,
) -> None:
    """Say what each partner adds to the label holder's model, with intervals. Nothing is pooled.

    The label holder alone, with each partner, without each and with all, on the rows that all parties share.
    """
    loaded = load_job(job, set or [], files=on is not On.flare)
    if out is not None:
        runs.check_page(out)
    check_tracking(loaded)
    with console.progress(quiet, verbose, log_json) as progress:
        if on is On.local:
            fed = runs.prepare(loaded, progress.say).fed
            progress.say("valuing the partners")
            found = partners_value(fed, folds=folds, null=null, random_state=seed)
        else:
            work = ValueJob(folds=folds, null=null, random_state=seed)
            found = value_on(loaded, on.value, work, kit=kit, say=progress.say)
    prices = {name: price for name, price in loaded.whole_prices.items() if name != found.holder}
    if budget is None and loaded.settings.rules is not None:
        budget = loaded.settings.rules.budget
    if out is not None:
        write_value(found, out, prices)
    track_value(loaded, found, out)
    if format == "json":
        offers = [asdict(offer) for offer in found.offers(prices)]
        console.show(json.dumps(plain({**found.to_dict(), "offers": offers}), indent=2, ensure_ascii=False))
        return
    show_value(found)
    if prices:
        show_offers(found, prices, budget)
    if out is not None:
        console.show(f"\nwritten to {out}")


def show_value(found: Valuation) -> None:
    """The sentences, and the figures behind them."""
    for sentence in found.sentences():
        console.show(sentence)
    console.show()
    kinds = [kind for kind in ("adds", "beyond", "share", "null") if getattr(found.lines[0], kind) is not None]
    rows = [[line.partner, *(_shown(getattr(line, kind)) for kind in kinds)] for line in found.lines]
    titles = {"adds": "adds", "beyond": "beyond the others", "share": "share", "null": "shuffled"}
    console.table(rows, ["partner", *(titles[kind] for kind in kinds)], title=f"Gain in {found.measure} (95 %)")
    console.show(f"{size(found.bytes)} sent, {found.seconds:.0f} s; nothing was pooled")


def show_offers(found: Valuation, prices: dict[str, float], budget: float | None) -> None:
    """What is gained for which price, and the best for a budget."""
    rows = [
        [
            " and ".join(offer.partners) or "nobody",
            f"{offer.price:g}",
            f"{offer.gain:.3f}",
            "" if not offer.price else f"{offer.for_one:.2g}",
            str(offer.columns),
            "yes" if offer.on_front else "",
        ]
        for offer in found.offers(prices)
    ]
    console.table(
        rows,
        ["partners", "price", f"gain in {found.measure}", "gain for 1", "columns", "bargain"],
        title="Gain against price and columns that take part",
    )
    if budget is not None:
        best = found.best_within(budget, prices)
        who = " and ".join(best.partners) or "nobody"
        console.show(f"For {budget:g}: {who}, gain {best.gain:.3f} at a price of {best.price:g}")


def _shown(gain: Gain) -> str:
    return f"{gain.mean:.3f}" + ("" if gain.low is None else f" ({gain.low:.3f} to {gain.high:.3f})")
