"""Fast kernels give the values of the operators they replace, and change nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.graph.capture import capture
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import exact_kernels, fast_kernels
from interpress.graph.patterns import family


class Residual(nn.Module):
    """Convolutions with batch norms, one without, ReLUs of both kinds, a sum, a view."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.deep = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 12, 1, bias=False)
        self.last = nn.Conv2d(12, 12, 3, padding=2, dilation=2)
        self.after = nn.BatchNorm2d(12)
        self.relu = nn.ReLU(inplace=inplace)
        self.head = nn.Linear(12 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        x = self.relu(self.wide(self.norm(self.deep(x))))
        x = self.relu(x + self.after(self.last(x)))
        x = nn.functional.max_pool2d(x, 2)
        return self.head(x.view(x.shape[0], -1))


def _settled(model: nn.Module) -> nn.Module:
    """Return the model with batch norms that are not the identity, in evaluation mode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                tensor.data.uniform_(0.3, 1.5)
    return model.eval()


def _kernels_of(program: Any) -> dict[Any, Any]:
    return fast_kernels(program, program.parameters())


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("images", [1, 8])
def test_outputs_and_operands_are_the_same(inplace: bool, images: int) -> None:
    torch.manual_seed(0)
    model = _settled(Residual(inplace))
    x = torch.randn(images, 3, 16, 16)
    program = capture(model, x)
    kernels = _kernels_of(program)
    kinds = {family(node) for node in kernels}
    assert {"aten.conv2d", "aten.batch_norm", "aten.view"} <= kinds
    assert ("aten.relu" in kinds) != inplace
    before = x.clone()
    operands: list[dict[str, Tensor]] = [{}, {}]
    results = []
    for run, replaced in enumerate(({}, kernels)):

        def record(node: Any, args: Any, kwargs: Any, run: int = run) -> Any:
            if family(node) in ("aten.conv2d", "aten.linear"):
                operands[run][node.name] = args[0].clone()
            return args, kwargs

        results.append(Executor(program, kernels=replaced).run(x, before=record)[0])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert operands[0].keys() == operands[1].keys()
    for name, operand in operands[0].items():
        torch.testing.assert_close(operands[1][name], operand, rtol=1e-4, atol=1e-5)
    assert torch.equal(x, before)
    torch.testing.assert_close(results[0], model(x))


def test_weights_may_change_until_their_layer_runs() -> None:
    model = _settled(Residual(False))
    x = torch.randn(2, 3, 16, 16)
    program = capture(model, x)
    weights = program.parameters()
    kernels = fast_kernels(program, weights)
    weights["first.0.weight"] = 2 * weights["first.0.weight"]
    weights["after.running_mean"] = weights["after.running_mean"] + 1
    output = Executor(program, kernels=kernels).run(x)[0]
    with torch.no_grad():
        model.first[0].weight.mul_(2)
        model.after.running_mean.add_(1)
        torch.testing.assert_close(output, model(x), rtol=1e-4, atol=1e-5)


class _Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x + torch.as_strided(x, (1,), (1,))


class _Written(_Strided):
    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        flat = x.view(x.shape[0], -1)
        x.mul_(2)  # also changes `flat`, which is a view
        return flat


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (_Strided, lambda model: model),
        (_Written, lambda model: model),
        (lambda: Residual(False), lambda model: model.bfloat16()),
    ],
)
def test_nothing_is_replaced_if_memory_layout_or_rounding_matters(
    make: Callable[[], nn.Module], change: Callable[[nn.Module], nn.Module]
) -> None:
    model = change(make().eval())
    x = torch.randn(2, 3, 16, 16).to(next(model.parameters()).dtype)
    assert _kernels_of(capture(model, x)) == {}


def test_a_single_image_without_a_batch_dim() -> None:
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, 1)]
    model = nn.Sequential(*layers).eval()
    for side in (6, 12):
        x = torch.randn(3, side, side)
        program = capture(model, x)
        torch.testing.assert_close(
            Executor(program, kernels=_kernels_of(program)).run(x)[0], model(x)
        )
        exact = Executor(program, dtype=torch.float64, kernels=exact_kernels(program)).run(x)[0]
        torch.testing.assert_close(exact.float(), model(x))


@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("padding", [0, 1, (2, 1)])
@pytest.mark.parametrize("dilation", [1, (1, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_depthwise_in_double_precision(
    stride: Any, padding: Any, dilation: Any, bias: bool
) -> None:
    model = nn.Conv2d(
        6, 6, (3, 2), stride, padding, dilation, groups=6, bias=bias, dtype=torch.float64
    )
    x = torch.randn(3, 6, 9, 8, dtype=torch.float64)
    program = capture(model, x)
    kernels = exact_kernels(program)
    assert len(kernels) == 1
    output = Executor(program, dtype=torch.float64, kernels=kernels).run(x)[0]
    torch.testing.assert_close(output, model(x), rtol=1e-12, atol=1e-12)


def test_compression_is_as_good_with_fast_kernels_as_without(monkeypatch: Any) -> None:
    torch.manual_seed(1)
    model = _settled(Residual(False))
    data = torch.randn(300, 3, 16, 16)
    fast = interpress.compress(model, data, flops=0.6, progress=False)
    for module in ("calibration.calibrate", "refit.side_by_side"):
        monkeypatch.setattr(f"interpress.{module}.fast_kernels", lambda program, weights: {})
    plain = interpress.compress(model, data, flops=0.6, progress=False)
    assert fast.widths == plain.widths
    with torch.no_grad():
        a, b = fast.model(data), plain.model(data)
    assert float((a - b).norm() / b.norm()) < 1e-2
