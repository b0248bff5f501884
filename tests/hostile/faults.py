"""Inject faults into compress, analyze, save and load, and check that nothing is left changed.

    python -m tests.hostile.faults --count 500

Every run raises one exception (an error or a keyboard interrupt) at a random Python call inside
interpress. Afterwards the model, its modes, hooks and buffers, the global state of torch and the
folder on disk must be as they were before.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import interpress
from interpress import demo

PACKAGE = str(Path(interpress.__file__).parent)


class Fault(Exception):
    """The injected error."""


class Injector:
    """Counts calls inside interpress and raises at one of them."""

    def __init__(self, at: int | None = None, error: type[BaseException] = Fault) -> None:
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        self.calls += 1
        if self.calls == self.at:
            raise self.error(f"injected at {frame.f_code.co_filename}:{frame.f_lineno}")

    def run(self, body: Callable[[], Any]) -> bool:
        """Run a body; return whether it was stopped by the fault."""
        sys.setprofile(self)
        try:
            body()
        except (self.error, interpress.InterpressError):
            return True
        finally:
            sys.setprofile(None)
        return False


class Scene:
    """A model, some data and a folder, with everything that must not change."""

    def __init__(self, folder: Path) -> None:
        self.model = demo.network()
        self.model.features[1].train()  # modes differ between modules
        self.model.register_forward_hook(lambda module, args, output: None)
        self.data = demo.load_digits().calibration[:60]
        self.folder = folder
        self.result = interpress.compress(self.model, self.data, flops=0.7, progress=False)
        self.result.save(folder / "result")
        self.expected = self.state()

    def actions(self) -> dict[str, Callable[[], Any]]:
        """The calls to inject faults into."""
        return {
            "compress": lambda: interpress.compress(
                self.model, self.data, flops=0.7, progress=False
            ),
            "analyze": lambda: interpress.analyze(self.model, self.data, progress=False),
            "save": lambda: self.result.save(self.folder / "result", overwrite=True),
            "load": lambda: interpress.load(self.folder / "result", self.model),
        }

    def state(self) -> dict[str, Any]:
        """Everything that must be the same before and after."""
        model = self.model
        return {
            "modes": [module.training for module in model.modules()],
            "values": {name: tensor.clone() for name, tensor in model.state_dict().items()},
            "objects": [id(t) for t in (*model.parameters(), *model.buffers())],
            "gradients": [p.requires_grad for p in model.parameters()],
            "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
            "attributes": [sorted(vars(module)) for module in model.modules()],
            "dtype": torch.get_default_dtype(),
            "fast path": torch.backends.mha.get_fastpath_enabled(),
            "grad mode": torch.is_grad_enabled(),
            "inference mode": torch.is_inference_mode_enabled(),
            "random state": torch.get_rng_state(),
            "folder": self._files(),
            "result loads": self._loads(),
        }

    def _files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def _loads(self) -> bool:
        try:
            interpress.load(self.folder / "result", self.model)
        except interpress.InterpressError:
            return False
        return True

    def differences(self) -> list[str]:
        """The names of what is not as it was."""
        now = self.state()
        return [name for name, value in self.expected.items() if not _same(value, now[name])]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


def inject(
    count: int, seed: int = 0, report: Callable[[str], object] = sys.stdout.write
) -> Counter[str]:
    """Inject faults in turn into every action; return how many ended how."""
    generator = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scene = Scene(Path(folder))
        actions = scene.actions()
        lengths = {}
        for name, action in actions.items():
            counter = Injector()
            counter.run(action)
            lengths[name] = counter.calls
        for number in range(count):
            name = list(actions)[number % len(actions)]
            error = generator.choice([Fault, KeyboardInterrupt])
            injector = Injector(generator.randint(1, lengths[name]), error)
            stopped = injector.run(actions[name])
            left = scene.differences()
            outcomes["stopped" if stopped else "went on"] += 1
            if left:
                outcomes["left changed"] += 1
                report(f"{name}, call {injector.at}, {error.__name__}: {', '.join(left)}\n")
                scene.model = copy.deepcopy(scene.model)
                scene = Scene(Path(tempfile.mkdtemp(dir=folder)))
                actions = scene.actions()
    return outcomes


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes = inject(options.count, options.seed)
    sys.stdout.write(f"{options.count} faults: {dict(outcomes)}\n")
    sys.exit(1 if outcomes["left changed"] else 0)


if __name__ == "__main__":
    main()
