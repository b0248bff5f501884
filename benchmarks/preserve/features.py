"""Distillation that also compares what both networks compute inside: features.

A feature is the output of a dense layer that produces a shrinkable space. The smaller network's
channels are compared with those channels of the original that they come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor, nn

import interpress
from interpress.data.batches import batch_size
from interpress.distillation import run
from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import Pair
from interpress.graph.example import Example

_PRODUCERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

_Loss = Callable[[Sequence[Tensor], Sequence[Tensor], Example], Tensor]


@dataclass(frozen=True, eq=False)
class Features:
    """The layers whose outputs are compared, and which channels of the original are kept there."""

    kept: Mapping[str, tuple[int, Tensor]]
    """Per name of a module, the dim of its output's channels, and those that are kept."""
    _kept_here: dict[str, Tensor] = field(default_factory=dict)
    """The same where the networks compute. A CUDA graph allows no new copies, so it is kept."""
    _variances: dict[str, Tensor] = field(default_factory=dict)
    """Per layer, the variance of the original's kept channels in the first batch."""

    @classmethod
    def of(cls, result: interpress.Result) -> Features:
        """Return the features of a result; raise if no layer produces a shrinkable space."""
        spaces, cut = result.study.spaces, result.network.cut
        kept: dict[str, tuple[int, Tensor]] = {}
        for name, value in spaces.trace.weights.items():
            module = result.study.original.get_submodule(name.rpartition(".")[0])
            if not name.endswith(".weight") or not isinstance(module, _PRODUCERS):
                continue
            if getattr(module, "groups", 1) > 1:  # carries channels, or mixes them in groups
                continue
            for labelling in value.channels():
                members = spaces.membership.spaces_in(labelling.labels.reshape(-1))
                if labelling.support == (0,) and any(not spaces[i].frozen for i in members):
                    stays = cut.stays(labelling.labels.reshape(-1))
                    dim = -1 if isinstance(module, nn.Linear) else 1
                    kept[name.removesuffix(".weight")] = dim, torch.nonzero(stays).reshape(-1)
        if not kept:
            raise ValueError("no convolution or linear layer produces a shrinkable space")
        return cls(kept)

    @contextlib.contextmanager
    def compared(self, pair: Pair, *, only: bool, apart: bool = False) -> Iterator[Pair]:
        """Yield the pair with a loss that compares features; `only` leaves the outputs out.

        The loss reads what the networks computed last, so run the original before it. With `apart`,
        the gradient of a feature ends at the feature before it.
        """
        with (
            _watched(pair.original, self.kept) as wanted,
            _watched(pair.smaller, self.kept, detach=apart) as got,
        ):

            def loss(reference: Sequence[Tensor], outputs: Sequence[Tensor], part: Example) -> Any:
                features = self._loss(wanted, got, batch_size(part))
                return features if only else features + pair.loss(reference, outputs, part)

            yield replace(pair, loss=cast(OutputLoss, cast(_Loss, loss)))

    def _loss(self, wanted: Mapping[str, Tensor], got: Mapping[str, Tensor], size: int) -> Tensor:
        """Return, per example, the squared error over the variance; the mean over all layers."""
        losses = []
        for name, (dim, kept) in self.kept.items():
            output = got[name].float()
            if name not in self._kept_here:
                self._kept_here[name] = kept.to(output.device)
            target = wanted[name].float().index_select(dim, self._kept_here[name])
            if name not in self._variances:
                by_channel = target.movedim(dim, 0).flatten(1)
                variance = by_channel.var(1, correction=0).mean()
                self._variances[name] = variance.clamp(min=1e-12).detach()
            squares = (target - output).square().reshape(size, -1)
            losses.append(squares.mean(1) / self._variances[name])
        return torch.stack(losses).mean(0)


@contextlib.contextmanager
def _watched(
    network: nn.Module, names: Iterable[str], detach: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Yield the outputs of some modules, as the network computes them inside the body.

    With `detach`, what later modules do has no gradient with respect to them.
    """
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            seen[name] = output
            return output.detach().clone() if detach else output

        return hook

    handles = [network.get_submodule(n).register_forward_hook(keep(n)) for n in names]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def matching_features(features: Features) -> Iterator[None]:
    """Let distillations in the body add the loss of the features to that of the outputs."""
    usual = Pair.add_gradients

    def add_gradients(pair: Pair, example: Example) -> None:
        with features.compared(pair, only=False) as changed:
            usual(changed, example)

    with mock.patch.object(Pair, "add_gradients", add_gradients):
        yield


@contextlib.contextmanager
def features_alone(features: Features, *, apart: bool) -> Iterator[None]:
    """Let distillations in the body compare features only, and be judged by them only.

    With `apart`, every feature trains only the layers since the feature before it.
    """
    usual, usual_losses = Pair.add_gradients, Pair.losses

    def add_gradients(pair: Pair, example: Example) -> None:
        with features.compared(pair, only=True, apart=apart) as changed:
            usual(changed, example)

    def losses(pair: Pair, example: Example, wanted: list[Tensor]) -> Tensor:
        with features.compared(pair, only=True) as changed:
            return usual_losses(changed, example, changed.wanted(example))

    with (
        mock.patch.object(Pair, "add_gradients", add_gradients),
        mock.patch.object(Pair, "losses", losses),
        mock.patch.object(run, "held_out_loss", return_value=0.0),
    ):
        yield
