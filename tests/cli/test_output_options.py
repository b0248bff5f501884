"""`--output` and `--kind` become arguments of the Python functions."""

import pytest

from interpress.cli.output_options import OutputOptions


@pytest.mark.parametrize(
    ("text", "output"),
    [(None, None), ("logits", "logits"), ("heads.box", "heads.box"), ("0", 0), ("-1", -1),
     ("[0][1]", "[0][1]")],
)  # fmt: skip
def test_numbers_are_indices(text: str | None, output: object) -> None:
    assert OutputOptions(text).arguments() == {"output": output, "kind": "auto"}
    assert OutputOptions(text, "binary").arguments()["kind"] == "binary"
