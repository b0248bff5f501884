"""What a user of the installed package relies on."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import interpress

ROOT = Path(__file__).parents[1]


def test_public_names_exist_and_are_documented() -> None:
    for name in interpress.__all__:
        assert getattr(interpress, name) is not None
        if name != "__version__":
            assert getattr(interpress, name).__doc__


def test_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("interpress") == interpress.__version__


def test_typed_marker_ships() -> None:
    assert (Path(interpress.__file__).parent / "py.typed").exists()


def test_importing_does_not_pull_optional_packages() -> None:
    script = (
        "import sys, interpress; optional = 'sklearn', 'plotly', 'transformers', 'torchvision'; "
        "print([name for name in optional if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_documents_runs(document: Path) -> None:
    """Every Python block of a page, in order, in one namespace."""
    blocks = [part.split("```", 1)[0] for part in document.read_text().split("```python\n")[1:]]
    assert {"README.md", "linalg.md", "spaces.md"} <= {page.name for page in DOCUMENTS}
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document.name, "exec"), namespace)
