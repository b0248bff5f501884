"""The order of packages: each imports only packages that stand before it, and no cycle exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "interpress"
ORDER = """
    _version errors checks parallel progress registry tables files linalg graph onnx_files
    exported_programs formats labels ops spaces surgery dryrun pretrained data evaluation
    distillation calibration selection allocation method refit lowrank network budgets pipeline
    storage report result analysis api extend theory demo __init__ cli __main__
""".split()  # noqa: SIM905
FILES = sorted(ROOT.rglob("*.py"))
TREES = {file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
MODULES = {"/".join(file.with_suffix("").parts): tree for file, tree in TREES.items()}
every_module = pytest.mark.parametrize("module", MODULES)


def imports_of(module: str) -> Iterator[str]:
    """Yield the modules of this package that a module imports, anywhere in its code."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split(".")
            if package == "interpress":
                # the longest part of the name that is a file: a name in it, a module, a package
                paths = ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]
                candidates = [c for path in paths for c in (path, f"{path}/__init__".lstrip("/"))]
                yield next(candidate for candidate in candidates if candidate in MODULES)


def test_every_package_has_its_place_in_the_order() -> None:
    assert {module.split("/")[0] for module in MODULES} == set(ORDER)


@every_module
def test_imports_go_down(module: str) -> None:
    here = ORDER.index(module.split("/")[0])
    upward = [name for name in imports_of(module) if ORDER.index(name.split("/")[0]) > here]
    assert not upward, f"{module} imports {upward}, which stand above it"


def test_there_is_no_cycle() -> None:
    graph = {module: set(imports_of(module)) for module in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)  # raises CycleError


@every_module
def test_files_and_functions_are_short(module: str) -> None:
    lines = (ROOT / f"{module}.py").read_text(encoding="utf-8").count("\n")
    assert lines <= 320, f"{module} has {lines} lines"
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.FunctionDef):
            # the options of a command are its signature, and may be many
            first = node.body[0].lineno if module.startswith("cli/") else node.lineno
            length = (node.end_lineno or first) - first + 1
            assert length <= 60, f"{node.name} in {module} has {length} lines"


def test_the_top_folder_stays_small() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 14
