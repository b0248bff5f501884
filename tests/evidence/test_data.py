"""The readers of the data sets, and the networks that fit them."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.data import fashion, imagenet, lba
from benchmarks.data.cifar import load_cifar
from benchmarks.experiment import ExperimentError, Settings
from benchmarks.experiments.imagenet import write_digits_as_jpeg
from benchmarks.networks import ImageNetMobileNetV1, ImageNetVGG16, Voxels
from torch import nn


def idx(values: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def test_fashion_mnist_is_read_from_its_files(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 8)):
        pixels = generator.integers(0, 256, (count, 28, 28))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count) % 10))
    pictures = fashion.load_pictures(Settings(data=tmp_path))
    assert pictures.name == "Fashion-MNIST"
    assert pictures.train.images.shape == (20, 784)
    assert pictures.test.labels.tolist() == list(range(8))
    expected = (torch.from_numpy(pixels).flatten(1) / 255 - 0.2860) / 0.3530
    assert torch.allclose(pictures.test.images, expected.float(), atol=1e-6)


def test_damaged_idx_files_are_rejected(tmp_path: Path) -> None:
    name = "t10k-labels-idx1-ubyte"
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(gzip.decompress(idx(np.arange(8)))[:-3]))
    with pytest.raises(ExperimentError, match="has 5 bytes"):
        fashion.read_idx(tmp_path, name)
    path.write_bytes(gzip.compress(b"nothing of the kind"))
    with pytest.raises(ExperimentError, match="not an IDX file"):
        fashion.read_idx(tmp_path, name)


def test_cifar_is_read_from_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from PIL import Image

    pictures = []
    for shade in (0, 255):
        buffer = io.BytesIO()
        Image.new("RGB", (32, 32), (shade, shade, shade)).save(buffer, "PNG")
        pictures.append({"bytes": buffer.getvalue(), "path": ""})
    pq.write_table(pa.table({"img": pictures, "label": [3, 9]}), tmp_path / "test.parquet")
    data = load_cifar(tmp_path, "test")
    assert data.labels.tolist() == [3, 9]
    assert float(data.images[0].max()) < 0 < float(data.images[1].min())


def test_imagenet_is_read_from_folders_and_from_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = write_digits_as_jpeg(tmp_path / "folders")
    images = imagenet.ImageNet(folder, 32)
    assert (len(images), images.classes) == (300, 10)
    image, label = images[0]
    assert image.shape == (3, 32, 32)
    assert label == 0
    rows = [
        {"bytes": path.read_bytes(), "path": path.name} for path in sorted(folder.rglob("*.JPEG"))
    ]
    labels = [label for _, label in images._files]
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"image": rows, "label": labels}), tmp_path / "parquet/val-0.parquet")
    from_parquet = imagenet.ImageNet(tmp_path / "parquet", 32)
    assert len(from_parquet) == 300
    assert torch.equal(from_parquet[17][0], images[17][0])
    batches = list(imagenet.loader(images, range(7), 4, 0))
    assert [tuple(x.shape) for x, _ in batches] == [(4, 3, 32, 32), (3, 3, 32, 32)]


def test_a_folder_without_imagenet_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="neither val"):
        imagenet.ImageNet(tmp_path)


def test_the_networks_have_the_published_sizes() -> None:
    def millions(model: nn.Module) -> float:
        return sum(p.numel() for p in model.parameters()) / 1e6

    with torch.device("meta"):
        assert millions(ImageNetVGG16()) == pytest.approx(138.36, abs=0.01)
        assert millions(ImageNetMobileNetV1()) == pytest.approx(4.23, abs=0.01)
        assert Voxels()(torch.empty(2, 5, 41, 41, 41)).shape == (2,)
    names = set(ImageNetVGG16(10, 1 / 32, 32).state_dict())
    assert {"features.0.weight", "features.28.bias", "classifier.6.weight"} <= names


def test_lba_is_read_as_published(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    entries = lba.random_entries(5, 0)
    lba.write_complexes(tmp_path / "val", entries)
    complexes = lba.read_complexes(tmp_path / "val")
    assert len(complexes) == 5
    assert len(lba.read_complexes(tmp_path / "val", 2)) == 2
    molecule = complexes[3]
    assert molecule.affinity == entries[3]["scores"]["neglog_aff"]
    assert len(molecule.elements) == len(molecule.positions) == 72
    ligand = torch.tensor([row[1:] for row in entries[3]["atoms_ligand"]["data"]])
    assert torch.allclose(molecule.centre, ligand.mean(0), atol=1e-5)


def test_a_voxel_grid_has_every_atom_once_and_can_be_rotated(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    lba.write_complexes(tmp_path / "val", lba.random_entries(1, 0))
    (molecule,) = lba.read_complexes(tmp_path / "val")
    grid = lba.voxels(molecule, 20.0)
    assert grid.shape == (5, 41, 41, 41)
    assert int(grid.sum()) == sum(element in lba.ELEMENTS for element in molecule.elements)
    rotated = lba.voxels(molecule, 20.0, np.random.default_rng(0))
    assert int(rotated.sum()) == int(grid.sum())
    assert not torch.equal(rotated, grid)


def test_pickled_and_missing_lba_files_are_rejected(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    lba.write_complexes(tmp_path / "val", lba.random_entries(1, 0))
    environment = lmdb.open(str(tmp_path / "val"))
    with environment, environment.begin(write=True) as transaction:
        transaction.put(b"serialization_format", b"pkl")
    with pytest.raises(ExperimentError, match="stored as 'pkl'"):
        lba.read_complexes(tmp_path / "val")
    with pytest.raises(ExperimentError, match="does not exist"):
        lba.read_complexes(tmp_path / "train")
