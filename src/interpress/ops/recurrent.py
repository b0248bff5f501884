"""Recurrent layers: their outputs are fed back as inputs, so all their channels freeze."""

from __future__ import annotations

from interpress.labels.labelling import Labellings
from interpress.labels.trace import Op
from interpress.ops.registry import Term, flops, rule

_LAYERS = ("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu")
_CELLS = ("aten.lstm_cell", "aten.gru_cell", "aten.rnn_tanh_cell", "aten.rnn_relu_cell")
_OUTPUTS = {"aten.lstm": 3, "aten.lstm_cell": 2}


@rule(*_LAYERS, *_CELLS)
def recurrent(op: Op) -> list[Labellings]:
    """Freeze inputs, weights and states; return no labels for the outputs."""
    for value in op.inputs():
        if value.weight:
            op.trace.produced += [la.labels for la in value.channels() if la.support == (0,)]
        for labelling in value.labellings:
            op.trace.freeze(labelling.labels, f"{op.location} feeds its channels back (recurrent)")
    return [()] * _OUTPUTS.get(op.family, 1 if op.family in _CELLS else 2)


@flops(*_LAYERS, *_CELLS)
def recurrent_flops(op: Op) -> list[Term]:
    """Count every weight matrix once per time step and example."""
    x, *states_and_weights = op.inputs()
    matrices = [v for v in states_and_weights if v.weight and len(v.shape) == 2]
    steps = tuple((x, dim) for dim in range(len(x.shape) - 1))
    return [(2, (*steps, (weight, 0), (weight, 1))) for weight in matrices]
