"""The report's one style sheet and one script, inlined into each page."""

CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1a1f29; --quiet: #5b6472; --line: #dde1e8;
  --on: #1f6feb; --off: #c3cad5; --second: #d9730d; --good: #1a7f4b; --bad: #b3261e; --bad-page: #fdecea;
  --warm: #8a5a00; --warm-page: #fff5df; --info-page: #eaf2ff;
  --c0: #1f6feb; --c1: #d9730d; --c2: #1a7f4b; --c3: #a33bc2; --c4: #b3261e; --c5: #00838f; --c6: #7a6200;
  --c7: #5b6472;
  --control: #c3cad5; --ciphertext: #1a7f4b; --masked: #00838f; --pseudonymous: #8a63d2; --aggregate: #d9a400;
  --plain: #d2453c; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1319; --card: #181d26; --ink: #e6e9ef; --quiet: #9aa4b4;
  --line: #2c3440; --on: #5c9dff; --off: #475061; --second: #f0964a; --good: #4cc38a; --bad: #ff8a80;
  --bad-page: #3a1715; --warm: #f2c565; --warm-page: #33270c; --info-page: #14243f;
  --c0: #5c9dff; --c1: #f0964a; --c2: #4cc38a; --c3: #d48af0; --c4: #ff8a80; --c5: #4dd0e1; --c6: #e0c341;
  --c7: #9aa4b4;
  --control: #475061; --ciphertext: #4cc38a; --masked: #4dd0e1; --pseudonymous: #b59af5; --aggregate: #f2c94c;
  --plain: #ff8a80; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main, header, nav, footer { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 0 0 .3rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; }
a { color: var(--on); }
.lead { font-size: 1.08rem; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
nav { padding: .7rem 1rem; font-size: .95rem; }
nav a { margin-right: 1.1rem; white-space: nowrap; display: inline-block; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.2rem 1.3rem;
  margin: 0 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .7rem;
  margin: 1rem 0 .3rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.3rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: .85rem; }
.note { border-left: .3rem solid var(--bad); background: var(--bad-page); color: var(--bad); padding: .5rem .8rem;
  border-radius: .3rem; margin: .5rem 0; font-weight: 600; }
.note.mild { border-color: var(--warm); background: var(--warm-page); color: var(--warm); font-weight: 400; }
.note.info { border-color: var(--on); background: var(--info-page); color: var(--ink); font-weight: 400; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); gap: .8rem; margin: .7rem 0; }
.party { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.party h3 { margin: 0 0 .3rem; display: flex; justify-content: space-between; gap: .5rem; align-items: baseline; }
.party h3 span { font-weight: 400; color: var(--quiet); font-size: .85rem; white-space: nowrap; }
.chip { display: inline-block; background: var(--info-page); border-radius: .3rem; padding: .05rem .45rem;
  margin: .12rem .2rem .12rem 0; font-size: .92rem; }
.bars { list-style: none; padding: 0; margin: .5rem 0; }
.bars li { display: grid; grid-template-columns: minmax(6rem, 14rem) 1fr 5.5rem; gap: .6rem; align-items: center;
  padding: .1rem 0; }
.bar-name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: .92rem; }
.track { display: flex; height: .85rem; background: color-mix(in srgb, var(--off) 28%, transparent);
  border-radius: .2rem; overflow: hidden; }
.track.open { position: relative; overflow: visible; display: block; }
.bar.spread { position: absolute; height: .3rem; top: .275rem; opacity: .45; border-radius: .15rem; }
.bar.dot { position: absolute; width: .85rem; height: .85rem; border-radius: 50%; transform: translateX(-50%); }
.zero { position: absolute; left: 0; top: -.15rem; width: 1px; height: 1.15rem; background: var(--quiet); }
.ends { display: flex; justify-content: space-between; font-size: .8rem; }
h4 { font-size: .92rem; margin: .8rem 0 .2rem; color: var(--quiet); font-weight: 600; }
.bar { display: block; height: 100%; min-width: 1px; background: var(--off); }
.bar.on { background: var(--on); } .bar.second { background: var(--second); } .bar.good { background: var(--good); }
.bar.control { background: var(--control); } .bar.ciphertext { background: var(--ciphertext); }
.bar.masked { background: var(--masked); } .bar.pseudonymous { background: var(--pseudonymous); }
.bar.aggregate { background: var(--aggregate); } .bar.plain { background: var(--plain); }
.c0 { background: var(--c0); stroke: var(--c0); } .c1 { background: var(--c1); stroke: var(--c1); }
.c2 { background: var(--c2); stroke: var(--c2); } .c3 { background: var(--c3); stroke: var(--c3); }
.c4 { background: var(--c4); stroke: var(--c4); } .c5 { background: var(--c5); stroke: var(--c5); }
.c6 { background: var(--c6); stroke: var(--c6); } .c7 { background: var(--c7); stroke: var(--c7); }
.bars.long li { grid-template-columns: minmax(8rem, 27rem) 1fr 3.5rem; } .bars.long .bar-name { white-space: normal; }
.told { display: block; min-width: 13rem; }
.bars .value { text-align: right; font-variant-numeric: tabular-nums; font-size: .9rem; white-space: nowrap; }
.legend { font-size: .88rem; color: var(--quiet); }
.key { display: inline-flex; align-items: center; gap: .35rem; margin-right: 1rem; }
.key i { width: .8rem; height: .8rem; border-radius: .2rem; }
figure { margin: 0; }
svg { width: 100%; max-width: 40rem; height: auto; display: block; font-size: 12px; }
code { font: .88rem ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; } .dense svg { font-size: 10px; }
svg text { fill: var(--quiet); } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--line); } svg .axis { fill: var(--ink); }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; background: none; }
svg .faint { stroke: var(--off); stroke-width: 1; opacity: .7; }
svg .point { fill: var(--on); stroke: var(--card); } .bad { color: var(--bad); }
svg .level { stroke: var(--quiet); stroke-dasharray: 5 4; } svg .small { font-size: .85em; }
svg .cell { fill: var(--on); } svg .cell.below { fill: var(--second); }
svg.readers { font-size: 14px; margin: .4rem 0; } svg.readers text { fill: var(--ink); }
svg.readers rect { fill: var(--page); stroke: var(--quiet); } svg.readers rect.reader { stroke-dasharray: 5 3; }
svg .line.aggregate { stroke: var(--aggregate); } svg .tip.aggregate { fill: var(--aggregate); }
svg .line.pseudonymous { stroke: var(--pseudonymous); } svg .tip.pseudonymous { fill: var(--pseudonymous); }
svg .line.plain { stroke: var(--plain); } svg .tip.plain { fill: var(--plain); }
.whole .scroll { max-height: none; } table.whole td:first-child { min-width: 17rem; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0; font-size: .95rem; }
dl.facts dt { color: var(--quiet); } dl.facts dd { margin: 0; }
.scroll { overflow: auto; max-height: 30rem; border: 1px solid var(--line); border-radius: .4rem; }
.scroll:has(table.tall) { max-height: 50rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; }
tbody tr:last-child td { border-bottom: 0; }
thead th { position: sticky; top: 0; background: var(--card); z-index: 1; white-space: nowrap; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
th button::after { content: " \\2195"; color: var(--off); }
  th[aria-sort="ascending"] button::after { content: " \\2191"; }
th[aria-sort="descending"] button::after { content: " \\2193"; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.kept td { background: color-mix(in srgb, var(--on) 9%, transparent); }
tr.mine td { font-weight: 600; } tr.null td { color: var(--quiet); }
tr.hidden { display: none; }
.filter { font: inherit; padding: .35rem .6rem; width: min(22rem, 100%); border: 1px solid var(--line);
  border-radius: .4rem; background: var(--page); color: inherit; margin-right: .6rem; }
.count { color: var(--quiet); font-size: .88rem; }
.form { display: inline-block; border-radius: .3rem; padding: 0 .4rem; border: 1px solid currentColor;
  font-size: .85rem;
  white-space: nowrap; }
.form.control { color: var(--quiet); } .form.ciphertext { color: var(--ciphertext); }
.form.masked { color: var(--masked); } .form.pseudonymous { color: var(--pseudonymous); }
.form.aggregate { color: var(--warm); } .form.plain { color: var(--bad); }
dl.forms { display: grid; grid-template-columns: max-content 1fr max-content; gap: .35rem .8rem; margin: .6rem 0;
  align-items: baseline; }
dl.forms dt, dl.forms dd { margin: 0; }
.split { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 1.6rem; }
.names { columns: 14rem auto; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem;
  overflow: auto; font: .88rem/1.45 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; margin: .5rem 0; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--on); }
footer { color: var(--quiet); font-size: .85rem; padding-bottom: 2rem; }
.paper-only { display: none; }
@media (max-width: 40rem) { .told { min-width: 0; } section { padding: .9rem .8rem 1rem; } h1 { font-size: 1.4rem; }
  .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .bars li, .bars.long li { grid-template-columns: minmax(5rem, 10rem) 1fr 4.2rem; gap: .4rem; }
  .bar-name { white-space: normal; line-height: 1.25; font-size: .86rem; }
  pre { white-space: pre-wrap; } table { font-size: .86rem; }
  th, td { padding: .3rem .35rem; } td:not(.number) { overflow-wrap: anywhere; min-width: 3.4rem; }
  table.listed td:nth-child(2), td:first-child:not(.number) { min-width: 6.5rem; } table.listed { font-size: .82rem; }
  table.listed th, table.listed td { padding: .3rem .22rem; } table.listed td:nth-child(5) { min-width: 0; }
  .word { font-size: 0; } .word::before { content: "\\2713"; font-size: .86rem; }
  th:not([aria-sort]) button::after { content: ""; }
  dl.facts { grid-template-columns: 1fr; gap: 0; } dl.facts dd { margin-bottom: .35rem; }
  svg.readers { font-size: 14px; } table.whole td:first-child { min-width: 0; }
  dl.forms { grid-template-columns: max-content 1fr; } dl.forms .amount { grid-column: 2; margin-bottom: .4rem; }
  svg { font-size: 19px; } .heat svg { font-size: 12px; } .heat.dense svg { font-size: 10px; }
  table.stack tbody tr { display: block; padding: .5rem .3rem; border-bottom: 1px solid var(--line); }
  table.stack tr.hidden { display: none; }
  table.stack thead tr { display: flex; flex-wrap: wrap; gap: 0 .8rem; } table.stack thead th { border: 0; }
  table.stack td { display: grid; grid-template-columns: 6.5rem 1fr; border: 0; padding: .1rem .3rem; text-align: left;
    white-space: normal; justify-items: start; }
  table.stack td:empty { display: none; }
  table.stack td::before { content: attr(data-label); color: var(--quiet); } }
@media print { :root { --page: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; }
  body { font-size: 10.5pt; } nav, .screen-only { display: none; } .paper-only { display: block; }
  section { border: 0; padding: 0; margin: 0 0 1.2rem; } .scroll { max-height: none; overflow: visible; border: 0; }
  tr.beyond { display: none; } tr, figure, .party, .tile { break-inside: avoid; } h2, h3 { break-after: avoid; }
  th button::after { content: ""; } thead th { position: static; }
  .bar, .note, .track, .key i, svg, tr.kept td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

SCRIPT = """
"use strict";
for (const box of document.querySelectorAll("div.table")) {
  const body = box.querySelector("tbody"), rows = Array.from(body.rows);
  const value = (row, i) => {
    const cell = row.cells[i], key = cell.dataset.sort;
    return key === undefined ? cell.textContent.trim() : key;
  };
  box.querySelectorAll("thead button").forEach((button) => {
    const head = button.parentElement, i = head.cellIndex;
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
      box.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      rows.sort((a, b) => {
        const x = value(a, i), y = value(b, i);
        if (!numeric) return sign * x.localeCompare(y, undefined, { numeric: true });
        const m = parseFloat(x), n = parseFloat(y);  // what is no number comes last, either way
        return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : sign * (m - n);
      });
      body.append(...rows);
    });
  });
  const filter = box.querySelector("input.filter"), count = box.querySelector(".count");
  if (filter) filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase(), keep = words.every((word) => text.includes(word));
      row.classList.toggle("hidden", !keep);
      shown += keep;
    }
    count.textContent = words.length ? shown + " of " + rows.length : "";
  });
}
"""
