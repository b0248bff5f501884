"""Tables fit 80 columns: names give way, numbers are whole."""

from __future__ import annotations

from interpress.tables.text_table import paragraph, text_table

LONG = "model.language_model.layers.17.mixture_of_experts.shared_expert.down_projection"


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]


def test_names_are_shortened_and_numbers_are_whole() -> None:
    numbers = ("140,737,488,355,328", "70,368,744,177,664", "50.0%")
    for full_width in (False, True):
        table = text_table(
            ("layer", "before", "after", "left"), [(LONG, *numbers)], full_width=full_width
        )
        assert max(map(len, table.splitlines())) <= 80
        ((name, *found),) = cells(table)
        assert tuple(found) == numbers
        assert name == "model…17…down_projection"


def test_a_table_whose_numbers_alone_are_wider_is_wider() -> None:
    numbers = ["1" * 30] * 3
    (row,) = cells(text_table(("layer", "a", "b", "c"), [("conv", *numbers)]))
    assert row == ["conv", *numbers]


def test_text_is_not_markup() -> None:
    table = text_table(("[b]", "n"), [("[red]x", "[1]")], title="[a]")
    assert cells(table) == [["[red]x", "[1]"]]
    assert "[a]" in table
    assert paragraph("[bold] " + "word " * 30).splitlines()[0].startswith("[bold] word")
    assert max(map(len, paragraph("word " * 30).splitlines())) <= 80
