"""Run a language model backwards and measure the sensitivity of every tap.

The network runs backwards block by block, so the activations of one block are held at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.sensitivity import LARGEST, GradientSum, Sensitivity
from interpress.data.batches import batch_size, split_batch
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.blocks import Block, border_bytes
from interpress.graph.example import Example
from interpress.graph.executor import Executor, Frame
from interpress.graph.normalised import inverse_sizes, normalised_value
from interpress.graph.on_device import move_values
from interpress.spaces.batching import captured_examples
from interpress.spaces.read_sites import operand_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Site

EXAMPLES = 32
"""Examples whose gradients are computed at most."""
_TOKENS_AT_ONCE = 2048  # positions that run backwards together


def bytes_of_sensitivities(spaces: Spaces, blocks: Sequence[Block]) -> int:
    """Return the bytes that all sensitivities take, with the values between blocks of one batch."""
    taps = shrinkable_taps(spaces)
    dense = dense_consumers(spaces, taps)
    outputs = [dense[tap.name].shape[0] if tap.name in dense else tap.size for tap in taps]
    between = border_bytes(spaces.program, blocks) // captured_examples(spaces)
    return sum(4 * min(n, LARGEST) * n for n in outputs) + len(blocks) * between


def measure_sensitivities(
    spaces: Spaces,
    blocks: Sequence[Block],
    examples: Iterable[Example],
    meaning: OutputMeaning,
    seed: int,
) -> Mapping[str, Sensitivity]:
    """Return the sensitivity of every tap; empty if the network cannot run backwards."""
    backward = _Backward(spaces, blocks, meaning, seed)
    try:
        for batch in examples:
            length = max((t.shape[1] for t in batch.tensors() if t.ndim > 1), default=1)
            for example in split_batch(batch, max(1, _TOKENS_AT_ONCE // length)):
                if not all(total.is_enough for total in backward.sums.values()):
                    backward.add(example)
    except RuntimeError:  # an operator without a gradient, or too little memory
        return {}
    found = {name: total.result() for name, total in backward.sums.items()}
    known = {name: one for name, one in found.items() if one is not None}
    return known if len(known) == len(found) else {}


class _Backward:
    """Runs examples forwards, then backwards block by block, and sums up gradients."""

    def __init__(
        self, spaces: Spaces, blocks: Sequence[Block], meaning: OutputMeaning, seed: int
    ) -> None:
        self._program, self._blocks, self._meaning = spaces.program, blocks, meaning
        self._executor = Executor(spaces.program, differentiable=True)
        self._generator = torch.Generator().manual_seed(seed)
        taps = shrinkable_taps(spaces)
        dense = dense_consumers(spaces, taps)
        self.sums = {tap.name: GradientSum(tap, tap.name in dense) for tap in taps}
        self._by_node: dict[fx.Node, list[GradientSum]] = {}
        for total in self.sums.values():
            for site in total.tap.sites:
                self._by_node.setdefault(site.op.node, []).append(total)
        self._spatial = {name for name, layer in dense.items() if layer.spatial}
        self._sizes = {
            total.tap.name: normalised_value(total.tap.sites[0].op.node)
            for total in self.sums.values()
            if total.of_consumer and total.tap.name not in self._spatial
        }

    def add(self, example: Example) -> None:
        """Run a batch forwards and backwards."""
        borders = [self._executor.frame(example)]
        rest = torch.device("cpu")
        with torch.no_grad():
            for block in self._blocks[:-1]:
                frame = borders[-1].branch()
                self._executor.advance(frame, block.nodes)
                if len(borders) > 1 and self._program.computes_elsewhere:
                    borders[-1].move(rest)
                borders.append(frame)
        gradients: dict[fx.Node, Tensor] = {}
        for number in reversed(range(len(self._blocks))):
            frame = borders.pop()
            frame.values.update(move_values(frame.values, self._program.device))
            gradients = self._run_back(self._blocks[number], frame, gradients, example)

    def _run_back(
        self, block: Block, frame: Frame, later: Mapping[fx.Node, Tensor], example: Example
    ) -> dict[fx.Node, Tensor]:
        """Run one block with gradients; return those of the values before it.

        `later` has the gradients of the values after it; it is empty for the last block.
        """
        before: dict[fx.Node, Tensor] = {}
        for node, value in frame.values.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                before[node] = value.detach().requires_grad_()
        watched = _Watched(self._by_node, {node for node in self._sizes.values() if node})
        with torch.enable_grad():
            copies = self._program.writes_in_place  # a value to differentiate is not written into
            frame.values.update({n: v.clone() if copies else v for n, v in before.items()})
            self._executor.advance(frame, block.nodes, before=watched.before, after=watched.after)
            ends, starts = self._ends(frame, later, example)
        values = [*before.values(), *watched.outputs.values(), *watched.operands.values()]
        gradients = iter(torch.autograd.grad(ends, values, starts, allow_unused=True))
        earlier = {node: next(gradients) for node in before}
        for node in watched.outputs:
            self._add_output(node, next(gradients), watched, example)
        for (name, site), _ in watched.operands.items():
            gradient = next(gradients)
            if gradient is not None:
                tap, operand = self.sums[name].tap, watched.operands[name, site].detach()
                columns = tap.columns(gradient, site), tap.columns(operand, site)
                self.sums[name].add(*columns, None, self._generator)
        return {node: gradient for node, gradient in earlier.items() if gradient is not None}

    def _add_output(
        self,
        node: fx.Node,
        gradient: Tensor | None,
        watched: _Watched,
        example: Example,
    ) -> None:
        """Add the gradient of a consumer's output, relative to the size of its row."""
        for total in self._by_node[node] if gradient is not None else ():
            if not total.of_consumer or gradient is None:
                continue
            value = watched.outputs[node].detach()
            if total.tap.name in self._spatial:  # channels are the second dim of a convolution
                gradient, value = gradient.movedim(1, -1), value.movedim(1, -1)
            rows = gradient.reshape(-1, gradient.shape[-1])
            values = value.reshape(rows.shape)
            at, counting = self._sizes.get(total.tap.name), _counting(example, len(rows))
            scale = None
            if at is not None:
                scale = inverse_sizes(watched.sizes[at].reshape(len(rows), -1))[counting]
            total.add(rows[counting], values[counting], scale, self._generator)

    def _ends(
        self, frame: Frame, later: Mapping[fx.Node, Tensor], example: Example
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return the values to differentiate, and their gradients if the last block is done."""
        if later:
            nodes = [n for n in later if n in frame.values and frame.values[n].requires_grad]
            return [frame.values[node] for node in nodes], [later[node] for node in nodes]
        nodes = [node for node in self._program.output_nodes() if node in frame]
        outputs = [frame[node] for node in nodes if isinstance(frame[node], Tensor)]
        scores = self._meaning.pick(outputs).float()
        mask = self._meaning.mask(outputs, example)
        log_p = torch.log_softmax(scores, -1).flatten(0, -2)
        if mask is not None:
            log_p = log_p[mask.reshape(-1).bool().to(log_p.device)]
        drawn = _draw(log_p.detach(), self._generator)
        return [log_p.gather(-1, drawn[:, None]).sum()], None


class _Watched:
    """Hooks that keep the values of one block whose gradients are asked for."""

    def __init__(
        self, sums: Mapping[fx.Node, Sequence[GradientSum]], sizes: Collection[fx.Node]
    ) -> None:
        self._sums, self._wanted_sizes = sums, sizes
        self.outputs: dict[fx.Node, Tensor] = {}
        """Outputs of consumers."""
        self.operands: dict[tuple[str, Site], Tensor] = {}
        """What stands at a tap, where gradients of its own columns are asked for."""
        self.sizes: dict[fx.Node, Tensor] = {}
        """Values whose rows' sizes gradients are relative to."""

    def before(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Keep the operands that are taps."""
        for total in self._sums.get(node, ()):
            for site in total.tap.sites:
                if site.op.node is node and not total.of_consumer:
                    operand = operand_of(node, args, kwargs, site)
                    self.operands[total.tap.name, site] = _tracked(operand)
        return args, kwargs

    def after(self, node: fx.Node, value: Any) -> None:
        """Keep the outputs of consumers, and the values that they become part of."""
        if any(total.of_consumer for total in self._sums.get(node, ())):
            self.outputs[node] = _tracked(value)
        if node in self._wanted_sizes:
            self.sizes[node] = value.detach()


def _tracked(value: Tensor) -> Tensor:
    """Return a value whose gradient can be asked for."""
    return value if value.requires_grad else value.requires_grad_()


def _draw(log_p: Tensor, generator: torch.Generator) -> Tensor:
    """Return one class per row, drawn from its probabilities; the same on every device."""
    uniform = torch.rand(len(log_p), generator=generator).to(log_p)
    totals = log_p.exp().cumsum(-1)
    threshold = uniform[:, None] * totals[:, -1:]
    return torch.searchsorted(totals, threshold).clamp(max=log_p.shape[-1] - 1).reshape(-1)


def _counting(example: Example, rows: int) -> Tensor | slice:
    """Return which rows a mask counts; all of them if no mask has one entry per row."""
    for mask in example.masks:
        if mask.numel() == rows and len(mask) == batch_size(example):
            return mask.reshape(-1).bool()
    return slice(None)
