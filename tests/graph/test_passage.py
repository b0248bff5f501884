"""Networks run from block to block; their values can rest elsewhere, be saved and be restored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress.graph.blocks import border_bytes, split
from interpress.graph.capture import capture
from interpress.graph.executor import Executor
from interpress.graph.frame_record import restore, to_record
from interpress.graph.passage import Passage
from interpress.graph.program import Program


class Branches(nn.Module):
    """Keeps a transposed, an expanded and a split value, and a number, across its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        turned, wide = h.mT, h[:, :1].expand(-1, x.shape[1], -1)
        left, right = h.chunk(2, dim=-1)
        h = self.second(h)
        return h + turned.mT + wide + torch.cat([right, left], -1)


def program() -> Program:
    torch.manual_seed(0)
    return capture(Branches(), torch.randn(3, 4, 6))


def halves(program: Program) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    operators = list(program.operators())
    linear = [i for i, node in enumerate(operators) if "linear" in str(node.target)]
    return operators[: linear[1]], operators[linear[1] :]


def test_two_blocks_give_what_the_whole_gives() -> None:
    captured = program()
    batches = [torch.randn(2, 4, 6), torch.randn(5, 4, 6)]
    executor = Executor(captured)
    passage = Passage.begin(executor, batches, torch.device("cpu"))
    executor.device = torch.device("cpu")
    for nodes in halves(captured):
        passage.advance(nodes)
    for number, batch in enumerate(batches):
        assert torch.equal(passage.outputs(number)[0], executor.run(batch)[0])


def test_saved_values_come_back_to_the_bit_and_in_their_layout() -> None:
    captured = program()
    before, after = halves(captured)
    passage = Passage.begin(Executor(captured), [torch.randn(2, 4, 6)])
    passage.advance(before)
    tensors, record = to_record({"net": passage.group})
    saved = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    other = Passage.begin(Executor(captured), [torch.zeros(2, 4, 6)])
    restore({"net": other.group}, saved, record)
    other.settle()
    for node, value in passage.frames[0].values.items():
        restored = other.frames[0].values[node]
        if isinstance(value, Tensor):
            assert torch.equal(restored, value)
            assert restored.stride() == value.stride()
    passage.advance(after)
    other.advance(after)
    assert torch.equal(other.outputs(0)[0], passage.outputs(0)[0])


def test_a_branch_leaves_the_trunk_alone() -> None:
    captured = program()
    before, after = halves(captured)
    passage = Passage.begin(Executor(captured), [torch.randn(2, 4, 6)])
    passage.advance(before)
    names = set(passage.frames[0].values)
    passage.branch().advance(after)
    assert set(passage.frames[0].values) == names


def test_blocks_end_where_little_is_alive_and_never_inside_what_is_inseparable() -> None:
    captured = program()
    operators = list(captured.operators())
    first, second = (node for node in operators if "linear" in str(node.target))
    blocks = split(captured, [{first}, {second}])
    assert [node for block in blocks for node in block.nodes] == operators
    assert len(blocks) == 2
    assert 0 < border_bytes(captured, blocks) <= 3 * 4 * 6 * 4 * 6
    assert len(split(captured, [{first}, {second}], [{first, second}])) == 1
