"""``python -m fedsift.deploy > project.yml``: the project template for ``nvflare provision``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.stdout.write(Path(__file__).with_name("project.yml").read_text(encoding="utf-8"))
