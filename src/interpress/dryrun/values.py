"""The part of a trial that needs values: the projection identity, on perturbed weights."""

from __future__ import annotations

from dataclasses import replace

from interpress.dryrun.inputs import perturbed, random_interpolations, trial_kept
from interpress.dryrun.shapes import Shapes, first_line
from interpress.errors import DataError
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import Proof, prove
from interpress.surgery.weights import shrunk_copy


class Values:
    """Proves everything at once, and finds out what to freeze where that fails."""

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces

    def settle(self) -> Spaces:
        """The spaces that hold, tried on a copy with perturbed weights."""
        program = self.spaces.program
        if not self.spaces.trace.finite:
            raise DataError(
                "the model's output on the example holds NaN, so that nothing can be proved about "
                "it; check its weights, or pass another example"
            )
        if self.spaces.shrinkable:
            self.spaces = replace(
                self.spaces, program=replace(program, model=perturbed(program.model))
            )
        return replace(self._settled(), program=program)

    def _settled(self) -> Spaces:
        names = [space.name for space in self.spaces.shrinkable]
        if not names or (self._holds(names) and self._alone_too(names)):
            return self.spaces
        if self._rescale(names) or self._rechoose(names):
            return self.spaces
        while names and not (self._holds(names) and self._alone_too(names)):
            self.spaces = self.spaces.freeze(self._culprits(names))
            names = [space.name for space in self.spaces.shrinkable]
        return self.spaces

    def _alone_too(self, names: list[str]) -> bool:
        """Spaces that one number of a module may follow must also be right by themselves."""
        return all(self._holds([name]) for name in Shapes(self.spaces).entangled(names))

    def _rescale(self, names: list[str]) -> bool:
        """The code may divide by the square root of the width it finds: try so, tap by tap."""
        plain = self.spaces
        taps = [t for t in plain.taps.values() if t.of_activations and not t.gain]
        self.spaces = replace(plain, rescaled=frozenset(tap.name for tap in taps))
        if not taps or not self._holds(names):
            rescaled = set()
            for tap in taps:
                own = [s.name for s in plain.shrinkable if tap.name in s.taps and not s.heads]
                self.spaces = plain
                if own and not self._holds(own):
                    rescaled.add(tap.name)
            self.spaces = replace(plain, rescaled=frozenset(rescaled))
            if not rescaled or not self._holds(names):
                self.spaces = plain
                return False
        return True

    def _rechoose(self, names: list[str]) -> bool:
        """Other sources for the numbers that modules keep."""
        plain = self.spaces
        for choices in Shapes(plain).alternatives(names):
            self.spaces = replace(plain, choices=choices)
            if self._holds(names) and self._alone_too(names):
                return True
        self.spaces = plain
        return False

    def _prove(self, names: list[str]) -> Proof | str:
        kept = trial_kept(self.spaces, names)
        T = random_interpolations(Cut(self.spaces, kept))
        cut = Cut(self.spaces, kept, T)
        try:
            return prove(self.spaces, cut, shrunk_copy(cut))
        except Exception as problem:  # whatever the model's own code raises
            return first_line(problem)

    def _holds(self, names: list[str]) -> bool:
        return bool(proof := self._prove(names)) and isinstance(proof, Proof)

    def _culprits(self, names: list[str]) -> dict[str, str]:
        """Spaces that fail alone; if none does, the one without which those before it hold."""
        entangled = Shapes(self.spaces).entangled(names)
        alone = self._search(names) | {
            name: "it cannot shrink by itself" for name in entangled if not self._holds([name])
        }
        if alone:
            return alone
        low, high = 1, len(names)
        while low < high:  # the shortest beginning that fails ends with a culprit
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._holds(names[:middle]) else (low, middle)
        return {names[high - 1]: "its surgery cannot be proved together with others'"}

    def _search(self, names: list[str]) -> dict[str, str]:
        """The spaces that fail by themselves, found by halving."""
        proof = self._prove(names)
        if isinstance(proof, Proof) and proof:
            return {}
        if len(names) == 1:
            seen = proof if isinstance(proof, str) else f"difference {proof.difference:.0e}"
            return {names[0]: f"its surgery cannot be proved ({seen})"}
        half = len(names) // 2
        return self._search(names[:half]) | self._search(names[half:])
