"""`timm:NAME`: the model, its weights and its images come from timm, and nothing is downloaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import Shell
from tests.fake_timm import FakeTimm, SmallNet, install

import interpress
from interpress.cli import timm_models
from interpress.cli.data_options import DataOptions

COMPRESS = (
    "compress", "timm:small_net", "--data", "photos", "--width", "0.5", "--out", "half",
    "--no-refit",
)  # fmt: skip


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> FakeTimm:
    return install(monkeypatch)


@pytest.fixture
def weights(shell: Shell) -> SmallNet:
    """A trained model in `small.safetensors`."""
    assert shell is not None
    torch.manual_seed(3)
    model = SmallNet().eval()
    save_file(dict(model.state_dict()), "small.safetensors")
    return model


def test_a_model_is_compressed_and_rebuilt_by_timm(
    timm: FakeTimm, weights: SmallNet, shell: Shell
) -> None:
    assert shell(*COMPRESS, "--weights", "small.safetensors") == 0, shell.err
    assert "timm rebuilds this network from half/pruned.txt and half/weights" in shell.out
    for part in ("bilinear", "mean 0.5 0.4 0.3", "std 0.2 0.3 0.4", "timm's description"):
        assert part in shell.err
    plan = json.loads(Path("half/plan.json").read_text())
    assert plan["preprocessing"]["size"] == 8
    assert plan["preprocessing"]["crop"] == 0.8
    assert plan["preprocessing"]["mean"] == [0.5, 0.4, 0.3]
    assert plan["preprocessing"]["interpolation"] == "bilinear"
    text = Path("half/pruned.txt").read_text()
    rebuilt = timm.models.adapt_model_from_string(SmallNet(), text)
    rebuilt.load_state_dict(load_file("half/weights.safetensors"))
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(rebuilt(images), interpress.load("half", SmallNet().eval())(images))
    assert rebuilt.stem.out_channels == 6
    assert timm.loaded is None, "the weights are those of --weights"


@pytest.mark.usefixtures("timm")
def test_what_timm_cannot_rebuild_is_said_and_the_result_is_kept(shell: Shell) -> None:
    torch.manual_seed(0)
    model = timm_models._timm("timm:x").create_model("hidden_net")
    save_file(dict(model.state_dict()), "hidden.safetensors")
    command = [word.replace("small_net", "hidden_net") for word in COMPRESS]
    assert shell(*command, "--weights", "hidden.safetensors") == 0, shell.err
    assert "pruned.txt was not written: timm cannot rebuild this network" in shell.out
    assert not Path("half/pruned.txt").exists()
    assert Path("half/weights.safetensors").is_file()


def test_weights_in_the_cache_of_torch(
    timm: FakeTimm, weights: SmallNet, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm.cards["small_net"].url = "https://example.org/small-1234.pth"
    monkeypatch.setattr(torch.hub, "get_dir", lambda: "hub")
    assert shell(*COMPRESS) == 2
    assert "the weights of timm:small_net are not on this disk; give --weights FILE" in shell.err
    assert "timm.create_model('small_net', pretrained=True)" in shell.err
    Path("hub/checkpoints").mkdir(parents=True)
    torch.save(weights.state_dict(), "hub/checkpoints/small-1234.pth")
    assert shell(*COMPRESS) == 0, shell.err
    assert timm.loaded == {"file": "hub/checkpoints/small-1234.pth", "source": ""}
    record = json.loads(Path("half/plan.json").read_text())
    assert record is not None
    smaller = interpress.load("half", weights)
    assert smaller(torch.zeros(1, 3, 8, 8)).shape == (1, 5)


def test_weights_in_the_cache_of_hugging_face(
    timm: FakeTimm, weights: SmallNet, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    torch.save(weights.state_dict(), "cached.bin")
    asked: list[tuple[str, str]] = []

    def cached(repository: str, name: str) -> str | None:
        asked.append((repository, name))
        return "cached.bin" if name == "pytorch_model.bin" else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    timm.cards["small_net"].hf_hub_id = "timm/small_net"
    assert shell(*COMPRESS, "--model-arg", "num_classes=3") == 0, shell.err
    names = ["model.safetensors", "pytorch_model.bin"]
    assert asked[:2] == [("timm/small_net", name) for name in names]
    assert timm.loaded == {"file": "cached.bin", "source": ""}
    assert "are for 5 classes, so a classifier of 3 is untrained" in shell.err


def test_a_model_without_weights_can_be_inspected(timm: FakeTimm, shell: Shell) -> None:
    assert shell("inspect", "timm:small_net", "--shape", "3,8,8") == 0, shell.err
    assert "stem" in shell.out
    assert shell(*COMPRESS) == 2
    assert shell.err.rstrip().endswith("give --weights FILE"), "there are none to download"
    assert timm.loaded is None


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("timm:small_met",), "timm has no model 'small_met'; similar names are small_net"),
        (("timm:small_net.laion",), "timm has no model 'small_net.laion'; similar names are "
                                    "small_net.in1k"),
        (("timm:xyz123",), "timm has no model 'xyz123'. timm.list_models() lists all"),
        (("timm:small_net", "--model-arg", "pretrained=true"), "weights are given by --weights"),
        (("timm:small_net", "--model-arg", "depth=3"), "timm cannot build small_net (TypeError"),
    ],
)  # fmt: skip
def test_names_and_arguments_that_are_wrong(
    words: tuple[str, ...], message: str, shell: Shell
) -> None:
    assert shell("inspect", *words, "--shape", "3,8,8") == 2
    assert message in " ".join(shell.err.split())


def test_without_timm(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    assert shell("inspect", "timm:small_net", "--shape", "3,8,8") == 2
    assert "timm:small_net needs timm" in shell.err
    assert "pip install 'interpress[timm]'" in shell.err


def test_a_timm_that_cannot_be_imported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert shell("inspect", "timm:small_net", "--shape", "3,8,8") == 2
    assert "cannot be imported (operator torchvision::nms does not exist)" in " ".join(
        shell.err.split()
    )


def prepared(**options: Any) -> DataOptions:
    return timm_models.prepared_like_timm(DataOptions(Path("photos"), **options), "timm:small_net")


def test_the_options_of_the_user_are_kept(timm: FakeTimm) -> None:
    timm.cards["small_net"].interpolation = "bicubic"
    from_card = prepared()
    assert (from_card.size, from_card.crop, from_card.mean) == (8, 0.8, "0.5,0.4,0.3")
    assert from_card.interpolation is None, "bicubic is the default"
    assert prepared(size=16).size == 16
    assert prepared(size=16).crop is None
    assert prepared(mean="0.1", std="0.2").mean == "0.1"
    with_preset = prepared(preset="imagenet")
    assert (with_preset.size, with_preset.mean) == (None, None)
    assert prepared(gray=True, mean="0.5", std="0.5").mean == "0.5"


def test_images_that_cannot_be_prepared(timm: FakeTimm, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(interpress.ArgumentError, match="give --mean and --std with --gray"):
        prepared(gray=True)
    timm.cards["small_net"].input_size = (3, 8, 16)
    with pytest.raises(interpress.ArgumentError, match=r"8x16 pixels, .* as squares; give --size"):
        prepared()
    timm.cards["small_net"].input_size = (3, 8, 8)
    timm.cards["small_net"].crop_mode = "border"
    prepared()
    assert "with 'border'; the centre is cropped" in " ".join(capsys.readouterr().err.split())
    timm.cards.clear()
    assert prepared().size is None
    assert "give --size, --mean and --std" in " ".join(capsys.readouterr().err.split())
