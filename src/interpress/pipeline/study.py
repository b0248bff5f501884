"""What is known about a model after calibration: orders, losses, agreement; computed when asked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.allocation import problem as allocate
from interpress.allocation.effects import Measured, factor_of, measure_effects
from interpress.calibration.calibrate import dense_readers, shrinkable_taps
from interpress.calibration.statistics import Statistics
from interpress.data.batches import merge_batches
from interpress.data.calibration_set import CalibrationSet
from interpress.errors import ArgumentError
from interpress.evaluation.agreement import output_of
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.tally import Agreement, Tally
from interpress.graph.example import Example
from interpress.method import Method
from interpress.progress import Bars, bars
from interpress.selection.orders import ChannelOrder, order_channels
from interpress.selection.profile import Profile, TapSample, blind, columns_of, profiles_of
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.spaces.read_sites import operand_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Tap

_EXAMPLES_FOR_EFFECTS = 16
_EXAMPLES_TO_LOOK_AT = 128
_MEMORY_FOR_EFFECTS = 2**30
_CERTAIN = 0.01  # mean doubt under which calibration data look like training data


class MemorizedWarning(UserWarning):
    """The calibration data look like data the network was trained on."""


class Study:
    """What is known about a model after calibration; everything below is computed when asked."""

    def __init__(
        self,
        spaces: Spaces,
        seen: Statistics,
        calibration: CalibrationSet | None,
        judge: OutputMeaning,
        seed: int = 0,
    ) -> None:
        self.seed = seed
        self.spaces, self.seen, self.calibration, self.judge = spaces, seen, calibration, judge
        self._orders: dict[str, dict[str, ChannelOrder]] = {}
        self.effects: dict[str, Measured] = {}
        self._warned = False
        self.fit_examples = seen.examples
        self.decisions = seen.decisions

    @property
    def model(self) -> nn.Module:
        """The original network."""
        return self.spaces.program.model

    @property
    def model_dtype(self) -> torch.dtype:
        """The type that weights are stored in."""
        floats = [p.dtype for p in self.model.parameters() if p.is_floating_point()]
        return floats[0] if floats else torch.float32

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """Per shrinkable space, how it is read."""
        found = profiles_of(self.spaces, self.seen, self._look, self.seed)
        return {name: profile for name, profile in found.items() if profile.readings}

    @property
    def weights(self) -> Tensor:
        """How much every example to fit to counts."""
        if self.decisions is None:
            return torch.ones(self.fit_examples)
        return self.decisions.weights()

    def orders(self, selection: str, places: Bars) -> dict[str, ChannelOrder]:
        """Per shrinkable space, its channels in order of importance."""
        if selection not in self._orders:
            found = {}
            with places.job("ordering channels", len(self.profiles)) as advance:
                for name, profile in self.profiles.items():
                    found[name] = order_channels(profile, selection)
                    advance(1)
            self._orders[selection] = found
            self.__dict__.pop("_operands", None)  # large, and nobody looks twice
        return self._orders[selection]

    def orders_of(self, method: Method) -> dict[str, ChannelOrder]:
        """The orders a method uses, without a bar."""
        with bars(False) as places:
            return self.orders(method.selection, places)

    def losses(self, method: Method, places: Bars) -> dict[str, Tensor]:
        """Per space, the predicted loss at every width."""
        orders = self.orders(method.selection, places)
        if method.allocation in ("constant", "iterative"):  # the paper's own, and free
            return {name: allocate.decreasing(order.proxy) for name, order in orders.items()}
        curves = {name: allocate.decreasing(order.errors) for name, order in orders.items()}
        if method.allocation != "measured":
            return curves
        if method.selection not in self.effects:
            self.effects[method.selection] = self._measured(orders, places)
        effects = self.effects[method.selection]
        return {
            name: curve * factor_of(self.profiles[name], orders[name], effects[name])
            for name, curve in curves.items()
        }

    def problem(
        self, method: Method, resource: str, limits: allocate.WidthLimits, places: Bars
    ) -> allocate.Problem:
        """What an allocation has to look at."""
        orders = self.orders(method.selection, places)
        return allocate.Problem(
            self.spaces,
            orders,
            self.losses(method, places),
            self.spaces.cost.meter(resource),
            {name: limits.widths(self.spaces[name]) for name in orders},
        )

    def data(self) -> CalibrationSet:
        """The calibration data, or an error where there are none."""
        if self.calibration is None:
            raise ArgumentError(
                "this analysis was loaded without calibration data, which the refit, measured "
                "allocation and agreement need; pass calibration= to Analysis.load, or choose "
                "refit=False and allocation='marginal'"
            )
        return self.calibration

    def held_agreements(self, *smaller: nn.Module) -> list[Agreement]:
        """Agreement of smaller networks with the original on held-out examples."""
        tallies = [Tally(self.judge) for _ in smaller]
        doubt = count = 0.0
        data = self.data()
        for example in data.gathered("held", examples_per_batch(self.spaces, data.device)):
            reference = output_of(self.model, example, self.judge.place)
            for tally, network in zip(tallies, smaller, strict=True):
                tally.add(reference, output_of(network, example, self.judge.place))
            if self.judge.kind in ("classification", "segmentation"):
                confidence = self.judge.confidence(reference)
                doubt += float((1 - confidence).sum())
                count += confidence.numel()
        if count and doubt / count < _CERTAIN:
            self._warn(1 - doubt / count)
        return [tally.result() for tally in tallies]

    def _warn(self, certainty: float) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"the model is {certainty:.1%} certain of its decisions on the held-out calibration "
            "data, as on data it was trained on; agreement measured there looks better than it "
            "is. Calibrate on examples the model has not seen",
            MemorizedWarning,
            stacklevel=2,
        )

    def _look(self, name: str) -> TapSample:
        if self.calibration is None:
            return blind(name)
        tap = self.spaces.taps[name]
        dense = dense_readers(self.spaces, [tap]).get(name)
        weight = None if dense is None else self.spaces.program.parameters()[dense.weight]
        units = partial(columns_of, self.spaces, tap=tap)
        return TapSample(self._operands[name], tap, units, dense, weight)

    @cached_property
    def _operands(self) -> dict[str, Tensor]:
        """What every tap's first reader gets on a few examples."""
        taps = shrinkable_taps(self.spaces)
        sites: dict[fx.Node, list[Tap]] = {}
        for tap in taps:
            sites.setdefault(tap.sites[0].op.node, []).append(tap)
        found: dict[str, Tensor] = {}

        def watch(node: fx.Node, args: Any, kwargs: Any) -> Any:
            for tap in sites.get(node, ()):
                found[tap.name] = operand_of(node, args, kwargs, tap.sites[0]).clone()
            return args, kwargs

        self.spaces.program.run(self._few(_EXAMPLES_TO_LOOK_AT), watch=watch)
        return found

    def _measured(self, orders: Mapping[str, ChannelOrder], places: Bars) -> Measured:
        example = self._few()
        with places.job("measuring spaces", len(orders)) as advance:
            return measure_effects(
                self.spaces, orders, self.seen.factors, example, self.judge, lambda: advance(1)
            )

    def _few(self, wanted: int = _EXAMPLES_FOR_EFFECTS) -> Example:
        per_example = max(1, self.spaces.cost().activation_bytes // captured_examples(self.spaces))
        count = max(2, min(wanted, _MEMORY_FOR_EFFECTS // per_example))
        return merge_batches(list(self.data().batches("fit", limit=count)))
