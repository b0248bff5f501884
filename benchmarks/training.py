"""Training, fine-tuning and distillation of small networks, with the data on the device.

On a GPU one step (pick a batch, augment, forward, backward, update) is recorded as a CUDA graph and
replayed: networks this small are bound by kernel launches otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.experiment import Setting

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The loss of outputs, given the (augmented) images and their labels."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    epochs: int
    rate: Callable[[int], float]
    """The learning rate of an epoch, counted from 0."""
    batch: int = 128
    momentum: float = 0.0
    decay: float = 0.0
    half: bool = False
    """Whether a GPU computes in bfloat16 (weights stay float32)."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.SGD(
            parameters, self.rate(0), momentum=self.momentum, weight_decay=self.decay
        )


def labelled(outputs: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with the labels."""
    return nn.functional.cross_entropy(outputs, labels)


def distilled(teacher: nn.Module) -> Objective:
    """Divergence from a teacher's probabilities; no labels."""

    def objective(outputs: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            wished = teacher(images).softmax(1)
        return nn.functional.cross_entropy(outputs, wished)

    return objective


def shifted(images: Tensor, by: int = 4) -> Tensor:
    """Random crops of the padded images, half of them mirrored."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, (by, by, by, by))
    device = images.device
    top, left = torch.randint(0, 2 * by + 1, (2, count, 1), device=device)
    y = top + torch.arange(height, device=device)
    x = left + torch.arange(width, device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    x = torch.where(mirrored, x.flip(1), x)
    rows = torch.arange(count, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[rows, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    schedule: Schedule,
    *,
    objective: Objective = labelled,
    augment: Callable[[Tensor], Tensor] | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    setting: Setting | None = None,
    label: str = "training",
    each_epoch: Callable[[int], None] | None = None,
) -> nn.Module:
    """Train in place; `order_seed` draws the order of the data, `seed` all else."""
    device = next(model.parameters()).device
    images, labels = images.to(device), labels.to(device)
    order = torch.Generator().manual_seed(seed if order_seed is None else order_seed)
    torch.manual_seed(seed)
    optimizer = schedule.optimizer(model)
    step = _Step(model, optimizer, objective, images, labels, augment, schedule.half)
    batch = min(schedule.batch, len(images))
    epochs = range(schedule.epochs)
    for epoch in epochs if setting is None else setting.track(epochs, label):
        model.train()
        step.at_rate(schedule.rate(epoch))
        shuffled = torch.randperm(len(images), generator=order).to(device)
        for number in range(len(images) // batch):
            step(shuffled[number * batch : (number + 1) * batch])
        if each_epoch is not None:
            model.eval()
            each_epoch(epoch)
    return model.eval()


class _Step:
    """One update of a model; on a GPU recorded once per learning rate, then replayed."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        images: Tensor,
        labels: Tensor,
        augment: Callable[[Tensor], Tensor] | None,
        half: bool,
    ) -> None:
        self.half = half and images.is_cuda
        self.model, self.optimizer, self.objective = model, optimizer, objective
        self.images, self.labels, self.augment = images, labels, augment
        self._graph: torch.cuda.CUDAGraph | None = None
        self._index: Tensor | None = None
        self._taken = 0

    def at_rate(self, rate: float) -> None:
        """Change the learning rate."""
        for group in self.optimizer.param_groups:
            if group["lr"] != rate:
                group["lr"] = rate
                self._graph = None

    def __call__(self, index: Tensor) -> None:
        """One update on these examples."""
        self._taken += 1
        if not index.is_cuda:
            self._update(index)
            return
        if self._taken <= 3:  # lets libraries choose their algorithms before recording
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._update(index)
            torch.cuda.current_stream().wait_stream(side)
            return
        if self._graph is None:
            self._index = index.clone()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._update(self._index)
        assert self._index is not None
        self._index.copy_(index)
        self._graph.replay()

    def _update(self, index: Tensor) -> None:
        images = self.images[index]
        if self.augment is not None:
            images = self.augment(images)
        with torch.autocast("cuda", torch.bfloat16, self.half, cache_enabled=False):
            outputs = self.model(images)
            loss = self.objective(outputs.float(), images, self.labels[index])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch: int = 2000) -> float:
    """Percent of labels that a network gives."""
    return 100 * float((predicted(model, images, batch) == labels.cpu()).float().mean())


def predicted(model: nn.Module, images: Tensor, batch: int = 2000) -> Tensor:
    """The class a network gives every image."""
    device = next(model.parameters()).device
    with torch.no_grad():
        return torch.cat([model(some.to(device)).argmax(1).cpu() for some in images.split(batch)])
