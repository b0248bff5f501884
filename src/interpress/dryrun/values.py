"""Find out which spaces can shrink correctly, by the projection identity on perturbed weights."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

from interpress.dryrun.inputs import (
    perturbed,
    random_interpolations,
    scale_to_unit_variation,
    trial_kept,
)
from interpress.dryrun.shapes import ShapeTrial
from interpress.errors import DataError
from interpress.graph.misfit import first_line
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import Proof, fixed_seed, prove
from interpress.surgery.weights import shrunk_copy


class ValueTrial:
    """Proves that all spaces can shrink at once, and freezes those for which this fails."""

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces

    def settle(self) -> Spaces:
        """Return the spaces that can be proved, tried on a copy with perturbed weights."""
        program = self.spaces.program
        if not self.spaces.trace.finite:
            raise DataError(
                "the model's output on the example holds NaN, so a smaller network cannot be "
                "compared with it; check the model's weights, or pass another example"
            )
        if self.spaces.shrinkable:
            self._perturb()
        return replace(self._settled(), program=program)

    def holds(self, names: list[str]) -> bool:
        """Return whether the identity holds for some spaces at once, with perturbed weights."""
        if names:
            self._perturb()
        return not names or self._holds(names)

    def _perturb(self) -> None:
        """Replace the weights by random ones with which every layer depends on the input."""
        program = self.spaces.program
        model = perturbed(program.model)
        with contextlib.suppress(Exception), fixed_seed():  # the model's code may raise anything
            scale_to_unit_variation(model, program.example)
        self.spaces = replace(self.spaces, program=replace(program, model=model))

    def _settled(self) -> Spaces:
        names = [space.name for space in self.spaces.shrinkable]
        if not names or self._holds_together_and_apart(names):
            return self.spaces
        if self._rescale(names) or self._rechoose(names):
            return self.spaces
        while names and not self._holds_together_and_apart(names):
            self.spaces = self.spaces.freeze(self._culprits(names))
            names = [space.name for space in self.spaces.shrinkable]
        return self.spaces

    def _holds_together_and_apart(self, names: list[str]) -> bool:
        """Return whether the identity holds for all spaces at once, and for entangled ones apart.

        Entangled spaces share an integer attribute, which may follow the wrong one of them.
        """
        return self._holds(names) and all(map(self._holds, ShapeTrial(self.spaces).apart(names)))

    def _rescale(self, names: list[str]) -> bool:
        """Assume that consumers divide by the square root of the tap's width; keep it if it holds.

        This is tried for all taps that are products of activations, then only for those whose
        spaces fail without it.
        """
        plain = self.spaces
        taps = [t for t in plain.taps.values() if t.of_activations and not t.scaled_by_width]
        self.spaces = replace(plain, rescaled=frozenset(tap.name for tap in taps))
        if not taps or not self._holds(names):
            rescaled = set()
            for tap in taps:
                tapped = [s.name for s in plain.shrinkable if tap.name in s.taps and not s.heads]
                self.spaces = plain
                if tapped and not self._holds(tapped):
                    rescaled.add(tap.name)
            self.spaces = replace(plain, rescaled=frozenset(rescaled))
            if not rescaled or not self._holds(names):
                self.spaces = plain
                return False
        return True

    def _rechoose(self, names: list[str]) -> bool:
        """Try other sources for integer attributes; return whether the identity then holds."""
        plain = self.spaces
        for choices in ShapeTrial(plain).alternatives(names):
            self.spaces = replace(plain, choices=choices)
            if self._holds_together_and_apart(names):
                return True
        self.spaces = plain
        return False

    def _prove(self, names: list[str]) -> Proof | str:
        """Return the proof for some spaces at once, or the error that their network raised."""
        kept = trial_kept(self.spaces, names)
        T = random_interpolations(Cut(self.spaces, kept))
        cut = Cut(self.spaces, kept, T)
        try:
            return prove(self.spaces, cut, shrunk_copy(cut, shared=True))
        except Exception as problem:  # the model's code may raise anything
            return first_line(problem)

    def _holds(self, names: list[str]) -> bool:
        return bool(proof := self._prove(names)) and isinstance(proof, Proof)

    def _culprits(self, names: list[str]) -> dict[str, str]:
        """Return spaces to freeze, with reasons: those that fail alone, or one that fails jointly.

        If none fails alone, that one is the last space of the shortest prefix of `names` that
        fails, found by bisection.
        """
        entangled = list(itertools.chain(*ShapeTrial(self.spaces).apart(names)))
        failing_alone = self._failing_alone(names) | {
            name: "it cannot shrink by itself" for name in entangled if not self._holds([name])
        }
        if failing_alone:
            return failing_alone
        low, high = 1, len(names)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._holds(names[:middle]) else (low, middle)
        return {names[high - 1]: "its surgery cannot be proved together with that of other spaces"}

    def _failing_alone(self, names: list[str]) -> dict[str, str]:
        """Return the spaces that fail alone, found by bisection, with reasons."""
        proof = self._prove(names)
        if isinstance(proof, Proof) and proof:
            return {}
        if len(names) == 1:
            detail = proof if isinstance(proof, str) else f"difference {proof.difference:.0e}"
            return {names[0]: f"its surgery cannot be proved ({detail})"}
        half = len(names) // 2
        return self._failing_alone(names[:half]) | self._failing_alone(names[half:])
