"""What mkdocs does for ``make docs`` beside copying docs/: the API reference, and the tables that pages link to.

The reference is made from ``fedsift.__all__`` and the docstrings; nobody writes it by hand. Pages link to tables as
``../benchmarks/results/X.md``, which is right in the repository; in the site the tables lie beside the pages.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
TABLES = "benchmarks/results"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the tables that a page links to, and the reference."""
    wanted = set()
    for page in (ROOT / "docs").glob("*.md"):
        wanted |= set(re.findall(rf"\.\./{TABLES}/([\w.-]+\.md)", page.read_text(encoding="utf-8")))
    for name in sorted(wanted):
        text = (ROOT / TABLES / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{TABLES}/{name}", content=text))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links to tables, as they lead in the site."""
    return markdown.replace(f"](../{TABLES}/", f"]({TABLES}/")


def reference() -> str:
    """Every public name, in the order of ``fedsift.__all__``."""
    lines = ["# Reference", "", "Everything that `import fedsift as fs` offers.", ""]
    for name in public_names():
        lines += [f"::: fedsift.{name}", ""]
    return "\n".join(lines)


def public_names() -> list[str]:
    """``fedsift.__all__``, read without importing the package (and its dependencies)."""
    tree = ast.parse((ROOT / "src" / "fedsift" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    raise LookupError("fedsift has no __all__")
