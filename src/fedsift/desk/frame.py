"""The frame of the desk's pages and the pieces that they are made of, in the report's style and by its markup.

A name that came from elsewhere (a job, a column, a party) can only become text: there is no way to write a tag but
``report.markup.h``, which escapes. The few lines of script bring a part of the page up to date, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsift.report.markup import Html, h, join
from fedsift.report.style import CSS, SCRIPT

STYLE = (
    CSS
    + """
@media (prefers-color-scheme: light) { :root { --on: #1257b8; --masked: #006c77; --pseudonymous: #6f42c1;
  --ciphertext: #146c3f; } }
nav a[aria-current] { color: var(--ink); font-weight: 600; text-decoration: none; }
.tiles { margin-bottom: 1rem; } .scroll { max-height: none; } table.stack td { column-gap: .6rem; }
.skip { position: absolute; left: -60rem; } .skip:focus { left: 1rem; top: .5rem; background: var(--card);
  padding: .4rem .8rem; z-index: 5; }
a:focus-visible, button:focus-visible, input:focus-visible, textarea:focus-visible, summary:focus-visible,
.scroll:focus-visible { outline: .2rem solid var(--on); outline-offset: .15rem; }
form { margin: .8rem 0 0; } label { display: block; margin: .6rem 0 .2rem; font-weight: 600; }
label.box { font-weight: 400; } label.box input { margin-right: .5rem; width: 1.1rem; height: 1.1rem; }
textarea, input[type="text"], select { font: inherit; width: 100%; max-width: 46rem; padding: .4rem .6rem;
  color: inherit; background: var(--page); border: 1px solid var(--quiet); border-radius: .4rem; }
textarea.code { font: .88rem/1.45 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; min-height: 24rem;
  max-width: 100%; white-space: pre; overflow: auto; }
.buttons { display: flex; flex-wrap: wrap; gap: .6rem; margin-top: .8rem; }
.buttons button, .button { font: inherit; font-weight: 600; padding: .5rem 1.1rem; border-radius: .4rem;
  cursor: pointer; border: 1px solid var(--quiet); background: var(--card); color: var(--ink); min-height: 2.75rem; }
.buttons button.yes { background: #1a6fd0; border-color: #1a6fd0; color: #fff; }
.buttons button.no { background: #b3261e; border-color: #b3261e; color: #fff; }
.state { display: inline-block; border-radius: .3rem; padding: 0 .45rem; border: 1px solid currentColor;
  font-size: .85rem; white-space: nowrap; }
.state.waiting { color: var(--warm); } .state.approved, .state.finished { color: var(--good); }
.state.refused, .state.failed { color: var(--bad); } .state.running { color: var(--on); }
@media (max-width: 40rem) { table.stack thead { position: absolute; left: -60rem; }
  .buttons button { flex: 1 1 8rem; } }
"""
)

#: The report's tables, and parts of the page that are fetched again every two seconds while it is looked at.
LIVE = (
    SCRIPT
    + """
const live = document.querySelector("[data-live]");
if (live) setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, { headers: { "accept": "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-live]");
    if (fresh && fresh.innerHTML !== live.innerHTML) live.replaceChildren(...fresh.childNodes);
  } catch (error) { /* the desk was ended: the page stays as it is */ }
}, 2000);
"""
)


@dataclass(frozen=True)
class Place:
    """A page of the menu."""

    path: str
    name: str


@dataclass(frozen=True)
class Frame:
    """What all pages of one desk share."""

    title: str
    places: tuple[Place, ...]
    base: str = ""  # what stands before every path (``guard.py``)

    def page(self, here: str, heading: str, *children: object, lead: object = None) -> str:
        menu = h(
            "nav",
            [h("a", place.name, href=self.base + place.path, aria_current="page" if place.path == here else None)
             for place in self.places],
            aria_label="Pages",
        )  # fmt: skip
        top = h(
            "head",
            h("meta", charset="utf-8"),
            h("meta", name="viewport", content="width=device-width, initial-scale=1"),
            h("title", f"{heading} - {self.title}"),
            Html('<link rel="stylesheet" href="/style.css"><link rel="icon" href="data:,">'),
        )
        body = h(
            "body",
            h("a", "To the page", href="#main", class_="skip"),
            h("header", h("p", self.title, class_="quiet"), h("h1", heading),
              h("p", lead, class_="lead") if lead else None),
            menu, h("main", *children, id="main"), h("script", src="/desk.js"),
        )  # fmt: skip
        return join(Html("<!doctype html>\n"), h("html", top, body, lang="en"), "\n")


def part(heading: str, *children: object, live: bool = False) -> Html:
    """A section of a page."""
    return h("section", h("h2", heading), *children, data_live=live)


def facts(pairs: Sequence[tuple[object, object]]) -> Html:
    return h("dl", [[h("dt", name), h("dd", value)] for name, value in pairs], class_="facts")


def state(word: str) -> Html:
    return h("span", word, class_=f"state {word if word.isalpha() else ''}")


def tiles(pairs: Sequence[tuple[str, str]]) -> Html:
    return h("div", [h("div", h("b", big), h("span", small), class_="tile") for big, small in pairs], class_="tiles")


def form(action: str, secret: str, *children: object) -> Html:
    return h("form", h("input", type="hidden", name="form", value=secret), *children, method="post", action=action)


def at(time: str) -> str:
    """A time for people."""
    return f"{time[:16].replace('T', ' ')} UTC" if time else "–"
