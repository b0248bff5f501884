"""The demo does the main job and its table says what it should."""

import io
import re
from pathlib import Path

from rich.console import Console

from interpress import demo


def test_demo_preserves_more_than_magnitude_and_fits_80_columns(tmp_path: Path) -> None:
    output = io.StringIO()
    demo.main(Console(file=output, width=80), out=tmp_path / "demo")
    text = output.getvalue()
    rows = {
        name: [float(value) for value in re.findall(r"([\d.]+)%", line)]
        for name in ("original", "preserve", "iterative-id,", "largest weights")
        for line in text.splitlines()
        if f"│ {name} " in line
    }
    agreement = {name: values[0] for name, values in rows.items()}
    assert agreement["original"] == 100
    assert agreement["preserve"] >= 99
    assert agreement["iterative-id,"] >= 97
    assert agreement["largest weights"] < 95
    lines = [line for line in text.splitlines() if "Saved to" not in line]
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "demo" / "report.html").is_file()


def test_what_comes_with_the_package_is_small_and_real() -> None:
    assert sum(path.stat().st_size for path in demo.ASSETS.iterdir()) < 1_000_000
    data, model = demo.load_digits(), demo.network()
    images, labels = data.test
    assert len(data.calibration) + len(images) == 897
    assert (model(images).argmax(1) == labels).float().mean() > 0.97
