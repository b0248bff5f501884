"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pictures  # noqa: E402

import interpress  # noqa: E402

project = "interpress"
author = "The interpress authors"
release = interpress.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"interpress {release}"
html_static_path = ["_static"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"

pictures.draw_all(HERE / "_static")
