"""From widths to a finished smaller network: cut, prove, refit, keep what is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interpress.calibration.sample_weights import draw_examples
from interpress.errors import DataError
from interpress.evaluation.tally import Agreement
from interpress.method import Method
from interpress.pipeline.study import Study
from interpress.progress import Bars
from interpress.refit.refit import Refit, examples_needed, refit, refitted
from interpress.spaces.batching import captured_examples, examples_per_batch
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolations
from interpress.surgery.projection_identity import Proof, check
from interpress.surgery.weights import shrunk_copy

_FOR_VALUES = 0.8  # of the memory; the rest is for rows, and for what a batch needs
_AT_ONCE = 200  # examples in a batch


@dataclass(frozen=True, eq=False)
class Network:
    """A smaller network and how it came about."""

    model: nn.Module
    cut: Cut
    proof: Proof
    agreement: Agreement | None
    """On held-out calibration data; None where there are none."""
    refit: Refit | None
    """What the refit did; None if it was not asked for."""
    refit_kept: bool


def build(
    knowledge: Study,
    widths: Mapping[str, int],
    method: Method,
    places: Bars,
    *,
    memory: float = 1.0,
    seed: int = 0,
) -> Network:
    """The network at these widths; `memory` is what the refit may hold, in GiB."""
    spaces = knowledge.spaces
    orders = knowledge.orders(method.selection, places)
    kept = {n: orders[n].kept(w) for n, w in widths.items() if w < spaces[n].size}
    if method.correct:
        check_rows(knowledge, widths)
    T = interpolations(spaces, kept, knowledge.seen.factors) if method.correct else {}
    cut = Cut(spaces, kept, T)
    plain = shrunk_copy(cut)
    proof = check(spaces, cut, plain)
    if not method.refit or not kept:
        agreed = knowledge.held_agreements(plain)[0] if knowledge.calibration else None
        return Network(plain, cut, proof, agreed, None, False)
    weights = knowledge.weights if method.balance else torch.ones(knowledge.fit_examples)
    solved = _refit(knowledge, cut, plain, weights, places, memory, seed)
    if not solved.weights:
        return Network(plain, cut, proof, knowledge.held_agreements(plain)[0], solved, False)
    better = refitted(plain, solved.weights)
    before, after = knowledge.held_agreements(plain, better)
    if loss_of(after) < loss_of(before):
        return Network(better, cut, proof, after, solved, True)
    return Network(plain, cut, proof, before, solved, False)


def loss_of(agreement: Agreement) -> float:
    """What the refit has to lower on held-out data.

    Of a divergence the mean root: of 200 examples the mean itself is that of a handful, and its
    difference between two networks often chance.
    """
    if agreement.distance is not None:
        return agreement.distance
    if agreement.output_error is not None:
        return agreement.output_error
    return 1.0 - float(agreement)


def check_rows(knowledge: Study, widths: Mapping[str, int]) -> None:
    """Refuse to keep more channels than there were rows to learn the others from."""
    for name, width in widths.items():
        profile = knowledge.profiles[name]
        if width == profile.space.size:
            continue
        for reading in profile.readings:
            rows, wanted = reading.factor.rows, width * reading.per_unit
            if rows < wanted:
                per_example = max(1.0, rows / max(knowledge.seen.examples, 1))
                fitted = (wanted - rows) / per_example
                raise DataError(
                    f"space {name!r} keeps {wanted} columns at {reading.tap!r}, but the "
                    f"calibration data gave only {rows} rows there; give at least "
                    f"{int(-(-fitted * 5 // 4))} more examples, or leave it whole with "
                    f"exclude={_readers(knowledge, reading.tap)}"
                )


def _readers(knowledge: Study, tap: str) -> list[str]:
    """The modules that read a tap: excluded, they need all that it has now."""
    weights = [absorber.weight for absorber in knowledge.spaces.taps[tap].absorbers]
    return sorted({name.rpartition(".")[0] for name in weights})


def _refit(
    knowledge: Study,
    cut: Cut,
    plain: nn.Module,
    weights: Tensor,
    places: Bars,
    memory: float,
    seed: int,
) -> Refit:
    spaces = knowledge.spaces
    of_both = max(1, 2 * spaces.cost.most_held() // captured_examples(spaces))
    held = max(16, int(_FOR_VALUES * memory * 2**30) // of_both)
    count = min(held, examples_needed(spaces.program))
    chosen, counts = draw_examples(weights, count, seed)
    data = knowledge.data()
    size = min(examples_per_batch(spaces, data.device) or _AT_ONCE, _AT_ONCE)
    examples = data.examples_at("fit", chosen, size)
    operators = sum(node.op == "call_function" for node in spaces.program.nodes)
    with places.job("refitting", operators) as advance:
        return refit(cut, plain, examples, counts=counts, seed=seed, done=advance)
