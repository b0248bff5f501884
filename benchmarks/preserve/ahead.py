"""Sensitivities of the rest of the network, for networks that make one decision per example.

The product measures them for language models (see `interpress.calibration.sensitivity`). Here an
error is measured by the divergence of the whole decision: errors of all positions of an example add
up, so `M` is multiplied by the number of positions. Gradients are those of a layer's output after
its batch norm, since selections scale weights as the batch norm does.

Networks are certain of most images, whose predictions then hardly react to anything. So the squared
error of the centred scores can be measured instead, as in the loss of distillation: then `g` is the
gradient of a sum of these scores with random signs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx

from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.sensitivity import GradientSum, Sensitivity
from interpress.data.batches import batch_size, split_batch
from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.patterns import batch_norm_after
from interpress.pipeline import steps
from interpress.pipeline.options import Options
from interpress.progress import Display
from interpress.spaces.read_sites import operand_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Site

_EXAMPLES = 1000
"""Examples whose gradients are computed at most."""
_AT_ONCE = 32
"""Examples that run backwards together."""


@contextlib.contextmanager
def looking_ahead(*, scores: bool) -> Iterator[None]:
    """Let analyses in the body measure sensitivities of the whole rest of the network.

    They are those of the scores, or else of the predicted probabilities.
    """
    measure = partial(measured_sensitivities, scores)
    with mock.patch.object(steps, "_sensitivities", measure):
        yield


def measured_sensitivities(
    scores: bool,
    spaces: Spaces,
    data: CalibrationSet,
    meaning: OutputMeaning,
    options: Options,
    bars: Display,
) -> Mapping[str, Sensitivity]:
    """Return the sensitivity of every tap; raise if some tap has none."""
    backward = _Backward(spaces, meaning, scores, options.seed)
    with bars.task("measuring sensitivities", None):
        for batch in data.batches("fit", limit=_EXAMPLES):
            for example in split_batch(batch, _AT_ONCE):
                backward.add(example)
    found = {}
    for name, total in backward.sums.items():
        sensitivity = total.result()
        if sensitivity is None:
            raise ValueError(f"no gradient reached the tap {name!r}")
        positions = sensitivity.rows / backward.examples
        found[name] = replace(sensitivity, root=sensitivity.root * positions**0.5)
    return found


class _Backward:
    """Runs examples forwards and backwards, and sums up gradients."""

    def __init__(self, spaces: Spaces, meaning: OutputMeaning, scores: bool, seed: int) -> None:
        self._meaning, self._of_scores = meaning, scores
        self._executor = Executor(spaces.program, differentiable=True)
        self._generator = torch.Generator().manual_seed(seed)
        self.examples = 0
        taps = shrinkable_taps(spaces)
        dense = dense_consumers(spaces, taps)
        self.sums = {tap.name: GradientSum(tap, tap.name in dense) for tap in taps}
        self._outputs: dict[fx.Node, list[tuple[GradientSum, bool]]] = {}
        self._sites: dict[fx.Node, list[tuple[GradientSum, Site]]] = {}
        parameters = spaces.program.parameters()
        for total in self.sums.values():
            node = total.tap.sites[0].op.node
            if total.of_consumer:
                norm = batch_norm_after(spaces.program, node, parameters)
                watched = node if norm is None else norm.node
                entry = (total, dense[total.tap.name].spatial)
                self._outputs.setdefault(watched, []).append(entry)
                continue
            for site in total.tap.sites:
                self._sites.setdefault(site.op.node, []).append((total, site))

    def add(self, example: Example) -> None:
        """Run a batch forwards and backwards; gradients arrive in hooks."""
        self.examples += batch_size(example)
        seen: set[tuple[str, int]] = set()

        def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
            for total, site in self._sites.get(node, ()):
                operand = operand_of(node, args, kwargs, site)
                if (total.tap.name, id(operand)) not in seen:  # two layers may read one value
                    seen.add((total.tap.name, id(operand)))
                    self._watch_operand(total, site, operand)
            return args, kwargs

        def after(node: fx.Node, value: Any) -> None:
            for total, spatial in self._outputs.get(node, ()):
                self._watch_output(total, spatial, value)

        with torch.enable_grad():
            example = example.map(_differentiable)
            outputs = self._executor.run(example, before=before, after=after)
            self._end(self._meaning.pick(outputs).float()).backward()

    def _end(self, scores: Tensor) -> Tensor:
        """Return the number to differentiate, from scores (examples, classes)."""
        if self._of_scores:
            signs = torch.randint(2, scores.shape, generator=self._generator).mul_(2).sub_(1)
            return ((scores - scores.mean(-1, keepdim=True)) * signs.to(scores)).sum()
        log_p = scores.log_softmax(-1)
        uniform = torch.rand(len(log_p), 1, generator=self._generator).to(log_p)
        totals = log_p.detach().exp().cumsum(-1)
        drawn = torch.searchsorted(totals, uniform * totals[:, -1:])
        return log_p.gather(-1, drawn.clamp(max=log_p.shape[-1] - 1)).sum()

    def _watch_output(self, total: GradientSum, spatial: bool, value: Tensor) -> None:
        values = _rows(value.detach().clone(), spatial)

        def hook(gradient: Tensor) -> None:
            total.add(_rows(gradient.detach(), spatial), values, None, self._generator)

        value.register_hook(hook)

    def _watch_operand(self, total: GradientSum, site: Site, operand: Tensor) -> None:
        values = total.tap.columns(operand.detach().clone(), site)

        def hook(gradient: Tensor) -> None:
            columns = total.tap.columns(gradient.detach(), site)
            total.add(columns, values, None, self._generator)

        operand.register_hook(hook)


def _differentiable(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.is_floating_point())


def _rows(value: Tensor, spatial: bool) -> Tensor:
    """Return the output of a layer as (rows, channels)."""
    value = value.movedim(1, -1) if spatial else value
    return value.reshape(-1, value.shape[-1])
