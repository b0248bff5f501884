"""The demo does the main job and its table says what it should."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from interpress import agreement, compress, demo

README = Path(__file__).parents[1] / "README.md"


def columns_of(text: str, name: str) -> list[float]:
    """Return the numbers in the row of a network, without its run time."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"│ {name} "))
    numbers = [float(re.findall(r"[\d.]+", cell)[0]) for cell in line.split("│")[2:-1]]
    return numbers[:2] + numbers[3:]


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
    readme = README.read_text()
    for name in ("original", "preserve (default)", "iterative-id, paper"):
        shown, measured = columns_of(readme, name), columns_of(text, name)
        assert shown[:2] == pytest.approx(measured[:2], rel=0.05), name  # sizes
        assert shown[2] == pytest.approx(measured[2], abs=1), name  # agreement
        assert shown[3] == pytest.approx(measured[3], rel=0.5, abs=0.005), name  # divergence
    lines = [line for line in text.splitlines() if "Saved to" not in line]
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "demo" / "report.html").is_file()


def test_what_comes_with_the_package_is_small_and_real() -> None:
    assert sum(path.stat().st_size for path in demo.ASSETS.iterdir()) < 1_000_000
    data, model = demo.load_digits(), demo.network()
    images, labels = data.test
    assert len(data.calibration) + len(images) == 897
    assert (model(images).argmax(1) == labels).float().mean() > 0.97


def test_the_first_example_of_the_readme_prints_what_it_says() -> None:
    (shown,) = re.findall(
        r"^# ([\d.]+)% of (\d+) decisions .*KL ([\d.]+)", README.read_text(), re.M
    )
    model, digits = demo.network(), demo.load_digits()
    result = compress(model, digits.calibration, flops=0.5, progress=False)
    found = agreement(model, result.model, digits.test)
    assert found.agreement is not None
    assert float(shown[0]) == pytest.approx(100 * found.agreement, abs=0.5)
    assert int(shown[1]) == found.decisions
    assert float(shown[2]) == pytest.approx(found.divergence, rel=0.5)
