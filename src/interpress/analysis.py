"""`Analysis`: one pass over the data that answers any number of budgets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from interpress.allocation.by_block import order_and_measure
from interpress.allocation.curve import Point, trade_off
from interpress.allocation.effects import Effects, measure_effects
from interpress.allocation.problem import WidthLimits
from interpress.allocation.registry import ALLOCATIONS
from interpress.calibration.study import Study
from interpress.checks import is_whole
from interpress.data.inputs import Forward
from interpress.data.masks import Mask
from interpress.data.not_finite import inputs_blamed
from interpress.data.preprocessing import Preprocessing, as_preprocessing
from interpress.distillation.options import DistillOptions
from interpress.errors import ArgumentError
from interpress.evaluation.memorized import warn_if_memorized
from interpress.evaluation.output_meaning import Output
from interpress.files.checkpoint import Checkpoint
from interpress.formats.network_formats import as_network
from interpress.graph.garbage import old_objects_set_aside
from interpress.graph.model_state import untouched
from interpress.method import Method, as_method
from interpress.parallel.processes import Processes, check_same_widths
from interpress.pipeline.distilling import distilled
from interpress.pipeline.options import Options
from interpress.pipeline.steps import (
    describe_in_config,
    open_checkpoint,
    solve,
    state_problem,
)
from interpress.progress import Display, display
from interpress.result import Result
from interpress.selection.orders import Orders, order_all
from interpress.spaces.spaces import Spaces
from interpress.storage.analysis_file import load_analysis, save_analysis
from interpress.tables.text_table import counted


class Analysis:
    """What one pass over the calibration data tells about a model; see `interpress.analyze`.

    It remembers the orders and effects that earlier calls computed, per selection.
    """

    def __init__(self, study: Study, options: Options) -> None:
        self.study, self.options = study, options
        self._orders: dict[str, Orders] = {}
        self._effects: dict[str, Effects] = {}

    def __repr__(self) -> str:
        study, name = self.study, type(self.study.original).__name__
        examples = f"{counted(study.fit_examples, 'example')} fitted"
        if study.data is not None and study.data.holds_out:
            examples += f", about {study.held_examples} held out"
        shrinkable, frozen = len(self.spaces.shrinkable), len(self.spaces.frozen)
        spaces = f"{counted(shrinkable, 'space')} can shrink, {frozen} frozen"
        return f"Analysis({name}: {examples}; {spaces})"

    @property
    def spaces(self) -> Spaces:
        """The channel spaces of the model."""
        return self.study.spaces

    def compress(
        self,
        *,
        method: str | Method = "preserve",
        round_to: int = 1,
        min_width: int = 1,
        same_widths: bool = False,
        lowrank: bool = False,
        distill: bool | float = False,
        progress: bool | None = None,
        **budget: float | None,
    ) -> Result:
        """Return a smaller network for one budget; options as for `interpress.compress`."""
        limits = WidthLimits(round_to, min_width, same_widths)
        options = replace(
            self.options, distill=DistillOptions.from_argument(distill), lowrank=lowrank
        )
        return self.answer(options.asking(budget, method, limits, progress))

    def answer(self, options: Options | None = None) -> Result:
        """Return the smaller network that checked options, or those of `analyze`, ask for."""
        options = self.options if options is None else options
        processes = Processes()
        with (
            processes.together(),
            display(options.progress if processes.is_first else False) as bars,
            untouched(self.study.original),
            inputs_blamed(self.study.data),
            old_objects_set_aside(),
        ):
            checkpoint = open_checkpoint(self.study, options, bars)
            orders, effects = self._ordered(options, bars, checkpoint)
            if options.method.needs_trust and len(orders.untrusted) == len(orders):
                options = options.without_interpolation()
                orders, effects = self._ordered(options, bars, checkpoint)
            network = solve(self.study, orders, effects, options, bars, checkpoint)
            check_same_widths(processes.gathered(network.sizes))
            processes.share([*network.model.parameters(), *network.model.buffers()])
            describe_in_config(self.study, network)
            if options.distill is not None:
                data = self.study.require_data()
                network = distilled(self.study, network, data, options.distill, bars)
            network.model.eval()  # it was proved and judged in this mode
        calibration = self.study.data
        warn_if_memorized(network.agreement, calibration is None or calibration.holds_out)
        result = Result(options, self.study, effects, network)
        if options.part is not None and self.study.data is not None:
            options.part.check_runs(result.model, next(self.study.data.raw()))
        return result

    def curve(
        self,
        *,
        method: str | Method = "preserve",
        points: int = 50,
        round_to: int = 1,
        min_width: int = 1,
        progress: bool | None = None,
    ) -> list[Point]:
        """Return the predicted trade-off from the whole network down; needs no more data.

        There are at most so many points, evenly spaced in FLOPs where widths allow it.
        """
        if not is_whole(points) or points < 2:
            raise ArgumentError(f"points={points!r}; give a whole number of at least 2")
        limits = WidthLimits(round_to, min_width)
        options = replace(self.options, method=as_method(method), limits=limits)
        with display(progress) as bars, untouched(self.study.original):
            orders, effects = self._ordered(options, bars, Checkpoint())
        problem = state_problem(self.study, orders, effects, options, resource="flops")
        path = ALLOCATIONS[options.method.candidates[0]].path(problem)
        return trade_off(problem, path, points)

    def _ordered(
        self, options: Options, bars: Display, checkpoint: Checkpoint
    ) -> tuple[Orders, Effects | None]:
        """Return orders and effects for the method, computed at most once per selection."""
        selection = options.method.selection
        # sensitivities already say what an error does to the output
        measures = not self.study.statistics.sensitivities and any(
            ALLOCATIONS[name].measures for name in options.method.candidates
        )
        has_effects = selection in self._effects
        if self.study.walk is not None:
            if selection not in self._orders or (measures and not has_effects):
                orders, effects = order_and_measure(
                    self.study, selection, bars, effects=measures, checkpoint=checkpoint
                )
                self._orders[selection] = orders
                if effects is not None:
                    self._effects[selection] = effects
        else:
            if selection not in self._orders:
                self._orders[selection] = order_all(self.study, selection, bars)
            if measures and not has_effects:
                found = measure_effects(self.study, self._orders[selection], bars)
                self._effects[selection] = found
        return self._orders[selection], self._effects[selection] if measures else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was measured to one safetensors file; it holds no calibration data.

        Of several processes, only the first writes.
        """
        if not Processes().is_first:
            return
        save_analysis(self.study, self._effects, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any,
        data: Any = None,
        *,
        forward: Forward | None = None,
        output: Output = None,
        mask: Mask | None = None,
        memory: float | None = None,
        preprocessing: Preprocessing | str | None = None,
    ) -> Analysis:
        """Return a saved analysis of this very model.

        Without `data`, only what needs no data can be asked for: `refit=False`, an allocation other
        than "measured" (unless its effects were measured before saving), and a selection that does
        not look at activations (as "thinet", "hrank" and "pfp" do).

        The file knows which output decides, unless that was chosen by a function, which cannot be
        saved. Then pass the function again as `output=`. It does not remember `preprocessing`.
        """
        options = Options(
            forward=forward, output=output, mask=mask, memory=memory,
            preprocessing=as_preprocessing(preprocessing),
        )  # fmt: skip
        study, effects = load_analysis(path, as_network(model), data, options)
        meaning = study.meaning
        options = replace(options, seed=study.seed, kind=meaning.kind, output=meaning.output)
        analysis = cls(study, options)
        analysis._effects.update(effects)
        return analysis
