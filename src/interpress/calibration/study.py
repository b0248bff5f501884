"""What is known about a network after calibration, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from interpress.calibration.layer_outputs import LayerOutputs
from interpress.calibration.row_weights import RowWeights
from interpress.calibration.sample_weights import TopClasses
from interpress.calibration.sensitivity import row_weights_of
from interpress.calibration.statistics import Statistics
from interpress.calibration.streamed import BlockWalk
from interpress.data.batches import can_merge, merge_batches
from interpress.data.calibration_set import HOLD_EVERY, CalibrationSet, Part
from interpress.errors import ArgumentError
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example
from interpress.linalg.factor import RFactor
from interpress.pretrained.config_groups import ConfigGroup
from interpress.pretrained.loadable import loadable_widths
from interpress.pretrained.width_groups import config_groups, groups_of_blocks
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolation_at

_MEMORY_FOR_FEW = 2**30  # bytes of activations that `few_examples` may cause


@dataclass(frozen=True, eq=False)
class Study:
    """A network's spaces and statistics, with the data and the output they belong to."""

    spaces: Spaces
    statistics: Statistics
    data: CalibrationSet | None
    """None if a saved analysis was loaded without data."""
    meaning: OutputMeaning
    fit_examples: int
    """How many examples `data` has to fit."""
    top_classes: TopClasses | None
    """The classes that the network predicts for them."""
    seed: int = 0
    walk: BlockWalk | None = None
    """What measures the statistics block by block, if they are not held at once."""
    outputs: LayerOutputs | None = None
    """What the original's layers gave in the calibration pass, for a refit."""
    _evaluators: dict[Part, Evaluator] = field(default_factory=dict, init=False, repr=False)
    """Per part of the data, what judges on it; it keeps what the original gives there."""

    @property
    def original(self) -> nn.Module:
        """The original network."""
        return self.spaces.program.model

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that weights are stored in."""
        dtypes = [p.dtype for p in self.original.parameters() if p.is_floating_point()]
        return dtypes[0] if dtypes else torch.float32

    @cached_property
    def config_groups(self) -> list[ConfigGroup] | None:
        """The spaces that the model's config sizes together; None if it has no config."""
        return config_groups(self.spaces)

    @property
    def width_groups(self) -> list[tuple[str, ...]]:
        """The spaces that get the same width if the user asks for the same widths."""
        if self.config_groups is None:
            return groups_of_blocks(self.spaces)
        return [group.members for group in self.config_groups]

    def loadable_widths(self, allowed: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return the allowed widths without those that the model's config refuses to load."""
        groups = self.config_groups
        if not groups:
            return dict(allowed)
        return loadable_widths(self.original.config, groups, allowed)

    def sample_weights(self) -> Tensor:
        """Return (fit_examples,) how much every example counts in the refit."""
        if self.top_classes is None:
            return torch.ones(self.fit_examples)
        return self.top_classes.weights()

    def row_weights(self) -> dict[str, RowWeights]:
        """Return, per weight that reads a tap, how much the rows of its output count.

        Only language models have them; see `calibration.row_weights`.
        """
        return {
            self.spaces.taps[name].absorbers[0].weight: weights
            for name, weights in row_weights_of(self.statistics.sensitivities).items()
        }

    @property
    def held_examples(self) -> int:
        """About how many examples are held out."""
        held_out = self.data is not None and self.data.holds_out
        return self.fit_examples // (HOLD_EVERY - 1) if held_out else 0

    def _taps_of(self, kept: Mapping[str, Tensor]) -> list[str]:
        """Return the taps of some spaces, in the order in which the network computes them."""
        names = dict.fromkeys(tap for space in kept for tap in self.spaces[space].taps)
        return [name for name in self.statistics.halves if name in names]

    def _factor_for(self, name: str, cut: Cut, half: int | None) -> RFactor:
        tap, halves = self.spaces.taps[name], self.statistics.halves[name]
        columns = cut.columns(tap)
        if not 0 < len(columns) < tap.size:
            return halves.factor
        return halves.for_kept(columns.to(halves.second.device), half)

    def interpolations(
        self, kept: Mapping[str, Tensor], half: int | None = None, *, regularize: bool = True
    ) -> dict[str, Tensor]:
        """Return `T` of every tap that loses columns, from all examples or from one half."""
        cut, matrices = Cut(self.spaces, kept), {}
        for name in self._taps_of(kept):  # one at a time: measured by block, one is held at a time
            plain = self.statistics.factors
            factor = self._factor_for(name, cut, half) if regularize else plain[name]
            T = interpolation_at(self.spaces.taps[name], cut, factor)
            if T is not None:
                matrices[name] = T
        return matrices

    def require_walk(self) -> BlockWalk:
        """Return the walk over the blocks."""
        assert self.walk is not None, "the statistics are held at once"
        return self.walk

    def require_data(self) -> CalibrationSet:
        """Return the calibration data, or raise if there are none."""
        if self.data is None:
            raise ArgumentError(
                "this analysis was loaded without calibration data, which the refit, measured "
                "allocation and agreement need; pass data= to Analysis.load, or use "
                "Method(refit=False, allocation='marginal')"
            )
        return self.data

    def evaluator(self, part: Part = "held") -> Evaluator:
        """Return what judges smaller networks on the held-out examples, or on another part."""
        data = self.require_data()
        if part not in self._evaluators:
            limit = examples_per_batch(self.spaces, data.device)
            if self.walk is not None and self.walk.most is not None:
                limit = min(limit or self.walk.most, self.walk.most)
            self._evaluators[part] = Evaluator(self.original, data, self.meaning, limit, part)
        return self._evaluators[part]

    def few_examples(self, wanted: int) -> list[Example]:
        """Return at most `wanted` examples to fit, fewer if their activations are large.

        They are one batch, or several if examples differ in length.
        """
        cost = self.spaces.cost()
        per_example = max(1, cost.activation_bytes // captured_examples(self.spaces))
        count = max(2, min(wanted, _MEMORY_FOR_FEW // per_example))
        merged: list[list[Example]] = []
        for batch in self.require_data().batches("fit", limit=count):
            if merged and can_merge(merged[-1][0], batch):
                merged[-1].append(batch)
            else:
                merged.append([batch])
        return [merge_batches(batches) for batches in merged]
