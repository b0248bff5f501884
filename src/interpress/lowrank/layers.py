"""Which layers of a network can become two thin ones.

A layer is left whole unless running the network shows that it is an ordinary one: a module of a
standard class, called once through its module, whose weight nothing else reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from interpress.graph.dense import DenseLayer, dense_layer_of
from interpress.graph.model_state import output_tensors
from interpress.graph.patterns import Epilogue, epilogue_of
from interpress.graph.program import Program, usual_size
from interpress.linalg.low_rank import Factors
from interpress.spaces.from_program import matches_pattern
from interpress.surgery.projection_identity import two_examples
from interpress.surgery.thin_layers import DENSE_CLASSES, factored_copy

_TOLERANCE = 1e-3  # relative, in single precision, of outputs at full rank
_TOLERANCE_HALF = 5e-2


@dataclass(frozen=True, eq=False)
class FactorableLayer:
    """A dense layer of the original network that can become two."""

    name: str
    """The name of its module."""
    node: fx.Node
    dense: DenseLayer
    epilogue: Epilogue
    positions: int
    """How often the layer is applied to the captured example: its output's rows."""

    @property
    def shifts(self) -> bool:
        """Whether it has a bias to change: its own, or the mean of the norm after it."""
        return self.dense.bias is not None or self.epilogue.norm is not None


def factorable_layers(program: Program, exclude: Sequence[str] = ()) -> list[FactorableLayer]:
    """Return the layers that can become two, in the order in which they run."""
    model, parameters = program.model, program.parameters()
    uses = _uses(program)
    found = []
    for node in program.operators():
        dense = dense_layer_of(program, node, parameters)
        if dense is None or dense.groups != 1 or uses[dense.weight] != 1:
            continue
        name = dense.weight.removesuffix(".weight")
        if name == dense.weight or any(matches_pattern(name, pattern) for pattern in exclude):
            continue
        if not _is_plain(model.get_submodule(name), dense, name):
            continue
        positions = math.prod(map(usual_size, node.meta["val"].shape)) // dense.shape[0]
        if program.doubled:
            positions //= 2
        epilogue = epilogue_of(program, node, parameters)
        found.append(FactorableLayer(name, node, dense, epilogue, positions))
    return _running(program, _called_once(program, found))


def _uses(program: Program) -> Counter[str]:
    """Return how often each weight is read, in the program and under other names of the model."""
    uses: Counter[str] = Counter()
    for node in program.nodes:
        if (weight := program.weight_name(node)) is not None:
            uses[weight] += len(node.users)
    names: dict[int, list[str]] = {}
    for name, tensor in program.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    for aliases in names.values():
        if len(aliases) > 1:
            uses.update(dict.fromkeys(aliases, len(aliases)))
    return uses


def _is_plain(module: nn.Module, dense: DenseLayer, name: str) -> bool:
    """Return whether a module has nothing but what a linear layer or convolution has."""
    if type(module) not in DENSE_CLASSES or getattr(module, "padding_mode", "zeros") != "zeros":
        return False
    has_bias = getattr(module, "bias", None) is not None
    if dense.bias != (f"{name}.bias" if has_bias else None):
        return False
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    tensors = set(module._parameters) | set(module._buffers)
    own_forward = "forward" in vars(module)
    return not any(hooks) and not own_forward and tensors == {"weight", "bias"}


def _called_once(program: Program, layers: list[FactorableLayer]) -> list[FactorableLayer]:
    """Return the layers whose module is called exactly once, and that have one name."""
    model = program.model
    names = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    calls: Counter[str] = Counter()
    handles = []
    for layer in layers:
        module = model.get_submodule(layer.name)
        hook = lambda *_, name=layer.name: calls.update([name])  # noqa: E731
        handles.append(module.register_forward_hook(hook))
    try:
        output_tensors(model, two_examples(program))
    finally:
        for handle in handles:
            handle.remove()
    return [
        layer
        for layer in layers
        if calls[layer.name] == 1 and names[id(model.get_submodule(layer.name))] == 1
    ]


def _running(program: Program, layers: list[FactorableLayer]) -> list[FactorableLayer]:
    """Return the layers that can be replaced while the network gives the same outputs.

    A module's parent may read its weight, or ask for its class. Half of the layers are tried at
    once until those that fail are found.
    """
    if not layers or _gives_the_same(program, layers):
        return layers
    if len(layers) == 1:
        return []
    half = len(layers) // 2
    return [*_running(program, layers[:half]), *_running(program, layers[half:])]


def _gives_the_same(program: Program, layers: Sequence[FactorableLayer]) -> bool:
    """Return whether the network with these layers as two, at full rank, gives its own outputs."""
    model, example = program.model, two_examples(program)
    expected = output_tensors(model, example)
    try:
        trial = factored_copy(model, {layer.name: _exact(model, layer) for layer in layers})
        got = output_tensors(trial, example)
    except Exception:  # the model's own code
        return False
    return len(got) == len(expected) and all(map(_close, got, expected))


def _exact(model: nn.Module, layer: FactorableLayer) -> Factors:
    """Return factors of full rank, whose product is the weight itself."""
    weight: Tensor = model.get_parameter(layer.dense.weight).detach()
    W = layer.dense.matrix(weight)
    outputs, inputs = W.shape
    if outputs <= inputs:
        return Factors(torch.eye(outputs).to(W), W)
    return Factors(W, torch.eye(inputs).to(W))


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return True
    allowed = _TOLERANCE if a.dtype in (torch.float32, torch.float64) else _TOLERANCE_HALF
    size = torch.linalg.vector_norm(b.double())
    return bool(torch.linalg.vector_norm(a.double() - b.double()) <= allowed * size)
