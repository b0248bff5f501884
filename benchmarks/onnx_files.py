"""Compress an ONNX file, and compare both files in ONNX Runtime on photographs.

    python -m benchmarks onnx FILE --data DIR             # the size of the images from the file
    python -m benchmarks onnx nudenet --data DIR          # the detector of the package nudenet
    python -m benchmarks onnx --quick                     # a small network and random images

DIR holds `*.parquet` with a column `img` of photographs. Half of them calibrate, the others judge.
Every photograph is padded to a square at the right and the bottom, resized bilinearly, and divided
by 255, as detectors of the YOLO family take it. The network of nudenet takes the order of OpenCV,
which is blue, green, red; with another file, `--bgr` asks for it.

Three things are measured on the images that judge:

- the relative error of the output, in the Frobenius norm;
- what becomes of the original's detections, if the output is (images, 4 + classes, boxes): how many
  of the boxes with a score of at least 0.25 have one in the smaller network, and their overlap;
- the CPU time at batch 1. The two files run in turn, and the ratio is that of the medians. CPU time
  does not count the time in which other programs run.

Results are written to `benchmarks/results/onnx-cpu.json` and `.md`, with --quick to `build/quick`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

import interpress
from benchmarks.boxes import SCORE, compare_boxes
from benchmarks.experiment import QUICK_RESULTS, RESULTS, ExperimentError, Row
from benchmarks.provenance import command_of, set_aside, stamp
from benchmarks.tables import table
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.onnx_files.library import onnx_runtime

Array = np.ndarray[Any, Any]

NUDENET = "nudenet"
FLOPS, MULTIPLES = (0.9, 0.8, 0.7), (1, 8)
_QUICK_SIZE = 32


def main(words: list[str] | None = None) -> None:
    """Run the comparison, write its result files, and print the table."""
    options = _parse(words)
    origin = stamp("onnx-cpu", torch.device("cpu"))  # with all threads that PyTorch takes
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        file = _small_file(Path(folder)) if options.quick else _file(options.file)
        row = measure(file, _images(options, file), options, Path(folder))
    report = {"command": _command(options), **origin, **row}
    out: Path = options.out or (QUICK_RESULTS if options.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    stem = out / "onnx-cpu"
    set_aside(stem.with_suffix(".json"))
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(report))
    Console(width=100).print(markdown(report))


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks onnx",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"an ONNX file, or {NUDENET}")
    parser.add_argument("--data", type=Path, help="folder with Parquet files of photographs")
    parser.add_argument(
        "--flops", nargs="+", type=float, default=list(FLOPS), help="fractions to keep"
    )
    parser.add_argument(
        "--round-to", nargs="+", type=int, default=list(MULTIPLES), help="multiples of widths"
    )
    parser.add_argument("--size", type=int, default=320, help="pixels, if the file does not say")
    parser.add_argument("--exclude", nargs="*", default=[], help="layers to leave alone")
    parser.add_argument("--bgr", action="store_true", help="blue first, as OpenCV reads images")
    parser.add_argument("--limit", type=int, help="use only so many images")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime (default: 1)")
    parser.add_argument("--runs", type=int, default=100, help="per file, for the CPU time")
    parser.add_argument("--quick", action="store_true", help="a small network, random images")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args(words)
    if not options.quick and (options.file is None or options.data is None):
        parser.error("give FILE and --data DIR, or --quick")
    if options.file == NUDENET:
        options.bgr = True
    return options


def _file(name: str) -> Path:
    if name != NUDENET:
        return Path(name)
    spec = importlib.util.find_spec(NUDENET)
    if spec is None or spec.origin is None:
        raise ExperimentError(f"{NUDENET} is not installed: pip install --no-deps {NUDENET}")
    return Path(spec.origin).with_name("320n.onnx")


def _small_file(folder: Path) -> Path:
    """Return the file of a small untrained network with the output of a detector."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(),
        nn.Conv2d(32, 32, 3, 1, 1), nn.SiLU(), nn.Conv2d(32, 7, 1), nn.Sigmoid(), nn.Flatten(2),
    )  # fmt: skip
    example = torch.zeros(2, 3, _QUICK_SIZE, _QUICK_SIZE)
    batch = {0: torch.export.Dim("batch")}
    torch.onnx.export(
        network.eval(), (example,), folder / "small.onnx", dynamo=True, dynamic_shapes=(batch,),
        external_data=False, verbose=False,
    )  # fmt: skip
    return folder / "small.onnx"


def _images(options: argparse.Namespace, file: Path) -> Tensor:
    """Return the images, prepared for the network."""
    if options.quick:
        generator = torch.Generator().manual_seed(0)
        return torch.rand(40, 3, _QUICK_SIZE, _QUICK_SIZE, generator=generator)
    import pyarrow.parquet as pq

    samples = options.data / "imagenet-samples"
    paths = sorted((samples if samples.is_dir() else options.data).glob("*.parquet"))
    if not paths:
        raise ExperimentError(f"{options.data} has no *.parquet; give a folder of photographs")
    cells = pq.ParquetDataset(paths).read(columns=["img"])["img"].to_pylist()
    size = _size(file) or options.size
    pictures = [prepared(cell["bytes"], size, options.bgr) for cell in cells[: options.limit]]
    return torch.stack(pictures)


def _size(file: Path) -> int | None:
    """Return the width of the images that a file takes, if it says that."""
    session = _session(file)
    width = session.get_inputs()[0].shape[-1]
    return width if isinstance(width, int) else None


def prepared(image: bytes, size: int, bgr: bool) -> Tensor:
    """Return a photograph (3, size, size) between 0 and 1, as the docstring of the module says."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        pixels = torch.from_numpy(np.asarray(picture.convert("RGB")).copy()).permute(2, 0, 1)
    height, width = pixels.shape[1:]
    side = max(height, width)
    square = nn.functional.pad(pixels.float(), (0, side - width, 0, side - height))
    resized = nn.functional.interpolate(square[None], (size, size), mode="bilinear")[0] / 255
    return resized.flip(0) if bgr else resized


def measure(file: Path, images: Tensor, options: argparse.Namespace, folder: Path) -> Row:
    """Compress a file on half of the images, and compare it with the smaller ones on the others."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    calibration, judged = images[order[::2]], images[order[1::2]]
    network = interpress.read_onnx(file)
    analysis = interpress.analyze(
        network, calibration, exclude=options.exclude, patches=False, progress=False
    )
    original = _session(file, options.threads)
    before = _outputs(original, judged)
    rows = []
    for flops in options.flops:
        for multiple in options.round_to:
            result = analysis.compress(flops=flops, round_to=multiple, progress=False)
            smaller = folder / "smaller.onnx"
            result.save_onnx(smaller, overwrite=True)
            session = _session(smaller, options.threads)
            after = _outputs(session, judged)
            rows.append({
                "asked": flops,
                "round_to": multiple,
                "flops": result.flops,
                "params": result.params,
                "bytes": smaller.stat().st_size,
                "rounding": _rounding(result.model, judged[:4], after[:4]),
                "error": float(np.linalg.norm(before - after) / np.linalg.norm(before)),
                "detections": compare_boxes(before, after),
                **_times([original, session], judged, options.runs),
            })  # fmt: skip
    return {
        "file": file.name,
        "network": options.file if options.file == NUDENET else file.stem,
        "bytes": file.stat().st_size,
        "calibrated": len(calibration),
        "judged": len(judged),
        "size": images.shape[-1],
        "threads": options.threads,
        "runs": options.runs,
        "rows": rows,
    }


def _rounding(model: nn.Module, images: Tensor, outputs: Array) -> float:
    """Return the relative difference between the smaller network and its file."""
    with torch.no_grad():
        expected = next(iter(output_tensors(model, Example.of(images)))).numpy()
    return float(np.linalg.norm(expected - outputs) / np.linalg.norm(expected))


def _command(options: argparse.Namespace) -> str:
    words = ["python -m benchmarks onnx"]
    if options.quick:
        return " ".join([*words, "--quick"])
    words += [NUDENET if options.file == NUDENET else "FILE", "--data DIR"]
    words += ["--bgr"] if options.bgr and options.file != NUDENET else []
    for name, default in (("flops", FLOPS), ("round_to", MULTIPLES)):
        given = getattr(options, name)
        flag = f"--{name.replace('_', '-')}"
        words += [flag, *map(str, given)] if tuple(given) != default else []
    words += ["--exclude", *(f"'{name}'" for name in options.exclude)] if options.exclude else []
    words += [f"--limit {options.limit}"] if options.limit else []
    words += [f"--threads {options.threads}"] if options.threads != 1 else []
    return " ".join(words)


def _session(file: Path, threads: int = 1) -> Any:
    runtime = onnx_runtime()
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    return runtime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])


def _outputs(session: Any, images: Tensor) -> Array:
    """Return the first output for every image."""
    name = session.get_inputs()[0].name
    parts = [session.run(None, {name: image[None].numpy()})[0] for image in images]
    return np.concatenate(parts).astype(np.float64)


def _times(sessions: list[Any], images: Tensor, runs: int) -> Row:
    """Return the median CPU times at batch 1, and quartiles of the ratio of neighbouring runs."""
    feeds = [{sessions[0].get_inputs()[0].name: image[None].numpy()} for image in images[:16]]
    seconds: list[list[float]] = [[], []]
    for run in range(-3, runs):
        for session, times in zip(sessions, seconds, strict=True):
            started = time.process_time()
            session.run(None, feeds[run % len(feeds)])
            if run >= 0:  # the first runs are slower
                times.append(time.process_time() - started)
    ratios = [after / before for before, after in zip(*seconds, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4) if runs > 1 else ratios * 3
    medians = [statistics.median(times) for times in seconds]
    return {
        "seconds": medians,
        "time": medians[1] / medians[0],
        "time_quartiles": [quartiles[0], quartiles[2]],
    }


def markdown(report: Row) -> str:
    """Return the table of a report."""
    header = ["FLOPs asked", "widths", "FLOPs left", "file, MB", "output error", "CPU time"]
    has_boxes = any(row["detections"] for row in report["rows"])
    header += [f"boxes above {SCORE}", "of these kept", "overlap"] if has_boxes else []
    rows = []
    for row in report["rows"]:
        low, high = row["time_quartiles"]
        cells = [
            f"{row['asked']:.0%}",
            "any" if row["round_to"] == 1 else f"{row['round_to']}n",
            f"{row['flops']:.1%}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['error']:.1%}",
            f"{row['time']:.2f} ({low:.2f} to {high:.2f})",
        ]
        boxes = row["detections"]
        if boxes is not None:
            overlap = "-" if boxes["overlap"] is None else f"{boxes['overlap']:.2f}"
            cells += [str(boxes["before"]), str(boxes["both"]), overlap]
        rows.append(cells)
    threads = f"{report['threads']} thread{'s' * (report['threads'] != 1)}"
    worst = max(row["rounding"] for row in report["rows"])
    return (
        f"Command: `{command_of(report)}`, interpress {report['interpress']}, on "
        f"{report['machine']}, {report['date']}.\n\n"
        f"{report['network']} (`{report['file']}`, {report['bytes'] / 1e6:.1f} MB) on images of "
        f"{report['size']}x{report['size']}: calibrated on {report['calibrated']}, judged on "
        f"{report['judged']} others. Output error: relative, Frobenius norm. CPU time: of ONNX "
        f"Runtime at batch 1 with {threads}, relative to the original file, with the quartiles of "
        f"{report['runs']} pairs of runs. Every file gives the outputs of the smaller network, up "
        f"to {worst:.0e}.\n\n" + table(header, rows)
    )
