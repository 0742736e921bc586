"""docs/report.png: the first screen of a real report, made by a run of the demo's job.

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

from fedsift.cli.demo import JOB_FILE  # noqa: E402
from fedsift.evaluate.datasets import write_demo  # noqa: E402
from fedsift.jobs import runs  # noqa: E402
from fedsift.jobs.job_file import load_job  # noqa: E402

WIDTH, HEIGHT = 1060, 1000


def make_report(folder: Path) -> Path:
    """The report of the demo's own job, scored as the demo scores it."""
    write_demo(folder)
    (folder / "job.toml").write_text(JOB_FILE, encoding="utf-8")
    job = load_job(folder / "job.toml", ["evaluate.model=linear", "evaluate.folds=3"])
    runs.write(runs.execute(job), job.out)
    return job.out / "report.html"


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
