"""Tables of parts: one file is one part, found by its name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from interpress import ArgumentError
from interpress.extend import ALLOCATIONS, BUDGETS, SELECTIONS
from interpress.registry import Registry

REGISTRIES = {"selection": SELECTIONS, "allocation": ALLOCATIONS, "budget": BUDGETS}
every = pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES.keys())


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A registry whose package has two files, `dark_red` and `blue`; `broken` registers nothing."""
    package = tmp_path / "paint" / "colours"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text(
        "from interpress.registry import Registry\nCOLOURS = Registry('colour', 'paint.colours')\n"
    )
    (package / "__init__.py").write_text("")
    for file, name in (("dark_red", "dark-red"), ("blue", "blue")):
        (package / f"{file}.py").write_text(
            f"from paint import COLOURS\nCOLOURS.register({name!r})('the colour {name}')\n"
        )
    (package / "broken.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in [name for name in sys.modules if name.split(".")[0] == "paint"]:
        monkeypatch.delitem(sys.modules, module)
    import paint  # type: ignore[import-not-found]

    return paint.COLOURS


@every
def test_names_are_the_names_of_files(registry: Registry[object]) -> None:
    package = importlib.import_module(registry._package)
    files = [path.stem for path in Path(package.__path__[0]).glob("*.py")]
    names = {file.replace("_", registry._separator) for file in files if file != "__init__"}
    assert set(registry) == names
    assert len(registry) == len(files) - 1
    for name in registry:
        assert name in registry
        assert registry[name] is registry[name]


def test_budgets_are_names_of_arguments_and_other_parts_have_dashes() -> None:
    assert all(name.isidentifier() for name in BUDGETS)
    assert not any("_" in name for name in [*SELECTIONS, *ALLOCATIONS])
    assert "bn-scale" in SELECTIONS


@every
def test_an_unknown_name_lists_the_choices(registry: Registry[object]) -> None:
    assert "luck" not in registry
    choices = ", ".join(registry)
    with pytest.raises(
        ArgumentError, match=f"{registry.kind}='luck' is not known; choose one of {choices}"
    ):
        registry["luck"]


def test_a_file_is_imported_when_its_part_is_first_used(colours: Registry[str]) -> None:
    assert list(colours) == ["blue", "broken", "dark-red"]
    assert "dark-red" in colours
    assert not any(name.startswith("paint.colours.") for name in sys.modules)
    assert colours["dark-red"] == "the colour dark-red"
    assert "paint.colours.dark_red" in sys.modules
    assert "paint.colours.blue" not in sys.modules


def test_parts_from_elsewhere_are_added_after_the_built_in_ones(colours: Registry[str]) -> None:
    decorated = colours.register("azure")("the colour azure")
    assert decorated == "the colour azure"
    assert colours["azure"] == "the colour azure"
    assert list(colours) == ["blue", "broken", "dark-red", "azure"]
    assert len(colours) == 4


def test_a_second_part_of_a_name_is_refused(colours: Registry[str]) -> None:
    colours.register("azure")("one")
    with pytest.raises(ValueError, match="the colour 'azure' is registered already"):
        colours.register("azure")("two")
    assert colours["azure"] == "one"
    for _ in range(2):  # before and after the file of the built-in part was imported
        with pytest.raises(ValueError, match="the colour 'blue' is registered already"):
            colours.register("blue")("another blue")
        assert colours["blue"] == "the colour blue"


def test_a_file_that_does_not_register_its_name_is_refused(colours: Registry[str]) -> None:
    with pytest.raises(ArgumentError, match="colour='broken' is not known"):
        colours["broken"]


def test_listing_imports_nothing() -> None:
    """The command line lists budgets in `--help` without importing torch."""
    script = (
        "import sys; from interpress.budgets.registry import BUDGETS; names = list(BUDGETS)\n"
        "rules = [m for m in sys.modules if m.startswith('interpress.budgets.rules.')]\n"
        "print(len(names), rules, 'torch' in sys.modules)\n"
        "[BUDGETS[name].meaning for name in names]; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{len(BUDGETS)} [] False", "False"]
