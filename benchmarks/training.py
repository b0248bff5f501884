"""Training, fine-tuning and distillation of small networks, with all data on the device.

On a GPU one step (select a batch, augment, forward, backward, update) is recorded as a CUDA graph
and replayed. Without it, the run time of networks this small would be dominated by kernel launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.data.cifar import Images
from benchmarks.experiment import Settings

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The loss of a batch, from outputs, (augmented) images and labels."""

# CUDA libraries choose their algorithms during the first steps, which must not be recorded.
_WARMUP_STEPS = 3


def cross_entropy(outputs: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy with the labels."""
    return nn.functional.cross_entropy(outputs, labels)


def distillation(teacher: nn.Module) -> Objective:
    """Return the cross-entropy with a teacher's probabilities; it ignores the labels."""

    def objective(outputs: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            targets = teacher(images).softmax(1)
        return nn.functional.cross_entropy(outputs, targets)

    return objective


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: SGD with these options."""

    epochs: int
    learning_rate: Callable[[int], float]
    """The learning rate of an epoch; epochs count from 0."""
    batch: int = 128
    momentum: float = 0.0
    weight_decay: float = 0.0
    bfloat16: bool = False
    """Whether a GPU computes in bfloat16; weights stay in float32."""
    objective: Objective = cross_entropy
    augment: Callable[[Tensor], Tensor] | None = None
    seed: int = 0
    order_seed: int | None = None
    """Draws the order of the data, if it differs from `seed`."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimizer for the trainable parameters of a model."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.SGD(
            parameters,
            self.learning_rate(0),
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


def random_crops(images: Tensor, padding: int = 4) -> Tensor:
    """Return a random crop of every padded image, mirrored with probability 1/2."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, (padding, padding, padding, padding))
    device = images.device
    top, left = torch.randint(0, 2 * padding + 1, (2, count, 1), device=device)
    y = top + torch.arange(height, device=device)
    x = left + torch.arange(width, device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    x = torch.where(mirrored, x.flip(1), x)
    rows = torch.arange(count, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[rows, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def train(
    model: nn.Module,
    data: Images,
    recipe: Recipe,
    *,
    settings: Settings | None = None,
    label: str = "training",
    on_epoch: Callable[[int], None] | None = None,
) -> nn.Module:
    """Train a model in place and return it in evaluation mode.

    `on_epoch` is called after every epoch, with the model in evaluation mode. `settings` shows the
    progress under `label`.
    """
    device = next(model.parameters()).device
    data = Images(data.images.to(device), data.labels.to(device))
    count = len(data.images)
    order_seed = recipe.seed if recipe.order_seed is None else recipe.order_seed
    generator = torch.Generator().manual_seed(order_seed)
    torch.manual_seed(recipe.seed)
    step = _Step(model, data, recipe)
    batch = min(recipe.batch, count)
    epochs = range(recipe.epochs)
    for epoch in epochs if settings is None else settings.track(epochs, label):
        model.train()
        step.set_learning_rate(recipe.learning_rate(epoch))
        shuffled = torch.randperm(count, generator=generator).to(device)
        for number in range(count // batch):
            step(shuffled[number * batch : (number + 1) * batch])
        if on_epoch is not None:
            model.eval()
            on_epoch(epoch)
    return model.eval()


class _Step:
    """One update of a model; on a GPU it is recorded once per learning rate and replayed."""

    def __init__(self, model: nn.Module, data: Images, recipe: Recipe) -> None:
        self.model, self.data, self.recipe = model, data, recipe
        self.optimizer = recipe.optimizer(model)
        self.bfloat16 = recipe.bfloat16 and data.images.is_cuda
        self._graph: torch.cuda.CUDAGraph | None = None
        self._index: Tensor | None = None
        self._steps = 0

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate; a recorded step has the old rate and is discarded."""
        for group in self.optimizer.param_groups:
            if group["lr"] != rate:
                group["lr"] = rate
                self._graph = None

    def __call__(self, index: Tensor) -> None:
        """Update the model on the examples with these indices."""
        self._steps += 1
        if not index.is_cuda:
            self._update(index)
            return
        if self._steps <= _WARMUP_STEPS:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._update(index)
            torch.cuda.current_stream().wait_stream(stream)
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
        images = self.data.images[index]
        if self.recipe.augment is not None:
            images = self.recipe.augment(images)
        with torch.autocast("cuda", torch.bfloat16, self.bfloat16, cache_enabled=False):
            outputs = self.model(images)
            loss = self.recipe.objective(outputs.float(), images, self.data.labels[index])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def accuracy(model: nn.Module, data: Images, batch: int = 2000) -> float:
    """Return the percentage of images that a network classifies correctly."""
    correct = predict(model, data.images, batch) == data.labels.cpu()
    return 100 * float(correct.float().mean())


def predict(model: nn.Module, images: Tensor, batch: int = 2000) -> Tensor:
    """Return the predicted class of every image."""
    device = next(model.parameters()).device
    with torch.no_grad():
        outputs = [model(some.to(device)).argmax(1).cpu() for some in images.split(batch)]
    return torch.cat(outputs)
