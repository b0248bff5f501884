"""What a user of the installed package relies on."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import interpress
from interpress.extend import ALLOCATIONS, BUDGETS, SELECTIONS

ROOT = Path(__file__).parents[1]


def printed(script: str) -> str:
    """Run a script in a new interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", interpress.__all__)
def test_public_names_exist_and_are_documented(name: str) -> None:
    value = getattr(interpress, name)
    assert value is not None
    assert name in dir(interpress)
    assert name == "__version__" or value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        interpress.nonsense  # noqa: B018


def test_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("interpress") == interpress.__version__


def test_typed_marker_ships() -> None:
    assert (Path(interpress.__file__).parent / "py.typed").exists()


def test_importing_interpress_does_not_import_torch() -> None:
    assert printed("import sys, interpress; print('torch' in sys.modules)") == "False"


def test_importing_everything_does_not_import_optional_packages() -> None:
    script = (
        "import sys, interpress\n"
        "for name in interpress.__all__: getattr(interpress, name)\n"
        "optional = 'sklearn', 'plotly', 'transformers', 'torchvision'\n"
        "print('torch' in sys.modules, [name for name in optional if name in sys.modules])"
    )
    assert printed(script) == "True []"


def test_help_needs_no_torch() -> None:
    script = (
        "import contextlib, io, sys; from interpress.cli.app import run\n"
        "text = io.StringIO()\n"
        "with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit): run(['--help'])\n"
        "print('compress' in text.getvalue(), 'torch' in sys.modules)"
    )
    assert printed(script) == "True False"


def test_type_checkers_see_the_names_that_are_imported_on_first_use() -> None:
    """Run the package's `__init__` as a type checker reads it and compare every name."""
    script = (
        "import runpy, typing, interpress\n"
        "lazy = {name: getattr(interpress, name) for name in interpress.__all__}\n"
        "typing.TYPE_CHECKING = True\n"
        "seen = runpy.run_path(interpress.__file__, run_name='interpress')\n"
        "print([name for name in lazy if seen.get(name) is not lazy[name]])"
    )
    assert printed(script) == "[]"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [page for page in PAGES if "```python" in page.read_text()]


def test_documents_with_code_are_found() -> None:
    assert {"README.md", "linalg.md", "spaces.md"} <= {page.name for page in DOCUMENTS}


@pytest.fixture
def without_new_parts() -> Iterator[None]:
    """Remove selections, allocations and budgets that a page registers."""
    registries = (SELECTIONS, ALLOCATIONS, BUDGETS)
    before = [set(registry) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry) - names:
            del registry._parts[name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.usefixtures("without_new_parts")
def test_code_in_documents_runs(document: Path) -> None:
    """Run every Python block of a page, in order, in one namespace."""
    blocks = [part.split("```", 1)[0] for part in document.read_text().split("```python\n")[1:]]
    namespace: dict[str, object] = {"__name__": "document"}
    with warnings.catch_warnings():  # of other packages, such as torch.onnx
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        for block in blocks:
            exec(compile(block, document.name, "exec"), namespace)
