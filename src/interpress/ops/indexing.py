"""Operators that select elements by index: embeddings, advanced indexing, gathers."""

from __future__ import annotations

from interpress.labels.labelling import Labellings, tidy
from interpress.labels.relations import mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule

_WHY = "selects its channels by index"
_ROWS = "looks up its rows by number, such as those of a vocabulary"
_AS_INDEX = "uses its channels as indices"


def _indexed(op: Op, value: Value, dims: list[int], index_ndim: int, why: str = _WHY) -> Labellings:
    """Return the labellings after consecutive `dims` are replaced by the dims of an index.

    Channels along `dims` are frozen; `why` is the reason.
    """
    labellings = without(mix(op, value, dims, why), dims, len(value.shape))
    moved = []
    for labelling in labellings:
        shape = list(labelling.labels.shape)
        shape[dims[0] : dims[-1] + 1] = [1] * index_ndim
        moved.append(labelling.moved(labelling.labels.reshape(shape)))
    return tidy(moved)


@rule("aten.embedding")
def embedding(op: Op) -> Labellings:
    """Follow rows of a table; the columns of the table are channels."""
    weight, indices = op["weight"], op["indices"]
    op.trace.produced += [
        labelling.labels for labelling in weight.channels() if labelling.support == (1,)
    ]
    return _indexed(op, weight, [0], len(indices.shape), _ROWS)


@rule("aten.index_select")
def index_select(op: Op) -> Labellings:
    """Follow selected indices of one dim."""
    value = op["self"]
    return _indexed(op, value, [op["dim"] % len(value.shape)], 1)


@rule("aten.index")
def index(op: Op) -> Labellings:
    """Follow advanced indexing with one index tensor, or with several for consecutive dims."""
    value, indices = op["self"], list(op["indices"])
    index_of = {dim: tensor for dim, tensor in enumerate(indices) if tensor is not None}
    for tensor in index_of.values():
        mix(op, tensor, range(len(tensor.shape)), _AS_INDEX)
    dims = list(index_of)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        mix(op, value, range(len(value.shape)), _WHY)
        return ()
    return _indexed(op, value, dims, max(len(tensor.shape) for tensor in index_of.values()))


@rule("aten.gather", "aten.take_along_dim")
def gather(op: Op) -> Labellings:
    """Follow elements along one dim that an index of the same shape selects.

    An index that is shorter along another dim keeps only the first channels there, so these freeze.
    """
    value, indices = op["self"], op.inputs()[1]
    mix(op, indices, range(len(indices.shape)), _AS_INDEX)
    dim = op["dim"]
    if dim is None:
        mix(op, value, range(len(value.shape)), _WHY)
        return ()
    shorter = [d for d, size in enumerate(value.shape) if indices.shape[d] != size]
    dims = list(dict.fromkeys([dim % len(value.shape), *shorter]))
    return without(mix(op, value, dims, _WHY), dims, len(value.shape))
