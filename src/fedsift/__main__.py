"""``python -m fedsift``: the command line."""

from __future__ import annotations

from fedsift.cli.main import main

if __name__ == "__main__":
    main()
