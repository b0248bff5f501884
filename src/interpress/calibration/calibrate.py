"""One pass of the original network over the calibration data: what every reader gets to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from interpress.calibration.sample_weights import TopClasses, joined, top_classes_of
from interpress.data.batches import batch_size
from interpress.errors import DataError
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.dense import DenseLayer, dense_layer_of, sample_rows
from interpress.graph.example import Example
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.patterns import epilogue_of
from interpress.linalg.factor import RFactor, add_gram, mirror, triangle
from interpress.linalg.stream import FactorStream
from interpress.spaces.read_sites import by_node, operand_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Tap

ROWS_PER_EXAMPLE = 16  # positions of an image, tokens of a text; more adds next to nothing
PLENTY = 6  # rows per channel, if channels are all there is to tell apart; but
_LEAST_ROWS_PER_EXAMPLE = 4
LARGEST_PATCH = 2048  # inputs per output; of larger kernels, each channel's principal parts
_EXAMPLES_FOR_ENERGY = 8  # of every batch
_EXACT = torch.float64


@dataclass
class PatchMoments:
    """Second moments of the patches that one dense layer reads."""

    gram: Tensor
    """Its upper half; `mirror` fills the rest."""
    total: Tensor
    rows: int
    origin: Tensor | None = None
    """What rows are counted from: the mean of the first batch, so that nothing cancels later."""
    basis: Tensor | None = None
    """(channels, kernel, parts) where kernels are large: what rows see of a channel's patch."""

    @classmethod
    def empty(cls, size: int, dtype: torch.dtype, device: torch.device) -> PatchMoments:
        """No rows yet."""
        return cls(
            torch.zeros(size, size, dtype=dtype, device=device),
            torch.zeros(size, dtype=torch.float64, device=device),
            0,
        )

    def add(self, X: Tensor) -> None:
        """More rows (rows, size)."""
        if self.basis is not None:
            apart = X.reshape(len(X), *self.basis.shape[:2])
            X = torch.einsum("rck,ckp->rcp", apart, self.basis).flatten(1)
        if self.origin is None:
            self.origin = X.mean(0)
        X = X - self.origin
        add_gram(self.gram, X)
        self.total += X.sum(0)
        self.rows += len(X)

    def centred(self) -> Tensor:
        """The Gram matrix of rows less their mean."""
        mean = (self.total / max(self.rows, 1)).to(self.gram.dtype)
        return torch.addr(mirror(self.gram), mean, mean, alpha=-self.rows)

    def whole(self) -> Tensor:
        """The Gram matrix of rows as they are."""
        mean = (self.total / max(self.rows, 1)).to(self.gram.dtype)
        if self.origin is not None:
            mean = mean + self.origin
        return torch.addr(self.centred(), mean, mean, alpha=self.rows)


@dataclass
class OutputVariance:
    """How much the values that a reader's output becomes vary, summed over channels, per row."""

    square: Tensor | float = 0.0
    total: Tensor | float = 0.0
    rows: int = 0

    def add(self, value: Tensor, channel: int) -> None:
        """Some examples of what the output became."""
        few = value[:_EXAMPLES_FOR_ENERGY].double()
        others = [dim for dim in range(few.ndim) if dim != channel % few.ndim]
        self.total = self.total + few.sum(others)
        self.square = self.square + few.square().sum(others)
        self.rows += few.numel() // few.shape[channel]

    @property
    def variance(self) -> float:
        """The sum over channels of their variances."""
        square, total = torch.as_tensor(self.square), torch.as_tensor(self.total)
        return float((square / self.rows - (total / self.rows).square()).clamp(min=0).sum())


@dataclass
class Statistics:
    """All that a calibration pass leaves behind; independent of how much data there was."""

    factors: dict[str, RFactor] = field(default_factory=dict)
    """Per tap: `R.T @ R == Z.T @ Z` over sampled rows; columns of two groups apart."""
    energies: dict[str, float] = field(default_factory=dict)
    """Per tap with a dense reader: variance of what the reader's output becomes, per row."""
    moments: dict[str, PatchMoments] = field(default_factory=dict)
    """Per tap with a dense reader that is small enough: moments of its patches."""
    examples: int = 0
    decisions: TopClasses | None = None
    """What the network made of every example; None where it does not decide once for each."""
    data: str = ""
    """The fingerprint of the examples."""


def shrinkable_taps(spaces: Spaces) -> list[Tap]:
    """The taps at which some channel can leave."""
    names = dict.fromkeys(name for space in spaces.shrinkable for name in space.taps)
    return [spaces.taps[name] for name in names]


def dense_readers(spaces: Spaces, taps: Iterable[Tap]) -> dict[str, DenseLayer]:
    """The taps that one plain dense layer reads, and that layer."""
    found = {}
    parameters = spaces.program.parameters()
    for tap in taps:
        dense = dense_layer_of(spaces.program, tap.sites[0].op.node, parameters)
        plain = len(tap.sites) == len(tap.absorbers) == 1 and tap.sites[0].argument == "input"
        if dense is not None and plain and dense.weight == tap.absorbers[0].weight:
            found[tap.name] = dense
    return found


class _Pass:
    """Watches a run of the graph and adds what it sees."""

    def __init__(self, spaces: Spaces, seed: int, patches: bool, expected: int | None) -> None:
        self.taps = shrinkable_taps(spaces)
        self.streams = {tap.name: FactorStream(tap.size) for tap in self.taps}
        self.moments: dict[str, PatchMoments] = {}
        self.totals: dict[str, Tensor] = {}
        self.energies: dict[str, OutputVariance] = {}
        self._sites = by_node(self.taps)
        self._dense = dense_readers(spaces, self.taps)
        self._patches, self._expected = patches, expected
        self._sampler = torch.Generator().manual_seed(seed)
        self._outcomes: dict[fx.Node, list[tuple[str, int]]] = {}
        parameters = spaces.program.parameters()
        for name, dense in self._dense.items():
            self.energies[name] = OutputVariance()
            last = epilogue_of(spaces.program, spaces.taps[name].sites[0].op.node, parameters).last
            self._outcomes.setdefault(last, []).append((name, 1 if dense.spatial else -1))
        self.examples = 0

    def watch(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Before a node runs: the operands that are taps."""
        for tap, site in self._sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            at = sample_rows(tap.rows(operand, site), self._wanted(tap), self._sampler)
            rows = tap.columns(operand, site, at)
            self.streams[tap.name].add(rows)
            dense = self._dense.get(tap.name)
            if not self._patches or dense is None or dense.groups > 1:
                continue
            if _reads_rows(tap, dense):
                self.totals[tap.name] = self.totals.get(tap.name, 0) + rows.sum(0, dtype=_EXACT)
            elif 2 * dense.shape[1] <= LARGEST_PATCH:
                self._add_patches(tap.name, dense, operand)
        return args, kwargs

    def _wanted(self, tap: Tap) -> int:
        """How many rows of a batch: as many of every example, and in all no more than helps."""
        if self._patches or self._expected is None:
            return ROWS_PER_EXAMPLE * self.examples
        each = max(-(-PLENTY * tap.size // self._expected), _LEAST_ROWS_PER_EXAMPLE)
        return min(each, ROWS_PER_EXAMPLE) * self.examples

    def see(self, node: fx.Node, value: Any) -> None:
        """After a node ran: what outputs have become."""
        for name, channel in self._outcomes.get(node, ()):
            self.energies[name].add(value, channel)

    def _add_patches(self, name: str, dense: DenseLayer, operand: Tensor) -> None:
        each = ROWS_PER_EXAMPLE * 1280 // max(dense.unknowns, 1280)
        at = dense.positions(operand, max(each, 10) * self.examples, self._sampler)
        X = dense.inputs(operand, at)[:, 0]
        X = X.to(torch.promote_types(X.dtype, torch.float32))
        if name not in self.moments:
            basis = _principal(X, dense) if dense.unknowns > LARGEST_PATCH else None
            size = dense.unknowns if basis is None else basis.shape[0] * basis.shape[2]
            self.moments[name] = PatchMoments.empty(size, X.dtype, X.device)
            self.moments[name].basis = basis
        self.moments[name].add(X)


def _principal(X: Tensor, dense: DenseLayer) -> Tensor:
    """Per channel, the directions in which the patches of a first batch are largest."""
    apart = X.reshape(len(X), dense.shape[1], -1)
    vectors = torch.linalg.eigh(torch.einsum("rck,rcl->ckl", apart, apart)).eigenvectors
    return vectors[:, :, -(LARGEST_PATCH // dense.shape[1]) :]


def _reads_rows(tap: Tap, dense: DenseLayer) -> bool:
    """Whether a patch is a row of the tap, as for linear layers and 1 x 1 convolutions."""
    own = torch.arange(tap.size)
    return dense.unknowns == tap.size and torch.equal(tap.absorbers[0].column, own)


def calibrate(
    spaces: Spaces,
    batches: Iterable[Example],
    *,
    patches: bool = True,
    judge: OutputMeaning | None = None,
    expected: int | None = None,
    seed: int = 0,
    done: Callable[[int], None] = lambda examples: None,
) -> Statistics:
    """Run the original network over the data once; memory does not grow with them.

    `expected` is how many examples there are, about, if that is known.
    """
    seen = _Pass(spaces, seed, patches, expected)
    examples = 0
    decisions: list[TopClasses | None] = []
    calls = fast_kernels(spaces.program, spaces.program.parameters())
    for number, example in enumerate(batches):
        seen.examples = batch_size(example)
        outputs = spaces.program.run(example, watch=seen.watch, see=seen.see, instead=calls)
        check_finite(outputs, number)
        decisions.append(top_classes_of(judge, outputs, seen.examples))
        examples += seen.examples
        done(seen.examples)
    factors = {tap.name: _apart(seen.streams[tap.name].factor(), tap) for tap in seen.taps}
    for name, total in seen.totals.items():
        seen.moments[name] = PatchMoments(factors[name].G, total, factors[name].rows)
    energies = {name: energy.variance for name, energy in seen.energies.items()}
    return Statistics(factors, energies, seen.moments, examples, joined(decisions))


def check_finite(outputs: Iterable[Tensor], number: int) -> None:
    """Refuse a network whose outputs on the calibration data are not numbers."""
    for output in outputs:
        if output.is_floating_point() and bool(output.isnan().any()):
            bad = int(output.isnan().flatten(1).any(1).sum()) if output.ndim > 1 else 1
            raise DataError(
                f"the model's output is NaN for {bad} examples of calibration batch {number}; "
                "drop or repair these examples, or run the model in float32"
            )


def _apart(factor: RFactor, tap: Tap) -> RFactor:
    """The factor with columns of different groups made orthogonal, as their reader sees them."""
    if len(tap.groups.unique()) == 1:
        return factor
    if factor.gram is not None:
        same = (tap.groups[:, None] == tap.groups[None, :]).to(factor.device)
        return RFactor(factor.rows, factor.floor, gram=factor.gram * same)
    blocks = []
    for group in tap.groups.unique():
        mine = torch.nonzero(tap.groups == group).reshape(-1).to(factor.device)
        own = triangle(factor.R[:, mine])
        block = own.new_zeros(len(own), factor.n)
        block[:, mine] = own
        blocks.append(block)
    return RFactor(factor.rows, factor.floor, root=torch.cat(blocks))
