"""Compare two networks, or a part of them, on data of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from interpress.cli.data_files.batches import open_batches
from interpress.cli.data_options import DataOptions
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.errors import MisfitError
from interpress.evaluation.tally import Agreement
from interpress.pipeline.options import Options


def evaluation_batches(
    data: DataOptions,
    model: ModelOptions,
    network: nn.Module,
    output: OutputOptions,
    part: str | None,
) -> Iterable[Any]:
    """Return evaluation data with labels, after a check that the network runs on them."""
    batches = open_batches(data, model, network).with_labels()
    compare((network, network), [next(iter(batches))], None, output, data.path, part)
    return batches


def compare(
    networks: tuple[nn.Module, nn.Module],
    data: Any,
    labels: Any,
    output: OutputOptions,
    path: Path,
    part: str | None = None,
) -> Agreement:
    """Return the agreement of two networks, or of a part of them; `path` names the data."""
    options = Options(**output.arguments()).of_part(networks[0], part)
    compared = [network.get_submodule(part or "") for network in networks]
    asked: dict[str, Any] = {
        "forward": options.forward, "kind": options.kind, "output": options.output,
        "labels": labels,
    }  # fmt: skip
    try:
        return interpress.agreement(compared[0], compared[1], data, **asked)
    except MisfitError as error:
        raise MisfitError(f"{path}: {error.fault}", error.remedy) from error
