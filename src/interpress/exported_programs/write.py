"""Turn a smaller network into an exported program with the inputs and outputs of the original's."""

from __future__ import annotations

import inspect
import os
import uuid
import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram, export

from interpress.errors import ArgumentError, StorageError, warn_user
from interpress.exported_programs.inputs import (
    free_sizes,
    input_values,
    random_inputs,
    sizes_to_try,
)
from interpress.exported_programs.source import ExportedSource, exported_source
from interpress.files.tensor_file import target_path
from interpress.graph.batch_size import same_for_each_batch
from interpress.graph.example import Example


def smaller_program(original: nn.Module, smaller: nn.Module) -> ExportedProgram:
    """Return the smaller network as an exported program.

    Names of parameters, structure of inputs and outputs, and which sizes are free are those of the
    program that the original was read from. Raise if it was not read from one.
    """
    source = exported_source(original)
    if source is None:
        raise ArgumentError(
            "this network was not read from an exported program; export the smaller one with "
            "torch.export.export(result.model, ...)"
        )
    assert isinstance(smaller, fx.GraphModule)
    example = random_inputs(source.program, sizes_to_try(source.program))
    free = free_sizes(source.program)
    bound = inspect.signature(smaller.forward).bind(*free.args, **free.kwargs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export warns about torch's internals
            program = export(
                smaller,
                example.args,
                dict(example.kwargs),
                dynamic_shapes=dict(bound.arguments),
                strict=False,
            )
    except Exception as error:  # torch.export raises many types
        line = next(iter(str(error).splitlines()), "")
        raise StorageError(
            f"the smaller network of {source.name} cannot be exported ({type(error).__name__}: "
            f"{line}); save it with result.save, and report the program"
        ) from error
    _check(source, smaller, program, example)
    return program


def _check(
    source: ExportedSource, smaller: nn.Module, program: ExportedProgram, example: Example
) -> None:
    """Raise if the written program computes something else; warn if it takes fewer sizes."""
    if not same_for_each_batch(smaller, program.module(check_guards=False), [example]):
        raise StorageError(
            f"the program that was written for {source.name} gives other outputs than the smaller "
            "network; save it with result.save, and report the program"
        )
    if _which_are_free(program) != _which_are_free(source.program):
        warn_user(
            f"the smaller program of {source.name} takes inputs of fewer sizes than the original "
            "one; export result.model with torch.export.export and your own dynamic_shapes",
        )


def _which_are_free(program: ExportedProgram) -> list[list[bool]]:
    values: list[Any] = [value for value in input_values(program) if isinstance(value, Tensor)]
    return [[not isinstance(size, int) for size in value.shape] for value in values]


def save_exported(
    original: nn.Module, smaller: nn.Module, path: str | os.PathLike[str], overwrite: bool
) -> None:
    """Write the smaller network as a `.pt2` file, with the texts that the original's file held.

    It is written beside its target, and moved into place.
    """
    program = smaller_program(original, smaller)
    source = exported_source(original)
    assert source is not None
    target = target_path(path)
    if target.exists() and not overwrite:
        raise StorageError(f"{target} exists; pass overwrite=True to replace it")
    if not target.parent.is_dir():
        raise StorageError(f"{target.parent} is not a folder; choose one that exists")
    temporary = target.parent / f".{uuid.uuid4().hex}.pt2"
    try:
        torch.export.save(program, temporary, extra_files=dict(source.extra))
        os.replace(temporary, target)
    except (OSError, RuntimeError) as error:
        raise StorageError(
            f"cannot write {target} ({error}); choose a folder that is writable and has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
