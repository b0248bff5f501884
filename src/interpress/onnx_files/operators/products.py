"""Linear layers and matrix products."""

from __future__ import annotations

import operator as python
from typing import Any

import torch

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator


@operator("Gemm")
def gemm(call: Call) -> Any:
    """Read `Gemm`."""
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    x, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    if call.attribute("transA", 0):
        x = call.run(aten.t.default, x)
    if not call.attribute("transB", 0):
        weight = call.run(aten.t.default, weight)
    shape = call.shape(2) if call.has(2) else None
    if alpha == beta == 1.0 and (bias is None or (shape is not None and len(shape) == 1)):
        return call.run(aten.linear.default, x, weight, bias)
    product = call.run(aten.linear.default, x, weight)
    product = product if alpha == 1.0 else call.run(python.mul, product, alpha)
    if bias is None:
        return product
    return call.run(python.add, product, bias if beta == 1.0 else call.run(python.mul, bias, beta))


@operator("MatMul")
def matmul(call: Call) -> Any:
    """Read `MatMul`."""
    a, b = call.tensor(0), call.tensor(1)
    weight = call.constant(1)
    if weight is not None and weight.ndim == 2 and not call.folds:
        return call.run(aten.linear.default, a, call.run(aten.t.default, b))
    return call.run(torch.matmul, a, b)


@operator("Einsum")
def einsum(call: Call) -> Any:
    """Read `Einsum`."""
    operands = [call.tensor(position) for position in range(len(call.inputs))]
    return call.run(aten.einsum.default, call.attribute("equation"), operands)
