"""Order the channels of a large network and measure their effects, in one walk over its blocks.

In every block the statistics are measured, the spaces are ordered, and networks with one smaller
space branch off. Of the original and of all these networks, only the values between two blocks are
held. All of them pass through a block before the next one is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, fx

from interpress.allocation.effects import EXAMPLES, Effects, replacing, trial_widths
from interpress.calibration.study import Study
from interpress.data.batches import split_batch
from interpress.files.checkpoint import Checkpoint, Part
from interpress.graph.blocks import Block
from interpress.graph.executor import Before, Executor, Frame
from interpress.graph.frame_record import Groups, restore, to_record
from interpress.graph.passage import Passage
from interpress.progress import Display
from interpress.selection.activations import Activations
from interpress.selection.orders import ChannelOrder, Orders, order_channels
from interpress.selection.profile import Profile, profiles_of
from interpress.spaces.spaces import Spaces

_Trial = tuple[str, int]
"""A space, and the width it is shrunk to."""


def order_and_measure(
    study: Study, selection: str, bars: Display, *, effects: bool, checkpoint: Checkpoint
) -> tuple[Orders, Effects | None]:
    """Return the orders of all spaces and, if asked for, their effects on the outputs."""
    with Activations(study) as activations:
        profiles = profiles_of(study.spaces, study.statistics, activations.at, study.seed)
        title = f"measured-{selection}"
        finished = checkpoint.load(title)
        if finished is not None:
            by_space = {name: _order_from(finished, name) for name in profiles}
            distrust, found = finished.record["distrust"], finished.record["effects"]
        else:
            trials = _Trials(study) if effects else None
            by_space, distrust = _walked(study, selection, bars, profiles, trials, checkpoint)
            found = None if trials is None else trials.effects(list(profiles))
            tensors, record = _order_record(study.spaces, by_space, distrust)
            checkpoint.save(title, tensors, record | {"effects": found})
    orders = Orders(
        selection,
        {name: by_space[name] for name in profiles},
        profiles,
        distrust,
        are_divergences=bool(study.statistics.sensitivities),
    )
    if found is None:
        return orders, None
    return orders, {name: [(w, d) for w, d in effect] for name, effect in found.items()}


def _walked(
    study: Study,
    selection: str,
    bars: Display,
    profiles: Mapping[str, Profile],
    trials: _Trials | None,
    checkpoint: Checkpoint,
) -> tuple[dict[str, ChannelOrder], dict[str, str | None]]:
    """Walk over all blocks; return the orders, and why spaces are not trusted."""
    walk = study.require_walk()
    by_space: dict[str, ChannelOrder] = {}
    distrust: dict[str, str | None] = {}
    with bars.task("measuring", len(walk.blocks)) as advance:
        for number, block in enumerate(walk.blocks):
            names = [name for name in walk.spaces_in(number) if name in profiles]
            saved = checkpoint.load(f"measured-{selection}-{number}")
            for name in names:
                if saved is None:
                    by_space[name] = _ordered(profiles[name], selection)
                    distrust[name] = profiles[name].distrust
                    if trials is not None:
                        trials.begin(name, by_space[name], block)
                    profiles[name].release()
                else:
                    by_space[name] = _order_from(saved, name)
                    distrust[name] = saved.record["distrust"][name]
            if trials is not None:
                if saved is not None:
                    trials.restore(names, saved)
                trials.advance(block, is_last=number == len(walk.blocks) - 1)
            if saved is None and checkpoint.is_kept and number < len(walk.blocks) - 1:
                found = {name: by_space[name] for name in names}
                tensors, record = _order_record(study.spaces, found, distrust)
                if trials is not None:
                    values, record["trials"] = to_record(_groups(trials.newest(names)))
                    tensors |= values
                checkpoint.save(f"measured-{selection}-{number}", tensors, record)
            advance(1, f"measuring: block {number + 1} of {len(walk.blocks)}")
    return by_space, distrust


def _ordered(profile: Profile, selection: str) -> ChannelOrder:
    """Order the channels of one space, and compute their errors while statistics are held."""
    order = order_channels(profile, selection)
    at_trials = {width: order.squared_error(width) for width in trial_widths(profile.space)}
    return _known(order.units, order.proxy, order.errors, at_trials)


def _known(
    units: Tensor, proxy: Tensor, errors: Tensor, at_trials: Mapping[int, float]
) -> ChannelOrder:
    """Return an order that needs no statistics."""
    return ChannelOrder(units, proxy, lambda: errors, at_trials.__getitem__)


class _Trials:
    """The original on a few examples, and the networks with one smaller space."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._executor = Executor(study.spaces.program)
        walk = study.require_walk()
        few = study.few_examples(EXAMPLES)
        self._examples = [part for batch in few for part in split_batch(batch, walk.most)]
        self._original = Passage.begin(self._executor, self._examples, walk.rest)
        self._begun: dict[_Trial, Passage] = {}
        self._changed: dict[_Trial, Passage] = {}
        self._distances: dict[_Trial, float] = {}

    def begin(self, name: str, order: ChannelOrder, block: Block) -> None:
        """Run a block with one space shrunk, for every width to try."""
        shared = [frozenset(frame.values) for frame in self._original.frames]
        for width in trial_widths(self._study.spaces[name]):
            _, before = replacing(self._study, name, order, width)
            passage = self._original.branch()
            passage.advance(block.nodes, partial(_hooks, before, shared))
            self._begun[name, width] = passage

    def advance(self, block: Block, *, is_last: bool) -> None:
        """Run a block in the original, and in all networks that branched off before it.

        After the last block, the outputs of one network are held at a time.
        """
        with self._executor.holding(block.nodes):
            self._original.advance(block.nodes)
            for trial, passage in self._changed.items():
                passage.advance(block.nodes)
                if is_last:
                    self._compare(trial, passage)
        if is_last:
            for trial, passage in self._begun.items():
                self._compare(trial, passage)
        self._changed |= self._begun
        self._begun = {}

    def _compare(self, trial: _Trial, passage: Passage) -> None:
        """Measure how far the outputs of a network are from the original's, and release them."""
        batches = range(len(self._examples))
        reference = [self._original.outputs(batch) for batch in batches]
        outputs = [passage.outputs(batch) for batch in batches]
        distance = self._study.meaning.distance(reference, outputs, self._examples)
        self._distances[trial] = distance
        passage.frames = [Frame() for _ in batches]

    def newest(self, names: Sequence[str]) -> dict[_Trial, Passage]:
        """Return the networks in which one of these spaces is smaller."""
        return {trial: passage for trial, passage in self._changed.items() if trial[0] in names}

    def restore(self, names: Sequence[str], saved: Part) -> None:
        """Restore the networks that branched off in a finished block."""
        for name in names:
            for width in trial_widths(self._study.spaces[name]):
                self._begun[name, width] = self._original.branch()
        restore(_groups(self._begun), saved.tensors, saved.record["trials"])
        for passage in self._begun.values():
            passage.settle()

    def effects(self, names: Sequence[str]) -> Effects:
        """Return the distance of every network's outputs from the original's."""
        found: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
        for (name, width), distance in self._distances.items():
            found[name].append((width, distance))
        return found


def _order_record(
    spaces: Spaces, orders: Mapping[str, ChannelOrder], distrust: Mapping[str, str | None]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return orders as tensors and a record; `_order_from` reads them."""
    tensors: dict[str, Tensor] = {}
    record: dict[str, Any] = {"distrust": {name: distrust[name] for name in orders}, "errors": {}}
    for name, order in orders.items():
        widths = trial_widths(spaces[name])
        record["errors"][name] = {str(width): order.squared_error(width) for width in widths}
        tensors |= {
            f"units/{name}": order.units,
            f"proxy/{name}": order.proxy,
            f"errors/{name}": order.errors,
        }
    return tensors, record


def _hooks(before: Before, shared: Sequence[frozenset[fx.Node]], batch: int) -> dict[str, Any]:
    return {"before": before, "protected": shared[batch]}


def _groups(passages: Mapping[_Trial, Passage]) -> Groups:
    return {f"{name} {width}": passage.group for (name, width), passage in passages.items()}


def _order_from(saved: Part, name: str) -> ChannelOrder:
    units, proxy, errors = (
        saved.tensors[f"{part}/{name}"] for part in ("units", "proxy", "errors")
    )
    at_trials = {int(width): error for width, error in saved.record["errors"][name].items()}
    return _known(units, proxy, errors, at_trials)
