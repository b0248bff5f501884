"""Decide which spaces can shrink, by shrinking all of them on a copy of the model.

The program shows which channels could be removed. It does not show whether the Python code of a
module runs with fewer channels. So all spaces are shrunk at once: first on tensors without values,
which is fast and decides which integer attributes have to change, then with values, by the
projection identity. A failure is traced to a module, and its spaces are frozen with the reason.

If a model of many operators repeats blocks, this happens on a shorter copy. The whole model is then
shrunk once to confirm it, and tried as it is if that fails.
"""

from __future__ import annotations

from dataclasses import replace

from interpress.dryrun.inputs import LARGE
from interpress.dryrun.shapes import ShapeTrial
from interpress.dryrun.shorten import KEPT, shorten
from interpress.dryrun.transfer import transferred
from interpress.dryrun.values import ValueTrial
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces

_FEW_OPERATORS = 400
"""A model of fewer operators is tried as it is: that takes less time than capturing a shorter copy
of it (on ResNet-56 with 265 operators, 0.4 s instead of 0.8 s)."""

_MOST_BYTES_CONFIRMED = 2**28
"""Bytes of weights up to which the values of the whole model are tried, after those of a shorter
copy: this takes a copy of the model, and in a model of 500 MB as long as capturing it."""


def settle(spaces: Spaces) -> Spaces:
    """Return the spaces with those frozen that the model's code cannot shrink.

    The result also records which size each integer attribute follows (`choices`).
    """
    kept = 1 if spaces.program.weight_bytes > LARGE else KEPT
    many = sum(1 for _ in spaces.program.operators()) >= _FEW_OPERATORS
    usable = spaces.shrinkable and spaces.trace.finite and many
    shortened = shorten(spaces.program, kept) if usable else None
    if shortened is not None:
        before = spaces_of(shortened.program)
        found = transferred(spaces, shortened, before, _tried(before))
        if found is not None and _is_confirmed(found):
            return found
    return _tried(spaces)


def _tried(spaces: Spaces) -> Spaces:
    spaces = _settled_with_cache(ShapeTrial(spaces).settle())
    return ValueTrial(spaces).settle()


def _settled_with_cache(spaces: Spaces) -> Spaces:
    """Freeze the spaces with which a language model fails when it returns its cache.

    It was captured without one, but users call it with one. A cache may have sizes of its own.
    """
    program = spaces.program
    if not spaces.shrinkable or program.example.kwargs.get("use_cache") is not False:
        return spaces
    kwargs = {name: value for name, value in program.example.kwargs.items() if name != "use_cache"}
    example = replace(program.example, kwargs=kwargs)
    trial = ShapeTrial(replace(spaces, program=replace(program, example=example)))
    if trial.runs([space.name for space in spaces.shrinkable]):
        return spaces
    return replace(trial.settle(), program=program)


def _is_confirmed(spaces: Spaces) -> bool:
    """Return whether the whole model runs with all spaces smaller, and gives the right values.

    The values of a large model are not tried here, because that takes a copy of it. The network
    that is finally built is compared with it, as every network is.
    """
    names = [space.name for space in spaces.shrinkable]
    large = spaces.program.weight_bytes > _MOST_BYTES_CONFIRMED
    return ShapeTrial(spaces).runs(names) and (large or ValueTrial(spaces).holds(names))
