"""Twenty small networks, data sets and budgets: distillation is never worse than its start."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import Pair
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example

Draw = Callable[[int, torch.Generator], Tensor]


class Case(NamedTuple):
    """A network to train, its inputs, and what it should learn to predict."""

    network: nn.Module
    draw: Draw
    targets: Callable[[Tensor], list[Tensor]]


class TwoHeads(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.scores, self.value = nn.Linear(width, 5), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.trunk(x)
        return {"scores": self.scores(hidden), "value": self.value(hidden)}


class Tokens(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.mix = nn.Conv1d(16, width, 3, padding=1)
        self.hidden, self.scores = nn.Linear(width, width), nn.Linear(width, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.mix(self.embedding(tokens).mT).relu().mT
        return self.scores(self.hidden(x).relu())


def regression(width: int) -> Case:
    rule = torch.randn(12, 3)
    network = nn.Sequential(
        nn.Linear(12, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    )
    return Case(network, lambda n, g: torch.randn(n, 12, generator=g), lambda x: [(x @ rule).sin()])


def two_heads(width: int) -> Case:
    rule = torch.randn(10, 6)

    def targets(x: Tensor) -> list[Tensor]:
        y = (x @ rule).sin()
        return [4 * y[:, :5], y[:, 5:]]

    return Case(TwoHeads(width), lambda n, g: torch.randn(n, 10, generator=g), targets)


def tokens(width: int) -> Case:
    table = 3 * torch.randn(30, 6)
    draw: Draw = lambda n, g: torch.randint(30, (n, 9), generator=g)  # noqa: E731
    return Case(Tokens(width), draw, lambda x: [table[x] + table[x.roll(1, 1)]])


def images(width: int) -> Case:
    rule = torch.randn(6, 4)
    network = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4),
    )  # fmt: skip

    def draw(n: int, g: torch.Generator) -> Tensor:
        levels = torch.randn(n, 3, 1, 1, generator=g)
        return levels + torch.randn(n, 3, 10, 10, generator=g)

    def targets(x: Tensor) -> list[Tensor]:
        seen = torch.cat([x.mean((2, 3)), x.std((2, 3))], 1)
        return [seen @ rule]

    return Case(network, draw, targets)


KINDS = {"regression": regression, "two heads": two_heads, "tokens": tokens, "images": images}


def train(case: Case, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(case.network.parameters(), lr=3e-3)
    case.network.train()
    for _ in range(300):
        x = case.draw(64, generator)
        outputs: Any = case.network(x)
        outputs = list(outputs.values()) if isinstance(outputs, dict) else [outputs]
        pairs = zip(outputs, case.targets(x), strict=True)
        loss = torch.stack([(output - target).square().mean() for output, target in pairs]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    case.network.eval()


def fresh_losses(original: nn.Module, network: nn.Module, x: Tensor) -> Tensor:
    """Return the distance from the original's outputs, per example."""
    example = Example.of(x)
    meaning = find_meaning(original, example)
    wanted = Pair(original, network, meaning, None, len(x)).wanted(example)  # type: ignore[arg-type]
    return Pair(original, network, meaning, OutputLoss(meaning, [wanted]), len(x)).losses(
        example, wanted
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::interpress.MemorizedWarning")
def test_on_new_data_no_network_gets_worse_and_most_get_better() -> None:
    gains = []
    for seed in range(5):
        for kind, build in KINDS.items():
            torch.manual_seed(seed)
            choose, generator = random.Random(f"{kind} {seed}"), torch.Generator().manual_seed(seed)
            case = build(choose.choice([24, 40, 64]))
            train(case, generator)
            data = case.draw(choose.choice([60, 150, 400]), generator)
            budget = choose.uniform(0.15, 0.7)
            result = interpress.compress(case.network, data, flops=budget, progress=False)
            distilled = result.distill(steps=200, progress=False)
            x = case.draw(1000, generator)
            before, after = (
                fresh_losses(case.network, network, x)
                for network in (result.model, distilled.model)
            )
            gain = before - after
            error = float(gain.std()) / len(gain) ** 0.5
            assert float(gain.mean()) >= -3 * error, (kind, seed, gain.mean(), error)
            gains.append(float(gain.mean() / before.mean().clamp(min=1e-12)))
    assert sum(gains) / len(gains) > 0.05
