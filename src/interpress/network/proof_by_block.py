"""The projection identity, checked at full size while a network is built block by block.

Two examples walk through the original with every tap `Z` replaced by `Z[:, kept] @ T`, and through
the smaller network with its weights as they are before rounding. Both run in double precision where
possible. Of either, one block of weights is held at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.errors import SurgeryError
from interpress.graph.executor import Before, Executor
from interpress.graph.fast_kernels import exact_kernels
from interpress.graph.frame_record import Groups
from interpress.graph.global_settings import default_dtype
from interpress.graph.passage import Passage
from interpress.graph.program import Program
from interpress.linalg.precision import exact_dtype
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.output_difference import difference
from interpress.surgery.projection_identity import (
    Proof,
    checked,
    comparable_outputs,
    fixed_seed,
    own_tolerance,
    projecting,
    tolerance,
    tolerance_of_casts,
    two_examples,
)


class ProofByBlock:
    """The projected original and the smaller network on two examples, from block to block."""

    def __init__(self, spaces: Spaces, small: Program, before: Before) -> None:
        """Prepare to run the program of the smaller network with the hook `before`."""
        self._spaces, self._small_program, self._before = spaces, small, before
        self._examples = two_examples(spaces.program)
        self._dtype = self._exact_dtype()
        kernels = exact_kernels(spaces.program) if self._dtype is torch.float64 else {}
        executors = [
            Executor(spaces.program, dtype=self._dtype, kernels=kernels),
            Executor(small, dtype=self._dtype),
        ]
        self._projected, self._smaller = (Passage.begin(e, [self._examples]) for e in executors)
        self._expected: dict[fx.Node, Tensor] = {}
        self._outputs: dict[fx.Node, Tensor] = {}

    def _exact_dtype(self) -> torch.dtype | None:
        """Return double precision, or None if the model's operators run only in their own."""
        dtype = exact_dtype(self._spaces.program.device)
        try:
            with default_dtype.set_to(dtype), fixed_seed():
                Executor(self._spaces.program, dtype=dtype).run(self._examples)
        except (RuntimeError, TypeError):
            return None
        return dtype

    @property
    def groups(self) -> Groups:
        """The frames of both networks, to save and restore them."""
        return {"projected": self._projected.group, "smaller": self._smaller.group}

    def settle(self) -> None:
        """Move restored values to the device that computes."""
        self._projected.settle()
        self._smaller.settle()

    def advance(
        self,
        cut: Cut,
        weights: Mapping[str, Tensor],
        nodes: Sequence[fx.Node],
        small_nodes: Sequence[fx.Node],
        number: int,
    ) -> None:
        """Run block `number`; `cut` has its `T`, and `weights` its changed weights unrounded."""
        executor = self._smaller.executor
        stored = {name: executor.weights[name] for name in weights}
        for name, weight in weights.items():
            executor.set_weight(name, weight, rounded=False)
        try:
            project = projecting(self._spaces, cut)
            self._expected |= self._run(self._projected, nodes, project, number)
            self._outputs |= self._run(self._smaller, small_nodes, self._before, number)
        finally:
            for name, weight in stored.items():
                executor.set_weight(name, weight, rounded=False)

    def _run(
        self, passage: Passage, nodes: Sequence[fx.Node], before: Before, seed: int
    ) -> dict[fx.Node, Tensor]:
        """Run a block and return the scores that it computes."""
        wanted, kept = passage.executor.program.score_nodes(), dict[fx.Node, Tensor]()

        def after(node: fx.Node, value: Any) -> None:
            if node in wanted:
                kept[node] = value.to("cpu", copy=True)

        dtype = self._dtype
        precision = contextlib.nullcontext() if dtype is None else default_dtype.set_to(dtype)
        with precision, fixed_seed(seed):
            passage.advance(nodes, lambda batch: {"before": before, "after": after})
        return kept

    def finish(self, smaller: nn.Module) -> Proof:
        """Return the proof, after checking that the smaller network runs its program."""
        expected = [self._expected[node] for node in self._spaces.program.score_nodes()]
        outputs = [self._outputs[node] for node in self._small_program.score_nodes()]
        if self._dtype is None:
            allowed = own_tolerance(self._spaces, outputs)
        else:
            allowed = tolerance(self._spaces, self._dtype)
            if self._spaces.program.casts and difference(outputs, expected) > allowed:
                allowed = tolerance_of_casts(self._rounding(), allowed)
        proof = checked(Proof(difference(outputs, expected), allowed))
        self._check_code(smaller)
        return proof

    def _rounding(self) -> float:
        """Return how much the casts of the smaller network change its outputs by rounding."""
        outputs = []
        for rounds in (True, False):
            executor = Executor(self._small_program, dtype=self._dtype, rounds=rounds)
            with default_dtype.set_to(self._dtype or torch.float32), fixed_seed():
                found = executor.run(self._examples, before=self._before, scores=True)
            outputs.append([tensor.cpu() for tensor in found])
        return difference(*outputs)

    def _check_code(self, smaller: nn.Module) -> None:
        """Raise if the finished network's own code does not compute what its program computes."""
        executor = Executor(self._small_program)
        with fixed_seed():
            expected = executor.run(self._examples, before=self._before, scores=True)
        try:
            with fixed_seed():
                outputs = comparable_outputs(self._spaces, smaller, self._examples)
        except Exception as problem:  # the model's code may raise anything
            raise SurgeryError(
                f"the smaller network does not run ({type(problem).__name__}: {problem}); keep "
                "more channels, or exclude the modules that cannot run with fewer"
            ) from problem
        checked(Proof(difference(outputs, expected), own_tolerance(self._spaces, outputs)))
