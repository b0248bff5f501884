"""`Part`: one module of a model, compressed with the inputs that it gets inside the whole.

Some models cannot be captured as a whole, such as detectors, whose code depends on the boxes that
they find. Most of their work is in a part that can be captured. The whole runs on the data up to
the part, whose inputs are recorded; the part is compressed, and put into a copy of the whole.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interpress.data.inputs import (
    Forward,
    RecordedInputs,
    as_example,
    is_list_of_images,
    plain_batch,
    record_inputs,
)
from interpress.errors import ArgumentError, DataError, InterpressError, SurgeryError
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation
from interpress.graph.on_device import compute_device

_LISTED = 4  # names that an error lists


@dataclass(frozen=True, eq=False)
class Part:
    """A module of a model, and how the model runs on a batch."""

    whole: nn.Module
    name: str
    whole_forward: Forward | None = None
    """The user's `forward=` of the whole."""

    def __post_init__(self) -> None:
        names = {name for name, _ in self.whole.named_modules() if name}
        if not isinstance(self.name, str) or self.name not in names:
            close = difflib.get_close_matches(str(self.name), names, _LISTED)
            some = close or [name for name, _ in self.whole.named_children()][:_LISTED]
            raise ArgumentError(
                f"part={self.name!r} is no module of {type(self.whole).__name__}; it has "
                f"{', '.join(some)}"
            )

    @property
    def module(self) -> nn.Module:
        """The part inside the whole."""
        return self.whole.get_submodule(self.name)

    def forward(self, module: nn.Module, batch: Any) -> Any:
        """Call a module, the part or a smaller one, with the inputs that the part gets.

        This is a `forward=` for the part, which takes batches of the whole.
        """
        return record_inputs(self.module, self._run_whole, batch).call(module)

    def check(self, batch: Any) -> None:
        """Raise if a forward of the whole does not call the part exactly once."""
        with self._counted() as calls:
            try:
                self._run(batch)
            except Exception as error:  # what comes after the part may need more than this machine
                if not calls:
                    raise self._does_not_run(error) from error
        if len(calls) != 1:
            times = f"called {len(calls)} times" if calls else "not called"
            raise ArgumentError(
                f"part={self.name!r} is {times} when {type(self.whole).__name__} runs, but the "
                "inputs of one call are recorded; name a module that is called once"
            )

    def with_smaller(self, smaller: nn.Module) -> nn.Module:
        """Return a copy of the whole with a smaller part; it shares no memory with the whole."""
        return copy.deepcopy(self.whole, {id(self.module): copy.deepcopy(smaller)})

    def check_runs(self, whole: nn.Module, batch: Any) -> None:
        """Raise if a copy of the whole does not run on a batch on which the original runs."""
        try:
            self._run(batch)
        except Exception:  # then nothing can be said
            return
        try:
            self._run(batch, whole)
        except Exception as error:
            raise SurgeryError(
                f"{type(whole).__name__} does not run with a smaller {self.name} "
                f"({_first_line(error)}), because its own code reads what is inside; give the name "
                "of a larger part"
            ) from error

    def _run_whole(self, part: nn.Module, batch: Any) -> None:
        try:
            self._run(batch)
        except (InterpressError, RecordedInputs):
            raise
        except Exception as error:
            raise self._does_not_run(error) from error

    def _run(self, batch: Any, whole: nn.Module | None = None) -> None:
        model = self.whole if whole is None else whole
        with evaluation(model), torch.no_grad():
            if self.whole_forward is not None:
                self.whole_forward(model, batch)
            elif not self._runs_on_list(model, batch):
                self._to_whole(as_example(batch, model)).call(model)

    def _runs_on_list(self, model: nn.Module, batch: Any) -> bool:
        """Run the whole on a list of images as one input; return whether the part was reached.

        The forward of a detector may not say that it takes a list.
        """
        batch = plain_batch(batch)
        if not is_list_of_images(batch):
            return False
        with self._counted(model) as calls:
            try:
                self._to_whole(Example((list(batch),))).call(model)
            except RecordedInputs:
                raise
            except Exception:
                if calls:
                    raise
        return bool(calls)

    def _to_whole(self, example: Example) -> Example:
        """Return inputs on the device and in the dtype of the whole."""
        floats = [p.dtype for p in self.whole.parameters() if p.is_floating_point()]
        device = compute_device(self.whole)

        def moved(tensor: Tensor) -> Tensor:
            is_float = tensor.is_floating_point() and floats
            return tensor.to(device, floats[0] if is_float else tensor.dtype)

        return example.without_cache(self.whole).map(moved)

    def _does_not_run(self, error: Exception) -> DataError:
        return DataError(
            f"{type(self.whole).__name__} does not run on a batch of the data "
            f"({_first_line(error)}); give batches as its forward takes them, or pass forward="
        )

    @contextmanager
    def _counted(self, whole: nn.Module | None = None) -> Iterator[list[None]]:
        """Count the calls of the part, in the whole or in a copy of it: one entry each."""
        calls: list[None] = []
        part = (self.whole if whole is None else whole).get_submodule(self.name)
        handle = part.register_forward_pre_hook(lambda *_: calls.append(None))
        try:
            yield calls
        finally:
            handle.remove()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
