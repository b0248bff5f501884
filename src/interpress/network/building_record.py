"""Keep what a construction has finished in a checkpoint, and restore it.

The weights of every finished block are one part. The values of the smaller networks between two
blocks are another part, which the next block replaces. Values of the original are not kept: running
the finished blocks again gives the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from interpress.allocation.plan import Plan
from interpress.files.checkpoint import Checkpoint, digest
from interpress.graph.frame_record import Groups, restore, to_record
from interpress.graph.passage import Passage
from interpress.graph.program import Program
from interpress.network.judging import Judging
from interpress.network.proof_by_block import ProofByBlock
from interpress.network.tap_errors import TapError
from interpress.refit.side_by_side import SideBySide
from interpress.surgery.weights import overwrite


@dataclass(frozen=True, eq=False)
class BuildingRecord:
    """What a construction keeps, block by block."""

    checkpoint: Checkpoint
    plan: Plan
    small: Program
    proof: ProofByBlock
    side: SideBySide | None
    judgings: Mapping[str, Judging]
    errors: dict[str, TapError]

    def save(self, number: int, changed: Collection[str], *, is_last: bool) -> None:
        """Keep the changed weights of a finished block, then the values that the next one needs.

        After the last block no values are kept, so a run that goes on repeats that block.
        """
        if not self.checkpoint.is_kept or is_last:
            return
        parameters = self.small.parameters()
        weights = {name: parameters[name] for name in changed}
        self.checkpoint.save(f"{self._name}-{number}", weights, None)
        tensors, frames = to_record(self._groups())
        record = {
            "blocks": number + 1,
            "frames": frames,
            "errors": self.errors,
            "refit": {} if self.side is None else self.side.errors,
            "refitted": [] if self.side is None else sorted(self.side.changed),
        }
        self.checkpoint.save(self._name, tensors, record)

    def resume(self, blocks: Sequence[Sequence[fx.Node]]) -> int:
        """Restore what was finished, and return the number of finished blocks."""
        saved = self.checkpoint.load(self._name)
        if saved is None:
            return 0
        done = int(saved.record["blocks"])
        for number, nodes in enumerate(blocks[:done]):
            part = self.checkpoint.load(f"{self._name}-{number}")
            assert part is not None, "the weights of a block are written before its values"
            overwrite(self.small.model, part.tensors)
            if self.side is not None:
                self.side.run_only_full(nodes)
            for judging in self.judgings.values():
                judging.original.advance(nodes)
        restore(self._groups(), saved.tensors, saved.record["frames"])
        self.proof.settle()
        for passage in self._passages().values():
            passage.settle()
        self.errors.update((name, (a, b)) for name, (a, b) in saved.record["errors"].items())
        if self.side is not None:
            self.side.errors.update((n, (a, b)) for n, (a, b) in saved.record["refit"].items())
            self.side.changed.update(saved.record["refitted"])
        return done

    def _passages(self) -> dict[str, Passage]:
        passages = {
            f"{part} {name}": passage
            for part, judging in self.judgings.items()
            for name, passage in judging.networks.items()
        }
        return passages if self.side is None else passages | {"refit": self.side.small}

    def _groups(self) -> Groups:
        groups = {name: passage.group for name, passage in self._passages().items()}
        return {**self.proof.groups, **groups}

    @property
    def _name(self) -> str:
        """The name of this construction's parts: it depends on the widths and on the refit."""
        title = "cut" if self.side is None else "refitted"
        return f"{title}-{digest(dict(self.plan.widths))}"
