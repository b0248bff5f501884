"""The gradient steps of distillation: Adam, with steps relative to the size of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_RELATIVE_STEP = 3e-3
"""The largest step of a weight tensor, relative to its root mean square. Networks of any scale get
steps in proportion to their weights. It is lowered if held-out examples get worse."""
_SMALLEST_SIZE = 1e-2
"""Biases may be zero; they move as if their root mean square were at least this."""
_WARM_UP = 0.05
"""The part of the run over which steps grow, while the moments of Adam are estimated."""


@contextmanager
def trainable(network: nn.Module) -> Iterator[None]:
    """Let all floating-point parameters have gradients, in evaluation mode, inside the body.

    In evaluation mode the statistics of batch norms stay as they are, and nothing is dropped.
    """
    modes = [(module, module.training) for module in network.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in network.parameters()]
    try:
        network.eval()
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, flag in flags:
            parameter.grad = None
            parameter.requires_grad_(flag)


class Steps:
    """Adam on single-precision copies of the parameters, each relative to the size of its tensor.

    All copies have the same step, so that all of them are one group, which a GPU updates at once.
    """

    def __init__(self, network: nn.Module) -> None:
        self._weights: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self._sizes = [max(_root_mean_square(p), _SMALLEST_SIZE) for p in self._weights]
        self._copies = [
            p.detach().float() / size for p, size in zip(self._weights, self._sizes, strict=True)
        ]
        on_gpu = all(copy.is_cuda for copy in self._copies)
        self._adam = torch.optim.Adam(self._copies, lr=0.0, betas=(0.9, 0.99), fused=on_gpu)
        self.scale = 1.0
        """How much smaller the steps became, since held-out examples got worse."""

    def gradients(self) -> list[Tensor]:
        """Return the gradients of all weights; 0 where a weight has none."""
        for weight in self._weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        return [weight.grad for weight in self._weights if weight.grad is not None]

    def lower(self) -> None:
        """Make all further steps smaller, and forget the moments that led astray."""
        self.scale *= 0.3
        self._adam.state.clear()

    def state(self) -> list[Tensor]:
        """Return a copy of the weights, relative to their sizes."""
        return [copy.clone() for copy in self._copies]

    @torch.no_grad()
    def restore(self, state: Sequence[Tensor]) -> None:
        """Set the weights to an earlier state."""
        torch._foreach_copy_(self._copies, list(state))
        self._write()

    def checkpoint(self) -> dict[str, Tensor]:
        """Return what `resume` needs: the weights now, and the moments of Adam."""
        tensors = {f"now.{number}": copy for number, copy in enumerate(self._copies)}
        for number, copy in enumerate(self._copies):
            for name, value in self._adam.state.get(copy, {}).items():
                tensors[f"{name}.{number}"] = value
        return tensors

    @torch.no_grad()
    def resume(self, tensors: Mapping[str, Tensor], scale: float) -> None:
        """Go on from what `checkpoint` returned."""
        self.scale = scale
        self.restore([tensors[f"now.{number}"] for number in range(len(self._copies))])
        for number, copy in enumerate(self._copies):
            if f"step.{number}" not in tensors:
                continue
            self._adam.state[copy] = {
                "step": tensors[f"step.{number}"].to(_home_of_steps(copy)),
                "exp_avg": tensors[f"exp_avg.{number}"].to(copy),
                "exp_avg_sq": tensors[f"exp_avg_sq.{number}"].to(copy),
            }

    @torch.no_grad()
    def step(self, part: float) -> None:
        """Take a step from the gradients of the network; `part` of the run is over (0 to 1).

        Gradients that are not finite change nothing.
        """
        gradients = [grad.float() for grad in self.gradients()]
        for weight in self._weights:
            weight.grad = None
        if not bool(nn.utils.get_total_norm(gradients).isfinite()):
            return
        torch._foreach_mul_(gradients, self._sizes)
        for copy, gradient in zip(self._copies, gradients, strict=True):
            copy.grad = gradient
        self._adam.param_groups[0]["lr"] = _RELATIVE_STEP * self.scale * _schedule(part)
        self._adam.step()
        for copy in self._copies:
            copy.grad = None
        self._write()

    def _write(self) -> None:
        """Set the weights of the network to what their copies say."""
        torch._foreach_copy_(self._weights, torch._foreach_mul(self._copies, self._sizes))


def _schedule(part: float) -> float:
    """Return the step relative to the largest: a short rise, then half a cosine down to 0."""
    rise = min(1.0, part / _WARM_UP + 0.05)
    return rise * 0.5 * (1 + math.cos(math.pi * min(1.0, part)))


def _home_of_steps(weight: Tensor) -> torch.device:
    """Return where Adam counts its steps: on a GPU beside the weight, since it is fused there."""
    return weight.device if weight.is_cuda else torch.device("cpu")


def _root_mean_square(tensor: Tensor) -> float:
    return float(tensor.detach().float().square().mean().sqrt()) if tensor.numel() else 0.0
