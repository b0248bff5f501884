from __future__ import annotations

import io
import warnings

import pytest
import torch
from tests.zoo import attention, classic, residual
from tests.zoo.checks import halved
from torch import nn

from interpress import ArgumentError, SurgeryError, find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import check, measure, prove
from interpress.surgery.shrink import shrink
from interpress.surgery.weights import shrunk_copy


def spaces_of_mlp() -> Spaces:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    return find_spaces(model, torch.randn(40, 6, dtype=torch.float64))


def test_selection_and_absorption_by_hand() -> None:
    spaces = spaces_of_mlp()
    kept, T = torch.tensor([1, 4, 6]), torch.randn(3, 8, dtype=torch.float64)
    small = shrink(spaces, {"0": kept}, {"2.weight reads linear_1": T})
    model = spaces.program.model
    assert torch.equal(small[0].weight, model[0].weight[kept])
    assert torch.equal(small[0].bias, model[0].bias[kept])
    torch.testing.assert_close(small[2].weight, model[2].weight @ T.T)
    assert (small[0].out_features, small[2].in_features) == (3, 3)


def test_without_T_channels_are_only_dropped() -> None:
    spaces = spaces_of_mlp()
    kept = torch.tensor([1, 4, 6])
    small = shrink(spaces, {"0": kept})
    assert torch.equal(small[2].weight, spaces.program.model[2].weight[:, kept])
    assert prove(spaces, Cut(spaces, {"0": kept}), small)


def test_taps_are_what_the_consumer_reads() -> None:
    spaces = spaces_of_mlp()
    Z = measure(spaces)["2.weight reads linear_1"]
    model = spaces.program.model
    assert torch.equal(Z, model[1](model[0](spaces.program.example.args[0])))


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"0": [8]}, r"space '0': channel 8 does not exist; it has 8"),
        ({"0": [-1, 2]}, r"channel -1 does not exist"),
        ({"0": [2, 2]}, r"a channel is kept twice"),
        ({"0": []}, r"nothing is kept; keep at least 1"),
        ({"nope": [0]}, r"no space 'nope'"),
        ({"2": [0]}, r"space '2' is frozen: it is an output of the model"),
    ],
)
def test_bad_channels(kept, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        shrink(spaces_of_mlp(), kept)


def test_bad_interpolations() -> None:
    spaces = spaces_of_mlp()
    tap = "2.weight reads linear_1"
    with pytest.raises(ArgumentError, match=r"T is \(2, 8\), but 3 of 8 channels are kept"):
        shrink(spaces, {"0": [0, 1, 2]}, {tap: torch.zeros(2, 8)})
    with pytest.raises(ArgumentError, match=r"no tap 'nope'"):
        shrink(spaces, {"0": [0, 1, 2]}, {"nope": torch.zeros(3, 8)})
    with pytest.raises(ArgumentError, match=r"T holds NaN or Inf"):
        shrink(spaces, {"0": [0, 1, 2]}, {tap: torch.full((3, 8), float("nan"))})


def test_groups_are_not_mixed_and_keep_equally_many() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 1, groups=2))
    spaces = find_spaces(model, torch.randn(2, 3, 4, 4))
    with pytest.raises(ArgumentError, match=r"2 cells must keep the same share, got \[1, 2\]"):
        shrink(spaces, {"0": [0, 3, 4]})
    (tap,) = spaces["0"].taps
    with pytest.raises(ArgumentError, match="mixes channels of different groups"):
        shrink(spaces, {"0": [0, 3]}, {tap: torch.ones(2, 6)})


def test_a_tampered_network_is_not_proved() -> None:
    spaces = spaces_of_mlp()
    kept = {"0": torch.tensor([1, 4, 6])}
    cut = Cut(spaces, kept, random_interpolations(Cut(spaces, kept)))
    small = shrunk_copy(cut)
    assert check(spaces, cut, small).difference < 1e-12
    with torch.no_grad():
        small[2].bias.add_(1e-6)
    with pytest.raises(SurgeryError, match="differs from the projected one by"):
        check(spaces, cut, small)
    with torch.no_grad():
        small[2].bias.sub_(1e-6)
        small[2].weight.add_(1e-6)
    with pytest.raises(SurgeryError, match=r"2.weight of the smaller network is not what the plan"):
        check(spaces, cut, small)


def test_shared_weights_stay_shared() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Linear(3, 8), nn.ReLU())
    model.append(nn.Linear(8, 3))
    model[5].weight = model[2].weight
    spaces = find_spaces(model, torch.randn(4, 6))
    kept = {s.name: halved(s, seed=0) for s in spaces.shrinkable}
    small = shrink(spaces, kept)
    assert small[5].weight is small[2].weight


def some_small(kind: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model, x = {
        "vgg": lambda: (classic.VGG(), torch.randn(2, 3, 16, 16)),
        "mobilenet": lambda: (residual.Inverted(nn.Hardswish, True), torch.randn(2, 3, 16, 16)),
        "vit": lambda: (attention.ViT(), torch.randn(2, 3, 16, 16)),
    }[kind]()
    spaces = find_spaces(model, x)
    kept = {s.name: halved(s, seed=0) for s in spaces.shrinkable}
    return shrink(spaces, kept, random_interpolations(Cut(spaces, kept))).eval(), x


KINDS = ["vgg", "mobilenet", "vit"]


@pytest.mark.parametrize("kind", KINDS)
def test_result_compiles(kind: str) -> None:
    small, x = some_small(kind)
    compiled = torch.compile(small, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), small(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_result_exports(kind: str) -> None:
    small, x = some_small(kind)
    program = torch.export.export(small, (x,))
    torch.testing.assert_close(program.module()(x), small(x))


@pytest.mark.parametrize("kind", KINDS)
def test_result_exports_to_onnx_and_runs_there(kind: str) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export needs onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="running ONNX needs onnxruntime")
    small, x = some_small(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its exporter
        program = torch.onnx.export(small, (x,), dynamo=True, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    session = runtime.InferenceSession(buffer.getvalue())
    (name,) = (item.name for item in session.get_inputs())
    got = torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    torch.testing.assert_close(got, small(x).detach(), rtol=1e-3, atol=1e-4)
