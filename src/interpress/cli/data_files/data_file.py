"""`DataFile`: the examples of one file or folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from interpress.cli.data_options import DataOptions

LABEL_NAMES = ("label", "labels", "y", "target", "targets")
"""The names of an array or column that is read as labels."""


class DataFile(ABC):
    """Examples in one file or folder, with labels if there are any."""

    holds_images: ClassVar[bool] = False
    """Whether `--size`, `--mean`, `--std`, `--preset` and `--gray` apply."""
    if_empty: ClassVar[str]
    """What to tell the user if there are no examples."""
    if_misfit: ClassVar[str] = (
        "store inputs of the shape that the model takes, or choose others with --key"
    )
    """What to tell the user if the model does not run on the examples."""
    labels: Tensor | None = None
    """One label per example, or None if they are unknown."""
    labels_problem: str | None = None
    """Why the labels of the file cannot be used, if it has some."""

    @abstractmethod
    def __init__(self, options: DataOptions) -> None:
        """Open `options.path`."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of examples."""

    @abstractmethod
    def inputs(self, indices: Sequence[int]) -> Any:
        """Return some examples as one batch of model inputs: a tensor, or a dict of tensors."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names that the user gave to the inputs; empty if names do not come from the user."""
        return ()

    def preprocessing(self) -> dict[str, Any]:
        """Return what is done to the raw inputs, to record with a result."""
        return {"inputs": "arrays"}
