"""Which networks can be compressed, how much of them can shrink, and how long the analysis takes.

    python -m benchmarks coverage                    # four full-size networks in plain PyTorch
    python -m benchmarks coverage --torchvision      # torchvision's classifiers, Torch-Pruning too

Every network is analysed, half of every space that can shrink is removed with a random `T`, and the
result is verified with the projection identity. With `--torchvision`, Torch-Pruning (if installed)
removes half of the channels of the same networks, in the same run and without manual settings. Each
network runs in its own process, with a time limit. Weights are random, and perturbed so that none
is zero.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from benchmarks.experiment import RESULTS, Row
from benchmarks.provenance import command_of, set_aside, stamp
from benchmarks.tables import table

PLAIN_NETWORKS = ("resnet50", "densenet121", "swin_t", "vit_b_16")
_CLASSES = 1000


def build(name: str, source: str) -> tuple[nn.Module, Tensor]:
    """Return a network with random weights, and two images for it."""
    torch.manual_seed(0)
    if source == "torchvision":
        import torchvision

        weights = torchvision.models.get_model_weights(name).DEFAULT
        size = 224 if name.startswith("vit") else weights.transforms().crop_size[0]
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        return torchvision.models.get_model(name, **options), torch.randn(2, 3, size, size)
    from tests.zoo import attention, classic, residual

    makers: dict[str, Callable[[], nn.Module]] = {
        "resnet50": lambda: residual.ResNet(
            residual.Bottleneck, (3, 4, 6, 3), 64, _CLASSES, stem="large"
        ),
        "densenet121": lambda: classic.DenseNet((6, 12, 24, 16), 32, 64, _CLASSES, patch=True),
        "swin_t": lambda: attention.Swin(224, 4, 7, 96, (2, 2, 6, 2), (3, 6, 12, 24), _CLASSES),
        "vit_b_16": lambda: attention.ViT(224, 16, 768, 12, 12, _CLASSES),
        "tiny": lambda: residual.ResNet(residual.Bottleneck, (1, 1), 4, stem="large"),
    }
    return makers[name](), torch.randn(2, 3, 224, 224)


def halve(name: str, source: str, device: str) -> Row:
    """Analyze a network, halve every space that can shrink, and verify the result."""
    from interpress import find_spaces
    from interpress.dryrun.inputs import last_of_every_cell, perturbed, random_interpolations
    from interpress.extend import Cut, prove
    from interpress.surgery.weights import shrunk_copy

    model, x = build(name, source)
    model, x = perturbed(model).to(device), x.to(device)  # some heads are initialized with zeros
    started = time.perf_counter()
    spaces = find_spaces(model, x)
    seconds = time.perf_counter() - started
    kept = {
        space.name: last_of_every_cell(space, max(1, space.size // space.step // 2))
        for space in spaces.shrinkable
    }
    cut = Cut(spaces, kept, random_interpolations(Cut(spaces, kept)))
    proof = prove(spaces, cut, shrunk_copy(cut))
    halved = spaces.cost({key: len(index) for key, index in kept.items()})
    return {
        "seconds": seconds,
        "shrinkable": len(spaces.shrinkable),
        "frozen": len(spaces.frozen),
        "share": spaces.cost.shrinkable_share(),
        "flops": halved.flops / spaces.cost().flops,
        "proved": bool(proof),
        "difference": proof.difference,
    }


def prune_with_torch_pruning(name: str, source: str, device: str) -> Row:
    """Remove half of the channels by L1 magnitude, except those of the classifier."""
    import torch_pruning

    model, x = build(name, source)
    model, x = model.to(device).eval(), x.to(device)
    before = torch_pruning.utils.count_ops_and_params(model, x)[0]
    classifiers = [
        module
        for module in model.modules()
        if (isinstance(module, nn.Linear) and module.out_features == _CLASSES)
        or (isinstance(module, nn.Conv2d) and module.out_channels == _CLASSES)
    ]
    started = time.perf_counter()
    pruner = torch_pruning.pruner.MagnitudePruner(
        model,
        x,
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        pruning_ratio=0.5,
        ignored_layers=classifiers,
    )
    pruner.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        model(x)
    after = torch_pruning.utils.count_ops_and_params(model, x)[0]
    return {"seconds": seconds, "flops": after / before}


TASKS: dict[str, Callable[[str, str, str], Row]] = {
    "interpress": halve,
    "torch_pruning": prune_with_torch_pruning,
}


def isolated(task: str, arguments: tuple[str, str, str], limit: float, threads: int) -> Row:
    """Run a task in a new process; return its row, or `failed` with the reason."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(task, arguments, threads, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            return {"failed": f"no result in {limit:.0f} s"}
        return dict(receiver.recv())
    except EOFError:
        return {"failed": "the process died"}
    finally:
        process.kill()
        process.join()


def _child(task: str, arguments: tuple[str, str, str], threads: int, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    try:
        pipe.send(TASKS[task](*arguments))
    except BaseException as problem:
        lines = str(problem).strip().splitlines()
        pipe.send({"failed": f"{type(problem).__name__}: {lines[0] if lines else ''}"[:110]})


def markdown(report: Row) -> str:
    """Return the table of all networks, and the command that made it."""
    header = ["network", "analysis, s", "shrinkable (frozen) spaces", "FLOPs that can shrink, %",
              "FLOPs left after halving, %", "relative difference",
              "Torch-Pruning: FLOPs left"]  # fmt: skip
    lines = [
        [row["network"], *_halving_cells(row["ours"]), _torch_pruning_cell(row["peer"])]
        for row in report["networks"]
    ]
    return f"Command: `{command_of(report)}`, on {report['machine']}.\n\n" + table(header, lines)


def _halving_cells(row: Row) -> list[str]:
    if "failed" in row:
        return ["-", "-", "-", "-", row["failed"]]
    return [
        f"{row['seconds']:.1f}",
        f"{row['shrinkable']} ({row['frozen']})",
        f"{100 * row['share']:.1f}",
        f"{100 * row['flops']:.0f}",
        f"{row['difference']:.0e}" + ("" if row["proved"] else " NOT PROVED"),
    ]


def _torch_pruning_cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if "failed" in row:
        return str(row["failed"]).replace("|", "/")
    if row["flops"] > 0.99:
        return "nothing removed"
    return f"{row['flops']:.0%} in {row['seconds']:.1f} s"


def network_names(source: str, only: list[str] | None) -> list[str]:
    """Return the networks to run."""
    if only:
        return only
    if source == "ours":
        return list(PLAIN_NETWORKS)
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models))


def main(arguments: list[str] | None = None) -> None:
    """Run all networks and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torchvision", action="store_true", help="run torchvision's classifiers")
    parser.add_argument("--only", nargs="*", help="names of the networks to run (default: all)")
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument(
        "--limit",
        type=float,
        default=100.0,
        help="seconds per network for Torch-Pruning; interpress gets three times as many",
    )
    parser.add_argument("--processes", type=int, default=1, help="networks to run at once")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args(arguments)
    source = "torchvision" if options.torchvision else "ours"
    names = network_names(source, options.only)
    threads = max(1, torch.get_num_threads() // options.processes)

    def run_network(name: str) -> Row:
        task = (name, source, options.device)
        ours = isolated("interpress", task, 3 * options.limit, threads)
        peer = None
        if options.torchvision:
            peer = isolated("torch_pruning", task, options.limit, threads)
        return {"network": name, "ours": ours, "peer": peer}

    with ThreadPoolExecutor(options.processes) as pool:
        runs = pool.map(run_network, names)
        rows = list(track(runs, "Networks", len(names), console=Console(stderr=True)))
    report = {
        "command": "python -m benchmarks coverage"
        + (" --torchvision" if options.torchvision else "")
        + (f" --device {options.device}" if options.device != "cpu" else "")
        + (f" --processes {options.processes}" if options.processes != 1 else ""),
        **stamp(f"coverage-{source}", torch.device(options.device)),
        "networks": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"coverage-{source}"
    set_aside(stem.with_suffix(".json"))
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(report))
    Console().print(markdown(report), markup=False)


if __name__ == "__main__":
    main()
