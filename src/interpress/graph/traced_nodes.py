"""Remember which node of an `fx.GraphModule` every captured operator came from.

torch.export forgets the nodes of a graph that it captures, but not the modules. So the graph is
captured as a twin in which every node that calls something is a module of its own. The names of
these modules come back in the record of the modules that each captured operator ran in.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch import fx, nn

_STEPS = "_interpress_steps"
_PREFIX = "node_"  # so that no node's name is that of a module's attribute
_GUARDS = "_guards_fn"  # the checks of input shapes in a module made from an exported program
_STEP_OPS = ("call_function", "call_method")

Origin = tuple[str, str]
"""The path of a graph module in the model, and the name of one of its nodes."""


class _Step(nn.Module):
    """Calls what one node calls."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__()
        self._is_method = node.op == "call_method"
        self._called: Any = node.target

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_method:
            return getattr(args[0], self._called)(*args[1:], **kwargs)
        return self._called(*args, **kwargs)


@contextlib.contextmanager
def with_steps(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a model whose graph modules run every node as a module of its own.

    A graph module inside of the model is exchanged while the body runs.
    """
    twins = {id(m): _twin(m) for m in model.modules() if isinstance(m, fx.GraphModule)}
    if not twins:
        yield model
        return
    root = twins.get(id(model), model)
    exchanged: list[tuple[dict[str, Any], str, nn.Module]] = []
    for module in [*model.modules(), *twins.values()]:
        children: dict[str, Any] = module._modules
        for name, child in children.items():
            if id(child) in twins and child is not twins[id(child)]:
                exchanged.append((children, name, child))
    try:
        for children, name, child in exchanged:
            children[name] = twins[id(child)]
        yield root
    finally:
        for children, name, child in exchanged:
            children[name] = child


def _twin(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph module over the same parameters, with a step for every node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, of its graph modules
        graph = copy.deepcopy(module.graph)
    steps = nn.Module()
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == _GUARDS and not node.users:
            graph.erase_node(node)
        elif node.op in _STEP_OPS:
            steps.add_module(_PREFIX + node.name, _Step(node))
            path = f"{_STEPS}.{_PREFIX}{node.name}"
            node.op, node.target = "call_module", path
            # of a whole model that is a graph, torch.export takes the record from its nodes
            node.meta = {"nn_module_stack": {path: (path, _Step.__qualname__)}}
    twin = fx.GraphModule({}, fx.Graph())
    for name, value in vars(module).items():  # parameters, buffers and submodules are shared
        if name not in ("_modules", "_graph", "_code"):
            vars(twin)[name] = value
    vars(twin)["_modules"] = {**module._modules, _STEPS: steps}
    twin.graph = graph
    return twin


def restore_origins(nodes: Iterable[fx.Node], model: nn.Module) -> None:
    """Write down where captured operators came from, and the modules that they were traced in."""
    stacks = {
        (path, node.name): node.meta.get("nn_module_stack", {})
        for path, module in graph_modules(model).items()
        for node in module.graph.nodes
    }
    for node in nodes:
        stack = node.meta.get("nn_module_stack", {})
        paths = [path for path, _ in stack.values() if f"{_STEPS}.{_PREFIX}" in path]
        if paths:
            owner, _, name = paths[-1].rpartition(f"{_STEPS}.{_PREFIX}")
            origin = (owner.removesuffix("."), name)
            node.meta["origin"] = origin
            node.meta["nn_module_stack"] = stacks.get(origin) or {
                key: (path, kind) for key, (path, kind) in stack.items() if path not in paths
            }


def graph_modules(model: nn.Module) -> dict[str, fx.GraphModule]:
    """Return the graph modules in a model, by path."""
    return {
        path: module for path, module in model.named_modules() if isinstance(module, fx.GraphModule)
    }
