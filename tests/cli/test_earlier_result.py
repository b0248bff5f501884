"""Commands that compare with a saved result notice what makes the comparison unfair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import Shell

import interpress

MODEL = ("nets.py:small", "--weights", "w.safetensors")
PHOTOS = ("--data", "photos", "--size", "8", "--mean", "0.4,0.5,0.6", "--std", "0.2")


def compress(shell: Shell, *data: str) -> dict[str, object]:
    command = ("compress", *MODEL, *data, "--width", "0.5", "--method", "constant-id")
    assert shell(*command, "--out", "half") == 0, shell.err
    plan: dict[str, object] = json.loads(Path("half/plan.json").read_text())
    return plan


def evaluate(shell: Shell, *arguments: str, model: tuple[str, ...] = MODEL) -> str:
    """Return the warnings, without the one that these examples calibrated the network."""
    assert shell("evaluate", *model, *arguments, "--compressed", "half") == 0, shell.err
    return "".join(line for line in shell.err.splitlines(True) if "examples calibrated" not in line)


def test_the_preparation_of_images_is_recorded_and_compared(shell: Shell) -> None:
    assert compress(shell, *PHOTOS)["preprocessing"] == {
        "inputs": "images", "preset": None, "size": 8, "mean": [0.4, 0.5, 0.6],
        "std": [0.2, 0.2, 0.2], "color": "RGB", "crop": 1.0, "interpolation": "bicubic",
        "shape": [3, 8, 8],
    }  # fmt: skip
    assert evaluate(shell, *PHOTOS) == ""
    assert evaluate(shell, "--data", "photos", "--size", "8") == (
        "warning: half was made from examples with mean 0.4,0.5,0.6, std 0.2,0.2,0.2, but here "
        "they have mean 0,0,0, std 1,1,1; for the same inputs, give --mean 0.4,0.5,0.6 and --std "
        "0.2,0.2,0.2\n"
    )


def test_another_crop_and_interpolation_are_noticed(shell: Shell) -> None:
    crop = ("--crop", "0.95", "--interpolation", "bilinear")
    compress(shell, *PHOTOS, *crop)
    assert evaluate(shell, *PHOTOS, *crop) == ""
    assert evaluate(shell, *PHOTOS) == (
        "warning: half was made from examples with crop 0.95, interpolation bilinear, but here "
        "they have crop 1, interpolation bicubic; for the same inputs, give --crop 0.95 and "
        "--interpolation bilinear\n"
    )


def test_a_preset_is_the_remedy(shell: Shell) -> None:
    compress(shell, "--data", "photos", "--preset", "half")
    assert evaluate(shell, "--data", "photos").endswith("give --preset half\n")
    assert evaluate(shell, "--data", "photos", "--mean", "0.5", "--std", "0.5") == ""


def test_arrays_have_a_shape(shell: Shell) -> None:
    plan = compress(shell, "--data", "x.npz")
    assert plan["preprocessing"] == {"inputs": "arrays", "shape": [3, 8, 8]}
    assert evaluate(shell, "--data", "x.safetensors") == ""
    torch.manual_seed(0)
    save_file({"images": torch.randn(8, 3, 12, 12)}, "wide.safetensors")
    assert "shape 3,8,8, but here they have shape 3,12,12" in evaluate(
        shell, "--data", "wide.safetensors"
    )


def test_other_weights_of_the_same_architecture_are_noticed(shell: Shell) -> None:
    compress(shell, "--data", "x.npy")
    assert evaluate(shell, "--data", "x.npy") == ""
    weights = {name: tensor * 2 for name, tensor in load_file("w.safetensors").items()}
    save_file(weights, "other.safetensors")
    other = ("nets.py:small", "--weights", "other.safetensors")
    said = evaluate(shell, "--data", "x.npy", model=other)
    assert said.startswith("warning: half was made from other weights than those of other.safe")
    assert "--weights" in said
    arguments = ("distill", "half", *other, "--data", "x.npy", "--steps", "1", "--out", "more")
    assert shell(*arguments) == 2  # its network would be trained towards another one
    assert "other weights" in shell.err
    assert not Path("more").exists()


def test_python_records_what_the_user_says(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cli.conftest import small

    torch.manual_seed(0)
    images = torch.randn(60, 3, 8, 8)
    result = interpress.compress(small().eval(), images, width=0.5, method="constant-id")
    result.save(tmp_path / "silent")
    assert json.loads((tmp_path / "silent" / "plan.json").read_text())["preprocessing"] is None
    said = interpress.compress(
        small().eval(), images, width=0.5, method="constant-id",
        preprocessing={"mean": (0.4, 0.4, 0.4), "crop": "centre"},
    )  # fmt: skip
    said.save(tmp_path / "half")
    assert "give --mean 0.4,0.4,0.4" in evaluate(shell, "--data", "photos")
