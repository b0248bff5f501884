"""Algorithm 2 to the letter: after every step the pruned network is measured again.

Kept for comparison. The one-pass form (`method="iterative-id"`) takes the same steps from the
original's activations and costs one pass in all.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from interpress.allocation.problem import Widths
from interpress.calibration.calibrate import calibrate
from interpress.errors import ArgumentError
from interpress.graph.capture import capture
from interpress.network.network import Network
from interpress.pipeline.study import Study
from interpress.progress import Bars
from interpress.selection.orders import order_channels
from interpress.selection.profile import profiles_of
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.interpolations import interpolations
from interpress.surgery.projection_identity import check
from interpress.surgery.weights import shrunk_copy


def recomputed(
    knowledge: Study,
    allowed: Mapping[str, list[int]],
    budget: float,
    step: float,
    places: Bars,
) -> tuple[Network, Widths]:
    """Take the layer with the lowest score, cut `step` of it, measure again, until it is enough."""
    spaces = knowledge.spaces
    meter = spaces.cost.meter("flops")
    target = budget * meter.total({})
    state = _State(spaces, {name: spaces[name].size for name in allowed})
    with places.job("pruning step by step", meter.total({}) - target) as advance:
        while (now := meter.total(state.widths)) > target:
            small = spaces_of(capture(state.network(), spaces.program.example))
            seen = calibrate(
                small,
                knowledge.data().batches("fit"),
                patches=False,
                expected=knowledge.fit_examples,
            )
            profiles = profiles_of(small, seen)
            scored = []
            for name, width in state.widths.items():
                wished = width - max(1, round(step * width))
                new = next((w for w in allowed[name] if w <= wished), None)
                if new is None or name not in profiles:
                    continue
                order = order_channels(profiles[name], "pivoting")
                score = float(order.proxy[new]) / meter.touching(state.widths, name)
                scored.append((score, name, new, order))
            if not scored:
                raise ArgumentError(
                    f"flops={budget:g} cannot be reached in steps of {step:g}: no layer can lose "
                    f"more, and {now / meter.total({}):.3f} of the FLOPs remain; ask for that"
                )
            _, name, new, order = min(scored, key=lambda found: found[:2])
            inside = [w for w in allowed[name] if new <= w < state.widths[name]]
            fits = [w for w in inside if now - meter.saved(state.widths, name, w) <= target]
            new = max(fits, default=new)  # no more than is asked for
            state.shrink(name, order.kept(new), interpolations(
                small, {name: order.kept(new)}, seen.factors
            ))  # fmt: skip
            advance(now - meter.total(state.widths))
    return state.built(knowledge), state.widths


class _State:
    """What is kept so far, in the original's numbering, with the product of all `T`."""

    def __init__(self, spaces: Spaces, widths: Widths) -> None:
        self.spaces, self.widths = spaces, widths
        self._kept: dict[str, Tensor] = {}
        self._T: dict[str, Tensor] = {}

    def network(self) -> nn.Module:
        """The pruned network as it stands."""
        return shrunk_copy(self._cut()) if self._kept else self.spaces.program.model

    def shrink(self, name: str, chosen: Tensor, T: Mapping[str, Tensor]) -> None:
        """Keep some of what is left of a space."""
        self._kept[name] = self._kept[name][chosen] if name in self._kept else chosen
        self.widths[name] = len(chosen)
        for tap, matrix in T.items():
            before = self._T.get(tap)
            self._T[tap] = matrix if before is None else matrix @ before

    def built(self, knowledge: Study) -> Network:
        """The finished network, proved and compared."""
        cut = self._cut()
        model = shrunk_copy(cut)
        proof = check(self.spaces, cut, model)
        agreed = knowledge.held_agreements(model)[0]
        return Network(model, cut, proof, agreed, None, False)

    def _cut(self) -> Cut:
        return Cut(self.spaces, self._kept, self._T)
