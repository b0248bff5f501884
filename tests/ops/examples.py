"""At least one example call for every operator with a rule."""

from __future__ import annotations

from typing import Any

import torch
from tests.ops.calls import Call
from torch import Tensor

call = Call.of


def each(names: str, *args: Any, **kwargs: Any) -> list[Call]:
    """The same call of several operators."""
    return [call(name, *args, **kwargs) for name in names.split()]


def numbers(*shape: int) -> Tensor:
    """Random numbers, the same for every run."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


X = numbers(3, 8, 4, 6)  # (batch, channels, height, width)
SERIES, VOLUME, MATRIX = numbers(3, 8, 6), numbers(2, 8, 4, 4, 6), numbers(4, 6)
PER_CHANNEL, SCALE = numbers(8, 1, 1), numbers(8).abs() + 1
MASK, INDEX = X > 0, torch.tensor([2, 0, 1])

POINTWISE = [
    *each("relu relu6 selu elu celu gelu silu mish hardswish hardsigmoid hardtanh leaky_relu", X),
    *each("log_sigmoid softplus softshrink hardshrink rrelu square nan_to_num logical_not", X),
    *each("clone contiguous alias detach lift_fresh_copy positive neg _to_copy tanh", X),
    *each("mul.Tensor div.Tensor true_divide.Tensor divide.Tensor", X, PER_CHANNEL),
    *each("multiply.Tensor subtract.Tensor rsub.Tensor floor_divide", X, PER_CHANNEL),
    *each("mul.Tensor div.Tensor", X, torch.tensor(2.0)),
    *each("dropout feature_dropout alpha_dropout", X, 0.5, False),
    *each("logical_and logical_or __and__.Tensor __or__.Tensor", MASK, X < 0.5),
    *each("clamp_min clamp_max", X, 0.0),
    call("clamp", X, -0.5, 0.5),
    call("fill.Scalar", X, 1.0),
    call("copy", X, X + 1),
    call("where.self", MASK, X, PER_CHANNEL),
    call("masked_fill.Scalar", X, MASK, 0.5),
    call("threshold", X, 0.1, 20.0),
    call("lerp.Scalar", X, PER_CHANNEL, 0.3),
    call("addcmul", X, PER_CHANNEL, X),
    call("addcdiv", X, PER_CHANNEL, X.abs() + 1),
    call("prelu", X, SCALE),
    call("to.dtype", X, torch.float32),
    call("type_as", X, torch.zeros(1)),
]

MAKING = [
    *each("zeros ones empty.memory_format", [3, 4]),
    *each("new_zeros new_ones new_empty", X, [3, 4]),
    *each("zeros_like ones_like empty_like tril triu", X),
    call("full", [3, 4], 1.5),
    call("new_full", X, [3, 4], 1.5),
    call("full_like", X, 2.0),
    call("arange", 5),
    *each("linspace logspace", 0.0, 1.0, 5),
    call("eye", 4),
    call("scalar_tensor", 1.5),
    *each("tril_indices triu_indices", 3, 4),
    call("lift_fresh", INDEX),
    call("tensor.float", 1.5),
]

SHAPE = [
    *each("view reshape _unsafe_view", X, [3, 2, 4, 24]),
    call("view", X, [3, -1]),
    call("view.dtype", X, torch.int64),
    call("_reshape_alias", X, [24, 24], [24, 1]),
    *each("view_as reshape_as", X, numbers(3, 32, 6)),
    call("flatten.using_ints", X, 1, 2),
    call("unflatten.int", X, 1, [2, -1]),
    call("squeeze", numbers(3, 1, 4, 1)),
    call("squeeze.dim", numbers(3, 1, 4), 1),
    call("unsqueeze", X, -1),
    call("permute", X, [0, 2, -1, 1]),
    *each("transpose.int swapaxes swapdims", X, 1, -1),
    *each("t numpy_T mT matrix_H adjoint mH", MATRIX),
    *each("mT adjoint mH", X),
    call("movedim.int", X, 1, -1),
    call("moveaxis.intlist", X, [1, 2], [0, -1]),
    *each("expand broadcast_to", numbers(8, 1), [3, 8, 4]),
    call("expand_as", numbers(8, 1), SERIES),
]

MOVEMENT = [
    call("slice.Tensor", X, 1, 2, 7),
    call("slice.Tensor", X, 1, 0, 8, 2),
    call("narrow", X, 1, 0, 4),
    call("split.Tensor", X, 3, 1),
    call("split_with_sizes", X, [2, 6], 1),
    call("chunk", X, 2, 1),
    call("tensor_split.sections", X, 3, 1),
    call("unbind.int", X, 2),
    call("select.int", X, 1, -1),
    *each("cat concat concatenate", [X, X + 1], 1),
    call("cat", [SERIES, numbers(3, 2, 6)], -2),
    *each("hstack vstack", [X, X + 1]),
    call("stack", [X, X + 1], 1),
    call("pad", X, [1, 0, 0, 2, 3, 0]),
    call("pad", X, [1, 1, 1, 1], "reflect"),
    call("constant_pad_nd", X, [0, 1]),
    call("constant_pad_nd", X, [0, 0, 0, 0, 0, 0, 0, 1], 2.0),
    call("repeat", SERIES, [2, 1, 3, 1]),
    call("tile", X, [2, 1]),
    call("repeat_interleave.self_int", X, 3, 1),
    call("flip", X, [1, -1]),
    call("roll", X, [1], [1]),
    call("unfold", X, 2, 3, 1),
    call("unfold", SERIES, -1, 2, 2),
    call("im2col", X, [2, 3], [1, 1], [0, 0], [1, 1]),
    call("im2col", X, [3, 1], [1, 2], [1, 1], [2, 1]),
    call("im2col", X[0], [2, 2], [1, 1], [0, 0], [2, 2]),
    call("pixel_shuffle", X, 2),
    call("pixel_unshuffle", X, 2),
    call("channel_shuffle", X, 4),
    call("native_channel_shuffle", X, 2),
    call("glu", X, 1),
]

INDEXING = [
    call("embedding", numbers(5, 8), INDEX),
    call("index_select", X, -2, INDEX),
    call("index.Tensor", X, [None, INDEX, INDEX]),
    call("index.Tensor", X, [INDEX, None, INDEX]),
    call("gather", SERIES, 1, INDEX.expand(3, 8, 3)),
    call("take_along_dim", SERIES, INDEX.expand(3, 8, 3), 2),
    call("take_along_dim", SERIES, INDEX),
]

REDUCTION = [
    *each("mean.dim var.dim std.dim", X, [1, 2]),
    *each("var_mean.dim std_mean.dim", X, [1], True),
    *each(
        "any.dim all.dim max.dim min.dim median.dim nanmedian.dim argmax argmin prod.dim_int", X, 1
    ),
    *each("max min median nanmedian nanmean sum", X),
    *each("max.other min.other", X, PER_CHANNEL),
    *each("amax amin logsumexp sum.dim_IntList", X, [2], True),
    call("norm.ScalarOpt_dim", X, 2, [1]),
    call("linalg_vector_norm", X, 2, [2, 3]),
    call("count_nonzero", X, 1),
    call("aminmax", X, dim=1),
    *each("softmax.int log_softmax.int _safe_softmax cumsum cumprod logcumsumexp", X, 1),
    *each("_softmax _log_softmax", X, 1, False),
    *each("cummax cummin sort argsort", X, 1),
    call("topk", X, 3, 1),
    call("renorm", X, 2, 1, 0.5),
]

POOLING = [
    *each("avg_pool1d max_pool1d max_pool1d_with_indices", SERIES, [2]),
    *each("avg_pool2d max_pool2d max_pool2d_with_indices", X, [2, 2]),
    *each("avg_pool3d max_pool3d max_pool3d_with_indices", VOLUME, [2, 2, 2]),
    *each("adaptive_avg_pool1d adaptive_max_pool1d", SERIES, [2]),
    *each("adaptive_avg_pool2d adaptive_max_pool2d _adaptive_avg_pool2d", X, [2, 3]),
    *each("adaptive_avg_pool3d adaptive_max_pool3d _adaptive_avg_pool3d", VOLUME, [2, 2, 3]),
    *each("upsample_nearest1d _upsample_nearest_exact1d", SERIES, [9]),
    *each("upsample_nearest2d _upsample_nearest_exact2d", X, [6, 9]),
    *each("upsample_nearest3d _upsample_nearest_exact3d", VOLUME, [6, 6, 9]),
    call("upsample_linear1d", SERIES, [9], False),
    *each("upsample_bilinear2d upsample_bicubic2d", X, [6, 9], False),
    *each("_upsample_bilinear2d_aa _upsample_bicubic2d_aa", X, [6, 9], False),
    call("upsample_trilinear3d", VOLUME, [6, 6, 9], False),
    *each("grid_sampler grid_sampler_2d", X, numbers(3, 2, 2, 2).tanh(), 0, 0, False),
    call("grid_sampler_3d", VOLUME, numbers(2, 2, 2, 2, 3).tanh(), 0, 0, False),
]

NORMALIZATION = [
    call("batch_norm", X, SCALE, SCALE, SCALE, SCALE, False, 0.1, 1e-5, False),
    call("native_batch_norm", X, SCALE, SCALE, SCALE, SCALE, False, 0.1, 1e-5),
    call("instance_norm", X, SCALE, SCALE, None, None, True, 0.1, 1e-5, False),
    call("layer_norm", X, [4, 6], MATRIX),
    call("native_layer_norm", X, [6], numbers(6), None, 1e-5),
    call("rms_norm", X, [6], numbers(6)),
    call("group_norm", X, 2, SCALE),
    call("group_norm", X, 8, SCALE, SCALE),
]

CONVOLUTION = [
    call("conv1d", SERIES, numbers(5, 8, 3), numbers(5)),
    call("conv2d", X, numbers(5, 8, 3, 3), numbers(5)),
    call("conv2d", X, numbers(6, 4, 3, 3), groups=2),
    call("conv2d", X, numbers(16, 1, 3, 3), numbers(16), groups=8),
    call("conv2d", X[0], numbers(5, 8, 3, 3)),
    call("conv3d", VOLUME, numbers(5, 8, 2, 2, 2)),
    call("conv_transpose1d", SERIES, numbers(8, 5, 3)),
    call("conv_transpose2d.input", X, numbers(8, 5, 3, 3), numbers(5)),
    call("conv_transpose2d.input", X, numbers(8, 3, 3, 3), groups=2),
    call("conv_transpose2d.input", X, numbers(8, 1, 3, 3), groups=8),
    call("conv_transpose3d.input", VOLUME, numbers(8, 5, 2, 2, 2)),
    call("convolution", X, numbers(5, 8, 1, 1), None, [1] * 2, [0] * 2, [1] * 2, False, [0] * 2, 1),
]

PRODUCTS = [
    call("linear", SERIES, numbers(5, 6), numbers(5)),
    call("matmul", X, numbers(6, 5)),
    call("matmul", numbers(6), numbers(6, 5)),
    call("mm", MATRIX, numbers(6, 5)),
    call("bmm", SERIES, numbers(3, 6, 5)),
    call("mv", MATRIX, numbers(6)),
    call("dot", numbers(6), numbers(6)),
    call("addmm", numbers(5), MATRIX, numbers(6, 5)),
    call("baddbmm", numbers(1, 8, 5), SERIES, numbers(3, 6, 5)),
    call("tensordot", X, numbers(6, 5, 4), [2, 3], [2, 0]),
    call("einsum", "bchw,ow->bcoh", [X, numbers(5, 6)]),
    call("einsum", "...c->...", [X]),
    call("einsum", "bct,ot,t->bco", [SERIES, numbers(5, 6), numbers(6)]),
]

_QUERY, _KEY, _SHARED = numbers(2, 4, 3, 6), numbers(2, 4, 5, 6), numbers(2, 2, 5, 6)
ATTENTION = [
    call("scaled_dot_product_attention", _QUERY, _KEY, _KEY + 1),
    call("scaled_dot_product_attention", _QUERY, _SHARED, _SHARED + 1, enable_gqa=True),
]

_STATE = numbers(1, 3, 5)  # (layers, batch, hidden)
_OPTIONS = (False, 1, 0.0, False, False, True)


def _gates(count: int) -> list[Tensor]:
    """Input and hidden weights of a recurrent layer."""
    return [numbers(count * 5, 6), numbers(count * 5, 5)]


RECURRENT = [
    call("lstm.input", SERIES, [_STATE, _STATE + 1], _gates(4), *_OPTIONS),
    call("gru.input", SERIES, _STATE, _gates(3), *_OPTIONS),
    *each("rnn_tanh.input rnn_relu.input", SERIES, _STATE, _gates(1), *_OPTIONS),
    call("lstm_cell", SERIES[:, 0], [_STATE[0], _STATE[0] + 1], *_gates(4)),
    call("gru_cell", SERIES[:, 0], _STATE[0], *_gates(3)),
    *each("rnn_tanh_cell rnn_relu_cell", SERIES[:, 0], _STATE[0], *_gates(1)),
]

EXAMPLES = [
    *POINTWISE, *MAKING, *SHAPE, *MOVEMENT, *INDEXING, *REDUCTION, *POOLING, *NORMALIZATION,
    *CONVOLUTION, *PRODUCTS, *ATTENTION, *RECURRENT,
]  # fmt: skip
