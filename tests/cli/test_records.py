"""Records in the signature of a command become options, and come back as records."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from interpress.cli.records import expand_records


@dataclass(frozen=True)
class Box:
    path: Annotated[str, typer.Option("--box")]
    width: Annotated[int, typer.Option(help="How wide.")] = 3
    tags: Annotated[list[str] | None, typer.Option("--tag")] = None


def call(command: Any, *words: str) -> Any:
    """Run a command, and return what it returned."""
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value


def test_fields_are_options_and_the_command_gets_the_record() -> None:
    received = []

    @expand_records()
    def command(box: Box, loud: bool = False) -> None:
        """Help."""
        received.append((box, loud))

    call(command, "--box", "a", "--width", "5", "--loud")
    call(command, "--box", "a", "--tag", "x", "--tag", "y")
    assert received[0][0].path == "a"
    assert received[0][0].width == 5
    assert received[0][1] is True
    assert received[1][0].tags == ["x", "y"]
    assert command.__doc__ == "Help."


def test_defaults_and_fixed_values() -> None:
    received = []

    @expand_records(defaults={"width": 7}, fixed={"tags": ["t"]})
    def command(box: Box) -> None:
        received.append(box)

    call(command, "--box", "a")
    assert received == [Box("a", 7, ["t"])]
    names = command.__signature__.parameters  # type: ignore[attr-defined]
    assert list(names) == ["path", "width"]


def test_an_optional_record_is_none_without_its_required_fields() -> None:
    received = []

    @expand_records()
    def command(box: Box | None = None) -> None:
        received.append(box)

    call(command)
    call(command, "--width", "9")
    call(command, "--box", "b", "--width", "9")
    assert received[:2] == [None, None]
    assert received[2].width == 9


def test_keywords_reach_the_command() -> None:
    from inspect import Parameter

    received = []
    height = Parameter(
        "height",
        Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[float | None, typer.Option()],
    )

    @expand_records(keywords=[height])
    def command(box: Box, **more: float | None) -> None:
        received.append(more)

    call(command, "--box", "a", "--height", "0.5")
    assert received == [{"height": 0.5}]
