"""`shrink` selects and absorbs as planned, and its result is an ordinary network."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
import torch.nn.functional as F
from tests.zoo import attention, classic, residual
from tests.zoo.checks import halved
from torch import Tensor, nn

from interpress import SurgeryError, find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink


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


def test_without_T_channels_are_only_removed() -> None:
    spaces = spaces_of_mlp()
    kept = torch.tensor([1, 4, 6])
    small = shrink(spaces, {"0": kept})
    assert torch.equal(small[2].weight, spaces.program.model[2].weight[:, kept])
    assert prove(spaces, Cut(spaces, {"0": kept}), small)


def test_a_result_that_does_not_run_is_an_error() -> None:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(F.adaptive_avg_pool2d(self.a(x), 1).squeeze())

    spaces = find_spaces(Squeeze(), torch.randn(5, 3, 4, 4))
    assert shrink(spaces, {"a": [1, 2]})
    with pytest.raises(SurgeryError, match=r"does not run \(RuntimeError.*keep more channels"):
        shrink(spaces, {"a": [1]})
    assert shrink(spaces, {"a": [1]}, verify=False)


@pytest.mark.cuda
def test_devices_may_be_mixed() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU in addition to the CPU")

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 6).cuda()
            self.o = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.b(self.a(x).relu().to("cuda")).relu()
            return self.o(h.cpu())

    spaces = find_spaces(Split(), torch.randn(3, 4))
    assert {space.name for space in spaces.shrinkable} == {"a", "b"}
    kept = {name: halved(spaces[name], seed=1) for name in ("a", "b")}
    small = shrink(spaces, kept, random_interpolations(Cut(spaces, kept)))
    assert small.b.weight.is_cuda
    assert not small.a.weight.is_cuda


def shrunk_example(kind: str) -> tuple[nn.Module, Tensor]:
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
def test_the_result_compiles(kind: str) -> None:
    small, x = shrunk_example(kind)
    compiled = torch.compile(small, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), small(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_exports(kind: str) -> None:
    small, x = shrunk_example(kind)
    program = torch.export.export(small, (x,))
    torch.testing.assert_close(program.module()(x), small(x))


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_exports_to_onnx_and_runs_there(kind: str) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export needs onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="running ONNX needs onnxruntime")
    small, x = shrunk_example(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own exporter
        program = torch.onnx.export(small, (x,), dynamo=True, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    session = runtime.InferenceSession(buffer.getvalue())
    (name,) = (item.name for item in session.get_inputs())
    output = torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    torch.testing.assert_close(output, small(x).detach(), rtol=1e-3, atol=1e-4)
