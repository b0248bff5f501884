"""timm rebuilds a smaller network from its own kind of file, or it is said why it cannot."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.fake_timm import install
from torch import nn

import interpress
from interpress import ArgumentError, Method, Result, StorageError

QUICK = Method(allocation="marginal", refit=False)
IMAGES = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def compressed(model: nn.Module, **options: Any) -> Result:
    options = {"flops": 0.6, "method": QUICK, **options}
    return interpress.compress(model.eval(), IMAGES, **options)


def small(timm: Any, name: str = "small_net") -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name)
    return model


def test_timm_rebuilds_the_network(timm: Any, tmp_path: Path) -> None:
    result, folder = compressed(small(timm)), tmp_path / "timm"
    result.save_timm(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["pruned.txt", "weights.safetensors"]
    text = (folder / "pruned.txt").read_text()
    assert f"stem.weight:[{result.widths['stem']}, 3, 3, 3]" in text.split("***")

    rebuilt = timm.models.adapt_model_from_string(small(timm), text)
    rebuilt.load_state_dict(load_file(folder / "weights.safetensors"), strict=True)
    assert sum(p.numel() for p in rebuilt.parameters()) < sum(
        p.numel() for p in small(timm).parameters()
    )
    torch.testing.assert_close(rebuilt(IMAGES), result.model(IMAGES))


def test_weights_are_those_of_a_state_dict(timm: Any, tmp_path: Path) -> None:
    """timm loads files strictly, and buffers that a state dict omits would be unexpected."""
    model = small(timm)
    model.stem.register_buffer("grid", torch.arange(3.0), persistent=False)  # type: ignore[union-attr]
    result = compressed(model)
    result.save_timm(tmp_path / "timm")
    weights = load_file(tmp_path / "timm" / "weights.safetensors")
    assert weights.keys() == result.model.state_dict().keys()


@pytest.mark.parametrize("name", ["hidden_net", "grouped_net"])
def test_a_network_that_timm_cannot_rebuild_is_refused(
    name: str, timm: Any, tmp_path: Path
) -> None:
    result = compressed(small(timm, name), flops=None, width=0.5)
    with pytest.raises(ArgumentError, match=r"timm cannot rebuild this network .*result\.save"):
        result.save_timm(tmp_path / "timm")
    assert not list(tmp_path.iterdir())


def test_a_rebuilt_network_with_other_outputs_is_refused(
    timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapt = timm.models.adapt_model_from_string

    class Negated(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.load_state_dict, self.model = model.load_state_dict, model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -self.model(x)

    monkeypatch.setattr(
        timm.models, "adapt_model_from_string", lambda *given: Negated(adapt(*given))
    )
    with pytest.raises(ArgumentError, match="its outputs differ"):
        compressed(small(timm)).save_timm(tmp_path / "timm")


def test_a_network_of_another_package_is_refused(tmp_path: Path) -> None:
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())
    with pytest.raises(ArgumentError, match=r"Sequential is not a model of timm; use result.save"):
        compressed(plain, flops=0.9).save_timm(tmp_path / "timm")


def test_layers_that_became_two_are_refused(
    timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = compressed(small(timm))
    monkeypatch.setattr(Result, "ranks", {"wide": 3})
    with pytest.raises(ArgumentError, match=r"1 layers .* two thin ones.*lowrank=False"):
        result.save_timm(tmp_path / "timm")


def test_folders_are_replaced_only_if_asked_for(timm: Any, tmp_path: Path) -> None:
    result, folder = compressed(small(timm)), tmp_path / "timm"
    result.save_timm(folder)
    with pytest.raises(StorageError, match="exists; pass overwrite=True"):
        result.save_timm(folder)
    result.save_timm(folder, overwrite=True)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="holds other files"):
        result.save_timm(folder, overwrite=True)
    with pytest.raises(StorageError, match="is a file; give a folder"):
        result.save_timm(folder / "mine.txt")
    assert (folder / "mine.txt").read_text() == "mine"


def can_import(name: str) -> bool:
    if importlib.util.find_spec(name) is None:
        return False
    try:
        importlib.import_module(name)
    except Exception:  # its torchvision may not fit torch
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not can_import("timm"), reason="timm is not installed, or not importable")
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_100", "efficientnet_b0"])
def test_the_real_timm_rebuilds_its_models(name: str, tmp_path: Path) -> None:
    import timm
    from timm.models import adapt_model_from_string

    torch.manual_seed(0)
    images = torch.randn(40, 3, 64, 64)
    result = interpress.compress(timm.create_model(name).eval(), images, flops=0.7, method=QUICK)
    result.save_timm(tmp_path / "timm")
    text = (tmp_path / "timm" / "pruned.txt").read_text()
    rebuilt = adapt_model_from_string(timm.create_model(name), text)
    rebuilt.load_state_dict(load_file(tmp_path / "timm" / "weights.safetensors"), strict=True)
    torch.testing.assert_close(rebuilt(images[:2]), result.model(images[:2]))
