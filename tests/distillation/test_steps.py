import torch
from torch import nn

from interpress.distillation.steps import Steps, trainable


def gradient_step(network: nn.Module, steps: Steps, part: float = 0.1) -> None:
    network(torch.ones(4, 3)).square().sum().backward()
    steps.step(part)


def test_only_the_body_trains() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    network[0].bias.requires_grad_(False)
    with trainable(network):
        assert not any(module.training for module in network.modules())
        assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(module.training for module in network.modules())
    assert not network[0].bias.requires_grad
    assert network[0].weight.requires_grad


def test_a_step_is_small_relative_to_the_weights() -> None:
    for scale in (1e-3, 1.0, 1e3):
        torch.manual_seed(0)
        network = nn.Linear(3, 30)
        with torch.no_grad():
            network.weight *= scale
        before = network.weight.detach().clone()
        gradient_step(network, Steps(network))
        moved = float((network.weight.detach() - before).square().mean().sqrt())
        size = float(before.square().mean().sqrt())
        assert 0 < moved < 4e-3 * max(size, 1e-2)


def test_weights_come_back() -> None:
    network = nn.Linear(3, 3)
    steps = Steps(network)
    state, before = steps.state(), network.weight.detach().clone()
    gradient_step(network, steps)
    assert not torch.equal(network.weight, before)
    steps.restore(state)
    assert torch.equal(network.weight, before)


def test_half_precision_weights_follow_exact_copies() -> None:
    torch.manual_seed(0)
    network = nn.Linear(3, 3).bfloat16()
    steps = Steps(network)
    start = network.weight.detach().clone()
    for _ in range(100):
        network(torch.ones(4, 3, dtype=torch.bfloat16)).square().sum().backward()
        steps.step(0.1)
    # single steps are below the rounding of bfloat16, but their sum is not
    moved = (network.weight.detach() - start).abs()
    assert float(moved.max()) > 0.05 * float(start.abs().max())


def test_gradients_that_are_not_finite_change_nothing() -> None:
    network = nn.Linear(3, 3)
    steps, before = Steps(network), network.weight.detach().clone()
    (network(torch.ones(4, 3)).sum() * float("nan")).backward()
    steps.step(0.1)
    assert torch.equal(network.weight, before)


def test_resuming_gives_the_same_steps() -> None:
    torch.manual_seed(0)
    network = nn.Linear(3, 3)
    steps = Steps(network)
    gradient_step(network, steps)
    saved = {name: tensor.clone() for name, tensor in steps.checkpoint().items()}
    gradient_step(network, steps, 0.2)
    torch.manual_seed(0)
    again = nn.Linear(3, 3)
    other = Steps(again)
    other.resume(saved, steps.scale)
    gradient_step(again, other, 0.2)
    assert torch.equal(again.weight, network.weight)
