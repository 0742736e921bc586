"""fedsift with the lowest version of every package that it says it works with: `make bounds`.

The wheel is built and installed into a new environment of the oldest Python, each dependency at its lower bound (those
of the extras `report`, `excel` and `desk` too; torch and FLARE are pinned by what is tested). There the commands of the
first page run: a bound that is too low shows as a version that cannot be installed, or as a command that fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matrix

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
EXTRAS = ("report", "excel", "desk")
SMOKE = """
import pathlib, sys
import openpyxl, starlette, uvicorn
import fedsift as fs
from fedsift.desk import serve

sheet = openpyxl.Workbook()
for row in (["client", "visits"], *([f"C{i:04d}", i % 9] for i in range(40))):
    sheet.active.append(row)
sheet.save("sheet.xlsx")
assert fs.Table.read("sheet.xlsx", id="client").n_rows == 40
fed = fs.Federation.from_tables({"bank": "bank.csv", "shop": "shop.csv"}, id={"bank": "customer", "shop": "client"},
                                label=("bank", "default"))
model = fs.SecureBoostClassifier(n_estimators=2).fit(fed)
assert len(model.predict_by_id(fed)) == fed.n_rows
print("bounds: Python", sys.version.split()[0])
"""


def lowest() -> list[str]:
    """``name==bound`` of every dependency, for this Python or an older one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    found = [re.match(r"([\w.-]+)>=([\w.]+)", text) for text in told]
    return [f"{one.group(1)}=={one.group(2)}" for one in found if one is not None]


def check(python: str, folder: Path) -> None:
    def run(*command: str | Path) -> None:
        print("$", " ".join(Path(str(part)).name for part in command)[:120], flush=True)
        subprocess.run([str(part) for part in command], cwd=folder, check=True)

    run(python, "-m", "venv", "env")
    own, command = folder / "env" / "bin" / "python", folder / "env" / "bin" / "fedsift"
    wheel = matrix.build(own, folder)
    (folder / "lowest.txt").write_text("\n".join(lowest()) + "\n")
    pip = (own, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "-c", "lowest.txt", f"{wheel}[{','.join(EXTRAS)}]")
    for file in (ROOT / "examples" / "two_files").iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    run(own, "-c", SMOKE)
    for words in ("--version", "methods", "check job.toml", "run job.toml", "report result --out page.html",
                  "apply result/selection-shop.json shop.csv", "value job.toml --out value.html",
                  "train job.toml --out model", "reproduce result", "schema job",
                  "audit job.toml --out audit"):  # fmt: skip
        run(command, *words.split())


def main() -> int:
    python = next(filter(None, map(matrix.find, matrix.VERSIONS)), None)
    if python is None:
        print("no Python that fedsift supports was found")
        return 1
    with tempfile.TemporaryDirectory(prefix="fedsift-bounds-") as folder:
        try:
            check(python, Path(folder))
        except subprocess.CalledProcessError as error:
            print(f"FAILED at the lower bounds ({', '.join(lowest())}): {error}")
            return 1
    print(f"passed at the lower bounds: {', '.join(lowest())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
