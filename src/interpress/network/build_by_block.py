"""Build a large network in one walk over its blocks: cut, prove and refit one block after another.

Held at a time are the weights of one block of both networks, its statistics, and the values between
two blocks. In every block `T` is computed and absorbed, the projection identity is continued, the
dense layers are refitted, and the held-out examples are run through the original, the network as it
was cut, and the refitted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor, fx

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.data.calibration_set import Part
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.tally import Agreement
from interpress.files.checkpoint import Checkpoint
from interpress.graph.executor import Executor
from interpress.graph.passage import Passage
from interpress.graph.program import Program
from interpress.method import Method
from interpress.network.building_record import BuildingRecord
from interpress.network.compare import is_enough_held_out
from interpress.network.judging import Judging
from interpress.network.network import Network
from interpress.network.proof_by_block import ProofByBlock
from interpress.network.refit_examples import RefitExamples
from interpress.network.tap_errors import TapError, tap_error
from interpress.progress import Display
from interpress.refit.layer_pair import Pairs, pairs_of, stretches
from interpress.refit.refit import RefitResult, actual_groups, program_of, same_operators
from interpress.refit.side_by_side import SideBySide
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import Proof
from interpress.surgery.weights import overwrite, shrunk_copy

_CUT, _REFITTED = "cut", "refitted"


def build_by_block(
    study: Study,
    plan: Plan,
    method: Method,
    refit: RefitExamples | None,
    bars: Display,
    checkpoint: Checkpoint,
) -> Network | None:
    """Return the network of a plan; without examples for a refit, it is only cut.

    If the refit turns out not to be better on held-out examples, the network is built again without
    it: keeping both would take twice the memory. None if the smaller network runs other operators
    than the original, so that the two have no blocks in common.
    """
    program, cut = study.spaces.program, Cut(study.spaces, plan.kept)
    small = program_of(cut, shrunk_copy(cut))
    if not same_operators(program, small):
        return None
    builder = _Builder(study, method, cut, small, refit)
    network = builder.build(plan, bars, checkpoint)
    if network.refit is None or network.refit_kept or not builder.refitted:
        return network
    original = program.parameters()
    for name in builder.refitted:  # what absorbs T is overwritten again
        overwrite(small.model, {name: cut.weights[name] if name in cut.weights else original[name]})
    again = _Builder(study, method, cut, small, None).build(plan, bars, checkpoint)
    return replace(again, refit=network.refit)


class _Builder:
    """One walk that builds a network into the model of `small`."""

    def __init__(
        self,
        study: Study,
        method: Method,
        cut: Cut,
        small: Program,
        refit: RefitExamples | None,
    ) -> None:
        self._study, self._method, self._cut = study, method, cut
        self._walk, self._full, self._small = study.require_walk(), study.spaces.program, small
        small_nodes = dict(pairs_of(self._full, small))
        self._pairs: list[Pairs] = [
            [(node, small_nodes[node]) for node in block.nodes] for block in self._walk.blocks
        ]
        self._proof = ProofByBlock(study.spaces, small, actual_groups)
        self._side: SideBySide | None = None
        if refit is not None:
            self._side = SideBySide(
                cut, self._full, small, refit.examples, refit.weights, study.seed,
                before=actual_groups, rest=self._walk.rest,
                row_weights=None if study.meaning.tokens is None else study.row_weights(),
            )  # fmt: skip
        self._as_cut = Executor(small)
        few = refit is not None and not is_enough_held_out(study)
        parts: list[Part] = ["held", "all"] if few else ["held"]
        self._judgings = {str(part): self._judging(part) for part in parts}
        self._errors: dict[str, TapError] = {}

    def _judging(self, part: Part) -> Judging:
        examples, rest = list(self._study.evaluator(part).examples()), self._walk.rest
        networks = {_CUT: Passage.begin(self._as_cut, examples, rest)}
        if self._side is not None:
            networks[_REFITTED] = Passage.begin(self._side.small.executor, examples, rest)
        original = Passage.begin(Executor(self._full), examples, rest)
        return Judging(self._study.meaning, examples, original, networks)

    @property
    def refitted(self) -> set[str]:
        """The names of the weights that were refitted."""
        return set() if self._side is None else self._side.changed

    def build(self, plan: Plan, bars: Display, checkpoint: Checkpoint) -> Network:
        """Walk over all blocks and return the finished network."""
        record = BuildingRecord(
            checkpoint, plan, self._small, self._proof, self._side, self._judgings, self._errors
        )
        title, count = "cutting" if self._side is None else "refitting", len(self._pairs)
        results: dict[str, dict[str, Agreement]] = {}
        with bars.task(title, count) as advance:
            done = record.resume([[node for node, _ in pairs] for pairs in self._pairs])
            advance(done)
            for number in range(done, count):
                kept = self._kept_in(number, plan)
                changed = self._absorb(number, kept) | self._refit(number)
                results = self._judge(number)
                self._settle(number)
                record.save(number, changed, is_last=number == count - 1)
                advance(1, f"{title}: block {number + 1} of {count}")
        proof = self._proof.finish(self._small.model)
        return self._network(plan, proof, results)

    def _kept_in(self, number: int, plan: Plan) -> dict[str, Tensor]:
        names = self._walk.spaces_in(number)
        return {name: plan.kept[name] for name in names if name in plan.kept}

    def _absorb(self, number: int, kept: Mapping[str, Tensor]) -> set[str]:
        """Compute `T` of a block, write the weights that absorb it, and continue the proof.

        Return the names of the weights that change.
        """
        spaces, T = self._study.spaces, dict[str, Tensor]()
        regularize = self._method.regularize
        if self._method.correct:
            T = self._study.interpolations(kept, regularize=regularize)
        for name in dict.fromkeys(tap for space in kept for tap in spaces[space].taps):
            tap, columns = spaces.taps[name], self._cut.columns(spaces.taps[name])
            if len(columns) < tap.size:
                halves = self._study.statistics.halves[name]
                self._errors[name] = tap_error(tap, columns, halves, regularize, quick=True)
        cut = self._cut.with_interpolations(T)
        self._walk.release()
        full_nodes, small_nodes = _nodes(self._pairs[number])
        names = [name for name in _weights_of(self._full, full_nodes) if name in cut.weights]
        weights = {name: cut.weights[name] for name in names}
        overwrite(self._small.model, weights)
        of_block = Cut(spaces, kept, T)  # the taps of other blocks are not replaced
        self._proof.advance(of_block, weights, full_nodes, small_nodes, number)
        return set(names)

    def _refit(self, number: int) -> set[str]:
        """Refit the layers of a block; return the names of the weights that change."""
        if self._side is None:
            return set()
        _, small_nodes = _nodes(self._pairs[number])
        for name in _weights_of(self._small, small_nodes):  # before the refit changes them
            self._as_cut.set_weight(name, self._as_cut.weights[name].clone())
        parts = list(stretches(self._pairs[number], self._side.begins_stretch))
        for part, pairs in enumerate(parts):
            is_last = number == len(self._pairs) - 1 and part == len(parts) - 1
            self._side.run(pairs, is_last=is_last)
        overwrite(self._small.model, self._side.new_weights)
        return set(self._side.new_weights)

    def _judge(self, number: int) -> dict[str, dict[str, Agreement]]:
        """Run the judged examples through a block; return the agreements after the last one."""
        full_nodes, small_nodes = _nodes(self._pairs[number])
        results = {}
        for part, judging in self._judgings.items():
            step = judging.finish if number == len(self._pairs) - 1 else judging.advance
            hooks = {name: {"before": actual_groups} for name in judging.networks}
            found = step(small_nodes, hooks, original=full_nodes)
            results[part] = found or {}
        return results

    def _settle(self, number: int) -> None:
        """Let all executors read the weights of the finished network."""
        stored = self._small.parameters()
        if self._side is not None:
            self._side.hand_over(stored)
        for name in _weights_of(self._small, _nodes(self._pairs[number])[1]):
            self._as_cut.set_weight(name, stored[name])

    def _network(
        self, plan: Plan, proof: Proof, results: Mapping[str, Mapping[str, Agreement]]
    ) -> Network:
        model, found = self._small.model, results["held"]
        network = Network(model, plan, self._cut, proof, found[_CUT], errors=self._errors)
        if self._side is None:
            return network
        judged = results.get("all", found)
        kept = held_out_loss(judged[_REFITTED]) < held_out_loss(judged[_CUT])
        if kept and self.refitted:
            network = replace(network, agreement=found[_REFITTED], refit_kept=True)
        return replace(network, refit=RefitResult(errors=self._side.errors))


def _nodes(pairs: Pairs) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the operators of the full and of the smaller network."""
    return [full_node for full_node, _ in pairs], [small_node for _, small_node in pairs]


def _weights_of(program: Program, nodes: Sequence[fx.Node]) -> list[str]:
    """Return the weights that some operators read."""
    operands = dict.fromkeys(operand for node in nodes for operand in node.all_input_nodes)
    names = (program.weight_name(operand) for operand in operands)
    return [name for name in names if name is not None]
