"""What the experiments are made of: readers of data, low rank, training, peers, theory."""

from __future__ import annotations

import copy
import gzip
import io
import math
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import lowrank, peers, training
from benchmarks.data import fashion, imagenet, lba
from benchmarks.data.cifar import load_cifar
from benchmarks.experiment import ExperimentError, Setting
from benchmarks.experiments.imagenet import digits_as_jpeg
from benchmarks.networks import ImageNetMobileNetV1, ImageNetVGG16, Voxels
from benchmarks.tables import half_width, spread
from torch import nn

from interpress import ArgumentError, demo
from interpress.theory import HiddenLayer, hidden_layer, risks


def idx(values: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes())


def test_fashion_mnist_is_read_from_its_files(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 8)):
        pixels = generator.integers(0, 256, (count, 28, 28))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count) % 10))
    found = fashion.load_pictures(Setting(data=tmp_path))
    assert found.name == "Fashion-MNIST"
    assert found.train.images.shape == (20, 784)
    assert found.test.labels.tolist() == list(range(8))
    expected = (torch.from_numpy(pixels).flatten(1) / 255 - 0.2860) / 0.3530
    assert torch.allclose(found.test.images, expected.float(), atol=1e-6)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-3]))
    with pytest.raises(ExperimentError, match="holds 5 bytes"):
        fashion.read_idx(tmp_path, "t10k-labels-idx1-ubyte")
    path.write_bytes(gzip.compress(b"nothing of the kind"))
    with pytest.raises(ExperimentError, match="no IDX file"):
        fashion.read_idx(tmp_path, "t10k-labels-idx1-ubyte")


def test_cifar_is_read_from_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from PIL import Image

    pictures = []
    for shade in (0, 255):
        buffer = io.BytesIO()
        Image.new("RGB", (32, 32), (shade, shade, shade)).save(buffer, "PNG")
        pictures.append({"bytes": buffer.getvalue(), "path": ""})
    pq.write_table(pa.table({"img": pictures, "label": [3, 9]}), tmp_path / "test.parquet")
    found = load_cifar(tmp_path, "test")
    assert found.labels.tolist() == [3, 9]
    assert float(found.images[0].max()) < 0 < float(found.images[1].min())


def test_imagenet_is_read_from_folders_and_from_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = digits_as_jpeg(tmp_path / "folders")
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
    again = imagenet.ImageNet(tmp_path / "parquet", 32)
    assert len(again) == 300
    assert torch.equal(again[17][0], images[17][0])
    batches = list(imagenet.loader(images, range(7), 4, 0))
    assert [tuple(x.shape) for x, _ in batches] == [(4, 3, 32, 32), (3, 3, 32, 32)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExperimentError, match="neither val"):
        imagenet.ImageNet(tmp_path / "empty")


def test_the_networks_are_those_of_the_papers() -> None:
    def count(model: nn.Module) -> float:
        return sum(p.numel() for p in model.parameters()) / 1e6

    with torch.device("meta"):
        assert count(ImageNetVGG16()) == pytest.approx(138.36, abs=0.01)
        assert count(ImageNetMobileNetV1()) == pytest.approx(4.23, abs=0.01)
        voxels = Voxels()
        assert voxels(torch.empty(2, 5, 41, 41, 41)).shape == (2,)
    names = list(ImageNetVGG16(10, 1 / 32, 32).state_dict())
    assert {"features.0.weight", "features.28.bias", "classifier.6.weight"} <= set(names)


def test_lba_is_read_as_published_and_pickles_are_refused(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    entries = lba.made_up(5, 0)
    lba.write_complexes(tmp_path / "val", entries)
    found = lba.read_complexes(tmp_path / "val")
    assert len(found) == 5
    assert len(lba.read_complexes(tmp_path / "val", 2)) == 2
    one = found[3]
    assert one.affinity == entries[3]["scores"]["neglog_aff"]
    assert len(one.elements) == len(one.positions) == 72
    grid = lba.voxels(one, 20.0)
    assert grid.shape == (5, 41, 41, 41)
    assert int(grid.sum()) == sum(element in lba.ELEMENTS for element in one.elements)
    ligand = torch.tensor([row[1:] for row in entries[3]["atoms_ligand"]["data"]])
    assert torch.allclose(one.centre, ligand.mean(0), atol=1e-5)
    turned = lba.voxels(one, 20.0, np.random.default_rng(0))
    assert int(turned.sum()) == int(grid.sum())
    assert not torch.equal(turned, grid)
    environment = lmdb.open(str(tmp_path / "val"))
    with environment, environment.begin(write=True) as transaction:
        transaction.put(b"serialization_format", b"pkl")
    with pytest.raises(ExperimentError, match="stored as 'pkl'"):
        lba.read_complexes(tmp_path / "val")
    with pytest.raises(ExperimentError, match="does not exist"):
        lba.read_complexes(tmp_path / "train")


@pytest.mark.parametrize("kind", lowrank.KINDS)
def test_a_layer_of_full_rank_is_the_layer(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5))
    images = torch.randn(40, 3, 5, 5)
    layers = lowrank._layers(model, images, kind)
    assert [layer.positions for layer in layers] == [9, 1]
    ranks = {layer.name: len(layer.energies) for layer in layers}
    for layer in layers:
        own = model.get_submodule(layer.name)
        pair = lowrank._pair(layer, ranks[layer.name])
        inputs = images if layer.name == "0" else model[:3](images)
        assert torch.allclose(pair(inputs), own(inputs), atol=1e-4)


@pytest.mark.parametrize("kind", lowrank.KINDS)
def test_low_rank_meets_its_budget_and_leaves_the_network(kind: str) -> None:
    model, digits = demo.network(), demo.load_digits()
    before = copy.deepcopy(model.state_dict())
    smaller = lowrank.factored(model, digits.calibration, kind, 0.6)
    share = demo.flops(smaller, digits.calibration[:1]) / demo.flops(model, digits.calibration[:1])
    assert 0.5 < share <= 0.6
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_pca_is_the_best_projection_of_the_outputs() -> None:
    """Outputs that live in two directions need rank two, whatever the weights are."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8))
    images = torch.randn(200, 2) @ torch.randn(2, 6)
    (layer,) = lowrank._layers(model, images, "pca")
    pair = lowrank._pair(layer, 2)
    assert torch.allclose(pair(images), model(images), atol=1e-4)


def test_torch_pruning_reaches_the_budget_and_batch_norms_see_the_images_again() -> None:
    pytest.importorskip("torch_pruning")
    model, digits = demo.network(), demo.load_digits()
    example = digits.calibration[:2]
    smaller = peers.torch_pruning(model, example, "L1", 0.5)
    assert 0.45 < demo.flops(smaller, example) / demo.flops(model, example) <= 0.5
    again = peers.recalibrated(smaller, digits.calibration, batch=300)
    with torch.no_grad():
        first = again.features[0](digits.calibration)  # type: ignore[index,union-attr]
    norm = again.features[1]  # type: ignore[index,union-attr]
    assert torch.allclose(norm.running_mean, first.mean((0, 2, 3)), atol=1e-5)


def test_training_learns_and_distillation_needs_no_labels() -> None:
    digits = demo.load_digits()
    images, labels = digits.test
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    schedule = training.Schedule(15, lambda epoch: 0.3 * 0.9**epoch, batch=32)
    seen: list[int] = []
    training.train(model, images, labels, schedule, each_epoch=seen.append)
    assert seen == list(range(15))
    assert not model.training
    assert training.accuracy(model, images, labels) > 90
    student = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    training.train(
        student, images, torch.zeros_like(labels), schedule, objective=training.distilled(model)
    )
    same = training.predicted(student, images) == training.predicted(model, images)
    assert float(same.float().mean()) > 0.9


def test_the_order_of_data_and_the_start_have_seeds_of_their_own() -> None:
    digits = demo.load_digits()
    schedule = training.Schedule(1, lambda epoch: 0.1, batch=32)

    def weights(order: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        training.train(model, *digits.test, schedule, seed=0, order_seed=order)
        return model[1].weight.detach()  # type: ignore[return-value,operator]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_crops_hold_what_was_in_the_image() -> None:
    torch.manual_seed(0)
    images = torch.arange(1, 1 + 3 * 64.0).reshape(1, 3, 8, 8).repeat(200, 1, 1, 1)
    found = training.shifted(images, by=1)
    assert found.shape == images.shape
    middle = found[:, :, 1:7, 1:7]
    assert set(middle.unique().tolist()) <= set(images.unique().tolist())
    plain = (found == images).flatten(1).all(1)
    mirrored = (found == images.flip(3)).flatten(1).all(1)
    assert bool(plain.any())
    assert bool(mirrored.any())


def test_intervals_are_students() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert spread([1.0, 2.0, 3.0], 2).split() == ["2.00", "±", "2.48"]
    assert spread([5.0]) == "5.0"


def trained_layer(width: int = 24) -> tuple[nn.Module, torch.Tensor]:
    digits = demo.load_digits()
    images, labels = digits.test
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    training.train(model, images, labels, training.Schedule(5, lambda epoch: 0.2, batch=32))
    return model, images


def test_the_lemma_holds_and_its_parts_are_what_they_say() -> None:
    model, images = trained_layer()
    layer = hidden_layer(model, images[:400])
    assert layer.activations.shape == (400, 24)
    assert layer.inputs == 64
    test = hidden_layer(model, images[400:]).activations
    found = risks(layer, [6, 12, 24], test=test)
    for risk in found:
        assert risk.holds
        assert risk.T_norm >= 1 - 1e-12
        assert risk.generalization == math.inf  # fewer examples than the pseudo-dimension
        assert risk.enough > risk.p > risk.examples
        assert risk.test is not None
    assert found[0].empirical > found[1].empirical > found[2].empirical
    assert found[2].empirical < 1e-20
    Z, U = layer.activations, layer.outputs
    largest = float(U.square().sum() * torch.cat([Z, test]).square().sum(1).max())
    assert pytest.approx(largest) == found[0].M


def test_the_bound_is_the_papers_formula() -> None:
    torch.manual_seed(0)
    Z = torch.randn(5000, 4, dtype=torch.float64)
    layer = HiddenLayer(Z, torch.randn(4, 1, dtype=torch.float64), 2)
    (risk,) = risks(layer, [3], delta=0.1, zeta=0.5)
    p = 0.5 * 8 * math.log(8)
    bracket = math.sqrt(2 * p * math.log(math.e * 5000 / p)) + math.sqrt(math.log(10) / 2)
    expected = risk.eps**2 * risk.M + risk.M * (1 + risk.T_norm) ** 2 / math.sqrt(5000) * bracket
    assert risk.generalization == pytest.approx(expected)
    at = (1 + risk.T_norm) ** 2 * math.sqrt(
        2 * p * math.log(math.e * risk.enough / p) / risk.enough
    )
    assert 0.97 < at <= 1


def test_theory_wants_one_hidden_layer() -> None:
    with pytest.raises(ArgumentError, match=r"two nn\.Linear in all; this DigitNet has 1"):
        hidden_layer(demo.network(), torch.zeros(2, 1, 8, 8))
    with pytest.raises(ArgumentError, match="0 < delta < 1"):
        risks(HiddenLayer(torch.eye(3).double(), torch.eye(3).double(), 2), [1], delta=2)
