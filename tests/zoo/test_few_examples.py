"""`compress` with a handful of random examples: always an answer, proved and within the budget."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.members import ZOO, build
from torch import Tensor

import interpress
from interpress import ArgumentError, FewExamplesWarning, Result
from interpress.graph.example import Example

FAST = (
    "mlp", "lenet", "mobilenet_v1", "mobilenet_v3", "resnext", "shufflenet_v1", "squeezenet",
    "convnext", "unet", "voxels", "einsum_attention", "vit", "bert", "gated_mlp", "called_twice",
    "two_inputs", "bare_parameters", "in_place", "bfloat16", "unknown_operator",
)  # fmt: skip
UNREACHABLE = "recurrent"  # its LSTM and GRU stay whole, and hold 85 % of its FLOPs

pytestmark = pytest.mark.filterwarnings(
    "ignore::interpress.FewExamplesWarning",
    "ignore::interpress.RuinedWarning",
    "ignore::interpress.MemorizedWarning",
)


def random_examples(name: str, count: int) -> tuple[torch.nn.Module, Example]:
    """Return a network and random inputs of the shapes it takes."""
    model, example = build(name)
    generator = torch.Generator().manual_seed(1)

    def drawn(tensor: Tensor) -> Tensor:
        shape = (count, *tensor.shape[1:])
        if tensor.is_floating_point():
            return torch.randn(shape, generator=generator).to(tensor.dtype)
        return torch.randint(1, 50, shape, generator=generator)

    return model, Example.of(example).map(drawn)


def compress(name: str, count: int, flops: float = 0.8) -> Result:
    model, examples = random_examples(name, count)
    return interpress.compress(model, examples, flops=flops, progress=False)


def check(result: Result) -> None:
    assert result.network.proof
    assert result.flops <= 0.8
    assert result.agreement is not None


@pytest.mark.parametrize("name", FAST)
def test_eight_examples_give_an_answer(name: str) -> None:
    check(compress(name, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ZOO.keys() - set(FAST) - {UNREACHABLE}))
def test_eight_examples_give_an_answer_for_the_rest_of_the_zoo(name: str) -> None:
    check(compress(name, 8))


def test_a_budget_that_cannot_be_met_says_which_can() -> None:
    with pytest.raises(ArgumentError, match=r"flops=0\.8 cannot be reached.*at least 0\.852"):
        compress(UNREACHABLE, 8)
    result = compress(UNREACHABLE, 8, flops=0.852)
    assert result.network.proof
    assert result.flops <= 0.852


@pytest.mark.parametrize("name", ["lenet", "resnet18", "vit", "t5", "shared_weights"])
def test_one_example_gives_an_answer(name: str) -> None:
    result = compress(name, 1)
    check(result)
    assert "examples that were fitted" in result.judged_on


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", sorted(ZOO.keys() - {UNREACHABLE}))
def test_any_number_of_examples_gives_an_answer(name: str, count: int) -> None:
    check(compress(name, count))


@pytest.mark.filterwarnings("default::interpress.FewExamplesWarning")
def test_one_row_is_too_few_for_an_mlp_and_the_user_is_told() -> None:
    with pytest.warns(FewExamplesWarning, match=r"say too little.*0.*1 rows.*more examples"):
        result = compress("mlp", 1)
    check(result)
    assert set(result.orders.untrusted) == {"0", "2"}
    assert any("say too little" in note for note in result.notes)
