"""Hold fewer activations for the gradients: compute those inside a block again when needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputed(network: nn.Module, wanted: bool) -> Iterator[None]:
    """Keep only the inputs of every block inside the body, if that is wanted.

    The blocks are the members of the outermost lists and sequences of modules.
    """
    blocks = _blocks(network) if wanted else []
    for block in blocks:
        plain = block.forward
        block.__dict__["forward"] = partial(
            checkpoint, plain, use_reentrant=False, preserve_rng_state=False
        )
    try:
        yield
    finally:
        for block in blocks:
            del block.__dict__["forward"]


def _blocks(network: nn.Module) -> list[nn.Module]:
    """Return the members of the outermost lists and sequences that have no own `forward`."""
    found: list[nn.Module] = []
    waiting = [network]
    while waiting:
        module = waiting.pop()
        children = list(module.children())
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(children) > 1:
            found += [child for child in children if "forward" not in vars(child)]
        else:
            waiting += children
    return list({id(block): block for block in found}.values())
