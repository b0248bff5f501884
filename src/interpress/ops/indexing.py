"""Operators that look things up by number: embeddings, indexing, gathers."""

from __future__ import annotations

from interpress.labels.labelling import Labellings, tidy
from interpress.labels.relations import mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule

_WHY = "looks its members up by number"


def _looked_up(op: Op, value: Value, dim: int, index_ndim: int) -> Labellings:
    """Layers after one dim is replaced by the dims of an index."""
    dim %= len(value.shape)
    labellings = without(mix(op, value, [dim], _WHY), [dim], len(value.shape))
    moved = []
    for labelling in labellings:
        shape = list(labelling.labels.shape)
        shape[dim : dim + 1] = [1] * index_ndim
        moved.append(labelling.moved(labelling.labels.reshape(shape)))
    return tidy(moved)


@rule("aten.embedding")
def embedding(op: Op) -> Labellings:
    """Rows of a table: its columns are channels."""
    weight, indices = op["weight"], op["indices"]
    op.trace.produced += [
        labelling.labels for labelling in weight.channels() if labelling.support == (1,)
    ]
    return _looked_up(op, weight, 0, len(indices.shape))


@rule("aten.index_select")
def index_select(op: Op) -> Labellings:
    """Some indices of one dim."""
    return _looked_up(op, op["self"], op["dim"], 1)


@rule("aten.index")
def index(op: Op) -> Labellings:
    """Advanced indexing; one index tensor is followed, several in a row too."""
    value, indices = op["self"], list(op["indices"])
    for used in (i for i in indices if i is not None):
        mix(op, used, range(len(used.shape)), "uses it as an index")
    dims = [dim for dim, used in enumerate(indices) if used is not None]
    width = max(len(used.shape) for used in indices if used is not None)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        mix(op, value, range(len(value.shape)), _WHY)
        return ()
    labellings = without(mix(op, value, dims, _WHY), dims, len(value.shape))
    moved = []
    for labelling in labellings:
        shape = list(labelling.labels.shape)
        shape[dims[0] : dims[-1] + 1] = [1] * width
        moved.append(labelling.moved(labelling.labels.reshape(shape)))
    return tidy(moved)


@rule("aten.gather", "aten.take_along_dim")
def gather(op: Op) -> Labellings:
    """Elements along one dim picked by an index of the same shape."""
    value, picked = op["self"], op.inputs()[1]
    mix(op, picked, range(len(picked.shape)), "uses it as an index")
    dim = op["dim"]
    if dim is None:
        mix(op, value, range(len(value.shape)), _WHY)
        return ()
    return without(mix(op, value, [dim], _WHY), [dim], len(value.shape))
