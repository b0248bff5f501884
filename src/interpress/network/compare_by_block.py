"""Compare plans for a large network in one walk over its blocks, without building any network.

By the projection identity, the network of a plan gives what the original gives with every tap `Z`
replaced by `Z[:, kept] @ T`. So the plans differ from the original in what their taps become.
"""

from __future__ import annotations

from collections.abc import Mapping

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.tally import Agreement
from interpress.files.checkpoint import Checkpoint
from interpress.graph.executor import Before, Executor
from interpress.graph.frame_record import restore, to_record
from interpress.graph.passage import Passage
from interpress.method import Method
from interpress.network.judging import Judging
from interpress.progress import Display
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import projecting


def agreements_by_block(
    study: Study,
    plans: Mapping[str, Plan],
    method: Method,
    evaluator: Evaluator,
    half: int | None,
    bars: Display,
    checkpoint: Checkpoint,
) -> dict[str, Agreement]:
    """Return the agreement of every plan's network, interpolated from all examples or one half."""
    walk, executor = study.require_walk(), Executor(study.spaces.program)
    examples = list(evaluator.examples())
    original = Passage.begin(executor, examples, walk.rest)
    networks = {name: Passage.begin(executor, examples, walk.rest) for name in plans}
    judging = Judging(study.meaning, examples, original, networks)
    groups = {name: passage.group for name, passage in networks.items()}
    part = "compared" if half is None else f"compared-{half}"
    saved = checkpoint.load(part)
    done = 0 if saved is None else int(saved.record["blocks"])
    last = len(walk.blocks) - 1
    with bars.task("comparing", len(walk.blocks)) as advance:
        for block in walk.blocks[:done]:
            original.advance(block.nodes)
            advance(1)
        if saved is not None:
            restore(groups, saved.tensors, saved.record["frames"])
            for passage in networks.values():
                passage.settle()
        for number in range(done, last + 1):
            nodes = walk.blocks[number].nodes
            hooks = {
                name: {"before": _projecting(study, plan, method, half, number)}
                for name, plan in plans.items()
            }
            walk.release()
            step = judging.finish if number == last else judging.advance
            with executor.holding(nodes):
                results = step(nodes, hooks, original=nodes)
            if checkpoint.is_kept and number < last:
                tensors, record = to_record(groups)
                checkpoint.save(part, tensors, {"blocks": number + 1, "frames": record})
            advance(1, f"comparing: block {number + 1} of {last + 1}")
    assert results is not None
    return results


def _projecting(study: Study, plan: Plan, method: Method, half: int | None, number: int) -> Before:
    """Return a hook that replaces the taps of a block as a plan does."""
    names = [name for name in study.require_walk().spaces_in(number) if name in plan.kept]
    kept = {name: plan.kept[name] for name in names}
    T = {}
    if method.correct:
        T = study.interpolations(kept, half, regularize=method.regularize)
    in_own_precision = {name: matrix.to(study.dtype) for name, matrix in T.items()}
    cut = Cut(study.spaces, kept, in_own_precision)
    return projecting(study.spaces, cut)
