"""Configuration of the documentation; `make docs` builds it."""

import sys
from pathlib import Path

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

reference = (HERE / "api.md").read_text()
for module in (interpress, interpress.extend):
    missing = [name for name in module.__all__ if name not in reference and name != "__version__"]
    if missing:
        raise ValueError(f"docs/api.md does not list {', '.join(missing)} of {module.__name__}")
