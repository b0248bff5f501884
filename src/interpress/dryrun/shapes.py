"""Find out which spaces the model's code can shrink, using tensors without values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import nn

from interpress.dryrun.fake_run import Failure, FakeTrial, TrialSlots
from interpress.dryrun.inputs import weights_of
from interpress.spaces.spaces import Spaces
from interpress.surgery.attributes import Choices
from interpress.surgery.size_attributes import (
    Candidates,
    Sizes,
    conflicts,
    names_a_size,
    shared,
)

_MOST_COMBINATIONS = 20
"""Combinations of slots and sources tried at a time. Each costs one run of the model."""


@dataclass
class ShapeTrial:
    """Shrinks all spaces at once, and merges or freezes those for which the model does not run."""

    spaces: Spaces
    _last: tuple[object, FakeTrial] | None = None
    _last_slots: tuple[object, TrialSlots] | None = None

    def settle(self) -> Spaces:
        """Return the spaces that the model's code can shrink, with the choices for this."""
        if not self.spaces.shrinkable or not self._runs_without_values():
            return self.spaces  # it is tried only with values
        while names := [space.name for space in self.spaces.shrinkable]:
            failure, choices = self._choose(names, pairs=False)
            if failure is not None and self._tie(failure, names):
                continue
            if failure is not None:
                failure, choices = self._choose(names)
            if failure is None:
                self.spaces = replace(self.spaces, choices=self._fewest_changes(names, choices))
                failure = self._fails_apart(names)
            if failure is None or (self.spaces.choices and self._rechoose(names)):
                return self.spaces
            if not self._tie(failure, names):
                self._freeze(failure, names)
        return self.spaces

    def _runs_without_values(self) -> bool:
        """Return whether the model runs on tensors without values, smaller or as it is."""
        names = [space.name for space in self.spaces.shrinkable]
        candidates, _ = self._candidates(names)
        if self._run(names, _likeliest(candidates)) is None:
            return True
        return self._run([], {}) is None

    def _rechoose(self, names: list[str]) -> bool:
        """Try other choices with which all spaces run together; return whether they do so apart.

        Two heads of two members each give the same sizes if one of each is removed.
        """
        plain = self.spaces
        for choices in self.alternatives(names):
            self.spaces = replace(plain, choices=choices)
            if self._fails_apart(names) is None:
                return True
        self.spaces = plain
        return False

    def runs(self, names: list[str]) -> bool:
        """Return whether the model runs with some spaces smaller and the choices there are."""
        return self._run(names, dict(self.spaces.choices)) is None

    def _fails_apart(self, names: list[str]) -> Failure | None:
        """Return the first failure of spaces that shrink without those they are entangled with."""
        choices = dict(self.spaces.choices)
        failures = (self._run(part, choices) for part in self.apart(names))
        return next((failure for failure in failures if failure is not None), None)

    def alternatives(self, names: list[str]) -> Iterator[Choices]:
        """Yield other choices with which the model also runs.

        A module with as many heads as dims per head runs with either source. Only values tell which
        one is right.
        """
        candidates, _ = self._candidates(names)
        settled = dict(self.spaces.choices)
        unchanged = dict.fromkeys((candidate.slot for candidate in candidates), None)
        if self._run(names, settled | unchanged) is None:
            yield settled | unchanged
        alternatives = [
            (candidate.slot, source)
            for candidate in candidates
            for source in candidate.sources
            if source != settled.get(candidate.slot)
        ]
        for count in (1, 2):
            combinations = itertools.combinations(alternatives, count)
            for combination in itertools.islice(combinations, _MOST_COMBINATIONS):
                change = dict(combination)
                choices = settled | change
                if len(change) == count and self._run(names, choices) is None:
                    yield choices

    def apart(self, names: list[str]) -> list[list[str]]:
        """Return parts of the entangled spaces, so that no two spaces of a part are entangled.

        Spaces are entangled if they share an integer attribute of some module, which may follow the
        wrong one of them. Spaces of different modules can be tried at the same time, so there are
        only a few parts, however many modules are alike.
        """
        candidates, sizes = self._candidates(names)
        chosen = dict(self.spaces.choices)
        partners: dict[int, set[int]] = {}
        for candidate in candidates:
            if chosen.get(candidate.slot, candidate.sources[0]) is not None:
                for group in shared(self.spaces, candidate, sizes):
                    for member in group:
                        partners.setdefault(member, set()).update(group - {member})
        parts: list[list[int]] = []
        for name in names:
            index = self.spaces.index(self.spaces[name])
            if index in partners:
                free = (part for part in parts if not partners[index].intersection(part))
                part = next(free, None)
                if part is None:
                    parts.append([index])
                else:
                    part.append(index)
        return [[self.spaces.all[index].name for index in part] for part in parts]

    def _fewest_changes(self, names: list[str], choices: Choices) -> Choices:
        """Return the choices without changes that are not needed for the model to run.

        An integer whose name says that it is a size still follows that size, unless it is doubtful.
        """
        candidates, _ = self._candidates(names)
        for candidate in candidates:
            slot = candidate.slot
            if choices[slot] is not None and (candidate.doubtful or not names_a_size(slot)):
                fewer = choices | {slot: None}
                if self._run(names, fewer) is None:
                    choices = fewer
        return choices

    def _candidates(self, names: list[str]) -> tuple[list[Candidates], Sizes]:
        slots = self._slots(names)
        return slots.candidates, slots.sizes

    def _choose(self, names: list[str], *, pairs: bool = True) -> tuple[Failure | None, Choices]:
        """Change the sources of slots, as long as the model runs further, until it runs through.

        With `pairs`, two slots may change at once.
        """
        candidates, _ = self._candidates(names)
        choices = _likeliest(candidates)
        failure = self._run(names, choices)
        while failure is not None:
            better = None
            for change in self._changes(failure, candidates, choices, pairs):
                new_failure = self._run(names, choices | change)
                if new_failure is None or new_failure.progress > failure.progress:
                    better = (new_failure, choices | change)
                    break
            if better is None:
                return failure, choices
            failure, choices = better
        return None, choices

    def _changes(
        self, failure: Failure, candidates: list[Candidates], choices: Choices, pairs: bool
    ) -> Iterator[Choices]:
        """Yield other sources for one slot of a class that was running, then for two slots."""
        modules = dict(self.spaces.program.model.named_modules())
        kinds = list(dict.fromkeys(type(modules[name]) for name in failure.modules))
        for kind in kinds:
            alternatives = [
                (candidate.slot, source)
                for candidate in candidates
                if candidate.slot.kind is kind
                for source in candidate.sources
                if source != choices[candidate.slot]
            ]
            yield from ({slot: source} for slot, source in alternatives)
            all_pairs = itertools.combinations(alternatives if pairs else [], 2)
            changes = (dict(pair) for pair in all_pairs if pair[0][0] != pair[1][0])
            yield from itertools.islice(changes, _MOST_COMBINATIONS)

    def _run(self, names: list[str], choices: Choices) -> Failure | None:
        return self._trial(names).run(choices)

    def _trial(self, names: list[str]) -> FakeTrial:
        """Return a smaller copy to run; the last one is used again if it is of the same spaces."""
        key = (self.spaces.all, tuple(names))
        if self._last is None or self._last[0] != key:
            self._last = (key, FakeTrial(self.spaces, self._slots(names)))
        return self._last[1]

    def _slots(self, names: list[str]) -> TrialSlots:
        """Return the slots of a trial; the last ones are used again if they are of the same."""
        key = (self.spaces.all, tuple(names))
        if self._last_slots is None or self._last_slots[0] != key:
            self._last_slots = (key, TrialSlots.of(self.spaces, names))
        return self._last_slots[1]

    def _tie(self, failure: Failure, names: list[str]) -> bool:
        """Merge spaces for which a running module has one integer; return whether that helps."""
        modules = dict(self.spaces.program.model.named_modules())
        kinds = {type(modules[name]) for name in failure.modules}
        candidates, sizes = self._candidates(names)
        for candidate in (c for c in candidates if c.slot.kind in kinds):
            trial = ShapeTrial(self.spaces)
            for group in conflicts(candidate, sizes):
                members = [self.spaces.all[index] for index in group]
                channel_spaces = [space.name for space in members if not space.heads]
                if len(channel_spaces) > 1:
                    trial.spaces = trial.spaces.tied(channel_spaces)
            if trial.spaces is self.spaces:
                continue
            shrinkable = [space.name for space in trial.spaces.shrinkable]
            new_failure, _ = trial._choose(shrinkable, pairs=False)
            if new_failure is None or new_failure.progress > failure.progress:
                self.spaces = trial.spaces
                return True
        return False

    def _freeze(self, failure: Failure, names: list[str]) -> None:
        """Freeze the spaces near the failure that fail alone, or all of them if none does."""
        near = self._near(failure, names)
        reasons = {}
        for name in near:
            alone, _ = self._choose([name])
            if alone is not None:
                where = alone.modules[0] or "the model"
                reasons[name] = f"the code of {where} fails with fewer channels ({alone.message})"
        if not reasons:
            heads = [name for name in near if self.spaces[name].heads]
            reasons = dict.fromkeys(
                heads or near,
                f"the code fails if it shrinks together with other spaces ({failure.message})",
            )
        modules = dict(self.spaces.program.model.named_modules())
        for name in list(reasons):
            for counterpart in _counterparts(name, failure.modules, modules, names):
                reasons.setdefault(counterpart, reasons[name])
        self.spaces = self.spaces.freeze(reasons)

    def _near(self, failure: Failure, names: list[str]) -> list[str]:
        """Return the spaces with a weight in the innermost running module that has any."""
        for module in failure.modules:
            prefix = f"{module}." if module else ""
            near = [
                name
                for name in names
                if any(weight.startswith(prefix) for weight in weights_of(self.spaces[name]))
            ]
            if near:
                return near
        return names


def _likeliest(candidates: list[Candidates]) -> Choices:
    return {candidate.slot: candidate.sources[0] for candidate in candidates}


def _counterparts(
    name: str, running: list[str], modules: dict[str, nn.Module], names: list[str]
) -> list[str]:
    """Return the spaces of the same name in other modules of the class that failed."""
    for module in running:
        if module and name.startswith(f"{module}."):
            suffix = name[len(module) :]
            kind = type(modules[module])
            counterparts = [f"{path}{suffix}" for path, m in modules.items() if type(m) is kind]
            return [space for space in counterparts if space in names and space != name]
    return []
