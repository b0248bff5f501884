"""The names that extensions import."""

from __future__ import annotations

from pathlib import Path

from interpress import extend
from interpress.labels import contraction, labelling, movement, relations, trace
from interpress.ops import registry

HOMES = [contraction, labelling, movement, relations, trace, registry]
OPERATOR_NAMES = [
    "Labelling", "Labellings", "Op", "Operand", "Term", "Value", "align", "balance", "contract",
    "cut", "flops", "interleave", "join", "mix", "rule", "take", "uniform", "view", "without",
]  # fmt: skip
PAGE = Path(__file__).parents[1] / "docs" / "adding-an-operator.md"


def test_every_name_exists_and_is_described() -> None:
    for name in extend.__all__:
        assert hasattr(extend, name)
        assert f"`{name}`" in str(extend.__doc__)


def test_what_a_rule_needs_is_there() -> None:
    assert set(OPERATOR_NAMES) <= set(extend.__all__)
    for name in OPERATOR_NAMES:
        homes = [module for module in HOMES if hasattr(module, name)]
        assert any(getattr(extend, name) is getattr(module, name) for module in homes), name


def test_the_page_imports_only_public_modules() -> None:
    lines = [line.strip() for line in PAGE.read_text().splitlines()]
    imports = [line for line in lines if line.startswith(("import interpress", "from interpress"))]
    assert imports
    assert all(
        line == "import interpress" or line.startswith("from interpress.extend import ")
        for line in imports
    )
