"""libsodium, through ``rbcl``, without the file that it leaves behind.

``rbcl`` writes the library into the temporary folder each time it is imported, loads it from there and leaves it:
2.8 MB a process. Once loaded it is in memory, so the file can go. (Windows holds on to it; there it stays.)
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import rbcl


def _remove_file() -> None:
    written: object = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
    if isinstance(written, str) and os.name != "nt":
        with contextlib.suppress(OSError):
            Path(written).unlink()


_remove_file()
sodium = rbcl
