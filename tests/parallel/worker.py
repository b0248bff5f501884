"""One of several processes: `python -m tests.parallel.worker TASK FOLDER`.

It writes what it found to FOLDER/RANK.pt.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.zoo import residual

import interpress
from interpress import demo
from interpress.data.calibration_set import CalibrationSet
from interpress.pipeline import steps
from interpress.pipeline.options import Options
from interpress.pipeline.steps import find, measure
from interpress.progress import display

DATA = demo.load_digits().calibration[:900]


def compress(data: Any) -> dict[str, Any]:
    result = interpress.compress(demo.network(), data, flops=0.6, progress=False)
    return {"widths": result.widths, "weights": result.model.state_dict(), "text": str(result)}


def whole(rank: int, size: int) -> dict[str, Any]:
    """Every process has all data."""
    return compress(DATA)


def by_block(rank: int, size: int) -> dict[str, Any]:
    """Every process has all data, and the network is measured block by block."""
    steps._AT_ONCE = 0
    return compress(DATA)


def by_block_kept(rank: int, size: int) -> dict[str, Any]:
    """The same with a checkpoint, once from the beginning and once from what was kept."""
    folder = Path(sys.argv[2]) / "checkpoint"
    model = demo.network()
    for _ in range(2):
        result = interpress.compress(
            model, DATA, flops=0.6, checkpoint=folder, memory=4.0, progress=False
        )
    return {"widths": result.widths, "weights": result.model.state_dict(), "text": ""}


def distils(rank: int, size: int) -> dict[str, Any]:
    """Every process takes its part of the batches."""
    result = interpress.compress(demo.network(), DATA, flops=0.3, progress=False)
    distilled = result.distill(steps=200, progress=False)
    assert distilled.network.distillation is not None
    return {
        "widths": distilled.widths,
        "weights": distilled.model.state_dict(),
        "kept": distilled.network.distillation.kept,
    }


def shards(rank: int, size: int) -> dict[str, Any]:
    """Every process has a part; the last one has none."""
    parts = [DATA[:500], DATA[500:], DATA[:0]] if size > 2 else [DATA[:500], DATA[500:]]
    return compress(list(parts[rank].split(100)) if rank < len(parts) and len(parts[rank]) else [])


def fails(rank: int, size: int) -> dict[str, Any]:
    """Process 1 has no data that can be read, then another budget; the others wait for it."""
    messages = []
    wrong: list[tuple[Any, float]] = [("nonsense", 0.9), (DATA, 7.0), (DATA, 0.9)]
    for data, width in wrong if rank == 1 else [(DATA, 0.9)] * 3:  # the last call succeeds
        try:
            interpress.compress(demo.network(), data, width=width, progress=False)
        except interpress.InterpressError as error:
            messages.append(str(error))
    return {"messages": messages}


def saves(rank: int, size: int) -> dict[str, Any]:
    """All processes save into one folder."""
    result = interpress.compress(demo.network(), DATA, width=0.9, progress=False)
    result.save(Path(sys.argv[2]) / "result")
    return {}


def times(rank: int, size: int) -> dict[str, Any]:
    """How long the calibration pass takes."""
    model = residual.ResNet(residual.BasicBlock, (2, 2)).eval()
    images = torch.randn(6000, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    options = Options(progress=False)
    data = CalibrationSet(images, model)
    spaces = find(model, data, options)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        with display(False) as bars:
            measure(spaces, data, options, bars)
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds)}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = globals()[sys.argv[1]](rank, dist.get_world_size())
    torch.save(found, Path(sys.argv[2]) / f"{rank}.pt")
    dist.barrier()  # so that none leaves while another still exchanges
    dist.destroy_process_group()
    gc.collect()  # a group that is collected when the process ends can abort it


if __name__ == "__main__":
    main()
