import torch
from torch import nn

from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import HeldOut, Pair
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example


def pair(at_once: int) -> tuple[Pair, Example]:
    torch.manual_seed(0)
    original, smaller = nn.Linear(6, 4), nn.Linear(6, 4)
    example = Example.of(torch.randn(10, 6))
    meaning = find_meaning(original, example)
    loss = OutputLoss(meaning, [[original(example.args[0]).detach()]])
    return Pair(original, smaller, meaning, loss, at_once), example


def test_gradients_add_up_to_those_of_the_whole_batch() -> None:
    (whole, example), (parts, _) = pair(10), pair(3)
    whole.add_gradients(example)
    parts.add_gradients(example)
    for one, other in zip(whole.smaller.parameters(), parts.smaller.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert all(parameter.grad is None for parameter in whole.original.parameters())


def test_held_out_losses_are_those_of_the_weights_now() -> None:
    both, example = pair(10)
    held = HeldOut(both, [example])
    before = held.losses()
    assert before.shape == (10,)
    both.smaller.load_state_dict(both.original.state_dict())
    assert float(held.losses().max()) < 1e-10 < float(before.min())
