"""A wheel's smoke test on every Python that fedsift supports: `make matrix`.

For each of Python 3.10 to 3.13 that is found here, the wheel is built and installed into a new environment, away from
the source tree, and a job is run with it. Pythons that are absent are named: they were not tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
SMOKE = """
import importlib.metadata, sys
import numpy as np, pandas as pd
import fedsift as fs
from fedsift.crypto import kernel

assert "site-packages" in fs.__file__, fs.__file__
assert importlib.metadata.version("fedsift") == fs.__version__
generator = np.random.default_rng(0)
X = pd.DataFrame(generator.normal(size=(120, 6)), columns=list("abcdef"))
fitted = fs.GiniFilter(n_features=1).fit(fs.Federation.split(X, (X["e"] > 0).astype(int), parties=2))
assert fitted.selected_ == {"party1": [], "party2": ["e"]}, fitted.selected_
print(f"fedsift {fs.__version__} on Python {sys.version.split()[0]}; arithmetic kernel: {kernel.state()}")
"""


def find(version: str) -> str | None:
    """A Python of that version that starts: on the path, or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]
    for python in filter(None, candidates):
        done = subprocess.run([python, "-c", "import venv, ctypes"], capture_output=True, check=False)
        if done.returncode == 0:
            return python
    return None


def check(python: str, folder: Path) -> None:
    """Build, install, run; raises where a step fails."""

    def run(*command: str | Path) -> None:
        subprocess.run([str(part) for part in command], cwd=folder, check=True)

    run(python, "-m", "venv", "env")
    own = folder / "env" / "bin" / "python"
    wheel = build(own, folder)
    run(own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", wheel)
    run(own, "-c", SMOKE)
    run(folder / "env" / "bin" / "fedsift", "--version")


def build(own: Path, folder: Path) -> Path:
    """A wheel of this tree, built by the environment of ``own``."""
    source = folder / "source"  # a copy: what an earlier build left in the tree must not get into the wheel
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [str(own), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    made = [*pip, "wheel", "--no-deps", "--wheel-dir", "wheels", str(source)]
    subprocess.run(made, cwd=folder, check=True)
    return next((folder / "wheels").glob("fedsift-*.whl"))


def main() -> int:
    outcome: dict[str, str] = {}
    for version in VERSIONS:
        python = find(version)
        if python is None:
            outcome[version] = "absent: not tested"
            continue
        with tempfile.TemporaryDirectory(prefix=f"fedsift-{version}-") as folder:
            try:
                check(python, Path(folder))
                outcome[version] = "passed"
            except (subprocess.CalledProcessError, StopIteration) as error:
                outcome[version] = f"FAILED: {error}"
    print("\n".join(f"Python {version}: {what}" for version, what in outcome.items()))
    return int(any(what.startswith("FAILED") for what in outcome.values()) or "passed" not in outcome.values())


if __name__ == "__main__":
    sys.exit(main())
