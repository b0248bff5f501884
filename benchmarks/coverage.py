"""Which networks can be compressed, how much of them, and how long the analysis takes.

    python -m benchmarks.coverage                    # four full-size networks, built here
    python -m benchmarks.coverage --torchvision      # torchvision's classifiers, peer beside

Every network is analysed, half of every shrinkable space is removed with a random `T`, and the
result is proved by the projection identity. With `--torchvision`, Torch-Pruning (where installed)
is asked in the same run for half of all channels of the same networks, without hand edits. Each
network runs in a process of its own, with a time limit. Weights are random, and perturbed so that
none is zero.
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

from benchmarks.experiment import RESULTS, machine

Row = dict[str, Any]
OUR_NETWORKS = ("resnet50", "densenet121", "swin_t", "vit_b_16")


def build(name: str, source: str) -> tuple[nn.Module, Tensor]:
    """A network with random weights, and two images for it."""
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
            residual.Bottleneck, (3, 4, 6, 3), 64, 1000, stem="large"
        ),
        "densenet121": lambda: classic.DenseNet((6, 12, 24, 16), 32, 64, 1000, patch=True),
        "swin_t": lambda: attention.Swin(224, 4, 7, 96, (2, 2, 6, 2), (3, 6, 12, 24), 1000),
        "vit_b_16": lambda: attention.ViT(224, 16, 768, 12, 12, 1000),
        "tiny": lambda: residual.ResNet(residual.Bottleneck, (1, 1), 4, stem="large"),
    }
    return makers[name](), torch.randn(2, 3, 224, 224)


def ours(name: str, source: str, device: str) -> Row:
    """Analysis time, what can shrink, and whether half of it, removed, is proved right."""
    from interpress import find_spaces
    from interpress.dryrun.inputs import last_of_every_cell, perturbed, random_interpolations
    from interpress.surgery.cut import Cut
    from interpress.surgery.projection_identity import prove
    from interpress.surgery.weights import shrunk_copy

    model, x = build(name, source)
    model, x = perturbed(model).to(device), x.to(device)  # some start with a head of zeros
    start = time.perf_counter()
    spaces = find_spaces(model, x)
    taken = time.perf_counter() - start
    kept = {
        space.name: last_of_every_cell(space, max(1, space.size // space.step // 2))
        for space in spaces.shrinkable
    }
    cut = Cut(spaces, kept, random_interpolations(Cut(spaces, kept)))
    proof = prove(spaces, cut, shrunk_copy(cut))
    small = spaces.cost({key: len(index) for key, index in kept.items()})
    whole = spaces.cost()
    return {
        "seconds": taken,
        "shrinkable": len(spaces.shrinkable),
        "frozen": len(spaces.frozen),
        "share": spaces.cost.shrinkable_share(),
        "flops": small.flops / whole.flops,
        "proved": bool(proof),
        "difference": proof.difference,
    }


def torch_pruning(name: str, source: str, device: str) -> Row:
    """The peer: half of the channels by L1 magnitude, the classifier left alone, no hand edits."""
    import torch_pruning as peer

    model, x = build(name, source)
    model, x = model.to(device).eval(), x.to(device)
    before = peer.utils.count_ops_and_params(model, x)[0]
    classifiers = [
        module
        for module in model.modules()
        if (isinstance(module, nn.Linear) and module.out_features == 1000)
        or (isinstance(module, nn.Conv2d) and module.out_channels == 1000)
    ]
    start = time.perf_counter()
    pruner = peer.pruner.MagnitudePruner(
        model,
        x,
        importance=peer.importance.MagnitudeImportance(p=1),
        pruning_ratio=0.5,
        ignored_layers=classifiers,
    )
    pruner.step()
    taken = time.perf_counter() - start
    with torch.no_grad():
        model(x)
    after = peer.utils.count_ops_and_params(model, x)[0]
    return {"seconds": taken, "flops": after / before}


def _child(task: str, arguments: tuple[str, ...], threads: int, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    try:
        pipe.send({"ours": ours, "torch_pruning": torch_pruning}[task](*arguments))
    except BaseException as problem:
        lines = str(problem).strip().splitlines()
        pipe.send({"failed": f"{type(problem).__name__}: {lines[0] if lines else ''}"[:110]})


def isolated(task: str, arguments: tuple[str, ...], limit: float, threads: int) -> Row:
    """Run a task in a process of its own, at most `limit` seconds."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(task, arguments, threads, sender))
    process.start()
    sender.close()
    try:
        return (
            dict(receiver.recv())
            if receiver.poll(limit)
            else {"failed": f"no result in {limit:.0f} s"}
        )
    except EOFError:
        return {"failed": "the process died"}
    finally:
        process.kill()
        process.join()


def describe(row: Row | None) -> str:
    """One cell of the table about the peer."""
    if row is None:
        return "-"
    if "failed" in row:
        return str(row["failed"]).replace("|", "/")
    if row["flops"] > 0.99:
        return "nothing removed"
    return f"{row['flops']:.0%} of FLOPs left, {row['seconds']:.1f} s"


def markdown(report: Row) -> str:
    """The table, for people."""
    lines = [
        f"Made by `{report['command']}` on {report['machine']}.",
        "",
        "| network | analysis | spaces (frozen) | FLOPs that can shrink | halved | proof | "
        "Torch-Pruning |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["networks"]:
        mine = row["ours"]
        if "failed" in mine:
            cells = ["-", "-", "-", "-", mine["failed"]]
        else:
            cells = [
                f"{mine['seconds']:.1f} s",
                f"{mine['shrinkable']} ({mine['frozen']})",
                f"{mine['share']:.1%}",
                f"{mine['flops']:.0%} of FLOPs left",
                f"{mine['difference']:.0e}" + ("" if mine["proved"] else " NOT PROVED"),
            ]
        lines.append("| " + " | ".join([row["network"], *cells, describe(row["peer"])]) + " |")
    return "\n".join(lines) + "\n"


def names_of(source: str, only: list[str] | None) -> list[str]:
    if only:
        return only
    if source == "ours":
        return list(OUR_NETWORKS)
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torchvision", action="store_true", help="torchvision's classifiers")
    parser.add_argument("--only", nargs="*", help="names of networks, instead of all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=100.0, help="seconds per network")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    source = "torchvision" if options.torchvision else "ours"
    names = names_of(source, options.only)
    threads = max(1, torch.get_num_threads() // options.processes)

    def one(name: str) -> Row:
        task = (name, source, options.device)
        mine = isolated("ours", task, 3 * options.limit, threads)
        peer = (
            isolated("torch_pruning", task, options.limit, threads) if options.torchvision else None
        )
        return {"network": name, "ours": mine, "peer": peer}

    with ThreadPoolExecutor(options.processes) as pool:
        rows = list(
            track(pool.map(one, names), "Networks", len(names), console=Console(stderr=True))
        )
    report = {
        "command": "python -m benchmarks.coverage"
        + (" --torchvision" if options.torchvision else "")
        + (f" --device {options.device}" if options.device != "cpu" else ""),
        "machine": machine(torch.device(options.device)),
        "networks": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"coverage-{source}"
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(report))
    Console().print(markdown(report), markup=False)


if __name__ == "__main__":
    main()
