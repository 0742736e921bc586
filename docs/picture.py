"""docs/report.png: the first screen of a real report, made by a run on the demo's tables.

python docs/picture.py        (needs Chromium, as tests/test_report_browser.py does)
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from browser import Browser, find_chromium  # noqa: E402

import fedsift as fs  # noqa: E402
from fedsift.evaluate.datasets import write_demo  # noqa: E402
from fedsift.report import write_report  # noqa: E402

WIDTH, HEIGHT = 1060, 1000


def make_report(folder: Path) -> Path:
    write_demo(folder)
    tables = {"hospital": folder / "hospital.csv", "lab": folder / "lab.csv", "insurer": folder / "insurer.parquet"}
    fed = fs.Federation.from_tables(tables, id="patient", label=("hospital", "malignant"))
    selector = fs.InformationValue(n_features=5)
    evaluation = fs.evaluate(fed, selector, model="linear", cv=3)
    return Path(write_report(selector.fit(fed), folder / "report.html", evaluation=evaluation))


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium here (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        page = make_report(Path(folder))
        browser = Browser(program)
        browser.open(page, width=WIDTH)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
        data = browser.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        browser.close()
    (HERE / "report.png").write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main()
