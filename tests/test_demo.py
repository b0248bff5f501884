"""The demo does the main job and its table says what it should."""

import io
import re

from rich.console import Console

from interpress import demo


def test_demo_preserves_more_than_magnitude_and_fits_80_columns() -> None:
    output = io.StringIO()
    demo.main(Console(file=output, width=80))
    text = output.getvalue()
    rows = {
        name: [float(value) for value in re.findall(r"([\d.]+)%", line)]
        for name in ("original", "preserve", "iterative-id", "largest weights")
        for line in text.splitlines()
        if f"│ {name} " in line
    }
    agreement = {name: values[0] for name, values in rows.items()}
    assert agreement["original"] == 100
    assert agreement["preserve"] >= 99
    assert agreement["iterative-id"] >= 97
    assert agreement["largest weights"] < 95
    assert max(map(len, text.splitlines())) <= 80


def test_the_parts_share_no_image() -> None:
    data = demo.load_digits()
    assert len(data.train[0]) + len(data.calibration) + len(data.test[0]) == 1797
