"""What a user of the installed package relies on."""

import importlib.metadata
import subprocess
import sys
import time
import warnings
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
    namespace: dict[str, object] = {"__name__": "document"}
    with warnings.catch_warnings():  # other packages' own, as of torch.onnx
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        for block in blocks:
            exec(compile(block, document.name, "exec"), namespace)


def test_importing_is_cheap_and_help_needs_no_torch() -> None:
    def seconds(code: str) -> float:
        times = []
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    assert seconds("import torch, interpress") < 1.5 * seconds("import torch")
    script = (
        "import sys; from interpress.cli.app import run\n"
        "try: run(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules, 'help imports torch'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_lazy_names_are_those_that_type_checkers_see() -> None:
    text = (ROOT / "src" / "interpress" / "__init__.py").read_text()
    for name in interpress.__all__:
        assert name == "__version__" or f"import {name} as {name}" in text
    assert callable(interpress.agreement)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        interpress.nonsense  # noqa: B018
