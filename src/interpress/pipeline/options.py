"""`Options`: everything that a user can ask for, checked once."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from interpress.allocation.problem import WidthLimits
from interpress.budgets.budget import Budget
from interpress.budgets.registry import BUDGETS
from interpress.checks import is_number
from interpress.data.inputs import Forward
from interpress.data.masks import Mask, check_mask
from interpress.data.part import Part
from interpress.data.preprocessing import Preprocessing
from interpress.distillation.options import DistillOptions
from interpress.errors import ArgumentError
from interpress.evaluation.output_meaning import AUTO, Output, check_kind, check_output
from interpress.method import METHODS, Method, as_method


@dataclass(frozen=True)
class Options:
    """The checked options of one call.

    `budget`, `method` and `limits` say what to build. The others say how to look at the model.
    """

    budget: Budget | None = None
    """None while a network is only analysed."""
    method: Method = METHODS["preserve"]
    limits: WidthLimits = field(default_factory=WidthLimits)
    exclude: tuple[str, ...] = ()
    forward: Forward | None = None
    kind: str = AUTO
    output: Output = None
    """Which output decides, if the model returns several tensors."""
    mask: Mask | None = None
    """Which positions of an example count, if the batches do not tell."""
    patches: bool = True
    """Whether calibration measures what the selection "patches" needs."""
    memory: float | None = None
    """GiB that may be held at once, beyond the model and its result."""
    device: torch.device | None = None
    """Where to compute, if that is not where the model lives."""
    checkpoint: Path | None = None
    """The folder of the checkpoint, if there is one."""
    distill: DistillOptions | None = None
    """How to distil the network that is built; None for not at all."""
    part: Part | None = None
    """The module that is compressed, if that is not the whole model."""
    lowrank: bool = False
    """Whether layers may become two thin ones."""
    preprocessing: Preprocessing | None = None
    """What was done to raw inputs, if the caller says; it is recorded with the result."""
    seed: int = 0
    progress: bool | None = None
    command: str = ""
    """The command line that these options come from; empty for a call in Python."""
    as_built: bool | None = None
    """Whether a command used a network as its function returned it, without `--weights`. None for a
    call in Python, where that is not known."""
    weights_file: tuple[str, str] | None = None
    """The name and the SHA-256 of the file that a command read the original's weights from."""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        check_output(self.output)
        check_mask(self.mask)
        if self.memory is not None and not (is_number(self.memory) and 0 < self.memory < math.inf):
            raise ArgumentError(
                f"memory={self.memory!r}; give the GiB that may be held at once, such as 1.0"
            )
        if not isinstance(self.lowrank, bool):
            raise ArgumentError(f"lowrank={self.lowrank!r}; give True or False")
        if self.lowrank and self.budget is not None:
            self._check_lowrank(self.budget)
        if self.budget is not None and self.method.recompute:
            self._check_recompute()

    def _check_lowrank(self, budget: Budget) -> None:
        if self.limits.same_widths:
            raise ArgumentError(
                "lowrank=True and same_widths=True exclude each other: no config can say that a "
                "layer became two; give only one of them"
            )
        if not budget.rule.takes_low_rank:
            known = " or ".join(f"{n}=" for n, rule in BUDGETS.items() if rule.takes_low_rank)
            raise ArgumentError(
                f"lowrank=True splits a budget of {known} between channels and ranks; got "
                f"{budget}. Use one of these, or lowrank=False"
            )
        if self.method.recompute:
            raise ArgumentError(
                "lowrank=True does not go with recompute=True, the literal loop of iterative-id; "
                "leave one of them out"
            )

    def _check_recompute(self) -> None:
        paper = METHODS["iterative-id"]
        parts = replace(self.method, recompute=False, step=paper.step)
        if parts != paper or self.budget is None or self.budget.kind != "flops":
            raise ArgumentError(
                "recompute=True is the literal loop of iterative-id for a flops= budget, with no "
                f"other part changed; got {self.method} and {self.budget}; use "
                "Method.named('iterative-id', recompute=True) and flops="
            )

    def of_part(self, whole: nn.Module, name: str | None) -> Options:
        """Return the options for compressing one module of a model; None for all of it.

        What a part returns are features for the rest, so by default they are compared as numbers.
        """
        if name is None:
            return self
        part = Part(whole, name, self.forward)
        kind = "regression" if self.kind == AUTO else self.kind
        return replace(self, part=part, forward=part.forward, kind=kind)

    def asking(
        self,
        budget: Mapping[str, float | None],
        method: str | Method,
        limits: WidthLimits,
        progress: bool | None = None,
    ) -> Options:
        """Return the same options with what to build."""
        asked = Budget.from_arguments(budget)
        prepared = asked.rule.prepare(as_method(method), isinstance(method, str))
        return replace(
            self,
            budget=asked,
            method=prepared,
            limits=limits,
            patches=prepared.selection == "patches",
            progress=progress,
        )

    def without_interpolation(self) -> Options:
        """Return the same options with the rule that needs no interpolation.

        The filters of largest norm stay, the same fraction everywhere. The refit still corrects
        gains and biases, which a few rows determine.
        """
        method = replace(self.method, selection="l2", allocation="constant", correct=False)
        return replace(self, method=method)


def as_device(device: str | torch.device | None) -> torch.device | None:
    """Return a user's `device=` with its number, after trying it."""
    if device is None:
        return None
    try:
        tried = torch.empty(0, device=device).device
        if tried.type == "meta":
            raise ValueError("it holds no numbers")
        return tried
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ArgumentError(
            f"device={device!r} cannot be used ({line}); give a device that this machine has, such "
            "as 'cuda:0' with an NVIDIA GPU, or leave device= out"
        ) from error


def as_folder(checkpoint: str | os.PathLike[str] | None) -> Path | None:
    """Return a user's `checkpoint=` as a path."""
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike) or not str(checkpoint):
        raise ArgumentError(f"checkpoint={checkpoint!r}; give the path of a folder")
    return Path(checkpoint)


def as_patterns(exclude: Sequence[str] | str) -> tuple[str, ...]:
    """Return a user's `exclude=` as a tuple of patterns."""
    return (exclude,) if isinstance(exclude, str) else tuple(exclude)
