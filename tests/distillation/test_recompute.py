import torch
from torch import nn

from interpress.distillation.memory import batch_sizes
from interpress.distillation.recompute import recomputed
from interpress.graph.example import Example


def deep() -> nn.Module:
    torch.manual_seed(0)
    block = lambda: nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 32))  # noqa: E731
    return nn.Sequential(*[block() for _ in range(4)])


def gradients(network: nn.Module) -> list[torch.Tensor]:
    network.zero_grad()
    network(torch.ones(8, 32)).square().sum().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def held(network: nn.Module) -> int:
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(torch.ones(8, 32))
    return sum(sizes.values())


def test_gradients_are_the_same_and_less_is_held() -> None:
    network = deep()
    plain, plain_bytes = gradients(network), held(network)
    with recomputed(network, True):
        again, fewer_bytes = gradients(network), held(network)
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other)
    assert fewer_bytes < 0.2 * plain_bytes
    assert held(network) == plain_bytes


def test_memory_bounds_the_examples_that_run_at_once() -> None:
    network, example = deep(), Example.of(torch.ones(4, 32))
    plenty = batch_sizes(network, example, 1, torch.device("cpu"), None)
    assert plenty == (64, 64, False)
    kib = 2**10 / 2**30
    few = batch_sizes(network, example, 1, torch.device("cpu"), 40 * kib)
    assert 1 <= few.at_once < 10
    assert few.step == 64
    assert not few.recompute
    assert batch_sizes(network, example, 1, torch.device("cpu"), kib) == (64, 1, True)


def test_long_examples_make_smaller_steps() -> None:
    example = Example.of(torch.ones(4, 32))
    assert batch_sizes(deep(), example, 512, torch.device("cpu"), None).step == 4
