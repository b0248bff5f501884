"""Configuration of the documentation; `make docs` builds it."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pictures  # noqa: E402

import interpress  # noqa: E402
import interpress.extend  # noqa: E402

project = "interpress"
author = "The interpress authors"
release = interpress.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
html_theme = "furo"
html_title = f"interpress {release}"
html_static_path = ["_static"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False  # the tables are enough; no page per name
default_role = "code"

pictures.draw_all(HERE / "_static")

listed = set(re.findall(r"\w+", (HERE / "api.md").read_text())) | {"__version__"}
for module in (interpress, interpress.extend):
    missing = [name for name in module.__all__ if name not in listed]
    if missing:
        raise ValueError(f"docs/api.md does not list {', '.join(missing)} of {module.__name__}")


def setup(app: Sphinx) -> None:
    """Undo what napoleon does to attributes: it would read "The network: ..." as a type."""
    written: dict[str, list[str]] = {}

    def remember(_app: Sphinx, _what: str, name: str, _obj: Any, _opts: Any, lines: Any) -> None:
        written[name] = list(lines)

    def restore(_app: Sphinx, what: str, name: str, _obj: Any, _opts: Any, lines: Any) -> None:
        if what in ("attribute", "property", "data"):
            lines[:] = written[name]

    app.connect("autodoc-process-docstring", remember, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", restore, priority=600)
