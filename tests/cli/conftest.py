"""A user's folder: a file that builds a network, its weights, and data files of every kind."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from interpress.cli.app import run

NETS = """
import torch
from torch import nn

NUMBER = 3

def small(classes=4, channels=3):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(24, classes),
    )

def broken():
    raise RuntimeError("no such thing")

def exits():
    raise SystemExit(0)

def prints():
    print("hello")
    return small()

def not_a_network():
    return 7

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))

class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = small()[:-1]
        self.classes, self.box = nn.Linear(24, 6), nn.Linear(24, 4)

    def forward(self, x):
        h = self.body(x)
        return {"box": self.box(h), "classes": self.classes(h)}

def two_heads():
    torch.manual_seed(0)
    return TwoHeads()

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = small()

    def forward(self, x, scale, shift=None):
        scores = self.body(x) * scale[:, None]
        return scores if shift is None else scores + shift

def scaled():
    torch.manual_seed(0)
    return Scaled()

def nan():
    class Nan(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

        def forward(self, x):
            return self.b(self.a(x).mean((2, 3))) * float("nan")
    return Nan()
"""


def small() -> nn.Module:
    namespace: dict[str, object] = {}
    exec(NETS, namespace)
    torch.manual_seed(0)
    return namespace["small"]()  # type: ignore[operator, no-any-return]


def picture(seed: int, size: int = 8) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with everything that the commands read."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "nets.py").write_text(NETS)
    model = small()
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "w.safetensors")
    torch.save(model.state_dict(), folder / "w.pt")
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, folder / "nested.pt")
    images = torch.randn(120, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = model.eval()(images).argmax(1)
    save_file({"images": images, "labels": labels}, folder / "x.safetensors")
    np.save(folder / "x.npy", images.numpy())
    np.savez(folder / "x.npz", images=images.numpy(), label=labels.numpy())
    for name in ("photos", "classes/cat", "classes/dog"):
        (folder / name).mkdir(parents=True)
    for index in range(120):
        (folder / "photos" / f"{index:03}.png").write_bytes(picture(index))
        kind = "cat" if index % 2 else "dog"
        (folder / "classes" / kind / f"{index}.png").write_bytes(picture(index))
    _parquet(folder / "x.parquet")
    return folder


def _parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    cells = [{"bytes": picture(index), "path": None} for index in range(120)]
    parquet.write_table(pa.table({"img": cells, "label": [i % 4 for i in range(120)]}), path)


class Shell:
    """Runs commands and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            run(list(arguments))
        self.out, self.err = self._capsys.readouterr()
        return int(stopped.value.code or 0)


@pytest.fixture
def shell(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    for path in home.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)
